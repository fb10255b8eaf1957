//! The part of a simulated Redis in a cluster, and what it takes to be true of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::ops::RangeInclusive;

/// The last slot of every cluster.
const LAST: u16 = 16_383;

/// The servers of a cluster by slots, as one of them knows them.
///
/// ```
/// use dwell_testkit::sim::RedisSlots;
///
/// let (mut slots, server) = (RedisSlots::default(), ([127, 0, 0, 1], 7000).into());
/// slots.give(100..=200, Some(server));
/// assert_eq!([99, 100, 200, 201].map(|slot| slots.owner(slot).is_some()), [
///     false, true, true, false
/// ]);
/// assert_eq!(RedisSlots::slot_of("123456789"), 0x31c3);
/// ```
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RedisSlots {
    /// Changes so far.
    epoch: u64,
    /// The owner from each of these slots on.
    begins: BTreeMap<u16, Option<SocketAddr>>,
}

/// No slot has a server.
impl Default for RedisSlots {
    fn default() -> Self {
        Self {
            epoch: 0,
            begins: BTreeMap::from([(0, None)]),
        }
    }
}

impl RedisSlots {
    /// The slot of a key without braces.
    #[must_use]
    pub fn slot_of(key: &str) -> u16 {
        let byte = |crc: u16, byte: u8| {
            let bit = |crc: u16, _| (crc << 1) ^ if crc >> 15 == 1 { 0x1021 } else { 0 };
            (0..8).fold(crc ^ (u16::from(byte) << 8), bit)
        };
        key.bytes().fold(0, byte) & LAST
    }

    /// The server that has a slot, if one has.
    #[must_use]
    pub fn owner(&self, slot: u16) -> Option<SocketAddr> {
        let mut before = self.begins.range(..=slot);
        before.next_back().and_then(|(_, owner)| *owner)
    }

    /// Gives slots to a server, or has nobody have them.
    pub fn give(&mut self, slots: RangeInclusive<u16>, to: Option<SocketAddr>) {
        let (first, last) = (*slots.start(), *slots.end());
        if last < LAST {
            let behind = self.owner(last + 1);
            self.begins.insert(last + 1, behind);
        }
        self.begins.retain(|slot, _| !slots.contains(slot));
        self.begins.insert(first, to);
        self.epoch += 1;
    }

    /// Gives all slots of one server to another one, or to nobody.
    pub fn give_all(&mut self, from: SocketAddr, to: Option<SocketAddr>) {
        let mut owners = self.begins.values_mut();
        while let Some(owner) = owners.find(|owner| **owner == Some(from)) {
            *owner = to;
        }
        self.epoch += 1;
    }

    /// The servers that have slots, each once.
    #[must_use]
    pub fn primaries(&self) -> BTreeSet<SocketAddr> {
        self.begins.values().copied().flatten().collect()
    }

    fn is_covered(&self) -> bool {
        self.begins.values().all(Option::is_some)
    }

    /// Ranges of slots that have an owner.
    fn ranges(&self) -> impl Iterator<Item = (RangeInclusive<u16>, SocketAddr)> {
        let ends = self.begins.keys().skip(1).map(|next| next - 1);
        let ranges = self.begins.iter().zip(ends.chain([LAST]));
        ranges.filter_map(|((first, owner), last)| Some((*first..=last, (*owner)?)))
    }
}

/// One server as one of a cluster.
#[derive(Clone, Debug)]
pub(super) struct Member {
    pub(super) address: SocketAddr,
    /// The slots that it knows of.
    pub(super) slots: RedisSlots,
    /// It serves nothing while a slot has no server (`cluster-require-full-coverage`).
    pub(super) needs_all: bool,
    /// Slots that are about to leave, each with the server that it goes to.
    pub(super) leaving: BTreeMap<u16, SocketAddr>,
    /// Slots that are about to come.
    pub(super) coming: BTreeMap<u16, SocketAddr>,
}

impl Member {
    /// The error in the place of an answer to a command for a key, which is there or not.
    pub(super) fn refusal(&self, key: &str, is_there: bool, is_asking: bool) -> Option<String> {
        let slot = RedisSlots::slot_of(key);
        let Some(owner) = self.slots.owner(slot) else {
            return Some("-CLUSTERDOWN Hash slot not served\r\n".to_owned());
        };
        if self.needs_all && !self.slots.is_covered() {
            return Some("-CLUSTERDOWN The cluster is down\r\n".to_owned());
        }
        if owner == self.address {
            let to = self.leaving.get(&slot).filter(|_| !is_there)?;
            return Some(format!("-ASK {slot} {to}\r\n"));
        }
        let is_coming = is_asking && self.coming.contains_key(&slot);
        (!is_coming).then(|| format!("-MOVED {slot} {owner}\r\n"))
    }

    /// The reply to `CLUSTER`, if there is one.
    pub(super) fn reply(&self, what: &[u8]) -> Option<String> {
        Some(match what {
            b"INFO" => verbatim(&format!(
                "cluster_enabled:1\r\ncluster_state:{}\r\ncluster_current_epoch:{}\r\n",
                if self.slots.is_covered() {
                    "ok"
                } else {
                    "fail"
                },
                self.slots.epoch,
            )),
            b"SLOTS" => self.slots_reply(),
            b"NODES" => verbatim(&self.nodes()),
            _ => return None,
        })
    }

    fn slots_reply(&self) -> String {
        let mut reply = format!("*{}\r\n", self.slots.ranges().count());
        for (range, owner) in self.slots.ranges() {
            let (ip, id) = (owner.ip().to_string(), id_of(owner));
            let _ = write!(
                reply,
                "*3\r\n:{}\r\n:{}\r\n*4\r\n${}\r\n{ip}\r\n:{}\r\n$40\r\n{id}\r\n%0\r\n",
                range.start(),
                range.end(),
                ip.len(),
                owner.port(),
            );
        }
        reply
    }

    /// A line for the server itself, and one for each other that has slots.
    fn nodes(&self) -> String {
        let mut text = String::new();
        let mut servers = self.slots.primaries();
        servers.insert(self.address);
        for server in servers {
            let is_own = server == self.address;
            let (id, port) = (id_of(server), server.port());
            let flags = if is_own { "myself,master" } else { "master" };
            let _ = write!(text, "{id} {server}@1{port} {flags} - 0 0 1 connected");
            for (range, _) in self.slots.ranges().filter(|(_, owner)| *owner == server) {
                let _ = match (range.start(), range.end()) {
                    (first, last) if first == last => write!(text, " {first}"),
                    (first, last) => write!(text, " {first}-{last}"),
                };
            }
            for (slot, to) in self.leaving.iter().filter(|_| is_own) {
                let _ = write!(text, " [{slot}->-{}]", id_of(*to));
            }
            for (slot, from) in self.coming.iter().filter(|_| is_own) {
                let _ = write!(text, " [{slot}-<-{}]", id_of(*from));
            }
            text.push('\n');
        }
        text
    }
}

fn id_of(server: SocketAddr) -> String {
    format!("{:040x}", server.port())
}

fn verbatim(text: &str) -> String {
    format!("={}\r\ntxt:{text}\r\n", text.len() + 4)
}
