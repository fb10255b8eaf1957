//! The store server, from the inside out: sessions without sockets, the component on loopback
//! sockets, and the component beside a real memcached.

mod binary;
mod component;
mod differential;
mod dump;
mod exchanges;
mod sessions;

use std::sync::Arc;

use dwell_proto::memcache::{Protocols, RequestLimits};
use dwell_store::{Expiry, Seconds, Store, StoreConfig};

use super::commands::Executor;
use super::session::{Served, Session, Stop, WORK_PER_COMMAND};
use super::{HostFigures, StoreMetrics, StoreServerLimits, StoreService};
use crate::moment::Moment;

const NOW: Seconds = 1_700_000_000;

fn service_with(limits: StoreServerLimits) -> Arc<StoreService> {
    let store = Store::new(&StoreConfig::default(), Box::new(()));
    let loops = vec![Arc::new(StoreMetrics::default())];
    StoreService::new(Arc::new(store), limits, loops, Arc::new(Alone), NOW)
}

/// A process with nothing but a store.
#[derive(Debug)]
struct Alone;

impl HostFigures for Alone {
    fn waiters(&self) -> u64 {
        0
    }

    fn connections_open(&self) -> u64 {
        0
    }

    fn cpu_times(&self) -> Option<(f64, f64)> {
        Some((0.5, 0.25))
    }
}

/// Stores so many items, `key-0` and so on.
fn fill(service: &StoreService, count: usize, value: &[u8]) {
    for number in 0..count {
        let key = format!("key-{number}");
        let store = &service.store;
        store.set(key.as_bytes(), 0, Expiry::NEVER, value, NOW);
    }
}

/// Has a session serve its input as far as it comes; its output besides.
fn serve(
    service: &StoreService,
    session: &mut Session,
    moment: Moment,
    input: &[u8],
    work: &mut usize,
) -> (Served, Vec<u8>) {
    let mut out = Vec::new();
    let mut executor = Executor {
        service,
        metrics: &service.loops[0],
        moment,
        out: &mut out,
    };
    let served = session.serve(&mut executor, input, work);
    (served, out)
}

/// One turn of a session, with work for 64 commands; its output besides.
fn turn(service: &StoreService, session: &mut Session, input: &[u8]) -> (Served, Vec<u8>) {
    let moment = Moment {
        steady: NOW,
        unix: NOW,
    };
    serve(
        service,
        session,
        moment,
        input,
        &mut (64 * WORK_PER_COMMAND),
    )
}

/// One client without a socket.
struct Client {
    service: Arc<StoreService>,
    session: Session,
    pending: Vec<u8>,
    now: Seconds,
    /// The seconds by which the wall clock has been set since the start.
    wall_offset: i32,
    closed: bool,
    /// The most replies that were collected before they were to be written.
    collected_max: usize,
    /// The turns that were over before their input was served.
    turns_over: usize,
}

impl Client {
    fn new() -> Self {
        Self::with(&service_with(StoreServerLimits::default()))
    }

    fn with(service: &Arc<StoreService>) -> Self {
        let limits: RequestLimits = service.limits.request;
        Self {
            service: Arc::clone(service),
            session: Session::new(limits),
            pending: Vec::new(),
            now: NOW,
            wall_offset: 0,
            closed: false,
            collected_max: 0,
            turns_over: 0,
        }
    }

    /// Sends `input` and returns what comes back.
    fn send(&mut self, input: &[u8]) -> Vec<u8> {
        let commands = self.service.limits.commands_per_turn;
        self.send_with(input, commands * WORK_PER_COMMAND)
    }

    fn send_with(&mut self, input: &[u8], work_per_turn: usize) -> Vec<u8> {
        self.pending.extend_from_slice(input);
        let mut replies = Vec::new();
        let mut work = work_per_turn;
        let moment = Moment {
            steady: self.now,
            unix: self.now.saturating_add_signed(self.wall_offset),
        };
        while !self.closed {
            let session = &mut self.session;
            let (served, mut out) = serve(&self.service, session, moment, &self.pending, &mut work);
            self.pending.drain(..served.used);
            self.collected_max = self.collected_max.max(out.len());
            replies.append(&mut out);
            match served.stop {
                Stop::Starved => break,
                Stop::OutputFull => {}
                Stop::TurnOver => {
                    work = work_per_turn;
                    self.turns_over += 1;
                }
                Stop::Close => self.closed = true,
            }
        }
        replies
    }

    fn text(&mut self, input: &str) -> String {
        String::from_utf8(self.send(input.as_bytes())).unwrap()
    }
}
