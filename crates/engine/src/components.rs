//! The components of a loop, and the one switchboard between them.

use crate::Detached;
use crate::app::App;
use crate::http::{Http, Kinds};
use crate::limits::Limits;
use crate::streams::{StreamApp, StreamLimits, Streams};
use crate::websocket::{CloseCode, Negotiated, WebSocketApp, WebSocketOptions, WebSockets};
use dwell_evloop::{Context, Readiness, Token};
use std::io;

/// The kinds of the tokens of components.
pub(crate) mod kind {
    pub(crate) const LISTENER: u8 = 1;
    pub(crate) const CONNECTION: u8 = 2;
    pub(crate) const STREAM_LISTENER: u8 = 3;
    pub(crate) const STREAM: u8 = 4;
    pub(crate) const WEBSOCKET: u8 = 5;
    /// The first kind that is left to the driver.
    pub(crate) const FREE: u8 = 6;
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
            kind::LISTENER | kind::CONNECTION => {
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
            kind::LISTENER | kind::CONNECTION => self.http.expired(context, token, apps.http()),
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
}
