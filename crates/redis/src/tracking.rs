//! The visible state of a client.

use crate::Failure;
use std::net::SocketAddr;

/// The state of the announcements of changes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tracking {
    /// No key is waited for.
    Idle,
    /// The tracking connection is being made, or is lost.
    Connecting,
    /// Changes of all keys that are waited for are announced.
    On,
    /// The server does not track for this client: keys have to be swept.
    Refused,
}

/// The use of a server's table of the keys whose changes it announces.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TableUse {
    /// Keys in the table.
    pub keys: u64,
    /// Its bound, `tracking-table-max-keys`.
    pub keys_max: u64,
}

/// A cluster as it stands now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ClusterStatus<'c> {
    /// The number of its primaries; 0 before they are known.
    pub primaries: usize,
    /// Slots without a primary that can be connected to.
    pub missing_slots: usize,
    /// A primary without an address that can be connected to, as the servers name it.
    pub unknown: Option<&'c str>,
    /// The reason why the last question for the topology has no answer.
    pub reason: Option<&'c str>,
}

/// One server as it stands now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Status<'c> {
    /// True if operations are sent.
    pub is_up: bool,
    /// The server, if Sentinels have named it.
    pub primary: Option<SocketAddr>,
    /// Connections for operations that were made so far.
    pub connects: u64,
    /// The last failure, if the last attempt or connection failed.
    pub last_failure: Option<Failure>,
    /// The server's own words for it, or those of TLS, if there are any.
    pub reason: Option<&'c str>,
    /// The state of the announcements.
    pub tracking: Tracking,
    /// The reason why the server does not track.
    pub tracking_reason: Option<&'c str>,
    /// True while most announcements are of keys that have not changed, as of a server
    /// whose `tracking-table-max-keys` is too small. Keys are then read at a slower pace.
    pub has_idle_pushes: bool,
    /// The use of the server's table of keys that it announces, while that is nearly full.
    pub table: Option<TableUse>,
}
