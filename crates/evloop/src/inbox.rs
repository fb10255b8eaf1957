//! The one way into a loop from other threads.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{fmt, io};

/// Messages that may wait in a loop's inbox.
pub const INBOX_CAPACITY: usize = 1 << 20;

/// Sends messages to a loop from any thread.
///
/// Shape: messages arrive in the order sent and none is lost; a burst of them costs one wake-up.
/// Messages to a loop that is gone are dropped, and so are those that it has not delivered.
pub struct Sender<M> {
    shared: Arc<Shared<M>>,
}

/// The message a full inbox gave back.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Full<M>(pub M);

struct Shared<M> {
    /// `None` when the loop is gone. Messages may hold senders, so messages that are never taken
    /// out would keep themselves alive, and the waker's descriptor with them.
    queue: Mutex<Option<Vec<M>>>,
    /// A wake-up is in progress: a sender that finds this set need not write to the waker again.
    awake: AtomicBool,
    waker: Waker,
}

/// The way to end a loop's wait.
pub(crate) enum Waker {
    System(mio::Waker),
    #[cfg(feature = "sim")]
    Simulated(crate::sim::SimLoop),
}

/// The loop's end of the inbox.
pub(crate) struct Inbox<M> {
    shared: Arc<Shared<M>>,
}

impl<M> Sender<M> {
    /// Puts `message` in the inbox and ends the loop's wait.
    ///
    /// # Errors
    /// [`Full`] with the message when [`INBOX_CAPACITY`] messages wait already.
    pub fn send(&self, message: M) -> Result<(), Full<M>> {
        #[cfg(feature = "sim")]
        if crate::sim::Planted::DropMessage.strikes(16) {
            return Ok(());
        }
        match &mut *self.shared.lock() {
            None => return Ok(()),
            Some(queue) if queue.len() >= INBOX_CAPACITY => return Err(Full(message)),
            Some(queue) => queue.push(message),
        }
        self.wake();
        Ok(())
    }

    /// Ends the loop's wait without a message.
    pub fn wake(&self) {
        // The push above comes before this swap, the loop's swap before its drain: either the
        // drain sees the message or this swap sees `false` and wakes the loop once more.
        if !self.shared.awake.swap(true, Ordering::AcqRel) {
            self.shared.waker.wake();
        }
    }
}

impl<M> Clone for Sender<M> {
    fn clone(&self) -> Self {
        Self {
            shared: Arc::clone(&self.shared),
        }
    }
}

impl<M> fmt::Debug for Sender<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sender").finish_non_exhaustive()
    }
}

impl<M> fmt::Debug for Full<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Full(..)")
    }
}

impl<M> fmt::Display for Full<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "inbox holds {INBOX_CAPACITY} messages already")
    }
}

impl<M> std::error::Error for Full<M> {}

impl<M> Inbox<M> {
    pub(crate) fn new(registry: &mio::Registry, token: mio::Token) -> io::Result<Self> {
        mio::Waker::new(registry, token).map(|waker| Self::woken_by(Waker::System(waker)))
    }

    pub(crate) fn woken_by(waker: Waker) -> Self {
        let shared = Shared {
            queue: Mutex::new(Some(Vec::new())),
            awake: AtomicBool::new(false),
            waker,
        };
        Self {
            shared: Arc::new(shared),
        }
    }

    pub(crate) fn sender(&self) -> Sender<M> {
        Sender {
            shared: Arc::clone(&self.shared),
        }
    }

    /// Moves what has arrived into `into`, which must be empty; cheap when nothing has.
    pub(crate) fn drain(&self, into: &mut Vec<M>) {
        if self.shared.awake.swap(false, Ordering::AcqRel)
            && let Some(queue) = &mut *self.shared.lock()
        {
            std::mem::swap(queue, into);
        }
    }

    /// Messages for which the inbox has memory.
    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.shared.lock().as_ref().map_or(0, Vec::capacity)
    }
}

impl Waker {
    fn wake(&self) {
        match self {
            // The only failures are of a loop that no longer exists; none is left to wake.
            Self::System(waker) => drop(waker.wake()),
            #[cfg(feature = "sim")]
            Self::Simulated(event_loop) => event_loop.wake(),
        }
    }
}

impl<M> Drop for Inbox<M> {
    fn drop(&mut self) {
        // Dropped without the lock, as a message may send another one when it is dropped.
        let undelivered = self.shared.lock().take();
        drop(undelivered);
    }
}

impl<M> Shared<M> {
    /// Locks the queue. A thread that panicked with it has left it whole.
    fn lock(&self) -> MutexGuard<'_, Option<Vec<M>>> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<M> fmt::Debug for Inbox<M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inbox").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_that_nobody_takes_end_with_the_loop() {
        struct Message {
            sender: Sender<Self>,
            _alive: Arc<()>,
        }
        impl Drop for Message {
            fn drop(&mut self) {
                self.sender.wake();
            }
        }
        let poll = mio::Poll::new().unwrap();
        let inbox = Inbox::new(poll.registry(), mio::Token(0)).unwrap();
        let (sender, alive) = (inbox.sender(), Arc::new(()));
        let send = || {
            let message = Message {
                sender: sender.clone(),
                _alive: Arc::clone(&alive),
            };
            assert!(sender.send(message).is_ok());
        };
        send();
        assert_eq!(Arc::strong_count(&alive), 2);
        drop(inbox);
        assert_eq!(Arc::strong_count(&alive), 1);
        send();
        assert_eq!(Arc::strong_count(&alive), 1);
        assert_eq!(Arc::strong_count(&sender.shared), 1);
    }
}
