//! Misses as they begin: what goes to the upstream, and which polls share it.

use super::ask::{Ask, Method};
use super::common::{Common, Origin, encode};
use super::kept_request::KeptRequest;
use super::misses::{FetchRequest, FetchSubject, Misses, SubFetch};
use super::tables::Poll;
use super::waiters::Waiters;
use crate::access::{Gate, sent_certificate};
use crate::config::{Config, RouteId, Routes};
use crate::ids::FetchId;
use dwell_engine::ClientNames;
use dwell_proto::http1::{FieldStorage, HeadLimits, RequestHead};
use dwell_upstream::{Wants, is_idempotent};
use std::net::SocketAddr;
use std::time::Instant;

/// A request whose key has no value.
pub(super) struct Missed<'a> {
    pub(super) name: &'a [u8],
    pub(super) ask: &'a Ask,
    pub(super) route: RouteId,
    pub(super) head: &'a RequestHead<'a, 'a>,
    pub(super) body: &'a [u8],
    /// The client's address, asked of the system.
    pub(super) peer: &'a dyn Fn() -> Option<SocketAddr>,
    /// Its client, as far as its connection knows it; read if the request is its own.
    pub(super) client: &'a dyn Fn() -> Option<ClientNames>,
}

/// A request that is kept, to be sent for its client alone or as one of several.
pub(super) struct Kept<'a> {
    pub(super) request: &'a KeptRequest,
    /// The target that takes the place of its own, if one does.
    pub(super) target: Option<&'a str>,
    pub(super) ask: &'a Ask,
    pub(super) route: RouteId,
    pub(super) peer: Option<SocketAddr>,
    pub(super) client: Option<ClientNames>,
}

impl<'a> Kept<'a> {
    /// The request that a poll of the key alone would be.
    pub(super) fn of_key(sub_fetch: &'a SubFetch) -> Self {
        let SubFetch {
            request, target, ..
        } = sub_fetch;
        Self {
            request: &request.kept,
            target: target.as_deref(),
            ask: &request.ask,
            route: request.route,
            peer: request.peer,
            client: request.client.clone(),
        }
    }

    /// Parses its head once more.
    pub(super) fn head<'f>(
        &self,
        storage: &'f mut FieldStorage<'a>,
        limits: &HeadLimits,
    ) -> Option<RequestHead<'f, 'a>> {
        let head = self.request.parse(storage, limits)?;
        // What stands for a key is its value, which no answer to a HEAD has.
        let is_for_value = self.ask.method == Method::Get && head.method == "HEAD";
        let method = if is_for_value { "GET" } else { head.method };
        let head = RequestHead { method, ..head };
        let Some(target) = self.target else {
            return Some(head);
        };
        Some(RequestHead {
            target,
            authority: None,
            path: target.split('?').next().unwrap_or_default(),
            query: target.split_once('?').map(|(_, query)| query),
            ..head
        })
    }
}

/// Requests to the application for polls, with the parts of the loop that they touch: no client is
/// answered by them, and the cache is not read.
pub(crate) struct Fetching<'a> {
    pub(super) config: &'a Config,
    pub(super) routes: &'a Routes,
    pub(super) gate: &'a Gate,
    pub(super) misses: &'a mut Misses,
    pub(super) waiters: &'a mut Waiters,
}

impl Fetching<'_> {
    /// The fetch that brings an answer for a request: from memory, in progress, or begun; `None`
    /// where there is no room.
    pub(super) fn fetch_for(&mut self, now: Instant, missed: &Missed<'_>) -> Option<FetchId> {
        let (name, route) = (missed.name, missed.route);
        let common = common_of(self.routes, self.misses, missed.head, missed.ask, route);
        let is_shared = missed.ask.is_shared(self.routes.get(route));
        if !is_shared {
            return self.begin_fetch(missed, common, is_shared);
        }
        let rules = self.routes.get(route);
        let subject = FetchSubject {
            name,
            route,
            common,
        };
        match self.misses.cached(rules, name, common.variant, now) {
            None => self.begin_fetch(missed, common, is_shared),
            Some(outcome) => {
                if outcome.is_for_renewal() {
                    self.begin_fetch(missed, common, is_shared);
                }
                self.misses.open_cached(outcome, subject)
            }
        }
    }

    /// The fetch in progress from which the application gets the same, or another one.
    fn begin_fetch(
        &mut self,
        missed: &Missed<'_>,
        common: Common,
        is_shared: bool,
    ) -> Option<FetchId> {
        let keys = &mut self.waiters.keys;
        // Without room no record is made, so none has to be released that a caller still uses.
        let key = match is_shared {
            false => None,
            true if self.misses.is_full() => keys.find(missed.name),
            true => keys.enter(missed.name),
        };
        let under_way = self.misses.find(keys, key, common.variant);
        if under_way.is_some() || self.misses.is_full() {
            return under_way;
        }
        let request = self.encode(missed, key.is_some());
        let subject = FetchSubject {
            name: missed.name,
            route: missed.route,
            common,
        };
        self.misses
            .open(&mut self.waiters.keys, key, subject, request)
    }

    /// The request that the application gets: for all who ask the same, or as it came.
    pub(super) fn encode(&self, missed: &Missed<'_>, is_shared: bool) -> FetchRequest {
        let Missed { ask, head, .. } = *missed;
        let shared_on = is_shared.then(|| &*self.routes.get(missed.route).options);
        let peer = (missed.peer)();
        let client = if is_shared { None } else { (missed.client)() };
        let origin = Origin {
            peer,
            is_secure: ask.form.is_secure(),
            certificate: sent_certificate(self.config, client.as_ref(), || peer),
        };
        FetchRequest {
            bytes: encode(
                self.config,
                shared_on,
                head,
                missed.body,
                origin,
                wants(ask),
            ),
            is_head: head.method == "HEAD",
            is_idempotent: is_idempotent(head.method),
            client: self.gate.client_of(head, peer),
        }
    }
}

/// The properties that a request has if it is shared.
pub(super) fn common_of(
    routes: &Routes,
    misses: &Misses,
    head: &RequestHead<'_, '_>,
    ask: &Ask,
    route: RouteId,
) -> Common {
    let rules = routes.get(route);
    Common::of(rules, head, wants(ask), ask, misses.hasher())
}

/// The digest of the request of a poll; 0 where that is not kept.
pub(super) fn digest_of(config: &Config, routes: &Routes, misses: &Misses, poll: &Poll) -> u64 {
    let mut storage = FieldStorage::new();
    let kept = poll.request.as_deref();
    let head = kept.and_then(|kept| kept.parse(&mut storage, &head_limits(config)));
    head.map_or(0, |head| {
        let common = common_of(routes, misses, &head, &poll.ask, poll.route);
        common.variant.digest
    })
}

/// Limits for parsing a kept request again: it was within them before.
pub(super) fn head_limits(config: &Config) -> HeadLimits {
    HeadLimits {
        head_bytes_max: config.limits.head_bytes_max,
        target_bytes_max: config.limits.target_bytes_max,
        field_count_max: config.limits.header_count_max,
    }
}

/// The kind of response that the application is asked for.
pub(super) fn wants(ask: &Ask) -> Wants {
    if ask.is_stream {
        Wants::OneValue
    } else {
        Wants::AsAsked
    }
}
