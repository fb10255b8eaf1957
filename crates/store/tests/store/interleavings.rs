//! Every order in which registering, re-reading, writing and notifying can happen.
//!
//! Each case is a few small programs: waiters (a client's poll, parked as data on a loop), writers,
//! and the way of a notification from the writer's thread to the loop's inbox to the loop. Every
//! step of the store is one hold of a lock, so running the steps of all programs in every possible
//! order, on the real store, covers what threads can do. What must never be left at the end is a
//! parked waiter whose cursor differs from what is stored.
//!
//! Programs that are wrong on purpose show that the explorer would notice.

use std::sync::{Arc, Mutex};

use dwell_store::{
    ArithmeticOptions, Expiry, Notify, Store, StoreConfig, StoreMode, StoreOptions, WatcherId,
};

use crate::{NOW, watcher};

const KEY: &[u8] = b"/poll/alice";

/// A client's knowledge of the value: what it last got, `None` for a missing key.
type Cursor = Option<&'static [u8]>;

/// How a loop treats its waiters; all but the first lose wake-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loop {
    /// As the edge does it.
    Correct,
    /// Reads, and registers in a second step without reading again.
    ReadsBeforeRegistering,
    /// On a notification reads first, and clears the pending mark in a second step.
    AcknowledgesAfterReading,
    /// Ends the watch with the first waiter that leaves.
    UnwatchesForOthers,
    /// Drops a notification that finds nobody parked, though one is about to be.
    IgnoresEarlyNotifications,
}

/// One change of the key.
#[derive(Clone, Copy, Debug)]
enum Change {
    Set(&'static [u8]),
    Delete,
    Increment,
    Append,
    Flush,
    Expire,
}

/// A case to explore.
#[derive(Clone, Debug)]
struct Case {
    behaviour: Loop,
    initial: Cursor,
    /// The loop and the cursor of each waiter, and whether its wait may end by itself.
    waiters: Vec<(u8, Cursor, bool)>,
    writers: Vec<Vec<Change>>,
}

/// Where a waiter is in its program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum At {
    Lookup,
    Watch,
    /// Only in [`Loop::ReadsBeforeRegistering`].
    Register,
    Parked,
    Ended,
}

/// Calls the store has made that have not reached an inbox: the writer's thread may be anywhere
/// between the release of the lock and the end of the call.
#[derive(Clone, Default)]
struct Owed(Arc<Mutex<Vec<u8>>>);

impl Notify for Owed {
    fn changed(&self, watcher: WatcherId, key: &[u8]) {
        assert_eq!(key, KEY);
        self.0.lock().unwrap().push(watcher.index());
    }
}

/// A step that can be taken next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    /// The next step of a waiter.
    Waiter(usize),
    /// A parked waiter's time is up.
    WaitEnds(usize),
    /// The next change of a writer.
    Writer(usize),
    /// A call reaches the inbox of its loop.
    Deliver(usize),
    /// A loop takes a notification out of its inbox and re-reads.
    Receive(u8),
    /// Only in [`Loop::AcknowledgesAfterReading`]: the second half of that.
    Acknowledge(u8),
}

const LOOPS: u8 = 2;

struct World<'a> {
    case: &'a Case,
    store: Store,
    owed: Owed,
    now: u32,
    waiters: Vec<At>,
    writers: Vec<usize>,
    inboxes: [usize; LOOPS as usize],
    unacknowledged: [bool; LOOPS as usize],
}

impl<'a> World<'a> {
    fn new(case: &'a Case) -> Self {
        let owed = Owed::default();
        let config = StoreConfig {
            bytes_max: 0,
            shards: 1,
            ..StoreConfig::default()
        };
        let store = Store::new(&config, Box::new(owed.clone()));
        if let Some(value) = case.initial {
            store.set(KEY, 0, Expiry::at(NOW + 10), value, NOW);
        }
        Self {
            case,
            store,
            owed,
            now: NOW,
            waiters: vec![At::Lookup; case.waiters.len()],
            writers: vec![0; case.writers.len()],
            inboxes: [0; LOOPS as usize],
            unacknowledged: [false; LOOPS as usize],
        }
    }

    fn stored(&self) -> Option<Vec<u8>> {
        self.store
            .get(KEY, self.now)
            .map(|item| item.value.to_vec())
    }

    /// The steps that can be taken now.
    fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (index, at) in self.waiters.iter().enumerate() {
            match at {
                At::Lookup | At::Watch | At::Register => steps.push(Step::Waiter(index)),
                At::Parked if self.case.waiters[index].2 => steps.push(Step::WaitEnds(index)),
                At::Parked | At::Ended => {}
            }
        }
        for (index, &done) in self.writers.iter().enumerate() {
            if done < self.case.writers[index].len() {
                steps.push(Step::Writer(index));
            }
        }
        // Calls for the same loop are alike, so which of them arrives makes no difference.
        let owed = self.owed.0.lock().unwrap();
        for at in 0..LOOPS {
            steps.extend(owed.iter().position(|&owed| owed == at).map(Step::Deliver));
            if self.unacknowledged[usize::from(at)] {
                steps.push(Step::Acknowledge(at));
            } else if self.inboxes[usize::from(at)] > 0 {
                steps.push(Step::Receive(at));
            }
        }
        steps
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Waiter(index) => self.advance(index),
            Step::WaitEnds(index) => self.end(index),
            Step::Writer(index) => {
                let change = self.case.writers[index][self.writers[index]];
                self.writers[index] += 1;
                self.change(change);
            }
            Step::Deliver(position) => {
                let at = self.owed.0.lock().unwrap().remove(position);
                self.inboxes[usize::from(at)] += 1;
            }
            Step::Receive(at) => self.receive(at),
            Step::Acknowledge(at) => {
                self.unacknowledged[usize::from(at)] = false;
                self.store.reread(KEY, watcher(at), self.now);
            }
        }
        // One call per watcher between two rereads: at most one for every writer is on its way,
        // and one in the inbox.
        let owed = self.owed.0.lock().unwrap().len();
        assert!(
            owed <= usize::from(LOOPS) * (self.writers.len() + 1),
            "{owed} calls owed"
        );
    }

    fn change(&mut self, change: Change) {
        let (store, now) = (&self.store, self.now);
        match change {
            Change::Set(value) => {
                store.set(KEY, 0, Expiry::at(NOW + 10), value, now);
            }
            Change::Delete => {
                store.delete(KEY, now);
            }
            Change::Increment => {
                store.arithmetic(KEY, &ArithmeticOptions::default(), now);
            }
            Change::Append => {
                let options = StoreOptions {
                    mode: StoreMode::Append,
                    ..StoreOptions::default()
                };
                store.store(KEY, b"0", &options, now);
            }
            Change::Flush => store.flush_all(0, now),
            Change::Expire => {
                self.now = NOW + 10;
                self.store.sweep(self.now, 0);
            }
        }
    }

    /// The next step of a waiter's own program.
    fn advance(&mut self, index: usize) {
        let (at, cursor, _) = self.case.waiters[index];
        let splits = self.case.behaviour == Loop::ReadsBeforeRegistering;
        self.waiters[index] = match self.waiters[index] {
            At::Lookup if self.stored().as_deref() != cursor => At::Ended,
            At::Lookup if splits => At::Register,
            At::Lookup => At::Watch,
            At::Register => {
                // Wrong: what was written since the lookup goes unnoticed.
                self.store.watch(KEY, watcher(at), self.now);
                At::Parked
            }
            At::Watch => {
                let item = self.store.watch(KEY, watcher(at), self.now);
                self.waiters[index] = At::Parked;
                if item.as_ref().map(|item| &*item.value) != cursor {
                    self.end(index);
                }
                self.waiters[index]
            }
            other => other,
        };
    }

    /// Ends a wait, and with the last one of the loop its watch.
    fn end(&mut self, index: usize) {
        self.waiters[index] = At::Ended;
        let at = self.case.waiters[index].0;
        if self.case.behaviour == Loop::UnwatchesForOthers || self.parked(at).is_empty() {
            self.store.unwatch(KEY, watcher(at));
        }
    }

    fn parked(&self, at: u8) -> Vec<usize> {
        (0..self.waiters.len())
            .filter(|&index| self.waiters[index] == At::Parked && self.case.waiters[index].0 == at)
            .collect()
    }

    /// A loop hears that the key has changed.
    fn receive(&mut self, at: u8) {
        self.inboxes[usize::from(at)] -= 1;
        let parked = self.parked(at);
        if parked.is_empty() {
            return;
        }
        let value = match self.case.behaviour {
            Loop::AcknowledgesAfterReading => {
                self.unacknowledged[usize::from(at)] = true;
                self.stored()
            }
            Loop::IgnoresEarlyNotifications if parked.len() < self.case.waiters.len() => return,
            _ => {
                let item = self.store.reread(KEY, watcher(at), self.now);
                item.map(|item| item.value.to_vec())
            }
        };
        for index in parked {
            if value.as_deref() != self.case.waiters[index].1 {
                self.end(index);
            }
        }
    }

    /// Whether somebody waits for what is already there, with nothing left to tell them.
    fn is_lost(&self) -> bool {
        let stored = self.stored();
        (0..self.waiters.len()).any(|index| {
            self.waiters[index] == At::Parked && stored.as_deref() != self.case.waiters[index].1
        })
    }
}

/// The outcome of exploring a case.
struct Explored {
    orders: usize,
    /// The first order that ended with a lost wake-up.
    lost: Option<Vec<Step>>,
}

/// Runs a case in every order, each from the start, until one loses a wake-up.
fn explore(case: &Case) -> Explored {
    // The choice taken at each depth, and the number of choices there were.
    let mut path: Vec<(usize, usize)> = Vec::new();
    let mut orders = 0;
    loop {
        let mut world = World::new(case);
        let mut taken = Vec::new();
        loop {
            let steps = world.steps();
            if steps.is_empty() {
                break;
            }
            let depth = taken.len();
            if depth == path.len() {
                path.push((0, steps.len()));
            }
            let step = steps[path[depth].0];
            taken.push(step);
            world.take(step);
        }
        orders += 1;
        if world.is_lost() {
            return Explored {
                orders,
                lost: Some(taken),
            };
        }
        while path
            .last()
            .is_some_and(|&(choice, choices)| choice + 1 == choices)
        {
            path.pop();
        }
        let Some((choice, _)) = path.last_mut() else {
            return Explored { orders, lost: None };
        };
        *choice += 1;
    }
}

fn case(initial: Cursor, waiters: &[(u8, Cursor, bool)], changes: &[&[Change]]) -> Case {
    Case {
        behaviour: Loop::Correct,
        initial,
        waiters: waiters.to_vec(),
        writers: changes.iter().map(|program| program.to_vec()).collect(),
    }
}

const ONE: Cursor = Some(b"1");
const ENDS: bool = true;
const STAYS: bool = false;

/// Cases that between them have every change, missing and present keys, one and several loops.
fn cases() -> Vec<Case> {
    use Change::{Append, Delete, Expire, Flush, Increment, Set};
    let waiter: &[(u8, Cursor, bool)] = &[(0, ONE, STAYS)];
    let pair: &[(u8, Cursor, bool)] = &[(0, ONE, STAYS), (0, ONE, ENDS)];
    let apart: &[(u8, Cursor, bool)] = &[(0, ONE, STAYS), (1, ONE, STAYS)];
    let three: &[(u8, Cursor, bool)] = &[(0, ONE, STAYS), (0, ONE, STAYS), (1, ONE, STAYS)];
    let missing: &[(u8, Cursor, bool)] = &[(0, None, STAYS)];
    vec![
        case(
            ONE,
            waiter,
            &[&[Set(b"2"), Set(b"3")], &[Set(b"4"), Set(b"1")]],
        ),
        case(
            ONE,
            waiter,
            &[&[Set(b"2"), Set(b"1"), Set(b"2"), Set(b"1")]],
        ),
        case(ONE, waiter, &[&[Delete, Set(b"1")], &[Increment]]),
        case(ONE, waiter, &[&[Append, Set(b"1")], &[Flush]]),
        case(ONE, waiter, &[&[Expire], &[Set(b"1")]]),
        case(
            ONE,
            &[(0, ONE, ENDS)],
            &[&[Set(b"2"), Set(b"1")], &[Set(b"3")]],
        ),
        case(ONE, pair, &[&[Set(b"2")], &[Set(b"1")]]),
        case(ONE, pair, &[&[Set(b"2"), Set(b"1"), Delete]]),
        case(ONE, pair, &[&[Set(b"2"), Set(b"1")], &[Flush, Set(b"1")]]),
        case(ONE, apart, &[&[Set(b"2"), Set(b"1")], &[Set(b"3")]]),
        case(
            ONE,
            waiter,
            &[&[Set(b"2")], &[Delete], &[Set(b"1")], &[Set(b"3")]],
        ),
        case(
            ONE,
            &[(0, ONE, ENDS), (0, Some(b"2"), STAYS)],
            &[&[Set(b"2"), Set(b"3")]],
        ),
        case(ONE, apart, &[&[Set(b"2")], &[Set(b"1")]]),
        case(ONE, apart, &[&[Delete, Set(b"1")]]),
        case(ONE, three, &[&[Set(b"2"), Set(b"1")]]),
        case(None, missing, &[&[Set(b"2"), Delete], &[Set(b"3")]]),
        case(None, missing, &[&[Set(b"2"), Flush], &[Expire]]),
        case(
            None,
            &[(0, None, ENDS), (0, None, STAYS)],
            &[&[Set(b"2"), Delete]],
        ),
    ]
}

#[test]
fn no_order_of_steps_loses_a_wake_up() {
    let mut orders = 0;
    for case in cases() {
        let explored = explore(&case);
        assert!(
            explored.lost.is_none(),
            "{case:?} loses a wake-up: {:?}",
            explored.lost
        );
        orders += explored.orders;
    }
    // The exploration itself has not been cut short.
    assert!(orders > 50_000, "{orders} orders");
}

/// Whether the explorer catches a loop that does this.
fn is_caught(behaviour: Loop) -> bool {
    cases().into_iter().any(|case| {
        let caught = explore(&Case { behaviour, ..case }).lost;
        caught.is_some_and(|steps| !steps.is_empty())
    })
}

#[test]
fn reading_before_registering_is_caught() {
    assert!(is_caught(Loop::ReadsBeforeRegistering));
}

#[test]
fn acknowledging_after_reading_is_caught() {
    assert!(is_caught(Loop::AcknowledgesAfterReading));
}

#[test]
fn unwatching_for_others_is_caught() {
    assert!(is_caught(Loop::UnwatchesForOthers));
}

#[test]
fn ignoring_early_notifications_is_caught() {
    assert!(is_caught(Loop::IgnoresEarlyNotifications));
}
