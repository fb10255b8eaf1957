//! Names of the records of a loop, and the records that tags stand for.

use dwell_evloop::Token;

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
    /// Of the one tag of everything that the cache is given.
    pub(crate) const FILL: u8 = 18;
    pub(crate) const PROXIED: u8 = 20;
    pub(crate) const LOOK: u8 = 30;
}

/// Record of an exchange that is held.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Held {
    Poll(Token),
    /// A feed or a set of feeds: events, or a WebSocket to be.
    Stream(Token),
    MultiPoll(Token),
    Publish(Token),
    Proxied(Token),
}

impl Held {
    /// Decodes the tag of an exchange; a tag of no kind of these finds no poll.
    pub(crate) fn of(tag: u64) -> Self {
        let token = Token::from_bits(tag);
        match token.kind() {
            kind::FEED | kind::SET => Self::Stream(token),
            kind::SEVERAL => Self::MultiPoll(token),
            kind::PUBLISH => Self::Publish(token),
            kind::PROXIED => Self::Proxied(token),
            _ => Self::Poll(token),
        }
    }
}

/// Record of a request to the application.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Requested {
    Fetch(Token),
    AuthSubrequest(Token),
    Proxied(Token),
}

impl Requested {
    /// Decodes the tag of a request; a tag of no kind of these finds no fetch.
    pub(crate) fn of(tag: u64) -> Self {
        let token = Token::from_bits(tag);
        match token.kind() {
            kind::QUESTION => Self::AuthSubrequest(token),
            kind::PROXIED => Self::Proxied(token),
            _ => Self::Fetch(token),
        }
    }
}

/// Record of an operation of memcached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Operation {
    Lookup(Token),
    /// The version of a key that is waited for.
    Version(Token),
    Publish(Token),
    /// A value that the cache is given; nothing waits for its end.
    Fill,
    /// A value for an explanation.
    Explained(Token),
}

impl Operation {
    /// Decodes the tag of an operation; a tag of no kind of these finds no lookup.
    pub(crate) fn of(tag: u64) -> Self {
        let token = Token::from_bits(tag);
        match token.kind() {
            kind::KEY => Self::Version(token),
            kind::PUBLISH => Self::Publish(token),
            kind::FILL => Self::Fill,
            kind::LOOK => Self::Explained(token),
            _ => Self::Lookup(token),
        }
    }
}
