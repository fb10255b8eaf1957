//! The parameters of a poll: the client's cursor, and the time it waits.

use super::accept::wants_events;
use crate::cursor::Cursor;
use dwell_proto::http1::{RequestHead, list_tokens};
use dwell_proto::sse;
use std::fmt;
use std::time::Duration;

/// The question a poll puts to the value of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) condition: Condition,
    /// Longest time that it is held; zero is none. For a stream, its longest duration. A number,
    /// because each held poll has one.
    pub(crate) wait_ms: u32,
    /// The wait was asked with `Prefer`, so the answer says that it was applied.
    pub(crate) preferred: bool,
    /// The application's answer may be given to others who ask for the same key.
    pub(crate) anybodys: bool,
    /// It wants the values as a stream of events.
    pub(crate) is_stream: bool,
}

/// Keys that one poll or stream may name.
pub(super) const KEYS_MAX: usize = 64;

impl Ask {
    /// Cuts a wait, or the life of a stream, to the time for which the client is identified.
    pub(super) fn cut(&mut self, left: Option<Duration>) {
        if self.is_stream {
            self.wait_ms = u32::MAX;
        }
        let Some(left) = left else { return };
        let left = u32::try_from(left.as_millis()).unwrap_or(u32::MAX - 1);
        // A wait may last a sixteenth longer than asked for.
        let wait = if self.is_stream { left } else { left / 17 * 16 };
        self.wait_ms = self.wait_ms.min(wait);
    }
}

/// The methods that poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    Get,
    Head,
    Post,
    /// RFC 10008.
    Query,
}

/// The cursor that the client has sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Condition {
    /// Nothing.
    None,
    /// Something this edge cannot have sent, so it differs from every value.
    Foreign,
    /// `If-None-Match: *`: any value at all.
    Any,
    /// `If-None-Match` with a cursor.
    IfNoneMatch(Cursor),
    /// `?since=` with a cursor, or the id of an event.
    Since(Cursor),
}

/// Why a poll makes no sense.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AskError {
    Wait(String),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Wait(text) => write!(f, "wait is not a number of seconds: {text}"),
        }
    }
}

/// The waits a route gives.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Waits {
    pub(crate) default: Duration,
    pub(crate) max: Duration,
}

impl Ask {
    /// Reads the question of one request.
    ///
    /// Shape: `If-None-Match` does not count for POST, which would have to fail where it matches
    /// (RFC 9110 section 13.1.2). Of a list of tags the first that is a cursor counts; a
    /// value that another of them names is sent once more than needed. A wait longer than the
    /// route's is cut to it. For a stream of events the id of the last one counts, by its field or
    /// `?last_event_id=`, and then `?since=`.
    ///
    /// # Errors
    /// [`AskError`] for a `?wait=` that is no duration; a `Prefer` that makes no sense is ignored
    /// (RFC 7240 section 2).
    pub(crate) fn of(head: &RequestHead<'_, '_>, waits: Waits) -> Result<Self, AskError> {
        let method = match head.method {
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "QUERY" => Method::Query,
            _ => Method::Get,
        };
        let mut wait = waits.default;
        let mut ask = Self {
            method,
            condition: Condition::None,
            wait_ms: 0,
            preferred: false,
            anybodys: is_anybodys(head),
            is_stream: head.method == "GET" && wants_events(head),
        };
        if ask.is_stream {
            // A browser repeats the URL it began with, so what it says of itself is newer.
            let id = sse::last_event_id(head.fields).filter(|id| !id.is_empty());
            ask.condition = id.map_or(Condition::None, since);
        }
        if method != Method::Post
            && !ask.is_stream
            && let Some(tags) = head.fields.find("if-none-match")
        {
            ask.condition = if_none_match(tags);
        }
        if let Some(seconds) = head.fields.all("prefer").find_map(preferred_wait) {
            wait = Duration::from_secs(seconds);
            ask.preferred = true;
        }
        if let Some(query) = head.query {
            wait = ask.read_query(query)?.unwrap_or(wait);
        }
        ask.wait_ms = u32::try_from(wait.min(waits.max).as_millis()).unwrap_or(u32::MAX);
        Ok(ask)
    }

    /// Takes in what the query says; returns the wait, if it asks for one.
    fn read_query(&mut self, query: &str) -> Result<Option<Duration>, AskError> {
        let mut wait = None;
        let mut last_event_id = None;
        let has_id = self.condition != Condition::None;
        for (name, value) in form_urlencoded::parse(query.as_bytes()) {
            match &*name {
                // Of several the first counts, as everywhere here.
                "wait" if wait.is_none() => {
                    let asked = parse_wait(&value);
                    wait = Some(asked.ok_or_else(|| AskError::Wait(value.into_owned()))?);
                    self.preferred = false;
                }
                "since" if self.condition == Condition::None && !value.is_empty() => {
                    self.condition = since(&value);
                }
                "last_event_id" if self.is_stream && !value.is_empty() => {
                    last_event_id.get_or_insert_with(|| since(&value));
                }
                _ => {}
            }
        }
        if let (Some(id), false) = (last_event_id, has_id) {
            self.condition = id;
        }
        Ok(wait)
    }

    /// Returns true if it may be held.
    pub(crate) fn waits(&self) -> bool {
        self.wait_ms > 0
    }

    /// Longest time that it is held.
    pub(crate) fn wait(&self) -> Duration {
        Duration::from_millis(u64::from(self.wait_ms))
    }

    /// Returns true if the client has the value with this cursor.
    pub(crate) fn has(&self, current: Cursor) -> bool {
        match self.condition {
            Condition::None | Condition::Foreign => false,
            Condition::Any => true,
            Condition::IfNoneMatch(cursor) | Condition::Since(cursor) => cursor == current,
        }
    }
}

/// The question of a request that is no poll: what its framing needs to know.
pub(super) fn plain_ask(head: &RequestHead<'_, '_>) -> Ask {
    let method = match head.method {
        "HEAD" => Method::Head,
        "GET" => Method::Get,
        _ => Method::Post,
    };
    Ask {
        method,
        condition: Condition::None,
        wait_ms: 0,
        preferred: false,
        anybodys: false,
        is_stream: false,
    }
}

/// Tells whether the answer to a request may go to other clients (RFC 9111 section 3.5).
fn is_anybodys(head: &RequestHead<'_, '_>) -> bool {
    head.fields.find("authorization").is_none()
}

/// The condition of a client that names one cursor.
fn since(text: &str) -> Condition {
    Cursor::parse(text.as_bytes()).map_or(Condition::Foreign, Condition::Since)
}

fn if_none_match(tags: &[u8]) -> Condition {
    if tags.trim_ascii() == b"*" {
        return Condition::Any;
    }
    list_tokens(tags)
        .find_map(Cursor::parse)
        .map_or(Condition::Foreign, Condition::IfNoneMatch)
}

/// `wait` of a `Prefer` field (RFC 7240 section 4.3), in seconds.
fn preferred_wait(value: &[u8]) -> Option<u64> {
    list_tokens(value).find_map(|preference| {
        let name_and_value = preference.split(|byte| *byte == b';').next()?;
        let mut parts = name_and_value.splitn(2, |byte| *byte == b'=');
        if !parts.next()?.trim_ascii().eq_ignore_ascii_case(b"wait") {
            return None;
        }
        let seconds = std::str::from_utf8(parts.next()?).ok()?;
        seconds.trim().trim_matches('"').parse().ok()
    })
}

/// `25`, `25s` or `500ms`.
fn parse_wait(text: &str) -> Option<Duration> {
    let digits = |text: &str| {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse::<u64>().ok()).flatten()
    };
    if let Some(milliseconds) = text.strip_suffix("ms") {
        return digits(milliseconds).map(Duration::from_millis);
    }
    digits(text.strip_suffix('s').unwrap_or(text)).map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};

    const WAITS: Waits = Waits {
        default: Duration::ZERO,
        max: Duration::from_secs(55),
    };

    fn ask(request_line: &str, fields: &str) -> Result<Ask, AskError> {
        let text = format!("{request_line} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        let mut storage = FieldStorage::new();
        let head = parse_request(text.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
        Ask::of(&head, WAITS)
    }

    #[test]
    fn a_plain_poll_asks_for_the_value_now() {
        let plain = ask("GET /poll/a?x=1", "").unwrap();
        assert_eq!((plain.condition, plain.waits()), (Condition::None, false));
    }

    #[test]
    fn a_wait_comes_from_the_query_or_from_prefer_and_is_cut() {
        let seconds = |line: &str, fields: &str| ask(line, fields).unwrap().wait().as_millis();
        assert_eq!(seconds("GET /p?wait=25", ""), 25_000);
        assert_eq!(seconds("GET /p?wait=25s", ""), 25_000);
        assert_eq!(seconds("GET /p?wait=250ms", ""), 250);
        assert_eq!(seconds("GET /p?wait=99999", ""), 55_000);
        assert_eq!(seconds("GET /p?wait=0&wait=9", ""), 0);
        assert_eq!(seconds("GET /p", "Prefer: wait=7\r\n"), 7_000);
        assert_eq!(
            seconds("GET /p", "Prefer: respond-async, wait=7;foo\r\n"),
            7_000
        );
        assert_eq!(seconds("GET /p", "Prefer: wait=soon\r\n"), 0);
        let lines = "Prefer: respond-async\r\nPrefer: wait=7\r\n";
        assert_eq!(seconds("GET /p", lines), 7_000);
        assert!(ask("GET /p", "Prefer: wait=7\r\n").unwrap().preferred);
    }

    #[test]
    fn a_wait_that_is_no_duration_is_an_error() {
        for wait in ["soon", "-1", "+1", "", "1.5", "99999999999999999999"] {
            assert!(ask(&format!("GET /p?wait={wait}"), "").is_err(), "{wait}");
        }
        let error = ask("GET /p?wait=soon", "").unwrap_err();
        assert_eq!(error.to_string(), "wait is not a number of seconds: soon");
    }

    #[test]
    fn a_post_has_a_cursor_only_by_since() {
        let cursor = Cursor::of(b"v", 0);
        let text = String::from_utf8(cursor.text().bare().to_vec()).unwrap();
        let field = format!("If-None-Match: \"{text}\"\r\n");
        assert_eq!(ask("POST /p", &field).unwrap().condition, Condition::None);
        for method in ["GET", "HEAD", "QUERY"] {
            let asked = ask(&format!("{method} /p"), &field).unwrap();
            assert_eq!(asked.condition, Condition::IfNoneMatch(cursor), "{method}");
        }
        let field = format!("If-None-Match: \"something-else\" , W/\"{text}\"\r\n");
        let among_others = ask("GET /p", &field).unwrap().condition;
        assert_eq!(among_others, Condition::IfNoneMatch(cursor));
        let line = format!("POST /p?since={text}");
        assert_eq!(ask(&line, "").unwrap().condition, Condition::Since(cursor));
    }

    #[test]
    fn a_stream_goes_on_behind_its_last_event() {
        let [a, b, c] = [b"a", b"b", b"c"].map(|value| Cursor::of(value, 0));
        let text = |cursor: Cursor| String::from_utf8(cursor.text().bare().to_vec()).unwrap();
        let line = format!("GET /p?since={}&last_event_id={}", text(a), text(b));
        let events = "Accept: text/event-stream\r\n";
        let of = |line: &str, fields: &str| ask(line, fields).unwrap().condition;
        let newest = format!("{events}Last-Event-ID: {}\r\n", text(c));
        assert_eq!(of(&line, &newest), Condition::Since(c));
        assert_eq!(of(&line, events), Condition::Since(b));
        let first = format!("GET /p?since={}", text(a));
        assert_eq!(of(&first, events), Condition::Since(a));
        let foreign = format!("{events}Last-Event-ID: 7\r\n");
        assert_eq!(of(&line, &foreign), Condition::Foreign);
        let taken_back = format!("{events}Last-Event-ID: \r\n");
        assert_eq!(of("GET /p", &taken_back), Condition::None);
        assert!(ask("GET /p", events).unwrap().is_stream);
        assert!(!ask("HEAD /p", events).unwrap().is_stream);
        assert_eq!(of("GET /p", &newest.replace(events, "")), Condition::None);
    }

    #[test]
    fn an_unknown_cursor_differs_from_every_value() {
        let foreign = ask("GET /p?since=42", "").unwrap();
        assert_eq!(foreign.condition, Condition::Foreign);
        assert!(!foreign.has(Cursor::of(b"v", 0)));
        let any = ask("GET /p", "If-None-Match: *\r\n").unwrap();
        assert!(any.has(Cursor::of(b"v", 0)));
    }

    /// Milliseconds that are left of a wait of 25 seconds or of a stream, with so many to go.
    fn cut(left_ms: Option<u64>, is_stream: bool) -> u32 {
        let mut ask = Ask {
            method: Method::Get,
            condition: Condition::None,
            wait_ms: 25_000,
            preferred: false,
            anybodys: false,
            is_stream,
        };
        ask.cut(left_ms.map(Duration::from_millis));
        ask.wait_ms
    }

    #[test]
    fn a_wait_ends_with_the_token_however_it_is_spread() {
        assert_eq!(cut(None, false), 25_000);
        assert_eq!(cut(Some(1_000_000), false), 25_000);
        for left in [17, 1000, 2000, 17_000, 26_000] {
            let wait = cut(Some(left), false);
            assert!(wait > 0 && u64::from(wait + wait / 16) <= left, "{left}");
        }
        assert_eq!(cut(Some(0), false), 0);
    }

    #[test]
    fn a_stream_lasts_until_the_token_ends() {
        assert_eq!(cut(None, true), u32::MAX);
        assert_eq!(cut(Some(17_000), true), 17_000);
        assert_eq!(cut(Some(u64::MAX), true), u32::MAX - 1);
    }
}
