//! Replies of a server.

use super::{HEADER_BYTES, REPLY_MAGIC};

/// The status of a reply.
///
/// Source: memcached `doc/protocol-binary.txt`, section 3.2.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Status {
    /// Done.
    Success,
    /// There is no such item.
    KeyNotFound,
    /// The item exists, or has another cas unique.
    KeyExists,
    /// The value is larger than an item may be.
    TooLarge,
    /// The lengths of the request contradict its opcode.
    InvalidArguments,
    /// The condition of the store was not met.
    NotStored,
    /// An arithmetic command met a value that is no number.
    NonNumeric,
    /// The connection is not authenticated, or the command is switched off.
    AuthError,
    /// No such opcode.
    UnknownCommand,
    /// There is no room, and nothing may be evicted.
    OutOfMemory,
}

impl Status {
    /// The number on the wire.
    pub fn code(self) -> u16 {
        match self {
            Self::Success => 0x00,
            Self::KeyNotFound => 0x01,
            Self::KeyExists => 0x02,
            Self::TooLarge => 0x03,
            Self::InvalidArguments => 0x04,
            Self::NotStored => 0x05,
            Self::NonNumeric => 0x06,
            Self::AuthError => 0x20,
            Self::UnknownCommand => 0x81,
            Self::OutOfMemory => 0x82,
        }
    }

    /// Returns the text of the reply, which describes the status to people.
    pub fn text(self) -> &'static str {
        match self {
            Self::Success => "",
            Self::KeyNotFound => "Not found",
            Self::KeyExists => "Data exists for key.",
            Self::TooLarge => "Too large.",
            Self::InvalidArguments => "Invalid arguments",
            Self::NotStored => "Not stored.",
            Self::NonNumeric => "Non-numeric server-side value for incr or decr",
            Self::AuthError => "Auth failure.",
            Self::UnknownCommand => "Unknown command",
            Self::OutOfMemory => "Out of memory",
        }
    }
}

/// The parts of a request that its reply repeats.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Echo {
    /// The opcode.
    pub opcode: u8,
    /// The four bytes the client chose.
    pub opaque: [u8; 4],
}

/// One reply, to be written.
///
/// ```
/// use dwell_proto::memcache::binary::{Echo, Reply, Status};
///
/// let mut out = Vec::new();
/// let echo = Echo { opcode: 0x0a, opaque: *b"abcd" };
/// Reply::new(echo, Status::Success).write(&mut out);
/// assert_eq!(out.len(), 24);
/// assert_eq!(&out[12..16], b"abcd");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reply<'r> {
    /// The parts of the request that it repeats.
    pub echo: Echo,
    /// The outcome.
    pub status: Status,
    /// The item's cas unique, or 0.
    pub cas_unique: u64,
    /// At most 255 bytes whose meaning the opcode fixes.
    pub extras: &'r [u8],
    /// The key, if the request returns it.
    pub key: &'r [u8],
    /// The value, a number, a text.
    pub value: &'r [u8],
}

impl Reply<'_> {
    /// Makes a reply with a status only; a refusal has its text as well.
    pub fn new(echo: Echo, status: Status) -> Self {
        Self {
            echo,
            status,
            cas_unique: 0,
            extras: &[],
            key: &[],
            value: status.text().as_bytes(),
        }
    }

    /// Appends the reply to `out`.
    pub fn write(&self, out: &mut Vec<u8>) {
        let body = self.extras.len() + self.key.len() + self.value.len();
        let mut header = [0; HEADER_BYTES];
        header[0] = REPLY_MAGIC;
        header[1] = self.echo.opcode;
        // Keys have at most 250 bytes, extras a few, and items are bounded far below 32 bits.
        header[2..4].copy_from_slice(&(self.key.len() as u16).to_be_bytes());
        header[4] = self.extras.len() as u8;
        header[6..8].copy_from_slice(&self.status.code().to_be_bytes());
        header[8..12].copy_from_slice(&(body as u32).to_be_bytes());
        header[12..16].copy_from_slice(&self.echo.opaque);
        header[16..].copy_from_slice(&self.cas_unique.to_be_bytes());
        out.reserve(HEADER_BYTES + body);
        out.extend_from_slice(&header);
        out.extend_from_slice(self.extras);
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
    }
}
