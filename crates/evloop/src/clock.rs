//! The loop's one reader of the clocks.

use dwell_timers::{TICK, Tick};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// The time as the current turn sees it.
#[derive(Debug)]
pub(crate) struct Clock {
    start: Instant,
    now: Instant,
    wall: SystemTime,
    wall_read: Instant,
}

/// How stale the wall clock may be; it only dates answers and expires whole seconds.
const WALL_STALE_MAX: Duration = Duration::from_millis(50);

impl Clock {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            start: now,
            now,
            wall: SystemTime::now(),
            wall_read: now,
        }
    }

    /// Reads the monotonic clock, and the wall clock where the last reading is stale.
    pub(crate) fn update(&mut self) {
        self.now = Instant::now();
        if self.now.duration_since(self.wall_read) >= WALL_STALE_MAX {
            self.wall = SystemTime::now();
            self.wall_read = self.now;
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.now
    }

    pub(crate) fn wall(&self) -> SystemTime {
        self.wall
    }

    pub(crate) fn unix_seconds(&self) -> u64 {
        // A wall clock before 1970 reads as the epoch itself.
        self.wall
            .duration_since(UNIX_EPOCH)
            .map_or(0, |since| since.as_secs())
    }

    /// The tick that has begun; ticks wrap after 497 days.
    pub(crate) fn tick(&self) -> Tick {
        let ticks = self.now.duration_since(self.start).as_millis() / TICK.as_millis();
        Tick::new(ticks as u32)
    }

    /// How long from the current reading until `tick` begins; zero when it has.
    pub(crate) fn until(&self, tick: Tick) -> Duration {
        let current = self.tick();
        if tick.is_due(current) {
            return Duration::ZERO;
        }
        let elapsed = self.now.duration_since(self.start);
        let into_tick = Duration::from_nanos((elapsed.as_nanos() % TICK.as_nanos()) as u64);
        (TICK * tick.ticks_since(current)).saturating_sub(into_tick)
    }
}
