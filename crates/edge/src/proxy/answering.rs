//! The application's side of proxied requests: responses and failures.

use super::actions::Action;
use super::arriving::{CONTINUE_TIMEOUT, HOLD_TIMEOUT, Proxy};
use super::request::{Client, LoggedRequest, ProxiedRequest};
use super::response::{ErrorResponse, ProxiedResponse, ProxyReason};
use super::tunnels::Tunnel;
use super::upload::{Start, Upload};
use crate::held::hold;
use crate::ids::{FetchId, ProxiedId, Requested};
use crate::metrics::{PollOutcome, UpstreamOutcome};
use crate::responder::HeldClient;
use dwell_engine::{Detached, Http};
use dwell_evloop::{Context, Id, Token};
use dwell_proto::http1::{Version, encode};
use dwell_upstream::{AnswerHead, AnswerPart, UpstreamError, UpstreamEvent};
use std::net::SocketAddr;

/// A held exchange, and the open response that is passed on to it.
#[derive(Debug)]
pub(crate) struct Adopted<'a> {
    pub(crate) client: HeldClient<'a>,
    /// The exchange with the application.
    pub(crate) connection: Token,
    /// The server that answers.
    pub(crate) server: SocketAddr,
    /// The request that the response was for so far.
    pub(crate) fetch: FetchId,
}

impl Proxy {
    /// Handles an event of a request.
    pub(crate) fn upstream_event(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        event: UpstreamEvent,
    ) {
        match event {
            UpstreamEvent::Started { tag, connection } => {
                self.started(context, http, ProxiedId::from_bits(tag), connection);
            }
            UpstreamEvent::BodyTaken { tag } => {
                self.body_taken(context, http, ProxiedId::from_bits(tag));
            }
            UpstreamEvent::Parts {
                tag,
                connection,
                server,
                parts,
            } => {
                let id = ProxiedId::from_bits(tag);
                self.note_server(context, id, server);
                self.parts(context, http, id, connection, &parts);
            }
            UpstreamEvent::Switched {
                tag,
                server,
                head,
                detached,
            } => {
                let id = ProxiedId::from_bits(tag);
                self.note_server(context, id, server);
                self.switched(context, http, id, &head, *detached);
            }
            UpstreamEvent::Failed { tag, error, .. } => {
                self.failed(context, http, ProxiedId::from_bits(tag), &error);
            }
            // Only for requests that are shared.
            UpstreamEvent::Answer { .. } | UpstreamEvent::Large { .. } => {}
        }
    }

    /// Handles the connection of a request whose body follows.
    fn started(&mut self, context: &mut Context, http: &mut Http, id: ProxiedId, on: Token) {
        let window = self.config.upstream.window_bytes;
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        record.connection = Some(on);
        if let Some((piece, is_last)) = record.upload.take_kept() {
            self.actions.push(Action::Write { id, piece, is_last });
        }
        let exchange = record.client.exchange;
        match record.upload.start() {
            Start::Granted => {
                http.grant(context, exchange, window);
            }
            Start::AwaitsContinue => {
                hold(http, context, exchange, id.to_bits(), CONTINUE_TIMEOUT);
            }
            Start::Unchanged => {}
        }
    }

    /// Handles body bytes that the application has read: as many more are granted.
    pub(super) fn body_taken(&mut self, context: &mut Context, http: &mut Http, id: ProxiedId) {
        if let Some(record) = self.records.get_mut(id)
            && let Some(bytes) = record.upload.taken()
        {
            http.grant(context, record.client.exchange, bytes);
        }
    }

    /// Notes the server that responds, for the access log.
    fn note_server(&mut self, context: &Context, id: ProxiedId, server: SocketAddr) {
        if self.log.is_written()
            && let Some(record) = self.records.get_mut(id)
            && !record.response.has_begun()
            && let Client { line, arrived, .. } = &mut record.client
            && let Some(line) = line
        {
            line.responds(server, context.now().saturating_duration_since(*arrived));
        }
    }

    /// Handles parts of a response.
    fn parts(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        id: ProxiedId,
        connection: Token,
        parts: &[AnswerPart],
    ) {
        let window = self.config.upstream.window_bytes;
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        record.connection = Some(connection);
        let ProxiedRequest {
            client,
            upload,
            response,
            ..
        } = record;
        let exchange = client.exchange;
        let had_begun = response.has_begun();
        // A connection that ends with its response has no label any more.
        let listener = (!had_begun)
            .then(|| http.listener_label(exchange))
            .flatten();
        let passed = http.with_reply(context, exchange, |reply| {
            response.pass_on(parts, upload, window, reply)
        });
        let status = response.status();
        if response.has_begun() && !had_begun {
            client.count(context, &self.log, listener, status);
        }
        match passed {
            Some(passed) if passed.is_broken => {
                http.abort(context, exchange);
                self.abandoned(context, id);
            }
            Some(passed) if passed.is_ended => {
                self.count_answer(status);
                self.end(context, id);
            }
            Some(passed) => self.go_on(context, http, id, passed.bytes),
            // The clients' server reports its end in this turn or the next.
            None => {}
        }
    }

    /// Counts a finished request by its status. A response is counted at its end, since it may be
    /// cut short.
    pub(super) fn count_answer(&self, status: u16) {
        let outcome = match status {
            500.. => UpstreamOutcome::ServerError,
            _ => UpstreamOutcome::Answered,
        };
        self.metrics().upstream_requests.increment(outcome);
    }

    /// Grants the bytes that were passed on at once if the client has read them, else when it has.
    fn go_on(&mut self, context: &mut Context, http: &mut Http, id: ProxiedId, bytes: usize) {
        let Some(record) = self.records.get_mut(id).filter(|_| bytes > 0) else {
            return;
        };
        record.response.add_unread(bytes);
        let exchange = record.client.exchange;
        let queued = http.with_reply(context, exchange, |reply| {
            reply.await_drained();
            reply.queued_bytes()
        });
        if let (Some(0), Some(connection)) = (queued, record.connection) {
            let bytes = record.response.take_unread();
            self.actions.push(Action::Grant {
                id,
                connection,
                bytes,
            });
        }
    }

    /// Handles a failure, before or during the response.
    pub(super) fn failed(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        id: ProxiedId,
        error: &UpstreamError,
    ) {
        let outcome = UpstreamOutcome::from(error);
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        let exchange = record.client.exchange;
        if record.response.has_begun() {
            // The client must not take a truncated response for a complete one.
            http.abort(context, exchange);
        } else {
            let (status, reason) = (error.status(), format!("upstream: {error}"));
            record.response.begin(status);
            let refusal = ErrorResponse::new(status, &reason, self.retry_after(context, status));
            let fields = refusal.fields();
            let sent = http.with_reply(context, exchange, |reply| {
                reply.send(&refusal.response(&fields));
                reply.listener_label()
            });
            if let Some((record, listener)) = self.records.get(id).zip(sent) {
                record.client.count(context, &self.log, listener, status);
            }
        }
        self.metrics().upstream_requests.increment(outcome);
        self.end(context, id);
    }

    /// Switches the client's connection to the protocol that the application has chosen.
    fn switched(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        id: ProxiedId,
        head: &AnswerHead,
        upstream: Detached,
    ) {
        let Some(record) = self.records.get_mut(id) else {
            return;
        };
        record.response.begin(head.status);
        let listener = http.listener_label(record.client.exchange);
        let detached = http.detach(context, record.client.exchange);
        if detached.is_some() {
            record
                .client
                .count(context, &self.log, listener, head.status);
        }
        self.end(context, id);
        let Some(client) = detached else {
            return;
        };
        self.count_answer(head.status);
        let mut opening = Vec::new();
        encode::status_line(&mut opening, Version::Http11, head.status);
        for (name, value) in &head.fields {
            encode::field(&mut opening, name, value);
        }
        encode::field(&mut opening, "Connection", b"upgrade");
        if let Some(protocol) = &head.upgrade {
            encode::field(&mut opening, "Upgrade", protocol);
        }
        encode::end_of_head(&mut opening);
        self.actions.push(Action::Tunnel(Box::new(Tunnel {
            client,
            upstream,
            opening,
        })));
    }

    /// Cancels a response that was too large to be shared and has no client left.
    pub(crate) fn cancel(&mut self, connection: Token, request: Requested) {
        self.actions.push(Action::Cancel {
            connection: Some(connection),
            request,
        });
    }

    /// Takes over a held exchange, and passes the begin of its response on; false if there is no
    /// room.
    pub(crate) fn adopt(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        adopted: &Adopted<'_>,
        parts: &[AnswerPart],
    ) -> bool {
        let Adopted {
            client,
            connection,
            server,
            fetch,
        } = adopted;
        let line = client.line.filter(|_| self.log.is_written());
        let line = line.map(|line| {
            let remote = http.peer_address(client.exchange);
            Box::new(LoggedRequest::new(line, remote).on_route(client.route))
        });
        let record = ProxiedRequest {
            client: Client::new(client.exchange, client.arrived, line)
                .on_route(client.route_place, client.was_held),
            connection: Some(*connection),
            upload: Upload::complete(),
            response: ProxiedResponse::new(ProxyReason::Miss, client.is_head),
        };
        let Ok(id) = self.records.insert(record) else {
            return false;
        };
        self.metrics().polls.increment(PollOutcome::Miss);
        if let Some(cells) = self.metrics().route_cells(client.route_place) {
            cells.polls.increment(PollOutcome::Miss);
        }
        let (connection, fetch, exchange) = (*connection, *fetch, client.exchange);
        self.actions.push(Action::TakeOver {
            connection,
            fetch,
            id,
        });
        hold(http, context, exchange, id.to_bits(), HOLD_TIMEOUT);
        self.note_server(context, id, *server);
        self.parts(context, http, id, connection, parts);
        true
    }
}
