//! The body of a request, read as it comes.

use crate::desk::BodyRead;
use crate::server::Channel;
use bytes::{Buf, Bytes};
use std::fmt;
use std::io::{self, Read};
use std::sync::Arc;
use std::task::{Context, Poll};

/// The body of a request.
///
/// Shape: no byte of a streamed body is taken from the client before the first read. From then on
/// [`body_window`](crate::ServerBuilder::body_window) bytes are taken ahead of the reader. The rest
/// stays in the kernel, whose window stops the sender. As a [`Read`] it blocks.
///
/// ```
/// use dwell_engine::Server;
/// use dwell_engine::handler::{Answer, BodyError, OwnedRequest, Responder, blocking};
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
///
/// fn count(request: &mut OwnedRequest) -> Result<String, BodyError> {
///     let mut bytes = 0;
///     loop {
///         let piece = request.body.next_blocking()?;
///         if piece.is_empty() {
///             break;
///         }
///         bytes += piece.len();
///     }
///     Ok(format!("{bytes} bytes and {} trailer fields\n", request.body.trailers().len()))
/// }
///
/// let running = Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     .serve(blocking(|mut request: OwnedRequest, responder: Responder| {
///         let text = count(&mut request).unwrap_or_else(|error| format!("{error}\n"));
///         // The client may have left meanwhile.
///         let _ = responder.send(Answer::text(200, text).close_after());
///     }))?;
/// let mut client = TcpStream::connect(running.addresses()[0])?;
/// client.write_all(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n")?;
/// client.write_all(b"5\r\nhello\r\n0\r\nDigest: none\r\n\r\n")?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert!(answer.ends_with("\r\n\r\n5 bytes and 1 trailer fields\n"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct RequestBody {
    source: Source,
    /// Bytes that were taken out of the source and not read yet.
    current: Bytes,
    /// The trailer fields were handed out as a frame.
    #[cfg(feature = "http")]
    has_ended: bool,
}

#[derive(Debug)]
enum Source {
    /// All of it was handed over.
    Whole(Vec<(String, Vec<u8>)>),
    Streamed {
        channel: Arc<Channel>,
        /// The rest of the announced length, if the client has announced one.
        left: Option<u64>,
    },
}

/// Reasons why a body ends before its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum BodyError {
    /// The request is answered or given up, or the client has sent something that is no body, or
    /// one that is too long.
    Gone,
    /// It is longer than the reader allows.
    TooLong {
        /// The most bytes allowed.
        limit: usize,
        /// The bytes that came; more may follow.
        length: usize,
    },
    /// A blocking read on the very loop that would have to bring the bytes.
    OnItsLoop,
}

impl fmt::Display for BodyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Gone => f.write_str("the rest of this body does not come any more"),
            Self::TooLong { limit, length } => write!(f, "body exceeds {limit} bytes: {length}"),
            Self::OnItsLoop => f.write_str("a blocking read on the loop that brings the body"),
        }
    }
}

impl std::error::Error for BodyError {}

impl From<BodyError> for io::Error {
    fn from(error: BodyError) -> Self {
        let kind = match error {
            BodyError::Gone => io::ErrorKind::ConnectionAborted,
            BodyError::TooLong { .. } => io::ErrorKind::InvalidData,
            BodyError::OnItsLoop => io::ErrorKind::WouldBlock,
        };
        Self::new(kind, error)
    }
}

impl RequestBody {
    pub(super) fn whole(bytes: Bytes, trailers: Vec<(String, Vec<u8>)>) -> Self {
        Self {
            source: Source::Whole(trailers),
            current: bytes,
            #[cfg(feature = "http")]
            has_ended: false,
        }
    }

    /// A body that comes in pieces, `left` bytes in all if that is announced.
    pub(super) fn streamed(channel: Arc<Channel>, left: Option<u64>) -> Self {
        channel.expect_body();
        Self {
            source: Source::Streamed { channel, left },
            current: Bytes::new(),
            #[cfg(feature = "http")]
            has_ended: false,
        }
    }

    /// The next bytes, waiting for them; empty at the end.
    ///
    /// # Errors
    /// [`BodyError`].
    pub fn next_blocking(&mut self) -> Result<Bytes, BodyError> {
        if !self.current.is_empty() {
            return Ok(std::mem::take(&mut self.current));
        }
        let Source::Streamed { channel, left } = &mut self.source else {
            return Ok(Bytes::new());
        };
        let read = if channel.line().is_here() {
            channel.read_body(None)
        } else {
            channel.wait_body()
        };
        match read {
            BodyRead::Data(data, _) => {
                count(left, &data);
                Ok(data)
            }
            BodyRead::End => Ok(Bytes::new()),
            BodyRead::Gone => Err(BodyError::Gone),
            BodyRead::Later => Err(BodyError::OnItsLoop),
        }
    }

    /// The next bytes; nothing at the end.
    pub fn poll_next(&mut self, task: &mut Context<'_>) -> Poll<Option<Result<Bytes, BodyError>>> {
        if !self.current.is_empty() {
            return Poll::Ready(Some(Ok(std::mem::take(&mut self.current))));
        }
        let Source::Streamed { channel, left } = &mut self.source else {
            return Poll::Ready(None);
        };
        match channel.read_body(Some(task.waker())) {
            BodyRead::Data(data, _) => {
                count(left, &data);
                Poll::Ready(Some(Ok(data)))
            }
            BodyRead::End => Poll::Ready(None),
            BodyRead::Gone => Poll::Ready(Some(Err(BodyError::Gone))),
            BodyRead::Later => Poll::Pending,
        }
    }

    /// All of it, waiting for its end.
    ///
    /// # Errors
    /// [`BodyError`]; `TooLong` when there are more than `bytes_max`.
    pub fn read_all(&mut self, bytes_max: usize) -> Result<Bytes, BodyError> {
        let mut all = Vec::new();
        loop {
            let piece = self.next_blocking()?;
            if piece.is_empty() {
                return Ok(all.into());
            }
            let length = all.len() + piece.len();
            if length > bytes_max {
                return Err(BodyError::TooLong {
                    limit: bytes_max,
                    length,
                });
            }
            all.extend_from_slice(&piece);
        }
    }

    /// The trailer fields; none before the end.
    pub fn trailers(&self) -> Vec<(String, Vec<u8>)> {
        match &self.source {
            Source::Whole(trailers) => trailers.clone(),
            Source::Streamed { channel, .. } => channel.trailers(),
        }
    }
}

/// Counts a piece that has come.
fn count(left: &mut Option<u64>, data: &Bytes) {
    *left = left.map(|left| left.saturating_sub(data.len() as u64));
}

#[cfg(feature = "http")]
impl RequestBody {
    /// Returns the trailer fields at the first call, if there are any.
    pub(super) fn trailers_once(&mut self) -> Option<Vec<(String, Vec<u8>)>> {
        if std::mem::replace(&mut self.has_ended, true) {
            return None;
        }
        Some(self.trailers()).filter(|trailers| !trailers.is_empty())
    }

    /// Returns the length of the rest of the body, if it is known.
    pub(super) fn known_length(&self) -> Option<u64> {
        let here = self.current.len() as u64;
        match &self.source {
            Source::Whole(_) => Some(here),
            Source::Streamed { left, .. } => left.map(|left| left + here),
        }
    }

    /// Returns true if nothing more comes, trailer fields included; these come behind chunks only.
    pub(super) fn is_at_end(&self) -> bool {
        let is_last = match &self.source {
            Source::Whole(trailers) => trailers.is_empty(),
            Source::Streamed { left, .. } => *left == Some(0),
        };
        self.has_ended || (is_last && self.current.is_empty())
    }
}

impl Read for RequestBody {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if self.current.is_empty() && !buffer.is_empty() {
            self.current = self.next_blocking()?;
        }
        let length = buffer.len().min(self.current.len());
        self.current.copy_to_slice(&mut buffer[..length]);
        Ok(length)
    }
}
