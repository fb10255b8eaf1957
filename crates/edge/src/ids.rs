//! Names of the records of a loop, and the records that tags stand for.

use dwell_evloop::{Id, Token};
use std::fmt;

/// Kinds of the tokens of records. They name no sockets, so the loop never delivers them.
pub(crate) mod kind {
    pub(crate) const POLL: u8 = 1;
    pub(crate) const KEY: u8 = 2;
    pub(crate) const LOOKUP: u8 = 3;
    pub(crate) const FETCH: u8 = 4;
    pub(crate) const FEED: u8 = 5;
    pub(crate) const SET: u8 = 6;
    pub(crate) const SEVERAL: u8 = 7;
    pub(crate) const MISSING: u8 = 8;
    pub(crate) const PUBLISH: u8 = 16;
    pub(crate) const QUESTION: u8 = 17;
    /// The kind of the one tag of all values that the cache is given.
    pub(crate) const FILL: u8 = 18;
    pub(crate) const PROXIED: u8 = 20;
    pub(crate) const LOOK: u8 = 30;
}

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub(crate) struct $name(Token);

        impl Id for $name {
            fn from_token(token: Token) -> Self {
                Self(token)
            }

            fn token(self) -> Token {
                self.0
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    )*};
}

ids! {
    /// Names a lookup of a key in memcached.
    LookupId;
    /// Names a request of a publisher that waits for memcached.
    PublishId;
    /// Names a subrequest that asks the application for access.
    SubrequestId;
    /// Names a proxied request.
    ProxiedId;
}

/// Record of an exchange that is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    Poll(Token),
    /// A feed or a set of feeds: events, or a WebSocket to be.
    Stream(Token),
    MultiPoll(Token),
    Publish(PublishId),
    Proxied(ProxiedId),
}

impl Held {
    /// Decodes the tag of an exchange; a tag of no kind of these finds no poll.
    pub(crate) fn of(tag: u64) -> Self {
        let token = Token::from_bits(tag);
        match token.kind() {
            kind::FEED | kind::SET => Self::Stream(token),
            kind::SEVERAL => Self::MultiPoll(token),
            kind::PUBLISH => Self::Publish(PublishId(token)),
            kind::PROXIED => Self::Proxied(ProxiedId(token)),
            _ => Self::Poll(token),
        }
    }
}

/// Record of a request to the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Requested {
    Fetch(Token),
    AuthSubrequest(SubrequestId),
    Proxied(ProxiedId),
}

impl Requested {
    /// Decodes the tag of a request; a tag of no kind of these finds no fetch.
    pub(crate) fn of(tag: u64) -> Self {
        let token = Token::from_bits(tag);
        match token.kind() {
            kind::QUESTION => Self::AuthSubrequest(SubrequestId(token)),
            kind::PROXIED => Self::Proxied(ProxiedId(token)),
            _ => Self::Fetch(token),
        }
    }
}

/// Record of an operation of memcached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CacheOperation {
    Lookup(LookupId),
    /// The version of a key that is waited for.
    Version(Token),
    Publish(PublishId),
    /// A value that the cache is given; nothing waits for its end.
    Fill,
    /// A value for an explanation.
    Explained(Token),
}

impl CacheOperation {
    /// Decodes the tag of an operation; a tag of no kind of these finds no lookup.
    pub(crate) fn of(tag: u64) -> Self {
        let token = Token::from_bits(tag);
        match token.kind() {
            kind::KEY => Self::Version(token),
            kind::PUBLISH => Self::Publish(PublishId(token)),
            kind::FILL => Self::Fill,
            kind::LOOK => Self::Explained(token),
            _ => Self::Lookup(LookupId(token)),
        }
    }
}
