//! Values stored and removed over HTTP, by clients with a token.
//!
//! A request becomes a [`PublishRequest`]. The embedded store carries it out at once (`embedded`).
//! memcached is asked when the turn ends, and the order waits in a [`Publisher`] for the reply
//! (`remote`). The result is a [`PublishResult`], which is sent as a response (`answers`).

mod answers;
mod embedded;
mod remote;
mod request;

pub(crate) use answers::{denied, refuse, send};
pub(crate) use embedded::carry_out;
pub(crate) use remote::{Finished, Publisher};
pub(crate) use request::{Operation, Precondition, PublishError, PublishRequest, decoded_key};

use bytes::Bytes;

/// Result of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum PublishResult {
    /// A value was stored; there was none.
    Created,
    /// A value was stored in place of another.
    Replaced,
    /// The value was removed.
    Deleted,
    /// The value that was read, with its flags.
    Value(Bytes, u32),
    /// The key has no value.
    Missing,
    /// The condition was not met.
    Unmet,
    /// The value is larger than the store accepts.
    TooLarge,
    /// The store is full, or memcached rejects the value.
    NoRoom(&'static str),
    /// memcached has not replied.
    Unanswered(&'static str),
    /// The server does not take writes now, and may do so soon.
    NotNow(&'static str),
    /// Redis cannot be reached: nothing was sent.
    Unreached,
    /// Too many requests wait for memcached.
    Busy,
    /// Another process serves, and has the store.
    Moved,
}
