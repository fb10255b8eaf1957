//! The driver: which component gets an event, and how orders are carried out.

use super::batch::EventKind;
use super::command::{
    Command, CommandError, Commands, FieldLines, Operation, upgrade_flags, write_flags,
};
use super::state::{Held, State};
use super::{Options, kind};
use crate::Detached;
use crate::app::ExchangeId;
use crate::components::{Components, Protocol};
use crate::reply::{Body, Reply, Response, WriteError};
use crate::streams::StreamRef;
use crate::websocket::{
    CloseCode, MessageKind, OriginPolicy, UpgradeOptions, WebSocketRef, WebSocketSendError, upgrade,
};
use dwell_evloop::{Context, Driver, INPUT_BYTES, Readiness, Stream, Token};
use dwell_proto::http1::{FieldStorage, parse_request};
use dwell_proto::http2::ErrorCode;

/// Everything but the loop.
#[derive(Debug)]
pub(super) struct Hub {
    pub(super) components: Components,
    pub(super) state: State,
}

impl Driver for Hub {
    type Message = Vec<u8>;

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.components
            .ready(context, token, readiness, &mut self.state);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        self.components.expired(context, token, &mut self.state);
    }

    fn message(&mut self, context: &mut Context, commands: Vec<u8>) {
        // Written by `Commands`, or by a host that has to know: what cannot be read is dropped.
        let _ = self.submit(context, &commands);
    }
}

impl Hub {
    pub(super) fn new(options: &Options) -> Self {
        let (http, streams, websockets) = (options.http, options.streams, options.websockets);
        let mut components = Components::new(http, streams, websockets, INPUT_BYTES);
        components.http = components.http.keep_peers();
        if options.h2c {
            components.http = components.http.speak_h2c(kind::HTTP2_STREAM);
        }
        #[cfg(feature = "tls")]
        if options.http2 {
            components.http = components.http.speak_http2(kind::HTTP2_STREAM);
        }
        if options.websocket_streams {
            components.http = components.http.take_connect();
        }
        components.http.waits.bounds_held = !options.host_deadlines;
        components.http.waits.first_request_timeout = options.first_request_timeout;
        Self {
            components,
            state: State::new(options),
        }
    }

    pub(super) fn adopt(&mut self, context: &mut Context, stream: Stream) -> Option<u64> {
        self.state.opened = None;
        // The engine bounds a handshake, and the wait behind it.
        let is_plain = !stream.is_secure();
        self.components.http.adopt(context, stream, &mut self.state);
        let timeout = self
            .state
            .options
            .first_request_timeout
            .filter(|_| is_plain);
        if let (Some(token), Some(timeout), false) =
            (self.state.opened, timeout, self.components.http.draining)
        {
            context.arm(token, timeout);
        }
        self.state.opened.map(Token::to_bits)
    }

    pub(super) fn submit(
        &mut self,
        context: &mut Context,
        commands: &[u8],
    ) -> Result<usize, CommandError> {
        let mut stale = 0;
        for command in Commands::iter(commands) {
            let command = command?;
            match self.execute(context, &command) {
                Ok(()) => {}
                Err(CommandError::Stale) => stale += 1,
                Err(_) => self.end(context, &command),
            }
        }
        Ok(stale)
    }

    /// An order was refused of which the host hears nothing: the connection ends.
    fn end(&mut self, context: &mut Context, command: &Command<'_>) {
        if command.operation == Operation::Ping {
            return;
        }
        self.state.works.ordered(command);
        let token = Token::from_bits(command.handle);
        let is_exchange = token.kind() == kind::EXCHANGE;
        if self.abort(context, token).is_ok() && is_exchange {
            self.state.push(EventKind::Gone, token, 0, &[]);
        }
    }

    /// Reads the connections again that had to wait for this turn.
    pub(super) fn resume_held_back(&mut self, context: &mut Context) {
        for token in std::mem::take(&mut self.state.held_back) {
            // A closed connection needs no reading.
            let _ = self.set_paused(context, token, false);
        }
    }

    pub(super) fn execute(
        &mut self,
        context: &mut Context,
        command: &Command<'_>,
    ) -> Result<(), CommandError> {
        let result = self.carry_out(context, command);
        if matches!(result, Ok(()) | Err(CommandError::Stale)) {
            self.state.works.ordered(command);
        }
        if result == Err(CommandError::Stale) {
            self.state.statistics.stale += 1;
        }
        result
    }

    fn carry_out(
        &mut self,
        context: &mut Context,
        command: &Command<'_>,
    ) -> Result<(), CommandError> {
        let Command { handle, bytes, .. } = *command;
        let token = Token::from_bits(handle);
        match command.operation {
            Operation::Write => self.write_bytes(context, command),
            Operation::Answer => self.answer(context, command, Body::Slice(bytes)),
            Operation::Begin => {
                let length = Some(command.argument).filter(|length| *length != u64::MAX);
                let begun = self.answer(context, command, Body::Stream(length));
                if begun.is_ok() && !self.is_alive(context, token) {
                    // A whole answer has come of it, and what follows is not wanted.
                    self.state.push(EventKind::Gone, token, 0, &[]);
                }
                begun
            }
            Operation::Informational => self.reply(context, handle, |reply| {
                reply.informational(command.status, &command.fields.to_vec());
            }),
            Operation::Grant => self.reply(context, handle, |reply| reply.grant(command.argument)),
            Operation::Abort => self.abort(context, token),
            Operation::Close => self.close(context, token, command.status, command.text()),
            Operation::Detach => self.detach(context, token),
            Operation::Upgrade => self.upgrade(context, command),
            Operation::Send => self.send(context, command),
            Operation::Ping => self
                .socket(context, handle, |socket| socket.ping(bytes))
                .and_then(|sent| sent.map_err(refused_message)),
            Operation::Pause => {
                self.state.held_back.retain(|held_back| *held_back != token);
                self.set_paused(context, token, true)
            }
            Operation::Resume => self.set_paused(context, token, false),
            Operation::Done => still_here(self.state.works.end(token)),
        }
    }

    /// Returns the connection that a name belongs to, or that the request of that name came on.
    pub(super) fn connection_of(&self, token: Token) -> Option<Token> {
        match token.kind() {
            kind::CONNECTION => Some(token),
            _ => Some(self.held(token).ok()?.connection),
        }
    }

    pub(super) fn is_alive(&mut self, context: &mut Context, token: Token) -> bool {
        match token.kind() {
            kind::EXCHANGE => self.state.held.get(token).is_some(),
            kind::CONNECTION => self.components.http.contains(token),
            kind::WEBSOCKET => self.components.websockets.contains(token),
            kind::STREAM => {
                let found = self.components.streams.with_stream(context, token, |_| ());
                found.is_some()
            }
            _ => false,
        }
    }

    fn held(&self, token: Token) -> Result<Held, CommandError> {
        // A table looks at places and generations alone; hosts give whatever names they have.
        let is_exchange = token.kind() == kind::EXCHANGE;
        let entry = self.state.held.get(token).filter(|_| is_exchange);
        entry.copied().ok_or(CommandError::Stale)
    }

    fn exchange(&self, token: Token) -> Result<ExchangeId, CommandError> {
        self.held(token).map(|entry| entry.exchange)
    }

    /// The exchange of a name if it is one on a stream, which has no connection of its own.
    fn on_stream(&self, token: Token) -> Option<ExchangeId> {
        let exchange = self.exchange(token).ok()?;
        let http = &self.components.http;
        http.is_stream(exchange.connection()).then_some(exchange)
    }

    pub(super) fn with_reply<T>(
        &mut self,
        context: &mut Context,
        token: Token,
        make: impl FnOnce(&mut Reply<'_>) -> T,
    ) -> Option<T> {
        let Held {
            exchange,
            connection,
            ..
        } = self.held(token).ok()?;
        let result = self.components.http.with_reply(context, exchange, make);
        if !self.components.http.is_held(exchange) {
            self.state.held.remove(token);
            if !self.components.http.contains(connection) {
                self.state.connection_closed(connection);
            }
        }
        result
    }

    fn reply<T>(
        &mut self,
        context: &mut Context,
        handle: u64,
        make: impl FnOnce(&mut Reply<'_>) -> T,
    ) -> Result<T, CommandError> {
        self.with_reply(context, Token::from_bits(handle), make)
            .ok_or(CommandError::Stale)
    }

    fn answer(
        &mut self,
        context: &mut Context,
        command: &Command<'_>,
        body: Body<'_>,
    ) -> Result<(), CommandError> {
        if !matches!(command.status, 200..=599) {
            return Err(CommandError::Misplaced);
        }
        let fields = command.fields.to_vec();
        self.reply(context, command.handle, |reply| {
            if reply.is_sent() {
                return Err(CommandError::Misplaced);
            }
            if command.flags & write_flags::CLOSE != 0 {
                reply.close_after();
            }
            reply.send(&Response {
                status: command.status,
                fields: &fields,
                body,
            });
            Ok(())
        })?
    }

    fn write_bytes(
        &mut self,
        context: &mut Context,
        command: &Command<'_>,
    ) -> Result<(), CommandError> {
        let Command { flags, bytes, .. } = *command;
        let token = Token::from_bits(command.handle);
        if token.kind() != kind::STREAM {
            let trailers = command.fields;
            return self.write(context, token, flags, trailers, |reply| reply.write(bytes));
        }
        let is_written = self.stream(context, token, |stream| {
            if !stream.write(bytes) {
                return None;
            }
            if flags & write_flags::FINISH != 0 {
                stream.close();
            }
            Some(stream.queued_bytes() > 0)
        })?;
        let is_blocked = is_written.ok_or(CommandError::Full)?;
        if flags & write_flags::NOTIFY != 0 {
            self.state.mark(token, command.argument as u32, is_blocked);
        }
        Ok(())
    }

    fn send(&mut self, context: &mut Context, command: &Command<'_>) -> Result<(), CommandError> {
        let (handle, mark) = (command.handle, command.argument as u32);
        let kind = match command.flags & 1 {
            0 => MessageKind::Binary,
            _ => MessageKind::Text,
        };
        let send = |socket: &mut WebSocketRef<'_>| socket.send(kind, command.bytes);
        self.socket(context, handle, send)?
            .map_err(refused_message)?;
        if mark != 0 {
            // Only now has what was gathered been offered to the socket.
            let is_blocked = self.socket(context, handle, |socket| socket.queued_bytes() > 0)?;
            self.state.mark(Token::from_bits(handle), mark, is_blocked);
        }
        Ok(())
    }

    /// Writes a piece of a response, and its end if the flags include it.
    pub(super) fn write(
        &mut self,
        context: &mut Context,
        token: Token,
        flags: u32,
        trailers: FieldLines<'_>,
        write: impl FnOnce(&mut Reply<'_>) -> Result<(), WriteError>,
    ) -> Result<(), CommandError> {
        let is_last = flags & write_flags::FINISH != 0;
        let trailers = trailers.to_vec();
        self.with_reply(context, token, |reply| {
            if reply.is_framed() && !reply.is_open() {
                // Bytes as they are would be none of HTTP/2.
                return Err(CommandError::Misplaced);
            }
            if !reply.is_open() {
                reply.verbatim();
            }
            write(reply).map_err(refused_piece)?;
            if flags & write_flags::CLOSE != 0 {
                reply.close_after();
            }
            if is_last {
                reply.finish(&trailers).map_err(refused_piece)?;
            } else if flags & write_flags::NOTIFY != 0 {
                reply.await_drained();
            }
            Ok(())
        })
        .ok_or(CommandError::Stale)??;
        if flags & write_flags::NOTIFY != 0 && !is_last {
            self.notify(token);
        }
        Ok(())
    }

    /// Reports that all is out, now or when it is.
    fn notify(&mut self, token: Token) {
        let Some(entry) = self.state.held.get_mut(token) else {
            return;
        };
        entry.notifies = !self.components.http.is_flushed(entry.exchange);
        if !entry.notifies {
            self.state.push(EventKind::Writable, token, 0, &[]);
        }
    }

    fn abort(&mut self, context: &mut Context, token: Token) -> Result<(), CommandError> {
        if matches!(token.kind(), kind::STREAM | kind::WEBSOCKET) {
            return still_here(self.components.abort(context, token));
        }
        if let Some(exchange) = self.on_stream(token) {
            return self.reset(context, token, exchange);
        }
        if self.components.http.is_http2(token) {
            let Self { components, state } = self;
            return still_here(components.http.cut(context, token, state));
        }
        let connection = self.forget_exchange(token)?;
        if self.components.http.abort_connection(context, connection) {
            self.state.connection_closed(connection);
        }
        Ok(())
    }

    fn close(
        &mut self,
        context: &mut Context,
        token: Token,
        code: u16,
        reason: &str,
    ) -> Result<(), CommandError> {
        if matches!(token.kind(), kind::STREAM | kind::WEBSOCKET) {
            let code = CloseCode::new(code);
            return still_here(self.components.close(context, token, code, reason));
        }
        if let Some(exchange) = self.on_stream(token) {
            return self.reset(context, token, exchange);
        }
        if self.components.http.is_http2(token) {
            let Self { components, state } = self;
            components.http.end_http2(context, token, state);
            return Ok(());
        }
        let connection = self.forget_exchange(token)?;
        if !self.components.http.close_connection(context, connection) {
            self.state.connection_closed(connection);
        }
        Ok(())
    }

    /// Ends a stream of HTTP/2 whose answer is not complete; its connection goes on.
    fn reset(
        &mut self,
        context: &mut Context,
        token: Token,
        exchange: ExchangeId,
    ) -> Result<(), CommandError> {
        self.state.held.remove(token);
        still_here(self.components.http.abort(context, exchange))
    }

    /// Returns the connection of a name, and drops the response that is owed on it. For the name of
    /// a connection itself the host gets an event, as it may not have named the request.
    fn forget_exchange(&mut self, token: Token) -> Result<Token, CommandError> {
        if token.kind() != kind::CONNECTION {
            let exchange = self.exchange(token)?;
            self.state.held.remove(token);
            return Ok(exchange.connection());
        }
        if !self.components.http.contains(token) {
            return Err(CommandError::Stale);
        }
        if let Some(tag) = self.components.http.tag_on(token) {
            self.state.gone(Token::from_bits(tag));
        }
        Ok(token)
    }

    fn detach(&mut self, context: &mut Context, token: Token) -> Result<(), CommandError> {
        let exchange = self.exchange(token)?;
        if self.on_stream(token).is_some() {
            self.state.held.remove(token);
            let (http, code) = (&mut self.components.http, ErrorCode::HTTP_1_1_REQUIRED);
            http.abort_stream(context, exchange, code);
            self.state.push(EventKind::Gone, token, 0, &[]);
            return Ok(());
        }
        if !self.components.http.is_flushed(exchange) {
            // Once it is open, the engine tells when all is out.
            self.reply(context, token.to_bits(), |reply| {
                reply.verbatim();
            })?;
            if let Some(entry) = self.state.held.get_mut(token) {
                entry.leaves = true;
            }
            return Ok(());
        }
        let detached = self.leave(context, token, exchange)?;
        self.state
            .push(EventKind::Detached, token, 0, &detached.input);
        self.state.departed.push((token.to_bits(), detached));
        Ok(())
    }

    /// Takes the connection of an exchange, or its stream, out of HTTP.
    fn leave(
        &mut self,
        context: &mut Context,
        token: Token,
        exchange: ExchangeId,
    ) -> Result<Detached, CommandError> {
        self.state.held.remove(token);
        let detached = self.components.http.detach(context, exchange);
        let detached = detached.ok_or(CommandError::Stale)?;
        if !self.components.http.is_stream(exchange.connection()) {
            self.state.connection_closed(exchange.connection());
        }
        Ok(detached)
    }

    fn upgrade(
        &mut self,
        context: &mut Context,
        command: &Command<'_>,
    ) -> Result<(), CommandError> {
        let (flags, token) = (command.flags, Token::from_bits(command.handle));
        let exchange = self.exchange(token)?;
        if self.reply(context, token.to_bits(), |reply| reply.is_sent())? {
            return Err(CommandError::Misplaced);
        }
        let mut storage = FieldStorage::new();
        let limits = &self.state.options.http.head;
        let head = parse_request(command.bytes, &mut storage, limits);
        let head = head.map_err(|_| CommandError::Malformed)?;
        let mut options = UpgradeOptions::default();
        if flags & upgrade_flags::ANY_ORIGIN != 0 {
            options.origin = OriginPolicy::Any;
        }
        if flags & upgrade_flags::PLAIN != 0 {
            options.deflate = None;
        }
        let agreed = match upgrade(&head, &options) {
            Ok(agreed) => agreed,
            Err(rejection) => {
                self.reply(context, token.to_bits(), |reply| rejection.send(reply))?;
                let status = u32::from(rejection.status());
                self.state
                    .push(EventKind::UpgradeRefused, token, status, &[]);
                return Ok(());
            }
        };
        let answer = agreed.head(command.fields.iter());
        let protocol = Protocol::WebSocket(agreed.negotiated());
        let mut detached = self.leave(context, token, exchange)?;
        let adopted = detached.stream.write(&answer).and_then(|()| {
            self.components
                .adopt(context, detached, protocol, token.to_bits())
        });
        match adopted {
            Ok(socket) => self.state.batch.push_renamed(
                EventKind::WebSocketOpened,
                socket.to_bits(),
                token.to_bits(),
            ),
            Err(_) => self.state.push(EventKind::Gone, token, 0, &[]),
        }
        Ok(())
    }

    fn set_paused(
        &mut self,
        context: &mut Context,
        token: Token,
        paused: bool,
    ) -> Result<(), CommandError> {
        if token.kind() == kind::STREAM {
            return self.stream(context, token, |stream| {
                if paused {
                    stream.pause();
                } else {
                    stream.resume();
                }
            });
        }
        self.socket(context, token.to_bits(), |socket| {
            if paused {
                socket.pause();
            } else {
                socket.resume();
            }
        })
    }

    fn socket<T>(
        &mut self,
        context: &mut Context,
        handle: u64,
        act: impl FnOnce(&mut WebSocketRef<'_>) -> T,
    ) -> Result<T, CommandError> {
        let token = Token::from_bits(handle);
        if token.kind() != kind::WEBSOCKET {
            return Err(CommandError::Stale);
        }
        self.components
            .websockets
            .with_socket(context, token, act)
            .ok_or(CommandError::Stale)
    }

    fn stream<T>(
        &mut self,
        context: &mut Context,
        token: Token,
        act: impl FnOnce(&mut StreamRef<'_>) -> T,
    ) -> Result<T, CommandError> {
        self.components
            .streams
            .with_stream(context, token, act)
            .ok_or(CommandError::Stale)
    }
}

fn still_here(is_here: bool) -> Result<(), CommandError> {
    is_here.then_some(()).ok_or(CommandError::Stale)
}

fn refused_piece(error: WriteError) -> CommandError {
    match error {
        WriteError::Full { .. } => CommandError::Full,
        WriteError::NotOpen | WriteError::TooLong { .. } => CommandError::Misplaced,
    }
}

fn refused_message(error: WebSocketSendError) -> CommandError {
    match error {
        WebSocketSendError::Full { .. } => CommandError::Full,
        WebSocketSendError::Closed => CommandError::Stale,
    }
}
