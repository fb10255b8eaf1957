//! Exchanges whose messages are passed on as they come: the operations for their clients' side.

use bytes::Bytes;
use dwell_evloop::{Context, Readiness, Token};

use super::UpstreamEvent;
use super::client::Upstream;
use super::connection::{Exchange, Work};
use super::group::UpstreamGroup;
use super::shares::Client;

/// The outcome of writing a piece of a request body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Written {
    /// The socket has taken it.
    Taken,
    /// Some of it waits; [`UpstreamEvent::BodyTaken`] follows.
    Queued,
    /// The exchange is over.
    Gone,
}

impl Upstream {
    /// Writes a piece of the body of a request, framed already. The caller bounds the queue: it
    /// waits until a piece is taken.
    pub fn write_body(
        &mut self,
        context: &mut Context,
        token: Token,
        tag: u64,
        piece: Bytes,
    ) -> Written {
        let Some(exchange) = self.exchange_mut(token, tag) else {
            return Written::Gone;
        };
        exchange.committed = true;
        // It is not sent again, and its body may take long.
        exchange.request.bytes = Bytes::new();
        let Some(connection) = self.connections.get_mut(token) else {
            return Written::Gone;
        };
        if let Err(error) = connection.peer.stream.write_shared(&[], piece) {
            // It may have answered before it closed.
            connection.write_error = Some(error.kind());
            context.again(token, Readiness::READABLE);
            return Written::Queued;
        }
        let is_taken = connection.peer.stream.queued_bytes() == 0;
        self.arm(context, token);
        if is_taken {
            Written::Taken
        } else {
            Written::Queued
        }
    }

    /// The body of a request is complete: its last bytes are these.
    pub fn finish_body(
        &mut self,
        context: &mut Context,
        token: Token,
        tag: u64,
        last: Bytes,
    ) -> Written {
        let written = self.write_body(context, token, tag, last);
        let total_timeout = self.options.total_timeout;
        if let Some(exchange) = self.exchange_mut(token, tag) {
            exchange.request.body_follows = false;
            exchange.deadline = context.now() + total_timeout;
            exchange.sent_at = context.now();
            self.arm(context, token);
        }
        written
    }

    /// Lets `bytes` more of an answer be read.
    pub fn grant(&mut self, context: &mut Context, token: Token, tag: u64, bytes: usize) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let Work::Exchanging(exchange, reader) = &mut connection.work else {
            return;
        };
        if exchange.request.tag != tag {
            return;
        }
        let was_paused = reader.is_paused();
        reader.credit = reader.credit.saturating_add(bytes);
        if was_paused {
            self.arm(context, token);
            context.again(token, Readiness::default());
        }
    }

    /// An answer that began with [`UpstreamEvent::Large`] goes on under another tag.
    pub fn take_over(&mut self, context: &mut Context, token: Token, tag: u64, new_tag: u64) {
        if let Some(exchange) = self.exchange_mut(token, tag) {
            exchange.request.tag = new_tag;
            self.grant(context, token, new_tag, self.options.window_bytes);
        }
    }

    /// Cancels as [`cancel`](Self::cancel) does, for an exchange whose connection is known. Returns
    /// false if that does not have it.
    pub(super) fn abort(&mut self, context: &mut Context, token: Token, tag: u64) -> bool {
        if self.exchange_mut(token, tag).is_none() {
            return false;
        }
        // Half an exchange: what comes on it next would be taken for another's answer.
        self.close(context, token);
        self.look_again(context);
        true
    }

    /// Announces the connection of a request for its body.
    pub(super) fn announce(
        &mut self,
        context: &mut Context,
        token: Token,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        if let Some(connection) = self.connections.get_mut(token)
            && let Work::Exchanging(exchange, _) = &mut connection.work
            && std::mem::take(&mut exchange.unannounced)
        {
            let (tag, connection) = (exchange.request.tag, token);
            sink(context, UpstreamEvent::Started { tag, connection });
        }
    }

    /// The exchange with this tag, if `token` still has it.
    fn exchange_mut(&mut self, token: Token, tag: u64) -> Option<&mut Exchange> {
        match &mut self.connections.get_mut(token)?.work {
            Work::Exchanging(exchange, _) if exchange.request.tag == tag => Some(exchange),
            _ => None,
        }
    }
}

impl UpstreamGroup {
    /// As [`Upstream::abort`]; what has left that connection for another is found there.
    pub(crate) fn abort(&mut self, context: &mut Context, token: Token, tag: u64) {
        let client = self.client_of(token);
        if client.is_some_and(|client| client.abort(context, token, tag)) {
            self.trial_is_over(context.now(), tag);
        } else {
            self.cancel(context, tag);
        }
    }

    /// Returns true if the connection of a request, with any server, is still to be announced for
    /// its body.
    pub(crate) fn is_unannounced(&mut self, tag: u64) -> bool {
        self.clients().any(|client| client.is_unannounced(tag))
    }

    /// Returns true if a request waits for a connection in its client's line, with any server.
    pub(crate) fn may_be_given(&mut self, tag: u64) -> bool {
        self.clients().any(|client| client.may_be_given(tag))
    }

    /// Another client asks for what a request brings, which may wait in that one's line instead.
    pub(crate) fn also_for(&mut self, context: &mut Context, tag: u64, client: Client) {
        for upstream in self.clients() {
            upstream.also_for(context, tag, client);
        }
    }

    /// As [`Upstream::cancel`], with whichever server it is.
    pub(crate) fn cancel(&mut self, context: &mut Context, tag: u64) {
        for client in self.clients() {
            client.cancel(context, tag);
        }
        self.trial_is_over(context.now(), tag);
    }
}
