//! A promise that was not kept.

use std::fmt;
use std::time::Duration;

/// A promise that is checked at every step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Oracle {
    /// (a) A client that waits gets the newest value.
    Newest,
    /// (b) Each request has exactly one answer, of the form that it asked for.
    OneAnswer,
    /// (c) No answer is that of another key.
    OwnKey,
    /// (d) When all have left, all tables and counts are as they were at the start.
    Accounting,
    /// (e) Nothing is more than an option allows, and what is refused is counted.
    Bounds,
    /// (f) Nothing waits longer than its deadline, and no deadline comes early.
    Deadline,
    /// (g) A request that may not be repeated comes to the application once.
    OneRequest,
    /// (h) The store equals a map.
    Map,
    /// (i) No older value comes after a newer one, or after a write that had ended before.
    Order,
    /// Under TLS, records follow the protocol, and nothing is delivered of a broken one.
    Record,
    /// Over HTTP/2, frames follow the protocol, and keep to the windows.
    Frame,
    /// A loop that has nothing to do does nothing.
    Silence,
    /// Nothing panics.
    Panic,
    /// The same seed gives the same events.
    Determinism,
}

/// A promise that was not kept, with the moment and the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Failure {
    /// The promise.
    pub oracle: Oracle,
    /// Simulated time.
    pub at: Duration,
    /// The event that was seen instead.
    pub reason: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { oracle, at, reason } = self;
        write!(f, "{oracle:?} after {:.6} s: {reason}", at.as_secs_f64())
    }
}
