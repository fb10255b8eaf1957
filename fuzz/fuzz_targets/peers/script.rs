//! From the input of a fuzzer to frames of a client that keeps to the states of streams.

use dwell_proto::http2::{FrameHeader, FrameType};

/// The frames of an input: two bytes choose the type, flags and length, and the content follows.
pub struct Script<'d> {
    data: &'d [u8],
    /// The newest stream.
    last: u32,
    /// The block of the newest stream has not ended.
    in_block: bool,
}

const ACK: u8 = 0x1;
const END_HEADERS: u8 = 0x4;

impl<'d> Script<'d> {
    pub fn new(data: &'d [u8]) -> Self {
        Self {
            data,
            last: 0,
            in_block: false,
        }
    }

    /// The next frame; `open` is the newest stream if the client may send on it.
    pub fn next(&mut self, open: Option<u32>) -> Option<Vec<u8>> {
        loop {
            let (&[choice, flags, length], rest) = self.data.split_first_chunk()?;
            let length = usize::from(length).min(rest.len());
            let (content, rest) = rest.split_at(length);
            self.data = rest;
            if let Some((kind, flags, stream)) = self.choose(choice, flags, open) {
                let header = FrameHeader {
                    length: length as u32,
                    kind,
                    flags,
                    stream,
                };
                return Some([&header.encode(), content].concat());
            }
        }
    }

    /// The type, flags and stream of a frame; `None` where the client may not send such a one.
    fn choose(&mut self, choice: u8, flags: u8, open: Option<u32>) -> Option<(FrameType, u8, u32)> {
        let ends_block = flags & END_HEADERS != 0;
        let (kind, stream) = match choice % 16 {
            0..5 => {
                // Any other frame in a block is an error, which is tried, too.
                if !self.in_block {
                    self.last += 2;
                    self.in_block = !ends_block;
                }
                (FrameType::HEADERS, self.last - 1)
            }
            5 => {
                let stream = self.last.checked_sub(1)?;
                self.in_block &= !ends_block;
                (FrameType::CONTINUATION, stream)
            }
            6 | 7 => (FrameType::DATA, open?),
            8 => {
                let stream = open?;
                self.in_block = !ends_block;
                (FrameType::HEADERS, stream)
            }
            9 => (FrameType::SETTINGS, 0),
            10 => (FrameType::PING, 0),
            11 => (FrameType::WINDOW_UPDATE, 0),
            12 => (FrameType::WINDOW_UPDATE, open?),
            13 => (FrameType::RST_STREAM, open?),
            14 => (FrameType::PRIORITY, self.last + 1),
            _ => (FrameType(0xa0 | choice >> 4), u32::from(flags)),
        };
        // Settings are acknowledged once, which is no matter of a decoder.
        let flags = match kind {
            FrameType::SETTINGS => flags & !ACK,
            _ => flags,
        };
        Some((kind, flags, stream))
    }
}
