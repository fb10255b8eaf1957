//! What happens to one request, from its connection to its answer.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::Duration;

use dwell_evloop::{Context, ReadOutcome, Readiness, Stream, Token};

use super::answer::{Answer, AnswerReader, Progress};
use super::client::Upstream;
use super::connection::{Connection, Exchange, Work};
use super::{UpstreamError, UpstreamEvent};

/// What came of reading a connection.
enum Reading {
    /// All there was is read; more is to come.
    Waiting,
    /// There may be more to read in the next turn.
    Unfinished,
    Complete {
        answer: Answer,
        reusable: bool,
    },
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
            if exchange.request.is_idempotent || connection.is_usable() {
                return self.exchange_on(context, token, exchange);
            }
            self.close(context, token);
        }
        self.dial(context, exchange)
    }

    fn dial(&mut self, context: &mut Context, exchange: Exchange) -> Result<(), UpstreamError> {
        let failed = |error: &std::io::Error| UpstreamError::Connect(error.kind());
        let stream = Stream::connect(self.options.address).map_err(|error| failed(&error))?;
        let inserted = self
            .connections
            .insert(Connection::connecting(stream, exchange));
        let limit = self.options.connections_max;
        let token = inserted.map_err(|_| UpstreamError::QueueFull { limit })?;
        if let Some(connection) = self.connections.get_mut(token)
            && let Err(error) = context.register(&mut connection.stream, token)
        {
            self.connections.remove(token);
            return Err(failed(&error));
        }
        self.arm(context, token, self.options.connect_timeout);
        Ok(())
    }

    /// Sends a request on an established connection.
    fn exchange_on(
        &mut self,
        context: &mut Context,
        token: Token,
        exchange: Exchange,
    ) -> Result<(), UpstreamError> {
        let Some(connection) = self.connections.get_mut(token) else {
            return self.dial(context, exchange);
        };
        let bytes = exchange.request.bytes.clone();
        match connection.stream.write_shared(&[], bytes) {
            Ok(()) => {
                let reader = AnswerReader::new(exchange.request.is_head);
                connection.work = Work::Exchanging(exchange, reader);
                self.arm(context, token, self.options.header_timeout);
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
                Err(UpstreamError::Broken(error.kind()))
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
        match connection.stream.connect_error() {
            Ok(None) => {}
            Ok(Some(error)) if error.kind() == ErrorKind::NotConnected => return,
            Ok(Some(error)) | Err(error) => {
                self.fail(context, token, UpstreamError::Connect(error.kind()), sink);
                return self.dispatch(context, sink);
            }
        }
        let work = std::mem::replace(&mut connection.work, Work::Idle);
        let Work::Connecting(exchange) = work else {
            return;
        };
        let tag = exchange.request.tag;
        match self.exchange_on(context, token, exchange) {
            Ok(()) if readiness.is_readable() => self.advance(context, token, readiness, sink),
            Ok(()) => {}
            Err(error) => {
                sink(context, UpstreamEvent::failed(tag, error));
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
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let mut write_error = None;
        if readiness.is_writable() && connection.stream.queued_bytes() > 0 {
            // An application that refuses a body may answer, close, and leave the rest unread: so
            // a failed write is no failure before its answer was looked for.
            write_error = connection.stream.flush().err();
            if write_error.is_none() {
                self.arm(context, token, self.options.header_timeout);
            }
        }
        let reading = if readiness.is_readable() || write_error.is_some() {
            self.read(context, token, readiness)
        } else {
            Reading::Waiting
        };
        let reading = match (reading, write_error) {
            (Reading::Waiting, Some(error)) => Reading::Failed(UpstreamError::Broken(error.kind())),
            (reading, _) => reading,
        };
        match reading {
            Reading::Waiting => {}
            Reading::Unfinished => context.again(token, readiness),
            Reading::Complete { answer, reusable } => {
                let reusable = reusable && !readiness.is_read_closed();
                self.complete(context, token, answer, reusable, sink);
                self.dispatch(context, sink);
            }
            Reading::Failed(error) => {
                self.fail_or_retry(context, token, error, sink);
                self.dispatch(context, sink);
            }
        }
    }

    fn read(&mut self, context: &mut Context, token: Token, readiness: Readiness) -> Reading {
        let Some(connection) = self.connections.get_mut(token) else {
            return Reading::Waiting;
        };
        let Work::Exchanging(_, reader) = &mut connection.work else {
            return Reading::Waiting;
        };
        let had_head = reader.has_head();
        let mut input = context.take_input();
        let mut reading = Reading::Unfinished;
        for _ in 0..READS_PER_TURN {
            let (length, is_all) = match connection.stream.read(&mut input) {
                Ok(ReadOutcome::More(length)) => (length, false),
                // Where the end of the stream has been told, it is behind these bytes.
                Ok(ReadOutcome::Drained(length)) => (length, !readiness.is_read_closed()),
                Ok(ReadOutcome::WouldBlock) => {
                    reading = Reading::Waiting;
                    break;
                }
                Ok(ReadOutcome::Closed) => {
                    reading = Reading::of(reader.end());
                    break;
                }
                Err(error) => {
                    reading = Reading::Failed(UpstreamError::Broken(error.kind()));
                    break;
                }
            };
            match Reading::of(reader.feed(&input[..length], &self.options)) {
                Reading::Waiting if !is_all => {}
                other => {
                    reading = other;
                    break;
                }
            }
        }
        context.return_input(input);
        if !had_head && reader.has_head() {
            self.arm(context, token, self.options.total_timeout);
        }
        reading
    }

    fn complete(
        &mut self,
        context: &mut Context,
        token: Token,
        answer: Answer,
        reusable: bool,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let work = std::mem::replace(&mut connection.work, Work::Idle);
        connection.is_reused = true;
        // A request that is answered before it is all sent leaves its rest in the way.
        let is_clean = connection.stream.queued_bytes() == 0;
        let is_wanted = self.idle.len() < self.options.idle_max || !self.queue.is_empty();
        if reusable && is_clean && is_wanted {
            self.idle.push(token);
            connection.armed = None;
            context.arm(token, self.options.idle_timeout);
        } else {
            self.close(context, token);
        }
        if let Work::Exchanging(exchange, _) = work {
            let (tag, answer) = (exchange.request.tag, Arc::new(answer));
            sink(context, UpstreamEvent::Answer { tag, answer });
        }
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
        let is_lost = matches!(error, UpstreamError::Closed | UpstreamError::Broken(_));
        if !is_lost || !connection.may_retry() {
            return self.fail(context, token, error, sink);
        }
        let Some(exchange) = self
            .close(context, token)
            .and_then(Connection::into_exchange)
        else {
            return;
        };
        let tag = exchange.request.tag;
        let exchange = Exchange {
            retried: true,
            ..exchange
        };
        // A new connection: the others may have been closed along with this one.
        if let Err(error) = self.dial(context, exchange) {
            sink(context, UpstreamEvent::failed(tag, error));
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
        if let Some(tag) = connection.exchange().map(|exchange| exchange.request.tag) {
            let unanswered = connection.into_unanswered(&error);
            let event = UpstreamEvent::Failed {
                tag,
                error,
                unanswered,
            };
            sink(context, event);
        }
    }

    pub(super) fn close(&mut self, context: &mut Context, token: Token) -> Option<Connection> {
        let mut connection = self.connections.remove(token)?;
        context.disarm(token);
        // The socket is closed next, which takes it out of the poller in any case.
        let _ = context.deregister(&mut connection.stream);
        Some(connection)
    }

    /// Gives the stage that begins now its deadline, within that of the whole exchange.
    fn arm(&mut self, context: &mut Context, token: Token, timeout: Duration) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let Some(exchange) = connection.exchange() else {
            return;
        };
        let now = context.now();
        let deadline = exchange.deadline.min(now + timeout);
        if connection.armed != Some(deadline) {
            connection.armed = Some(deadline);
            context.arm(token, deadline.saturating_duration_since(now));
        }
    }
}

impl Reading {
    fn of(progress: Result<Progress, UpstreamError>) -> Self {
        match progress {
            Ok(Progress::Partial) => Self::Waiting,
            Ok(Progress::Complete { answer, reusable }) => Self::Complete { answer, reusable },
            Err(error) => Self::Failed(error),
        }
    }
}

/// Reads of one connection in one turn; a long answer lets the others have theirs.
const READS_PER_TURN: usize = 8;
