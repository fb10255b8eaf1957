//! Counters of a server.

use std::sync::atomic::{AtomicU64, Ordering};

/// Sums over all loops of a server.
///
/// ```
/// use dwell_engine::Statistics;
///
/// fn line(figures: &Statistics) -> String {
///     let Statistics { connections, in_flight, requests, .. } = figures;
///     format!("{connections} clients, {in_flight} of {requests} requests in progress")
/// }
/// assert_eq!(line(&Statistics::default()), "0 clients, 0 of 0 requests in progress");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[non_exhaustive]
pub struct Statistics {
    /// Loops that serve.
    pub loops: usize,
    /// Connections open now, those included that have left HTTP.
    pub connections: usize,
    /// Requests that wait for their answer, or for the end of it.
    pub in_flight: usize,
    /// Connections that have left HTTP for a protocol of their own and live on a loop.
    pub raw_connections: usize,
    /// Clients accepted.
    pub accepted: u64,
    /// Clients turned away, because there were too many.
    pub refused: u64,
    /// Times no descriptor was left to accept with.
    pub exhausted: u64,
    /// Fresh sockets that one loop gave to another.
    pub handed_over: u64,
    /// Requests handed to the handler.
    pub requests: u64,
    /// Requests that the engine has answered without a handler.
    pub rejected: u64,
    /// Clients cut off because they took nothing of their answer.
    pub write_timeouts: u64,
    /// Requests answered 503 because their handler took too long.
    pub answer_timeouts: u64,
    /// Handlers that have panicked.
    pub panics: u64,
    /// Jobs that ran on the worker pool, or run now.
    pub jobs: u64,
    /// Jobs refused because the queue was full.
    pub jobs_refused: u64,
    /// Worker threads.
    pub workers: usize,
    /// Turns of all loops.
    pub turns: u64,
    /// Exchanges that a loop visited because another thread, or a future, woke it.
    pub wake_ups: u64,
}

/// The figures of one loop, written by it alone.
#[derive(Debug, Default)]
pub(super) struct Figures {
    pub(super) in_flight: AtomicU64,
    pub(super) raw_connections: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) refused: AtomicU64,
    pub(super) exhausted: AtomicU64,
    pub(super) handed_over: AtomicU64,
    pub(super) requests: AtomicU64,
    pub(super) rejected: AtomicU64,
    pub(super) write_timeouts: AtomicU64,
    pub(super) answer_timeouts: AtomicU64,
    pub(super) panics: AtomicU64,
    pub(super) turns: AtomicU64,
    pub(super) wake_ups: AtomicU64,
}

/// Adds to a figure that only the calling thread writes.
pub(super) fn add(figure: &AtomicU64, more: u64) {
    figure.store(figure.load(Ordering::Relaxed) + more, Ordering::Relaxed);
}

/// Sets a figure that only the calling thread writes.
pub(super) fn set(figure: &AtomicU64, value: usize) {
    figure.store(value as u64, Ordering::Relaxed);
}

impl Figures {
    pub(super) fn add_to(&self, sums: &mut Statistics) {
        let read = |figure: &AtomicU64| figure.load(Ordering::Relaxed);
        sums.in_flight += read(&self.in_flight) as usize;
        sums.raw_connections += read(&self.raw_connections) as usize;
        sums.accepted += read(&self.accepted);
        sums.refused += read(&self.refused);
        sums.exhausted += read(&self.exhausted);
        sums.handed_over += read(&self.handed_over);
        sums.requests += read(&self.requests);
        sums.rejected += read(&self.rejected);
        sums.write_timeouts += read(&self.write_timeouts);
        sums.answer_timeouts += read(&self.answer_timeouts);
        sums.panics += read(&self.panics);
        sums.turns += read(&self.turns);
        sums.wake_ups += read(&self.wake_ups);
    }
}
