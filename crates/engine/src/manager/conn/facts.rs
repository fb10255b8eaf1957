//! Queries of a connection.

use super::{Access, Conn, kind};
use crate::Http;
use crate::components::Components;
use crate::limits::STREAM_OUTPUT_SHARE;
use crate::manager::state::Origin;
use crate::reply::Reply;
use crate::streams::StreamRef;
use crate::websocket::WebSocketRef;
use dwell_evloop::{PeerCertificates, Stream, Token};
use std::net::SocketAddr;

impl Conn<'_> {
    /// Returns true for a listener.
    pub fn is_listening(&self) -> bool {
        self.origin() == Some(Origin::Listener)
    }

    /// Returns true for an outbound connection.
    pub fn is_client(&self) -> bool {
        self.origin() == Some(Origin::Outbound)
    }

    /// Returns true under TLS: for a listener whose clients are, too.
    pub fn is_secure(&self) -> bool {
        self.record().is_some_and(|record| record.is_secure)
    }

    /// Returns true for a WebSocket connection.
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    ///
    /// /// Clients by what they speak: HTTP or bytes, WebSocket.
    /// fn count(manager: &mut Manager) -> (usize, usize) {
    ///     let (mut others, mut websockets) = (0, 0);
    ///     for id in manager.connections() {
    ///         match manager.conn(id) {
    ///             Some(conn) if conn.is_websocket() => websockets += 1,
    ///             Some(conn) if !conn.is_listening() => others += 1,
    ///             _ => {}
    ///         }
    ///     }
    ///     (others, websockets)
    /// }
    /// #
    /// # dwell_testkit::manage_then("tcp", "", |_, _| {}, |manager| {
    /// #     assert_eq!(count(manager), (1, 0));
    /// # });
    /// ```
    pub fn is_websocket(&self) -> bool {
        let place = self.place();
        place.is_some_and(|place| place.kind() == kind::WEBSOCKET)
    }

    /// Returns true for a stream of HTTP/2: one request, on a connection that has others.
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    ///
    /// /// Requests that have come on streams and are in progress.
    /// fn streams(manager: &mut Manager) -> usize {
    ///     let ids = manager.connections();
    ///     let mut is_stream = |id: &u64| manager.conn(*id).is_some_and(|conn| conn.is_stream());
    ///     ids.iter().filter(|id| is_stream(id)).count()
    /// }
    /// #
    /// # dwell_testkit::manage_then("tcp", "", |_, _| {}, |manager| {
    /// #     assert_eq!(streams(manager), 0);
    /// # });
    /// ```
    pub fn is_stream(&self) -> bool {
        let place = self.place();
        place.is_some_and(|place| place.kind() == kind::HTTP2_STREAM)
    }

    /// Returns true if it is closed, or will be when its queued output is out.
    pub fn is_closing(&self) -> bool {
        self.record().is_none_or(|record| record.closing)
    }

    /// Returns true if it closes after the response that is owed.
    pub fn is_draining(&self) -> bool {
        self.record().is_some_and(|record| record.draining)
    }

    /// Returns true if output waits for the peer; see [`queued_bytes`](Self::queued_bytes).
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    ///
    /// /// How many clients do not keep up.
    /// fn laggards(manager: &mut Manager) -> usize {
    ///     let ids = manager.connections();
    ///     let mut lags = |id| {
    ///         let conn = manager.conn(id);
    ///         conn.is_some_and(|mut conn| conn.is_writable() && conn.queued_bytes() > 64 * 1024)
    ///     };
    ///     ids.into_iter().filter(|id| lags(*id)).count()
    /// }
    /// #
    /// # dwell_testkit::manage_then("tcp", "", |_, _| {}, |manager| {
    /// #     assert_eq!(laggards(manager), 0);
    /// # });
    /// ```
    pub fn is_writable(&mut self) -> bool {
        self.queued_bytes() > 0
    }

    /// Returns true if the next piece would be refused, because so much output waits for the peer.
    ///
    /// Shape: of another connection than the handler's own it is not known while the handler
    /// runs, and false.
    pub fn is_full(&mut self) -> bool {
        let state = &self.scope.state;
        let limit = match self.place().map(Token::kind) {
            Some(kind::RAW) => state.stream_output_bytes_max,
            Some(kind::WEBSOCKET) => state.websocket_output_bytes_max,
            Some(kind::HTTP2_STREAM) => state.http_output_bytes_max / STREAM_OUTPUT_SHARE,
            _ => state.http_output_bytes_max,
        };
        self.queued_bytes() >= limit
    }

    /// Returns the bytes of output that wait for the peer; 0 where the socket is out of reach, as
    /// for [`is_full`](Self::is_full).
    pub fn queued_bytes(&mut self) -> usize {
        self.ask(|socket| socket.queued_bytes()).unwrap_or(0)
    }

    /// Returns the peer's address; `None` for a listener, a unix socket, and a connection whose
    /// peer is gone, as in `Close`.
    ///
    /// Shape: asks the system at each call, so that it costs nothing when not called. For another
    /// connection than the handler's own it is unavailable while the handler runs.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, Event};
    ///
    /// /// Serves this machine only.
    /// fn local_only(conn: &mut Conn<'_>, event: Event<'_>) {
    ///     if let Event::Accept = event
    ///         && conn.remote_address().is_some_and(|address| !address.ip().is_loopback())
    ///     {
    ///         conn.abort();
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_bytes("hello", local_only);
    /// # assert_eq!(answer, "");
    /// ```
    pub fn remote_address(&mut self) -> Option<SocketAddr> {
        self.ask(|socket| socket.peer_address())?
    }

    /// Our address: of a listener the one it listens on, its port resolved.
    pub fn local_address(&mut self) -> Option<SocketAddr> {
        let extra = self.record()?.extra.as_ref();
        if let Some(address) = extra.and_then(|extra| extra.address) {
            return Some(address);
        }
        self.ask(|socket| socket.local_address())?
    }

    /// The certificates that a client under TLS has shown, of which the first was verified; `None`
    /// without any, and where [`remote_address`](Self::remote_address) is unavailable.
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, Event};
    ///
    /// /// Says who a client is, by its certificate.
    /// fn greet(conn: &mut Conn<'_>, event: Event<'_>) {
    ///     if let Event::HttpMessage(_) = event {
    ///         let certificates = conn.peer_certificates();
    ///         let subject = certificates.and_then(|shown| shown.subject());
    ///         let name = subject.as_deref().unwrap_or("nobody");
    ///         conn.reply(200, &[], name.as_bytes()).expect("a response is owed");
    ///     }
    /// }
    /// #
    /// # let answer = dwell_testkit::manage_once("GET / HTTP/1.0\r\n\r\n", greet);
    /// # assert!(answer.ends_with("\r\n\r\nnobody"), "{answer}");
    /// ```
    pub fn peer_certificates(&mut self) -> Option<PeerCertificates> {
        self.ask(|socket| socket.peer_certificates().cloned())?
    }

    fn origin(&self) -> Option<Origin> {
        self.record().map(|record| record.origin)
    }

    /// Asks the component that owns the socket. Returns `None` if none can be asked.
    fn ask<T>(&mut self, question: impl Fn(&dyn SocketFacts) -> T) -> Option<T> {
        let place = self.place()?;
        let mut answer = None;
        match &mut self.access {
            Access::Socket(stream) => answer = Some(question(*stream)),
            Access::Reply(access) => access.with(&mut |own| answer = Some(question(own))),
            Access::Stream(access) => access.with(&mut |own| answer = Some(question(own))),
            Access::WebSocket(access) => access.with(&mut |own| answer = Some(question(own))),
            Access::None => {
                let Components {
                    http,
                    streams,
                    websockets,
                } = self.scope.components.as_deref_mut()?;
                let context = &mut *self.scope.context;
                answer = match place.kind() {
                    kind::HTTP | kind::HTTP2_STREAM => Some(question(&InHttp { http, place })),
                    kind::RAW => streams.with_stream(context, place, |own| question(own)),
                    kind::WEBSOCKET => websockets.with_socket(context, place, |own| question(own)),
                    _ => None,
                };
            }
        }
        answer
    }
}

/// Queries that every owner of a socket answers.
trait SocketFacts {
    fn queued_bytes(&self) -> usize;
    fn peer_address(&self) -> Option<SocketAddr>;
    fn local_address(&self) -> Option<SocketAddr>;
    fn peer_certificates(&self) -> Option<&PeerCertificates>;
}

/// A connection in the table of the HTTP component.
struct InHttp<'h> {
    http: &'h Http,
    place: Token,
}

impl SocketFacts for InHttp<'_> {
    fn queued_bytes(&self) -> usize {
        self.http.queued_bytes(self.place)
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        self.http.peer_address_of(self.place)
    }

    fn local_address(&self) -> Option<SocketAddr> {
        self.http.local_address_of(self.place)
    }

    fn peer_certificates(&self) -> Option<&PeerCertificates> {
        self.http.peer_certificates_of(self.place)
    }
}

impl SocketFacts for Stream {
    fn queued_bytes(&self) -> usize {
        Stream::queued_bytes(self)
    }

    fn peer_address(&self) -> Option<SocketAddr> {
        Stream::peer_address(self).ok().flatten()
    }

    fn local_address(&self) -> Option<SocketAddr> {
        Stream::local_address(self).ok().flatten()
    }

    fn peer_certificates(&self) -> Option<&PeerCertificates> {
        Stream::peer_certificates(self)
    }
}

/// All three have these as methods of their own.
macro_rules! socket_facts {
    ($($holder:ident),*) => {$(
        impl SocketFacts for $holder<'_> {
            fn queued_bytes(&self) -> usize {
                $holder::queued_bytes(self)
            }

            fn peer_address(&self) -> Option<SocketAddr> {
                $holder::peer_address(self)
            }

            fn local_address(&self) -> Option<SocketAddr> {
                $holder::local_address(self)
            }

            fn peer_certificates(&self) -> Option<&PeerCertificates> {
                $holder::peer_certificates(self)
            }
        }
    )*};
}

socket_facts!(Reply, StreamRef, WebSocketRef);
