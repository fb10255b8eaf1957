//! Misses: what goes to the upstream, and who gets its answer.

use super::answers::{self, FETCHED};
use super::ask::{Ask, Method};
use super::cursor::{Cursor, CursorText};
use super::feeds::Known;
use super::hold::{Arrival, Keep};
use super::memory::{Begun, Verdict};
use super::recall::{Origin, stands_for};
use super::sharing::may_be_shared;
use super::tables::{Fetch, KeptRequest, Link, Poll, kind};
use super::to::To;
use super::{Forward, Polls};
use crate::access::is_trusted;
use crate::forward;
use crate::held::hold;
use crate::metrics::{PollOutcome, UpstreamOutcome};
use crate::upstream::{
    Answer, ForwardedFor, Sharing, UpstreamError, UpstreamEvent, Wants, encode_request,
};
use dwell_engine::{Body, Http, Outcome, Request, Response};
use dwell_evloop::{Context, Token};
use dwell_proto::http1::{FieldStorage, HeadLimits, RequestHead, parse_request};
use std::net::SocketAddr;

/// How further answers of a fetch tell where they come from.
const COLLAPSED: &[u8] = b"dwell; fwd=miss; collapsed";
/// Those of one that was not sent, as the last one came to this a moment ago.
const REMEMBERED: &[u8] = b"dwell; hit; detail=negative";

impl Polls {
    /// A poll whose key has no value, as it arrives.
    pub(super) fn miss(
        &mut self,
        context: &mut Context,
        arrival: Arrival<'_>,
        to: &mut To<'_, '_>,
    ) -> Outcome {
        let shared = self.is_shared(&arrival.ask, arrival.route);
        if shared && let Some(recall) = self.recall_for(context, &arrival) {
            return self.recall_arrival(context, arrival, recall, to);
        }
        let key = if shared {
            self.keys.enter(arrival.name)
        } else {
            None
        };
        match self.under_way(key, &arrival.ask) {
            UnderWay::Nothing => self.start_fetch(context, arrival, key, to),
            UnderWay::AnothersMethod => self.start_fetch(context, arrival, None, to),
            UnderWay::Fetch(fetch) => {
                let poll = self.record(context, &arrival, fetch, Keep::Request);
                let joined = self.records.insert(poll).ok();
                if let Some(poll) = joined {
                    self.join_fetch(fetch, poll);
                }
                self.hold_or_refuse(context, joined, arrival.route, to)
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
        let name = self.keys.get(key).map(|key| key.name.clone());
        let name = name.as_deref().unwrap_or_default();
        let key = self.is_shared(&poll.ask, poll.route).then_some(key);
        if key.is_some()
            && let Some(recall) = self.recall(context.now(), name, &poll.ask, poll.route)
        {
            return self.recall_later(context, http, name, poll, recall);
        }
        match self.under_way(key, &poll.ask) {
            UnderWay::Nothing => self.send_kept(context, http, key, name, poll),
            UnderWay::AnothersMethod => self.send_kept(context, http, None, name, poll),
            UnderWay::Fetch(fetch) => self.place_in_fetch(context, http, fetch, poll),
        }
    }

    /// What a miss on `key` finds under way. The application may answer another method otherwise,
    /// so polls share a request only with those of the same.
    pub(super) fn under_way(&self, key: Option<Token>, ask: &Ask) -> UnderWay {
        let fetch = key.and_then(|key| self.keys.get(key)?.fetch.token());
        let Some(token) = fetch else {
            return UnderWay::Nothing;
        };
        match self.fetches.get(token) {
            Some(fetch) if fetch.method == ask.method => UnderWay::Fetch(token),
            Some(_) => UnderWay::AnothersMethod,
            None => UnderWay::Nothing,
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
            .and_then(|kept| self.encode_kept(kept, peer, sharing(key), wants(&poll.ask)));
        let Some(forward) = encoded else {
            let mut to = To::held(http, &poll, &self.journal);
            to.ends(PollOutcome::NotFound);
            return to.text(context, 404, "no such key");
        };
        let Some(fetch) = self.open_fetch(key, name, poll.ask.method, poll.route, forward) else {
            let mut to = To::held(http, &poll, &self.journal);
            self.refuse_busy(context, poll.route, &mut to);
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
        match self.records.insert(poll) {
            Ok(token) => {
                self.join_fetch(fetch, token);
                hold(http, context, exchange, token.to_bits(), self.owed_time());
            }
            // It was taken out of this table a moment ago, so there is room.
            Err(poll) => {
                let mut to = To::held(http, &poll, &self.journal);
                self.refuse_busy(context, poll.route, &mut to);
            }
        }
    }

    pub(super) fn join_fetch(&mut self, fetch: Token, poll: Token) {
        if let Some(fetch) = self.fetches.get_mut(fetch) {
            if !fetch.polls.is_empty() {
                self.metrics
                    .upstream_requests
                    .increment(UpstreamOutcome::Coalesced);
            }
            fetch.polls.push(poll);
        }
    }

    /// Sends the request at hand to the upstream; `key` is the one whose misses share it.
    fn start_fetch(
        &mut self,
        context: &mut Context,
        arrival: Arrival<'_>,
        key: Option<Token>,
        to: &mut To<'_, '_>,
    ) -> Outcome {
        // Whoever is told to come back must not have been forwarded.
        let fetch = if self.records.is_full() {
            None
        } else {
            let Request { head, body, .. } = *arrival.request;
            let peer = to.peer_address();
            let forward = self.encode(head, body, peer, sharing(key), wants(&arrival.ask));
            let (method, route) = (arrival.ask.method, arrival.route);
            self.open_fetch(key, arrival.name, method, route, forward)
        };
        let Some(fetch) = fetch else {
            if let Some(key) = key {
                self.keys.release(key);
            }
            return self.refuse_busy(context, arrival.route, to);
        };
        // It is the first of this fetch, so its request is never sent a second time; but a stream
        // takes its key from it once more, one that waits may be held on, and where another loop
        // has sent the request, the answer may be for its client alone.
        let is_anothers = self
            .fetches
            .get(fetch)
            .is_some_and(|fetch| fetch.is_anothers);
        let keep = if is_anothers || arrival.ask.is_stream || arrival.ask.waits() {
            Keep::Request
        } else {
            Keep::Line
        };
        let poll = self.record(context, &arrival, fetch, keep);
        let token = self.records.insert(poll).ok();
        if let Some(token) = token {
            self.join_fetch(fetch, token);
        }
        self.hold_or_refuse(context, token, arrival.route, to)
    }

    /// Makes the record of a fetch and leaves its request in the outbox.
    pub(super) fn open_fetch(
        &mut self,
        key: Option<Token>,
        name: &[u8],
        method: Method,
        route: u16,
        mut forward: Forward,
    ) -> Option<Token> {
        let fetch = self.fetches.insert(Fetch {
            key,
            name: name.into(),
            method,
            route,
            polls: Vec::new(),
            is_anothers: false,
        });
        let fetch = fetch.ok()?;
        if let Some(record) = key.and_then(|key| self.keys.get_mut(key)) {
            record.fetch = Link::to(fetch);
            if let Begun::Follow = self.begin_flight(fetch, name, method) {
                return Some(fetch);
            }
        }
        forward.fetch = fetch;
        self.outbox.forwards.push(forward);
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
        sharing: Sharing,
        wants: Wants,
    ) -> Option<Forward> {
        let mut storage = FieldStorage::new();
        let head = parse_request(kept.head(), &mut storage, &self.head_limits()).ok()?;
        Some(self.encode(&head, kept.body(), peer, sharing, wants))
    }

    pub(super) fn encode(
        &self,
        head: &RequestHead<'_, '_>,
        body: &[u8],
        peer: Option<SocketAddr>,
        sharing: Sharing,
        wants: Wants,
    ) -> Forward {
        let host = &self.config.upstream.default_host;
        let forwarded = ForwardedFor {
            peer: peer.map(|peer| peer.ip()),
            proto: "http",
            is_trusted: is_trusted(peer, &self.config.server.trusted_proxies),
        };
        Forward {
            // Replaced by the token of the fetch it becomes.
            fetch: Token::from_bits(0),
            bytes: encode_request(head, body, host, forwarded, sharing, wants),
            is_head: head.method == "HEAD",
            is_idempotent: forward::is_idempotent(head.method),
            client: self.client_of(head, peer),
        }
    }

    /// Whether misses on one key share one request. A HEAD has no body to share with others.
    pub(super) fn is_shared(&self, ask: &Ask, route: u16) -> bool {
        match ask.method {
            _ if !ask.anybodys => false,
            Method::Get | Method::Query => true,
            Method::Head => false,
            Method::Post => self.route(route).is_some_and(|route| route.coalesce_post),
        }
    }

    /// Something happened to a request to the upstream.
    pub(crate) fn told(&mut self, context: &mut Context, http: &mut Http, event: UpstreamEvent) {
        match &event {
            // A request that was sent, and no answer yet.
            UpstreamEvent::Started { .. } | UpstreamEvent::BodyTaken { .. } => {}
            UpstreamEvent::Failed { error, .. } => {
                if let Some(count) = self.upstream.failed(context.now()) {
                    tracing::warn!(%error, count, "upstream does not answer");
                }
            }
            _ => {
                if self.upstream.worked() {
                    tracing::info!("upstream answers");
                }
            }
        }
        if self.answered_question(context, http, &event) {
            return;
        }
        match forward::forward_of(event.tag()) {
            Some(_) => self.forwards.told(context, http, event),
            None => self.fetched(context, http, event),
        }
    }

    /// The upstream has answered a miss, or failed to.
    fn fetched(&mut self, context: &mut Context, http: &mut Http, event: UpstreamEvent) {
        match event {
            UpstreamEvent::Answer { tag, answer } => {
                let outcome = match answer.status {
                    500.. => UpstreamOutcome::ServerError,
                    _ => UpstreamOutcome::Answered,
                };
                self.metrics.upstream_requests.increment(outcome);
                self.verdict_came(context, http, Token::from_bits(tag), &Ok(answer), false);
            }
            UpstreamEvent::Failed { tag, error, .. } => {
                self.metrics.upstream_requests.increment(outcome_of(&error));
                self.verdict_came(context, http, Token::from_bits(tag), &Err(error), false);
            }
            UpstreamEvent::Large {
                tag,
                connection,
                parts,
            } => self.answer_is_large(context, http, Token::from_bits(tag), connection, &parts),
            // Of forwards only.
            UpstreamEvent::Started { .. }
            | UpstreamEvent::BodyTaken { .. }
            | UpstreamEvent::Parts { .. }
            | UpstreamEvent::Switched { .. } => {}
        }
    }

    /// Gives everybody who shares a fetch what it came to, or what stands for it.
    pub(super) fn verdict_came(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: Token,
        verdict: &Verdict,
        is_remembered: bool,
    ) {
        let Some(fetch) = self.close_fetch(fetch) else {
            return;
        };
        self.end_flight(&fetch, verdict);
        if fetch.key.is_some() && !fetch.is_anothers {
            self.remember(context, &fetch, verdict);
        }
        let polls = fetch.polls.clone();
        let stale = self.instead_of(context, &fetch, verdict);
        let shared = Shared {
            is_personal: matches!(verdict, Ok(answer) if !may_be_shared(answer)),
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
                self.missing_told(context, http, &fetch, token, verdict, stale.as_ref());
                continue;
            }
            let Some(poll) = self.records.remove(token) else {
                continue;
            };
            self.metrics
                .request_duration
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
                    self.give_answer(context, http, &fetch, poll, answer, &shared, is_own);
                }
                Err(error) => self.tell_failure(context, http, &poll, error),
            }
        }
        if let Some(key) = fetch.key {
            self.keys.release(key);
        }
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
        fetch: &Fetch,
        poll: Poll,
        answer: &Answer,
        shared: &Shared,
        is_own: bool,
    ) {
        // What is for the client whose request was sent, the others ask for themselves.
        if !is_own && shared.is_personal {
            return self.send_kept(context, http, None, &fetch.name, poll);
        }
        if poll.ask.is_stream && answer.status == 200 {
            let known = Known::Answered(&answer.body);
            return self.stream_later(context, http, &poll, &fetch.name, known);
        }
        let status = match is_own {
            _ if shared.is_remembered => REMEMBERED,
            true => FETCHED,
            false => COLLAPSED,
        };
        self.pass_on(context, http, &poll, answer, shared.cursor.as_ref(), status);
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
        let mut to = To::held(http, poll, &self.journal);
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
        let mut to = To::held(http, poll, &self.journal);
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
        let fetch = self.fetches.remove(token)?;
        if let Some(record) = fetch.key.and_then(|key| self.keys.get_mut(key)) {
            record.fetch = Link::default();
            self.following -= usize::from(fetch.is_anothers);
        }
        Some(fetch)
    }
}

/// What is the same for all who share an answer.
struct Shared {
    is_personal: bool,
    cursor: Option<CursorText>,
    is_remembered: bool,
}

/// What a miss finds under way for its key.
pub(super) enum UnderWay {
    Nothing,
    Fetch(Token),
    /// A request that polls of another method share.
    AnothersMethod,
}

/// A fetch that has a key is shared by those who miss on it.
pub(super) fn sharing(key: Option<Token>) -> Sharing {
    match key {
        Some(_) => Sharing::Shared,
        None => Sharing::Own,
    }
}

/// What the application is asked for.
pub(super) fn wants(ask: &Ask) -> Wants {
    if ask.is_stream {
        Wants::OneValue
    } else {
        Wants::AsAsked
    }
}

/// What one failed request to the upstream counts as.
pub(crate) fn outcome_of(error: &UpstreamError) -> UpstreamOutcome {
    match error {
        UpstreamError::Connect(_) | UpstreamError::ConnectTimeout(_) => {
            UpstreamOutcome::ConnectFailed
        }
        UpstreamError::Unavailable => UpstreamOutcome::Unavailable,
        UpstreamError::QueueFull { .. } | UpstreamError::QueueTimeout(_) => {
            UpstreamOutcome::Refused
        }
        UpstreamError::HeaderTimeout(_)
        | UpstreamError::TotalTimeout(_)
        | UpstreamError::Stalled(_) => UpstreamOutcome::Timeout,
        _ => UpstreamOutcome::BadAnswer,
    }
}
