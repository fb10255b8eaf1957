//! Upgrades of the process: a successor starts, and serves or ends before it does.

use crate::chance::random;
use crate::options::Options;
use crate::reload::{DRAIN, Reload};
use std::time::Duration;

/// One upgrade.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upgrade {
    /// Changes of the configuration that the successor reads.
    pub changes: Reload,
    /// The time that it takes to start.
    pub starts_for: Duration,
    /// It serves then; otherwise it ends.
    pub serves: bool,
}

/// The upgrades of a run, as far as they have come.
#[derive(Default)]
pub(crate) struct Upgrades {
    /// The moment at which the successor that starts serves, or ends.
    due: Option<(Duration, bool)>,
    /// Until then the process before ends waits and hands connections over.
    hands_over_until: Duration,
}

/// The time beyond that of a drain in which a client hears of the end of a process.
const HEARD: Duration = Duration::from_secs(1);

impl Upgrades {
    /// A successor starts.
    pub(crate) fn begin(&mut self, upgrade: Upgrade, now: Duration) {
        self.due = Some((now + upgrade.starts_for, upgrade.serves));
    }

    /// Takes what becomes of the successor that starts, if its time has come: true if it serves.
    pub(crate) fn take_due(&mut self, now: Duration) -> Option<bool> {
        let (_, serves) = self.due.take_if(|(at, _)| *at <= now)?;
        if serves {
            self.hands_over_until = now + DRAIN + HEARD;
        }
        Some(serves)
    }

    /// The moment at which that is.
    pub(crate) fn due_at(&self) -> Option<Duration> {
        self.due.map(|(at, _)| at)
    }

    /// Returns true while a process may end waits because another one serves.
    pub(crate) fn hands_over(&self, now: Duration) -> bool {
        now < self.hands_over_until
    }

    /// The moment at which the process before must have ended.
    pub(crate) fn hands_over_until(&self) -> Duration {
        self.hands_over_until
    }
}

/// The upgrades of a seed, each behind so many of the steps before it, and after a pause.
pub(crate) fn upgrade_steps(options: &Options) -> Vec<(usize, Duration, Upgrade)> {
    let mut random = random(options.seed, 15);
    let upgrade = |_| {
        let place = random.below(options.steps as u64 + 1) as usize;
        let pause = Duration::from_micros(random.below(50_000));
        let upgrade = Upgrade {
            changes: Reload::draw(&mut random),
            starts_for: Duration::from_micros(random.below(300_000)),
            serves: random.below(4) > 0,
        };
        (place, pause, upgrade)
    };
    (0..options.upgrades).map(upgrade).collect()
}
