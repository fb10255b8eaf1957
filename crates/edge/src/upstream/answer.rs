//! From the bytes of a connection to a whole answer.

use bytes::Bytes;
use dwell_proto::http1::{
    BodyDecoder, BodyError, BodyFraming, FieldStorage, Fields, HeadError, ResponseHead, head_end,
    is_hop_by_hop, parse_response,
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
    is_head: bool,
    /// The beginning of a head that is not all there.
    tail: Vec<u8>,
    /// How much of `tail` was searched for its end.
    scanned: usize,
    has_begun: bool,
    body: Option<BodyReader>,
}

#[derive(Debug)]
struct BodyReader {
    answer: Answer,
    keep_alive: bool,
    decoder: BodyDecoder,
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
            is_head,
            tail: Vec::new(),
            scanned: 0,
            has_begun: false,
            body: None,
        }
    }

    /// Whether any byte of an answer has come.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Whether the head has come.
    pub(super) fn has_head(&self) -> bool {
        self.body.is_some()
    }

    /// Takes in what was read.
    pub(super) fn feed(
        &mut self,
        input: &[u8],
        options: &UpstreamOptions,
    ) -> Result<Progress, UpstreamError> {
        self.has_begun |= !input.is_empty();
        if self.body.is_some() {
            return self.feed_body(input);
        }
        if self.tail.is_empty() {
            return self.feed_head(input, options);
        }
        let mut bytes = std::mem::take(&mut self.tail);
        bytes.extend_from_slice(input);
        self.feed_head(&bytes, options)
    }

    /// The application has ended its side of the connection.
    pub(super) fn end(&mut self) -> Result<Progress, UpstreamError> {
        let mut body = self.body.take().ok_or(UpstreamError::Closed)?;
        body.decoder.eof().map_err(|_| UpstreamError::Closed)?;
        Ok(body.complete(false))
    }

    /// Reads heads until one is final: those of interim answers are skipped.
    ///
    /// Source: RFC 9110 section 15.2.
    fn feed_head(
        &mut self,
        bytes: &[u8],
        options: &UpstreamOptions,
    ) -> Result<Progress, UpstreamError> {
        let mut rest = bytes;
        loop {
            let Some(end) = head_end(rest, &mut self.scanned) else {
                check_beginning(rest, options)?;
                self.tail = rest.to_vec();
                return Ok(Progress::Partial);
            };
            let (text, after) = rest.split_at(end);
            rest = after;
            let mut storage = FieldStorage::new();
            let method = if self.is_head { "HEAD" } else { "GET" };
            let head = parse_response(text, &mut storage, &options.answer_head, method)
                .map_err(UpstreamError::BadHead)?;
            match head.status {
                101 => return Err(UpstreamError::SwitchedProtocols),
                100..=199 => {}
                _ => {
                    self.body = Some(BodyReader::new(&head, text, options)?);
                    return self.feed_body(rest);
                }
            }
        }
    }

    fn feed_body(&mut self, input: &[u8]) -> Result<Progress, UpstreamError> {
        let Some(mut body) = self.body.take() else {
            return Ok(Progress::Partial);
        };
        let mut rest = input;
        loop {
            let step = body.decoder.decode(rest).map_err(body_error)?;
            rest = &rest[step.consumed..];
            body.data.extend_from_slice(step.data);
            if step.done {
                // Bytes that nobody asked for: what they belong to is anybody's guess.
                return Ok(body.complete(rest.is_empty()));
            }
            if step.consumed == 0 {
                self.body = Some(body);
                return Ok(Progress::Partial);
            }
        }
    }
}

impl BodyReader {
    fn new(
        head: &ResponseHead<'_, '_>,
        text: &[u8],
        options: &UpstreamOptions,
    ) -> Result<Self, UpstreamError> {
        let limit = options.answer_bytes_max;
        let expected = match head.framing {
            BodyFraming::Length(length) if length > limit => {
                return Err(UpstreamError::TooLarge { limit });
            }
            BodyFraming::Length(length) => length.min(RESERVED_BYTES_MAX),
            _ => 0,
        };
        let content_length = head.fields.find("content-length");
        let content_length = content_length.and_then(|value| std::str::from_utf8(value).ok());
        Ok(Self {
            answer: Answer {
                status: head.status,
                fields: end_to_end_fields(head.fields, text),
                content_length: content_length.and_then(|value| value.parse().ok()),
                body: Bytes::new(),
            },
            keep_alive: head.keep_alive,
            decoder: BodyDecoder::new(head.framing, limit),
            data: Vec::with_capacity(usize::try_from(expected).unwrap_or(0)),
        })
    }

    fn complete(self, nothing_follows: bool) -> Progress {
        let mut answer = self.answer;
        answer.body = Bytes::from(self.data);
        Progress::Complete {
            answer,
            reusable: self.keep_alive && nothing_follows,
        }
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

/// Refuses at once what can no longer become a head.
fn check_beginning(bytes: &[u8], options: &UpstreamOptions) -> Result<(), UpstreamError> {
    let limit = options.answer_head.head_bytes_max;
    if bytes.len() > limit {
        let length = bytes.len();
        return Err(UpstreamError::BadHead(HeadError::HeadTooLong {
            limit,
            length,
        }));
    }
    let shown = bytes.len().min(BEGINNING.len());
    if bytes[..shown] == BEGINNING[..shown] {
        Ok(())
    } else {
        Err(UpstreamError::BadHead(HeadError::VersionSyntax))
    }
}

fn body_error(error: BodyError) -> UpstreamError {
    match error {
        BodyError::TooLarge { limit } => UpstreamError::TooLarge { limit },
        error => UpstreamError::BadBody(error),
    }
}

/// What every head starts with.
const BEGINNING: &[u8] = b"HTTP/1.";
/// Memory set aside on the word of a `Content-Length` alone.
const RESERVED_BYTES_MAX: u64 = 256 << 10;

#[cfg(test)]
mod tests;
