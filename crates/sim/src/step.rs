//! One step of a run: a request, a command of a writer, or a fault.

use crate::h2::BrowserAct;
use crate::memcached::MemcachedAct;
use crate::outward::WrongCertificate;
use crate::pick::{Pick, SEVERAL_MAX};
use crate::redis::{ClusterAct, RedisAct};
use crate::reload::Reload;
use crate::socket::Act;
use crate::tls::{Intrusion, TlsFault};
use crate::upgrade::Upgrade;
use std::time::Duration;

/// The value that a client claims to have.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Has {
    /// Nothing.
    Nothing,
    /// The cursor of the last value it has got, by `since`.
    Since,
    /// The same by `If-None-Match`.
    Tag,
    /// A cursor that is none.
    Garbage,
}

/// A method of a poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// POST, with a small body.
    Post,
}

/// One request of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Ask {
    /// A poll of a key.
    Poll {
        /// The number of the key.
        key: usize,
        /// Method of the request.
        method: Method,
        /// The value that the client claims to have.
        has: Has,
        /// Time to wait; zero is none.
        wait: Duration,
    },
    /// A poll of several keys.
    Several {
        /// The keys.
        several: Several,
        /// Method of the request.
        method: Method,
        /// The cursors that the client sends of them.
        has: Has,
        /// Time to wait; zero is none.
        wait: Duration,
    },
    /// A request that has one answer in all cases: one of [`FIXED`].
    Fixed(usize),
    /// A request that is no poll: it has a mark of its own, which the application answers with.
    Elsewhere {
        /// It may not be repeated.
        is_post: bool,
    },
}

/// The keys of a poll of several.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Several {
    /// The number of the first key; the others follow it.
    pub first: usize,
    /// The number of keys, at most [`SEVERAL_MAX`].
    pub count: usize,
    /// The path has a part of each name.
    pub is_long: bool,
    /// The cursor that is sent of each key, where the client claims to have any.
    pub picks: [Pick; SEVERAL_MAX],
}

/// Requests with one answer: a line, and the status.
pub const FIXED: [(&str, u16); 2] = [("GET /poll/k0?wait=soon", 400), ("DELETE /poll/k0", 405)];

/// A command of a writer for one of its keys.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Order {
    /// Store the next value, of about this length, perhaps for some seconds.
    Set {
        /// Bytes beside the mark of the value.
        length: usize,
        /// Seconds of its life; 0 is no end.
        seconds: u32,
    },
    /// Delete it.
    Delete,
    /// Read it.
    Get,
    /// Read what has become of a command that was lost, unless that is known.
    Look,
}

/// One step.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Step {
    /// A client asks, when it has the answers before.
    Ask(usize, Ask),
    /// The writer of a key writes.
    Write(usize, Order),
    /// All items are dropped, when no command is in progress.
    Flush,
    /// A client leaves with a reset.
    Reset(usize),
    /// A client leaves.
    Leave(usize),
    /// A client ends its sending side.
    HalfClose(usize),
    /// A client reads little for a while.
    SlowRead(usize, Duration),
    /// A client sends little for a while.
    SlowWrite(usize, Duration),
    /// A client is gone and tells nothing.
    Silence(usize),
    /// New connections find no descriptor for a while.
    NoDescriptors(Duration),
    /// A loop stands still for a while.
    Stall(usize, Duration),
    /// The wall clock is so many seconds ahead.
    Wall(i64),
    /// The connection of a writer is reset.
    WriterReset(usize),
    /// The application is not there for a while.
    AppDown(Duration),
    /// The configuration is read again, with these changes.
    Reload(Reload),
    /// A WebSocket does something.
    Socket(usize, Act),
    /// So many connections come that break TLS in this way.
    Intrude(TlsFault, Intrusion, usize),
    /// Something befalls a connection of HTTP/2.
    Browser(usize, BrowserAct),
    /// Something befalls a memcached server.
    Memcached(usize, MemcachedAct),
    /// Something befalls the Redis, or a server of its cluster.
    Redis(usize, RedisAct),
    /// Something befalls the slot of a key in a cluster.
    Slot(usize, ClusterAct),
    /// Servers show a wrong certificate for a while.
    Certificate(WrongCertificate),
    /// Another process is to take over.
    Upgrade(Upgrade),
}
