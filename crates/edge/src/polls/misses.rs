//! Misses: what the application is asked for, and what is remembered of its answers.
//!
//! A [`Fetch`] is one request for the application and the polls that share its answer: on this
//! loop, and, by the [`Memory`] of the process, on the others. Nothing here sends: the driver takes
//! what a turn has collected.

mod joins;
mod memory;
mod sub_fetch;

pub(crate) use joins::Join;
pub(crate) use memory::{CachedOutcome, LoopFetch, Memory, UpstreamResult};
pub(super) use memory::{NewValue, Role, StaleValue};
pub(super) use sub_fetch::{FetchedValue, OriginRequest, SubFetch};

use super::common::Common;
use super::tables::{Fetch, kind};
use crate::config::{RouteConfig, RouteId};
use crate::metrics::{LoopMetrics, UpstreamOutcome};
use bytes::Bytes;
use dwell_evloop::{Slab, Token};
use joins::Joins;
use std::net::IpAddr;
use std::sync::Arc;

/// The requests of one loop for the application.
#[derive(Debug)]
pub(crate) struct Misses {
    metrics: Arc<LoopMetrics>,
    /// The memory that all loops share.
    pub(super) memory: Arc<Memory>,
    /// The index of this loop.
    pub(super) of_loop: usize,
    pub(super) keeps_last_known: bool,
    pub(super) fetches: Slab<Fetch>,
    /// Keys of feeds and of polls of several keys that the application is asked for.
    pub(super) missing: Slab<SubFetch>,
    /// Fetches whose requests other loops have sent.
    pub(super) following: usize,
    pub(super) requests: Vec<FetchRequest>,
    pub(super) recalled: Vec<(Token, CachedOutcome)>,
    joins: Joins,
    pub(super) told: Vec<FlightResult>,
}

/// The result of a request, for another loop that follows it.
#[derive(Debug)]
pub(crate) struct FlightResult {
    pub(crate) follower: LoopFetch,
    /// `None` where it has to ask for itself.
    pub(crate) verdict: Option<UpstreamResult>,
}

/// One request for the upstream, by the token of its fetch.
#[derive(Debug)]
pub(crate) struct FetchRequest {
    pub(crate) fetch: Token,
    /// Its properties as a shared request.
    pub(crate) common: Common,
    pub(crate) bytes: Bytes,
    pub(crate) is_head: bool,
    pub(crate) is_idempotent: bool,
    /// The client of the request, where clients can be told apart.
    pub(crate) client: Option<IpAddr>,
}

impl Misses {
    /// Makes room for so many fetches, and for so many keys that are asked for beside polls.
    pub(super) fn new(
        metrics: Arc<LoopMetrics>,
        memory: Arc<Memory>,
        of_loop: usize,
        routes: &[Arc<RouteConfig>],
        (fetches_max, missing_max): (usize, usize),
    ) -> Self {
        let mut misses = Self {
            metrics,
            memory,
            of_loop,
            keeps_last_known: false,
            fetches: Slab::new(kind::FETCH, fetches_max),
            missing: Slab::new(kind::MISSING, missing_max),
            following: 0,
            requests: Vec::new(),
            recalled: Vec::new(),
            joins: Joins::default(),
            told: Vec::new(),
        };
        misses.reconfigure(routes, (fetches_max, missing_max));
        misses
    }

    /// Goes by other routes and limits from now on.
    pub(super) fn reconfigure(
        &mut self,
        routes: &[Arc<RouteConfig>],
        (fetches_max, missing_max): (usize, usize),
    ) {
        self.keeps_last_known = self.memory.keeps_values() && keeps_last_known(routes);
        self.fetches.set_capacity_max(fetches_max);
        self.missing.set_capacity_max(missing_max);
    }

    /// Routes that anything is asked for under, some more than once.
    pub(super) fn routes(&self) -> impl Iterator<Item = RouteId> {
        let fetches = self.fetches.values().map(|fetch| fetch.route);
        let missing = self.missing.values();
        fetches.chain(missing.map(|missing| missing.behalf.route))
    }

    /// Has a poll, or a key that is asked for, share the answer of a fetch.
    pub(super) fn join(&mut self, token: Token, member: Token) {
        if let Some(fetch) = self.fetches.get_mut(token) {
            if !fetch.polls.is_empty() {
                self.metrics
                    .upstream_requests
                    .increment(UpstreamOutcome::Coalesced);
            }
            fetch.polls.push(member);
            self.joins.note(token, fetch, member);
        }
    }

    /// Takes the requests that this turn has collected.
    pub(crate) fn take_requests(&mut self) -> Vec<FetchRequest> {
        std::mem::take(&mut self.requests)
    }

    /// Takes what stands for requests in this turn, by the tokens of their fetches.
    pub(crate) fn take_recalled(&mut self) -> Vec<(Token, CachedOutcome)> {
        std::mem::take(&mut self.recalled)
    }

    /// True if something stands for requests that have not been taken yet.
    pub(crate) fn has_recalled(&self) -> bool {
        !self.recalled.is_empty()
    }

    /// Takes the polls that have joined requests which may still wait for a connection.
    pub(crate) fn take_joins(&mut self) -> Joins {
        std::mem::take(&mut self.joins)
    }

    /// Takes the results that other loops wait for.
    pub(crate) fn take_flight_results(&mut self) -> Vec<FlightResult> {
        std::mem::take(&mut self.told)
    }

    /// True if the end of a turn has left something to be sent.
    pub(super) fn has_left(&self) -> bool {
        !self.requests.is_empty() || self.has_recalled() || !self.told.is_empty()
    }

    /// Requests that other loops send.
    pub(crate) fn following(&self) -> usize {
        self.following
    }
}

/// True if any route would have values given when there is no newer one.
fn keeps_last_known(routes: &[Arc<RouteConfig>]) -> bool {
    routes.iter().any(|route| !route.stale_if_error.is_zero())
}
