//! Upgrades of the process: a successor starts, and serves, unless one of the two ends before.

use crate::chance::random;
use crate::options::Options;
use crate::reload::{DRAIN, Reload};
use dwell_edge::process::UpgradeFrame;
use dwell_evloop::Random;
use std::time::Duration;

/// One upgrade.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Upgrade {
    /// Changes of the configuration that the successor reads.
    pub changes: Reload,
    /// The times that some frames between the two processes take; the others come at once.
    pub delays: [(UpgradeFrame, Duration); 7],
    /// The fault of it.
    pub fault: Option<(UpgradeFrame, UpgradeFault)>,
    /// Another one follows as soon as the process before has ended.
    pub is_followed: bool,
}

/// A fault of an upgrade, when a frame is to come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum UpgradeFault {
    /// The successor ends.
    SuccessorEnds,
    /// The process that serves, or has served until then, ends.
    PredecessorEnds,
    /// The time is over in which it waits for the successor.
    TimeOut,
}

impl UpgradeFault {
    /// The name of this fault in counts.
    pub fn name(self) -> &'static str {
        match self {
            Self::SuccessorEnds => "the successor ends",
            Self::PredecessorEnds => "the predecessor ends",
            Self::TimeOut => "the successor stands still",
        }
    }

    /// All of them.
    pub const ALL: [Self; 3] = [Self::SuccessorEnds, Self::PredecessorEnds, Self::TimeOut];

    /// Returns true if it can be when this frame is to come.
    fn can_be_at(self, frame: UpgradeFrame) -> bool {
        // A successor that has sent this serves.
        self != Self::SuccessorEnds || frame != UpgradeFrame::Serving
    }
}

/// The next step of an upgrade.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum UpgradeStep {
    /// The next frame comes.
    Deliver,
    /// Something goes wrong instead.
    Fault(UpgradeFault),
}

/// The upgrades of a run, as far as they have come.
#[derive(Default)]
pub(crate) struct Upgrades {
    /// The one in progress, with the moment of its next step and the frame that is to come then.
    due: Option<(Duration, UpgradeFrame, Upgrade)>,
    /// The one that follows.
    next: Option<Upgrade>,
    /// Until then the process before ends waits and hands connections over.
    hands_over_until: Duration,
}

/// The time beyond that of a drain in which a client hears of the end of a process.
const HEARD: Duration = Duration::from_secs(1);

impl Upgrades {
    /// This frame is the next one of an upgrade.
    pub(crate) fn await_frame(&mut self, upgrade: Upgrade, frame: UpgradeFrame, now: Duration) {
        self.due = Some((now + upgrade.delay_of(frame), frame, upgrade));
    }

    /// Takes the next step of the upgrade in progress, if its time has come.
    pub(crate) fn take_due(&mut self, now: Duration) -> Option<(UpgradeStep, Upgrade)> {
        let (_, frame, upgrade) = self.due.take_if(|(at, ..)| *at <= now)?;
        let fault = upgrade
            .fault
            .filter(|(at, fault)| frame >= *at && fault.can_be_at(frame));
        let step = fault.map_or(UpgradeStep::Deliver, |(_, fault)| UpgradeStep::Fault(fault));
        Some((step, upgrade))
    }

    /// The successor serves, and the process before hands over.
    pub(crate) fn hand_over(&mut self, upgrade: Upgrade, now: Duration) {
        self.hands_over_until = now + DRAIN + HEARD;
        self.next = upgrade.is_followed.then_some(Upgrade {
            is_followed: false,
            ..upgrade
        });
    }

    /// Takes the one that follows.
    pub(crate) fn take_next(&mut self) -> Option<Upgrade> {
        self.next.take()
    }

    /// The moment of the next step of the upgrade in progress.
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

impl Upgrade {
    fn draw(random: &mut Random, has_store: bool) -> Self {
        let changes = Reload::draw(random);
        let starts_for = match random.below(4) {
            0 => Duration::from_millis(random.below(1_500)),
            _ => Duration::from_micros(random.below(300_000)),
        };
        let pauses_for = match random.below(4) {
            0 => Duration::from_millis(random.below(PAUSE_MAX)),
            1 => Duration::from_micros(random.below(50_000)),
            _ => Duration::ZERO,
        };
        let [listeners, ready] = split(random, starts_for);
        let [ticket_keys, store, taken, serve, serving] = split(random, pauses_for);
        let fault = (random.below(3) == 0).then(|| {
            let frame = FRAMES[random.below(FRAMES.len() as u64) as usize];
            let all = UpgradeFault::ALL;
            let fault = all[random.below(all.len() as u64) as usize];
            let ends_all = has_store && fault == UpgradeFault::PredecessorEnds;
            // The items are not to be lost with it.
            let frame = if ends_all {
                UpgradeFrame::Serving
            } else {
                frame
            };
            (frame, fault)
        });
        Self {
            changes,
            delays: [
                (UpgradeFrame::Listeners, listeners),
                (UpgradeFrame::Ready, ready),
                (UpgradeFrame::TicketKeys, ticket_keys),
                (UpgradeFrame::Store, store),
                (UpgradeFrame::Taken, taken),
                (UpgradeFrame::Serve, serve),
                (UpgradeFrame::Serving, serving),
            ],
            fault,
            is_followed: random.below(3) == 0,
        }
    }

    fn delay_of(&self, frame: UpgradeFrame) -> Duration {
        let delay = self.delays.iter().find(|(of, _)| *of == frame);
        delay.map_or(Duration::ZERO, |(_, delay)| *delay)
    }
}

/// Divides a time by chance.
fn split<const PARTS: usize>(random: &mut Random, time: Duration) -> [Duration; PARTS] {
    let mut left = time.as_micros() as u64;
    std::array::from_fn(|part| {
        let is_last = part + 1 == PARTS;
        let micros = if is_last {
            left
        } else {
            random.below(left + 1)
        };
        left -= micros;
        Duration::from_micros(micros)
    })
}

/// Frames before which something may go wrong.
const FRAMES: [UpgradeFrame; 9] = [
    UpgradeFrame::Hello,
    UpgradeFrame::Listener,
    UpgradeFrame::Listeners,
    UpgradeFrame::Ready,
    UpgradeFrame::TicketKeys,
    UpgradeFrame::Store,
    UpgradeFrame::Taken,
    UpgradeFrame::Serve,
    UpgradeFrame::Serving,
];
/// Milliseconds for which loops stand still for a successor that has stopped, at most.
const PAUSE_MAX: u64 = 2_000;

/// The upgrades of a seed, each behind so many of the steps before it, and after a pause.
pub(crate) fn upgrade_steps(options: &Options) -> Vec<(usize, Duration, Upgrade)> {
    let mut random = random(options.seed, 15);
    let upgrade = |_| {
        let place = random.below(options.steps as u64 + 1) as usize;
        let pause = Duration::from_micros(random.below(50_000));
        (
            place,
            pause,
            Upgrade::draw(&mut random, options.memcached.is_none()),
        )
    };
    (0..options.upgrades).map(upgrade).collect()
}
