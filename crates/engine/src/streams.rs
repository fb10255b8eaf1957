//! Raw byte streams as a component of a driver: any protocol can live on the loop.

mod app;
mod connection;
mod visit;

use crate::Detached;
pub use app::StreamApp;
use connection::{Connection, State};
pub use connection::{StreamEnd, StreamRef};
use dwell_evloop::{
    Accepted, Context, Flushed, INPUT_BYTES, Listener, Listeners, Peer, Readiness, Slab, Stream,
    Token, WritePace,
};
use std::io;
use std::net::SocketAddr;
use std::time::Duration;
use visit::Visit;

/// Listeners of one component.
const LISTENERS_MAX: usize = 1024;

/// Bounds of a [`Streams`] component; each but the idle timeout has a finite default.
///
/// ```
/// use dwell_engine::StreamLimits;
/// use std::time::Duration;
///
/// let limits = StreamLimits {
///     idle_timeout: Some(Duration::from_secs(600)),
///     ..StreamLimits::default()
/// };
/// assert_eq!(limits.input_bytes_max, 32 * 1024);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct StreamLimits {
    /// Connections held at once; more are closed as they come. Default 100,000.
    pub connections_max: usize,
    /// Input that is kept because the app has not used it. Default 32 KiB.
    pub input_bytes_max: usize,
    /// Output that may wait for the socket; a write beyond it is refused. Default 1 MiB.
    pub output_bytes_max: usize,
    /// From the start of a connect to its end, with its handshake of TLS; and, of a manager's
    /// `ws_connect`, for the answer to its handshake. Default 10 s.
    pub connect_timeout: Duration,
    /// Time for which the peer may take nothing of its queued output, or less than
    /// `write_rate_min`. Default 30 s.
    pub write_timeout: Duration,
    /// Bytes a second that a peer takes at least while output waits for it, on the average of a
    /// `write_timeout`; with 0 a single byte is enough. Default 512.
    pub write_rate_min: u32,
    /// Time for which no byte may come or go; `None` by default, as a raw protocol may be silent.
    pub idle_timeout: Option<Duration>,
}

impl StreamLimits {
    fn write_pace(&self) -> WritePace {
        WritePace {
            rate_min: self.write_rate_min,
            timeout: self.write_timeout,
        }
    }
}

impl Default for StreamLimits {
    fn default() -> Self {
        Self {
            connections_max: 100_000,
            input_bytes_max: 32 * 1024,
            output_bytes_max: 1024 * 1024,
            connect_timeout: Duration::from_secs(10),
            write_timeout: Duration::from_secs(30),
            write_rate_min: crate::limits::WRITE_RATE_MIN,
            idle_timeout: None,
        }
    }
}

/// Raw streams on one loop: accepted, connected, or taken over from a protocol that upgraded.
///
/// An idle stream owns no buffer, and costs an entry of at most 128 bytes.
///
/// ```
/// use dwell_engine::{StreamApp, StreamEnd, StreamLimits, StreamRef, Streams};
/// use dwell_evloop::{Context, Driver, EventLoop, ListenOptions, Readiness, Token, bind_group};
/// use std::io::{Read, Write};
///
/// /// Sends back what comes.
/// struct Echo;
/// impl StreamApp for Echo {
///     fn opened(&mut self, _: &mut Context, _: &mut StreamRef<'_>, _: u64) {}
///     fn data(
///         &mut self,
///         _: &mut Context,
///         stream: &mut StreamRef<'_>,
///         input: &[u8],
///         _: usize,
///     ) -> usize {
///         if stream.write(input) { input.len() } else { 0 }
///     }
///     fn closed(&mut self, context: &mut Context, _: Token, _: u64, _: StreamEnd) {
///         context.stop();
///     }
/// }
///
/// struct Server(Streams);
/// impl Driver for Server {
///     type Message = ();
///     fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
///         self.0.ready(context, token, readiness, &mut Echo);
///     }
///     fn expired(&mut self, context: &mut Context, token: Token) {
///         self.0.expired(context, token, &mut Echo);
///     }
///     fn message(&mut self, _: &mut Context, (): ()) {}
/// }
///
/// let mut event_loop = EventLoop::new()?;
/// let mut server = Server(Streams::new(1, 2, StreamLimits::default()));
/// let any = ([127, 0, 0, 1], 0).into();
/// let listener = bind_group(any, 1, ListenOptions::default())?.remove(0);
/// let address = listener.address().expect("it is no unix socket");
/// server.0.listen(event_loop.context(), listener, 0)?;
/// let peer = std::thread::spawn(move || -> std::io::Result<[u8; 5]> {
///     let mut stream = std::net::TcpStream::connect(address)?;
///     stream.write_all(b"hello")?;
///     let mut echo = [0; 5];
///     stream.read_exact(&mut echo)?;
///     Ok(echo)
/// });
/// event_loop.run(&mut server)?;
/// assert_eq!(&peer.join().expect("it does not panic")?, b"hello");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Streams {
    kind_listener: u8,
    limits: StreamLimits,
    /// Each with the tag of its clients.
    listeners: Listeners<u64>,
    connections: Slab<Connection>,
}

impl Streams {
    /// Makes a component without listeners; no other component of the loop may use its kinds.
    ///
    /// # Panics
    /// When `limits.input_bytes_max` is not below the loop's input buffer, [`INPUT_BYTES`].
    pub fn new(kind_listener: u8, kind_connection: u8, limits: StreamLimits) -> Self {
        assert!(
            limits.input_bytes_max < INPUT_BYTES,
            "kept input must fit the input buffer"
        );
        Self {
            kind_listener,
            limits,
            listeners: Listeners::new(kind_listener, LISTENERS_MAX),
            connections: Slab::new(kind_connection, limits.connections_max),
        }
    }

    /// Streams open now, those included that are connecting or closing.
    pub fn connections(&self) -> usize {
        self.connections.len()
    }

    /// Accepts the clients of `listener` from now on; each is announced with `tag`.
    ///
    /// # Errors
    /// When the loop cannot register it, or there are 1024 already.
    pub fn listen(
        &mut self,
        context: &mut Context,
        listener: Listener,
        tag: u64,
    ) -> io::Result<Token> {
        self.listeners.listen(context, listener, tag)
    }

    /// Stops listening; the streams accepted before live on. False where there is no such listener.
    pub fn unlisten(&mut self, context: &mut Context, listener: Token) -> bool {
        self.listeners.unlisten(context, listener)
    }

    /// Starts connecting to `address`; [`StreamApp::connected`] or [`StreamApp::closed`] follows.
    ///
    /// # Errors
    /// When no socket can be made, the system refuses at once, or there are too many streams.
    pub fn connect(
        &mut self,
        context: &mut Context,
        address: SocketAddr,
        tag: u64,
    ) -> io::Result<Token> {
        let stream = Stream::connect(address)?;
        self.adopt_connecting(context, stream, tag)
    }

    /// Takes over a socket that is connecting; as [`connect`](Self::connect).
    ///
    /// # Errors
    /// When the loop cannot register it, or there are too many streams.
    ///
    /// ```
    /// use dwell_engine::Streams;
    /// use dwell_evloop::{Context, Stream, Token};
    /// use std::io;
    /// use std::path::Path;
    ///
    /// /// Connects to a program on the same machine.
    /// fn connect(streams: &mut Streams, context: &mut Context, path: &Path) -> io::Result<Token> {
    ///     streams.adopt_connecting(context, Stream::connect_unix(path)?, 0)
    /// }
    /// #
    /// # use dwell_engine::StreamLimits;
    /// # let mut event_loop = dwell_evloop::EventLoop::<()>::new()?;
    /// # let mut streams = Streams::new(0, 1, StreamLimits::default());
    /// # let folder = tempfile::tempdir()?;
    /// # let path = folder.path().join("program.socket");
    /// # let listener = std::os::unix::net::UnixListener::bind(&path)?;
    /// # let token = connect(&mut streams, event_loop.context(), &path)?;
    /// # assert_eq!(token.kind(), 1);
    /// # listener.accept()?;
    /// # Ok::<(), io::Error>(())
    /// ```
    pub fn adopt_connecting(
        &mut self,
        context: &mut Context,
        stream: Stream,
        tag: u64,
    ) -> io::Result<Token> {
        let token = self.insert(context, Peer::new(stream), tag, State::Connecting)?;
        context.arm(token, self.limits.connect_timeout);
        Ok(token)
    }

    /// Takes over a connected stream that is registered with no loop, and the bytes that were read
    /// from it but not used; those are handed to [`StreamApp::data`] in the next turn. Queued
    /// output goes out first.
    ///
    /// # Errors
    /// When the loop cannot register it, or there are too many streams.
    pub fn adopt(
        &mut self,
        context: &mut Context,
        stream: Stream,
        input: Vec<u8>,
        tag: u64,
    ) -> io::Result<Token> {
        let peer = Peer::from(Detached { stream, input });
        let token = self.insert(context, peer, tag, State::Open)?;
        if let Some(connection) = self.connections.get_mut(token) {
            // What came before the registration is told by it, but the kept input is not.
            context.again(token, Readiness::READABLE);
            connection.blocked = connection.has_output();
            if connection.peer.stream.flushed() == Flushed::More {
                // Nor is that the socket would take more of a file.
                context.again(token, Readiness::WRITABLE);
            }
            visit::arm(context, token, connection, &self.limits);
        }
        Ok(token)
    }

    /// A socket of this component is ready.
    pub fn ready<A: StreamApp>(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        app: &mut A,
    ) {
        if token.kind() == self.kind_listener {
            self.accept(context, token, app);
        } else {
            self.visit(context, token, app, |visit| visit.ready(readiness));
        }
    }

    /// The deadline of a token of this component has passed.
    pub fn expired<A: StreamApp>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        if token.kind() == self.kind_listener {
            self.accept(context, token, app);
        } else {
            self.visit(context, token, app, |visit| {
                visit.expired();
            });
        }
    }

    /// Takes a stream out of the component, with its unused input. Returns `None` if it is gone.
    /// The app is not called.
    pub fn detach(&mut self, context: &mut Context, token: Token) -> Option<Detached> {
        let mut connection = self.connections.remove(token)?;
        context.disarm(token);
        // It fails only for a socket that the loop has no registration of, which is as well.
        let _ = context.deregister(&mut connection.peer.stream);
        Some(connection.peer.into())
    }

    /// Lets `act` work on one stream, from outside its callbacks; `None` where it is gone.
    ///
    /// Shape: what `act` ends is told by [`StreamApp::closed`] in the next turn, not before this
    /// returns.
    ///
    /// ```
    /// use dwell_engine::Streams;
    /// use dwell_evloop::{Context, Token};
    ///
    /// /// Reads no more from a peer that does not read itself.
    /// fn throttle(streams: &mut Streams, context: &mut Context, token: Token) -> bool {
    ///     let is_held = streams.with_stream(context, token, |stream| {
    ///         if stream.is_full() {
    ///             stream.pause();
    ///         }
    ///         println!("{:?} has {} bytes to take", stream.token(), stream.queued_bytes());
    ///         stream.is_paused()
    ///     });
    ///     is_held.unwrap_or(false)
    /// }
    /// #
    /// # use dwell_engine::StreamLimits;
    /// # let mut event_loop = dwell_evloop::EventLoop::<()>::new()?;
    /// # let mut streams = Streams::new(0, 1, StreamLimits::default());
    /// # let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// # let token = streams.connect(event_loop.context(), listener.local_addr()?, 0)?;
    /// # assert!(!throttle(&mut streams, event_loop.context(), token), "nothing is queued");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn with_stream<T>(
        &mut self,
        context: &mut Context,
        token: Token,
        act: impl FnOnce(&mut StreamRef<'_>) -> T,
    ) -> Option<T> {
        let connection = self.connections.get_mut(token)?;
        let was_readable = connection.is_readable();
        let result = act(&mut StreamRef {
            token,
            connection,
            limits: &self.limits,
        });
        let resumed = !was_readable && connection.is_readable();
        if connection.is_ending() || connection.has_written() || resumed {
            context.again(token, Readiness::default());
        }
        if connection.times_output != connection.has_output() {
            visit::arm(context, token, connection, &self.limits);
        }
        Some(result)
    }

    /// Writes a copy of `bytes`; false when nothing was taken: it is full, closing or gone.
    pub fn write(&mut self, context: &mut Context, token: Token, bytes: &[u8]) -> bool {
        self.with_stream(context, token, |stream| stream.write(bytes))
            .unwrap_or(false)
    }

    /// Closes a stream in order: what is queued goes out first. Does nothing where it is gone.
    pub fn close(&mut self, context: &mut Context, token: Token) {
        self.with_stream(context, token, |stream| {
            stream.close();
        });
    }

    /// Ends a stream without sending what is queued; as [`StreamRef::abort`]. Does nothing where it
    /// is gone.
    pub fn abort(&mut self, context: &mut Context, token: Token) {
        self.with_stream(context, token, |stream| {
            stream.abort();
        });
    }

    /// Stops reading, so that the peer's sending is held back by the kernel's window.
    pub fn pause(&mut self, context: &mut Context, token: Token) {
        self.with_stream(context, token, |stream| {
            stream.pause();
        });
    }

    /// Reads again.
    pub fn resume(&mut self, context: &mut Context, token: Token) {
        self.with_stream(context, token, |stream| {
            stream.resume();
        });
    }

    /// Ends every stream that is left, and every listener.
    ///
    /// Shape: a peer that was owed more than the system has taken reads a reset, another one the
    /// end.
    pub fn close_all<A: StreamApp>(&mut self, context: &mut Context, app: &mut A) {
        self.listeners.unlisten_all(context);
        let connections: Vec<_> = self.connections.tokens().collect();
        for token in connections {
            self.visit(context, token, app, |visit| visit.end(StreamEnd::Aborted));
        }
    }

    fn insert(
        &mut self,
        context: &mut Context,
        peer: Peer,
        tag: u64,
        state: State,
    ) -> io::Result<Token> {
        let limit = self.limits.connections_max;
        let token = self
            .connections
            .insert(Connection::new(peer, tag, state))
            .map_err(|_| io::Error::other(format!("streams exceed {limit}")))?;
        if let Some(connection) = self.connections.get_mut(token)
            && let Err(error) = context.register(&mut connection.peer.stream, token)
        {
            self.connections.remove(token);
            return Err(error);
        }
        Ok(token)
    }

    fn accept<A: StreamApp>(&mut self, context: &mut Context, token: Token, app: &mut A) {
        let Some(&tag) = self.listeners.note(token) else {
            return;
        };
        // The table is borrowed by the callbacks, so the batch is taken first.
        let mut batch = Vec::new();
        let accept = |_: &mut Context, stream, _| batch.push(stream);
        let accepted = self.listeners.accept(context, token, accept);
        if matches!(accepted, Accepted::Exhausted(_)) {
            app.refused(context);
        }
        for stream in batch {
            match self.insert(context, Peer::new(stream), 0, State::Open) {
                Ok(token) => self.visit(context, token, app, |visit| visit.opened(tag)),
                Err(_) => app.refused(context),
            }
        }
    }

    /// Acts on one connection and takes it out of the table when that was its end.
    fn visit<A: StreamApp>(
        &mut self,
        context: &mut Context,
        token: Token,
        app: &mut A,
        act: impl FnOnce(&mut Visit<'_, A>),
    ) {
        let Some(connection) = self.connections.get_mut(token) else {
            return;
        };
        let mut visit = Visit {
            context,
            app,
            connection,
            token,
            limits: &self.limits,
        };
        act(&mut visit);
        if let Some(end) = visit.settle()
            && let Some(connection) = self.connections.remove(token)
        {
            context.disarm(token);
            if connection.has_output() {
                // What is lost must not look whole.
                connection.peer.stream.reset_on_drop();
            }
            app.closed(context, token, connection.tag, end);
        }
    }
}
