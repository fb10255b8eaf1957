//! Misses as they begin: what goes to the upstream, and which polls share it.

use super::Polls;
use super::ask::{Arrival, Ask};
use super::common::{Common, encode};
use super::hold::Keep;
use super::misses::{FetchRequest, FetchSubject, SubFetch};
use super::places::Event;
use super::tables::{KeptRequest, Poll};
use crate::config::RouteId;
use crate::ids::{FetchId, KeyId};
use crate::metrics::PollOutcome;
use crate::responder::{Exchange, Responder};
use dwell_engine::{Http, Outcome};
use dwell_evloop::{Context, Id};
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
}

/// A request that is kept, to be sent for its client alone or as one of several.
pub(super) struct Kept<'a> {
    pub(super) request: &'a KeptRequest,
    /// The target that takes the place of its own, if one does.
    pub(super) target: Option<&'a str>,
    pub(super) ask: &'a Ask,
    pub(super) route: RouteId,
    pub(super) peer: Option<SocketAddr>,
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
        }
    }

    /// Parses its head once more.
    pub(super) fn head<'f>(
        &self,
        storage: &'f mut FieldStorage<'a>,
        limits: &HeadLimits,
    ) -> Option<RequestHead<'f, 'a>> {
        let head = self.request.parse(storage, limits)?;
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

impl Polls {
    /// A poll whose key has no value, as it arrives.
    pub(super) fn miss(
        &mut self,
        context: &mut Context,
        arrival: Arrival<'_>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        // A client that is told to come back must not have been forwarded.
        if self.waiters.polls().is_full() {
            return self.refuse_busy(context, to);
        }
        let Arrival {
            ask, route, name, ..
        } = arrival;
        let missed = Missed {
            name,
            ask: &ask,
            route,
            head: arrival.request.head,
            body: arrival.request.body,
            peer: &|| to.peer_address(),
        };
        let Some(fetch) = self.fetch_for(context.now(), &missed) else {
            return self.refuse_busy(context, to);
        };
        // What is sent as it came is never sent a second time; but a stream takes its key from it
        // once more, and one that waits may be held on.
        let keep = if ask.is_shared(self.routes.get(route)) || ask.is_stream || ask.waits() {
            Keep::Request
        } else {
            Keep::Line
        };
        let poll = self.record(context, &arrival, keep);
        self.place_in_fetch(context, poll, fetch, to.exchange())
    }

    /// A poll that was held, and whose key has no value.
    pub(super) fn miss_later(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: KeyId,
        poll: Poll,
    ) {
        let name = self.waiters.keys.get(key).map(|key| key.name.clone());
        let mut storage = FieldStorage::new();
        let limits = self.head_limits();
        let kept = poll.request.as_deref();
        let kept = kept.and_then(|kept| Some((kept, kept.parse(&mut storage, &limits)?)));
        let Some((kept, head)) = kept else {
            let mut to = Responder::held(http, &poll, &self.responses);
            to.ends(PollOutcome::NotFound);
            return to.text(context, 404, "no such key");
        };
        let fetch = self.fetch_for(
            context.now(),
            &Missed {
                name: name.as_deref().unwrap_or_default(),
                ask: &poll.ask,
                route: poll.route,
                head: &head,
                body: kept.body(),
                peer: &|| http.peer_address(poll.exchange),
            },
        );
        let Some(fetch) = fetch else {
            let mut to = Responder::held(http, &poll, &self.responses);
            self.refuse_busy(context, &mut to);
            return;
        };
        let exchange = Exchange::Held(http, poll.exchange);
        self.place_in_fetch(context, poll, fetch, exchange);
    }

    /// The fetch that brings an answer for a request: from memory, under way, or begun; `None`
    /// where there is no room.
    pub(super) fn fetch_for(&mut self, now: Instant, missed: &Missed<'_>) -> Option<FetchId> {
        let (name, route) = (missed.name, missed.route);
        let common = self.common_of(missed.head, missed.ask, route);
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

    /// The fetch under way from which the application gets the same, or another one.
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

    /// Puts a poll among those that a fetch answers.
    fn place_in_fetch(
        &mut self,
        context: &mut Context,
        mut poll: Poll,
        fetch: FetchId,
        mut exchange: Exchange<'_, '_>,
    ) -> Outcome {
        poll.place.moves(Event::Missing, fetch);
        match self.waiters.insert(poll) {
            Ok(token) => {
                self.misses.join(fetch, token.into());
                exchange.hold(context, token.to_bits(), self.owed_time())
            }
            // There is room: it was looked for, or the poll was taken out a moment ago.
            Err(poll) => {
                let mut to = Responder::of(exchange, &poll, &self.responses);
                self.refuse_busy(context, &mut to)
            }
        }
    }

    /// The properties that a request has if it is shared.
    pub(super) fn common_of(
        &self,
        head: &RequestHead<'_, '_>,
        ask: &Ask,
        route: RouteId,
    ) -> Common {
        let rules = self.routes.get(route);
        Common::of(rules, head, wants(ask), ask, self.misses.hasher())
    }

    /// The request that the application gets: for all who ask the same, or as it came.
    pub(super) fn encode(&self, missed: &Missed<'_>, is_shared: bool) -> FetchRequest {
        let Missed { ask, head, .. } = *missed;
        let shared_on = is_shared.then(|| &*self.routes.get(missed.route).options);
        let peer = (missed.peer)();
        let body = missed.body;
        FetchRequest {
            bytes: encode(
                &self.config,
                shared_on,
                head,
                body,
                peer,
                wants(ask),
                ask.form.is_secure(),
            ),
            is_head: head.method == "HEAD",
            is_idempotent: is_idempotent(head.method),
            client: self.gate.client_of(head, peer),
        }
    }

    /// Limits for parsing a kept request again: it was within them before.
    pub(super) fn head_limits(&self) -> HeadLimits {
        HeadLimits {
            head_bytes_max: self.config.limits.head_bytes_max,
            target_bytes_max: self.config.limits.target_bytes_max,
            field_count_max: self.config.limits.header_count_max,
        }
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
