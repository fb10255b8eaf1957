//! The decoders of `proto::http2`, with as much of streams as they need.

use super::{End, May, Seen, request, trailers};
use dwell_proto::http1::FieldStorage;
use dwell_proto::http2::{
    BlockLimits, FieldSection, Frame, FrameDecoder, FrameHeader, FrameType, HpackDecoder,
    HpackError, MessageError, PREFACE, PeerError, PeerSettings, SectionLimits, Window,
    check_trailers, encode, request_head, settings,
};

/// Long enough for any target of an input.
const TARGET_BYTES_MAX: usize = 4_096;

pub struct Ours {
    frames: FrameDecoder,
    fields: HpackDecoder,
    section: FieldSection,
    settings: PeerSettings,
    window: Window,
    /// The newest stream on which the client may send.
    open: Option<Open>,
    /// The stream of the block that has not ended.
    block: Option<u32>,
}

struct Open {
    stream: u32,
    window: Window,
    length: Option<u64>,
    received: u64,
}

impl Ours {
    pub fn new() -> Self {
        let mut ours = Self {
            frames: FrameDecoder::of_client(BlockLimits::default()),
            fields: HpackDecoder::new(4_096),
            section: FieldSection::new(SectionLimits::default()),
            settings: PeerSettings::default(),
            window: Window::new(65_535),
            open: None,
            block: None,
        };
        let mut start = PREFACE.to_vec();
        encode::settings(&[], &mut start);
        ours.receive(&start);
        ours
    }

    pub fn open_stream(&self) -> Option<u32> {
        self.open.as_ref().map(|open| open.stream)
    }

    /// The frame that ends the block of which parts have come, if there is one.
    pub fn end_of_block(&self) -> Option<[u8; 9]> {
        let header = FrameHeader {
            length: 0,
            kind: FrameType::CONTINUATION,
            flags: 4,
            stream: self.block?,
        };
        Some(header.encode())
    }

    pub fn receive(&mut self, frame: &[u8]) -> Seen {
        let mut seen = Seen::default();
        let mut data = Vec::new();
        let mut used = 0;
        loop {
            let result = match self.frames.decode(&frame[used..]) {
                Ok(step) => {
                    used += step.consumed;
                    let Some(frame) = step.frame else { break };
                    self.take(frame, &mut data, &mut seen)
                }
                Err(error) => Err(error),
            };
            if let Err(error) = result {
                seen.end = End::Failed(error.code().0);
                seen.may = seen.may.max(of_connection(error));
                break;
            }
        }
        seen
    }

    fn take(
        &mut self,
        frame: Frame<'_>,
        data: &mut Vec<u8>,
        seen: &mut Seen,
    ) -> Result<(), PeerError> {
        match frame {
            Frame::Data {
                data: piece,
                ends_stream,
                ..
            } => {
                data.extend_from_slice(piece);
                self.data(data, piece.len(), ends_stream, seen);
            }
            Frame::Block {
                stream,
                fragment,
                ends_block,
                ends_stream,
                ..
            } => {
                self.block = (!ends_block).then_some(stream);
                let decoded = self.fields.decode(fragment, ends_block, &mut self.section);
                if !ends_block && self.is_malformed() {
                    // `h2` is done with the block, and takes what follows for new frames.
                    seen.may = May::TakeIt;
                }
                decoded?;
                if ends_block {
                    self.section(stream, ends_stream, seen);
                    self.section.clear();
                }
            }
            Frame::Setting { id, value } => {
                let before = self.settings.initial_window_size;
                self.settings.apply(id, value)?;
                if id == settings::INITIAL_WINDOW_SIZE
                    && let Some(open) = &mut self.open
                {
                    open.window.resize(before, value)?;
                }
            }
            Frame::WindowUpdate {
                stream: 0,
                increment,
            } => self.window.grow(0, increment)?,
            Frame::WindowUpdate { stream, increment } => {
                if let Some(open) = &mut self.open
                    && let Err(error) = open.window.grow(stream, increment)
                {
                    self.fail(stream, error.code().0, seen);
                }
            }
            Frame::Reset { stream, code } => self.fail(stream, code.0, seen),
            Frame::Broken { stream, error } => {
                seen.may = seen.may.max(of_stream(error));
                self.fail(stream, error.code().0, seen);
            }
            _ => {}
        }
        Ok(())
    }

    fn fail(&mut self, stream: u32, code: u32, seen: &mut Seen) {
        if self.open.take_if(|open| open.stream == stream).is_some() {
            seen.lines.push(format!("{stream} fails {code}"));
        }
    }

    fn data(&mut self, all: &[u8], more: usize, ends: bool, seen: &mut Seen) {
        let Some(open) = &mut self.open else { return };
        let stream = open.stream;
        open.received += more as u64;
        let is_wrong = open
            .length
            .is_some_and(|length| open.received > length || (ends && open.received < length));
        if is_wrong {
            return self.fail(stream, 1, seen);
        }
        if !all.is_empty() && more > 0 {
            seen.lines
                .push(format!("{stream} data {}", all.escape_ascii()));
        }
        if ends {
            self.open = None;
            seen.lines.push(format!("{stream} ends"));
        }
    }

    fn section(&mut self, stream: u32, ends_stream: bool, seen: &mut Seen) {
        if self.open.as_ref().is_some_and(|open| open.stream == stream) {
            return self.trailers(stream, ends_stream, seen);
        }
        let mut storage = FieldStorage::new();
        let head = match request_head(&self.section, &mut storage, TARGET_BYTES_MAX) {
            Ok(head) => head,
            Err(error) => {
                seen.may = seen.may.max(of_section(error));
                self.open = None;
                return;
            }
        };
        if ends_stream && head.content_length.is_some_and(|length| length > 0) {
            self.open = None;
            return;
        }
        let fields = head.fields.iter();
        let fields = fields
            .map(|(name, value)| (name.to_owned(), value.to_vec()))
            .collect();
        let authority = self.section.lines().find(|line| line.0 == b":authority");
        let authority = authority.map_or("", |line| std::str::from_utf8(line.1).unwrap_or("?"));
        if authority.contains('%') {
            // RFC 3986 section 3.2.2 has hosts with coded bytes; the crate `http` has none.
            seen.may = May::TakeIt;
        }
        let words = [head.method, head.scheme, authority, head.target];
        seen.lines.push(request(stream, words, fields));
        if ends_stream {
            seen.lines.push(format!("{stream} ends"));
            self.open = None;
        } else {
            self.open = Some(Open {
                stream,
                window: Window::new(self.settings.initial_window_size),
                length: head.content_length,
                received: 0,
            });
        }
    }

    /// Returns true if no more lines make a request, or trailers, of the section.
    fn is_malformed(&self) -> bool {
        let mut storage = FieldStorage::new();
        let as_request = request_head(&self.section, &mut storage, TARGET_BYTES_MAX).err();
        let as_trailers = check_trailers(&self.section).err();
        let is_open = self.open.as_ref().map(|open| open.stream) == self.block;
        let error = if is_open { as_trailers } else { as_request };
        let is_missing = matches!(
            error,
            None | Some(MessageError::PseudoMissing | MessageError::HostMissing)
        );
        !is_missing
    }

    fn trailers(&mut self, stream: u32, ends_stream: bool, seen: &mut Seen) {
        let checked = check_trailers(&self.section);
        let missing = self
            .open
            .as_ref()
            .and_then(|open| Some(open.length? - open.received));
        if let Err(error) = checked {
            seen.may = seen.may.max(of_trailers(error));
        }
        if !ends_stream || checked.is_err() || missing.is_some_and(|bytes| bytes > 0) {
            return self.fail(stream, 1, seen);
        }
        let lines = self.section.lines();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let fields = lines
            .map(|(name, value)| (text(name), value.to_vec()))
            .collect();
        seen.lines.push(trailers(stream, fields));
        seen.lines.push(format!("{stream} ends"));
        self.open = None;
    }
}

/// Errors of a section that `h2` does not look for, and those that it finds in its own way.
fn of_section(error: MessageError) -> May {
    match error {
        // Bounds of our own, and a method that we do not offer.
        MessageError::TooLarge { .. }
        | MessageError::TargetTooLong { .. }
        | MessageError::Connect => May::TakeIt,
        // RFC 9113 section 8.2.1: whitespace at an end of a value is malformed.
        MessageError::FieldValue => May::TakeIt,
        // Section 8.3.1: `h2` does without a path.
        MessageError::PseudoMissing => May::TakeIt,
        // Sections 8.3.1 and 8.1.1: `h2` takes any scheme and target that the crate `http` does,
        // requests for no host, and hosts that differ; lengths it reads in its own way.
        MessageError::Scheme
        | MessageError::Target
        | MessageError::HostMissing
        | MessageError::HostRepeated
        | MessageError::HostInvalid
        | MessageError::LengthInvalid => May::TakeIt,
        // Section 8.1.1: a malformed request ends its stream; `h2` finds some of these while it
        // decompresses, and ends the connection.
        MessageError::FieldName
        | MessageError::ConnectionField
        | MessageError::Te
        | MessageError::Pseudo
        | MessageError::PseudoRepeated
        | MessageError::PseudoLate
        | MessageError::Method => May::EndMore,
        _ => May::NotDiffer,
    }
}

/// The same of trailers.
fn of_trailers(error: MessageError) -> May {
    match error {
        // RFC 9113 section 8.1 has no pseudo-header fields in trailers; `h2` drops those that a
        // request may have.
        MessageError::Pseudo => May::TakeIt,
        error => of_section(error),
    }
}

/// Errors of a stream behind which `h2` goes on in another way.
fn of_stream(error: PeerError) -> May {
    match error {
        // RFC 9113 sections 6.3 and 6.9 have these end the stream; `h2` ends the connection.
        PeerError::PriorityLength { .. } | PeerError::NoIncrement { .. } => May::TakeIt,
        // It leaves the block of such a stream aside, which RFC 9113 section 4.3 has it decompress.
        PeerError::DependsOnItself { .. } => May::TakeIt,
        _ => May::NotDiffer,
    }
}

/// Errors of a connection for which `h2` has another code.
fn of_connection(error: PeerError) -> May {
    match error {
        // RFC 9113 section 4.2 has FRAME_SIZE_ERROR for frames of a wrong length; `h2` says
        // PROTOCOL_ERROR of most.
        PeerError::FrameLength { .. } => May::SayOtherwise,
        // Bounds of our own.
        PeerError::TooManyContinuations { .. } | PeerError::BlockTooLong { .. } => May::TakeIt,
        // RFC 7541 section 4.2 has the size change before all fields of a block; `h2` takes it
        // before all fields of a frame.
        PeerError::Compression(HpackError::LateTableSize) => May::TakeIt,
        // RFC 9218 section 2.1 and RFC 8441 section 3 say which values these may have; `h2` does
        // not know the one, and lets the other be taken back.
        PeerError::Setting {
            id: settings::NO_RFC7540_PRIORITIES | settings::ENABLE_CONNECT_PROTOCOL,
            ..
        } => May::TakeIt,
        // Of padding that is too long in a frame whose stream depends on itself, too, `h2` sees the
        // second alone, by which it ends less.
        PeerError::Padding => May::TakeIt,
        // RFC 9113 section 4.3 has COMPRESSION_ERROR for these; `h2` says PROTOCOL_ERROR of some.
        PeerError::Compression(_) => May::SayOtherwise,
        // Section 6.5.2 has FLOW_CONTROL_ERROR for an initial window that is too large; `h2` says
        // PROTOCOL_ERROR.
        PeerError::WindowOverflow { .. } => May::SayOtherwise,
        _ => May::NotDiffer,
    }
}
