//! Frames of HTTP/2, written and read by hand.

/// Bytes of the header of a frame, and of its longest payload here.
pub(super) const HEADER: usize = 9;
pub(super) const PAYLOAD_MAX: usize = 16_384;
pub(super) const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

/// Types of frames (RFC 9113 section 6).
pub(super) mod kind {
    pub(in super::super) const DATA: u8 = 0;
    pub(in super::super) const HEADERS: u8 = 1;
    pub(in super::super) const PRIORITY: u8 = 2;
    pub(in super::super) const RST_STREAM: u8 = 3;
    pub(in super::super) const SETTINGS: u8 = 4;
    pub(in super::super) const PING: u8 = 6;
    pub(in super::super) const GOAWAY: u8 = 7;
    pub(in super::super) const WINDOW_UPDATE: u8 = 8;
    pub(in super::super) const CONTINUATION: u8 = 9;
}

/// Flags of frames.
pub(super) mod flag {
    /// In SETTINGS and PING.
    pub(in super::super) const ACK: u8 = 1;
    /// In DATA and HEADERS.
    pub(in super::super) const END_STREAM: u8 = 1;
    pub(in super::super) const END_HEADERS: u8 = 4;
    pub(in super::super) const PADDED: u8 = 8;
    pub(in super::super) const PRIORITY: u8 = 0x20;
}

/// The flags of a field block that is a whole request.
pub(super) const WHOLE: u8 = flag::END_HEADERS | flag::END_STREAM;

/// Error codes (RFC 9113 section 7).
pub(super) mod code {
    pub(in super::super) const NO_ERROR: u32 = 0;
    pub(in super::super) const REFUSED_STREAM: u32 = 7;
    pub(in super::super) const CANCEL: u32 = 8;
}

/// Settings (RFC 9113 section 6.5.2).
pub(super) mod setting {
    pub(in super::super) const HEADER_TABLE_SIZE: u16 = 1;
    pub(in super::super) const MAX_CONCURRENT_STREAMS: u16 = 3;
    pub(in super::super) const INITIAL_WINDOW_SIZE: u16 = 4;
    /// RFC 8441 section 3.
    pub(in super::super) const ENABLE_CONNECT_PROTOCOL: u16 = 8;
}

/// One frame.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) kind: u8,
    pub(super) flags: u8,
    pub(super) stream: u32,
    pub(super) payload: Vec<u8>,
}

impl Frame {
    /// Takes the next frame out of what has come, if it is whole.
    ///
    /// # Errors
    /// If it is longer than it may be.
    pub(super) fn take(input: &mut Vec<u8>) -> Result<Option<Self>, String> {
        let Some(header) = input.get(..HEADER) else {
            return Ok(None);
        };
        let length = number([0, header[0], header[1], header[2]]) as usize;
        if length > PAYLOAD_MAX {
            return Err(format!("a frame of {length} bytes"));
        }
        let (kind, flags) = (header[3], header[4]);
        let stream = number([header[5], header[6], header[7], header[8]]);
        let Some(payload) = input.get(HEADER..HEADER + length) else {
            return Ok(None);
        };
        let payload = payload.to_vec();
        input.drain(..HEADER + length);
        Ok(Some(Self {
            kind,
            flags,
            stream,
            payload,
        }))
    }

    pub(super) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// The number at the front of its payload.
    ///
    /// # Errors
    /// If the payload has not this length.
    pub(super) fn number(&self, length: usize) -> Result<u32, String> {
        match *self.payload {
            [a, b, c, d, ..] if self.payload.len() == length => Ok(number([a, b, c, d])),
            _ => Err(format!("{self:?} has another length")),
        }
    }
}

/// A number of bytes, as windows count them.
pub(super) fn size(bytes: usize) -> i64 {
    i64::try_from(bytes).unwrap_or(i64::MAX)
}

fn number(bytes: [u8; 4]) -> u32 {
    u32::from_be_bytes(bytes)
}

/// Writes a frame.
pub(super) fn write(kind: u8, flags: u8, stream: u32, payload: &[u8], output: &mut Vec<u8>) {
    let [_, length @ ..] = (payload.len() as u32).to_be_bytes();
    output.extend_from_slice(&length);
    output.extend_from_slice(&[kind, flags]);
    output.extend_from_slice(&stream.to_be_bytes());
    output.extend_from_slice(payload);
}

/// Writes a frame whose payload is a number.
pub(super) fn write_number(kind: u8, stream: u32, number: u32, output: &mut Vec<u8>) {
    write(kind, 0, stream, &number.to_be_bytes(), output);
}

/// Writes SETTINGS with one setting.
pub(super) fn write_setting(id: u16, value: u32, output: &mut Vec<u8>) {
    let mut payload = id.to_be_bytes().to_vec();
    payload.extend_from_slice(&value.to_be_bytes());
    write(kind::SETTINGS, 0, 0, &payload, output);
}

/// Reads the settings of a frame.
pub(super) fn settings(payload: &[u8]) -> impl Iterator<Item = (u16, u32)> + '_ {
    payload.chunks_exact(6).map(|six| {
        let id = u16::from_be_bytes([six[0], six[1]]);
        (id, number([six[2], six[3], six[4], six[5]]))
    })
}
