//! One raw stream at work.
//!
//! | state | leaves it when |
//! |---|---|
//! | `Connecting` | the connect ends: `Handshaking` or `Open`, or `Ended`; too slow: `Ended` |
//! | `Handshaking` | the handshake of TLS ends: `Open` or `Ended`; too slow: `Ended` |
//! | `Open` | the app closes: `Closing`; a failure, a deadline, an abort: `Ended` |
//! | `Closing` | all output is out: `Lingering` where input may be unread, else `Ended` |
//! | `Lingering` | the peer has ended its side, or time is up: `Ended` |

use super::connection::{Connection, State, StreamEnd, StreamRef};
use super::{StreamApp, StreamLimits};
use dwell_evloop::{Context, Handshaking, Readiness, Token};

/// One stream with all that acting on it needs, looked up once for an event.
pub(super) struct Visit<'v, A> {
    pub(super) context: &'v mut Context,
    pub(super) app: &'v mut A,
    pub(super) connection: &'v mut Connection,
    pub(super) token: Token,
    pub(super) limits: &'v StreamLimits,
}

impl<A: StreamApp> Visit<'_, A> {
    /// A client came.
    pub(super) fn opened(&mut self, listener_tag: u64) {
        arm(self.context, self.token, self.connection, self.limits);
        self.call(|app, context, stream| app.opened(context, stream, listener_tag));
    }

    /// The socket is ready, or its turn has come again.
    pub(super) fn ready(&mut self, readiness: Readiness) {
        self.connection.peer.observe(readiness);
        self.connection.hung_up |= readiness.is_hangup();
        match self.connection.state {
            State::Connecting => self.connecting(readiness),
            State::Handshaking => self.handshake(),
            State::Open => {
                if readiness.is_writable() {
                    self.flush();
                }
                if self.connection.is_readable() {
                    self.read();
                }
            }
            State::Closing if readiness.is_writable() => self.flush(),
            State::Lingering => self.discard(),
            State::Closing | State::Ended(_) => {}
        }
    }

    /// The deadline of the state has passed.
    pub(super) fn expired(&mut self) {
        let has_output = self.connection.has_output();
        self.end(match self.connection.state {
            State::Connecting | State::Handshaking => StreamEnd::ConnectTimeout,
            State::Open | State::Closing if has_output => StreamEnd::WriteTimeout,
            State::Open => StreamEnd::IdleTimeout,
            State::Closing | State::Lingering => StreamEnd::Closed,
            State::Ended(end) => end,
        });
    }

    /// Ends it now; the first end counts.
    pub(super) fn end(&mut self, end: StreamEnd) {
        if !matches!(self.connection.state, State::Ended(_)) {
            self.connection.state = State::Ended(end);
        }
    }

    /// Carries out the orders of the callbacks. Returns the end, if this is one.
    pub(super) fn settle(&mut self) -> Option<StreamEnd> {
        if self.connection.may_have_failed() {
            self.connection.hung_up = false;
            if let Ok(Some(error)) = self.connection.peer.stream.connect_error() {
                self.end(StreamEnd::Failed(error.kind()));
            }
        }
        if !matches!(self.connection.state, State::Ended(_)) {
            self.tell_written();
        }
        if self.connection.state == State::Closing && !self.connection.has_output() {
            self.linger();
        }
        if let State::Ended(end) = self.connection.state {
            return Some(end);
        }
        if self.connection.is_readable() {
            self.context.again(self.token, Readiness::default());
        }
        None
    }

    fn connecting(&mut self, readiness: Readiness) {
        if !readiness.is_writable() {
            return;
        }
        match self.connection.peer.stream.connect_error() {
            Ok(None) => {
                if self.connection.peer.stream.is_handshaking() {
                    self.connection.state = State::Handshaking;
                    self.handshake();
                } else {
                    self.established();
                }
            }
            // Writable without an error and without a peer: not connected yet.
            Ok(Some(error)) if is_pending(&error) && !readiness.is_hangup() => {}
            Ok(Some(error)) | Err(error) => self.end(StreamEnd::ConnectFailed(error.kind())),
        }
    }

    /// Goes on with the handshake of TLS.
    fn handshake(&mut self) {
        match self.connection.peer.handshake() {
            Ok(Handshaking::Pending) => {}
            Ok(Handshaking::Plain) => self.end(StreamEnd::HandshakeFailed),
            Ok(_) => {
                // What came behind the handshake is read by now, and no readiness tells of it.
                self.connection.peer.set_unread();
                self.established();
            }
            Err(error) => {
                self.end(StreamEnd::HandshakeFailed);
                self.call(|app, context, stream| {
                    app.handshake_failed(context, stream, &error);
                });
            }
        }
    }

    /// Begins to read and write.
    fn established(&mut self) {
        self.connection.state = State::Open;
        arm(self.context, self.token, self.connection, self.limits);
        self.call(StreamApp::connected);
        if self.connection.is_readable() {
            self.read();
        }
    }

    /// Reads once behind the kept tail and hands it out.
    fn read(&mut self) {
        let mut input = self.context.take_input();
        match self.connection.peer.fill(&mut input, usize::MAX) {
            Ok(filled) => {
                if filled.read > 0 || self.connection.tail_is_new {
                    self.hand_out(&input[..filled.bytes()], filled.read);
                }
                self.tell_closed();
            }
            Err(error) => self.end(StreamEnd::of(&error)),
        }
        self.context.return_input(input);
    }

    fn hand_out(&mut self, input: &[u8], fresh: usize) {
        if !self.connection.times_output {
            arm(self.context, self.token, self.connection, self.limits);
        }
        let used = self.call(|app, context, stream| app.data(context, stream, input, fresh));
        let used = used.min(input.len());
        if self.connection.state != State::Open {
            self.connection.peer.drop_tail();
            return;
        }
        self.connection.peer.keep(input, used, ());
        self.connection.tail_is_new = false;
        let limit = self
            .limits
            .input_bytes_max
            .min(self.context.input_bytes() - 1);
        if !self.connection.paused && self.connection.peer.tail().len() > limit {
            self.end(StreamEnd::InputFull { limit });
        }
    }

    /// Tells, once and after everything that came before it, that the peer sends no more.
    fn tell_closed(&mut self) {
        let connection = &mut *self.connection;
        let all_is_read =
            !connection.peer.is_unread() && !connection.tail_is_new && !connection.paused;
        let is_news = connection.peer.has_ended() && !connection.end_told;
        if is_news && all_is_read && connection.state == State::Open {
            connection.end_told = true;
            self.call(StreamApp::peer_closed);
        }
    }

    /// The socket takes output again.
    fn flush(&mut self) {
        if !self.connection.has_output() {
            return;
        }
        // It may be what TLS says by itself, for which the app was refused as well.
        self.connection.blocked = true;
        let pace = self.limits.write_pace();
        match self.connection.peer.flush(self.context, self.token, pace) {
            Ok(progress) if progress.is_enough => {
                arm(self.context, self.token, self.connection, self.limits);
            }
            Ok(_) => {}
            Err(error) => self.end(StreamEnd::of(&error)),
        }
    }

    /// Calls the app for output that the socket took since the last time, and for the end of all of
    /// it.
    fn tell_written(&mut self) {
        // An app that writes whenever it is told of a write is told again in the next turn.
        let offered = std::mem::take(&mut self.connection.offered);
        let queued = self.connection.peer.stream.queued_bytes();
        self.connection.offered = queued;
        let taken = offered.saturating_sub(queued);
        if taken > 0 {
            self.call(|app, context, stream| app.written(context, stream, taken));
        }
        if self.connection.blocked && !self.connection.has_output() {
            self.connection.blocked = false;
            self.call(StreamApp::drained);
        }
        let connection = &mut *self.connection;
        // What went out at once ends idleness as well, and what did not is timed from now on.
        if taken > 0 || connection.times_output != connection.has_output() {
            arm(self.context, self.token, connection, self.limits);
        }
        if connection.has_written() {
            self.context.again(self.token, Readiness::default());
        }
    }

    /// Closes when all output is out; at once if the peer sends no more.
    fn linger(&mut self) {
        if self.connection.peer.linger(self.context, self.token) {
            self.connection.state = State::Lingering;
        } else {
            self.end(StreamEnd::Closed);
        }
    }

    /// Reads what a lingering peer still sends.
    fn discard(&mut self) {
        if !self.connection.peer.discard(self.context, self.token) {
            self.end(StreamEnd::Closed);
        }
    }

    fn call<T>(
        &mut self,
        callback: impl FnOnce(&mut A, &mut Context, &mut StreamRef<'_>) -> T,
    ) -> T {
        let mut stream = StreamRef {
            token: self.token,
            connection: &mut *self.connection,
            limits: self.limits,
        };
        callback(self.app, self.context, &mut stream)
    }
}

/// Sets the deadline that queued output or idleness calls for, from now on.
pub(super) fn arm(
    context: &mut Context,
    token: Token,
    connection: &mut Connection,
    limits: &StreamLimits,
) {
    connection.times_output = connection.has_output();
    if connection.times_output {
        context.arm(token, limits.write_timeout);
    } else if let Some(timeout) = limits.idle_timeout {
        context.arm(token, timeout);
    } else {
        context.disarm(token);
    }
}

fn is_pending(error: &std::io::Error) -> bool {
    error.kind() == std::io::ErrorKind::NotConnected
}
