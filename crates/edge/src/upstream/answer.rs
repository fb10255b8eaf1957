//! From the bytes of a connection to a whole answer.

use bytes::Bytes;
use dwell_proto::http1::{
    BodyError, BodyFraming, FieldStorage, Fields, ResponseDecoder, ResponseError, ResponseHead,
    ResponseLimits, ResponsePart, is_hop_by_hop,
};

use super::{UpstreamError, UpstreamOptions};

/// A whole answer, ready to be sent to any number of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status, 200 or above.
    pub status: u16,
    /// The fields in their order, without those of the connection and without those that whoever
    /// sends it on writes anew: `Content-Length` and `Date`.
    pub fields: Vec<(String, Bytes)>,
    /// What `Content-Length` said, which for `HEAD` is the length of the body that is not here.
    pub content_length: Option<u64>,
    /// The body, its transfer coding removed.
    pub body: Bytes,
}

/// Reads one answer.
#[derive(Debug)]
pub(super) struct AnswerReader {
    decoder: ResponseDecoder,
    /// What has come of it: nothing before its head.
    answer: Option<Answer>,
    data: Vec<u8>,
}

/// How far an answer has come.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More bytes are needed.
    Partial,
    /// It is complete.
    Complete {
        answer: Answer,
        /// Whether the connection can take another request.
        reusable: bool,
    },
}

impl AnswerReader {
    pub(super) fn new(is_head: bool) -> Self {
        Self {
            decoder: ResponseDecoder::new(if is_head { "HEAD" } else { "GET" }),
            answer: None,
            data: Vec::new(),
        }
    }

    /// Whether any byte of an answer has come.
    pub(super) fn has_begun(&self) -> bool {
        self.decoder.has_begun()
    }

    /// Whether the head has come.
    pub(super) fn has_head(&self) -> bool {
        self.decoder.has_head()
    }

    /// Takes in what was read. Interim answers are skipped.
    pub(super) fn feed(
        &mut self,
        input: &[u8],
        options: &UpstreamOptions,
    ) -> Result<Progress, UpstreamError> {
        let limits = ResponseLimits {
            head: options.answer_head,
            body_bytes_max: options.answer_bytes_max,
            ..ResponseLimits::default()
        };
        let mut rest = input;
        loop {
            let mut storage = FieldStorage::new();
            let step = self.decoder.decode(rest, &mut storage, &limits);
            let step = step.map_err(refusal)?;
            rest = &rest[step.consumed..];
            let (is_done, is_stuck) = (step.done, step.consumed == 0);
            match step.part {
                ResponsePart::Nothing | ResponsePart::Interim(_) => {}
                ResponsePart::Head(head) if head.is_switching => {
                    return Err(UpstreamError::SwitchedProtocols);
                }
                ResponsePart::Head(head) => {
                    self.data = Vec::with_capacity(expected_bytes(&head, options));
                    self.answer = Some(Answer::new(&head));
                }
                ResponsePart::Body(piece) => self.data.extend_from_slice(piece),
            }
            if is_done {
                // Bytes that nobody asked for: what they belong to is anybody's guess.
                return Ok(self.complete(rest.is_empty()));
            }
            if is_stuck {
                return Ok(Progress::Partial);
            }
        }
    }

    /// The application has ended its side of the connection.
    pub(super) fn end(&mut self) -> Result<Progress, UpstreamError> {
        self.decoder.eof().map_err(|_| UpstreamError::Closed)?;
        Ok(self.complete(false))
    }

    fn complete(&mut self, nothing_follows: bool) -> Progress {
        let Some(mut answer) = self.answer.take() else {
            return Progress::Partial;
        };
        answer.body = Bytes::from(std::mem::take(&mut self.data));
        Progress::Complete {
            answer,
            reusable: self.decoder.keep_alive() && nothing_follows,
        }
    }
}

impl Answer {
    fn new(head: &ResponseHead<'_, '_>) -> Self {
        Self {
            status: head.status,
            fields: end_to_end_fields(head.fields, head.bytes),
            content_length: head.content_length,
            body: Bytes::new(),
        }
    }
}

/// Memory to set aside for the body; one that is too long is refused next.
fn expected_bytes(head: &ResponseHead<'_, '_>, options: &UpstreamOptions) -> usize {
    match head.framing {
        BodyFraming::Length(length) if length <= options.answer_bytes_max => {
            usize::try_from(length.min(RESERVED_BYTES_MAX)).unwrap_or(0)
        }
        _ => 0,
    }
}

/// The fields that go on to a client, as slices of one copy of the head.
///
/// Source: RFC 9110 section 7.6.1.
fn end_to_end_fields(fields: Fields<'_, '_>, text: &[u8]) -> Vec<(String, Bytes)> {
    let copy = Bytes::copy_from_slice(text);
    let has_nominated = fields.find("connection").is_some();
    let mut kept = Vec::with_capacity(fields.len());
    for (name, value) in fields.iter() {
        if is_hop_by_hop(name)
            || name.eq_ignore_ascii_case("content-length")
            || name.eq_ignore_ascii_case("date")
            || (has_nominated && fields.has_token("connection", name))
        {
            continue;
        }
        let start = value.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
        let value = match copy.get(start..start + value.len()) {
            Some(_) => copy.slice(start..start + value.len()),
            None => Bytes::copy_from_slice(value),
        };
        kept.push((name.to_owned(), value));
    }
    kept
}

fn refusal(error: ResponseError) -> UpstreamError {
    match error {
        ResponseError::Head(error) => UpstreamError::BadHead(error),
        ResponseError::Body(BodyError::TooLarge { limit }) => UpstreamError::TooLarge { limit },
        ResponseError::Body(error) => UpstreamError::BadBody(error),
        ResponseError::TooManyInterim { limit } => UpstreamError::TooManyInterim { limit },
        _ => UpstreamError::Closed,
    }
}

/// Memory set aside on the word of a `Content-Length` alone.
const RESERVED_BYTES_MAX: u64 = 256 << 10;

#[cfg(test)]
mod tests;
