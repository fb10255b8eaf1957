//! The parts of a connection that a callback can reach.

use crate::reply::Reply;
use crate::streams::StreamRef;
use crate::websocket::WebSocketRef;
use dwell_evloop::Stream;

/// The part of its own connection that a callback can reach while the component is busy.
pub(in crate::manager) enum Access<'a> {
    /// Nothing, or everything, where the components are free.
    None,
    /// The socket, for queries.
    Socket(&'a Stream),
    /// The place of the answer.
    Reply(&'a mut dyn ReplyAccess),
    /// The raw stream.
    Stream(&'a mut dyn StreamAccess),
    /// The WebSocket.
    WebSocket(&'a mut dyn WebSocketAccess),
}

impl Access<'_> {
    /// The same for a shorter time.
    pub(in crate::manager) fn reborrow(&mut self) -> Access<'_> {
        match self {
            Self::None => Access::None,
            Self::Socket(stream) => Access::Socket(stream),
            Self::Reply(access) => Access::Reply(&mut **access),
            Self::Stream(access) => Access::Stream(&mut **access),
            Self::WebSocket(access) => Access::WebSocket(&mut **access),
        }
    }
}

/// Hides the second lifetime of a [`Reply`].
pub(in crate::manager) trait ReplyAccess {
    fn with(&mut self, act: &mut dyn FnMut(&mut Reply<'_>));
}

impl ReplyAccess for Reply<'_> {
    fn with(&mut self, act: &mut dyn FnMut(&mut Reply<'_>)) {
        act(self);
    }
}

/// Hides the second lifetime of a [`StreamRef`].
pub(in crate::manager) trait StreamAccess {
    fn with(&mut self, act: &mut dyn FnMut(&mut StreamRef<'_>));
}

impl StreamAccess for StreamRef<'_> {
    fn with(&mut self, act: &mut dyn FnMut(&mut StreamRef<'_>)) {
        act(self);
    }
}

/// Hides the second lifetime of a [`WebSocketRef`].
pub(in crate::manager) trait WebSocketAccess {
    fn with(&mut self, act: &mut dyn FnMut(&mut WebSocketRef<'_>));
}

impl WebSocketAccess for WebSocketRef<'_> {
    fn with(&mut self, act: &mut dyn FnMut(&mut WebSocketRef<'_>)) {
        act(self);
    }
}
