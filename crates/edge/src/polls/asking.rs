//! Routes on which the application says who may ask.
//!
//! Its answer is remembered for a while, and those who show the same at the same time share one
//! question. Whoever waits for it is a [`Poll`] with its whole request, which is looked at anew
//! when the application has answered.

use super::ask::{Method, plain_ask};
use super::common::Common;
use super::hold::Keep;
use super::identity::{Admitted, Identity};
use super::responder::Responder;
use super::tables::{Poll, kind};
use super::{Forward, Polls};
use crate::access::{
    Digest, Digester, Granted, Refused, Remembered, Verdict, credential, question,
};
use crate::held::{hold, hold_as};
use crate::metrics::{AuthOutcome, PollOutcome};
use crate::upstream::{UpstreamError, UpstreamEvent};
use dwell_engine::websocket::is_upgrade;
use dwell_engine::{Body, Http, Outcome, Reply, Request, Response};
use dwell_evloop::{Context, Slab, Token};
use dwell_proto::http1::{FieldStorage, Trailers, parse_request};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// What one loop knows of those whom the application has been asked about.
#[derive(Debug)]
pub(super) struct Asking {
    digester: Digester,
    known: Remembered<Verdict>,
    /// Questions under way, by what they are about.
    open: HashMap<Digest, Token>,
    questions: Slab<Question>,
    started: Option<Instant>,
}

/// One question to the application.
#[derive(Debug)]
struct Question {
    about: Digest,
    polls: Vec<Token>,
}

/// Verdicts that a loop remembers.
const KNOWN_MAX: usize = 4096;
/// How long a refusal is remembered at most: whoever logs in meanwhile is let in soon.
const REFUSED_MAX: Duration = Duration::from_secs(1);

impl Asking {
    pub(super) fn new(questions_max: usize) -> Self {
        Self {
            digester: Digester::new(),
            known: Remembered::new(KNOWN_MAX),
            open: HashMap::new(),
            questions: Slab::new(kind::QUESTION, questions_max),
            started: None,
        }
    }

    /// Whether the application has still to answer this question.
    pub(super) fn is_open(&self, question: Token) -> bool {
        self.questions.get(question).is_some()
    }

    /// Milliseconds since this was asked first.
    fn now(&mut self, context: &Context) -> u64 {
        let now = context.now();
        let started = *self.started.get_or_insert(now);
        u64::try_from(now.saturating_duration_since(started).as_millis()).unwrap_or(u64::MAX)
    }
}

impl Polls {
    /// Completes an identity by what the application knows of the client.
    ///
    /// # Errors
    /// The outcome of a request that was answered instead, or waits for the application.
    pub(super) fn ask_application(
        &mut self,
        context: &mut Context,
        route: u16,
        request: &Request<'_>,
        mut identity: Identity,
        to: &mut Responder<'_, '_>,
    ) -> Result<Identity, Outcome> {
        let config = Arc::clone(&self.config);
        let rules = &config.routes[usize::from(route)];
        let Some(path) = rules.access.auth.as_deref() else {
            return Ok(identity);
        };
        let peer = to.peer_address().map(|peer| peer.ip());
        let about = credential(&self.asking.digester, path, request.head, peer);
        let now = self.asking.now(context);
        if let Some(verdict) = self.asking.known.get(&about, now).cloned() {
            self.metrics.auth.increment(AuthOutcome::Known);
            return follow(context, verdict, &mut identity, to).map(|()| identity);
        }
        let admitted = Admitted {
            route,
            request,
            identity: &identity,
        };
        let arrival = admitted.arrival(plain_ask(request.head), &[]);
        let open = self.asking.open.get(&about).copied();
        if open.is_none() && self.asking.questions.is_full() || self.records.is_full() {
            return Err(self.refuse_busy(context, route, to));
        }
        let client = self.client_of(request.head, to.peer_address());
        let question = open.or_else(|| {
            let bytes = question(path, request.head, &config.upstream.default_host, peer);
            let polls = Vec::new();
            let fetch = self
                .asking
                .questions
                .insert(Question { about, polls })
                .ok()?;
            self.asking.open.insert(about, fetch);
            self.metrics.auth.increment(AuthOutcome::Asked);
            self.outbox.forwards.push(Forward {
                fetch,
                common: Common::nobodys(Method::Get),
                bytes,
                is_head: false,
                is_idempotent: true,
                client,
            });
            Some(fetch)
        });
        let Some(token) = question else {
            return Err(self.refuse_busy(context, route, to));
        };
        let poll = self.record(context, &arrival, token, Keep::Request);
        let poll = self.records.insert(poll).ok();
        if let (Some(poll), Some(question)) = (poll, self.asking.questions.get_mut(token)) {
            question.polls.push(poll);
        }
        Err(self.hold_or_refuse(context, poll, route, to))
    }

    /// The application has answered a question, or failed to; whether it was one.
    pub(super) fn answered_question(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        event: &UpstreamEvent,
    ) -> bool {
        let token = Token::from_bits(event.tag());
        if token.kind() != kind::QUESTION {
            return false;
        }
        if let UpstreamEvent::Large { connection, .. } = event {
            self.forwards.cancel(*connection, token);
        }
        let verdict_of = |names: &mut dyn Iterator<Item = &str>| match event {
            UpstreamEvent::Answer { answer, .. } => Ok(Verdict::of(answer, names)),
            UpstreamEvent::Failed { error, .. } => Err(error),
            // A word of such a size is none.
            _ => Ok(None),
        };
        let Some(question) = self.asking.questions.remove(token) else {
            return true;
        };
        self.asking.open.remove(&question.about);
        let route = question
            .polls
            .iter()
            .find_map(|poll| self.records.get(*poll))
            .map(|poll| poll.route);
        let Some(rules) = route.and_then(|route| self.route(route)) else {
            return true;
        };
        let time = rules.access.auth_time;
        let verdict = verdict_of(&mut rules.key.granted_names());
        let outcome = match &verdict {
            Ok(Some(Verdict::Granted(_))) => AuthOutcome::Granted,
            Ok(Some(Verdict::Refused(_))) => AuthOutcome::Refused,
            Ok(None) | Err(_) => AuthOutcome::Failed,
        };
        self.metrics.auth.increment(outcome);
        if let Ok(Some(verdict)) = &verdict {
            let time = match verdict {
                Verdict::Granted(_) => time,
                Verdict::Refused(_) => time.min(REFUSED_MAX),
            };
            let now = self.asking.now(context);
            let until = now.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
            self.asking
                .known
                .put(question.about, until, verdict.clone(), now);
        }
        for poll in question.polls {
            if let Ok(Some(Verdict::Granted(granted))) = &verdict
                && self.is_upgrade(poll)
            {
                self.let_in_later(context, http, poll, granted);
            } else if let Some(poll) = self.records.remove(poll) {
                self.resume(context, http, &poll, &verdict);
            }
        }
        true
    }

    /// Looks at a request whose client the application knows now.
    fn resume(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        poll: &Poll,
        verdict: &Result<Option<Verdict>, &UpstreamError>,
    ) {
        let (exchange, responses) = (poll.exchange, Arc::clone(&self.responses));
        let mut to = Responder::held(http, poll, &responses);
        let verdict = match verdict {
            Ok(Some(verdict)) => verdict.clone(),
            Ok(None) => {
                to.ends(PollOutcome::Failed);
                let text = "the application says neither yes nor no";
                return to.text(context, 502, text);
            }
            Err(error) => {
                to.ends(PollOutcome::Failed);
                let text = format!("upstream: {error}");
                return match error.status() {
                    503 => self.refuse(context, &mut to, &text),
                    status => to.text(context, status, &text),
                };
            }
        };
        let outcome = self.look_at_kept(context, poll, verdict, &mut to);
        hold_as(http, context, exchange, &outcome);
    }

    /// Looks at a kept request as if it came now.
    fn look_at_kept(
        &mut self,
        context: &mut Context,
        poll: &Poll,
        verdict: Verdict,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        // A reload has taken it away, and nobody says any more what its clients may have.
        if usize::from(poll.route) >= self.config.routes.len() {
            self.refuse(context, to, "the route is gone");
            return Outcome::Answered;
        }
        let mut storage = FieldStorage::new();
        let kept = poll.request.as_deref();
        let head = kept.map(|kept| parse_request(kept.head(), &mut storage, &self.head_limits()));
        // What was parsed within these limits once is within them again.
        let (Some(kept), Some(Ok(head))) = (kept, head) else {
            return Outcome::Close;
        };
        let request = Request {
            exchange: poll.exchange,
            head: &head,
            head_bytes: kept.head(),
            body: kept.body(),
            body_follows: false,
            trailers: Trailers::NONE,
        };
        let mut identity = Identity::of(poll.origin);
        let needs_token = self.route(poll.route).is_some_and(|rules| rules.access.jwt);
        if needs_token && !self.identify(context, &request, &mut identity, to) {
            return Outcome::Answered;
        }
        if let Err(outcome) = follow(context, verdict, &mut identity, to) {
            return outcome;
        }
        let admitted = Admitted {
            route: poll.route,
            request: &request,
            identity: &identity,
        };
        self.admitted(context, admitted, to)
    }

    /// Whether a kept request wants a WebSocket.
    fn is_upgrade(&self, poll: Token) -> bool {
        let kept = self
            .records
            .get(poll)
            .and_then(|poll| poll.request.as_deref());
        let mut storage = FieldStorage::new();
        let head = kept.map(|kept| parse_request(kept.head(), &mut storage, &self.head_limits()));
        matches!(head, Some(Ok(head)) if head.method == "GET" && is_upgrade(&head))
    }

    /// Lets somebody in as soon as the engine calls for them: only then can a connection be handed
    /// over.
    fn let_in_later(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        token: Token,
        granted: &Arc<Granted>,
    ) {
        let poll = self.records.get_mut(token);
        let Some((exchange, kept)) =
            poll.and_then(|poll| Some((poll.exchange, poll.request.as_mut()?)))
        else {
            return;
        };
        kept.granted = Some(Arc::clone(granted));
        hold(http, context, exchange, token.to_bits(), Duration::ZERO);
    }

    /// Lets somebody in whom the engine calls for; `None` where nobody has said so.
    pub(super) fn let_in(
        &mut self,
        context: &mut Context,
        token: Token,
        reply: &mut Reply<'_>,
    ) -> Option<Outcome> {
        let kept = self.records.get(token)?.request.as_ref()?;
        let verdict = Verdict::Granted(Arc::clone(kept.granted.as_ref()?));
        let poll = self.records.remove(token)?;
        let responses = Arc::clone(&self.responses);
        let mut to = Responder::ended(reply, &poll, &responses);
        Some(self.look_at_kept(context, &poll, verdict, &mut to))
    }
}

/// Adds what the application grants to an identity, or passes its refusal on.
///
/// # Errors
/// The outcome of a request that was refused.
fn follow(
    context: &mut Context,
    verdict: Verdict,
    identity: &mut Identity,
    to: &mut Responder<'_, '_>,
) -> Result<(), Outcome> {
    match verdict {
        Verdict::Granted(granted) => {
            identity.granted = Some(granted);
            Ok(())
        }
        Verdict::Refused(refused) => {
            to.ends(PollOutcome::Denied);
            pass_on(context, &refused, to);
            Err(Outcome::Answered)
        }
    }
}

fn pass_on(context: &mut Context, refused: &Refused, to: &mut Responder<'_, '_>) {
    let fields: Vec<(&str, &[u8])> = refused
        .fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_ref()))
        .collect();
    to.send(
        context,
        &Response {
            status: refused.status,
            fields: &fields,
            body: Body::Shared(refused.body.clone()),
        },
    );
}
