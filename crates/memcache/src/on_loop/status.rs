//! The visible state of a server.

use std::net::SocketAddr;

use super::Failure;

/// The state of the connection to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum State {
    /// Not connected yet, or between two attempts.
    Down,
    /// The connection is being made; operations wait for it.
    Connecting,
    /// Operations are sent.
    Up,
    /// Failed too often in a row: operations fail at once until the server answers a probe.
    Broken,
}

/// One server as it stands now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServerStatus {
    /// Its address.
    pub address: SocketAddr,
    /// The state of its connection.
    pub state: State,
    /// Connections made to it so far.
    pub epoch: u64,
    /// Operations without an answer.
    pub operations: usize,
    /// Failures since the last answer.
    pub failures_in_row: u32,
    /// The last failure, if there was any.
    pub last_failure: Option<Failure>,
    /// Counters since the start.
    pub statistics: Statistics,
}

/// Counters of one server since the start.
///
/// Shape: counters that only grow. Every operation taken is counted in `operations`, and once it
/// has ended in exactly one of `hits`, `misses`, `timeouts`, `errors` and `short_circuited`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Operations taken.
    pub operations: u64,
    /// Operations that found their key.
    pub hits: u64,
    /// Operations whose key the server does not have.
    pub misses: u64,
    /// Operations that failed because no answer came in time.
    pub timeouts: u64,
    /// Operations that failed otherwise.
    pub errors: u64,
    /// Operations that failed at once because the server was not available.
    pub short_circuited: u64,
    /// Connections made.
    pub connects: u64,
    /// Connections that could not be made, or failed.
    pub failures: u64,
}
