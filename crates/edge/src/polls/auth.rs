//! Routes on which the application decides on access.
//!
//! A decision is cached for a while, and concurrent requests with the same credential share one
//! subrequest. A request that waits for it is a [`Poll`] with its whole request, which arrives
//! again when the application has answered.

use super::admit::deny;
use super::ask::{Admitted, plain_ask};
use super::hold::Keep;
use super::places::Event;
use super::tables::Poll;
use super::{FetchRequest, Polls};
use crate::access::{AuthDecision, Digest, Granted, Identity, auth_request};
use crate::config::RouteId;
use crate::held::hold;
use crate::ids::{PollId, SubrequestId};
use crate::metrics::{AuthOutcome, PollOutcome};
use crate::responder::Responder;
use dwell_engine::websocket::is_upgrade;
use dwell_engine::{Http, Outcome, Reply, Request};
use dwell_evloop::{Context, Id};
use dwell_proto::http1::{FieldStorage, Trailers};
use dwell_upstream::{UpstreamError, UpstreamEvent};
use std::sync::Arc;
use std::time::Duration;

impl Polls {
    /// Completes an identity by the decision of the application on the client.
    ///
    /// # Errors
    /// The outcome of a request that was answered instead, or waits for the application.
    pub(super) fn ask_application(
        &mut self,
        context: &mut Context,
        route: RouteId,
        request: &Request<'_>,
        mut identity: Identity,
        to: &mut Responder<'_, '_>,
    ) -> Result<Identity, Outcome> {
        let rules = Arc::clone(&self.routes.get(route).options);
        let Some(path) = rules.access.auth.as_deref() else {
            return Ok(identity);
        };
        let peer = to.peer_address().map(|peer| peer.ip());
        let subrequests = &mut self.gate.subrequests;
        let credential = subrequests.credential(path, request.head, peer);
        if let Some(decision) = subrequests.decision(&credential, context.now()) {
            self.metrics.auth.increment(AuthOutcome::Known);
            return match identity.decided(decision) {
                Ok(()) => Ok(identity),
                Err(denial) => Err(deny(context, &denial, to)),
            };
        }
        let admitted = Admitted {
            route,
            request,
            identity: Some(&identity),
        };
        if self.waiters.polls().is_full() {
            return Err(self.refuse_busy(context, to));
        }
        let Some(subrequest) = self.auth_subrequest(admitted, path, credential, to) else {
            return Err(self.refuse_busy(context, to));
        };
        let mut ask = plain_ask(request.head);
        ask.form.set_secure(request.is_secure);
        let arrival = admitted.arrival(ask, &[]);
        let mut poll = self.record(context, &arrival, Keep::Request);
        poll.place.moves(Event::AccessUnknown, subrequest);
        let poll = self.waiters.insert(poll).ok();
        if let Some(poll) = poll {
            self.gate.subrequests.join(subrequest, poll);
        }
        Err(self.hold_or_refuse(context, poll, to))
    }

    /// The subrequest that decides on a request: an open one, or a new one if there is room.
    fn auth_subrequest(
        &mut self,
        admitted: Admitted<'_>,
        path: &str,
        credential: Digest,
        to: &Responder<'_, '_>,
    ) -> Option<SubrequestId> {
        let under_way = self.gate.subrequests.find(&credential);
        if under_way.is_some() {
            return under_way;
        }
        let fetch = self.gate.subrequests.begin(credential)?;
        let (head, peer) = (admitted.request.head, to.peer_address());
        let default_host = &self.config.upstream.default_host;
        self.metrics.auth.increment(AuthOutcome::Asked);
        let request = FetchRequest {
            bytes: auth_request(path, head, default_host, peer.map(|peer| peer.ip())),
            is_head: false,
            is_idempotent: true,
            client: self.gate.client_of(head, peer),
        };
        self.misses.send(fetch.into(), request);
        Some(fetch)
    }

    /// Handles the response to a subrequest, or its failure.
    pub(crate) fn subrequest_event(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        subrequest: SubrequestId,
        event: &UpstreamEvent,
    ) {
        let decision_of = |names: &mut dyn Iterator<Item = &str>| match event {
            UpstreamEvent::Answer { answer, .. } => Ok(AuthDecision::of(answer, names)),
            UpstreamEvent::Failed { error, .. } => Err(error),
            // A response this large is no decision.
            _ => Ok(None),
        };
        let Some(ended) = self.gate.subrequests.end(subrequest) else {
            return;
        };
        let route = ended
            .waiting
            .iter()
            .find_map(|poll| self.waiters.polls().get(*poll))
            .map(|poll| poll.route);
        let Some(rules) = route.map(|route| self.routes.get(route)) else {
            return;
        };
        let time = rules.access.auth_time;
        let decision = decision_of(&mut rules.key.granted_names());
        let outcome = match &decision {
            Ok(Some(AuthDecision::Granted(_))) => AuthOutcome::Granted,
            Ok(Some(AuthDecision::Refused(_))) => AuthOutcome::Refused,
            Ok(None) | Err(_) => AuthOutcome::Failed,
        };
        self.metrics.auth.increment(outcome);
        if let Ok(Some(decision)) = &decision {
            let subrequests = &mut self.gate.subrequests;
            subrequests.remember(&ended, decision, time, context.now());
        }
        for poll in ended.waiting {
            if let Ok(Some(AuthDecision::Granted(granted))) = &decision
                && self.is_upgrade(poll)
            {
                self.resume_later(context, http, poll, granted);
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
        decision: &Result<Option<AuthDecision>, &UpstreamError>,
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
            Err(error) => return self.tell_failure(context, error, &mut to),
        };
        self.look_at_kept(context, poll, decision, &mut to);
    }

    /// Handles a kept request as if it arrived now.
    fn look_at_kept(
        &mut self,
        context: &mut Context,
        poll: &Poll,
        decision: AuthDecision,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        // A reload has removed the route, and with it the rules for its clients.
        if !self.routes.is_current(poll.route) {
            self.refuse(context, to, "the route is gone");
            return Outcome::Answered;
        }
        let mut storage = FieldStorage::new();
        let kept = poll.request.as_deref();
        let head = kept.and_then(|kept| kept.parse(&mut storage, &self.head_limits()));
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
        let verified = self.gate.verify(rules, &head, now, &mut identity);
        if let Err(denial) = verified.and_then(|()| identity.decided(decision)) {
            return deny(context, &denial, to);
        }
        let admitted = Admitted {
            route: poll.route,
            request: &request,
            identity: Some(&identity),
        };
        self.admitted(context, admitted, to)
    }

    /// Returns true if a kept request asks for a WebSocket.
    fn is_upgrade(&self, poll: PollId) -> bool {
        let kept = self
            .waiters
            .polls()
            .get(poll)
            .and_then(|poll| poll.request.as_deref());
        let mut storage = FieldStorage::new();
        let head = kept.and_then(|kept| kept.parse(&mut storage, &self.head_limits()));
        matches!(head, Some(head) if head.method == "GET" && is_upgrade(&head))
    }

    /// Resumes a WebSocket request, whose access is granted, at its next deadline: only then does
    /// the engine hand over a connection.
    fn resume_later(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        token: PollId,
        granted: &Arc<Granted>,
    ) {
        let poll = self.waiters.poll_mut(token);
        let Some((exchange, kept)) =
            poll.and_then(|poll| Some((poll.exchange, poll.request.as_mut()?)))
        else {
            return;
        };
        kept.granted = Some(Arc::clone(granted));
        hold(http, context, exchange, token.to_bits(), Duration::ZERO);
    }

    /// Resumes a WebSocket request at its deadline; `None` if its access is not granted.
    pub(super) fn resume_granted(
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
        Some(self.look_at_kept(context, &poll, decision, &mut to))
    }
}
