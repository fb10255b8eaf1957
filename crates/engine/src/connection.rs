//! One client connection: where it stands and what is unfinished.

use crate::app::ExchangeId;
use crate::body_pace::BodyPace;
use crate::budget::Charge;
use crate::gathered::Gathered;
use crate::reply::{Framing, Outgoing};
use dwell_evloop::{Peer, Token};
use dwell_proto::http1::{BodyDecoder, BodyFraming};
use std::time::{Duration, Instant};

/// The state of a connection. It also defines what the deadline of its token is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Phase {
    /// The header of the PROXY protocol is on the way; the deadline closes it.
    Preface,
    /// The handshake of TLS is in progress; the deadline closes it.
    Handshake,
    /// Between requests; the deadline closes it.
    Idle,
    /// Part of a head has come, or of a record of TLS; the deadline answers 408.
    Head,
    /// A head has come and its body is on the way; the deadline answers 408.
    Body,
    /// The app owes the answer, or the rest of it; the deadline is the app's unless queued output
    /// or granted body bytes are waited for. Nothing but these is read meanwhile.
    Held,
    /// The socket refuses output; the deadline closes it. Nothing is read meanwhile.
    Writing,
    /// It speaks HTTP/2: its session has the deadline, and its streams have theirs.
    Http2,
    /// The last answer is out and our side is closed; input is discarded so that the peer reads
    /// the answer instead of a reset (RFC 9112 section 9.6). The deadline closes it.
    Lingering,
}

/// An entry of the connection table; what an idle client costs.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is true or not whatever the others are"
)]
pub(crate) struct Connection {
    /// The socket, and the input that no complete message has used yet.
    pub(crate) peer: Peer<Note>,
    /// The request whose body is on the way.
    pub(crate) incoming: Option<Box<Incoming>>,
    /// The newest request, and the answer to it.
    pub(crate) exchange: Exchange,
    /// The loop reports the readiness of the socket.
    pub(crate) is_registered: bool,
    /// An answer is among the sends of the turn, which have not gone out yet.
    pub(crate) is_gathered: bool,
    /// The app was called, during the present hold, for a peer that sends no more.
    pub(crate) end_told: bool,
    /// The last request is here, or even its answer is given; no further one is served.
    pub(crate) finished: bool,
}

/// One request and its answer, as far as they are in progress.
///
/// Shape: of a connection that has one at a time it is a part; so its words are aligned as half of
/// them would be, and none is there to fill up.
#[derive(Debug)]
pub(crate) struct Exchange {
    tag: Tag,
    /// Number of requests so far. A response to another number than this is dropped.
    pub(crate) sequence: u32,
    /// The streaming answer that is open.
    pub(crate) outgoing: Outgoing,
    /// The framing of the response.
    pub(crate) framing: Framing,
    pub(crate) phase: Phase,
}

/// The tag of the app's hold.
#[derive(Clone, Copy, Debug)]
#[repr(Rust, packed(4))]
struct Tag(u64);

/// A note of the input that waits for more.
#[derive(Debug, Default)]
pub(crate) struct Note {
    /// Bytes of it that were searched for the end of a head.
    pub(crate) scanned: usize,
    /// Its part of what is kept of long input behind held requests.
    #[expect(dead_code, reason = "it is given back when it is dropped")]
    pub(crate) charge: Option<Charge>,
}

/// A request whose body is on the way.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) decoder: BodyDecoder,
    /// The announced size of the body.
    pub(crate) length: Option<u64>,
    pub(crate) taking: Taking,
    /// The time for which it may be waited for.
    pub(crate) pace: BodyPace,
    /// The time at which its head had come.
    pub(crate) began: Instant,
}

/// The way that the bytes of a body take.
#[derive(Debug)]
pub(crate) enum Taking {
    /// They are gathered beside the head.
    Collect {
        gathered: Gathered,
        /// The bytes beyond the part that is wanted go to the app as a stream.
        streams_on: bool,
    },
    /// They go to the app as far as it grants.
    Stream {
        credit: u64,
        received: u64,
        /// The client waits for a 100 (Continue), which the first grant sends.
        continue_owed: bool,
        /// The app waits for what it has granted.
        is_awaited: bool,
    },
    /// The answer is out already: they are dropped, up to so many.
    Discard { left: u64 },
}

impl Taking {
    /// Takes over the app's grant of more bytes, and its choice to wait for them if it made one.
    /// Returns true if the client is owed a 100 (Continue), which after the head of the final
    /// answer is not sent; `None` for a body that is not streamed.
    pub(crate) fn grant(
        &mut self,
        granted: u64,
        awaits: Option<bool>,
        pace: &mut BodyPace,
        now: Instant,
    ) -> Option<bool> {
        let Self::Stream {
            credit,
            continue_owed,
            is_awaited,
            ..
        } = self
        else {
            return None;
        };
        *credit = credit.saturating_add(granted);
        *is_awaited = awaits.unwrap_or(*is_awaited);
        if *credit > 0 && *is_awaited {
            pace.wait(now);
        } else {
            pace.rest(now);
        }
        Some(granted > 0 && std::mem::take(continue_owed))
    }
}

/// The rest of the body of a request whose response is sent.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Unread {
    Nothing,
    /// It is read for nothing, and the connection goes on.
    Skippable,
    /// No other request can come behind it.
    InTheWay,
}

impl Incoming {
    pub(crate) fn new(
        framing: BodyFraming,
        bytes_max: u64,
        taking: Taking,
        timeout: Duration,
        now: Instant,
    ) -> Self {
        Self {
            pace: BodyPace::new(timeout),
            began: now,
            decoder: BodyDecoder::new(framing, bytes_max),
            length: match framing {
                BodyFraming::Length(length) => Some(length),
                _ => None,
            },
            taking,
        }
    }

    /// Returns the rest of it when a response is sent now. It is in the way if the client waits for
    /// a 100 (Continue), after which it may or may not send it, or has announced more than is read
    /// and discarded.
    pub(crate) fn unread(&self, unread_body_bytes_max: u64) -> Unread {
        let is_in_the_way = match &self.taking {
            Taking::Stream {
                continue_owed: true,
                ..
            } => true,
            Taking::Stream { received, .. } => self
                .length
                .is_some_and(|length| length - received > unread_body_bytes_max),
            Taking::Collect { .. } | Taking::Discard { .. } => false,
        };
        if is_in_the_way {
            Unread::InTheWay
        } else {
            Unread::Skippable
        }
    }
}

impl Exchange {
    /// Makes one of which no request has come.
    pub(crate) fn new(phase: Phase) -> Self {
        Self {
            tag: Tag(0),
            sequence: 0,
            outgoing: Outgoing::None,
            framing: Framing::default(),
            phase,
        }
    }

    /// The tag of the app's hold.
    pub(crate) fn tag(&self) -> u64 {
        self.tag.0
    }

    /// Returns true if the app owes the answer, or the rest of it.
    pub(crate) fn is_held(&self) -> bool {
        self.phase == Phase::Held
    }

    /// The app has it from now on, with this tag.
    pub(crate) fn hold(&mut self, tag: u64) {
        self.phase = Phase::Held;
        self.tag = Tag(tag);
    }
}

impl Connection {
    pub(crate) fn new(peer: Peer<Note>) -> Self {
        let phase = first_phase(&peer);
        Self {
            peer,
            incoming: None,
            exchange: Exchange::new(phase),
            is_registered: false,
            is_gathered: false,
            end_told: false,
            finished: false,
        }
    }

    /// Begins what is behind the header of the PROXY protocol.
    pub(crate) fn leave_preface(&mut self) {
        self.exchange.phase = first_phase(&self.peer);
    }

    pub(crate) fn exchange_id(&self, token: Token) -> ExchangeId {
        ExchangeId {
            token,
            sequence: self.exchange.sequence,
        }
    }

    /// Returns true if there is unread input, here or in the socket.
    pub(crate) fn has_input(&self) -> bool {
        self.peer.is_unread() || self.peer.has_tail()
    }

    /// Bytes of a streamed body that the app waits for.
    pub(crate) fn body_credit(&self) -> u64 {
        match self.incoming.as_deref() {
            Some(Incoming {
                taking: Taking::Stream { credit, .. },
                ..
            }) => *credit,
            _ => 0,
        }
    }

    /// Returns how many bytes of a body may be read in one go, where there is a bound: for one that
    /// the app takes in pieces, and for one whose beginning is gathered. Otherwise 0.
    pub(crate) fn body_room(&self) -> u64 {
        match self.incoming.as_deref() {
            Some(Incoming {
                taking:
                    Taking::Collect {
                        gathered,
                        streams_on: true,
                    },
                ..
            }) => gathered.room() as u64,
            _ => self.body_credit(),
        }
    }

    /// Returns true if the app waits for more of a streamed body, and more of it, or its early end,
    /// can be handed over.
    pub(crate) fn can_take_body(&self) -> bool {
        self.body_credit() > 0 && (self.has_input() || self.peer.is_at_end())
    }

    /// Returns true if the socket has to take output before a streaming response goes on.
    pub(crate) fn is_blocked(&self) -> bool {
        self.exchange.outgoing.is_open() && !self.peer.stream.is_flushed()
    }

    /// Returns the phase of a connection that waits for its peer to send.
    pub(crate) fn receiving(&self) -> Phase {
        if self.incoming.is_some() {
            Phase::Body
        } else if self.peer.has_tail() || self.peer.stream.has_begun_record() {
            Phase::Head
        } else {
            Phase::Idle
        }
    }

    /// Returns true while the deadline is that of a head which has begun and is not here.
    pub(crate) fn waits_for_head(&self) -> bool {
        let is_head = self.exchange.phase == Phase::Head && self.receiving() == Phase::Head;
        is_head && !self.finished
    }

    pub(crate) fn hold(&mut self, tag: u64) {
        self.exchange.hold(tag);
        self.end_told = false;
    }

    /// Makes the held request the last one, so that the input behind it need not be kept. Its
    /// client repeats those requests on another connection (RFC 9112 section 9.3.2).
    pub(crate) fn be_last(&mut self) {
        self.exchange.framing.keep_alive = false;
        self.finished = true;
    }

    /// True where input behind a held request was given up, without which the connection cannot be
    /// taken over.
    pub(crate) fn has_given_up_input(&self) -> bool {
        self.exchange.is_held() && self.finished
    }
}

fn first_phase(peer: &Peer<Note>) -> Phase {
    if peer.stream.is_handshaking() {
        Phase::Handshake
    } else {
        Phase::Idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_connection_is_small() {
        assert!(size_of::<Connection>() <= 88, "{}", size_of::<Connection>());
    }
}
