//! One connection to the server as it comes and goes.

mod leaving;

pub(crate) use leaving::Attempts;

use crate::connection::{Connection, Flight, Received};
use crate::greeting::{Purpose, Refusal, Step};
use crate::sentinel::{address, ask, check_role};
use crate::table::TableQuestion;
use crate::target::Target;
use crate::{ClientOptions, Endpoint, Error, Failure};
use dwell_evloop::{Backoff, Breaker, Context, Handshakes, Readiness, Stream, Token};
use dwell_proto::resp::{Items, Message, command};
use std::io;
use std::net::SocketAddr;
use std::time::Instant;

/// An event of a connection.
#[derive(Debug)]
pub(crate) enum LinkEvent<'b> {
    /// The server has greeted it.
    Up,
    /// A command has its reply.
    Reply(Flight, Message<'b>),
    /// The server has sent something of its own.
    Push(Items<'b>),
    /// A command will have no reply.
    Failed(Flight, Failure),
    /// The operation with this tag has no time left, whatever the reply to its command.
    Overdue(u64),
    /// The connection is gone by this failure, and its commands have failed.
    Down(Failure),
}

/// The owner of a connection, which is given its events; an error ends it.
pub(crate) trait OnEvent: FnMut(&mut Context, LinkEvent<'_>) -> Result<(), Failure> {}

impl<F: FnMut(&mut Context, LinkEvent<'_>) -> Result<(), Failure>> OnEvent for F {}

/// A connection, or the time of the next attempt to make it.
///
/// While there is a connection, the token's deadline is the one by which it has to answer.
/// Otherwise it is the time of the next attempt.
#[derive(Debug)]
pub(crate) struct Link {
    purpose: Purpose,
    target: Target,
    /// Names the current connection; a new generation for each.
    token: Token,
    connection: Option<Connection>,
    /// The time of the next attempt, if it has one.
    next_at: Option<Instant>,
    /// The deadline that is set on the loop. Only changes are set: setting a deadline again would
    /// round it up to a whole tick again.
    armed: Option<Instant>,
    /// The time of the last reply or push, while nothing is owed.
    quiet_since: Option<Instant>,
    backoff: Backoff,
    breaker: Breaker,
    connects: u64,
    last_failure: Option<Failure>,
    refusal: Option<Refusal>,
    handshakes: Handshakes,
}

impl Link {
    pub(crate) fn new(
        purpose: Purpose,
        endpoint: Endpoint,
        token: Token,
        options: &ClientOptions,
    ) -> Self {
        let (min, max) = (options.reconnect_delay_min, options.reconnect_delay_max);
        Self {
            purpose,
            target: Target::new(endpoint),
            token,
            connection: None,
            next_at: None,
            armed: None,
            quiet_since: None,
            backoff: Backoff::new(min, max, dwell_evloop::seed()),
            breaker: Breaker::new(options.failures_max),
            connects: 0,
            last_failure: None,
            refusal: None,
            handshakes: Handshakes::default(),
        }
    }

    pub(crate) fn is_up(&self) -> bool {
        self.connection.as_ref().is_some_and(Connection::is_greeted)
    }

    pub(crate) fn connects(&self) -> u64 {
        self.connects
    }

    pub(crate) fn last_failure(&self) -> Option<Failure> {
        self.last_failure
    }

    /// The server's refusal of the last greeting.
    pub(crate) fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    /// The server of the current connection, if Sentinels have named it.
    pub(crate) fn primary(&self) -> Option<SocketAddr> {
        self.connection.as_ref().and(self.target.named())
    }

    /// The server of a connection that is up, if Sentinels have named it.
    pub(crate) fn primary_if_up(&self) -> Option<SocketAddr> {
        self.primary().filter(|_| self.is_up())
    }

    /// The server of the last attempt, if Sentinels have named it.
    pub(crate) fn last_primary(&self) -> Option<SocketAddr> {
        self.target.named()
    }

    /// Returns true if there is a connection, greeted or not.
    pub(crate) fn is_connected(&self) -> bool {
        self.connection.is_some()
    }

    /// The server of the last attempt, if it has said of itself that it is no primary.
    pub(crate) fn demoted(&self) -> Option<SocketAddr> {
        let is_demoted = matches!(self.refusal, Some(Refusal::NoPrimary(_)));
        self.target.named().filter(|_| is_demoted)
    }

    /// The next connection is to the server that another one has, if that has one.
    pub(crate) fn follow(&mut self, lead: Option<SocketAddr>) {
        self.target.follow(lead);
    }

    pub(crate) fn handshakes(&mut self) -> &mut Handshakes {
        &mut self.handshakes
    }

    /// The server's own words for the last failure, or those of TLS.
    pub(crate) fn reason(&self) -> Option<&str> {
        match &self.refusal {
            Some(
                Refusal::Refused(reason) | Refusal::Untracked(reason) | Refusal::NoPrimary(reason),
            ) => Some(reason),
            Some(Refusal::Malformed) | None => self.handshakes.error(),
        }
    }

    /// Commands without a reply.
    pub(crate) fn in_flight(&self) -> usize {
        self.connection.as_ref().map_or(0, Connection::in_flight)
    }

    /// Begins to connect, unless there is a connection or the next attempt has its time; returns
    /// true if commands can be added.
    pub(crate) fn ensure(&mut self, context: &mut Context, options: &ClientOptions) -> bool {
        if self.connection.is_none() && self.next_at.is_none() {
            self.connect(context, options);
        }
        let is_trusted = !self.breaker.is_open() || self.is_up();
        self.connection.is_some() && is_trusted
    }

    fn connect(&mut self, context: &mut Context, options: &ClientOptions) {
        self.next_at = None;
        match self.begin(context, options) {
            Ok((stream, first)) => {
                let deadline = context.now() + options.connect_timeout;
                let bytes_max = options.value_bytes_max;
                self.connection = Some(Connection::new(stream, first, bytes_max, deadline));
                self.set_deadline(context, options);
            }
            Err(_) => self.failed(context, Failure::Connect),
        }
    }

    /// Begins an attempt to connect; returns the first step of its greeting, too.
    fn begin(
        &mut self,
        context: &mut Context,
        options: &ClientOptions,
    ) -> io::Result<(Stream, Step)> {
        let (mut stream, first) = self.target.connect(options.tls.as_ref())?;
        context.register(&mut stream, self.token)?;
        Ok((stream, first))
    }

    /// Returns true if a command can be added, false if there is no connection.
    ///
    /// # Errors
    /// When too much waits already.
    pub(crate) fn has_room(&self, options: &ClientOptions) -> Result<bool, Error> {
        let Some(connection) = &self.connection else {
            return Ok(false);
        };
        if connection.in_flight() >= options.operations_max {
            let limit = options.operations_max;
            return Err(Error::TooManyOperations { limit });
        }
        let (limit, length) = (options.request_bytes_max, connection.request_bytes());
        if length >= limit {
            return Err(Error::TooManyRequestBytes { limit, length });
        }
        Ok(true)
    }

    /// Adds a command, which goes out with the next [`flush`](Self::flush).
    ///
    /// # Errors
    /// When too much waits already. `Ok(false)` if there is no connection.
    pub(crate) fn push(
        &mut self,
        context: &Context,
        flight: Flight,
        options: &ClientOptions,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<bool, Error> {
        let has_room = self.has_room(options)?;
        self.push_behind(context, flight, options, encode);
        Ok(has_room)
    }

    /// As [`push`](Self::push), for a command that was admitted already, alone or with the one
    /// before.
    pub(crate) fn push_behind(
        &mut self,
        context: &Context,
        flight: Flight,
        options: &ClientOptions,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        if let Some(connection) = &mut self.connection {
            connection.push(flight, context.now() + options.timeout, encode);
        }
    }

    /// Asks for the use of the server's table.
    pub(crate) fn ask_for_table(&mut self, context: &Context, options: &ClientOptions) {
        for question in TableQuestion::ALL {
            let ask = |wire: &mut Vec<u8>| command(wire, question.words());
            // Where there is no room, it is asked another time.
            let _ = self.push(context, Flight::Table(question), options, ask);
        }
    }

    /// Sends the new commands.
    pub(crate) fn flush(
        &mut self,
        context: &mut Context,
        options: &ClientOptions,
        on: &mut impl OnEvent,
    ) {
        if let Some(connection) = &mut self.connection {
            let result = connection.send();
            self.settle(context, result, options, on);
        }
    }

    /// The connection may have come about, take bytes or have some.
    pub(crate) fn ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        options: &ClientOptions,
        on: &mut impl OnEvent,
    ) {
        if token != self.token {
            return;
        }
        let mut result = self.go_on(context.now(), readiness, options);
        let is_up = self.connection.as_ref();
        let is_up = is_up.is_some_and(Connection::is_established);
        if result.is_ok() && readiness.is_readable() && is_up {
            result = self.receive(context, readiness, options, on);
        }
        self.settle(context, result, options, on);
    }

    /// Finishes the attempt to connect, or writes what the socket has refused.
    fn go_on(
        &mut self,
        now: Instant,
        readiness: Readiness,
        options: &ClientOptions,
    ) -> Result<(), Failure> {
        let Some(connection) = &mut self.connection else {
            return Ok(());
        };
        if connection.is_established() {
            return if readiness.is_writable() {
                connection.flush()
            } else {
                Ok(())
            };
        }
        if connection.establish(readiness, &mut self.handshakes)? {
            let (first, deadline) = (connection.greeting(), now + options.timeout);
            connection.greet(first, deadline, |step, wire| match self.target.name() {
                Some(name) if step == Step::Sentinel => ask(name, wire),
                _ => step.encode(options, wire),
            })?;
        }
        Ok(())
    }

    /// Connects to the primary that a Sentinel has named.
    fn turn_to(
        &mut self,
        context: &mut Context,
        primary: SocketAddr,
        options: &ClientOptions,
    ) -> Result<(), Failure> {
        let stream = self.target.turn_to(primary, options.tls.as_ref());
        let mut stream = stream.map_err(|_| Failure::Connect)?;
        // Events of the connection to the Sentinel have no effect any more.
        context.disarm(self.token);
        self.next_token();
        let registered = context.register(&mut stream, self.token);
        registered.map_err(|_| Failure::Connect)?;
        let before = self.connection.take();
        let (begun, bytes_max) = ((stream, Step::Hello), options.value_bytes_max);
        self.connection = before.map(|before| {
            let deadline = before.attempt_deadline();
            before.turned_to(begun, bytes_max, deadline)
        });
        Ok(())
    }

    /// Reads a bounded share of what the socket holds.
    fn receive(
        &mut self,
        context: &mut Context,
        readiness: Readiness,
        options: &ClientOptions,
        on: &mut impl OnEvent,
    ) -> Result<(), Failure> {
        let mut input = context.take_input();
        let mut is_more = Ok(true);
        for _ in 0..READS_PER_TURN {
            is_more = self.receive_once(context, &mut input, readiness, options, on);
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

    fn receive_once(
        &mut self,
        context: &mut Context,
        input: &mut [u8],
        readiness: Readiness,
        options: &ClientOptions,
        on: &mut impl OnEvent,
    ) -> Result<bool, Failure> {
        let Some(connection) = &mut self.connection else {
            return Ok(false);
        };
        let (length, is_more) = connection.read(input, readiness)?;
        if length > 0 {
            self.quiet_since = None;
        }
        let (purpose, refusal) = (self.purpose, &mut self.refusal);
        let (breaker, connects) = (&mut self.breaker, &mut self.connects);
        let last_failure = &mut self.last_failure;
        let (name, mut found) = (self.target.name(), None);
        let deadline = context.now() + options.timeout;
        connection.take_input(&input[..length], &mut |connection, received| {
            let (step, reply) = match received {
                Received::Push(items) => return on(context, LinkEvent::Push(items)),
                Received::Reply(flight, message) => {
                    breaker.operation_answered();
                    return on(context, LinkEvent::Reply(flight, message));
                }
                Received::Greeting(step, reply) => (step, reply),
            };
            let next = match (step, name) {
                (Step::Sentinel, Some(name)) => address(name, &reply).map(|primary| {
                    found = Some(primary);
                    Some(Step::Sentinel)
                }),
                (Step::Hello, Some(_)) => {
                    check_role(&reply).and_then(|()| step.next(&reply, purpose, options))
                }
                _ => step.next(&reply, purpose, options),
            };
            let next = next.map_err(|refused| {
                let failure = match refused {
                    Refusal::Malformed => Failure::Protocol,
                    Refusal::Refused(_) | Refusal::Untracked(_) | Refusal::NoPrimary(_) => {
                        Failure::Refused
                    }
                };
                *refusal = Some(refused);
                failure
            })?;
            if found.is_some() {
                return Ok(());
            }
            connection.greet(next, deadline, |step, wire| step.encode(options, wire))?;
            if next.is_none() {
                *connects += 1;
                (*refusal, *last_failure) = (None, None);
                breaker.probe_answered();
                on(context, LinkEvent::Up)?;
            }
            Ok(())
        })?;
        if let Some(primary) = found {
            self.turn_to(context, primary, options)?;
            return Ok(false);
        }
        Ok(is_more)
    }

    /// The deadline has passed; true if the connection is silent, and owes nothing.
    pub(crate) fn expired(
        &mut self,
        context: &mut Context,
        token: Token,
        options: &ClientOptions,
        on: &mut impl OnEvent,
    ) -> bool {
        if token != self.token {
            return false;
        }
        self.armed = None;
        let Some(connection) = &mut self.connection else {
            self.connect(context, options);
            return false;
        };
        for flight in connection.take_unsent(context.now()) {
            let _ = on(context, LinkEvent::Failed(flight, Failure::Connect));
        }
        for tag in connection.end_overdue(context.now()) {
            let _ = on(context, LinkEvent::Overdue(tag));
        }
        let deadline = connection.deadline();
        if deadline.is_some_and(|deadline| deadline <= context.now()) {
            let late = connection.late(&mut self.handshakes);
            self.settle(context, Err(late), options, on);
            return false;
        }
        let is_silent = deadline.is_none()
            && self
                .quiet_since
                .is_some_and(|since| since + options.probe <= context.now());
        if is_silent {
            // The owner sends a probe, or closes the connection.
            self.quiet_since = None;
        }
        self.settle(context, Ok(()), options, on);
        is_silent
    }

    /// Closes the connection, which is needed no longer and owes nothing.
    pub(crate) fn close(&mut self, context: &mut Context) {
        if self.connection.take().is_some() {
            context.disarm(self.token);
            self.next_token();
            self.next_at = None;
        }
    }

    /// Ends the connection, which is made again later.
    pub(crate) fn end(
        &mut self,
        context: &mut Context,
        failure: Failure,
        options: &ClientOptions,
        on: &mut impl OnEvent,
    ) {
        self.settle(context, Err(failure), options, on);
    }

    /// Goes on with another server; there is no connection.
    pub(crate) fn turn_to_other(&mut self, endpoint: Endpoint, options: &ClientOptions) {
        let handshakes = std::mem::take(&mut self.handshakes);
        *self = Self {
            handshakes,
            ..Self::new(self.purpose, endpoint, self.token, options)
        };
    }

    /// Makes no further attempt until the next [`ensure`](Self::ensure).
    pub(crate) fn give_up(&mut self, context: &mut Context) {
        context.disarm(self.token);
        self.next_token();
        (self.next_at, self.refusal) = (None, None);
    }

    /// Keeps a connection that is well, with its deadline moved, or ends it.
    fn settle(
        &mut self,
        context: &mut Context,
        result: Result<(), Failure>,
        options: &ClientOptions,
        on: &mut impl OnEvent,
    ) {
        let Err(failure) = result else {
            return self.set_deadline(context, options);
        };
        let Some(connection) = self.connection.take() else {
            return;
        };
        let failure = match failure {
            Failure::Closed | Failure::Timeout if !connection.is_established() => Failure::Connect,
            _ => failure,
        };
        // A server may close what is idle.
        let is_harmless =
            failure == Failure::Closed && connection.is_greeted() && connection.in_flight() == 0;
        // No command is sent before the greeting.
        let of_commands = match failure {
            Failure::Closed | Failure::Timeout if !connection.is_greeted() => Failure::Connect,
            _ => failure,
        };
        for flight in connection.into_unanswered() {
            // The connection is gone already.
            let _ = on(context, LinkEvent::Failed(flight, of_commands));
        }
        context.disarm(self.token);
        if is_harmless {
            self.put_off(context);
        } else {
            self.failed(context, failure);
        }
        let _ = on(context, LinkEvent::Down(failure));
    }

    fn failed(&mut self, context: &mut Context, failure: Failure) {
        self.last_failure = Some(failure);
        if failure != Failure::Refused {
            self.refusal = None;
        }
        self.breaker.failed();
        self.put_off(context);
    }

    /// Makes the token of the old connection stale, so that its events have no effect, and sets the
    /// time of the next attempt.
    fn put_off(&mut self, context: &mut Context) {
        self.next_token();
        let delay = self.backoff.delay(self.breaker.failures());
        self.next_at = Some(context.now() + delay);
        context.arm(self.token, delay);
    }

    fn next_token(&mut self) {
        let generation = self.token.generation().wrapping_add(1);
        self.token = Token::new(self.token.kind(), generation, self.token.index());
        (self.armed, self.quiet_since) = (None, None);
    }

    fn set_deadline(&mut self, context: &mut Context, options: &ClientOptions) {
        let Some(connection) = &self.connection else {
            return;
        };
        let deadline = connection.deadline();
        if deadline.is_some() {
            self.quiet_since = None;
        } else {
            self.quiet_since.get_or_insert(context.now());
        }
        let deadline = deadline.or(self.quiet_since.map(|since| since + options.probe));
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

/// Reads of one connection in one turn; with the loop's buffer, 1 MiB.
const READS_PER_TURN: usize = 16;
