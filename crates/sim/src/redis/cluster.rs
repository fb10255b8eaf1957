//! A cluster in the place of one Redis, and what befalls its slots, drawn before the run begins.

use crate::chance::random;
use dwell_testkit::sim::RedisSlots;
use std::net::SocketAddr;
use std::time::Duration;

/// A kind of fault of a cluster, which a seed has or has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClusterFault {
    /// A slot moves, key by key.
    Move,
    /// A slot is half moved, and stays so for a while.
    HalfMove,
    /// A slot is given to another server, which has none of its values.
    Force,
    /// A server ends, and a replica takes over after a while, perhaps without the last writes.
    Failover,
    /// A replica takes over from a server that is there and becomes its replica.
    Takeover,
    /// Slots have no server for a while.
    Unserved,
}

impl ClusterFault {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::Move,
        Self::HalfMove,
        Self::Force,
        Self::Failover,
        Self::Takeover,
        Self::Unserved,
    ];

    /// The name under which it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Self::Move => "moved slot",
            Self::HalfMove => "half-moved slot",
            Self::Force => "slot taken by force",
            Self::Failover => "failover of a cluster",
            Self::Takeover => "failover by hand",
            Self::Unserved => "slots without a server",
        }
    }
}

/// One thing that befalls the slot of a key of a cluster.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ClusterAct {
    /// It moves to a server: begun now, with its keys after the first time, and ended after the
    /// second.
    Move(ClusterFault, usize, [Duration; 2]),
    /// It is given to a server without its values.
    Force(usize),
    /// Its server ends. A replica takes over after the first time, and the server is back after
    /// the second one more.
    Failover(Lost, [Duration; 2]),
    /// A replica takes over; the server has all values again, and tells so, or has not.
    Takeover(Lost, bool),
    /// The slots of its server have none for so long.
    Unserved(Duration),
}

/// The last writes, as far as a replica has them (replication is asynchronous).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Lost {
    /// It has all.
    Nothing,
    /// It has other values of some keys, or none.
    Some,
}

/// The cluster of a seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClusterOptions {
    /// The kinds of faults that it has.
    pub faults: Vec<ClusterFault>,
    /// Its servers; the last one is a replica at the start.
    pub servers: usize,
    /// The number of them that the configuration names.
    pub named: usize,
    /// The first slots of ranges, which the servers have in turn.
    pub ranges: Vec<u16>,
    /// It serves nothing while a slot has no server (`cluster-require-full-coverage`).
    pub needs_all: bool,
    /// A server tells of the keys that it loses with their slots, as version 8.1 of Valkey.
    pub tells_of_lost: bool,
}

impl ClusterOptions {
    /// The options of a seed with a Redis, if that is a cluster.
    pub(crate) fn of(seed: u64) -> Option<Self> {
        let mut random = random(seed, 65);
        if random.below(4) > 0 {
            return None;
        }
        let servers = 3 + random.below(2) as usize;
        let ranges = 1 + random.below(6);
        let mut ranges: Vec<_> = (0..ranges).map(|_| random.below(16_384) as u16).collect();
        ranges.sort_unstable();
        let faults = ClusterFault::ALL.into_iter();
        Some(Self {
            faults: faults.filter(|_| random.below(2) == 0).collect(),
            servers,
            named: 1 + random.below(servers as u64) as usize,
            ranges,
            needs_all: random.below(2) == 0,
            tells_of_lost: random.below(2) == 0,
        })
    }

    /// The addresses of the servers.
    pub(super) fn addresses(&self) -> impl Iterator<Item = SocketAddr> {
        (0..self.servers).map(address)
    }

    /// The slots of the servers at the start.
    pub(super) fn slots(&self) -> RedisSlots {
        let mut slots = RedisSlots::default();
        slots.give(0..=16_383, Some(address(0)));
        for (place, first) in self.ranges.iter().enumerate() {
            slots.give(
                *first..=16_383,
                Some(address((place + 1) % (self.servers - 1))),
            );
        }
        slots
    }

    /// The line of a configuration that names its servers by these URLs.
    pub(super) fn line(&self, url: impl Fn(usize) -> String) -> String {
        let named: Vec<_> = (0..self.named)
            .map(|it| format!("\"{}\"", url(it)))
            .collect();
        format!("redis.cluster = [{}]\n", named.join(", "))
    }
}

/// The address of the one Redis, or of a server of a cluster.
pub(super) fn address(server: usize) -> SocketAddr {
    ([127, 0, 0, 1], 6379 + server as u16).into()
}
