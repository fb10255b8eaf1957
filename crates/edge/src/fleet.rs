//! The loops of one process, as they end together.

use crate::driver::Message;
use dwell_evloop::Sender;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// What the loops are told to do; each is stronger than those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Order {
    /// Serve.
    Serve,
    /// End in order.
    Drain,
    /// End at once.
    Stop,
}

/// What the loops of a process know of one another.
///
/// An order is a word that all of them read at the end of each turn, not a message: an inbox that
/// is full of changes cannot lose it.
#[derive(Debug)]
pub(crate) struct Fleet {
    inboxes: Vec<Sender<Message>>,
    order: AtomicU8,
    running: AtomicUsize,
}

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
    pub(crate) fn new(inboxes: Vec<Sender<Message>>) -> Arc<Self> {
        Arc::new(Self {
            order: AtomicU8::new(Order::Serve as u8),
            running: AtomicUsize::new(inboxes.len()),
            inboxes,
        })
    }

    /// The strongest order given so far.
    pub(crate) fn order(&self) -> Order {
        match self.order.load(Ordering::Acquire) {
            0 => Order::Serve,
            1 => Order::Drain,
            _ => Order::Stop,
        }
    }

    /// Gives an order to all loops, and wakes them.
    pub(crate) fn give(&self, order: Order) {
        self.order.fetch_max(order as u8, Ordering::AcqRel);
        for inbox in &self.inboxes {
            inbox.wake();
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
        if !self.has_ended {
            self.fleet.give(Order::Stop);
        } else if let Some(first) = self.fleet.inboxes.first() {
            // It waits for the others, to hear a second signal until the last of them is done.
            first.wake();
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
        let fleet = Fleet::new(Vec::new());
        fleet.give(Order::Stop);
        fleet.give(Order::Drain);
        assert_eq!(fleet.order(), Order::Stop);
    }

    #[test]
    fn a_loop_that_ends_as_told_lets_the_others_go_on() {
        let event_loops = [(); 2].map(|()| EventLoop::new().unwrap());
        let fleet = Fleet::new(event_loops.iter().map(EventLoop::sender).collect());
        assert!(!fleet.is_last());
        fleet.member().ended();
        assert!(fleet.is_last());
        assert_eq!(fleet.order(), Order::Serve);
    }

    #[test]
    fn a_loop_that_panics_stops_the_others() {
        let fleet = Fleet::new(Vec::new());
        let panics = || {
            let _member = fleet.member();
            std::panic::resume_unwind(Box::new("a bug"));
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(fleet.order(), Order::Stop);
    }
}
