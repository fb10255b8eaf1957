//! Connections of HTTP/2: any bytes, cut anywhere, give the same requests and the same fault, and
//! what is held for them is bounded.
#![no_main]

mod cuts;

use dwell_proto::http1::FieldStorage;
use dwell_proto::http2::{
    BlockLimits, FieldSection, Frame, FrameDecoder, HpackDecoder, PREFACE, REST_BYTES_MAX,
    SectionLimits, encode, request_head,
};
use libfuzzer_sys::fuzz_target;

const LIMITS: SectionLimits = SectionLimits {
    section_bytes_max: 1_000,
    field_count_max: 12,
};
const BLOCKS: BlockLimits = BlockLimits {
    block_bytes_max: 1_500,
    frames_max: 4,
};

fuzz_target!(|data: &[u8]| cuts::same_for_all_cuts(data, transcript));

/// All that a connection says, and how it ends. The input follows preface and settings.
fn transcript(input: &[u8], size: u8) -> Vec<String> {
    let mut connection = Connection::new();
    let mut start = PREFACE.to_vec();
    encode::settings(&[], &mut start);
    connection.receive(&start);
    let mut begin = 0;
    cuts::each_cut(input.len(), size, |end| {
        let goes_on = connection.receive(&input[begin..end]);
        begin = end;
        goes_on
    });
    connection.seen.push(format!("{:?}", connection.data));
    connection.seen
}

struct Connection {
    frames: FrameDecoder,
    fields: HpackDecoder,
    section: FieldSection,
    held: Vec<u8>,
    data: Vec<u8>,
    seen: Vec<String>,
}

impl Connection {
    fn new() -> Self {
        Self {
            frames: FrameDecoder::of_client(BLOCKS),
            fields: HpackDecoder::new(300),
            section: FieldSection::new(LIMITS),
            held: Vec::new(),
            data: Vec::new(),
            seen: Vec::new(),
        }
    }

    /// Takes bytes in; returns false after a fault.
    fn receive(&mut self, bytes: &[u8]) -> bool {
        self.held.extend_from_slice(bytes);
        let held = std::mem::take(&mut self.held);
        let mut used = 0;
        loop {
            let step = match self.frames.decode(&held[used..]) {
                Ok(step) => step,
                Err(error) => return self.fails(&format!("{error:?} {}", error.code())),
            };
            used += step.consumed;
            let Some(frame) = step.frame else { break };
            if !self.take(frame) {
                return false;
            }
        }
        self.held.extend_from_slice(&held[used..]);
        assert!(self.held.len() <= REST_BYTES_MAX);
        true
    }

    fn fails(&mut self, how: &str) -> bool {
        self.seen.push(how.to_owned());
        false
    }

    fn take(&mut self, frame: Frame<'_>) -> bool {
        match frame {
            Frame::Data {
                stream,
                window_bytes,
                padding_bytes,
                data,
                ends_stream,
                ..
            } => {
                self.data.extend_from_slice(data);
                if window_bytes > 0 {
                    self.seen
                        .push(format!("{stream} {window_bytes} {padding_bytes}"));
                }
                if ends_stream {
                    self.seen.push(format!("{stream} ends"));
                }
            }
            Frame::Block {
                stream,
                fragment,
                ends_block,
                ends_stream,
                ..
            } => {
                let decoded = self.fields.decode(fragment, ends_block, &mut self.section);
                if let Err(error) = decoded {
                    return self.fails(&format!("{error:?}"));
                }
                assert!(self.section.capacity_bytes() < 32_768);
                if ends_block {
                    let mut storage = FieldStorage::new();
                    let head = request_head(&self.section, &mut storage, 100);
                    if let Ok(head) = &head {
                        assert!(!head.host.is_empty() && head.target.len() <= 100);
                        let is_clean =
                            |value: &[u8]| !value.iter().any(|byte| b"\r\n\0".contains(byte));
                        assert!(head.fields.iter().all(|(_, value)| is_clean(value)));
                    }
                    let head = format!("{stream} {ends_stream} {head:?}");
                    self.section.clear();
                    self.seen.push(head);
                }
            }
            frame => self.seen.push(format!("{frame:?}")),
        }
        true
    }
}
