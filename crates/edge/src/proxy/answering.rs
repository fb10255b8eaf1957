//! The application's side of proxied requests: responses and failures.

use super::arriving::{CONTINUE_TIMEOUT, HOLD_TIMEOUT};
use super::{Action, ErrorResponse, ProxiedRequest, Proxy, Tunnel, Upload};
use crate::held::hold;
use crate::ids::ProxiedId;
use crate::metrics::UpstreamOutcome;
use dwell_engine::{Body, Detached, ExchangeId, Http, Reply, Response};
use dwell_evloop::{Context, Id, Token};
use dwell_proto::http1::{BodyFraming, Version, encode};
use dwell_upstream::{AnswerHead, AnswerPart, UpstreamError, UpstreamEvent};
use std::time::Instant;

/// The reason why a request is proxied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProxyReason {
    /// It is not a poll.
    Bypass,
    /// It is a poll whose response is too large to be shared.
    Miss,
}

impl ProxyReason {
    /// The `Cache-Status` (RFC 9211).
    fn cache_status(self) -> &'static [u8] {
        match self {
            Self::Bypass => b"dwell; fwd=bypass",
            Self::Miss => b"dwell; fwd=miss",
        }
    }

    /// The outcome in the access log.
    pub(super) fn outcome(self) -> &'static str {
        match self {
            Self::Bypass => "forward",
            Self::Miss => "miss",
        }
    }
}

/// A held exchange, and the open response that is passed on to it.
#[derive(Debug)]
pub(crate) struct Adopted<'a> {
    pub(crate) exchange: ExchangeId,
    pub(crate) arrived: Instant,
    /// Method and target, if they are known.
    pub(crate) line: Option<(&'a str, &'a str)>,
    pub(crate) is_head: bool,
    /// The exchange with the application.
    pub(crate) connection: Token,
    /// The request that the response was for so far.
    pub(crate) fetch: Token,
}

/// Result of passing parts of a response on.
struct Passed {
    /// Number of body bytes in them.
    bytes: usize,
    is_ended: bool,
    /// The response cannot be completed as announced.
    is_broken: bool,
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
                parts,
            } => self.parts(context, http, ProxiedId::from_bits(tag), connection, &parts),
            UpstreamEvent::Switched {
                tag,
                head,
                detached,
            } => self.switched(context, http, ProxiedId::from_bits(tag), &head, *detached),
            UpstreamEvent::Failed { tag, error, .. } => {
                self.failed(context, http, ProxiedId::from_bits(tag), &error);
            }
            // Only for requests that are shared.
            UpstreamEvent::Answer { .. } | UpstreamEvent::Large { .. } => {}
        }
    }

    /// Handles the connection of a request whose body follows.
    fn started(&mut self, context: &mut Context, http: &mut Http, forward: ProxiedId, on: Token) {
        let window = self.config.upstream.window_bytes;
        let Some(record) = self.records.get_mut(forward) else {
            return;
        };
        record.connection = Some(on);
        if let Some((piece, is_last)) = record.kept.take() {
            self.actions.push(Action::Write {
                forward,
                piece,
                is_last,
            });
        }
        match record.upload {
            Upload::Waiting { expects: false } => {
                record.upload = Upload::Granted;
                http.grant(context, record.exchange, window);
            }
            Upload::Waiting { expects: true } => {
                let tag = forward.to_bits();
                hold(http, context, record.exchange, tag, CONTINUE_TIMEOUT);
            }
            Upload::Granted | Upload::Complete => {}
        }
    }

    /// Handles body bytes that the application has read: as many more are granted.
    pub(super) fn body_taken(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        forward: ProxiedId,
    ) {
        if let Some(record) = self.records.get_mut(forward) {
            let taken = std::mem::take(&mut record.up);
            if record.upload == Upload::Granted && taken > 0 {
                http.grant(context, record.exchange, taken);
            }
        }
    }

    /// Handles parts of a response.
    fn parts(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        forward: ProxiedId,
        connection: Token,
        parts: &[AnswerPart],
    ) {
        let window = self.config.upstream.window_bytes;
        let Some(record) = self.records.get_mut(forward) else {
            return;
        };
        record.connection = Some(connection);
        let was_answered = record.status > 0;
        let exchange = record.exchange;
        let passed = http.with_reply(context, exchange, |reply| {
            record.pass_on(parts, window, reply)
        });
        let (status, arrived) = (record.status, record.arrived);
        if status > 0 && !was_answered {
            self.log.count(status);
            let waited = context.now().duration_since(arrived);
            self.metrics().http_request_duration.observe(waited);
        }
        match passed {
            Some(passed) if passed.is_broken => {
                http.abort(context, exchange);
                self.abandoned(context, forward);
            }
            Some(passed) if passed.is_ended => {
                self.count_answer(status);
                self.end(context, forward);
            }
            Some(passed) => self.go_on(context, http, forward, passed.bytes),
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
    fn go_on(&mut self, context: &mut Context, http: &mut Http, forward: ProxiedId, bytes: usize) {
        let Some(record) = self.records.get_mut(forward).filter(|_| bytes > 0) else {
            return;
        };
        record.down += bytes;
        let queued = http.with_reply(context, record.exchange, |reply| reply.queued_bytes());
        if let (Some(0), Some(connection)) = (queued, record.connection) {
            let bytes = std::mem::take(&mut record.down);
            self.actions.push(Action::Grant {
                forward,
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
        forward: ProxiedId,
        error: &UpstreamError,
    ) {
        let outcome = UpstreamOutcome::from(error);
        let Some(record) = self.records.get_mut(forward) else {
            return;
        };
        let exchange = record.exchange;
        if record.status > 0 {
            // The client must not take a truncated response for a complete one.
            http.abort(context, exchange);
        } else {
            record.status = error.status();
            let (status, reason) = (record.status, format!("upstream: {error}"));
            let refusal = ErrorResponse::new(status, &reason, self.retry_after(context, status));
            let fields = refusal.fields();
            http.with_reply(context, exchange, |reply| {
                self.log.count(status);
                reply.send(&refusal.response(&fields));
            });
        }
        self.metrics().upstream_requests.increment(outcome);
        self.end(context, forward);
    }

    /// Switches the client's connection to the protocol that the application has chosen.
    fn switched(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        forward: ProxiedId,
        head: &AnswerHead,
        upstream: Detached,
    ) {
        let Some(record) = self.records.get_mut(forward) else {
            return;
        };
        record.status = head.status;
        let exchange = record.exchange;
        self.end(context, forward);
        let Some(client) = http.detach(context, exchange) else {
            return;
        };
        self.log.count(head.status);
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
    pub(crate) fn cancel(&mut self, connection: Token, fetch: Token) {
        self.actions.push(Action::Cancel {
            connection: Some(connection),
            tag: fetch.to_bits(),
        });
    }

    /// Takes over a held exchange, and passes the begin of its response on; false if there is no
    /// room.
    pub(crate) fn adopt(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        poll: &Adopted<'_>,
        parts: &[AnswerPart],
    ) -> bool {
        let is_logged = self.log.is_written();
        let line = poll.line.filter(|_| is_logged);
        let record = ProxiedRequest {
            exchange: poll.exchange,
            connection: Some(poll.connection),
            arrived: poll.arrived,
            line: line.map(|(method, target)| {
                let remote = http.peer_address(poll.exchange);
                Box::new(super::RequestLine::new(method, target, remote))
            }),
            upload: Upload::Complete,
            up: 0,
            kept: None,
            down: 0,
            sent: 0,
            status: 0,
            source: ProxyReason::Miss,
            is_head: poll.is_head,
            is_chunked: false,
            nominated: None,
            is_half_closed: false,
            is_stream: false,
        };
        let Ok(forward) = self.records.insert(record) else {
            return false;
        };
        let Adopted {
            exchange,
            connection,
            fetch,
            ..
        } = *poll;
        self.actions.push(Action::TakeOver {
            connection,
            fetch,
            forward,
        });
        hold(http, context, exchange, forward.to_bits(), HOLD_TIMEOUT);
        self.parts(context, http, forward, connection, parts);
        true
    }
}

impl ProxiedRequest {
    /// Passes parts of a response on.
    fn pass_on(&mut self, parts: &[AnswerPart], window: u64, reply: &mut Reply<'_>) -> Passed {
        let mut passed = Passed {
            bytes: 0,
            is_ended: false,
            is_broken: false,
        };
        for part in parts {
            match part {
                AnswerPart::Interim(head) => self.interim(head, window, reply),
                AnswerPart::Head(head) => self.head(head, reply),
                AnswerPart::Body(piece) => {
                    passed.bytes += piece.len();
                    passed.is_broken |= reply.write_shared(piece).is_err();
                }
                AnswerPart::End(trailers) => {
                    let fields: Vec<(&str, &[u8])> = trailers
                        .iter()
                        .map(|(name, value)| (name.as_str(), value.as_ref()))
                        .collect();
                    // A response without a body has ended with its head.
                    let _ = reply.finish(&fields);
                    passed.is_ended = true;
                }
            }
        }
        self.sent += passed.bytes as u64;
        passed
    }

    fn interim(&mut self, head: &AnswerHead, window: u64, reply: &mut Reply<'_>) {
        if head.status == 100 && self.upload == (Upload::Waiting { expects: true }) {
            self.upload = Upload::Granted;
            // Lets the client send the body.
            reply.grant(window);
            return;
        }
        if head.status != 100 || self.upload == Upload::Complete {
            let fields: Vec<(&str, &[u8])> = fields_of(head).collect();
            reply.informational(head.status, &fields);
        }
    }

    fn head(&mut self, head: &AnswerHead, reply: &mut Reply<'_>) {
        self.status = head.status;
        self.is_stream = head.is_event_stream();
        let mut fields: Vec<(&str, &[u8])> = fields_of(head).collect();
        fields.push(("Cache-Status", self.source.cache_status()));
        let body = match head.framing {
            _ if self.is_head => Body::Absent(head.content_length),
            BodyFraming::None => Body::Empty,
            BodyFraming::Length(length) => Body::Stream(Some(length)),
            BodyFraming::Chunked | BodyFraming::UntilClose => Body::Stream(None),
        };
        reply.send(&Response {
            status: head.status,
            fields: &fields,
            body,
        });
    }
}

fn fields_of(head: &AnswerHead) -> impl Iterator<Item = (&str, &[u8])> {
    let fields = head.fields.iter();
    fields.map(|(name, value)| (name.as_str(), value.as_ref()))
}
