//! A request body on its way in and a streaming answer on its way out, between loop and worker.

use bytes::Bytes;
use dwell_engine::desk::Inflow;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

/// Bytes of a request body that are granted ahead of the reader.
const INPUT_WINDOW: u64 = 256 * 1024;
/// Bytes of an answer that a worker may hand over before the engine has taken them.
const OUTPUT_WINDOW: usize = 256 * 1024;

/// State of one exchange that a worker and the loop share.
#[derive(Debug, Default)]
pub(super) struct Channel {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    input: Inflow,
    unsent: usize,
    is_gone: bool,
}

/// A result for the reader of a body.
#[derive(Debug)]
pub(super) enum Piece {
    Data(Bytes),
    End,
    /// The client has left before the end.
    Gone,
    /// Nothing yet.
    Nothing,
}

impl Channel {
    /// Body bytes came.
    pub(super) fn arrive(&self, data: &[u8]) {
        self.lock().input.arrive(data);
        self.changed.notify_all();
    }

    /// Notes bytes of the body that were granted ahead of its reader.
    pub(super) fn asked(&self, bytes: u64) {
        self.lock().input.granted(bytes);
    }

    /// Returns true while the reader waits for granted bytes.
    pub(super) fn is_awaited(&self) -> bool {
        self.lock().input.is_awaited()
    }

    /// The body is complete.
    pub(super) fn complete(&self) {
        self.lock().input.complete();
        self.changed.notify_all();
    }

    /// The client is gone.
    pub(super) fn leave(&self) {
        self.lock().is_gone = true;
        self.changed.notify_all();
    }

    /// The engine has taken so much of the answer.
    pub(super) fn taken(&self, bytes: usize) {
        let mut state = self.lock();
        state.unsent = state.unsent.saturating_sub(bytes);
        drop(state);
        self.changed.notify_all();
    }

    /// The next piece of the body, and the bytes to grant before others come; 0 if the loop only
    /// has to learn that they are awaited.
    pub(super) fn piece(&self) -> (Piece, Option<u64>) {
        let mut state = self.lock();
        let piece = match state.input.read(INPUT_WINDOW) {
            Poll::Ready(Some(data)) => Piece::Data(data),
            Poll::Ready(None) => Piece::End,
            Poll::Pending if state.is_gone => return (Piece::Gone, None),
            Poll::Pending => Piece::Nothing,
        };
        (piece, state.input.take_wish())
    }

    /// Waits until the next piece of the body is here, or will not come.
    pub(super) fn wait_for_input(&self) {
        let waits = |state: &mut State| !state.input.is_here() && !state.is_gone;
        let woken = self.changed.wait_while(self.lock(), waits);
        drop(woken.unwrap_or_else(PoisonError::into_inner));
    }

    /// Counts a piece of the response that is handed over. Returns false if the client has left.
    pub(super) fn reserve(&self, bytes: usize) -> bool {
        let mut state = self.lock();
        state.unsent += bytes;
        !state.is_gone
    }

    /// Returns true if the worker has to wait before it makes the next piece.
    pub(super) fn is_full(&self) -> bool {
        let state = self.lock();
        state.unsent > OUTPUT_WINDOW && !state.is_gone
    }

    /// Waits until the engine has taken enough of the queue, or the client has left.
    pub(super) fn wait_for_room(&self) {
        let waits = |state: &mut State| state.unsent > OUTPUT_WINDOW / 2 && !state.is_gone;
        let woken = self.changed.wait_while(self.lock(), waits);
        drop(woken.unwrap_or_else(PoisonError::into_inner));
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
