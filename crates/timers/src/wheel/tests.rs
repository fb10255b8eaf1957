use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::Random;

/// One step of a random run; the numbers choose within what is possible at that point.
#[derive(Clone, Debug)]
enum Step {
    Arm {
        id: u32,
        ahead: u32,
    },
    ArmInThePast {
        id: u32,
        behind: u32,
    },
    Cancel {
        id: u32,
    },
    /// Drains to `ahead` ticks from now; after each id, does what `inside` says about another one.
    Drain {
        ahead: u32,
        inside: u64,
    },
}

/// The wheel beside a plain map of deadlines that it must agree with.
struct Pair {
    wheel: Wheel,
    model: BTreeMap<u32, Tick>,
    now: Tick,
    ids: u32,
}

impl Pair {
    fn new(start: u32, ids: u32) -> Self {
        let now = Tick::new(start);
        Self {
            wheel: Wheel::new(now),
            model: BTreeMap::new(),
            now,
            ids,
        }
    }

    fn arm(&mut self, id: u32, deadline: Tick) {
        let mut kept = if deadline.is_due(self.now) {
            self.now.plus(1)
        } else {
            deadline
        };
        if kept.value() == u32::MAX {
            kept = Tick::new(0);
        }
        self.wheel.arm(id, deadline);
        self.model.insert(id, kept);
        assert_eq!(self.wheel.deadline(id), Some(kept));
    }

    fn cancel(&mut self, id: u32) {
        assert_eq!(self.wheel.cancel(id), self.model.remove(&id).is_some());
        assert_eq!(self.wheel.deadline(id), None);
    }

    fn drain(&mut self, target: Tick, mut inside: u64) {
        self.now = target;
        let mut last: Option<Tick> = None;
        while let Some(id) = self.wheel.pop_due(target) {
            let deadline = self
                .model
                .remove(&id)
                .expect("not armed, cancelled or fired before");
            assert!(deadline.is_due(target), "early");
            assert!(
                last.is_none_or(|last| last.is_due(deadline)),
                "out of order"
            );
            last = Some(deadline);
            assert_eq!(self.wheel.len(), self.model.len());
            inside = Random::new(inside).draw();
            let other = (inside >> 8) as u32 % self.ids;
            match inside & 7 {
                0 => self.cancel(other),
                1 => self.arm(other, target.plus((inside >> 40) as u32 % 500)),
                2 => self.arm(id, target),
                3 => self.arm(other, Tick::new(target.value().wrapping_sub(3))),
                _ => {}
            }
            self.check_next_event();
        }
        assert!(
            self.model.values().all(|deadline| !deadline.is_due(target)),
            "late"
        );
    }

    fn check_next_event(&self) {
        let earliest = self
            .model
            .values()
            .min_by_key(|deadline| self.distance(**deadline));
        match (self.wheel.next_event(), earliest) {
            (None, None) => {}
            (Some(next), Some(earliest)) => {
                assert!(next.is_due(*earliest), "{next:?} is after {earliest:?}");
            }
            (next, earliest) => panic!("{next:?} for {earliest:?}"),
        }
    }

    /// How far a deadline lies ahead, counted so that overdue ones come first.
    fn distance(&self, deadline: Tick) -> u32 {
        deadline.ticks_since(self.now).wrapping_add(1 << 31)
    }

    fn run(&mut self, steps: impl IntoIterator<Item = Step>) {
        for step in steps {
            match step {
                Step::Arm { id, ahead } => self.arm(id % self.ids, self.now.plus(ahead)),
                Step::ArmInThePast { id, behind } => {
                    let past = Tick::new(self.now.value().wrapping_sub(behind));
                    self.arm(id % self.ids, past);
                }
                Step::Cancel { id } => self.cancel(id % self.ids),
                Step::Drain { ahead, inside } => self.drain(self.now.plus(ahead), inside),
            }
            assert_eq!(self.wheel.len(), self.model.len());
            assert_eq!(self.wheel.is_empty(), self.model.is_empty());
            self.check_next_event();
        }
    }
}

const SPANS: [u32; 12] = [
    0, 1, 3, 255, 256, 257, 1000, 65_535, 65_536, 70_000, 20_000_000, 30_000_000,
];
/// Where runs start: beside every kind of bucket border, and shortly before the wrap.
const STARTS: [u32; 8] = [
    0,
    255,
    65_530,
    (1 << 24) - 3,
    u32::MAX - 300,
    u32::MAX - 70_000,
    u32::MAX - 1,
    u32::MAX,
];

const SEEDS: u64 = if cfg!(miri) { 2 } else { 4000 };

fn random_step(state: &mut u64) -> Step {
    let mut draw = || {
        *state = Random::new(*state).draw();
        *state >> 16
    };
    let kind = draw() % 20;
    let id = draw() as u32;
    let span = SPANS[draw() as usize % SPANS.len()];
    let ahead = draw() as u32 % (span + 1);
    match kind {
        0..=9 => Step::Arm { id, ahead },
        10 => Step::ArmInThePast { id, behind: ahead },
        11..=14 => Step::Cancel { id },
        _ => Step::Drain {
            ahead,
            inside: draw(),
        },
    }
}

#[test]
fn agrees_with_a_map_of_deadlines() {
    for seed in 1..=SEEDS {
        let mut state = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let start = STARTS[seed as usize % STARTS.len()];
        let ids = 1 + Random::new(state).draw() as u32 % 60;
        let mut pair = Pair::new(start, ids);
        let run = std::panic::AssertUnwindSafe(|| {
            pair.run(std::iter::repeat_with(|| random_step(&mut state)).take(300));
        });
        if let Err(cause) = std::panic::catch_unwind(run) {
            eprintln!("seed {seed}");
            std::panic::resume_unwind(cause);
        }
    }
}

/// Miri, which takes a thousand times as long, keeps no files.
fn config() -> ProptestConfig {
    if cfg!(miri) {
        ProptestConfig {
            failure_persistence: None,
            ..ProptestConfig::with_cases(2)
        }
    } else {
        ProptestConfig::default()
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    let ahead = prop::sample::select(&SPANS).prop_flat_map(|span| 0..=span);
    let drain = (ahead.clone(), any::<u64>());
    prop_oneof![
        4 => (any::<u32>(), ahead).prop_map(|(id, ahead)| Step::Arm { id, ahead }),
        1 => (any::<u32>(), 0..5000_u32).prop_map(|(id, behind)| Step::ArmInThePast { id, behind }),
        2 => any::<u32>().prop_map(|id| Step::Cancel { id }),
        2 => drain.prop_map(|(ahead, inside)| Step::Drain { ahead, inside }),
    ]
}

proptest! {
    #![proptest_config(config())]

    #[test]
    fn agrees_with_a_map_and_shrinks(
        start in prop::sample::select(&STARTS),
        ids in 1..20_u32,
        steps in prop::collection::vec(any_step(), 0..60),
    ) {
        Pair::new(start, ids).run(steps);
    }
}

/// Every sort of record there is, counted: what a bucket says it holds is what it holds.
fn records_in_buckets(wheel: &Wheel) -> usize {
    let mut count = 0;
    for list in &wheel.buckets {
        wheel.pool.for_each(*list, |_| count += 1);
    }
    count
}

/// A connection's read timeout and its keep-alive timeout take turns; the far records that this
/// leaves behind must not pile up until their hour comes.
#[test]
fn alternating_durations_do_not_leak() {
    const IDS: u32 = if cfg!(miri) { 20 } else { 2000 };
    const TICKS: u32 = if cfg!(miri) { 2_000 } else { 200_000 };
    let start = u32::MAX - TICKS / 2;
    let mut wheel = Wheel::new(Tick::new(start));
    let mut worst = 0;
    for passed in (0..TICKS).step_by(50) {
        let now = Tick::new(start.wrapping_add(passed));
        while wheel.pop_due(now).is_some() {}
        for id in 0..IDS {
            let short = (passed / 50 + id).is_multiple_of(3);
            wheel.arm(id, now.plus(if short { 100 } else { 360_000 }));
        }
        worst = worst.max(wheel.records);
    }
    assert_eq!(wheel.records, records_in_buckets(&wheel));
    assert!(
        worst <= 2 * IDS as usize + RECORDS_SPARE + 1,
        "{worst} records"
    );
}

/// An id that leaves a far bucket and comes back to it has two records there with one tick.
#[test]
fn compaction_drops_records_of_ids_that_came_back() {
    const IDS: usize = 10;
    let mut wheel = Wheel::new(Tick::new(1));
    let far = Tick::new(70_000);
    for round in 1..100 {
        let now = Tick::new(round);
        for id in 0..IDS as u32 {
            wheel.arm(id, now.plus(1));
            wheel.arm(id, far);
        }
        assert_eq!(wheel.pop_due(now.plus(1)), None);
    }
    assert!(wheel.records > 50 * IDS, "the test makes no second records");
    wheel.compact();
    assert_eq!((wheel.records, records_in_buckets(&wheel)), (IDS, IDS));
    assert_eq!(wheel.pop_due(Tick::new(69_999)), None);
    assert_eq!(std::iter::from_fn(|| wheel.pop_due(far)).count(), IDS);
    assert_eq!((wheel.records, records_in_buckets(&wheel)), (0, 0));
}

#[test]
fn cancelled_ids_are_forgotten_when_others_are_armed() {
    const IDS: u32 = if cfg!(miri) { 3000 } else { 100_000 };
    let now = Tick::new(0);
    let mut wheel = Wheel::new(now);
    for id in 0..IDS {
        wheel.arm(id, now.plus(360_000));
        wheel.cancel(id);
    }
    assert!(
        wheel.records <= RECORDS_SPARE + 3,
        "{} records",
        wheel.records
    );
    assert_eq!(wheel.next_event(), None);
    wheel.arm(5, now.plus(360_000));
    assert_eq!(wheel.len(), 1);
    assert_eq!(wheel.pop_due(now.plus(360_000)), Some(5));
}

#[test]
fn nothing_is_allocated_after_warm_up() {
    const IDS: u32 = if cfg!(miri) { 50 } else { 5000 };
    let mut wheel = Wheel::new(Tick::new(0));
    let mut state = 7;
    let mut turn = |wheel: &mut Wheel, now: Tick| {
        for id in 0..IDS {
            state = Random::new(state).draw();
            wheel.arm(id, now.plus(1 + (state >> 32) as u32 % 6000));
        }
        while wheel.pop_due(now).is_some() {}
    };
    for passed in 0..300 {
        turn(&mut wheel, Tick::new(passed * 50));
    }
    let warm = (wheel.entries.capacity(), wheel.pool.allocated());
    for passed in 300..400 {
        turn(&mut wheel, Tick::new(passed * 50));
    }
    assert_eq!((wheel.entries.capacity(), wheel.pool.allocated()), warm);
}

#[test]
fn what_is_armed_for_now_fires_on_the_next_tick() {
    let now = Tick::new(1000);
    let mut wheel = Wheel::new(now);
    wheel.arm(0, now);
    assert_eq!(wheel.pop_due(now), None);
    assert_eq!(wheel.pop_due(now.plus(1)), Some(0));
    wheel.arm(0, now);
    assert_eq!(wheel.pop_due(now.plus(1)), None, "the same drain");
    assert_eq!(wheel.pop_due(now.plus(2)), Some(0));
}

#[test]
fn an_id_cancelled_in_its_own_tick_is_not_returned() {
    let now = Tick::new(0);
    let mut wheel = Wheel::new(now);
    for id in 0..100 {
        wheel.arm(id, now.plus(5));
    }
    let first = wheel.pop_due(now.plus(5)).unwrap();
    for id in (0..100).filter(|id| *id != first) {
        assert!(wheel.cancel(id));
    }
    assert_eq!(wheel.pop_due(now.plus(5)), None);
}

#[test]
fn deadlines_saturate_ahead_of_now() {
    let now = Tick::new(u32::MAX - 5);
    let mut wheel = Wheel::new(now);
    wheel.arm(3, Tick::new(now.value().wrapping_add(TICKS_AHEAD_MAX + 77)));
    let limit = now.plus(TICKS_AHEAD_MAX);
    assert_eq!(wheel.deadline(3), Some(limit));
    assert_eq!(wheel.pop_due(Tick::new(limit.value() - 1)), None);
    assert_eq!(wheel.pop_due(limit), Some(3));
}

#[test]
fn a_jump_of_two_hundred_days_is_correct() {
    let now = Tick::new(u32::MAX - 5);
    let mut wheel = Wheel::new(now);
    wheel.arm(0, now.plus(TICKS_AHEAD_MAX));
    wheel.arm(1, now.plus(10));
    let later = Tick::new(now.value().wrapping_add((1 << 31) - 1));
    assert_eq!(wheel.pop_due(later), Some(1));
    wheel.arm(2, later.plus(TICKS_AHEAD_MAX));
    assert_eq!(wheel.pop_due(later), Some(0));
    assert_eq!(wheel.pop_due(later), None);
    assert_eq!(wheel.pop_due(later.plus(TICKS_AHEAD_MAX)), Some(2));
}

#[test]
fn a_clock_that_steps_back_changes_nothing() {
    let now = Tick::new(500);
    let mut wheel = Wheel::new(now);
    wheel.arm(0, now.plus(10));
    assert_eq!(wheel.pop_due(Tick::new(400)), None);
    assert_eq!(wheel.pop_due(now.plus(10)), Some(0));
}

#[test]
fn unknown_ids_are_not_armed() {
    let mut wheel = Wheel::new(Tick::new(0));
    assert!(!wheel.cancel(9));
    assert_eq!(wheel.deadline(9), None);
}
