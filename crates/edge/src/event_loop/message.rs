//! Messages between the loops of a process.

use crate::ids::FetchId;
use crate::ops::query::LoopQuery;
use crate::polls::UpstreamResult;
use dwell_evloop::Token;
use dwell_memcache::watch::Resync;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

/// A message from one loop to another.
#[derive(Clone, Debug)]
pub(crate) enum Message {
    /// The embedded store's item under this key is not what this loop last read.
    Changed {
        /// The key.
        name: Box<[u8]>,
        /// Time of the change, by which the latency of its wake-up is measured.
        at: Instant,
    },
    /// These keys of external servers may have changed.
    Hinted(Box<[Box<[u8]>]>),
    /// Everything on an external server may have changed.
    Resync(Resync),
    /// These clients are the slowest while too much output is queued.
    TooSlow(Box<[Token]>),
    /// A query of the first loop.
    Query(Arc<LoopQuery>),
    /// A request to the application that this loop follows has ended.
    Fetched {
        /// This loop's own fetch.
        fetch: FetchId,
        /// The result; `None` if each loop has to send its own request.
        result: Option<UpstreamResult>,
    },
    /// A client of another loop waits for the result of this loop's fetch.
    Joined {
        /// This loop's fetch.
        fetch: FetchId,
        /// The client that joined, if clients are told apart.
        client: Option<IpAddr>,
    },
}
