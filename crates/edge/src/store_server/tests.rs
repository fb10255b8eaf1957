//! The store server, from the inside out: sessions without sockets, the component on loopback
//! sockets, and the component beside a real memcached.

mod binary;
mod component;
mod differential;
mod dump;
mod sessions;

use std::sync::Arc;

use dwell_proto::memcache::RequestLimits;
use dwell_store::{Seconds, Store, StoreConfig};

use super::commands::Executor;
use super::session::{Session, Stop, WORK_PER_COMMAND};
use super::{Protocols, StoreServerLimits, StoreService};
use crate::metrics::Metrics;

const NOW: Seconds = 1_700_000_000;

fn service_with(limits: StoreServerLimits) -> Arc<StoreService> {
    let store = Store::new(&StoreConfig::default(), Box::new(()));
    let metrics = Metrics::new(1, Vec::new(), u64::from(NOW));
    StoreService::new(Arc::new(store), limits, Arc::new(metrics), NOW)
}

/// One client without a socket.
struct Client {
    service: Arc<StoreService>,
    session: Session,
    pending: Vec<u8>,
    now: Seconds,
    /// How far the wall clock has been set since the start.
    wall_offset: i32,
    closed: bool,
    /// The most replies that were collected before they were to be written.
    collected_max: usize,
    /// How often a turn was over before its input was served.
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
        while !self.closed {
            let mut out = Vec::new();
            let service = &self.service;
            let metrics = self.service.metrics.of_loop(0);
            let mut executor = Executor {
                service,
                metrics: &metrics,
                now: self.now,
                unix: self.now.saturating_add_signed(self.wall_offset),
                out: &mut out,
            };
            let served = self.session.serve(&mut executor, &self.pending, &mut work);
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
