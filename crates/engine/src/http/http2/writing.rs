//! From answers to output: one write for a connection and turn, and streams in turns.

use super::serve::{Ends, Serve};
use super::session::{Going, Session};
use super::stream::{Stream, Way};
use dwell_evloop::{Readiness, Token, WritePace};
use dwell_proto::http2::ErrorCode;
use std::time::Duration;

/// Bytes of its body that a stream writes in its turn.
pub(super) const TURN_BYTES: usize = 16 * 1024;
/// Output of a connection that is gathered in one turn.
const OUTPUT_BYTES_MAX: usize = 64 * 1024;

/// Time for a client to take enough of an answer while its windows are closed.
const STALL_TIMEOUT: Duration = Duration::from_secs(10);
/// The same where the server ends.
const LAST_STALL_TIMEOUT: Duration = Duration::from_secs(2);

impl Session {
    /// Bytes that a stream may write in its turn, or in the rest of it.
    fn turn_bytes(&self, stream: u32) -> usize {
        if self.sending.served == stream && self.open.turn_left > 0 {
            usize::from(self.open.turn_left)
        } else {
            TURN_BYTES
        }
    }
}

/// The state of a stream behind its turn.
enum Turn {
    /// It has more, and room for it.
    Again,
    /// It waits for its window, or for its app.
    Waits,
    /// Its answer is out.
    Over,
    /// Its answer cannot be brought to its end.
    Broken,
}

impl<A> Serve<'_, A> {
    /// Lets a stream have its turn, if it has something to write; what has no room waits for it
    /// from now on.
    pub(super) fn make_ready(&mut self, token: Token) {
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return;
        };
        if stream.marks.is_ready {
            return;
        }
        let sending = &mut self.session.sending;
        let room = stream.window.room().min(sending.window.room());
        if stream.out.can_write(room) {
            stream.marks.is_ready = true;
            sending.ready.push(token);
        } else if stream.out.has_body() {
            self.pace(token);
        } else {
            #[cfg(feature = "sim")]
            if dwell_evloop::sim::Planted::ForgetRoom.is_in() {
                return;
            }
            stream.give_room(sending.window.room());
        }
    }

    /// Has a stream visited in the next visit, when its app can be called.
    pub(super) fn mark(&mut self, token: Token) {
        if let Some(stream) = self.tables.streams.get_mut(token) {
            stream.marks.is_marked = true;
            self.session.open.attends = true;
        }
    }

    /// Lets all streams have their turns that waited for room on the connection, from where the
    /// turns were when there was no more of it.
    pub(super) fn make_all_ready(&mut self) {
        let served = self.session.sending.served;
        let before = served.saturating_sub(u32::from(self.session.open.turn_left > 0));
        for token in self.session.open.tokens_behind(before).collect::<Vec<_>>() {
            self.make_ready(token);
        }
    }

    /// Writes the frames that no window bounds; false where the socket has failed.
    pub(super) fn write_control(&mut self) -> bool {
        let control = std::mem::take(&mut self.session.sending.control);
        self.written += control.len() as u64;
        control.is_empty() || self.connection.peer.stream.write(&control).is_ok()
    }

    /// Writes what there is room for; false where the socket has failed.
    pub(super) fn write(&mut self) -> bool {
        if !self.connection.peer.stream.is_flushed() {
            self.note_blocked();
            return true;
        }
        let mut output = self.context.take_output();
        output.append(&mut std::mem::take(&mut self.session.sending.control));
        let mut ready = std::mem::take(&mut self.session.sending.ready);
        let mut turns = 0;
        while turns < ready.len() && output.len() < OUTPUT_BYTES_MAX {
            self.turn(ready[turns], &mut output);
            turns += 1;
        }
        // Those that have more come behind those that have had no turn.
        ready.drain(..turns);
        ready.append(&mut self.session.sending.ready);
        if !ready.is_empty() {
            self.session.sending.ready = ready;
        }
        // Streams that have ended may have left frames.
        output.append(&mut std::mem::take(&mut self.session.sending.control));
        self.written += output.len() as u64;
        let is_written = output.is_empty() || self.connection.peer.stream.write(&output).is_ok();
        self.context.return_output(output);
        if !self.connection.peer.stream.is_flushed() {
            self.note_blocked();
        } else if !self.session.sending.ready.is_empty() {
            self.context.again(self.token, Readiness::default());
        }
        if self.session.open.attends {
            self.context.again(self.token, Readiness::default());
        }
        is_written
    }

    /// All that is ready waits for the socket.
    fn note_blocked(&mut self) {
        for token in &self.session.sending.ready {
            if let Some(stream) = self.tables.streams.get_mut(*token) {
                stream.marks.is_blocked |= stream.out.has_body();
            }
        }
    }

    fn turn(&mut self, token: Token, output: &mut Vec<u8>) {
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return;
        };
        stream.marks.is_ready = false;
        let turn_bytes = self.session.turn_bytes(stream.number());
        let sending = &mut self.session.sending;
        let room = stream
            .window
            .room()
            .min(sending.window.room())
            .min(turn_bytes);
        let waited = stream.out.bytes();
        let written = stream.out.write(stream.number(), room, output);
        sending.requeue(waited, stream.out.bytes());
        let turn = match written {
            Ok(sent) => {
                stream.window.take(sent);
                #[cfg(feature = "sim")]
                let sent = sent * usize::from(!dwell_evloop::sim::Planted::OwnWindowAlone.is_in());
                sending.window.take(sent);
                if sent > 0 {
                    let is_cut = sending.window.room() == 0 && stream.out.has_body();
                    let left = if is_cut { turn_bytes - sent } else { 0 };
                    sending.served = stream.number();
                    self.session.open.turn_left = left as u16;
                    self.session.calm.sent(sent);
                }
                let left = stream.window.room().min(sending.window.room());
                if stream.out.is_out() {
                    Turn::Over
                } else if stream.out.can_write(left) {
                    Turn::Again
                } else {
                    Turn::Waits
                }
            }
            Err(_) => Turn::Broken,
        };
        match turn {
            Turn::Again => {
                stream.marks.is_ready = true;
                sending.ready.push(token);
                self.pace(token);
            }
            Turn::Waits => {
                stream.give_room(sending.window.room());
                self.pace(token);
            }
            Turn::Over => self.over(token),
            Turn::Broken => self.doom(token, ErrorCode::INTERNAL_ERROR),
        }
    }

    /// Output of a stream waits, or does so no longer: sets its deadline for that.
    fn pace(&mut self, token: Token) {
        let pace = self.stall_pace();
        let Some(stream) = self.tables.streams.get_mut(token) else {
            return;
        };
        if stream.out.has_body() {
            stream.marks.is_blocked = true;
            let is_bounded = self.waits.bounds_held || !stream.exchange.is_held();
            let has_taken = stream.out.has_taken(pace.bytes_min().max(1));
            if is_bounded && (has_taken || !stream.marks.is_stalled) {
                stream.marks.is_stalled = true;
                self.context.arm(token, pace.timeout);
            }
            return;
        }
        if std::mem::take(&mut stream.marks.is_stalled) {
            self.context.disarm(token);
        }
        if std::mem::take(&mut stream.marks.is_blocked) && stream.exchange.is_held() {
            stream.marks.is_drained = true;
            #[cfg(feature = "sim")]
            if dwell_evloop::sim::Planted::ForgetNewest.is_in() {
                stream.marks.is_drained = false;
            }
            self.mark(token);
        }
    }

    /// The pace at which a client is to take what its windows hold up.
    fn stall_pace(&self) -> WritePace {
        let longest = if self.ends == Ends::No {
            STALL_TIMEOUT
        } else {
            LAST_STALL_TIMEOUT
        };
        WritePace {
            timeout: self.limits.write_timeout.min(longest),
            ..self.limits.write_pace()
        }
    }

    /// The server ends: streams whose windows are closed have little time left.
    pub(super) fn hurry(&mut self) {
        let timeout = self.stall_pace().timeout;
        for token in self.session.open.tokens() {
            let stream = self.tables.streams.get(token);
            if stream.is_some_and(|stream| stream.marks.is_stalled) {
                self.context.arm(token, timeout);
            }
        }
    }

    /// The answer of a stream is out. The rest of its request is not wanted (RFC 9113 section 8.1).
    pub(super) fn over(&mut self, token: Token) {
        let Some(stream) = self.tables.streams.get(token) else {
            return;
        };
        let (number, is_ended) = (stream.number(), stream.marks.is_ended);
        if matches!(stream.marks.way, Way::AwaitsHead | Way::Out) && !is_ended {
            // Its owner has ended its side, and reads on.
            return;
        }
        if !is_ended {
            self.write_reset(number, ErrorCode::NO_ERROR);
        }
        self.remove(token);
    }

    /// Ends a stream in the next visit.
    pub(super) fn doom(&mut self, token: Token, code: ErrorCode) {
        if let Some(stream) = self.tables.streams.get_mut(token) {
            stream.doom = code;
            self.mark(token);
            self.context.again(self.token, Readiness::default());
        }
    }

    /// Takes a stream out of the tables.
    pub(super) fn remove(&mut self, token: Token) -> Option<Stream> {
        self.context.disarm(token);
        let stream = self.tables.remove(token)?;
        self.served = true;
        self.session.open.remove(stream.number());
        self.session.sending.requeue(stream.out.bytes(), 0);
        if self.session.open.going == Going::No
            && self.session.open.requests >= self.limits.requests_per_connection_max
        {
            self.leave();
        }
        Some(stream)
    }
}
