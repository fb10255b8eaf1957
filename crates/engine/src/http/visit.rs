//! What one connection does next: the transitions between its phases.
//!
//! | phase | leaves it when |
//! |---|---|
//! | `Idle` | input comes: `Head`, `Body`, or an answer and `Idle` again |
//! | `Head`, `Body` | the request is complete: answered or `Held`; too slow: 408 and `Lingering` |
//! | `Held` | the app answers; the peer leaves |
//! | `Writing` | the socket has taken everything: on with the input; too slow: closed |
//! | `Lingering` | the peer has ended its side, or time is up: closed |
//!
//! Any of them goes to `Writing` when the socket refuses output, and is closed by a reset.

use crate::app::{App, Event, Outcome};
use crate::connection::{Connection, Peer, Phase};
use crate::date::Start;
use crate::limits::Limits;
use crate::reply::{Reply, Response};
use dwell_evloop::{Context, Flushed, ReadOutcome, Readiness, Stream, Token};
use std::time::Duration;

/// How long a peer may take to read the last answer.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// How long a client that has sent nothing yet may take for its request when the server drains.
const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);

/// Whether the connection lives on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Fate {
    Keep,
    Close,
}

/// One connection with all that acting on it needs, looked up once for an event.
pub(super) struct Visit<'v, A> {
    pub(super) context: &'v mut Context,
    pub(super) app: &'v mut A,
    pub(super) connection: &'v mut Connection,
    pub(super) token: Token,
    pub(super) limits: &'v Limits,
    pub(super) start: Start<'v>,
    pub(super) draining: bool,
}

impl<A: App> Visit<'_, A> {
    /// The socket is ready, or its turn has come again.
    pub(super) fn ready(&mut self, readiness: Readiness) -> Fate {
        let connection = &mut *self.connection;
        connection.unread |= readiness.is_readable();
        if readiness.is_read_closed() {
            connection.close_peer();
        }
        if readiness.is_hangup() && connection.phase != Phase::Lingering {
            // A reset: nobody is left to read an answer.
            return Fate::Close;
        }
        if readiness.is_writable() && !connection.stream.is_flushed() {
            return self.flush();
        }
        self.advance()
    }

    /// The deadline of the phase has passed.
    pub(super) fn expired(&mut self) -> Fate {
        match self.connection.phase {
            Phase::Idle | Phase::Lingering => Fate::Close,
            Phase::Head | Phase::Body => self.time_out(),
            Phase::Held => self.hold_expired(),
            Phase::Writing => {
                self.app.event(Event::WriteTimeout);
                Fate::Close
            }
        }
    }

    /// The server ends: the next answer is the last.
    pub(super) fn drain(&mut self) -> Fate {
        match self.connection.phase {
            Phase::Idle => {
                // A request the loop has not heard of yet is served before the connection ends.
                self.connection.unread = true;
                self.advance()
            }
            Phase::Held => {
                self.connection.framing.keep_alive = false;
                Fate::Keep
            }
            Phase::Head | Phase::Body | Phase::Writing | Phase::Lingering => Fate::Keep,
        }
    }

    /// Goes on as far as input and phase allow.
    fn advance(&mut self) -> Fate {
        match self.connection.phase {
            Phase::Idle | Phase::Head | Phase::Body if self.connection.has_input() => self.read(),
            Phase::Idle | Phase::Head | Phase::Body | Phase::Writing => Fate::Keep,
            Phase::Held => self.tell_closed(),
            Phase::Lingering => self.discard(),
        }
    }

    /// Reads once behind the kept tail and serves what is complete.
    fn read(&mut self) -> Fate {
        let mut input = self.context.take_input();
        let fate = match self.fill(&mut input) {
            None => Fate::Close,
            // Nothing but the end of the stream, or not even that.
            Some(0) => self.rest(false),
            Some(filled) => self.serve(&input[..filled]),
        };
        self.context.return_input(input);
        fate
    }

    /// Puts the tail and one read into `input`; returns their size, or nothing after a reset.
    fn fill(&mut self, input: &mut [u8]) -> Option<usize> {
        let connection = &mut *self.connection;
        let kept = connection.tail.len();
        if kept > 0 {
            input[..kept].copy_from_slice(&connection.tail);
        }
        if !connection.unread || kept == input.len() {
            return Some(kept);
        }
        match connection.stream.read(&mut input[kept..]).ok()? {
            ReadOutcome::More(read) => Some(kept + read),
            // All of it: what the peer sent before it ended its side has come with the news of it.
            ReadOutcome::Drained(read) => {
                connection.unread = false;
                Some(kept + read)
            }
            ReadOutcome::WouldBlock => {
                connection.unread = false;
                Some(kept)
            }
            ReadOutcome::Closed => {
                connection.unread = false;
                connection.close_peer();
                Some(kept)
            }
        }
    }

    /// The socket takes output again.
    fn flush(&mut self) -> Fate {
        let connection = &mut *self.connection;
        let before = unsent(&connection.stream);
        let Ok(flushed) = connection.stream.flush() else {
            return Fate::Close;
        };
        if flushed == Flushed::More {
            self.context.again(self.token, Readiness::WRITABLE);
        }
        match flushed {
            // Answers to requests before the held one.
            _ if connection.phase == Phase::Held => self.tell_closed(),
            Flushed::All => self.resume(),
            Flushed::Blocked | Flushed::More => {
                if unsent(&connection.stream) < before {
                    self.context.arm(self.token, self.limits.write_timeout);
                }
                Fate::Keep
            }
        }
    }

    /// Lets the app decide, once for each hold, whether a peer that sends no more is waited for.
    pub(super) fn tell_closed(&mut self) -> Fate {
        let connection = &mut *self.connection;
        if connection.peer != Peer::Closed {
            return Fate::Keep;
        }
        connection.peer = Peer::ClosedAndTold;
        let exchange = connection.exchange(self.token);
        if self.app.peer_closed(exchange, connection.tag) {
            Fate::Close
        } else {
            Fate::Keep
        }
    }

    fn hold_expired(&mut self) -> Fate {
        let (exchange, tag) = (self.connection.exchange(self.token), self.connection.tag);
        let (outcome, delivery) =
            self.reply(|context, app, reply| app.expired(context, exchange, tag, reply));
        match (outcome, delivery) {
            (Outcome::Held { tag, timeout }, Delivery::Nothing) => {
                self.connection.hold(tag);
                arm_hold(self.context, self.token, timeout);
                return self.tell_closed();
            }
            // Answered and held at once: it is answered, and the hold is over as it begins.
            (Outcome::Held { tag, .. }, _) => self.app.abandoned(self.context, exchange, tag),
            (Outcome::Answered | Outcome::Close, _) => {}
        }
        // Whatever comes now, no answer is owed any more.
        self.connection.phase = Phase::Idle;
        match (outcome, delivery) {
            (_, Delivery::Failed) => Fate::Close,
            (Outcome::Answered, Delivery::Nothing) => self.forgotten(),
            (outcome, _) => {
                self.connection.finished |= outcome == Outcome::Close;
                self.resume()
            }
        }
    }

    /// The app says that it has answered, and has not: the client must not wait for nothing.
    fn forgotten(&mut self) -> Fate {
        let mut output = self.context.take_output();
        self.reject(500, &mut output);
        self.send(output)
    }

    /// The request does not come to its end in time.
    fn time_out(&mut self) -> Fate {
        if self.connection.phase == Phase::Head {
            self.connection.framing = crate::reply::Framing::default();
        }
        let mut output = self.context.take_output();
        self.reject(408, &mut output);
        self.send(output)
    }

    fn send(&mut self, output: Vec<u8>) -> Fate {
        let written = self.connection.stream.write(&output);
        self.context.return_output(output);
        match written {
            Ok(()) => self.rest(true),
            Err(_) => Fate::Close,
        }
    }
}

/// What became of a [`Reply`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Delivery {
    /// No answer was given.
    Nothing,
    /// The answer is in the socket or queued.
    Sent,
    /// The socket has failed.
    Failed,
}

impl<A> Visit<'_, A> {
    /// Sends the answer of a held exchange.
    pub(super) fn answer(&mut self, response: &Response<'_>) -> Fate {
        let ((), delivery) = self.reply(|_, _, reply| reply.send(response));
        match delivery {
            Delivery::Failed => Fate::Close,
            Delivery::Sent | Delivery::Nothing => self.resume(),
        }
    }

    /// Lets `make` write one answer and sends it.
    fn reply<T>(
        &mut self,
        make: impl FnOnce(&mut Context, &mut A, &mut Reply<'_>) -> T,
    ) -> (T, Delivery) {
        let mut output = self.context.take_output();
        let connection = &mut *self.connection;
        let mut reply = Reply {
            output: &mut output,
            stream: &mut connection.stream,
            start: self.start,
            framing: connection.framing,
            sent: false,
            failed: false,
        };
        let result = make(self.context, self.app, &mut reply);
        let (framing, sent, mut failed) = (reply.framing, reply.sent, reply.failed);
        connection.framing = framing;
        connection.finished |= sent && !framing.keep_alive;
        failed |= connection.stream.write(&output).is_err();
        self.context.return_output(output);
        let delivery = match (failed, sent) {
            (true, _) => Delivery::Failed,
            (false, true) => Delivery::Sent,
            (false, false) => Delivery::Nothing,
        };
        (result, delivery)
    }

    /// An answer is out whose successors were not looked at: goes on with them in the next turn.
    fn resume(&mut self) -> Fate {
        let connection = &mut *self.connection;
        let goes_on = connection.stream.is_flushed() && !connection.finished;
        if goes_on && connection.has_input() {
            self.receive(true);
            self.context.again(self.token, Readiness::default());
            return Fate::Keep;
        }
        self.rest(true)
    }

    /// All input that is here was used as far as it goes: decides what the connection waits for.
    ///
    /// `served` says that a request was answered since the deadline was set.
    pub(super) fn rest(&mut self, served: bool) -> Fate {
        let connection = &mut *self.connection;
        if !connection.stream.is_flushed() {
            connection.phase = Phase::Writing;
            self.context.arm(self.token, self.limits.write_timeout);
            if connection.stream.flushed() == Flushed::More {
                self.context.again(self.token, Readiness::WRITABLE);
            }
            return Fate::Keep;
        }
        if connection.finished {
            return self.linger();
        }
        if connection.is_at_end() {
            // Between two requests, or within one that is nobody's.
            return Fate::Close;
        }
        self.receive(served);
        if self.connection.unread {
            self.context.again(self.token, Readiness::default());
        } else if self.draining && self.connection.phase == Phase::Idle {
            if self.connection.sequence > 0 {
                return Fate::Close;
            }
            self.context.arm(self.token, FIRST_REQUEST_TIMEOUT);
        }
        Fate::Keep
    }

    /// Waits for the peer. A deadline runs from the beginning of what it bounds: more bytes of the
    /// same head or body do not move it.
    fn receive(&mut self, served: bool) {
        let phase = self.connection.receiving();
        if phase != self.connection.phase || served {
            self.connection.phase = phase;
            let timeout = match phase {
                Phase::Body => self.limits.body_timeout,
                Phase::Head => self.limits.header_timeout,
                _ => self.limits.idle_timeout,
            };
            self.context.arm(self.token, timeout);
        }
    }

    /// The last answer is out: closes, at once where the peer has nothing more to say.
    fn linger(&mut self) -> Fate {
        let connection = &mut *self.connection;
        if !connection.unread || connection.stream.shutdown_write().is_err() {
            return Fate::Close;
        }
        connection.phase = Phase::Lingering;
        self.context.arm(self.token, LINGER_TIMEOUT);
        self.discard()
    }

    /// Reads what a lingering peer still sends, so that closing does not reset the answer away.
    fn discard(&mut self) -> Fate {
        let connection = &mut *self.connection;
        if !connection.unread {
            return Fate::Keep;
        }
        let mut input = self.context.take_input();
        let outcome = connection.stream.read(&mut input);
        self.context.return_input(input);
        match outcome {
            Ok(ReadOutcome::More(_)) => {
                self.context.again(self.token, Readiness::default());
                Fate::Keep
            }
            Ok(ReadOutcome::Drained(_) | ReadOutcome::WouldBlock)
                if !connection.is_peer_closed() =>
            {
                connection.unread = false;
                Fate::Keep
            }
            Ok(_) | Err(_) => Fate::Close,
        }
    }
}

/// Bytes that the socket has yet to take, of memory and of files.
fn unsent(stream: &Stream) -> u64 {
    stream.queued_bytes() as u64 + stream.queued_file_bytes()
}

pub(super) fn arm_hold(context: &mut Context, token: Token, timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => context.arm(token, timeout),
        None => context.disarm(token),
    }
}
