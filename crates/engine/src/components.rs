//! The components of a loop, and the one switchboard between them.

use crate::Detached;
use crate::app::App;
use crate::http::{Http, Kinds};
use crate::limits::Limits;
use crate::streams::{StreamApp, StreamLimits, Streams};
use crate::websocket::{
    Broadcast, CloseCode, Negotiated, WebSocketApp, WebSocketOptions, WebSocketRef, WebSockets,
};
use bytes::Bytes;
use dwell_evloop::{Context, Readiness, Token};
use std::io;
use std::sync::Arc;

/// The kinds of the tokens of components.
pub(crate) mod kind {
    pub(crate) const LISTENER: u8 = 1;
    pub(crate) const CONNECTION: u8 = 2;
    pub(crate) const STREAM_LISTENER: u8 = 3;
    pub(crate) const STREAM: u8 = 4;
    pub(crate) const WEBSOCKET: u8 = 5;
    pub(crate) const HTTP2_STREAM: u8 = 6;
    /// The first kind that is left to the driver.
    pub(crate) const FREE: u8 = 7;
}

/// Everything that has sockets on a loop.
#[derive(Debug)]
pub(crate) struct Components {
    pub(crate) http: Http,
    pub(crate) streams: Streams,
    pub(crate) websockets: WebSockets,
}

/// The apps of the components.
pub(crate) trait Apps {
    type Http: App;
    type Streams: StreamApp;
    type WebSockets: WebSocketApp;

    fn http(&mut self) -> &mut Self::Http;
    fn streams(&mut self) -> &mut Self::Streams;
    fn websockets(&mut self) -> &mut Self::WebSockets;
}

/// One app for all of them.
impl<A: App + StreamApp + WebSocketApp> Apps for A {
    type Http = A;
    type Streams = A;
    type WebSockets = A;

    fn http(&mut self) -> &mut A {
        self
    }

    fn streams(&mut self) -> &mut A {
        self
    }

    fn websockets(&mut self) -> &mut A {
        self
    }
}

/// Protocols for a connection that has left HTTP.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Protocol {
    Raw,
    WebSocket(Negotiated),
}

/// An order for a connection that has left HTTP, given on any thread.
///
/// Shape: one for a connection that is gone, or that speaks another protocol, does nothing.
#[derive(Debug)]
pub(crate) enum Order {
    /// Bytes for a stream; one without room for them is cut off.
    Write(Bytes),
    /// A message for a WebSocket; its options have what becomes of one without room.
    Send(Arc<Broadcast>),
    /// Ends it in order: a WebSocket with this code and reason, where a code is given.
    Close(Option<CloseCode>, String),
    Abort,
}

impl Components {
    /// Makes components without sockets, for a loop whose input buffer has `input_bytes`.
    pub(crate) fn new(
        http: Limits,
        streams: StreamLimits,
        websockets: WebSocketOptions,
        input_bytes: usize,
    ) -> Self {
        let kinds = Kinds {
            listener: kind::LISTENER,
            connection: kind::CONNECTION,
        };
        Self {
            http: Http::with_input_bytes(kinds, http, input_bytes),
            streams: Streams::new(kind::STREAM_LISTENER, kind::STREAM, streams),
            websockets: WebSockets::new(kind::WEBSOCKET, websockets),
        }
    }

    /// Sockets that are open, listeners apart.
    pub(crate) fn connections(&self) -> usize {
        self.http.connections() + self.upgraded()
    }

    /// Connections that speak no HTTP.
    pub(crate) fn upgraded(&self) -> usize {
        self.streams.connections() + self.websockets.connections()
    }

    /// A socket is ready. Returns false for a token of the driver's own.
    pub(crate) fn ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        apps: &mut impl Apps,
    ) -> bool {
        match token.kind() {
            kind::LISTENER | kind::CONNECTION | kind::HTTP2_STREAM => {
                self.http.ready(context, token, readiness, apps.http());
            }
            kind::STREAM_LISTENER | kind::STREAM => {
                self.streams
                    .ready(context, token, readiness, apps.streams());
            }
            kind::WEBSOCKET => {
                self.websockets
                    .ready(context, token, readiness, apps.websockets());
            }
            _ => return false,
        }
        true
    }

    /// A deadline has passed. Returns false for a token of the driver's own.
    pub(crate) fn expired(
        &mut self,
        context: &mut Context,
        token: Token,
        apps: &mut impl Apps,
    ) -> bool {
        match token.kind() {
            kind::LISTENER | kind::CONNECTION | kind::HTTP2_STREAM => {
                self.http.expired(context, token, apps.http());
            }
            kind::STREAM_LISTENER | kind::STREAM => {
                self.streams.expired(context, token, apps.streams());
            }
            kind::WEBSOCKET => self.websockets.expired(context, token, apps.websockets()),
            _ => return false,
        }
        true
    }

    /// Stops listening and lets connections come to their end: with their next response, or with
    /// a close frame of 1001. Streams are the driver's to close.
    pub(crate) fn drain(&mut self, context: &mut Context, apps: &mut impl Apps) {
        self.http.drain(context, apps.http());
        self.websockets.drain(context, CloseCode::GOING_AWAY, "");
    }

    /// Closes everything that is left.
    pub(crate) fn close_all(&mut self, context: &mut Context, apps: &mut impl Apps) {
        self.http.close_all(context, apps.http());
        self.streams.close_all(context, apps.streams());
        self.websockets.close_all(context, apps.websockets());
    }

    /// Gives a connection that has left HTTP to the component that has it now.
    ///
    /// # Errors
    /// When the loop cannot register it, or there are too many; it is closed then.
    pub(crate) fn adopt(
        &mut self,
        context: &mut Context,
        detached: Detached,
        protocol: Protocol,
        tag: u64,
    ) -> io::Result<Token> {
        match protocol {
            Protocol::Raw => self
                .streams
                .adopt(context, detached.stream, detached.input, tag),
            Protocol::WebSocket(negotiated) => {
                self.websockets.adopt(context, detached, negotiated, tag)
            }
        }
    }

    /// Carries out an order for a connection that has left HTTP.
    pub(crate) fn carry_out(&mut self, context: &mut Context, token: Token, order: Order) {
        match (token.kind(), order) {
            (kind::STREAM, Order::Write(bytes)) => {
                self.streams.with_stream(context, token, |stream| {
                    if !stream.write_shared(bytes) {
                        stream.abort();
                    }
                });
            }
            (kind::WEBSOCKET, Order::Send(message)) => {
                let _ = self.websockets.send_shared(context, token, &message);
            }
            (_, Order::Close(code, reason)) => {
                self.close(context, token, code, &reason);
            }
            (_, Order::Abort) => {
                self.abort(context, token);
            }
            (_, Order::Write(_) | Order::Send(_)) => {}
        }
    }

    /// Closes a connection that has left HTTP in order. Returns false if it is gone.
    pub(crate) fn close(
        &mut self,
        context: &mut Context,
        token: Token,
        code: Option<CloseCode>,
        reason: &str,
    ) -> bool {
        let closed = match token.kind() {
            kind::STREAM => self.streams.with_stream(context, token, |stream| {
                stream.close();
            }),
            kind::WEBSOCKET => {
                let close = |socket: &mut WebSocketRef<'_>| match code {
                    Some(code) => socket.close(code, reason),
                    None => socket.close_without_code(),
                };
                self.websockets.with_socket(context, token, close)
            }
            _ => None,
        };
        closed.is_some()
    }

    /// Cuts a connection off that has left HTTP. Returns false if it is gone.
    pub(crate) fn abort(&mut self, context: &mut Context, token: Token) -> bool {
        let aborted = match token.kind() {
            kind::STREAM => self.streams.with_stream(context, token, |stream| {
                stream.abort();
            }),
            kind::WEBSOCKET => self.websockets.with_socket(context, token, |socket| {
                socket.abort();
            }),
            _ => None,
        };
        aborted.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::websocket::{MessageKind, Role};
    use dwell_evloop::{EventLoop, INPUT_BYTES, Stream};
    use mio::net::UnixStream;

    fn components() -> (EventLoop<()>, Components) {
        let (http, streams) = (Limits::default(), StreamLimits::default());
        let websockets = WebSocketOptions::default();
        let components = Components::new(http, streams, websockets, INPUT_BYTES);
        (EventLoop::new().unwrap(), components)
    }

    /// A connection behind its 101, and the socket of its peer.
    fn upgraded(
        components: &mut Components,
        context: &mut Context,
        protocol: Protocol,
    ) -> (Token, UnixStream) {
        let (own, peer) = UnixStream::pair().unwrap();
        let detached = Detached {
            stream: Stream::from_unix(own),
            input: Vec::new(),
        };
        let token = components.adopt(context, detached, protocol, 0);
        (token.unwrap(), peer)
    }

    fn every_order() -> [Order; 4] {
        [
            Order::Write(Bytes::from_static(b"bytes")),
            Order::Send(Arc::new(Broadcast::new(MessageKind::Text, b"message"))),
            Order::Close(Some(CloseCode::NORMAL), "over".into()),
            Order::Abort,
        ]
    }

    #[test]
    fn orders_for_a_connection_that_is_gone_leave_its_successor_alone() {
        let (mut event_loop, mut components) = components();
        let context = event_loop.context();
        let (gone, _) = upgraded(&mut components, context, Protocol::Raw);
        components.streams.detach(context, gone).unwrap();
        let (here, mut peer) = upgraded(&mut components, context, Protocol::Raw);
        assert_eq!(here.index(), gone.index(), "the place is used again");
        for order in every_order() {
            components.carry_out(context, gone, order);
        }
        assert!(!components.abort(context, gone));
        assert!(!components.close(context, gone, None, ""));
        let order = Order::Write(Bytes::from_static(b"first"));
        components.carry_out(context, here, order);
        let mut input = [0; 64];
        let read = io::Read::read(&mut peer, &mut input).unwrap();
        assert_eq!(&input[..read], b"first");
    }

    #[test]
    fn orders_of_another_protocol_do_nothing() {
        let (mut event_loop, mut components) = components();
        let context = event_loop.context();
        let (stream, _peer) = upgraded(&mut components, context, Protocol::Raw);
        let negotiated = Protocol::WebSocket(Negotiated::new(Role::Server, None));
        let (socket, mut client) = upgraded(&mut components, context, negotiated);
        assert_eq!(stream.index(), socket.index(), "they differ in their kind");
        let [write, send, ..] = every_order();
        components.carry_out(context, socket, write);
        components.carry_out(context, stream, send);
        let queued = |stream: &mut crate::StreamRef<'_>| stream.queued_bytes();
        let streams = &mut components.streams;
        assert_eq!(streams.with_stream(context, stream, queued), Some(0));
        let mut input = [0; 64];
        let read = io::Read::read(&mut client, &mut input);
        assert_eq!(read.unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn orders_after_the_end_do_nothing() {
        let (mut event_loop, mut components) = components();
        let context = event_loop.context();
        for protocol in [
            Protocol::Raw,
            Protocol::WebSocket(Negotiated::new(Role::Server, None)),
        ] {
            let (token, mut peer) = upgraded(&mut components, context, protocol);
            components.carry_out(context, token, Order::Abort);
            for order in every_order() {
                components.carry_out(context, token, order);
            }
            let mut input = [0; 64];
            let read = io::Read::read(&mut peer, &mut input);
            assert!(!matches!(read, Ok(1..)), "{protocol:?}: {read:?}");
        }
    }
}
