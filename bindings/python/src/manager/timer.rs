//! `Timer`.

use super::shared::{Shared, lock};
use dwell_engine::manager as engine;
use pyo3::prelude::*;
use std::sync::{Arc, Weak};

/// A timer of a manager.
#[pyclass(frozen, module = "dwell", name = "Timer")]
pub(crate) struct Timer {
    inner: engine::Timer,
    shared: Weak<Shared>,
    /// Names its callback.
    number: u64,
}

#[pymethods]
impl Timer {
    /// Ends it, from any thread; a second call does nothing.
    fn cancel(&self) {
        self.inner.cancel();
        if let Some(shared) = self.shared.upgrade() {
            let callback = lock(&shared.timers).remove(&self.number);
            drop(callback);
        }
    }

    /// True if it will ring again.
    #[getter]
    fn active(&self) -> bool {
        let is_left = self.shared.upgrade().is_some_and(|shared| {
            !shared.waker.is_closed() && lock(&shared.timers).contains_key(&self.number)
        });
        is_left && self.inner.is_active()
    }

    fn __repr__(&self) -> &'static str {
        if self.active() {
            "<Timer active>"
        } else {
            "<Timer inactive>"
        }
    }
}

impl Timer {
    pub(super) fn new(timer: engine::Timer, shared: &Arc<Shared>, number: u64) -> Self {
        Self {
            inner: timer,
            shared: Arc::downgrade(shared),
            number,
        }
    }
}
