//! Bounds that a seed sets so low that clients meet them, and what is checked of them.

use crate::answer::Answer;
use crate::chance::random;
use crate::client::Around;
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
}

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
        };
        has.then_some(bounds)
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

    /// Checks that a loop has no more than its share of anything.
    pub(crate) fn check(&self, load: LoopLoad, loops: usize) -> Result<(), Broken> {
        let share = |bound| config::share(bound, loops);
        // Transfers have connections of their own, and requests that wait for them a queue.
        let upstream = 2 * share(self.upstream_connections);
        let requests = upstream + 2 * share(self.upstream_queue);
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
    /// Messages of WebSockets that were refused.
    messages: u64,
}

impl Refused {
    /// A connection is closed without an answer; returns true if a bound may be why.
    pub(crate) fn closed(around: &mut Around<'_>) -> bool {
        let Some(refused) = around.refused.as_deref_mut() else {
            return false;
        };
        around.counts.reach("refused connection");
        refused.closed += 1;
        true
    }

    /// An answer is 503; returns true if a bound is why.
    pub(crate) fn busy(answer: &Answer, around: &mut Around<'_>) -> bool {
        if answer.body.is_empty() && around.app.is_some() {
            // An application that fails may be why, so it is not counted.
            return answer.retries && around.refused.is_some();
        }
        let is_reason = answer.body.is_empty() || answer.body.starts_with(TOO_MANY.as_bytes());
        answer.retries && is_reason && Self::refuses(around)
    }

    /// A request is refused; returns true if a bound may be why.
    pub(crate) fn refuses(around: &mut Around<'_>) -> bool {
        let Some(refused) = around.refused.as_deref_mut() else {
            return false;
        };
        around.counts.reach("refused wait");
        refused.busy += 1;
        true
    }

    /// A message of a WebSocket is refused; returns true if a bound is why.
    pub(crate) fn message(why: &str, around: &mut Around<'_>) -> bool {
        let refused = around.refused.as_deref_mut();
        let Some(refused) = refused.filter(|_| why.starts_with(TOO_MANY)) else {
            return false;
        };
        around.counts.reach("refused key");
        refused.messages += 1;
        true
    }

    /// Checks that the process has counted all of that.
    pub(crate) fn check(&self, counted: Refusals) -> Result<(), Broken> {
        let closed = counted.connections + counted.cuts;
        for (name, seen, counted) in [
            ("closed connections", self.closed, closed),
            ("refused requests", self.busy, counted.polls),
            ("refused messages", self.messages, counted.messages),
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

/// The time within which the slowest clients are cut off: messages to other loops, and a tick.
const CUT: Duration = Duration::from_millis(300);
/// The beginning of a reason.
const TOO_MANY: &str = "too many ";
