//! A request body on its way in and a streaming answer on its way out, between loop and worker.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

/// Bytes of a request body that are granted ahead of the reader.
const INPUT_WINDOW: u64 = 256 * 1024;
/// Bytes of an answer that a worker may hand over before the engine has taken them.
const OUTPUT_WINDOW: usize = 256 * 1024;

/// Bytes of a body that are joined as they come.
const PIECE_BYTES_MAX: usize = 16 * 1024;

/// State of one exchange that a worker and the loop share.
#[derive(Debug, Default)]
pub(super) struct Channel {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    input: VecDeque<Vec<u8>>,
    /// Bytes that were granted to the client and not read yet.
    outstanding: u64,
    /// The reader has taken all that has come, and waits for more.
    is_awaited: bool,
    input_ended: bool,
    unsent: usize,
    is_gone: bool,
}

/// A result for the reader of a body.
#[derive(Debug)]
pub(super) enum Piece {
    Data(Vec<u8>),
    End,
    /// The client has left before the end.
    Gone,
    /// A number of bytes to grant; 0 if the loop only has to learn that they are awaited.
    Want(u64),
    /// Nothing yet.
    Nothing,
}

impl Channel {
    /// Body bytes came.
    pub(super) fn arrive(&self, data: &[u8]) {
        let mut state = self.lock();
        // A body that comes byte by byte takes no more memory than another one.
        match state.input.back_mut() {
            Some(last) if last.len() + data.len() <= PIECE_BYTES_MAX => {
                last.extend_from_slice(data);
            }
            _ => state.input.push_back(data.to_vec()),
        }
        state.is_awaited = false;
        drop(state);
        self.changed.notify_all();
    }

    /// Notes bytes of the body that were granted ahead of its reader.
    pub(super) fn asked(&self, bytes: u64) {
        self.lock().outstanding += bytes;
    }

    /// Returns true while the reader waits for granted bytes.
    pub(super) fn is_awaited(&self) -> bool {
        self.lock().is_awaited
    }

    /// The body is complete.
    pub(super) fn complete(&self) {
        self.lock().input_ended = true;
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

    /// The next piece of the body, or what has to happen before it comes.
    pub(super) fn piece(&self) -> Piece {
        let mut state = self.lock();
        if !state.input_ended && !state.is_gone {
            let begins_to_wait =
                state.input.is_empty() && !std::mem::replace(&mut state.is_awaited, true);
            let is_low = state.outstanding <= INPUT_WINDOW / 2;
            let room = INPUT_WINDOW.saturating_sub(state.outstanding);
            let grant = if is_low { room } else { 0 };
            if is_low || begins_to_wait {
                state.outstanding += grant;
                return Piece::Want(grant);
            }
        }
        if let Some(data) = state.input.pop_front() {
            state.outstanding = state.outstanding.saturating_sub(data.len() as u64);
            return Piece::Data(data);
        }
        match (state.input_ended, state.is_gone) {
            (true, _) => Piece::End,
            (false, true) => Piece::Gone,
            (false, false) => Piece::Nothing,
        }
    }

    /// Waits until the next piece of the body is here, or will not come.
    pub(super) fn wait_for_input(&self) {
        let waits =
            |state: &mut State| state.input.is_empty() && !state.input_ended && !state.is_gone;
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
