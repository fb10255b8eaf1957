//! The trace that a request belongs to.

use dwell_proto::http1::Fields;
use std::fmt;

/// The id of a trace, as `traceparent` has it.
///
/// Source: W3C Trace Context, section 3.2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TraceId([u8; 32]);

impl TraceId {
    /// The trace of a request by its fields; `None` unless it has exactly one valid `traceparent`.
    pub(crate) fn of_fields(fields: Fields<'_, '_>) -> Option<Self> {
        Self::parse(only(fields.all(TRACEPARENT))?)
    }

    /// The trace of a request by its head, as it was received.
    pub(crate) fn of_head(head: &[u8]) -> Option<Self> {
        Self::parse(traceparent_in(head)?)
    }

    /// The value of the valid `traceparent` of a head, without what a later version adds.
    pub(super) fn value_in(head: &[u8]) -> Option<&[u8]> {
        let value = traceparent_in(head).filter(|value| Self::parse(value).is_some())?;
        value.get(..LENGTH)
    }

    /// Parses the value of `traceparent`: `version-trace-parent-flags`, and of a later version what
    /// follows another hyphen.
    fn parse(value: &[u8]) -> Option<Self> {
        let (known, rest) = value.split_at_checked(LENGTH)?;
        let mut parts = known.split(|byte| *byte == b'-');
        let [version, trace, parent, flags] = [(); 4].map(|()| parts.next().unwrap_or_default());
        let is_version = match version {
            b"00" => rest.is_empty(),
            b"ff" => false,
            _ => rest.first().is_none_or(|byte| *byte == b'-'),
        };
        let is_hex = |part: &[u8], length| {
            let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
            part.len() == length && part.iter().all(is_digit)
        };
        let is_set = |part: &[u8]| part.iter().any(|byte| *byte != b'0');
        let is_whole = is_hex(version, 2) && is_hex(parent, 16) && is_hex(flags, 2);
        if !is_version || !is_whole || !is_hex(trace, 32) || !is_set(trace) || !is_set(parent) {
            return None;
        }
        trace.try_into().ok().map(Self)
    }
}

impl fmt::Display for TraceId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0
            .iter()
            .try_for_each(|digit| write!(f, "{}", char::from(*digit)))
    }
}

/// The value of `traceparent` in a head, if there is one only.
fn traceparent_in(head: &[u8]) -> Option<&[u8]> {
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    let fields = lines.filter_map(|line| line.split_at_checked(TRACEPARENT.len()));
    let named = fields.filter(|(name, _)| name.eq_ignore_ascii_case(TRACEPARENT.as_bytes()));
    only(named.filter_map(|(_, rest)| rest.strip_prefix(b":")))
}

fn only<'v>(mut values: impl Iterator<Item = &'v [u8]>) -> Option<&'v [u8]> {
    let first = values.next()?;
    values.next().is_none().then(|| first.trim_ascii())
}

/// The field with the trace and the caller.
pub(crate) const TRACEPARENT: &str = "traceparent";

/// Bytes of a value of version 00.
const LENGTH: usize = 55;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn parsed(value: &str) -> Option<String> {
        TraceId::parse(value.as_bytes()).map(|id| id.to_string())
    }

    #[test]
    fn a_valid_value_has_an_id() {
        let id = Some("4bf92f3577b34da6a3ce929d0e0e4736".to_owned());
        assert_eq!(parsed(VALID), id);
        assert_eq!(
            parsed(&VALID.replacen("00", "cc", 1)),
            id,
            "a later version"
        );
        assert_eq!(
            parsed(&format!("{}-more", VALID.replacen("00", "01", 1))),
            id
        );
    }

    #[test]
    fn a_malformed_value_has_none() {
        let malformed = [
            String::new(),
            VALID.to_uppercase(),
            VALID.replacen("00", "ff", 1),
            format!("{VALID}-more"),
            format!("{}x", VALID.replacen("00", "01", 1)),
            VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            VALID.replace("00f067aa0ba902b7", &"0".repeat(16)),
            VALID.replace('-', "_"),
            VALID[1..].to_owned(),
            VALID[..54].to_owned(),
            VALID.replacen("4b", "4-", 1),
        ];
        for value in malformed {
            assert_eq!(parsed(&value), None, "{value}");
        }
    }

    #[test]
    fn the_head_has_one_or_none() {
        let of = |fields: &str| {
            let head = format!("GET /{VALID} HTTP/1.1\r\n{fields}\r\n");
            TraceId::of_head(head.as_bytes()).is_some()
        };
        let field = format!("traceparent: {VALID}\r\n");
        assert!(of(&field));
        assert!(of(&format!("Host: a\r\nTraceParent:{VALID} \r\nA: b\r\n")));
        assert!(!of("Host: a\r\n"));
        assert!(!of(&format!("traceparents: {VALID}\r\n")));
        assert!(
            !of(&format!("{field}{field}")),
            "which of the two is unknown"
        );
    }

    #[test]
    fn what_is_kept_is_bounded() {
        let later = VALID.replacen("00", "01", 1);
        let head = format!(
            "GET / HTTP/1.1\r\ntraceparent: {later}-{}\r\n\r\n",
            "x".repeat(9_000)
        );
        assert_eq!(TraceId::value_in(head.as_bytes()), Some(later.as_bytes()));
        assert_eq!(TraceId::value_in(b"GET / HTTP/1.1\r\n\r\n"), None);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(value in proptest::collection::vec(any::<u8>(), 0..80)) {
            let id = TraceId::parse(&value);
            prop_assert!(id.is_none() || value.len() >= LENGTH);
            let _ = TraceId::of_head(&value);
        }

        #[test]
        fn any_change_of_a_byte_keeps_the_shape(place in 0..LENGTH, byte in any::<u8>()) {
            let mut value = VALID.as_bytes().to_vec();
            value[place] = byte;
            if let Some(id) = TraceId::parse(&value) {
                let text = id.to_string();
                prop_assert_eq!(text.as_bytes(), &value[3..35]);
            }
        }
    }
}
