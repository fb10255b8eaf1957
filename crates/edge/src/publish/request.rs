//! Requests of publishers.

use crate::config::{KeyError, check_key};
use crate::cursor::Cursor;
use crate::query::parameters;
use dwell_proto::http1::{RequestHead, list_tokens};
use std::fmt;

/// One request of a publisher, for one key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PublishRequest {
    pub(crate) act: Operation,
    pub(crate) condition: Precondition,
    /// The answer says if there was a value before, which takes memcached two commands.
    pub(crate) tells_before: bool,
}

/// Operation on a key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    /// Stores the body, with a lifetime in seconds if one is given.
    Put { ttl: Option<u32> },
    /// Removes the value.
    Delete,
    /// Reads the value.
    Read,
}

/// Precondition of an operation (RFC 9110 section 13.1).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Precondition {
    None,
    /// `If-None-Match: *`: the key has no value.
    Missing,
    /// `If-Match: *`: the key has a value.
    Present,
    /// `If-Match` with a cursor: the value has this cursor.
    Is(Cursor),
    /// `If-Match` with entity tags that no value has.
    Never,
}

/// Fault in a request.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum PublishError {
    /// The lifetime is not a number of seconds.
    Ttl(String),
    /// `If-None-Match` with anything but `*`, which a store cannot check atomically.
    Precondition,
    /// The body is a partial representation (RFC 9110 section 14.5).
    Range,
    /// The body has a content coding, which responses would not name.
    Coding,
    /// The path is not valid percent-encoding.
    Encoding,
    /// The key is not valid.
    Key(KeyError),
}

impl PublishError {
    pub(crate) fn status(&self) -> u16 {
        match self {
            Self::Coding => 415,
            Self::Key(error) => error.status(),
            _ => 400,
        }
    }
}

impl fmt::Display for PublishError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ttl(text) => write!(
                f,
                "ttl is not a number of seconds from 1 to {TTL_MAX}: {text}"
            ),
            Self::Precondition => f.write_str("If-None-Match takes * alone here"),
            Self::Range => f.write_str("a part of a value cannot be stored"),
            Self::Coding => f.write_str("values are stored without a content coding"),
            Self::Encoding => f.write_str("a % in the path is not followed by two hex digits"),
            Self::Key(error) => error.fmt(f),
        }
    }
}

impl PublishRequest {
    /// A request whose answer says if there was a value before.
    pub(crate) fn new(act: Operation, condition: Precondition) -> Self {
        Self {
            act,
            condition,
            tells_before: true,
        }
    }

    /// A value to be stored whatever there is, by one command: several of one client replace one
    /// another in their order, however many are in progress.
    pub(crate) fn store() -> Self {
        let act = Operation::Put { ttl: None };
        Self {
            tells_before: false,
            ..Self::new(act, Precondition::None)
        }
    }

    /// Reads a request; `None` if its method does not publish.
    ///
    /// # Errors
    /// [`PublishError`] for a request that could only be carried out in a sense that was not
    /// intended.
    pub(crate) fn of(head: &RequestHead<'_, '_>) -> Result<Option<Self>, PublishError> {
        let act = match head.method {
            "PUT" | "POST" => Operation::Put { ttl: ttl(head)? },
            "DELETE" => Operation::Delete,
            "GET" | "HEAD" => {
                return Ok(Some(Self::new(Operation::Read, Precondition::None)));
            }
            _ => return Ok(None),
        };
        if head.fields.find("content-range").is_some() {
            return Err(PublishError::Range);
        }
        if matches!(act, Operation::Put { .. }) && is_coded(head) {
            return Err(PublishError::Coding);
        }
        Ok(Some(Self::new(act, condition(head)?)))
    }
}

impl Precondition {
    /// Returns true if a value with this cursor, or none, meets the condition.
    pub(crate) fn is_met(self, current: Option<Cursor>) -> bool {
        match self {
            Self::None => true,
            Self::Missing => current.is_none(),
            Self::Present => current.is_some(),
            Self::Is(cursor) => current == Some(cursor),
            Self::Never => false,
        }
    }
}

/// Longest lifetime of an item, so that memcached never reads one as a point in time.
const TTL_MAX: u32 = 10 * 365 * 24 * 3600;

fn ttl(head: &RequestHead<'_, '_>) -> Result<Option<u32>, PublishError> {
    let query = head.query.unwrap_or("");
    let Some((_, text)) = parameters(query).find(|(name, _)| name == "ttl") else {
        return Ok(None);
    };
    let digits = text.strip_suffix('s').unwrap_or(&text);
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = is_number.then(|| digits.parse::<u32>().ok()).flatten();
    let seconds = seconds.filter(|seconds| (1..=TTL_MAX).contains(seconds));
    seconds
        .map(Some)
        .ok_or_else(|| PublishError::Ttl(text.into_owned()))
}

/// The `exptime` of a lifetime: above 30 days memcached reads it as a point in time.
pub(crate) fn exptime(ttl: Option<u32>, now: u64) -> i64 {
    let Some(ttl) = ttl else { return 0 };
    let ttl = i64::from(ttl);
    if ttl <= EXPTIME_RELATIVE_MAX {
        ttl
    } else {
        ttl + i64::try_from(now).unwrap_or(i64::MAX / 2)
    }
}

const EXPTIME_RELATIVE_MAX: i64 = 30 * 24 * 3600;

fn is_coded(head: &RequestHead<'_, '_>) -> bool {
    let codings = head.fields.all("content-encoding").flat_map(list_tokens);
    codings
        .into_iter()
        .any(|coding| !coding.trim_ascii().eq_ignore_ascii_case(b"identity"))
}

fn condition(head: &RequestHead<'_, '_>) -> Result<Precondition, PublishError> {
    if let Some(tags) = head.fields.find("if-match") {
        if tags.trim_ascii() == b"*" {
            return Ok(Precondition::Present);
        }
        // `If-Match` uses strong comparison, and a cursor is strong.
        let mut strong = list_tokens(tags).filter(|tag| !tag.starts_with(b"W/"));
        let cursor = strong.find_map(Cursor::parse);
        return Ok(cursor.map_or(Precondition::Never, Precondition::Is));
    }
    match head.fields.find("if-none-match").map(<[u8]>::trim_ascii) {
        None => Ok(Precondition::None),
        Some(b"*") => Ok(Precondition::Missing),
        Some(_) => Err(PublishError::Precondition),
    }
}

/// The key named by a path under `/-/keys/`, percent-decoded once.
///
/// # Errors
/// [`PublishError`] for a `%` without its digits, and for an invalid key.
pub(crate) fn decoded_key(path: &str) -> Result<Vec<u8>, PublishError> {
    let mut key = Vec::with_capacity(path.len());
    let mut bytes = path.bytes();
    while let Some(byte) = bytes.next() {
        if byte != b'%' {
            key.push(byte);
            continue;
        }
        let mut digit = || {
            let digit = char::from(bytes.next()?).to_digit(16)?;
            u8::try_from(digit).ok()
        };
        let (high, low) = (digit(), digit());
        let (Some(high), Some(low)) = (high, low) else {
            return Err(PublishError::Encoding);
        };
        key.push(high << 4 | low);
    }
    check_key(&key).map_err(PublishError::Key)?;
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};
    use proptest::prelude::*;

    fn request(line: &str, fields: &str) -> Result<Option<PublishRequest>, PublishError> {
        let text = format!("{line} HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        let mut storage = FieldStorage::new();
        let head = parse_request(text.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
        PublishRequest::of(&head)
    }

    fn act(line: &str) -> Operation {
        request(line, "").unwrap().unwrap().act
    }

    #[test]
    fn the_method_says_what_is_to_be_done() {
        assert_eq!(act("PUT /k"), Operation::Put { ttl: None });
        assert_eq!(act("POST /k?ttl=60"), Operation::Put { ttl: Some(60) });
        assert_eq!(
            act("PUT /k?a=b&ttl=60s&ttl=1"),
            Operation::Put { ttl: Some(60) }
        );
        assert_eq!(act("DELETE /k"), Operation::Delete);
        assert_eq!(act("GET /k"), Operation::Read);
        assert_eq!(request("PATCH /k", ""), Ok(None));
    }

    #[test]
    fn a_lifetime_is_a_number_of_seconds() {
        for ttl in [
            "0",
            "",
            "-1",
            "+1",
            "1.5",
            "soon",
            "315360001",
            "99999999999",
        ] {
            let error = request(&format!("PUT /k?ttl={ttl}"), "").unwrap_err();
            assert!(matches!(error, PublishError::Ttl(_)), "{ttl}");
        }
        let now = 1_700_000_000;
        assert_eq!(exptime(None, now), 0);
        assert_eq!(exptime(Some(2_592_000), now), 2_592_000);
        assert_eq!(exptime(Some(2_592_001), now), 1_702_592_001);
    }

    #[test]
    fn what_would_be_stored_otherwise_than_meant_is_refused() {
        let error = |fields: &str| request("PUT /k", fields).unwrap_err();
        assert_eq!(error("Content-Range: bytes 0-1/2\r\n"), PublishError::Range);
        assert_eq!(error("Content-Encoding: gzip\r\n"), PublishError::Coding);
        assert_eq!(
            error("If-None-Match: \"x\"\r\n"),
            PublishError::Precondition
        );
        assert!(request("PUT /k", "Content-Encoding: identity\r\n").is_ok());
        assert_eq!(PublishError::Coding.status(), 415);
    }

    #[test]
    fn conditions_are_those_of_http() {
        let cursor = Cursor::of(b"v", 0);
        let text = String::from_utf8(cursor.text().bare().to_vec()).unwrap();
        let of = |fields: &str| request("PUT /k", fields).unwrap().unwrap().condition;
        assert_eq!(of("If-None-Match: *\r\n"), Precondition::Missing);
        assert_eq!(of("If-Match: *\r\n"), Precondition::Present);
        assert_eq!(
            of(&format!("If-Match: \"{text}\"\r\n")),
            Precondition::Is(cursor)
        );
        assert_eq!(
            of(&format!("If-Match: \"a\", \"{text}\"\r\n")),
            Precondition::Is(cursor)
        );
        assert_eq!(
            of(&format!("If-Match: W/\"{text}\"\r\n")),
            Precondition::Never
        );
        assert!(Precondition::Is(cursor).is_met(Some(cursor)));
        assert!(!Precondition::Is(cursor).is_met(None));
        assert!(Precondition::Missing.is_met(None) && !Precondition::Never.is_met(None));
    }

    #[test]
    fn a_key_is_decoded_once() {
        let key = |path: &str| decoded_key(path).map(|key| String::from_utf8(key).unwrap());
        assert_eq!(key("/poll/alice").as_deref(), Ok("/poll/alice"));
        assert_eq!(key("%2Fpoll%2falice").as_deref(), Ok("/poll/alice"));
        assert_eq!(key("a%252Fb+c").as_deref(), Ok("a%2Fb+c"));
        assert_eq!(key("%c3%a9").as_deref(), Ok("\u{e9}"));
        for wrong in ["%", "a%2", "%zz", "%+1", "%%20"] {
            assert_eq!(key(wrong), Err(PublishError::Encoding), "{wrong}");
        }
        for (wrong, byte) in [("a%20b", b' '), ("a%0d%0aflush_all", b'\r'), ("%00", 0)] {
            assert_eq!(
                key(wrong),
                Err(PublishError::Key(KeyError::Forbidden(byte)))
            );
        }
        assert_eq!(key(""), Err(PublishError::Key(KeyError::Missing)));
        let long = decoded_key(&"a".repeat(251)).unwrap_err();
        assert_eq!(long.status(), 414);
    }

    proptest! {
        #[test]
        fn what_is_encoded_is_read_back(key in prop::collection::vec(0x21..0x7f_u8, 1..80)) {
            let encode = |text: String, byte: &u8| text + &format!("%{byte:02X}");
            let encoded = key.iter().fold(String::new(), encode);
            prop_assert_eq!(decoded_key(&encoded), Ok(key));
        }

        #[test]
        fn no_path_panics(path in ".*") {
            let _ = decoded_key(&path);
        }
    }
}
