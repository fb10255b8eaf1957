//! Bugs that a test plants, to see whether it finds them.

use super::current::with;
use std::cell::Cell;

/// A bug that can be planted in the loops of a thread, for tests of the simulator.
///
/// Each is a mistake that servers of this kind have been shipped with. None exists in a build
/// without the feature `sim`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Planted {
    /// A change is read without asking the store for the next one.
    SkipReread,
    /// A name of something gone finds what has its place now.
    ForgetGeneration,
    /// A deadline comes at twice its time.
    WrongTimeout,
    /// One message of sixteen to a loop is lost.
    DropMessage,
    /// One write of sixteen is made twice.
    AnswerTwice,
    /// The stage that a fleet advances to wakes no loop.
    MissDrain,
    /// Output that a socket has refused is not written when it has room.
    LostRefusal,
    /// The cursor of a poll that waits passes for the newest.
    StaleCursor,
    /// A connection that the application has closed is used for the next request.
    KeepDead,
    /// An answer of the application for one client is given to all that have asked.
    WrongMember,
    /// A request that may not be repeated is sent again.
    RepeatPost,
    /// A frame is the same for all that follow a key, by whatever name.
    WrongLabel,
    /// A reload numbers the routes by their order, not by their names.
    RoutesByOrder,
    /// A key that is taken up again is told by the cursor of the message alone, though a frame with
    /// another value may be on its way.
    TrustSince,
    /// A poll of several keys is told of its first key alone.
    FirstKeyAlone,
    /// A request that names several keys asks for the room of one wait.
    ForgetBound,
    /// Data under TLS whose records the socket has refused is sealed once more behind them.
    SealAgain,
    /// Records that come with the last one of a handshake are forgotten.
    ForgetBehindHandshake,
    /// A key update that the peer of a connection under TLS has asked for is not made.
    KeepKeys,
    /// A lookup in memcached that has failed is a miss.
    ErrorIsMiss,
    /// A line of a watched server counts as a read of its key.
    HintIsRead,
    /// A reply of memcached goes to the request whose turn it is, whatever key it names.
    ReplyByOrder,
    /// An answer of the application is stored over what memcached has.
    FillReplaces,
    /// A cas unique of memcached is the same after a restart of the server.
    ForgetRestart,
    /// A connection to memcached is used on after a timeout: a late reply goes to the next request.
    UseTimedOut,
    /// The items go to a successor when it starts, and not in the pause before it serves.
    EarlySnapshot,
    /// The store takes no more writes as soon as the successor has the items, before it serves.
    EarlyRetire,
    /// The loops go on as soon as the successor has the items, before it serves.
    EarlyResume,
    /// The bytes that had come of a next request do not go along with a connection.
    ForgetInput,
    /// A lookup in memcached that has failed says of one of several keys that it has gone.
    FailureIsGone,
    /// A server is trusted whose certificate lies beside the file of those that are.
    TrustNeighbour,
    /// The window of a stream of HTTP/2 is opened twice by one frame.
    WindowTwice,
    /// Answers on a stream of HTTP/2 take nothing from the window of its connection.
    OwnWindowAlone,
    /// The app is not told of a stream of HTTP/2 that its client has reset.
    ForgetStream,
    /// An event stream over HTTP/2 whose window was closed is not told the newest value when it
    /// opens.
    ForgetNewest,
    /// The last stream that GOAWAY names is the one before.
    ForgetLast,
    /// Frames of HTTP/2 that only cost work are not counted.
    NeverCalm,
    /// Streams of HTTP/2 that the server has reset are not counted.
    ForgetResets,
    /// The length that a request of HTTP/2 has said is not held against its body.
    TrustLength,
    /// One announcement of Redis in four that a key has changed is lost.
    DropPush,
    /// A key that Redis has announced nothing of is not read again after a lost connection.
    ForgetResync,
    /// An announcement that everything in Redis has changed changes nothing.
    ForgetFlush,
    /// A key of Redis whose value ends is not read again at that time.
    ForgetLifetime,
    /// A stream that begins with an answer of the application is not compared with the value that
    /// others were told of meanwhile.
    KeepAnswer,
    /// A WebSocket on a stream whose window was closed is not told when it opens.
    ForgetRoom,
    /// Keys whose slot has moved to another server of a Redis cluster are not read again there.
    ForgetMoved,
    /// A key of a slot that is about to move is waited for where it is not any more.
    ParkOnAsk,
    /// The connection on which a Redis announces changes stays where its name has led before.
    StayBehind,
}

impl Planted {
    /// All of them.
    pub const ALL: [Self; 48] = [
        Self::SkipReread,
        Self::ForgetGeneration,
        Self::WrongTimeout,
        Self::DropMessage,
        Self::AnswerTwice,
        Self::MissDrain,
        Self::LostRefusal,
        Self::StaleCursor,
        Self::KeepDead,
        Self::WrongMember,
        Self::RepeatPost,
        Self::WrongLabel,
        Self::RoutesByOrder,
        Self::TrustSince,
        Self::FirstKeyAlone,
        Self::ForgetBound,
        Self::SealAgain,
        Self::ForgetBehindHandshake,
        Self::KeepKeys,
        Self::ErrorIsMiss,
        Self::HintIsRead,
        Self::ReplyByOrder,
        Self::FillReplaces,
        Self::ForgetRestart,
        Self::UseTimedOut,
        Self::EarlySnapshot,
        Self::EarlyRetire,
        Self::EarlyResume,
        Self::ForgetInput,
        Self::FailureIsGone,
        Self::TrustNeighbour,
        Self::WindowTwice,
        Self::OwnWindowAlone,
        Self::ForgetStream,
        Self::ForgetNewest,
        Self::ForgetLast,
        Self::NeverCalm,
        Self::ForgetResets,
        Self::TrustLength,
        Self::DropPush,
        Self::ForgetResync,
        Self::ForgetFlush,
        Self::ForgetLifetime,
        Self::KeepAnswer,
        Self::ForgetRoom,
        Self::ForgetMoved,
        Self::ParkOnAsk,
        Self::StayBehind,
    ];

    /// Returns true if it is planted in this thread.
    pub fn is_in(self) -> bool {
        PLANTED.get() == Some(self)
    }

    /// As [`is_in`](Self::is_in), for one call of so many, as the seed of the network chooses.
    pub fn strikes(self, one_in: u64) -> bool {
        self.is_in() && with(|network| network.random.below(one_in) == 0).unwrap_or_default()
    }
}

thread_local! {
    static PLANTED: Cell<Option<Planted>> = const { Cell::new(None) };
}

/// Plants a bug in the loops of this thread, or removes the one that is there.
pub fn plant(bug: Option<Planted>) {
    PLANTED.set(bug);
}
