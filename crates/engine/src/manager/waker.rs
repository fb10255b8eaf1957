//! The way into a manager from other threads.

use super::error::WakeupError;
use super::hub::Message;
use super::{Conn, Scope};
use bytes::Bytes;
use dwell_evloop::Sender;
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Wakes a manager from any thread.
///
/// Shape: nothing is lost, cut or joined: what was taken is delivered, in the order each thread
/// sent it, by the poll in progress or the next one. A burst costs one system call.
///
/// ```
/// use dwell_engine::manager::{Event, Manager};
/// use std::time::Duration;
///
/// let (tell, told) = std::sync::mpsc::channel();
/// let mut manager = Manager::new(move |_, event| {
///     if let Event::Wakeup(data) = event {
///         tell.send(data.to_vec()).expect("the receiver is below");
///     }
/// })?;
/// let listener = manager.listen("tcp://127.0.0.1:0")?;
/// let waker = manager.waker();
/// std::thread::spawn(move || waker.wakeup_with(listener, "news"));
/// while told.try_recv().as_deref() != Ok(b"news") {
///     manager.poll(Duration::from_secs(5))?;
/// }
/// # Ok::<(), dwell_engine::manager::ManagerError>(())
/// ```
#[derive(Clone)]
pub struct Waker {
    sender: Sender<Message>,
    is_closed: Arc<AtomicBool>,
}

impl Waker {
    pub(super) fn new(sender: Sender<Message>) -> Self {
        Self {
            sender,
            is_closed: Arc::default(),
        }
    }

    /// Ends the poll in progress, or the next one at once.
    ///
    /// # Errors
    /// [`WakeupError::Closed`].
    ///
    /// ```
    /// use dwell_engine::manager::{Manager, WakeupError};
    ///
    /// let mut manager = Manager::new(|_, _| {})?;
    /// let waker = manager.waker();
    /// let other = std::thread::spawn(move || waker.wakeup().map(|()| waker));
    /// // Waits for the wake-up, and for nothing else.
    /// manager.poll(None)?;
    /// let waker = other.join().expect("it does not panic").expect("the manager is open");
    /// manager.close();
    /// assert!(waker.is_closed());
    /// assert_eq!(waker.wakeup(), Err(WakeupError::Closed));
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn wakeup(&self) -> Result<(), WakeupError> {
        if self.is_closed() {
            return Err(WakeupError::Closed);
        }
        self.sender.wake();
        Ok(())
    }

    /// Sends [`Event::Wakeup`](super::Event::Wakeup) with `data`, of any size, to the handler of
    /// connection `id`. An id that is gone has no effect.
    ///
    /// # Errors
    /// [`WakeupError::Closed`], or [`WakeupError::Full`] when a million wait already.
    pub fn wakeup_with(&self, id: u64, data: impl Into<Bytes>) -> Result<(), WakeupError> {
        self.send(Message::Wakeup {
            id,
            data: data.into(),
        })
    }

    /// Has `act` done on connection `id` by the manager's thread, with everything in reach. For an
    /// id that is gone it is dropped.
    ///
    /// # Errors
    /// As [`wakeup_with`](Self::wakeup_with).
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    /// use std::time::Duration;
    ///
    /// let mut manager = Manager::new(|_, _| {})?;
    /// let listener = manager.listen("tcp://127.0.0.1:0")?;
    /// let waker = manager.waker();
    /// std::thread::spawn(move || waker.run(listener, |conn| conn.close()));
    /// while manager.connection_count() > 0 {
    ///     manager.poll(Duration::from_secs(5))?;
    /// }
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn run(
        &self,
        id: u64,
        act: impl FnOnce(&mut Conn<'_>) + Send + 'static,
    ) -> Result<(), WakeupError> {
        self.send(Message::Act {
            id,
            act: Box::new(act),
        })
    }

    /// Has `call` called with the manager by the thread that polls it, between two handlers.
    ///
    /// # Errors
    /// As [`wakeup_with`](Self::wakeup_with).
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    ///
    /// let mut manager = Manager::new(|_, _| {})?;
    /// let waker = manager.waker();
    /// std::thread::spawn(move || {
    ///     waker.call(|scope| {
    ///         scope.listen("tcp://127.0.0.1:0").expect("a port is free");
    ///     })
    /// });
    /// while manager.connection_count() == 0 {
    ///     manager.poll(None)?;
    /// }
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn call(
        &self,
        call: impl FnOnce(&mut Scope<'_>) + Send + 'static,
    ) -> Result<(), WakeupError> {
        self.send(Message::Call(Box::new(call)))
    }

    /// Returns true if the manager is closed or dropped.
    pub fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::Acquire)
    }

    pub(super) fn send(&self, message: Message) -> Result<(), WakeupError> {
        if self.is_closed() {
            return Err(WakeupError::Closed);
        }
        self.sender.send(message).map_err(|_| WakeupError::Full)
    }

    pub(super) fn close(&self) {
        self.is_closed.store(true, Ordering::Release);
    }
}

impl fmt::Debug for Waker {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Waker")
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
