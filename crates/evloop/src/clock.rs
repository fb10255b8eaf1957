//! The loop's one reader of the clocks.

use dwell_timers::{TICK, Tick};
use std::sync::OnceLock;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Seconds of Unix time, for which the wall clock is read once in the life of the process: the time
/// from then on is measured by the monotonic clock.
///
/// Shape: the same on every thread, and never earlier than before. If the wall clock is set, it
/// differs from this one by as much. [`Context::steady_seconds`](crate::Context::steady_seconds) is
/// the same for a loop.
pub fn steady_seconds() -> u64 {
    Origin::of_process().seconds_at(now())
}

/// The monotonic clock, for what has no context at hand. Within a turn the time is
/// [`Context::now`](crate::Context::now), which costs nothing.
pub fn now() -> Instant {
    #[cfg(feature = "sim")]
    if let Some(now) = crate::sim::now() {
        return now;
    }
    Instant::now()
}

/// The wall clock, for what runs between turns: in one, the time is
/// [`Context::wall`](crate::Context::wall).
pub fn wall() -> SystemTime {
    #[cfg(feature = "sim")]
    if let Some(wall) = crate::sim::wall() {
        return wall;
    }
    SystemTime::now()
}

/// One moment by both clocks.
#[derive(Clone, Copy, Debug)]
struct Origin {
    instant: Instant,
    /// From 1970 to that moment.
    unix: Duration,
}

impl Origin {
    /// The moment of the first call.
    fn of_process() -> Self {
        static ORIGIN: OnceLock<Origin> = OnceLock::new();
        #[cfg(feature = "sim")]
        if let Some((instant, wall)) = crate::sim::origin() {
            return Self::new(instant, wall);
        }
        *ORIGIN.get_or_init(|| Self::new(Instant::now(), SystemTime::now()))
    }

    /// A wall clock before 1970 reads as the epoch itself.
    fn new(instant: Instant, wall: SystemTime) -> Self {
        let unix = wall.duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { instant, unix }
    }

    fn seconds_at(&self, now: Instant) -> u64 {
        (self.unix + now.saturating_duration_since(self.instant)).as_secs()
    }
}

/// The time as the current turn sees it.
///
/// Shape: everything a driver asks for at each request is worked out once, when the clock is read.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    now: Instant,
    /// Nanoseconds from `start` to `now`; they last for 584 years.
    elapsed: u64,
    tick: Tick,
    wall: SystemTime,
    unix_seconds: u64,
    /// `elapsed` when the wall clock was read.
    wall_read: u64,
    steady_seconds: u64,
    /// Nanoseconds from 1970 to `start`, as far as the wall clock was right about it.
    steady_start: u64,
}

impl Clock {
    pub(crate) fn new() -> Self {
        Self::at(now(), wall(), Origin::of_process())
    }

    fn at(now: Instant, wall: SystemTime, origin: Origin) -> Self {
        let steady_start = origin.unix + now.saturating_duration_since(origin.instant);
        Self {
            start: now,
            now,
            elapsed: 0,
            tick: Tick::new(0),
            wall,
            unix_seconds: unix_seconds(wall),
            wall_read: 0,
            steady_seconds: steady_start.as_secs(),
            steady_start: u64::try_from(steady_start.as_nanos()).unwrap_or(u64::MAX),
        }
    }

    /// Reads the monotonic clock, and the wall clock where the last reading is stale.
    pub(crate) fn update(&mut self) {
        self.read(now(), wall);
    }

    fn read(&mut self, now: Instant, wall: impl FnOnce() -> SystemTime) {
        self.now = now;
        self.elapsed = self.now.duration_since(self.start).as_nanos() as u64;
        self.tick = Tick::new((self.elapsed / TICK_NANOS) as u32);
        self.steady_seconds = self.steady_start.saturating_add(self.elapsed) / SECOND_NANOS;
        if self.elapsed - self.wall_read >= WALL_STALE_NANOS_MAX {
            self.wall = wall();
            self.unix_seconds = unix_seconds(self.wall);
            self.wall_read = self.elapsed;
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn wall(&self) -> SystemTime {
        self.wall
    }

    pub(crate) fn unix_seconds(&self) -> u64 {
        self.unix_seconds
    }

    pub(crate) fn steady_seconds(&self) -> u64 {
        self.steady_seconds
    }

    /// The tick that has begun; ticks wrap after 497 days.
    pub(crate) fn tick(&self) -> Tick {
        self.tick
    }

    /// Returns the time from the current reading until `tick` begins; zero when it has begun.
    pub(crate) fn until(&self, tick: Tick) -> Duration {
        if tick.is_due(self.tick) {
            return Duration::ZERO;
        }
        let into_tick = Duration::from_nanos(self.elapsed % TICK_NANOS);
        (TICK * tick.ticks_since(self.tick)).saturating_sub(into_tick)
    }
}

/// A wall clock before 1970 reads as the epoch itself.
fn unix_seconds(wall: SystemTime) -> u64 {
    wall.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

const TICK_NANOS: u64 = TICK.as_nanos() as u64;
const SECOND_NANOS: u64 = 1_000_000_000;
/// The greatest age of the wall clock's reading: 50 ms. It only dates responses and expires whole
/// seconds.
const WALL_STALE_NANOS_MAX: u64 = 50_000_000;

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn a_step_of_the_wall_clock_moves_no_steady_second() {
        let (start, wall) = (
            Instant::now(),
            UNIX_EPOCH + Duration::from_millis(5_000_400),
        );
        let mut clock = Clock::at(start, wall, Origin::new(start, wall));
        let millis = Duration::from_millis;
        for (passed, wall, seconds) in [
            (millis(500), wall, (5000, 5000)),
            (millis(600), wall + 2 * HOUR, (5001, 12_200)),
            (millis(10_600), wall - HOUR, (5011, 1400)),
            (HOUR, UNIX_EPOCH - HOUR, (8600, 0)),
        ] {
            clock.read(start + passed, || wall);
            assert_eq!((clock.steady_seconds(), clock.unix_seconds()), seconds);
        }
    }

    #[test]
    fn loops_that_start_later_count_the_same_seconds() {
        let (start, wall) = (
            Instant::now(),
            UNIX_EPOCH + Duration::from_millis(5_000_400),
        );
        let origin = Origin::new(start, wall);
        let mut first = Clock::at(start, wall, origin);
        // The wall clock was set before the second one started.
        let later = start + Duration::from_millis(700);
        let mut second = Clock::at(later, wall + HOUR, origin);
        assert_eq!(second.steady_seconds(), 5001);
        for millis in [700, 1599, 1600, 90_000] {
            let now = start + Duration::from_millis(millis);
            first.read(now, || wall);
            second.read(now, || wall + HOUR);
            assert_eq!(first.steady_seconds(), second.steady_seconds());
            assert_eq!(first.steady_seconds(), origin.seconds_at(now));
        }
    }

    #[test]
    fn the_seconds_of_the_process_are_those_of_its_loops() {
        let before = steady_seconds();
        let clock = Clock::new();
        assert!((before..=steady_seconds()).contains(&clock.steady_seconds()));
    }
}
