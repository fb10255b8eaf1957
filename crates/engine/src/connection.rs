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
    /// The app owes the answer; the deadline is the app's.
    Held,
    /// The socket refuses output; the deadline closes it. Nothing is read meanwhile.
    Writing,
    /// The last answer is out and our side is closed; input is discarded so that the peer reads
    /// the answer instead of a reset (RFC 9112 section 9.6). The deadline closes it.
    Lingering,
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
    pub(crate) framing: Framing,
    /// The socket may hold input that was not read.
    pub(crate) unread: bool,
    /// The peer has ended its sending side.
    pub(crate) peer_closed: bool,
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
            peer_closed: false,
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

    /// Keeps what is left of the input, in memory of just its size.
    pub(crate) fn keep(&mut self, rest: &[u8]) {
        self.tail = if rest.is_empty() {
            Vec::new()
        } else {
            rest.to_vec()
        };
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
