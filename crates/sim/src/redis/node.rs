//! One server of a run: its process, and the moments at which its faults end.

use dwell_evloop::sim::{SimNet, SimServer};
use dwell_testkit::sim::RedisProcess;
use std::net::SocketAddr;
use std::time::Duration;

pub(super) struct Node {
    pub(super) address: SocketAddr,
    pub(super) process: RedisProcess,
    /// Its listener; none while it is down.
    pub(super) place: Option<SimServer>,
    /// It starts again.
    pub(super) back_at: Duration,
    /// It answers again.
    pub(super) answers_at: Duration,
    /// It takes writes again.
    pub(super) writes_at: Duration,
    /// Nothing comes to it until then; none while it is joined.
    pub(super) cut_until: Option<Duration>,
    /// The edge may have connections to it that are dead, and does not know yet.
    has_dead: bool,
}

impl Node {
    pub(super) fn new(address: SocketAddr, process: RedisProcess) -> Self {
        Self {
            address,
            process,
            place: None,
            back_at: Duration::ZERO,
            answers_at: Duration::ZERO,
            writes_at: Duration::ZERO,
            cut_until: None,
            has_dead: false,
        }
    }

    pub(super) fn is_running(&self, now: Duration) -> bool {
        self.place.is_some() && now >= self.answers_at
    }

    pub(super) fn takes_writes(&self, now: Duration) -> bool {
        self.is_running(now) && now >= self.writes_at
    }

    /// Has it there, and within reach, by now.
    pub(super) fn calm(&mut self, now: Duration) {
        self.back_at = self.back_at.min(now);
        self.cut_until = self.cut_until.map(|until| until.min(now));
    }

    /// Cuts it off without a word.
    pub(super) fn cut_off(&mut self, network: &SimNet, until: Duration) {
        network.cut_off(self.address);
        self.cut_until = self.cut_until.max(Some(until));
        self.has_dead = true;
    }

    /// Has it within reach again when its time is over; the connections that it had stay dead.
    /// Returns true while the edge may have such connections.
    pub(super) fn join(&mut self, network: &SimNet, is_rough: bool) -> bool {
        if self
            .cut_until
            .is_some_and(|until| network.elapsed() >= until)
        {
            self.cut_until = None;
            network.join_at(self.address);
        }
        let had_dead = self.has_dead;
        if had_dead {
            if !is_rough && self.cut_until.is_none() {
                network.reset_silent_at(self.address);
            }
            self.has_dead = network.silent_at(self.address) > 0;
        }
        had_dead
    }

    /// Starts it, if it is to be there.
    pub(super) fn start(&mut self, network: &SimNet) {
        if self.place.is_none() && network.elapsed() >= self.back_at {
            self.place = self.process.serve(network, self.address).ok();
        }
    }

    /// The moments at which it goes on by itself.
    pub(super) fn moments(&self) -> impl Iterator<Item = Duration> {
        let own = [
            self.back_at,
            self.answers_at,
            self.writes_at,
            self.cut_until.unwrap_or_default(),
        ];
        self.process.drops().into_iter().chain(own)
    }
}
