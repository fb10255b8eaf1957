//! An answer as it is given, before it is framed.

use bytes::Bytes;
use dwell_evloop::FileSlice;

/// An answer to be written.
///
/// Shape: the engine adds `Date`, `Content-Length` or `Transfer-Encoding`, and, where needed,
/// `Connection`. It leaves the body out for HEAD, 1xx, 204 and 304 (RFC 9110 sections 6.4.1 and
/// 9.3.2). From `fields` it leaves out those four, `Keep-Alive` and `Proxy-Connection`, so that no
/// field comes twice, and names that are not tokens. Three wishes are kept: `Connection: close`
/// closes the connection, `Connection: Upgrade` of a 101 or 426 is sent, and the `Content-Length`
/// of an answer to HEAD stands where `body` brings no bytes that would tell it.
///
/// ```
/// use dwell_engine::{Body, Response};
///
/// let body = Body::Slice(b"{}");
/// assert_eq!((body.len(), body.is_empty()), (Some(2), false));
/// let response = Response {
///     status: 200,
///     fields: &[("Content-Type", b"application/json"), ("Cache-Control", b"no-store")],
///     body,
/// };
/// assert_eq!(response.status, 200);
/// ```
#[derive(Debug)]
pub struct Response<'a> {
    /// The status code: 200 to 599, or 101.
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
    /// Shared bytes in several parts, one behind the other: large ones are not copied.
    Parts(&'a [Bytes]),
    /// Part of a file, which the kernel moves to the socket; one that has become shorter meanwhile
    /// ends the connection.
    File(FileSlice),
    /// Bytes that are written by and by, with [`Reply::write`](crate::Reply::write), of this size
    /// in all if it is known. If it is not, they go out as chunks, to an HTTP/1.0 client until the
    /// connection closes.
    Stream(Option<u64>),
}

impl Body<'_> {
    /// Its size in bytes, as far as it is known.
    pub fn len(&self) -> Option<u64> {
        match self {
            Body::Empty => Some(0),
            Body::Absent(length) | Body::Stream(length) => *length,
            Body::Slice(bytes) => Some(bytes.len() as u64),
            Body::Shared(bytes) => Some(bytes.len() as u64),
            Body::Parts(parts) => Some(length_of(parts)),
            Body::File(slice) => Some(slice.length),
        }
    }

    /// Returns true if it is known to have no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == Some(0)
    }
}

/// Bytes of all parts.
pub(super) fn length_of(parts: &[Bytes]) -> u64 {
    parts.iter().map(|part| part.len() as u64).sum()
}
