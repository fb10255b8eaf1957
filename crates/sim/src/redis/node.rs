//! One server of a run: its process, and the moments at which its faults end.

use dwell_evloop::sim::{SimNet, SimServer};
use dwell_testkit::sim::RedisProcess;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The address that a server had before.
struct Beside {
    address: SocketAddr,
    /// It serves there, too.
    place: Option<SimServer>,
    /// It is cut off without a word.
    is_cut: bool,
    /// It is over then.
    until: Duration,
}

/// The fate of the address that a server had, while the edge does not know of the other one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Old {
    /// It leads to the server as well, and its replies are this much late in the end.
    Serves(Duration),
    /// All connections end, and nothing listens there.
    Closed,
    /// It is cut off without a word.
    CutOff,
}

pub(super) struct Node {
    pub(super) address: SocketAddr,
    pub(super) process: RedisProcess,
    /// Its listener; none while it is down.
    pub(super) place: Option<SimServer>,
    /// The address that it had before, while something of it is left.
    beside: Option<Beside>,
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
            beside: None,
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

    /// Returns true if it may get another address.
    pub(super) fn may_move(&self, now: Duration) -> bool {
        self.is_running(now) && self.cut_until.is_none() && !self.has_dead
    }

    /// Returns true if something is left of the address that it had before.
    pub(super) fn is_beside(&self) -> bool {
        self.beside.is_some()
    }

    /// Gets another address; `lasts` is the time for which something of the one before is left.
    /// Returns that one.
    pub(super) fn move_away(
        &mut self,
        network: &SimNet,
        (old, lasts): (Old, Duration),
    ) -> SocketAddr {
        let next = other_of(self.address);
        // It may serve there still, from the time when it had that address.
        let beside = self.beside.take().map(|beside| beside.end(network));
        let place = beside
            .flatten()
            .or_else(|| self.process.serve(network, next).ok());
        let before = std::mem::replace(&mut self.address, next);
        let left = std::mem::replace(&mut self.place, place);
        let is_cut = old == Old::CutOff;
        if is_cut {
            network.cut_off(before);
        }
        if let Old::Serves(late) = old {
            self.process
                .hold_replies_until(network.elapsed() + lasts + late);
        }
        self.process.move_to(next);
        self.beside = (old != Old::Closed).then_some(Beside {
            address: before,
            place: left,
            is_cut,
            until: network.elapsed() + lasts + LEFT,
        });
        before
    }

    /// Ends, at every address.
    pub(super) fn go_down(&mut self) {
        self.process.close_all();
        self.place = None;
        if let Some(beside) = &mut self.beside {
            beside.place = None;
        }
    }

    /// Has it there, and within reach, by now.
    pub(super) fn calm(&mut self, now: Duration) {
        if let Some(beside) = &mut self.beside {
            beside.until = beside.until.min(now + LEFT);
        }
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
        let is_over = |beside: &mut Beside| network.elapsed() >= beside.until;
        if let Some(beside) = self.beside.take_if(is_over) {
            drop(beside.end(network));
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
            self.beside
                .as_ref()
                .map_or(Duration::ZERO, |beside| beside.until),
        ];
        self.process.drops().into_iter().chain(own)
    }
}

impl Beside {
    /// Has the address be as others; returns the listener, if its connections are well.
    fn end(self, network: &SimNet) -> Option<SimServer> {
        if !self.is_cut {
            return self.place;
        }
        network.join_at(self.address);
        network.reset_silent_at(self.address);
        None
    }
}

/// The other address of a server.
fn other_of(address: SocketAddr) -> SocketAddr {
    let first = IpAddr::from([127, 0, 0, 1]);
    let second = IpAddr::from([127, 0, 0, 2]);
    let ip = if address.ip() == first { second } else { first };
    SocketAddr::new(ip, address.port())
}

/// The time for which the edge may need the address before, once it knows of the other one.
const LEFT: Duration = Duration::from_secs(2);
