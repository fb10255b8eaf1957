//! Early hints: `wsgi.early_hints` in the environment, as gunicorn has it.

use super::exchange::fields_of;
use super::meeting::Meeting;
use crate::web::answer::{AnswerHead, WebAnswer};
use dwell_engine::desk::{Order, Owed};
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, ThreadId};

/// Sends a 103 (Early Hints) for the request that its thread has.
#[pyclass(frozen, module = "dwell._native")]
#[derive(Debug)]
pub(super) struct EarlyHints {
    thread: ThreadId,
    /// The request that the thread has.
    current: Mutex<Option<Arc<Owed<Meeting>>>>,
}

impl EarlyHints {
    /// Returns the hints of the calling thread.
    pub(super) fn new() -> Self {
        Self {
            thread: thread::current().id(),
            current: Mutex::default(),
        }
    }

    /// The thread begins a request, or has ended one.
    pub(super) fn is_for(&self, owed: Option<Arc<Owed<Meeting>>>) {
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = owed;
    }
}

#[pymethods]
impl EarlyHints {
    fn __call__(&self, headers: &Bound<'_, PyAny>) -> PyResult<()> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        let current = current.clone();
        let Some(owed) = current.filter(|_| thread::current().id() == self.thread) else {
            let text = "early hints are sent by the thread of the request, before it ends";
            return Err(PyRuntimeError::new_err(text));
        };
        let mut head = AnswerHead::new(103);
        fields_of(headers, &mut head)?;
        owed.order(Order::Informational(WebAnswer::of(head.into())));
        Ok(())
    }
}
