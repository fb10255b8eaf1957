//! Changes that memcached servers report by `watch`: hints, by which requests that wait for a key
//! wake sooner than by a sweep. [`ChangeFeed`] is the component; [`WaitedKeys`] has the keys.
//!
//! The sweep is the truth: it reads every key that polls wait for. The lines of a server on a
//! `watch` connection are hints which key to read at once. They may come late (up to a second, from
//! a quiet server), and lines are lost silently under a burst, so that nothing is ever answered by
//! a line: a hint makes a loop read the key. The statistics of the server, asked for once a second,
//! show that lines were lost and changes that are never reported (`flush_all`, `incr`); then every
//! key on that server that polls wait for is read.
//!
//! One loop does this for all, with two connections to each server, and only while polls wait for
//! anything. Which loops wait for a key it sees in [`WaitedKeys`].

mod connection;
mod figures;
mod findings;
mod metrics;
mod pace;
mod server;
mod statistics;
mod subscription;
mod waited;

pub use findings::Resync;
pub use metrics::{HintOutcome, ResyncReason, WatchMetrics};
pub use subscription::WatchState;
pub use waited::{WaitedByLoop, WaitedKeys};

use crate::on_loop::ServerOptions;
use connection::Place;
use dwell_evloop::{Context, Readiness, Token};
use findings::{Findings, Found};
use server::{Purpose, WatchedServer};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

/// The feed of all servers, on the one loop that has it.
#[derive(Debug)]
pub struct ChangeFeed {
    servers: Vec<WatchedServer>,
    waited: Arc<WaitedKeys>,
    found: Found,
    metrics: Arc<WatchMetrics>,
    connect_timeout: Duration,
    /// The timer with which it goes on.
    beat: Token,
    is_awake: bool,
    /// Beats since polls last waited for anything.
    idle_beats: u32,
}

impl ChangeFeed {
    /// A feed whose tokens are of `kind`; it connects when polls wait.
    pub fn new(
        kind: u8,
        servers: &[ServerOptions],
        waited: Arc<WaitedKeys>,
        loops: usize,
        metrics: Arc<WatchMetrics>,
        connect_timeout: Duration,
    ) -> Self {
        let servers = servers.iter().enumerate();
        let server = |(index, server): (usize, &ServerOptions)| {
            let place = Place {
                address: server.address,
                tls: server.tls.clone(),
            };
            WatchedServer::new(place, kind, index, dwell_evloop::seed())
        };
        Self {
            servers: servers.map(server).collect(),
            waited,
            found: Found::new(loops),
            metrics,
            connect_timeout,
            beat: Purpose::Beat.token(kind),
            is_awake: false,
            idle_beats: 0,
        }
    }

    /// Connects when a request has begun to wait.
    pub fn follow(&mut self, context: &mut Context) {
        if !self.is_awake && self.waited.is_awake() {
            self.is_awake = true;
            self.idle_beats = 0;
            self.go_on(context);
        }
    }

    /// Goes on with other addresses of the servers; one whose address is the same keeps its
    /// connections.
    ///
    /// Shape: one for each server, in the order they were given.
    pub fn turn_to(&mut self, context: &mut Context, addresses: &[SocketAddr]) {
        for (server, address) in self.servers.iter_mut().zip(addresses) {
            if server.turn_to(context, *address) && self.is_awake {
                server.go_on(context, self.connect_timeout);
            }
        }
    }

    /// The state of the watch of each server, in the order of the addresses.
    pub fn states(&self) -> impl Iterator<Item = WatchState> {
        self.servers.iter().map(WatchedServer::state)
    }

    /// Takes readiness of a token of this feed's kind.
    pub fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        let purpose = Purpose::of(token);
        let (Purpose::Watch(index) | Purpose::Statistics(index)) = purpose else {
            return;
        };
        let Some(server) = self.servers.get_mut(index) else {
            return;
        };
        let mut lines = std::mem::take(&mut server.lines);
        let findings = &mut Findings {
            server: index,
            found: &mut self.found,
            waited: &self.waited,
            metrics: &self.metrics,
            lines: &mut lines,
        };
        if matches!(purpose, Purpose::Watch(_)) {
            server.watch_ready(context, token, readiness, findings);
        } else {
            let timeout = self.connect_timeout;
            server.statistics_ready(context, token, readiness, timeout, findings);
        }
        server.lines = lines;
    }

    /// Takes the expiry of a token of this feed's kind.
    pub fn expired(&mut self, context: &mut Context, token: Token) {
        let timeout = self.connect_timeout;
        match Purpose::of(token) {
            Purpose::Beat => self.go_on(context),
            Purpose::Watch(index) => {
                if let Some(server) = self.servers.get_mut(index) {
                    server.watch_expired(context, token, timeout);
                }
            }
            Purpose::Statistics(index) => {
                if let Some(server) = self.servers.get_mut(index) {
                    server.statistics_expired(context, token, timeout);
                }
            }
        }
    }

    /// Asks the servers for their statistics, or ends when no poll has waited for a while.
    fn go_on(&mut self, context: &mut Context) {
        if self.waited.is_anybody_waiting() {
            self.idle_beats = 0;
        } else {
            self.idle_beats += 1;
        }
        if self.idle_beats > IDLE_BEATS_MAX && self.waited.sleep() {
            self.is_awake = false;
            for server in &mut self.servers {
                server.end(context);
            }
            return;
        }
        for server in &mut self.servers {
            server.go_on(context, self.connect_timeout);
        }
        context.arm(self.beat, BEAT);
    }

    /// The keys that may have changed, with the loop that is to read them.
    pub fn hints(&mut self) -> impl Iterator<Item = (usize, Box<[Box<[u8]>]>)> {
        let hints = self.found.hints.iter_mut().enumerate();
        let hints = hints.filter(|(_, names)| !names.is_empty());
        hints.map(|(of_loop, names)| (of_loop, std::mem::take(names).into_iter().collect()))
    }

    /// The servers of which all loops have to read all keys that they wait for.
    pub fn resyncs(&mut self) -> Vec<Resync> {
        std::mem::take(&mut self.found.resyncs)
    }
}

/// The time between two requests for the statistics.
const BEAT: Duration = Duration::from_secs(1);
/// Beats for which the connections stay when no request waits.
const IDLE_BEATS_MAX: u32 = 30;
