//! `Timer`.

use super::shared::{Shared, lock};
use dwell_engine::manager as engine;
use pyo3::prelude::*;
use std::sync::{Arc, Weak};

/// A timer of a manager.
#[pyclass(frozen, module = "dwell", name = "Timer")]
pub(crate) struct Timer {
    timer: engine::Timer,
    shared: Weak<Shared>,
    /// Names its callback.
    number: u64,
}

#[pymethods]
impl Timer {
    fn cancel(&self) {
        self.timer.cancel();
        if let Some(shared) = self.shared.upgrade() {
            let callback = lock(&shared.timers).remove(&self.number);
            drop(callback);
        }
    }

    #[getter]
    fn active(&self) -> bool {
        let is_left = self.shared.upgrade().is_some_and(|shared| {
            !shared.waker.is_closed() && lock(&shared.timers).contains_key(&self.number)
        });
        is_left && self.timer.is_active()
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
            timer,
            shared: Arc::downgrade(shared),
            number,
        }
    }
}
