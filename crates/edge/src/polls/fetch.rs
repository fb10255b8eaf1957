//! Misses: what goes to the upstream, and who gets its answer.

use super::admitted::Arrival;
use super::answers::{self, FETCHED};
use super::ask::{Ask, Method};
use super::common::{Common, Variant, encode};
use super::feeds::Known;
use super::hold::Keep;
use super::large::TooLarge;
use super::misses::{Role, UpstreamResult};
use super::recall::{Origin, stands_for};
use super::responder::Responder;
use super::sharing::is_shared;
use super::tables::{Fetch, KeptRequest, Link, Poll, kind};
use super::{FetchRequest, Polls};
use crate::config::RouteId;
use crate::cursor::{Cursor, CursorText};
use crate::held::hold;
use crate::metrics::{PollOutcome, UpstreamOutcome};
use dwell_engine::{Body, Http, Outcome, Request, Response};
use dwell_evloop::{Context, Token};
use dwell_proto::http1::{FieldStorage, HeadLimits, RequestHead, parse_request};
use dwell_upstream::{Answer, UpstreamError, UpstreamEvent, Wants, is_idempotent};
use std::net::SocketAddr;

/// The `Cache-Status` of the further answers of a fetch.
const COLLAPSED: &[u8] = b"dwell; fwd=miss; collapsed";
/// The `Cache-Status` of a fetch that was not sent, as the last one came to this a moment ago.
const REMEMBERED: &[u8] = b"dwell; hit; detail=negative";

impl Polls {
    /// A poll whose key has no value, as it arrives.
    pub(super) fn miss(
        &mut self,
        context: &mut Context,
        arrival: Arrival<'_>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        let shared = self.is_shared(&arrival.ask, arrival.route);
        let variant = self
            .common_of(arrival.request.head, &arrival.ask, arrival.route)
            .variant;
        if shared && let Some(recall) = self.recall_for(context, &arrival, variant) {
            return self.recall_arrival(context, arrival, recall, to);
        }
        let key = if shared {
            self.waiters.keys.enter(arrival.name)
        } else {
            None
        };
        match self.under_way(key, variant) {
            None => self.start_fetch(context, arrival, key, to),
            Some(fetch) => {
                let poll = self.record(context, &arrival, fetch, Keep::Request);
                let joined = self.waiters.insert(poll).ok();
                if let Some(poll) = joined {
                    self.misses.join(fetch, poll);
                }
                self.hold_or_refuse(context, joined, to)
            }
        }
    }

    /// A poll that was held, and whose key has no value.
    pub(super) fn miss_later(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: Token,
        poll: Poll,
    ) {
        let name = self.waiters.keys.get(key).map(|key| key.name.clone());
        let name = name.as_deref().unwrap_or_default();
        let key = self.is_shared(&poll.ask, poll.route).then_some(key);
        let common = self.common_of_kept(&poll);
        if key.is_some()
            && let Some(recall) = self.recall(context.now(), name, common.variant, poll.route)
        {
            return self.recall_later(context, http, name, poll, recall);
        }
        match self.under_way(key, common.variant) {
            None => self.send_kept(context, http, key, name, poll),
            Some(fetch) => self.place_in_fetch(context, http, fetch, poll),
        }
    }

    /// The request under way for `key` from which the application gets the same.
    pub(super) fn under_way(&self, key: Option<Token>, variant: Variant) -> Option<Token> {
        let mut next = self.waiters.keys.get(key?)?.fetch;
        while let Some(token) = next.token() {
            let fetch = self.misses.fetches.get(token)?;
            if fetch.common.variant == variant {
                return Some(token);
            }
            next = fetch.next;
        }
        None
    }

    /// The properties that a request has if it is shared.
    pub(super) fn common_of(
        &self,
        head: &RequestHead<'_, '_>,
        ask: &Ask,
        route: RouteId,
    ) -> Common {
        let rules = self.route(route);
        Common::of(
            rules,
            head,
            wants(ask),
            ask.method,
            self.misses.memory.hasher(),
        )
    }

    pub(super) fn common_of_kept(&self, poll: &Poll) -> Common {
        let mut storage = FieldStorage::new();
        let kept = poll.request.as_deref().map(KeptRequest::head);
        let head = kept.map(|head| parse_request(head, &mut storage, &self.head_limits()));
        match head {
            Some(Ok(head)) => self.common_of(&head, &poll.ask, poll.route),
            _ => Common::nobodys(poll.ask.method),
        }
    }

    /// Sends the kept request of a poll to the upstream.
    pub(super) fn send_kept(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: Option<Token>,
        name: &[u8],
        poll: Poll,
    ) {
        let peer = http.peer_address(poll.exchange);
        let encoded = poll
            .request
            .as_deref()
            .and_then(|kept| self.encode_kept(kept, peer, key.is_some(), &poll.ask, poll.route));
        let Some(forward) = encoded else {
            let mut to = Responder::held(http, &poll, &self.responses);
            to.ends(PollOutcome::NotFound);
            return to.text(context, 404, "no such key");
        };
        let Some(fetch) = self.open_fetch(key, name, poll.route, forward) else {
            let mut to = Responder::held(http, &poll, &self.responses);
            self.refuse_busy(context, &mut to);
            return;
        };
        self.place_in_fetch(context, http, fetch, poll);
    }

    /// Puts a held poll among those that a fetch answers.
    pub(super) fn place_in_fetch(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: Token,
        mut poll: Poll,
    ) {
        poll.place = fetch;
        let exchange = poll.exchange;
        match self.waiters.insert(poll) {
            Ok(token) => {
                self.misses.join(fetch, token);
                hold(http, context, exchange, token.to_bits(), self.owed_time());
            }
            // It was taken out of this table a moment ago, so there is room.
            Err(poll) => {
                let mut to = Responder::held(http, &poll, &self.responses);
                self.refuse_busy(context, &mut to);
            }
        }
    }

    /// Sends the request at hand to the upstream; `key` is the one whose misses share it.
    fn start_fetch(
        &mut self,
        context: &mut Context,
        arrival: Arrival<'_>,
        key: Option<Token>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        // Whoever is told to come back must not have been forwarded.
        let fetch = if self.waiters.polls().is_full() {
            None
        } else {
            let Request { head, body, .. } = *arrival.request;
            let peer = to.peer_address();
            let (ask, route) = (&arrival.ask, arrival.route);
            let forward = self.encode(head, body, peer, key.is_some(), ask, route);
            self.open_fetch(key, arrival.name, route, forward)
        };
        let Some(fetch) = fetch else {
            if let Some(key) = key {
                self.waiters.keys.release(key);
            }
            return self.refuse_busy(context, to);
        };
        // What is sent as it came is never sent a second time; but a stream takes its key from it
        // once more, and one that waits may be held on.
        let keep = if key.is_some() || arrival.ask.is_stream || arrival.ask.waits() {
            Keep::Request
        } else {
            Keep::Line
        };
        let poll = self.record(context, &arrival, fetch, keep);
        let token = self.waiters.insert(poll).ok();
        if let Some(token) = token {
            self.misses.join(fetch, token);
        }
        self.hold_or_refuse(context, token, to)
    }

    /// Makes the record of a fetch and leaves its request in the outbox.
    pub(super) fn open_fetch(
        &mut self,
        key: Option<Token>,
        name: &[u8],
        route: RouteId,
        mut forward: FetchRequest,
    ) -> Option<Token> {
        let record = key.and_then(|key| self.waiters.keys.get(key));
        let fetch = self.misses.fetches.insert(Fetch {
            key,
            next: record.map(|record| record.fetch).unwrap_or_default(),
            ..Fetch::new(name, route, forward.common)
        });
        let fetch = fetch.ok()?;
        if let Some(record) = key.and_then(|key| self.waiters.keys.get_mut(key)) {
            record.fetch = Link::to(fetch);
            if let Role::Follower(_) = self.begin_flight(fetch, name, forward.common.variant) {
                return Some(fetch);
            }
        }
        forward.fetch = fetch;
        self.misses.requests.push(forward);
        Some(fetch)
    }

    /// What was parsed within these limits once is within them again.
    pub(super) fn head_limits(&self) -> HeadLimits {
        HeadLimits {
            head_bytes_max: self.config.limits.head_bytes_max,
            target_bytes_max: self.config.limits.target_bytes_max,
            field_count_max: self.config.limits.header_count_max,
        }
    }

    pub(super) fn encode_kept(
        &self,
        kept: &KeptRequest,
        peer: Option<SocketAddr>,
        is_shared: bool,
        ask: &Ask,
        route: RouteId,
    ) -> Option<FetchRequest> {
        let mut storage = FieldStorage::new();
        let head = parse_request(kept.head(), &mut storage, &self.head_limits()).ok()?;
        Some(self.encode(&head, kept.body(), peer, is_shared, ask, route))
    }

    /// The request that the application gets: for all who ask the same, or as it came.
    pub(super) fn encode(
        &self,
        head: &RequestHead<'_, '_>,
        body: &[u8],
        peer: Option<SocketAddr>,
        is_shared: bool,
        ask: &Ask,
        route: RouteId,
    ) -> FetchRequest {
        let shared_on = is_shared.then(|| self.route(route));
        FetchRequest {
            // Replaced by the token of the fetch it becomes.
            fetch: Token::from_bits(0),
            common: self.common_of(head, ask, route),
            bytes: encode(&self.config, shared_on, head, body, peer, wants(ask)),
            is_head: head.method == "HEAD",
            is_idempotent: is_idempotent(head.method),
            client: self.gate.client_of(head, peer),
        }
    }

    /// Returns true if misses on one key share one request.
    pub(super) fn is_shared(&self, ask: &Ask, route: RouteId) -> bool {
        is_shared(ask, self.route(route))
    }

    /// Takes what happened to a request of polls to the application; returns an answer that is too
    /// large for them.
    pub(crate) fn told(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: Token,
        event: UpstreamEvent,
    ) -> Option<TooLarge> {
        match event {
            UpstreamEvent::Large {
                connection, parts, ..
            } => {
                let poll = self.answer_is_large(context, http, fetch);
                return Some(TooLarge {
                    connection,
                    fetch,
                    parts,
                    poll,
                });
            }
            UpstreamEvent::Answer { answer, .. } => {
                let outcome = match answer.status {
                    500.. => UpstreamOutcome::ServerError,
                    _ => UpstreamOutcome::Answered,
                };
                self.metrics.upstream_requests.increment(outcome);
                self.verdict_came(context, http, fetch, &Ok(answer), false);
            }
            UpstreamEvent::Failed { error, .. } => {
                self.metrics.upstream_requests.increment((&error).into());
                self.verdict_came(context, http, fetch, &Err(error), false);
            }
            // Of requests that are passed on only.
            UpstreamEvent::Started { .. }
            | UpstreamEvent::BodyTaken { .. }
            | UpstreamEvent::Parts { .. }
            | UpstreamEvent::Switched { .. } => {}
        }
        None
    }

    /// Gives everybody who shares a fetch what it came to, or what stands for it.
    pub(super) fn verdict_came(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: Token,
        verdict: &UpstreamResult,
        is_remembered: bool,
    ) {
        let Some(fetch) = self.close_fetch(fetch) else {
            return;
        };
        self.end_flight(&fetch, verdict);
        if fetch.key.is_some() && !fetch.is_anothers {
            self.remember(context, &fetch, verdict);
        }
        let mut polls = fetch.polls.clone();
        self.queue_up(context, http, &fetch, verdict, &mut polls);
        let stale = self.instead_of(context, &fetch, verdict);
        let shared = Shared {
            // An app that answers with the value it has stored saves its client the same value
            // again.
            cursor: match verdict {
                Ok(answer) if answer.status == 200 => Some(Cursor::of(&answer.body, 0).text()),
                _ => None,
            },
            is_remembered,
        };
        for (place, token) in polls.into_iter().enumerate() {
            if token.kind() == kind::MISSING {
                self.missing_told(context, http, token, verdict, stale.as_ref());
                continue;
            }
            let Some(poll) = self.waiters.remove(token) else {
                continue;
            };
            self.metrics
                .http_request_duration
                .observe(context.now().duration_since(poll.arrived));
            if let Some(known) = stale.as_ref().filter(|known| stands_for(known, &poll.ask)) {
                let origin = match verdict {
                    _ if is_remembered => Origin::Memory,
                    Ok(answer) => Origin::Answered(answer.status),
                    Err(error) => Origin::Failed(error),
                };
                self.answer_stale(context, http, poll, &fetch.name, known, &origin);
                continue;
            }
            let is_own = place == 0 && !fetch.is_anothers;
            match verdict {
                Ok(answer) => {
                    self.give_answer(context, http, &fetch.name, &poll, answer, &shared, is_own);
                }
                Err(error) => self.tell_failure(context, http, &poll, error),
            }
        }
        if let Some(key) = fetch.key {
            self.waiters.keys.release(key);
        }
        self.next_in_queue(context, http, fetch.queue);
    }

    /// Gives one client an answer that may be another's.
    #[expect(
        clippy::too_many_arguments,
        reason = "who is answered, by what, and what is known of both"
    )]
    fn give_answer(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        name: &[u8],
        poll: &Poll,
        answer: &Answer,
        shared: &Shared,
        is_own: bool,
    ) {
        if poll.ask.is_stream && answer.status == 200 {
            let known = Known::Answered(&answer.body);
            return self.stream_later(context, http, poll, name, known);
        }
        let status = match is_own {
            _ if shared.is_remembered => REMEMBERED,
            true => FETCHED,
            false => COLLAPSED,
        };
        self.pass_on(context, http, poll, answer, shared.cursor.as_ref(), status);
    }

    /// Gives one client the upstream's answer.
    fn pass_on(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        poll: &Poll,
        answer: &Answer,
        cursor: Option<&CursorText>,
        cache_status: &[u8],
    ) {
        let mut fields: Vec<(&str, &[u8])> = answer
            .fields
            .iter()
            .map(|(name, value)| (name.as_str(), value.as_ref()))
            .collect();
        fields.push(("Cache-Status", cache_status));
        // A HEAD brought no body to take the cursor of.
        let has_cursor = poll.ask.method != Method::Head;
        if let (true, Some(cursor)) = (has_cursor, cursor) {
            fields.push(("Poll-Cursor", cursor.bare()));
            fields.push(answers::EXPOSED);
        }
        let body = match (poll.ask.method, answer.content_length) {
            (Method::Head, length) => Body::Absent(length),
            _ => Body::Shared(answer.body.clone()),
        };
        let mut to = Responder::held(http, poll, &self.responses);
        to.ends(PollOutcome::Miss);
        to.send(
            context,
            &Response {
                status: answer.status,
                fields: &fields,
                body,
            },
        );
    }

    /// Tells one client that the application gave no answer.
    fn tell_failure(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        poll: &Poll,
        error: &UpstreamError,
    ) {
        let mut to = Responder::held(http, poll, &self.responses);
        to.ends(PollOutcome::Failed);
        let (status, text) = (error.status(), format!("upstream: {error}"));
        if status == 503 {
            self.refuse(context, &mut to, &text);
        } else {
            to.text(context, status, &text);
        }
    }

    /// Ends a fetch: nobody joins it any more.
    pub(super) fn close_fetch(&mut self, token: Token) -> Option<Fetch> {
        let fetch = self.misses.fetches.remove(token)?;
        if let Some(record) = fetch.key.and_then(|key| self.waiters.keys.get_mut(key)) {
            let mut link = &mut record.fetch;
            while *link != Link::to(token) {
                let before = link
                    .token()
                    .and_then(|before| self.misses.fetches.get_mut(before));
                let Some(before) = before else {
                    return Some(fetch);
                };
                link = &mut before.next;
            }
            *link = fetch.next;
            self.misses.following -= usize::from(fetch.is_anothers);
        }
        Some(fetch)
    }
}

/// What is the same for all who share an answer.
struct Shared {
    cursor: Option<CursorText>,
    is_remembered: bool,
}

/// What the application is asked for.
pub(super) fn wants(ask: &Ask) -> Wants {
    if ask.is_stream {
        Wants::OneValue
    } else {
        Wants::AsAsked
    }
}
