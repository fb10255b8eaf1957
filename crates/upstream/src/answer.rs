//! From the bytes of a connection to an answer: whole, or in parts as it comes.

use bytes::Bytes;
use dwell_proto::http1::{
    BodyFraming, FieldStorage, Fields, ResponseDecoder, ResponseError, ResponseHead,
    ResponseLimits, ResponsePart, is_hop_by_hop, list_tokens,
};

use super::{Taking, UpstreamError, UpstreamOptions};

/// A whole answer, ready to be sent to any number of clients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answer {
    /// The status, 200 or above.
    pub status: u16,
    /// The fields in their order, without those of the connection and without `Content-Length` and
    /// `Date`, which the sender of the response adds itself.
    pub fields: Vec<(String, Bytes)>,
    /// The value of `Content-Length`; for `HEAD` the length of the body that is not here.
    pub content_length: Option<u64>,
    /// The body, its transfer coding removed.
    pub body: Bytes,
}

/// The head of an answer that comes in parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AnswerHead {
    /// The status.
    pub status: u16,
    /// As [`Answer::fields`]; with `Trailer` where the body is chunked.
    pub fields: Vec<(String, Bytes)>,
    /// As [`Answer::content_length`].
    pub content_length: Option<u64>,
    /// The end of the body.
    pub framing: BodyFraming,
    /// The value of `Upgrade`; in a 101 the protocol that follows.
    pub upgrade: Option<Bytes>,
}

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPart {
    /// A head with a status below 200, after which another comes.
    Interim(AnswerHead),
    /// The head of the answer.
    Head(AnswerHead),
    /// The next bytes of the body, its transfer coding removed; never empty.
    Body(Bytes),
    /// The answer is complete, with these trailer fields.
    End(Vec<(String, Bytes)>),
}

/// Reads one answer.
#[derive(Debug)]
pub(super) struct AnswerReader {
    decoder: ResponseDecoder,
    taking: Taking,
    /// Body bytes that may still be read.
    pub(super) credit: usize,
    /// The gathered response; `None` before its head.
    head: Option<AnswerHead>,
    data: Vec<u8>,
    /// The `Connection` of an answer in chunks: trailer fields may be among what it nominates.
    nominated: Option<Box<[u8]>>,
}

/// The progress of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Progress {
    /// More bytes are needed.
    Partial,
    /// It is complete.
    Complete {
        /// True if the connection can take another request.
        reusable: bool,
    },
    /// The head of a 101 has come, which took so many bytes of the input.
    Switched(usize),
}

impl AnswerReader {
    pub(super) fn new(is_head: bool, taking: Taking, credit: usize) -> Self {
        Self {
            decoder: ResponseDecoder::new(if is_head { "HEAD" } else { "GET" }),
            taking,
            credit,
            head: None,
            data: Vec::new(),
            nominated: None,
        }
    }

    /// Returns true if any byte of a response has come.
    pub(super) fn has_begun(&self) -> bool {
        self.decoder.has_begun()
    }

    /// Returns true if the head has come.
    pub(super) fn has_head(&self) -> bool {
        self.decoder.has_head()
    }

    /// Returns true if the response goes on in parts.
    pub(super) fn is_in_parts(&self) -> bool {
        self.taking == Taking::Parts
    }

    /// Returns true if no more may be read before a grant.
    pub(super) fn is_paused(&self) -> bool {
        self.is_in_parts() && self.credit == 0
    }

    /// Takes in what was read; the parts that are to be handed on are appended to `parts`.
    pub(super) fn feed(
        &mut self,
        input: &[u8],
        options: &UpstreamOptions,
        parts: &mut Vec<AnswerPart>,
    ) -> Result<Progress, UpstreamError> {
        let limits = ResponseLimits {
            head: options.answer_head,
            ..ResponseLimits::default()
        };
        let (mut rest, mut copy) = (input, None);
        loop {
            let mut storage = FieldStorage::new();
            let step = self.decoder.decode(rest, &mut storage, &limits);
            let step = step.map_err(refusal)?;
            rest = &rest[step.consumed..];
            let (is_done, is_stuck) = (step.done, step.consumed == 0);
            match step.part {
                ResponsePart::Interim(head) if self.taking == Taking::Parts => {
                    parts.push(AnswerPart::Interim(AnswerHead::new(&head)));
                }
                ResponsePart::Nothing | ResponsePart::Interim(_) => {}
                ResponsePart::Head(head) if head.is_switching => {
                    parts.push(AnswerPart::Head(AnswerHead::new(&head)));
                    return Ok(Progress::Switched(input.len() - rest.len()));
                }
                ResponsePart::Head(head) => {
                    self.nominated = nominated(head.framing, head.fields);
                    let kept = AnswerHead::new(&head);
                    if self.taking == Taking::Whole && kept.may_be_gathered(options) {
                        self.data = Vec::with_capacity(kept.expected_bytes());
                        self.head = Some(kept);
                    } else {
                        self.begin_parts();
                        parts.push(AnswerPart::Head(kept));
                    }
                }
                ResponsePart::Body(piece) => {
                    let gathered = self.data.len() + piece.len();
                    if self.taking == Taking::Whole && gathered as u64 <= options.answer_bytes_max {
                        self.data.extend_from_slice(piece);
                    } else {
                        let piece = slice_of(input, piece, &mut copy);
                        self.pass_on(piece, parts);
                    }
                }
            }
            if is_done {
                // Bytes that nobody asked for: what they belong to is anybody's guess.
                return Ok(self.complete(rest.is_empty(), parts));
            }
            if is_stuck {
                return Ok(Progress::Partial);
            }
        }
    }

    /// The application has ended its side of the connection.
    pub(super) fn end(&mut self, parts: &mut Vec<AnswerPart>) -> Result<Progress, UpstreamError> {
        self.decoder.eof().map_err(|_| UpstreamError::Closed)?;
        Ok(self.complete(false, parts))
    }

    /// The whole answer, once it is complete.
    pub(super) fn take_whole(&mut self) -> Option<Answer> {
        let AnswerHead {
            status,
            fields,
            content_length,
            ..
        } = self.head.take()?;
        Some(Answer {
            status,
            fields,
            content_length,
            body: Bytes::from(std::mem::take(&mut self.data)),
        })
    }

    /// Makes it go on in parts; if it was to be gathered, none is granted yet.
    fn begin_parts(&mut self) {
        if self.taking == Taking::Whole {
            self.taking = Taking::Parts;
            self.credit = 0;
        }
    }

    /// Hands on a piece of the body, behind what was gathered for nothing.
    fn pass_on(&mut self, piece: Bytes, parts: &mut Vec<AnswerPart>) {
        self.begin_parts();
        if let Some(head) = self.head.take() {
            parts.push(AnswerPart::Head(head));
            let data = std::mem::take(&mut self.data);
            if !data.is_empty() {
                parts.push(AnswerPart::Body(Bytes::from(data)));
            }
        }
        self.credit = self.credit.saturating_sub(piece.len());
        parts.push(AnswerPart::Body(piece));
    }

    fn complete(&mut self, nothing_follows: bool, parts: &mut Vec<AnswerPart>) -> Progress {
        if self.is_in_parts() {
            let nominated = self.nominated.take().unwrap_or_default();
            let is_nominated = |name: &str| {
                list_tokens(&nominated).any(|one| one.eq_ignore_ascii_case(name.as_bytes()))
            };
            let trailers = self.decoder.trailers().iter();
            let trailers = trailers.filter(|(name, _)| !is_nominated(name));
            let owned = trailers.map(|(name, value)| (name.into(), Bytes::copy_from_slice(value)));
            parts.push(AnswerPart::End(owned.collect()));
        }
        Progress::Complete {
            reusable: self.decoder.keep_alive() && nothing_follows,
        }
    }
}

impl AnswerHead {
    fn new(head: &ResponseHead<'_, '_>) -> Self {
        let is_chunked = head.framing == BodyFraming::Chunked;
        let upgrade = head.fields.find("upgrade");
        Self {
            status: head.status,
            fields: end_to_end_fields(head.fields, head.bytes, is_chunked),
            content_length: head.content_length,
            framing: head.framing,
            upgrade: upgrade.map(Bytes::copy_from_slice),
        }
    }

    /// Returns true if the body is a stream of server-sent events.
    pub fn is_event_stream(&self) -> bool {
        let mut fields = self.fields.iter();
        fields.any(|(name, value)| {
            name.eq_ignore_ascii_case("content-type") && is_event_stream(value)
        })
    }

    /// Returns true if the body fits into memory, as far as its length is known. A stream of events
    /// is not gathered, as it has no end.
    fn may_be_gathered(&self, options: &UpstreamOptions) -> bool {
        match self.framing {
            BodyFraming::None => true,
            BodyFraming::Length(length) => length <= options.answer_bytes_max,
            BodyFraming::Chunked | BodyFraming::UntilClose => !self.is_event_stream(),
        }
    }

    /// Memory to set aside for the body.
    fn expected_bytes(&self) -> usize {
        match self.framing {
            BodyFraming::Length(length) => {
                usize::try_from(length.min(RESERVED_BYTES_MAX)).unwrap_or(0)
            }
            _ => 0,
        }
    }
}

/// Returns the fields that a chunked message nominates for its connection; they are removed from
/// its trailer section too.
///
/// Source: RFC 9110 section 7.6.1.
pub fn nominated(framing: BodyFraming, fields: Fields<'_, '_>) -> Option<Box<[u8]>> {
    if framing != BodyFraming::Chunked {
        return None;
    }
    let lines: Vec<&[u8]> = fields.all("connection").collect();
    (!lines.is_empty()).then(|| lines.join(&b","[..]).into())
}

fn is_event_stream(content_type: &[u8]) -> bool {
    let essence = content_type.split(|byte| *byte == b';').next();
    essence.is_some_and(|essence| {
        essence
            .trim_ascii()
            .eq_ignore_ascii_case(b"text/event-stream")
    })
}

/// The fields that go on to a client, as slices of one copy of the head. The announcement of a
/// trailer section goes on where there may be one.
///
/// Source: RFC 9110 sections 6.6.2 and 7.6.1.
fn end_to_end_fields(
    fields: Fields<'_, '_>,
    text: &[u8],
    has_trailers: bool,
) -> Vec<(String, Bytes)> {
    let mut copy = None;
    let has_nominated = fields.find("connection").is_some();
    let mut kept = Vec::with_capacity(fields.len());
    for (name, value) in fields.iter() {
        let is_announcement = has_trailers && name.eq_ignore_ascii_case("trailer");
        if (is_hop_by_hop(name) && !is_announcement)
            || name.eq_ignore_ascii_case("content-length")
            || name.eq_ignore_ascii_case("date")
            || (has_nominated && fields.has_token("connection", name))
        {
            continue;
        }
        kept.push((name.to_owned(), slice_of(text, value, &mut copy)));
    }
    kept
}

/// A part of `text` as a slice of its one copy, which is made for the first of them.
fn slice_of(text: &[u8], part: &[u8], copy: &mut Option<Bytes>) -> Bytes {
    let copy = copy.get_or_insert_with(|| Bytes::copy_from_slice(text));
    let start = part.as_ptr().addr().wrapping_sub(text.as_ptr().addr());
    match start.checked_add(part.len()) {
        Some(end) if end <= copy.len() => copy.slice(start..end),
        // It is no part of it: a body piece is always one, and so is a value, but an empty one.
        _ => Bytes::copy_from_slice(part),
    }
}

fn refusal(error: ResponseError) -> UpstreamError {
    match error {
        ResponseError::Head(error) => UpstreamError::BadHead(error),
        ResponseError::Body(error) => UpstreamError::BadBody(error),
        ResponseError::TooManyInterim { limit } => UpstreamError::TooManyInterim { limit },
        _ => UpstreamError::Closed,
    }
}

/// Memory set aside on the word of a `Content-Length` alone.
const RESERVED_BYTES_MAX: u64 = 256 << 10;

#[cfg(test)]
mod tests;
