//! `Manager`: the engine for programs that poll it.
//!
//! One value holds listeners, connections and timers, and does nothing but in
//! [`poll`](Manager::poll): the caller decides when, for how long, and on which thread. A handler
//! is told what happens, as `handler(conn, event)`. `docs/manager.md` has the table of events,
//! `docs/manager-threads.md` the rule of threads, and `docs/poll-timeout.md` how to choose the
//! timeout.
//!
//! ```
//! use dwell_engine::manager::{Event, Manager};
//! use std::io::{Read, Write};
//! use std::time::Duration;
//!
//! let mut manager = Manager::new(|conn, event| {
//!     if let Event::HttpMessage(message) = event {
//!         let body = format!("hello from {}\n", message.path());
//!         // Fails only where the request has its answer already.
//!         let _ = conn.reply(200, &[], body.as_bytes());
//!     }
//! })?;
//! let listener = manager.listen("http://127.0.0.1:0")?;
//! let address = manager.conn(listener).and_then(|mut conn| conn.local_address());
//! let client = std::thread::spawn(move || -> std::io::Result<String> {
//!     let mut stream = std::net::TcpStream::connect(address.expect("it listens"))?;
//!     stream.write_all(b"GET /here HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n")?;
//!     let mut answer = String::new();
//!     stream.read_to_string(&mut answer)?;
//!     Ok(answer)
//! });
//! while !client.is_finished() {
//!     manager.poll(Duration::from_millis(10))?;
//! }
//! let answer = client.join().expect("it does not panic")?;
//! assert!(answer.ends_with("\r\n\r\nhello from /here\n"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod apps;
mod client;
mod conn;
mod ending;
mod error;
mod event;
mod hub;
mod message;
mod options;
mod polling;
mod resolve;
mod scope;
mod state;
mod timer;
#[cfg(feature = "tls")]
mod tls;
mod url;
mod waker;
mod written;

pub use conn::Conn;
pub use error::{ConnError, ManagerError, UrlError, WakeupError};
pub use event::{Event, EventKind, EventSet};
pub use message::HttpMessage;
pub use options::ManagerOptions;
pub use scope::Scope;
pub use timer::Timer;
pub use waker::Waker;

use crate::components::Components;
use dwell_evloop::{EventLoop, INPUT_BYTES};
use hub::{ManagerDriver, Message};
use state::ManagerApp;
use std::fmt;
use std::time::Duration;

/// The function that is called with the events of a connection.
type Handler = Box<dyn FnMut(&mut Conn<'_>, Event<'_>) + Send>;

/// The kinds of the tokens on a manager's loop.
mod kind {
    /// The kind of a connection whose socket no component has.
    pub(super) const NOWHERE: u8 = 0;
    pub(super) const RECORD: u8 = FREE;
    pub(super) const TIMER: u8 = FREE + 1;
    pub(super) const WORK: u8 = FREE + 2;

    use crate::components::kind::FREE;
    pub(super) use crate::components::kind::{
        CONNECTION as HTTP, HTTP2_STREAM, LISTENER as HTTP_LISTENER, STREAM as RAW,
        STREAM_LISTENER as RAW_LISTENER, WEBSOCKET,
    };
}

/// An event loop the caller polls.
///
/// Shape: `poll` cannot be called from a handler, as it borrows the manager; what a handler needs
/// of it is in [`Conn::scope`]. Dropping it closes every socket without telling the handlers;
/// [`close`](Self::close) tells them, and lets out what is queued.
///
/// ```
/// use dwell_engine::manager::{Event, Manager};
/// use std::io::{Read, Write};
/// use std::net::TcpStream;
/// use std::time::Duration;
///
/// let mut manager = Manager::new(|conn, event| {
///     if let Event::HttpMessage(message) = event {
///         // A client that has left meanwhile is told of by `Close`.
///         let _ = conn.reply(200, &[], format!("hello, {}", message.path()).as_bytes());
///         conn.drain();
///     }
/// })?;
/// let listener = manager.listen("http://127.0.0.1:0")?;
/// let address = manager.conn(listener).and_then(|mut conn| conn.local_address());
///
/// let mut client = TcpStream::connect(address.expect("it listens"))?;
/// client.write_all(b"GET /you HTTP/1.1\r\nHost: a\r\n\r\n")?;
/// # client.set_nonblocking(true)?;
/// let mut answer = Vec::new();
/// while !answer.ends_with(b"hello, /you") {
///     manager.poll(Duration::from_millis(10))?;
/// #   let _ = client.read_to_end(&mut answer);
/// }
/// assert_eq!((manager.panics(), manager.refused()), (0, 0));
/// manager.close();
/// assert!(manager.is_closed());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Manager {
    inner: Option<Inner>,
    waker: Waker,
    close_timeout: Duration,
}

struct Inner {
    event_loop: EventLoop<Message>,
    hub: ManagerDriver,
}

impl Manager {
    /// Makes a manager with nothing on it; `handler` gets the events of every connection without a
    /// handler of its own.
    ///
    /// # Errors
    /// [`ManagerError::Loop`] when the system has no descriptor or memory left.
    ///
    /// ```
    /// use dwell_engine::manager::{Event, Manager};
    ///
    /// let manager = Manager::new(|conn, event| {
    ///     if let Event::Read { data, .. } = event {
    ///         let _ = conn.send(data);
    ///     }
    /// })?;
    /// assert_eq!(manager.connection_count(), 0);
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn new(
        handler: impl FnMut(&mut Conn<'_>, Event<'_>) + Send + 'static,
    ) -> Result<Self, ManagerError> {
        Self::with_options(ManagerOptions::default(), handler)
    }

    /// As [`new`](Self::new), with bounds other than the default ones.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    ///
    /// # Panics
    /// When a limit for heads or kept input is not below the loop's input buffer of 64 KiB.
    ///
    /// ```
    /// use dwell_engine::manager::{EventKind, EventSet, Manager, ManagerOptions};
    /// let mut options = ManagerOptions::default();
    /// options.body_bytes_max = 64 * 1024;
    /// options.events = EventSet::ALL.without(EventKind::Read);
    /// let manager = Manager::with_options(options, |_, _| {})?;
    /// assert!(manager.connections().is_empty());
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn with_options(
        options: ManagerOptions,
        handler: impl FnMut(&mut Conn<'_>, Event<'_>) + Send + 'static,
    ) -> Result<Self, ManagerError> {
        let event_loop = EventLoop::new().map_err(ManagerError::Loop)?;
        let waker = Waker::new(event_loop.sender());
        let (http, streams, websockets) = (options.http, options.streams, options.websockets);
        let mut components = Components::new(http, streams, websockets, INPUT_BYTES);
        if options.h2c {
            components.http = components.http.speak_h2c(kind::HTTP2_STREAM);
        }
        #[cfg(feature = "tls")]
        if options.http2 {
            components.http = components.http.speak_http2(kind::HTTP2_STREAM);
        }
        components.http = components.http.take_connect();
        components.http.note_ended_streams();
        let hub = ManagerDriver {
            components,
            state: ManagerApp::new(Box::new(handler), &options, waker.clone()),
            signalled: false,
        };
        Ok(Self {
            inner: Some(Inner { event_loop, hub }),
            waker,
            close_timeout: options.close_timeout,
        })
    }

    /// Listens on `http://host:port`, `ws://host:port`, `tcp://host:port`, `unix:///path` or
    /// `http+unix:///path`; returns the listener's id. Under TLS there is `listen_tls`.
    ///
    /// Shape: port 0 takes a free one, which [`Conn::local_address`] tells. WebSocket and HTTP
    /// share a port. `Open` is told before this returns.
    ///
    /// # Errors
    /// [`ManagerError::Url`] and [`ManagerError::Listen`], with the cause.
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    ///
    /// let mut manager = Manager::new(|_, _| {})?;
    /// let listener = manager.listen("http://127.0.0.1:0")?;
    /// let mut conn = manager.conn(listener).expect("it was just made");
    /// assert!(conn.is_listening());
    /// assert_ne!(conn.local_address().map(|address| address.port()), Some(0));
    /// assert!(manager.listen("ftp://127.0.0.1").is_err());
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn listen(&mut self, url: &str) -> Result<u64, ManagerError> {
        self.act(|scope| scope.listen(url))
    }

    /// As [`listen`](Self::listen), with a handler for this listener and its clients.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    ///
    /// ```
    /// use dwell_engine::manager::{Event, Manager};
    ///
    /// // Pages on one port, and what an operator asks for on another.
    /// let mut manager = Manager::new(|conn, event| {
    ///     if let Event::HttpMessage(_) = event {
    ///         let _ = conn.reply(200, &[], b"a page");
    ///     }
    /// })?;
    /// manager.listen("http://127.0.0.1:0")?;
    /// manager.listen_with("tcp://127.0.0.1:0", |conn, event| {
    ///     if let Event::Accept = event {
    ///         let count = conn.scope().connections().len();
    ///         let _ = conn.send(format!("{count} connections\n").as_bytes());
    ///         conn.close();
    ///     }
    /// })?;
    /// assert_eq!(manager.connections(), [1, 2]);
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn listen_with(
        &mut self,
        url: &str,
        handler: impl FnMut(&mut Conn<'_>, Event<'_>) + Send + 'static,
    ) -> Result<u64, ManagerError> {
        self.act(|scope| scope.listen_with(url, handler))
    }

    /// Starts connecting to a URL as [`listen`](Self::listen) takes it, or to `https://host:port`
    /// or `tls://host:port` with the certificates that the system trusts; returns the connection's
    /// id. `Connect`, or `Error` and `Close`, follow in a poll.
    ///
    /// # Errors
    /// [`ManagerError::Url`] and [`ManagerError::Connect`], with the cause.
    ///
    /// ```
    /// use dwell_engine::manager::{Event, Manager};
    /// use std::time::Duration;
    ///
    /// let (tell, told) = std::sync::mpsc::channel();
    /// let mut manager = Manager::new(move |conn, event| match event {
    ///     // Both ends are on this manager.
    ///     Event::Connect => {
    ///         assert!(conn.is_client());
    ///         let _ = conn.request("GET", "/status", &[], b"");
    ///     }
    ///     Event::HttpMessage(message) if conn.is_client() => {
    ///         tell.send(message.status()).expect("the receiver is below");
    ///     }
    ///     Event::HttpMessage(_) => drop(conn.reply_json(200, r#"{"ready": true}"#)),
    ///     _ => {}
    /// })?;
    /// let listener = manager.listen("http://127.0.0.1:0")?;
    /// let address = manager.conn(listener).and_then(|mut conn| conn.local_address());
    /// manager.connect(&format!("http://{}", address.expect("it listens")))?;
    /// let status = loop {
    ///     manager.poll(Duration::from_secs(5))?;
    ///     if let Ok(status) = told.try_recv() {
    ///         break status;
    ///     }
    /// };
    /// assert_eq!(status, Some(200));
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn connect(&mut self, url: &str) -> Result<u64, ManagerError> {
        self.act(|scope| scope.connect(url))
    }

    /// As [`connect`](Self::connect), with a handler for this connection.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// ```
    /// use dwell_engine::manager::{Event, Manager};
    ///
    /// let mut manager = Manager::new(|_, _| {})?;
    /// let listener = manager.listen("tcp://127.0.0.1:0")?;
    /// let address = manager.conn(listener).and_then(|mut conn| conn.local_address());
    /// let url = format!("tcp://{}", address.expect("it listens"));
    /// // What comes on this connection is told to this handler alone.
    /// let id = manager.connect_with(&url, |conn, event| match event {
    ///     Event::Connect => drop(conn.send(b"hello")),
    ///     Event::Error(text) => eprintln!("connection {}: {text}", conn.id()),
    ///     _ => {}
    /// })?;
    /// assert!(manager.connections().contains(&id));
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn connect_with(
        &mut self,
        url: &str,
        handler: impl FnMut(&mut Conn<'_>, Event<'_>) + Send + 'static,
    ) -> Result<u64, ManagerError> {
        self.act(|scope| scope.connect_with(url, handler))
    }

    /// Starts connecting to `ws://host:port/path` (`wss`, `ws+unix:///path`) as a WebSocket;
    /// `WebSocketOpen`, or `Error` and `Close`, follow in a poll.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// ```
    /// use dwell_engine::manager::{Event, Manager};
    /// use dwell_engine::websocket::UpgradeOptions;
    /// use std::time::Duration;
    ///
    /// let (tell, told) = std::sync::mpsc::channel();
    /// let mut manager = Manager::new(move |conn, event| match event {
    ///     Event::HttpMessage(message) => {
    ///         let _ = conn.ws_upgrade(&message, &UpgradeOptions::default());
    ///     }
    ///     Event::WebSocketOpen if conn.is_client() => drop(conn.ws_text("hello")),
    ///     Event::WebSocketMessage { data, .. } => {
    ///         tell.send(data.to_vec()).expect("the receiver is below");
    ///     }
    ///     _ => {}
    /// })?;
    /// let listener = manager.listen("ws://127.0.0.1:0")?;
    /// let address = manager.conn(listener).and_then(|mut conn| conn.local_address());
    /// manager.ws_connect(&format!("ws://{}/chat", address.expect("it listens")))?;
    /// while told.try_recv().as_deref() != Ok(b"hello") {
    ///     manager.poll(Duration::from_secs(5))?;
    /// }
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn ws_connect(&mut self, url: &str) -> Result<u64, ManagerError> {
        self.act(|scope| scope.ws_connect(url))
    }

    /// Calls `callback` once after `delay`, or with `repeat` each time it has passed.
    ///
    /// Shape: never early, and late by at most 20 ms and the turn; times come in steps of 10 ms.
    /// A delay of zero is due in the next poll. A timer that repeats keeps its grid; what a late
    /// poll has missed is left out. Waiting polls end when a timer is due.
    ///
    /// # Errors
    /// [`ManagerError::Closed`].
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    /// use std::time::Duration;
    ///
    /// let (tell, told) = std::sync::mpsc::channel();
    /// let mut manager = Manager::new(|_, _| {})?;
    /// manager.timer(Duration::from_millis(20), false, move |_| {
    ///     tell.send("due").expect("the receiver is below");
    /// })?;
    /// manager.poll(Duration::from_secs(5))?;
    /// assert_eq!(told.try_recv(), Ok("due"));
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn timer(
        &mut self,
        delay: Duration,
        repeat: bool,
        callback: impl FnMut(&mut Scope<'_>) + Send + 'static,
    ) -> Result<Timer, ManagerError> {
        self.act(|scope| Ok(scope.timer(delay, repeat, callback)))
    }

    /// Everything that can be done from outside of handlers, at once.
    ///
    /// # Errors
    /// [`ManagerError::Closed`].
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    ///
    /// let mut manager = Manager::new(|_, _| {})?;
    /// let mut scope = manager.scope()?;
    /// let listener = scope.listen("tcp://127.0.0.1:0")?;
    /// assert_eq!(scope.connections(), [listener]);
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn scope(&mut self) -> Result<Scope<'_>, ManagerError> {
        let Inner { event_loop, hub } = self.inner.as_mut().ok_or(ManagerError::Closed)?;
        Ok(hub.scope(event_loop.context()))
    }

    /// Calls `call` with everything in reach, as [`Waker::call`] does from another thread. Handlers
    /// are called for its effects before this returns.
    ///
    /// # Errors
    /// [`ManagerError::Closed`].
    pub fn call<R>(&mut self, call: impl FnOnce(&mut Scope<'_>) -> R) -> Result<R, ManagerError> {
        let Inner { event_loop, hub } = self.inner.as_mut().ok_or(ManagerError::Closed)?;
        let context = event_loop.context();
        let result = call(&mut hub.scope(context));
        hub.settle(context);
        Ok(result)
    }

    /// A connection or listener, with everything in reach; `None` when it is gone.
    ///
    /// ```
    /// use dwell_engine::manager::Manager;
    ///
    /// let mut manager = Manager::new(|_, _| {})?;
    /// let listener = manager.listen("tcp://127.0.0.1:0")?;
    /// if let Some(mut conn) = manager.conn(listener) {
    ///     conn.close();
    /// }
    /// manager.poll(std::time::Duration::ZERO)?;
    /// assert!(manager.conn(listener).is_none());
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn conn(&mut self, id: u64) -> Option<Conn<'_>> {
        self.scope().ok()?.into_conn(id)
    }

    /// The ids of all connections and listeners, in rising order.
    pub fn connections(&self) -> Vec<u64> {
        self.inner
            .as_ref()
            .map_or_else(Vec::new, |inner| inner.hub.state.ids())
    }

    /// Returns the number of connections and listeners.
    pub fn connection_count(&self) -> usize {
        self.inner.as_ref().map_or(0, |inner| inner.hub.state.len())
    }

    /// A handle that wakes this manager from any thread.
    pub fn waker(&self) -> Waker {
        self.waker.clone()
    }

    /// Ends the next poll at once; as [`Waker::wakeup`].
    ///
    /// # Errors
    /// [`WakeupError::Closed`].
    pub fn wakeup(&self) -> Result<(), WakeupError> {
        self.waker.wakeup()
    }

    /// As [`Waker::wakeup_with`].
    ///
    /// # Errors
    /// As [`Waker::wakeup_with`].
    ///
    /// ```
    /// use dwell_engine::manager::{Event, Manager, WakeupError};
    /// use std::time::Duration;
    ///
    /// let (tell, told) = std::sync::mpsc::channel();
    /// let mut manager = Manager::new(move |_, event| {
    ///     if let Event::Wakeup(data) = event {
    ///         tell.send(data.to_vec()).expect("the receiver is below");
    ///     }
    /// })?;
    /// let listener = manager.listen("tcp://127.0.0.1:0")?;
    /// manager.wakeup_with(listener, "news").expect("it is open");
    /// manager.poll(Duration::from_secs(5))?;
    /// assert_eq!(told.try_recv().as_deref(), Ok(&b"news"[..]));
    /// manager.close();
    /// assert_eq!(manager.wakeup(), Err(WakeupError::Closed));
    /// # Ok::<(), dwell_engine::manager::ManagerError>(())
    /// ```
    pub fn wakeup_with(&self, id: u64, data: impl Into<bytes::Bytes>) -> Result<(), WakeupError> {
        self.waker.wakeup_with(id, data)
    }

    /// Returns how often a handler or callback has panicked. Each panic costs its connection, and
    /// no more.
    pub fn panics(&self) -> u64 {
        self.inner
            .as_ref()
            .map_or(0, |inner| inner.hub.state.panics)
    }

    /// Returns how many clients were turned away, because there were too many or no descriptor was
    /// left.
    pub fn refused(&self) -> u64 {
        self.inner
            .as_ref()
            .map_or(0, |inner| inner.hub.state.refused)
    }

    /// Returns true after [`close`](Self::close).
    pub fn is_closed(&self) -> bool {
        self.inner.is_none()
    }

    /// Does `act` with everything in reach, and what that has deferred.
    fn act<T>(
        &mut self,
        act: impl FnOnce(&mut Scope<'_>) -> Result<T, ManagerError>,
    ) -> Result<T, ManagerError> {
        self.call(act)?
    }
}

impl fmt::Debug for Manager {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Manager")
            .field("connections", &self.connection_count())
            .field("is_closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}
