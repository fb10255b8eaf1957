//! A request arrives: route, key, lookup, and an answer if it can be given at once.

use super::Polls;
use super::admit::deny;
use super::answers::{self, Found};
use super::ask::{Admitted, Arrival, Ask, scheme, wants_events};
use super::auth::AuthResult;
use super::budget::Now;
use super::decide::{Decision, Stage, decide};
use super::feeds::{Known, Opening};
use super::fetch::{Missed, head_limits};
use super::fetched::tell_failure;
use super::follow::NamedKey;
use super::hold::{Keep, record};
use super::lookups::seconds;
use super::owed::OVERDUE;
use super::poll_error::{AMBIGUOUS, PollError};
use super::publishing::{is_publish, may_publish};
use super::refusals::Refusal;
use super::sockets::NotOpened;
use super::tables::Poll;
use crate::access::{
    AuthDecision, Identity, ShownClient, is_certificate_left_out, sent_certificate,
};
use crate::config::RouteId;
use crate::ids::{PollId, StreamId, SubrequestId};
use crate::metrics::PollOutcome;
use crate::responder::Responder;
use dwell_engine::websocket::is_upgrade;
use dwell_engine::{BodyPlan, Detached, Http, Outcome, Reply, Request};
use dwell_evloop::{Context, Id, Stream};
use dwell_proto::http1::{FieldStorage, RequestHead, Trailers};
use dwell_upstream::UpstreamEvent;
use std::sync::Arc;
use std::time::Duration;

impl Polls {
    /// The plan for the body of a request on a route.
    pub(crate) fn body_plan(
        &self,
        route: RouteId,
        head: &RequestHead<'_, '_>,
        stream: &Stream,
    ) -> BodyPlan {
        let config = &self.config;
        let client = || ShownClient::of(stream.is_secure(), stream.client_names().cloned());
        let bytes_max = if may_publish(&self.gate, self.routes.get(route), head, client) {
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
            return self.publications().request(context, route, request, reply);
        }
        let is_guarded = rules.is_guarded;
        let to = Responder::now(reply, request, &self.responses, context);
        let mut to = to.on_route(route);
        let identity = if is_guarded {
            match self.access_checks().admit(context, route, request, &mut to) {
                Ok(identity) => Some(identity),
                Err(outcome) => return outcome,
            }
        } else {
            None
        };
        let admitted = Admitted {
            route,
            request,
            scheme: scheme(&self.config, request, &to),
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

    /// Ends the wait of a poll, or drops the answer that it is owed, as its time is over.
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

    /// Resumes a poll whose time is over and that waits for no change, or answers it with 504.
    fn owed_expired(
        &mut self,
        context: &mut Context,
        token: PollId,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        if let Some(outcome) = self.resume_granted(context, token, reply) {
            return outcome;
        }
        let Some(poll) = self.waiters.remove(token) else {
            return Outcome::Close;
        };
        let mut to = Responder::ended(reply, &poll, &self.responses);
        to.ends(PollOutcome::Failed);
        to.text(context, 504, OVERDUE);
        Outcome::Answered
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
        let outcome = match self.read(context, admitted, to, &mut scratch) {
            Ok((ask, name)) => {
                to.name_key(name);
                self.look_up(context, admitted.arrival(ask, name), to)
            }
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
        let read = self.read(context, admitted, to, &mut scratch);
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
                self.access_checks()
                    .count_further_keys(context, admitted, keys.len(), to);
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
        self.access_checks()
            .count_further_keys(context, admitted, keys.len(), to);
        match self.read_ask(context, admitted, to) {
            Ok(ask) if ask.is_stream => self.open_set(context, admitted, &ask, keys, to),
            Ok(ask) => self.multi_polls().begin(context, admitted, ask, keys, to),
            Err(error) => {
                error.refuse(context, to);
                Outcome::Answered
            }
        }
    }

    /// Begins a stream of several keys, or answers why not.
    fn open_set(
        &mut self,
        context: &mut Context,
        admitted: Admitted<'_>,
        ask: &Ask,
        keys: Vec<NamedKey>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        let opened = self.event_streams().open_set(context, admitted, keys, to);
        let set = match opened {
            Ok(set) => set,
            Err(outcome) => return outcome,
        };
        self.sub_fetches()
            .seek_all(context, set.into(), admitted, ask, to);
        self.event_streams().begin_set(context, set, to)
    }

    /// Makes a WebSocket of the connection of a poll, or answers why not.
    fn open_socket(
        &mut self,
        context: &mut Context,
        admitted: Admitted<'_>,
        ask: &Ask,
        keys: Vec<NamedKey>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        let left = admitted.time_left(context.unix_seconds());
        let (lifetime, most) = (
            self.config.limits.stream_lifetime,
            left.unwrap_or(Duration::MAX),
        );
        let ends = self.spread.end_of_life(context.tick(), lifetime, most);
        let mut sockets = self.socket_streams();
        match sockets.open(context, admitted, ask, keys, ends, to) {
            Ok(stream) => {
                self.sub_fetches()
                    .seek_all(context, stream, admitted, ask, to);
                let tag = stream.to_bits();
                Outcome::Detach { tag }
            }
            Err(NotOpened::NoRoom(refusal)) => self.refusals.refuse(context, to, refusal),
            Err(NotOpened::Answered) => Outcome::Answered,
        }
    }

    fn are_within_key_rate(
        &mut self,
        context: &mut Context,
        route: RouteId,
        keys: &[NamedKey],
        to: &mut Responder<'_, '_>,
    ) -> bool {
        let mut checks = self.access_checks();
        keys.iter()
            .all(|one| checks.is_within_key_rate(context, route, &one.name, to))
    }

    /// Reads from a request how it asks.
    fn read_ask(
        &self,
        context: &Context,
        admitted: Admitted<'_>,
        to: &Responder<'_, '_>,
    ) -> Result<Ask, PollError> {
        let route = self.routes.get(admitted.route);
        let left = admitted.time_left(context.unix_seconds());
        let mut ask = Ask::of(admitted.request.head, route, left).map_err(PollError::Ask)?;
        ask.form.set_secure(admitted.request.is_secure);
        // The application may answer each certificate in its own way.
        ask.shareable &= !self.sends_certificate(to);
        Ok(ask)
    }

    /// Returns true if the certificate of a client goes to the application.
    fn sends_certificate(&self, to: &Responder<'_, '_>) -> bool {
        if !self.config.tls.client_cert_field {
            return false;
        }
        let client = to.client_names();
        if is_certificate_left_out(&self.config, client) {
            self.metrics.client_certs_too_long.increment();
        }
        sent_certificate(&self.config, client, || to.peer_address()).is_some()
    }

    /// Reads from a request how it asks, and for which key.
    fn read<'k>(
        &self,
        context: &Context,
        admitted: Admitted<'k>,
        to: &Responder<'_, '_>,
        scratch: &'k mut Vec<u8>,
    ) -> Result<(Ask, &'k [u8]), PollError> {
        let ask = self.read_ask(context, admitted, to)?;
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
        if is_counted {
            let mut checks = self.access_checks();
            if !checks.is_within_key_rate(context, arrival.route, arrival.name, to) {
                return Outcome::Answered;
            }
        }
        if !self.lookups.is_immediate() {
            return self.holding().ask_memcached(context, arrival, to);
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
            Decision::Wait => match self.holding().begin_wait(context, arrival, to) {
                Ok(outcome) => outcome,
                // The key has changed since, and what there is now ends the wait.
                Err(newer) => {
                    let found = newer.as_ref().map(Found::stored);
                    self.looked_up_at_once(context, arrival, found.as_ref(), to)
                }
            },
            Decision::Miss => self.miss(context, arrival, to),
            decision => {
                answers::conclude(to, context, self.routes.get(route), &ask, decision, found);
                Outcome::Answered
            }
        }
    }

    /// A poll whose key has no value, as it arrives.
    fn miss(
        &mut self,
        context: &mut Context,
        arrival: Arrival<'_>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        // A client that is told to come back must not have been forwarded.
        if self.waiters.polls().is_full() {
            return self.refusals.refuse_busy(context, to);
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
            client: &|| to.client_names().cloned(),
        };
        let Some(fetch) = self.fetching().fetch_for(context.now(), &missed) else {
            return self.refusals.refuse_busy(context, to);
        };
        // What is sent as it came is never sent a second time; but a stream takes its key from it
        // once more, and one that waits may be held on.
        let keep = if ask.is_shared(self.routes.get(route)) || ask.is_stream || ask.waits() {
            Keep::Request
        } else {
            Keep::Line
        };
        let poll = record(
            &self.config,
            &self.responses.log,
            to.arrived(),
            &arrival,
            keep,
        );
        self.place_in_fetch(context, poll, fetch, to.exchange())
    }

    /// Handles the response to an access subrequest, or its failure.
    pub(crate) fn subrequest_event(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        subrequest: SubrequestId,
        event: &UpstreamEvent,
    ) {
        let ended = self.access_checks().ended(context, subrequest, event);
        let Some((waiting, decision)) = ended else {
            return;
        };
        for poll in waiting {
            let mut checks = self.access_checks();
            if let Ok(Some(AuthDecision::Granted(granted))) = &decision
                && checks.is_upgrade(poll)
            {
                checks.resume_later(context, http, poll, granted);
            } else if let Some(poll) = self.waiters.remove(poll) {
                self.resume(context, http, &poll, &decision);
            }
        }
    }

    /// Resumes a request on which the application has decided.
    fn resume(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        poll: &Poll,
        decision: &AuthResult<'_>,
    ) {
        let responses = Arc::clone(&self.responses);
        let mut to = Responder::held(http, poll, &responses);
        let decision = match decision {
            Ok(Some(decision)) => decision.clone(),
            Ok(None) => {
                to.ends(PollOutcome::Failed);
                let text = "the application says neither yes nor no";
                return to.text(context, 502, text);
            }
            Err(error) => return tell_failure(&mut self.refusals, context, error, &mut to),
        };
        self.arrives_again(context, poll, decision, &mut to);
    }

    /// Handles a kept request as if it arrived now.
    fn arrives_again(
        &mut self,
        context: &mut Context,
        poll: &Poll,
        decision: AuthDecision,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        if !self.routes.is_current(poll.route) {
            return self.refusals.refuse(context, to, Refusal::RouteGone);
        }
        let mut storage = FieldStorage::new();
        let kept = poll.request.as_deref();
        let head = kept.and_then(|kept| kept.parse(&mut storage, &head_limits(&self.config)));
        // What was parsed within these limits once is within them again.
        let (Some(kept), Some(head)) = (kept, head) else {
            return Outcome::Close;
        };
        let request = Request {
            exchange: poll.exchange,
            head: &head,
            head_bytes: kept.head(),
            body: kept.body(),
            body_follows: false,
            trailers: Trailers::NONE,
            is_secure: poll.ask.form.is_secure(),
        };
        let mut identity = Identity::of(poll.origin);
        let rules = self.routes.get(poll.route);
        let now = context.unix_seconds();
        let client = || to.client(request.is_secure);
        let verified = self.gate.verify(rules, &head, now, client, &mut identity);
        if let Err(denial) = verified.and_then(|()| identity.decided(decision)) {
            return deny(context, &denial, &mut self.refusals, to);
        }
        let admitted = Admitted {
            route: poll.route,
            request: &request,
            scheme: scheme(&self.config, &request, to),
            identity: Some(&identity),
        };
        self.admitted(context, admitted, to)
    }

    /// Resumes a WebSocket request at its deadline; `None` if its access is not granted.
    fn resume_granted(
        &mut self,
        context: &mut Context,
        token: PollId,
        reply: &mut Reply<'_>,
    ) -> Option<Outcome> {
        let kept = self.waiters.polls().get(token)?.request.as_ref()?;
        let decision = AuthDecision::Granted(Arc::clone(kept.granted.as_ref()?));
        let poll = self.waiters.remove(token)?;
        let responses = Arc::clone(&self.responses);
        let mut to = Responder::ended(reply, &poll, &responses);
        Some(self.arrives_again(context, &poll, decision, &mut to))
    }
}

/// Returns true if a query may have a parameter `k`; a check without allocation.
fn names_keys(query: &str) -> bool {
    query.starts_with("k=") || query.contains("&k=")
}

/// Returns true if a request may be much work: its answer is made for it alone, or lasts.
fn is_work(head: &RequestHead<'_, '_>) -> bool {
    head.query.is_some_and(names_keys) || is_upgrade(head) || wants_events(head)
}
