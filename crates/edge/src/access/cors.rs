//! CORS: the web pages that may read the responses of a route (WHATWG Fetch, "HTTP extensions").
//!
//! A request from a page of another origin gets the same response as any other. The fields added
//! here tell the browser whether that page may read it. A preflight asks beforehand.

use crate::config::{RouteAccess, RouteId, Routes};
use dwell_proto::http1::{RequestHead, list_tokens};
use std::num::NonZeroU16;

/// Origins of every route, by the route's id.
#[derive(Debug, Default)]
pub(crate) struct CorsTable(Vec<CorsRules>);

/// Grants of one route, which may have none.
#[derive(Debug)]
struct CorsRules {
    is_on: bool,
    /// All origins that the route has ever listed: grants of held requests name their places, so
    /// each keeps its own over reloads.
    origins: Vec<CorsOrigin>,
    any: bool,
    credentials: bool,
    max_age: String,
}

/// An origin in the form that browsers send.
#[derive(Clone, Debug)]
struct CorsOrigin {
    text: String,
    is_listed: bool,
}

/// The CORS fields that a response gets, on a route with CORS rules.
///
/// Shape: 1 a refusal, 2 a grant to any origin, from 3 on a grant to one of the origins of the
/// route. `None` of it takes no memory of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct CorsGrant(NonZeroU16);

impl CorsGrant {
    const OTHER: Self = Self(NonZeroU16::MIN);
    const ANY: Self = Self(NonZeroU16::MIN.saturating_add(1));
    const LISTED: NonZeroU16 = NonZeroU16::MIN.saturating_add(2);
}

/// Fields of one response.
pub(crate) type FieldList<'a> = Vec<(&'a str, &'a [u8])>;

impl CorsTable {
    /// Reads the rules of the routes.
    pub(crate) fn of(routes: &Routes) -> Self {
        Self::default().reconfigured(routes)
    }

    /// Reads the rules of the routes again; grants of this table hold for the new one.
    pub(crate) fn reconfigured(&self, routes: &Routes) -> Self {
        let rules = |(place, access): (usize, &RouteAccess)| {
            let before = self.0.get(place).map_or(&[][..], |rules| &rules.origins);
            CorsRules {
                is_on: !access.cors_origins.is_empty(),
                any: access.cors_origins.iter().any(|origin| origin == "*"),
                origins: in_places(&access.cors_origins, before),
                credentials: access.cors_credentials,
                max_age: access.cors_max_age.as_secs().to_string(),
            }
        };
        let routes = routes.by_id().iter().map(|route| &route.access);
        Self(routes.enumerate().map(rules).collect())
    }

    fn rules(&self, route: RouteId) -> Option<&CorsRules> {
        self.0.get(route.index()).filter(|rules| rules.is_on)
    }

    /// Matches the `Origin` of a request with those of the route; `None` for a route without CORS
    /// rules.
    pub(crate) fn origin(&self, route: RouteId, head: &RequestHead<'_, '_>) -> Option<CorsGrant> {
        let rules = self.rules(route)?;
        if rules.any {
            return Some(CorsGrant::ANY);
        }
        let asked = head.fields.find("origin");
        let is_it = |origin: &CorsOrigin| origin.is_listed && asked == Some(origin.text.as_bytes());
        let index = rules.origins.iter().position(is_it);
        let listed = index
            .and_then(|index| CorsGrant::LISTED.checked_add(u16::try_from(index).ok()?))
            .map(CorsGrant);
        Some(listed.unwrap_or(CorsGrant::OTHER))
    }

    /// Adds the fields of a response of `status`.
    ///
    /// Shape: `Vary: Origin` wherever the response depends on the origin, so that no cache serves
    /// one page what another was granted.
    pub(crate) fn fields<'a>(
        &'a self,
        route: RouteId,
        origin: CorsGrant,
        status: u16,
        fields: &mut FieldList<'a>,
    ) {
        let Some(rules) = self.rules(route) else {
            return;
        };
        // The application's own fields would contradict these, and browsers reject duplicates.
        fields.retain(|(name, _)| {
            !name.eq_ignore_ascii_case(ALLOW_ORIGIN)
                && !name.eq_ignore_ascii_case(ALLOW_CREDENTIALS)
        });
        if rules.any {
            fields.push((ALLOW_ORIGIN, b"*"));
        } else {
            fields.push(("Vary", b"Origin"));
        }
        let listed = origin.0.get().checked_sub(CorsGrant::LISTED.get());
        let listed = listed.and_then(|index| rules.origins.get(usize::from(index)));
        if let Some(origin) = listed.filter(|origin| origin.is_listed && !rules.any) {
            fields.push((ALLOW_ORIGIN, origin.text.as_bytes()));
            if rules.credentials {
                fields.push((ALLOW_CREDENTIALS, b"true"));
            }
        }
        if matches!(status, 401 | 429 | 503) {
            fields.push((
                "Access-Control-Expose-Headers",
                b"Retry-After, WWW-Authenticate",
            ));
        }
    }

    /// Fields of the response to a preflight; `None` for a request that is not one.
    ///
    /// Shape: every field that was asked for is allowed.
    pub(crate) fn preflight<'a>(
        &'a self,
        route: RouteId,
        origin: Option<CorsGrant>,
        head: &RequestHead<'_, 'a>,
        methods: &'a str,
    ) -> Option<FieldList<'a>> {
        let rules = self.rules(route)?;
        let fields = head.fields;
        let is_preflight = head.method == "OPTIONS"
            && fields.find("origin").is_some()
            && fields.find("access-control-request-method").is_some();
        if !is_preflight {
            return None;
        }
        let mut granted: FieldList<'a> = vec![("Cache-Control", b"no-store")];
        if origin == Some(CorsGrant::OTHER) {
            return Some(granted);
        }
        granted.push(("Access-Control-Allow-Methods", methods.as_bytes()));
        if let Some(asked) = fields.find("access-control-request-headers")
            && list_tokens(asked).all(is_token)
        {
            granted.push(("Access-Control-Allow-Headers", asked));
        }
        granted.push(("Access-Control-Max-Age", rules.max_age.as_bytes()));
        Some(granted)
    }
}

/// The origins, each in the place that it had; new ones come behind them.
fn in_places(listed: &[String], before: &[CorsOrigin]) -> Vec<CorsOrigin> {
    let mut origins = before.to_vec();
    for origin in &mut origins {
        origin.is_listed = listed.contains(&origin.text);
    }
    for text in listed {
        if !before.iter().any(|origin| origin.text == *text) {
            let text = text.clone();
            let is_listed = true;
            origins.push(CorsOrigin { text, is_listed });
        }
    }
    origins
}

/// Source: RFC 9110 section 5.6.2.
fn is_token(text: &[u8]) -> bool {
    let is_of_token = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    !text.is_empty() && text.iter().all(is_of_token)
}

const ALLOW_ORIGIN: &str = "Access-Control-Allow-Origin";
const ALLOW_CREDENTIALS: &str = "Access-Control-Allow-Credentials";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};

    fn table(options: &str) -> CorsTable {
        let text = format!("[[route]]\nprefix = \"/p/\"\n{options}\n");
        let config = config::parse("test.toml", &text, &[]).unwrap();
        CorsTable::of(&Routes::new(&config))
    }

    fn with_head<T>(line: &str, fields: &str, with: impl FnOnce(&RequestHead<'_, '_>) -> T) -> T {
        let text = format!("{line} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        let mut storage = FieldStorage::new();
        with(&parse_request(text.as_bytes(), &mut storage, &HeadLimits::default()).unwrap())
    }

    /// The added fields, a line each.
    fn said(table: &CorsTable, fields: &str, status: u16) -> String {
        let origin = with_head("GET /p/a", fields, |head| {
            table.origin(RouteId::FIRST, head)
        });
        let mut all: FieldList<'_> = vec![("access-control-allow-origin", b"app")];
        if let Some(origin) = origin {
            table.fields(RouteId::FIRST, origin, status, &mut all);
        }
        lines(&all)
    }

    fn lines(fields: &FieldList<'_>) -> String {
        let line =
            |(name, value): &(&str, &[u8])| format!("{name}: {}\n", String::from_utf8_lossy(value));
        fields.iter().map(line).collect()
    }

    #[test]
    fn without_rules_nothing_is_said() {
        let table = table("");
        let origin = "Origin: https://a.example\r\n";
        assert_eq!(
            said(&table, origin, 200),
            "access-control-allow-origin: app\n"
        );
        with_head("GET /p/a", origin, |head| {
            assert_eq!(table.origin(RouteId::FIRST, head), None);
        });
    }

    #[test]
    fn any_origin_is_told_so_whoever_asks() {
        let table = table("cors_origins = \"*\"");
        assert_eq!(said(&table, "", 200), "Access-Control-Allow-Origin: *\n");
        let origin = "Origin: https://a.example\r\n";
        assert_eq!(
            said(&table, origin, 404),
            "Access-Control-Allow-Origin: *\n"
        );
    }

    #[test]
    fn a_listed_origin_is_told_its_own_name_and_every_answer_varies() {
        let table = table(
            "cors_origins = [\"https://a.example\", \"http://b.example:81\"]\n\
             cors_credentials = true",
        );
        assert_eq!(
            said(&table, "Origin: http://b.example:81\r\n", 200),
            "Vary: Origin\nAccess-Control-Allow-Origin: http://b.example:81\n\
             Access-Control-Allow-Credentials: true\n"
        );
        for fields in [
            "",
            "Origin: null\r\n",
            "Origin: https://a.example.evil.example\r\n",
            "Origin: https://a.example:444\r\n",
            "Origin: http://a.example\r\n",
        ] {
            assert_eq!(said(&table, fields, 200), "Vary: Origin\n", "{fields}");
        }
        let refused = said(&table, "Origin: https://a.example\r\n", 503);
        assert!(refused.contains("Access-Control-Expose-Headers: Retry-After"));
    }

    #[test]
    fn a_grant_is_of_its_origin_over_reloads() {
        let routes = |origins: &str| {
            let text = format!("[[route]]\nprefix = \"/p/\"\ncors_origins = {origins}\n");
            Routes::new(&config::parse("test.toml", &text, &[]).unwrap())
        };
        let b = "Origin: https://b.example\r\n";
        let first = CorsTable::of(&routes(r#"["https://a.example", "https://b.example"]"#));
        let grant = with_head("GET /p/a", b, |head| first.origin(RouteId::FIRST, head)).unwrap();
        let told = |table: &CorsTable| {
            let mut all = FieldList::new();
            table.fields(RouteId::FIRST, grant, 200, &mut all);
            lines(&all)
        };
        let its_own = "Vary: Origin\nAccess-Control-Allow-Origin: https://b.example\n";
        assert_eq!(told(&first), its_own);
        let moved = routes(r#"["https://b.example", "https://c.example", "https://d.example"]"#);
        let moved = first.reconfigured(&moved);
        assert_eq!(told(&moved), its_own);
        let gone = moved.reconfigured(&routes(r#"["https://d.example", "https://e.example"]"#));
        assert_eq!(told(&gone), "Vary: Origin\n");
        let off = gone.reconfigured(&routes("[]"));
        assert_eq!(told(&off), "");
        let back = off.reconfigured(&routes(r#"["https://e.example", "https://b.example"]"#));
        assert_eq!(told(&back), its_own);
        let any = back.reconfigured(&routes("\"*\""));
        assert_eq!(told(&any), "Access-Control-Allow-Origin: *\n");
        let listed = any.reconfigured(&routes(r#"["https://a.example"]"#));
        with_head("GET /p/a", b, |head| {
            assert_eq!(listed.origin(RouteId::FIRST, head), Some(CorsGrant::OTHER));
        });
    }

    #[test]
    fn a_preflight_is_granted_what_it_asks_for() {
        let table = table("cors_origins = \"https://a.example\"");
        let preflight = |line: &str, fields: &str| {
            with_head(line, fields, |head| {
                let origin = table.origin(RouteId::FIRST, head);
                let granted = table.preflight(RouteId::FIRST, origin, head, "GET, HEAD");
                granted.map(|granted| lines(&granted))
            })
        };
        let asks = "Origin: https://a.example\r\nAccess-Control-Request-Method: GET\r\n\
                    Access-Control-Request-Headers: prefer, if-none-match\r\n";
        assert_eq!(
            preflight("OPTIONS /p/a", asks).as_deref(),
            Some(
                "Cache-Control: no-store\nAccess-Control-Allow-Methods: GET, HEAD\n\
                 Access-Control-Allow-Headers: prefer, if-none-match\n\
                 Access-Control-Max-Age: 600\n"
            )
        );
        let other = asks.replace("a.example", "b.example");
        let refused = preflight("OPTIONS /p/a", &other);
        assert_eq!(refused.as_deref(), Some("Cache-Control: no-store\n"));
        let odd = asks.replace("prefer, ", "a b, ");
        let granted = preflight("OPTIONS /p/a", &odd).unwrap();
        assert!(!granted.contains("Allow-Headers"));
        assert_eq!(preflight("GET /p/a", asks), None);
        assert_eq!(
            preflight("OPTIONS /p/a", "Origin: https://a.example\r\n"),
            None
        );
    }
}
