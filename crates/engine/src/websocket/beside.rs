//! The parts of a WebSocket that an idle one mostly does without, and what takes its input apart.

use super::app::{Delivery, EndCause, Negotiated};
use super::connection::Ending;
use dwell_proto::websocket::{
    Close, Deflater, Event, FrameDecoder, FramePart, Inflater, Message, MessageDecoder,
    MessageLimits, Opcode, PeerError,
};
use dwell_timers::Tick;

/// Parts in an allocation of their own, which goes with the last of them.
#[derive(Debug, Default)]
pub(super) struct Beside(Option<Box<Parts>>);

#[derive(Debug, Default)]
struct Parts {
    /// The decoder, between reads that have left a message or a frame unfinished.
    decoder: Option<Decoder>,
    /// The tick at which a message began of which only a part has come.
    begun: Option<Tick>,
    /// The compressor of a connection whose messages refer to earlier ones.
    deflater: Option<Box<Deflater>>,
    /// The inflater of a connection whose messages refer to earlier ones.
    inflater: Option<Box<Inflater>>,
    /// The cause and state of its end, once it ends.
    ending: Option<Box<Ending>>,
}

impl Parts {
    fn is_empty(&self) -> bool {
        self.decoder.is_none()
            && self.begun.is_none()
            && self.deflater.is_none()
            && self.inflater.is_none()
            && self.ending.is_none()
    }
}

impl Beside {
    /// The parts of a connection that begins.
    pub(super) fn new(negotiated: Negotiated) -> Self {
        let refers_back = negotiated
            .deflate
            .is_some_and(|agreed| !agreed.receives_afresh(negotiated.role));
        let mut beside = Self::default();
        if refers_back {
            beside.parts().inflater = Some(Box::new(Inflater::with_context_takeover()));
        }
        beside
    }

    fn parts(&mut self) -> &mut Parts {
        self.0.get_or_insert_default()
    }

    /// Takes the decoder, to be [kept](Self::keep_decoder) when the input is used up.
    pub(super) fn take_decoder(&mut self, negotiated: Negotiated) -> Decoder {
        let kept = self.0.as_mut().and_then(|parts| parts.decoder.take());
        kept.unwrap_or_else(|| Decoder::new(negotiated))
    }

    /// Keeps a decoder for the input to come, unless a new one is the same.
    pub(super) fn keep_decoder(&mut self, decoder: Decoder) {
        if !decoder.is_new() {
            self.parts().decoder = Some(decoder);
        }
    }

    /// Returns true if part of a message is kept.
    pub(super) fn is_unfinished(&self) -> bool {
        let decoder = self.0.as_ref().and_then(|parts| parts.decoder.as_ref());
        decoder.is_some_and(Decoder::is_unfinished)
    }

    /// The tick at which a message began of which only a part has come.
    pub(super) fn begun(&self) -> Option<Tick> {
        self.0.as_ref()?.begun
    }

    /// Notes when a message began, or that none is unfinished.
    pub(super) fn set_begun(&mut self, begun: Option<Tick>) {
        if begun.is_some() || self.0.is_some() {
            self.parts().begun = begun;
        }
    }

    /// The compressor of its own; `begin` makes it if it is missing.
    pub(super) fn deflater_or_else(
        &mut self,
        begin: impl FnOnce() -> Option<Deflater>,
    ) -> Option<&mut Deflater> {
        let deflater = &mut self.parts().deflater;
        if deflater.is_none() {
            *deflater = begin().map(Box::new);
        }
        deflater.as_deref_mut()
    }

    /// The inflater of its own, if there is one.
    pub(super) fn inflater(&mut self) -> Option<&mut Inflater> {
        self.0.as_mut()?.inflater.as_deref_mut()
    }

    /// The cause and state of its end; `cause` is the cause if it begins to end now.
    pub(super) fn ending(&mut self, cause: EndCause) -> &mut Ending {
        let ending = &mut self.parts().ending;
        ending.get_or_insert_with(|| Box::new(Ending::new(cause)))
    }

    /// Returns true if the peer has sent a close frame.
    pub(super) fn is_mutual(&self) -> bool {
        let ending = self.0.as_ref().and_then(|parts| parts.ending.as_ref());
        ending.is_some_and(|ending| ending.received)
    }

    /// Takes the cause and state of its end out.
    pub(super) fn take_ending(&mut self) -> Option<Box<Ending>> {
        self.0.as_mut()?.ending.take()
    }

    /// Lets go of what its own compressor and inflater need for a message only, and of the
    /// allocation if nothing is left.
    pub(super) fn release(&mut self) {
        let Some(parts) = &mut self.0 else {
            return;
        };
        if let Some(deflater) = &mut parts.deflater {
            deflater.release_output();
        }
        if let Some(inflater) = &mut parts.inflater {
            inflater.release_output();
        }
        if parts.is_empty() {
            self.0 = None;
        }
    }
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

impl Decoder {
    fn new(negotiated: Negotiated) -> Self {
        let (role, deflate) = (negotiated.role, negotiated.deflate.is_some());
        match negotiated.delivery {
            Delivery::Messages => Self::Messages(MessageDecoder::new(role, deflate)),
            Delivery::Frames => Self::Frames(FrameDecoder::new(role, deflate)),
        }
    }

    /// Returns true if it has no memory of what it has decoded.
    fn is_new(&self) -> bool {
        match self {
            Self::Messages(decoder) => decoder.is_idle() && !decoder.is_closed(),
            Self::Frames(decoder) => decoder.is_idle() && !decoder.is_closed(),
        }
    }

    /// Returns true if part of a message is kept.
    fn is_unfinished(&self) -> bool {
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
