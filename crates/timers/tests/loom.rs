//! The protocol between owners and sweeper, in every order that the memory model allows.
//!
//! `slot`, `sweep` and `published` are the product's own sources, compiled here with loom's
//! atomics. Each scenario runs one owner (or two, one after the other) against a sweeper, and then
//! asks: was each waker woken or dropped exactly once, the last one woken if it stayed armed, and
//! none before its tick? The mutants leave one thing out that the protocol needs, and the same
//! scenarios must then fail.
//!
//! `make test-loom`
#![cfg(loom)]
#![expect(unsafe_code, reason = "wakers of the model's own")]

use dwell_timers::{Tick, Wheel};
use loom::sync::Mutex;
use loom::sync::atomic::{AtomicU64, Ordering, fence};
use loom::thread;
use published::Published;
use slot::{Disarmed, Handle, Links, Slot, When};
use std::cell::Cell;
use std::ops::Deref;
use std::sync::Arc;
use std::task::{RawWaker, RawWakerVTable, Waker};
use sweep::{Directory, Sweep};

mod atomics {
    pub(crate) use loom::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering};
}
#[expect(dead_code, reason = "the model parks nobody for real")]
#[path = "../src/shared/published.rs"]
mod published;
#[expect(dead_code, reason = "the model has no free lists")]
#[path = "../src/shared/slot.rs"]
mod slot;
#[expect(dead_code, reason = "the model has no manual clock")]
#[path = "../src/shared/sweep.rs"]
mod sweep;

/// What is left out of the protocol.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Mutant {
    Product,
    NoLightBarrier,
    NoHeavyBarrier,
    MarkAfterAdd,
    ParkWithoutALook,
    ReadWakerAfterLeaving,
}

/// What the owner does with its timer, in order.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// Arms a disarmed timer for a tick.
    Arm(u32),
    /// Moves the deadline, as `Deadline::set` does.
    Move(u32),
    /// Polls with another waker.
    Repoll,
    Cancel,
    /// Hands the timer to another thread, which does the rest.
    Migrate,
}

#[derive(Clone)]
struct Numbered {
    slot: Arc<Slot>,
    id: u32,
}

/// What owners and sweeper share.
struct World {
    mutant: Mutant,
    inbox: Mutex<Vec<Numbered>>,
    published: Published,
    /// Slots whose owner left while the sweeper was deciding, for anybody to take.
    recycled: Mutex<Vec<Numbered>>,
    slots: Vec<Numbered>,
}

/// The owner's end of a timer, as in `timer.rs`.
struct Owner {
    world: Arc<World>,
    armed: Option<Numbered>,
    deadline: u32,
    wakers: usize,
    /// The slots not used yet.
    fresh: Vec<Numbered>,
}

struct Slots(Vec<Numbered>);

impl Deref for Numbered {
    type Target = Slot;

    fn deref(&self) -> &Slot {
        &self.slot
    }
}

impl Handle for Numbered {
    fn id(&self) -> u32 {
        self.id
    }
}

impl Directory for Slots {
    type Handle = Numbered;

    fn learn(&mut self, _: &Numbered) {}

    fn slot(&self, id: u32) -> Numbered {
        self.0[id as usize].clone()
    }
}

impl Links<Numbered> for World {
    fn light(&self) {
        if self.mutant != Mutant::NoLightBarrier {
            fence(Ordering::SeqCst);
        }
    }

    fn enlist(&self, slot: &Numbered, mark: impl FnOnce()) {
        if self.mutant == Mutant::MarkAfterAdd {
            self.inbox
                .lock()
                .expect("loom locks are not poisoned")
                .push(slot.clone());
            mark();
        } else {
            mark();
            self.inbox
                .lock()
                .expect("loom locks are not poisoned")
                .push(slot.clone());
        }
        // As in `sweeper.rs`: whoever finds the tick stopped has it go on.
        if self.published.is_stopped_by_now() {
            self.published.publish(START + 1);
        }
    }
}

impl World {
    fn new(mutant: Mutant) -> Self {
        TALLIES.with(|tallies| tallies.iter().for_each(|tally| tally.set(Tally::default())));
        let slots = (0..3).map(|id| Numbered {
            slot: Arc::new(Slot::new()),
            id,
        });
        Self {
            mutant,
            inbox: Mutex::new(Vec::new()),
            published: Published::new(AtomicU64::new(u64::from(START))),
            recycled: Mutex::new(Vec::new()),
            slots: slots.collect(),
        }
    }

    fn sweeper(&self) -> Sweep<Slots> {
        Sweep::new(Tick::new(START), Slots(self.slots.clone()))
    }

    fn sweep(&self, sweep: &mut Sweep<Slots>, tick: u32) {
        let now = Tick::new(tick);
        let mut enlisted =
            std::mem::take(&mut *self.inbox.lock().expect("loom locks are not poisoned"));
        sweep.collect(now, &mut enlisted);
        sweep.reap(4);
        if !sweep.is_unsettled() {
            return;
        }
        if self.mutant != Mutant::NoHeavyBarrier {
            fence(Ordering::SeqCst);
        }
        let mut fired = Vec::new();
        let is_due = |when: When| !slot::is_after(when.deadline, tick);
        sweep.settle(now, is_due, &mut fired, |slot| {
            let mut recycled = self.recycled.lock().expect("loom locks are not poisoned");
            recycled.push(slot);
        });
        NOW.set(tick);
        fired.drain(..).for_each(Waker::wake);
    }
}

impl Owner {
    fn new(world: Arc<World>) -> Self {
        Self {
            armed: None,
            deadline: 0,
            wakers: 0,
            fresh: world.slots.clone(),
            world,
        }
    }

    fn step(&mut self, step: Step) {
        match step {
            Arm(deadline) => {
                self.deadline = deadline;
                self.arm();
            }
            Move(deadline) => {
                self.deadline = deadline;
                let armed = self.armed.clone().expect("armed");
                if !Slot::rearm(&armed, when(deadline), &*self.world) {
                    self.cancel();
                    self.arm();
                }
            }
            Repoll => self.repoll(),
            Cancel => self.cancel(),
            Migrate => unreachable!("done by the caller"),
        }
    }

    fn arm(&mut self) {
        let slot = self.fresh.pop().expect("three slots are enough");
        self.arm_with(slot, when(self.deadline));
    }

    fn arm_with(&mut self, slot: Numbered, when: When) {
        let waker = waker(self.wakers);
        self.wakers += 1;
        Slot::arm(&slot, waker, when, &*self.world);
        self.armed = Some(slot);
    }

    fn repoll(&mut self) {
        let slot = self.armed.take().expect("armed");
        let when = slot.when();
        match Slot::disarm(&slot, &*self.world) {
            Disarmed::Kept(before) => {
                drop(before);
                self.arm_with(slot, when);
            }
            Disarmed::Handed(before) => {
                drop(before);
                self.arm();
            }
            // Ready: whoever was polled knows. Here the deadline must have come.
            Disarmed::Fired => {
                assert_tick_reached(self.deadline, self.wakers - 1);
                self.fresh.push(slot);
            }
        }
    }

    fn cancel(&mut self) {
        let Some(slot) = self.armed.take() else {
            return;
        };
        match Slot::disarm(&slot, &*self.world) {
            Disarmed::Kept(waker) => {
                drop(waker);
                self.fresh.push(slot);
            }
            Disarmed::Handed(waker) if self.world.mutant == Mutant::ReadWakerAfterLeaving => {
                std::mem::forget(waker);
                drop(waker_read_late(&slot));
            }
            Disarmed::Handed(waker) => drop(waker),
            Disarmed::Fired => self.fresh.push(slot),
        }
    }
}

/// The waker as an owner finds it who reads it after having left the slot.
fn waker_read_late(slot: &Slot) -> Waker {
    // Free lists are linked through the two words of the waker, so these are they.
    let (data, vtable) = (slot.next_free(), slot.next_list());
    // SAFETY: whoever owns the slot by now has written the words of a waker of this file, or those
    // of two of them: their tables live as long as the program, and only count.
    unsafe { Waker::new(data, &*vtable.cast::<RawWakerVTable>()) }
}

/// Runs `steps` against sweeps at `ticks`, and then sweeps on until everything must have fired.
fn run(mutant: Mutant, scenario: &'static Scenario) {
    explore(scenario.preemptions, move || {
        let world = Arc::new(World::new(mutant));
        let their_world = Arc::clone(&world);
        let owner = thread::spawn(move || own(Owner::new(their_world), scenario.steps));
        let mut sweep = world.sweeper();
        for tick in SWEPT {
            world.sweep(&mut sweep, tick);
        }
        let owner = owner.join().expect("a panic ends the model");
        finish(&world, &mut sweep, &owner);
    });
}

/// The scenario `name` under two sweepers, the second in the place of the first.
fn run_replaced(mutant: Mutant, steps: &'static [Step]) {
    explore(Some(2), move || {
        let world = Arc::new(World::new(mutant));
        let their_world = Arc::clone(&world);
        let owner = thread::spawn(move || own(Owner::new(their_world), steps));
        let state = Arc::new(Mutex::new((START, world.sweeper())));
        let (their_world, their_state) = (Arc::clone(&world), Arc::clone(&state));
        let first = thread::spawn(move || turn(&their_world, &their_state));
        turn(&world, &state);
        first.join().expect("a panic ends the model");
        let owner = owner.join().expect("a panic ends the model");
        finish(
            &world,
            &mut state.lock().expect("loom locks are not poisoned").1,
            &owner,
        );
    });
}

/// An owner that leaves while the sweeper is deciding, and another that takes the recycled slot.
fn run_recycled(mutant: Mutant) {
    explore(None, move || {
        let world = Arc::new(World::new(mutant));
        let (first_world, second_world) = (Arc::clone(&world), Arc::clone(&world));
        let first = thread::spawn(move || own(Owner::new(first_world), &[Arm(11), Cancel]));
        let second = thread::spawn(move || {
            let mut owner = Owner::new(second_world);
            owner.wakers = 4;
            owner.fresh = std::mem::take(&mut *owner.world.recycled.lock().expect("not poisoned"));
            if owner.fresh.is_empty() {
                return None;
            }
            owner.step(Arm(13));
            Some(owner)
        });
        let mut sweep = world.sweeper();
        world.sweep(&mut sweep, SWEPT[0]);
        let second = second.join().expect("a panic ends the model");
        let first = first.join().expect("a panic ends the model");
        if let Some(second) = second {
            finish(&world, &mut sweep, &first);
            assert!(second.armed.is_some_and(|slot| slot.has_fired()));
            let tally = TALLIES.with(|tallies| tallies[4].get());
            assert_eq!((tally.woken, tally.dropped), (1, 0));
        }
    });
}

fn turn(world: &World, state: &Mutex<(u32, Sweep<Slots>)>) {
    let mut state = state.lock().expect("loom locks are not poisoned");
    state.0 += 1;
    let tick = state.0;
    world.sweep(&mut state.1, tick);
}

/// A sweeper that parks when it finds nothing armed.
fn run_parking(mutant: Mutant, steps: &'static [Step]) {
    explore(Some(3), move || {
        let world = Arc::new(World::new(mutant));
        let their_world = Arc::clone(&world);
        let owner = thread::spawn(move || own(Owner::new(their_world), steps));
        let mut sweep = world.sweeper();
        world.sweep(&mut sweep, START + 1);
        if sweep.is_empty() {
            world.published.stop();
            let blind = mutant == Mutant::ParkWithoutALook;
            if !blind
                && !world
                    .inbox
                    .lock()
                    .expect("loom locks are not poisoned")
                    .is_empty()
            {
                world.published.publish(START + 1);
            }
        }
        let owner = owner.join().expect("a panic ends the model");
        if world.published.is_stopped() {
            let is_done = owner.armed.is_none_or(|slot| slot.has_fired());
            assert!(is_done, "armed, and the sweeper is parked");
        } else {
            finish(&world, &mut sweep, &owner);
        }
    });
}

fn explore(preemptions: Option<usize>, model: impl Fn() + Sync + Send + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.max_branches = 20_000;
    builder.preemption_bound = preemptions;
    builder.check(model);
}

fn own(mut owner: Owner, steps: &'static [Step]) -> Owner {
    for (place, step) in steps.iter().enumerate() {
        match step {
            Migrate => {
                let rest = &steps[place + 1..];
                return thread::spawn(move || own(owner, rest))
                    .join()
                    .expect("a panic ends the model");
            }
            // What has fired in a poll before is done with.
            Repoll | Move(_) if owner.armed.is_none() => {}
            step => owner.step(*step),
        }
    }
    owner
}

/// The sweeper keeps ticking; afterwards every waker must be accounted for.
fn finish(world: &World, sweep: &mut Sweep<Slots>, owner: &Owner) {
    for tick in START + 3..START + 8 {
        world.sweep(sweep, tick);
    }
    for waker in 0..owner.wakers {
        let tally = TALLIES.with(|tallies| tallies[waker].get());
        assert_eq!(tally.woken + tally.dropped, 1, "waker {waker}: {tally:?}");
    }
    if let Some(slot) = &owner.armed {
        let last = owner.wakers - 1;
        assert!(slot.has_fired(), "lost");
        assert_tick_reached(owner.deadline, last);
    }
    assert!(sweep.is_empty());
}

fn assert_tick_reached(deadline: u32, waker: usize) {
    let woken_at = TALLIES.with(|tallies| tallies[waker].get().woken_at);
    // Taken and not yet woken: the sweeper is past the decision, which is what counts.
    assert!(woken_at == 0 || woken_at >= deadline, "early");
}

/// The last tick before the model begins is `START`; deadlines are counted from it.
const fn when(deadline: u32) -> When {
    When {
        base: START,
        deadline,
    }
}

const START: u32 = 10;

#[derive(Clone, Copy, Debug, Default)]
struct Tally {
    woken: u32,
    dropped: u32,
    woken_at: u32,
}

thread_local! {
    // loom runs all threads of a model on one; tests run on one each.
    static TALLIES: [Cell<Tally>; 8] = const { [const { Cell::new(Tally {
        woken: 0,
        dropped: 0,
        woken_at: 0,
    }) }; 8] };
    static NOW: Cell<u32> = const { Cell::new(0) };
}

/// A waker that is its number, twice: in its data and in the choice of its table.
fn waker(number: usize) -> Waker {
    let data = std::ptr::without_provenance(number + 1);
    // SAFETY: the functions of both tables only count.
    unsafe { Waker::new(data, TABLES[number % 2]) }
}

static TABLES: [&RawWakerVTable; 2] = [
    &RawWakerVTable::new(
        |data| RawWaker::new(data, TABLES[0]),
        |data| count(data, 0, wake),
        |_| {},
        |data| count(data, 0, |tally| tally.dropped += 1),
    ),
    &RawWakerVTable::new(
        |data| RawWaker::new(data, TABLES[1]),
        |data| count(data, 1, wake),
        |_| {},
        |data| count(data, 1, |tally| tally.dropped += 1),
    ),
];

fn wake(tally: &mut Tally) {
    tally.woken += 1;
    tally.woken_at = NOW.get();
}

fn count(data: *const (), table: usize, change: impl FnOnce(&mut Tally)) {
    let number = data.addr() - 1;
    assert_eq!(number % 2, table, "a waker of two halves");
    TALLIES.with(|tallies| {
        let mut tally = tallies[number].get();
        change(&mut tally);
        tallies[number].set(tally);
    });
}

use Step::{Arm, Cancel, Migrate, Move, Repoll};

/// The ticks swept while the owner is at work.
const SWEPT: [u32; 2] = [START + 1, START + 2];

struct Scenario {
    steps: &'static [Step],
    /// How often a thread may be interrupted in the middle; `None` for as often as it likes.
    preemptions: Option<usize>,
}

const fn all(steps: &'static [Step]) -> Scenario {
    Scenario {
        steps,
        preemptions: None,
    }
}

const fn bounded(steps: &'static [Step]) -> Scenario {
    Scenario {
        steps,
        preemptions: Some(4),
    }
}

static SCENARIOS: [Scenario; 15] = [
    all(&[Arm(11)]),
    all(&[Arm(10)]),
    all(&[Arm(11), Cancel]),
    all(&[Arm(11), Cancel, Arm(13)]),
    all(&[Arm(13), Cancel, Arm(11)]),
    all(&[Arm(11), Cancel, Arm(11)]),
    bounded(&[Arm(12), Cancel, Arm(11), Cancel]),
    bounded(&[Arm(11), Move(13)]),
    all(&[Arm(13), Move(11)]),
    all(&[Arm(13), Move(10)]),
    bounded(&[Arm(12), Move(11), Cancel]),
    all(&[Arm(11), Repoll]),
    bounded(&[Arm(12), Repoll, Repoll]),
    bounded(&[Arm(11), Migrate, Repoll]),
    bounded(&[Arm(11), Migrate, Cancel, Arm(12)]),
];

/// Whether some scenario shows that `mutant` is wrong.
fn is_found(mutant: Mutant) -> bool {
    SCENARIOS
        .iter()
        .any(|scenario| fails(|| run(mutant, scenario)))
}

fn fails(model: impl FnOnce() + std::panic::UnwindSafe) -> bool {
    std::panic::catch_unwind(model).is_err()
}

#[test]
fn every_waker_is_woken_or_dropped_once_and_none_early() {
    for scenario in &SCENARIOS {
        run(Mutant::Product, scenario);
    }
}

#[test]
fn a_replaced_sweeper_leaves_nothing_undone() {
    run_replaced(Mutant::Product, &[Arm(11), Cancel, Arm(12)]);
}

#[test]
fn a_recycled_slot_keeps_the_wakers_of_its_owners_apart() {
    run_recycled(Mutant::Product);
}

#[test]
fn a_parked_sweeper_has_nothing_to_do() {
    run_parking(Mutant::Product, &[Arm(12)]);
    run_parking(Mutant::Product, &[Arm(12), Cancel, Arm(11)]);
}

#[test]
fn without_the_light_barrier_it_is_found_wrong() {
    assert!(is_found(Mutant::NoLightBarrier));
}

#[test]
fn without_the_heavy_barrier_it_is_found_wrong() {
    assert!(is_found(Mutant::NoHeavyBarrier));
}

#[test]
fn marking_after_adding_is_found_wrong() {
    assert!(is_found(Mutant::MarkAfterAdd));
}

#[test]
fn parking_without_another_look_is_found_wrong() {
    assert!(fails(|| run_parking(Mutant::ParkWithoutALook, &[Arm(12)])));
}

#[test]
fn reading_the_waker_after_leaving_its_slot_is_found_wrong() {
    assert!(fails(|| run_recycled(Mutant::ReadWakerAfterLeaving)));
}
