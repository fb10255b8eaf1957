//! Commands of the store and their replies, in its three protocols.

use crate::options::Protocol;

/// One command.
#[derive(Clone, Debug)]
pub(crate) enum Command<'a> {
    Set(&'a str, &'a [u8], u32),
    Delete(&'a str),
    Get(&'a str),
    Flush,
}

/// One reply.
#[derive(PartialEq, Eq, Debug)]
pub(crate) enum Reply {
    /// It was done.
    Done,
    /// There is no such key.
    NotFound,
    /// The value of the key.
    Value(Vec<u8>),
}

/// Bytes of the header of the binary protocol.
const HEADER: usize = 24;

/// Writes a command.
pub(crate) fn encode(protocol: Protocol, command: &Command<'_>, output: &mut Vec<u8>) {
    let (line, data): (String, &[u8]) = match (protocol, command) {
        (Protocol::Binary, _) => return binary(command, output),
        (_, Command::Flush) => ("flush_all\r\n".to_owned(), b""),
        (Protocol::Text, Command::Set(key, value, seconds)) => {
            (format!("set {key} 0 {seconds} {}\r\n", value.len()), value)
        }
        (_, Command::Set(key, value, seconds)) => {
            (format!("ms {key} {} T{seconds}\r\n", value.len()), value)
        }
        (Protocol::Text, Command::Delete(key)) => (format!("delete {key}\r\n"), b""),
        (_, Command::Delete(key)) => (format!("md {key}\r\n"), b""),
        (Protocol::Text, Command::Get(key)) => (format!("get {key}\r\n"), b""),
        (_, Command::Get(key)) => (format!("mg {key} v\r\n"), b""),
    };
    output.extend_from_slice(line.as_bytes());
    if let Command::Set(..) = command {
        output.extend_from_slice(data);
        output.extend_from_slice(b"\r\n");
    }
}

fn binary(command: &Command<'_>, output: &mut Vec<u8>) {
    let mut extras = Vec::new();
    let (opcode, key, value): (u8, &str, &[u8]) = match command {
        Command::Get(key) => (0, key, b""),
        Command::Set(key, value, seconds) => {
            extras.extend_from_slice(&[0; 4]);
            extras.extend_from_slice(&seconds.to_be_bytes());
            (1, key, value)
        }
        Command::Delete(key) => (4, key, b""),
        Command::Flush => (8, "", b""),
    };
    let body = extras.len() + key.len() + value.len();
    let mut header = [0; HEADER];
    header[0] = 0x80;
    header[1] = opcode;
    header[2..4].copy_from_slice(&(key.len() as u16).to_be_bytes());
    header[4] = extras.len() as u8;
    header[8..12].copy_from_slice(&(body as u32).to_be_bytes());
    for part in [&header, &*extras, key.as_bytes(), value] {
        output.extend_from_slice(part);
    }
}

/// Takes the next reply out of what has come, if it is whole.
///
/// # Errors
/// The reason why it is none.
pub(crate) fn decode(protocol: Protocol, input: &mut Vec<u8>) -> Result<Option<Reply>, String> {
    let found = match protocol {
        Protocol::Binary => decode_binary(input)?,
        Protocol::Text | Protocol::Meta => decode_line(input)?,
    };
    Ok(found.map(|(reply, length)| {
        input.drain(..length);
        reply
    }))
}

fn decode_line(input: &[u8]) -> Result<Option<(Reply, usize)>, String> {
    let Some(end) = input.windows(2).position(|two| two == b"\r\n") else {
        return Ok(None);
    };
    let line = String::from_utf8_lossy(&input[..end]);
    let words: Vec<&str> = line.split(' ').collect();
    let begin = end + 2;
    let (length, tail): (&str, &[u8]) = match words[..] {
        ["STORED" | "DELETED" | "OK" | "HD"] => return Ok(Some((Reply::Done, begin))),
        ["NOT_FOUND" | "NF" | "EN" | "END"] => return Ok(Some((Reply::NotFound, begin))),
        ["VALUE", _, _, length] => (length, b"\r\nEND\r\n"),
        ["VA", length] => (length, b"\r\n"),
        _ => return Err(format!("reply {line:?}")),
    };
    let length: usize = length.parse().map_err(|_| format!("reply {line:?}"))?;
    let whole = begin + length + tail.len();
    let Some(rest) = input.get(begin..whole) else {
        return Ok(None);
    };
    if &rest[length..] != tail {
        return Err(format!("the end of {line:?} is missing"));
    }
    Ok(Some((Reply::Value(rest[..length].to_vec()), whole)))
}

fn decode_binary(input: &[u8]) -> Result<Option<(Reply, usize)>, String> {
    let Some(header) = input.get(..HEADER) else {
        return Ok(None);
    };
    let body = u32::from_be_bytes([header[8], header[9], header[10], header[11]]) as usize;
    let Some(bytes) = input.get(HEADER..HEADER + body) else {
        return Ok(None);
    };
    let (opcode, extras) = (header[1], usize::from(header[4]));
    let status = u16::from_be_bytes([header[6], header[7]]);
    let reply = match (header[0], status, opcode) {
        (0x81, 0, 0) => Reply::Value(bytes.get(extras..).unwrap_or_default().to_vec()),
        (0x81, 0, _) => Reply::Done,
        (0x81, 1, _) => Reply::NotFound,
        (magic, ..) => {
            let text = String::from_utf8_lossy(bytes);
            return Err(format!("magic {magic:#x}, status {status}: {text}"));
        }
    };
    Ok(Some((reply, HEADER + body)))
}
