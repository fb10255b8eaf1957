//! Decisions of the application on requests, and the subrequest that asks for one.

use super::expiring_cache::{Digest, Digester};
use bytes::Bytes;
use dwell_proto::http1::{RequestHead, Version, encode};
use dwell_upstream::Answer;
use std::borrow::Cow;
use std::net::IpAddr;
use std::sync::Arc;

/// A decision of the application on a credential.
#[derive(Clone, Debug)]
pub(crate) enum AuthDecision {
    /// Access is granted, with the response fields from which the key is made.
    Granted(Arc<Granted>),
    /// Access is refused.
    Refused(Arc<Refused>),
}

/// Response fields from which keys are made, by their names in the template.
#[derive(Debug, Default)]
pub(crate) struct Granted(Vec<(String, Bytes)>);

/// A refusal of the application, which is sent to the client.
#[derive(Debug)]
pub(crate) struct Refused {
    pub(crate) status: u16,
    pub(crate) fields: Vec<(String, Bytes)>,
    pub(crate) body: Bytes,
}

/// Longest body of a refusal that is passed on.
const REFUSAL_BYTES_MAX: usize = 4 * 1024;
/// Longest field that becomes part of a key.
const FIELD_BYTES_MAX: usize = 250;

impl AuthDecision {
    /// Reads the decision in a response; `None` for a status that is neither a grant nor a refusal.
    ///
    /// Shape: `names` are the fields that are kept. A refusal is shared by all requests with the
    /// same credential, so its cookies are removed.
    pub(crate) fn of<'n>(answer: &Answer, names: impl Iterator<Item = &'n str>) -> Option<Self> {
        let find = |name: &str| {
            let field = answer
                .fields
                .iter()
                .find(|(n, _)| n.eq_ignore_ascii_case(name));
            field.filter(|(_, value)| value.len() <= FIELD_BYTES_MAX)
        };
        match answer.status {
            200..=299 => {
                let kept = names.filter_map(|name| Some((name.to_owned(), find(name)?.1.clone())));
                Some(Self::Granted(Arc::new(Granted(kept.collect()))))
            }
            401 | 403 => {
                let is_cookie = |name: &str| name.eq_ignore_ascii_case("set-cookie");
                let fields = answer.fields.iter().filter(|(name, _)| !is_cookie(name));
                let is_short = answer.body.len() <= REFUSAL_BYTES_MAX;
                Some(Self::Refused(Arc::new(Refused {
                    status: answer.status,
                    fields: fields.cloned().collect(),
                    body: if is_short {
                        answer.body.clone()
                    } else {
                        Bytes::new()
                    },
                })))
            }
            _ => None,
        }
    }
}

impl Granted {
    /// A field by its name in the template.
    pub(crate) fn field(&self, name: &str) -> Option<&[u8]> {
        let field = self.0.iter().find(|(known, _)| known == name);
        field.map(|(_, value)| value.as_ref())
    }
}

/// Digests everything that the application decides by: the request and the client's credentials.
///
/// Shape: the edge's own query parameters, which change from poll to poll, are left out.
pub(crate) fn credential(
    digester: &Digester,
    path: &str,
    head: &RequestHead<'_, '_>,
    peer: Option<IpAddr>,
) -> Digest {
    let query = head.query.unwrap_or("");
    let is_own = |part: &&str| {
        let name = part.split('=').next().unwrap_or_default();
        matches!(name, "since" | "wait" | "last_event_id")
    };
    let rest: Vec<&str> = query.split('&').filter(|part| !is_own(part)).collect();
    let rest = rest.join("&");
    let peer = peer.map(|peer| peer.to_string()).unwrap_or_default();
    let mut parts: Vec<&[u8]> = vec![
        path.as_bytes(),
        head.method.as_bytes(),
        head.path.as_bytes(),
        rest.as_bytes(),
        head.host.unwrap_or_default(),
        peer.as_bytes(),
    ];
    for (name, value) in head.fields.iter() {
        if is_shown(name) || name.eq_ignore_ascii_case(FORWARDED_FOR) {
            parts.push(name.as_bytes());
            parts.push(value);
        }
    }
    digester.digest(&parts)
}

/// Encodes the subrequest to the application.
pub(crate) fn auth_request(
    path: &str,
    head: &RequestHead<'_, '_>,
    default_host: &str,
    peer: Option<IpAddr>,
) -> Bytes {
    let mut out = Vec::with_capacity(256 + head.target.len());
    encode::request_line(&mut out, "GET", path, Version::Http11);
    let host = head.host.unwrap_or(default_host.as_bytes());
    encode::field(&mut out, "Host", host);
    encode::field(&mut out, "X-Original-Method", head.method.as_bytes());
    // The path and not the target, which may be in absolute form: access is decided by the path.
    let uri = match head.query {
        Some(query) => Cow::Owned([head.path, "?", query].concat()),
        None => Cow::Borrowed(head.path),
    };
    encode::field(&mut out, "X-Original-URI", uri.as_bytes());
    if let Some(peer) = peer {
        let before = head.fields.all(FORWARDED_FOR).map(String::from_utf8_lossy);
        let mut hops: Vec<_> = before.map(Cow::into_owned).collect();
        hops.push(peer.to_string());
        encode::field(&mut out, "X-Forwarded-For", hops.join(", ").as_bytes());
    }
    for (name, value) in head.fields.iter().filter(|(name, _)| is_shown(name)) {
        encode::field(&mut out, name, value);
    }
    encode::field(&mut out, "Connection", b"keep-alive");
    encode::end_of_head(&mut out);
    Bytes::from(out)
}

const FORWARDED_FOR: &str = "x-forwarded-for";

/// Returns true for the fields that identify a client.
fn is_shown(name: &str) -> bool {
    name.eq_ignore_ascii_case("authorization") || name.eq_ignore_ascii_case("cookie")
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};

    fn with_head<T>(line: &str, fields: &str, with: impl FnOnce(&RequestHead<'_, '_>) -> T) -> T {
        let text = format!("{line} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        let mut storage = FieldStorage::new();
        with(&parse_request(text.as_bytes(), &mut storage, &HeadLimits::default()).unwrap())
    }

    #[test]
    fn who_asks_again_is_known_again() {
        let digester = Digester::new();
        let of = |line: &str, fields: &str| {
            with_head(line, fields, |head| {
                credential(&digester, "/auth", head, None)
            })
        };
        let alice = "Cookie: session=alice\r\n";
        let first = of("GET /p/a?x=1", alice);
        assert_eq!(first, of("GET /p/a?x=1&since=abc&wait=25", alice));
        assert_eq!(
            first,
            of("GET /p/a?wait=25&x=1", &format!("Accept: */*\r\n{alice}"))
        );
        for (line, fields) in [
            ("GET /p/a?x=1", "Cookie: session=bob\r\n"),
            ("GET /p/a?x=1", ""),
            ("GET /p/a?x=1", "Authorization: session=alice\r\n"),
            ("GET /p/a?x=2", alice),
            ("GET /p/b?x=1", alice),
            ("POST /p/a?x=1", alice),
            ("GET http://y/p/a?x=1", alice),
            (
                "GET /p/a?x=1",
                "Cookie: session=alice\r\nX-Forwarded-For: 10.0.0.1\r\n",
            ),
        ] {
            assert_ne!(first, of(line, fields), "{line} {fields}");
        }
        let elsewhere = with_head("GET /p/a?x=1", alice, |head| {
            credential(&digester, "/auth", head, "10.0.0.1".parse().ok())
        });
        assert_ne!(first, elsewhere);
    }

    #[test]
    fn the_application_is_shown_what_is_asked_and_who_asks() {
        let fields = "Cookie: a=1\r\nAuthorization: Basic x\r\nX-Forwarded-For: 9.9.9.9\r\n\
                      Content-Length: 0\r\nAccept: text/event-stream\r\n";
        let peer = "1.2.3.4".parse().ok();
        let asked = with_head("POST http://x/p/a?b=c", fields, |head| {
            auth_request("/auth", head, "app", peer)
        });
        assert_eq!(
            String::from_utf8_lossy(&asked),
            "GET /auth HTTP/1.1\r\nHost: x\r\nX-Original-Method: POST\r\n\
             X-Original-URI: /p/a?b=c\r\nX-Forwarded-For: 9.9.9.9, 1.2.3.4\r\nCookie: a=1\r\n\
             Authorization: Basic x\r\nConnection: keep-alive\r\n\r\n"
        );
    }

    #[test]
    fn an_answer_grants_refuses_or_says_nothing() {
        let verdict = |status: u16| {
            let fields = [
                ("X-User", "alice"),
                ("Set-Cookie", "a=b"),
                ("X-Long", &"x".repeat(251)),
            ]
            .map(|(name, value)| (name.to_owned(), Bytes::from(value.to_owned())));
            let answer = Answer {
                status,
                fields: fields.to_vec(),
                content_length: None,
                body: Bytes::from_static(b"no"),
            };
            AuthDecision::of(&answer, ["x-user", "x-long", "x-none"].into_iter())
        };
        let Some(AuthDecision::Granted(granted)) = verdict(204) else {
            panic!("granted");
        };
        assert_eq!(granted.field("x-user"), Some(&b"alice"[..]));
        assert_eq!(
            (granted.field("x-long"), granted.field("x-none")),
            (None, None)
        );
        let Some(AuthDecision::Refused(refused)) = verdict(403) else {
            panic!("refused");
        };
        assert_eq!((refused.status, refused.fields.len()), (403, 2));
        for status in [302, 404, 429, 500] {
            assert!(verdict(status).is_none(), "{status}");
        }
    }
}
