//! Bounds that a seed sets so low that clients meet them, and what is checked of them.

use crate::chance::random;
use crate::failure::Oracle;
use crate::keys::Broken;
use dwell_edge::config::{self, Config};
use dwell_edge::process::{LoopLoad, Refusals};
use std::time::Duration;

/// Bounds of the process.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Bounds {
    /// Connections of clients.
    pub connections: usize,
    /// Waits for a change.
    pub waits: usize,
    /// Bytes that are queued for clients.
    pub output_bytes: usize,
    /// Connections to the application.
    pub upstream_connections: usize,
    /// Requests that wait for one of these.
    pub upstream_queue: usize,
    /// A WebSocket publishes one value a second, in some runs.
    pub limits_publishers: bool,
}

/// Checks that no connection of HTTP/2 keeps more than its streams may.
pub(crate) fn check_http2(load: LoopLoad) -> Result<(), Broken> {
    for (name, has, most) in [
        ("queued for", load.http2_queued, HTTP2_QUEUED_MAX),
        ("kept of", load.http2_kept, HTTP2_KEPT_MAX),
    ] {
        if has > most {
            let reason = format!("{has} bytes are {name} a connection of HTTP/2, {most} may be");
            return Err((Oracle::Bounds, reason));
        }
    }
    Ok(())
}

/// An answer with the longest value for each of the streams that a client may have.
const HTTP2_QUEUED_MAX: usize = 128 * 36 * 1024;
/// A field section, frames that are to be answered, and the first window of each of the streams
/// that a client may have, whose memory grows by a quarter.
const HTTP2_KEPT_MAX: usize = 128 * 1024 + 128 * 80 * 1024;

impl Bounds {
    /// The bounds of a seed, which most have not.
    pub(crate) fn of(seed: u64, loops: usize) -> Option<Self> {
        let mut random = random(seed, 8);
        let has = random.below(4) == 0;
        let loops = loops as u64;
        let mut each = |most| (loops + random.below(loops * most)) as usize;
        let (connections, waits) = (each(4), each(6));
        let (upstream_connections, upstream_queue) = (each(2), each(3));
        let bounds = Self {
            connections,
            waits,
            upstream_connections,
            upstream_queue,
            output_bytes: 1024 << random.below(6),
            limits_publishers: random.below(2) == 0,
        };
        has.then_some(bounds)
    }

    /// The lines of the route of polls.
    pub(crate) fn lines(self) -> &'static str {
        if self.limits_publishers {
            "rate_per_publisher = \"1/s\"\n"
        } else {
            ""
        }
    }

    /// Sets the options that say so; some are below what an operator may set.
    pub(crate) fn apply(&self, config: &mut Config) {
        config.limits.connections_max = self.connections;
        config.limits.waiters_max = self.waits;
        config.limits.output_bytes_max = self.output_bytes;
        config.upstream.connections_max = self.upstream_connections;
        config.upstream.transfers_max = self.upstream_connections;
        config.upstream.queue_max = self.upstream_queue;
    }

    /// Checks that a loop has no more than its share of anything, among the requests of which are
    /// those to so many servers.
    pub(crate) fn check(&self, load: LoopLoad, loops: usize, servers: usize) -> Result<(), Broken> {
        let share = |bound| config::share(bound, loops);
        // Transfers have connections of their own, and requests that wait for them a queue.
        let upstream = servers * 2 * share(self.upstream_connections);
        let requests = upstream + servers * 2 * share(self.upstream_queue);
        for (name, has, most) in [
            ("connections", load.connections, share(self.connections)),
            ("waits", load.waits, share(self.waits)),
            ("watched keys", load.watched_keys, load.waits),
            (
                "connections to the application",
                load.upstream_connections,
                upstream,
            ),
            (
                "requests to the application",
                load.upstream_requests,
                requests,
            ),
        ] {
            if has > most {
                let reason = format!("a loop has {has} {name}, and may have {most}");
                return Err((Oracle::Bounds, reason));
            }
        }
        Ok(())
    }
}

/// Bounds that have struck, as clients have seen it.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Refused {
    /// Connections that were closed without an answer.
    closed: u64,
    /// Requests that got 503.
    busy: u64,
    /// WebSockets on streams that got 503: each is a connection, and a wait.
    streams: u64,
    /// Messages of WebSockets that were refused.
    messages: u64,
}

impl Refused {
    /// A connection was closed without an answer.
    pub(crate) fn note_closed(&mut self) {
        self.closed += 1;
    }

    /// A request got 503.
    pub(crate) fn note_busy(&mut self) {
        self.busy += 1;
    }

    /// A WebSocket on a stream got 503.
    pub(crate) fn note_stream(&mut self) {
        self.streams += 1;
    }

    /// A message of a WebSocket was refused.
    pub(crate) fn note_message(&mut self) {
        self.messages += 1;
    }

    /// Checks that the process has counted all of that.
    pub(crate) fn check(&self, counted: Refusals) -> Result<(), Broken> {
        let closed = counted.connections + counted.cuts;
        for (name, seen, counted) in [
            ("closed connections", self.closed, closed),
            ("refused requests", self.busy, counted.requests),
            ("refused messages", self.messages, counted.messages),
            (
                "refused connections, requests and WebSockets",
                self.closed + self.busy + self.streams,
                closed + counted.requests,
            ),
        ] {
            if seen > counted {
                let reason = format!("clients saw {seen} {name}, and {counted} are counted");
                return Err((Oracle::Bounds, reason));
            }
        }
        Ok(())
    }
}

/// Output that is queued beyond its bound, and since when.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Excess(Option<Duration>);

impl Excess {
    /// Takes in what is queued when no loop has anything to do; `clear_since` is the moment from
    /// which none was hindered.
    pub(crate) fn check(
        &mut self,
        bytes: usize,
        most: usize,
        (now, clear_since): (Duration, Duration),
    ) -> Result<(), Broken> {
        if bytes <= most {
            self.0 = None;
            return Ok(());
        }
        let since = *self.0.get_or_insert(now);
        if now > since.max(clear_since) + CUT {
            let reason = format!("{bytes} bytes are queued since {since:?}, {most} may be");
            return Err((Oracle::Bounds, reason));
        }
        Ok(())
    }
}

/// The time within which the slowest clients are cut off: the time they have, a message to another
/// loop, and a tick.
const CUT: Duration = Duration::from_millis(500);
