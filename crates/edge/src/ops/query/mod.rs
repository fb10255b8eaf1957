//! Queries to all loops.
//!
//! A client of the admin listener asks the first loop. That loop asks every loop through its inbox,
//! itself included, and responds when all results have arrived, or at a timeout. A loop answers
//! from its own tables, between two events.

mod pending;
mod watched;

pub(crate) use pending::{ClientQuery, EXPLAIN_PATH, PendingQueries, WATCHED_PATH};
pub(crate) use watched::render as render_watched;

use crate::polls::{Question, Valued, Watchers};
use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One query, and the results so far.
#[derive(Debug)]
pub(crate) struct LoopQuery {
    pub(crate) question: Question,
    results: Mutex<QueryResults>,
}

/// Watchers of keys, by key.
pub(crate) type WatchedKeys = HashMap<Box<[u8]>, Watchers>;

#[derive(Debug, Default)]
struct QueryResults {
    watched: WatchedKeys,
    loops: usize,
    value: Option<Valued>,
}

impl LoopQuery {
    pub(crate) fn new(question: Question) -> Arc<Self> {
        let results = Mutex::default();
        Arc::new(Self { question, results })
    }

    /// Adds the result of one loop.
    pub(crate) fn add(&self, watched: impl IntoIterator<Item = (Box<[u8]>, Watchers)>) {
        let mut results = self.lock();
        for (name, watchers) in watched {
            *results.watched.entry(name).or_default() += watchers;
        }
        results.loops += 1;
    }

    /// The number of loops whose results have arrived.
    pub(crate) fn loops(&self) -> usize {
        self.lock().loops
    }

    /// Takes the results.
    pub(crate) fn take(&self) -> WatchedKeys {
        std::mem::take(&mut self.lock().watched)
    }

    /// Sets the value of the request's key.
    pub(crate) fn found(&self, value: Valued) {
        self.lock().value = Some(value);
    }

    /// The value of the request's key, if it is known.
    pub(crate) fn value(&self) -> Option<Valued> {
        self.lock().value.clone()
    }

    /// Returns true if all results of `loops` loops have arrived.
    pub(crate) fn is_answered(&self, loops: usize) -> bool {
        let results = self.lock();
        let wants_value = matches!(self.question, Question::Request(_));
        results.loops >= loops && (results.value.is_some() || !wants_value)
    }

    fn lock(&self) -> MutexGuard<'_, QueryResults> {
        // Sums: a loop that panics is missing from them and from the count.
        self.results.lock().unwrap_or_else(PoisonError::into_inner)
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
        let query = LoopQuery::new(Question::Prefix(Box::default()));
        let streams = Watchers {
            streams: 3,
            ..Watchers::default()
        };
        query.add([(b"a"[..].into(), polls(1)), (b"b"[..].into(), polls(1))]);
        query.add([(b"a"[..].into(), streams)]);
        assert_eq!(query.loops(), 2);
        let watched = query.take();
        assert_eq!(watched.len(), 2);
        assert_eq!(watched[&b"a"[..]].total(), 4);
        assert_eq!(watched[&b"b"[..]], polls(1));
    }
}
