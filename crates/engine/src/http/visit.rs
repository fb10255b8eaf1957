//! One connection at work: the transitions between its phases.
//!
//! | phase | leaves it when |
//! |---|---|
//! | `Preface` | the header of the PROXY protocol has come: `Handshake` or `Idle`; else: closed |
//! | `Handshake` | it is complete: `Idle`, or `Http2`; it fails or is slow: `Lingering`, closed |
//! | `Idle` | input comes: `Head`, `Body`, or an answer and `Idle` again |
//! | `Head`, `Body` | the request is complete: answered or `Held`; too slow: 408 and `Lingering` |
//! | `Held` | the answer is complete; the peer leaves; the connection leaves the component |
//! | `Writing` | the socket has taken everything: on with the input; too slow: closed |
//! | `Lingering` | the peer has ended its side, or time is up: closed |
//!
//! Any of them goes to `Writing` when the socket refuses a response, and is closed by a reset.
//! Records of TLS that are no response move `Head` nowhere.

use super::http2::Ways;
use super::preface::{HANDSHAKE_TIMEOUT, NOT_TLS, take_header};
use crate::app::{App, ExchangeId, HttpEvent, ProxyHeaderFailure};
use crate::connection::{Connection, Phase, Taking};
use crate::date::Start;
use crate::http::{Accounts, Leaving, Origins};
use crate::limits::{Limits, Waits};
use crate::reply::Framing;
use dwell_evloop::{
    Context, Flushed, HandshakeFailure, Handshaking, Readiness, Token, server_fault,
};
use std::time::Duration;

/// Time for the request of a client that has sent nothing yet when the server drains.
pub(super) const FIRST_REQUEST_TIMEOUT: Duration = Duration::from_secs(1);
/// Time for the head of a request that has begun when the server drains, or for a handshake of TLS.
const LAST_HEAD_TIMEOUT: Duration = Duration::from_secs(5);

/// The fate of a connection after a visit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Fate {
    Keep,
    /// It stays, and a handshake of TLS has begun on it; so many are to be in progress at once.
    Shake(usize),
    Close,
    /// The connection speaks HTTP/2 from now on.
    Switch,
    /// The connection leaves the component, with the app's tag.
    Detach(u64),
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
    pub(super) leaving: Leaving,
    pub(super) waits: Waits,
    /// A request was answered in this visit.
    pub(super) served: bool,
    /// Bytes that were read in this visit.
    pub(super) received: usize,
    /// Bytes that were written in this visit, queued ones among them.
    pub(super) written: u64,
    /// Output waits since before this visit, and the socket has not taken enough of it since: the
    /// deadline that runs for it stays as it is, whatever else happens.
    pub(super) stalled: bool,
    /// Bytes of an unfinished head that were searched for its end.
    pub(super) scanned: usize,
    pub(super) accounts: &'v Accounts,
    /// The origins of connections.
    pub(super) origins: Origins<'v>,
    /// The ways in which clients may come to speak HTTP/2.
    pub(super) ways: Ways,
}

impl<A: App> Visit<'_, A> {
    /// The socket is ready, or its turn has come again.
    pub(super) fn ready(&mut self, readiness: Readiness) -> Fate {
        let fate = self.ready_now(readiness);
        self.tell();
        fate
    }

    /// Calls the app for what was read and written, and accounts for what waits.
    fn tell(&mut self) {
        let stream = &self.connection.peer.stream;
        if self.received > 0 {
            let bytes = self.received;
            self.app.received(self.context, self.token, stream, bytes);
        }
        if self.written > 0 {
            self.app.written(self.context, self.token, stream);
        }
        self.account();
    }

    fn ready_now(&mut self, readiness: Readiness) -> Fate {
        let connection = &mut *self.connection;
        connection.peer.observe(readiness);
        if connection.exchange.phase == Phase::Preface {
            return self.preface(readiness.is_hangup());
        }
        if connection.exchange.phase == Phase::Handshake {
            return self.handshake(readiness.is_hangup());
        }
        if readiness.is_hangup() && connection.exchange.phase != Phase::Lingering {
            // A reset: the peer reads no answer any more.
            return Fate::Close;
        }
        if readiness.is_writable() && !connection.peer.stream.is_flushed() {
            return self.flush();
        }
        self.advance()
    }

    /// The deadline of the phase has passed.
    pub(super) fn expired(&mut self) -> Fate {
        let fate = self.expired_now();
        self.account();
        fate
    }

    fn expired_now(&mut self) -> Fate {
        match self.connection.exchange.phase {
            Phase::Preface => self.preface_failed(ProxyHeaderFailure::Late),
            Phase::Handshake => {
                self.handshake_failed(HandshakeFailure::Late, "client has taken too long")
            }
            Phase::Idle => {
                self.connection.peer.stream.close_notify();
                Fate::Close
            }
            Phase::Lingering => Fate::Close,
            Phase::Http2 => Fate::Keep,
            Phase::Head => self.time_out(),
            Phase::Body => self.body_late(),
            Phase::Held if !self.waits.bounds_held => Fate::Keep,
            Phase::Held if self.connection.is_blocked() => self.write_time_out(),
            Phase::Held if self.body_time_left().is_some() => self.body_late(),
            Phase::Held => {
                let (exchange, tag) = self.exchange_id();
                self.call(|context, app, reply| app.expired(context, exchange, tag, reply))
            }
            Phase::Writing => self.write_time_out(),
        }
    }

    /// The body of a request that has not come is given up, as others need the room.
    pub(super) fn shed(&mut self) -> Fate {
        let fate = self.give_up_body(503);
        self.account();
        fate
    }

    fn write_time_out(&mut self) -> Fate {
        self.app.event(HttpEvent::WriteTimeout);
        Fate::Close
    }

    /// Returns the held exchange, and the tag of its hold.
    fn exchange_id(&self) -> (ExchangeId, u64) {
        (
            self.connection.exchange_id(self.token),
            self.connection.exchange.tag(),
        )
    }

    /// The server ends: the next answer is the last.
    pub(super) fn drain(&mut self) -> Fate {
        match self.connection.exchange.phase {
            Phase::Idle => {
                // A request the loop has not heard of yet is served before the connection ends.
                self.connection.peer.set_unread();
                self.advance()
            }
            Phase::Held => {
                self.connection.exchange.framing.keep_alive = false;
                Fate::Keep
            }
            Phase::Head => {
                self.context.arm_sooner(self.token, self.header_timeout());
                Fate::Keep
            }
            Phase::Preface | Phase::Handshake => {
                self.context.arm_sooner(self.token, LAST_HEAD_TIMEOUT);
                Fate::Keep
            }
            Phase::Body | Phase::Writing | Phase::Lingering | Phase::Http2 => Fate::Keep,
        }
    }

    /// Looks for the header of the PROXY protocol. `is_reset` says that the connection has failed.
    fn preface(&mut self, is_reset: bool) -> Fate {
        if is_reset {
            return self.preface_failed(ProxyHeaderFailure::Closed);
        }
        match take_header(&mut self.connection.peer) {
            Ok(true) => {}
            Ok(false) => return Fate::Keep,
            Err(failure) => return self.preface_failed(failure),
        }
        let stream = &mut self.connection.peer.stream;
        if !self.app.identified(self.context, stream) {
            return Fate::Close;
        }
        self.connection.leave_preface();
        if self.connection.exchange.phase == Phase::Handshake {
            self.context.arm(self.token, HANDSHAKE_TIMEOUT);
            return self.handshake(false);
        }
        self.established()
    }

    fn preface_failed(&mut self, why: ProxyHeaderFailure) -> Fate {
        let from = self.connection.peer.stream.peer_address().ok().flatten();
        self.app.event(HttpEvent::ProxyHeaderFailed { why, from });
        Fate::Close
    }

    /// Goes on with the handshake of TLS. `is_reset` says that the connection has failed.
    fn handshake(&mut self, is_reset: bool) -> Fate {
        if is_reset {
            return self.handshake_failed(HandshakeFailure::Reset, "connection has failed");
        }
        let peer = &mut self.connection.peer;
        if peer.stream.is_flushed() && !peer.is_unread() {
            return Fate::Keep;
        }
        let has_begun = peer.stream.handshakes_max().is_some();
        match peer.handshake() {
            Ok(Handshaking::Pending) => match peer.stream.handshakes_max() {
                Some(at_once_max) if !has_begun => Fate::Shake(at_once_max),
                _ => Fate::Keep,
            },
            Ok(Handshaking::Done) => self.established(),
            Ok(Handshaking::Agreed(agreed)) => {
                self.app.event(HttpEvent::HandshakeDone(agreed));
                let stream = &self.connection.peer.stream;
                self.app.secured(self.context, self.token, stream);
                if agreed.is_http2 && self.ways.by_tls {
                    // The preface, which is the first to be read, may be here already.
                    self.connection.peer.set_unread();
                    return Fate::Switch;
                }
                self.established()
            }
            Ok(Handshaking::Plain) => {
                let _ = self.handshake_failed(HandshakeFailure::NotTls, "client speaks no TLS");
                self.refuse_plain()
            }
            Err(error) => match HandshakeFailure::of(&error) {
                failure @ HandshakeFailure::Closed => {
                    self.handshake_failed(failure, "client has closed the connection")
                }
                failure => self.handshake_failed(failure, &server_fault(&error)),
            },
        }
    }

    /// The first request may come.
    fn established(&mut self) -> Fate {
        // What came behind the handshake is read by now, and no readiness tells of it.
        self.connection.peer.set_unread();
        self.receive(true);
        if let Some(timeout) = self.waits.first_request_timeout {
            self.context.arm(self.token, timeout);
        }
        self.advance()
    }

    fn handshake_failed(&mut self, failure: HandshakeFailure, reason: &str) -> Fate {
        self.app.event(HttpEvent::HandshakeFailed(failure));
        self.app.insecure(self.context, self.token, reason);
        match failure {
            // For the client the handshake is complete: it sends on before it reads the alert.
            HandshakeFailure::Certificate => self.linger(),
            _ => Fate::Close,
        }
    }

    /// Ends the handshake for the sake of another one, unless what it waits for is here.
    pub(super) fn give_way(&mut self) -> Fate {
        self.connection.peer.set_unread();
        let fate = match self.handshake(false) {
            Fate::Keep if self.connection.exchange.phase == Phase::Handshake => {
                let reason = "too many handshakes are under way";
                self.handshake_failed(HandshakeFailure::Displaced, reason)
            }
            fate => fate,
        };
        self.tell();
        fate
    }

    /// Answers a client that speaks HTTP without TLS where TLS is wanted.
    fn refuse_plain(&mut self) -> Fate {
        let connection = &mut *self.connection;
        connection.peer.set_unread();
        connection.finished = true;
        connection.exchange.phase = Phase::Idle;
        if self.write_out(NOT_TLS) {
            self.rest(true)
        } else {
            Fate::Close
        }
    }

    /// Goes on as far as input and phase allow.
    fn advance(&mut self) -> Fate {
        match self.connection.exchange.phase {
            // Behind the half head there may be more records of TLS that want a reply.
            Phase::Head if !self.connection.peer.stream.is_flushed() => Fate::Keep,
            Phase::Idle | Phase::Head | Phase::Body if self.connection.has_input() => self.read(),
            Phase::Preface
            | Phase::Handshake
            | Phase::Idle
            | Phase::Head
            | Phase::Body
            | Phase::Writing
            | Phase::Http2 => Fate::Keep,
            Phase::Held if self.connection.can_take_body() => self.read(),
            Phase::Held => self.tell_closed(),
            Phase::Lingering => self.discard(),
        }
    }

    /// Reads once behind the kept tail and serves what is complete.
    fn read(&mut self) -> Fate {
        let mut input = self.context.take_input();
        let fate = match self.fill(&mut input) {
            None => Fate::Close,
            Some(_) if !self.has_room_beside() => self.give_up_body(503),
            // Nothing but the end of the stream, or not even that.
            Some(0) if self.connection.exchange.is_held() => self.rest_held(),
            Some(0) => self.rest(false),
            Some(filled) => self.serve(&input[..filled]),
        };
        self.context.return_input(input);
        fate
    }

    /// Charges a body that is gathered for what TLS keeps of it; false where there is no room.
    fn has_room_beside(&mut self) -> bool {
        let connection = &mut *self.connection;
        let kept = connection.peer.stream.kept_input_bytes();
        let taking = connection.incoming.as_mut().map(|it| &mut it.taking);
        match taking {
            Some(Taking::Collect { gathered, .. }) => {
                gathered.hold_beside(kept, self.limits.gathered_bytes_max)
            }
            _ => true,
        }
    }

    /// Puts the tail and one read into `input`, which grows where a connection has brought more
    /// than fits; returns their size, or nothing after a reset.
    fn fill(&mut self, input: &mut Vec<u8>) -> Option<usize> {
        let connection = &mut *self.connection;
        if let Some(note) = connection.peer.note() {
            self.scanned = note.scanned;
        }
        // Of a streamed body no more is read than the app wants; the rest stays in the kernel.
        let room = match connection.body_room() {
            0 => usize::MAX,
            credit => usize::try_from(credit).unwrap_or(usize::MAX),
        };
        let filled = connection.peer.fill(input, room).ok()?;
        self.received += filled.read;
        Some(filled.bytes())
    }

    /// The socket takes output again.
    fn flush(&mut self) -> Fate {
        let connection = &mut *self.connection;
        let pace = self.limits.write_pace();
        let Ok(progress) = connection.peer.flush(self.context, self.token, pace) else {
            return Fate::Close;
        };
        self.written += progress.sent;
        self.stalled &= !progress.is_enough;
        let is_held = connection.exchange.is_held();
        if connection.exchange.phase == Phase::Head {
            return self.rest(false);
        }
        match progress.left {
            Flushed::All if is_held && connection.exchange.outgoing.is_open() => {
                let (exchange, tag) = self.exchange_id();
                self.call(|context, app, reply| app.drained(context, exchange, tag, reply))
            }
            // Answers to requests before the held one, whose deadline is the app's.
            _ if is_held && !connection.exchange.outgoing.is_open() => self.advance(),
            Flushed::All => self.resume(),
            Flushed::Blocked | Flushed::More => {
                if progress.is_enough {
                    self.context.arm(self.token, self.limits.write_timeout);
                }
                // The same readiness may have brought a piece of a streamed body.
                self.advance()
            }
        }
    }

    /// The body of a request has not come within the time that it had when the deadline was set.
    fn body_late(&mut self) -> Fate {
        match self.body_time_left() {
            Some(left) if !left.is_zero() => {
                self.context.arm(self.token, left);
                Fate::Keep
            }
            _ => self.time_out(),
        }
    }

    /// The request does not come to its end in time.
    fn time_out(&mut self) -> Fate {
        let connection = &mut *self.connection;
        if connection.exchange.phase == Phase::Head {
            connection.exchange.framing = Framing::default();
        }
        let is_answered = connection
            .incoming
            .as_ref()
            .is_some_and(|incoming| matches!(incoming.taking, Taking::Discard { .. }));
        if is_answered {
            return Fate::Close;
        }
        self.give_up_body(408)
    }

    /// Answers a request that has not come to its end by an error, with which the connection ends.
    fn give_up_body(&mut self, status: u16) -> Fate {
        let stop = self.fail_held(status);
        let output = self.context.take_output();
        self.end(stop, output)
    }
}

impl<A> Visit<'_, A> {
    /// Notes what waits for the socket now.
    pub(super) fn account(&mut self) {
        if let Some(output) = &self.accounts.output {
            let stream = &mut self.connection.peer.stream;
            stream.account(output, self.token, self.context.tick());
        }
    }

    /// The time that is left to a client for a body which is wanted, where it is bounded here: none
    /// where the client is late.
    pub(super) fn body_time_left(&self) -> Option<Duration> {
        let incoming = self.connection.incoming.as_deref()?;
        let is_wanted = match &incoming.taking {
            Taking::Collect { .. } => true,
            Taking::Stream {
                credit, is_awaited, ..
            } => *credit > 0 && *is_awaited && self.waits.bounds_held,
            Taking::Discard { .. } => false,
        };
        is_wanted.then(|| incoming.pace.left(self.context.now()))
    }

    /// The last answer is given, be it out or not: ends the connection behind it.
    pub(super) fn finish(&mut self) -> Fate {
        let connection = &mut *self.connection;
        connection.exchange.phase = Phase::Idle;
        connection.finished = true;
        connection.peer.drop_tail();
        connection.peer.set_unread();
        self.rest(true)
    }

    /// Goes on in the next turn behind a response that is out, whose successors were not read yet.
    pub(super) fn resume(&mut self) -> Fate {
        self.resume_by(Context::again)
    }

    /// A request waits for its turn, and nothing was done before it in this one: it is visited in
    /// the next one, before those of connections that have had theirs.
    pub(super) fn wait_for_turn(&mut self) -> Fate {
        self.resume_by(Context::again_in_place)
    }

    fn resume_by(&mut self, again: fn(&mut Context, Token, Readiness)) -> Fate {
        let connection = &mut *self.connection;
        let goes_on = connection.peer.stream.is_flushed() && !connection.finished;
        if goes_on && connection.has_input() {
            self.receive(true);
            again(self.context, self.token, Readiness::default());
            return Fate::Keep;
        }
        self.rest(true)
    }

    /// Output is left: waits for the socket to take it, or for its share of the next turn.
    pub(super) fn go_on_writing(&mut self) {
        if !self.stalled && self.connection.exchange.phase != Phase::Head {
            self.context.arm(self.token, self.limits.write_timeout);
        }
        if self.connection.peer.stream.flushed() == Flushed::More {
            self.context.again(self.token, Readiness::WRITABLE);
        }
    }

    /// All input that is here was used as far as it goes: decides what the connection waits for.
    ///
    /// `served` says that a request was answered since the deadline was set.
    pub(super) fn rest(&mut self, served: bool) -> Fate {
        let connection = &mut *self.connection;
        if !connection.peer.stream.is_flushed() {
            // A head is waited for once all responses are out: what is left is of TLS, and a client
            // that asks for it gets no more time for its head.
            if served || !connection.waits_for_head() {
                connection.exchange.phase = Phase::Writing;
            }
            self.go_on_writing();
            return Fate::Keep;
        }
        if connection.finished {
            return self.linger();
        }
        // What has come of a request may be for another process.
        let leaves = self.leaves() && self.connection.peer.has_tail();
        if self.connection.peer.is_at_end() && !leaves {
            // Between two requests, or within one whose answer is not awaited.
            self.connection.peer.stream.close_notify();
            return Fate::Close;
        }
        self.receive(served);
        if self.connection.peer.is_unread() {
            self.context.again(self.token, Readiness::default());
        } else if self.ends() && self.connection.exchange.phase == Phase::Idle {
            if self.connection.exchange.sequence > 0 {
                self.connection.peer.stream.close_notify();
                return Fate::Close;
            }
            self.context.arm(self.token, FIRST_REQUEST_TIMEOUT);
        }
        Fate::Keep
    }

    /// Returns true if the connection goes on in another process.
    pub(super) fn leaves(&self) -> bool {
        self.leaving.takes(&self.connection.peer.stream)
    }

    /// Returns true if the connection ends with its next answer.
    pub(super) fn ends(&self) -> bool {
        self.draining || (self.leaving != Leaving::No && !self.leaves())
    }

    /// Waits for the peer. A deadline runs from the beginning of what it bounds: more bytes of the
    /// same head or body do not move it.
    fn receive(&mut self, served: bool) {
        let phase = self.connection.receiving();
        if phase != self.connection.exchange.phase || served {
            self.connection.exchange.phase = phase;
            let timeout = match phase {
                Phase::Body => self.body_time_left().unwrap_or(self.limits.body_timeout),
                Phase::Head => self.header_timeout(),
                _ => self.limits.idle_timeout,
            };
            self.context.arm(self.token, timeout);
        }
    }

    /// A server that ends waits for no head as long as it else would.
    fn header_timeout(&self) -> Duration {
        let timeout = self.limits.header_timeout;
        if self.ends() {
            timeout.min(LAST_HEAD_TIMEOUT)
        } else {
            timeout
        }
    }

    /// Closes after the last response; at once if the peer sends no more.
    fn linger(&mut self) -> Fate {
        if !self.connection.peer.linger(self.context, self.token) {
            return Fate::Close;
        }
        self.connection.exchange.phase = Phase::Lingering;
        Fate::Keep
    }

    /// Reads what a lingering peer still sends.
    fn discard(&mut self) -> Fate {
        if self.connection.peer.discard(self.context, self.token) {
            Fate::Keep
        } else {
            Fate::Close
        }
    }
}
