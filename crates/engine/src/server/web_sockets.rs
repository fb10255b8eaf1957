//! Connections of a server that speak WebSocket.

use super::guard::guarded;
use super::kind;
use super::link::LoopLink;
use super::statistics::add;
use crate::handler::{Outlet, WebSocketHandler, WebSocketSender};
use crate::websocket::{Control, FramePart, Message, WebSocketApp, WebSocketEnd, WebSocketRef};
use dwell_evloop::{Context, Slab, Token};
use std::fmt;
use std::sync::Arc;

/// The handlers of the WebSocket connections of one loop; a connection's tag names its own.
pub(super) struct WebSocketRoutes {
    handlers: Slab<Box<dyn WebSocketHandler>>,
    link: Arc<LoopLink>,
}

impl WebSocketRoutes {
    pub(super) fn new(link: Arc<LoopLink>) -> Self {
        Self {
            handlers: Slab::new(kind::WEB_SOCKET_HANDLER, usize::MAX),
            link,
        }
    }

    /// Keeps a handler; returns the tag of its connection.
    pub(super) fn insert(&mut self, handler: Box<dyn WebSocketHandler>) -> Option<u64> {
        self.handlers.insert(handler).ok().map(Token::to_bits)
    }

    /// The connection has no place: its handler goes.
    pub(super) fn refuse(&mut self, tag: u64) {
        let handler = self.handlers.remove(Token::from_bits(tag));
        self.count(guarded(move || drop(handler)).is_err());
    }

    pub(super) fn opened(&mut self, socket: &mut WebSocketRef<'_>) {
        let sender = WebSocketSender(Outlet::new(Arc::clone(&self.link), socket.token()));
        self.call(socket, |handler, socket| handler.opened(socket, sender));
    }

    /// Calls the handler of a connection; one that panics loses it.
    fn call(
        &mut self,
        socket: &mut WebSocketRef<'_>,
        callback: impl FnOnce(&mut dyn WebSocketHandler, &mut WebSocketRef<'_>),
    ) {
        let Some(handler) = self.handlers.get_mut(Token::from_bits(socket.tag())) else {
            return;
        };
        if guarded(|| callback(&mut **handler, socket)).is_err() {
            self.count(true);
            socket.abort();
        }
    }

    fn count(&self, has_panicked: bool) {
        add(&self.link.figures.panics, u64::from(has_panicked));
    }
}

impl WebSocketApp for WebSocketRoutes {
    fn message(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, message: Message<'_>) {
        self.call(socket, |handler, socket| handler.message(socket, message));
    }

    fn frame(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, part: FramePart<'_>) {
        self.call(socket, |handler, socket| handler.frame(socket, part));
    }

    fn control(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, control: Control<'_>) {
        self.call(socket, |handler, socket| handler.control(socket, control));
    }

    fn drained(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>) {
        self.call(socket, |handler, socket| {
            handler.drained(socket);
        });
    }

    fn closed(&mut self, _: &mut Context, _: Token, tag: u64, end: WebSocketEnd<'_>) {
        if let Some(mut handler) = self.handlers.remove(Token::from_bits(tag)) {
            self.count(guarded(move || handler.closed(end)).is_err());
        }
    }
}

impl fmt::Debug for WebSocketRoutes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WebSocketRoutes").finish_non_exhaustive()
    }
}
