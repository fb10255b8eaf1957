//! Content negotiation: a response or an event stream.

use dwell_proto::http1::{RequestHead, list_tokens};
use dwell_proto::sse;

/// Returns true if the client prefers an event stream.
///
/// Shape: it has to list `text/event-stream` itself, with a weight above zero and not below that of
/// any other type in its list. A range such as `*/*` does not select a stream.
///
/// Source: RFC 9110 section 12.5.1.
pub(super) fn wants_events(head: &RequestHead<'_, '_>) -> bool {
    let (mut events, mut others) = (0, 0);
    for range in head.fields.all("accept").flat_map(list_tokens) {
        let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let is_events = parts
            .next()
            .is_some_and(|media| media.eq_ignore_ascii_case(sse::CONTENT_TYPE.as_bytes()));
        let weight = parts.find_map(weight).unwrap_or(WEIGHT_MAX);
        let most = if is_events { &mut events } else { &mut others };
        *most = weight.max(*most);
    }
    events > 0 && events >= others
}

/// The weight of a range that says nothing of it.
const WEIGHT_MAX: u16 = 1000;

/// The weight that a parameter gives, in thousandths; one that makes no sense gives none.
fn weight(parameter: &[u8]) -> Option<u16> {
    let (b"q" | b"Q", value) = parameter.split_at_checked(1)? else {
        return None;
    };
    let value = value.trim_ascii_start().strip_prefix(b"=")?.trim_ascii();
    let (whole, fraction) = match value {
        [b'0'] => (0, &[][..]),
        [b'1'] => (WEIGHT_MAX, &[][..]),
        [b'0', b'.', fraction @ ..] => (0, fraction),
        [b'1', b'.', fraction @ ..] => (WEIGHT_MAX, fraction),
        _ => return None,
    };
    if fraction.len() > 3 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let places = fraction.iter().zip([100, 10, 1]);
    let thousandths: u16 = places
        .map(|(digit, place)| u16::from(digit - b'0') * place)
        .sum();
    Some((whole + thousandths).min(WEIGHT_MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};

    fn wants(fields: &str) -> bool {
        let text = format!("GET /p HTTP/1.1\r\nHost: x\r\n{fields}\r\n");
        let mut storage = FieldStorage::new();
        let head = parse_request(text.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
        wants_events(&head)
    }

    #[test]
    fn a_stream_has_to_be_named() {
        for fields in [
            "",
            "Accept: */*\r\n",
            "Accept: text/*\r\n",
            "Accept: text/html, text/event-stream-like\r\n",
            "Accept: text/event-stream;q=0\r\n",
            "Accept: text/event-stream; q=0.000\r\n",
        ] {
            assert!(!wants(fields), "{fields}");
        }
        for fields in [
            "Accept: text/event-stream\r\n",
            "Accept: Text/Event-Stream; charset=utf-8\r\n",
            "Accept: text/event-stream, */*;q=0.1\r\n",
            "Accept: text/event-stream, text/plain\r\n",
            "Accept: text/event-stream;q=never\r\n",
            "Accept: text/html;q=0.2\r\nAccept: text/event-stream;q=0.3\r\n",
        ] {
            assert!(wants(fields), "{fields}");
        }
    }

    #[test]
    fn what_the_client_would_rather_have_wins() {
        assert!(!wants("Accept: text/event-stream;q=0.5, text/plain\r\n"));
        assert!(!wants(
            "Accept: text/event-stream ; q = 0.59 , */* ; q = 0.6\r\n"
        ));
        assert!(wants(
            "Accept: text/event-stream;q=1.000, text/plain;Q=0.999\r\n"
        ));
    }
}
