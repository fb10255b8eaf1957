//! State of missing keys, shared by the loops of a process: open fetches, recent failures, and last
//! known values.
//!
//! Each shard has a lock, held for one access to a table. It is taken for lookups in memcached and
//! fetches from the application, and not for hits of the embedded store.

use super::super::ask::{Ask, Method};
use super::super::common::Variant;
use super::super::freshness::Freshness;
use crate::cursor::Cursor;
use crate::ids::FetchId;
use bytes::Bytes;
use dwell_upstream::{Answer, UpstreamError};
use foldhash::quality::RandomState as Seed;
use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// The result of a request that several share.
pub(crate) type UpstreamResult = Result<Arc<Answer>, UpstreamError>;

/// The common memory of the loops of a process.
///
/// Shape: values take at most so many bytes with their overhead, verdicts so many entries; what is
/// beyond that is forgotten, the least used first. The time is given.
#[derive(Debug)]
pub(crate) struct Memory {
    shards: Box<[Mutex<Shard>]>,
    /// Keys are chosen by clients, so the hash is seeded against chosen collisions.
    seed: Seed,
    /// Requests of different clients must not be taken for one: their digest is a keyed one.
    hasher: RandomState,
    /// Bound of one shard.
    bytes_max: usize,
}

/// A fetch of a loop: one that asks, or one that follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LoopFetch {
    pub(crate) of_loop: usize,
    pub(crate) fetch: FetchId,
}

/// The part of a loop in a request that several loops would send.
#[derive(Debug)]
pub(crate) enum Role {
    /// It sends the request, and tells the others of the result.
    Leader,
    /// It waits for the loop that has sent it, and this fetch there.
    Follower(LoopFetch),
}

/// The value that a key had last.
#[derive(Clone, Debug)]
pub(crate) struct StaleValue {
    pub(crate) body: Bytes,
    pub(crate) flags: u32,
    /// The application has answered a GET with it: it says nothing of other methods.
    pub(crate) is_answer: bool,
    /// Time since it was stored.
    pub(crate) age: Duration,
    /// Time since it became stale.
    pub(crate) staleness: Duration,
    /// `stale-while-revalidate` of the response that it came from.
    pub(crate) while_revalidate: Option<Duration>,
    pub(crate) if_error: Option<Duration>,
}

impl StaleValue {
    /// True if it may be given to a request: not to a client that shows an identity, and the answer
    /// to a GET to no other method.
    pub(crate) fn stands_for(&self, ask: &Ask) -> bool {
        ask.shareable && (ask.method != Method::Post || !self.is_answer)
    }
}

/// The substitute for a request to the application.
#[derive(Clone, Debug)]
pub(crate) enum CachedOutcome {
    /// The result of the last one.
    Result(UpstreamResult),
    /// The last value, while a newer one is fetched.
    Stale(StaleValue),
}

impl CachedOutcome {
    /// True if a newer value is to be fetched. A value that has just come is perhaps on its way
    /// into the cache, and one that the cache does not take is not asked for all the time.
    pub(crate) fn is_for_renewal(&self) -> bool {
        matches!(self, Self::Stale(known) if known.age >= RENEWAL_INTERVAL)
    }
}

#[derive(Debug, Default)]
struct Shard {
    entries: HashMap<Box<[u8]>, Entry, Seed>,
    /// The keys that have a value, the next to be forgotten first.
    order: VecDeque<Box<[u8]>>,
    bytes: usize,
    verdicts: usize,
    /// The end of the first of too many verdicts; before that none makes room.
    full_until: Option<Instant>,
}

#[derive(Debug, Default)]
struct Entry {
    /// Requests that are in progress, by what the application gets.
    flights: Vec<Flight>,
    verdict: Option<(Variant, UpstreamResult, Instant)>,
    value: Option<Value>,
    /// It has a place in the order.
    is_listed: bool,
}

/// A request that is in progress.
#[derive(Debug)]
struct Flight {
    variant: Variant,
    leader: LoopFetch,
    followers: Vec<LoopFetch>,
}

#[derive(Debug)]
struct Value {
    body: Bytes,
    flags: u32,
    cursor: Cursor,
    is_answer: bool,
    /// The digest of the request that brought it; nothing where the cache had it.
    of: Option<u64>,
    noted: Instant,
    stale_from: Instant,
    freshness: Freshness,
    /// Asked for since it was next to be forgotten.
    is_used: bool,
}

impl Memory {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self {
            shards: (0..SHARDS).map(|_| Mutex::default()).collect(),
            seed: Seed::default(),
            hasher: RandomState::new(),
            bytes_max: bytes_max / SHARDS,
        }
    }

    /// The hasher by which requests to the application are told apart.
    pub(crate) fn hasher(&self) -> &RandomState {
        &self.hasher
    }

    /// Returns true if values are kept.
    pub(crate) fn keeps_values(&self) -> bool {
        self.bytes_max > 0
    }

    /// A loop is about to ask for a key.
    pub(crate) fn begin(&self, name: &[u8], variant: Variant, follower: LoopFetch) -> Role {
        let mut shard = self.shard(name);
        let entry = shard.entries.entry(name.into()).or_default();
        let mut flights = entry.flights.iter_mut();
        if let Some(flight) = flights.find(|flight| flight.variant == variant) {
            flight.followers.push(follower);
            return Role::Follower(flight.leader);
        }
        entry.flights.push(Flight {
            variant,
            leader: follower,
            followers: Vec::new(),
        });
        Role::Leader
    }

    /// Ends the request of a loop; returns its followers, which get the same result.
    pub(crate) fn end(&self, name: &[u8], variant: Variant) -> Vec<LoopFetch> {
        let mut shard = self.shard(name);
        let Some(entry) = shard.entries.get_mut(name) else {
            return Vec::new();
        };
        let mut flights = entry.flights.iter();
        let place = flights.position(|flight| flight.variant == variant);
        let flight = place.map(|place| entry.flights.swap_remove(place));
        shard.release(name);
        flight.map_or_else(Vec::new, |flight| flight.followers)
    }

    /// Returns true if a loop fetches this key.
    pub(crate) fn is_asked(&self, name: &[u8], variant: Variant) -> bool {
        let shard = self.shard(name);
        let entry = shard.entries.get(name);
        let mut flights = entry.into_iter().flat_map(|entry| &entry.flights);
        flights.any(|flight| flight.variant == variant)
    }

    /// Notes a result for which this key is not asked for again until then.
    pub(crate) fn refuse(
        &self,
        name: &[u8],
        variant: Variant,
        verdict: UpstreamResult,
        until: Instant,
        now: Instant,
    ) {
        let mut shard = self.shard(name);
        if shard.verdicts >= VERDICTS_MAX && !shard.drop_verdicts(now) {
            return;
        }
        let entry = shard.entries.entry(name.into()).or_default();
        let is_new = entry.verdict.replace((variant, verdict, until)).is_none();
        shard.verdicts += usize::from(is_new);
    }

    /// The result of the last fetch of this key, while it counts.
    pub(crate) fn verdict(
        &self,
        name: &[u8],
        variant: Variant,
        now: Instant,
    ) -> Option<UpstreamResult> {
        let mut shard = self.shard(name);
        let entry = shard.entries.get_mut(name)?;
        let (of, verdict, until) = entry.verdict.as_ref()?;
        if *until > now {
            return (*of == variant).then(|| verdict.clone());
        }
        entry.verdict = None;
        shard.verdicts -= 1;
        shard.release(name);
        None
    }

    /// Notes the value that a key has now, and that it is fresh for as long as it says.
    pub(crate) fn note(&self, name: &[u8], value: &NewValue<'_>, now: Instant) {
        if overhead(name) + value.bytes.len() > self.bytes_max / 2 {
            return self.forget(name);
        }
        let stale_from = now + value.freshness.lifetime.unwrap_or(Duration::ZERO);
        let mut shard = self.shard(name);
        if let Some(known) = shard.value_mut(name)
            && known.cursor == value.cursor
            && known.of == value.of
        {
            (known.noted, known.stale_from) = (now, stale_from);
            known.is_answer &= value.shared.is_some();
            known.freshness = value.freshness;
            known.is_used = true;
            return;
        }
        let copy = || Bytes::copy_from_slice(value.bytes);
        let kept = Value {
            body: value.shared.cloned().unwrap_or_else(copy),
            is_answer: value.shared.is_some(),
            of: value.of,
            noted: now,
            flags: value.flags,
            cursor: value.cursor,
            stale_from,
            freshness: value.freshness,
            is_used: false,
        };
        shard.keep(name, kept);
        while shard.bytes > self.bytes_max && shard.forget_one() {}
    }

    /// Forgets the value of a key that is known to have none.
    pub(crate) fn forget(&self, name: &[u8]) {
        self.shard(name).forget(name);
    }

    /// Forgets the value of a key as [`forget`](Self::forget) does, unless the application has
    /// brought it for another request.
    pub(crate) fn forget_of(&self, name: &[u8], digest: u64) {
        let mut shard = self.shard(name);
        let known = shard.value_mut(name);
        if known.is_some_and(|value| value.of.is_none_or(|of| of == digest)) {
            shard.forget(name);
        }
    }

    /// The value that a key had last, of the cache or for the same request.
    pub(crate) fn last_known(&self, name: &[u8], digest: u64, now: Instant) -> Option<StaleValue> {
        let mut shard = self.shard(name);
        let value = shard.value_mut(name)?;
        if value.of.is_some_and(|of| of != digest) {
            return None;
        }
        value.is_used = true;
        Some(StaleValue {
            body: value.body.clone(),
            flags: value.flags,
            is_answer: value.is_answer,
            age: now.saturating_duration_since(value.noted),
            staleness: now.saturating_duration_since(value.stale_from),
            while_revalidate: value.freshness.while_revalidate,
            if_error: value.freshness.if_error,
        })
    }

    /// Bytes that values take.
    #[cfg(test)]
    pub(crate) fn bytes(&self) -> usize {
        let bytes = |shard: &Mutex<Shard>| lock(shard).bytes;
        self.shards.iter().map(bytes).sum()
    }

    fn shard(&self, name: &[u8]) -> MutexGuard<'_, Shard> {
        let hash = self.seed.hash_one(name) as usize;
        lock(&self.shards[hash % SHARDS])
    }
}

/// A value to be noted: its bytes, and those of an answer of the application in the form in which
/// they can be shared.
pub(crate) struct NewValue<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) shared: Option<&'a Bytes>,
    pub(crate) flags: u32,
    pub(crate) cursor: Cursor,
    pub(crate) freshness: Freshness,
    /// The digest of the request that brought it; nothing where the cache had it.
    pub(crate) of: Option<u64>,
}

impl Shard {
    fn value_mut(&mut self, name: &[u8]) -> Option<&mut Value> {
        self.entries.get_mut(name)?.value.as_mut()
    }

    fn keep(&mut self, name: &[u8], value: Value) {
        self.bytes += value.body.len();
        let entry = self.entries.entry(name.into()).or_default();
        let before = entry.value.replace(value);
        self.bytes -= before.map_or(0, |before| before.body.len());
        if !std::mem::replace(&mut entry.is_listed, true) {
            self.bytes += overhead(name);
            self.order.push_back(name.into());
        }
    }

    /// Drops the value; its place in the order, which counts on, goes when its turn comes.
    fn forget(&mut self, name: &[u8]) {
        let entry = self.entries.get_mut(name);
        if let Some(value) = entry.and_then(|entry| entry.value.take()) {
            self.bytes -= value.body.len();
        }
    }

    /// Drops the value that has been there longest without being asked for; false if there is no
    /// such value.
    fn forget_one(&mut self) -> bool {
        while let Some(name) = self.order.pop_front() {
            let Some(entry) = self.entries.get_mut(&name) else {
                continue;
            };
            if let Some(value) = &mut entry.value
                && std::mem::take(&mut value.is_used)
            {
                self.order.push_back(name);
                continue;
            }
            entry.is_listed = false;
            let value = entry.value.take();
            self.bytes -= overhead(&name) + value.map_or(0, |value| value.body.len());
            self.release(&name);
            return true;
        }
        false
    }

    /// Drops the verdicts that are over; returns whether there is room then.
    fn drop_verdicts(&mut self, now: Instant) -> bool {
        if self.full_until.is_some_and(|until| until > now) {
            return false;
        }
        self.full_until = None;
        for entry in self.entries.values_mut() {
            let Some((_, _, until)) = entry.verdict else {
                continue;
            };
            if until <= now {
                entry.verdict = None;
                self.verdicts -= 1;
            } else {
                self.full_until = Some(self.full_until.map_or(until, |first| first.min(until)));
            }
        }
        self.entries.retain(|_, entry| !entry.is_empty());
        self.verdicts < VERDICTS_MAX
    }

    fn release(&mut self, name: &[u8]) {
        if self.entries.get(name).is_some_and(Entry::is_empty) {
            self.entries.remove(name);
        }
    }
}

impl Entry {
    fn is_empty(&self) -> bool {
        self.flights.is_empty() && self.verdict.is_none() && !self.is_listed
    }
}

/// A panicking thread leaves the table usable: it is a cache.
fn lock(shard: &Mutex<Shard>) -> MutexGuard<'_, Shard> {
    shard.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Overhead of a value; names are stored twice.
fn overhead(name: &[u8]) -> usize {
    2 * name.len() + ENTRY_BYTES
}

const SHARDS: usize = 16;
/// Time between fetches that revalidate a stale value.
const RENEWAL_INTERVAL: Duration = Duration::from_secs(1);
/// Overhead of an entry.
const ENTRY_BYTES: usize = 256;
/// Verdicts of one shard; fewer in unit tests.
const VERDICTS_MAX: usize = if cfg!(test) { 128 } else { 1024 };

#[cfg(test)]
mod tests;
