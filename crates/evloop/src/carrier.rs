//! Streams without a socket of their own: they are carried by another connection of the loop, whose
//! protocol has streams itself.
//!
//! The program that has the connection has the [`Carrier`] of each, and puts in what comes for it.
//! Its owner has a [`Stream`] that reads, writes and ends as one with a socket does, so components
//! need not know. Each side is told by readiness, of its own token, in the next turn.

use crate::carried::socket::CarriedSocket;
use crate::carried::table::{self, CarriedWork, Entry, Handle};
use crate::{Context, Stream, Token};
use std::net::SocketAddr;

/// The other end of a carried [`Stream`]: what comes is put in, what goes is taken out.
///
/// Shape: keeps what came and was not read, up to what was [granted](Self::grant), and what was
/// written and not taken, up to the [room](Self::set_room). Dropping it fails the stream, unless
/// its input was [ended](Self::end_input).
///
/// ```
/// use dwell_evloop::{CarriedEnd, Context, Driver, EventLoop, ReadOutcome, Readiness, Token};
/// use std::time::Duration;
///
/// /// Notes of whom it was told.
/// struct Told(Vec<Token>);
///
/// impl Driver for Told {
///     type Message = ();
///     fn ready(&mut self, _: &mut Context, token: Token, _: Readiness) {
///         self.0.push(token);
///     }
///     fn expired(&mut self, _: &mut Context, _: Token) {}
///     fn message(&mut self, _: &mut Context, (): ()) {}
/// }
///
/// let (outer, inner) = (Token::new(1, 0, 0), Token::new(2, 0, 0));
/// let mut event_loop = EventLoop::<()>::new()?;
/// let carrier = event_loop.context().carry(outer);
/// carrier.grant(5);
/// carrier.set_room(3);
/// let mut stream = carrier.stream([None, None]).expect("it is the first");
/// event_loop.context().register(&mut stream, inner)?;
///
/// assert!(carrier.put(b"hello") && !carrier.put(b"!"));
/// let mut input = [0; 8];
/// assert_eq!(stream.read(&mut input)?, ReadOutcome::Drained(5));
/// stream.write(b"news")?;
/// assert_eq!(stream.queued_bytes(), 1, "there is room for three bytes");
/// let mut output = Vec::new();
/// let taken = carrier.take(&mut output);
/// assert_eq!((taken.read, taken.end, output.as_slice()), (5, None, &b"new"[..]));
/// carrier.set_room(3);
/// stream.flush()?;
/// drop(stream);
/// let mut told = Told(Vec::new());
/// event_loop.turn(&mut told, Some(Duration::ZERO))?;
/// assert_eq!(told.0, [outer], "the end of the other is not told of");
/// assert_eq!(carrier.take(&mut output).end, Some(CarriedEnd::Gone));
/// assert_eq!(output, b"news");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Carrier(Handle);

impl Context {
    /// Makes the end of a stream that a connection of this loop carries; events for it go to
    /// `token`.
    pub fn carry(&mut self, token: Token) -> Carrier {
        Carrier(table::insert(self.carried_loop(), token))
    }
}

impl Carrier {
    /// The stream itself, whose addresses of the peer and of this side are those of its connection.
    /// There is one; `None` from then on.
    pub fn stream(&self, [peer, local]: [Option<SocketAddr>; 2]) -> Option<Stream> {
        self.with(|entry| entry.adopt(peer, local))?;
        Some(Stream::from_carried(CarriedSocket::new(self.0)))
    }

    /// Lets so many more bytes be put in.
    pub fn grant(&self, bytes: usize) {
        self.with(|entry| entry.grant(bytes));
    }

    /// Lets as many be put in as make `target` with those that wait, if that is a quarter of it or
    /// more; returns how many.
    pub fn grant_up_to(&self, target: usize) -> usize {
        self.with(|entry| entry.grant_up_to(target))
    }

    /// Takes so many bytes back that were granted; what was put in before counts against what is
    /// granted next.
    pub fn take_back(&self, bytes: usize) {
        self.with(|entry| entry.take_back(bytes));
    }

    /// Puts bytes in; false, and none are, where that is more than was granted.
    pub fn put(&self, bytes: &[u8]) -> bool {
        self.with(|entry| entry.put(bytes))
    }

    /// Ends the input behind what was put in.
    pub fn end_input(&self) {
        self.with(Entry::end_input);
    }

    /// Bytes that were put in and not read.
    pub fn unread(&self) -> usize {
        self.with(|entry| entry.unread())
    }

    /// Sets how many bytes may be written until they are taken.
    pub fn set_room(&self, bytes: usize) {
        self.with(|entry| entry.set_room(bytes));
    }

    /// Takes what was written, behind what `output` has, and what else was done.
    pub fn take(&self, output: &mut Vec<u8>) -> CarriedWork {
        self.with(|entry| entry.take(output))
    }

    fn with<T>(&self, act: impl FnOnce(&mut Entry) -> T) -> T {
        table::with(self.0, act)
    }
}

impl Drop for Carrier {
    fn drop(&mut self) {
        self.with(Entry::carrier_gone);
    }
}

#[cfg(test)]
mod tests;
