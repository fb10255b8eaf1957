//! Which requests and answers of the application several clients may share.

use crate::config::RouteConfig;
use crate::upstream::Answer;
use dwell_proto::http1::{RequestHead, list_tokens};

/// Whether the answer to this request may be anybody else's (RFC 9111 section 3.5).
pub(super) fn is_anybodys(head: &RequestHead<'_, '_>) -> bool {
    head.fields.find("authorization").is_none()
}

/// Whether two clients whose requests of this route have the same key are the same to the
/// application, as far as their requests tell.
///
/// Shape: not with a cookie, a field that the route names, or a token, as each says who asks; but a
/// key that is made of who asks is one client's.
pub(super) fn is_for_all(route: &RouteConfig, head: &RequestHead<'_, '_>) -> bool {
    if route.key.is_of_identity() {
        return true;
    }
    let is_told = |name: &String| head.fields.find(name).is_some() && !route.key.takes_header(name);
    let has_cookie = !route.share_cookies && head.fields.find("cookie").is_some();
    !has_cookie && !route.access.jwt && !route.identity_headers.iter().any(is_told)
}

/// Whether an answer may be given to others than the client whose request got it.
///
/// Shape: not when it refuses who asked, not with a cookie, not when `Cache-Control` forbids a
/// shared cache to keep it, and not when it was chosen by fields of the request.
/// `Accept-Encoding` is no such field, as a shared request is sent without it.
///
/// Source: RFC 9111 sections 3, 4 and 4.1.
pub(super) fn may_be_shared(answer: &Answer) -> bool {
    let is_refusal = matches!(answer.status, 401 | 403 | 407);
    !is_refusal
        && answer
            .fields
            .iter()
            .all(|(name, value)| match name.to_ascii_lowercase().as_str() {
                "set-cookie" => false,
                "cache-control" => !list_tokens(value).any(is_personal),
                "vary" => {
                    list_tokens(value).all(|field| field.eq_ignore_ascii_case(b"accept-encoding"))
                }
                _ => true,
            })
}

/// `private`, with or without its field names, or `no-store`.
fn is_personal(directive: &[u8]) -> bool {
    let name = directive
        .split(|byte| *byte == b'=')
        .next()
        .unwrap_or_default()
        .trim_ascii();
    name.eq_ignore_ascii_case(b"private") || name.eq_ignore_ascii_case(b"no-store")
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    fn answer(fields: &[(&str, &'static str)]) -> Answer {
        Answer {
            status: 200,
            fields: fields
                .iter()
                .map(|(name, value)| ((*name).to_owned(), Bytes::from_static(value.as_bytes())))
                .collect(),
            content_length: Some(0),
            body: Bytes::new(),
        }
    }

    #[test]
    fn a_plain_answer_is_everybodys() {
        for fields in [
            &[][..],
            &[("Cache-Control", "max-age=5, public")],
            &[("Cache-Control", "no-cache")],
            &[("Vary", "Accept-Encoding")],
        ] {
            assert!(may_be_shared(&answer(fields)), "{fields:?}");
        }
    }

    #[test]
    fn a_refusal_is_for_who_asked() {
        for status in [401, 403, 407] {
            let refusal = Answer {
                status,
                ..answer(&[])
            };
            assert!(!may_be_shared(&refusal), "{status}");
        }
    }

    #[test]
    fn an_answer_for_one_client_stays_with_it() {
        for field in [
            ("Set-Cookie", "session=1"),
            ("cache-control", "max-age=0, Private"),
            ("Cache-Control", "private=x"),
            ("Cache-Control", "no-store"),
            ("Vary", "Accept-Encoding, Cookie"),
            ("Vary", "*"),
        ] {
            assert!(!may_be_shared(&answer(&[field])), "{field:?}");
        }
    }
}
