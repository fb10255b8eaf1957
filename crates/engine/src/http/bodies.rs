//! Request bodies: gathered, handed on in pieces, or dropped after the answer.

use super::exchange::Stop;
use super::visit::Visit;
use crate::app::App;
use crate::connection::{Incoming, Taking};
use dwell_proto::http1::BodyStep;

impl<A: App> Visit<'_, A> {
    /// Takes body bytes from the front of `input`; serves the request when a collected body is
    /// complete.
    pub(super) fn take_body(
        &mut self,
        input: &[u8],
        output: &mut Vec<u8>,
    ) -> (usize, Option<Stop>) {
        let Some(mut incoming) = self.connection.incoming.take() else {
            return (0, None);
        };
        let window = match &incoming.taking {
            Taking::Collect {
                gathered,
                streams_on: true,
            } => &input[..input.len().min(gathered.room())],
            Taking::Collect { .. } | Taking::Discard { .. } => input,
            Taking::Stream { credit, .. } => {
                let credit = usize::try_from(*credit).unwrap_or(usize::MAX);
                &input[..input.len().min(credit)]
            }
        };
        let part = match incoming.decoder.decode(window) {
            Ok(part) => part,
            Err(error) => return (0, Some(self.fail_body(&incoming, error.status()))),
        };
        if self.is_late(&mut incoming, &part) {
            return (0, Some(self.fail_body(&incoming, 408)));
        }
        let stop = self.advance_body(incoming, part, output);
        (part.consumed, stop)
    }

    /// Notes what has come; true where the client has taken too long for it, and more is to come.
    fn is_late(&self, incoming: &mut Incoming, part: &BodyStep<'_>) -> bool {
        if matches!(incoming.taking, Taking::Discard { .. }) {
            return false;
        }
        let (now, limits) = (self.context.now(), self.limits);
        let (timeout, rate) = (limits.body_timeout, limits.body_rate_min);
        let bytes = part.data.len();
        incoming.pace.received(now, bytes, timeout, rate);
        let is_bounded = self.waits.bounds_held || !self.connection.exchange.is_held();
        is_bounded && !part.done && incoming.pace.left(now).is_zero()
    }

    fn fail_body(&mut self, incoming: &Incoming, status: u16) -> Stop {
        if matches!(incoming.taking, Taking::Discard { .. }) {
            return self.give_up();
        }
        self.fail_held(status)
    }

    /// The answer is out and what follows it cannot be read: the connection ends.
    fn give_up(&mut self) -> Stop {
        self.connection.finished = true;
        self.connection.peer.set_unread();
        Stop::Last
    }

    /// Does with one part of the body what is done with this body; `incoming` goes back to its
    /// place unless it ends here.
    fn advance_body(
        &mut self,
        mut incoming: Box<Incoming>,
        part: BodyStep<'_>,
        output: &mut Vec<u8>,
    ) -> Option<Stop> {
        let is_stuck = part.consumed == 0 && !part.done;
        match &mut incoming.taking {
            Taking::Collect {
                gathered,
                streams_on,
            } => {
                if !gathered.extend(part.data, self.limits.gathered_bytes_max) {
                    return Some(Stop::Reject(503));
                }
                if part.done {
                    return self.collected(gathered, incoming.decoder.trailers(), output);
                }
                if *streams_on && gathered.room() == 0 {
                    let received = gathered.body().len() as u64;
                    return self.stream_on(incoming, received, output);
                }
                self.connection.incoming = Some(incoming);
                is_stuck.then_some(Stop::Partial)
            }
            Taking::Discard { left } => match left.checked_sub(part.consumed as u64) {
                None => Some(self.give_up()),
                Some(_) if part.done => None,
                Some(rest) => {
                    *left = rest;
                    self.connection.incoming = Some(incoming);
                    is_stuck.then_some(Stop::Partial)
                }
            },
            Taking::Stream {
                credit, received, ..
            } => {
                *credit -= part.data.len() as u64;
                *received += part.data.len() as u64;
                if *credit == 0 {
                    incoming.pace.rest(self.context.now());
                }
                self.stream_body(incoming, part, is_stuck, output)
            }
        }
    }

    /// The beginning of a body is there: hands it over, and the rest as a stream.
    fn stream_on(
        &mut self,
        mut incoming: Box<Incoming>,
        received: u64,
        output: &mut Vec<u8>,
    ) -> Option<Stop> {
        let stream = Taking::Stream {
            credit: 0,
            received,
            continue_owed: false,
            is_awaited: true,
        };
        let Taking::Collect { gathered, .. } = std::mem::replace(&mut incoming.taking, stream)
        else {
            return None;
        };
        incoming.pace.rest(self.context.now());
        self.connection.incoming = Some(incoming);
        self.gathered_enough(&gathered, output)
    }

    /// Hands a piece of a streamed body to the app, and its end.
    fn stream_body(
        &mut self,
        incoming: Box<Incoming>,
        part: BodyStep<'_>,
        is_stuck: bool,
        output: &mut Vec<u8>,
    ) -> Option<Stop> {
        let tag = self.connection.exchange.tag();
        let exchange = self.connection.exchange_id(self.token);
        self.connection.incoming = Some(incoming);
        if !part.data.is_empty() {
            let (outcome, delivery) = self.with_reply(output, |context, app, reply| {
                app.body_data(context, exchange, tag, part.data, reply)
            });
            let stop = self.conclude(outcome, delivery, output);
            if !self.connection.exchange.is_held() || !part.done {
                if part.done {
                    self.connection.incoming = None;
                }
                return stop;
            }
        }
        if !part.done {
            return is_stuck.then_some(Stop::Held);
        }
        let tag = self.connection.exchange.tag();
        let incoming = self.connection.incoming.take()?;
        let trailers = incoming.decoder.trailers();
        let (outcome, delivery) = self.with_reply(output, |context, app, reply| {
            app.body_end(context, exchange, tag, trailers, reply)
        });
        self.conclude(outcome, delivery, output)
    }
}
