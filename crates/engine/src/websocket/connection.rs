//! One WebSocket: where it stands, and what is unfinished.

use super::app::{EndCause, Negotiated, WebSocketEnd};
use super::beside::Beside;
use dwell_evloop::Peer;
use dwell_proto::websocket::CloseCode;
use dwell_timers::{TICK, Tick};
use std::time::Duration;

/// The state of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum State {
    /// Both sides may send.
    Open,
    /// Our close frame is written, the peer's is waited for; what comes before it is dropped.
    Closing,
    /// No more frames are sent or read; queued output goes out, then our side is closed.
    Flushing,
    /// Our side is closed, or it is the server's to close; input is discarded, so that the peer
    /// reads what was sent instead of a reset.
    Lingering,
    /// It is over, and is taken out of the table when its visit ends.
    Ended,
}

/// The purpose of a connection's deadline.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Waits {
    /// Waits for any byte, or a message.
    Peer,
    /// Waits for any byte after a ping.
    Pong,
    /// Waits for the socket to take output.
    Output,
    /// Waits for the end.
    End,
}

/// An entry of the table; what an idle WebSocket costs.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "marks that are set apart from one another"
)]
pub(super) struct Connection {
    /// The socket, and the input that was not used.
    pub(super) peer: Peer,
    /// The parts that an idle connection mostly does without.
    pub(super) beside: Beside,
    pub(super) tag: u64,
    /// The tick at which a byte last came.
    pub(super) heard: Tick,
    /// The tick at which a message last came or went.
    pub(super) active: Tick,
    /// The result of the negotiation, as a number: [`Negotiated`] takes four times the room.
    agreed: u16,
    pub(super) state: State,
    pub(super) waits: Waits,
    /// The tail is more than the beginning of a frame.
    pub(super) tail_waits: bool,
    pub(super) paused: bool,
    /// Output is queued, and the app is to be called when it is out.
    pub(super) blocked: bool,
    /// Output is left to the sends of the turn.
    pub(super) is_gathered: bool,
}

/// The cause and state of a connection's end.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) cause: EndCause,
    /// A close frame of ours is written.
    pub(super) sent: bool,
    /// A close frame of the peer came.
    pub(super) received: bool,
    pub(super) code: Option<CloseCode>,
    pub(super) reason: Box<str>,
}

impl Ending {
    pub(super) fn new(cause: EndCause) -> Self {
        Self {
            cause,
            sent: false,
            received: false,
            code: None,
            reason: Box::default(),
        }
    }

    /// Returns the form of it for the app.
    ///
    /// Source: RFC 6455 sections 7.1.5 and 7.4.1.
    pub(super) fn view(&self) -> WebSocketEnd<'_> {
        WebSocketEnd {
            code: match self.code {
                Some(code) => code.number(),
                None if self.received => 1005,
                None => 1006,
            },
            reason: &self.reason,
            is_clean: self.sent && self.received,
            cause: self.cause,
        }
    }
}

impl Connection {
    pub(super) fn new(peer: Peer, negotiated: Negotiated, tag: u64, now: Tick) -> Self {
        Self {
            tail_waits: peer.has_tail(),
            // The rest of the handshake may be queued, and the app waits for its end.
            blocked: !peer.stream.is_flushed(),
            peer,
            beside: Beside::new(negotiated),
            tag,
            heard: now,
            active: now,
            agreed: negotiated.to_short(),
            state: State::Open,
            // Until the first deadline is set.
            waits: Waits::End,
            paused: false,
            is_gathered: false,
        }
    }

    /// The result of the handshake.
    pub(super) fn negotiated(&self) -> Negotiated {
        Negotiated::from_bits(self.agreed.into())
    }

    /// Returns true if input is taken, apart from the room for responses to it.
    pub(super) fn is_listening(&self) -> bool {
        match self.state {
            State::Open => !self.paused,
            State::Closing => true,
            State::Flushing | State::Lingering | State::Ended => false,
        }
    }

    /// Returns true if there is input, or the end of it.
    pub(super) fn has_input(&self) -> bool {
        self.peer.is_unread() || self.tail_waits || self.peer.has_ended()
    }

    /// Returns true if the app is to be called because all output is out.
    pub(super) fn is_drained(&self) -> bool {
        self.blocked && self.peer.stream.is_flushed()
    }

    /// Begins to end it, with a cause; the first cause counts.
    pub(super) fn ending(&mut self, cause: EndCause) -> &mut Ending {
        self.beside.ending(cause)
    }

    /// Ends it now.
    pub(super) fn end(&mut self, cause: EndCause) {
        self.ending(cause);
        self.state = State::Ended;
    }
}

/// Time that has passed since `then`: of the tick in progress nothing counts, so it is never more
/// than that.
pub(super) fn passed(then: Tick, now: Tick) -> Duration {
    TICK * now.ticks_since(then).saturating_sub(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_web_socket_is_small() {
        // 64 bytes, and 16 more where sockets may be simulated ones, which take more room.
        let size = size_of::<Connection>();
        assert!(size <= 80, "{size}");
    }

    #[test]
    fn no_more_time_has_passed_than_that() {
        let now = Tick::new(7);
        assert_eq!(passed(now, now), Duration::ZERO);
        assert_eq!(passed(now, now.plus(1)), Duration::ZERO);
        assert_eq!(passed(now, now.plus(5)), 4 * TICK);
    }
}
