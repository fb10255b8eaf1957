//! From bytes to frames: lengths, padding, and what may follow what.

use super::error::{ErrorCode, PeerError};
use super::frame::Frame;
use super::frame::{FRAME_BYTES_MAX, FRAME_HEADER_BYTES, FrameHeader, FrameType, flags, stream_id};

/// The bytes with which a client begins.
///
/// Source: RFC 9113 section 3.4.
pub const PREFACE: &[u8; 24] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// The most bytes of input that a decoder leaves unused when it needs more.
pub const REST_BYTES_MAX: usize = FRAME_HEADER_BYTES - 1;

/// The most that one field block may take, as it is sent.
///
/// Units: bytes, and frames. They bound the work for a block and not its fields, which have a bound
/// of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockLimits {
    /// Bytes of all its frames together.
    pub block_bytes_max: u32,
    /// Frames with a part of it.
    pub frames_max: u16,
}

impl Default for BlockLimits {
    fn default() -> Self {
        Self {
            block_bytes_max: 65_536,
            frames_max: 16,
        }
    }
}

/// The result of one call of [`FrameDecoder::decode`].
///
/// ```
/// use dwell_proto::http2::{FrameDecoder, FrameStep};
///
/// let step: FrameStep<'_> = FrameDecoder::of_server(Default::default()).decode(b"\0\0")?;
/// assert_eq!((step.consumed, step.frame), (0, None));
/// # Ok::<(), dwell_proto::http2::PeerError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FrameStep<'a> {
    /// Bytes of the input that are used up; keep the rest.
    pub consumed: usize,
    /// A frame or a piece of one; `None` if more bytes are needed.
    pub frame: Option<Frame<'a>>,
}

/// Takes frames out of the bytes of a connection, as they come.
///
/// Shape: owns no buffer. DATA, field blocks and settings are given in pieces, everything else
/// whole; padding, frames of unknown types, and what GOAWAY says to people are skipped. It does not
/// check that a frame is allowed in the state of its stream.
///
/// ```
/// use dwell_proto::http2::{BlockLimits, Frame, FrameDecoder, PREFACE};
///
/// let mut decoder = FrameDecoder::of_client(BlockLimits::default());
/// let mut input = PREFACE.to_vec();
/// input.extend_from_slice(b"\0\0\0\x04\0\0\0\0\0"); // settings, of which there are none
/// input.extend_from_slice(b"\0\0\x05\0\x01\0\0\0\x01he"); // a beginning of 5 bytes
/// let step = decoder.decode(&input)?;
/// assert_eq!(step.frame, Some(Frame::SettingsEnd));
/// let step = decoder.decode(&input[step.consumed..])?;
/// assert!(matches!(step.frame, Some(Frame::Data { data: b"he", ends_stream: false, .. })));
/// let step = decoder.decode(b"llo")?;
/// assert!(matches!(step.frame, Some(Frame::Data { data: b"llo", ends_stream: true, .. })));
/// # Ok::<(), dwell_proto::http2::PeerError>(())
/// ```
///
/// Source: RFC 9113 sections 3.4, 4 and 6.
#[derive(Debug)]
pub struct FrameDecoder {
    state: State,
    /// The block that is not complete: no other frame may come before its end.
    block: Option<Block>,
    limits: BlockLimits,
}

/// The part of a connection that comes next.
#[derive(Clone, Copy, Debug)]
enum State {
    /// The preface, of which so many bytes have come.
    Preface(u8),
    /// The frame that must be the first.
    FirstHeader,
    Header,
    /// The length of the padding and the like, before the content of a frame.
    Prefix(FrameHeader),
    Content(Content),
    /// Bytes that mean nothing.
    Skip(u32),
}

/// A frame that is given in pieces.
#[derive(Clone, Copy, Debug)]
struct Content {
    header: FrameHeader,
    is_first: bool,
    /// Units: bytes of content that are still to come.
    left: u32,
    /// Units: bytes of padding behind it.
    padding: u32,
}

/// A field block of which parts have come.
#[derive(Clone, Copy, Debug)]
struct Block {
    stream: u32,
    ends_stream: bool,
    /// Units: bytes of its frames that have been announced.
    bytes: u32,
    frames: u16,
}

/// The bytes that were used, what came of them, and what comes next; `None` if more are needed.
type Advance<'a> = Option<(usize, Option<Frame<'a>>, State)>;

impl FrameDecoder {
    /// One for what a client sends, which begins with the preface.
    pub fn of_client(limits: BlockLimits) -> Self {
        Self {
            state: State::Preface(0),
            block: None,
            limits,
        }
    }

    /// One for what a server sends.
    pub fn of_server(limits: BlockLimits) -> Self {
        Self {
            state: State::FirstHeader,
            block: None,
            limits,
        }
    }

    /// Takes the next frame, or what there is of it, from the front of `input`.
    ///
    /// Shape: call again with the rest until there is no frame, which means that more bytes are
    /// needed; at most [`REST_BYTES_MAX`] bytes are then left over.
    ///
    /// # Errors
    /// [`PeerError`]; close the connection.
    pub fn decode<'a>(&mut self, input: &'a [u8]) -> Result<FrameStep<'a>, PeerError> {
        let mut consumed = 0;
        while let Some((used, frame, next)) = self.advance(&input[consumed..])? {
            consumed += used;
            self.state = next;
            if frame.is_some() {
                return Ok(FrameStep { consumed, frame });
            }
        }
        Ok(FrameStep {
            consumed,
            frame: None,
        })
    }

    fn advance<'a>(&mut self, input: &'a [u8]) -> Result<Advance<'a>, PeerError> {
        match self.state {
            State::Preface(seen) => preface(seen, input),
            State::FirstHeader | State::Header => {
                let Some(bytes) = input.first_chunk() else {
                    return Ok(None);
                };
                let header = FrameHeader::parse(*bytes);
                let is_first = matches!(self.state, State::FirstHeader);
                if is_first && (header.kind != FrameType::SETTINGS || header.has(flags::ACK)) {
                    return Err(PeerError::Preface);
                }
                let (frame, next) = self.begin(header)?;
                Ok(Some((FRAME_HEADER_BYTES, frame, next)))
            }
            State::Prefix(header) => prefix(header, input),
            State::Content(content) if content.header.kind == FrameType::SETTINGS => {
                Ok(setting(content, input))
            }
            State::Content(content) => Ok(self.content(content, input)),
            State::Skip(left) => {
                let used = piece(left, input);
                let next = after(left - used as u32);
                Ok((used > 0).then_some((used, None, next)))
            }
        }
    }

    /// Checks a header, which is all there is of some frames.
    fn begin(&mut self, header: FrameHeader) -> Result<(Option<Frame<'static>>, State), PeerError> {
        if header.length > FRAME_BYTES_MAX {
            return Err(PeerError::FrameTooLong {
                limit: FRAME_BYTES_MAX,
                length: header.length,
            });
        }
        self.check_block(&header)?;
        check_stream(&header)?;
        check_length(&header)?;
        Ok(match header.kind {
            FrameType::PUSH_PROMISE => return Err(PeerError::Push),
            FrameType::PRIORITY if header.length != 5 => {
                let stream = header.stream;
                let error = PeerError::PriorityLength { stream };
                let broken = Frame::Broken { stream, error };
                (Some(broken), after(header.length))
            }
            FrameType::SETTINGS if header.has(flags::ACK) => {
                (Some(Frame::SettingsAck), State::Header)
            }
            FrameType::SETTINGS if header.length == 0 => (Some(Frame::SettingsEnd), State::Header),
            FrameType::SETTINGS | FrameType::CONTINUATION => {
                (None, State::Content(Content::of(header, 0, 0)))
            }
            FrameType::DATA
            | FrameType::HEADERS
            | FrameType::PRIORITY
            | FrameType::RST_STREAM
            | FrameType::PING
            | FrameType::GOAWAY
            | FrameType::WINDOW_UPDATE => (None, State::Prefix(header)),
            kind => (Some(Frame::Unknown { kind }), after(header.length)),
        })
    }

    /// Checks that a block goes on without another frame, and not for ever.
    fn check_block(&mut self, header: &FrameHeader) -> Result<(), PeerError> {
        let is_continuation = header.kind == FrameType::CONTINUATION;
        let block = match &mut self.block {
            Some(block) if is_continuation && block.stream == header.stream => block,
            Some(_) => return Err(PeerError::ContinuationExpected),
            None if is_continuation => return Err(PeerError::ContinuationUnexpected),
            None if header.kind == FrameType::HEADERS => self.block.insert(Block {
                stream: header.stream,
                ends_stream: header.has(flags::END_STREAM),
                bytes: 0,
                frames: 0,
            }),
            None => return Ok(()),
        };
        block.bytes += header.length;
        let (limit, frames) = (self.limits.block_bytes_max, self.limits.frames_max);
        if block.bytes > limit {
            return Err(PeerError::BlockTooLong { limit });
        }
        if block.frames >= frames {
            return Err(PeerError::TooManyContinuations { limit: frames });
        }
        block.frames += 1;
        Ok(())
    }

    /// The next piece of DATA or of a field block.
    fn content<'a>(&mut self, content: Content, input: &'a [u8]) -> Advance<'a> {
        let used = piece(content.left, input);
        if used == 0 && content.left > 0 {
            return None;
        }
        let left = content.left - used as u32;
        let header = content.header;
        let is_last = left == 0;
        let next = if is_last {
            after(content.padding)
        } else {
            State::Content(Content {
                is_first: false,
                left,
                ..content
            })
        };
        if header.kind == FrameType::DATA {
            let overhead = header.length - content.left;
            let data = Frame::Data {
                stream: header.stream,
                is_first: content.is_first,
                window_bytes: if content.is_first { header.length } else { 0 },
                padding_bytes: if content.is_first { overhead } else { 0 },
                data: &input[..used],
                ends_stream: is_last && header.has(flags::END_STREAM),
            };
            return Some((used, Some(data), next));
        }
        let ends_block = is_last && header.has(flags::END_HEADERS);
        let part = Frame::Block {
            stream: header.stream,
            is_first: content.is_first && header.kind == FrameType::HEADERS,
            fragment: &input[..used],
            ends_block,
            ends_stream: self.block.is_some_and(|block| block.ends_stream),
        };
        if ends_block {
            self.block = None;
        }
        Some((used, Some(part), next))
    }
}

impl Content {
    /// The content of a frame behind `before` bytes.
    fn of(header: FrameHeader, before: u32, padding: u32) -> Self {
        Self {
            header,
            is_first: true,
            left: header.length - before - padding,
            padding,
        }
    }
}

/// The state behind a frame that has so many bytes left that mean nothing.
fn after(left: u32) -> State {
    match left {
        0 => State::Header,
        left => State::Skip(left),
    }
}

/// The number of bytes of `input` that belong to the `left` ones of a frame.
fn piece(left: u32, input: &[u8]) -> usize {
    input.len().min(left as usize)
}

fn preface(seen: u8, input: &[u8]) -> Result<Advance<'_>, PeerError> {
    let expected = &PREFACE[usize::from(seen)..];
    let used = input.len().min(expected.len());
    if input[..used] != expected[..used] {
        return Err(PeerError::Preface);
    }
    let next = if used == expected.len() {
        State::FirstHeader
    } else {
        // The preface has 24 bytes.
        State::Preface(seen + used as u8)
    };
    Ok((used > 0).then_some((used, None, next)))
}

/// Reads what stands before the content, which is everything of most frames.
fn prefix(header: FrameHeader, input: &[u8]) -> Result<Advance<'_>, PeerError> {
    let stream = header.stream;
    let frame = match header.kind {
        FrameType::DATA | FrameType::HEADERS => return padded(header, input),
        FrameType::PRIORITY => {
            let Some([dependency @ .., _weight]) = input.first_chunk::<5>() else {
                return Ok(None);
            };
            match depends_on_itself(stream, *dependency) {
                Some(broken) => (5, broken),
                None => (5, Frame::Priority { stream }),
            }
        }
        FrameType::PING => {
            let Some(data) = input.first_chunk().copied() else {
                return Ok(None);
            };
            if header.has(flags::ACK) {
                (8, Frame::Pong { data })
            } else {
                (8, Frame::Ping { data })
            }
        }
        FrameType::GOAWAY => {
            let Some([a, b, c, d, code @ ..]) = input.first_chunk::<8>() else {
                return Ok(None);
            };
            let last_stream = stream_id([*a, *b, *c, *d]);
            let code = ErrorCode(u32::from_be_bytes(*code));
            (8, Frame::GoAway { last_stream, code })
        }
        kind => {
            let Some(bytes) = input.first_chunk().copied() else {
                return Ok(None);
            };
            match kind {
                FrameType::RST_STREAM => {
                    let code = ErrorCode(u32::from_be_bytes(bytes));
                    (4, Frame::Reset { stream, code })
                }
                _ => (4, window_update(stream, stream_id(bytes))?),
            }
        }
    };
    let (used, frame) = frame;
    Ok(Some((
        used,
        Some(frame),
        after(header.length - used as u32),
    )))
}

/// Reads the length of the padding and the priority before DATA or a field block.
fn padded(header: FrameHeader, input: &[u8]) -> Result<Advance<'_>, PeerError> {
    let pad_length = usize::from(header.has(flags::PADDED));
    let has_priority = header.kind == FrameType::HEADERS && header.has(flags::PRIORITY);
    let used = pad_length + if has_priority { 5 } else { 0 };
    if header.length < used as u32 {
        let (kind, length) = (header.kind.0, header.length);
        return Err(PeerError::FrameLength { kind, length });
    }
    let Some(before) = input.get(..used) else {
        return Ok(None);
    };
    let padding = before[..pad_length]
        .first()
        .map_or(0, |byte| u32::from(*byte));
    if padding > header.length - used as u32 {
        return Err(PeerError::Padding);
    }
    let broken = before[pad_length..]
        .first_chunk()
        .and_then(|dependency| depends_on_itself(header.stream, *dependency));
    let next = State::Content(Content::of(header, used as u32, padding));
    Ok(Some((used, broken, next)))
}

fn depends_on_itself(stream: u32, dependency: [u8; 4]) -> Option<Frame<'static>> {
    let error = PeerError::DependsOnItself { stream };
    (stream_id(dependency) == stream).then_some(Frame::Broken { stream, error })
}

fn window_update(stream: u32, increment: u32) -> Result<Frame<'static>, PeerError> {
    let error = PeerError::NoIncrement { stream };
    match (increment, stream) {
        (0, 0) => Err(error),
        (0, stream) => Ok(Frame::Broken { stream, error }),
        (increment, stream) => Ok(Frame::WindowUpdate { stream, increment }),
    }
}

/// Reads one setting, or comes to the end of them.
fn setting(content: Content, input: &[u8]) -> Advance<'_> {
    if content.left == 0 {
        return Some((0, Some(Frame::SettingsEnd), State::Header));
    }
    let [a, b, value @ ..] = input.first_chunk::<6>()?;
    let frame = Frame::Setting {
        id: u16::from_be_bytes([*a, *b]),
        value: u32::from_be_bytes(*value),
    };
    let next = State::Content(Content {
        left: content.left - 6,
        ..content
    });
    Some((6, Some(frame), next))
}

fn check_stream(header: &FrameHeader) -> Result<(), PeerError> {
    let is_allowed = match header.kind {
        FrameType::SETTINGS | FrameType::PING | FrameType::GOAWAY => header.stream == 0,
        FrameType::DATA
        | FrameType::HEADERS
        | FrameType::PRIORITY
        | FrameType::RST_STREAM
        | FrameType::CONTINUATION => header.stream != 0,
        _ => true,
    };
    let (kind, stream) = (header.kind.0, header.stream);
    if is_allowed {
        Ok(())
    } else {
        Err(PeerError::StreamId { kind, stream })
    }
}

fn check_length(header: &FrameHeader) -> Result<(), PeerError> {
    let length = header.length;
    let is_allowed = match header.kind {
        FrameType::RST_STREAM | FrameType::WINDOW_UPDATE => length == 4,
        FrameType::PING => length == 8,
        FrameType::GOAWAY => length >= 8,
        FrameType::SETTINGS if header.has(flags::ACK) => length == 0,
        FrameType::SETTINGS => length.is_multiple_of(6),
        _ => true,
    };
    let kind = header.kind.0;
    if is_allowed {
        Ok(())
    } else {
        Err(PeerError::FrameLength { kind, length })
    }
}

#[cfg(test)]
mod tests;
