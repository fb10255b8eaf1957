//! Polling: by hand, until a signal comes, or from another loop.

use super::{Inner, Manager, ManagerError};
use dwell_evloop::Around;
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

/// The signals that end [`Manager::run`], as every Unix numbers them.
const SIGINT: i32 = 2;
const SIGTERM: i32 = 15;

impl Manager {
    /// Waits once, for at most `timeout` (`None`: until an event), and calls the handlers for all
    /// events.
    ///
    /// Shape: the wait ends at once for readiness, a wake-up, a timer that is due, and any signal
    /// that is handled on this thread. The cost is of what is delivered: idle connections add
    /// nothing.
    ///
    /// # Errors
    /// [`ManagerError::Closed`]; [`ManagerError::Loop`], after which the manager is of no use.
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    /// use std::time::Duration;
    ///
    /// let mut manager = Manager::new(|_, _| {})?;
    /// manager.listen("http://127.0.0.1:0")?;
    /// for _ in 0..3 {
    ///     manager.poll(Duration::from_millis(1))?;
    ///     // Whatever else the program does.
    /// }
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn poll(&mut self, timeout: impl Into<Option<Duration>>) -> Result<(), ManagerError> {
        let (Inner { event_loop, hub }, timeout) = self.prepare(timeout.into())?;
        let turn = event_loop.turn(hub, timeout);
        turn.map_err(ManagerError::Loop)
    }

    /// Polls as [`poll`](Self::poll) does, with a function around a wait that really blocks. Events
    /// that are there already are handled without it.
    ///
    /// Shape: `around` is called at most once, and calls what it is given once. A binding to a
    /// language with a lock of its own lets go of it there, and has it again for the handlers.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    /// use std::time::Duration;
    ///
    /// let mut manager = Manager::new(|_, _| {})?;
    /// let mut waits = 0;
    /// manager.wakeup().expect("it is open");
    /// for _ in 0..2 {
    ///     manager.poll_around(Duration::from_millis(1), &mut |wait| {
    ///         waits += 1;
    ///         wait();
    ///     })?;
    /// }
    /// // The first one had a wake-up to deliver.
    /// assert_eq!(waits, 1);
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn poll_around(
        &mut self,
        timeout: impl Into<Option<Duration>>,
        around: Around<'_>,
    ) -> Result<(), ManagerError> {
        let (Inner { event_loop, hub }, timeout) = self.prepare(timeout.into())?;
        let turn = event_loop.turn_around(hub, timeout, around);
        turn.map_err(ManagerError::Loop)
    }

    /// Returns a socket whose bytes end the wait, as [`wakeup`](Self::wakeup) does. It is for
    /// signal handlers that can do no more than write to a descriptor.
    ///
    /// # Errors
    /// [`ManagerError::Closed`]; [`ManagerError::Loop`] when no descriptor is left.
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    /// use std::io::Write;
    ///
    /// let mut manager = Manager::new(|_, _| {})?;
    /// let mut interrupter = manager.interrupter()?;
    /// interrupter.write_all(b"!").expect("its other end is the manager's");
    /// // Would wait for ever else.
    /// manager.poll(None)?;
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn interrupter(&mut self) -> Result<UnixStream, ManagerError> {
        let inner = self.inner.as_mut().ok_or(ManagerError::Closed)?;
        inner.event_loop.interrupter().map_err(ManagerError::Loop)
    }

    /// Polls until SIGINT or SIGTERM comes or [`Scope::stop`](super::Scope::stop) is called, then
    /// [closes](Self::close). The signals have their former effect again when it returns.
    ///
    /// # Errors
    /// As [`poll`](Self::poll).
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    /// use std::time::Duration;
    ///
    /// let mut manager = Manager::new(|_, _| {})?;
    /// manager.listen("http://127.0.0.1:0")?;
    /// manager.timer(Duration::from_millis(20), false, |scope| scope.stop())?;
    /// manager.run()?;
    /// assert!(manager.is_closed());
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn run(&mut self) -> Result<(), ManagerError> {
        let Inner { event_loop, .. } = self.inner.as_mut().ok_or(ManagerError::Closed)?;
        for signal in [SIGINT, SIGTERM] {
            if let Err(error) = event_loop.watch_signal(signal) {
                event_loop.unwatch_signals();
                return Err(ManagerError::Loop(error));
            }
        }
        let mut outcome = Ok(());
        while outcome.is_ok() && !self.is_ended() {
            outcome = self.poll(None);
        }
        if let Some(inner) = &mut self.inner {
            inner.event_loop.unwatch_signals();
        }
        self.close();
        outcome
    }

    /// Returns the descriptor to wait for in another loop: readable when [`poll`](Self::poll) with
    /// a timeout of zero has an event. Wait no longer than [`wait_max`](Self::wait_max).
    ///
    /// # Errors
    /// [`ManagerError::Closed`].
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    /// use std::time::Duration;
    ///
    /// let mut manager = Manager::new(|_, _| {})?;
    /// manager.timer(Duration::from_millis(20), false, |_| {})?;
    /// // What another loop needs to know: which descriptor to wait for, and how long at most.
    /// assert!(manager.fileno()? >= 0);
    /// assert!(manager.wait_max()?.is_some_and(|wait| wait <= Duration::from_millis(40)));
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn fileno(&self) -> Result<RawFd, ManagerError> {
        let inner = self.inner.as_ref().ok_or(ManagerError::Closed)?;
        Ok(inner.event_loop.as_raw_fd())
    }

    /// Returns how long another loop may wait before it polls: until the first timer or deadline.
    /// Zero if work is left; `None` if only the descriptor can bring work.
    ///
    /// # Errors
    /// [`ManagerError::Closed`].
    pub fn wait_max(&mut self) -> Result<Option<Duration>, ManagerError> {
        let Inner { event_loop, hub } = self.inner.as_mut().ok_or(ManagerError::Closed)?;
        if hub.has_work() {
            return Ok(Some(Duration::ZERO));
        }
        Ok(event_loop.wait_max())
    }

    /// Does the work that was left over, and returns how long the next turn may wait.
    fn prepare(
        &mut self,
        timeout: Option<Duration>,
    ) -> Result<(&mut Inner, Option<Duration>), ManagerError> {
        let inner = self.inner.as_mut().ok_or(ManagerError::Closed)?;
        let Inner { event_loop, hub } = &mut *inner;
        if hub.has_work() {
            hub.settle(event_loop.context());
        }
        // What is left is done in this turn.
        let timeout = if hub.has_work() {
            Some(Duration::ZERO)
        } else {
            timeout
        };
        Ok((inner, timeout))
    }

    fn is_ended(&self) -> bool {
        self.inner
            .as_ref()
            .is_none_or(|inner| inner.hub.signalled || inner.hub.state.stopped)
    }
}
