//! The options of a Redis, and what befalls it.

use super::cluster::{ClusterOptions, address};
use super::node::Old;
use crate::chance::random;
use std::time::Duration;

/// A kind of fault of a Redis, which a seed has or has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RedisFault {
    /// It starts again, with or without its values.
    Restart,
    /// It stands still: its sockets take bytes, and nothing answers.
    Pause,
    /// It closes all connections (`CLIENT KILL`).
    Kill,
    /// The connections that track are cut off without a word.
    CutOff,
    /// It drops a key for want of memory.
    Eviction,
    /// Another database takes the place of its own (`SWAPDB`), and nobody is told.
    Swap,
    /// It tells of a key that has not changed.
    Touch,
    /// A key gets a value that is no string.
    List,
    /// Its tracking table is too small, and it tells of keys that have not changed.
    SmallTable,
    /// It is a replica for a while, and takes no writes.
    ReadOnly,
    /// Its ACL refuses tracking for a while.
    Untracked,
    /// Replies and pushes come in two pieces, with a while between them.
    TornReplies,
    /// It finds the end of a lifetime seconds late, if nobody reads the key.
    LateExpiry,
    /// It has no memory for a value.
    NoMemory,
    /// It is cut off without a word: packets vanish both ways.
    Unreachable,
    /// It has another address, to which its name leads from then on.
    Moved,
    /// It knows neither `HELLO` nor `SET` with `GET`, and so announces nothing.
    TooOld,
}

impl RedisFault {
    /// All kinds.
    pub const ALL: [Self; 17] = [
        Self::Restart,
        Self::Pause,
        Self::Kill,
        Self::CutOff,
        Self::Eviction,
        Self::Swap,
        Self::Touch,
        Self::List,
        Self::SmallTable,
        Self::ReadOnly,
        Self::Untracked,
        Self::TornReplies,
        Self::LateExpiry,
        Self::NoMemory,
        Self::Unreachable,
        Self::Moved,
        Self::TooOld,
    ];

    /// The name under which it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Self::Restart => "Redis restart",
            Self::Pause => "Redis pause",
            Self::Kill => "CLIENT KILL",
            Self::CutOff => "Redis cut off",
            Self::Eviction => "Redis eviction",
            Self::Swap => "SWAPDB",
            Self::Touch => "invalidation without a change",
            Self::List => "value that is no string",
            Self::SmallTable => "small tracking table",
            Self::ReadOnly => "READONLY",
            Self::Untracked => "refused tracking",
            Self::TornReplies => "torn reply of Redis",
            Self::LateExpiry => "late expiry",
            Self::NoMemory => "no memory in Redis",
            Self::Unreachable => "Redis out of reach",
            Self::Moved => "Redis at another address",
            Self::TooOld => "Redis without RESP3",
        }
    }
}

/// The values that a Redis has after a restart.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kept {
    /// None.
    Nothing,
    /// The same as before.
    Values,
    /// The next value of each key that was there: others have written meanwhile.
    Next,
}

/// One thing that befalls a Redis.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RedisAct {
    /// It is not there for the first time, and reads its values from a disk for the second one.
    Restart(Kept, Duration, Duration),
    /// It stands still for so long.
    Pause(Duration),
    /// It closes all connections.
    Kill,
    /// The connections that track are cut off without a word.
    CutOff,
    /// It drops a key that it has.
    Evict,
    /// Each key that it has gets its next value, and nobody is told.
    Swap,
    /// It tells of a key that has not changed.
    Touch,
    /// A key that it has becomes a list.
    List,
    /// Its tracking table has room for so many keys for so long.
    SmallTable(usize, Duration),
    /// It takes no writes for so long.
    ReadOnly(Duration),
    /// It closes all connections, and tracks for none that comes within this time.
    Untracked(Duration),
    /// It is cut off without a word for so long.
    Unreachable(Duration),
    /// It has another address, and the edge looks its name up again after so long.
    Move(Old, Duration),
}

/// The Redis of a seed.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedisOptions {
    /// The kinds of faults that it has.
    pub faults: Vec<RedisFault>,
    /// It asks for a password.
    pub has_password: bool,
    /// It never tracks for the edge.
    pub refuses_tracking: bool,
    /// The number of times that it is cut off, at most.
    pub cuts_max: u64,
    /// The number of times that it gets another address, at most; then it has a name.
    pub moves_max: u64,
    /// The interval of sweeps while it tracks (`redis.sweep_interval`).
    pub sweep_interval: Duration,
    /// Answers of the application are stored (`fill`).
    pub fills: bool,
    /// The cluster that it is, in some runs.
    pub cluster: Option<ClusterOptions>,
}

/// The interval of sweeps while it does not track (`event_loop/redis.rs` of the edge).
pub(crate) const SWEPT: Duration = Duration::from_millis(250);

impl RedisOptions {
    /// The options of a seed, if a Redis has its values.
    pub(crate) fn of(seed: u64) -> Option<Self> {
        let mut random = random(seed, 60);
        if random.below(10) > 2 {
            return None;
        }
        // These have chances of their own.
        let has_own = [
            RedisFault::Unreachable,
            RedisFault::Moved,
            RedisFault::TooOld,
        ];
        let mut own = crate::chance::random(seed, 63);
        let too_old = (own.below(8) == 0).then_some(RedisFault::TooOld);
        let faults = RedisFault::ALL.into_iter();
        let faults = faults.filter(|it| !has_own.contains(it) && random.below(2) == 0);
        Some(Self {
            faults: faults.chain(too_old).collect(),
            has_password: random.below(2) == 0,
            refuses_tracking: random.below(8) == 0,
            // All are longer than a client waits for a change.
            sweep_interval: Duration::from_secs([10, 20, 30][random.below(3) as usize]),
            fills: random.below(2) == 0,
            cluster: ClusterOptions::of(seed).filter(|_| too_old.is_none()),
            moves_max: if crate::chance::random(seed, 69).below(3) == 0 {
                3
            } else {
                0
            },
            cuts_max: if own.below(3) == 0 { 3 } else { 0 },
        })
    }

    /// Returns true if it has faults of this kind.
    pub(crate) fn has(&self, fault: RedisFault) -> bool {
        self.faults.contains(&fault)
    }

    /// Returns true if keys may be swept as on memcached.
    pub(crate) fn may_sweep(&self) -> bool {
        self.refuses_tracking || self.has(RedisFault::TooOld) || self.has(RedisFault::Untracked)
    }

    /// Its password.
    pub(crate) fn password(&self) -> Option<&'static str> {
        self.has_password
            .then_some(include_str!("../../data/redis_password.txt"))
            .map(str::trim_end)
    }

    /// The URL of a server.
    fn url(&self, server: usize) -> String {
        let address = address(server);
        if self.moves_max > 0 {
            format!("redis://{}:{}", name_of(server), address.port())
        } else {
            format!("redis://{address}")
        }
    }

    /// The lines of a configuration.
    pub(crate) fn lines(&self) -> String {
        let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/data");
        let password = if self.has_password {
            format!("redis.password_file = \"{folder}/redis_password.txt\"\n")
        } else {
            String::new()
        };
        let servers = match &self.cluster {
            Some(cluster) => cluster.line(|server| self.url(server)),
            None => format!("redis.url = \"{}\"\n", self.url(0)),
        };
        format!(
            "{servers}redis.sweep_interval = \"{}s\"\n{password}",
            self.sweep_interval.as_secs(),
        )
    }
}

/// The name of a server.
pub(super) fn name_of(server: usize) -> String {
    format!("redis-{server}.test")
}
