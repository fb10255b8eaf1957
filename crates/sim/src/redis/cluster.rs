//! A cluster in the place of one Redis, and what befalls its slots, drawn before the run begins.

use super::options::address;
use crate::chance::random;
use crate::options::Options;
use crate::step::{Ask, Has, Method, Order, Step};
use dwell_evloop::Random;
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
    /// A replica takes over; the server has all values anew, and tells so, or has not.
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
    /// Those that the configuration names.
    pub named: usize,
    /// The first slots of ranges, which the servers have in turn.
    pub ranges: Vec<u16>,
    /// It serves nothing while a slot has no server (`cluster-require-full-coverage`).
    pub needs_all: bool,
    /// A server tells of the keys that it loses with their slots, as version 8.1 of Valkey.
    pub tells_of_lost: bool,
}

/// Acts of a run, at most.
const ACTS_MAX: u64 = 6;

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

    /// The line of a configuration that names its servers.
    pub(super) fn line(&self) -> String {
        let named = self.addresses().take(self.named);
        let named: Vec<_> = named.map(|it| format!("\"redis://{it}\"")).collect();
        format!("redis.cluster = [{}]\n", named.join(", "))
    }
}

/// The steps of a seed that befall slots, each behind so many of the steps before it, and after a
/// pause.
pub(crate) fn cluster_steps(options: &Options, steps: usize) -> Vec<(usize, Duration, Step)> {
    let redis = options.redis.as_ref();
    let Some(cluster) = redis.and_then(|redis| redis.cluster.as_ref()) else {
        return Vec::new();
    };
    let mut random = random(options.seed, 67);
    let mut acts = Vec::new();
    for _ in 0..random.below(ACTS_MAX + 1) {
        let kind = random.below(cluster.faults.len() as u64) as usize;
        let Some(fault) = cluster.faults.get(kind).copied() else {
            continue;
        };
        let key = random.below(options.keys as u64) as usize;
        let client = random.below(options.clients as u64) as usize;
        let place = random.below(steps as u64 + 1) as usize;
        let pause = Duration::from_micros(random.below(50_000));
        let act = act_of(fault, cluster, &mut random);
        let mut at = place..;
        let mut add = |pause, step| acts.extend(at.next().map(|place| (place, pause, step)));
        if let ClusterAct::Move(ClusterFault::HalfMove, _, [keys, _]) = act {
            // Somebody waits for the key while it changes on the server that it has come to.
            add(pause, Step::Write(key, WRITE));
            add(pause, Step::Ask(client, wait_for(key)));
            add(pause, Step::Slot(key, act));
            add(keys + pause, Step::Write(key, WRITE));
        } else {
            add(pause, Step::Slot(key, act));
        }
    }
    acts
}

fn act_of(fault: ClusterFault, cluster: &ClusterOptions, random: &mut Random) -> ClusterAct {
    let server = random.below(cluster.servers as u64) as usize;
    let is_whole = random.below(2) == 0;
    let lost = [Lost::Nothing, Lost::Some][random.below(2) as usize];
    let mut time = |most| Duration::from_millis(random.below(most));
    match fault {
        ClusterFault::Move => ClusterAct::Move(fault, server, [time(50), time(50)]),
        ClusterFault::HalfMove => ClusterAct::Move(fault, server, [time(2_000), time(6_000)]),
        ClusterFault::Force => ClusterAct::Force(server),
        ClusterFault::Failover => ClusterAct::Failover(lost, [time(2_000), time(2_000)]),
        ClusterFault::Takeover => ClusterAct::Takeover(lost, is_whole),
        ClusterFault::Unserved => ClusterAct::Unserved(time(2_000)),
    }
}

const WRITE: Order = Order::Set {
    length: 10,
    seconds: 0,
};

fn wait_for(key: usize) -> Ask {
    Ask::Poll {
        key,
        method: Method::Get,
        has: Has::Since,
        wait: Duration::from_secs(9),
    }
}

/// The server of a cluster that an act of a Redis befalls, drawn apart from the act.
pub(crate) fn befallen(options: &Options, act: usize) -> usize {
    let redis = options.redis.as_ref();
    let cluster = redis.and_then(|redis| redis.cluster.as_ref());
    let mut random = random(options.seed, 68 + ((act as u64) << 3));
    cluster.map_or(0, |it| random.below(it.servers as u64) as usize)
}
