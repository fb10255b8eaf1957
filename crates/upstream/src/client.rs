//! The pool and the queue.

use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use dwell_evloop::{Context, HandshakeCounts, Readiness, Slab, Token};

use super::connection::{Connection, Exchange, Work};
use super::queue::FairQueue;
use super::recent::Witness;
use super::shares::{Client, Shares, Transfers, are_plenty};
use super::{UpstreamError, UpstreamEvent, UpstreamOptions, UpstreamRequest};

/// The application behind the edge, as one loop sees it.
#[derive(Debug)]
pub struct Upstream {
    pub(super) options: UpstreamOptions,
    pub(super) connections: Slab<Connection>,
    /// Unused connections; the last came free last.
    pub(super) idle: Vec<Token>,
    /// Connections that count among the transfers.
    transfers: Transfers,
    pub(super) queue: FairQueue,
    /// The tags of requests that have lost their places in the queue; they are told next.
    displaced: Vec<u64>,
    /// Bears the deadline of the queue's front; no connection has it.
    queue_token: Token,
    /// The deadline of the queue as it is set on the loop; see [`Connection::armed`].
    queue_armed: Option<Instant>,
    /// The requests that have got the head of their answer, for the group to take.
    pub(super) first_bytes: Vec<FirstByte>,
    /// False for a client without a group.
    pub(super) keeps_heads: bool,
    /// Handshakes since they were taken last.
    pub(super) handshakes: HandshakeCounts,
}

/// A request that has got the head of its answer.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstByte {
    pub(super) tag: u64,
    /// The time to its first byte.
    pub(super) waited: Duration,
    /// The evidence by which its server is judged.
    pub(super) witness: Witness,
}

impl Upstream {
    /// A client without connections. `kind` is the kind of all its tokens; no other component of
    /// the loop may use it.
    pub fn new(kind: u8, options: UpstreamOptions) -> Self {
        let connections_max = options.connections_max.clamp(1, 1_000_000);
        let transfers_max = options.transfers_max.min(1_000_000);
        let all = connections_max + transfers_max;
        Self {
            connections: Slab::new(kind, all),
            idle: Vec::new(),
            transfers: Transfers::new(transfers_max),
            queue: FairQueue::default(),
            displaced: Vec::new(),
            queue_token: Token::new(kind, 0, all as u32),
            queue_armed: None,
            first_bytes: Vec::new(),
            keeps_heads: false,
            handshakes: HandshakeCounts::default(),
            options: UpstreamOptions {
                connections_max,
                transfers_max,
                ..options
            },
        }
    }

    /// A client of a group, which takes the heads.
    pub(super) fn of_group(kind: u8, options: UpstreamOptions) -> Self {
        Self {
            keeps_heads: true,
            ..Self::new(kind, options)
        }
    }

    /// The value of `Host` for requests of our own: the name that the server's certificate is for,
    /// or its address.
    pub(super) fn authority(&self) -> String {
        let address = self.options.address;
        match &self.options.tls {
            None => address.to_string(),
            Some(connector) => match connector.host().parse::<IpAddr>() {
                Ok(host) => SocketAddr::new(host, address.port()).to_string(),
                Err(_) => format!("{}:{}", connector.host(), address.port()),
            },
        }
    }

    /// A token of this client's kind that it has no use for.
    pub(super) fn spare_token(&self) -> Token {
        Token::new(self.queue_token.kind(), 0, self.queue_token.index() + 1)
    }

    /// Open connections.
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Open connections that are unused.
    #[cfg(test)]
    pub(super) fn idle(&self) -> usize {
        self.idle.len()
    }

    /// Requests that wait for a connection.
    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Requests in progress or waiting.
    pub(super) fn outstanding(&self) -> usize {
        let under_way = self.connections.len() - self.idle.len();
        under_way + self.queue.len() + self.displaced.len()
    }

    /// Sends a request, on an unused connection, on a new one, or when one comes free.
    ///
    /// # Errors
    /// [`UpstreamError::QueueFull`], or [`UpstreamError::Connect`] if the system refuses at once.
    /// No event follows then.
    pub fn send(
        &mut self,
        context: &mut Context,
        request: UpstreamRequest,
    ) -> Result<(), UpstreamError> {
        let exchange = self.exchange(context, request);
        self.take(context, exchange)
    }

    /// A request that begins now.
    pub(super) fn exchange(&self, context: &Context, request: UpstreamRequest) -> Exchange {
        let now = context.now();
        let (queued, ended) = (self.queue_timeout(), self.options.total_timeout);
        Exchange::new(request, now, now + queued, now + ended)
    }

    /// Sends a request, which may have been with another server before; as [`send`](Self::send).
    pub(super) fn take(
        &mut self,
        context: &mut Context,
        exchange: Exchange,
    ) -> Result<(), UpstreamError> {
        // What waits has no connection free, or not for its client.
        let client = exchange.request.client;
        let is_next = !self.queue.has(client) && self.has_room_for(client);
        if is_next || (exchange.request.body_follows && self.transfers.has_room_for(client)) {
            return self.start(context, exchange);
        }
        let displaced = self.queue.push(exchange, self.options.queue_max)?;
        if let Some(displaced) = displaced {
            self.displaced.push(displaced.request.tag);
            self.look_again(context);
        }
        self.arm_queue(context);
        Ok(())
    }

    /// Forgets a request: no event will come for it. Does nothing if no request has `tag`.
    pub fn cancel(&mut self, context: &mut Context, tag: u64) {
        self.displaced.retain(|displaced| *displaced != tag);
        if self.queue.cancel(tag) {
            return self.arm_queue(context);
        }
        let is_it = |connection: &Connection| {
            let exchange = connection.exchange();
            exchange.is_some_and(|exchange| exchange.request.tag == tag)
        };
        let tokens: Vec<Token> = self.connections.tokens().collect();
        for token in tokens {
            if self.connections.get(token).is_some_and(is_it) {
                // Half an exchange: what comes on it next would be taken for another's answer.
                self.close(context, token);
                self.look_again(context);
            }
        }
    }

    /// Counts another client for the response of this tag. If the request waits in a line longer
    /// than this client's, it moves to this one's, so that the requests of one client delay no
    /// other.
    pub(super) fn also_for(&mut self, context: &mut Context, tag: u64, client: Client) {
        // The scan is for those that may be moved only, and each is once.
        let ahead = self.queue.fewer_ahead(tag, client);
        if ahead.is_some_and(|ahead| self.shares().always_allows(client, ahead)) {
            self.queue.give(tag, client);
            self.look_again(context);
        }
    }

    /// Returns true if a request waits for a connection, and has not moved to another client's line
    /// yet.
    pub(super) fn may_be_given(&self, tag: u64) -> bool {
        self.queue.may_be_given(tag)
    }

    /// Returns true if a request has no connection, or not any more, and [`UpstreamEvent::Started`]
    /// is to come for its body.
    pub(super) fn is_unannounced(&self, tag: u64) -> bool {
        let is_it = |exchange: &Exchange| exchange.request.tag == tag && exchange.unannounced;
        let mut connections = self.connections.tokens();
        self.queue.iter().any(is_it)
            || connections.any(|token| {
                let connection = self.connections.get(token);
                connection.and_then(Connection::exchange).is_some_and(is_it)
            })
    }

    /// Gives a free place to a waiting request in the next turn.
    pub(super) fn look_again(&self, context: &mut Context) {
        context.again(self.queue_token, Readiness::READABLE);
    }

    /// A socket of this component is ready.
    pub fn ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let Some(connection) = self.connections.get_mut(token) else {
            return self.dispatch(context, sink);
        };
        match connection.work {
            Work::Idle => {
                // The application closed it, or speaks unasked.
                if readiness.is_readable() && !connection.is_usable() {
                    self.let_go(context, token);
                    self.idle.retain(|idle| *idle != token);
                }
            }
            Work::Connecting(_) => self.connected(context, token, readiness, sink),
            Work::Exchanging(..) => self.advance(context, token, readiness, sink),
        }
    }

    /// The deadline of a token of this component has passed.
    pub fn expired(
        &mut self,
        context: &mut Context,
        token: Token,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let Some(connection) = self.connections.get(token) else {
            self.queue_armed = None;
            self.expire_queue(context, sink);
            return self.dispatch(context, sink);
        };
        if matches!(connection.work, Work::Idle) {
            self.let_go(context, token);
            self.idle.retain(|idle| *idle != token);
            return;
        }
        let error = connection.lateness(&self.options, context.now());
        let late = connection.peer.stream.handshake_given_up();
        if late.is_some() {
            self.handshakes.add(late);
        }
        self.fail(context, token, error, sink);
        self.dispatch(context, sink);
    }

    fn queue_timeout(&self) -> Duration {
        self.options.queue_timeout.min(self.options.total_timeout)
    }

    /// Returns true if a request of this client can be started now.
    pub(super) fn has_room_for(&self, client: Client) -> bool {
        let (busy, free) = self.busy_and_free();
        are_plenty(busy, free) || (free > 0 && self.shares().allows(client, free))
    }

    /// Connections with a request, without transfers, and how many more there may be of them.
    fn busy_and_free(&self) -> (usize, usize) {
        let busy = self.connections.len() - self.idle.len() - self.transfers.len();
        (busy, self.options.connections_max.saturating_sub(busy))
    }

    fn shares(&self) -> Shares {
        let connections = self.connections.tokens();
        let connections = connections.filter_map(|token| self.connections.get(token));
        let busy = connections.filter(|connection| connection.transfer_of.is_none());
        let exchanges = busy.filter_map(Connection::exchange);
        exchanges.map(|exchange| exchange.request.client).collect()
    }

    /// Counts a connection among its client's transfers from now on, if there is room; whether it
    /// did not before.
    pub(super) fn begin_transfer(&mut self, token: Token) -> bool {
        let connection = self.connections.get_mut(token);
        let Some(connection) = connection.filter(|it| it.transfer_of.is_none()) else {
            return false;
        };
        let client = connection
            .exchange()
            .map(|exchange| exchange.request.client);
        let client = client.filter(|client| self.transfers.has_room_for(*client));
        let Some(client) = client else {
            return false;
        };
        connection.transfer_of = Some(client);
        self.transfers.begin(client);
        true
    }

    /// A connection that counted among a client's transfers, or not, does so no more.
    pub(super) fn end_transfer(&mut self, transfer_of: Option<Client>) {
        if let Some(client) = transfer_of {
            self.transfers.end(client);
        }
    }

    /// Starts what waits, as far as there is room.
    pub(super) fn dispatch(
        &mut self,
        context: &mut Context,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let limit = self.options.queue_max;
        for tag in std::mem::take(&mut self.displaced) {
            let error = UpstreamError::QueueFull { limit };
            sink(context, UpstreamEvent::failed(tag, error));
        }
        if self.queue.is_empty() {
            return;
        }
        let mut shares = None;
        loop {
            let (busy, free) = self.busy_and_free();
            let next = match free {
                0 => None,
                _ if are_plenty(busy, free) => self.queue.pop(|_| true),
                _ => {
                    let shares = shares.get_or_insert_with(|| self.shares());
                    self.queue.pop(|client| shares.allows(client, free))
                }
            };
            let Some(exchange) = next else {
                break;
            };
            if let Some(shares) = &mut shares {
                shares.add(exchange.request.client);
            }
            let (tag, witness) = (exchange.request.tag, exchange.witness);
            if let Err(error) = self.start(context, exchange) {
                sink(context, UpstreamEvent::failed_by(tag, error, witness));
            }
        }
        self.arm_queue(context);
    }

    fn expire_queue(
        &mut self,
        context: &mut Context,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let now = context.now();
        while let Some(exchange) = self.queue.pop_late(now) {
            let error = UpstreamError::QueueTimeout(self.queue_timeout());
            let tag = exchange.request.tag;
            sink(context, UpstreamEvent::failed(tag, error));
        }
        self.arm_queue(context);
    }

    fn arm_queue(&mut self, context: &mut Context) {
        let deadline = self.queue.deadline();
        if deadline == self.queue_armed {
            return;
        }
        self.queue_armed = deadline;
        match deadline {
            Some(deadline) => {
                let timeout = deadline.saturating_duration_since(context.now());
                context.arm(self.queue_token, timeout);
            }
            None => context.disarm(self.queue_token),
        }
    }
}
