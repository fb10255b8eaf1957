//! Writing one answer.

use crate::date::Start;
use bytes::Bytes;
use dwell_evloop::Stream;
use dwell_proto::http1::{Version, encode};
use std::net::SocketAddr;

/// An answer to be written.
///
/// Shape: the engine adds `Date`, `Content-Length` and, where needed, `Connection`; it leaves the
/// body out for HEAD, 1xx, 204 and 304 (RFC 9110 sections 6.4.1 and 9.3.2).
#[derive(Debug)]
pub struct Response<'a> {
    /// The status code, 200 to 599.
    pub status: u16,
    /// Further fields, in order; values are sanitised on the way out.
    pub fields: &'a [(&'a str, &'a [u8])],
    /// The body.
    pub body: Body<'a>,
}

/// The body of an answer.
#[derive(Debug)]
pub enum Body<'a> {
    /// No bytes.
    Empty,
    /// A body of this size, if it is known, that exists elsewhere: for answers to HEAD only.
    Absent(Option<u64>),
    /// Bytes that are copied into the answer.
    Slice(&'a [u8]),
    /// Bytes many answers share; a large body is never copied, not even for a slow reader.
    Shared(Bytes),
}

impl Body<'_> {
    /// Its size in bytes; 0 where it is not known.
    pub fn len(&self) -> u64 {
        match self {
            Body::Empty => 0,
            Body::Absent(length) => length.unwrap_or(0),
            Body::Slice(bytes) => bytes.len() as u64,
            Body::Shared(bytes) => bytes.len() as u64,
        }
    }

    /// Whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// What of a request decides how its answer is framed.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Framing {
    pub(crate) is_head: bool,
    pub(crate) is_http10: bool,
    pub(crate) keep_alive: bool,
}

/// The place where the answer to one request goes.
#[derive(Debug)]
pub struct Reply<'a> {
    pub(crate) output: &'a mut Vec<u8>,
    pub(crate) stream: &'a mut Stream,
    pub(crate) start: Start<'a>,
    pub(crate) framing: Framing,
    pub(crate) sent: bool,
    /// The socket has failed.
    pub(crate) failed: bool,
}

/// Room for an answer of the usual size, made at once.
const ANSWER_BYTES: usize = 1024;
/// Bodies up to this size are copied next to their head; larger ones are written by reference.
const COPY_BYTES_MAX: usize = 16 * 1024;

impl Reply<'_> {
    /// The client's address, asked of the system at each call; `None` when it is gone.
    pub fn peer_address(&self) -> Option<SocketAddr> {
        self.stream.peer_address().ok().flatten()
    }

    /// Closes the connection after this answer.
    pub fn close_after(&mut self) {
        self.framing.keep_alive = false;
    }

    /// Whether an answer was sent.
    pub fn is_sent(&self) -> bool {
        self.sent
    }

    /// Sends the answer; a second one to the same request is ignored.
    pub fn send(&mut self, response: &Response<'_>) {
        if self.sent {
            return;
        }
        self.sent = true;
        self.head(response);
        if self.framing.is_head || is_bodiless(response.status) {
            return;
        }
        match &response.body {
            Body::Empty | Body::Absent(_) => {}
            Body::Slice(bytes) => self.output.extend_from_slice(bytes),
            Body::Shared(bytes) if bytes.len() <= COPY_BYTES_MAX => {
                self.output.extend_from_slice(bytes);
            }
            Body::Shared(bytes) => {
                self.failed = self
                    .stream
                    .write_shared(self.output, bytes.clone())
                    .is_err();
                self.output.clear();
            }
        }
    }

    /// Sends `text` as `text/plain`, with a line feed.
    pub fn text(&mut self, status: u16, text: &str) {
        let mut body = String::with_capacity(text.len() + 1);
        body.push_str(text);
        body.push('\n');
        self.send(&Response {
            status,
            fields: &[("Content-Type", b"text/plain; charset=utf-8")],
            body: Body::Slice(body.as_bytes()),
        });
    }

    fn head(&mut self, response: &Response<'_>) {
        let output = &mut *self.output;
        output.reserve(ANSWER_BYTES);
        if response.status == 200 {
            output.extend_from_slice(self.start.ok());
        } else {
            encode::status_line(output, Version::Http11, response.status);
            output.extend_from_slice(self.start.date());
        }
        for (name, value) in response.fields {
            encode::field(output, name, value);
        }
        let is_unknown = matches!(response.body, Body::Absent(None));
        if !is_bodiless(response.status) && !is_unknown {
            output.extend_from_slice(b"Content-Length: ");
            output.extend_from_slice(itoa::Buffer::new().format(response.body.len()).as_bytes());
            output.extend_from_slice(b"\r\n");
        }
        if !self.framing.keep_alive {
            output.extend_from_slice(b"Connection: close\r\n");
        } else if self.framing.is_http10 {
            output.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        output.extend_from_slice(b"\r\n");
    }
}

/// Whether an answer of this status never has a body (RFC 9110 section 6.4.1).
fn is_bodiless(status: u16) -> bool {
    matches!(status, 100..=199 | 204 | 304)
}
