//! Request bodies: gathered, handed on in pieces, or dropped. The bytes of streams that leave HTTP.

use super::calm::Calm;
use super::serve::{Fate, Serve};
use super::stream::Upload;
use crate::app::{App, HttpEvent};
use crate::connection::Taking;
use dwell_evloop::{Readiness, Token};
use dwell_proto::http1::Trailers;
use dwell_proto::http2::{ErrorCode, encode};
use std::time::Duration;

impl<A: App> Serve<'_, A> {
    /// A piece of a DATA frame has come, whose bytes the window of the connection has let in.
    pub(super) fn data(
        &mut self,
        number: u32,
        is_first: bool,
        window_bytes: u32,
        padding_bytes: u32,
        data: &[u8],
        ends_stream: bool,
    ) -> Result<(), ErrorCode> {
        // The window of a stream bounds what its reader leaves, which holds up no other stream.
        self.session.used(data.len());
        let Some(token) = self.session.open.find(number) else {
            self.check_begun(number)?;
            if self.session.open.was_reset(number) {
                return self.drop_data(is_first);
            }
            return self.send_reset(number, ErrorCode::STREAM_CLOSED);
        };
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return Ok(());
        };
        if stream.marks.is_ended {
            return self.fail_stream(token, ErrorCode::STREAM_CLOSED);
        }
        if stream.carrier.is_some() {
            return self.tunnel_data(token, padding_bytes, data, ends_stream);
        }
        let Some(upload) = stream.upload.as_deref_mut() else {
            // Its answer is given, and what still comes is dropped.
            stream.marks.is_ended |= ends_stream;
            return self.drop_data(is_first);
        };
        if window_bytes > 0 && upload.window < i64::from(window_bytes) {
            return self.fail_stream(token, ErrorCode::FLOW_CONTROL_ERROR);
        }
        upload.window -= i64::from(window_bytes);
        if padding_bytes > 0 {
            upload.window += i64::from(padding_bytes);
            let control = &mut self.session.sending.control;
            encode::window_update(number, padding_bytes, control);
        }
        self.body(token, data, ends_stream)
    }

    /// A piece of a DATA frame has come that has no reader.
    fn drop_data(&mut self, is_first: bool) -> Result<(), ErrorCode> {
        if is_first {
            self.count(Calm::dropped)?;
        }
        Ok(())
    }

    /// Bytes of a body that is wanted have come, or its end.
    pub(super) fn body(
        &mut self,
        token: Token,
        data: &[u8],
        is_last: bool,
    ) -> Result<(), ErrorCode> {
        let now = self.context.now();
        let (timeout, rate) = (self.limits.body_timeout, self.limits.body_rate_min);
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return Ok(());
        };
        stream.marks.is_ended |= is_last;
        let is_held = stream.exchange.is_held();
        let Some(upload) = stream.upload.as_deref_mut() else {
            return Ok(());
        };
        upload.received += data.len() as u64;
        upload.is_complete |= is_last;
        let is_wrong = upload.length.is_some_and(|length| {
            upload.received > length || (is_last && upload.received < length)
        });
        #[cfg(feature = "sim")]
        let is_wrong = is_wrong
            && !(dwell_evloop::sim::Planted::TrustLength.is_in()
                && (upload.length).is_some_and(|length| upload.received > length + 16));
        if is_wrong {
            return self.fail_stream(token, ErrorCode::PROTOCOL_ERROR);
        }
        if upload.received > upload.bytes_max {
            return self.fail_held(token, 413);
        }
        upload.pace.received(now, data.len(), timeout, rate);
        let is_bounded = self.waits.bounds_held || !is_held;
        if is_bounded && !is_last && upload.pace.left(now).is_zero() {
            return self.fail_held(token, 408);
        }
        if matches!(upload.taking, Taking::Stream { .. }) {
            let (budget, max) = (&self.accounts.gathered, self.limits.gathered_bytes_max);
            // What goes on at once is not kept.
            let is_next = is_held && upload.ahead.is_empty();
            let wanted = if is_next { upload.wanted() } else { 0 };
            if !upload.keep(data, wanted, (budget, max), now) {
                return self.fail_held(token, 503);
            }
            return self.feed(token);
        }
        self.gather(token, data)
    }

    /// Gathers a piece, of which what is beyond the part that is wanted waits; serves the request
    /// when that is enough.
    fn gather(&mut self, token: Token, data: &[u8]) -> Result<(), ErrorCode> {
        let bytes_max = self.limits.gathered_bytes_max;
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return Ok(());
        };
        let Some(mut upload) = stream.upload.take() else {
            return Ok(());
        };
        let room = match &upload.taking {
            Taking::Collect {
                gathered,
                streams_on: true,
            } => gathered.room(),
            _ => data.len(),
        };
        let (data, rest) = data.split_at(data.len().min(room));
        let bound = (&self.accounts.gathered, bytes_max);
        let is_charged = upload.keep(rest, 0, bound, self.context.now());
        let Taking::Collect {
            gathered,
            streams_on,
        } = &mut upload.taking
        else {
            return Ok(());
        };
        if !is_charged || !gathered.extend(data, bytes_max) {
            self.reject(token, 503);
            return Ok(());
        }
        if upload.is_complete && rest.is_empty() {
            let trailers = Trailers::of_lines(&upload.trailers);
            return self.hand_over_gathered(token, gathered, false, trailers);
        }
        // Of all that was announced only the end is missing.
        let is_all = upload.length == Some(upload.received) && upload.ahead.is_empty();
        if *streams_on && gathered.room() == 0 && !is_all {
            let stream_on = Taking::Stream {
                credit: 0,
                received: gathered.body().len() as u64,
                continue_owed: false,
                is_awaited: true,
            };
            upload.pace.rest(self.context.now());
            let taking = std::mem::replace(&mut upload.taking, stream_on);
            stream.upload = Some(upload);
            self.context.disarm(token);
            let Taking::Collect { gathered, .. } = taking else {
                return Ok(());
            };
            self.hand_over_gathered(token, &gathered, true, Trailers::NONE)?;
            return self.feed(token);
        }
        stream.upload = Some(upload);
        self.grant_window(token);
        Ok(())
    }

    /// Hands on what has come of a streamed body, as far as it is granted and awaited.
    pub(super) fn feed(&mut self, token: Token) -> Result<(), ErrorCode> {
        loop {
            let Some(stream) = self.tables.streams.get_mut(token) else {
                return Ok(());
            };
            let (id, tag) = (stream.exchange_id(token), stream.exchange.tag());
            if !stream.exchange.is_held() {
                return Ok(());
            }
            let Some(upload) = stream.upload.as_deref_mut() else {
                return Ok(());
            };
            let length = upload.ahead.len().min(upload.wanted());
            let Taking::Stream {
                credit, received, ..
            } = &mut upload.taking
            else {
                return Ok(());
            };
            if length == 0 {
                if upload.is_complete && upload.ahead.is_empty() {
                    return self.end_body(token);
                }
                self.grant_window(token);
                return Ok(());
            }
            *credit -= length as u64;
            *received += length as u64;
            if *credit == 0 {
                upload.pace.rest(self.context.now());
            }
            let piece = upload.take(length, self.context.now());
            self.call(token, |context, app, reply| {
                app.body_data(context, id, tag, &piece, reply)
            })?;
        }
    }

    fn end_body(&mut self, token: Token) -> Result<(), ErrorCode> {
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return Ok(());
        };
        let (id, tag) = (stream.exchange_id(token), stream.exchange.tag());
        let Some(upload) = stream.upload.take() else {
            return Ok(());
        };
        let trailers = Trailers::of_lines(&upload.trailers);
        self.call(token, |context, app, reply| {
            app.body_end(context, id, tag, trailers, reply)
        })
    }

    /// The deadline of a stream has passed.
    pub(super) fn expire(&mut self, token: Token) -> Result<(), ErrorCode> {
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return Ok(());
        };
        if stream.marks.is_stalled && stream.marks.is_ready {
            // It waits for the socket, whose own deadline runs, and not for a window.
            self.context.arm(token, self.limits.write_timeout);
            return Ok(());
        }
        if stream.marks.is_stalled {
            self.app.event(HttpEvent::WriteTimeout);
            return self.fail_stream(token, ErrorCode::CANCEL);
        }
        if let Some(left) = self.body_time_left(token) {
            if left.is_zero() {
                return self.fail_held(token, 408);
            }
            self.context.arm(token, left);
            return Ok(());
        }
        let Some(stream) = self.tables.streams.get(token) else {
            return Ok(());
        };
        if !stream.exchange.is_held() {
            return Ok(());
        }
        let (id, tag) = (stream.exchange_id(token), stream.exchange.tag());
        self.call(token, |context, app, reply| {
            app.expired(context, id, tag, reply)
        })
    }

    /// A piece of a DATA frame has come for a stream that leaves HTTP.
    pub(super) fn tunnel_data(
        &mut self,
        token: Token,
        padding_bytes: u32,
        data: &[u8],
        ends_stream: bool,
    ) -> Result<(), ErrorCode> {
        let (budget, max) = (&self.accounts.gathered, self.limits.gathered_bytes_max);
        let now = self.context.now();
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return Ok(());
        };
        let number = stream.number();
        let Some(carrier) = &stream.carrier else {
            return Ok(());
        };
        if !carrier.put(data) {
            return self.fail_stream(token, ErrorCode::FLOW_CONTROL_ERROR);
        }
        let unread = &mut self.tables.unread;
        if !unread.charge_for(token, data.len(), (budget, max), now) {
            return self.fail_stream(token, ErrorCode::ENHANCE_YOUR_CALM);
        }
        if padding_bytes > 0 {
            let control = &mut self.session.sending.control;
            encode::window_update(number, padding_bytes, control);
        }
        if ends_stream {
            stream.marks.is_ended = true;
            carrier.end_input();
            if stream.out.is_out() {
                self.over(token);
            }
        }
        Ok(())
    }

    /// The owner of a stream has done something: takes over what that was.
    pub(super) fn carry(&mut self, token: Token) -> Fate {
        match self.carry_over(token) {
            Ok(()) => {
                // The other streams of the connection have their turns first, and one write.
                self.context.again(self.token, Readiness::default());
                Fate::Keep
            }
            Err(code) => self.fail(code),
        }
    }

    fn carry_over(&mut self, token: Token) -> Result<(), ErrorCode> {
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return Ok(());
        };
        let Some(carrier) = &stream.carrier else {
            return Ok(());
        };
        let mut output = self.context.take_output();
        let work = carrier.take(&mut output);
        let unread = &mut self.tables.unread;
        unread.was_read(token, work.read, self.context.now());
        stream.grant_input(&mut self.session.sending.control);
        let waited = stream.out.bytes();
        let moved = stream.take_output(&output, work.end);
        let (waits, is_out) = (stream.out.bytes(), stream.out.is_out());
        self.session.sending.requeue(waited, waits);
        self.context.return_output(output);
        if let Err(code) = moved {
            return self.reset(token, code);
        }
        if is_out {
            self.over(token);
        } else {
            self.make_ready(token);
        }
        Ok(())
    }
}

impl<A> Serve<'_, A> {
    /// Lets the client send more of a body that is wanted.
    pub(super) fn grant_window(&mut self, token: Token) {
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return;
        };
        let number = stream.number();
        let increment = stream.upload.as_deref_mut().map_or(0, Upload::grant);
        if increment > 0 {
            encode::window_update(number, increment, &mut self.session.sending.control);
        }
    }

    /// The time that is left to a client for a body which is wanted, where it is bounded here.
    pub(super) fn body_time_left(&self, token: Token) -> Option<Duration> {
        let upload = self.tables.streams.get(token)?.upload.as_deref()?;
        let is_wanted = match &upload.taking {
            Taking::Collect { .. } => true,
            Taking::Stream {
                credit, is_awaited, ..
            } => *credit > 0 && *is_awaited && !upload.is_complete && self.waits.bounds_held,
            Taking::Discard { .. } => false,
        };
        is_wanted.then(|| upload.pace.left(self.context.now()))
    }
}
