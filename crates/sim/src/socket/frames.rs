//! Frames of WebSocket, both ways: written by hand, so that the server's own codec is not trusted.

use dwell_evloop::Random;

/// A kind of frame.
pub(super) const TEXT: u8 = 1;
pub(super) const BINARY: u8 = 2;
pub(super) const CLOSE: u8 = 8;
pub(super) const PING: u8 = 9;
pub(super) const PONG: u8 = 10;
/// The kind of the frames that follow the first one of a message.
const CONTINUATION: u8 = 0;
const FINAL: u8 = 0x80;
const MASKED: u8 = 0x80;

/// One frame of the server.
#[derive(Debug)]
pub(super) struct Frame {
    pub(super) opcode: u8,
    pub(super) payload: Vec<u8>,
}

/// Writes one frame of a client.
pub(super) fn write(out: &mut Vec<u8>, opcode: u8, payload: &[u8], random: &mut Random) {
    frame(out, FINAL | opcode, payload, random);
}

/// Writes a message in up to three frames, with a ping between them; returns the payload of that.
pub(super) fn write_in_parts(
    out: &mut Vec<u8>,
    payload: &[u8],
    random: &mut Random,
) -> Option<Vec<u8>> {
    let at = random.below(payload.len() as u64 + 1) as usize;
    let (first, second) = payload.split_at(at);
    frame(out, TEXT, first, random);
    let ping = (random.below(2) == 0).then(|| random.draw().to_le_bytes().to_vec());
    if let Some(ping) = &ping {
        write(out, PING, ping, random);
    }
    if random.below(2) == 0 {
        frame(out, CONTINUATION, b"", random);
    }
    frame(out, FINAL | CONTINUATION, second, random);
    ping
}

fn frame(out: &mut Vec<u8>, first: u8, payload: &[u8], random: &mut Random) {
    out.push(first);
    match payload.len() {
        length @ 0..126 => out.push(MASKED | length as u8),
        length @ 126..0x1_0000 => {
            out.push(MASKED | 0x7e);
            out.extend_from_slice(&(length as u16).to_be_bytes());
        }
        length => {
            out.push(MASKED | 0x7f);
            out.extend_from_slice(&(length as u64).to_be_bytes());
        }
    }
    let mask = (random.draw() as u32).to_le_bytes();
    out.extend_from_slice(&mask);
    let masked = payload.iter().zip(mask.iter().cycle());
    out.extend(masked.map(|(byte, mask)| byte ^ mask));
}

/// Takes the next frame of the server out of what has come, if it is whole. The server sends no
/// message in parts.
///
/// # Errors
/// The reason why it is none.
pub(super) fn take(input: &mut Vec<u8>) -> Result<Option<Frame>, String> {
    let &[first, second, ..] = input.as_slice() else {
        return Ok(None);
    };
    let opcode = first & 15;
    if first & 0xf0 != FINAL || ![TEXT, CLOSE, PING, PONG].contains(&opcode) || second >= MASKED {
        return Err(format!("a frame that begins with {first:#x} {second:#x}"));
    }
    let extended = match second {
        126 => 2,
        127 => 8,
        _ => 0,
    };
    let begin = 2 + extended;
    let Some(length) = input.get(2..begin) else {
        return Ok(None);
    };
    let length = match extended {
        0 => usize::from(second),
        _ => length
            .iter()
            .fold(0, |all, byte| all << 8 | usize::from(*byte)),
    };
    if opcode >= CLOSE && length > 125 {
        return Err(format!("a frame of control with {length} bytes"));
    }
    let Some(payload) = input.get(begin..begin + length) else {
        return Ok(None);
    };
    let payload = payload.to_vec();
    input.drain(..begin + length);
    Ok(Some(Frame { opcode, payload }))
}

/// A text frame of the server, by its members.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Told<'a> {
    /// The value of a key, and its cursor.
    Value {
        label: Option<&'a str>,
        value: &'a str,
        cursor: &'a str,
    },
    /// A key has no value any more.
    Gone { label: Option<&'a str> },
    /// A value was stored.
    Published {
        label: Option<&'a str>,
        cursor: &'a str,
    },
    /// Something was refused.
    Refused {
        why: &'a str,
        label: Option<&'a str>,
    },
}

impl<'a> Told<'a> {
    /// Reads a frame; nothing in one that is expected here needs an escape.
    pub(super) fn parse(text: &'a str) -> Option<Self> {
        let members = text.strip_prefix('{')?.strip_suffix('}')?;
        if let Some(rest) = members.strip_prefix("\"published\":") {
            let (label, cursor) = rest.split_once(",\"c\":")?;
            let label = match label {
                "null" => None,
                label => Some(quoted(label)?),
            };
            let cursor = quoted(cursor)?;
            return Some(Self::Published { label, cursor });
        }
        if let Some(rest) = members.strip_prefix("\"error\":") {
            let (why, label) = match rest.split_once(",\"k\":") {
                Some((why, label)) => (quoted(why)?, Some(quoted(label)?)),
                None => (quoted(rest)?, None),
            };
            return Some(Self::Refused { why, label });
        }
        let (label, rest) = match members.strip_prefix("\"k\":\"") {
            Some(rest) => {
                let (label, rest) = rest.split_once("\",")?;
                (Some(label), rest)
            }
            None => (None, members),
        };
        if rest == "\"c\":null" {
            return Some(Self::Gone { label });
        }
        let (value, cursor) = rest.strip_prefix("\"v\":")?.rsplit_once(",\"c\":")?;
        Some(Self::Value {
            label,
            value: quoted(value)?,
            cursor: quoted(cursor)?,
        })
    }
}

fn quoted(text: &str) -> Option<&str> {
    let inner = text.strip_prefix('"')?.strip_suffix('"')?;
    (!inner.contains(['"', '\\'])).then_some(inner)
}
