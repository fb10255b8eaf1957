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
    /// The time for which the loops of the process before stand still then, as it takes the items.
    pub pauses_for: Duration,
    /// It serves then; otherwise it ends.
    pub serves: bool,
    /// Another one follows as soon as the process before has ended.
    pub is_followed: bool,
}

/// The next step of an upgrade.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UpgradeStep {
    /// The loops are paused.
    Pause,
    /// The successor serves.
    Serve,
    /// The successor ends.
    End,
}

/// The upgrades of a run, as far as they have come.
#[derive(Default)]
pub(crate) struct Upgrades {
    /// The successor that starts, its next step, and the moment of that.
    due: Option<(Duration, UpgradeStep, Upgrade)>,
    /// The one that follows.
    next: Option<Upgrade>,
    /// Until then the process before ends waits and hands connections over.
    hands_over_until: Duration,
}

/// The time beyond that of a drain in which a client hears of the end of a process.
const HEARD: Duration = Duration::from_secs(1);

impl Upgrades {
    /// A successor starts.
    pub(crate) fn begin(&mut self, upgrade: Upgrade, now: Duration) {
        self.due = Some((now + upgrade.starts_for, UpgradeStep::Pause, upgrade));
    }

    /// Takes the next step of the successor that starts, if its time has come.
    pub(crate) fn take_due(&mut self, now: Duration) -> Option<UpgradeStep> {
        let (_, step, upgrade) = self.due.take_if(|(at, ..)| *at <= now)?;
        match step {
            UpgradeStep::Pause if upgrade.serves => {
                self.due = Some((now + upgrade.pauses_for, UpgradeStep::Serve, upgrade));
            }
            UpgradeStep::Pause => {
                self.due = Some((now + upgrade.pauses_for, UpgradeStep::End, upgrade));
            }
            UpgradeStep::Serve => {
                self.hands_over_until = now + DRAIN + HEARD;
                let is_followed = upgrade.is_followed;
                self.next = is_followed.then_some(Upgrade {
                    is_followed: false,
                    ..upgrade
                });
            }
            UpgradeStep::End => {}
        }
        Some(step)
    }

    /// Takes the one that follows.
    pub(crate) fn take_next(&mut self) -> Option<Upgrade> {
        self.next.take()
    }

    /// The moment of the next step of the successor that starts.
    pub(crate) fn due_at(&self) -> Option<Duration> {
        self.due.map(|(at, ..)| at)
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

/// Milliseconds for which loops stand still for a successor that has stopped, at most.
const PAUSE_MAX: u64 = 2_000;

/// The upgrades of a seed, each behind so many of the steps before it, and after a pause.
pub(crate) fn upgrade_steps(options: &Options) -> Vec<(usize, Duration, Upgrade)> {
    let mut random = random(options.seed, 15);
    let upgrade = |_| {
        let place = random.below(options.steps as u64 + 1) as usize;
        let pause = Duration::from_micros(random.below(50_000));
        let upgrade = Upgrade {
            changes: Reload::draw(&mut random),
            starts_for: match random.below(4) {
                0 => Duration::from_millis(random.below(1_500)),
                _ => Duration::from_micros(random.below(300_000)),
            },
            pauses_for: match random.below(4) {
                0 => Duration::from_millis(random.below(PAUSE_MAX)),
                1 => Duration::from_micros(random.below(50_000)),
                _ => Duration::ZERO,
            },
            serves: random.below(4) > 0,
            is_followed: random.below(3) == 0,
        };
        (place, pause, upgrade)
    };
    (0..options.upgrades).map(upgrade).collect()
}
