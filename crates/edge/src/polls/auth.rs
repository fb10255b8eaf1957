//! Routes on which the application decides on access.
//!
//! A decision is cached for a while, and concurrent requests with the same credential share one
//! subrequest. A request that waits for it is a [`Poll`](super::tables::Poll) with its whole
//! request, which arrives again when the application has answered.

use super::FetchRequest;
use super::admit::{AccessChecks, deny};
use super::ask::{Admitted, plain_ask, scheme};
use super::fetch::head_limits;
use super::hold::{Keep, record};
use super::owed::owed_time;
use super::places::Event;
use crate::access::{AuthDecision, Digest, Granted, Identity, auth_request};
use crate::config::RouteId;
use crate::held::hold;
use crate::ids::{PollId, SubrequestId};
use crate::metrics::AuthOutcome;
use crate::responder::Responder;
use dwell_engine::websocket::is_upgrade;
use dwell_engine::{Http, Outcome, Request};
use dwell_evloop::{Context, Id};
use dwell_proto::http1::FieldStorage;
use dwell_upstream::{UpstreamError, UpstreamEvent};
use std::sync::Arc;
use std::time::Duration;

/// The decision of the application; `None` for a response without a decision.
pub(super) type AuthResult<'e> = Result<Option<AuthDecision>, &'e UpstreamError>;

impl AccessChecks<'_> {
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
                Err(denial) => Err(deny(context, &denial, self.refusals, to)),
            };
        }
        let admitted = Admitted {
            route,
            request,
            scheme: scheme(self.config, request, to),
            identity: Some(&identity),
        };
        if self.waiters.polls().is_full() {
            return Err(self.refusals.refuse_busy(context, to));
        }
        let Some(subrequest) = self.auth_subrequest(admitted, path, credential, to) else {
            return Err(self.refusals.refuse_busy(context, to));
        };
        let mut ask = plain_ask(request.head);
        ask.form.set_secure(request.is_secure);
        let (arrival, log) = (admitted.arrival(ask, &[]), &self.responses.log);
        let mut poll = record(self.config, log, to.arrived(), &arrival, Keep::Request);
        poll.place.moves(Event::AccessUnknown, subrequest);
        let Ok(poll) = self.waiters.insert(poll) else {
            return Err(self.refusals.refuse_busy(context, to));
        };
        self.gate.subrequests.join(subrequest, poll);
        Err(to.hold(context, poll.to_bits(), owed_time(self.config)))
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

    /// Ends a subrequest by its response, or its failure; returns the polls that it was for.
    pub(super) fn ended<'e>(
        &mut self,
        context: &Context,
        subrequest: SubrequestId,
        event: &'e UpstreamEvent,
    ) -> Option<(Vec<PollId>, AuthResult<'e>)> {
        let decision_of = |names: &mut dyn Iterator<Item = &str>| match event {
            UpstreamEvent::Answer { answer, .. } => Ok(AuthDecision::of(answer, names)),
            UpstreamEvent::Failed { error, .. } => Err(error),
            // A response this large is no decision.
            _ => Ok(None),
        };
        let ended = self.gate.subrequests.end(subrequest)?;
        let mut waiting = ended.waiting.iter();
        let poll = waiting.find_map(|poll| self.waiters.polls().get(*poll))?;
        let rules = self.routes.get(poll.route);
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
        Some((ended.waiting, decision))
    }

    /// Returns true if a kept request asks for a WebSocket.
    pub(super) fn is_upgrade(&self, poll: PollId) -> bool {
        let kept = self
            .waiters
            .polls()
            .get(poll)
            .and_then(|poll| poll.request.as_deref());
        let mut storage = FieldStorage::new();
        let head = kept.and_then(|kept| kept.parse(&mut storage, &head_limits(self.config)));
        matches!(head, Some(head) if head.method == "GET" && is_upgrade(&head))
    }

    /// Resumes a WebSocket request, whose access is granted, at its next deadline: only then does
    /// the engine hand over a connection.
    pub(super) fn resume_later(
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
}
