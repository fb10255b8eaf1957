//! A value that one thread replaces and all loops follow.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The newest of several values, and the number of values so far.
///
/// Shape: values are read, not sent, so a full inbox cannot lose one. Checking for a newer value
/// takes no lock.
#[derive(Debug)]
pub(crate) struct Published<T> {
    /// Number of values, from 1.
    generation: AtomicU64,
    newest: Mutex<Arc<T>>,
    /// Held while a thread chooses the next value.
    changes: Mutex<()>,
}

/// Follows the values on one loop.
#[derive(Debug)]
pub(crate) struct Follower<T> {
    published: Arc<Published<T>>,
    /// Generation of the value that the loop has applied.
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

    /// Waits until no other thread chooses a value.
    pub(crate) fn lock_changes(&self) -> MutexGuard<'_, ()> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns a follower that begins with the newest value.
    pub(crate) fn follow(self: &Arc<Self>) -> Follower<T> {
        Follower {
            generation: self.generation.load(Ordering::Acquire),
            published: Arc::clone(self),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Arc<T>> {
        // Replaced in one step, so a panicking thread leaves it whole.
        self.newest.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T> Follower<T> {
    /// The newest value and its generation, unless it was returned before.
    pub(crate) fn next(&mut self) -> Option<(Arc<T>, u64)> {
        // Read before the value: a value published in between is returned again, not missed.
        let generation = self.published.generation.load(Ordering::Acquire);
        if generation == self.generation {
            return None;
        }
        self.generation = generation;
        Some((self.published.newest(), generation))
    }

    /// The newest value, even if the loop has not applied it.
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
