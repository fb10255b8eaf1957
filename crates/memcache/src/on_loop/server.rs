//! One server: its connection as it comes and goes, and the requests of the current turn.

use std::net::SocketAddr;
use std::time::Instant;

use dwell_evloop::{
    Backoff, Breaker, Connector, Context, HandshakeCounts, Handshakes, ReadOutcome, Readiness,
    Stream, Token,
};
use dwell_proto::memcache::{KEY_BYTES_MAX, Key};

use super::batch::{Batch, Form, Wants};
use super::connection::Connection;
use super::ledger::{Ledger, Reporter, Sink};
use super::{ClientOptions, Error, Failure, ServerOptions, ServerStatus, State};

/// A server and all operations on it.
///
/// While there is a connection, the token's deadline is the one by which it has to answer. Without
/// a connection it is the time of the next attempt.
#[derive(Debug)]
pub(crate) struct Server {
    address: SocketAddr,
    tls: Option<Connector>,
    handshakes: Handshakes,
    /// Names the current connection; a new generation for each.
    token: Token,
    connection: Option<Connection>,
    /// The deadline of the connection that is set on the loop. Only changes are set: setting a
    /// deadline again would round it up to a whole tick again.
    armed: Option<Instant>,
    backoff: Backoff,
    last_failure: Option<Failure>,
    ledger: Ledger,
    /// The request that takes the next `get`.
    gets: Batch,
    /// The request that takes the next `version`.
    meta_gets: Batch,
    /// The request that takes the next operation of any other kind.
    commands: Batch,
    /// Requests of this turn that are full.
    full: Vec<Batch>,
    /// Since when operations wait for the answers that are in progress.
    held_since: Option<Instant>,
    /// The connection is to an address that the server had before, and ends when it owes nothing.
    is_leaving: bool,
}

impl Server {
    pub(crate) fn new(
        server: &ServerOptions,
        token: Token,
        options: &ClientOptions,
        seed: u64,
    ) -> Self {
        let breaker = Breaker::new(options.failures_max);
        Self {
            address: server.address,
            tls: server.tls.clone(),
            handshakes: Handshakes::default(),
            token,
            connection: None,
            armed: None,
            backoff: Backoff::new(
                options.reconnect_delay_min,
                options.reconnect_delay_max,
                seed,
            ),
            last_failure: None,
            ledger: Ledger::new(token.index() as usize, breaker),
            gets: Batch::new(Form::Gets),
            meta_gets: Batch::new(Form::MetaGets),
            commands: Batch::new(Form::Commands),
            full: Vec::new(),
            held_since: None,
            is_leaving: false,
        }
    }

    /// Goes on at another address.
    pub(crate) fn turn_to(
        &mut self,
        context: &mut Context,
        address: SocketAddr,
        options: &ClientOptions,
    ) {
        if address != self.address {
            self.address = address;
            self.is_leaving = true;
            self.leave(context, options);
        }
    }

    /// Connects to the address of now, if the connection to another one owes nothing any more.
    fn leave(&mut self, context: &mut Context, options: &ClientOptions) {
        let owes = self.connection.as_ref();
        if !self.is_leaving || owes.is_some_and(Connection::owes_operations) {
            return;
        }
        if self.connection.take().is_some() {
            context.disarm(self.token);
            self.next_token();
        }
        // What failed at the old address says nothing of the new one.
        self.ledger.breaker = Breaker::new(options.failures_max);
        self.last_failure = None;
        self.connect(context, options);
    }

    pub(crate) fn handshake_error(&self) -> Option<&str> {
        self.handshakes.error()
    }

    pub(crate) fn take_handshakes(&mut self) -> HandshakeCounts {
        self.handshakes.take_counts()
    }

    pub(crate) fn status(&self) -> ServerStatus {
        let state = match &self.connection {
            _ if self.ledger.breaker.is_open() => State::Broken,
            Some(connection) if connection.is_established() => State::Up,
            Some(_) => State::Connecting,
            None => State::Down,
        };
        ServerStatus {
            address: self.address,
            state,
            epoch: self.ledger.statistics.connects,
            operations: self.ledger.operations,
            failures_in_row: self.ledger.breaker.failures(),
            last_failure: self.last_failure,
            statistics: self.ledger.statistics,
        }
    }

    /// Takes an operation for the next flush; true if it is the first.
    pub(crate) fn ask(
        &mut self,
        key: Key<'_>,
        tag: u64,
        wants: Wants,
        options: &ClientOptions,
    ) -> Result<bool, Error> {
        let was_idle = self.is_idle();
        self.check_room(key.as_bytes().len(), options)?;
        // What was asked before is answered before.
        self.take_begun_if(|form| form == Form::Commands);
        let is_meta = wants == Wants::Version && !self.ledger.is_meta_unsupported;
        let batch = if is_meta {
            &mut self.meta_gets
        } else {
            &mut self.gets
        };
        if batch.len() >= options.line_keys_max || batch.wire().len() > LINE_BYTES_MAX {
            let next = self.ledger.batch(batch.form());
            self.full.push(std::mem::replace(batch, next));
        }
        let length_before = batch.wire().len();
        batch.push(key, tag, wants);
        let length = batch.wire().len() - length_before;
        self.ledger.taken(length);
        Ok(was_idle)
    }

    /// Takes an operation that `encode` writes, at most `length` bytes and a line; one of an epoch
    /// is a request of its own.
    pub(crate) fn command(
        &mut self,
        (tag, epoch): (u64, Option<u64>),
        wants: Wants,
        length: usize,
        options: &ClientOptions,
        encode: impl FnOnce(&mut Vec<u8>, usize),
    ) -> Result<bool, Error> {
        let was_idle = self.is_idle();
        self.check_room(length, options)?;
        self.take_begun_if(|form| form != Form::Commands || epoch.is_some());
        let length_before = self.commands.wire().len();
        self.commands.push_command(tag, wants, encode);
        let length = self.commands.wire().len() - length_before;
        self.ledger.taken(length);
        if let Some(epoch) = epoch {
            self.commands.bind_to(epoch);
            self.take_begun_if(|form| form == Form::Commands);
        }
        Ok(was_idle)
    }

    fn is_idle(&self) -> bool {
        let begun = [&self.gets, &self.meta_gets, &self.commands];
        begun.iter().all(|batch| batch.is_empty()) && self.full.is_empty()
    }

    /// Refuses an operation for which there is no room.
    fn check_room(&self, length: usize, options: &ClientOptions) -> Result<(), Error> {
        if self.ledger.operations >= options.operations_max {
            return Err(Error::TooManyOperations {
                limit: options.operations_max,
            });
        }
        let length = self.ledger.request_bytes + length + REQUEST_OVERHEAD_BYTES;
        if length > options.request_bytes_max {
            let limit = options.request_bytes_max;
            return Err(Error::TooManyRequestBytes { limit, length });
        }
        Ok(())
    }

    /// Returns true if new operations should wait. The server answers in order, so a request behind
    /// many others gains little by leaving early. By leaving late it shares its system calls with
    /// the operations that come meanwhile. Behind few it goes at once: that the server and its
    /// client work at the same time is worth more than a call.
    fn is_to_be_held(&self, options: &ClientOptions) -> bool {
        if self.is_leaving && self.connection.is_some() {
            return true;
        }
        let begun = self.gets.len() + self.meta_gets.len() + self.commands.len();
        let under_way = self.ledger.operations.saturating_sub(begun);
        begun < options.held_max.min(under_way / UNDER_WAY_PER_HELD)
            && self.full.is_empty()
            && (self.connection.as_ref()).is_some_and(Connection::is_established)
    }

    /// Sends the new operations, or fails them if they cannot be sent. Returns true if they are
    /// held until those in progress have their replies.
    pub(crate) fn flush<F: Sink>(
        &mut self,
        context: &mut Context,
        options: &ClientOptions,
        sink: &mut F,
    ) -> bool {
        if self.is_to_be_held(options) {
            self.held_since.get_or_insert(context.now());
            return true;
        }
        let taken = self.held_since.take().unwrap_or(context.now());
        self.take_begun_if(|_| true);
        let mut requests = std::mem::take(&mut self.full);
        let is_open = self.ledger.breaker.is_open();
        if let Some(connection) = self.connection.as_mut().filter(|_| !is_open) {
            let deadline = taken + options.timeout;
            // The connection that is being made counts when it is there.
            let connects = self.ledger.statistics.connects;
            let epoch = connects + u64::from(!connection.is_established());
            let mut reporter = Reporter {
                ledger: &mut self.ledger,
                context,
                sink,
            };
            for batch in requests.extract_if(.., |batch| !batch.is_for(epoch)) {
                reporter.fail(batch, Failure::Reconnected);
            }
            let count = requests.len();
            for mut batch in requests.drain(..) {
                let length_before = batch.wire().len();
                batch.finish();
                self.ledger.request_bytes += batch.wire().len() - length_before;
                connection.push(batch, deadline);
            }
            let result = if count > 0 && connection.is_established() {
                write(context, connection, count)
            } else {
                Ok(())
            };
            self.settle(context, result, sink);
        } else {
            let mut reporter = Reporter {
                ledger: &mut self.ledger,
                context,
                sink,
            };
            for batch in requests.drain(..) {
                reporter.fail(batch, Failure::Unavailable);
            }
        }
        self.full = requests;
        false
    }

    /// Moves the requests that operations are still being added to to those that are full.
    fn take_begun_if(&mut self, is_meant: impl Fn(Form) -> bool) {
        for batch in [&mut self.gets, &mut self.meta_gets, &mut self.commands] {
            if !batch.is_empty() && is_meant(batch.form()) {
                let next = self.ledger.batch(batch.form());
                self.full.push(std::mem::replace(batch, next));
            }
        }
    }

    /// Begins a connection attempt.
    pub(crate) fn connect(&mut self, context: &mut Context, options: &ClientOptions) {
        self.is_leaving = false;
        let connected = Stream::connect(self.address).and_then(|mut stream| {
            if let Some(connector) = &self.tls {
                stream.secure_client(connector)?;
                stream.end_writes_alone();
            }
            context.register(&mut stream, self.token)?;
            Ok(stream)
        });
        if let Ok(stream) = connected {
            let deadline = context.now() + options.connect_timeout;
            self.connection = Some(Connection::new(stream, options.value_bytes_max, deadline));
            self.set_deadline(context);
        } else {
            self.failed(context, Failure::Connect);
        }
    }

    /// The connection may have come about, take bytes or have some.
    pub(crate) fn ready<F: Sink>(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        options: &ClientOptions,
        sink: &mut F,
    ) {
        if token != self.token {
            return;
        }
        let mut result = self.send(context, readiness, options);
        let is_up = self.connection.as_ref();
        let is_up = is_up.is_some_and(Connection::is_established);
        if result.is_ok() && readiness.is_readable() && is_up {
            result = self.receive(context, readiness, sink);
        }
        self.settle(context, result, sink);
        self.leave(context, options);
    }

    /// The deadline has passed.
    pub(crate) fn expired<F: Sink>(
        &mut self,
        context: &mut Context,
        token: Token,
        options: &ClientOptions,
        sink: &mut F,
    ) {
        if token != self.token {
            return;
        }
        match &self.connection {
            None => self.connect(context, options),
            Some(connection) => {
                self.armed = None;
                let is_due = connection
                    .deadline()
                    .is_some_and(|due| due <= context.now());
                #[cfg(feature = "sim")]
                if is_due && dwell_evloop::sim::Planted::UseTimedOut.is_in() {
                    return self.give_up_first(context, sink);
                }
                let result = if is_due {
                    let late = connection.peer.stream.handshake_given_up();
                    self.handshakes.broken_off(late);
                    Err(Failure::Timeout)
                } else {
                    Ok(())
                };
                self.settle(context, result, sink);
                self.leave(context, options);
            }
        }
    }

    /// Drops the request that has timed out alone: a planted bug.
    #[cfg(feature = "sim")]
    fn give_up_first<F: Sink>(&mut self, context: &mut Context, sink: &mut F) {
        let connection = self.connection.as_mut();
        let connection = connection.filter(|connection| connection.is_established());
        let Some(batch) = connection.and_then(Connection::give_up_first) else {
            return self.settle(context, Err(Failure::Timeout), sink);
        };
        let mut reporter = Reporter {
            ledger: &mut self.ledger,
            context,
            sink,
        };
        reporter.fail(batch, Failure::Timeout);
        self.set_deadline(context);
    }

    /// Finishes the connection attempt, and writes what waits.
    fn send(
        &mut self,
        context: &mut Context,
        readiness: Readiness,
        options: &ClientOptions,
    ) -> Result<(), Failure> {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        if connection.is_established() {
            if !readiness.is_writable() {
                return Ok(());
            }
            return connection
                .peer
                .stream
                .flush()
                .map(drop)
                .map_err(|_| Failure::Closed);
        }
        if connection.establish(
            readiness,
            context.now() + options.timeout,
            &mut self.handshakes,
        )? {
            self.ledger.statistics.connects += 1;
            let count = connection.in_flight();
            write(context, connection, count)?;
        }
        Ok(())
    }

    /// Reads a bounded share of what the socket holds.
    fn receive<F: Sink>(
        &mut self,
        context: &mut Context,
        readiness: Readiness,
        sink: &mut F,
    ) -> Result<(), Failure> {
        let mut input = context.take_input();
        let mut is_more = Ok(true);
        for _ in 0..READS_PER_TURN {
            is_more = self.receive_once(context, &mut input, readiness, sink);
            if is_more != Ok(true) {
                break;
            }
        }
        context.return_input(input);
        if is_more? {
            context.again(self.token, readiness);
        }
        Ok(())
    }

    /// Reads once; returns true if there may be more.
    fn receive_once<F: Sink>(
        &mut self,
        context: &mut Context,
        input: &mut [u8],
        readiness: Readiness,
        sink: &mut F,
    ) -> Result<bool, Failure> {
        let Some(connection) = &mut self.connection else {
            return Ok(false);
        };
        let (length, is_more) = match connection.peer.stream.read(input) {
            Ok(ReadOutcome::More(length)) => (length, true),
            // After the end of the stream has been told, nothing tells it again.
            Ok(ReadOutcome::Drained(length)) => (length, readiness.is_read_closed()),
            Ok(ReadOutcome::WouldBlock) => return Ok(false),
            Ok(ReadOutcome::Closed) | Err(_) => return Err(Failure::Closed),
        };
        let reporter = &mut Reporter {
            ledger: &mut self.ledger,
            context,
            sink,
        };
        connection.take_input(&input[..length], reporter)?;
        Ok(is_more)
    }

    /// Keeps a connection that is well, with its deadline moved, or ends it.
    fn settle<F: Sink>(
        &mut self,
        context: &mut Context,
        result: Result<(), Failure>,
        sink: &mut F,
    ) {
        let Err(failure) = result else {
            return self.set_deadline(context);
        };
        let Some(connection) = self.connection.take() else {
            return;
        };
        let failure = match failure {
            Failure::Handshake => failure,
            _ if connection.is_established() => failure,
            _ => Failure::Connect,
        };
        let is_harmless =
            failure == Failure::Closed && connection.is_proven() && !connection.is_owing();
        let mut reporter = Reporter {
            ledger: &mut self.ledger,
            context,
            sink,
        };
        for batch in connection.into_unanswered() {
            reporter.fail(batch, failure);
        }
        context.disarm(self.token);
        if is_harmless {
            self.reconnect_later(context);
        } else {
            self.failed(context, failure);
        }
    }

    fn failed(&mut self, context: &mut Context, failure: Failure) {
        self.last_failure = Some(failure);
        self.ledger.statistics.failures += 1;
        self.ledger.breaker.failed();
        self.reconnect_later(context);
    }

    /// Makes the token of the old connection stale, so that its events have no effect, and sets the
    /// time of the next attempt.
    fn reconnect_later(&mut self, context: &mut Context) {
        self.next_token();
        let delay = self.backoff.delay(self.ledger.breaker.failures());
        context.arm(self.token, delay);
    }

    fn next_token(&mut self) {
        let generation = self.token.generation().wrapping_add(1);
        self.token = Token::new(self.token.kind(), generation, self.token.index());
        self.armed = None;
    }

    fn set_deadline(&mut self, context: &mut Context) {
        let deadline = self.connection.as_ref().and_then(Connection::deadline);
        if deadline == self.armed {
            return;
        }
        self.armed = deadline;
        match deadline {
            Some(deadline) => {
                let timeout = deadline.saturating_duration_since(context.now());
                context.arm(self.token, timeout);
            }
            None => context.disarm(self.token),
        }
    }
}

/// Writes the last `count` requests of a connection in one go.
fn write(context: &mut Context, connection: &mut Connection, count: usize) -> Result<(), Failure> {
    let mut wire = context.take_output();
    let result = connection.write_last(count, &mut wire);
    context.return_output(wire);
    result
}

/// One operation is held for so many that are in progress.
const UNDER_WAY_PER_HELD: usize = 4;
/// Reads of one connection in one turn; with the loop's buffer, 1 MiB.
const READS_PER_TURN: usize = 16;
/// A request line this long takes no further key.
const LINE_BYTES_MAX: usize = 8 * 1024 - KEY_BYTES_MAX;
/// Bytes of a request besides the key, at most.
const REQUEST_OVERHEAD_BYTES: usize = 16;
