//! Tokens of one loop: kinds of components, timers that no component owns, and what happens to one.

use dwell_engine::Kinds;
use dwell_evloop::{Readiness, Token};
use dwell_upstream::UPSTREAMS_MAX;
use std::ops::Range;

/// Kinds of the tokens that a loop of the edge delivers.
pub(crate) mod kind {
    pub(crate) const CLIENT_LISTENER: u8 = 1;
    pub(crate) const CLIENT: u8 = 2;
    pub(crate) const ADMIN_LISTENER: u8 = 3;
    pub(crate) const ADMIN: u8 = 4;
    pub(crate) const STORE_LISTENER: u8 = 5;
    pub(crate) const STORE: u8 = 6;
    pub(crate) const MEMCACHED: u8 = 7;
    pub(crate) const TIMER: u8 = 9;
    pub(crate) const WEBSOCKET: u8 = 10;
    pub(crate) const TUNNEL: u8 = 21;
    pub(crate) const WEBHOOK: u8 = 23;
    pub(crate) const CHANGE_FEED: u8 = 24;
    /// First kind of the application's servers; each has its own.
    pub(crate) const UPSTREAM: u8 = 127;
}

/// Event of one token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Occurrence {
    Ready(Readiness),
    Expired,
}

/// Kinds of the clients of the application that a loop has at a time.
pub(crate) const UPSTREAM_KINDS: Range<u8> = kind::UPSTREAM..Token::RESERVED_KIND;
// One group that ends and the one after it have room.
const _: () = assert!((Token::RESERVED_KIND - kind::UPSTREAM) as usize >= 2 * UPSTREAMS_MAX);

pub(crate) const CLIENT_KINDS: Kinds = Kinds {
    listener: kind::CLIENT_LISTENER,
    connection: kind::CLIENT,
};
pub(crate) const ADMIN_KINDS: Kinds = Kinds {
    listener: kind::ADMIN_LISTENER,
    connection: kind::ADMIN,
};

/// Reads the keys that polls wait for again.
pub(super) const RECHECK: Token = Token::new(kind::TIMER, 0, 0);
/// Drops expired items of the embedded store, on loops whose clients have used it and while there
/// are items: nothing is armed for an empty store.
pub(super) const EXPIRE: Token = Token::new(kind::TIMER, 0, 1);
/// Ends a share of the held polls while the server drains.
pub(super) const DRAIN: Token = Token::new(kind::TIMER, 0, 2);
/// Tells the service manager that the loops turn.
pub(super) const WATCHDOG: Token = Token::new(kind::TIMER, 0, 3);
/// Checks that other loops still fetch what this one waits for.
pub(super) const FOLLOW: Token = Token::new(kind::TIMER, 0, 4);
/// Sends the webhook what is due.
pub(crate) const PRESENCE: Token = Token::new(kind::TIMER, 0, 7);
/// Checks that what exchanges wait for is still there.
pub(super) const OWED: Token = Token::new(kind::TIMER, 0, 8);
/// Names no deadline: a turn that has left something to do has the next one follow at once.
pub(super) const LEFT: Token = Token::new(kind::TIMER, 0, 9);
/// Ends the next turn, when there may be room for output again.
pub(super) const OUTPUT: Token = Token::new(kind::TIMER, 0, 10);
/// Drops encoded values that nothing refers to.
pub(super) const ENCODINGS: Token = Token::new(kind::TIMER, 0, 11);
/// Gives memory back.
pub(super) const RELEASE: Token = Token::new(kind::TIMER, 0, 12);
