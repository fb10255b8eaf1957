//! Routes on which values are stored and removed.

use super::admit::refuse_share;
use super::arrive::is_publish;
use super::ask::{Admitted, plain_ask};
use super::hold::Keep;
use super::tables::Poll;
use super::{Polls, seconds};
use crate::access::{Bearer, Identity, RateKey};
use crate::config::{RouteConfig, RouteId};
use crate::cursor::Cursor;
use crate::held::held;
use crate::ids::KeyId;
use crate::metrics::PublishOutcome;
use crate::publish::{self, Finished, PublishError, PublishRequest, PublishResult};
use crate::responder::Responder;
use dwell_engine::{ExchangeId, Http, Outcome, Reply, Request};
use dwell_evloop::{Context, Id, Token};
use dwell_proto::http1::RequestHead;

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

impl Polls {
    /// Returns true if a request may have a value as its body.
    pub(super) fn may_publish(&self, route: &RouteConfig, head: &RequestHead<'_, '_>) -> bool {
        route.access.publish
            && is_publish(head.method)
            && self.gate.bearer(head.fields) == Bearer::Known
    }

    /// A request that stores or removes a value.
    pub(super) fn publish(
        &mut self,
        context: &mut Context,
        route: RouteId,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let mut to = Responder::now(reply, request, &self.responses, context);
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
        let bearer = self.gate.bearer(request.head.fields);
        if bearer != Bearer::Known {
            self.metrics.publishes.increment(PublishOutcome::Denied);
            publish::denied(bearer == Bearer::Unknown, |answer| to.send(context, answer));
            return Outcome::Answered;
        }
        let mut scratch = std::mem::take(&mut self.scratch.key);
        let outcome = match self.ordered(route, request.head, &mut scratch) {
            Ok((order, name)) => {
                let identity = Identity::of(origin);
                let admitted = Admitted {
                    route,
                    request,
                    identity: Some(&identity),
                };
                self.carry_out(context, admitted, order, name, &mut to)
            }
            Err(error) => {
                self.metrics.publishes.increment(PublishOutcome::Invalid);
                let (status, why) = (error.status(), error.to_string());
                publish::refuse(status, &why, |answer| to.send(context, answer));
                Outcome::Answered
            }
        };
        self.scratch.key = scratch;
        outcome
    }

    /// Reads the operation of a request, and its key.
    fn ordered<'k>(
        &self,
        route: RouteId,
        head: &RequestHead<'k, '_>,
        scratch: &'k mut Vec<u8>,
    ) -> Result<(PublishRequest, &'k [u8]), PublishError> {
        let order = PublishRequest::of(head)?.ok_or(PublishError::Precondition)?;
        let find = |name: &str| head.fields.find(name);
        let template = &self.routes.get(route).key;
        let name = template.render(head.path, head.query, &find, scratch);
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
        let poll = self.record(context, &arrival, Keep::Line);
        let asker = |_| Asker::Client(poll);
        let token = self
            .publisher
            .take(context, asker, order, name, request.body);
        held(token.to_bits(), self.owed_time())
    }

    /// Takes an order of the admin listener.
    pub(crate) fn publish_for_admin(
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
    pub(crate) fn answer_publishers(
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
                    self.socket_published(socket, label.as_deref(), &finished);
                }
                Asker::Client(poll) => {
                    let mut to = Responder::held(http, &poll, &self.responses);
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
        let key = self
            .waiters
            .keys
            .find(&finished.key)
            .filter(|_| has_changed);
        let is_waited = |key: &KeyId| {
            self.waiters
                .keys
                .get(*key)
                .is_some_and(|k| !k.waiting.is_empty())
        };
        if let Some(key) = key.filter(is_waited) {
            self.lookups.ask(&mut self.waiters.keys, key);
        }
    }
}
