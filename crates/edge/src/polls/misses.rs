//! Misses: what the application is asked for, and what is remembered of its answers.
//!
//! A [`Fetch`] is one request for the application and the polls that share its answer: on this
//! loop, and, by the [`Memory`] of the process, on the others. Nothing here sends: the driver takes
//! what a turn has collected.

mod joins;
pub(super) mod memory;
mod remembered;
mod sub_fetch;

pub(crate) use joins::Join;
pub(super) use memory::StaleValue;
pub(crate) use memory::{CachedOutcome, LoopFetch, Memory, UpstreamResult};
pub(super) use sub_fetch::{FetchedValue, OriginRequest, SubFetch};

use super::common::{Common, Variant};
use super::sharing::Owner;
use super::tables::Keys;
use crate::config::{Rooms, RouteConfig, RouteId};
use crate::ids::{FetchId, FetchMember, KeyId, Packed, Requested, SubFetchId};
use crate::metrics::{LoopMetrics, UpstreamOutcome};
use bytes::Bytes;
use dwell_evloop::Slab;
use joins::Joins;
use memory::Role;
use std::hash::RandomState;
use std::net::IpAddr;
use std::sync::Arc;

/// The requests of one loop for the application.
#[derive(Debug)]
pub(crate) struct Misses {
    metrics: Arc<LoopMetrics>,
    /// The memory that all loops share.
    memory: Arc<Memory>,
    /// The index of this loop.
    of_loop: usize,
    keeps_last_known: bool,
    fetches: Slab<Fetch, FetchId>,
    /// Keys of feeds and of polls of several keys that the application is asked for.
    sub_fetches: Slab<SubFetch, SubFetchId>,
    /// Fetches whose requests other loops have sent.
    following: usize,
    requests: Vec<(Requested, FetchRequest)>,
    /// Substitutes for requests, by the tokens of their fetches.
    cached: Vec<(FetchId, CachedOutcome)>,
    joins: Joins,
    results: Vec<FlightResult>,
}

/// One request for the application, and what shares its answer.
#[derive(Debug)]
pub(super) struct Fetch {
    /// The key whose misses share it, if they do.
    pub(super) key: Option<KeyId>,
    /// The name of the key it is for.
    pub(super) name: Box<[u8]>,
    /// The route of the poll that began it.
    pub(super) route: RouteId,
    /// Polls from which the application would get something else ask for themselves.
    pub(super) common: Common,
    /// The first is the one whose request was sent, if this loop has sent it.
    pub(super) members: Vec<Packed<FetchMember>>,
    /// The queue whose next member asks when this fetch has ended.
    pub(super) queue: Option<FetchId>,
    /// The next one for the same key.
    next: Option<FetchId>,
    origin: FetchOrigin,
}

/// The origin of the answer of a fetch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FetchOrigin {
    /// A request of this loop.
    Own,
    /// The request of another loop, by its fetch there.
    Loop(LoopFetch),
    /// The memory of the process.
    Memory,
}

/// The result of a request, for another loop that follows it.
#[derive(Debug)]
pub(crate) struct FlightResult {
    pub(crate) follower: LoopFetch,
    /// `None` where it has to ask for itself.
    pub(crate) result: Option<UpstreamResult>,
}

/// One request for the upstream.
#[derive(Debug)]
pub(crate) struct FetchRequest {
    pub(crate) bytes: Bytes,
    pub(crate) is_head: bool,
    pub(crate) is_idempotent: bool,
    /// The client of the request, where clients can be told apart.
    pub(crate) client: Option<IpAddr>,
}

/// A member of a queue that asks for itself next.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) member: Packed<FetchMember>,
    pub(super) name: Box<[u8]>,
    pub(super) route: RouteId,
    queue: FetchId,
}

/// The part of a request that its fetch is named and shared by.
#[derive(Clone, Copy, Debug)]
pub(super) struct FetchSubject<'n> {
    pub(super) name: &'n [u8],
    pub(super) route: RouteId,
    pub(super) common: Common,
}

impl Fetch {
    /// A fetch without members, which others do not share yet.
    fn new(subject: FetchSubject<'_>) -> Self {
        Self {
            key: None,
            name: subject.name.into(),
            route: subject.route,
            common: subject.common,
            members: Vec::new(),
            queue: None,
            next: None,
            origin: FetchOrigin::Own,
        }
    }

    fn subject(&self) -> FetchSubject<'_> {
        FetchSubject {
            name: &self.name,
            route: self.route,
            common: self.common,
        }
    }

    /// True if this loop has sent its request.
    pub(super) fn is_own(&self) -> bool {
        self.origin == FetchOrigin::Own
    }

    /// True if this loop has sent its request, for all that miss the key.
    pub(super) fn is_led(&self) -> bool {
        self.key.is_some() && self.is_own()
    }
}

impl Misses {
    /// Makes room for a fetch of each exchange, and for each wait a key that is asked for beside
    /// polls.
    pub(super) fn new(
        metrics: Arc<LoopMetrics>,
        memory: Arc<Memory>,
        of_loop: usize,
        routes: &[Arc<RouteConfig>],
        rooms: Rooms,
    ) -> Self {
        let mut misses = Self {
            metrics,
            memory,
            of_loop,
            keeps_last_known: false,
            fetches: FetchId::slab(rooms.held_max),
            sub_fetches: SubFetchId::slab(rooms.waiting_max),
            following: 0,
            requests: Vec::new(),
            cached: Vec::new(),
            joins: Joins::default(),
            results: Vec::new(),
        };
        misses.reconfigure(routes, rooms);
        misses
    }

    /// Goes by other routes and limits from now on.
    pub(super) fn reconfigure(&mut self, routes: &[Arc<RouteConfig>], rooms: Rooms) {
        let mut routes = routes.iter();
        let is_given = routes.any(|route| !route.stale_if_error.is_zero());
        self.keeps_last_known = self.memory.keeps_values() && is_given;
        self.fetches.set_capacity_max(rooms.held_max);
        self.sub_fetches.set_capacity_max(rooms.waiting_max);
    }

    /// Routes that anything is asked for under, some more than once.
    pub(super) fn routes(&self) -> impl Iterator<Item = RouteId> {
        let fetches = self.fetches.values().map(|fetch| fetch.route);
        let sub_fetches = self.sub_fetches.values();
        fetches.chain(sub_fetches.map(|sub_fetch| sub_fetch.request.route))
    }

    /// The index of this loop among those of the process.
    pub(super) fn of_loop(&self) -> usize {
        self.of_loop
    }

    /// The hasher by which requests to the application are told apart.
    pub(super) fn hasher(&self) -> &RandomState {
        self.memory.hasher()
    }

    /// The fetch in progress for `key` from which the application gets the same.
    pub(super) fn find(
        &self,
        keys: &Keys,
        key: Option<KeyId>,
        variant: Variant,
    ) -> Option<FetchId> {
        let mut next = keys.get(key?)?.fetch;
        while let Some(token) = next {
            let fetch = self.fetches.get(token)?;
            if fetch.common.variant == variant {
                return Some(token);
            }
            next = fetch.next;
        }
        None
    }

    /// Begins a fetch, which the misses of `key` share. Its request goes out when the turn ends,
    /// unless another loop has sent one; `None` where there is no room.
    pub(super) fn open(
        &mut self,
        keys: &mut Keys,
        key: Option<KeyId>,
        subject: FetchSubject<'_>,
        request: FetchRequest,
    ) -> Option<FetchId> {
        let mut record = key.and_then(|key| keys.get_mut(key));
        let next = record.as_ref().and_then(|record| record.fetch);
        let fetch = Fetch {
            key,
            next,
            ..Fetch::new(subject)
        };
        let token = self.fetches.insert(fetch).ok()?;
        if let Some(record) = &mut record {
            record.fetch = Some(token);
            let fetch = LoopFetch {
                of_loop: self.of_loop,
                fetch: token,
            };
            if let Role::Follower(leader) =
                self.memory
                    .begin(subject.name, subject.common.variant, fetch)
            {
                self.follow(token, leader);
                return Some(token);
            }
        }
        self.requests.push((token.into(), request));
        Some(token)
    }

    fn follow(&mut self, token: FetchId, leader: LoopFetch) {
        self.following += 1;
        self.metrics
            .upstream_requests
            .increment(UpstreamOutcome::Coalesced);
        if let Some(fetch) = self.fetches.get_mut(token) {
            fetch.origin = FetchOrigin::Loop(leader);
        }
    }

    /// Begins a fetch that ends from memory, when the turn ends.
    pub(super) fn open_cached(
        &mut self,
        outcome: CachedOutcome,
        subject: FetchSubject<'_>,
    ) -> Option<FetchId> {
        let fetch = Fetch {
            origin: FetchOrigin::Memory,
            ..Fetch::new(subject)
        };
        let token = self.fetches.insert(fetch).ok()?;
        self.metrics.upstream_requests.increment(match outcome {
            CachedOutcome::Result(_) => UpstreamOutcome::Remembered,
            CachedOutcome::Stale(_) => UpstreamOutcome::Revalidated,
        });
        self.cached.push((token, outcome));
        Some(token)
    }

    /// Sends a request of another owner of fetches when the turn ends.
    pub(super) fn send(&mut self, to: Requested, request: FetchRequest) {
        self.requests.push((to, request));
    }

    /// Has a poll, or a key that is asked for, share the answer of a fetch.
    pub(super) fn join(&mut self, token: FetchId, member: Packed<FetchMember>) {
        if let Some(fetch) = self.fetches.get_mut(token) {
            if !fetch.members.is_empty() {
                self.metrics
                    .upstream_requests
                    .increment(UpstreamOutcome::Coalesced);
            }
            fetch.members.push(member);
            self.joins.note(token, fetch, member);
        }
    }

    /// True while there is no room for another fetch.
    pub(super) fn is_full(&self) -> bool {
        self.fetches.is_full()
    }

    /// The route of the poll that began a fetch.
    pub(super) fn route_of(&self, fetch: FetchId) -> Option<RouteId> {
        Some(self.fetches.get(fetch)?.route)
    }

    /// True while a fetch has not ended.
    pub(super) fn is_open(&self, fetch: FetchId) -> bool {
        self.fetches.get(fetch).is_some()
    }

    /// Ends a fetch: no poll joins it any more.
    pub(super) fn close(&mut self, keys: &mut Keys, token: FetchId) -> Option<Fetch> {
        let fetch = self.fetches.remove(token)?;
        self.following -= usize::from(matches!(fetch.origin, FetchOrigin::Loop(_)));
        let Some(record) = fetch.key.and_then(|key| keys.get_mut(key)) else {
            return Some(fetch);
        };
        let mut link = &mut record.fetch;
        while *link != Some(token) {
            let before = link.and_then(|before| self.fetches.get_mut(before));
            let Some(before) = before else {
                return Some(fetch);
            };
            link = &mut before.next;
        }
        *link = fetch.next;
        Some(fetch)
    }

    /// Gives its result to the loops that follow a fetch of this one; without a result, or if it is
    /// not for all, they ask for themselves.
    pub(super) fn end_flight(&mut self, fetch: &Fetch, result: Option<&UpstreamResult>) {
        if !fetch.is_led() {
            return;
        }
        let is_plain = fetch.common.is_plain;
        let result = result.filter(|result| Owner::of(result, is_plain) == Owner::All);
        for follower in self.memory.end(&fetch.name, fetch.common.variant) {
            let result = result.cloned();
            self.results.push(FlightResult { follower, result });
        }
    }

    /// Fetches that follow loops which ask no more: a word was lost, or a loop has ended.
    pub(super) fn lost(&self) -> Vec<FetchId> {
        let is_lost = |fetch: &Fetch| {
            let follows = matches!(fetch.origin, FetchOrigin::Loop(_));
            follows && !self.memory.is_asked(&fetch.name, fetch.common.variant)
        };
        let tokens = self.fetches.tokens();
        tokens
            .filter(|token| self.fetches.get(*token).is_some_and(is_lost))
            .collect()
    }

    /// Ends the flights of a loop that ends: no other is to wait for its requests.
    pub(crate) fn give_up_flights(&self) {
        for fetch in self.fetches.values().filter(|fetch| fetch.is_led()) {
            self.memory.end(&fetch.name, fetch.common.variant);
        }
    }

    /// Makes a queue of members of a fetch, each of which asks for itself, in this order.
    pub(super) fn open_queue(
        &mut self,
        fetch: &Fetch,
        members: &[Packed<FetchMember>],
    ) -> Option<FetchId> {
        let queue = Fetch {
            members: members.iter().rev().copied().collect(),
            ..Fetch::new(fetch.subject())
        };
        self.fetches.insert(queue).ok()
    }

    /// Takes the next member out of a queue, which ends with its last.
    pub(super) fn take_queued(&mut self, queue: FetchId) -> Option<Queued> {
        let waiting = self.fetches.get_mut(queue)?;
        let member = waiting.members.pop();
        let (name, route) = (waiting.name.clone(), waiting.route);
        if waiting.members.is_empty() {
            self.fetches.remove(queue);
        }
        Some(Queued {
            member: member?,
            name,
            route,
            queue,
        })
    }

    /// Begins the fetch of one member of a queue alone.
    pub(super) fn open_queued(
        &mut self,
        queued: &Queued,
        common: Common,
        request: FetchRequest,
    ) -> Option<FetchId> {
        let subject = FetchSubject {
            name: &queued.name,
            route: queued.route,
            common,
        };
        let fetch = Fetch {
            members: vec![queued.member],
            queue: Some(queued.queue),
            ..Fetch::new(subject)
        };
        let token = self.fetches.insert(fetch).ok()?;
        self.requests.push((token.into(), request));
        Some(token)
    }

    /// True if one more key can be asked for beside polls.
    pub(super) fn has_room(&self) -> bool {
        !self.sub_fetches.is_full()
    }

    /// Keeps a key that is asked for, or looked up first; `None` where there is no room.
    pub(super) fn keep(&mut self, sub_fetch: SubFetch) -> Option<SubFetchId> {
        self.sub_fetches.insert(sub_fetch).ok()
    }

    /// A key that is asked for beside polls.
    pub(super) fn sub_fetch(&self, token: SubFetchId) -> Option<&SubFetch> {
        self.sub_fetches.get(token)
    }

    /// Takes a key that is asked for out of its table.
    pub(super) fn take_sub_fetch(&mut self, token: SubFetchId) -> Option<SubFetch> {
        self.sub_fetches.remove(token)
    }

    /// Takes the requests that this turn has collected, by the tokens of their fetches.
    pub(crate) fn take_requests(&mut self) -> Vec<(Requested, FetchRequest)> {
        std::mem::take(&mut self.requests)
    }

    /// Takes the substitutes for requests of this turn, by the tokens of their fetches.
    pub(crate) fn take_cached(&mut self) -> Vec<(FetchId, CachedOutcome)> {
        std::mem::take(&mut self.cached)
    }

    /// True if substitutes for requests have not been taken yet.
    pub(crate) fn has_cached(&self) -> bool {
        !self.cached.is_empty()
    }

    /// Takes the members that have joined requests which may still wait for a connection.
    pub(crate) fn take_joins(&mut self) -> Joins {
        std::mem::take(&mut self.joins)
    }

    /// Takes the results that other loops wait for.
    pub(crate) fn take_flight_results(&mut self) -> Vec<FlightResult> {
        std::mem::take(&mut self.results)
    }

    /// True if the end of a turn has left something to be sent.
    pub(super) fn has_left(&self) -> bool {
        !self.requests.is_empty() || self.has_cached() || !self.results.is_empty()
    }

    /// Requests that other loops send.
    pub(crate) fn following(&self) -> usize {
        self.following
    }
}

#[cfg(any(test, feature = "sim"))]
impl Misses {
    /// Fetches in progress.
    pub(super) fn fetches(&self) -> usize {
        self.fetches.len()
    }

    /// Keys that are asked for beside polls.
    pub(super) fn sub_fetches(&self) -> usize {
        self.sub_fetches.len()
    }
}

#[cfg(test)]
impl Misses {
    /// The first fetch of the table.
    pub(super) fn first(&self) -> Option<FetchId> {
        self.fetches.tokens().next()
    }

    /// The memory that all loops share.
    pub(super) fn memory(&self) -> &Memory {
        &self.memory
    }

    /// Loses everything in progress, as only a fault could.
    pub(super) fn lose_all(&mut self, keys: &mut Keys) {
        for fetch in self.fetches.tokens().collect::<Vec<_>>() {
            self.close(keys, fetch);
        }
        for sub_fetch in self.sub_fetches.tokens().collect::<Vec<_>>() {
            self.sub_fetches.remove(sub_fetch);
        }
    }
}

#[cfg(test)]
mod tests;
