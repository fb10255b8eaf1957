//! The engine's view of a server: its callbacks become calls of the handler.

use super::guard::guarded;
use super::host::Host;
use super::statistics::add;
use crate::Detached;
use crate::app::{App, BodyPlan, ExchangeId, HttpEvent, Outcome, Request};
use crate::handler::{Answer, BodyMode, Exchange, Handler};
use crate::reply::Reply;
use dwell_evloop::{Context, Stream, Token};
use dwell_proto::http1::{RequestHead, Trailers};
use std::sync::Arc;

/// The app of one loop of a server.
#[derive(Debug)]
pub(super) struct ServerApp<H> {
    handler: Arc<H>,
    pub(super) host: Host,
    /// Places for clients that this loop has taken and not given back.
    pub(super) places: usize,
    /// Connections of the loop that have left HTTP.
    pub(super) raw_connections: usize,
}

impl<H: Handler> ServerApp<H> {
    pub(super) fn new(handler: Arc<H>, host: Host) -> Self {
        Self {
            handler,
            host,
            places: 0,
            raw_connections: 0,
        }
    }

    /// Gives back the places of clients that are gone, when `open` of HTTP are left.
    pub(super) fn release(&mut self, open: usize) {
        let used = open + self.raw_connections;
        if self.places > used {
            self.host.server().release(self.places - used);
            self.places = used;
        }
    }

    fn admit(&mut self, open: usize) -> bool {
        if !self.host.server().admit() {
            // A client may have left in this very turn.
            self.release(open);
            if !self.host.server().admit() {
                return false;
            }
        }
        self.places += 1;
        true
    }
}

impl<H: Handler> App for ServerApp<H> {
    fn body(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        head: &RequestHead<'_, '_>,
        _: &Stream,
    ) -> BodyPlan {
        let bytes_max = self.host.link().settings().max_body_bytes;
        match guarded(|| self.handler.body(head)) {
            Ok(BodyMode::Collect) => BodyPlan::Collect { bytes_max },
            Ok(BodyMode::Stream) => BodyPlan::Stream { bytes_max },
            Ok(BodyMode::Refuse(status)) => BodyPlan::Refuse(status),
            Err(_) => {
                self.host.count_panic();
                BodyPlan::Refuse(500)
            }
        }
    }

    fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        add(&self.host.link().figures.requests, 1);
        let mut exchange = Exchange::new(reply, &mut self.host, request.exchange, context.wall());
        let handled = guarded(|| self.handler.handle(request, &mut exchange));
        let held = exchange.into_held();
        if handled.is_err() {
            self.host.count_panic();
            if let Some(token) = held {
                self.host.end(token);
            }
            if reply.is_sent() {
                return Outcome::Close;
            }
            reply.close_after();
            Answer::text(500, "Internal Server Error\n").send(reply);
            return Outcome::Answered;
        }
        match held {
            Some(token) => self.host.settle(token, reply),
            None => Outcome::Answered,
        }
    }

    fn body_data(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        tag: u64,
        data: &[u8],
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let token = Token::from_bits(tag);
        if let Some(channel) = self.host.channel(token) {
            channel.arrive(data);
            // Its reader has something to take first, and asks when it waits again.
            reply.await_body(false);
        }
        self.host.hold(token, reply)
    }

    fn body_end(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        tag: u64,
        trailers: Trailers<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let token = Token::from_bits(tag);
        if let Some(channel) = self.host.channel(token) {
            channel.complete(trailers);
        }
        self.host.settle(token, reply)
    }

    fn drained(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        self.host.settle(Token::from_bits(tag), reply)
    }

    fn expired(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let token = Token::from_bits(tag);
        if reply.is_open() {
            return self.host.hold(token, reply);
        }
        add(&self.host.link().figures.answer_timeouts, 1);
        self.host.end(token);
        Answer::text(503, "no answer in time\n").send(reply);
        Outcome::Answered
    }

    fn peer_closed(&mut self, _: ExchangeId, _: u64) -> bool {
        !self.host.link().settings().half_close
    }

    fn abandoned(&mut self, _: &mut Context, _: ExchangeId, tag: u64) {
        self.host.end(Token::from_bits(tag));
    }

    fn detached(&mut self, context: &mut Context, _: ExchangeId, tag: u64, mut detached: Detached) {
        if let Some(takeover) = self.host.take_over(Token::from_bits(tag)) {
            // Closing the descriptor ends the registration even where this fails.
            let _ = context.deregister(&mut detached.stream);
            self.host.departed.push((detached, takeover));
        }
    }

    fn accepted(&mut self, _: &mut Context, stream: Stream, open: usize) -> Option<Stream> {
        let own = Arc::clone(self.host.link());
        if !self.admit(open) {
            add(&own.figures.refused, 1);
            return None;
        }
        let open = open + self.raw_connections;
        let kept = self.host.server().balance(&own, open, stream);
        if kept.is_none() {
            // The place goes with the socket.
            self.places -= 1;
            add(&own.figures.handed_over, 1);
        }
        kept
    }

    fn event(&mut self, event: HttpEvent) {
        let figures = &self.host.link().figures;
        let figure = match event {
            HttpEvent::Accepted => &figures.accepted,
            HttpEvent::Refused => &figures.refused,
            HttpEvent::Exhausted => &figures.exhausted,
            HttpEvent::Rejected(_)
            | HttpEvent::BodyTimeout
            | HttpEvent::HandshakeFailed
            | HttpEvent::HandshakeTimeout => &figures.rejected,
            HttpEvent::WriteTimeout => &figures.write_timeouts,
            HttpEvent::HandshakeDone => return,
        };
        add(figure, 1);
    }
}
