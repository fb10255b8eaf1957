//! Sends to many sockets, in one system call.

#[cfg(target_os = "linux")]
mod ring;
#[cfg(not(target_os = "linux"))]
#[path = "sends/no_ring.rs"]
mod ring;

use crate::{Stream, Token};
use ring::Ring;
use std::io;

/// Answers that go to many connections, gathered to be sent by one system call.
///
/// Shape: by `io_uring` where the kernel allows it (Linux 6.1 and later, and no filter of system
/// calls that refuses it); elsewhere it takes nothing, and each answer takes a system call. They
/// are sent before the driver does anything else with its sockets: the kernel keeps neither bytes
/// nor sockets afterwards.
///
/// ```
/// use dwell_evloop::{Sends, Sent, Stream, Token};
/// use std::io::Read;
///
/// let mut sends = Sends::default();
/// if !sends.open() {
///     return Ok(()); // `Sends::probe` tells why.
/// }
/// let (ours, mut theirs) = std::os::unix::net::UnixStream::pair()?;
/// let stream = Stream::from_descriptor(ours.into())?;
/// let token = Token::new(1, 0, 0);
/// sends.push(token, b"news");
/// sends.send(|of| (of == token).then_some(&stream));
/// assert!(sends.outcomes().all(|(_, sent)| matches!(sent, Sent::Whole)));
/// sends.clear();
/// let mut read = [0; 4];
/// theirs.read_exact(&mut read)?;
/// assert_eq!(&read, b"news");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug, Default)]
pub struct Sends {
    state: State,
    /// The bytes to be sent, one send behind the other.
    bytes: Vec<u8>,
    entries: Vec<Entry>,
    /// The kind of the tokens for which they are gathered now.
    kind: Option<u8>,
}

#[derive(Debug, Default)]
enum State {
    /// There is no ring yet, or none any more; one belongs to the thread that made it.
    #[default]
    New,
    Ready(Box<Ring>),
    /// The kernel refuses.
    Refused,
}

impl State {
    /// The state after an error: what passes is tried again, for the next that is gathered.
    fn after(error: &io::Error) -> Self {
        // No descriptor or memory is left, or the ring is one of another thread.
        const PASSING: [i32; 6] = [
            libc::EMFILE,
            libc::ENFILE,
            libc::ENOMEM,
            libc::EAGAIN,
            libc::EBUSY,
            libc::EEXIST,
        ];
        match error.raw_os_error() {
            Some(code) if PASSING.contains(&code) => Self::New,
            _ => Self::Refused,
        }
    }
}

#[derive(Debug)]
struct Entry {
    token: Token,
    /// The end of its bytes, which begin where those before it end.
    end: usize,
    /// They are records of TLS, for a stream under TLS; others never go around it.
    is_sealed: bool,
    /// The answer of the kernel: bytes that were taken, or an error as a negative number.
    result: i32,
}

impl Entry {
    /// Returns true if the socket has taken no byte, for another reason than want of room.
    fn has_failed(&self) -> bool {
        self.result < 0 && self.result != WOULD_BLOCK
    }
}

/// The outcome of one send.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Sent<'a> {
    /// The socket has taken everything.
    Whole,
    /// The socket takes no more for now; this is the rest.
    Rest(&'a [u8]),
    /// The connection has failed.
    Failed,
}

/// Sends that one system call makes.
const SENDS_MAX: usize = 256;
/// Bytes for which room is kept between the calls.
const BYTES_KEPT: usize = 64 * 1024;

impl Sends {
    /// Sends that are worth gathering.
    pub const COUNT_MIN: usize = 8;

    /// Bytes of one send: a longer one costs so much that nothing is won.
    pub const BYTES_MAX: usize = 2048;

    /// Returns why the kernel refuses, if it does.
    ///
    /// # Errors
    /// The kernel's error: `ENOSYS` or `EPERM` where it is turned off, `EINVAL` of an old one.
    pub fn probe() -> io::Result<()> {
        Ring::new(1).map(drop)
    }

    /// Returns true if sends are taken; to be called on the thread that sends. If the kernel has no
    /// room for a ring, the next call asks it again.
    pub fn open(&mut self) -> bool {
        if matches!(self.state, State::New) {
            self.state = match Ring::new(SENDS_MAX) {
                Ok(ring) => State::Ready(Box::new(ring)),
                Err(error) => State::after(&error),
            };
        }
        matches!(self.state, State::Ready(_))
    }

    /// Gathers from now on for tokens of this kind, if sends are taken.
    pub fn begin(&mut self, kind: u8) {
        self.kind = self.open().then_some(kind);
    }

    /// Gathers no longer.
    pub fn end(&mut self) {
        self.kind = None;
    }

    /// Returns true if they are gathered for tokens of this kind.
    pub fn is_of(&self, kind: u8) -> bool {
        self.kind == Some(kind)
    }

    /// Gathers bytes for the stream of a token, for which nothing is gathered yet.
    ///
    /// Shape: they fail for a stream under TLS, which [`Stream::leave_to`] seals them for.
    pub fn push(&mut self, token: Token, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        self.end_entry(token, false);
    }

    /// Gathers the records that `seal` appends for the stream of a token; nothing where it returns
    /// false.
    pub(crate) fn push_sealed(
        &mut self,
        token: Token,
        seal: impl FnOnce(&mut Vec<u8>) -> bool,
    ) -> bool {
        let begin = self.bytes.len();
        let is_sealed = seal(&mut self.bytes);
        if is_sealed {
            self.end_entry(token, true);
        } else {
            self.bytes.truncate(begin);
        }
        is_sealed
    }

    fn end_entry(&mut self, token: Token, is_sealed: bool) {
        self.entries.push(Entry {
            token,
            end: self.bytes.len(),
            is_sealed,
            result: FAILED,
        });
    }

    /// Returns true if nothing is gathered.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns true if what is gathered is to be sent before there is more.
    pub fn is_full(&self) -> bool {
        self.entries.len() >= SENDS_MAX
    }

    /// Sends what is gathered; read the [`outcomes`](Self::outcomes) then.
    ///
    /// Shape: what the ring does not send is sent one by one. An order that has failed has sent
    /// nothing, and the reason need not be its connection, which an attempt of its own tells.
    pub fn send<'s>(&mut self, stream_of: impl Fn(Token) -> Option<&'s Stream>) {
        self.send_by_ring(&stream_of);
        let mut start = 0;
        for entry in &mut self.entries {
            let part = &self.bytes[start..entry.end];
            start = entry.end;
            if entry.has_failed() {
                let (stream, is_sealed) = (stream_of(entry.token), entry.is_sealed);
                entry.result = stream.map_or(FAILED, |stream| sent_alone(stream, part, is_sealed));
            }
        }
    }

    /// Sends by the ring, if there is one. A ring that fails is dropped, and the kernel then has no
    /// order of it.
    fn send_by_ring<'s>(&mut self, stream_of: &impl Fn(Token) -> Option<&'s Stream>) {
        let State::Ready(ring) = &mut self.state else {
            return;
        };
        let mut start = 0;
        let (bytes, entries) = (&self.bytes, &mut self.entries);
        let mut orders = Vec::with_capacity(entries.len());
        for entry in entries {
            let part = &bytes[start..entry.end];
            start = entry.end;
            if let Some(socket) =
                stream_of(entry.token).and_then(|stream| stream.descriptor(entry.is_sealed))
            {
                orders.push((socket, part, &mut entry.result));
            }
        }
        let sent = orders
            .chunks_mut(SENDS_MAX)
            .try_for_each(|some| ring.send(some));
        if let Err(error) = sent {
            self.state = State::after(&error);
        }
    }

    /// The outcome of each send.
    pub fn outcomes(&self) -> impl Iterator<Item = (Token, Sent<'_>)> {
        let mut start = 0;
        self.entries.iter().map(move |entry| {
            let part = &self.bytes[start..entry.end];
            start = entry.end;
            let sent = match usize::try_from(entry.result) {
                Ok(taken) if taken >= part.len() => Sent::Whole,
                Ok(taken) => Sent::Rest(&part[taken..]),
                Err(_) if entry.result == WOULD_BLOCK => Sent::Rest(part),
                Err(_) => Sent::Failed,
            };
            (entry.token, sent)
        })
    }

    /// Forgets what was sent, and lets go of the memory that a burst of long sends took.
    pub fn clear(&mut self) {
        self.bytes.clear();
        self.bytes.shrink_to(BYTES_KEPT);
        self.entries.clear();
    }
}

const WOULD_BLOCK: i32 = -libc::EAGAIN;
const FAILED: i32 = -libc::EPIPE;

/// A write of a stream that has no descriptor, as a simulated one.
fn sent_alone(stream: &Stream, part: &[u8], is_sealed: bool) -> i32 {
    let written = stream.write_left(part, is_sealed);
    written.map_or(FAILED, |written| i32::try_from(written).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests;
