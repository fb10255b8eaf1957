//! Bodies: from the bytes of a connection to the bytes of a message.

use super::chunk::ChunkDecoder;
use super::error::BodyError;
use super::framing::BodyFraming;
use super::trailers::Trailers;

/// Takes the body of one message out of the bytes of a connection.
///
/// Shape: owns no buffer and copies nothing; make one per message from its framing.
///
/// ```
/// use dwell_proto::http1::{BodyDecoder, BodyFraming};
///
/// let mut decoder = BodyDecoder::new(BodyFraming::Chunked, 1024);
/// let step = decoder.decode(b"5\r\nhello\r\n0\r\n\r\nGET /next")?;
/// assert_eq!((step.data, step.consumed, step.done), (&b"hello"[..], 15, true));
/// # Ok::<(), dwell_proto::http1::BodyError>(())
/// ```
#[derive(Debug)]
pub struct BodyDecoder {
    state: State,
    /// Bytes of the body that may still come; announced bytes are subtracted at once.
    bytes_left: u64,
    body_bytes_max: u64,
}

#[derive(Debug)]
enum State {
    Done,
    Length(u64),
    UntilClose,
    Chunked(ChunkDecoder),
}

/// The result of one call of [`BodyDecoder::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BodyStep<'b> {
    /// Bytes of the input that are used up; keep the rest.
    pub consumed: usize,
    /// The body bytes among them, in one piece; may be empty.
    pub data: &'b [u8],
    /// True if the message is complete; the bytes that follow belong to the next one.
    pub done: bool,
}

impl BodyDecoder {
    /// A decoder for a body with this framing.
    ///
    /// Units: `body_bytes_max` is in bytes after decoding. A length beyond it is refused by the
    /// first [`decode`](Self::decode), before any byte of the body has to arrive.
    pub fn new(framing: BodyFraming, body_bytes_max: u64) -> Self {
        let state = match framing {
            BodyFraming::None | BodyFraming::Length(0) => State::Done,
            BodyFraming::Length(length) => State::Length(length),
            BodyFraming::Chunked => State::Chunked(ChunkDecoder::new()),
            BodyFraming::UntilClose => State::UntilClose,
        };
        Self {
            state,
            bytes_left: body_bytes_max,
            body_bytes_max,
        }
    }

    /// Takes what it can from the front of `input`.
    ///
    /// Shape: call again with the rest until `done` is set or nothing was consumed, which means
    /// that more bytes are needed.
    ///
    /// # Errors
    /// [`BodyError`]; the connection is out of step and must be closed.
    ///
    /// Source: RFC 9112 sections 6 and 7.
    pub fn decode<'b>(&mut self, input: &'b [u8]) -> Result<BodyStep<'b>, BodyError> {
        let too_large = BodyError::TooLarge {
            limit: self.body_bytes_max,
        };
        match &mut self.state {
            State::Done => Ok(BodyStep {
                consumed: 0,
                data: &[],
                done: true,
            }),
            State::Length(left) => {
                if *left > self.bytes_left {
                    return Err(too_large);
                }
                let taken = input
                    .len()
                    .min(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= taken as u64;
                self.bytes_left -= taken as u64;
                let done = *left == 0;
                if done {
                    self.state = State::Done;
                }
                Ok(BodyStep {
                    consumed: taken,
                    data: &input[..taken],
                    done,
                })
            }
            State::UntilClose => {
                let left = self
                    .bytes_left
                    .checked_sub(input.len() as u64)
                    .ok_or(too_large)?;
                self.bytes_left = left;
                Ok(BodyStep {
                    consumed: input.len(),
                    data: input,
                    done: false,
                })
            }
            State::Chunked(chunks) => chunks.decode(input, &mut self.bytes_left, too_large),
        }
    }

    /// Ends the input: the connection has ended.
    ///
    /// # Errors
    /// [`BodyError::Truncated`] unless the body may end here.
    ///
    /// ```
    /// use dwell_proto::http1::{BodyDecoder, BodyError, BodyFraming, BodyStep};
    ///
    /// // The end of the connection ends a body that has no other end, and cuts another one short.
    /// let mut decoder = BodyDecoder::new(BodyFraming::UntilClose, 1024);
    /// let step: BodyStep<'_> = decoder.decode(b"all there is")?;
    /// assert!(!step.done && !decoder.is_done());
    /// decoder.eof()?;
    /// assert!(decoder.is_done());
    ///
    /// let mut decoder = BodyDecoder::new(BodyFraming::Length(5), 1024);
    /// decoder.decode(b"hel")?;
    /// assert!(decoder.eof().is_err());
    /// # Ok::<(), BodyError>(())
    /// ```
    pub fn eof(&mut self) -> Result<(), BodyError> {
        if matches!(self.state, State::UntilClose) {
            self.state = State::Done;
        }
        if self.is_done() {
            Ok(())
        } else {
            Err(BodyError::Truncated)
        }
    }

    /// Returns true if the message is complete.
    pub fn is_done(&self) -> bool {
        match &self.state {
            State::Done => true,
            State::Length(_) | State::UntilClose => false,
            State::Chunked(chunks) => chunks.is_done(),
        }
    }

    /// The trailer fields of a complete chunked body; none of any other.
    pub fn trailers(&self) -> Trailers<'_> {
        match &self.state {
            State::Chunked(chunks) if chunks.is_done() => Trailers::of_lines(chunks.trailers()),
            _ => Trailers::NONE,
        }
    }
}

#[cfg(test)]
pub(super) mod tests;
