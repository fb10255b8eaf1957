//! A value that one thread replaces and all loops follow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The newest of several values, and how many there have been.
///
/// Shape: it is read, not sent, so an inbox that is full cannot lose it. A loop that looks for a
/// newer one takes no lock.
#[derive(Debug)]
pub(crate) struct Published<T> {
    /// Counts the values, from 1.
    generation: AtomicU64,
    newest: Mutex<Arc<T>>,
    /// Held while a thread decides on another value.
    changes: Mutex<()>,
}

/// One loop's way from value to value.
#[derive(Debug)]
pub(crate) struct Follower<T> {
    published: Arc<Published<T>>,
    /// Generation of the value that the loop has taken over.
    generation: u64,
}

impl<T> Published<T> {
    /// Publishes the first value.
    pub(crate) fn new(value: T) -> Arc<Self> {
        Arc::new(Self {
            generation: AtomicU64::new(1),
            newest: Mutex::new(Arc::new(value)),
            changes: Mutex::default(),
        })
    }

    /// The newest value.
    pub(crate) fn newest(&self) -> Arc<T> {
        Arc::clone(&self.lock())
    }

    /// Replaces the value, and returns the generation of the new one.
    pub(crate) fn publish(&self, value: T) -> u64 {
        *self.lock() = Arc::new(value);
        self.generation.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Waits until no other thread decides on another value.
    pub(crate) fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Follows the values from the newest on.
    pub(crate) fn follow(self: &Arc<Self>) -> Follower<T> {
        Follower {
            generation: self.generation.load(Ordering::Acquire),
            published: Arc::clone(self),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<T>> {
        // Replaced in one step, so what a panicking thread leaves is whole.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Follower<T> {
    /// The newest value and its generation, if it was not returned before.
    pub(crate) fn next(&mut self) -> Option<(Arc<T>, u64)> {
        // Read before the value: one that is published in between is returned again, not missed.
        let generation = self.published.generation.load(Ordering::Acquire);
        if generation == self.generation {
            return None;
        }
        self.generation = generation;
        Some((self.published.newest(), generation))
    }

    /// The newest value, which the loop may not have taken over.
    pub(crate) fn newest(&self) -> Arc<T> {
        self.published.newest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_followed_once_and_those_in_between_are_passed_over() {
        let published = Published::new("first");
        let mut follower = published.follow();
        assert!(follower.next().is_none(), "the loop was made from it");
        assert_eq!(published.publish("second"), 2);
        assert_eq!(published.publish("third"), 3);
        let (value, generation) = follower.next().unwrap();
        assert_eq!((*value, generation), ("third", 3));
        assert!(follower.next().is_none());
        assert_eq!(*follower.newest(), "third");
    }

    #[test]
    fn changes_wait_for_one_another() {
        let published = Published::new(0);
        let changes = published.lock_changes();
        assert!(published.changes.try_lock().is_err());
        drop(changes);
        assert!(published.changes.try_lock().is_ok());
    }
}
