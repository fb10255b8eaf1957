//! WebSocket connections of a server.

use super::gone::Gone;
use super::outlet::{Outlet, SendError};
use crate::components::Order;
use crate::websocket::{
    Broadcast, CloseCode, Control, FramePart, Message, WebSocketEnd, WebSocketRef,
};
use std::sync::Arc;

/// A handler of one WebSocket connection, on its loop.
///
/// Shape: any `FnMut(&mut WebSocketRef, Message)` is one. It must not block; one that panics loses
/// its connection. A handler without state costs an idle connection no allocation.
///
/// ```
/// use dwell_engine::handler::Exchange;
/// use dwell_engine::websocket::{Message, UpgradeOptions, WebSocketRef};
/// use dwell_engine::{Request, Server};
///
/// # let running =
/// Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     .serve(|request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
///         let echo = |socket: &mut WebSocketRef<'_>, message: Message<'_>| {
///             // There is room for it: nothing is handed over before there is.
///             let _ = socket.send(message.kind, &message.payload);
///         };
///         exchange.web_socket(request, &UpgradeOptions::default(), echo);
///     })?;
/// # let url = format!("ws://{}/", running.addresses()[0]);
/// # let (mut client, _) = tungstenite::connect(url)?;
/// # client.send("hello".into())?;
/// # assert_eq!(client.read()?.into_text()?, "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait WebSocketHandler: Send + 'static {
    /// The connection was upgraded; `sender` sends on it from any thread.
    fn opened(&mut self, socket: &mut WebSocketRef<'_>, sender: WebSocketSender) {
        let _ = (socket, sender);
    }

    /// A whole message came.
    fn message(&mut self, socket: &mut WebSocketRef<'_>, message: Message<'_>);

    /// A data frame came, or a piece of one; with
    /// [`Delivery::Frames`](crate::websocket::Delivery::Frames) alone.
    fn frame(&mut self, socket: &mut WebSocketRef<'_>, part: FramePart<'_>) {
        let _ = (socket, part);
    }

    /// A control frame came and was handled as the standard requires.
    fn control(&mut self, socket: &mut WebSocketRef<'_>, control: Control<'_>) {
        let _ = (socket, control);
    }

    /// All that was queued is out, after a time in which something was.
    fn drained(&mut self, socket: &mut WebSocketRef<'_>) {
        let _ = socket;
    }

    /// The connection is gone.
    fn closed(&mut self, end: WebSocketEnd<'_>) {
        let _ = end;
    }
}

impl<F> WebSocketHandler for F
where
    F: FnMut(&mut WebSocketRef<'_>, Message<'_>) + Send + 'static,
{
    fn message(&mut self, socket: &mut WebSocketRef<'_>, message: Message<'_>) {
        self(socket, message);
    }
}

/// Makes a [`WebSocketHandler`] of a closure, whose arguments need no types then.
///
/// ```
/// use dwell_engine::Server;
/// use dwell_engine::handler::{handler_fn, web_socket_fn};
/// use dwell_engine::websocket::UpgradeOptions;
///
/// let running = Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     .serve(handler_fn(|request, exchange| {
///         let echo = web_socket_fn(|socket, message| {
///             // A client that takes nothing is closed by the options of the server.
///             let _ = socket.send(message.kind, &message.payload);
///         });
///         exchange.web_socket(request, &UpgradeOptions::default(), echo);
///     }))?;
/// # let url = format!("ws://{}/", running.addresses()[0]);
/// # let (mut client, _) = tungstenite::connect(url)?;
/// # client.send("hello".into())?;
/// # assert_eq!(client.read()?.into_text()?, "hello");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn web_socket_fn<F>(handler: F) -> F
where
    F: FnMut(&mut WebSocketRef<'_>, Message<'_>) + Send + 'static,
{
    handler
}

/// Sends on a WebSocket connection from any thread.
///
/// Shape: what it does after the end of the connection does nothing. If there is no room for a
/// message, the engine does as set by
/// [`WebSocketOptions::overflow`](crate::websocket::WebSocketOptions::overflow).
///
/// ```
/// use dwell_engine::handler::{Exchange, Gone, SendError, WebSocketHandler, WebSocketSender};
/// use dwell_engine::websocket::{
///     Broadcast, CloseCode, Control, FramePart, Message, MessageKind, UpgradeOptions,
///     WebSocketEnd, WebSocketRef,
/// };
/// use dwell_engine::{Request, Server};
/// use std::sync::{Arc, Mutex};
///
/// type Members = Arc<Mutex<Vec<WebSocketSender>>>;
///
/// /// One member of a room, which hears of news from any thread.
/// struct Member(Members);
///
/// impl WebSocketHandler for Member {
///     fn opened(&mut self, _: &mut WebSocketRef<'_>, sender: WebSocketSender) {
///         self.0.lock().expect("no holder panics").push(sender);
///     }
///
///     fn message(&mut self, socket: &mut WebSocketRef<'_>, _: Message<'_>) {
///         socket.close(CloseCode::POLICY_VIOLATION, "listen only");
///     }
///
///     fn control(&mut self, _: &mut WebSocketRef<'_>, control: Control<'_>) {
///         println!("{control:?}");
///     }
///
///     fn frame(&mut self, _: &mut WebSocketRef<'_>, part: FramePart<'_>) {
///         // Comes where frames were asked for instead of messages.
///         println!("{} bytes of a frame", part.data.len());
///     }
///
///     fn closed(&mut self, end: WebSocketEnd<'_>) {
///         println!("{} {}", end.code, end.reason);
///     }
/// }
///
/// /// Sends to all members, encoded and compressed once. Members whose loop has ended are removed.
/// fn publish(members: &Members, news: &str) {
///     let message = Arc::new(Broadcast::new(MessageKind::Text, news.as_bytes()));
///     let mut members = members.lock().expect("no holder panics");
///     members.retain(|member| member.send(Arc::clone(&message)) != Err(SendError::Gone));
/// }
///
/// let members = Members::default();
/// let room = Arc::clone(&members);
/// let running = Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     .serve(move |request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
///         exchange.web_socket(request, &UpgradeOptions::default(), Member(Arc::clone(&room)));
///     })?;
/// # let url = format!("ws://{}/", running.addresses()[0]);
/// # let (mut client, _) = tungstenite::connect(url)?;
/// # client.send(tungstenite::Message::Ping("a".into()))?;
/// # assert!(client.read()?.is_pong(), "it is a member by now");
/// publish(&members, "hello, all");
/// # assert_eq!(client.read()?.into_text()?, "hello, all");
/// for member in members.lock().expect("no holder panics").drain(..) {
///     let closed = member.close(CloseCode::GOING_AWAY, "until tomorrow");
///     let _ = closed.or_else(|Gone| member.abort());
/// }
/// # assert!(client.read()?.is_close());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct WebSocketSender(pub(crate) Outlet);

impl WebSocketSender {
    /// Sends a message, which may go to many: it is encoded, and compressed, once for all that
    /// share it.
    ///
    /// # Errors
    /// [`SendError`]; nothing of the message was taken. A connection that is gone is not noticed.
    pub fn send(&self, message: Arc<Broadcast>) -> Result<(), SendError> {
        let bytes = message.payload().len();
        self.0.write(bytes, Order::Send(message))
    }

    /// Closes the connection in order.
    ///
    /// # Errors
    /// [`Gone`] when the loop has ended, or takes no more messages.
    pub fn close(&self, code: CloseCode, reason: impl Into<String>) -> Result<(), Gone> {
        self.0.order(Order::Close(Some(code), reason.into()))
    }

    /// Ends the connection without sending what is queued.
    ///
    /// # Errors
    /// As [`close`](Self::close).
    pub fn abort(&self) -> Result<(), Gone> {
        self.0.order(Order::Abort)
    }
}
