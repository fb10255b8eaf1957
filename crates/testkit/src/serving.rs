//! An HTTP server alone on a loop.

use crate::loopback_listener;
use dwell_engine::{App, Http, Kinds, Limits};
use dwell_evloop::{Context, Driver, EventLoop, Listener, Readiness, Token};
use std::net::SocketAddr;

/// The clients' server with its app, and nothing else; a message stops the loop.
#[derive(Debug)]
pub struct Serving<A> {
    /// The component.
    pub http: Http,
    /// The app that it serves.
    pub app: A,
    /// Calls of the loop for a connection or a listener.
    pub visits: usize,
}

impl<A: App> Serving<A> {
    /// The kinds of its tokens.
    pub const KINDS: Kinds = Kinds {
        listener: 1,
        connection: 2,
    };

    /// A server that does not listen yet.
    #[must_use]
    pub fn new(limits: Limits, app: A) -> Self {
        Self {
            http: Http::new(Self::KINDS, limits),
            app,
            visits: 0,
        }
    }

    /// A loop, and a server that listens there on a loopback port of its own.
    ///
    /// # Panics
    /// If the system has no loop or no port to give.
    #[must_use]
    pub fn start(limits: Limits, app: A) -> (EventLoop<()>, Self, SocketAddr) {
        let mut event_loop = EventLoop::new().expect("a loop");
        let mut server = Self::new(limits, app);
        let (listener, address) = loopback_listener();
        server.listen(&mut event_loop, listener);
        (event_loop, server, address)
    }

    /// Listens.
    ///
    /// # Panics
    /// If the loop cannot watch the listener.
    pub fn listen(&mut self, event_loop: &mut EventLoop<()>, listener: Listener) {
        let listening = self.http.listen(event_loop.context(), listener);
        listening.expect("the loop watches a listener");
    }
}

impl<A: App> Driver for Serving<A> {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.visits += 1;
        self.http.ready(context, token, readiness, &mut self.app);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        self.visits += 1;
        self.http.expired(context, token, &mut self.app);
    }

    fn message(&mut self, context: &mut Context, (): ()) {
        context.stop();
    }
}
