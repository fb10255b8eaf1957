//! The loops of one process, as they end together.

use crate::event_loop::{Message, Settings};
use crate::ops::inquiry::Inquiry;
use crate::process::{Arrival, Arrivals, Leaving, Standstill};
use dwell_evloop::Sender;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

/// What the loops are told to do; each is stronger than those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Order {
    /// Serve.
    Serve,
    /// Another process serves: give it what it can go on with, and end the rest in order.
    HandOver,
    /// End in order.
    Drain,
    /// End at once.
    Stop,
}

/// What the loops of a process know of one another.
///
/// Orders and settings are words that all of them read at the end of each turn, not messages: an
/// inbox that is full of changes cannot lose them.
#[derive(Debug)]
pub(crate) struct Fleet {
    inboxes: Vec<Sender<Message>>,
    order: AtomicU8,
    running: AtomicUsize,
    /// Counts the settings, so that a loop sees without the lock that there are new ones.
    generation: AtomicU64,
    settings: Mutex<Arc<Settings>>,
    /// Held by whoever changes what all loops go by: one reload or upgrade at a time.
    changes: Mutex<()>,
    standstill: Standstill,
    /// The way to the process that serves now, if it is not this one.
    leaving: OnceLock<Arc<Leaving>>,
    arrivals: Arrivals,
}

/// That of the settings which the process was started with.
pub(crate) const FIRST_GENERATION: u64 = 1;

/// One loop's part in its fleet. Dropped before it has [`ended`](Self::ended), as by an error or a
/// panic, it stops all others: a process that serves with some of its loops looks alive and is not.
#[derive(Debug)]
pub(crate) struct Member {
    fleet: Arc<Fleet>,
    has_ended: bool,
}

impl Fleet {
    /// The fleet of the loops with these inboxes, all of which count as running. The first one
    /// hears the signals.
    pub(crate) fn new(inboxes: Vec<Sender<Message>>, settings: Settings) -> Arc<Self> {
        Arc::new(Self {
            order: AtomicU8::new(Order::Serve as u8),
            running: AtomicUsize::new(inboxes.len()),
            arrivals: Arrivals::new(inboxes.len()),
            inboxes,
            generation: AtomicU64::new(FIRST_GENERATION),
            settings: Mutex::new(Arc::new(settings)),
            changes: Mutex::default(),
            standstill: Standstill::default(),
            leaving: OnceLock::new(),
        })
    }

    /// How many settings there have been; the first are those of the start.
    pub(crate) fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The newest settings.
    pub(crate) fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.lock_settings())
    }

    /// Gives all loops new settings, and wakes them; returns their generation.
    pub(crate) fn publish(&self, settings: Settings) -> u64 {
        *self.lock_settings() = Arc::new(settings);
        let generation = self.generation.fetch_add(1, Ordering::AcqRel) + 1;
        self.wake();
        generation
    }

    fn lock_settings(&self) -> MutexGuard<'_, Arc<Settings>> {
        // Replaced in one step, so what a panicking thread leaves is whole.
        let settings = self.settings.lock();
        settings.unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits until nobody else changes what the loops go by.
    pub(crate) fn changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many loops there are.
    pub(crate) fn loops(&self) -> usize {
        self.inboxes.len()
    }

    /// Where the loops stand still.
    pub(crate) fn standstill(&self) -> &Standstill {
        &self.standstill
    }

    /// Has all loops give what they can to the process that serves from now on.
    pub(crate) fn hand_over(&self, leaving: Leaving) {
        // It happens once: no upgrade begins after one.
        let _ = self.leaving.set(Arc::new(leaving));
        self.give(Order::HandOver);
    }

    /// The way to the process that serves now, if it is not this one.
    pub(crate) fn leaving(&self) -> Option<Arc<Leaving>> {
        self.leaving.get().cloned()
    }

    /// The connections that the process before hands over.
    pub(crate) fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }

    /// Brings such a connection to a loop, the next one each time.
    pub(crate) fn arrive(&self, count: usize, arrival: Arrival) {
        let of_loop = self.arrivals.put(count, arrival);
        if let Some(inbox) = self.inboxes.get(of_loop) {
            inbox.wake();
        }
    }

    /// Ends the wait of every loop.
    pub(crate) fn wake(&self) {
        for inbox in &self.inboxes {
            inbox.wake();
        }
    }

    /// Ends the wait of the first loop.
    pub(crate) fn wake_first(&self) {
        if let Some(first) = self.inboxes.first() {
            first.wake();
        }
    }

    /// Asks every loop; one whose inbox is full is not heard of.
    pub(crate) fn ask(&self, inquiry: &Arc<Inquiry>) {
        for inbox in &self.inboxes {
            let _ = inbox.send(Message::Asked(Arc::clone(inquiry)));
        }
    }

    /// The strongest order given so far.
    pub(crate) fn order(&self) -> Order {
        match self.order.load(Ordering::Acquire) {
            0 => Order::Serve,
            1 => Order::HandOver,
            2 => Order::Drain,
            _ => Order::Stop,
        }
    }

    /// Gives an order to all loops, and wakes them.
    pub(crate) fn give(&self, order: Order) {
        self.order.fetch_max(order as u8, Ordering::AcqRel);
        self.wake();
    }

    /// Puts a message in the inbox of one loop. One that is full loses it, which whoever waits for
    /// it finds out by looking again.
    pub(crate) fn tell(&self, of_loop: usize, message: Message) {
        if let Some(inbox) = self.inboxes.get(of_loop) {
            let _ = inbox.send(message);
        }
    }

    /// Whether this loop is the last that runs.
    pub(crate) fn is_last(&self) -> bool {
        self.running.load(Ordering::Acquire) <= 1
    }

    /// One loop's part, for the thread that it runs on.
    pub(crate) fn member(self: &Arc<Self>) -> Member {
        Member {
            fleet: Arc::clone(self),
            has_ended: false,
        }
    }
}

impl Member {
    /// The loop has ended as it was told.
    pub(crate) fn ended(mut self) {
        self.has_ended = true;
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        self.fleet.running.fetch_sub(1, Ordering::AcqRel);
        if self.has_ended {
            // It waits for the others, to hear a second signal until the last of them is done.
            self.fleet.wake_first();
        } else {
            self.fleet.give(Order::Stop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_evloop::EventLoop;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn an_order_is_never_taken_back() {
        let fleet = Fleet::new(Vec::new(), Settings::default());
        fleet.give(Order::Stop);
        fleet.give(Order::Drain);
        assert_eq!(fleet.order(), Order::Stop);
    }

    #[test]
    fn a_loop_that_ends_as_told_lets_the_others_go_on() {
        let event_loops = [(); 2].map(|()| EventLoop::new().unwrap());
        let fleet = Fleet::new(
            event_loops.iter().map(EventLoop::sender).collect(),
            Settings::default(),
        );
        assert!(!fleet.is_last());
        fleet.member().ended();
        assert!(fleet.is_last());
        assert_eq!(fleet.order(), Order::Serve);
    }

    #[test]
    fn a_loop_that_panics_stops_the_others() {
        let fleet = Fleet::new(Vec::new(), Settings::default());
        let panics = || {
            let _member = fleet.member();
            std::panic::resume_unwind(Box::new("a bug"));
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(fleet.order(), Order::Stop);
    }
}
