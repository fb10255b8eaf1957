//! WebSocket in axum's handlers, on the loop's own connections.
//!
//! axum's `WebSocketUpgrade` needs hyper, which alone can make what it takes of a request. The one
//! here is an extractor of the same name in its place: the connection stays with the engine, where
//! an idle one is an entry of a table, with no task and no buffer.
//!
//! ```
//! use axum::{Router, response::Response, routing::get};
//! use dwell_engine::Server;
//! use dwell_engine::handler::axum::WebSocketUpgrade;
//! use dwell_engine::handler::tower::service;
//!
//! async fn echo(upgrade: WebSocketUpgrade) -> Response {
//!     upgrade.on_message(|socket, message| {
//!         // There is room for it: nothing is handed over before there is.
//!         let _ = socket.send(message.kind, &message.payload);
//!     })
//! }
//!
//! let router = Router::new().route("/echo", get(echo));
//! let running =
//!     Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(service(router))?;
//! # let (mut client, _) = tungstenite::connect(format!("ws://{}/echo", running.addresses()[0]))?;
//! # client.send("hello".into())?;
//! # assert_eq!(client.read()?.into_text()?, "hello");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::http::OnUpgrade;
use super::{Takeover, WebSocketHandler};
use crate::websocket::{
    Message, OriginPolicy, Rejection, UpgradeOptions, WebSocketRef, is_upgrade, upgrade,
};
use ::http::request::Parts;
use ::http::{HeaderValue, Version, header};
use axum_core::body::Body;
use axum_core::extract::FromRequestParts;
use axum_core::response::{IntoResponse, Response};
use dwell_proto::http1::{FieldStorage, HeadLimits, RequestHead, parse_request};
use std::fmt;

/// The extractor of a request that asks for WebSocket.
///
/// Shape: as axum's, but that a [`WebSocketHandler`] has the connection, and not a task.
#[derive(Debug)]
#[must_use]
pub struct WebSocketUpgrade {
    on_upgrade: OnUpgrade,
    /// The head of the request, in its form on the wire.
    head: Vec<u8>,
}

/// Reasons why a request is not upgraded; as a response, the answer to it.
///
/// ```
/// use axum::response::IntoResponse;
/// use dwell_engine::handler::axum::{UpgradeRejection, WebSocketUpgrade};
///
/// /// A page for those who come without a WebSocket client.
/// async fn page(upgrade: Result<WebSocketUpgrade, UpgradeRejection>) -> axum::response::Response {
///     match upgrade {
///         Ok(upgrade) => upgrade.on_message(|_, _| {}),
///         Err(UpgradeRejection::NoWebSocket) => "open this in a chat program".into_response(),
///         Err(rejection) => rejection.into_response(),
///     }
/// }
/// # use axum::{Router, routing::get};
/// # use dwell_engine::{Server, handler::tower::service};
/// # let router = Router::new().route("/", get(page));
/// # let running =
/// #     Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(service(router))?;
/// # let answer = dwell_testkit::ask(running.addresses()[0], "GET / HTTP/1.0\r\n\r\n");
/// # assert!(answer.ends_with("chat program"), "{answer}");
/// # Ok::<(), dwell_engine::ServerError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum UpgradeRejection {
    /// The request does not ask for WebSocket: 426.
    NoWebSocket,
    /// The handshake breaks a rule: 400, or 426 for another version of the protocol.
    Handshake(Rejection),
    /// The request came by another server than this crate's, or its connection has been taken
    /// over already: 500.
    NoConnection,
}

impl<S: Sync> FromRequestParts<S> for WebSocketUpgrade {
    type Rejection = UpgradeRejection;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, UpgradeRejection> {
        let head = encoded(parts);
        let checked = with_head(&head, |head| {
            if !is_upgrade(head) {
                return Err(UpgradeRejection::NoWebSocket);
            }
            // The origin is judged by the options, which come with the handler.
            let options = UpgradeOptions {
                origin: OriginPolicy::Any,
                ..UpgradeOptions::default()
            };
            let checked = upgrade(head, &options).map(|_| ());
            checked.map_err(UpgradeRejection::Handshake)
        });
        checked.unwrap_or(Err(UpgradeRejection::NoWebSocket))?;
        let on_upgrade = parts.extensions.remove::<OnUpgrade>();
        let on_upgrade = on_upgrade.ok_or(UpgradeRejection::NoConnection)?;
        Ok(Self { on_upgrade, head })
    }
}

impl WebSocketUpgrade {
    /// Upgrades the connection and hands every message to a closure, on the loop of the connection;
    /// it must not block.
    ///
    /// Shape: pages of another host are refused; [`on_upgrade_with`](Self::on_upgrade_with) has the
    /// options.
    pub fn on_message(
        self,
        handler: impl FnMut(&mut WebSocketRef<'_>, Message<'_>) + Send + 'static,
    ) -> Response {
        self.on_upgrade(handler)
    }

    /// Upgrades the connection and lets a handler have it, on the loop of the connection.
    ///
    /// ```
    /// use axum::{Router, response::Response, routing::get};
    /// use dwell_engine::Server;
    /// use dwell_engine::handler::axum::WebSocketUpgrade;
    /// use dwell_engine::handler::{WebSocketHandler, WebSocketSender, tower::service};
    /// use dwell_engine::websocket::{Broadcast, Message, MessageKind, WebSocketRef};
    /// use std::sync::Arc;
    ///
    /// /// Greets from a thread, which may keep the sender for as long as it likes.
    /// struct Greeter;
    ///
    /// impl WebSocketHandler for Greeter {
    ///     fn opened(&mut self, _: &mut WebSocketRef<'_>, sender: WebSocketSender) {
    ///         std::thread::spawn(move || {
    ///             sender.send(Arc::new(Broadcast::new(MessageKind::Text, b"hello")))
    ///         });
    ///     }
    ///
    ///     fn message(&mut self, _: &mut WebSocketRef<'_>, _: Message<'_>) {}
    /// }
    ///
    /// async fn greet(upgrade: WebSocketUpgrade) -> Response {
    ///     upgrade.on_upgrade(Greeter)
    /// }
    /// # let router = Router::new().route("/", get(greet));
    /// # let running =
    /// #     Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(service(router))?;
    /// # let (mut client, _) = tungstenite::connect(format!("ws://{}/", running.addresses()[0]))?;
    /// # assert_eq!(client.read()?.into_text()?, "hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_upgrade(self, handler: impl WebSocketHandler) -> Response {
        self.on_upgrade_with(&UpgradeOptions::default(), handler)
    }

    /// As [`on_upgrade`](Self::on_upgrade), with options: subprotocols, compression, and the pages
    /// that may connect. A handshake that they do not admit is answered as it deserves.
    ///
    /// ```
    /// use axum::{Router, response::Response, routing::get};
    /// use dwell_engine::Server;
    /// use dwell_engine::handler::axum::WebSocketUpgrade;
    /// use dwell_engine::handler::{tower::service, web_socket_fn};
    /// use dwell_engine::websocket::{OriginPolicy, UpgradeOptions};
    ///
    /// async fn open(upgrade: WebSocketUpgrade) -> Response {
    ///     let options = UpgradeOptions { origin: OriginPolicy::Any, ..UpgradeOptions::default() };
    ///     upgrade.on_upgrade_with(&options, web_socket_fn(|socket, message| {
    ///         let _ = socket.send(message.kind, &message.payload);
    ///     }))
    /// }
    /// # let router = Router::new().route("/", get(open));
    /// # let running =
    /// #     Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(service(router))?;
    /// # let (mut client, _) = tungstenite::connect(format!("ws://{}/", running.addresses()[0]))?;
    /// # client.send("hello".into())?;
    /// # assert_eq!(client.read()?.into_text()?, "hello");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn on_upgrade_with(
        self,
        options: &UpgradeOptions<'_>,
        handler: impl WebSocketHandler,
    ) -> Response {
        let response = with_head(&self.head, |head| {
            let upgrade = upgrade(head, options).map_err(UpgradeRejection::Handshake)?;
            let mut response = Response::new(Body::empty());
            *response.status_mut() = ::http::StatusCode::SWITCHING_PROTOCOLS;
            upgrade.for_each_field(|name, value| {
                if let Ok(value) = HeaderValue::from_bytes(value) {
                    response.headers_mut().append(name, value);
                }
            });
            let takeover = Takeover::WebSocket(upgrade.negotiated(), Box::new(handler));
            self.on_upgrade.set(takeover);
            Ok(response)
        });
        response
            .unwrap_or(Err(UpgradeRejection::NoWebSocket))
            .unwrap_or_else(IntoResponse::into_response)
    }
}

/// The head of a request, in its form on the wire.
fn encoded(parts: &Parts) -> Vec<u8> {
    let version = match parts.version {
        Version::HTTP_11 => "1.1",
        _ => "1.0",
    };
    let line = format!("{} {} HTTP/{version}\r\n", parts.method, parts.uri);
    let mut head = line.into_bytes();
    for (name, value) in &parts.headers {
        head.extend_from_slice(name.as_str().as_bytes());
        head.extend_from_slice(b": ");
        head.extend_from_slice(value.as_bytes());
        head.extend_from_slice(b"\r\n");
    }
    head.extend_from_slice(b"\r\n");
    head
}

/// Reads a head that was encoded; `None` if a layer has made it invalid.
fn with_head<T>(head: &[u8], read: impl FnOnce(&RequestHead<'_, '_>) -> T) -> Option<T> {
    let limits = HeadLimits {
        head_bytes_max: head.len(),
        target_bytes_max: head.len(),
        ..HeadLimits::default()
    };
    let mut storage = FieldStorage::new();
    let parsed = parse_request(head, &mut storage, &limits).ok()?;
    Some(read(&parsed))
}

impl IntoResponse for UpgradeRejection {
    fn into_response(self) -> Response {
        let (status, fields) = match self {
            Self::NoWebSocket => (426, &[("Upgrade", &b"websocket"[..])][..]),
            Self::Handshake(rejection) => (rejection.status(), rejection.fields()),
            Self::NoConnection => (500, &[][..]),
        };
        let mut response = Response::new(Body::from(format!("{self}\n")));
        *response.status_mut() = ::http::StatusCode::from_u16(status).unwrap_or_default();
        let text = HeaderValue::from_static("text/plain; charset=utf-8");
        response.headers_mut().insert(header::CONTENT_TYPE, text);
        for (name, value) in fields {
            response
                .headers_mut()
                .append(*name, HeaderValue::from_static(str_of(value)));
        }
        response
    }
}

fn str_of(value: &'static [u8]) -> &'static str {
    str::from_utf8(value).unwrap_or_default()
}

impl fmt::Display for UpgradeRejection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoWebSocket => out.write_str("request does not ask for WebSocket"),
            Self::Handshake(rejection) => rejection.fmt(out),
            Self::NoConnection => out.write_str("connection cannot be taken over"),
        }
    }
}

impl std::error::Error for UpgradeRejection {}
