//! The client's side: one reply at a time out of the bytes a server sent.

use std::fmt;

use super::line::{LineSearch, TokenIter, Tokens, parse_u32, parse_u64};
use super::meta::{Flags, MetaStatus};
use super::status::Status;

/// Bounds of what a client takes from a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ReplyLimits {
    /// Longest reply line. Units: bytes. Default: 2048.
    pub line_bytes_max: usize,
    /// Largest value. Units: bytes. Default: 1 MiB, the server's default item size.
    pub value_bytes_max: usize,
}

impl Default for ReplyLimits {
    fn default() -> Self {
        Self {
            line_bytes_max: 2048,
            value_bytes_max: 1 << 20,
        }
    }
}

/// One reply, borrowed from the bytes it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply<'b> {
    /// `VALUE`: one item found by a retrieval command; `End` follows the last.
    Value {
        /// The item's key.
        key: &'b [u8],
        /// The client flags stored with it.
        flags: u32,
        /// Its cas unique, in replies to `gets` or `gats`.
        cas_unique: Option<u64>,
        /// Its data.
        value: &'b [u8],
    },
    /// `END` of a retrieval or of statistics.
    End,
    /// `STORED`.
    Stored,
    /// `NOT_STORED`.
    NotStored,
    /// `EXISTS`.
    Exists,
    /// `NOT_FOUND`.
    NotFound,
    /// `DELETED`.
    Deleted,
    /// `TOUCHED`.
    Touched,
    /// `OK`.
    Ok,
    /// `RESET`.
    Reset,
    /// The new number after `incr` or `decr`.
    Number(u64),
    /// `VERSION`, with the text after it.
    Version(&'b [u8]),
    /// `STAT`: one statistic.
    Stat {
        /// Its name.
        name: &'b [u8],
        /// The rest of the line.
        value: &'b [u8],
    },
    /// A meta reply without data: `HD`, `EN`, `NF`, `NS`, `EX` or `MN`.
    Meta {
        /// The two-letter code.
        status: MetaStatus,
        /// The flags returned with it.
        flags: Flags<'b>,
    },
    /// `VA`: a meta reply with data.
    MetaValue {
        /// The flags returned with it.
        flags: Flags<'b>,
        /// The data.
        value: &'b [u8],
    },
    /// `ME`: the meta debug line.
    MetaDebug {
        /// The item's key as the server spells it.
        key: &'b [u8],
        /// The `name=value` tokens.
        attributes: Tokens<'b>,
    },
    /// An error line. Close the connection after one that answers a command carrying data: what
    /// the server takes for the next command is not certain.
    Error {
        /// The side that is at fault, as the server reports it.
        kind: ErrorKind,
        /// The text after the kind; empty for a bare `ERROR`.
        text: &'b [u8],
    },
}

impl Reply<'_> {
    /// Returns true if the server refuses the connection itself because it has too many.
    ///
    /// memcached says so with `ERROR Too many open connections`, which is not about any command.
    pub fn is_connection_refused(&self) -> bool {
        let Self::Error {
            kind: ErrorKind::Error,
            text,
        } = self
        else {
            return false;
        };
        text.starts_with(b"Too many")
    }
}

/// The three kinds of error line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// `ERROR`: the command is unknown (or, with a text, the connection is refused).
    Error,
    /// `CLIENT_ERROR`: the request was malformed.
    ClientError,
    /// `SERVER_ERROR`: the server could not do it.
    ServerError,
}

/// A server that broke the protocol; its connection cannot be used any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerError {
    /// A line is longer than [`ReplyLimits::line_bytes_max`].
    LineTooLong {
        /// The limit in bytes.
        limit: usize,
        /// Bytes seen so far.
        length: usize,
    },
    /// A value is larger than [`ReplyLimits::value_bytes_max`].
    ValueTooLarge {
        /// The limit in bytes.
        limit: usize,
        /// The announced size in bytes.
        length: u64,
    },
    /// A line that is no reply, or that lacks an argument, or does not end with CR LF.
    BadReplyLine,
    /// The data is not followed by CR LF.
    BadDataBlock,
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LineTooLong { limit, length } => {
                write!(f, "reply line exceeds {limit} bytes: {length}")
            }
            Self::ValueTooLarge { limit, length } => {
                write!(f, "value exceeds {limit} bytes: {length}")
            }
            Self::BadReplyLine => f.write_str("malformed reply line"),
            Self::BadDataBlock => f.write_str("data block without its line end"),
        }
    }
}

impl std::error::Error for PeerError {}

/// Cuts a server's bytes into replies.
///
/// Shape: holds two numbers and no bytes. Each call is given every byte that has not been consumed
/// yet, contiguous; bytes already searched are not searched again.
///
/// ```
/// use dwell_proto::memcache::{Reply, ResponseDecoder};
///
/// let mut decoder = ResponseDecoder::default();
/// assert_eq!(decoder.decode(b"VALUE a 0 3\r\nab"), Ok(None));
/// assert_eq!(decoder.needed(), 18); // "VALUE a 0 3\r\nabc\r\n"
/// let (consumed, reply) = decoder.decode(b"VALUE a 0 3\r\nabc\r\nEND\r\n").unwrap().unwrap();
/// assert_eq!(consumed, 18);
/// assert_eq!(reply, Reply::Value { key: b"a", flags: 0, cas_unique: None, value: b"abc" });
/// ```
#[derive(Clone, Debug, Default)]
pub struct ResponseDecoder {
    limits: ReplyLimits,
    search: LineSearch,
    needed: usize,
}

impl ResponseDecoder {
    /// A decoder with its own bounds.
    pub fn new(limits: ReplyLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Returns how many unconsumed bytes the next call needs at least to make progress.
    ///
    /// Units: bytes, counted from the start of the unfinished reply; 0 when nothing is unfinished.
    pub fn needed(&self) -> usize {
        self.needed
    }

    /// Decodes the reply at the front of `input`.
    ///
    /// Shape: returns the bytes used and the reply, or `None` when `input` ends before the reply
    /// does; then call again with the same bytes and more.
    ///
    /// # Errors
    /// Any [`PeerError`]: the place of the next reply is lost, close the connection.
    pub fn decode<'b>(&mut self, input: &'b [u8]) -> Result<Option<(usize, Reply<'b>)>, PeerError> {
        if input.len() < self.needed {
            return Ok(None);
        }
        let limit = self.limits.line_bytes_max;
        let found = self.search.find(input);
        let line_bytes = found.unwrap_or(input.len());
        if line_bytes > limit {
            return Err(PeerError::LineTooLong {
                limit,
                length: line_bytes,
            });
        }
        let Some(line_feed) = found else {
            self.needed = if input.is_empty() { 0 } else { input.len() + 1 };
            return Ok(None);
        };
        let line = input[..line_feed]
            .strip_suffix(b"\r")
            .ok_or(PeerError::BadReplyLine)?;
        let head = line_feed + 1;
        let (consumed, reply) = match parse_line(line)? {
            Line::Whole(reply) => (head, reply),
            Line::Data { announced, reply } => {
                let limit = self.limits.value_bytes_max;
                let length = usize::try_from(announced)
                    .ok()
                    .filter(|&length| length <= limit);
                let Some(length) = length else {
                    return Err(PeerError::ValueTooLarge {
                        limit,
                        length: announced,
                    });
                };
                let end = head + length + 2;
                if input.len() < end {
                    self.needed = end;
                    return Ok(None);
                }
                if &input[end - 2..end] != b"\r\n" {
                    return Err(PeerError::BadDataBlock);
                }
                (end, reply.with_value(&input[head..head + length]))
            }
        };
        self.search.reset();
        self.needed = 0;
        Ok(Some((consumed, reply)))
    }
}

impl<'b> Reply<'b> {
    fn with_value(self, data: &'b [u8]) -> Self {
        match self {
            Self::Value {
                key,
                flags,
                cas_unique,
                ..
            } => Self::Value {
                key,
                flags,
                cas_unique,
                value: data,
            },
            Self::MetaValue { flags, .. } => Self::MetaValue { flags, value: data },
            other => other,
        }
    }
}

enum Line<'b> {
    Whole(Reply<'b>),
    Data { announced: u64, reply: Reply<'b> },
}

fn parse_line(line: &[u8]) -> Result<Line<'_>, PeerError> {
    let mut tokens = Tokens::new(line).iter();
    let first = tokens.next().ok_or(PeerError::BadReplyLine)?;
    let reply = match first {
        b"VALUE" => return parse_value(tokens).ok_or(PeerError::BadReplyLine),
        b"VA" => return parse_meta_value(tokens).ok_or(PeerError::BadReplyLine),
        b"VERSION" => Reply::Version(tokens.rest().text()),
        b"STAT" => {
            let name = tokens.next().ok_or(PeerError::BadReplyLine)?;
            Reply::Stat {
                name,
                value: tokens.rest().text(),
            }
        }
        b"ME" => {
            let key = tokens.next().ok_or(PeerError::BadReplyLine)?;
            Reply::MetaDebug {
                key,
                attributes: tokens.rest(),
            }
        }
        b"CLIENT_ERROR" => Reply::Error {
            kind: ErrorKind::ClientError,
            text: tokens.rest().text(),
        },
        // memcached 1.6.45 writes "SERVER_ERROR: shutdown not enabled", earlier ones "ERROR: ...".
        b"SERVER_ERROR" | b"SERVER_ERROR:" => Reply::Error {
            kind: ErrorKind::ServerError,
            text: tokens.rest().text(),
        },
        b"ERROR" | b"ERROR:" => Reply::Error {
            kind: ErrorKind::Error,
            text: tokens.rest().text(),
        },
        _ => {
            if let Some(status) = Status::from_word(first) {
                status.into()
            } else if let Some(status) = MetaStatus::from_code(first) {
                Reply::Meta {
                    status,
                    flags: Flags::new(tokens.rest()),
                }
            } else {
                Reply::Number(parse_u64(first).ok_or(PeerError::BadReplyLine)?)
            }
        }
    };
    Ok(Line::Whole(reply))
}

fn parse_value(mut tokens: TokenIter<'_>) -> Option<Line<'_>> {
    let key = tokens.next()?;
    let flags = parse_u32(tokens.next()?)?;
    let announced = parse_u64(tokens.next()?)?;
    let cas_unique = match tokens.next() {
        Some(token) => Some(parse_u64(token)?),
        None => None,
    };
    Some(Line::Data {
        announced,
        reply: Reply::Value {
            key,
            flags,
            cas_unique,
            value: b"",
        },
    })
}

fn parse_meta_value(mut tokens: TokenIter<'_>) -> Option<Line<'_>> {
    let announced = parse_u64(tokens.next()?)?;
    Some(Line::Data {
        announced,
        reply: Reply::MetaValue {
            flags: Flags::new(tokens.rest()),
            value: b"",
        },
    })
}

#[cfg(test)]
mod tests;
