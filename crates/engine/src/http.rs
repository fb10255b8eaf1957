//! The component: listeners, connections and their turns.

mod requests;

use crate::app::{App, Event, ExchangeId, Outcome};
use crate::connection::{Connection, Phase};
use crate::date::DateCache;
use crate::limits::Limits;
use crate::reply::{Framing, Reply, Response};
use dwell_evloop::{Accepted, Context, INPUT_BYTES, Listener, ReadOutcome, Readiness, Slab, Token};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;

/// The token kinds a component uses; no other component of the loop may use them.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kinds {
    /// Of listeners.
    pub listener: u8,
    /// Of connections.
    pub connection: u8,
}

/// An HTTP/1.1 server on one loop.
#[derive(Debug)]
pub struct Http {
    kinds: Kinds,
    limits: Limits,
    listeners: Slab<Listener>,
    connections: Slab<Connection>,
    date: DateCache,
    draining: bool,
}

/// How long a peer may take to read the last answer.
const LINGER_TIMEOUT: Duration = Duration::from_secs(2);
/// Listeners of one component.
const LISTENERS_MAX: usize = 64;

impl Http {
    /// Makes a component without listeners.
    ///
    /// # Panics
    /// When `limits.head.head_bytes_max` is not below the loop's input buffer, [`INPUT_BYTES`]:
    /// a head is parsed in one piece.
    pub fn new(kinds: Kinds, limits: Limits) -> Self {
        assert!(
            limits.head.head_bytes_max < INPUT_BYTES,
            "a head must fit the input buffer"
        );
        Self {
            kinds,
            limits,
            listeners: Slab::new(kinds.listener, LISTENERS_MAX),
            connections: Slab::new(kinds.connection, limits.connections_max),
            date: DateCache::default(),
            draining: false,
        }
    }

    /// Accepts the clients of `listener` from now on.
    ///
    /// # Errors
    /// When the loop cannot register it, or there are 64 already.
    pub fn listen(&mut self, context: &mut Context, listener: Listener) -> io::Result<SocketAddr> {
        let address = listener.address();
        let token = self
            .listeners
            .insert(listener)
            .map_err(|_| io::Error::other(format!("listeners exceed {LISTENERS_MAX}")))?;
        if let Some(listener) = self.listeners.get_mut(token) {
            listener.register(context, token)?;
        }
        Ok(address)
    }

    /// Connections open now.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// A socket of this component is ready.
    pub fn ready<A: App>(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        app: &mut A,
    ) {
        if token.kind() == self.kinds.listener {
            return self.accept(context, token, app);
        }
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        connection.unread |= readiness.is_readable();
        connection.peer_closed |= readiness.is_read_closed();
        if readiness.is_hangup() {
            return self.close(context, token, app);
        }
        if readiness.is_writable() && connection.stream.queued_bytes() > 0 {
            return self.flush(context, token, app);
        }
        self.advance(context, token, app);
    }

    /// The deadline of a token of this component has passed.
    pub fn expired<A: App>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        if token.kind() == self.kinds.listener {
            return self.accept(context, token, app);
        }
        let Some(connection) = self.connections.get(token) else {
            return;
        };
        match connection.phase {
            Phase::Idle | Phase::Lingering => self.close(context, token, app),
            Phase::Writing => {
                app.event(Event::WriteTimeout);
                self.close(context, token, app);
            }
            Phase::Head | Phase::Body => self.reject(context, token, 408, app),
            Phase::Held => self.hold_expired(context, token, app),
        }
    }

    /// Sends the answer to a held exchange; false when nobody waits for it any more.
    pub fn answer(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        response: &Response<'_>,
    ) -> bool {
        if !self.is_held(exchange) {
            return false;
        }
        self.respond(context, exchange.token, |reply| reply.send(response));
        true
    }

    /// Whether the answer to `exchange` is still owed and waited for.
    pub fn is_held(&self, exchange: ExchangeId) -> bool {
        self.held(exchange).is_some()
    }

    /// Changes the tag and the timeout of a held exchange; false when nobody waits any more.
    pub fn hold(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        timeout: Option<Duration>,
    ) -> bool {
        let alive = self.is_held(exchange);
        if let (true, Some(connection)) = (alive, self.connections.get_mut(exchange.token)) {
            connection.tag = tag;
            arm_hold(context, exchange.token, timeout);
        }
        alive
    }

    /// The client's address of a held exchange.
    pub fn peer_address(&self, exchange: ExchangeId) -> Option<SocketAddr> {
        self.held(exchange)?.stream.peer_address().ok().flatten()
    }

    /// Stops listening and closes idle connections; the others end with their next answer.
    pub fn drain<A: App>(&mut self, context: &mut Context, app: &mut A) {
        self.draining = true;
        let listeners: Vec<_> = self.listeners.tokens().collect();
        for token in listeners {
            if let Some(listener) = self.listeners.remove(token) {
                context.disarm(token);
                listener.close(context);
            }
        }
        let connections: Vec<_> = self.connections.tokens().collect();
        for token in connections {
            let Some(connection) = self.connections.get_mut(token) else {
                continue;
            };
            connection.framing.keep_alive = false;
            if connection.phase == Phase::Idle && !connection.has_input() {
                self.close(context, token, app);
            }
        }
    }

    /// Closes every connection that is left.
    pub fn close_all<A: App>(&mut self, context: &mut Context, app: &mut A) {
        let connections: Vec<_> = self.connections.tokens().collect();
        for token in connections {
            self.close(context, token, app);
        }
    }

    fn held(&self, exchange: ExchangeId) -> Option<&Connection> {
        self.connections.get(exchange.token).filter(|connection| {
            connection.phase == Phase::Held && connection.sequence == exchange.sequence
        })
    }

    fn accept<A: App>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        let Some(listener) = self.listeners.get_mut(token) else {
            return;
        };
        let connections = &mut self.connections;
        let idle_timeout = self.limits.idle_timeout;
        listener.accept_batch(context, token, |context, accepted| match accepted {
            Accepted::Drained => {}
            Accepted::Exhausted(_) => app.event(Event::Exhausted),
            Accepted::Connection(stream, _) => {
                let Ok(token) = connections.insert(Connection::new(stream)) else {
                    app.event(Event::Refused);
                    return;
                };
                let Some(connection) = connections.get_mut(token) else {
                    return;
                };
                if context.register(&mut connection.stream, token).is_err() {
                    connections.remove(token);
                    app.event(Event::Refused);
                    return;
                }
                context.arm(token, idle_timeout);
                app.event(Event::Accepted);
            }
        });
    }

    /// Goes on with a connection as far as its input and its phase allow.
    fn advance<A: App>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        match connection.phase {
            Phase::Writing => {}
            Phase::Held => {
                let exchange = connection.exchange(token);
                if connection.peer_closed && app.peer_closed(exchange, connection.tag) {
                    self.close(context, token, app);
                }
            }
            Phase::Lingering => self.discard(context, token, app),
            Phase::Idle | Phase::Head | Phase::Body => {
                if connection.has_input() {
                    self.read(context, token, app);
                }
            }
        }
    }

    /// Reads once behind the kept tail and serves what is complete.
    fn read<A: App>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let mut input = context.take_input();
        let kept = connection.tail.len().min(input.len());
        input[..kept].copy_from_slice(&connection.tail[..kept]);
        let mut filled = kept;
        let mut ended = false;
        if connection.unread && kept < input.len() {
            match connection.stream.read(&mut input[kept..]) {
                Ok(ReadOutcome::More(read)) => filled += read,
                Ok(ReadOutcome::Drained(read)) => {
                    filled += read;
                    // A closed peer gives no further edge, so the end has to be read for.
                    connection.unread = connection.peer_closed;
                }
                Ok(ReadOutcome::WouldBlock) => connection.unread = false,
                Ok(ReadOutcome::Closed) => {
                    connection.unread = false;
                    connection.peer_closed = true;
                    ended = true;
                }
                Err(_) => {
                    context.return_input(input);
                    return self.close(context, token, app);
                }
            }
        }
        if filled > 0 {
            self.serve(context, token, &input[..filled], app);
        } else if ended {
            // Nothing came and nothing more will: an unfinished request is nobody's.
            self.close(context, token, app);
        }
        context.return_input(input);
        self.read_on(context, token);
    }

    /// Comes back in the next turn where there is more to read or to serve now.
    fn read_on(&mut self, context: &mut Context, token: Token) {
        if let Some(connection) = self.connections.get(token)
            && connection.unread
            && matches!(connection.phase, Phase::Idle | Phase::Head | Phase::Body)
        {
            context.again(token, Readiness::READABLE);
        }
    }

    /// The socket takes output again.
    fn flush<A: App>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let before = connection.stream.queued_bytes();
        match connection.stream.flush() {
            Err(_) => self.close(context, token, app),
            // Answers to pipelined requests before a held one.
            _ if connection.phase == Phase::Held => self.advance(context, token, app),
            Ok(true) => {
                self.settle(context, token);
                self.advance(context, token, app);
            }
            Ok(false) if connection.stream.queued_bytes() < before => {
                context.arm(token, self.limits.write_timeout);
            }
            Ok(false) => {}
        }
    }

    /// Writes one answer, made by `write`, to the connection that waits for it.
    fn respond(&mut self, context: &mut Context, token: Token, write: impl FnOnce(&mut Reply<'_>)) {
        let date = self.date.at(context.unix_seconds(), context.wall());
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let mut output = context.take_output();
        let mut reply = Reply {
            output: &mut output,
            stream: &mut connection.stream,
            date,
            framing: connection.framing,
            sent: false,
            failed: None,
        };
        write(&mut reply);
        let (framing, failed) = (reply.framing, reply.failed.is_some());
        connection.framing = framing;
        let failed = failed || connection.stream.write(&output).is_err();
        context.return_output(output);
        if failed {
            self.forget(context, token);
            return;
        }
        self.settle(context, token);
        if let Some(connection) = self.connections.get(token)
            && connection.phase == Phase::Idle
            && connection.has_input()
        {
            context.again(token, Readiness::READABLE);
        }
    }

    /// Everything owed is written or queued: decides what the connection does next.
    fn settle(&mut self, context: &mut Context, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        if connection.stream.queued_bytes() > 0 {
            connection.phase = Phase::Writing;
            context.arm(token, self.limits.write_timeout);
        } else if connection.framing.keep_alive && !self.draining {
            connection.phase = Phase::Idle;
            context.arm(token, self.limits.idle_timeout);
        } else if connection.has_input() && !connection.peer_closed || connection.incoming.is_some()
        {
            connection.phase = Phase::Lingering;
            connection.tail = Vec::new();
            connection.incoming = None;
            connection.unread = true;
            if connection.stream.shutdown_write().is_err() {
                self.forget(context, token);
                return;
            }
            context.arm(token, LINGER_TIMEOUT);
            context.again(token, Readiness::READABLE);
        } else {
            self.forget(context, token);
        }
    }

    /// Reads what a lingering peer still sends, so that closing does not reset the answer away.
    fn discard<A: App>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let mut input = context.take_input();
        let outcome = connection.stream.read(&mut input);
        context.return_input(input);
        match outcome {
            Ok(ReadOutcome::More(_)) => context.again(token, Readiness::READABLE),
            Ok(ReadOutcome::Drained(_)) if connection.peer_closed => {
                self.close(context, token, app);
            }
            Ok(ReadOutcome::Drained(_) | ReadOutcome::WouldBlock) => {}
            Ok(ReadOutcome::Closed) | Err(_) => self.close(context, token, app),
        }
    }

    fn hold_expired<A: App>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        let Some(connection) = self.connections.get(token) else {
            return;
        };
        let (exchange, tag) = (connection.exchange(token), connection.tag);
        let date = self.date.at(context.unix_seconds(), context.wall());
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let mut output = context.take_output();
        let mut reply = Reply {
            output: &mut output,
            stream: &mut connection.stream,
            date,
            framing: connection.framing,
            sent: false,
            failed: None,
        };
        let outcome = app.expired(context, exchange, tag, &mut reply);
        let (framing, sent, failed) = (reply.framing, reply.sent, reply.failed.is_some());
        connection.framing = framing;
        let failed = failed || connection.stream.write(&output).is_err();
        context.return_output(output);
        match outcome {
            Outcome::Held { tag, timeout } if !sent => {
                connection.tag = tag;
                arm_hold(context, token, timeout);
            }
            _ if failed || !sent => {
                self.forget(context, token);
            }
            _ => {
                self.settle(context, token);
                self.advance(context, token, app);
            }
        }
    }

    /// Ends a connection; whoever owes it an answer is told.
    fn close<A: App>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        if let Some(connection) = self.forget(context, token)
            && connection.phase == Phase::Held
        {
            app.abandoned(context, connection.exchange(token), connection.tag);
        }
    }

    /// Ends a connection that nothing is owed to.
    fn forget(&mut self, context: &mut Context, token: Token) -> Option<Connection> {
        context.disarm(token);
        self.connections.remove(token)
    }
}

fn arm_hold(context: &mut Context, token: Token, timeout: Option<Duration>) {
    match timeout {
        Some(timeout) => context.arm(token, timeout),
        None => context.disarm(token),
    }
}

fn framing_of(head: &dwell_proto::http1::RequestHead<'_, '_>) -> Framing {
    Framing {
        is_head: head.method == "HEAD",
        is_http10: head.version == dwell_proto::http1::Version::Http10,
        keep_alive: head.keep_alive,
    }
}
