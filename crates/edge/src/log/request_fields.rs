//! The headers of a request that its line of the access log has.

use super::trace::{TRACEPARENT, TraceId};

/// The headers of one request, as far as its line of the access log has them.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct RequestFields<'a> {
    pub(crate) host: Option<&'a [u8]>,
    pub(crate) user_agent: Option<&'a [u8]>,
    pub(crate) request_id: Option<&'a [u8]>,
    pub(crate) trace: Option<TraceId>,
}

impl<'a> RequestFields<'a> {
    /// Reads them from a head as it was received, or from what [`kept_fields`] has kept of it.
    ///
    /// Shape: of several with one name, the first counts; of several `traceparent`, none.
    pub(crate) fn of_head(head: &'a [u8]) -> Self {
        let mut found = Self {
            trace: TraceId::of_head(head),
            ..Self::default()
        };
        for line in head.split(|byte| *byte == b'\n').skip(1) {
            let colon = line.iter().position(|byte| *byte == b':');
            let Some((name, value)) = colon.and_then(|at| line.split_at_checked(at)) else {
                continue;
            };
            let place = match name.len() {
                4 if name.eq_ignore_ascii_case(HOST) => &mut found.host,
                10 if name.eq_ignore_ascii_case(USER_AGENT) => &mut found.user_agent,
                12 if name.eq_ignore_ascii_case(REQUEST_ID) => &mut found.request_id,
                _ => continue,
            };
            let value = value[1..].trim_ascii();
            place.get_or_insert(&value[..value.len().min(FIELD_BYTES_MAX)]);
        }
        found
    }
}

/// The start of a head that is enough for its line of the access log: `line`, which is its request
/// line, and the headers of [`RequestFields`], each cut to its bound.
pub(crate) fn kept_fields(line: &[u8], head: &[u8]) -> Vec<u8> {
    let fields = RequestFields::of_head(head);
    let mut kept = line.to_vec();
    let mut keep = |name: &[u8], value: &[u8]| {
        for part in [b"\r\n", name, b":", value] {
            kept.extend_from_slice(part);
        }
    };
    let named = [
        (HOST, fields.host),
        (USER_AGENT, fields.user_agent),
        (REQUEST_ID, fields.request_id),
    ];
    for (name, value) in named {
        if let Some(value) = value {
            keep(name, value);
        }
    }
    if let Some(value) = fields.trace.and_then(|_| TraceId::value_in(head)) {
        keep(TRACEPARENT.as_bytes(), value);
    }
    kept
}

const HOST: &[u8] = b"host";
const USER_AGENT: &[u8] = b"user-agent";
const REQUEST_ID: &[u8] = b"x-request-id";

/// Bytes of one header in a line of the access log.
pub(crate) const FIELD_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn the_first_of_each_header_counts() {
        let head = b"GET /host:x HTTP/1.1\r\nHost: a.example \r\nAccept: b\r\n\
                     USER-AGENT:curl/8\r\nX-Request-ID:\t7\r\nx-request-id: 8\r\n\r\n";
        let fields = RequestFields::of_head(head);
        assert_eq!(fields.host, Some(&b"a.example"[..]));
        assert_eq!(fields.user_agent, Some(&b"curl/8"[..]));
        assert_eq!(fields.request_id, Some(&b"7"[..]));
        assert_eq!(fields.trace, None);
        let none = RequestFields::of_head(b"GET / HTTP/1.0\r\n\r\n");
        assert!(none.host.is_none() && none.user_agent.is_none() && none.request_id.is_none());
    }

    #[test]
    fn what_is_kept_is_bounded_and_reads_the_same() {
        let line = b"GET / HTTP/1.1";
        let head = format!(
            "GET / HTTP/1.1\r\nhost: {}\r\ncookie: {}\r\nuser-agent: u\r\n\
             traceparent: {PARENT}\r\n\r\n",
            "h".repeat(5000),
            "c".repeat(5000),
        );
        let kept = kept_fields(line, head.as_bytes());
        assert!(kept.starts_with(line) && kept.len() < 400, "{}", kept.len());
        let (before, after) = (
            RequestFields::of_head(head.as_bytes()),
            RequestFields::of_head(&kept),
        );
        assert_eq!(after.host.map(<[u8]>::len), Some(FIELD_BYTES_MAX));
        assert_eq!(
            (before.host, before.user_agent),
            (after.host, after.user_agent)
        );
        assert!(after.trace.is_some() && before.trace == after.trace);
        assert_eq!(kept_fields(line, b"GET / HTTP/1.1\r\n\r\n"), line);
    }

    proptest! {
        #[test]
        fn any_bytes_are_taken(head in proptest::collection::vec(any::<u8>(), 0..200)) {
            let fields = RequestFields::of_head(&head);
            let kept = kept_fields(b"line", &head);
            prop_assert_eq!(fields.host, RequestFields::of_head(&kept).host);
        }
    }
}
