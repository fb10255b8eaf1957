//! From frames to bytes.

use super::error::ErrorCode;
use super::frame::{FrameHeader, FrameType, flags};

/// Appends a SETTINGS frame.
///
/// ```
/// use dwell_proto::http2::{encode, settings};
///
/// let mut out = Vec::new();
/// encode::settings(&[(settings::MAX_CONCURRENT_STREAMS, 128)], &mut out);
/// assert_eq!(out, b"\0\0\x06\x04\0\0\0\0\0\0\x03\0\0\0\x80");
/// ```
///
/// Source: RFC 9113 section 6.5.
pub fn settings(pairs: &[(u16, u32)], out: &mut Vec<u8>) {
    header(FrameType::SETTINGS, 0, 0, 6 * pairs.len(), out);
    for (id, value) in pairs {
        out.extend_from_slice(&id.to_be_bytes());
        out.extend_from_slice(&value.to_be_bytes());
    }
}

/// Appends the acknowledgement of settings.
pub fn settings_ack(out: &mut Vec<u8>) {
    header(FrameType::SETTINGS, flags::ACK, 0, 0, out);
}

/// Appends a PING frame.
pub fn ping(data: [u8; 8], out: &mut Vec<u8>) {
    header(FrameType::PING, 0, 0, data.len(), out);
    out.extend_from_slice(&data);
}

/// Appends the answer to a PING.
///
/// Source: RFC 9113 section 6.7.
pub fn pong(data: [u8; 8], out: &mut Vec<u8>) {
    header(FrameType::PING, flags::ACK, 0, data.len(), out);
    out.extend_from_slice(&data);
}

/// Appends a `WINDOW_UPDATE` frame; `stream` is 0 for the connection.
///
/// Source: RFC 9113 section 6.9.
pub fn window_update(stream: u32, increment: u32, out: &mut Vec<u8>) {
    header(FrameType::WINDOW_UPDATE, 0, stream, 4, out);
    out.extend_from_slice(&increment.to_be_bytes());
}

/// Appends a `RST_STREAM` frame.
///
/// Source: RFC 9113 section 6.4.
pub fn reset(stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    header(FrameType::RST_STREAM, 0, stream, 4, out);
    out.extend_from_slice(&code.0.to_be_bytes());
}

/// Appends a GOAWAY frame without debug data.
///
/// Source: RFC 9113 section 6.8.
pub fn go_away(last_stream: u32, code: ErrorCode, out: &mut Vec<u8>) {
    header(FrameType::GOAWAY, 0, 0, 8, out);
    out.extend_from_slice(&last_stream.to_be_bytes());
    out.extend_from_slice(&code.0.to_be_bytes());
}

/// Appends a field block, in as many frames as the other side's limit asks for.
///
/// ```
/// use dwell_proto::http2::encode;
///
/// let mut out = Vec::new();
/// encode::block(1, b"\x88", true, 16_384, &mut out);
/// assert_eq!(out, b"\0\0\x01\x01\x05\0\0\0\x01\x88");
/// ```
///
/// Source: RFC 9113 sections 6.2 and 6.10.
pub fn block(
    stream: u32,
    block: &[u8],
    ends_stream: bool,
    frame_bytes_max: u32,
    out: &mut Vec<u8>,
) {
    let (first, mut rest) = block.split_at(block.len().min(frame_bytes_max as usize));
    let ends = |rest: &[u8]| {
        if rest.is_empty() {
            flags::END_HEADERS
        } else {
            0
        }
    };
    let last = if ends_stream { flags::END_STREAM } else { 0 };
    header(
        FrameType::HEADERS,
        last | ends(rest),
        stream,
        first.len(),
        out,
    );
    out.extend_from_slice(first);
    while !rest.is_empty() {
        let (next, behind) = rest.split_at(rest.len().min(frame_bytes_max as usize));
        header(
            FrameType::CONTINUATION,
            ends(behind),
            stream,
            next.len(),
            out,
        );
        out.extend_from_slice(next);
        rest = behind;
    }
}

/// Appends the header of a DATA frame, whose `length` bytes follow.
///
/// Shape: the length is at most what the other side takes in a frame, and what the windows of the
/// stream and the connection have room for.
///
/// Source: RFC 9113 section 6.1.
pub fn data_header(stream: u32, length: usize, ends_stream: bool, out: &mut Vec<u8>) {
    let last = if ends_stream { flags::END_STREAM } else { 0 };
    header(FrameType::DATA, last, stream, length, out);
}

fn header(kind: FrameType, flags: u8, stream: u32, length: usize, out: &mut Vec<u8>) {
    let header = FrameHeader {
        length: length as u32,
        kind,
        flags,
        stream,
    };
    out.extend_from_slice(&header.encode());
}
