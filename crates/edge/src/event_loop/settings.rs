//! Settings that the loops run by.

use crate::access::Access;
use crate::config::Config;
use dwell_engine::Limits;
use dwell_evloop::{Acceptor, Listener};
use dwell_proto::http1::HeadLimits;
use dwell_redis::Endpoint;
use dwell_upstream::UpstreamPlan;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};

/// Settings that the loops run by.
#[derive(Debug, Default)]
pub(crate) struct Settings {
    pub(crate) config: Arc<Config>,
    /// The servers of the application, with resolved names; the same while nothing of it changes.
    pub(crate) upstream: Option<Arc<UpstreamPlan>>,
    /// The addresses of the memcached servers, in the order of the configuration.
    pub(crate) memcached: Vec<SocketAddr>,
    /// The Redis server, or those that know it; `None` if values come from elsewhere.
    pub(crate) redis: Option<Endpoint>,
    /// Access rules of clients and publishers.
    pub(crate) access: Option<Arc<Access>>,
    /// The certificates of the listeners under TLS; `None` for those of the start.
    pub(crate) acceptor: Option<Acceptor>,
    /// The new listeners of each loop.
    pub(crate) listeners: Mutex<Vec<Listening>>,
}

/// One loop's listeners, with their configured addresses.
pub(crate) type Listening = Vec<(SocketAddr, Listener)>;

impl Settings {
    /// Takes the new listeners of one loop.
    pub(crate) fn take_listeners(&self, index: usize) -> Listening {
        let mut all = self
            .listeners
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        all.get_mut(index).map(std::mem::take).unwrap_or_default()
    }

    /// Moves listeners that no loop has taken to the following settings, if their addresses are
    /// still configured: a loop may skip settings.
    pub(crate) fn hand_on(&self, listeners: &mut [Listening], addresses: &[SocketAddr]) {
        for (index, of_loop) in listeners.iter_mut().enumerate() {
            let untaken = self.take_listeners(index).into_iter();
            of_loop.extend(untaken.filter(|(address, _)| addresses.contains(address)));
        }
    }
}

/// Limits for the clients of one of `loops` loops, whose clients have `elsewhere` connections that
/// have left HTTP.
pub(crate) fn http_limits(config: &Config, loops: usize, elsewhere: usize) -> Limits {
    let limits = &config.limits;
    Limits {
        head: HeadLimits {
            head_bytes_max: limits.head_bytes_max,
            target_bytes_max: limits.target_bytes_max,
            field_count_max: limits.header_count_max,
        },
        connections_max: limits.connections_per_loop(loops).saturating_sub(elsewhere),
        requests_per_connection_max: u32::try_from(limits.requests_per_connection_max)
            .unwrap_or(u32::MAX),
        header_timeout: limits.header_timeout,
        body_timeout: limits.body_timeout,
        body_rate_min: limits.body_rate_min,
        gathered_bytes_max: limits.gathered_bytes_max,
        idle_timeout: limits.idle_timeout,
        write_timeout: limits.write_timeout,
        write_rate_min: limits.write_rate_min,
        output_bytes_max: output_bytes_max(config.upstream.window_bytes),
        ..Limits::default()
    }
}

/// Output of a connection that its client does not take: much more than is ever written to one, as
/// a response of the application is read no further than a window ahead. A stream of HTTP/2 has a
/// sixteenth of it, in which two windows have room.
fn output_bytes_max(window_bytes: u64) -> usize {
    let windows = usize::try_from(window_bytes).unwrap_or(usize::MAX);
    Limits::default()
        .output_bytes_max
        .max(windows.saturating_mul(32))
}
