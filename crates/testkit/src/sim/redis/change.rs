//! A change that comes over a connection.

use std::time::Duration;

/// A change that a client has made over its connection.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedisChange {
    /// The key.
    pub key: String,
    /// The value, or none where it was deleted.
    pub value: Option<Vec<u8>>,
    /// The end of its lifetime, if it has one.
    pub ends: Option<Duration>,
}
