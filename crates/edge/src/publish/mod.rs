//! Values stored and removed over HTTP, by whoever shows a token.
//!
//! A request becomes an [`Order`]. The embedded store carries it out at once (`embedded`);
//! memcached is asked when the turn ends, and the order waits in a [`Publisher`] until it has
//! answered (`remote`). What came of it is a [`Published`], and that is an answer (`answers`).

mod answers;
mod embedded;
mod order;
mod remote;

pub(crate) use answers::{denied, refuse, send};
pub(crate) use embedded::carry_out;
pub(crate) use order::{Act, Condition, Order, OrderError, decoded_key};
pub(crate) use remote::{Finished, Publisher};

use bytes::Bytes;

/// What came of an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Published {
    /// A value is there now, where none was.
    Created,
    /// A value is there now, in place of another.
    Replaced,
    /// The key has no value any more.
    Deleted,
    /// The value that was asked for, with its flags.
    Value(Bytes, u32),
    /// The key has none.
    Missing,
    /// What the order was conditional on is not so.
    Unmet,
    /// The value is larger than the store takes.
    TooLarge,
    /// The store has no room, or memcached refuses the value.
    NoRoom(&'static str),
    /// memcached has not answered.
    Unanswered(&'static str),
    /// Too many orders wait for memcached already.
    Busy,
    /// Another process has the store, and serves.
    Moved,
}
