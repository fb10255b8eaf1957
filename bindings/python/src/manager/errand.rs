//! Questions of other threads while one polls: that one answers them.

use super::shared::lock;
use dwell_engine::manager::WakeupError;
use pyo3::prelude::*;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The time in which the thread that polls has to take a question.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);
/// The interval at which the asking thread checks that there is still a thread that polls.
const LOOK: Duration = Duration::from_millis(10);

/// A question `Q` on its way, and its answer `R`.
#[derive(Debug)]
pub(super) struct Errand<Q, R> {
    state: Mutex<State<Q, R>>,
    changed: Condvar,
}

#[derive(Debug)]
enum State<Q, R> {
    Asked(Q),
    /// It is being answered.
    Taken,
    Answered(R),
    /// It cannot be answered: the connection is gone.
    Dropped,
}

/// The outcome for the asking thread.
#[derive(Debug)]
pub(super) enum Reply<Q, R> {
    Answer(R),
    /// The connection is gone.
    Gone,
    /// No thread polls any more; the question comes back.
    Back(Q),
    /// The thread that polls has had no time for it.
    Late,
}

/// The end of an errand that is sent to the thread that polls.
#[derive(Debug)]
pub(super) struct Courier<Q, R>(Arc<Errand<Q, R>>);

impl<Q, R> Courier<Q, R> {
    /// Answers the question, unless it was taken back.
    pub(super) fn deliver(self, answer: impl FnOnce(Q) -> R) {
        if let Some(question) = self.0.take() {
            self.0.put(State::Answered(answer(question)));
        }
    }
}

impl<Q, R> Drop for Courier<Q, R> {
    fn drop(&mut self) {
        let is_open = matches!(&*lock(&self.0.state), State::Asked(_) | State::Taken);
        if is_open {
            self.0.put(State::Dropped);
        }
    }
}

impl<Q, R> Errand<Q, R> {
    /// Takes the question, to answer it or to give it up.
    fn take(&self) -> Option<Q> {
        let mut state = lock(&self.state);
        if !matches!(*state, State::Asked(_)) {
            return None;
        }
        match std::mem::replace(&mut *state, State::Taken) {
            State::Asked(question) => Some(question),
            _ => None,
        }
    }

    fn put(&self, next: State<Q, R>) {
        let before = std::mem::replace(&mut *lock(&self.state), next);
        drop(before);
        self.changed.notify_all();
    }

    /// Waits a moment for the answer.
    fn wait(&self) -> Option<Reply<Q, R>> {
        let unanswered = |state: &mut State<Q, R>| matches!(state, State::Asked(_) | State::Taken);
        let state = lock(&self.state);
        let waited = self.changed.wait_timeout_while(state, LOOK, unanswered);
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        match std::mem::replace(&mut *state, State::Taken) {
            State::Answered(answer) => Some(Reply::Answer(answer)),
            State::Dropped => Some(Reply::Gone),
            open => {
                *state = open;
                None
            }
        }
    }
}

/// Has the thread that polls answer `question`, and waits for it without the interpreter.
///
/// Shape: `send` gives the courier to that thread; `polls` is true while there is one.
///
/// # Errors
/// Those of `send`.
pub(super) fn ask<Q: Send, R: Send>(
    question: Q,
    send: impl FnOnce(Courier<Q, R>) -> Result<(), WakeupError>,
    polls: impl Fn() -> bool + Sync,
) -> Result<Reply<Q, R>, WakeupError> {
    let errand = Arc::new(Errand {
        state: Mutex::new(State::Asked(question)),
        changed: Condvar::new(),
    });
    send(Courier(Arc::clone(&errand)))?;
    let wait = || {
        let began = Instant::now();
        loop {
            if let Some(reply) = errand.wait() {
                return reply;
            }
            let is_late = began.elapsed() >= PATIENCE;
            // One that is being answered is waited for.
            if (is_late || !polls())
                && let Some(question) = errand.take()
            {
                return if is_late {
                    Reply::Late
                } else {
                    Reply::Back(question)
                };
            }
        }
    };
    Ok(Python::attach(|py| py.detach(wait)))
}
