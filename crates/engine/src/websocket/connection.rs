//! One WebSocket: where it stands, and what is unfinished.

use super::app::{Delivery, EndCause, Negotiated, WebSocketEnd};
use dwell_evloop::Peer;
use dwell_proto::websocket::{
    Close, CloseCode, Deflater, Event, FrameDecoder, FramePart, Inflater, Message, MessageDecoder,
    MessageLimits, Opcode, PeerError,
};
use std::time::Instant;

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
pub(super) struct Connection {
    /// The socket, and the input that was not used.
    pub(super) peer: Peer,
    pub(super) decoder: Decoder,
    /// The compressor of a connection whose messages refer to earlier ones.
    pub(super) deflater: Option<Box<Deflater>>,
    pub(super) inflater: Option<Box<Inflater>>,
    /// The cause and state of its end, once it ends.
    pub(super) ending: Option<Box<Ending>>,
    pub(super) tag: u64,
    /// The instant at which a byte last came.
    pub(super) heard: Instant,
    /// The instant at which a message last came or went.
    pub(super) active: Instant,
    /// The instant at which a message began of which only a part has come.
    pub(super) unfinished: Option<Instant>,
    pub(super) negotiated: Negotiated,
    pub(super) state: State,
    pub(super) waits: Waits,
    /// The tail is more than the beginning of a frame.
    pub(super) tail_waits: bool,
    pub(super) paused: bool,
    /// Output is queued, and the app is owed the news when it is out.
    pub(super) blocked: bool,
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

/// Takes apart what the peer sends.
#[derive(Debug)]
pub(super) enum Decoder {
    Messages(MessageDecoder),
    Frames(FrameDecoder),
}

/// Decoded input of the peer.
#[derive(Debug)]
pub(super) enum Incoming<'a> {
    Message(Message<'a>),
    Frame(FramePart<'a>),
    Ping(&'a [u8]),
    Pong(&'a [u8]),
    Close(Close<'a>),
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

impl Decoder {
    fn new(negotiated: Negotiated) -> Self {
        let (role, deflate) = (negotiated.role, negotiated.deflate.is_some());
        match negotiated.delivery {
            Delivery::Messages => Self::Messages(MessageDecoder::new(role, deflate)),
            Delivery::Frames => Self::Frames(FrameDecoder::new(role, deflate)),
        }
    }

    /// Returns true if part of a message is kept.
    pub(super) fn is_unfinished(&self) -> bool {
        match self {
            Self::Messages(decoder) => !decoder.is_idle(),
            Self::Frames(_) => false,
        }
    }

    /// Takes the next frame or message from the front of `input`; returns how much it used.
    pub(super) fn decode<'a>(
        &mut self,
        input: &'a mut [u8],
        limits: &MessageLimits,
        inflater: &'a mut Inflater,
    ) -> Result<(usize, Option<Incoming<'a>>), PeerError> {
        match self {
            Self::Messages(decoder) => {
                let step = decoder.decode(input, limits, inflater)?;
                let incoming = step.event.map(|event| match event {
                    Event::Message(message) => Incoming::Message(message),
                    Event::Ping(payload) => Incoming::Ping(payload),
                    Event::Pong(payload) => Incoming::Pong(payload),
                    Event::Close(close) => Incoming::Close(close),
                });
                Ok((step.consumed, incoming))
            }
            Self::Frames(decoder) => {
                let step = decoder.decode(input, limits)?;
                let Some(part) = step.part else {
                    return Ok((step.consumed, None));
                };
                let incoming = match part.opcode {
                    Opcode::Ping => Incoming::Ping(part.data),
                    Opcode::Pong => Incoming::Pong(part.data),
                    Opcode::Close => Incoming::Close(Close::parse(part.data)?),
                    _ => Incoming::Frame(part),
                };
                Ok((step.consumed, Some(incoming)))
            }
        }
    }
}

impl Connection {
    pub(super) fn new(peer: Peer, negotiated: Negotiated, tag: u64, now: Instant) -> Self {
        let refers_back = negotiated
            .deflate
            .is_some_and(|agreed| !agreed.receives_afresh(negotiated.role));
        Self {
            tail_waits: peer.has_tail(),
            peer,
            decoder: Decoder::new(negotiated),
            deflater: None,
            inflater: refers_back.then(|| Box::new(Inflater::with_context_takeover())),
            ending: None,
            tag,
            heard: now,
            active: now,
            unfinished: None,
            negotiated,
            state: State::Open,
            // Until the first deadline is set.
            waits: Waits::End,
            paused: false,
            blocked: false,
        }
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

    /// Lets go of what its own compressor and inflater need for a message only.
    pub(super) fn release_buffers(&mut self) {
        if let Some(deflater) = &mut self.deflater {
            deflater.release_output();
        }
        if let Some(inflater) = &mut self.inflater {
            inflater.release_output();
        }
    }

    /// Begins to end it, with a cause; the first cause counts.
    pub(super) fn ending(&mut self, cause: EndCause) -> &mut Ending {
        self.ending
            .get_or_insert_with(|| Box::new(Ending::new(cause)))
    }

    /// Ends it now.
    pub(super) fn end(&mut self, cause: EndCause) {
        self.ending(cause);
        self.state = State::Ended;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_idle_web_socket_is_small() {
        let size = size_of::<Connection>();
        assert!(size <= 200, "{size}");
    }
}
