//! The component: listeners, connections, and the bytes between sockets and sessions.

use std::collections::VecDeque;
use std::io;
use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use dwell_evloop::{
    Accepted, Context, Flushed, Listener, Listeners, LoopOutput, Peer, Readiness, Slab, Stream,
    Token, WritePace,
};
use dwell_proto::memcache::ErrorLine;

use super::commands::Executor;
use super::metrics::{RefusalObserver, StoreMetrics};
use super::service::{ConnectionRecord, Doing, StoreServerLimits, StoreService};
use super::session::{Session, Stop, WORK_PER_COMMAND};
use crate::moment::Moment;

/// The token kinds a component uses; no other component of the loop may use them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds {
    /// The kind of listeners.
    pub listener: u8,
    /// The kind of connections.
    pub connection: u8,
}

/// The memcached server of one loop.
#[derive(Debug)]
pub struct StoreServer {
    kinds: Kinds,
    pub(super) service: Arc<StoreService>,
    /// The counters of this loop.
    metrics: Arc<StoreMetrics>,
    pub(super) listeners: Listeners,
    pub(super) connections: Slab<Connection>,
    pub(super) draining: bool,
    /// Another process has the store: no command is executed any more.
    pub(super) retired: bool,
    /// The connections that can leave for it.
    pub(super) leaving: VecDeque<Token>,
    /// The accounts of replies that peers do not take.
    accounts: Option<LoopOutput>,
    /// From which number on a socket is one too many.
    descriptors: Option<(Arc<dyn RefusalObserver>, RawFd)>,
}

/// Listeners of one component.
const LISTENERS_MAX: usize = 16;
/// Reads of one connection in one turn.
const READS_PER_TURN: usize = 4;

#[derive(Debug)]
pub(super) struct Connection {
    /// The socket, and the input that is not used up: the beginning of a command, or commands that
    /// wait their turn.
    pub(super) peer: Peer,
    pub(super) session: Session,
    pub(super) record: Arc<ConnectionRecord>,
    /// Replies wait for the socket to take them.
    waits: bool,
    /// The phase: it decides what follows when the queued output is gone.
    pub(super) phase: Phase,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// More input is needed.
    Reading,
    /// The tail may hold whole commands.
    Backlog,
    /// The client has nothing more to expect.
    Closing,
    /// Another process goes on with it as soon as that takes it.
    Leaving,
}

/// The next act on a connection after a piece of work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    /// Nothing until the socket is ready again.
    Wait,
    /// Go on in the next turn.
    Again,
    /// It is of no more use.
    Close,
}

impl StoreServer {
    /// Makes a component without listeners.
    ///
    /// Shape: `metrics` are the cells of the loop it is on.
    pub fn new(kinds: Kinds, service: Arc<StoreService>, metrics: Arc<StoreMetrics>) -> Self {
        let connections_max = service.limits.connections_max;
        Self {
            kinds,
            service,
            metrics,
            listeners: Listeners::new(kinds.listener, LISTENERS_MAX),
            connections: Slab::new(kinds.connection, connections_max),
            draining: false,
            retired: false,
            leaving: VecDeque::new(),
            accounts: None,
            descriptors: None,
        }
    }

    /// Accounts from now on for the replies that peers do not take.
    pub fn account(&mut self, accounts: LoopOutput) {
        self.accounts = Some(accounts);
    }

    /// Resets a connection whose peer takes too little. Returns false if it is gone.
    pub fn cut(&mut self, context: &mut Context, token: Token) -> bool {
        let Some(connection) = self.connections.get(token) else {
            return false;
        };
        connection.peer.stream.reset_on_drop();
        self.close(context, token);
        true
    }

    /// Refuses from now on clients whose sockets would have `bound` or a higher number, and reports
    /// them to `observer`.
    pub fn keep_descriptors(
        &mut self,
        observer: Arc<impl RefusalObserver + 'static>,
        bound: RawFd,
    ) {
        self.descriptors = Some((observer, bound));
    }

    /// Accepts the clients of `listener` from now on; returns its address, if it has one.
    ///
    /// # Errors
    /// When the loop cannot register it, or there are 16 already.
    pub fn listen(
        &mut self,
        context: &mut Context,
        listener: Listener,
    ) -> io::Result<Option<SocketAddr>> {
        let address = listener.address();
        self.listeners.listen(context, listener, ())?;
        Ok(address)
    }

    /// Open connections of this loop.
    #[cfg(test)]
    pub(super) fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Returns true if a client has sent `shutdown`, where that is allowed.
    pub fn is_shutdown_asked(&self) -> bool {
        self.service.is_shutdown_asked()
    }

    /// A socket of this component is ready.
    pub fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        if token.kind() == self.kinds.listener {
            return self.accept(context, token);
        }
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        // What a peer sent before it hung up is still executed: it may have asked for silence.
        connection.peer.observe(readiness);
        self.advance(context, token);
    }

    /// The deadline of a token of this component has passed.
    pub fn expired(&mut self, context: &mut Context, token: Token) {
        if token.kind() == self.kinds.listener {
            return self.accept(context, token);
        }
        let has_idled = |connection: &Connection| connection.doing() == Doing::Reading;
        let counters = &self.service.counters;
        if self.service.limits.idle_timeout.is_some()
            && self.connections.get(token).is_some_and(has_idled)
        {
            add(&counters.idle_kicks, 1);
        }
        self.close(context, token);
    }

    /// Stops listening and closes connections that are between commands; the others are closed
    /// when what they have sent is answered. None [leaves](Self::hand_over) for another process any
    /// more, and where that has the store, nothing more is answered.
    pub fn drain(&mut self, context: &mut Context) {
        self.draining = true;
        self.leaving = VecDeque::new();
        self.listeners.unlisten_all(context);
        let connections: Vec<_> = self.connections.tokens().collect();
        for token in connections {
            self.advance(context, token);
        }
    }

    /// Closes every connection that is left.
    pub fn close_all(&mut self, context: &mut Context) {
        let connections: Vec<_> = self.connections.tokens().collect();
        for token in connections {
            self.close(context, token);
        }
    }

    /// Bytes of a connection in the table.
    #[cfg(test)]
    pub(super) fn connection_bytes() -> usize {
        size_of::<Connection>()
    }

    /// Memory held for unfinished commands.
    #[cfg(test)]
    pub(super) fn tail_bytes(&mut self) -> usize {
        let capacity = |connection: &mut Connection| {
            let tail = connection.peer.take_tail();
            let bytes = tail.capacity();
            connection.peer.set_tail(tail, ());
            bytes
        };
        self.connections.values_mut().map(capacity).sum()
    }

    fn accept(&mut self, context: &mut Context, token: Token) {
        let (service, connections) = (&self.service, &mut self.connections);
        let idle_timeout = service.limits.idle_timeout;
        let kept = self.descriptors.as_ref();
        let accept = |context: &mut Context, mut stream: Stream, peer| {
            if kept.is_some_and(|(_, bound)| !stream.is_numbered_below(*bound)) {
                let _ = stream.write(ErrorLine::TooManyConnections.as_bytes());
                return out_of_descriptors(service, kept);
            }
            let now = Moment::of(context).steady;
            let Some(record) = service.admit(peer, now) else {
                // The peer may be gone already, or not read it: there is nothing to wait for.
                let _ = stream.write(ErrorLine::TooManyConnections.as_bytes());
                return;
            };
            let connection = Connection::new(Peer::new(stream), service, Arc::clone(&record));
            if register(context, connections, connection, idle_timeout).is_none() {
                service.leave(&record);
            }
        };
        let accepted = self.listeners.accept(context, token, accept);
        if matches!(accepted, Accepted::Exhausted(_)) {
            out_of_descriptors(service, kept);
        }
    }

    /// Goes on with a connection as far as its input and its peer allow.
    fn advance(&mut self, context: &mut Context, token: Token) {
        if self.retired {
            return self.advance_out(context, token);
        }
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let next = connection.advance(context, &self.service, &self.metrics);
        if let Some(accounts) = &self.accounts {
            let now = context.tick();
            connection.peer.stream.account(accounts, token, now);
        }
        let is_done = self.draining && next == Next::Wait && connection.is_between_commands();
        match next {
            _ if is_done => self.close(context, token),
            Next::Close => self.close(context, token),
            // Nothing new is ready: what is known to be there is gone on with.
            Next::Again => context.again(token, Readiness::default()),
            Next::Wait => {
                let limits = &self.service.limits;
                connection.record.does(connection.doing());
                if connection.is_too_slow(limits) {
                    // The deadline stays as it was when its replies began to wait.
                } else if let Some(timeout) = connection.timeout(limits, Moment::of(context)) {
                    context.arm(token, timeout);
                } else {
                    context.disarm(token);
                }
            }
        }
    }

    pub(super) fn close(&mut self, context: &mut Context, token: Token) {
        if let Some(connection) = self.connections.remove(token) {
            context.disarm(token);
            self.service.leave(&connection.record);
        }
    }
}

/// Counts a client that was refused for want of descriptors, and reports it once in a while.
fn out_of_descriptors(service: &StoreService, kept: Option<&(Arc<dyn RefusalObserver>, RawFd)>) {
    service.refused();
    if let Some((observer, _)) = kept {
        observer.refused();
    }
}

pub(super) fn register(
    context: &mut Context,
    connections: &mut Slab<Connection>,
    connection: Connection,
    idle_timeout: Option<Duration>,
) -> Option<Token> {
    let token = connections.insert(connection).ok()?;
    let registered = connections
        .get_mut(token)
        .is_some_and(|connection| context.register(&mut connection.peer.stream, token).is_ok());
    if !registered {
        connections.remove(token);
        return None;
    }
    if let Some(timeout) = idle_timeout {
        context.arm(token, timeout);
    }
    Some(token)
}

/// The budget of one connection in one turn.
struct Turn<'t> {
    service: &'t StoreService,
    metrics: &'t StoreMetrics,
    moment: Moment,
    work: usize,
}

impl Connection {
    pub(super) fn new(peer: Peer, service: &StoreService, record: Arc<ConnectionRecord>) -> Self {
        Self {
            phase: if peer.has_tail() {
                Phase::Backlog
            } else {
                Phase::Reading
            },
            peer,
            session: Session::new(service.limits.request),
            record,
            waits: false,
        }
    }

    /// Returns true if replies wait since before, of which the peer has not taken enough yet.
    fn is_too_slow(&mut self, limits: &StoreServerLimits) -> bool {
        let pace = WritePace {
            rate_min: limits.write_rate_min,
            timeout: limits.stall_timeout,
        };
        let waited = std::mem::replace(&mut self.waits, !self.peer.stream.is_flushed());
        waited && self.waits && !self.peer.stream.has_taken(pace.bytes_min())
    }

    /// The state of the connection while it waits.
    fn doing(&self) -> Doing {
        if self.peer.stream.queued_bytes() > 0 {
            return Doing::Writing;
        }
        self.session.doing(self.peer.tail().len())
    }

    /// The time that the connection may go on waiting, if that has a bound.
    pub(super) fn timeout(&self, limits: &StoreServerLimits, now: Moment) -> Option<Duration> {
        match limits.idle_timeout {
            idle_timeout if self.is_between_commands() => idle_timeout,
            Some(idle_timeout) if self.doing() == Doing::Reading => {
                // Pieces of a line are no command, so the time goes on from the last one. It is
                // counted in whole seconds, of which the first may be a part of one.
                let last = self.record.last_command.load(Relaxed);
                let passed = Duration::from_secs(now.steady.saturating_sub(last).into());
                Some((idle_timeout + Duration::from_secs(1)).saturating_sub(passed))
            }
            _ => Some(limits.stall_timeout),
        }
    }

    /// Returns true if nothing has begun that is not finished.
    fn is_between_commands(&self) -> bool {
        !self.peer.has_tail()
            && !self.session.is_discarding()
            && self.peer.stream.queued_bytes() == 0
    }

    /// Writes, then serves and reads in turn until something is exhausted.
    fn advance(
        &mut self,
        context: &mut Context,
        service: &StoreService,
        metrics: &StoreMetrics,
    ) -> Next {
        match self.peer.stream.flush() {
            Ok(Flushed::All) if self.phase == Phase::Closing => return Next::Close,
            // What is refused from now on begins to wait.
            Ok(Flushed::All) => self.waits = false,
            Ok(Flushed::Blocked) => return Next::Wait,
            Ok(Flushed::More) => return Next::Again,
            Err(_) => return Next::Close,
        }
        let mut turn = Turn {
            service,
            metrics,
            moment: Moment::of(context),
            work: service
                .limits
                .commands_per_turn
                .saturating_mul(WORK_PER_COMMAND),
        };
        if self.phase == Phase::Backlog {
            let tail = self.peer.take_tail();
            let next = self.serve(context, &mut turn, tail);
            if let Some(next) = next {
                return next;
            }
        }
        for _ in 0..READS_PER_TURN {
            if !self.peer.is_unread() {
                return Next::Wait;
            }
            let mut input = context.take_input();
            let next = self.read(context, &mut turn, &mut input);
            context.return_input(input);
            if let Some(next) = next {
                return next;
            }
        }
        if self.peer.is_unread() {
            Next::Again
        } else {
            Next::Wait
        }
    }

    /// Reads once and serves what has come; `None` to go on reading.
    fn read(
        &mut self,
        context: &mut Context,
        turn: &mut Turn<'_>,
        input: &mut [u8],
    ) -> Option<Next> {
        // The end is read for itself: until then it is not known that all was served.
        let read = match self.peer.read_to_end(input) {
            Ok(0) if !self.peer.is_at_end() => return Some(Next::Wait),
            // An unfinished command of a peer that is gone is nobody's.
            Ok(0) | Err(_) => return Some(Next::Close),
            Ok(read) => read,
        };
        add(&turn.service.counters.bytes_read, read);
        if !self.peer.has_tail() {
            return self.serve_slice(context, turn, &input[..read]);
        }
        let mut tail = self.peer.take_tail();
        tail.extend_from_slice(&input[..read]);
        self.serve(context, turn, tail)
    }

    /// Serves from the tail itself, and keeps it where it is if nothing of it was used.
    fn serve(
        &mut self,
        context: &mut Context,
        turn: &mut Turn<'_>,
        mut tail: Vec<u8>,
    ) -> Option<Next> {
        let (used, next) = self.run(context, turn, &tail);
        tail.drain(..used);
        if tail.len() < tail.capacity() / 4 {
            // What is left of a large value's room must not stay for a few bytes.
            tail.shrink_to_fit();
        }
        self.peer.set_tail(tail, ());
        next
    }

    fn serve_slice(
        &mut self,
        context: &mut Context,
        turn: &mut Turn<'_>,
        input: &[u8],
    ) -> Option<Next> {
        let (used, next) = self.run(context, turn, input);
        self.peer.keep(input, used, ());
        next
    }

    /// Serves `input` and writes the replies; returns how much is used and what comes next.
    fn run(
        &mut self,
        context: &mut Context,
        turn: &mut Turn<'_>,
        input: &[u8],
    ) -> (usize, Option<Next>) {
        let service = turn.service;
        let mut out = context.take_output();
        let mut used = 0;
        self.record.does(Doing::Executing);
        let next = loop {
            let mut executor = Executor {
                service,
                metrics: turn.metrics,
                moment: turn.moment,
                out: &mut out,
            };
            let served = self
                .session
                .serve(&mut executor, &input[used..], &mut turn.work);
            used += served.used;
            add(&service.counters.bytes_written, out.len());
            if !out.is_empty() && self.peer.stream.write(&out).is_err() {
                break Some(Next::Close);
            }
            out.clear();
            let is_blocked = self.peer.stream.queued_bytes() > 0;
            self.phase = match served.stop {
                Stop::Starved => Phase::Reading,
                Stop::OutputFull | Stop::TurnOver => Phase::Backlog,
                Stop::Close => Phase::Closing,
            };
            match served.stop {
                _ if is_blocked => break Some(Next::Wait),
                Stop::Close => break Some(Next::Close),
                Stop::OutputFull => {}
                Stop::Starved => break None,
                Stop::TurnOver => {
                    add(&service.counters.conn_yields, 1);
                    break Some(Next::Again);
                }
            }
        };
        context.return_output(out);
        if used > 0 {
            let now = turn.moment.steady;
            self.record.last_command.store(now, Relaxed);
        }
        (used, next)
    }
}

pub(super) fn add(counter: &AtomicU64, amount: usize) {
    counter.fetch_add(amount as u64, Relaxed);
}
