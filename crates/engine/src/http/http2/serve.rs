//! One connection at work: from readiness to frames, and from answers to output.

use super::Tables;
use super::session::{Going, LEAVING, Session};
use super::stream::Stream;
use super::waiting::Wait;
use crate::app::{App, HttpEvent};
use crate::connection::{Connection, Note};
use crate::date::Start;
use crate::http::{Accounts, Origins};
use crate::limits::{Limits, Waits};
use dwell_evloop::{Context, Flushed, Readiness, Token};
use dwell_proto::http2::ErrorCode;
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

/// The end of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ends {
    No,
    Here,
    /// Another process has its connections, and what is to be answered from now on.
    Elsewhere,
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
    pub(super) ends: Ends,
    pub(super) accounts: &'v Accounts,
    pub(super) origins: Origins<'v>,
    /// A request was handed over in this visit.
    pub(super) begun: bool,
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

    /// Tells the app how many streams are open; false where it does not want the newest.
    pub(super) fn tell_open(&mut self) -> bool {
        let open = self.session.open.tell();
        self.app
            .streams_open(&mut self.connection.peer.stream, open)
    }

    /// Ends a visit: tells the app of streams that have ended.
    pub(super) fn visited(&mut self, fate: Fate) -> Fate {
        if self.session.open.are_fewer() {
            self.tell_open();
        }
        fate
    }

    /// Goes on as far as input and output allow; false where the socket has failed.
    fn advance(&mut self, received: &mut usize) -> Result<bool, ErrorCode> {
        self.attend()?;
        let peer = &self.connection.peer;
        if !peer.stream.is_flushed() || !self.resume_put_off()? {
            return Ok(true);
        }
        let peer = &self.connection.peer;
        if !(peer.is_unread() || peer.has_tail()) {
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
        if self.session.put_off.is_some() {
            self.wait_for_turn();
        } else if self.connection.peer.is_unread() {
            self.context.again(self.token, Readiness::default());
        }
        self.attend()?;
        Ok(filled.is_ok())
    }

    /// Visits a request again that was put off; false if it waits on.
    fn resume_put_off(&mut self) -> Result<bool, ErrorCode> {
        let Some(put_off) = self.session.put_off.take() else {
            return Ok(true);
        };
        if self.tables.streams.get(put_off.token).is_some() {
            self.begin(put_off.token, put_off.text, put_off.ends_stream)?;
        }
        let goes_on = self.session.put_off.is_none();
        if !goes_on {
            self.wait_for_turn();
        }
        Ok(goes_on)
    }

    /// A request is put off to the next turn, as one of HTTP/1.1 is.
    fn wait_for_turn(&mut self) {
        let again = if self.begun {
            Context::again
        } else {
            Context::again_in_place
        };
        again(self.context, self.token, Readiness::default());
    }

    /// Drops the body of a request, as others need the room.
    pub(super) fn shed(&mut self, token: Token) -> Fate {
        let stream = self.tables.streams.get(token);
        let ended = if stream.is_some_and(Stream::is_gathered) {
            self.fail_held(token, 503)
        } else {
            self.fail_stream(token, ErrorCode::ENHANCE_YOUR_CALM)
        };
        match ended {
            Ok(()) => self.rest(),
            Err(code) => self.fail(code),
        }
    }

    /// Ends a stream whose client takes too little of its answer.
    pub(super) fn cut(&mut self, token: Token) -> Fate {
        match self.fail_stream(token, ErrorCode::ENHANCE_YOUR_CALM) {
            Ok(()) => self.rest(),
            Err(code) => self.fail(code),
        }
    }

    /// Tells the app what could not be told where it was noticed.
    fn attend(&mut self) -> Result<(), ErrorCode> {
        if !std::mem::take(&mut self.session.open.attends) {
            return Ok(());
        }
        for token in self.session.open.tokens().collect::<Vec<_>>() {
            let stream = self.tables.streams.get_mut(token);
            let Some(stream) = stream.filter(|stream| stream.marks.is_marked) else {
                continue;
            };
            stream.marks.is_marked = false;
            if stream.is_doomed() {
                let code = stream.doom;
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
        self.session.go_away(self.session.open.last, code);
        self.tables.figures.go_aways_sent.count(code);
        // It goes behind what waits for the socket.
        if self.write_control() {
            Fate::Finish
        } else {
            Fate::Close
        }
    }

    /// The deadline of the connection has passed.
    pub(super) fn expired(&mut self) -> Fate {
        match self.session.waiting.current() {
            Wait::Streams => Fate::Keep,
            Wait::Idle => self.fail(ErrorCode::NO_ERROR),
            Wait::Block => {
                self.tell_rejected(408);
                self.fail(ErrorCode::ENHANCE_YOUR_CALM)
            }
            Wait::Write => {
                self.app.event(HttpEvent::WriteTimeout);
                Fate::Close
            }
            Wait::Leave => {
                self.left();
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
        self.leave();
        if self.ends == Ends::Elsewhere {
            self.left();
        }
        if self.ends != Ends::No {
            self.hurry();
        }
        self.rest()
    }

    /// Tells the client to begin nothing more.
    pub(super) fn leave(&mut self) {
        if self.session.leave() {
            self.tables.figures.go_aways_sent.count(ErrorCode::NO_ERROR);
        }
    }

    /// Nothing that begins later is answered: the client has had the time to read that, or another
    /// process answers it.
    fn left(&mut self) {
        if self.session.left() {
            self.tables.figures.go_aways_sent.count(ErrorCode::NO_ERROR);
        }
    }

    /// The client has read that the connection ends.
    pub(super) fn pong(&mut self, data: [u8; 8]) -> bool {
        let is_it = data == LEAVING && self.session.open.going == Going::Announced;
        if is_it {
            self.left();
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
        let is_waited_for = self.session.waiting.current() == Wait::Write;
        if is_waited_for && (progress.left == Flushed::All || progress.is_enough) {
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
        if self.session.open.going == Going::Last && self.session.open.is_empty() && is_flushed {
            return Fate::Finish;
        }
        let wait = if self.session.section.is_some() {
            Wait::Block
        } else if self.session.open.going == Going::Announced {
            Wait::Leave
        } else if self.session.open.is_empty() {
            Wait::Idle
        } else {
            Wait::Streams
        };
        // An idle connection has its time from its last answer on, and each field block its own.
        let is_anew = self.session.takes_new_block() || wait == Wait::Idle && self.served;
        let now = self.context.tick();
        let waiting = &mut self.session.waiting;
        if let Some(passed) = waiting.turn(wait, is_flushed, is_anew, now) {
            let timeout = match waiting.current() {
                Wait::Streams => {
                    self.context.disarm(self.token);
                    return Fate::Keep;
                }
                Wait::Idle => self.idle_timeout(),
                Wait::Block => self.limits.header_timeout,
                Wait::Write => self.limits.write_timeout,
                Wait::Leave => LEAVE_TIMEOUT,
            };
            self.context.arm(self.token, timeout.saturating_sub(passed));
        }
        Fate::Keep
    }

    /// The time for the next request.
    fn idle_timeout(&self) -> Duration {
        let first = self.waits.first_request_timeout;
        let is_first = self.session.open.requests == 0;
        let first = first.filter(|_| is_first);
        first.unwrap_or(self.limits.idle_timeout)
    }

    /// Notes what waits for the socket now.
    fn account(&mut self) {
        if let Some(output) = &self.accounts.output {
            let (stream, now) = (&mut self.connection.peer.stream, self.context.tick());
            stream.account(output, self.token, now);
            if self.session.sending.queued == 0 {
                return;
            }
            for token in self.session.open.tokens() {
                if let Some(stream) = self.tables.streams.get_mut(token) {
                    stream.out.account(output, token, now);
                }
            }
        }
    }
}
