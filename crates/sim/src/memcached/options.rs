//! The options of memcached servers, and what befalls them.

use crate::chance::random;
use std::net::SocketAddr;
use std::time::Duration;

/// A kind of fault of memcached servers, which a seed has or has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemcachedFault {
    /// A server starts again, without its items and with its cas uniques.
    Restart,
    /// A server stands still: its sockets take bytes, and nothing answers.
    Pause,
    /// A server is not there for a while, and refuses connections.
    Down,
    /// A server resets its connections.
    Reset,
    /// A server drops an item.
    Eviction,
    /// Replies come in two pieces, with a while between them.
    TornReplies,
    /// Lines of watched servers are lost.
    LostLines,
    /// A server has no memory for a value.
    NoMemory,
    /// A server is cut off for a while: nothing comes to it or from it, and nobody is told.
    CutOff,
}

impl MemcachedFault {
    /// All kinds.
    pub const ALL: [Self; 9] = [
        Self::Restart,
        Self::Pause,
        Self::Down,
        Self::Reset,
        Self::Eviction,
        Self::TornReplies,
        Self::LostLines,
        Self::NoMemory,
        Self::CutOff,
    ];

    /// The name under which it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Self::Restart => "memcached restart",
            Self::Pause => "memcached pause",
            Self::Down => "memcached down",
            Self::Reset => "memcached reset",
            Self::Eviction => "eviction",
            Self::TornReplies => "torn reply",
            Self::LostLines => "lost watch line",
            Self::NoMemory => "no memory for a value",
            Self::CutOff => "memcached cut off",
        }
    }
}

/// One thing that befalls a memcached server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MemcachedAct {
    /// It starts again, empty. Where it `refills`, each key that was there gets its next value at
    /// once, with the cas unique that it had before.
    Restart {
        /// The keys are stored again.
        refills: bool,
    },
    /// It stands still for so long.
    Pause(Duration),
    /// It is not there for so long.
    Down(Duration),
    /// It resets its connections.
    Reset,
    /// It is cut off for so long; the connections that it has are for ever.
    CutOff(Duration),
    /// It drops the item of a key that it has.
    Evict,
}

/// The memcached servers of a seed.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an option of memcached, or of the edge"
)]
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MemcachedOptions {
    /// Their number.
    pub servers: usize,
    /// The kinds of faults that they have.
    pub faults: Vec<MemcachedFault>,
    /// They are asked to tell of changes (`memcached.watch`).
    pub watches: bool,
    /// They tell of deletions, too.
    pub tells_deletions: bool,
    /// They count cas uniques.
    pub has_cas: bool,
    /// A server that starts again has another process number.
    pub has_pids: bool,
    /// The interval at which keys are looked at (`memcached.sweep_interval`).
    pub sweep_interval: Duration,
    /// Answers of the application are stored (`fill`).
    pub fills: bool,
    /// Times that servers are cut off, at most.
    pub cuts_max: u64,
}

/// Seeds in so many in which servers are cut off, of those with memcached, and how often at most.
const CUTS_ONE_IN: u64 = 3;
const CUTS_MAX: u64 = 4;

impl MemcachedOptions {
    /// The options of a seed, if its values are in memcached servers.
    pub(crate) fn of(seed: u64) -> Option<Self> {
        let mut random = random(seed, 11);
        if random.below(3) > 0 {
            return None;
        }
        let is_chosen = |fault: &MemcachedFault| {
            // Cuts have a chance of their own.
            *fault != MemcachedFault::CutOff && random.below(2) == 0
        };
        let faults = MemcachedFault::ALL.into_iter().filter(is_chosen).collect();
        Some(Self {
            servers: 1 + random.below(3) as usize,
            faults,
            watches: random.below(2) == 0,
            tells_deletions: random.below(2) == 0,
            has_cas: random.below(8) > 0,
            has_pids: random.below(2) == 0,
            sweep_interval: Duration::from_millis([100, 250, 1_000][random.below(3) as usize]),
            fills: random.below(2) == 0,
            cuts_max: cuts_max(seed),
        })
    }

    /// Returns true if they have faults of this kind.
    pub(crate) fn has(&self, fault: MemcachedFault) -> bool {
        self.faults.contains(&fault)
    }
}

/// The number of cuts that a seed has at most.
fn cuts_max(seed: u64) -> u64 {
    let has_some = random(seed, 16).below(CUTS_ONE_IN) == 0;
    if has_some { CUTS_MAX } else { 0 }
}

/// Their addresses.
pub(crate) fn addresses(options: &MemcachedOptions) -> impl Iterator<Item = SocketAddr> {
    let ports = FIRST_PORT..FIRST_PORT + options.servers as u16;
    ports.map(|port| ([127, 0, 0, 1], port).into())
}

/// The first port.
const FIRST_PORT: u16 = 11_311;
