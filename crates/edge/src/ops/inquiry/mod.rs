//! Questions to all loops: who watches what.
//!
//! A client of the admin listener asks the first loop, which has it; that one asks every loop
//! through its inbox, itself among them, and answers when all have said what they know, or when
//! the time for it is over. A loop answers from its own tables, between two events.

mod desk;
mod watched;

pub(crate) use desk::{Asked, Desk, EXPLAIN_PATH, WATCHED_PATH};
pub(crate) use watched::render as render_watched;

use crate::polls::{Question, Valued, Watchers};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One question, and what the loops have said to it so far.
#[derive(Debug)]
pub(crate) struct Inquiry {
    pub(crate) question: Question,
    said: Mutex<Said>,
}

/// What is known of keys that are watched, by their names.
pub(crate) type Watched = HashMap<Box<[u8]>, Watchers>;

#[derive(Debug, Default)]
struct Said {
    watched: Watched,
    loops: usize,
    value: Option<Valued>,
}

impl Inquiry {
    pub(crate) fn new(question: Question) -> Arc<Self> {
        let said = Mutex::default();
        Arc::new(Self { question, said })
    }

    /// One loop says what it knows.
    pub(crate) fn tell(&self, watched: impl IntoIterator<Item = (Box<[u8]>, Watchers)>) {
        let mut said = self.lock();
        for (name, watchers) in watched {
            *said.watched.entry(name).or_default() += watchers;
        }
        said.loops += 1;
    }

    /// How many loops have said what they know.
    pub(crate) fn loops(&self) -> usize {
        self.lock().loops
    }

    /// Takes what the loops have said.
    pub(crate) fn take(&self) -> Watched {
        std::mem::take(&mut self.lock().watched)
    }

    /// What there is under the key of the request is known.
    pub(crate) fn found(&self, value: Valued) {
        self.lock().value = Some(value);
    }

    /// What there is under the key, if that is known.
    pub(crate) fn value(&self) -> Option<Valued> {
        self.lock().value.clone()
    }

    /// Whether all of so many loops have said what there is to say.
    pub(crate) fn is_answered(&self, loops: usize) -> bool {
        let said = self.lock();
        let wants_value = matches!(self.question, Question::Request(_));
        said.loops >= loops && (said.value.is_some() || !wants_value)
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        // Sums: what a panicking thread leaves is too small, and its loop is not counted.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polls(polls: u64) -> Watchers {
        Watchers {
            polls,
            ..Watchers::default()
        }
    }

    #[test]
    fn what_the_loops_say_is_added_up() {
        let inquiry = Inquiry::new(Question::Prefix(Box::default()));
        let streams = Watchers {
            streams: 3,
            ..Watchers::default()
        };
        inquiry.tell([(b"a"[..].into(), polls(1)), (b"b"[..].into(), polls(1))]);
        inquiry.tell([(b"a"[..].into(), streams)]);
        assert_eq!(inquiry.loops(), 2);
        let watched = inquiry.take();
        assert_eq!(watched.len(), 2);
        assert_eq!(watched[&b"a"[..]].total(), 4);
        assert_eq!(watched[&b"b"[..]], polls(1));
    }
}
