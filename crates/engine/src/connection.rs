//! One client connection: where it stands and what is unfinished.

use crate::app::ExchangeId;
use crate::reply::Framing;
use dwell_evloop::{Stream, Token};
use dwell_proto::http1::BodyDecoder;

/// Where a connection stands. The deadline of its token means what the phase says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// Between requests; the deadline closes it.
    Idle,
    /// Part of a head has come; the deadline answers 408.
    Head,
    /// A head has come and its body is on the way; the deadline answers 408.
    Body,
    /// The app owes the answer; the deadline is the app's. Nothing is read meanwhile.
    Held,
    /// The socket refuses output; the deadline closes it. Nothing is read meanwhile.
    Writing,
    /// The last answer is out and our side is closed; input is discarded so that the peer reads
    /// the answer instead of a reset (RFC 9112 section 9.6). The deadline closes it.
    Lingering,
}

/// Whether the peer has ended its sending side.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Peer {
    Open,
    Closed,
    /// It has, and the app was told so during the present hold.
    ClosedAndTold,
}

/// An entry of the connection table; what an idle client costs.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) stream: Stream,
    /// Input that no complete message has used yet; empty, and without memory, while idle.
    pub(crate) tail: Vec<u8>,
    /// A request whose body is on the way.
    pub(crate) incoming: Option<Box<Incoming>>,
    /// What the app said with its hold.
    pub(crate) tag: u64,
    /// Counts requests; the answer to another number than this is nobody's.
    pub(crate) sequence: u32,
    /// How much of `tail` was searched for the end of a head.
    pub(crate) scanned: u32,
    pub(crate) phase: Phase,
    /// How the answer to the newest request is framed.
    pub(crate) framing: Framing,
    /// The socket may hold input, or the end of it, that was not read.
    pub(crate) unread: bool,
    pub(crate) peer: Peer,
    /// The last answer is given; no further request is served.
    pub(crate) finished: bool,
}

/// A request in parts.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) head: Vec<u8>,
    pub(crate) body: Vec<u8>,
    pub(crate) decoder: BodyDecoder,
}

impl Connection {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            tail: Vec::new(),
            incoming: None,
            tag: 0,
            sequence: 0,
            scanned: 0,
            phase: Phase::Idle,
            framing: Framing::default(),
            unread: false,
            peer: Peer::Open,
            finished: false,
        }
    }

    pub(crate) fn exchange(&self, token: Token) -> ExchangeId {
        ExchangeId {
            token,
            sequence: self.sequence,
        }
    }

    /// Whether there is input to look at, here or in the socket.
    pub(crate) fn has_input(&self) -> bool {
        self.unread || !self.tail.is_empty()
    }

    /// Whether the peer has ended its sending side.
    pub(crate) fn is_peer_closed(&self) -> bool {
        self.peer != Peer::Open
    }

    pub(crate) fn close_peer(&mut self) {
        if self.peer == Peer::Open {
            self.peer = Peer::Closed;
        }
    }

    /// Whether everything the peer will ever send was read.
    pub(crate) fn is_at_end(&self) -> bool {
        self.is_peer_closed() && !self.unread
    }

    /// Where a connection stands that waits for its peer to send.
    pub(crate) fn receiving(&self) -> Phase {
        if self.incoming.is_some() {
            Phase::Body
        } else if self.tail.is_empty() {
            Phase::Idle
        } else {
            Phase::Head
        }
    }

    pub(crate) fn hold(&mut self, tag: u64) {
        self.phase = Phase::Held;
        self.tag = tag;
        if self.peer == Peer::ClosedAndTold {
            self.peer = Peer::Closed;
        }
    }

    /// Keeps what is left of `input`, which began with the tail kept before.
    pub(crate) fn keep(&mut self, input: &[u8], used: usize) {
        if used == 0 {
            self.tail.extend_from_slice(&input[self.tail.len()..]);
        } else if used < input.len() {
            self.tail = input[used..].to_vec();
        } else if self.tail.capacity() > 0 {
            self.tail = Vec::new();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 96, "{}", size_of::<Connection>());
    }
}
