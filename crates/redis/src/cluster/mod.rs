//! A cluster: which of its servers has a key, and when they are asked for that.
//!
//! Nothing here does I/O: the client says what was asked and heard. Any server of a cluster knows
//! the slots of all, and says of a key that it has not (`MOVED`, `ASK`) which one has it. So a
//! command that goes to the wrong server costs a round trip, and nothing more. The topology is
//! asked for all the same, as no server announces that a key without a value has moved.

mod migrations;
mod redirect;
mod redirections;
mod slots;

pub(crate) use migrations::Migrations;
pub(crate) use redirect::{Redirect, Redirected, Repeat};
pub(crate) use redirections::{Candidates, Redirections, Step};
pub(crate) use slots::{Topology, slot_of};

use dwell_proto::resp::Message;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// The servers of a cluster, by their indices in the client.
#[derive(Debug)]
pub(crate) struct Cluster {
    map: Option<Map>,
    /// The epoch of the topology, where the servers tell it.
    epoch: Option<u64>,
    /// The epoch of the topology that comes next.
    next_epoch: Option<u64>,
    /// Replies in a row that were older than the topology.
    outdated: usize,
    /// The server that is being asked.
    asked: Option<usize>,
    /// The last time that one was asked.
    asked_at: Option<Instant>,
    /// Something has changed since.
    is_wanted: bool,
    /// A server of the map is at another address than the one that the topology has.
    has_left: bool,
    /// Servers that were asked so far: they are asked in turn.
    turns: usize,
    interval: Duration,
    reason: Option<Box<str>>,
}

/// A topology, and the servers of the client that its primaries are.
#[derive(Debug)]
pub(crate) struct Map {
    topology: Topology,
    /// One for each primary of the topology; `None` where there was no room for it.
    places: Vec<Option<usize>>,
    /// The same, without those for which there was no room.
    primaries: Vec<usize>,
}

impl Map {
    /// The server that has a slot, if there is one.
    pub(crate) fn owner(&self, slot: u16) -> Option<usize> {
        *self.places.get(self.topology.owner(slot)?)?
    }
}

/// A topology that a server has told, beside the last one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Told {
    Same,
    Changed,
    /// It is older than the last one.
    Outdated,
    Failed,
}

impl Cluster {
    pub(crate) fn new(interval: Duration) -> Self {
        Self {
            map: None,
            epoch: None,
            next_epoch: None,
            outdated: 0,
            asked: None,
            asked_at: None,
            is_wanted: false,
            has_left: false,
            turns: 0,
            interval,
            reason: None,
        }
    }

    pub(crate) fn topology(&self) -> Option<&Topology> {
        self.map.as_ref().map(|map| &map.topology)
    }

    /// The reason why the last question had no answer that can be used.
    pub(crate) fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// The servers of the primaries.
    pub(crate) fn primaries(&self) -> &[usize] {
        self.map.as_ref().map_or(&[], |map| &map.primaries)
    }

    /// The server that has a slot, if there is one.
    pub(crate) fn owner(&self, slot: u16) -> Option<usize> {
        self.map.as_ref()?.owner(slot)
    }

    /// Something has changed: the topology is asked for as soon as it may be.
    pub(crate) fn want(&mut self) {
        self.is_wanted = true;
    }

    /// A server goes on at another address: the topology that comes next is taken, also if it is
    /// the same.
    pub(crate) fn left(&mut self, server: usize) {
        self.has_left |= self.primaries().contains(&server);
        self.is_wanted = true;
    }

    /// The time at which the topology is to be asked for.
    pub(crate) fn due(&self) -> Option<Instant> {
        // A server that is being asked answers, or fails.
        if self.asked.is_some() {
            return None;
        }
        let pause = if self.map.is_none() || self.reason.is_some() {
            RETRY
        } else if self.is_wanted {
            PAUSE_MIN
        } else {
            self.interval
        };
        self.asked_at.map(|at| at + pause)
    }

    /// Returns true if the topology is to be asked for now.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.asked.is_none() && self.due().is_none_or(|due| due <= now)
    }

    /// The turn of the question that comes: servers are asked one after the other.
    pub(crate) fn next_turn(&mut self, now: Instant) -> usize {
        self.asked_at = Some(now);
        self.turns = self.turns.wrapping_add(1);
        self.turns
    }

    /// Questions so far.
    pub(crate) fn turn(&self) -> usize {
        self.turns
    }

    /// A server is being asked.
    pub(crate) fn asks(&mut self, server: usize) {
        (self.asked, self.is_wanted, self.next_epoch) = (Some(server), false, None);
    }

    /// No server could be asked.
    pub(crate) fn asks_nobody(&mut self) {
        self.reason = Some("no server of the cluster can be asked".into());
    }

    /// The question to a server has failed.
    pub(crate) fn failed(&mut self, server: usize, reason: impl Into<Box<str>>) {
        if self.asked == Some(server) {
            self.asked = None;
            self.reason = Some(reason.into());
        }
    }

    /// A server has replied to `CLUSTER INFO`. A server that refuses is not compared with
    /// others.
    pub(crate) fn info(&mut self, reply: &Message<'_>) {
        if let Message::Value(value) = reply
            && let Some(text) = value.text()
        {
            self.next_epoch = epoch_in(text);
        }
    }

    /// The server at `asked` has replied to `CLUSTER SLOTS`.
    pub(crate) fn slots(
        &mut self,
        reply: &Message<'_>,
        asked: SocketAddr,
    ) -> (Told, Option<Topology>) {
        self.asked = None;
        let topology = match Topology::read(reply, asked) {
            Ok(topology) => topology,
            Err(reason) => {
                self.reason = Some(reason);
                return (Told::Failed, None);
            }
        };
        self.reason = None;
        // A server that was cut off tells what was true before. Where all tell the same, the
        // cluster was made anew.
        if self.next_epoch < self.epoch && self.next_epoch.is_some() {
            self.outdated += 1;
            if self.outdated <= self.primaries().len() {
                return (Told::Outdated, None);
            }
        }
        (self.outdated, self.epoch) = (0, self.next_epoch.or(self.epoch));
        if self.topology() == Some(&topology) && !self.has_left {
            return (Told::Same, None);
        }
        (Told::Changed, Some(topology))
    }

    /// Goes on with another topology, whose primaries are these servers; there was no room for one
    /// that is `None`. Returns the one before.
    pub(crate) fn turn_to(
        &mut self,
        topology: Topology,
        places: Vec<Option<usize>>,
    ) -> Option<Map> {
        let primaries = places.iter().flatten().copied().collect();
        self.has_left = false;
        self.map.replace(Map {
            topology,
            places,
            primaries,
        })
    }
}

/// The number of the last change of the cluster, in the lines of `CLUSTER INFO`.
fn epoch_in(text: &[u8]) -> Option<u64> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let line = lines.find_map(|line| line.strip_prefix(b"cluster_current_epoch:"))?;
    str::from_utf8(line.trim_ascii()).ok()?.parse().ok()
}

/// The least time between two questions.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// The same while there is no answer.
const RETRY: Duration = Duration::from_millis(100);
