//! Lookups: what is read of the cache, wherever that is.
//!
//! The embedded store answers at once. memcached is asked when the turn ends, so that the lookups
//! of a turn share one request; what it has to say comes as a [`Completion`]. Callers ask both in
//! one way, and are told which it is.

mod hints;
mod joined;
mod reads;
mod sweep;

use super::explanation::Valued;
use super::tables::{Keys, Version};
use crate::ids::{FeedId, KeyId, LookupId, LookupMember, Packed};
use crate::metrics::{LookupOutcome, LoopMetrics};
use bytes::Bytes;
use dwell_evloop::{Context, Slab, Token};
use dwell_memcache::on_loop::{Completion, Failure, Outcome};
use dwell_store::{Expiry, Item, Store, StoreMode, StoreOptions, WatcherId};
use joined::Joined;
pub(super) use joined::LookupEnd;
use reads::Reads;
use std::sync::Arc;
use std::time::Duration;
use sweep::Sweep;

/// The cache that values are read from.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// The store in this process, where this loop waits under its own name.
    Embedded(Arc<Store>, WatcherId),
    /// memcached servers, asked at the end of each turn.
    Memcached,
    /// A Redis server, asked in the same way; it announces changes of what is waited for.
    Redis,
}

/// The reads of one loop from the cache.
#[derive(Debug)]
pub(crate) struct Lookups {
    source: Source,
    metrics: Arc<LoopMetrics>,
    table: Slab<Lookup, LookupId>,
    /// Lookups of requests that may be in progress.
    asked_max: usize,
    reads: Reads,
    joined: Joined,
    /// Lookups so far.
    begun: u64,
    /// Lookups that go out when the turn ends.
    unsent: Vec<LookupId>,
    sweep: Sweep,
    /// A server whose versions start over, although it has not been away.
    went_back: Option<usize>,
    fills: Vec<Fill>,
    /// Values that were looked up for an explanation, by the tags of their lookups.
    found: Vec<(Token, Valued)>,
}

/// One question to memcached.
#[derive(Debug)]
pub(super) struct Lookup {
    pub(super) key: KeyId,
    /// Its place among all lookups, in the order in which they have begun.
    number: u64,
    /// The first of the polls, and keys of feeds without a value, that wait for its answer: mostly
    /// there is no other.
    first: Option<Packed<LookupMember>>,
    others: Vec<Packed<LookupMember>>,
    /// It takes room among the reads.
    is_read: bool,
    /// Something that waits for its answer may wait for a change of it next.
    may_wait: bool,
}

impl Lookup {
    fn join(&mut self, member: Packed<LookupMember>) {
        match self.first {
            None => self.first = Some(member),
            Some(_) => self.others.push(member),
        }
    }

    /// Returns true if nothing waits for its answer: it is part of a sweep.
    pub(super) fn is_of_sweep(&self) -> bool {
        self.first.is_none()
    }

    /// Returns true if something that waits for its answer may wait for a change of it next.
    pub(super) fn may_wait(&self) -> bool {
        self.may_wait
    }

    /// Everything that waits for its answer, in the order in which it came.
    pub(super) fn into_members(self) -> impl Iterator<Item = Packed<LookupMember>> {
        self.first.into_iter().chain(self.others)
    }
}

/// A value to be stored under a key without one.
#[derive(Debug)]
pub(crate) struct Fill {
    pub(crate) name: Box<[u8]>,
    pub(crate) body: Bytes,
    /// Units: seconds.
    pub(crate) exptime: i64,
}

impl Lookups {
    /// Makes room for so many lookups of requests in progress.
    pub(crate) fn new(source: Source, metrics: Arc<LoopMetrics>, lookups_max: usize) -> Self {
        Self {
            source,
            metrics,
            table: LookupId::slab(usize::MAX),
            asked_max: lookups_max,
            reads: Reads::default(),
            joined: Joined::default(),
            begun: 0,
            unsent: Vec::new(),
            sweep: Sweep::default(),
            went_back: None,
            fills: Vec::new(),
            found: Vec::new(),
        }
    }

    /// Makes room for another number of lookups of requests in progress.
    pub(super) fn set_lookups_max(&mut self, lookups_max: usize) {
        self.asked_max = lookups_max;
    }

    /// The embedded store, if values are in it.
    pub(super) fn store(&self) -> Option<&Store> {
        match &self.source {
            Source::Embedded(store, _) => Some(store),
            Source::Memcached | Source::Redis => None,
        }
    }

    /// The reason for which a poll is refused whose lookup has failed.
    pub(super) fn no_answer(&self) -> &'static str {
        match self.source {
            Source::Redis => "Redis does not answer",
            Source::Embedded(..) | Source::Memcached => "memcached does not answer",
        }
    }

    /// Returns true if keys that are waited for are read apart from requests, as with Redis: what a
    /// request reads is no change for them.
    pub(super) fn reads_waits_apart(&self) -> bool {
        matches!(self.source, Source::Redis)
    }

    /// True if every read is answered at once.
    pub(super) fn is_immediate(&self) -> bool {
        matches!(self.source, Source::Embedded(..))
    }

    /// Has a key [read](Self::read), if its value cannot be read at once.
    pub(super) fn reads_later(&mut self, keys: &mut Keys, key: KeyId) -> bool {
        let is_later = !self.is_immediate();
        if is_later {
            self.read(keys, key);
        }
        is_later
    }

    /// As [`reads_later`](Self::reads_later), for a feed that has joined those who wait for the
    /// key: no lookup that has gone out before tells it anything.
    pub(super) fn reads_for(&mut self, keys: &mut Keys, key: KeyId, feed: FeedId) -> bool {
        if !self.reads_later(keys, key) {
            return false;
        }
        if let Some(record) = keys.get(key) {
            let own = record.lookup.and_then(|lookup| self.table.get(lookup));
            let has_older = record.lookups > u32::from(own.is_some());
            // Redis also brings what was announced before, also while there is no room for its own.
            if has_older
                || self.reads_waits_apart() && (own.is_some() || self.reads.is_put_off(key))
            {
                let first = own.map_or(self.begun + 1, |lookup| lookup.number);
                self.joined.add(key, feed, first);
            }
        }
        true
    }

    /// A lookup of a key has ended, which still counts as one.
    pub(super) fn ended(&mut self, keys: &Keys, lookup: &Lookup, has_failed: bool) -> LookupEnd {
        let is_last = self.is_last_of(keys, lookup.key);
        let joined = &mut self.joined;
        joined.end(lookup.key, lookup.number, is_last, has_failed)
    }

    /// As [`ended`](Self::ended), for a lookup of which nothing that waits for the key is told.
    pub(super) fn ended_aside(&mut self, keys: &Keys, lookup: &Lookup) {
        if self.is_last_of(keys, lookup.key) {
            self.joined.forget(lookup.key);
        }
    }

    /// Returns true if a lookup that ends, and still counts, is the only one of its key, and no
    /// other waits for room.
    fn is_last_of(&self, keys: &Keys, key: KeyId) -> bool {
        let is_only = keys.get(key).is_none_or(|record| record.lookups <= 1);
        is_only && !self.reads.is_put_off(key)
    }

    /// A value of a key has come that is of no lookup; returns the feeds that wait for lookups of
    /// their own, and may not be told.
    pub(super) fn pass_by(&mut self, key: KeyId) -> Vec<FeedId> {
        self.joined.pass_by(key)
    }

    /// Returns true if a key is about to be read, or is to be when there is room.
    pub(super) fn is_read(&self, keys: &Keys, key: KeyId) -> bool {
        self.reads.is_put_off(key) || keys.get(key).is_some_and(|record| record.lookups > 0)
    }

    /// The embedded store's item under `name`; memcached would have to be asked.
    pub(super) fn stored(&self, name: &[u8], now: u32) -> Option<Item> {
        let store = self.store()?;
        self.metrics.store.hot.read(name);
        store.get(name, now)
    }

    /// As [`stored`](Self::stored), for a key with a record.
    pub(super) fn stored_key(&self, keys: &Keys, key: KeyId, now: u32) -> Option<Item> {
        self.stored(&keys.get(key)?.name, now)
    }

    /// As [`stored`](Self::stored), but that a small value is copied over what `copy` has: `Ok`
    /// with its flags.
    pub(super) fn copied(
        &self,
        name: &[u8],
        now: u32,
        copy: &mut Vec<u8>,
    ) -> Option<Result<u32, Item>> {
        let store = self.store()?;
        self.metrics.store.hot.read(name);
        store.read_or_share(name, now, |item| {
            copy.clear();
            copy.extend_from_slice(item.value);
            item.flags
        })
    }

    /// The lookup of a key that goes out when this turn ends, for a request; `None` where there is
    /// no room.
    pub(super) fn ask(&mut self, keys: &mut Keys, key: KeyId) -> Option<LookupId> {
        self.ask_for(keys, key, true)
    }

    /// As [`ask`](Self::ask), where nothing waits for a change next unless `may_wait` says so.
    pub(super) fn ask_for(
        &mut self,
        keys: &mut Keys,
        key: KeyId,
        may_wait: bool,
    ) -> Option<LookupId> {
        if let Some(lookup) = keys.get(key)?.lookup {
            self.expect_wait(lookup, may_wait);
            return Some(lookup);
        }
        let has_room = self.table.len() - self.reads.under_way() < self.asked_max;
        has_room.then(|| self.begin(keys, key, false, may_wait))?
    }

    fn expect_wait(&mut self, lookup: LookupId, may_wait: bool) {
        if let Some(lookup) = self.table.get_mut(lookup) {
            lookup.may_wait |= may_wait;
        }
    }

    /// Has a key read for those who wait for it: when this turn ends, or as soon as there is room.
    pub(super) fn read(&mut self, keys: &mut Keys, key: KeyId) {
        let Some(record) = keys.get(key) else {
            return;
        };
        if let Some(lookup) = record.lookup {
            return self.expect_wait(lookup, true);
        }
        if !self.reads.has_room() {
            (self.reads).put_off(keys, key, |left| self.joined.forget(left));
        } else if self.begin(keys, key, true, true).is_some() {
            self.reads.begin();
        }
    }

    /// Reads a key once more that a poll or a stream begins to wait for without having been
    /// compared with its value, of which others may have been told.
    pub(super) fn begin_uncompared(&mut self, keys: &mut Keys, key: KeyId) {
        keys.begin_uncompared(key);
        if self.reads_waits_apart() {
            self.read(keys, key);
        }
    }

    /// Makes a lookup that goes out when this turn ends.
    fn begin(
        &mut self,
        keys: &mut Keys,
        key: KeyId,
        is_read: bool,
        may_wait: bool,
    ) -> Option<LookupId> {
        let record = keys.get_mut(key)?;
        self.begun += 1;
        let lookup = Lookup {
            key,
            number: self.begun,
            first: None,
            others: Vec::new(),
            is_read,
            may_wait,
        };
        let lookup = self.table.insert(lookup).ok()?;
        record.lookup = Some(lookup);
        record.lookups += 1;
        self.unsent.push(lookup);
        Some(lookup)
    }

    /// Has a poll, or a key of a feed, wait for the answer to a lookup.
    pub(super) fn join(&mut self, lookup: LookupId, member: Packed<LookupMember>) {
        if let Some(lookup) = self.table.get_mut(lookup) {
            lookup.join(member);
        }
    }

    /// Puts an answer of the application into the cache, unless something is there already: what
    /// the application has stored is newer.
    pub(super) fn fill(&mut self, name: &[u8], body: &Bytes, lifetime: Duration, now: u32) {
        let lifetime = u32::try_from(lifetime.as_secs()).unwrap_or(u32::MAX);
        let lifetime = lifetime.min(MONTH_SECONDS);
        if lifetime == 0 {
            return;
        }
        self.metrics.fills.increment();
        match &self.source {
            Source::Embedded(store, _) => {
                let options = StoreOptions {
                    mode: StoreMode::Add,
                    expiry: Expiry::at(now.saturating_add(lifetime)),
                    filled: true,
                    ..StoreOptions::default()
                };
                store.store(name, body, &options, now);
            }
            Source::Memcached | Source::Redis => self.fills.push(Fill {
                name: name.into(),
                body: body.clone(),
                exptime: i64::from(lifetime),
            }),
        }
    }

    /// Takes the lookups that this turn has collected.
    pub(crate) fn take_unsent(&mut self) -> Vec<LookupId> {
        std::mem::take(&mut self.unsent)
    }

    /// Takes the values that memcached is to be given.
    pub(crate) fn take_fills(&mut self) -> Vec<Fill> {
        std::mem::take(&mut self.fills)
    }

    /// True if lookups wait for the end of the turn.
    pub(crate) fn has_unsent(&self) -> bool {
        !self.unsent.is_empty()
    }

    /// True if the end of a turn has left something to be sent.
    pub(super) fn has_left(&self) -> bool {
        self.has_unsent() || !self.fills.is_empty()
    }

    /// True while the lookup has no answer yet.
    pub(super) fn is_open(&self, lookup: LookupId) -> bool {
        self.table.get(lookup).is_some()
    }

    /// True if something may wait for a change of what the lookup finds.
    pub(crate) fn may_wait(&self, lookup: LookupId) -> bool {
        self.table.get(lookup).is_some_and(|lookup| lookup.may_wait)
    }

    /// The name of the key of a lookup that goes out now, which further polls share no more.
    pub(super) fn sent<'k>(&self, keys: &'k mut Keys, lookup: LookupId) -> Option<&'k [u8]> {
        let key = self.table.get(lookup)?.key;
        let record = keys.get_mut(key)?;
        record.lookup = None;
        Some(&record.name)
    }

    /// Ends the lookup that memcached has answered, or failed to; the record of its key stays until
    /// [`leave`](Self::leave), as each of its members may need it.
    pub(super) fn completed(
        &mut self,
        keys: &mut Keys,
        lookup: LookupId,
        completion: &Completion<'_>,
    ) -> Option<Lookup> {
        let lookups = match self.source {
            Source::Redis => &self.metrics.redis_lookups,
            Source::Embedded(..) | Source::Memcached => &self.metrics.memcached_lookups,
        };
        lookups.increment(lookup_outcome(&completion.outcome));
        let lookup = self.table.remove(lookup)?;
        if lookup.is_read {
            self.reads.end();
        }
        if let Some(record) = keys.get_mut(lookup.key) {
            match &completion.outcome {
                Outcome::Hit { cas_unique, .. } => {
                    record.version = Version::new(completion.epoch, *cas_unique);
                }
                // Members that wait now have been compared with nothing, whatever others were
                // compared with: the next sweep reads the value.
                Outcome::Failed(_) => record.version = Version::default(),
                _ => {}
            }
        }
        while let Some(next) = (self.reads).next(keys, |left| self.joined.forget(left)) {
            self.read(keys, next);
        }
        Some(lookup)
    }

    /// Releases the key of a lookup that has ended, unless something else is in progress for it.
    pub(super) fn leave(keys: &mut Keys, key: KeyId) {
        if let Some(record) = keys.get_mut(key) {
            record.lookups = record.lookups.saturating_sub(1);
        }
        keys.release(key);
    }

    /// Begins to ask for the version of every key that is waited for.
    ///
    /// Shape: a sweep of very many keys takes more than its interval; the next one waits for it.
    pub(super) fn sweep(&mut self, keys: &Keys) {
        if self.sweep.is_over() {
            self.metrics.memcached_sweeps.increment();
            self.sweep.begin(keys.waited_keys());
        }
    }

    /// Has keys be asked for again whose versions were put off.
    pub(crate) fn resume_sweep(&mut self) {
        self.sweep.resume();
    }

    /// The next key whose version is to be asked for in this turn.
    pub(crate) fn next_version(&mut self) -> Option<KeyId> {
        self.sweep.next()
    }

    /// Has the version of a key asked for in a later turn: there is no room for the question.
    pub(crate) fn put_off_version(&mut self, key: KeyId) {
        self.sweep.put_off(key);
    }

    /// Reads the value of a key whose version is not the one that its polls were compared with.
    pub(super) fn version_came(
        &mut self,
        keys: &mut Keys,
        key: KeyId,
        completion: &Completion<'_>,
    ) {
        let (Outcome::Version { cas_unique }, Some(record)) = (&completion.outcome, keys.get(key))
        else {
            return;
        };
        let version = record.version;
        #[cfg(feature = "sim")]
        if dwell_evloop::sim::Planted::HintIsRead.is_in() && keys.hinted.remove(&key) {
            if let Some(record) = keys.get_mut(key) {
                record.version = Version::new(completion.epoch, *cas_unique);
            }
            return;
        }
        // A server without cas (-C) says 0 for every version, so each sweep reads the value.
        if version.is(completion.epoch, *cas_unique) {
            return;
        }
        if version.is_after(completion.epoch, *cas_unique) {
            self.went_back = Some(completion.server);
        }
        self.read(keys, key);
    }

    /// Notes a value that was looked up for an explanation.
    pub(super) fn note_found(&mut self, tag: Token, value: Valued) {
        self.found.push((tag, value));
    }

    /// Takes the values that were looked up for explanations.
    pub(crate) fn take_found(&mut self) -> Vec<(Token, Valued)> {
        std::mem::take(&mut self.found)
    }

    /// Takes the server whose versions start over.
    pub(crate) fn take_went_back(&mut self) -> Option<usize> {
        self.went_back.take()
    }
}

#[cfg(any(test, feature = "sim"))]
impl Lookups {
    /// Lookups in progress, reads that were put off, and keys with feeds that have joined.
    pub(super) fn len(&self) -> usize {
        self.table.len() + self.reads.are_put_off() + self.joined.len()
    }
}

#[cfg(test)]
impl Lookups {
    /// True while versions are to be asked for.
    pub(crate) fn is_sweeping(&self) -> bool {
        !self.sweep.is_over()
    }

    /// True if no lookup is in progress.
    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The oldest lookup of a key.
    pub(super) fn first_of(&self, key: KeyId) -> Option<LookupId> {
        let is_it = |lookup: &LookupId| self.table.get(*lookup).is_some_and(|it| it.key == key);
        self.table.tokens().find(is_it)
    }

    /// Loses every lookup in progress, as only a fault could.
    pub(super) fn lose_all(&mut self, keys: &mut Keys) {
        for lookup in self.table.tokens().collect::<Vec<_>>() {
            if let Some(lookup) = self.table.remove(lookup) {
                if lookup.is_read {
                    self.reads.end();
                }
                if let Some(record) = keys.get_mut(lookup.key) {
                    record.lookups = 0;
                }
            }
        }
    }
}

/// The time as the store counts it.
pub(crate) fn seconds(context: &Context) -> u32 {
    dwell_store_server::seconds(context.steady_seconds())
}

/// memcached takes a longer time for a date.
const MONTH_SECONDS: u32 = 30 * 24 * 60 * 60;

/// The label that one lookup counts under.
fn lookup_outcome(outcome: &Outcome<'_>) -> LookupOutcome {
    match outcome {
        Outcome::Hit { .. } | Outcome::Version { .. } | Outcome::Answer(_) => LookupOutcome::Hit,
        Outcome::Miss => LookupOutcome::Miss,
        Outcome::Failed(Failure::Timeout) => LookupOutcome::Timeout,
        Outcome::Failed(Failure::Unavailable) => LookupOutcome::Skipped,
        Outcome::Failed(_) => LookupOutcome::Error,
    }
}

#[cfg(test)]
mod tests;
