//! Several loops that serve as one and end together.

use crate::Sender;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Stage in the life of a [`Fleet`]; each is stronger than those before it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Lifecycle {
    /// Serve.
    Serve,
    /// Another process serves: give it what it can go on with, and end the rest in order.
    HandOver,
    /// End in order.
    Drain,
    /// End at once.
    Stop,
}

/// The loops of one server: their inboxes, the stage they are in, and how many still run.
///
/// Shape: the stage is a word that each loop reads when its turn ends, not a message: an inbox that
/// is full cannot lose it. The first loop hears the signals, and ends last.
///
/// ```
/// use dwell_evloop::{EventLoop, Fleet, Lifecycle};
///
/// let event_loops = [EventLoop::<u8>::new()?, EventLoop::new()?];
/// let fleet = Fleet::new(event_loops.iter().map(EventLoop::sender).collect());
/// fleet.advance(Lifecycle::Drain);
/// fleet.advance(Lifecycle::Serve);
/// assert_eq!(fleet.lifecycle(), Lifecycle::Drain);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Fleet<M> {
    inboxes: Vec<Sender<M>>,
    lifecycle: AtomicU8,
    running: AtomicUsize,
}

/// One loop's place in its [`Fleet`].
///
/// Dropped before [`end`](Self::end), as by an error or a panic, it stops all others: a process
/// that serves with some of its loops looks alive and is not.
#[derive(Debug)]
pub struct LoopGuard<M> {
    fleet: Arc<Fleet<M>>,
    has_ended: bool,
}

impl<M> Fleet<M> {
    /// Makes the fleet of the loops with these inboxes, all of which count as running.
    #[must_use]
    pub fn new(inboxes: Vec<Sender<M>>) -> Self {
        Self {
            lifecycle: AtomicU8::new(Lifecycle::Serve as u8),
            running: AtomicUsize::new(inboxes.len()),
            inboxes,
        }
    }

    /// Number of loops, those that have ended included.
    #[must_use]
    pub fn loops(&self) -> usize {
        self.inboxes.len()
    }

    /// Puts a message in the inbox of one loop, unless that is full: what must not be lost is to be
    /// a state that the loop finds, too.
    pub fn send(&self, of_loop: usize, message: M) {
        if let Some(inbox) = self.inboxes.get(of_loop) {
            let _ = inbox.send(message);
        }
    }

    /// Ends the wait of one loop.
    pub fn wake(&self, of_loop: usize) {
        if let Some(inbox) = self.inboxes.get(of_loop) {
            inbox.wake();
        }
    }

    /// Ends the wait of every loop.
    pub fn wake_all(&self) {
        for inbox in &self.inboxes {
            inbox.wake();
        }
    }

    /// The strongest stage entered so far.
    #[must_use]
    pub fn lifecycle(&self) -> Lifecycle {
        match self.lifecycle.load(Ordering::SeqCst) {
            0 => Lifecycle::Serve,
            1 => Lifecycle::HandOver,
            2 => Lifecycle::Drain,
            _ => Lifecycle::Stop,
        }
    }

    /// Has all loops enter a stage, unless they are in a stronger one, and wakes them.
    pub fn advance(&self, lifecycle: Lifecycle) {
        self.lifecycle.fetch_max(lifecycle as u8, Ordering::SeqCst);
        #[cfg(feature = "sim")]
        if crate::sim::Planted::MissDrain.is_in() {
            return;
        }
        self.wake_all();
    }

    /// Number of loops that have not ended.
    #[must_use]
    pub fn running(&self) -> usize {
        self.running.load(Ordering::SeqCst)
    }

    /// Counts the end of a loop, and wakes the first one, which may wait for it to end last.
    pub fn count_end(&self) {
        self.running.fetch_sub(1, Ordering::SeqCst);
        self.wake(0);
    }

    /// Makes one loop's place, for the thread that it runs on.
    #[must_use]
    pub fn guard(self: &Arc<Self>) -> LoopGuard<M> {
        LoopGuard {
            fleet: Arc::clone(self),
            has_ended: false,
        }
    }
}

impl<M: Clone> Fleet<M> {
    /// Puts a message in every inbox that is not full.
    pub fn send_all(&self, message: &M) {
        for inbox in &self.inboxes {
            let _ = inbox.send(message.clone());
        }
    }
}

impl<M> LoopGuard<M> {
    /// Ends the loop's part as intended: the others go on.
    pub fn end(mut self) {
        self.has_ended = true;
    }
}

impl<M> Drop for LoopGuard<M> {
    fn drop(&mut self) {
        self.fleet.count_end();
        if !self.has_ended {
            self.fleet.advance(Lifecycle::Stop);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::inbox::Inbox;
    use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

    /// Inboxes without loops, with what wakes them.
    fn inboxes(count: usize) -> (Vec<mio::Poll>, Vec<Inbox<u8>>) {
        let polls: Vec<_> = (0..count).map(|_| mio::Poll::new().unwrap()).collect();
        let inbox = |poll: &mio::Poll| Inbox::new(poll.registry(), mio::Token(0)).unwrap();
        let inboxes = polls.iter().map(inbox).collect();
        (polls, inboxes)
    }

    fn fleet(inboxes: &[Inbox<u8>]) -> Arc<Fleet<u8>> {
        Arc::new(Fleet::new(inboxes.iter().map(Inbox::sender).collect()))
    }

    fn received(inbox: &Inbox<u8>) -> Vec<u8> {
        let mut messages = Vec::new();
        inbox.drain(&mut messages);
        messages
    }

    /// Returns true if the loop that waits here was woken.
    fn is_woken(poll: &mut mio::Poll) -> bool {
        let mut events = mio::Events::with_capacity(1);
        poll.poll(&mut events, Some(std::time::Duration::ZERO))
            .unwrap();
        !events.is_empty()
    }

    #[test]
    fn a_stage_is_never_left_for_a_weaker_one() {
        let (mut polls, inboxes) = inboxes(2);
        let fleet = fleet(&inboxes);
        assert_eq!(fleet.lifecycle(), Lifecycle::Serve);
        let stages = [Lifecycle::HandOver, Lifecycle::Drain, Lifecycle::Stop];
        for stage in stages {
            fleet.advance(stage);
            assert_eq!(fleet.lifecycle(), stage);
        }
        assert!(polls.iter_mut().all(is_woken), "each loop looks at it");
        fleet.advance(Lifecycle::Drain);
        assert_eq!(fleet.lifecycle(), Lifecycle::Stop);
    }

    #[test]
    fn messages_go_to_one_loop_or_to_all() {
        let (_polls, inboxes) = inboxes(2);
        let fleet = fleet(&inboxes);
        fleet.send(1, 7);
        fleet.send_all(&9);
        fleet.send(2, 8);
        assert_eq!(received(&inboxes[0]), [9]);
        assert_eq!(received(&inboxes[1]), [7, 9]);
    }

    #[test]
    fn one_full_inbox_keeps_no_message_from_the_others() {
        let (_polls, inboxes) = inboxes(2);
        let fleet = fleet(&inboxes);
        (0..crate::INBOX_CAPACITY).for_each(|_| fleet.send(0, 1));
        fleet.send_all(&2);
        assert_eq!(received(&inboxes[0]).len(), crate::INBOX_CAPACITY);
        assert_eq!(received(&inboxes[1]), [2]);
    }

    #[test]
    fn a_loop_that_ends_as_intended_lets_the_others_go_on_and_wakes_the_first() {
        let (mut polls, inboxes) = inboxes(2);
        let fleet = fleet(&inboxes);
        fleet.guard().end();
        assert_eq!((fleet.running(), fleet.loops()), (1, 2));
        assert_eq!(fleet.lifecycle(), Lifecycle::Serve);
        assert!(is_woken(&mut polls[0]));
        assert!(!is_woken(&mut polls[1]));
    }

    #[test]
    fn a_loop_that_panics_stops_the_others() {
        let (mut polls, inboxes) = inboxes(2);
        let fleet = fleet(&inboxes);
        let panics = || {
            let _guard = fleet.guard();
            resume_unwind(Box::new("a bug"));
        };
        assert!(catch_unwind(AssertUnwindSafe(panics)).is_err());
        assert_eq!(fleet.lifecycle(), Lifecycle::Stop);
        assert_eq!(fleet.running(), 1);
        assert!(is_woken(&mut polls[1]));
    }
}
