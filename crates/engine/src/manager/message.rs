//! A request or response as a handler sees it.

use dwell_proto::http1::{Fields, RequestHead, ResponseHead, Version, percent_decoded};
use std::borrow::Cow;

/// A request, or on a client a response: its head, and its body where that is complete.
///
/// Shape: borrows the connection's input; valid while the handler runs.
///
/// ```
/// use dwell_engine::manager::HttpMessage;
///
/// fn describe(message: &HttpMessage<'_>) -> String {
///     let name = message.query_parameter("name").unwrap_or_default();
///     let agent = message.header("User-Agent").unwrap_or_default();
///     format!("{} {} for {name} by {}", message.method(), message.path(), agent.escape_ascii())
/// }
/// #
/// # let request = "GET /a?name=Ann HTTP/1.0\r\nUser-Agent: me\r\n\r\n";
/// # let answer = dwell_testkit::describe(request, describe);
/// # assert!(answer.ends_with("GET /a for Ann by me"), "{answer}");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct HttpMessage<'a> {
    head: Head<'a>,
    body: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
enum Head<'a> {
    Request(&'a RequestHead<'a, 'a>),
    Response(&'a ResponseHead<'a, 'a>),
}

impl<'a> HttpMessage<'a> {
    pub(super) fn request(head: &'a RequestHead<'a, 'a>, body: &'a [u8]) -> Self {
        Self {
            head: Head::Request(head),
            body,
        }
    }

    pub(super) fn response(head: &'a ResponseHead<'a, 'a>, body: &'a [u8]) -> Self {
        Self {
            head: Head::Response(head),
            body,
        }
    }

    /// The method; empty for a response.
    pub fn method(&self) -> &'a str {
        match self.head {
            Head::Request(head) => head.method,
            Head::Response(_) => "",
        }
    }

    /// The path of the target, without its query, as it came; empty for a response.
    pub fn path(&self) -> &'a str {
        match self.head {
            Head::Request(head) => head.path,
            Head::Response(_) => "",
        }
    }

    /// Returns the part of the target after its first `?`; empty without one.
    ///
    /// ```
    /// use dwell_engine::manager::HttpMessage;
    ///
    /// /// A line of an access log.
    /// fn line(message: &HttpMessage<'_>) -> String {
    ///     let fields = message.headers().count();
    ///     let (target, query) = (message.target(), message.query());
    ///     format!("{target} ({} bytes of query) {} {fields}", query.len(), message.version())
    /// }
    /// #
    /// # let request = "GET /a?b=c HTTP/1.0\r\nUser-Agent: me\r\n\r\n";
    /// # let answer = dwell_testkit::describe(request, line);
    /// # assert!(answer.ends_with("/a?b=c (3 bytes of query) HTTP/1.0 1"), "{answer}");
    /// ```
    pub fn query(&self) -> &'a str {
        match self.head {
            Head::Request(head) => head.query.unwrap_or_default(),
            Head::Response(_) => "",
        }
    }

    /// The request target as it came; empty for a response.
    pub fn target(&self) -> &'a str {
        match self.head {
            Head::Request(head) => head.target,
            Head::Response(_) => "",
        }
    }

    /// The status of a response; nothing for a request.
    pub fn status(&self) -> Option<u16> {
        match self.head {
            Head::Request(_) => None,
            Head::Response(head) => Some(head.status),
        }
    }

    /// `HTTP/1.0`, `HTTP/1.1` or `HTTP/2`.
    pub fn version(&self) -> &'static str {
        let version = match self.head {
            Head::Request(head) => head.version,
            Head::Response(head) => head.version,
        };
        match version {
            Version::Http10 => "HTTP/1.0",
            Version::Http11 => "HTTP/1.1",
            Version::Http2 => "HTTP/2",
        }
    }

    /// The body, its transfer coding removed; empty in `HttpHeaders`, and where it is streamed.
    pub fn body(&self) -> &'a [u8] {
        self.body
    }

    /// The body as text, with what is not UTF-8 replaced.
    pub fn text(&self) -> Cow<'a, str> {
        String::from_utf8_lossy(self.body)
    }

    /// The value of the first field of that name, in any case.
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.fields().find(name)
    }

    /// Every field as (name, value), in the order they came, repeated ones too.
    pub fn headers(&self) -> impl ExactSizeIterator<Item = (&'a str, &'a [u8])> {
        self.fields().iter()
    }

    /// The decoded value of the first query parameter of that name.
    ///
    /// Shape: `+` is a space, `%` escapes are bytes of UTF-8, and what is not is replaced.
    pub fn query_parameter(&self, name: &str) -> Option<String> {
        self.query()
            .split('&')
            .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
            .find(|(key, _)| *key == name || decode(key) == name)
            .map(|(_, value)| decode(value))
    }

    /// Returns the head of a request, for choosing its response; `None` for a response.
    ///
    /// ```
    /// use dwell_engine::manager::HttpMessage;
    /// use dwell_engine::websocket::is_upgrade;
    ///
    /// fn wants_websocket(message: &HttpMessage<'_>) -> bool {
    ///     message.request_head().is_some_and(is_upgrade)
    /// }
    /// #
    /// # let request = "GET / HTTP/1.0\r\n\r\n";
    /// # let answer = dwell_testkit::describe(request, |message| {
    /// #     wants_websocket(message).to_string()
    /// # });
    /// # assert!(answer.ends_with("false"), "{answer}");
    /// ```
    pub fn request_head(&self) -> Option<&'a RequestHead<'a, 'a>> {
        match self.head {
            Head::Request(head) => Some(head),
            Head::Response(_) => None,
        }
    }

    fn fields(&self) -> Fields<'a, 'a> {
        match self.head {
            Head::Request(head) => head.fields,
            Head::Response(head) => head.fields,
        }
    }
}

/// Undoes the encoding of HTML forms.
///
/// Source: WHATWG URL, section 5.1.
fn decode(text: &str) -> String {
    let spaced = text.replace('+', " ");
    String::from_utf8_lossy(&percent_decoded(spaced.as_bytes())).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request, parse_response};

    #[test]
    fn a_request_is_seen_through_its_view() {
        let input = b"GET /a/b?x=1+2&y=%C3%A9%zz&z&x=3 HTTP/1.1\r\nHost: h\r\nA: 1\r\na: 2\r\n\r\n";
        let mut storage = FieldStorage::new();
        let head = parse_request(input, &mut storage, &HeadLimits::default()).unwrap();
        let message = HttpMessage::request(&head, b"body");
        assert_eq!(message.method(), "GET");
        assert_eq!(message.path(), "/a/b");
        assert_eq!(message.query(), "x=1+2&y=%C3%A9%zz&z&x=3");
        assert_eq!(message.version(), "HTTP/1.1");
        assert_eq!(message.header("a"), Some(&b"1"[..]));
        assert_eq!(message.headers().count(), 3);
        assert_eq!(message.query_parameter("x").unwrap(), "1 2");
        assert_eq!(message.query_parameter("y").unwrap(), "\u{e9}%zz");
        assert_eq!(message.query_parameter("z").unwrap(), "");
        assert_eq!(message.query_parameter("nothing"), None);
        assert_eq!((message.status(), message.text()), (None, "body".into()));
    }

    #[test]
    fn a_response_has_a_status_and_no_target() {
        let input = b"HTTP/1.0 404 Not Found\r\nA: 1\r\n\r\n";
        let mut storage = FieldStorage::new();
        let head = parse_response(input, &mut storage, &HeadLimits::default(), "GET").unwrap();
        let message = HttpMessage::response(&head, b"");
        assert_eq!(message.status(), Some(404));
        assert_eq!(
            (message.method(), message.path(), message.query()),
            ("", "", "")
        );
        assert_eq!((message.target(), message.version()), ("", "HTTP/1.0"));
    }
}
