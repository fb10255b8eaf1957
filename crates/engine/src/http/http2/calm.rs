//! The bounds of work that brings no answer: beyond them the connection ends.

use dwell_timers::Tick;

/// Frames that a client may send at once without asking for anything.
const FRAMES_MAX: u32 = 100;
/// The time after which it may send one more.
/// Units: ticks of 10 ms.
const FRAME_TICKS: u32 = 10;
/// The windows that what is sent takes from: the one of its stream, and that of the connection.
const WINDOWS: u32 = 2;
/// Streams that may end by a reset within [`RESETS_TICKS`], whoever has sent it.
const RESETS_MAX: u32 = 200;
/// Units: ticks of 10 ms.
const RESETS_TICKS: u32 = 1000;

/// The counts of what costs work and brings no answer.
///
/// Shape: a frame that only costs work takes from a bucket, which fills by one every 100 ms, by one
/// for each answer, and by two for each part of a body that is sent, as a client may give both of
/// its windows back at once. Resets are counted in spans of ten seconds.
#[derive(Debug)]
pub(super) struct Calm {
    frames_left: u32,
    /// The time up to which the bucket was filled.
    filled: Tick,
    resets: u32,
    /// The beginning of the present span of resets.
    span: Tick,
}

/// The client causes more work than it should.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Excess;

impl Calm {
    pub(super) fn new(now: Tick) -> Self {
        Self {
            frames_left: FRAMES_MAX,
            filled: now,
            resets: 0,
            span: now,
        }
    }

    /// Counts a frame that only costs work.
    pub(super) fn frame(&mut self, now: Tick) -> Result<(), Excess> {
        let more = now.ticks_since(self.filled) / FRAME_TICKS;
        if more > 0 {
            self.frames_left = self.frames_left.saturating_add(more).min(FRAMES_MAX);
            self.filled = now;
        }
        self.frames_left = self.frames_left.checked_sub(1).ok_or(Excess)?;
        Ok(())
    }

    /// Counts an answer.
    pub(super) fn answered(&mut self) {
        self.frames_left = (self.frames_left + 1).min(FRAMES_MAX);
    }

    /// Counts a part of a body that was sent.
    pub(super) fn sent(&mut self) {
        self.frames_left = (self.frames_left + WINDOWS).min(FRAMES_MAX);
    }

    /// Counts a stream that was reset, by either side.
    pub(super) fn reset(&mut self, now: Tick) -> Result<(), Excess> {
        if now.ticks_since(self.span) >= RESETS_TICKS {
            self.span = now;
            self.resets = 0;
        }
        self.resets += 1;
        if self.resets > RESETS_MAX {
            return Err(Excess);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_bounded_by_time_and_by_answers() {
        let mut now = Tick::new(u32::MAX - 5);
        let mut calm = Calm::new(now);
        for _ in 0..100 {
            assert_eq!(calm.frame(now), Ok(()));
        }
        assert_eq!(calm.frame(now), Err(Excess));
        calm.answered();
        assert_eq!((calm.frame(now), calm.frame(now)), (Ok(()), Err(Excess)));
        calm.sent();
        assert_eq!((calm.frame(now), calm.frame(now)), (Ok(()), Ok(())));
        assert_eq!(calm.frame(now), Err(Excess));
        now = now.plus(25);
        assert_eq!((calm.frame(now), calm.frame(now)), (Ok(()), Ok(())));
        assert_eq!(calm.frame(now), Err(Excess));
        now = now.plus(360_000);
        let taken = (0..1000).take_while(|_| calm.frame(now).is_ok()).count();
        assert_eq!(taken, 100);
    }

    #[test]
    fn resets_are_bounded_in_each_span() {
        let mut now = Tick::new(u32::MAX - 5);
        let mut calm = Calm::new(now);
        for _ in 0..3 {
            let taken = (0..1000).take_while(|_| calm.reset(now).is_ok()).count();
            assert_eq!(taken, 200);
            now = now.plus(RESETS_TICKS);
        }
    }
}
