//! A request arrives: route, key, lookup, and an answer if it can be given at once.

use super::answers::{self, Found};
use super::ask::{Ask, Method, Waits};
use super::decide::{Decision, Stage, decide};
use super::tables::{KeptRequest, Lookup, NO_ROUTE, Place, Poll};
use super::to::To;
use super::{Polls, Source, seconds};
use crate::config::OnDelete;
use crate::demo;
use crate::metrics::{ClientTimeout, PollOutcome, RefusedStatus, StatusClass};
use dwell_engine::{App, Body, Event, ExchangeId, Outcome, Reply, Request, Response};
use dwell_evloop::{Context, Token};
use dwell_proto::http1::RequestHead;
use dwell_store::Expiry;
use std::time::Duration;

impl App for Polls {
    fn body_bytes_max(&mut self, head: &RequestHead<'_, '_>) -> u64 {
        match self.config.route(head.path) {
            Some(_) => self.config.limits.poll_body_bytes_max,
            None => self.config.limits.body_bytes_max,
        }
    }

    fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        if self.demo.is_some() && self.demonstrate(context, request, reply) {
            return Outcome::Answered;
        }
        let path = request.head.path;
        let route = self
            .config
            .routes
            .iter()
            .position(|route| path.starts_with(&route.prefix));
        match route {
            Some(index) => self.poll(context, index as u16, request, reply),
            None => self.forward(context, request, reply),
        }
    }

    fn expired(
        &mut self,
        context: &mut Context,
        _exchange: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        if let Some(poll) = self.records.get(Token::from_bits(tag)) {
            let Place::Waiting(key) = poll.place else {
                return Outcome::Held { tag, timeout: None };
            };
            let item = self.last_look(context, key);
            if let Some(poll) = self.remove(Token::from_bits(tag)) {
                let mut to = To::ended(reply, &poll, &self.journal);
                self.end_wait(context, &poll, item.as_ref(), &mut to);
            }
        }
        if reply.is_sent() {
            Outcome::Answered
        } else {
            Outcome::Close
        }
    }

    fn peer_closed(&mut self, _exchange: ExchangeId, tag: u64) -> bool {
        // Someone who ends their side and only then reads still gets an answer that is on its way.
        let poll = self.records.get(Token::from_bits(tag));
        poll.is_none_or(|poll| matches!(poll.place, Place::Waiting(_)))
    }

    fn abandoned(&mut self, _context: &mut Context, _exchange: ExchangeId, tag: u64) {
        if let Some(poll) = self.remove(Token::from_bits(tag))
            && poll.route != NO_ROUTE
        {
            self.metrics.polls.increment(PollOutcome::Abandoned);
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Accepted => self.metrics.connections.increment(),
            Event::Refused | Event::Exhausted => self.metrics.connections_refused.increment(),
            Event::WriteTimeout => self.metrics.client_timeouts.increment(ClientTimeout::Write),
            Event::Rejected(status) => {
                if status == 408 {
                    self.metrics
                        .client_timeouts
                        .increment(ClientTimeout::Request);
                }
                self.metrics
                    .bad_requests
                    .increment(RefusedStatus::of(status));
                self.metrics
                    .http_requests
                    .increment(StatusClass::of(status));
            }
            _ => {}
        }
    }
}

impl Polls {
    fn poll(
        &mut self,
        context: &mut Context,
        route: u16,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let head = request.head;
        let config = std::sync::Arc::clone(&self.config);
        let rules = &config.routes[usize::from(route)];
        let mut to = To::now(reply, request, &self.journal, context);
        if !rules.methods.allows(head.method) {
            let allow = rules.methods.allow_field();
            to.text_with(
                context,
                405,
                "method not allowed",
                &[("Allow", allow.as_bytes())],
            );
            return Outcome::Answered;
        }
        let waits = Waits {
            default: rules.wait_default,
            max: rules.wait_max,
        };
        let ask = match Ask::of(head, waits) {
            Ok(ask) => ask,
            Err(error) => {
                to.text(context, 400, &error.to_string());
                return Outcome::Answered;
            }
        };
        let mut scratch = std::mem::take(&mut self.key_scratch);
        let find = |name: &str| head.fields.find(name);
        let outcome = match rules.key.render(head.path, head.query, find, &mut scratch) {
            Ok(name) => self.look_up(context, &ask, route, name, request, &mut to),
            Err(error) => {
                to.ends(PollOutcome::BadKey);
                to.text(context, error.status(), &error.to_string());
                Outcome::Answered
            }
        };
        self.key_scratch = scratch;
        outcome
    }

    fn look_up(
        &mut self,
        context: &mut Context,
        ask: &Ask,
        route: u16,
        name: &[u8],
        request: &Request<'_>,
        to: &mut To<'_, '_>,
    ) -> Outcome {
        if matches!(self.source, Source::Memcached) {
            return self.ask_memcached(context, ask, route, name, request, to);
        }
        let item = self.stored(context, name);
        let found = item.as_ref().map(Found::stored);
        let current = found.map(|found| found.content);
        let mut decision = decide(ask, current, Stage::Arrived, self.rules(route));
        if decision == Decision::Wait {
            match self.begin_wait(context, ask, route, name, request, to) {
                Ok(outcome) => return outcome,
                // The value changed between the look and the registration.
                Err(changed) => decision = changed,
            }
            let item = self.stored(context, name);
            let found = item.as_ref().map(Found::stored);
            return self.answer_now(context, ask, route, name, request, decision, found, to);
        }
        self.answer_now(context, ask, route, name, request, decision, found, to)
    }

    #[expect(
        clippy::too_many_arguments,
        reason = "one arrival has all of these and no more"
    )]
    fn answer_now(
        &mut self,
        context: &mut Context,
        ask: &Ask,
        route: u16,
        name: &[u8],
        request: &Request<'_>,
        decision: Decision,
        found: Option<Found<'_>>,
        to: &mut To<'_, '_>,
    ) -> Outcome {
        if decision == Decision::Miss {
            return self.miss(context, ask, route, name, request, to);
        }
        self.conclude(context, ask, route, decision, found.as_ref(), to);
        Outcome::Answered
    }

    /// Gives the answer that `decision` names; a miss is not one of them.
    pub(super) fn conclude(
        &self,
        context: &mut Context,
        ask: &Ask,
        route: u16,
        decision: Decision,
        found: Option<&Found<'_>>,
        to: &mut To<'_, '_>,
    ) {
        match (decision, found) {
            (Decision::Value, Some(found)) => {
                to.ends(if found.content.is_empty {
                    PollOutcome::Empty
                } else {
                    PollOutcome::Hit
                });
                if let Some(rules) = self.route(route) {
                    answers::value(to, context, rules, ask, found);
                }
            }
            (Decision::NotModified(status), _) => {
                to.ends(PollOutcome::NotModified);
                let current = found.map(|found| found.content.cursor);
                answers::not_modified(to, context, ask, current, status);
            }
            _ => {
                to.ends(PollOutcome::NotFound);
                let status = ("Cache-Status", &b"dwell; fwd=miss"[..]);
                to.text_with(context, 404, "no such key", &[status]);
            }
        }
    }

    /// Registers a wait in the embedded store and then looks again.
    ///
    /// # Errors
    /// What the poll gets instead, when the second look says that it need not wait.
    fn begin_wait(
        &mut self,
        context: &mut Context,
        ask: &Ask,
        route: u16,
        name: &[u8],
        request: &Request<'_>,
        to: &mut To<'_, '_>,
    ) -> Result<Outcome, Decision> {
        let Some(key) = self.room_to_wait(context, name, to) else {
            return Ok(Outcome::Answered);
        };
        let is_first = self.keys.get(key).is_some_and(|key| key.waiting.is_empty());
        // A key that is waited for already has told this loop of every change since.
        if is_first && let Source::Embedded(store, watcher) = &self.source {
            let item = store.watch(name, *watcher, seconds(context));
            let current = item.as_ref().map(|item| Found::stored(item).content);
            let decision = decide(ask, current, Stage::Arrived, self.rules(route));
            if decision != Decision::Wait {
                store.unwatch(name, *watcher);
                self.keys.release(key);
                return Err(decision);
            }
        }
        let mut poll = self.record(context, ask, route, request, Place::Waiting(key));
        // A poll that is never forwarded need not keep its request.
        let is_forwarded = self.rules(route).on_delete == OnDelete::Origin;
        if !is_forwarded && self.journal.access.is_none() {
            poll.request = None;
        }
        Ok(self.hold(context, poll, key, to))
    }

    /// Whether one more poll may wait for `name`; answers 503 if not.
    pub(super) fn room_to_wait(
        &mut self,
        context: &mut Context,
        name: &[u8],
        to: &mut To<'_, '_>,
    ) -> Option<Token> {
        let reason = if self.draining {
            "shutting down"
        } else if self.waiting >= self.waiting_max || self.records.is_full() {
            "too many polls are waiting"
        } else {
            return self.keys.enter(name);
        };
        to.ends(PollOutcome::Refused);
        self.refuse(context, to, reason);
        None
    }

    /// Puts a poll among those that wait for `key`.
    fn hold(
        &mut self,
        context: &mut Context,
        poll: Poll,
        key: Token,
        to: &mut To<'_, '_>,
    ) -> Outcome {
        let timeout = self.jittered(poll.ask.wait);
        let Ok(token) = self.records.insert(poll) else {
            self.keys.release(key);
            self.refuse(context, to, "too many polls are waiting");
            return Outcome::Answered;
        };
        self.join_waiting(key, token);
        Outcome::Held {
            tag: token.to_bits(),
            timeout: Some(timeout),
        }
    }

    /// Counts a poll, whose place says so, among those that wait for `key`.
    pub(super) fn join_waiting(&mut self, key: Token, poll: Token) {
        self.waiting += 1;
        self.metrics.waits.increment();
        if let Some(record) = self.keys.get_mut(key) {
            let is_first = record.waiting.is_empty();
            record.waiting.join(poll);
            if is_first {
                self.keys.count_waited(true);
            }
        }
    }

    /// Puts the poll with the others of this turn that ask memcached for the same key.
    fn ask_memcached(
        &mut self,
        context: &mut Context,
        ask: &Ask,
        route: u16,
        name: &[u8],
        request: &Request<'_>,
        to: &mut To<'_, '_>,
    ) -> Outcome {
        let shared = self.keys.enter(name).and_then(|key| {
            let lookup = self.lookup_of(key)?;
            let poll = self.record(context, ask, route, request, Place::Lookup(lookup));
            let token = self.records.insert(poll).ok()?;
            self.lookups.get_mut(lookup)?.polls.push(token);
            Some(token)
        });
        self.hold_or_refuse(context, shared, to)
    }

    /// Holds the exchange that became `poll` for as long as the deadlines of memcached or of the
    /// upstream let it, or answers that there is no room.
    pub(super) fn hold_or_refuse(
        &mut self,
        context: &mut Context,
        poll: Option<Token>,
        to: &mut To<'_, '_>,
    ) -> Outcome {
        if let Some(poll) = poll {
            return Outcome::Held {
                tag: poll.to_bits(),
                timeout: None,
            };
        }
        self.refuse(context, to, "too many requests are under way");
        Outcome::Answered
    }

    /// The lookup of `key` that goes out when this turn ends.
    pub(super) fn lookup_of(&mut self, key: Token) -> Option<Token> {
        if let Some(lookup) = self.keys.get(key)?.lookup {
            return Some(lookup);
        }
        let lookup = self
            .lookups
            .insert(Lookup {
                key,
                polls: Vec::new(),
            })
            .ok()?;
        let record = self.keys.get_mut(key)?;
        record.lookup = Some(lookup);
        record.lookups += 1;
        self.outbox.lookups.push(lookup);
        Some(lookup)
    }

    /// The record of one request.
    pub(super) fn record(
        &self,
        context: &Context,
        ask: &Ask,
        route: u16,
        request: &Request<'_>,
        place: Place,
    ) -> Poll {
        let kept = self
            .keeps_requests()
            .then(|| Box::new(KeptRequest::new(request.head_bytes, request.body)));
        Poll {
            exchange: request.exchange,
            ask: *ask,
            place,
            arrived: context.now(),
            request: kept,
            route,
        }
    }

    /// Serves the demonstration's own paths; false for all others.
    fn demonstrate(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> bool {
        let Some(demo) = &self.demo else { return false };
        let Some(answer) = demo.respond(request.head.method, request.head.path, request.body)
        else {
            return false;
        };
        if let (Some(value), Source::Embedded(store, _)) = (answer.set, &self.source) {
            let name = demo::KEY.as_bytes();
            store.set(name, 0, Expiry::NEVER, value, seconds(context));
        }
        reply.send(&Response {
            status: answer.status,
            fields: &[
                ("Content-Type", answer.content_type.as_bytes()),
                ("Cache-Control", b"no-store"),
            ],
            body: Body::Slice(&answer.body),
        });
        true
    }
}

/// The question of a request that is no poll: what its framing needs to know.
pub(super) fn plain_ask(head: &RequestHead<'_, '_>) -> Ask {
    let method = match head.method {
        "HEAD" => Method::Head,
        "GET" => Method::Get,
        _ => Method::Post,
    };
    Ask {
        method,
        condition: super::ask::Condition::None,
        wait: Duration::ZERO,
        preferred: false,
    }
}
