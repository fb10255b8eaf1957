//! The choice of the route of a request.
//!
//! A route is chosen by the path as received, and the application gets that path. But the
//! application may decode it, resolve its dot segments, and then serve a path that another route
//! guards. So a path is rejected if it can be read as that of another route, and one of the two
//! routes checks or grants anything.

use super::{Config, Methods, RouteConfig};
use dwell_proto::http1::{any_reading, is_plain_path};
use std::sync::Arc;

/// The routes of a configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Routing<'c>(&'c [Arc<RouteConfig>]);

/// A path of one route that the application may read as a path of another.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Ambiguous {
    /// The other reading; `None` if the path has a NUL, or more readings than are tried.
    pub(crate) reading: Option<String>,
    /// The prefix of the other route, if there is one.
    pub(crate) prefix: Option<String>,
}

impl<'c> Routing<'c> {
    pub(crate) fn of(config: &'c Config) -> Self {
        Self(&config.routes)
    }

    /// The index of the route for `path`; `None` if there is none.
    ///
    /// # Errors
    /// [`Ambiguous`] if the application may read the path as that of another route, and one of the
    /// two is guarded.
    pub(crate) fn choose(self, path: &str) -> Result<Option<usize>, Ambiguous> {
        let chosen = self.leads_to(path.as_bytes());
        if is_plain_path(path) || !self.0.iter().any(|route| is_guarded(route)) {
            return Ok(chosen);
        }
        let mut ambiguous = Ambiguous {
            reading: None,
            prefix: None,
        };
        let is_other = |reading: &[u8]| {
            let other = self.leads_to(reading);
            let is_other = other != chosen && (self.guards(chosen) || self.guards(other));
            if is_other {
                ambiguous.reading = Some(String::from_utf8_lossy(reading).into_owned());
                ambiguous.prefix = other.map(|other| self.0[other].prefix.clone());
            }
            is_other
        };
        if any_reading(path, is_other) {
            return Err(ambiguous);
        }
        Ok(chosen)
    }

    /// Checks that a key named besides a path stays below `prefix`, in every way in which the
    /// application may read `path`, the path of the key.
    ///
    /// # Errors
    /// The reason why it does not.
    pub(crate) fn stays_below(self, prefix: &str, path: &str) -> Result<(), &'static str> {
        let is_other = |reading: &[u8]| {
            let other = self.leads_to(reading).map(|other| &self.0[other]);
            other.is_none_or(|other| other.prefix != prefix)
        };
        if any_reading(path, has_dot_segments) {
            return Err(DOT_SEGMENT);
        }
        if any_reading(path, is_other) {
            return Err(OTHER_ROUTE);
        }
        Ok(())
    }

    fn leads_to(self, path: &[u8]) -> Option<usize> {
        let is_its = |route: &Arc<RouteConfig>| path.starts_with(route.prefix.as_bytes());
        self.0.iter().position(is_its)
    }

    fn guards(self, route: Option<usize>) -> bool {
        route.is_some_and(|route| is_guarded(&self.0[route]))
    }
}

/// Returns true if a route checks or grants anything that other routes do not.
fn is_guarded(route: &RouteConfig) -> bool {
    let access = &route.access;
    access.is_guarded()
        || access.is_limited()
        || access.publish
        || route.websocket_publish
        || !route.allowed_origins.is_empty()
        || route.methods != Methods::ALL
}

fn has_dot_segments(path: &[u8]) -> bool {
    let mut segments = path.split(|byte| *byte == b'/');
    segments.any(|segment| matches!(segment, b"." | b".."))
}

/// Message for a key that another route might refuse.
pub(crate) const OTHER_ROUTE: &str = "a key is named that is another route's";
const DOT_SEGMENT: &str = "a key is named that has a dot segment";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn routed(text: &str, path: &str) -> Result<Option<usize>, Ambiguous> {
        let config = config::parse("test.toml", text, &[]).unwrap();
        Routing::of(&config).choose(path)
    }

    fn refused(text: &str, path: &str) -> bool {
        routed(text, path).is_err()
    }

    const GUARDED: &str = "[[route]]\nprefix = \"/me/\"\nrate_per_address = \"9/s\"\n\
                           [[route]]\nprefix = \"/poll/\"\n";

    #[test]
    fn a_path_that_may_be_read_as_a_guarded_one_is_refused() {
        for path in [
            "/%6de/x",
            "//me/x",
            "/x/../me/x",
            "/poll/..%2fme/x",
            "/poll/..;/me/x",
            "/poll\\..\\me\\x",
            // A guard that the application does not read is none.
            "/me/%2e%2e/x",
            "/me/..%2fpoll/x",
        ] {
            assert!(refused(GUARDED, path), "{path}");
        }
        let ambiguous = routed(GUARDED, "/poll/..%2fme/x").unwrap_err();
        assert_eq!(ambiguous.reading.as_deref(), Some("/me/x"));
        assert_eq!(ambiguous.prefix.as_deref(), Some("/me/"));
        let ambiguous = routed(GUARDED, "/me/%2e%2e/x").unwrap_err();
        assert_eq!(
            (ambiguous.reading.as_deref(), ambiguous.prefix),
            (Some("/x"), None)
        );
    }

    #[test]
    fn a_path_that_stays_where_it_is_goes_there() {
        // The longest prefix is the first.
        for (path, route) in [
            ("/me/x", Some(1)),
            ("/me/a%2Fb//c/../d;v=1", Some(1)),
            ("/poll/%E4%BD%A0", Some(0)),
            ("/poll/./a", Some(0)),
            ("/x%2Fy/..", None),
            ("//x/y", None),
            ("*", None),
        ] {
            assert_eq!(routed(GUARDED, path), Ok(route), "{path}");
        }
    }

    #[test]
    fn without_a_guard_every_path_goes_where_its_bytes_lead() {
        let open = "[[route]]\nprefix = \"/poll/\"\n[[route]]\nprefix = \"/poll/x/\"\n";
        for path in ["/poll/../x", "/%70oll/", "/poll/x%2f", "/poll/%00"] {
            assert!(!refused(open, path), "{path}");
        }
    }

    #[test]
    fn whatever_a_route_asks_or_grants_is_a_guard() {
        let token = "[publish]\ntoken = \"3c1f0c5e9f6b4d1a\"\n";
        let keys = "[jwt]\nsecret_file = \"/dev/null\"\n[upstream]\nurl = \"http://127.0.0.1:1\"\n";
        for guard in [
            "jwt = true",
            "auth = \"/may\"",
            "rate_per_address = \"1/s\"",
            "rate_per_key = \"1/s\"",
            "rate_per_publisher = \"1/s\"\npublish = true",
            "publish = true",
            "cors_origins = \"*\"",
            "allowed_origins = [\"https://a.example\"]",
            "websocket_publish = true",
            "methods = [\"GET\"]",
        ] {
            let text = format!("{token}{keys}[[route]]\nprefix = \"/me/\"\n{guard}\n");
            assert!(refused(&text, "/%6de/x"), "{guard}");
        }
        let text = "[[route]]\nprefix = \"/me/\"\nwait_max = \"1s\"\n";
        assert!(!refused(text, "/%6de/x"));
    }

    #[test]
    fn a_key_that_is_named_stays_below_its_route() {
        let text = "[[route]]\nprefix = \"/poll/\"\n[[route]]\nprefix = \"/poll/own/\"\n";
        let config = config::parse("test.toml", text, &[]).unwrap();
        let routing = Routing::of(&config);
        for path in [
            "/poll/a",
            "/poll/a%2Fb",
            "/poll//a",
            "/poll/a;b",
            "/poll/...",
            "/poll/%25",
        ] {
            assert_eq!(routing.stays_below("/poll/", path), Ok(()), "{path}");
        }
        for path in [
            "/poll/own/a",
            "/poll/own%2fa",
            "/poll//own/a",
            "/poll/%6fwn/a",
            "/me",
        ] {
            assert_eq!(
                routing.stays_below("/poll/", path),
                Err(OTHER_ROUTE),
                "{path}"
            );
        }
        for path in [
            "/poll/../a",
            "/poll/a/..%2fb",
            "/poll/%2E/a",
            "/poll/a\\..\\b",
            "/poll/..",
        ] {
            assert_eq!(
                routing.stays_below("/poll/", path),
                Err(DOT_SEGMENT),
                "{path}"
            );
        }
    }
}
