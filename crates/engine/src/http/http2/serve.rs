//! One connection at work: from readiness to frames, and from answers to output.

use super::Tables;
use super::session::{Going, LEAVING, Session, Wait};
use crate::app::{App, HttpEvent};
use crate::connection::{Connection, Note};
use crate::date::Start;
use crate::http::{Accounts, Peers};
use crate::limits::{Limits, Waits};
use dwell_evloop::{Context, Flushed, Readiness, Token};
use dwell_proto::http2::{ErrorCode, encode};
use std::time::Duration;

/// Time for a client to have read that the connection ends.
const LEAVE_TIMEOUT: Duration = Duration::from_secs(1);

/// The fate of a connection after a visit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[must_use]
pub(super) enum Fate {
    Keep,
    /// At once.
    Close,
    /// Once its output is out.
    Finish,
}

/// One connection with all that acting on it needs, looked up once for an event.
pub(super) struct Serve<'v, A> {
    pub(super) context: &'v mut Context,
    pub(super) app: &'v mut A,
    pub(super) connection: &'v mut Connection,
    pub(super) token: Token,
    pub(super) session: &'v mut Session,
    pub(super) tables: &'v mut Tables,
    pub(super) limits: &'v Limits,
    pub(super) start: Start<'v>,
    pub(super) waits: Waits,
    pub(super) accounts: &'v Accounts,
    pub(super) peers: Option<&'v Peers>,
    /// Bytes that were written in this visit.
    pub(super) written: u64,
    /// A stream has ended in this visit.
    pub(super) served: bool,
}

impl<A: App> Serve<'_, A> {
    /// The socket is ready, or the turn of the connection has come again.
    pub(super) fn ready(&mut self, readiness: Readiness) -> Fate {
        let mut received = 0;
        let fate = self.ready_now(readiness, &mut received);
        let stream = &self.connection.peer.stream;
        if received > 0 {
            self.app
                .received(self.context, self.token, stream, received);
        }
        if self.written > 0 {
            self.app.written(self.context, self.token, stream);
        }
        self.account();
        fate
    }

    fn ready_now(&mut self, readiness: Readiness, received: &mut usize) -> Fate {
        self.connection.peer.observe(readiness);
        if readiness.is_hangup() {
            return Fate::Close;
        }
        if readiness.is_writable() && !self.connection.peer.stream.is_flushed() && !self.flush() {
            return Fate::Close;
        }
        match self.advance(received) {
            Ok(true) => self.rest(),
            Ok(false) => Fate::Close,
            Err(code) => self.fail(code),
        }
    }

    /// Goes on as far as input and output allow; false where the socket has failed.
    fn advance(&mut self, received: &mut usize) -> Result<bool, ErrorCode> {
        self.attend()?;
        let peer = &self.connection.peer;
        if !peer.stream.is_flushed() || !(peer.is_unread() || peer.has_tail()) {
            return Ok(true);
        }
        let mut input = self.context.take_input();
        let filled = self.connection.peer.fill(&mut input, usize::MAX);
        let taken = match &filled {
            Ok(filled) => self.take_input(&input[..filled.bytes()]),
            Err(_) => Ok(0),
        };
        if let (Ok(filled), Ok(used)) = (&filled, &taken) {
            *received += filled.read;
            let input = &input[..filled.bytes()];
            self.connection.peer.keep(input, *used, Note::default());
        }
        self.context.return_input(input);
        taken?;
        if self.connection.peer.is_unread() {
            self.context.again(self.token, Readiness::default());
        }
        self.attend()?;
        Ok(filled.is_ok())
    }

    /// Tells the app what could not be told where it was noticed.
    fn attend(&mut self) -> Result<(), ErrorCode> {
        for token in std::mem::take(&mut self.session.attention) {
            let Some(stream) = self.tables.streams.get_mut(token) else {
                continue;
            };
            if let Some(code) = stream.doom.take() {
                self.fail_stream(token, code)?;
                continue;
            }
            if std::mem::take(&mut stream.marks.is_drained) && stream.exchange.outgoing.is_open() {
                let (id, tag) = (stream.exchange_id(token), stream.exchange.tag());
                self.call(token, |context, app, reply| {
                    app.drained(context, id, tag, reply)
                })?;
            }
            self.feed(token)?;
        }
        Ok(())
    }

    /// Ends the connection because of an error of its client.
    pub(super) fn fail(&mut self, code: ErrorCode) -> Fate {
        encode::go_away(
            self.session.open.last,
            code,
            &mut self.session.sending.control,
        );
        if !self.connection.peer.stream.is_flushed() || self.write_control() {
            Fate::Finish
        } else {
            Fate::Close
        }
    }

    /// The deadline of the connection has passed.
    pub(super) fn expired(&mut self) -> Fate {
        match self.session.wait {
            Wait::Streams => Fate::Keep,
            Wait::Idle => self.fail(ErrorCode::NO_ERROR),
            Wait::Block => {
                self.app.event(HttpEvent::Rejected(408));
                self.fail(ErrorCode::ENHANCE_YOUR_CALM)
            }
            Wait::Write => {
                self.app.event(HttpEvent::WriteTimeout);
                Fate::Close
            }
            Wait::Leave => {
                self.session.left();
                self.rest()
            }
        }
    }

    /// The deadline of a stream has passed.
    pub(super) fn stream_expired(&mut self, token: Token) -> Fate {
        match self.expire(token) {
            Ok(()) => self.rest(),
            Err(code) => self.fail(code),
        }
    }
}

impl<A> Serve<'_, A> {
    /// The server ends, or the connection has had its requests.
    pub(super) fn drain(&mut self) -> Fate {
        self.session.leave();
        self.rest()
    }

    /// The client has read that the connection ends.
    pub(super) fn pong(&mut self, data: [u8; 8]) -> bool {
        let is_it = data == LEAVING && self.session.going == Going::Announced;
        if is_it {
            self.session.left();
        }
        is_it
    }

    /// The socket takes output again; false where it has failed.
    fn flush(&mut self) -> bool {
        let peer = &mut self.connection.peer;
        let progress = peer.flush(self.context, self.token, self.limits.write_pace());
        let Ok(progress) = progress else {
            return false;
        };
        self.written += progress.sent;
        // What is written behind all that has waited begins a wait of its own.
        if progress.left == Flushed::All || progress.is_enough {
            self.context.arm(self.token, self.limits.write_timeout);
        }
        true
    }

    /// All that is here was used: writes what there is room for, and decides what is waited for.
    pub(super) fn rest(&mut self) -> Fate {
        if !self.write() {
            return Fate::Close;
        }
        let peer = &self.connection.peer;
        let is_flushed = peer.stream.is_flushed();
        if peer.is_at_end() && is_flushed {
            return Fate::Finish;
        }
        if self.session.going == Going::Last && self.session.open.is_empty() && is_flushed {
            return Fate::Finish;
        }
        let wait = if !is_flushed {
            Wait::Write
        } else if self.session.section.is_some() {
            Wait::Block
        } else if self.session.going == Going::Announced {
            Wait::Leave
        } else if self.session.open.is_empty() {
            Wait::Idle
        } else {
            Wait::Streams
        };
        let begins = wait != std::mem::replace(&mut self.session.wait, wait);
        // An idle connection has its time from its last answer on.
        if begins || (wait == Wait::Idle && self.served) {
            match wait {
                Wait::Streams => self.context.disarm(self.token),
                Wait::Idle => self.context.arm(self.token, self.limits.idle_timeout),
                Wait::Block => self.context.arm(self.token, self.limits.header_timeout),
                Wait::Write => self.context.arm(self.token, self.limits.write_timeout),
                Wait::Leave => self.context.arm(self.token, LEAVE_TIMEOUT),
            }
        }
        Fate::Keep
    }

    /// Notes what waits for the socket now.
    fn account(&mut self) {
        if let Some(output) = &self.accounts.output {
            let stream = &mut self.connection.peer.stream;
            stream.account(output, self.token, self.context.tick());
        }
    }
}
