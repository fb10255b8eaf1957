//! One exchange: the app's callbacks with the place for the answer, and what follows from them.

use super::serve::Serve;
use super::stream::Way;
use crate::Detached;
use crate::app::{App, HttpEvent, Outcome};
use crate::connection::{Phase, Unread};
use crate::limits::STREAM_OUTPUT_SHARE;
use crate::reply::{Framed, Outgoing, Reply};
use dwell_evloop::{Context, Token};
use dwell_proto::http2::{ErrorCode, encode, encode_status};
use std::time::Duration;

/// The use that an app has made of its [`Reply`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Given {
    Nothing,
    /// A streaming answer is open.
    Open,
    /// The answer is complete.
    Whole,
    /// The stream is to end by this.
    Reset(ErrorCode),
}

impl<A> Serve<'_, A> {
    /// Lets `make` use the place of the answer; `None` where the stream is gone.
    pub(super) fn with_reply<T>(
        &mut self,
        token: Token,
        make: impl FnOnce(&mut Context, &mut A, &mut Reply<'_>) -> T,
    ) -> Option<(T, Given)> {
        let stream = self.tables.streams.get_mut(token)?;
        let number = stream.number();
        let bytes_max = (self.limits.output_bytes_max / STREAM_OUTPUT_SHARE).max(1);
        let has_unread = stream
            .upload
            .as_ref()
            .is_some_and(|upload| !upload.is_complete);
        let sent = stream.exchange.outgoing.is_open();
        let waited = stream.out.bytes();
        let mut output = self.context.take_output();
        let mut reply = Reply {
            output: &mut output,
            stream: &mut self.connection.peer.stream,
            origin: self.origins.of(self.token),
            start: self.start,
            framing: stream.exchange.framing,
            outgoing: &mut stream.exchange.outgoing,
            output_bytes_max: bytes_max,
            unread: if has_unread {
                Unread::Skippable
            } else {
                Unread::Nothing
            },
            granted: 0,
            awaits_body: None,
            sent,
            written: 0,
            failed: false,
            gathers: false,
            framed: Some(Framed {
                stream: number,
                out: &mut stream.out,
                connects: stream.carrier.is_some(),
                reset: None,
                is_awaited: false,
                work: &mut self.session.work,
            }),
        };
        let result = make(self.context, self.app, &mut reply);
        let sent = reply.sent;
        let (granted, awaits) = (reply.granted, reply.awaits_body);
        let framed = reply.framed;
        let is_awaited = framed.as_ref().is_some_and(|framed| framed.is_awaited);
        let reset = framed.and_then(|framed| framed.reset);
        self.context.return_output(output);
        let waits = stream.out.bytes();
        self.session.sending.requeue(waited, waits);
        stream.marks.is_blocked |= waits > bytes_max;
        // What waits goes out by itself later, and an app that waits for that is told.
        stream.marks.is_blocked |= is_awaited && (waits > 0 || stream.out.has_body());
        let given = match reset {
            Some(code) => Given::Reset(code),
            None if !sent => Given::Nothing,
            None if stream.exchange.outgoing.is_open() => Given::Open,
            None => Given::Whole,
        };
        self.want(token, granted, awaits, given == Given::Nothing);
        self.make_ready(token);
        Some((result, given))
    }

    /// Takes over the app's grants for a streamed body.
    fn want(&mut self, token: Token, granted: u64, awaits: Option<bool>, is_unanswered: bool) {
        if granted == 0 && awaits.is_none() {
            return;
        }
        let now = self.context.now();
        let was_timed = self.body_time_left(token).is_some();
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return;
        };
        let is_stalled = stream.marks.is_stalled;
        let Some(upload) = stream.upload.as_deref_mut() else {
            return;
        };
        let Some(continues) = upload.taking.grant(granted, awaits, &mut upload.pace, now) else {
            return;
        };
        let has_more = !upload.ahead.is_empty() || upload.is_complete;
        if continues && is_unanswered {
            self.send_continue(token);
        }
        if has_more {
            self.mark(token);
        }
        self.grant_window(token);
        if is_stalled {
            return;
        }
        match self.body_time_left(token) {
            Some(left) => self.context.arm(token, left),
            None if was_timed => self.context.disarm(token),
            None => {}
        }
    }

    /// Sends the interim response for a client that waits with its body.
    pub(super) fn send_continue(&mut self, token: Token) {
        if let Some(stream) = self.tables.streams.get_mut(token) {
            let mut block = Vec::new();
            encode_status(100, &mut block);
            let waited = stream.out.bytes();
            stream
                .out
                .push_head(stream.exchange.sequence, &block, false);
            let sending = &mut self.session.sending;
            sending.requeue(waited, stream.out.bytes());
        }
        self.make_ready(token);
    }

    /// Holds an exchange with the app's tag and timeout.
    pub(super) fn hold(&mut self, token: Token, tag: u64, timeout: Option<Duration>) {
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return;
        };
        stream.exchange.hold(tag);
        if stream.marks.is_stalled {
            return;
        }
        if let Some(left) = self.body_time_left(token) {
            self.context.arm(token, left);
            return;
        }
        match timeout {
            Some(timeout) => self.context.arm(token, timeout),
            None => self.context.disarm(token),
        }
    }

    /// The answer is given: what is left of the request is not wanted.
    pub(super) fn complete(&mut self, token: Token) {
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return;
        };
        stream.exchange.phase = Phase::Writing;
        stream.upload = None;
        if stream.carrier.take().is_some() {
            self.tables.unread.remove(token);
            self.tables.leaves.offered -= usize::from(stream.marks.way == Way::In);
        }
        if !stream.marks.is_stalled {
            self.context.disarm(token);
        }
        self.session.calm.answered();
        self.make_ready(token);
    }

    /// Ends a stream, of which the app is not told.
    pub(super) fn reset(&mut self, token: Token, code: ErrorCode) -> Result<(), ErrorCode> {
        match self.remove(token) {
            Some(stream) => self.send_reset(stream.number(), code),
            None => Ok(()),
        }
    }

    /// Resets a stream that is in no table.
    pub(super) fn send_reset(&mut self, number: u32, code: ErrorCode) -> Result<(), ErrorCode> {
        self.write_reset(number, code);
        #[cfg(feature = "sim")]
        if dwell_evloop::sim::Planted::ForgetResets.is_in() {
            return Ok(());
        }
        self.count_reset()
    }

    /// Sends the frame that resets a stream.
    pub(super) fn write_reset(&mut self, number: u32, code: ErrorCode) {
        encode::reset(number, code, &mut self.session.sending.control);
        self.session.open.note_reset(number);
        self.tables.figures.resets_sent.count(code);
    }

    /// Counts a stream that was reset, by either side.
    pub(super) fn count_reset(&mut self) -> Result<(), ErrorCode> {
        let counted = self.session.calm.reset(self.context.tick());
        counted.map_err(|_| ErrorCode::ENHANCE_YOUR_CALM)
    }

    /// The request of a stream asks for it to leave HTTP, and its client may send more already.
    pub(super) fn offer(&mut self, token: Token) {
        let carrier = self.context.carry(token);
        carrier.grant(self.session.receiving.stream_window() as usize);
        if let Some(stream) = self.tables.streams.get_mut(token) {
            if stream.marks.is_ended {
                carrier.end_input();
            }
            stream.carrier = Some(carrier);
            self.tables.leaves.offered += 1;
        }
    }

    /// Takes a stream out of HTTP, whose owner is to write the head of the answer if none was sent.
    pub(super) fn switch(&mut self, token: Token) -> Option<Detached> {
        let stream = self.tables.streams.get_mut(token)?;
        let connection = &self.connection.peer.stream;
        let peer = self.origins.of(self.token).address(connection);
        let local = connection.local_address().ok().flatten();
        let carried = stream.carrier.as_ref()?.stream([peer, local])?;
        stream.exchange.phase = Phase::Writing;
        self.tables.leaves.offered -= 1;
        self.tables.leaves.left += 1;
        let is_answered = stream.exchange.outgoing.is_open();
        stream.exchange.outgoing = Outgoing::None;
        stream.marks.way = if is_answered {
            Way::Out
        } else {
            Way::AwaitsHead
        };
        if !stream.marks.is_stalled {
            self.context.disarm(token);
        }
        self.session.calm.answered();
        stream.give_room(self.session.sending.window.room());
        self.make_ready(token);
        Some(Detached {
            stream: carried,
            input: Vec::new(),
        })
    }
}

impl<A: App> Serve<'_, A> {
    /// Calls the app for an exchange, and acts on what it says.
    pub(super) fn call(
        &mut self,
        token: Token,
        make: impl FnOnce(&mut Context, &mut A, &mut Reply<'_>) -> Outcome,
    ) -> Result<(), ErrorCode> {
        match self.with_reply(token, make) {
            Some((outcome, given)) => self.conclude(token, outcome, given),
            None => Ok(()),
        }
    }

    fn conclude(&mut self, token: Token, outcome: Outcome, given: Given) -> Result<(), ErrorCode> {
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return Ok(());
        };
        let id = stream.exchange_id(token);
        match (outcome, given) {
            (Outcome::Held { tag, timeout }, Given::Nothing | Given::Open) => {
                self.hold(token, tag, timeout);
                return Ok(());
            }
            // Answered and held at once: it is answered, and the hold is over as it begins.
            (Outcome::Held { tag, .. }, _) => self.app.abandoned(self.context, id, tag),
            (Outcome::Detach { tag }, Given::Nothing | Given::Open) if stream.carrier.is_some() => {
                if let Some(detached) = self.switch(token) {
                    self.app.detached(self.context, id, tag, detached);
                }
                return Ok(());
            }
            // A stream has no connection of its own that could leave.
            (Outcome::Detach { tag }, _) => {
                self.app.abandoned(self.context, id, tag);
                return self.reset(token, ErrorCode::HTTP_1_1_REQUIRED);
            }
            (Outcome::Answered | Outcome::Close, _) => {}
        }
        match (outcome, given) {
            (_, Given::Reset(code)) => self.reset(token, code),
            (Outcome::Close, Given::Nothing | Given::Open) => {
                self.reset(token, ErrorCode::INTERNAL_ERROR)
            }
            // An app that says it answered but did not: the client must not wait for nothing.
            (_, Given::Nothing) => {
                self.reject(token, 500);
                Ok(())
            }
            (_, Given::Open) => {
                let ended = self.with_reply(token, |_, _, reply| reply.finish(&[]).is_ok());
                if let Some((_, Given::Reset(code))) = ended {
                    return self.reset(token, code);
                }
                self.complete(token);
                Ok(())
            }
            (_, Given::Whole) => {
                self.complete(token);
                Ok(())
            }
        }
    }

    /// Reports a request that is rejected with this status.
    pub(super) fn tell_rejected(&mut self, status: u16) {
        let listener = self.origins.of(self.token).label();
        self.app.event(HttpEvent::Rejected { status, listener });
    }

    /// Sends an answer of the engine's own.
    pub(super) fn reject(&mut self, token: Token, status: u16) {
        self.tell_rejected(status);
        self.with_reply(token, |_, _, reply| reply.reject(token, status));
        self.complete(token);
    }

    /// Ends an exchange because of its client: calls the app if it is held, and sends the status if
    /// no answer was begun.
    pub(super) fn fail_held(&mut self, token: Token, status: u16) -> Result<(), ErrorCode> {
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return Ok(());
        };
        if !stream.exchange.is_held() {
            self.reject(token, status);
            return Ok(());
        }
        let (id, tag) = (stream.exchange_id(token), stream.exchange.tag());
        let is_begun = stream.exchange.outgoing.is_open();
        stream.exchange.phase = Phase::Body;
        stream.exchange.outgoing = Outgoing::None;
        self.app.abandoned(self.context, id, tag);
        if !is_begun {
            self.reject(token, status);
            return Ok(());
        }
        if status == 408 {
            self.app.event(HttpEvent::BodyTimeout);
        }
        self.reset(token, ErrorCode::CANCEL)
    }

    /// Ends a stream by an error, and tells the app.
    pub(super) fn fail_stream(&mut self, token: Token, code: ErrorCode) -> Result<(), ErrorCode> {
        let number = self
            .tables
            .streams
            .get(token)
            .map(super::stream::Stream::number);
        self.abandon(token);
        match number {
            Some(number) => self.send_reset(number, code),
            None => Ok(()),
        }
    }

    /// Takes a stream out whose client is gone, and tells the app if it owes the answer.
    pub(super) fn abandon(&mut self, token: Token) {
        let Some(stream) = self.remove(token) else {
            return;
        };
        if stream.exchange.is_held() {
            let id = stream.exchange_id(token);
            self.app.abandoned(self.context, id, stream.exchange.tag());
        }
    }
}
