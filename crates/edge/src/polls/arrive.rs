//! A request arrives: route, key, lookup, and an answer if it can be given at once.

use super::answers::{self, Found};
use super::ask::{Admitted, Arrival, Ask, wants_events};
use super::budget::Now;
use super::decide::{Decision, Stage, decide};
use super::feeds::{Known, Opening};
use super::follow::NamedKey;
use super::poll_error::{AMBIGUOUS, PollError};
use super::tables::Poll;
use super::{Polls, seconds};
use crate::config::RouteId;
use crate::ids::{PollId, StreamId};
use crate::metrics::PollOutcome;
use crate::responder::Responder;
use dwell_engine::websocket::is_upgrade;
use dwell_engine::{BodyPlan, Detached, Outcome, Reply, Request};
use dwell_evloop::Context;
use dwell_proto::http1::RequestHead;

impl Polls {
    /// The plan for the body of a request on a route.
    pub(crate) fn body_plan(&self, route: RouteId, head: &RequestHead<'_, '_>) -> BodyPlan {
        let config = &self.config;
        let bytes_max = if self.may_publish(self.routes.get(route), head) {
            config.publish.value_bytes_max
        } else {
            config.limits.poll_body_bytes_max
        };
        BodyPlan::Collect { bytes_max }
    }

    /// Serves a request on a route.
    pub(crate) fn request(
        &mut self,
        context: &mut Context,
        route: RouteId,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let rules = self.routes.get(route);
        if rules.access.publish && is_publish(request.head.method) {
            return self.publish(context, route, request, reply);
        }
        let is_guarded = rules.is_guarded;
        let mut to = Responder::now(reply, request, &self.responses, context);
        let identity = if is_guarded {
            match self.admit(context, route, request, &mut to) {
                Ok(identity) => Some(identity),
                Err(outcome) => return outcome,
            }
        } else {
            None
        };
        let admitted = Admitted {
            route,
            request,
            identity: identity.as_ref(),
        };
        self.admitted(context, admitted, &mut to)
    }

    /// Refuses a request whose path may be meant for several routes.
    pub(crate) fn refuse_ambiguous(
        &self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let mut to = Responder::now(reply, request, &self.responses, context);
        to.ends(PollOutcome::Ambiguous);
        to.text(context, 400, AMBIGUOUS);
        Outcome::Answered
    }

    /// True for a request that is much work, once a turn has done enough of it.
    pub(crate) fn puts_off(&mut self, context: &Context, head: &RequestHead<'_, '_>) -> bool {
        self.delivery.is_busy(Now::of(context)) && is_work(head)
    }

    /// Ends the wait of a poll, or gives up the answer that it is owed, as its time is over.
    pub(crate) fn poll_expired(
        &mut self,
        context: &mut Context,
        poll: PollId,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let record = self.waiters.polls().get(poll);
        let Some(key) = record.and_then(Poll::waits_for) else {
            return self.owed_expired(context, poll, reply);
        };
        let item = self.last_look(context, key);
        let Some(poll) = self.waiters.remove(poll) else {
            return Outcome::Close;
        };
        let mut to = Responder::ended(reply, &poll, &self.responses);
        self.end_wait(context, &poll, item.as_ref(), &mut to);
        if reply.is_sent() {
            Outcome::Answered
        } else {
            Outcome::Close
        }
    }

    /// Returns true if a poll waits for an answer rather than for a change.
    pub(crate) fn is_owed(&self, poll: PollId) -> bool {
        let poll = self.waiters.polls().get(poll);
        poll.is_some_and(|poll| poll.waits_for().is_none())
    }

    /// Forgets a poll whose client has left.
    pub(crate) fn poll_abandoned(&mut self, poll: PollId) {
        if self.waiters.remove(poll).is_some() {
            self.metrics.polls.increment(PollOutcome::Abandoned);
        }
    }

    /// A connection has become a WebSocket.
    pub(crate) fn detached(&mut self, stream: StreamId, detached: Detached) {
        self.delivery.detached.push((stream, detached));
    }

    /// Answers or holds a poll that its route has admitted.
    pub(super) fn admitted(
        &mut self,
        context: &mut Context,
        admitted: Admitted<'_>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        let request = admitted.request;
        if request.head.method == "GET" && is_upgrade(request.head) {
            return self.upgrade(context, admitted, to);
        }
        if request.head.query.is_some_and(names_keys) {
            match NamedKey::of(&self.routes, admitted) {
                Ok(keys) if keys.is_empty() => {}
                Ok(keys) => return self.several_keys(context, admitted, keys, to),
                Err(error) => {
                    error.refuse(context, to);
                    return Outcome::Answered;
                }
            }
        }
        let mut scratch = std::mem::take(&mut self.scratch.key);
        let outcome = match self.read(context, admitted, &mut scratch) {
            Ok((ask, name)) => self.look_up(context, admitted.arrival(ask, name), to),
            Err(error) => {
                error.refuse(context, to);
                Outcome::Answered
            }
        };
        self.scratch.key = scratch;
        outcome
    }

    /// Answers a poll that asks for a WebSocket.
    fn upgrade(
        &mut self,
        context: &mut Context,
        admitted: Admitted<'_>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        let route = admitted.route;
        let mut scratch = Vec::new();
        let read = self.read(context, admitted, &mut scratch);
        let keys = read.and_then(|(ask, name)| {
            let mut keys = NamedKey::of(&self.routes, admitted)?;
            if keys.is_empty() {
                let name = name.into();
                keys.push(NamedKey { label: None, name });
            }
            Ok((ask, keys))
        });
        match keys {
            Ok((_, keys)) if !self.are_within_key_rate(context, route, &keys, to) => {
                Outcome::Answered
            }
            Ok((ask, keys)) => {
                self.count_further_keys(context, admitted, keys.len(), to);
                self.open_socket(context, admitted, &ask, keys, to)
            }
            Err(error) => {
                error.refuse(context, to);
                Outcome::Answered
            }
        }
    }

    /// A request that names several keys.
    fn several_keys(
        &mut self,
        context: &mut Context,
        admitted: Admitted<'_>,
        keys: Vec<NamedKey>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        let route = admitted.route;
        if !self.are_within_key_rate(context, route, &keys, to) {
            return Outcome::Answered;
        }
        self.count_further_keys(context, admitted, keys.len(), to);
        match self.read_ask(context, admitted) {
            Ok(ask) if ask.is_stream => self.open_set(context, admitted, &ask, keys, to),
            Ok(ask) => self.begin_multi_poll(context, admitted, ask, keys, to),
            Err(error) => {
                error.refuse(context, to);
                Outcome::Answered
            }
        }
    }

    fn are_within_key_rate(
        &mut self,
        context: &mut Context,
        route: RouteId,
        keys: &[NamedKey],
        to: &mut Responder<'_, '_>,
    ) -> bool {
        keys.iter()
            .all(|one| self.is_within_key_rate(context, route, &one.name, to))
    }

    /// Reads from a request how it asks.
    fn read_ask(&self, context: &Context, admitted: Admitted<'_>) -> Result<Ask, PollError> {
        let route = self.routes.get(admitted.route);
        let left = admitted.time_left(context.unix_seconds());
        let mut ask = Ask::of(admitted.request.head, route, left).map_err(PollError::Ask)?;
        ask.form.set_secure(admitted.request.is_secure);
        Ok(ask)
    }

    /// Reads from a request how it asks, and for which key.
    fn read<'k>(
        &self,
        context: &Context,
        admitted: Admitted<'k>,
        scratch: &'k mut Vec<u8>,
    ) -> Result<(Ask, &'k [u8]), PollError> {
        let ask = self.read_ask(context, admitted)?;
        let (head, inputs) = (admitted.request.head, admitted.key_inputs());
        let template = &self.routes.get(admitted.route).key;
        let name = template.render(head.path, head.query, &inputs, scratch);
        Ok((ask, name.map_err(PollError::Key)?))
    }

    /// Looks up the key of a poll, and answers the poll if that is possible at once.
    fn look_up(
        &mut self,
        context: &mut Context,
        arrival: Arrival<'_>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        let is_counted = self.routes.get(arrival.route).access.rate_per_key.is_some();
        if is_counted && !self.is_within_key_rate(context, arrival.route, arrival.name, to) {
            return Outcome::Answered;
        }
        if !self.lookups.is_immediate() {
            return self.ask_memcached(context, arrival, to);
        }
        // A small value is copied to where the last one was, and so takes no memory of its own.
        let mut copy = std::mem::take(&mut self.scratch.value);
        let item = self
            .lookups
            .copied(arrival.name, seconds(context), &mut copy);
        let found = item.as_ref().map(|item| match item {
            Ok(flags) => Found::borrowed(&copy, *flags),
            Err(large) => Found::stored(large),
        });
        let outcome = self.looked_up_at_once(context, arrival, found.as_ref(), to);
        self.scratch.value = copy;
        outcome
    }

    /// Answers or holds a poll by what the embedded store has.
    fn looked_up_at_once(
        &mut self,
        context: &mut Context,
        arrival: Arrival<'_>,
        found: Option<&Found<'_>>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        let Arrival { ask, route, .. } = arrival;
        let rules = self.routes.get(route).rules;
        if ask.is_stream && (found.is_some() || !rules.has_upstream) {
            let opening = Opening {
                ask,
                route,
                name: arrival.name,
                exchange: arrival.request.exchange,
                known: Known::Unread,
            };
            return self.event_streams().begin(context, &opening, to);
        }
        match decide(
            &ask,
            found.map(|found| found.content),
            Stage::Arrived,
            rules,
        ) {
            Decision::Wait => match self.begin_wait(context, arrival, to) {
                Ok(outcome) => outcome,
                // The key has changed since, and what there is now ends the wait.
                Err(newer) => {
                    let found = newer.as_ref().map(Found::stored);
                    self.looked_up_at_once(context, arrival, found.as_ref(), to)
                }
            },
            Decision::Miss => self.miss(context, arrival, to),
            decision => {
                self.conclude(context, &ask, route, decision, found, to);
                Outcome::Answered
            }
        }
    }

    /// Gives the answer that `decision` names; a miss is not one of them.
    pub(super) fn conclude(
        &self,
        context: &mut Context,
        ask: &Ask,
        route: RouteId,
        decision: Decision,
        found: Option<&Found<'_>>,
        to: &mut Responder<'_, '_>,
    ) {
        match (decision, found) {
            (Decision::Value, Some(found)) => {
                to.ends(if found.content.is_empty {
                    PollOutcome::Empty
                } else {
                    PollOutcome::Hit
                });
                answers::value(to, context, self.routes.get(route), ask, found);
            }
            (Decision::NotModified(status), _) => {
                to.ends(PollOutcome::NotModified);
                let current = found.map(|found| found.content.cursor);
                answers::not_modified(to, context, ask, current, status);
            }
            _ => {
                to.ends(PollOutcome::NotFound);
                to.text(context, 404, "no such key");
            }
        }
    }
}

/// Returns true if requests of this method publish, on a route that lets them.
pub(super) fn is_publish(method: &str) -> bool {
    matches!(method, "PUT" | "POST" | "DELETE")
}

/// Returns true if a query may have a parameter `k`; a check without allocation.
fn names_keys(query: &str) -> bool {
    query.starts_with("k=") || query.contains("&k=")
}

/// Returns true if a request may be much work: its answer is made for it alone, or lasts.
fn is_work(head: &RequestHead<'_, '_>) -> bool {
    head.query.is_some_and(names_keys) || is_upgrade(head) || wants_events(head)
}
