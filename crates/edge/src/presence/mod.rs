//! Presence: events for the first and the last watcher of a key.
//!
//! Each loop notes the keys that its clients wait for. The notes of all loops are added up on one
//! [`Board`], behind a lock that a loop takes once per turn, and only if something has changed. A
//! key without watchers lingers for a while, so that a client between two polls counts as present.
//! The first loop sends the events to a webhook, in order.

mod board;
mod webhooks;

pub(crate) use board::WatchChange;
pub(crate) use webhooks::{WebhookPlan, Webhooks};

use board::{Board, Event};
use std::collections::VecDeque;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The watched keys of the process, shared by its loops.
#[derive(Debug)]
pub(crate) struct Presence {
    state: Mutex<PresenceState>,
    queue_max: usize,
}

#[derive(Debug)]
struct PresenceState {
    board: Board,
    /// Events that have not been sent.
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
    /// Makes the state of a process in which nothing is watched.
    pub(crate) fn new(linger: Duration, queue_max: usize) -> Self {
        Self {
            state: Mutex::new(PresenceState {
                board: Board::new(linger),
                events: VecDeque::new(),
            }),
            queue_max,
        }
    }

    /// Applies the changes of one loop, at a time of the loop and of the wall clock.
    pub(crate) fn note(&self, changes: Vec<WatchChange>, now: Instant, unix_ms: u64) -> Noted {
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

    /// Ends the keys whose lingering time is over; returns how many events were dropped.
    fn expire(&self, now: Instant) -> u64 {
        let mut state = self.lock();
        let mut events = Vec::new();
        state.board.expire(now, &mut events);
        self.enqueue(&mut state, events)
    }

    /// Takes the next events, at most `most`.
    fn take(&self, most: usize) -> Vec<Event> {
        let events = &mut self.lock().events;
        let count = events.len().min(most);
        events.drain(..count).collect()
    }

    /// The next time at which a key ends, and the number of events that have not been sent.
    fn outlook(&self) -> (Option<Instant>, usize) {
        let state = self.lock();
        (state.board.next_end(), state.events.len())
    }

    fn enqueue(&self, state: &mut PresenceState, events: Vec<Event>) -> u64 {
        let room = self.queue_max.saturating_sub(state.events.len());
        let dropped = events.len().saturating_sub(room);
        state.events.extend(events.into_iter().take(room));
        dropped as u64
    }

    fn lock(&self) -> MutexGuard<'_, PresenceState> {
        // Counts: if a thread panics while it holds them, its process ends.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn change(name: &str, begins: bool) -> WatchChange {
        WatchChange {
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
