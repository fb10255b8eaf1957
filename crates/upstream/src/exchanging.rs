//! One request, from its connection to its response.

use std::io::ErrorKind;
use std::sync::Arc;

use bytes::Bytes;
use dwell_evloop::{Context, HandshakeFailure, Handshaking, Readiness, Stream, Token};

use super::answer::{AnswerPart, AnswerReader, Progress};
use super::client::{FirstByte, Upstream};
use super::connection::{Connection, Exchange, Work};
use super::{FaultReport, Taking, UpstreamError, UpstreamEvent, UpstreamRequest};

/// The result of reading a connection.
enum Reading {
    /// All there was is read; more is to come.
    Waiting,
    /// No more of the response is taken for now.
    Paused,
    /// There may be more to read in the next turn.
    Unfinished,
    Complete {
        reusable: bool,
    },
    /// The application has switched protocols behind so many bytes of what was read.
    Switched(usize),
    Failed(UpstreamError),
}

impl Upstream {
    /// Starts a request; there is room for it.
    pub(super) fn start(
        &mut self,
        context: &mut Context,
        exchange: Exchange,
    ) -> Result<(), UpstreamError> {
        while let Some(token) = self.idle.pop() {
            let Some(connection) = self.connections.get_mut(token) else {
                continue;
            };
            // What may be sent twice need not ask: should the connection turn out to be closed,
            // it is sent on another.
            // A body that is passed on as it comes is there only once.
            let is_repeatable = exchange.request.is_idempotent && !exchange.request.body_follows;
            if is_repeatable || connection.is_usable() {
                return self.exchange_on(context, token, exchange);
            }
            self.let_go(context, token);
        }
        self.dial(context, exchange)
    }

    fn dial(&mut self, context: &mut Context, exchange: Exchange) -> Result<(), UpstreamError> {
        let failed = UpstreamError::connect;
        let mut stream = Stream::connect(self.options.address).map_err(|error| failed(&error))?;
        if let Some(connector) = &self.options.tls {
            let secured = stream.secure_client(connector);
            secured.map_err(|error| UpstreamError::handshake(&error))?;
        }
        if !stream.is_numbered_below(self.options.descriptor_bound) {
            return Err(UpstreamError::Descriptors);
        }
        let inserted = self
            .connections
            .insert(Connection::connecting(stream, exchange));
        let limit = self.options.connections_max;
        let token = inserted.map_err(|_| UpstreamError::QueueFull { limit })?;
        if let Some(connection) = self.connections.get_mut(token)
            && let Err(error) = context.register(&mut connection.peer.stream, token)
        {
            self.connections.remove(token);
            return Err(failed(&error));
        }
        self.begin_upload(token);
        self.arm(context, token);
        Ok(())
    }

    /// A request whose body follows counts among the transfers from the start.
    fn begin_upload(&mut self, token: Token) {
        let exchange = self.connections.get(token).and_then(Connection::exchange);
        if exchange.is_some_and(|exchange| exchange.request.body_follows) {
            self.begin_transfer(token);
        }
    }

    /// Sends a request on an established connection.
    fn exchange_on(
        &mut self,
        context: &mut Context,
        token: Token,
        mut exchange: Exchange,
    ) -> Result<(), UpstreamError> {
        exchange.sent_at = context.now();
        let Some(connection) = self.connections.get_mut(token) else {
            return self.dial(context, exchange);
        };
        let bytes = exchange.request.bytes.clone();
        match connection.peer.stream.write_shared(&[], bytes) {
            Ok(()) => {
                let request = &exchange.request;
                let window = self.options.window_bytes;
                let reader = AnswerReader::new(request.is_head, request.taking, window);
                if exchange.unannounced {
                    context.again(token, Readiness::default());
                }
                connection.work = Work::Exchanging(exchange, Box::new(reader));
                self.begin_upload(token);
                self.arm(context, token);
                Ok(())
            }
            Err(error) => {
                let is_reused = connection.is_reused;
                self.close(context, token);
                if is_reused && !exchange.retried {
                    // The first write failed, so the application has seen nothing of it.
                    let exchange = Exchange {
                        retried: true,
                        ..exchange
                    };
                    return self.dial(context, exchange);
                }
                Err(UpstreamError::broken(&error))
            }
        }
    }

    pub(super) fn connected(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        match connection.peer.stream.connect_error() {
            Ok(None) => {}
            Ok(Some(error)) if error.kind() == ErrorKind::NotConnected => return,
            Ok(Some(error)) | Err(error) => {
                let broken = connection.peer.stream.handshake_broken_by(&error);
                if broken.is_some() {
                    self.handshakes.add(broken);
                }
                self.fail(context, token, UpstreamError::Connect(error.kind()), sink);
                return self.dispatch(context, sink);
            }
        }
        // An end that comes with the last bytes is not told again.
        connection.peer.observe(readiness);
        match connection.peer.handshake() {
            Ok(Handshaking::Pending) => return,
            Ok(Handshaking::Agreed(_)) => self.handshakes.add(None),
            Ok(_) => {}
            Err(error) => {
                let failure = HandshakeFailure::of(&error);
                self.handshakes.add(Some(failure));
                self.fail(context, token, UpstreamError::handshake(&error), sink);
                return self.dispatch(context, sink);
            }
        }
        let readiness = if connection.peer.stream.is_secure() {
            // What came behind the handshake was read with it.
            readiness.and(Readiness::READABLE)
        } else {
            readiness
        };
        let work = std::mem::replace(&mut connection.work, Work::Idle);
        let Work::Connecting(exchange) = work else {
            return;
        };
        let (tag, witness) = (exchange.request.tag, exchange.witness);
        match self.exchange_on(context, token, exchange) {
            Ok(()) if readiness.is_readable() => self.advance(context, token, readiness, sink),
            Ok(()) => {}
            Err(error) => {
                sink(context, UpstreamEvent::failed_by(tag, error, witness));
                self.dispatch(context, sink);
            }
        }
    }

    /// Goes on with an exchange: sends what is left of the request and reads what has come.
    pub(super) fn advance(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        self.announce(context, token, sink);
        self.flush(context, token, readiness, sink);
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        connection.peer.observe(readiness);
        let write_error = connection.write_error;
        if write_error.is_some() {
            connection.peer.set_unread();
        }
        let mut parts = Vec::new();
        let reading = self.read(context, token, &mut parts);
        if !parts.is_empty() {
            self.hand_on(context, token, parts, sink);
        }
        let reading = match (reading, write_error) {
            (Reading::Waiting, Some(error)) => Reading::Failed(UpstreamError::Broken(error)),
            (reading, _) => reading,
        };
        match reading {
            Reading::Waiting | Reading::Paused => self.goes_on(context, token, sink),
            Reading::Unfinished => {
                context.again(token, readiness);
                self.goes_on(context, token, sink);
            }
            Reading::Complete { reusable } => {
                self.complete(context, token, reusable, sink);
                self.dispatch(context, sink);
            }
            Reading::Switched(_) => {
                self.switch(context, token, sink);
                self.dispatch(context, sink);
            }
            Reading::Failed(error) => {
                self.fail_or_retry(context, token, error, sink);
                self.dispatch(context, sink);
            }
        }
    }

    /// More of an exchange is to come: an answer that goes on in parts, for however long, keeps
    /// no others waiting from here on.
    fn goes_on(
        &mut self,
        context: &mut Context,
        token: Token,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let work = self.connections.get(token).map(|it| &it.work);
        let is_in_parts = matches!(work, Some(Work::Exchanging(_, reader))
            if reader.has_head() && reader.is_in_parts());
        if is_in_parts && self.begin_transfer(token) {
            self.dispatch(context, sink);
        }
    }

    /// Sends what the socket has refused, as far as it takes it now.
    fn flush(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        if !readiness.is_writable() || connection.peer.stream.queued_bytes() == 0 {
            return;
        }
        // An application that refuses a body may answer, close, and leave the rest unread: so a
        // failed write is no failure before its answer was looked for.
        connection.write_error = connection
            .peer
            .stream
            .flush()
            .err()
            .map(|error| error.kind());
        if connection.write_error.is_some() {
            return;
        }
        let is_taken = connection.peer.stream.queued_bytes() == 0;
        let request = connection.exchange().map(|exchange| &exchange.request);
        if let Some(request) = request.filter(|request| is_taken && request.body_follows) {
            let tag = request.tag;
            sink(context, UpstreamEvent::BodyTaken { tag });
        }
        self.arm(context, token);
    }

    fn read(
        &mut self,
        context: &mut Context,
        token: Token,
        parts: &mut Vec<AnswerPart>,
    ) -> Reading {
        let Some(connection) = self.connections.get_mut(token) else {
            return Reading::Waiting;
        };
        let Work::Exchanging(exchange, reader) = &mut connection.work else {
            return Reading::Waiting;
        };
        let had_head = reader.has_head();
        if !connection.peer.is_unread() {
            return Reading::Waiting;
        }
        let mut input = context.take_input();
        let mut reading = Reading::Unfinished;
        for _ in 0..READS_PER_TURN {
            if reader.is_paused() {
                reading = Reading::Paused;
                break;
            }
            reading = match connection.peer.read_to_end(&mut input) {
                // An end that was not told may cut the answer off (RFC 9112 section 9.8).
                Ok(0) if connection.peer.is_at_end() && connection.peer.stream.is_cut_off() => {
                    Reading::Failed(UpstreamError::Closed)
                }
                Ok(0) if connection.peer.is_at_end() => reader.end(parts).into(),
                Ok(0) => Reading::Waiting,
                Ok(length) => match reader.feed(&input[..length], &self.options, parts).into() {
                    Reading::Waiting if connection.peer.is_unread() => continue,
                    Reading::Switched(_) if !is_asked_for(&exchange.request, parts) => {
                        parts.clear();
                        Reading::Failed(UpstreamError::SwitchedProtocols)
                    }
                    Reading::Switched(used) => {
                        connection.peer.keep(&input[..length], used, ());
                        Reading::Switched(used)
                    }
                    other => other,
                },
                Err(error) => Reading::Failed(UpstreamError::broken(&error)),
            };
            break;
        }
        context.return_input(input);
        if !had_head && reader.has_head() {
            // It is not sent again, and its answer may take long.
            exchange.request.bytes = Bytes::new();
            if self.keeps_heads {
                self.first_bytes.push(FirstByte {
                    tag: exchange.request.tag,
                    waited: context.now().saturating_duration_since(exchange.sent_at),
                    witness: exchange.witness,
                });
            }
        }
        if !parts.is_empty() || had_head != reader.has_head() {
            self.arm(context, token);
        }
        reading
    }

    fn complete(
        &mut self,
        context: &mut Context,
        token: Token,
        reusable: bool,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let work = std::mem::replace(&mut connection.work, Work::Idle);
        let Work::Exchanging(exchange, mut reader) = work else {
            return;
        };
        connection.is_reused = true;
        let transfer_of = connection.transfer_of.take();
        // A request that is answered before it is all sent leaves its rest in the way.
        let is_clean = connection.peer.stream.queued_bytes() == 0
            && !exchange.request.body_follows
            && !connection.peer.has_ended()
            && !connection.peer.stream.has_begun_record()
            && connection.write_error.is_none()
            && (!connection.peer.is_unread() || connection.is_usable());
        let is_wanted = self.idle.len() < self.options.idle_max || !self.queue.is_empty();
        if reusable && is_clean && is_wanted {
            self.idle.push(token);
            connection.armed = None;
            context.arm(token, self.options.idle_timeout);
        } else {
            self.let_go(context, token);
        }
        self.end_transfer(transfer_of);
        if let Some(answer) = reader.take_whole() {
            let (tag, answer) = (exchange.request.tag, Arc::new(answer));
            sink(context, UpstreamEvent::Answer { tag, answer });
        }
    }

    /// Hands the parts of an answer on.
    fn hand_on(
        &mut self,
        context: &mut Context,
        token: Token,
        mut parts: Vec<AnswerPart>,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let server = self.options.address;
        let Some(found) = self.connections.get_mut(token) else {
            return;
        };
        let Work::Exchanging(exchange, _) = &mut found.work else {
            return;
        };
        let (tag, connection) = (exchange.request.tag, token);
        let is_switched =
            |part: &AnswerPart| matches!(part, AnswerPart::Head(head) if head.status == 101);
        let switched = parts.pop_if(|part| is_switched(part));
        if exchange.request.taking == Taking::Whole {
            exchange.request.taking = Taking::Parts;
            let event = UpstreamEvent::Large {
                tag,
                connection,
                server,
                parts,
            };
            sink(context, event);
        } else if !parts.is_empty() {
            let event = UpstreamEvent::Parts {
                tag,
                connection,
                server,
                parts,
            };
            sink(context, event);
        }
        if let Some(AnswerPart::Head(head)) = switched {
            exchange.switched = Some(Box::new(head));
        }
    }

    /// Hands a connection over that speaks another protocol from now on.
    fn switch(
        &mut self,
        context: &mut Context,
        token: Token,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let Some(mut connection) = self.close(context, token) else {
            return;
        };
        let Work::Exchanging(exchange, _) = &mut connection.work else {
            return;
        };
        let tag = exchange.request.tag;
        let Some(head) = exchange.switched.take() else {
            return;
        };
        let event = UpstreamEvent::Switched {
            tag,
            server: self.options.address,
            head: *head,
            detached: Box::new(connection.peer.into()),
        };
        sink(context, event);
    }

    /// A connection ended or broke during an exchange.
    fn fail_or_retry(
        &mut self,
        context: &mut Context,
        token: Token,
        error: UpstreamError,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let Some(connection) = self.connections.get(token) else {
            return;
        };
        if !error.is_loss() || !connection.may_retry() {
            return self.fail(context, token, error, sink);
        }
        let Some(exchange) = self
            .close(context, token)
            .and_then(Connection::into_exchange)
        else {
            return;
        };
        let (tag, witness) = (exchange.request.tag, exchange.witness);
        let exchange = Exchange {
            retried: true,
            ..exchange
        };
        // A new connection: the others may have been closed along with this one.
        if let Err(error) = self.dial(context, exchange) {
            sink(context, UpstreamEvent::failed_by(tag, error, witness));
        }
    }

    pub(super) fn fail(
        &mut self,
        context: &mut Context,
        token: Token,
        error: UpstreamError,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let Some(connection) = self.close(context, token) else {
            return;
        };
        if let Some(exchange) = connection.exchange() {
            let (tag, witness) = (exchange.request.tag, exchange.witness);
            let unanswered = connection.into_unanswered(&error);
            let event = UpstreamEvent::Failed {
                tag,
                error,
                report: FaultReport::default(),
                witness,
                unanswered,
            };
            sink(context, event);
        }
    }

    pub(super) fn close(&mut self, context: &mut Context, token: Token) -> Option<Connection> {
        let mut connection = self.connections.remove(token)?;
        self.end_transfer(connection.transfer_of);
        context.disarm(token);
        // The socket is closed next, which takes it out of the poller in any case.
        let _ = context.deregister(&mut connection.peer.stream);
        Some(connection)
    }

    /// Closes a connection without work, of which its server is told.
    pub(super) fn let_go(&mut self, context: &mut Context, token: Token) {
        if let Some(mut connection) = self.close(context, token) {
            connection.peer.stream.close_notify();
        }
    }

    /// Gives the stage that begins now its deadline.
    pub(super) fn arm(&mut self, context: &mut Context, token: Token) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let now = context.now();
        let deadline = connection.stage_deadline(&self.options, now);
        // An unused connection has a deadline of its own.
        if deadline.is_some() && connection.armed == deadline {
            return;
        }
        connection.armed = deadline;
        match deadline {
            Some(deadline) => context.arm(token, deadline.saturating_duration_since(now)),
            None => context.disarm(token),
        }
    }
}

impl From<Result<Progress, UpstreamError>> for Reading {
    /// The consequence of a step.
    fn from(progress: Result<Progress, UpstreamError>) -> Self {
        match progress {
            Ok(Progress::Partial) => Self::Waiting,
            Ok(Progress::Complete { reusable }) => Self::Complete { reusable },
            Ok(Progress::Switched(used)) => Self::Switched(used),
            Err(error) => Self::Failed(error),
        }
    }
}

/// Returns true if the switch of protocols that ends `parts` is the requested one.
fn is_asked_for(request: &UpstreamRequest, parts: &[AnswerPart]) -> bool {
    matches!(parts.last(), Some(AnswerPart::Head(head)) if request.has_asked_for(head))
}

/// Reads of one connection in one turn; a long answer lets the others have theirs.
const READS_PER_TURN: usize = 8;
