//! The clients that may share an answer of the application.

use super::misses::UpstreamResult;
use dwell_proto::http1::list_tokens;
use dwell_upstream::Answer;

/// The clients that may get the answer to a shared request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// All that ask for the key.
    All,
    /// The one whose request got it.
    Asker,
    /// None: a field that a shared request leaves out may change it.
    Nobody,
}

impl Owner {
    /// The owner of an answer, or of the failure to get one; a request that `is_plain` carries
    /// nothing that only one of its clients sent.
    ///
    /// Shape: an answer belongs to all if it is about the key: a value, its absence, or where else
    /// it is. A refusal of the client or of its request, and an answer that fields of the request
    /// have chosen, do not; `Accept-Encoding` is no such field, as a shared request is
    /// sent without it. 429 and 503 are for an address that asks too often. Other failures belong
    /// to all where nothing of one client can have caused them.
    ///
    /// Source: RFC 9111 sections 3, 4 and 4.1.
    pub(super) fn of(verdict: &UpstreamResult, is_plain: bool) -> Self {
        #[cfg(feature = "sim")]
        if dwell_evloop::sim::Planted::WrongMember.is_in() {
            return Self::All;
        }
        let of_failure = if is_plain { Self::All } else { Self::Asker };
        let Ok(answer) = verdict else {
            return of_failure;
        };
        let mut owner = match answer.status {
            200 | 204 | 404 | 410 => Self::All,
            301 | 302 | 303 | 307 | 308 if is_public(answer) => Self::All,
            429 | 503 => Self::Asker,
            500.. => of_failure,
            _ => Self::Nobody,
        };
        for (name, value) in &answer.fields {
            match name.to_ascii_lowercase().as_str() {
                "set-cookie" => return Self::Asker,
                "cache-control" if list_tokens(value).any(is_personal) => return Self::Asker,
                "vary" if !list_tokens(value).all(is_left_to_us) => owner = Self::Nobody,
                _ => {}
            }
        }
        owner
    }
}

fn is_public(answer: &Answer) -> bool {
    let is_public = |directive: &[u8]| directive.eq_ignore_ascii_case(b"public");
    answer.fields.iter().any(|(name, value)| {
        name.eq_ignore_ascii_case("cache-control") && list_tokens(value).any(is_public)
    })
}

fn is_left_to_us(field: &[u8]) -> bool {
    field.eq_ignore_ascii_case(b"accept-encoding")
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
    use dwell_upstream::UpstreamError;
    use std::sync::Arc;

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

    fn owner(answer: Answer, is_plain: bool) -> Owner {
        Owner::of(&Ok(Arc::new(answer)), is_plain)
    }

    fn may_be_shared(answer: Answer) -> bool {
        owner(answer, true) == Owner::All
    }

    #[test]
    fn a_plain_answer_is_everybodys() {
        for fields in [
            &[][..],
            &[("Cache-Control", "max-age=5, public")],
            &[("Cache-Control", "no-cache")],
            &[("Vary", "Accept-Encoding")],
        ] {
            assert!(may_be_shared(answer(fields)), "{fields:?}");
        }
    }

    #[test]
    fn what_says_nothing_of_the_key_is_nobody_elses() {
        let of = |status, fields, is_plain| {
            let answer = Answer {
                status,
                ..answer(fields)
            };
            owner(answer, is_plain)
        };
        let owner = |status, fields| of(status, fields, true);
        for status in [400, 401, 403, 406, 407, 413, 421, 431, 451, 302, 304, 206] {
            assert_eq!(owner(status, &[]), Owner::Nobody, "{status}");
        }
        for status in [200, 204, 404, 410] {
            assert_eq!(owner(status, &[]), Owner::All, "{status}");
        }
        for status in [301, 302, 303, 307, 308] {
            let public = owner(status, &[("Cache-Control", "max-age=5, Public")]);
            assert_eq!(public, Owner::All, "{status}");
        }
        assert_eq!(owner(400, &[("Cache-Control", "public")]), Owner::Nobody);
        assert_eq!(
            [429, 503].map(|status| owner(status, &[])),
            [Owner::Asker; 2]
        );
        assert_eq!(owner(500, &[]), Owner::All);
        assert_eq!(of(500, &[], false), Owner::Asker);
        assert_eq!(of(200, &[], false), Owner::All);
        let refused = Err(UpstreamError::Unavailable);
        let of_refused = [true, false].map(|is_plain| Owner::of(&refused, is_plain));
        assert_eq!(of_refused, [Owner::All, Owner::Asker]);
        assert_eq!(owner(500, &[("Set-Cookie", "a=b")]), Owner::Asker);
        assert_eq!(owner(500, &[("Vary", "Origin")]), Owner::Nobody);
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
            assert!(!may_be_shared(answer(&[field])), "{field:?}");
        }
    }
}
