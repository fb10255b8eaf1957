//! One WebSocket at work: the transitions between its states.
//!
//! | state | leaves it when |
//! |---|---|
//! | `Open` | we close: `Closing`; the peer closes, ends its side or errs: `Flushing` |
//! | `Closing` | the peer's close frame comes, or the end of its side: `Flushing` |
//! | `Flushing` | all output is out: `Lingering` where the peer may still send, else `Ended` |
//! | `Lingering` | the peer has ended its side: `Ended` |
//!
//! Any of them goes to `Ended` by a failure, a deadline or an abort.

use super::app::{Control, EndCause, WebSocketApp};
use super::beside::Incoming;
use super::connection::{Connection, State, Waits, passed};
use super::options::WebSocketOptions;
use super::socket::{Sending, WebSocketRef};
use dwell_evloop::{Context, LoopOutput, Readiness, Sends, Token};
use dwell_proto::websocket::{Close, CloseCode, Inflater, PeerError, Role};
use std::time::Duration;

/// Reads of one visit, so that a peer that floods leaves the turn to others.
const READS_PER_VISIT: usize = 4;
/// Bytes of messages that one visit takes, the last message apart: a read of frames that inflate a
/// thousandfold is much more than it looks.
const MESSAGE_BYTES_PER_VISIT: usize = 1 << 20;

/// State that the connections of a loop share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) inflater: Inflater,
    pub(super) sending: Sending,
    /// The accounts of what they hold.
    pub(super) accounts: Option<LoopOutput>,
}

/// One connection with all that acting on it needs, looked up once for an event.
pub(super) struct Visit<'v, A> {
    pub(super) context: &'v mut Context,
    pub(super) app: &'v mut A,
    pub(super) connection: &'v mut Connection,
    pub(super) token: Token,
    pub(super) options: &'v WebSocketOptions,
    pub(super) shared: &'v mut Shared,
    /// The output of this visit.
    pub(super) output: Vec<u8>,
    /// The socket has taken queued output.
    pub(super) progressed: bool,
    /// Bytes of messages that came.
    pub(super) message_bytes: usize,
    /// True if something was handed over in this visit.
    pub(super) has_begun: bool,
}

impl<A: WebSocketApp> Visit<'_, A> {
    /// The socket is ready, or its turn has come again.
    pub(super) fn ready(&mut self, readiness: Readiness) {
        let connection = &mut *self.connection;
        connection.peer.observe(readiness);
        if readiness.is_writable() {
            self.flush();
        }
        if self.connection.state == State::Lingering {
            self.discard();
            return;
        }
        self.read();
        if readiness.is_hangup() && !self.reads() && self.connection.state == State::Open {
            // The peer is gone, and the unread input is not wanted.
            self.connection
                .end(EndCause::Failed(std::io::ErrorKind::ConnectionReset));
        }
    }

    /// The deadline has passed.
    pub(super) fn expired(&mut self) {
        match (self.connection.waits, self.connection.state) {
            (Waits::Output, _) => self.connection.end(EndCause::WriteTimeout),
            (Waits::End, State::Closing) => {
                self.connection.ending(EndCause::CloseTimeout).cause = EndCause::CloseTimeout;
                self.connection.state = State::Ended;
            }
            (Waits::End, _) => self.connection.state = State::Ended,
            (Waits::Peer | Waits::Pong, _) => self.look(),
        }
    }

    /// Does the work that is left, and calls the app for what it is owed.
    pub(super) fn settle(&mut self) {
        self.socket().spill();
        if self.connection.is_drained() {
            self.connection.blocked = false;
            if self.connection.state == State::Open {
                self.call(A::drained);
            }
        }
        self.rest();
    }

    /// Reads and hands over, as long as there is input and room for what it brings about.
    fn read(&mut self) {
        for _ in 0..READS_PER_VISIT {
            if !self.reads() || self.is_sated() || !self.connection.has_input() {
                return;
            }
            let mut input = self.context.take_input();
            self.read_into(&mut input);
            self.context.return_input(input);
        }
    }

    /// Reads once behind the kept tail and hands over what is complete.
    fn read_into(&mut self, input: &mut Vec<u8>) {
        if self.connection.peer.tail().len() > input.len() / 2 {
            // There is much left of what came earlier: that first.
            let mut tail = self.connection.peer.take_tail();
            let used = self.decode(&mut tail);
            tail.drain(..used);
            self.connection.peer.set_tail(tail, ());
        } else if let Some(filled) = self.fill(input) {
            let used = self.decode(&mut input[..filled]);
            self.connection.peer.keep(&input[..filled], used, ());
        }
        self.time_message();
        let is_over = self.connection.peer.is_at_end() && !self.connection.tail_waits;
        if is_over && self.connection.is_listening() {
            self.connection.ending(EndCause::Lost);
            self.connection.state = State::Flushing;
        }
    }

    /// Notes when a message began that is not complete.
    fn time_message(&mut self) {
        let beside = &mut self.connection.beside;
        if !beside.is_unfinished() {
            beside.set_begun(None);
        } else if beside.begun().is_none() {
            beside.set_begun(Some(self.context.tick()));
            if self.connection.waits == Waits::Peer {
                self.await_peer();
            }
        }
    }

    /// Puts the tail and one read into `input`; returns how much it holds then, or nothing after a
    /// failure.
    fn fill(&mut self, input: &mut Vec<u8>) -> Option<usize> {
        let connection = &mut *self.connection;
        let filled = match connection.peer.fill(input, usize::MAX) {
            Ok(filled) => filled,
            Err(error) => {
                connection.end(EndCause::Failed(error.kind()));
                return None;
            }
        };
        if filled.read > 0 {
            connection.heard = self.context.tick();
            if connection.waits == Waits::Pong {
                self.await_peer();
            }
        }
        Some(filled.bytes())
    }

    /// Decodes the input, as far as it may be handed over; returns how much that used.
    fn decode(&mut self, input: &mut [u8]) -> usize {
        let negotiated = self.connection.negotiated();
        let mut decoder = self.connection.beside.take_decoder(negotiated);
        let mut inflater = self.take_inflater();
        let mut used = 0;
        let fault = loop {
            if !self.reads() || self.is_sated() {
                self.connection.tail_waits = used < input.len();
                break None;
            }
            match decoder.decode(&mut input[used..], &self.options.messages, &mut inflater) {
                Ok((consumed, incoming)) => {
                    used += consumed;
                    let Some(incoming) = incoming else {
                        self.connection.tail_waits = false;
                        break None;
                    };
                    self.hand_over(incoming);
                }
                Err(error) => break Some(error),
            }
        };
        self.return_inflater(inflater);
        self.connection.beside.keep_decoder(decoder);
        if let Some(error) = fault {
            self.fail(error);
        }
        if !matches!(self.connection.state, State::Open | State::Closing) {
            self.connection.tail_waits = false;
            return input.len();
        }
        used
    }

    fn hand_over(&mut self, incoming: Incoming<'_>) {
        let is_open = self.connection.state == State::Open;
        self.has_begun = true;
        if let Incoming::Message(message) = &incoming {
            self.message_bytes += message.payload.len();
        }
        match incoming {
            Incoming::Close(close) => self.closed_by_peer(close),
            // We have closed, but until the peer has a ping of its is answered.
            Incoming::Ping(payload) if !is_open => self.socket().answer_ping(payload),
            // Nothing else is waited for but the peer's close frame.
            _ if !is_open => {}
            Incoming::Message(message) => {
                self.connection.active = self.context.tick();
                self.connection.beside.set_begun(None);
                self.call(|app, context, socket| app.message(context, socket, message));
            }
            Incoming::Frame(part) => {
                self.connection.active = self.context.tick();
                self.call(|app, context, socket| app.frame(context, socket, part));
            }
            Incoming::Ping(payload) => {
                self.socket().answer_ping(payload);
                let control = Control::Ping(payload);
                self.call(|app, context, socket| app.control(context, socket, control));
            }
            Incoming::Pong(payload) => {
                let control = Control::Pong(payload);
                self.call(|app, context, socket| app.control(context, socket, control));
            }
        }
    }

    /// Returns true when this visit has had its share of the turn; calls the app.
    fn is_sated(&mut self) -> bool {
        self.message_bytes >= MESSAGE_BYTES_PER_VISIT || self.app.puts_off(self.context)
    }

    /// The peer's close frame came: answers it where ours is not out yet.
    fn closed_by_peer(&mut self, close: Close<'_>) {
        self.socket().begin_close(close.code, "", EndCause::Peer);
        let ending = self.connection.ending(EndCause::Peer);
        ending.received = true;
        ending.code = close.code;
        ending.reason = close.reason.into();
        self.connection.state = State::Flushing;
        let Close { code, reason } = close;
        let control = Control::Close { code, reason };
        self.call(|app, context, socket| app.control(context, socket, control));
    }

    /// Ends a connection whose peer broke the protocol, and sends the reason.
    ///
    /// Source: RFC 6455 section 7.1.7.
    fn fail(&mut self, error: PeerError) {
        if self.connection.state == State::Open {
            let reason = error.to_string();
            self.close_for(error.close_code(), &reason, EndCause::Protocol(error));
        }
        self.connection.state = State::Flushing;
    }

    /// Begins to close, and calls the app.
    fn close_for(&mut self, code: CloseCode, reason: &str, cause: EndCause) {
        self.socket().begin_close(Some(code), reason, cause);
        self.call(|app, context, socket| app.closing(context, socket, code, reason));
    }

    /// The time has come that was due first when the deadline was set: looks what is due now.
    fn look(&mut self) {
        if self.is_idle() {
            self.close_for(CloseCode::GOING_AWAY, "idle", EndCause::IdleTimeout);
            return;
        }
        let now = self.context.tick();
        let mut begun = self.connection.beside.begun();
        if self.connection.paused {
            // What it says is not listened to.
            self.connection.heard = now;
            begun = begun.map(|_| now);
            self.connection.beside.set_begun(begun);
        }
        if begun.is_some_and(|begun| passed(begun, now) >= self.options.message_timeout) {
            let cause = EndCause::MessageTimeout;
            let reason = cause.to_string();
            self.close_for(CloseCode::POLICY_VIOLATION, &reason, cause);
            return;
        }
        let silent = passed(self.connection.heard, now);
        let is_due = |timeout: Option<Duration>| timeout.is_some_and(|timeout| silent >= timeout);
        if self.connection.waits == Waits::Pong && !self.connection.paused {
            self.connection.end(EndCause::PongTimeout);
        } else if is_due(self.options.ping_interval) {
            // There is room, as no output is queued.
            let _ = self.socket().ping(b"");
            self.connection.waits = Waits::Pong;
            self.context.arm(self.token, self.options.pong_timeout);
        } else {
            self.await_peer();
        }
    }

    fn take_inflater(&mut self) -> Inflater {
        std::mem::take(match self.connection.beside.inflater() {
            Some(own) => own,
            None => &mut self.shared.inflater,
        })
    }

    fn return_inflater(&mut self, inflater: Inflater) {
        match self.connection.beside.inflater() {
            Some(own) => *own = inflater,
            None => self.shared.inflater = inflater,
        }
    }

    fn call<T>(
        &mut self,
        callback: impl FnOnce(&mut A, &mut Context, &mut WebSocketRef<'_>) -> T,
    ) -> T {
        let mut socket = WebSocketRef {
            token: self.token,
            connection: self.connection,
            options: self.options,
            sending: &mut self.shared.sending,
            output: &mut self.output,
            now: self.context.tick(),
        };
        callback(self.app, self.context, &mut socket)
    }
}

impl<A> Visit<'_, A> {
    /// Returns the handle for operations on the connection.
    pub(super) fn socket(&mut self) -> WebSocketRef<'_> {
        WebSocketRef {
            token: self.token,
            connection: self.connection,
            options: self.options,
            sending: &mut self.shared.sending,
            output: &mut self.output,
            now: self.context.tick(),
        }
    }

    /// Writes what was sent, and decides what the connection waits for.
    pub(super) fn rest(&mut self) {
        if !self.leave_to_sends() {
            self.socket().spill();
        }
        if self.connection.state == State::Flushing && self.connection.peer.stream.is_flushed() {
            self.finish();
        }
        self.connection.beside.release();
        if let Some(accounts) = &self.shared.accounts {
            let stream = &mut self.connection.peer.stream;
            stream.account(accounts, self.token, self.context.tick());
        }
        self.time();
        if self.connection.has_input() && self.reads() {
            let (token, readiness) = (self.token, Readiness::default());
            if self.has_begun {
                self.context.again(token, readiness);
            } else {
                self.context.again_in_place(token, readiness);
            }
        }
    }

    /// Leaves output to the sends of the turn, if they are gathered and nothing is before it;
    /// returns false if it is to be written at once.
    fn leave_to_sends(&mut self) -> bool {
        let Some(sends) = self.context.sends_of(self.token.kind()) else {
            return false;
        };
        let connection = &mut *self.connection;
        let goes_on = connection.state == State::Open && !connection.peer.has_ended();
        let is_small = (1..=Sends::BYTES_MAX).contains(&self.output.len());
        let stream = &mut connection.peer.stream;
        if !(goes_on && is_small && stream.leave_to(sends, self.token, &self.output)) {
            return false;
        }
        self.output.clear();
        connection.is_gathered = true;
        true
    }

    /// The socket has not taken all that was left to the sends of the turn.
    pub(super) fn refused(&mut self, rest: &[u8]) {
        self.connection.peer.stream.queue_rest(rest);
        self.connection.blocked = true;
        self.rest();
    }

    /// Returns true if input is taken: there is room for the responses it may cause.
    fn reads(&mut self) -> bool {
        let has_room = self.connection.state == State::Closing || !self.socket().is_full();
        self.connection.is_listening() && has_room
    }

    /// The socket takes output again.
    fn flush(&mut self) {
        let connection = &mut *self.connection;
        if connection.peer.stream.is_flushed() {
            return;
        }
        // The app may have been refused for what TLS says by itself, such as the answer to an
        // update of keys.
        connection.blocked = true;
        let pace = self.options.write_pace();
        match connection.peer.flush(self.context, self.token, pace) {
            Ok(progress) => self.progressed |= progress.is_enough,
            Err(error) => connection.end(EndCause::Failed(error.kind())),
        }
    }

    /// The last output is out.
    ///
    /// Source: RFC 6455 section 7.1.1: the server is the one that closes.
    fn finish(&mut self) {
        let connection = &mut *self.connection;
        let is_mutual = connection.beside.is_mutual();
        let is_client = connection.negotiated().role == Role::Client;
        let waits_for_server = is_client && is_mutual;
        let failed = !waits_for_server && connection.peer.stream.shutdown_write().is_err();
        let nothing_comes = is_mutual && !is_client && !connection.peer.is_unread();
        if failed || nothing_comes || connection.peer.is_at_end() {
            connection.state = State::Ended;
        } else {
            connection.state = State::Lingering;
            self.discard();
        }
    }

    /// Reads what a lingering peer still sends.
    fn discard(&mut self) {
        if !self.connection.peer.discard(self.context, self.token) {
            self.connection.state = State::Ended;
        }
    }

    /// Sets the deadline where what it is for has changed.
    ///
    /// Shape: input alone sets none: that it came is noted, and considered at the deadline.
    pub(super) fn time(&mut self) {
        let is_flushed = self.connection.peer.stream.is_flushed();
        let (wanted, timeout) = match self.connection.state {
            State::Ended => return,
            State::Open if is_flushed => {
                if matches!(self.connection.waits, Waits::Output | Waits::End) {
                    self.await_peer();
                }
                return;
            }
            State::Open => (Waits::Output, self.options.write_timeout),
            _ => (Waits::End, self.options.close_timeout),
        };
        let goes_on = self.progressed && wanted == Waits::Output;
        if self.connection.waits != wanted || goes_on {
            self.connection.waits = wanted;
            self.context.arm(self.token, timeout);
        }
    }

    /// Waits for a sign of life, a message, or the end of one, whatever is due first.
    fn await_peer(&mut self) {
        self.connection.waits = Waits::Peer;
        let now = self.context.tick();
        let left = |timeout: Option<Duration>, since| {
            timeout.map(|timeout| timeout.saturating_sub(passed(since, now)))
        };
        let ping = left(self.options.ping_interval, self.connection.heard);
        let idle = left(self.options.idle_timeout, self.connection.active);
        let begun = self.connection.beside.begun();
        let message = begun.and_then(|begun| left(Some(self.options.message_timeout), begun));
        match ping.into_iter().chain(idle).chain(message).min() {
            Some(timeout) => self.context.arm(self.token, timeout),
            None => self.context.disarm(self.token),
        }
    }

    /// Returns true if no message came or went for too long.
    fn is_idle(&self) -> bool {
        let since = passed(self.connection.active, self.context.tick());
        let timeout = self.options.idle_timeout;
        timeout.is_some_and(|timeout| since >= timeout)
    }
}
