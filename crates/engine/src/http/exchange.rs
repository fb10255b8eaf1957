//! One exchange: the app's callbacks with the place for the answer, and what follows from them.

use super::moving::Leaving;
use super::visit::{Fate, Visit};
use crate::app::{App, HttpEvent, Outcome};
use crate::connection::{Phase, Taking, Unread};
use crate::reply::{Framing, Outgoing, Reply};
use dwell_evloop::{Context, Flushed, Readiness, Sends};
use std::time::Duration;

/// The interim response for a client that waits with its body (RFC 9110 section 10.1.1).
pub(super) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Reasons why serving one piece of input stopped.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Stop {
    /// All that is complete was answered; the rest waits for more input.
    Partial,
    /// The socket does not take the answers.
    Full,
    /// The requests are too much work for one turn; the next one goes on with the rest.
    Sated,
    /// The app holds a request.
    Held,
    /// The last answer of this connection is given.
    Last,
    /// The request cannot be served; the status to answer.
    Reject(u16),
    /// The connection speaks HTTP/2 from here on.
    Switch,
    /// The connection leaves the component, with the app's tag.
    Detach(u64),
    /// The socket has failed, or the app has aborted the response.
    Failed,
}

/// The outcome of a [`Reply`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Delivery {
    /// No answer was given.
    Nothing,
    /// A streaming answer is open.
    Open,
    /// The answer is complete.
    Sent,
    /// The socket has failed.
    Failed,
}

impl<A> Visit<'_, A> {
    /// Lets `make` use the place of the answer.
    pub(super) fn with_reply<T>(
        &mut self,
        output: &mut Vec<u8>,
        make: impl FnOnce(&mut Context, &mut A, &mut Reply<'_>) -> T,
    ) -> (T, Delivery) {
        let connection = &mut *self.connection;
        let unread_body_bytes_max = self.limits.unread_body_bytes_max;
        let incoming = connection.incoming.as_deref();
        let unread = incoming.map_or(Unread::Nothing, |incoming| {
            incoming.unread(unread_body_bytes_max)
        });
        let sent = connection.exchange.outgoing.is_open();
        let mut reply = Reply {
            output,
            stream: &mut connection.peer.stream,
            origin: self.origins.of(self.token),
            start: self.start,
            framing: connection.exchange.framing,
            outgoing: &mut connection.exchange.outgoing,
            output_bytes_max: self.limits.output_bytes_max,
            unread,
            granted: 0,
            awaits_body: None,
            sent,
            written: 0,
            failed: false,
            framed: None,
            gathers: self.context.sends_of(self.token.kind()).is_some(),
        };
        let result = make(self.context, self.app, &mut reply);
        let (sent, failed) = (reply.sent, reply.failed);
        let (granted, awaits) = (reply.granted, reply.awaits_body);
        self.written += reply.written;
        connection.exchange.framing = reply.framing;
        let delivery = match (failed, sent) {
            (true, _) => Delivery::Failed,
            (false, false) => Delivery::Nothing,
            (false, true) if connection.exchange.outgoing.is_open() => Delivery::Open,
            (false, true) => Delivery::Sent,
        };
        self.want(granted, awaits, delivery == Delivery::Nothing, output);
        (result, delivery)
    }

    /// Takes over the app's grants for a streamed body: `granted` more bytes, and its choice to
    /// wait for them, if it made one.
    fn want(
        &mut self,
        granted: u64,
        awaits: Option<bool>,
        is_unanswered: bool,
        output: &mut Vec<u8>,
    ) {
        if granted == 0 && awaits.is_none() {
            return;
        }
        let now = self.context.now();
        let was_timed = self.body_time_left().is_some();
        let Some(incoming) = self.connection.incoming.as_deref_mut() else {
            return;
        };
        let Some(continues) = incoming
            .taking
            .grant(granted, awaits, &mut incoming.pace, now)
        else {
            return;
        };
        if continues && is_unanswered {
            output.extend_from_slice(CONTINUE);
        }
        if self.stalled {
            return;
        }
        match self.body_time_left() {
            Some(left) => self.context.arm(self.token, left),
            None if was_timed => self.context.disarm(self.token),
            None => {}
        }
    }

    /// Holds the exchange with the app's tag and timeout.
    pub(super) fn hold(&mut self, tag: u64, timeout: Option<Duration>) {
        self.connection.hold(tag);
        if self.stalled && self.connection.is_blocked() {
            return;
        }
        if let Some(left) = self.body_time_left() {
            self.context.arm(self.token, left);
            return;
        }
        match timeout {
            Some(timeout) => self.context.arm(self.token, timeout),
            None => self.context.disarm(self.token),
        }
    }

    /// Ends a complete response: drops the rest of the request. Returns the reason why serving
    /// stops, if it does.
    pub(super) fn complete(&mut self) -> Option<Stop> {
        let left = self.limits.unread_body_bytes_max;
        let connection = &mut *self.connection;
        connection.exchange.phase = Phase::Idle;
        self.served = true;
        // From here on the engine bounds what the host has bounded so far.
        self.stalled &= self.waits.bounds_held;
        if connection.exchange.framing.keep_alive {
            if let Some(incoming) = connection.incoming.as_deref_mut() {
                incoming.taking = Taking::Discard { left };
            }
            return None;
        }
        if connection.incoming.take().is_some() {
            connection.peer.set_unread();
        }
        connection.finished = true;
        Some(Stop::Last)
    }

    /// Writes what was gathered; false when the socket has failed.
    pub(super) fn write_out(&mut self, output: &[u8]) -> bool {
        self.written += output.len() as u64;
        output.is_empty() || self.connection.peer.stream.write(output).is_ok()
    }

    /// Goes on after output that was written outside of serving.
    pub(super) fn delivered(&mut self, delivery: Delivery, output: Vec<u8>) -> Fate {
        let fate = self.deliver(delivery, output);
        self.account();
        fate
    }

    fn deliver(&mut self, delivery: Delivery, output: Vec<u8>) -> Fate {
        let written = self.leave_to_sends(delivery, &output) || self.write_out(&output);
        self.context.return_output(output);
        let is_failed = !written || delivery == Delivery::Failed;
        // What has failed was begun, so if it is not open it was given whole.
        let is_given = match delivery {
            Delivery::Sent => true,
            Delivery::Failed => !self.connection.exchange.outgoing.is_open(),
            Delivery::Nothing | Delivery::Open => false,
        };
        if is_given {
            self.complete();
        }
        if is_failed {
            return Fate::Close;
        }
        if is_given {
            return self.resume();
        }
        self.go_on_held();
        Fate::Keep
    }

    /// Leaves output to the sends of the turn, if no more than a full socket can come in between;
    /// returns false if it is to be written at once.
    pub(super) fn leave_to_sends(&mut self, delivery: Delivery, output: &[u8]) -> bool {
        let Some(sends) = self.context.sends_of(self.token.kind()) else {
            return false;
        };
        let connection = &mut *self.connection;
        let is_given = matches!(delivery, Delivery::Sent | Delivery::Open);
        let goes_on = connection.exchange.framing.keep_alive
            && !connection.finished
            && !connection.peer.has_ended()
            && connection.incoming.is_none()
            && !self.draining
            && self.leaving == Leaving::No;
        let is_small = (1..=Sends::BYTES_MAX).contains(&output.len());
        let stream = &mut connection.peer.stream;
        if !(is_given && goes_on && is_small && stream.leave_to(sends, self.token, output)) {
            return false;
        }
        connection.is_gathered = true;
        self.written += output.len() as u64;
        true
    }

    /// The socket has not taken all that was left to the sends of the turn.
    pub(super) fn refused(&mut self, rest: &[u8]) {
        self.connection.peer.stream.queue_rest(rest);
        if self.connection.exchange.is_held() {
            self.go_on_held();
        } else {
            // Output waits, so it is kept.
            let _ = self.rest(true);
        }
        self.account();
    }

    /// A held exchange waits: for the socket to take output, for granted body bytes, or the app.
    pub(super) fn go_on_held(&mut self) {
        if self.connection.is_blocked() {
            self.go_on_writing();
        } else if self.connection.peer.stream.flushed() == Flushed::More {
            // A file that answered a request before this one; the deadline is the app's.
            self.context.again(self.token, Readiness::WRITABLE);
        }
        if self.connection.can_take_body() {
            self.context.again(self.token, Readiness::default());
        }
    }
}

impl<A: App> Visit<'_, A> {
    /// Acts on the app's outcome for an exchange. Returns the reason why serving stops, if it does.
    pub(super) fn conclude(
        &mut self,
        outcome: Outcome,
        delivery: Delivery,
        output: &mut Vec<u8>,
    ) -> Option<Stop> {
        let exchange = self.connection.exchange_id(self.token);
        let cannot_leave = self.connection.has_given_up_input();
        match (outcome, delivery) {
            (Outcome::Detach { tag }, _) if cannot_leave => {
                self.app.abandoned(self.context, exchange, tag);
                self.connection.exchange.phase = Phase::Idle;
                return Some(Stop::Failed);
            }
            (Outcome::Held { tag, timeout }, Delivery::Nothing | Delivery::Open) => {
                self.hold(tag, timeout);
                return (self.connection.body_credit() == 0).then_some(Stop::Held);
            }
            // Answered and held at once: it is answered, and the hold is over as it begins.
            (Outcome::Held { tag, .. }, _) | (Outcome::Detach { tag }, Delivery::Failed) => {
                self.app.abandoned(self.context, exchange, tag);
            }
            (Outcome::Detach { tag }, _) => {
                self.connection.exchange.phase = Phase::Idle;
                return Some(Stop::Detach(tag));
            }
            (Outcome::Answered | Outcome::Close, _) => {}
        }
        // Whatever comes now, the app owes nothing any more.
        self.connection.exchange.phase = Phase::Idle;
        match (outcome, delivery) {
            (_, Delivery::Failed) | (Outcome::Close, Delivery::Open) => return Some(Stop::Failed),
            // An app that says it answered but did not: the client must not wait for nothing.
            (Outcome::Answered, Delivery::Nothing) => return Some(Stop::Reject(500)),
            (Outcome::Answered, Delivery::Open) => {
                let connection = &mut *self.connection;
                connection.exchange.framing.keep_alive &=
                    connection.exchange.outgoing.end(&[], output);
            }
            (Outcome::Close, _) => self.connection.exchange.framing.keep_alive = false,
            _ => {}
        }
        self.complete()
    }

    /// Writes an answer of the engine's own, the last one of the connection.
    pub(super) fn reject(&mut self, status: u16, output: &mut Vec<u8>) {
        let listener = self.origins.of(self.token).label();
        self.app.event(HttpEvent::Rejected { status, listener });
        let connection = &mut *self.connection;
        connection.incoming = None;
        connection.peer.drop_tail();
        connection.finished = true;
        connection.exchange.framing = Framing {
            keep_alive: false,
            ..connection.exchange.framing
        };
        // Whatever the peer still sends is discarded while it reads the answer.
        connection.peer.set_unread();
        self.served = true;
        let token = self.token;
        self.with_reply(output, |_, _, reply| reply.reject(token, status));
    }

    /// Ends a held exchange because of its client: calls the app, and sends the status if no
    /// response was begun.
    pub(super) fn fail_held(&mut self, status: u16) -> Stop {
        let connection = &mut *self.connection;
        if !connection.exchange.is_held() {
            return Stop::Reject(status);
        }
        connection.exchange.phase = Phase::Idle;
        let (exchange, tag) = (
            connection.exchange_id(self.token),
            connection.exchange.tag(),
        );
        let is_begun = connection.exchange.outgoing.is_open();
        connection.exchange.outgoing = Outgoing::None;
        self.app.abandoned(self.context, exchange, tag);
        if is_begun && status == 408 {
            self.app.event(HttpEvent::BodyTimeout);
        }
        if is_begun {
            Stop::Failed
        } else {
            Stop::Reject(status)
        }
    }

    /// Lets the app decide, once for each hold, whether a peer that sends no more is waited for.
    pub(super) fn tell_closed(&mut self) -> Fate {
        let connection = &mut *self.connection;
        // What the peer sent before it ended its side may be a body the app has yet to read.
        let is_news = connection.peer.has_ended() && !connection.end_told;
        if !is_news || connection.incoming.is_some() {
            return Fate::Keep;
        }
        connection.end_told = true;
        let exchange = connection.exchange_id(self.token);
        if self.app.peer_closed(exchange, connection.exchange.tag()) {
            self.give_up_held()
        } else {
            Fate::Keep
        }
    }

    /// The client of the held exchange has ended its side and is not waited for; what answers the
    /// requests before it is written all the same.
    pub(super) fn give_up_held(&mut self) -> Fate {
        let connection = &mut *self.connection;
        if connection.exchange.outgoing.is_open() || connection.peer.stream.is_flushed() {
            return Fate::Close;
        }
        connection.exchange.phase = Phase::Idle;
        connection.incoming = None;
        connection.peer.drop_tail();
        connection.finished = true;
        let (exchange, tag) = (
            connection.exchange_id(self.token),
            connection.exchange.tag(),
        );
        self.app.abandoned(self.context, exchange, tag);
        self.rest(true)
    }

    /// Rests after all input of a held exchange that the app has granted was used.
    pub(super) fn rest_held(&mut self) -> Fate {
        if self.connection.can_take_body() && !self.connection.has_input() {
            // The body the app waits for can no longer become complete.
            return self.give_up_held();
        }
        self.go_on_held();
        self.tell_closed()
    }

    /// Calls the app back outside of serving input, and goes on from what it did.
    pub(super) fn call(
        &mut self,
        make: impl FnOnce(&mut Context, &mut A, &mut Reply<'_>) -> Outcome,
    ) -> Fate {
        let mut output = self.context.take_output();
        let (outcome, delivery) = self.with_reply(&mut output, make);
        let stop = self.conclude(outcome, delivery, &mut output);
        if let Some(stop @ (Stop::Held | Stop::Reject(_) | Stop::Detach(_) | Stop::Failed)) = stop {
            return self.end(stop, output);
        }
        let written = self.write_out(&output);
        self.context.return_output(output);
        if !written {
            return Fate::Close;
        }
        if self.connection.exchange.is_held() {
            self.go_on_held();
            return Fate::Keep;
        }
        self.resume()
    }

    /// Serving has stopped: writes what there is to write and waits for what comes next.
    pub(super) fn end(&mut self, stop: Stop, mut output: Vec<u8>) -> Fate {
        if let Stop::Reject(status) = stop {
            self.reject(status, &mut output);
        }
        let written = self.write_out(&output);
        self.context.return_output(output);
        match stop {
            Stop::Detach(tag) if !written => {
                let exchange = self.connection.exchange_id(self.token);
                self.app.abandoned(self.context, exchange, tag);
                Fate::Close
            }
            _ if !written => Fate::Close,
            Stop::Failed => Fate::Close,
            Stop::Switch => Fate::Switch,
            Stop::Detach(tag) => Fate::Detach(tag),
            Stop::Held => self.rest_held(),
            Stop::Sated if self.served => self.resume(),
            Stop::Sated => self.wait_for_turn(),
            Stop::Partial | Stop::Full | Stop::Last | Stop::Reject(_) => self.rest(self.served),
        }
    }
}
