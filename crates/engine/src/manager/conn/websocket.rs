//! WebSocket: the handshake, messages, control frames.

use super::fields::check_fields;
use super::{Access, Conn, expect_kind, kind};
use crate::components::Protocol;
use crate::manager::error::ConnError;
use crate::manager::message::HttpMessage;
use crate::websocket::{
    Broadcast, CloseCode, MessageKind, UpgradeOptions, WebSocketRef, WebSocketSendError, upgrade,
};
use std::sync::Arc;

impl Conn<'_> {
    /// Upgrades the connection to WebSocket, in
    /// [`HttpMessage`](crate::manager::Event::HttpMessage), if the request is a valid handshake.
    ///
    /// Shape: [`WebSocketOpen`](crate::manager::Event::WebSocketOpen) follows when the handler has
    /// returned. A handshake that is refused is answered, with 400, 403 or 426.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    /// use dwell_engine::websocket::{MessageKind, UpgradeOptions};
    ///
    /// fn echo(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::HttpMessage(message) => {
    ///             conn.ws_upgrade(&message, &UpgradeOptions::default())
    ///         }
    ///         Event::WebSocketOpen => conn.ws_text("welcome"),
    ///         Event::WebSocketMessage { is_text: true, data } => {
    ///             conn.ws_send(MessageKind::Text, data)
    ///         }
    ///         _ => Ok(()),
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_ws(echo, |socket, answer| {
    /// #     assert_eq!(socket.read()?.into_text()?, "welcome");
    /// #     socket.send("hello".into())?;
    /// #     assert_eq!(answer.status(), 101);
    /// #     socket.read()?.into_text()
    /// # });
    /// # assert_eq!(answer, "hello");
    /// ```
    ///
    /// # Errors
    /// [`ConnError::Upgrade`] for a refused handshake; [`ConnError::NoRequest`] outside of the
    /// event; [`ConnError::Answered`].
    pub fn ws_upgrade(
        &mut self,
        message: &HttpMessage<'_>,
        options: &UpgradeOptions<'_>,
    ) -> Result<(), ConnError> {
        self.ws_upgrade_with(message, options, &[])
    }

    /// As [`ws_upgrade`](Self::ws_upgrade), with further fields in the 101 answer.
    ///
    /// # Errors
    /// As [`ws_upgrade`](Self::ws_upgrade), and those of fields.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    /// use dwell_engine::websocket::UpgradeOptions;
    ///
    /// fn chat(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::HttpMessage(message) => {
    ///             let fields: &[(&str, &[u8])] = &[("Set-Cookie", b"room=7")];
    ///             conn.ws_upgrade_with(&message, &UpgradeOptions::default(), fields)
    ///         }
    ///         _ => Ok(()),
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_ws(chat, |socket, answer| {
    /// #     socket.close(None)?;
    /// #     Ok(answer)
    /// # });
    /// # assert_eq!(answer.headers()["Set-Cookie"], "room=7");
    /// ```
    pub fn ws_upgrade_with(
        &mut self,
        message: &HttpMessage<'_>,
        options: &UpgradeOptions<'_>,
        fields: &[(&str, &[u8])],
    ) -> Result<(), ConnError> {
        check_fields(fields)?;
        let head = message.request_head().ok_or(ConnError::Protocol)?;
        if !matches!(self.access, Access::Reply(_)) {
            return Err(ConnError::NoRequest);
        }
        self.http_place()?;
        let upgraded = self.with_reply(|reply| {
            if reply.is_sent() {
                return Err(ConnError::Answered);
            }
            match upgrade(head, options) {
                Ok(upgrade) => {
                    upgrade.send(reply, fields);
                    Ok(upgrade.negotiated())
                }
                Err(rejection) => {
                    rejection.send(reply);
                    Err(ConnError::Upgrade(rejection))
                }
            }
        })??;
        if let Some(record) = self.scope.state.records.get_mut(self.token) {
            record.leaves = Some(Protocol::WebSocket(upgraded));
        }
        Ok(())
    }

    /// Sends a text message.
    ///
    /// # Errors
    /// [`ConnError::Full`] when so much waits for the peer that it was not taken;
    /// [`ConnError::Protocol`], [`ConnError::Closed`].
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    ///
    /// fn shout(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::WebSocketMessage { is_text: true, data } => {
    ///             conn.ws_text(&String::from_utf8_lossy(data).to_uppercase())
    ///         }
    ///         _ => Ok(()),
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_socket(shout, |socket| {
    /// #     socket.send("hello".into())?;
    /// #     socket.read()?.into_text()
    /// # });
    /// # assert_eq!(answer, "HELLO");
    /// ```
    pub fn ws_text(&mut self, text: &str) -> Result<(), ConnError> {
        self.ws_send(MessageKind::Text, text.as_bytes())
    }

    /// Sends a message; the caller ensures that text is valid UTF-8.
    ///
    /// # Errors
    /// As [`ws_text`](Self::ws_text).
    pub fn ws_send(&mut self, kind: MessageKind, payload: &[u8]) -> Result<(), ConnError> {
        self.on_socket(payload, move |payload, socket| socket.send(kind, payload))
    }

    /// Sends a message that goes to many: encoded once, and compressed once.
    ///
    /// # Errors
    /// As [`ws_text`](Self::ws_text).
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    /// use dwell_engine::websocket::{Broadcast, MessageKind};
    /// use std::sync::Arc;
    ///
    /// /// Tells every WebSocket; encodes and compresses once.
    /// fn publish(manager: &mut Manager, news: &str) {
    ///     let message = Arc::new(Broadcast::new(MessageKind::Text, news.as_bytes()));
    ///     for id in manager.connections() {
    ///         if let Some(mut conn) = manager.conn(id)
    ///             && conn.is_websocket()
    ///         {
    ///             let _ = conn.ws_send_shared(&message);
    ///         }
    ///     }
    /// }
    /// #
    /// # use dwell_engine::manager::Event;
    /// # let mut manager = Manager::new(|conn, event| {
    /// #     if let Event::HttpMessage(message) = event {
    /// #         conn.ws_upgrade(&message, &Default::default()).expect("it is the first answer");
    /// #     }
    /// # })?;
    /// # let listener = manager.listen("ws://127.0.0.1:0")?;
    /// # let address = manager.conn(listener).and_then(|mut conn| conn.local_address());
    /// # let address = address.expect("it listens");
    /// # let client = || -> tungstenite::Result<_> {
    /// #     let (mut socket, _) = tungstenite::connect(format!("ws://{address}/"))?;
    /// #     socket.read()?.into_text()
    /// # };
    /// # let heard = dwell_testkit::beside(client, || {
    /// #     manager.poll(std::time::Duration::from_millis(10)).expect("it polls");
    /// #     publish(&mut manager, "news");
    /// # })?;
    /// # assert_eq!(heard, "news");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn ws_send_shared(&mut self, message: &Arc<Broadcast>) -> Result<(), ConnError> {
        self.on_socket(message, |message, socket| socket.send_shared(message))
    }

    /// Sends a ping, of at most 125 bytes; the pong comes as
    /// [`WebSocketControl`](crate::manager::Event::WebSocketControl). Pings of the peer are
    /// answered without the handler.
    ///
    /// # Errors
    /// As [`ws_text`](Self::ws_text).
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    ///
    /// fn ask(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::WebSocketOpen => conn.ws_ping(b"are you there"),
    ///         Event::WebSocketControl { opcode: 10, data } => {
    ///             println!("it is: {}", data.escape_ascii());
    ///             Ok(())
    ///         }
    ///         _ => Ok(()),
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_socket(ask, |socket| {
    /// #     // Answered with the next read.
    /// #     socket.read()
    /// # });
    /// # assert!(answer.is_ping());
    /// ```
    pub fn ws_ping(&mut self, payload: &[u8]) -> Result<(), ConnError> {
        self.on_socket(payload, |payload, socket| socket.ping(payload))
    }

    /// Sends an unsolicited pong: a heartbeat in one direction.
    ///
    /// # Errors
    /// As [`ws_text`](Self::ws_text).
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    ///
    /// /// A sign of life that wants no answer.
    /// fn alive(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::WebSocketOpen => conn.ws_pong(b""),
    ///         _ => Ok(()),
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_socket(alive, |socket| socket.read());
    /// # assert!(answer.is_pong());
    /// ```
    pub fn ws_pong(&mut self, payload: &[u8]) -> Result<(), ConnError> {
        self.on_socket(payload, |payload, socket| socket.pong(payload))
    }

    /// Closes a WebSocket in order, with a code and a reason; [`close`](Self::close) does so with
    /// 1000 and none.
    ///
    /// # Errors
    /// [`ConnError::Protocol`], [`ConnError::Closed`].
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, ConnError, Event};
    /// use dwell_engine::websocket::CloseCode;
    ///
    /// /// Takes text only.
    /// fn text_only(conn: &mut Conn<'_>, event: Event<'_>) -> Result<(), ConnError> {
    ///     match event {
    ///         Event::WebSocketMessage { is_text: false, .. } => {
    ///             conn.ws_close(CloseCode::UNSUPPORTED_DATA, "text only")
    ///         }
    ///         _ => Ok(()),
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_socket(text_only, |socket| {
    /// #     socket.send(vec![0].into())?;
    /// #     socket.read()
    /// # });
    /// # assert!(answer.is_close());
    /// ```
    pub fn ws_close(&mut self, code: CloseCode, reason: &str) -> Result<(), ConnError> {
        self.websocket_place()?;
        self.now_or_later(reason, move |conn, reason| {
            conn.with_socket(|socket| socket.close(code, reason))?;
            if let Ok(record) = conn.scope.state.open_record(conn.token) {
                record.closing = true;
            }
            Ok(())
        })
    }

    fn on_socket<D, S>(&mut self, data: &D, send: S) -> Result<(), ConnError>
    where
        D: ToOwned<Owned: Send + 'static> + ?Sized,
        S: FnOnce(&D, &mut WebSocketRef<'_>) -> Result<(), WebSocketSendError> + Send + 'static,
    {
        self.websocket_place()?;
        self.now_or_later(data, |conn, data| {
            conn.with_socket(|socket| send(data, socket))?
                .map_err(Into::into)
        })
    }

    /// Lets `act` work on the WebSocket, which has to be within reach.
    pub(super) fn with_socket<T>(
        &mut self,
        act: impl FnOnce(&mut WebSocketRef<'_>) -> T,
    ) -> Result<T, ConnError> {
        let place = expect_kind(self.place(), kind::WEBSOCKET)?;
        if let Access::WebSocket(access) = &mut self.access {
            let (mut act, mut result) = (Some(act), None);
            access.with(&mut |socket| result = act.take().map(|act| act(socket)));
            return result.ok_or(ConnError::Closed);
        }
        let components = self.scope.components.as_deref_mut();
        let websockets = &mut components.ok_or(ConnError::Closed)?.websockets;
        websockets
            .with_socket(self.scope.context, place, act)
            .ok_or(ConnError::Closed)
    }

    /// Refuses what is no WebSocket, or closing.
    fn websocket_place(&self) -> Result<(), ConnError> {
        expect_kind(Some(self.open_place()?), kind::WEBSOCKET).map(drop)
    }
}

impl From<WebSocketSendError> for ConnError {
    fn from(error: WebSocketSendError) -> Self {
        match error {
            WebSocketSendError::Full { limit, .. } => Self::Full { limit },
            WebSocketSendError::Closed => Self::Closed,
        }
    }
}
