//! Routes on which values are stored and removed.

use super::admit::refuse_share;
use super::ask::{Admitted, plain_ask, scheme};
use super::hold::{Keep, record};
use super::lookups::{Lookups, seconds};
use super::messages::frame_of;
use super::owed::owed_time;
use super::tables::{Keys, Poll};
use crate::access::{Bearer, CertificateRefusal, Gate, Identity, MayPublish, RateKey, ShownClient};
use crate::config::{Config, RouteConfig, RouteId, Routes};
use crate::cursor::Cursor;
use crate::held::held;
use crate::ids::PublishId;
use crate::metrics::{LoopMetrics, PublishOutcome};
use crate::publish::{self, Finished, PublishError, PublishRequest, PublishResult, Publisher};
use crate::responder::{Responder, Responses};
use dwell_engine::{ExchangeId, Http, Outcome, Reply, Request, Response};
use dwell_evloop::{Context, Id, Token};
use dwell_proto::http1::RequestHead;
use std::sync::Arc;
use std::time::Duration;

/// Longest time for a response that is sent when the turn ends.
const AT_ONCE: Duration = Duration::from_secs(1);

/// The client of a publisher's request.
#[derive(Debug)]
pub(crate) enum Asker {
    /// A client of a route.
    Client(Poll),
    /// One of the admin listener.
    Admin(ExchangeId),
    /// A WebSocket, and how it names the key.
    Socket(Token, Option<Box<str>>),
}

/// Orders of publishers, with the parts of the loop that they touch: nothing that waits is told by
/// them, and the application is not asked.
pub(crate) struct Publications<'a> {
    pub(super) config: &'a Config,
    pub(super) routes: &'a Routes,
    pub(super) metrics: &'a LoopMetrics,
    pub(super) responses: &'a Arc<Responses>,
    pub(super) gate: &'a Gate,
    pub(super) lookups: &'a mut Lookups,
    pub(super) keys: &'a mut Keys,
    /// Frames for one WebSocket each.
    pub(super) replies: &'a mut Vec<(Token, String)>,
    pub(super) publisher: &'a mut Publisher<Asker>,
    /// Memory that each request uses again.
    pub(super) scratch: &'a mut Vec<u8>,
}

/// Returns true if requests of this method publish, on a route that lets them.
pub(super) fn is_publish(method: &str) -> bool {
    matches!(method, "PUT" | "POST" | "DELETE")
}

/// Returns true if a request may have a value as its body.
pub(super) fn may_publish(
    gate: &Gate,
    route: &RouteConfig,
    head: &RequestHead<'_, '_>,
    client: impl FnOnce() -> ShownClient,
) -> bool {
    let is_its = route.access.publish && is_publish(head.method);
    is_its && gate.may_publish(head.fields, client) == MayPublish::Yes
}

impl Publications<'_> {
    /// A request that stores or removes a value.
    pub(super) fn request(
        &mut self,
        context: &mut Context,
        route: RouteId,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let to = Responder::now(reply, request, self.responses, context);
        let mut to = to.on_route(route);
        let origin = self.responses.cors.origin(route, request.head);
        to.tell_origin(route, origin);
        // Before the token is checked: guesses of tokens count, too.
        let rules = self.routes.get(route);
        if let Some(rate) = rules.access.rate_per_publisher {
            let client = self.gate.client_of(request.head, to.peer_address());
            let counted = RateKey::Publisher(client);
            let taken = self.gate.take_share(context.now(), rules, counted, rate);
            if let Err(limited) = taken {
                self.metrics.publishes.increment(PublishOutcome::Limited);
                refuse_share(context, limited, &mut to);
                return Outcome::Answered;
            }
        }
        let client = || to.client(request.is_secure);
        let may_publish = self.gate.may_publish(request.head.fields, client);
        if may_publish != MayPublish::Yes {
            return self.deny(context, may_publish, &mut to);
        }
        let mut scratch = std::mem::take(self.scratch);
        let identity = Identity::of(origin);
        let admitted = Admitted {
            route,
            request,
            scheme: scheme(self.config, request, &to),
            identity: Some(&identity),
        };
        let outcome = match self.ordered(admitted, &mut scratch) {
            Ok((order, name)) => self.carry_out(context, admitted, order, name, &mut to),
            Err(error) => {
                self.metrics.publishes.increment(PublishOutcome::Invalid);
                let (status, why) = (error.status(), error.to_string());
                publish::refuse(status, &why, |answer| to.send(context, answer));
                Outcome::Answered
            }
        };
        *self.scratch = scratch;
        outcome
    }

    /// Answers a client that may not publish.
    fn deny(
        &self,
        context: &mut Context,
        may_publish: MayPublish,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        if may_publish == MayPublish::Unknown {
            self.metrics.publishes.increment(PublishOutcome::Refused);
            to.close_after();
            let text = CertificateRefusal::Unknown.text();
            to.text_with(context, 503, text, &[("Retry-After", b"1")]);
            return Outcome::Answered;
        }
        self.metrics.publishes.increment(PublishOutcome::Denied);
        let mut send = |answer: &Response<'_>| to.send(context, answer);
        match may_publish {
            MayPublish::NoToken(bearer) => publish::denied(bearer == Bearer::Unknown, send),
            _ => publish::refuse(
                403,
                "publishing takes the certificate of a publisher",
                &mut send,
            ),
        }
        Outcome::Answered
    }

    /// Reads the operation of a request, and its key.
    fn ordered<'k>(
        &self,
        admitted: Admitted<'k>,
        scratch: &'k mut Vec<u8>,
    ) -> Result<(PublishRequest, &'k [u8]), PublishError> {
        let head = admitted.request.head;
        let order = PublishRequest::of(head)?.ok_or(PublishError::Precondition)?;
        let template = &self.routes.get(admitted.route).key;
        let name = template.render(head.path, head.query, &admitted.key_inputs(), scratch);
        Ok((order, name.map_err(PublishError::Key)?))
    }

    fn carry_out(
        &mut self,
        context: &mut Context,
        admitted: Admitted<'_>,
        order: PublishRequest,
        name: &[u8],
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        let request = admitted.request;
        if let Some(store) = self.lookups.store() {
            let now = seconds(context);
            let published = publish::carry_out(store, order, name, request.body, now);
            let cursor = Cursor::of(request.body, 0);
            self.metrics.publishes.increment(published.outcome());
            publish::send(&published, cursor, |answer| to.send(context, answer));
            return Outcome::Answered;
        }
        let arrival = admitted.arrival(plain_ask(request.head), name);
        let log = &self.responses.log;
        let poll = record(self.config, log, to.arrived(), &arrival, Keep::Line);
        let asker = |_| Asker::Client(poll);
        let token = self
            .publisher
            .take(context, asker, order, name, request.body);
        held(token.to_bits(), owed_time(self.config))
    }

    /// Takes an order of the admin listener.
    pub(crate) fn take_for_admin(
        &mut self,
        context: &Context,
        exchange: ExchangeId,
        order: PublishRequest,
        name: &[u8],
        value: &[u8],
    ) {
        let asker = |_| Asker::Admin(exchange);
        self.publisher.take(context, asker, order, name, value);
    }

    /// Answers the clients whose orders have ended; returns those of the admin listener.
    pub(crate) fn answer(
        &mut self,
        context: &mut Context,
        http: &mut Http,
    ) -> Vec<(ExchangeId, Finished<()>)> {
        let mut of_admin = Vec::new();
        for finished in self.publisher.finished() {
            let (asker, finished) = finished.parts();
            self.metrics
                .publishes
                .increment(finished.published.outcome());
            self.look_at_published(&finished);
            match asker {
                Asker::Admin(exchange) => of_admin.push((exchange, finished)),
                Asker::Socket(socket, label) => {
                    let frame = frame_of(&finished.published, finished.cursor, label.as_deref());
                    self.replies.push((socket, frame));
                }
                Asker::Client(poll) => {
                    let mut to = Responder::held(http, &poll, self.responses);
                    publish::send(&finished.published, finished.cursor, |answer| {
                        to.send(context, answer);
                    });
                }
            }
        }
        of_admin
    }

    /// Reads a published key, so that clients of this loop need not wait for the sweep.
    fn look_at_published(&mut self, finished: &Finished<()>) {
        let has_changed = matches!(
            finished.published,
            PublishResult::Created | PublishResult::Replaced | PublishResult::Deleted
        );
        let is_news = has_changed && !self.lookups.reads_waits_apart();
        let key = self.keys.find(&finished.key).filter(|_| is_news);
        if let Some(key) = key.filter(|key| self.keys.waited_name(*key).is_some()) {
            self.lookups.read(self.keys, key);
        }
    }

    /// Handles an order whose result memcached has not sent in time.
    pub(crate) fn expired(&mut self, publish: PublishId) -> Outcome {
        if self.publisher.expire(publish) || self.publisher.has_finished() {
            // It is answered when the turn ends.
            return held(publish.to_bits(), AT_ONCE);
        }
        Outcome::Close
    }
}
