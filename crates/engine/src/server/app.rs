//! A server as the face of a desk: its requests become calls of the handler.

use super::guard::guarded;
use super::host::{Host, Ledger, Next};
use super::link::LoopLink;
use super::statistics::add;
use crate::Detached;
use crate::app::{BodyPlan, HttpEvent, Outcome, Request};
use crate::desk::{DeskEvent, End, Face};
use crate::handler::{Answer, BodyMode, Exchange, Handler, Takeover};
use crate::reply::{Reply, append_fields};
use dwell_evloop::{Context, Stream, Token};
use dwell_proto::http1::{RequestHead, Version, encode};
use std::sync::Arc;
use std::time::Duration;

/// One loop of a server as its desk sees it.
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
            self.host.server.release(self.places - used);
            self.places = used;
        }
    }

    fn admit(&mut self, open: usize) -> bool {
        if !self.host.server.admit() {
            // A client may have left in this very turn.
            self.release(open);
            if !self.host.server.admit() {
                return false;
            }
        }
        self.places += 1;
        true
    }
}

impl<H: Handler> Face for ServerApp<H> {
    type Line = LoopLink;
    type Entry = Next;

    fn body(&mut self, head: &RequestHead<'_, '_>) -> BodyPlan {
        let bytes_max = self.host.link.settings().max_body_bytes;
        match guarded(|| self.handler.body(head)) {
            Ok(BodyMode::Collect) => BodyPlan::Collect { bytes_max },
            Ok(BodyMode::Stream) => BodyPlan::Stream { bytes_max },
            Ok(BodyMode::Refuse(status)) => BodyPlan::Refuse(status),
            Err(_) => {
                self.host.link.count_panic();
                BodyPlan::Refuse(500)
            }
        }
    }

    fn request(
        &mut self,
        ledger: &mut Ledger,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Result<Token, Outcome> {
        let Self { handler, host, .. } = self;
        add(&host.link.figures.requests, 1);
        let (id, wall) = (request.exchange, context.wall());
        let mut exchange = Exchange::new(reply, ledger, host, id, wall);
        let handled = guarded(|| handler.handle(request, &mut exchange));
        let held = exchange.into_held();
        if handled.is_ok() {
            return held.ok_or(Outcome::Answered);
        }
        self.host.link.count_panic();
        if let Some(token) = held
            && let Some(mut next) = ledger.end(token, End::Gone)
        {
            next.discard(&self.host.link);
        }
        if reply.is_sent() {
            return Err(Outcome::Close);
        }
        reply.close_after();
        Answer::text(500, "Internal Server Error\n").send(reply);
        Err(Outcome::Answered)
    }

    fn over(&mut self, _: &mut Ledger, _: &Context, mut next: Next, _: End) {
        next.discard(&self.host.link);
    }

    fn refuses(&self, takeover: &Takeover, reply: &mut Reply<'_>) -> bool {
        // As in `departed`, which comes too late where the answer is sent at once.
        let has_no_socket = reply.suite_number().is_some() || reply.is_connecting();
        let refuses = matches!(takeover, Takeover::Thread(_)) && has_no_socket;
        if refuses {
            reply.close_after();
            Answer::new(501).send(reply);
        }
        refuses
    }

    fn departed(
        &mut self,
        context: &mut Context,
        mut detached: Detached,
        answer: Option<Answer>,
        takeover: Takeover,
    ) {
        // Closing the descriptor ends the registration even where this fails.
        let _ = context.deregister(&mut detached.stream);
        // A thread would read records in the place of bytes.
        let has_no_socket = detached.stream.is_secure() || detached.stream.is_carried();
        if matches!(takeover, Takeover::Thread(_)) && has_no_socket {
            let refusal = answer.map_or_else(Vec::new, |_| head_of(&Answer::new(501)));
            if detached.stream.write(&refusal).is_ok() {
                detached.stream.close_notify();
            }
            return;
        }
        // A socket that fails here fails its new owner too.
        let written = answer.map_or(Ok(()), |answer| detached.stream.write(&head_of(&answer)));
        if written.is_ok() {
            self.host.departed.push((detached, takeover));
        }
    }

    fn answer_timeout(&self) -> Option<Duration> {
        Some(self.host.link.settings().answer_timeout)
    }

    fn half_close(&self) -> bool {
        self.host.link.settings().half_close
    }

    fn accepted(&mut self, _: &mut Context, stream: Stream, open: usize) -> Option<Stream> {
        let own = Arc::clone(&self.host.link);
        if !self.admit(open) {
            add(&own.figures.refused, 1);
            return None;
        }
        let open = open + self.raw_connections;
        let kept = self.host.server.balance(&own, open, stream);
        if kept.is_none() {
            // The place goes with the socket.
            self.places -= 1;
            add(&own.figures.handed_over, 1);
        }
        kept
    }

    fn event(&mut self, event: DeskEvent) {
        let figures = &self.host.link.figures;
        let figure = match event {
            DeskEvent::AnswerTimeout => &figures.answer_timeouts,
            DeskEvent::WokenUp => &figures.wake_ups,
            DeskEvent::Http(event) => match event {
                HttpEvent::Accepted => &figures.accepted,
                HttpEvent::Refused => &figures.refused,
                HttpEvent::Exhausted => &figures.exhausted,
                HttpEvent::Rejected { .. }
                | HttpEvent::BodyTimeout
                | HttpEvent::TlsOnPlain
                | HttpEvent::ProxyHeaderFailed { .. }
                | HttpEvent::HandshakeFailed(_) => &figures.rejected,
                HttpEvent::WriteTimeout => &figures.write_timeouts,
                HttpEvent::HandshakeDone(_) => return,
            },
        };
        add(figure, 1);
    }
}

/// The head of an answer behind which the connection has left HTTP outside of the engine's
/// callbacks, so that it is ours to write.
fn head_of(answer: &Answer) -> Vec<u8> {
    let mut head = Vec::new();
    encode::status_line(&mut head, Version::Http11, answer.status());
    let fields = answer.fields().iter();
    let fields = fields.map(|(name, value)| (name.as_ref(), value.as_ref()));
    append_fields(&mut head, answer.status(), fields);
    encode::end_of_head(&mut head);
    head
}
