//! Names of the records of a loop, and the records that tags stand for.

use dwell_evloop::{Id, Slab, Token};
use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::num::NonZeroU64;

/// Kinds of the tokens of records. They name no sockets, so the loop never delivers them.
pub(crate) mod kind {
    pub(crate) const POLL: u8 = 1;
    pub(crate) const KEY: u8 = 2;
    pub(crate) const LOOKUP: u8 = 3;
    pub(crate) const FETCH: u8 = 4;
    pub(crate) const FEED: u8 = 5;
    pub(crate) const SET: u8 = 6;
    pub(crate) const MULTI_POLL: u8 = 7;
    pub(crate) const SUB_FETCH: u8 = 8;
    pub(crate) const PUBLISH: u8 = 16;
    pub(crate) const SUBREQUEST: u8 = 17;
    /// The kind of the one tag of all values that the cache is given.
    pub(crate) const FILL: u8 = 18;
    pub(crate) const PROXIED: u8 = 20;
    pub(crate) const EXPLAINED: u8 = 30;
}

/// The kind of the tokens of streams of HTTP/2, each of which is an exchange of a client.
pub(crate) const CLIENT_STREAM: u8 = 11;

macro_rules! ids {
    ($($(#[$doc:meta])* $name:ident = $kind:path;)*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash)]
        #[repr(transparent)]
        pub(crate) struct $name(NonZeroU64);

        impl Id for $name {
            fn from_token(token: Token) -> Self {
                Self(bits(token))
            }

            fn token(self) -> Token {
                Token::from_bits(self.0.get())
            }
        }

        impl $name {
            /// The table of its records, which holds so many at most.
            pub(crate) fn slab<T>(capacity_max: usize) -> Slab<T, Self> {
                Slab::with_ids($kind, capacity_max)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.token().fmt(f)
            }
        }

        #[cfg(test)]
        impl $name {
            /// The id of the first tenant of a place.
            pub(crate) fn nth(index: u32) -> Self {
                Self::from_token(Token::new($kind, 0, index))
            }
        }
    )*};
}

ids! {
    /// Names a poll of one key.
    PollId = kind::POLL;
    /// Names a key that something is in progress for.
    KeyId = kind::KEY;
    /// Names a lookup of a key in memcached.
    LookupId = kind::LOOKUP;
    /// Names a request to the application that polls share, or a queue of polls that ask alone.
    FetchId = kind::FETCH;
    /// Names a key that a stream or a stream's client follows.
    FeedId = kind::FEED;
    /// Names a stream that may follow several keys.
    SetId = kind::SET;
    /// Names a poll of several keys.
    MultiPollId = kind::MULTI_POLL;
    /// Names a key of a stream, or of a poll of several keys, that the application is asked for.
    SubFetchId = kind::SUB_FETCH;
    /// Names a request of a publisher that waits for memcached.
    PublishId = kind::PUBLISH;
    /// Names a subrequest that asks the application for access.
    SubrequestId = kind::SUBREQUEST;
    /// Names a proxied request.
    ProxiedId = kind::PROXIED;
}

/// The bits of the token of a record. Kinds begin at 1, so only a tag of no record is all zeros; it
/// becomes an id of no kind, which finds nothing.
fn bits(token: Token) -> NonZeroU64 {
    NonZeroU64::new(token.to_bits()).unwrap_or(NonZeroU64::MAX)
}

/// An id of one of the kinds of `E`, in the room of a single id.
pub(crate) struct Packed<E>(NonZeroU64, PhantomData<fn() -> E>);

impl<E: Id> Packed<E> {
    /// The id with its kind.
    pub(crate) fn id(self) -> E {
        E::from_token(self.token())
    }
}

impl<E> Id for Packed<E> {
    fn from_token(token: Token) -> Self {
        Self(bits(token), PhantomData)
    }

    fn token(self) -> Token {
        Token::from_bits(self.0.get())
    }
}

impl<E> Clone for Packed<E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E> Copy for Packed<E> {}

impl<E> PartialEq for Packed<E> {
    fn eq(&self, other: &Self) -> bool {
        self.0 == other.0
    }
}

impl<E> Eq for Packed<E> {}

impl<E> Hash for Packed<E> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl<E> fmt::Debug for Packed<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.token().fmt(f)
    }
}

/// Makes an enum of ids, which the kind of a token is decoded to; a token of no kind of these is an
/// id of the last one, which then finds nothing.
macro_rules! one_of {
    ($($(#[$doc:meta])* $name:ident {
        $($(#[$of:meta])* $variant:ident($id:ty): $kinds:pat,)*
    })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(crate) enum $name {
            $($(#[$of])* $variant($id),)*
        }

        impl Id for $name {
            fn from_token(token: Token) -> Self {
                match token.kind() {
                    $($kinds => Self::$variant(<$id>::from_token(token)),)*
                }
            }

            fn token(self) -> Token {
                match self {
                    $(Self::$variant(id) => id.token(),)*
                }
            }
        }

        $(
            impl From<$id> for $name {
                fn from(id: $id) -> Self {
                    Self::$variant(id)
                }
            }

            impl From<$id> for Packed<$name> {
                fn from(id: $id) -> Self {
                    Self::from_token(id.token())
                }
            }
        )*
    )*};
}

one_of! {
    /// Record of an exchange that is held.
    Held {
        /// A feed or a set of feeds: events, or a WebSocket to be.
        Stream(StreamId): kind::FEED | kind::SET,
        MultiPoll(MultiPollId): kind::MULTI_POLL,
        Publish(PublishId): kind::PUBLISH,
        Proxied(ProxiedId): kind::PROXIED,
        Poll(PollId): _,
    }

    /// Record of a request to the application.
    Requested {
        AuthSubrequest(SubrequestId): kind::SUBREQUEST,
        Proxied(ProxiedId): kind::PROXIED,
        Fetch(FetchId): _,
    }

    /// A stream of events or a WebSocket: one feed, or a set of them.
    FeedOrSet {
        Set(SetId): kind::SET,
        Feed(FeedId): _,
    }

    /// Record of a wait for changes of a key.
    Waiter {
        Feed(FeedId): kind::FEED,
        MultiPoll(MultiPollId): kind::MULTI_POLL,
        Poll(PollId): _,
    }

    /// Record that the answer to a lookup is for.
    LookupMember {
        SubFetch(SubFetchId): kind::SUB_FETCH,
        MultiPoll(MultiPollId): kind::MULTI_POLL,
        Poll(PollId): _,
    }

    /// Record that the answer of the application to a fetch is for.
    FetchMember {
        SubFetch(SubFetchId): kind::SUB_FETCH,
        Poll(PollId): _,
    }

    /// Record that asks the application for a key.
    SubFetchAsker {
        MultiPoll(MultiPollId): kind::MULTI_POLL,
        Feed(FeedId): _,
    }

    /// The source of the response of a poll.
    ResponseSource {
        /// A change of its key, until its wait ends.
        Key(KeyId): kind::KEY,
        Lookup(LookupId): kind::LOOKUP,
        Subrequest(SubrequestId): kind::SUBREQUEST,
        Fetch(FetchId): _,
    }
}

/// Names a stream of events or a WebSocket.
pub(crate) type StreamId = Packed<FeedOrSet>;
/// Names a record that waits for changes of a key.
pub(crate) type WaiterId = Packed<Waiter>;

/// Record of an operation of memcached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum CacheOperation {
    Lookup(LookupId),
    /// The version of a key that is waited for.
    Version(KeyId),
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
            kind::KEY => Self::Version(KeyId::from_token(token)),
            kind::PUBLISH => Self::Publish(PublishId::from_token(token)),
            kind::FILL => Self::Fill,
            kind::EXPLAINED => Self::Explained(token),
            _ => Self::Lookup(LookupId::from_token(token)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn survives<E: Id + PartialEq + fmt::Debug>(ids: impl IntoIterator<Item = E>) {
        for id in ids {
            assert_eq!(E::from_bits(id.to_bits()), id);
            assert_eq!(Packed::<E>::from_token(id.token()).id(), id);
        }
    }

    #[test]
    fn an_id_is_decoded_as_what_it_was() {
        let (poll, multi_poll) = (PollId::nth(0), MultiPollId::nth(0));
        let (feed, set) = (FeedId::nth(0), SetId::nth(0));
        let (fetch, sub_fetch) = (FetchId::nth(0), SubFetchId::nth(0));
        let (publish, proxied) = (PublishId::nth(0), ProxiedId::nth(0));
        let (key, lookup, subrequest) = (KeyId::nth(0), LookupId::nth(0), SubrequestId::nth(0));
        survives([Held::Poll(poll), Held::MultiPoll(multi_poll)]);
        survives([feed.into(), set.into()].map(Held::Stream));
        survives([Held::Publish(publish), Held::Proxied(proxied)]);
        survives([
            fetch.into(),
            Requested::AuthSubrequest(subrequest),
            proxied.into(),
        ]);
        survives([FeedOrSet::Feed(feed), FeedOrSet::Set(set)]);
        survives([Waiter::Poll(poll), feed.into(), multi_poll.into()]);
        survives([
            LookupMember::Poll(poll),
            sub_fetch.into(),
            multi_poll.into(),
        ]);
        survives([FetchMember::Poll(poll), sub_fetch.into()]);
        survives([SubFetchAsker::Feed(feed), multi_poll.into()]);
        survives([
            ResponseSource::Key(key),
            lookup.into(),
            subrequest.into(),
            fetch.into(),
        ]);
        let operations = [(key.token(), CacheOperation::Version(key))];
        let lookups = [(lookup.token(), CacheOperation::Lookup(lookup))];
        let publishes = [(publish.token(), CacheOperation::Publish(publish))];
        for (token, operation) in operations.into_iter().chain(lookups).chain(publishes) {
            assert_eq!(CacheOperation::of(token.to_bits()), operation);
        }
    }

    #[test]
    fn a_tag_of_no_record_names_no_record() {
        for tag in [0, u64::MAX] {
            let Held::Poll(poll) = Held::from_bits(tag) else {
                panic!("{tag}");
            };
            assert_eq!(poll.token().kind(), Token::RESERVED_KIND);
        }
    }

    #[test]
    fn an_id_takes_no_more_room_than_a_token() {
        assert_eq!(size_of::<Option<PollId>>(), size_of::<Token>());
        assert_eq!(size_of::<Option<WaiterId>>(), size_of::<Token>());
    }
}
