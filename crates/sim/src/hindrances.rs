//! Things that fail for a while: loops that stand still, and what is not to be had.

use crate::options::Options;
use crate::outward::Outward;
use crate::reload::Reload;
use crate::upgrade::Upgrades;
use std::time::Duration;

/// The moments at which what fails is over.
pub(crate) struct Hindrances {
    /// The faults of the whole run go on.
    is_rough: bool,
    /// Each loop stands still until then.
    stalled_until: Vec<Duration>,
    /// No descriptor is left until then.
    shortage_until: Duration,
    /// The application is there again from then on.
    app_back_at: Duration,
    /// Loops or descriptors hinder clients until then.
    until: Duration,
    pub(crate) upgrades: Upgrades,
    pub(crate) outward: Outward,
    /// The changes that the configuration of the process has beside that of the start.
    pub(crate) changes: Reload,
}

/// The time after which a listener without descriptors tries again, and a moment.
const AGAIN: Duration = Duration::from_millis(1_500);

impl Hindrances {
    pub(crate) fn new(options: &Options) -> Self {
        Self {
            is_rough: false,
            stalled_until: vec![Duration::ZERO; options.loops],
            shortage_until: Duration::ZERO,
            app_back_at: Duration::ZERO,
            until: Duration::ZERO,
            upgrades: Upgrades::default(),
            outward: Outward::new(options),
            changes: Reload::default(),
        }
    }

    /// Begins the faults of the whole run.
    pub(crate) fn begin(&mut self) {
        self.is_rough = true;
    }

    /// Returns true if the faults of the whole run go on.
    pub(crate) fn is_rough(&self) -> bool {
        self.is_rough
    }

    /// Ends all of them.
    pub(crate) fn end(&mut self, now: Duration) {
        self.is_rough = false;
        self.stalled_until.fill(Duration::ZERO);
        self.shortage_until = Duration::ZERO;
        self.app_back_at = Duration::ZERO;
        self.until = now;
        self.outward.end();
        // No other process follows any more.
        self.upgrades.take_next();
    }

    /// Has a loop stand still until then.
    pub(crate) fn stall(&mut self, index: usize, until: Duration) {
        self.stalled_until[index] = until;
        self.until = self.until.max(until);
    }

    /// All loops stand still now.
    pub(crate) fn stand_still(&mut self, now: Duration) {
        self.until = self.until.max(now);
    }

    /// Has no descriptor left until then.
    pub(crate) fn run_short(&mut self, until: Duration) {
        self.shortage_until = until;
        // A listener that found none tries again after a while.
        self.until = self.until.max(until + AGAIN);
    }

    /// Has the application gone until then.
    pub(crate) fn lose_app(&mut self, until: Duration) {
        self.app_back_at = until;
    }

    /// Ends a shortage of descriptors whose time comes; returns true if there was one.
    pub(crate) fn end_shortage(&mut self, at: Duration) -> bool {
        let ends = self.shortage_until > Duration::ZERO && at >= self.shortage_until;
        if ends {
            self.shortage_until = Duration::ZERO;
        }
        ends
    }

    /// The moment from which a loop turns again.
    pub(crate) fn stalled_until(&self, index: usize) -> Duration {
        // The loops of a process before stand still for nothing.
        self.stalled_until.get(index).copied().unwrap_or_default()
    }

    /// Returns true if no descriptor is left.
    pub(crate) fn is_short(&self, now: Duration) -> bool {
        now < self.shortage_until
    }

    /// Returns true if the application is to be there.
    pub(crate) fn has_app(&self, now: Duration) -> bool {
        now >= self.app_back_at
    }

    /// The moments at which descriptors, the application and right certificates are to be had
    /// again.
    pub(crate) fn ends(&self) -> [Duration; 4] {
        let [app, memcached] = self.outward.ends();
        [self.shortage_until, self.app_back_at, app, memcached]
    }

    /// The moment from which no loop and no descriptor hinders clients.
    pub(crate) fn until(&self) -> Duration {
        self.until
    }
}
