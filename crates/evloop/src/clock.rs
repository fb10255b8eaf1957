//! The loop's one reader of the clocks.

use dwell_timers::{TICK, Tick};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

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
}

impl Clock {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        let wall = SystemTime::now();
        Self {
            start: now,
            now,
            elapsed: 0,
            tick: Tick::new(0),
            wall,
            unix_seconds: unix_seconds(wall),
            wall_read: 0,
        }
    }

    /// Reads the monotonic clock, and the wall clock where the last reading is stale.
    pub(crate) fn update(&mut self) {
        self.now = Instant::now();
        self.elapsed = self.now.duration_since(self.start).as_nanos() as u64;
        self.tick = Tick::new((self.elapsed / TICK_NANOS) as u32);
        if self.elapsed - self.wall_read >= WALL_STALE_NANOS_MAX {
            self.wall = SystemTime::now();
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

    /// The tick that has begun; ticks wrap after 497 days.
    pub(crate) fn tick(&self) -> Tick {
        self.tick
    }

    /// How long from the current reading until `tick` begins; zero when it has.
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
/// How stale the wall clock may be: 50 ms. It only dates answers and expires whole seconds.
const WALL_STALE_NANOS_MAX: u64 = 50_000_000;
