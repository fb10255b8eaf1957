//! Messages between the loops of a process.

use crate::ops::inquiry::Inquiry;
use crate::polls::UpstreamResult;
use dwell_evloop::Token;
use dwell_memcache::watch::Resync;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// Messages of one loop to another.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// The embedded store's item under this key is not what this loop last read.
    Changed {
        /// The key.
        name: Box<[u8]>,
        /// When it changed; only to measure how long the word of it takes.
        at: Instant,
    },
    /// These keys of external servers may have changed.
    Hinted(Box<[Box<[u8]>]>),
    /// Everything on an external server may have.
    Resync(Resync),
    /// These clients are among the slowest of too many.
    TooSlow(Box<[Token]>),
    /// The first loop wants to know something of all.
    Asked(Arc<Inquiry>),
    /// A request to the upstream that this loop has followed has ended.
    Fetched {
        /// The bits of the token of this loop's own fetch.
        fetch: u64,
        /// The outcome of the fetch; `None` where each has to ask for itself.
        verdict: Option<UpstreamResult>,
    },
    /// A client of another loop asks for what a request of this one brings.
    Joined {
        /// The bits of the token of this loop's fetch.
        fetch: u64,
        /// The client whose request has joined, where clients can be told apart.
        client: Option<IpAddr>,
    },
}
