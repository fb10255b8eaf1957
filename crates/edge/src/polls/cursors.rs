//! The cursors of several keys, written as one.

use super::ask::Method;
use crate::cursor::{Condition, Cursor};
use crate::query::parameters;
use dwell_engine::sse;
use dwell_proto::http1::{RequestHead, list_tokens};
use std::borrow::Cow;

/// The separator of cursors, which no cursor contains.
const SEPARATOR: char = '.';

/// The cursors of several keys as one: in order, and nothing for a key without a value.
pub(super) fn join(cursors: impl Iterator<Item = Condition>) -> String {
    let mut joined = String::new();
    for (place, has) in cursors.enumerate() {
        if place > 0 {
            joined.push(SEPARATOR);
        }
        if let Condition::Since(cursor) = has {
            joined.push_str(&String::from_utf8_lossy(cursor.text().bare()));
        }
    }
    joined
}

/// The cursors of a client that asks for a stream of `count` keys.
pub(super) fn of_stream(head: &RequestHead<'_, '_>, count: usize) -> Vec<Condition> {
    let id = sse::last_event_id(head.fields).map(Cow::Borrowed);
    let has_fields = |id: &Cow<'_, str>| !id.is_empty();
    let id = id
        .filter(has_fields)
        .or_else(|| asked(head, "last_event_id").filter(has_fields))
        .or_else(|| asked(head, "since").filter(has_fields));
    said(id.as_deref(), count)
}

/// The cursors of a request; those for another number of keys are ignored.
fn said(joined: Option<&str>, count: usize) -> Vec<Condition> {
    let has = joined.and_then(|joined| split(joined, count));
    has.unwrap_or_else(|| vec![Condition::None; count])
}

/// The cursors of a client that polls `count` keys, and true if it has sent them in
/// `If-None-Match`, which does not apply to POST (RFC 9110 section 13.1.2).
pub(super) fn of_poll(
    head: &RequestHead<'_, '_>,
    method: Method,
    count: usize,
) -> (Vec<Condition>, bool) {
    let tags = head.fields.find("if-none-match");
    let Some(tags) = tags.filter(|_| method != Method::Post) else {
        let since = asked(head, "since");
        return (said(since.as_deref(), count), false);
    };
    if tags.trim_ascii() == b"*" {
        return (vec![Condition::Any; count], true);
    }
    let has = list_tokens(tags).find_map(|tag| split(inside(tag), count));
    (has.unwrap_or_else(|| vec![Condition::Foreign; count]), true)
}

/// The opaque tag of an entity tag, without quotes.
fn inside(tag: &[u8]) -> &str {
    let tag = tag.strip_prefix(b"W/").unwrap_or(tag);
    let tag = tag.strip_prefix(b"\"").unwrap_or(tag);
    std::str::from_utf8(tag.strip_suffix(b"\"").unwrap_or(tag)).unwrap_or("")
}

fn asked<'a>(head: &RequestHead<'a, '_>, wanted: &str) -> Option<Cow<'a, str>> {
    let mut all = parameters(head.query.unwrap_or(""));
    all.find(|(name, _)| name == wanted).map(|(_, text)| text)
}

/// The inverse of [`join`]; `None` if `joined` is not of `count` keys.
pub(super) fn split(joined: &str, count: usize) -> Option<Vec<Condition>> {
    let has = |part: &str| match Cursor::parse(part.as_bytes()) {
        _ if part.is_empty() => Condition::None,
        Some(cursor) => Condition::Since(cursor),
        None => Condition::Foreign,
    };
    let parts: Vec<_> = joined.split(SEPARATOR).map(has).collect();
    (parts.len() == count).then_some(parts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};

    #[test]
    fn they_say_what_the_client_has_of_each_key() {
        let [a, b] = [&b"a"[..], b"b"].map(|value| Condition::Since(Cursor::of(value, 0)));
        for has in [
            vec![a, Condition::None, b],
            vec![a],
            vec![Condition::None; 3],
            vec![a; 64],
        ] {
            let joined = join(has.iter().copied());
            assert_eq!(split(&joined, has.len()), Some(has), "{joined}");
        }
        assert_eq!(split("", 2), None);
        let unknown = vec![Condition::Foreign, Condition::None];
        assert_eq!(split("x.", 2), Some(unknown));
        let joined = join([a, b].into_iter());
        assert_eq!(split(&joined, 3), None);
    }

    #[test]
    fn a_tag_says_it_in_every_dress() {
        let [a, b] = [&b"a"[..], b"b"].map(|value| Condition::Since(Cursor::of(value, 0)));
        let joined = join([a, b].into_iter());
        let of = |field: &str, method| {
            let text = format!("GET /p?since=. HTTP/1.1\r\nHost: x\r\n{field}\r\n");
            let (mut storage, limits) = (FieldStorage::new(), HeadLimits::default());
            let head = parse_request(text.as_bytes(), &mut storage, &limits).unwrap();
            of_poll(&head, method, 2)
        };
        for tag in [
            format!("\"{joined}\""),
            format!("W/\"{joined}\""),
            format!("\"{joined}-gzip\""),
            format!("\"else\", \"{joined}\""),
        ] {
            let field = format!("If-None-Match: {tag}\r\n");
            assert_eq!(of(&field, Method::Get), (vec![a, b], true), "{tag}");
            assert_eq!(of(&field, Method::Post), (vec![Condition::None; 2], false));
        }
        let any = of("If-None-Match: *\r\n", Method::Query);
        assert_eq!(any, (vec![Condition::Any; 2], true));
        let foreign = of("If-None-Match: \"else\"\r\n", Method::Head);
        assert_eq!(foreign, (vec![Condition::Foreign; 2], true));
    }
}
