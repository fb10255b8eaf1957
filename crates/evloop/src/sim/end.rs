//! One end of a simulated connection.

use crate::{Readiness, Token};
use bytes::{Buf, Bytes};
use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;

/// State of the connection as one end sees it.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each direction of a connection ends, fails and fills by itself"
)]
pub(super) struct End {
    /// The other end.
    pub(super) other: u32,
    pub(super) local: SocketAddr,
    pub(super) remote: SocketAddr,
    pub(super) phase: Phase,
    pub(super) owner: Owner,
    /// It stands in its loop's list, or a call of its peer is planned.
    pub(super) is_marked: bool,
    pub(super) incoming: Incoming,
    /// A write was not taken whole; readiness follows when there is room.
    pub(super) is_refused: bool,
    /// It sends no more.
    pub(super) has_finished: bool,
    /// Its owner has let go of it.
    pub(super) is_closed: bool,
    /// It resets the connection when it is closed, with or without unread bytes.
    pub(super) resets: bool,
    /// Nothing arrives here any more, and nothing tells the other end.
    pub(super) is_silenced: bool,
    /// Writes are kept while the connection is not open yet.
    pub(super) writes_early: bool,
    /// Its output is sealed by keys that chance has made: the trace has lengths of it alone.
    pub(super) is_sealed: bool,
}

/// Bytes that have come to an end, and those on their way.
#[derive(Debug)]
pub(super) struct Incoming {
    /// Bytes that can be read.
    arrived: VecDeque<Bytes>,
    arrived_bytes: usize,
    /// Segments that come after them, in the order in which they were sent.
    transit: VecDeque<Segment>,
    transit_bytes: usize,
    /// Segments that have arrived before the connection was there.
    pub(super) early: usize,
    /// The time at which the last of it arrives: nothing overtakes.
    pub(super) last_arrival: u64,
    /// Bytes that may be here or on their way.
    pub(super) window: usize,
    /// The other end sends no more, and all it sent is here.
    pub(super) has_ended: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Connecting,
    Open,
    /// It has failed with this error, which may not have been told yet.
    Failed(io::ErrorKind),
}

/// The party that is told of an end.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    /// A test, which looks by itself; or nobody yet.
    Test,
    Loop {
        event_loop: u32,
        token: Token,
    },
    Peer(u32),
}

#[derive(Debug)]
pub(super) enum Segment {
    Bytes(Bytes),
    Finish,
    Reset,
}

impl Incoming {
    /// Bytes that the other end may send now.
    pub(super) fn room(&self) -> usize {
        let taken = self.arrived_bytes + self.transit_bytes;
        self.window.saturating_sub(taken)
    }

    /// Returns true if there is so much room that a refused writer is told of it.
    pub(super) fn has_much_room(&self) -> bool {
        // As the systems do, lest each byte that is read be one write.
        self.room() * 3 >= self.window
    }

    /// Puts a segment behind those on their way.
    pub(super) fn send(&mut self, segment: Segment) {
        if let Segment::Bytes(bytes) = &segment {
            self.transit_bytes += bytes.len();
        }
        self.transit.push_back(segment);
    }

    /// Takes the segment that arrives next.
    pub(super) fn take_segment(&mut self) -> Option<Segment> {
        let segment = self.transit.pop_front()?;
        if let Segment::Bytes(bytes) = &segment {
            self.transit_bytes -= bytes.len();
        }
        Some(segment)
    }

    /// Makes bytes that have arrived readable.
    pub(super) fn receive(&mut self, bytes: Bytes) {
        self.arrived_bytes += bytes.len();
        self.arrived.push_back(bytes);
    }

    pub(super) fn has_unread(&self) -> bool {
        self.arrived_bytes > 0
    }

    /// Bytes that can be read.
    pub(super) fn unread_bytes(&self) -> usize {
        self.arrived_bytes
    }

    fn peek(&self, buffer: &mut [u8]) -> usize {
        let mut peeked = 0;
        for bytes in &self.arrived {
            let length = bytes.len().min(buffer.len() - peeked);
            buffer[peeked..peeked + length].copy_from_slice(&bytes[..length]);
            peeked += length;
        }
        peeked
    }

    fn read(&mut self, buffer: &mut [u8]) -> usize {
        let mut read = 0;
        while read < buffer.len()
            && let Some(first) = self.arrived.front_mut()
        {
            let length = first.len().min(buffer.len() - read);
            buffer[read..read + length].copy_from_slice(&first[..length]);
            first.advance(length);
            if first.is_empty() {
                self.arrived.pop_front();
            }
            read += length;
        }
        self.arrived_bytes -= read;
        read
    }
}

impl End {
    pub(super) fn new(other: u32, [local, remote]: [SocketAddr; 2], window: usize) -> Self {
        Self {
            other,
            local,
            remote,
            phase: Phase::Connecting,
            owner: Owner::Test,
            is_marked: false,
            incoming: Incoming {
                arrived: VecDeque::new(),
                arrived_bytes: 0,
                transit: VecDeque::new(),
                transit_bytes: 0,
                early: 0,
                last_arrival: 0,
                window,
                has_ended: false,
            },
            is_refused: false,
            has_finished: false,
            is_closed: false,
            resets: false,
            is_silenced: false,
            writes_early: false,
            is_sealed: false,
        }
    }

    /// Reads as the system does: bytes that have come before a failure come before it.
    pub(super) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let read = self.incoming.read(buffer);
        match self.phase {
            _ if read > 0 || buffer.is_empty() => Ok(read),
            Phase::Failed(kind) => Err(kind.into()),
            _ if self.incoming.has_ended => Ok(0),
            Phase::Open | Phase::Connecting => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    pub(super) fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let peeked = self.incoming.peek(buffer);
        match self.phase {
            _ if peeked > 0 || buffer.is_empty() => Ok(peeked),
            Phase::Failed(kind) => Err(kind.into()),
            _ if self.incoming.has_ended => Ok(0),
            Phase::Open | Phase::Connecting => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// The readiness of this moment: an event names all of it, as one of the system does.
    pub(super) fn readiness(&self, room: usize) -> Readiness {
        let mut readiness = Readiness::default();
        if matches!(self.phase, Phase::Failed(_)) {
            let all = [
                Readiness::READABLE,
                Readiness::WRITABLE,
                Readiness::READ_CLOSED,
            ];
            return all.into_iter().fold(Readiness::HANGUP, Readiness::and);
        }
        if self.phase == Phase::Connecting {
            return readiness;
        }
        if self.incoming.has_unread() || self.incoming.has_ended {
            readiness = readiness.and(Readiness::READABLE);
        }
        if self.incoming.has_ended {
            readiness = readiness.and(Readiness::READ_CLOSED);
            if self.has_finished {
                readiness = readiness.and(Readiness::HANGUP);
            }
        }
        if room > 0 {
            readiness = readiness.and(Readiness::WRITABLE);
        }
        readiness
    }
}

/// The error of a socket whose network has ended.
pub(super) fn ended() -> io::Error {
    let reason = "the simulated network has ended";
    io::Error::new(io::ErrorKind::NotConnected, reason)
}
