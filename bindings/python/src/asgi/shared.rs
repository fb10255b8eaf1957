//! State of one request or WebSocket that the loop and the coroutines share.

use crate::web::head::Head;
use bytes::Bytes;
use dwell_engine::desk::{Inflow, Outflow};
use dwell_engine::websocket::MessageKind;
use dwell_evloop::Token;
use pyo3::intern;
use pyo3::prelude::*;
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Bytes of a request body or of messages that are read ahead of the app.
pub(super) const INPUT_WINDOW: u64 = 64 * 1024;
/// Output that waits for the client, beyond which `send` waits.
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

    /// Adds a coroutine to those that `waiters` finds, without those that have given up: an app
    /// may wait for a moment again and again.
    pub(super) fn park(
        &self,
        future: &Bound<'_, PyAny>,
        waiters: impl Fn(&mut T) -> &mut Vec<Py<PyAny>>,
    ) {
        let py = future.py();
        let mut parked = std::mem::take(waiters(&mut self.lock()));
        parked.retain(|before| {
            let done = before.call_method0(py, intern!(py, "done"));
            done.is_ok_and(|done| !done.is_truthy(py).unwrap_or(true))
        });
        parked.push(future.clone().unbind());
        *waiters(&mut self.lock()) = parked;
    }
}

/// Coroutines that wait.
#[derive(Debug, Default)]
pub(super) struct Waiters {
    pub(super) receivers: Vec<Py<PyAny>>,
    pub(super) senders: Vec<Py<PyAny>>,
}

impl Waiters {
    /// All of them, to be resolved once no lock is held.
    pub(super) fn take(&mut self) -> Vec<Py<PyAny>> {
        let mut all = Vec::new();
        self.wake(&mut all);
        all
    }

    /// Moves all of them into `into`.
    pub(super) fn wake(&mut self, into: &mut Vec<Py<PyAny>>) {
        into.append(&mut self.receivers);
        into.append(&mut self.senders);
    }
}

/// A request that was handed to the app.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own: of the body, of the answer, of the client"
)]
#[derive(Debug, Default)]
pub(super) struct HttpState {
    pub(super) input: Inflow,
    /// True if the app has received the end of the body.
    pub(super) input_told: bool,
    /// The answer, as far as the engine had no room for it.
    pub(super) output: Outflow,
    /// The rest of the announced length of the answer, if one was announced.
    pub(super) owed: Option<u64>,
    /// Output waits for the client.
    pub(super) is_blocked: bool,
    /// True if the client has left.
    pub(super) is_gone: bool,
    /// Set once the app has received the disconnect, or the end of its response.
    pub(super) end_told: bool,
    /// Pieces of the answer that came after the client had left.
    pub(super) dropped: u32,
    pub(super) waiters: Waiters,
}

/// A WebSocket, from its handshake on.
#[derive(Debug, Default)]
pub(super) struct WebSocketState {
    /// The handshake, until it is answered.
    pub(super) handshake: Option<Head>,
    /// The connection, once it was accepted.
    pub(super) token: Option<Token>,
    pub(super) connect_told: bool,
    pub(super) messages: VecDeque<(MessageKind, Bytes)>,
    pub(super) message_bytes: usize,
    pub(super) is_paused: bool,
    pub(super) is_blocked: bool,
    /// The code and the reason of its end.
    pub(super) end: Option<(u16, String)>,
    pub(super) waiters: Waiters,
}
