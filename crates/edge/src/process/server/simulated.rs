//! The process on a simulated network: its loops are turned one at a time, in the order of a test.

mod succession;

pub use succession::{UpgradeFrame, UpgradeNews};

use super::{EdgeServer, RunOptions};
use crate::config::Config;
use crate::event_loop::{EdgeLoop, Message};
use crate::metrics::{ConnectionRefusal, PollOutcome, UpstreamOutcome};
use crate::process::RunError;
use dwell_evloop::{Driver, EventLoop, LoopGuard};
use dwell_store::HashSeed;
use std::io;
use std::time::Duration;

/// A process whose loops run on one thread, each when it is turned; see [`dwell_evloop::sim`].
///
/// Shape: the thread has a simulated network. Nothing but a turn brings a loop on. After an
/// [upgrade](Self::begin_upgrade) the loops of the process before come behind those of this one,
/// until they have ended.
pub struct Simulated {
    server: EdgeServer,
    loops: Vec<Option<Turned>>,
    /// The process that does not serve yet.
    next: Option<Box<Self>>,
    /// The process that has served before, until its loops have ended.
    before: Option<Box<Self>>,
    /// Connections that have come from it.
    taken: usize,
    /// The loops stand still, as the successor takes the items.
    is_paused: bool,
    /// The talk with the other process.
    upgrade: Option<Box<succession::Upgrade>>,
}

/// One loop, until it has ended.
struct Turned {
    event_loop: EventLoop<Message>,
    edge: EdgeLoop,
    guard: LoopGuard<Message>,
}

/// The load of one loop, in what options bound.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct LoopLoad {
    /// Connections of clients.
    pub connections: usize,
    /// Waits for a change: one for each key of a poll, a stream or a WebSocket.
    pub waits: usize,
    /// Keys that are waited for.
    pub watched_keys: usize,
    /// Connections to the application.
    pub upstream_connections: usize,
    /// Requests to the application, in progress or waiting for a connection.
    pub upstream_requests: usize,
    /// Bytes of answers that one connection of HTTP/2 has waiting, at most.
    pub http2_queued: usize,
    /// Bytes of frames and of requests that one of these keeps, at most.
    pub http2_kept: usize,
}

/// Counts of clients that bounds have struck.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Refusals {
    /// Connections that were closed at once.
    pub connections: u64,
    /// Connections that were cut off, as too much output was queued.
    pub cuts: u64,
    /// Requests that got 503.
    pub requests: u64,
    /// Messages of WebSockets that were refused, for whatever reason.
    pub messages: u64,
}

impl Simulated {
    /// Starts a process as [`run`](crate::process::run) does, without its threads.
    ///
    /// # Errors
    /// As [`run`](crate::process::run).
    pub fn start(config: Config) -> Result<Self, RunError> {
        let server = EdgeServer::start(config, RunOptions::default())?;
        Ok(Self::of(server))
    }

    fn of(mut server: EdgeServer) -> Self {
        if let Some(service) = &server.service {
            let words = [dwell_evloop::seed(), dwell_evloop::seed()].map(u64::to_le_bytes);
            let bytes = std::array::from_fn(|place| words[place / 8][place % 8]);
            service.store().continue_seed(HashSeed::from_bytes(bytes));
        }
        let loops = std::mem::take(&mut server.loops).into_iter();
        let loops = loops.map(|(event_loop, edge)| {
            let guard = server.fleet.guard();
            Some(Turned {
                event_loop,
                edge,
                guard,
            })
        });
        Self {
            loops: loops.collect(),
            server,
            next: None,
            before: None,
            taken: 0,
            is_paused: false,
            upgrade: None,
        }
    }

    /// The number of loops, of which some may have ended.
    pub fn loops(&self) -> usize {
        self.loops.len() + self.before.as_ref().map_or(0, |before| before.loops())
    }

    /// Returns true if this loop has ended.
    pub fn has_ended(&self, index: usize) -> bool {
        let before = self.before.iter().flat_map(|before| &before.loops);
        self.loops
            .iter()
            .chain(before)
            .nth(index)
            .is_none_or(Option::is_none)
    }

    fn place(&mut self, index: usize) -> Option<&mut Option<Turned>> {
        let before = self.before.iter_mut().flat_map(|before| &mut before.loops);
        self.loops.iter_mut().chain(before).nth(index)
    }

    /// Returns how long a loop will wait: zero when something is there for it, `None` when only the
    /// network can end its wait, or when the loop has ended.
    pub fn due_in(&mut self, index: usize) -> Option<Duration> {
        let is_paused = match &self.before {
            Some(before) if index >= self.loops.len() => before.is_paused,
            _ => self.is_paused,
        };
        if is_paused {
            return None;
        }
        let turned = self.place(index)?.as_mut()?;
        turned.event_loop.due_in()
    }

    /// Turns a loop once, without a wait.
    ///
    /// # Errors
    /// As [`EventLoop::turn`].
    pub fn turn(&mut self, index: usize) -> io::Result<()> {
        let Some(place) = self.place(index) else {
            return Ok(());
        };
        if let Some(turned) = place {
            let event_loop = &mut turned.event_loop;
            event_loop.turn(&mut turned.edge, Some(Duration::ZERO))?;
        }
        let is_over = |turned: &mut Turned| turned.event_loop.context().is_stopped();
        if let Some(turned) = place.take_if(is_over) {
            drop((turned.event_loop, turned.edge));
            turned.guard.end();
        }
        self.take_given();
        self.end_before();
        Ok(())
    }

    /// Delivers a signal to the first loop, in a turn of its own.
    ///
    /// # Errors
    /// As [`turn`](Self::turn).
    pub fn signal(&mut self, signal: i32) -> io::Result<()> {
        if let Some(Some(first)) = self.loops.first_mut() {
            first.edge.signal(first.event_loop.context(), signal);
        }
        self.turn(0)
    }

    /// Takes another configuration, as SIGHUP has it taken; each loop applies it in its next turn.
    ///
    /// # Errors
    /// If a resource of the configuration is not available; nothing of it is taken then.
    pub fn reload(&self, config: Config) -> Result<(), RunError> {
        self.server.reloader.take(config).map(|_| ())
    }

    /// The use that a loop makes of everything that options bound; nothing where it has ended.
    pub fn load(&mut self, index: usize) -> Option<LoopLoad> {
        let turned = self.place(index)?.as_mut()?;
        let upstream = turned.edge.upstreams.take_figures(|_, _| {});
        let (servers, polls) = (&turned.edge.servers, &turned.edge.front.polls);
        let http2 = servers.http.http2_load();
        Some(LoopLoad {
            connections: servers.http.connections() + servers.websockets.connections(),
            waits: polls.waiting(),
            watched_keys: polls.watched_keys(),
            upstream_connections: upstream.connections,
            upstream_requests: upstream.outstanding,
            http2_queued: http2.queued,
            http2_kept: http2.kept,
        })
    }

    /// Bytes that are queued for all clients.
    pub fn queued_bytes(&self) -> usize {
        let loops = &mut self.loops.iter().flatten();
        loops.next().map_or(0, |turned| turned.edge.output.held())
    }

    /// Clients that were refused or cut off so far by bounds, as the metrics count them.
    pub fn refusals(&self) -> Refusals {
        let mut all = Refusals::default();
        for turned in self.loops.iter().flatten() {
            let metrics = &turned.edge.metrics;
            let refused = &metrics.connections_refused;
            all.connections += refused.of(ConnectionRefusal::ConnectionsMax).value();
            all.cuts += metrics.output_cuts.value();
            all.requests += metrics.polls.of(PollOutcome::Refused).value();
            let upstream_requests = &metrics.upstream_requests;
            all.requests += upstream_requests.of(UpstreamOutcome::Refused).value();
            all.messages += metrics.websocket_errors.value();
        }
        all
    }

    /// Everything that clients and writers have brought into the tables of the loops and the store,
    /// as names and numbers.
    ///
    /// Shape: the same as at the start when all have left and no item is stored.
    pub fn figures(&mut self) -> Vec<(&'static str, usize)> {
        let mut figures = vec![
            ("clients", 0),
            ("store connections", 0),
            ("waiting polls", 0),
            ("watched keys", 0),
            ("loops with records of polls", 0),
            ("loops with records of the proxy", 0),
            ("deadlines", 0),
            ("bytes queued", 0),
            ("connections to the application", 0),
            ("requests to the application", 0),
        ];
        let before = self.before.iter_mut().flat_map(|before| &mut before.loops);
        for turned in self.loops.iter_mut().chain(before).flatten() {
            let upstream = turned.edge.upstreams.take_figures(|_, _| {});
            let (edge, context) = (&turned.edge, turned.event_loop.context());
            let polls = &edge.front.polls;
            let store = edge.servers.store.as_ref();
            let numbers = [
                edge.servers.http.connections() + edge.servers.websockets.connections(),
                store.map_or(0, |store| usize::from(!store.is_left())),
                polls.waiting(),
                polls.watched_keys(),
                usize::from(!polls.is_empty()),
                usize::from(!edge.front.proxy.is_idle()),
                context.armed(),
                edge.output.held(),
                upstream.connections,
                upstream.outstanding,
            ];
            for ((_, sum), number) in figures.iter_mut().zip(numbers) {
                *sum += number;
            }
        }
        if let Some(service) = &self.server.service {
            let statistics = service.store().statistics();
            figures.push(("items", statistics.curr_items as usize));
            figures.push((
                "watched keys of the store",
                statistics.watched_keys as usize,
            ));
        }
        figures
    }
}
