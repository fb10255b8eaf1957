//! Figures of routes, listeners and upstream servers, which come and go with the configuration.

use super::labels::{PollOutcome, StatusClass};
use dwell_metrics::{Counter, CounterSet, Gauge, Histogram};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

/// Routes, and listeners, that have figures of their own.
pub(crate) const PLACES_MAX: usize = 32;

/// Names of routes, or of listeners. Each has the same place on all loops, and keeps it when the
/// configuration changes.
#[derive(Debug, Default)]
pub(crate) struct Places(Mutex<Vec<String>>);

impl Places {
    /// The place of a name; `None` if there are too many names.
    pub(crate) fn of(&self, name: &str) -> Option<usize> {
        let mut names = self.lock();
        let known = names.iter().position(|known| known == name);
        known.or_else(|| {
            let has_room = names.len() < PLACES_MAX;
            has_room.then(|| {
                names.push(name.to_owned());
                names.len() - 1
            })
        })
    }

    /// The names by their places.
    pub(crate) fn names(&self) -> Vec<String> {
        self.lock().clone()
    }

    fn lock(&self) -> MutexGuard<'_, Vec<String>> {
        // Changed in one step, so a panicking thread leaves them whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Figures of one route on one loop.
#[derive(Debug, Default)]
pub(crate) struct RouteCells {
    /// Polls held now, and keys of event streams and WebSockets.
    pub(crate) waiting: Gauge,
    /// Responses by status class.
    pub(crate) responses: CounterSet<StatusClass>,
    /// Polls by outcome.
    pub(crate) polls: CounterSet<PollOutcome>,
    /// Times to the response, of requests that were not held for a change.
    pub(crate) duration: Histogram,
    /// Responses with 401 or 403.
    pub(crate) denied: Counter,
    /// Responses with 429.
    pub(crate) limited: Counter,
}

/// Figures of one listener of clients on one loop.
#[derive(Debug, Default)]
pub(crate) struct ListenerCells {
    /// Connections that speak HTTP now.
    pub(crate) open: Gauge,
    /// Connections that were accepted.
    pub(crate) connections: Counter,
    /// Requests on them.
    pub(crate) requests: Counter,
    /// Responses by status class.
    pub(crate) responses: CounterSet<StatusClass>,
    /// Requests that the server has rejected before they were read to the end.
    pub(crate) rejected: Counter,
}

/// Figures of one of the application's servers on one loop.
#[derive(Debug, Default)]
pub(crate) struct UpstreamCells {
    /// Requests in progress or waiting.
    pub(crate) outstanding: Gauge,
    /// Requests that wait for a connection.
    pub(crate) queued: Gauge,
    /// Attempts that failed at it.
    pub(crate) failures: Counter,
    /// The reason for which it is left out.
    reason: Mutex<Option<Arc<str>>>,
    /// The error of the last failure, and its time.
    last_error: Mutex<Option<(Instant, Arc<str>)>>,
}

impl UpstreamCells {
    /// Sets the reason for which the server is left out.
    pub(crate) fn set_reason(&self, reason: Option<Arc<str>>) {
        *lock(&self.reason) = reason;
    }

    /// The reason for which the server is left out, if it is.
    pub(crate) fn reason(&self) -> Option<Arc<str>> {
        lock(&self.reason).clone()
    }

    /// Counts attempts that failed at the server until `now`, the last one with this error.
    pub(crate) fn failed(&self, count: u64, error: Arc<str>, now: Instant) {
        self.failures.add(count);
        *lock(&self.last_error) = Some((now, error));
    }

    /// Forgets all failures: another server has this place.
    pub(crate) fn forget_failures(&self) {
        self.failures.set(0);
        *lock(&self.last_error) = None;
    }

    /// The error of the last failure, if there was one, and its time.
    pub(crate) fn last_error(&self) -> Option<(Instant, Arc<str>)> {
        lock(&self.last_error).clone()
    }
}

fn lock<T>(text: &Mutex<Option<T>>) -> MutexGuard<'_, Option<T>> {
    // Replaced in one step, so a panicking thread leaves it whole.
    text.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_server_at_a_place_has_none_of_the_failures_before() {
        let cells = UpstreamCells::default();
        let now = dwell_evloop::now();
        cells.failed(2, "one".into(), now);
        cells.failed(1, "other".into(), now);
        let seen = || (cells.failures.value(), cells.last_error());
        assert_eq!(seen(), (3, Some((now, "other".into()))));
        cells.forget_failures();
        assert_eq!(seen(), (0, None));
    }

    #[test]
    fn a_name_keeps_its_place_and_places_are_bounded() {
        let places = Places::default();
        assert_eq!((places.of("/a/"), places.of("/b/")), (Some(0), Some(1)));
        assert_eq!(places.of("/a/"), Some(0));
        for number in 2..PLACES_MAX {
            assert_eq!(places.of(&number.to_string()), Some(number));
        }
        assert_eq!(places.of("/c/"), None);
        assert_eq!(places.of("/b/"), Some(1));
        assert_eq!(places.names().len(), PLACES_MAX);
    }
}
