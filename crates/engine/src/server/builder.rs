//! The options of a server, and its start.

use super::error::ServerError;
use super::event_loop::{RAW_INPUT_BYTES_MAX, ServerLoop};
use super::link::LoopLink;
use super::pool::Pool;
use super::running::Running;
use super::state::ServerState;
use super::{Message, Settings};
use crate::handler::Handler;
use crate::limits::Limits;
use crate::websocket::WebSocketOptions;
use dwell_evloop::{
    Acceptor, EventLoop, INPUT_BYTES, ListenOptions, Listener, bind_group, bind_unix,
};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// A server that runs its event loops on threads of its own.
///
/// ```
/// use dwell_engine::handler::Exchange;
/// use dwell_engine::{Request, Server};
/// use std::time::Duration;
///
/// let running = Server::builder()
///     .pollers(2)
///     .max_connections(10_000)
///     .keep_alive_timeout(Duration::from_secs(30))
///     .listen(([127, 0, 0, 1], 0).into())
///     .serve(|_: &Request<'_>, exchange: &mut Exchange<'_, '_>| exchange.text(200, "hello"))?;
/// println!("http://{}", running.addresses()[0]);
/// let shutdown = running.shutdown(Duration::from_secs(5));
/// assert_eq!(shutdown.cut_requests, 0);
/// # Ok::<(), dwell_engine::ServerError>(())
/// ```
#[derive(Debug)]
pub struct Server;

impl Server {
    /// All options at their defaults, and no address.
    pub fn builder() -> ServerBuilder {
        ServerBuilder::default()
    }
}

/// The options of a [`Server`]; each has a finite default.
///
/// ```
/// use dwell_engine::handler::Exchange;
/// use dwell_engine::websocket::WebSocketOptions;
/// use dwell_engine::{Request, Server};
/// use dwell_evloop::ListenOptions;
/// use std::time::Duration;
///
/// # let directory = tempfile::tempdir()?;
/// let mut listen_options = ListenOptions::default();
/// listen_options.backlog = 1024;
/// let running = Server::builder()
///     // Where it listens.
///     .listen(([127, 0, 0, 1], 0).into())
///     .listen_unix(directory.path().join("dwell.socket"))
///     .listen_options(listen_options)
///     // Loops, and what they read into.
///     .pollers(2)
///     .buffer_size(128 * 1024)
///     // How many may come, how often, and how much each may send.
///     .max_connections(100_000)
///     .max_requests_per_connection(10_000)
///     .max_header_bytes(16 * 1024)
///     .max_header_fields(64)
///     .max_target_bytes(4 * 1024)
///     .max_body_bytes(8 << 20)
///     .body_window(64 * 1024)
///     .unread_body_bytes(64 * 1024)
///     .output_bytes(256 * 1024)
///     // For how long.
///     .keep_alive_timeout(Duration::from_secs(60))
///     .header_timeout(Duration::from_secs(5))
///     .read_timeout(Duration::from_secs(20))
///     .min_body_rate(1024)
///     .write_timeout(Duration::from_secs(20))
///     .answer_timeout(Duration::from_secs(90))
///     .half_close(true)
///     .h2c(true)
///     .web_socket_options(WebSocketOptions::default())
///     // Handlers that block.
///     .workers(16)
///     .worker_queue(256)
///     .shutdown_on_signals(Duration::from_secs(10))
///     .serve(|_: &Request<'_>, exchange: &mut Exchange<'_, '_>| exchange.text(200, "hello"))?;
/// assert_eq!(running.paths().count(), 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
#[must_use]
pub struct ServerBuilder {
    addresses: Vec<SocketAddr>,
    paths: Vec<PathBuf>,
    listen_options: ListenOptions,
    /// Puts clients under TLS, if it is there.
    acceptor: Option<Acceptor>,
    pollers: usize,
    buffer_size: usize,
    workers: usize,
    worker_queue: usize,
    signal_deadline: Option<Duration>,
    pub(super) settings: Settings,
}

/// Signals that end a server that watches them: SIGINT and SIGTERM, the same everywhere.
const SIGNALS: [i32; 2] = [2, 15];

impl Default for ServerBuilder {
    fn default() -> Self {
        let limits = Limits::default();
        let cores = thread::available_parallelism().map_or(1, usize::from);
        Self {
            addresses: Vec::new(),
            paths: Vec::new(),
            listen_options: ListenOptions::default(),
            acceptor: None,
            pollers: cores,
            buffer_size: INPUT_BYTES,
            workers: 4 * cores,
            worker_queue: 1024,
            signal_deadline: None,
            settings: Settings {
                limits,
                max_connections: limits.connections_max,
                max_body_bytes: 1024 * 1024,
                body_window_bytes: 64 * 1024,
                answer_timeout: Duration::from_secs(300),
                half_close: false,
                h2c: false,
                #[cfg(feature = "tls")]
                http2: false,
                web_socket: WebSocketOptions::default(),
            },
        }
    }
}

impl ServerBuilder {
    /// Listens on a TCP address; port 0 takes a free one. May be called several times.
    pub fn listen(mut self, address: SocketAddr) -> Self {
        self.addresses.push(address);
        self
    }

    /// Listens on a unix socket at this path. May be called several times.
    ///
    /// Shape: one loop accepts its clients and hands them to the others.
    pub fn listen_unix(mut self, path: impl Into<PathBuf>) -> Self {
        self.paths.push(path.into());
        self
    }

    /// Sets the options of listening sockets: backlog, and permissions of unix sockets.
    pub fn listen_options(mut self, options: ListenOptions) -> Self {
        self.listen_options = options;
        self
    }

    /// Puts all clients under TLS, over TCP and unix sockets; see [`Tls`](crate::tls::Tls), whose
    /// clone replaces certificates while the server runs. A client that does not speak TLS gets
    /// 400.
    ///
    /// Shape: threads get no connection under TLS:
    /// [`take_over_blocking`](crate::handler::Responder::take_over_blocking) answers 501 then.
    #[cfg(feature = "tls")]
    pub fn tls(mut self, tls: &crate::tls::Tls) -> Self {
        self.acceptor = Some(tls.acceptor().clone());
        self
    }

    /// Loops, each on a thread of its own. Default: one a core; at least one.
    pub fn pollers(mut self, pollers: usize) -> Self {
        self.pollers = pollers.max(1);
        self
    }

    /// Bytes of the one buffer into which a loop reads for all of its connections; more than
    /// [`max_header_bytes`](Self::max_header_bytes) and 32 KiB. Default 64 KiB.
    pub fn buffer_size(mut self, bytes: usize) -> Self {
        self.buffer_size = bytes;
        self
    }

    /// Clients connected at once, over all loops; more are closed as they come. Default 100,000.
    pub fn max_connections(mut self, connections: usize) -> Self {
        self.settings.max_connections = connections;
        self
    }

    /// Requests answered on one connection before it is closed. Default 100,000.
    pub fn max_requests_per_connection(mut self, requests: u32) -> Self {
        self.settings.limits.requests_per_connection_max = requests;
        self
    }

    /// From an answer to the first byte of the next request; then the connection is closed.
    /// Default 75 s.
    pub fn keep_alive_timeout(mut self, timeout: Duration) -> Self {
        self.settings.limits.idle_timeout = timeout;
        self
    }

    /// From the first byte of a request to the end of its head; then 408. Default 10 s.
    pub fn header_timeout(mut self, timeout: Duration) -> Self {
        self.settings.limits.header_timeout = timeout;
        self
    }

    /// The time that a client may take for a body, beside that of its bytes at `min_body_rate`, and
    /// for a pause in it; of a streamed one only while the handler waits for more. Then 408.
    /// Default 30 s.
    pub fn read_timeout(mut self, timeout: Duration) -> Self {
        self.settings.limits.body_timeout = timeout;
        self
    }

    /// Bytes a second that a client sends at least of a body, on the whole; with 0 a single byte is
    /// enough in each `read_timeout`. Default 512.
    pub fn min_body_rate(mut self, bytes: u32) -> Self {
        self.settings.limits.body_rate_min = bytes;
        self
    }

    /// Sets the time for which a client may take nothing of its response; then it is cut off.
    /// Default 30 s.
    pub fn write_timeout(mut self, timeout: Duration) -> Self {
        self.settings.limits.write_timeout = timeout;
        self
    }

    /// Sets the time that a handler which answers later has for the beginning of its response, from
    /// the last piece of the body it was given; then 503. Default 300 s.
    pub fn answer_timeout(mut self, timeout: Duration) -> Self {
        self.settings.answer_timeout = timeout;
        self
    }

    /// Bytes of a request's head; beyond them 431. Default 16 KiB.
    pub fn max_header_bytes(mut self, bytes: usize) -> Self {
        self.settings.limits.head.head_bytes_max = bytes;
        self
    }

    /// Fields of a request's head; beyond them 431. Default 100, at most 128.
    pub fn max_header_fields(mut self, fields: usize) -> Self {
        self.settings.limits.head.field_count_max = fields;
        self
    }

    /// Bytes of a request's target; beyond them 414. Default 8 KiB.
    pub fn max_target_bytes(mut self, bytes: usize) -> Self {
        self.settings.limits.head.target_bytes_max = bytes;
        self
    }

    /// Bytes of a request's body, gathered or streamed; beyond them 413. Default 1 MiB.
    pub fn max_body_bytes(mut self, bytes: u64) -> Self {
        self.settings.max_body_bytes = bytes;
        self
    }

    /// Bytes of a body that no handler has read that are read all the same after the answer, so
    /// that the connection can go on; with more left it is closed. Default 256 KiB.
    pub fn unread_body_bytes(mut self, bytes: u64) -> Self {
        self.settings.limits.unread_body_bytes_max = bytes;
        self
    }

    /// Bytes of a streamed body that are taken ahead of its reader. Default 64 KiB; at least one.
    pub fn body_window(mut self, bytes: u64) -> Self {
        self.settings.body_window_bytes = bytes.max(1);
        self
    }

    /// Bytes of a streaming answer that may wait for a slow reader before its writer is held up;
    /// and bytes that other threads may have on their way to a connection that has left HTTP.
    /// Default 1 MiB; at least one.
    pub fn output_bytes(mut self, bytes: usize) -> Self {
        self.settings.limits.output_bytes_max = bytes.max(1);
        self
    }

    /// Keeps a client that ends its sending side while it waits, and answers it. Default false: the
    /// client is taken to have left, as most that do so have, and its exchange is cancelled.
    pub fn half_close(mut self, half_close: bool) -> Self {
        self.settings.half_close = half_close;
        self
    }

    /// Serves clients without TLS that begin with the preface of HTTP/2, too (RFC 9113 section
    /// 3.3). Default false. WebSockets and connections that are taken over need HTTP/1.1.
    pub fn h2c(mut self, h2c: bool) -> Self {
        self.settings.h2c = h2c;
        self
    }

    /// Offers HTTP/2 to clients under [TLS](Self::tls), beside HTTP/1.1 (`h2`, by ALPN). Default
    /// false. Features that need HTTP/1.1 behave as with [`h2c`](Self::h2c), which is for clients
    /// without TLS.
    ///
    /// ```
    /// use dwell_engine::tls::Tls;
    /// use dwell_engine::{Server, ServerBuilder};
    ///
    /// /// Lets clients speak HTTP/2, whether they are under TLS or not.
    /// fn everywhere(builder: ServerBuilder, tls: Option<&Tls>) -> ServerBuilder {
    ///     match tls {
    ///         Some(tls) => builder.tls(tls).http2(true),
    ///         None => builder.h2c(true),
    ///     }
    /// }
    /// #
    /// # let certificate = dwell_testkit::pem::CERTIFICATE;
    /// # let key = dwell_testkit::pem::KEY;
    /// # let tls = Tls::builder().certificate_pem(certificate, key).build()?;
    /// # let _builders = [Some(&tls), None].map(|tls| everywhere(Server::builder(), tls));
    /// # Ok::<(), dwell_engine::tls::TlsError>(())
    /// ```
    #[cfg(feature = "tls")]
    pub fn http2(mut self, http2: bool) -> Self {
        self.settings.http2 = http2;
        self
    }

    /// Sets the limits of `WebSocket`s. Their number is limited by
    /// [`max_connections`](Self::max_connections).
    pub fn web_socket_options(mut self, options: WebSocketOptions) -> Self {
        self.settings.web_socket = options;
        self
    }

    /// Threads of the worker pool, which start as they are needed. Default 4 a core; at least one.
    pub fn workers(mut self, workers: usize) -> Self {
        self.workers = workers.max(1);
        self
    }

    /// Jobs that may wait for a worker; beyond them 503. Default 1024.
    pub fn worker_queue(mut self, jobs: usize) -> Self {
        self.worker_queue = jobs;
        self
    }

    /// Lets SIGINT and SIGTERM [shut down](Running::shutdown) the server with this deadline; a
    /// second one ends it at once. Default: signals are left alone.
    pub fn shutdown_on_signals(mut self, deadline: Duration) -> Self {
        self.signal_deadline = Some(deadline);
        self
    }

    /// Listens and starts the loops.
    ///
    /// # Errors
    /// [`ServerError`].
    pub fn serve(self, handler: impl Handler) -> Result<Running, ServerError> {
        self.check()?;
        let mut settings = self.settings;
        // The server counts; a loop must be able to hold whatever is given to it.
        settings.limits.connections_max = usize::MAX;
        settings.web_socket.connections_max = usize::MAX;
        let (addresses, mut listeners) = self.bind()?;
        let mut loops = Vec::new();
        for _ in 0..self.pollers {
            let made = EventLoop::<Message>::with_input_bytes(self.buffer_size);
            let event_loop = made.map_err(ServerError::Loop)?;
            let link = Arc::new(LoopLink::new(event_loop.sender(), &settings));
            loops.push((event_loop, link));
        }
        if let (Some(_), Some((first, _))) = (self.signal_deadline, loops.first_mut()) {
            for signal in SIGNALS {
                first.watch_signal(signal).map_err(ServerError::Loop)?;
            }
        }
        let links = loops.iter().map(|(_, link)| Arc::clone(link)).collect();
        let pool = Arc::new(Pool::new(self.workers, self.worker_queue));
        let server = Arc::new(ServerState::new(links, pool, &settings));
        let handler = Arc::new(handler);
        let mut running = Running::new(addresses, self.paths, Arc::clone(&server));
        for (number, (event_loop, link)) in loops.into_iter().enumerate() {
            let (handler, server) = (Arc::clone(&handler), Arc::clone(&server));
            let listeners = std::mem::take(&mut listeners[number]);
            let deadline = self.signal_deadline.filter(|_| number == 0);
            let buffer_size = self.buffer_size;
            let builder = thread::Builder::new().name(format!("dwell-loop-{number}"));
            let thread = builder.spawn(move || {
                // Futures need not be `Send`, so what holds them is made where it stays.
                ServerLoop::new(handler, &link, &server, deadline, buffer_size)
                    .run(event_loop, listeners)
            });
            running.add(thread.map_err(ServerError::Loop)?);
        }
        Ok(running)
    }

    fn check(&self) -> Result<(), ServerError> {
        if self.addresses.is_empty() && self.paths.is_empty() {
            return Err(ServerError::NoAddress);
        }
        let head = self.settings.limits.head.head_bytes_max;
        at_least(
            "buffer_size",
            head.max(RAW_INPUT_BYTES_MAX) + 1,
            self.buffer_size,
        )?;
        at_least("max_connections", 1, self.settings.max_connections)
    }

    /// Binds every address; returns those of TCP, and the listeners of each loop.
    fn bind(&self) -> Result<(Vec<SocketAddr>, Vec<Vec<Listener>>), ServerError> {
        let mut listeners: Vec<_> = (0..self.pollers).map(|_| Vec::new()).collect();
        let mut addresses = Vec::new();
        for address in &self.addresses {
            let group = bind_group(*address, self.pollers, self.listen_options);
            let group = group.map_err(|source| ServerError::Listen {
                address: address.to_string(),
                source,
            })?;
            addresses.extend(group.first().and_then(Listener::address));
            for (own, listener) in listeners.iter_mut().zip(group) {
                own.push(listener);
            }
        }
        for (number, path) in self.paths.iter().enumerate() {
            let listener = bind_unix(path, self.listen_options);
            let listener = listener.map_err(|source| ServerError::Listen {
                address: path.display().to_string(),
                source,
            })?;
            listeners[number % self.pollers].push(listener);
        }
        let acceptor = self.acceptor.clone();
        #[cfg(feature = "tls")]
        let acceptor = match acceptor {
            Some(acceptor) if self.settings.http2 => Some(acceptor.with_http2()),
            acceptor => acceptor,
        };
        for listener in listeners.iter_mut().flatten() {
            listener.secure(acceptor.clone());
        }
        Ok((addresses, listeners))
    }
}

fn at_least(option: &'static str, limit: usize, value: usize) -> Result<(), ServerError> {
    if value < limit {
        return Err(ServerError::TooSmall {
            option,
            limit,
            value,
        });
    }
    Ok(())
}
