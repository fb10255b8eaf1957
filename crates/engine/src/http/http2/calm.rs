//! The bounds of work that brings no answer: beyond them the connection ends.

use dwell_timers::Tick;

/// Frames that a client may send at once without asking for anything.
const FRAMES_MAX: u8 = 100;
/// The time after which it may send one more.
/// Units: ticks of 10 ms.
const FRAME_TICKS: u32 = 10;
/// The windows that what is sent takes from: the one of its stream, and that of the connection.
const WINDOWS: u8 = 2;
/// Bytes that a client gives back at once, unless it is rare.
pub(super) const INCREMENT_MIN: u32 = 1024;
/// Frames of bodies without a reader, which count as one frame: a client may have sent many before
/// it knew, but no more than a window has room for.
const DROPPED_PER_FRAME: u8 = 16;
/// Streams that may end by a reset of either side within [`RESETS_TICKS`].
const RESETS_MAX: u8 = 200;
/// Units: ticks of 10 ms.
const RESETS_TICKS: u32 = 1000;

/// The counts of what costs work and brings no answer.
///
/// Shape: a frame that only costs work takes from a bucket, which fills by one every 100 ms, by one
/// for each answer, and by two for each part of a body that is sent, as a client may give both of
/// its windows back at once. A window may be opened once for each stream, and twice for each KiB
/// that is sent; what goes beyond that takes from the bucket. Resets are counted in spans of ten
/// seconds.
#[derive(Debug)]
pub(super) struct Calm {
    frames_left: u8,
    /// The time up to which the bucket was filled.
    filled: Tick,
    /// Frames that open windows and that were allowed so far by what was begun and sent.
    windows_left: u32,
    /// Frames that were dropped, of those that count as the next one.
    dropped: u8,
    resets: u8,
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
            windows_left: 0,
            dropped: 0,
            resets: 0,
            span: now,
        }
    }

    /// Counts a frame that only costs work.
    pub(super) fn frame(&mut self, now: Tick) -> Result<(), Excess> {
        let more = now.ticks_since(self.filled) / FRAME_TICKS;
        if more > 0 {
            let filled = u32::from(self.frames_left).saturating_add(more);
            self.frames_left = filled.min(u32::from(FRAMES_MAX)) as u8;
            self.filled = now;
        }
        self.frames_left = self.frames_left.checked_sub(1).ok_or(Excess)?;
        Ok(())
    }

    /// Counts a frame of a body without a reader.
    pub(super) fn dropped(&mut self, now: Tick) -> Result<(), Excess> {
        self.dropped = (self.dropped + 1) % DROPPED_PER_FRAME;
        if self.dropped == 0 {
            self.frame(now)?;
        }
        Ok(())
    }

    /// Counts a frame that opens a window by [`INCREMENT_MIN`] or more.
    pub(super) fn window(&mut self, now: Tick) -> Result<(), Excess> {
        match self.windows_left.checked_sub(1) {
            Some(left) => self.windows_left = left,
            None => self.frame(now)?,
        }
        Ok(())
    }

    /// Counts a request, whose window its client may open.
    pub(super) fn begun(&mut self) {
        self.windows_left = self.windows_left.saturating_add(1);
    }

    /// Counts an answer.
    pub(super) fn answered(&mut self) {
        self.frames_left = (self.frames_left + 1).min(FRAMES_MAX);
    }

    /// Counts a part of a body that was sent.
    pub(super) fn sent(&mut self, bytes: usize) {
        self.frames_left = (self.frames_left + WINDOWS).min(FRAMES_MAX);
        let steps = bytes.div_ceil(INCREMENT_MIN as usize) as u32;
        self.windows_left = self.windows_left.saturating_add(u32::from(WINDOWS) * steps);
    }

    /// Counts a stream that was reset, by either side.
    pub(super) fn reset(&mut self, now: Tick) -> Result<(), Excess> {
        if now.ticks_since(self.span) >= RESETS_TICKS {
            self.span = now;
            self.resets = 0;
        }
        self.resets = self.resets.saturating_add(1);
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
        calm.sent(1);
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
    fn windows_are_opened_as_far_as_something_was_begun_and_sent() {
        let now = Tick::new(u32::MAX - 5);
        let mut calm = Calm::new(now);
        calm.begun();
        calm.begun();
        // Both windows are given back in the smallest steps, long behind it.
        calm.sent(1);
        calm.sent(16 * 1024);
        let taken = (0..1000).take_while(|_| calm.window(now).is_ok()).count();
        assert_eq!(taken, 2 + 2 + 2 * 16 + 100);
        assert_eq!(calm.frame(now), Err(Excess));
    }

    #[test]
    fn bodies_that_nobody_reads_count_little() {
        let now = Tick::new(u32::MAX - 5);
        let mut calm = Calm::new(now);
        let taken = (0..10_000).take_while(|_| calm.dropped(now).is_ok());
        assert_eq!(taken.count(), 101 * 16 - 1);
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
