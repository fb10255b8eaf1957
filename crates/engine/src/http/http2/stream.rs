//! One stream: a request, and the answer to it.

use super::outflow::Outflow;
use super::session::STREAM_WINDOW_BYTES;
use crate::app::ExchangeId;
use crate::body_pace::BodyPace;
use crate::budget::{Budget, Charge};
use crate::connection::{Exchange, Phase, Taking};
use crate::growth::extend;
use dwell_evloop::{Carrier, Token};
use dwell_proto::http2::{ErrorCode, Window};
use std::time::{Duration, Instant};

/// Bytes of a body that is gathered which may be on the way.
const GATHERED_WINDOW_BYTES: u64 = 64 * 1024;
/// The most that is granted of a window at once.
const GRANT_BYTES_MAX: u64 = 1 << 30;

/// An entry of the table of streams.
///
/// Shape: the sequence of its exchange is its number. It is held as that of HTTP/1 is; before that
/// its phase is `Body`, and `Writing` when the answer is given and not yet out.
#[derive(Debug)]
pub(crate) struct Stream {
    pub(crate) connection: Token,
    pub(crate) exchange: Exchange,
    /// The body of the request, until its end was handed over or it is not wanted.
    pub(super) upload: Option<Box<Upload>>,
    /// The stream that leaves HTTP, of an extended CONNECT that was not refused.
    pub(super) carrier: Option<Carrier>,
    /// Bytes of the body that the client takes.
    pub(super) window: Window,
    pub(crate) out: Outflow,
    pub(super) marks: Marks,
    /// The stream is to end by this, and the app to be told; `NO_ERROR` as long as it is not.
    pub(super) doom: ErrorCode,
}

/// Facts of a stream that are independent of one another.
#[derive(Clone, Copy, Debug, Default)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is true or not whatever the others are"
)]
pub(super) struct Marks {
    /// It is among those that have something to write.
    pub(super) is_ready: bool,
    /// Output waits for the client, and its app waits for that.
    pub(super) is_blocked: bool,
    /// The deadline runs for that output.
    pub(super) is_stalled: bool,
    /// The client sends nothing more.
    pub(super) is_ended: bool,
    /// It is part of the next visit, as it has something to report.
    pub(super) is_marked: bool,
    /// The app is to be told that its output was taken.
    pub(super) is_drained: bool,
    pub(super) way: Way,
}

/// The way of a stream out of HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(super) enum Way {
    /// It is in HTTP.
    #[default]
    In,
    /// It is out of HTTP, and its owner writes the head of the answer first.
    AwaitsHead,
    Out,
    /// Its owner has let go of it.
    Left,
}

/// A body on the way.
#[derive(Debug)]
pub(super) struct Upload {
    pub(super) taking: Taking,
    pub(super) pace: BodyPace,
    /// The time at which its head had come; of a body that is streamed, since when nothing was read
    /// of what is kept.
    since: Instant,
    /// The announced size.
    pub(super) length: Option<u64>,
    pub(super) received: u64,
    pub(super) bytes_max: u64,
    /// Bytes that the client may still send; less than 0 where it sent more before it knew that it
    /// may not.
    pub(super) window: i64,
    /// Bytes that came before the app wanted them.
    pub(super) ahead: Vec<u8>,
    /// The part of these, and of trailer fields, in what all connections keep.
    pub(super) charge: Option<Charge>,
    /// Trailer fields as lines, when the end has come.
    pub(super) trailers: Vec<u8>,
    pub(super) is_complete: bool,
}

impl Stream {
    pub(super) fn new(connection: Token, number: u32, window: u32) -> Self {
        let mut exchange = Exchange::new(Phase::Body);
        exchange.sequence = number;
        Self {
            connection,
            exchange,
            upload: None,
            carrier: None,
            window: Window::new(window),
            out: Outflow::default(),
            marks: Marks::default(),
            doom: ErrorCode::NO_ERROR,
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.exchange.sequence
    }

    pub(crate) fn exchange_id(&self, token: Token) -> ExchangeId {
        ExchangeId {
            token,
            sequence: self.exchange.sequence,
        }
    }

    /// Returns true if its body is gathered.
    pub(super) fn is_gathered(&self) -> bool {
        let upload = self.upload.as_deref();
        upload.is_some_and(|upload| matches!(upload.taking, Taking::Collect { .. }))
    }

    /// The time since which it keeps a part of a body that may be given up for others: one that is
    /// gathered, or one that its app does not want yet.
    pub(super) fn keeps_since(&self) -> Option<Instant> {
        let upload = self.upload.as_deref()?;
        let is_one = match &upload.taking {
            Taking::Collect { .. } => true,
            Taking::Stream { .. } => !upload.ahead.is_empty(),
            Taking::Discard { .. } => false,
        };
        is_one.then_some(upload.since)
    }

    /// Returns true if the stream is to end by an error.
    pub(super) fn is_doomed(&self) -> bool {
        self.doom != ErrorCode::NO_ERROR
    }

    /// Returns true if no output waits for the client.
    pub(crate) fn is_flushed(&self) -> bool {
        !self.marks.is_blocked
    }
}

impl Upload {
    pub(super) fn new(
        taking: Taking,
        length: Option<u64>,
        bytes_max: u64,
        timeout: Duration,
        now: Instant,
        window: u32,
    ) -> Self {
        Self {
            taking,
            pace: BodyPace::new(timeout),
            since: now,
            length,
            received: 0,
            bytes_max,
            window: i64::from(window),
            ahead: Vec::new(),
            charge: None,
            trailers: Vec::new(),
            is_complete: false,
        }
    }

    /// Bytes that the app takes now. Others stay here, where they are counted, though it has let
    /// them come ahead of its reader.
    pub(super) fn wanted(&self) -> usize {
        match &self.taking {
            Taking::Stream {
                credit,
                is_awaited: true,
                ..
            } => usize::try_from(*credit).unwrap_or(usize::MAX),
            _ => 0,
        }
    }

    /// Keeps bytes until the app wants them, and charges for those behind the `wanted` ones; false
    /// where there is no room.
    pub(super) fn keep(
        &mut self,
        data: &[u8],
        wanted: usize,
        (budget, bytes_max): (&Budget, usize),
        now: Instant,
    ) -> bool {
        if data.is_empty() {
            return true;
        }
        if self.ahead.is_empty() {
            self.since = now;
        }
        let behind = data.len().saturating_sub(wanted);
        let has_room = behind == 0 || self.charge_for(behind, budget, bytes_max);
        if has_room {
            extend(&mut self.ahead, data);
        }
        has_room
    }

    /// Takes the first of the bytes that are kept, of which there are as many at least.
    pub(super) fn take(&mut self, length: usize, now: Instant) -> Vec<u8> {
        self.since = now;
        // What stays has no more memory than it needs.
        let rest = self.ahead.split_off(length);
        let kept = rest.len() + self.trailers.len();
        if let Some(charge) = &mut self.charge {
            charge.shrink(charge.bytes().saturating_sub(kept));
        }
        std::mem::replace(&mut self.ahead, rest)
    }

    /// Charges for bytes that are kept until the app wants them; false where there is no room.
    pub(super) fn charge_for(&mut self, bytes: usize, budget: &Budget, bytes_max: usize) -> bool {
        if let Some(charge) = &mut self.charge {
            return charge.grow(bytes, bytes_max);
        }
        self.charge = budget.charge(bytes, bytes_max);
        self.charge.is_some()
    }

    /// The increment that the window of the client is due; 0 for none.
    pub(super) fn grant(&mut self) -> u32 {
        if self.is_complete {
            return 0;
        }
        let target = match &self.taking {
            Taking::Collect { .. } => GATHERED_WINDOW_BYTES,
            Taking::Stream { credit, .. } => *credit + u64::from(STREAM_WINDOW_BYTES),
            Taking::Discard { .. } => 0,
        };
        let target = target.min(GRANT_BYTES_MAX).cast_signed();
        let missing = target - (self.window + self.ahead.len().cast_signed() as i64);
        if missing <= 0 || missing < target / 4 {
            return 0;
        }
        self.window += missing;
        missing.cast_unsigned() as u32
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_held_stream_is_small() {
        assert!(size_of::<Stream>() <= 72, "{}", size_of::<Stream>());
    }

    #[test]
    fn bytes_are_charged_for_as_long_as_they_are_kept() {
        let (budget, begun) = (Budget::default(), Instant::now());
        let at = |seconds| begun + Duration::from_secs(seconds);
        let taking = Taking::Stream {
            credit: 4,
            received: 0,
            continue_owed: false,
            is_awaited: true,
        };
        let mut upload = Upload::new(taking, None, 100, Duration::MAX, begun, 100);
        // Those that are wanted are not, and what is beyond the bound is refused.
        assert!(!upload.keep(b"wanted", upload.wanted(), (&budget, 1), at(1)));
        assert!(upload.keep(b"wanted", upload.wanted(), (&budget, 2), at(2)));
        assert_eq!((budget.bytes(), upload.since), (2, at(2)));
        assert_eq!(upload.take(4, at(3)), b"want");
        assert_eq!((budget.bytes(), upload.since), (2, at(3)));
        // What comes behind others waits since they do.
        assert!(upload.keep(b"more", 0, (&budget, 6), at(4)));
        assert_eq!((budget.bytes(), upload.since), (6, at(3)));
        assert_eq!(upload.take(6, at(5)), b"edmore");
        assert_eq!((budget.bytes(), upload.ahead.capacity()), (0, 0));
    }
}
