//! Tokens of one loop: kinds of components, timers that no component owns, and events.

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
    /// Streams of clients that speak HTTP/2.
    pub(crate) const CLIENT_STREAM: u8 = crate::ids::CLIENT_STREAM;
    pub(crate) const TUNNEL: u8 = 21;
    pub(crate) const WEBHOOK: u8 = 23;
    pub(crate) const CHANGE_FEED: u8 = 24;
    pub(crate) const REDIS: u8 = 25;
    /// Deadlines of keys in Redis whose values have a lifetime.
    pub(crate) const REDIS_KEY: u8 = 26;
    /// First kind of the application's servers; each has its own.
    pub(crate) const UPSTREAM: u8 = 127;
}

/// Event of one token.
#[derive(Clone, Copy, Debug)]
pub(crate) enum TokenEvent {
    Ready(Readiness),
    Expired,
}

/// Kinds for the clients of the application.
pub(crate) const UPSTREAM_KINDS: Range<u8> = kind::UPSTREAM..Token::RESERVED_KIND;
// One group that ends and its successor have room.
const _: () = assert!((Token::RESERVED_KIND - kind::UPSTREAM) as usize >= 2 * UPSTREAMS_MAX);

pub(crate) const CLIENT_KINDS: Kinds = Kinds {
    listener: kind::CLIENT_LISTENER,
    connection: kind::CLIENT,
};
pub(crate) const ADMIN_KINDS: Kinds = Kinds {
    listener: kind::ADMIN_LISTENER,
    connection: kind::ADMIN,
};

/// Reads watched keys again.
pub(super) const RECHECK: Token = Token::new(kind::TIMER, 0, 0);
/// Drops expired items of the embedded store, on loops whose clients have used it and while there
/// are items. It is not armed for an empty store.
pub(super) const EXPIRE: Token = Token::new(kind::TIMER, 0, 1);
/// Ends a share of the held polls during a drain.
pub(super) const DRAIN: Token = Token::new(kind::TIMER, 0, 2);
/// Notifies the watchdog of the service manager.
pub(super) const WATCHDOG: Token = Token::new(kind::TIMER, 0, 3);
/// Checks that other loops still fetch the keys that this one waits for.
pub(super) const FOLLOW: Token = Token::new(kind::TIMER, 0, 4);
/// Sends due events to the webhook.
pub(crate) const PRESENCE: Token = Token::new(kind::TIMER, 0, 7);
/// Checks that the sources of held exchanges are still there.
pub(super) const OWED: Token = Token::new(kind::TIMER, 0, 8);
/// Has no deadline: a turn that has left work has the next one follow at once.
pub(super) const LEFT: Token = Token::new(kind::TIMER, 0, 9);
/// Ends the next turn, when there may be room for output again.
pub(super) const OUTPUT: Token = Token::new(kind::TIMER, 0, 10);
/// Drops encoded values without references.
pub(super) const ENCODINGS: Token = Token::new(kind::TIMER, 0, 11);
/// Releases memory.
pub(super) const RELEASE: Token = Token::new(kind::TIMER, 0, 12);
/// Keeps a reading of the figures for the dashboard, on the loop with the admin listener.
pub(super) const HISTORY: Token = Token::new(kind::TIMER, 0, 13);
