//! The end of a manager.

use super::{Inner, Manager};
use std::time::Duration;

impl Manager {
    /// Ends everything: stops listening, closes every connection, drops timers and handlers.
    ///
    /// Shape: wake-ups that wait are told, and what is queued goes out first, for at most
    /// [`ManagerOptions::close_timeout`](super::ManagerOptions::close_timeout); every connection is
    /// told `Close`. Afterwards every call fails with a typed error. A second call does nothing.
    pub fn close(&mut self) {
        let timeout = self.close_timeout;
        if let Some(mut inner) = self.inner.take() {
            inner.hub.state.is_closed = true;
            inner.deliver();
            inner.flush(timeout);
            self.end(inner);
        }
    }

    /// Closes as [`close`](Self::close) does, but drops the queued output.
    ///
    /// ```
    /// use dwell_engine::manager::{Manager, ManagerError};
    ///
    /// let mut manager = Manager::new(|_, _| {})?;
    /// manager.listen("tcp://127.0.0.1:0")?;
    /// manager.abort();
    /// assert!(matches!(manager.listen("tcp://127.0.0.1:0"), Err(ManagerError::Closed)));
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn abort(&mut self) {
        if let Some(mut inner) = self.inner.take() {
            inner.hub.state.is_closed = true;
            self.end(inner);
        }
    }

    fn end(&mut self, mut inner: Inner) {
        inner.abort();
        self.waker.close();
    }
}

impl Inner {
    /// Delivers what other threads have sent: an answer may be among it.
    fn deliver(&mut self) {
        let Self { event_loop, hub } = self;
        // A loop that fails has nothing to deliver.
        let _ = event_loop.turn(hub, Some(Duration::ZERO));
    }

    /// Closes every connection in order and turns until their output is out.
    fn flush(&mut self, timeout: Duration) {
        let Self { event_loop, hub } = self;
        let deadline = event_loop.context().now() + timeout;
        for id in hub.state.ids() {
            if let Some(mut conn) = hub.scope(event_loop.context()).into_conn(id) {
                conn.close();
            }
        }
        hub.settle(event_loop.context());
        while hub.components.connections() > 0 {
            let left = deadline.saturating_duration_since(event_loop.context().now());
            // A loop that fails cannot flush.
            if left.is_zero() || event_loop.turn(hub, Some(left)).is_err() {
                return;
            }
        }
    }

    /// Ends every connection that is left, and calls its handler.
    fn abort(&mut self) {
        let Self { event_loop, hub } = self;
        let context = event_loop.context();
        hub.components.close_all(context, &mut hub.state);
        hub.settle(context);
        for id in hub.state.ids() {
            hub.state.end_later(id);
        }
        hub.settle(context);
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        self.waker.close();
    }
}
