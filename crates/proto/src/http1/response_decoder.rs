//! Responses: from the bytes of a connection to heads and pieces of a body.

use super::body::BodyDecoder;
use super::error::{HeadError, ResponseError};
use super::head::{FieldStorage, HeadLimits, head_end};
use super::response::{ResponseHead, parse_response};
use super::trailers::Trailers;

/// Takes one response out of the bytes of a connection: interim heads, the head, the body.
///
/// Shape: make one per request, also for each of several that were sent ahead. It copies only a
/// head that does not come in one piece, until that is complete, and trailer fields; what it gives
/// borrows the input otherwise.
///
/// ```
/// use dwell_proto::http1::{
///     FieldStorage, ResponseDecoder, ResponseError, ResponseLimits, ResponsePart,
/// };
///
/// let limits = ResponseLimits::default();
/// let mut decoder = ResponseDecoder::new("GET");
/// let (mut status, mut body) = (0, Vec::new());
/// // Two reads of a connection.
/// for input in ["HTTP/1.1 200 OK\r\nContent-Le", "ngth: 5\r\n\r\nhello"] {
///     let mut rest = input.as_bytes();
///     loop {
///         let mut storage = FieldStorage::new();
///         let step = decoder.decode(rest, &mut storage, &limits)?;
///         rest = &rest[step.consumed..];
///         match step.part {
///             ResponsePart::Nothing | ResponsePart::Interim(_) => {}
///             ResponsePart::Head(head) => status = head.status,
///             ResponsePart::Body(piece) => body.extend_from_slice(piece),
///         }
///         if step.done || step.consumed == 0 {
///             break;
///         }
///     }
/// }
/// assert_eq!((status, &body[..]), (200, &b"hello"[..]));
/// assert!(decoder.is_done() && decoder.keep_alive());
/// # Ok::<(), ResponseError>(())
/// ```
#[derive(Debug)]
pub struct ResponseDecoder {
    /// The beginning of a head that is not all there, all of it searched for its end; or one that
    /// the last step has given.
    tail: Vec<u8>,
    /// The body, once the final head has come.
    body: Option<BodyDecoder>,
    interim_count: u16,
    method: Method,
    afterwards: Afterwards,
    tail_is_given: bool,
    has_begun: bool,
}

/// The properties of a request's method that matter for its response.
#[derive(Clone, Copy, Debug)]
enum Method {
    Head,
    Connect,
    Other,
}

/// The use of the connection after the response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Afterwards {
    Close,
    KeepAlive,
    Switch,
}

/// The most that one response may hold.
///
/// Shape: [`HeadLimits::target_bytes_max`] has no meaning here. Beside these, the trailer section
/// of a body and its chunk extensions are bounded as in a request.
///
/// ```
/// use dwell_proto::http1::ResponseLimits;
///
/// let limits = ResponseLimits { body_bytes_max: 1 << 20, ..ResponseLimits::default() };
/// assert_eq!((limits.head.head_bytes_max, limits.interim_count_max), (16_384, 32));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResponseLimits {
    /// Each head, interim ones too.
    pub head: HeadLimits,
    /// The body after decoding. Units: bytes. Default: no limit.
    pub body_bytes_max: u64,
    /// Interim responses before the final one. Default: 32.
    pub interim_count_max: u16,
}

impl Default for ResponseLimits {
    fn default() -> Self {
        Self {
            head: HeadLimits::default(),
            body_bytes_max: u64::MAX,
            interim_count_max: 32,
        }
    }
}

/// The result of one call of [`ResponseDecoder::decode`].
#[derive(Clone, Copy, Debug)]
pub struct ResponseStep<'f, 'b> {
    /// Bytes of the input that are used up; pass the rest again, with more behind it or not.
    pub consumed: usize,
    /// The part that was complete among them.
    pub part: ResponsePart<'f, 'b>,
    /// True if the response is complete; the bytes that follow are not part of it.
    pub done: bool,
}

/// A part of a response.
#[derive(Clone, Copy, Debug)]
pub enum ResponsePart<'f, 'b> {
    /// Framing, or the beginning of a head.
    Nothing,
    /// A head with a status below 200, after which another comes; never a 101, which is final.
    Interim(ResponseHead<'f, 'b>),
    /// The head of the response.
    Head(ResponseHead<'f, 'b>),
    /// The next bytes of the body, in one piece; never empty.
    Body(&'b [u8]),
}

impl ResponseDecoder {
    /// A decoder for the response to a request with this method.
    pub fn new(request_method: &str) -> Self {
        Self {
            tail: Vec::new(),
            body: None,
            interim_count: 0,
            method: match request_method {
                "HEAD" => Method::Head,
                "CONNECT" => Method::Connect,
                _ => Method::Other,
            },
            afterwards: Afterwards::Close,
            tail_is_given: false,
            has_begun: false,
        }
    }

    /// Takes what it can from the front of `input`.
    ///
    /// Shape: call again with the rest until `done` is set or nothing was consumed, which means
    /// that more bytes are needed. A body that announces itself to be too long is refused by the
    /// call that follows its head.
    ///
    /// # Errors
    /// [`ResponseError`], as soon as what there is can no longer become a valid response within
    /// the limits.
    ///
    /// Source: RFC 9110 section 15.2; RFC 9112 sections 4, 6 and 7.
    pub fn decode<'f, 'b>(
        &'b mut self,
        input: &'b [u8],
        storage: &'f mut FieldStorage<'b>,
        limits: &ResponseLimits,
    ) -> Result<ResponseStep<'f, 'b>, ResponseError> {
        if self.tail_is_given {
            self.tail_is_given = false;
            self.tail = Vec::new();
        }
        self.has_begun |= !input.is_empty();
        if let Some(body) = &mut self.body {
            let step = body.decode(input).map_err(ResponseError::Body)?;
            let part = match step.data {
                [] => ResponsePart::Nothing,
                data => ResponsePart::Body(data),
            };
            return Ok(ResponseStep {
                consumed: step.consumed,
                part,
                done: step.done,
            });
        }
        self.decode_head(input, storage, limits)
    }

    fn decode_head<'f, 'b>(
        &'b mut self,
        input: &'b [u8],
        storage: &'f mut FieldStorage<'b>,
        limits: &ResponseLimits,
    ) -> Result<ResponseStep<'f, 'b>, ResponseError> {
        let (head, consumed) = match self.next_head(input, &limits.head)? {
            Found::Partial => {
                return Ok(ResponseStep {
                    consumed: input.len(),
                    part: ResponsePart::Nothing,
                    done: false,
                });
            }
            Found::InInput(end) => (&input[..end], end),
            Found::InTail(consumed) => (&self.tail[..], consumed),
        };
        let head = parse_response(head, storage, &limits.head, self.method.name());
        let head = head.map_err(ResponseError::Head)?;
        if head.status < 200 && !head.is_switching {
            let limit = limits.interim_count_max;
            if self.interim_count == limit {
                return Err(ResponseError::TooManyInterim { limit });
            }
            self.interim_count += 1;
            return Ok(ResponseStep {
                consumed,
                part: ResponsePart::Interim(head),
                done: false,
            });
        }
        let body = BodyDecoder::new(head.framing, limits.body_bytes_max);
        let done = body.is_done();
        self.body = Some(body);
        self.afterwards = match (head.is_switching, head.keep_alive) {
            (true, _) => Afterwards::Switch,
            (false, true) => Afterwards::KeepAlive,
            (false, false) => Afterwards::Close,
        };
        Ok(ResponseStep {
            consumed,
            part: ResponsePart::Head(head),
            done,
        })
    }

    /// Finds the next whole head, in the input alone where it is all there; keeps the beginning of
    /// one.
    fn next_head(&mut self, input: &[u8], limits: &HeadLimits) -> Result<Found, ResponseError> {
        let limit = limits.head_bytes_max;
        if self.tail.is_empty() {
            check_beginning(input)?;
            if let Some(end) = head_end(input, &mut 0) {
                return Ok(Found::InInput(end));
            }
            check_length(input, limit)?;
            self.tail = input.to_vec();
            return Ok(Found::Partial);
        }
        let before = self.tail.len();
        // Enough to see that it is too long, and no copy of a body that comes with it.
        let room = limit.saturating_add(1).saturating_sub(before);
        self.tail.extend_from_slice(&input[..input.len().min(room)]);
        check_beginning(&self.tail)?;
        let Some(end) = head_end(&self.tail, &mut { before }) else {
            check_length(&self.tail, limit)?;
            return Ok(Found::Partial);
        };
        self.tail.truncate(end);
        self.tail_is_given = true;
        Ok(Found::InTail(end - before))
    }

    /// Ends the input: the connection has ended.
    ///
    /// # Errors
    /// [`ResponseError::Unanswered`] before the final head is complete, and [`ResponseError::Body`]
    /// inside a body, unless it is one that ends so.
    ///
    /// ```
    /// use dwell_proto::http1::{
    ///     FieldStorage, ResponseDecoder, ResponseError, ResponseLimits, ResponseStep,
    /// };
    ///
    /// let mut decoder = ResponseDecoder::new("GET");
    /// assert_eq!(decoder.eof(), Err(ResponseError::Unanswered));
    /// // Whether a request may be sent again can depend on this.
    /// assert!(!decoder.has_begun() && !decoder.has_head());
    /// let mut storage = FieldStorage::new();
    /// let head = b"HTTP/1.1 200 OK\r\n\r\n";
    /// let step: ResponseStep<'_, '_> =
    ///     decoder.decode(head, &mut storage, &ResponseLimits::default())?;
    /// assert!(!step.done && decoder.has_begun() && decoder.has_head());
    /// decoder.eof()?;
    /// assert!(decoder.is_done() && !decoder.keep_alive());
    /// # Ok::<(), ResponseError>(())
    /// ```
    pub fn eof(&mut self) -> Result<(), ResponseError> {
        let body = self.body.as_mut().ok_or(ResponseError::Unanswered)?;
        body.eof().map_err(ResponseError::Body)
    }

    /// Returns true if any byte of the response has come.
    pub fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Returns true if the final head has come.
    pub fn has_head(&self) -> bool {
        self.body.is_some()
    }

    /// Returns true if the response is complete.
    pub fn is_done(&self) -> bool {
        self.body.as_ref().is_some_and(BodyDecoder::is_done)
    }

    /// Returns true if the connection can be used again, now that the response is complete.
    ///
    /// Shape: what came behind the response without being asked for is the caller's to see.
    ///
    /// Source: RFC 9112 section 9.3.
    pub fn keep_alive(&self) -> bool {
        self.afterwards == Afterwards::KeepAlive && self.is_done()
    }

    /// Returns true if the bytes after the head are not HTTP: after a 101, and if `CONNECT`
    /// succeeded.
    ///
    /// ```
    /// use dwell_proto::http1::{FieldStorage, ResponseDecoder, ResponseError, ResponseLimits};
    ///
    /// let mut decoder = ResponseDecoder::new("GET");
    /// let input = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\r\n\x81\x00";
    /// let mut storage = FieldStorage::new();
    /// let step = decoder.decode(input, &mut storage, &ResponseLimits::default())?;
    /// assert!(step.done);
    /// assert_eq!(&input[step.consumed..], b"\x81\x00");
    /// assert!(decoder.is_switching() && !decoder.keep_alive());
    /// # Ok::<(), ResponseError>(())
    /// ```
    pub fn is_switching(&self) -> bool {
        self.afterwards == Afterwards::Switch
    }

    /// The trailer fields of a complete chunked body; none of any other.
    pub fn trailers(&self) -> Trailers<'_> {
        self.body
            .as_ref()
            .map_or(Trailers::NONE, BodyDecoder::trailers)
    }
}

impl Method {
    fn name(self) -> &'static str {
        match self {
            Self::Head => "HEAD",
            Self::Connect => "CONNECT",
            Self::Other => "GET",
        }
    }
}

/// The place of a whole head.
enum Found {
    Partial,
    /// So many bytes at the front of the input.
    InInput(usize),
    /// The tail is one, and has taken so many bytes of the input.
    InTail(usize),
}

/// Refuses bytes at once that can no longer become a head, so that the caller does not wait for
/// more.
fn check_beginning(head: &[u8]) -> Result<(), ResponseError> {
    let shown = head.len().min(BEGINNING.len());
    if head[..shown] == BEGINNING[..shown] {
        return Ok(());
    }
    Err(ResponseError::Head(match head {
        [b'H', b'T', b'T', b'P', b'/', b'0'..=b'9', ..] if head[5] != b'1' => {
            HeadError::VersionUnsupported
        }
        _ => HeadError::VersionSyntax,
    }))
}

fn check_length(head: &[u8], limit: usize) -> Result<(), ResponseError> {
    let length = head.len();
    if length > limit {
        return Err(ResponseError::Head(HeadError::HeadTooLong {
            limit,
            length,
        }));
    }
    Ok(())
}

/// The beginning of every head.
const BEGINNING: &[u8] = b"HTTP/1.";

#[cfg(test)]
mod tests;
