//! The manager, as handlers and timers reach it.

use super::client::Client;
use super::conn::Access;
use super::error::{ManagerError, UrlError};
use super::event::Event;
use super::resolve::resolve;
use super::state::{DEFAULT_HANDLER, ManagerApp, Origin};
use super::timer::{Timer, TimerEntry};
use super::url::{Endpoint, Url, UrlProtocol};
use super::{Conn, Handler, Waker};
use crate::components::Components;
use dwell_evloop::{
    Acceptor, Connector, Context, ListenOptions, Listener, Stream, Token, bind_group, bind_unix,
};
use std::fmt;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

/// The manager within a handler or callback: what can be done but polling and closing.
///
/// Shape: listeners and connections made here exist at once; their sockets join the loop right
/// after the handler has returned.
///
/// ```
/// use dwell_engine::manager::Manager;
/// use std::time::Duration;
///
/// let mut manager = Manager::new(|_, _| {})?;
/// manager.listen("http://127.0.0.1:0")?;
/// // A heartbeat for every event stream.
/// manager.timer(Duration::from_secs(15), true, |scope| {
///     for id in scope.connections() {
///         if let Some(mut conn) = scope.conn(id) {
///             // Refused where no stream is open.
///             let _ = conn.sse_comment("");
///         }
///     }
/// })?;
/// # Ok::<(), dwell_engine::manager::ManagerError>(())
/// ```
pub struct Scope<'a> {
    pub(super) state: &'a mut ManagerApp,
    pub(super) context: &'a mut Context,
    pub(super) components: Option<&'a mut Components>,
}

impl<'a> Scope<'a> {
    /// As [`Manager::listen`](super::Manager::listen).
    ///
    /// # Errors
    /// As [`Manager::listen`](super::Manager::listen).
    pub fn listen(&mut self, url: &str) -> Result<u64, ManagerError> {
        self.listen_as(url, None, None)
    }

    /// As [`Manager::listen_with`](super::Manager::listen_with).
    ///
    /// # Errors
    /// As [`Manager::listen`](super::Manager::listen).
    ///
    /// ```
    /// use dwell_engine::manager::{Event, Manager};
    /// use std::time::Duration;
    ///
    /// let mut manager = Manager::new(|_, _| {})?;
    /// // A port for the operator, a moment after the start.
    /// manager.timer(Duration::ZERO, false, |scope| {
    ///     let listening = scope.listen_with("tcp://127.0.0.1:0", |conn, event| {
    ///         if let Event::Read { .. } = event {
    ///             conn.scope().stop();
    ///         }
    ///     });
    ///     assert!(listening.is_ok());
    /// })?;
    /// manager.poll(Duration::from_secs(5))?;
    /// assert_eq!(manager.connection_count(), 1);
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn listen_with(
        &mut self,
        url: &str,
        handler: impl FnMut(&mut Conn<'_>, Event<'_>) + Send + 'static,
    ) -> Result<u64, ManagerError> {
        self.listen_as(url, None, Some(Box::new(handler)))
    }

    /// As [`Manager::connect`](super::Manager::connect).
    ///
    /// # Errors
    /// As [`Manager::connect`](super::Manager::connect).
    pub fn connect(&mut self, url: &str) -> Result<u64, ManagerError> {
        self.connect_as(url, false, None, None)
    }

    /// As [`Manager::connect_with`](super::Manager::connect_with).
    ///
    /// # Errors
    /// As [`Manager::connect`](super::Manager::connect).
    ///
    /// ```
    /// use dwell_engine::manager::{Conn, Event, ManagerError};
    ///
    /// /// Asks another server, and answers with what that says.
    /// fn proxy(
    ///     conn: &mut Conn<'_>,
    ///     event: Event<'_>,
    ///     upstream: &str,
    /// ) -> Result<(), ManagerError> {
    ///     let Event::HttpMessage(_) = event else { return Ok(()) };
    ///     let client = conn.id();
    ///     conn.scope().connect_with(upstream, move |server, event| match event {
    ///         Event::Connect => drop(server.request("GET", "/", &[], b"")),
    ///         Event::HttpMessage(answer) => {
    ///             if let Some(mut client) = server.scope().conn(client) {
    ///                 let _ = client.reply(200, &[], answer.body());
    ///             }
    ///             server.close();
    ///         }
    ///         _ => {}
    ///     })?;
    ///     Ok(())
    /// }
    /// #
    /// # use dwell_engine::manager::Manager;
    /// # use dwell_testkit::{ask, beside};
    /// # let mut manager = Manager::new(|conn, event| {
    /// #     if let Event::HttpMessage(_) = event {
    /// #         conn.reply(200, &[], b"from afar").expect("it is the first answer");
    /// #     }
    /// # })?;
    /// # let listener = manager.listen("http://127.0.0.1:0")?;
    /// # let upstream = manager.conn(listener).and_then(|mut conn| conn.local_address());
    /// # let upstream = format!("http://{}", upstream.expect("it listens"));
    /// # let listener = manager.listen_with("http://127.0.0.1:0", move |conn, event| {
    /// #     proxy(conn, event, &upstream).expect("there is a descriptor left");
    /// # })?;
    /// # let address = manager.conn(listener).and_then(|mut conn| conn.local_address());
    /// # let answer = beside(|| ask(address, "GET / HTTP/1.0\r\n\r\n"), || {
    /// #     manager.poll(std::time::Duration::from_millis(10)).expect("it polls");
    /// # });
    /// # assert!(answer.ends_with("\r\n\r\nfrom afar"), "{answer}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn connect_with(
        &mut self,
        url: &str,
        handler: impl FnMut(&mut Conn<'_>, Event<'_>) + Send + 'static,
    ) -> Result<u64, ManagerError> {
        self.connect_as(url, false, None, Some(Box::new(handler)))
    }

    /// As [`Manager::ws_connect`](super::Manager::ws_connect).
    ///
    /// # Errors
    /// As [`Manager::connect`](super::Manager::connect).
    pub fn ws_connect(&mut self, url: &str) -> Result<u64, ManagerError> {
        self.connect_as(url, true, None, None)
    }

    /// As [`Manager::timer`](super::Manager::timer).
    pub fn timer(
        &mut self,
        delay: Duration,
        repeat: bool,
        callback: impl FnMut(&mut Scope<'_>) + Send + 'static,
    ) -> Timer {
        let is_active = Arc::new(AtomicBool::new(true));
        let entry = TimerEntry {
            callback: Some(Box::new(callback)),
            due: due_after(self.context.now(), delay),
            // One that repeats at once would never let a poll wait.
            interval: repeat.then_some(delay.clamp(dwell_evloop::TICK, CENTURY)),
            is_active: Arc::clone(&is_active),
        };
        // The table has no bound, so it takes every timer.
        let token = self.state.timers.insert(entry);
        let token = token.unwrap_or_else(|_| Token::new(super::kind::NOWHERE, 0, 0));
        if let Some(entry) = self.state.timers.get(token) {
            entry.arm(self.context, token);
        }
        Timer {
            token,
            is_active,
            waker: self.state.waker.clone(),
        }
    }

    /// Another connection or listener; `None` when it is gone.
    pub fn conn(&mut self, id: u64) -> Option<Conn<'_>> {
        self.reborrow().into_conn(id)
    }

    /// The ids of all connections and listeners, in rising order.
    pub fn connections(&self) -> Vec<u64> {
        self.state.ids()
    }

    /// Ends [`Manager::run`](super::Manager::run) when this turn is over.
    pub fn stop(&mut self) {
        self.state.stopped = true;
    }

    /// A handle that wakes this manager from any thread.
    pub fn waker(&self) -> Waker {
        self.state.waker.clone()
    }

    /// The instant at which the current turn began to deliver.
    pub fn now(&self) -> Instant {
        self.context.now()
    }

    pub(super) fn reborrow(&mut self) -> Scope<'_> {
        Scope {
            state: self.state,
            context: self.context,
            components: self.components.as_deref_mut(),
        }
    }

    pub(super) fn into_conn(self, id: u64) -> Option<Conn<'a>> {
        let token = self.state.find(id)?;
        Some(Conn {
            scope: self,
            id,
            token,
            access: Access::None,
        })
    }

    pub(super) fn listen_as(
        &mut self,
        url: &str,
        acceptor: Option<Acceptor>,
        handler: Option<Handler>,
    ) -> Result<u64, ManagerError> {
        let failed = |cause| ManagerError::Listen {
            url: url.to_owned(),
            cause,
        };
        let parsed = self.parse(url)?;
        agrees(url, &parsed, acceptor.is_some())?;
        if parsed.is_secure && parsed.protocol == UrlProtocol::Raw {
            // Handshakes are bounded among the clients of HTTP alone.
            let (url, fault) = (url.to_owned(), UrlError::Plain);
            return Err(ManagerError::Url { url, fault });
        }
        let mut listener = bind(&parsed.endpoint).map_err(failed)?;
        if let Some(acceptor) = acceptor {
            listener.secure(acceptor);
        }
        let address = listener.address();
        let id = self.add(Origin::Listener, handler).map_err(failed)?;
        let protocol = parsed.protocol;
        // A closure runs once, but the table of deferred work does not know which.
        let mut registered = Ok(());
        if let Some(mut conn) = self.conn(id) {
            if let Some(extra) = conn.extra() {
                extra.address = address;
            }
            conn.set_secure(parsed.is_secure);
            if conn.is_deferred() {
                conn.later(move |conn| {
                    let registered = conn.register(listener, protocol);
                    conn.begun(registered);
                });
            } else {
                registered = conn.register(listener, protocol);
                conn.later(|conn| conn.tell(Event::Open));
            }
        }
        self.keep_if(id, registered).map_err(failed)
    }

    pub(super) fn connect_as(
        &mut self,
        url: &str,
        websocket: bool,
        connector: Option<Connector>,
        handler: Option<Handler>,
    ) -> Result<u64, ManagerError> {
        let failed = |cause| ManagerError::Connect {
            url: url.to_owned(),
            cause,
        };
        let parsed = self.parse(url)?;
        let connector = match connector {
            #[cfg(feature = "tls")]
            None if parsed.is_secure => Some(self.system_connector(url)?),
            given => given,
        };
        agrees(url, &parsed, connector.is_some())?;
        if websocket && parsed.protocol != UrlProtocol::Http {
            let (url, fault) = (url.to_owned(), UrlError::Scheme);
            return Err(ManagerError::Url { url, fault });
        }
        let stream = match &parsed.endpoint {
            Endpoint::Address(address) => Some(Stream::connect(*address).map_err(failed)?),
            Endpoint::Path(path) => Some(Stream::connect_unix(path).map_err(failed)?),
            Endpoint::Name(..) => None,
        };
        let id = self.add(Origin::Outbound, handler).map_err(failed)?;
        let mut begun = Ok(());
        if let Some(mut conn) = self.conn(id) {
            if parsed.protocol == UrlProtocol::Http
                && let Some(extra) = conn.extra()
            {
                extra.client = Some(if websocket {
                    Client::with_handshake(parsed.authority, parsed.target)
                } else {
                    Client::new(parsed.authority)
                });
            }
            conn.set_secure(parsed.is_secure);
            if let (Some(connector), Some(extra)) = (connector, conn.extra()) {
                extra.connector = Some(connector);
            }
            conn.later(|conn| conn.tell(Event::Open));
            begun = match (stream, parsed.endpoint) {
                (Some(stream), _) if conn.is_deferred() => {
                    conn.later(move |conn| {
                        let begun = conn.adopt_connecting(stream);
                        conn.failed(begun);
                    });
                    Ok(())
                }
                (Some(stream), _) => conn.adopt_connecting(stream),
                (None, Endpoint::Name(host, port)) => conn.resolve(host, port),
                (None, _) => Ok(()),
            };
        }
        self.keep_if(id, begun).map_err(failed)
    }

    /// Gives a connection that could not begin up again.
    fn keep_if(&mut self, id: u64, begun: io::Result<()>) -> io::Result<u64> {
        if begun.is_err()
            && let Some(token) = self.state.find(id)
        {
            self.state.remove(token);
        }
        begun.map(|()| id)
    }

    fn add(&mut self, origin: Origin, handler: Option<Handler>) -> io::Result<u64> {
        let handler = match handler {
            Some(handler) => self.state.add_handler(handler),
            None => DEFAULT_HANDLER,
        };
        let added = self.state.add(origin, handler);
        added
            .map(|(_, id)| id)
            .ok_or_else(|| io::Error::other("too many connections"))
    }

    pub(super) fn parse(&self, url: &str) -> Result<Url, ManagerError> {
        if self.state.is_closed {
            return Err(ManagerError::Closed);
        }
        Url::parse(url).map_err(|fault| ManagerError::Url {
            url: url.to_owned(),
            fault,
        })
    }
}

impl Conn<'_> {
    /// Gives a listener to the component of its protocol, which is free.
    fn register(&mut self, listener: Listener, protocol: UrlProtocol) -> io::Result<()> {
        let Scope {
            state,
            context,
            components: Some(components),
        } = &mut self.scope
        else {
            return Ok(());
        };
        let place = match protocol {
            UrlProtocol::Http => {
                let place = components.http.listen_as(context, listener)?;
                state.http_listeners.push((place, self.token));
                place
            }
            UrlProtocol::Raw => {
                let tag = self.token.to_bits();
                components.streams.listen(context, listener, tag)?
            }
        };
        if let Some(record) = state.records.get_mut(self.token) {
            record.place = place;
        }
        Ok(())
    }

    /// Connects to an address that was looked up.
    pub(super) fn connect_to(&mut self, address: SocketAddr) -> io::Result<()> {
        self.adopt_connecting(Stream::connect(address)?)
    }

    /// Gives a socket that connects to the raw streams, which are free.
    fn adopt_connecting(&mut self, mut stream: Stream) -> io::Result<()> {
        let extra = self.record().and_then(|record| record.extra.as_ref());
        if let Some(connector) = extra.and_then(|extra| extra.connector.as_ref()) {
            stream.secure_client(connector)?;
        }
        let Scope {
            state,
            context,
            components: Some(components),
        } = &mut self.scope
        else {
            return Ok(());
        };
        let tag = self.token.to_bits();
        let place = components.streams.adopt_connecting(context, stream, tag)?;
        if let Some(record) = state.records.get_mut(self.token) {
            record.place = place;
        }
        Ok(())
    }

    fn set_secure(&mut self, is_secure: bool) {
        if let Some(record) = self.scope.state.records.get_mut(self.token) {
            record.is_secure = is_secure;
        }
    }

    fn resolve(&mut self, host: String, port: u16) -> io::Result<()> {
        let state = &mut *self.scope.state;
        let waker = state.waker.clone();
        resolve(waker, &mut state.resolving, self.token, host, port)
    }

    /// Calls the handler for a connection that exists now, or failed to.
    fn begun(&mut self, begun: io::Result<()>) {
        if begun.is_ok() {
            self.tell(Event::Open);
        }
        self.failed(begun);
    }

    /// Ends a connection that could not begin.
    fn failed(&mut self, begun: io::Result<()>) {
        if let Err(error) = begun {
            self.tell(Event::Error(&error.to_string()));
            let id = self.id();
            self.scope.state.end_later(id);
        }
    }
}

/// Refuses a URL whose scheme says otherwise than what was given with it.
fn agrees(url: &str, parsed: &Url, has_tls: bool) -> Result<(), ManagerError> {
    if parsed.is_secure == has_tls {
        return Ok(());
    }
    Err(ManagerError::Url {
        url: url.to_owned(),
        fault: if has_tls {
            UrlError::Plain
        } else {
            UrlError::Tls
        },
    })
}

fn bind(endpoint: &Endpoint) -> io::Result<Listener> {
    let address = match endpoint {
        Endpoint::Path(path) => return bind_unix(path, ListenOptions::default()),
        Endpoint::Address(address) => *address,
        Endpoint::Name(host, port) => (host.as_str(), *port)
            .to_socket_addrs()?
            .next()
            .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, UrlError::Name))?,
    };
    let mut group = bind_group(address, 1, ListenOptions::default())?;
    group
        .pop()
        .ok_or_else(|| io::Error::other("the system gave no listener"))
}

/// The longest delay of a timer.
const CENTURY: Duration = Duration::from_secs(100 * 365 * 24 * 60 * 60);

/// Returns the instant at which a timer is due; one beyond all time is due in a century.
fn due_after(now: Instant, delay: Duration) -> Instant {
    now + delay.min(CENTURY)
}

impl fmt::Debug for Scope<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Scope")
            .field("connections", &self.state.len())
            .finish_non_exhaustive()
    }
}
