//! Presence: which keys are watched by anybody in the process, and who is told when that begins
//! and ends.
//!
//! Each loop notes which keys somebody waits for there. What the loops have noted is added up on
//! one [`Board`], behind a lock that a loop takes once a turn, and only where something has
//! changed. A key that nobody watches any more lingers for a while, so that a client that polls
//! again has not been away. The first loop sends what happens to a webhook, in order.

mod board;
mod webhooks;

pub(crate) use board::Change;
pub(crate) use webhooks::{WebhookPlan, Webhooks};

use board::{Board, Event};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// What the loops of a process know together of who is watched.
#[derive(Debug)]
pub(crate) struct Presence {
    state: Mutex<State>,
    queue_max: usize,
}

#[derive(Debug)]
struct State {
    board: Board,
    /// What nobody has been told yet.
    events: VecDeque<Event>,
}

/// Outcome of noting changes.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Noted {
    /// Events for which there was no room.
    pub(crate) dropped: u64,
    /// The loop that sends events has something to do.
    pub(crate) is_news: bool,
}

impl Presence {
    /// A process in which nothing is watched.
    pub(crate) fn new(linger: Duration, queue_max: usize) -> Self {
        Self {
            state: Mutex::new(State {
                board: Board::new(linger),
                events: VecDeque::new(),
            }),
            queue_max,
        }
    }

    /// Takes in what has changed on one loop, at a time of the loop and of the wall clock.
    pub(crate) fn note(&self, changes: Vec<Change>, now: Instant, unix_ms: u64) -> Noted {
        let mut state = self.lock();
        let was_quiet = state.events.is_empty();
        let had_nothing_to_end = state.board.next_end().is_none();
        let mut events = Vec::new();
        for change in changes {
            state.board.note(change, now, unix_ms, &mut events);
        }
        let dropped = self.enqueue(&mut state, events);
        Noted {
            dropped,
            is_news: was_quiet && !state.events.is_empty()
                || had_nothing_to_end && state.board.next_end().is_some(),
        }
    }

    /// Ends the time of keys that nobody came back to; returns how many events had no room.
    fn expire(&self, now: Instant) -> u64 {
        let mut state = self.lock();
        let mut events = Vec::new();
        state.board.expire(now, &mut events);
        self.enqueue(&mut state, events)
    }

    /// The next events to be told, at most so many.
    fn take(&self, most: usize) -> Vec<Event> {
        let events = &mut self.lock().events;
        let count = events.len().min(most);
        events.drain(..count).collect()
    }

    /// When the time of a key is over next, and how many events wait to be told.
    fn outlook(&self) -> (Option<Instant>, usize) {
        let state = self.lock();
        (state.board.next_end(), state.events.len())
    }

    fn enqueue(&self, state: &mut State, events: Vec<Event>) -> u64 {
        let room = self.queue_max.saturating_sub(state.events.len());
        let dropped = events.len().saturating_sub(room);
        state.events.extend(events.into_iter().take(room));
        dropped as u64
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Counts: what a panicking thread leaves is wrong by its keys, and its process ends.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, begins: bool) -> Change {
        Change {
            name: name.as_bytes().into(),
            begins,
        }
    }

    #[test]
    fn what_has_no_room_is_counted_and_the_rest_is_in_order() {
        let (presence, now) = (Presence::new(Duration::ZERO, 2), Instant::now());
        let begin = ["a", "b", "c"].map(|name| change(name, true));
        let noted = presence.note(begin.into(), now, 1);
        assert_eq!((noted.dropped, noted.is_news), (1, true));
        assert_eq!(presence.outlook(), (None, 2));
        let names: Vec<_> = presence.take(9).into_iter().map(|it| it.key).collect();
        assert_eq!(names, ["a", "b"].map(|name| Box::from(name.as_bytes())));
        let noted = presence.note(vec![change("a", false)], now, 2);
        assert!(noted.is_news, "its time has to be waited for");
        let noted = presence.note(vec![change("b", false)], now, 2);
        assert!(!noted.is_news, "that is looked at anyway");
        assert_eq!(presence.expire(now), 0);
        assert_eq!((presence.take(1).len(), presence.take(9).len()), (1, 1));
    }
}
