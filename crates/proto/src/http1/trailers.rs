//! Trailer fields: the fields of a chunked message after its body.

use super::fields::{is_hop_by_hop, trim_whitespace};

/// The trailer section of a message.
///
/// Shape: borrows the bytes as they came. A field that decides how a message is framed, routed,
/// authenticated or read is left out. It comes too late to be obeyed: a program that obeys it can
/// be made to disagree with the rest of the chain.
///
/// Source: RFC 9110 section 6.5.
///
/// ```
/// use dwell_proto::http1::{BodyDecoder, BodyFraming};
///
/// let mut decoder = BodyDecoder::new(BodyFraming::Chunked, 1024);
/// let step = decoder.decode(b"0\r\nDigest: abc\r\nContent-Length: 7\r\n\r\n")?;
/// assert!(step.done);
/// let fields: Vec<_> = decoder.trailers().iter().collect();
/// assert_eq!(fields, [("Digest", &b"abc"[..])]);
/// # Ok::<(), dwell_proto::http1::BodyError>(())
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Trailers<'b> {
    /// Whole field lines, checked by the decoder, each with its line end.
    section: &'b [u8],
}

impl<'b> Trailers<'b> {
    /// No trailer fields.
    pub const NONE: Trailers<'static> = Trailers { section: &[] };

    /// Makes some of whole field lines that were checked, each with its line end.
    ///
    /// ```
    /// use dwell_proto::http1::Trailers;
    ///
    /// let trailers = Trailers::of_lines(b"digest: abc\r\nhost: a\r\n");
    /// assert_eq!(trailers.iter().collect::<Vec<_>>(), [("digest", &b"abc"[..])]);
    /// ```
    pub fn of_lines(section: &'b [u8]) -> Self {
        Self { section }
    }

    /// The fields in the order they came.
    pub fn iter(self) -> impl Iterator<Item = (&'b str, &'b [u8])> {
        self.section
            .split(|byte| *byte == b'\n')
            .filter_map(|line| {
                let colon = memchr::memchr(b':', line)?;
                let name = std::str::from_utf8(&line[..colon]).ok()?;
                let value = line[colon + 1..].strip_suffix(b"\r")?;
                (!is_forbidden(name)).then(|| (name, trim_whitespace(value)))
            })
    }

    /// The value of the first field of this name, in any case.
    ///
    /// ```
    /// use dwell_proto::http1::{BodyDecoder, BodyFraming, Trailers};
    ///
    /// let mut decoder = BodyDecoder::new(BodyFraming::Chunked, 1024);
    /// decoder.decode(b"0\r\nDigest: abc\r\n\r\n")?;
    /// assert_eq!(decoder.trailers().find("digest"), Some(&b"abc"[..]));
    /// assert!(!decoder.trailers().is_empty() && Trailers::NONE.is_empty());
    /// # Ok::<(), dwell_proto::http1::BodyError>(())
    /// ```
    pub fn find(self, name: &str) -> Option<&'b [u8]> {
        let found = self
            .iter()
            .find(|(found, _)| found.eq_ignore_ascii_case(name));
        found.map(|(_, value)| value)
    }

    /// Returns true if there are no trailers.
    pub fn is_empty(self) -> bool {
        self.iter().next().is_none()
    }
}

/// Returns true for a field that is not allowed in a trailer section: one that frames, routes,
/// authenticates, makes a condition, controls caches, defines how the content is read, or names the
/// client.
///
/// Source: RFC 9110 section 6.5.1; RFC 7239 section 4; RFC 9440 section 2.4; RFC 9530 section 2 for
/// the one `Content-` field that is made for trailers.
pub(super) fn is_forbidden(name: &str) -> bool {
    const FORBIDDEN: &[&str] = &[
        "age",
        "authorization",
        "cache-control",
        "client-cert",
        "client-cert-chain",
        "cookie",
        "expect",
        "expires",
        "forwarded",
        "host",
        "http2-settings",
        "location",
        "max-forwards",
        "origin",
        "pragma",
        "proxy-authentication-info",
        "range",
        "referer",
        "retry-after",
        "set-cookie",
        "vary",
        "via",
        "warning",
        "www-authenticate",
        "x-real-ip",
    ];
    const FORBIDDEN_BEGINNINGS: &[&str] = &[
        "access-control-",
        "content-",
        "if-",
        "sec-",
        "x-forwarded-",
        "x-http-method",
    ];
    let begins = |beginning: &&str| {
        let start = name.get(..beginning.len()).unwrap_or_default();
        start.eq_ignore_ascii_case(beginning)
    };
    let is = |known: &&str| name.eq_ignore_ascii_case(known);
    is_hop_by_hop(name)
        || FORBIDDEN.iter().any(is)
        || (FORBIDDEN_BEGINNINGS.iter().any(begins) && !is(&"content-digest"))
}

#[cfg(test)]
mod tests {
    use super::super::{BodyDecoder, BodyFraming};

    fn decoded(input: &[u8], step: usize) -> BodyDecoder {
        let mut decoder = BodyDecoder::new(BodyFraming::Chunked, 1024);
        let (mut start, mut end) = (0, 0);
        while !decoder.is_done() {
            end = (end + step).min(input.len());
            start += decoder.decode(&input[start..end]).unwrap().consumed;
        }
        assert_eq!(start, input.len());
        decoder
    }

    #[test]
    fn fields_are_the_same_however_they_arrive() {
        let input = b"3\r\nabc\r\n0\r\nX-One:  1 \r\nHost: evil\r\nx-two:\r\nX-One: 3\r\n\r\n";
        for step in 1..=input.len() {
            let decoder = decoded(input, step);
            let fields: Vec<_> = decoder.trailers().iter().collect();
            let expected: [(&str, &[u8]); 3] = [("X-One", b"1"), ("x-two", b""), ("X-One", b"3")];
            assert_eq!(fields, expected, "{step}");
            assert_eq!(decoder.trailers().find("X-TWO"), Some(&b""[..]));
            assert_eq!(decoder.trailers().find("host"), None);
        }
    }

    #[test]
    fn what_comes_too_late_to_be_obeyed_is_left_out() {
        for name in [
            "X-Forwarded-For",
            "x-forwarded-anything",
            "X-Real-IP",
            "Forwarded",
            "Client-Cert",
            "client-cert-chain",
            "Via",
            "Cookie",
            "Authorization",
            "Proxy-Authorization",
            "Host",
            "Content-Length",
            "content-location",
            "Transfer-Encoding",
            "If-None-Match",
            "Sec-WebSocket-Key",
            "Origin",
        ] {
            let input = format!("0\r\n{name}: a\r\n\r\n");
            assert!(decoded(input.as_bytes(), 7).trailers().is_empty(), "{name}");
        }
        for name in [
            "Digest",
            "Content-Digest",
            "grpc-status",
            "ETag",
            "Server-Timing",
        ] {
            let input = format!("0\r\n{name}: a\r\n\r\n");
            let decoder = decoded(input.as_bytes(), 7);
            assert_eq!(decoder.trailers().find(name), Some(&b"a"[..]));
        }
    }

    #[test]
    fn a_body_without_trailers_has_none() {
        assert!(decoded(b"0\r\n\r\n", 1).trailers().is_empty());
        assert!(decoded(b"0\r\nHost: a\r\n\r\n", 5).trailers().is_empty());
        let decoder = BodyDecoder::new(BodyFraming::Length(3), 3);
        assert!(decoder.trailers().is_empty());
    }
}
