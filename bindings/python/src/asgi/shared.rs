//! State of one request or WebSocket that the loop and the coroutines share.

use super::face::AsgiLine;
use bytes::Bytes;
use dwell_engine::websocket::MessageKind;
use dwell_evloop::Token;
use pyo3::intern;
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Wake;

/// Bytes of a request body or of messages that are read ahead of the app.
pub(super) const INPUT_WINDOW: u64 = 64 * 1024;
/// Output that waits for the client, at which `send` waits.
pub(super) const OUTPUT_WINDOW: usize = 64 * 1024;

/// A state behind a lock that is held for moments only, and never while Python runs.
#[derive(Debug, Default)]
pub(super) struct Shared<T>(Mutex<T>);

impl<T> Shared<T> {
    pub(super) fn new(state: T) -> Self {
        Self(Mutex::new(state))
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Coroutines that wait for one thing.
#[derive(Debug)]
pub(super) struct Parked {
    futures: Shared<Vec<Py<PyAny>>>,
    line: Arc<AsgiLine>,
}

impl Parked {
    pub(super) fn new(line: &Arc<AsgiLine>) -> Arc<Self> {
        Arc::new(Self {
            futures: Shared::default(),
            line: Arc::clone(line),
        })
    }

    /// Adds a coroutine, and forgets those that have given up: an app may wait for a moment again
    /// and again.
    pub(super) fn park(&self, future: &Bound<'_, PyAny>) {
        let py = future.py();
        let mut parked = std::mem::take(&mut *self.futures.lock());
        parked.retain(|before| {
            let done = before.call_method0(py, intern!(py, "done"));
            done.is_ok_and(|done| !done.is_truthy(py).unwrap_or(true))
        });
        parked.push(future.clone().unbind());
        *self.futures.lock() = parked;
    }

    /// Leaves all of them to the loop to be resolved.
    pub(super) fn wake_all(&self) {
        self.line.woke(&mut self.futures.lock());
    }
}

impl Wake for Parked {
    fn wake(self: Arc<Self>) {
        self.wake_all();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.wake_all();
    }
}

/// A WebSocket, from its handshake on.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own: of the handshake, of the app, of each direction"
)]
#[derive(Debug)]
pub(super) struct WebSocketState {
    /// The handshake is not answered yet.
    pub(super) is_handshake: bool,
    /// The connection, once it was accepted.
    pub(super) token: Option<Token>,
    pub(super) connect_told: bool,
    pub(super) messages: VecDeque<(MessageKind, Bytes)>,
    pub(super) message_bytes: usize,
    pub(super) is_paused: bool,
    pub(super) is_blocked: bool,
    /// The code and the reason of its end.
    pub(super) end: Option<(u16, String)>,
    pub(super) receivers: Arc<Parked>,
    pub(super) senders: Arc<Parked>,
}

impl WebSocketState {
    pub(super) fn new(line: &Arc<AsgiLine>) -> Self {
        Self {
            is_handshake: true,
            token: None,
            connect_told: false,
            messages: VecDeque::new(),
            message_bytes: 0,
            is_paused: false,
            is_blocked: false,
            end: None,
            receivers: Parked::new(line),
            senders: Parked::new(line),
        }
    }

    /// Ends it, if it has not ended, and wakes the tasks that wait.
    pub(super) fn leave(&mut self, code: u16, reason: &str) {
        self.end.get_or_insert_with(|| (code, reason.to_owned()));
        self.receivers.wake_all();
        self.senders.wake_all();
    }
}
