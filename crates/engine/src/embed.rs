//! An engine for hosts that have a scheduler of their own.
//!
//! A [`Manager`](crate::manager::Manager) and a [`Server`](crate::Server) call handlers. An
//! [`Engine`] calls nothing: a [`turn`](Engine::turn) fills a [`Batch`] with plain [`Event`]s, and
//! the host, which may be the runtime of another language, answers with [`Command`]s at any time.
//! All things are named by handles of 64 bits, 24 of them a generation, so an order for a
//! connection that is gone is a cheap no-op. A host with a poller of its own watches the engine's
//! descriptor ([`AsFd`]) and calls `turn` with a zero wait. It asks [`wait_max`](Engine::wait_max)
//! after its last order, and takes its next turn no later than that.
//!
//! The bindings to C and Go stand on it; Python's web servers use [`Http`](crate::Http).
//!
//! ```
//! use dwell_engine::embed::{Batch, Command, Engine, EventKind, FieldLines, Operation, Options};
//! use std::io::{Read, Write};
//!
//! let mut engine = Engine::new(Options::default())?;
//! let address = engine.listen(([127, 0, 0, 1], 0).into())?;
//! let client = std::thread::spawn(move || -> std::io::Result<String> {
//!     let mut stream = std::net::TcpStream::connect(address)?;
//!     stream.write_all(b"GET /there HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
//!     let mut answer = String::new();
//!     stream.read_to_string(&mut answer)?;
//!     Ok(answer)
//! });
//! let mut batch = Batch::new();
//! while engine.statistics().requests == 0 || engine.connections() > 0 {
//!     engine.turn(None, &mut batch)?;
//!     for event in batch.events() {
//!         if let Some(request) = batch.request(event) {
//!             let answer = Command {
//!                 status: 200,
//!                 fields: FieldLines(b"Content-Type: text/plain\n"),
//!                 bytes: request.target(),
//!                 ..Operation::Answer.on(event.handle)
//!             };
//!             engine.execute(&answer)?;
//!         }
//!     }
//! }
//! let answer = client.join().expect("it does not panic")?;
//! assert!(answer.ends_with("\r\n\r\n/there"), "{answer}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod batch;
mod command;
mod hub;
mod options;
mod remote;
mod state;
#[cfg(test)]
mod tests;
mod works;

pub use batch::{Batch, Event, EventKind, RequestView, request_flags};
pub use command::{
    Command, CommandError, Commands, FieldLines, Operation, upgrade_flags, write_flags,
};
pub use options::Options;
pub use remote::Remote;

use crate::reply::Reply;
use crate::{Detached, PeerCertificates, TlsFacts};
use dwell_evloop::{
    EventLoop, FileSlice, INPUT_BYTES, ListenOptions, Listener, Stream, Token, bind_group,
    bind_unix,
};
use hub::Hub;
use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

/// The kinds of names of an engine; part of what a handle is made of.
mod kind {
    pub(super) const EXCHANGE: u8 = FREE;

    use crate::components::kind::FREE;
    pub(super) use crate::components::kind::{CONNECTION, HTTP2_STREAM, STREAM, WEBSOCKET};
}

/// Counters of an engine since its start, and its current sizes.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
#[repr(C)]
pub struct Statistics {
    /// Clients that were given a place.
    pub accepted: u64,
    /// Clients that were turned away: there were too many, or no descriptor was left.
    pub refused: u64,
    /// Requests that were handed over.
    pub requests: u64,
    /// Requests that the engine answered without the host.
    pub rejected: u64,
    /// Clients that took nothing of their answer for too long.
    pub write_timeouts: u64,
    /// Orders whose handle named nothing any more.
    pub stale: u64,
    /// Requests whose response is owed now.
    pub held: u64,
    /// HTTP connections open now.
    pub connections: u64,
    /// WebSocket connections open now.
    pub websockets: u64,
    /// Raw streams open now.
    pub streams: u64,
    /// Turns that were taken.
    pub turns: u64,
}

/// HTTP, WebSocket and raw streams on one loop that its host turns.
///
/// Shape: not for two threads at once, but for one after another; [`remote`](Self::remote) is the
/// way in from elsewhere.
#[derive(Debug)]
pub struct Engine {
    event_loop: EventLoop<Vec<u8>>,
    hub: Hub,
    /// Connections that have left in the last turn.
    departed: Vec<(u64, Detached)>,
}

impl Engine {
    /// Makes an engine that listens nowhere.
    ///
    /// # Errors
    /// `InvalidInput` when a head, or what a raw stream may leave unused, does not fit the input
    /// buffer of [`INPUT_BYTES`]; what the system says when no descriptor is left.
    pub fn new(options: Options) -> io::Result<Self> {
        let head = options.http.head.head_bytes_max;
        let kept = options.streams.input_bytes_max;
        if head.max(kept) >= INPUT_BYTES {
            let error = format!("head or kept input exceeds {INPUT_BYTES} bytes: {head}, {kept}");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, error));
        }
        Ok(Self {
            event_loop: EventLoop::new()?,
            hub: Hub::new(&options),
            departed: Vec::new(),
        })
    }

    /// Listens on a TCP address; returns it with its port.
    ///
    /// # Errors
    /// When the address is taken or not ours, or there are 64 listeners already.
    pub fn listen(&mut self, address: SocketAddr) -> io::Result<SocketAddr> {
        self.listen_as(address, |_| ())
    }

    /// Listens as [`listen`](Self::listen) does, for clients under TLS.
    ///
    /// # Errors
    /// As [`listen`](Self::listen).
    #[cfg(feature = "tls")]
    pub fn listen_tls(
        &mut self,
        address: SocketAddr,
        tls: &crate::tls::Tls,
    ) -> io::Result<SocketAddr> {
        let tls = if self.offers_http2() {
            tls.with_http2()
        } else {
            tls.clone()
        };
        self.listen_as(address, |listener| tls.secure(listener))
    }

    /// Returns true if clients under TLS may choose HTTP/2: then what is put under TLS before it is
    /// handed over [offers](crate::tls::Tls::with_http2) it, too.
    #[cfg(feature = "tls")]
    pub fn offers_http2(&self) -> bool {
        self.hub.state.options.http2
    }

    fn listen_as(
        &mut self,
        mut address: SocketAddr,
        prepare: impl Fn(&mut Listener),
    ) -> io::Result<SocketAddr> {
        for mut listener in bind_group(address, 1, ListenOptions::default())? {
            prepare(&mut listener);
            address = listener.address().unwrap_or(address);
            self.listen_on(listener)?;
        }
        Ok(address)
    }

    /// Listens on a unix socket at this path, in the place of one on which nothing listens.
    ///
    /// # Errors
    /// When something else is there, or there are 64 listeners already.
    pub fn listen_unix(&mut self, path: &Path) -> io::Result<()> {
        self.listen_on(bind_unix(path, ListenOptions::default())?)
    }

    /// Accepts the clients of a listener, such as one that
    /// [`Listener::from_tcp`] has taken over.
    ///
    /// # Errors
    /// When the loop cannot register it, or there are 64 already.
    pub fn listen_on(&mut self, listener: Listener) -> io::Result<()> {
        let context = self.event_loop.context();
        self.hub
            .components
            .http
            .listen(context, listener)
            .map(|_| ())
    }

    /// Serves a client that was accepted elsewhere; returns the name of its connection, or nothing
    /// where there is no room for it. It may have been put under TLS before
    /// ([`Stream::secure`]).
    pub fn adopt(&mut self, stream: Stream) -> Option<u64> {
        let context = self.event_loop.context();
        self.hub.adopt(context, stream)
    }

    /// Takes over a stream that speaks no HTTP, with what was read from it already; returns its
    /// name.
    ///
    /// # Errors
    /// When the loop cannot register it, or there are too many.
    pub fn adopt_stream(&mut self, detached: Detached) -> io::Result<u64> {
        let context = self.event_loop.context();
        let Detached { stream, input } = detached;
        let adopted = self.hub.components.streams.adopt(context, stream, input, 0);
        adopted.map(Token::to_bits)
    }

    /// Waits once, for at most `timeout` (`None`: until something happens), and fills `batch` with
    /// what has happened since the last turn.
    ///
    /// Shape: does not wait where something has happened already. Detached connections that the
    /// host has not taken are closed.
    ///
    /// # Errors
    /// What the system's poll says; the engine is then unusable.
    pub fn turn(&mut self, timeout: Option<Duration>, batch: &mut Batch) -> io::Result<()> {
        batch.clear();
        self.departed.clear();
        let timeout = if self.hub.state.batch.is_empty() {
            timeout
        } else {
            Some(Duration::ZERO)
        };
        self.hub.state.statistics.turns += 1;
        self.hub.resume_held_back(self.event_loop.context());
        self.event_loop.turn(&mut self.hub, timeout)?;
        std::mem::swap(batch, &mut self.hub.state.batch);
        self.departed.append(&mut self.hub.state.departed);
        Ok(())
    }

    /// Returns how long the next turn may wait: zero when work is left, `None` when only readiness
    /// or an order can end it.
    ///
    /// Shape: every order may shorten it, as what it brings about is not told by the descriptor.
    pub fn wait_max(&mut self) -> Option<Duration> {
        if self.hub.state.batch.is_empty() && self.hub.state.held_back.is_empty() {
            self.event_loop.wait_max()
        } else {
            Some(Duration::ZERO)
        }
    }

    /// Carries out one order.
    ///
    /// # Errors
    /// [`CommandError`]; nothing was done then.
    pub fn execute(&mut self, command: &Command<'_>) -> Result<(), CommandError> {
        let context = self.event_loop.context();
        self.hub.execute(context, command)
    }

    /// Carries out orders that were written by [`Commands`]; returns how many of them named nothing
    /// any more.
    ///
    /// Shape: if an order cannot be carried out for another reason, its connection is closed, as
    /// the host must not take unsent bytes for sent. A ping for which there is no room is only left
    /// out.
    ///
    /// # Errors
    /// [`CommandError::Malformed`] where one cannot be read; those before it were carried out.
    pub fn submit(&mut self, commands: &[u8]) -> Result<usize, CommandError> {
        let context = self.event_loop.context();
        self.hub.submit(context, commands)
    }

    /// Lets `make` write the response to a request directly, for uses that no [`Command`] covers.
    /// Returns `None` if the exchange has ended.
    pub fn with_reply<T>(
        &mut self,
        handle: u64,
        make: impl FnOnce(&mut Reply<'_>) -> T,
    ) -> Option<T> {
        let context = self.event_loop.context();
        self.hub.with_reply(context, Token::from_bits(handle), make)
    }

    /// Writes a part of a file, which the kernel copies into the socket; otherwise as
    /// [`Operation::Write`].
    ///
    /// # Errors
    /// As [`execute`](Self::execute).
    pub fn write_file(
        &mut self,
        handle: u64,
        flags: u32,
        slice: FileSlice,
    ) -> Result<(), CommandError> {
        let context = self.event_loop.context();
        let token = Token::from_bits(handle);
        self.hub
            .write(context, token, flags, FieldLines::default(), |reply| {
                reply.write_file(slice)
            })
    }

    /// Takes the connection of an [`EventKind::Detached`].
    pub fn take_detached(&mut self, handle: u64) -> Option<Detached> {
        for departed in [&mut self.departed, &mut self.hub.state.departed] {
            if let Some(place) = departed.iter().position(|(name, _)| *name == handle) {
                return Some(departed.swap_remove(place).1);
            }
        }
        None
    }

    /// The address the client of a request or a connection has connected to.
    pub fn local_address(&self, handle: u64) -> Option<SocketAddr> {
        let connection = self.hub.connection_of(Token::from_bits(handle))?;
        self.hub.components.http.local_address_of(connection)
    }

    /// Returns true if a handle names a request, a connection, a WebSocket or a raw stream.
    pub fn is_alive(&mut self, handle: u64) -> bool {
        let context = self.event_loop.context();
        self.hub.is_alive(context, Token::from_bits(handle))
    }

    /// The address of the client of a request or a connection.
    pub fn peer_address(&self, handle: u64) -> Option<SocketAddr> {
        let connection = self.hub.connection_of(Token::from_bits(handle))?;
        self.hub.components.http.peer_address_of(connection)
    }

    /// The certificates that the client of a request or a connection has shown, if an engine
    /// [asks](crate::tls::TlsBuilder::client_ca_file) for them.
    pub fn peer_certificates(&self, handle: u64) -> Option<&PeerCertificates> {
        let connection = self.hub.connection_of(Token::from_bits(handle))?;
        self.hub.components.http.peer_certificates_of(connection)
    }

    /// The facts of the handshake of a request or a connection; `None` without TLS, and before it
    /// is over.
    pub fn tls_facts(&self, handle: u64) -> Option<TlsFacts<'_>> {
        let connection = self.hub.connection_of(Token::from_bits(handle))?;
        self.hub.components.http.tls_facts_of(connection)
    }

    /// Stops listening and lets everything come to its end: connections with their next answer,
    /// those of WebSocket with a close frame of 1001. Raw streams are their host's to close.
    pub fn drain(&mut self) {
        let Self {
            event_loop, hub, ..
        } = self;
        let context = event_loop.context();
        hub.components.drain(context, &mut hub.state);
    }

    /// Closes everything that is left at once; the next turn has the events of that.
    pub fn close_all(&mut self) {
        let Self {
            event_loop, hub, ..
        } = self;
        let context = event_loop.context();
        hub.components.close_all(context, &mut hub.state);
    }

    /// Connections of every sort that are open.
    pub fn connections(&self) -> usize {
        self.hub.components.connections()
    }

    /// Returns the counters since the start, and the current sizes.
    pub fn statistics(&self) -> Statistics {
        Statistics {
            held: self.hub.state.held.len() as u64,
            connections: self.hub.components.http.connections() as u64,
            websockets: self.hub.components.websockets.connections() as u64,
            streams: self.hub.components.streams.connections() as u64,
            ..self.hub.state.statistics
        }
    }

    /// The way in from other threads.
    pub fn remote(&self) -> Remote {
        Remote {
            sender: self.event_loop.sender(),
        }
    }
}

/// The descriptor that is readable when the next turn has events other than deadlines. It is
/// edge-triggered beneath, so take turns until one has no event.
impl AsFd for Engine {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.event_loop.as_fd()
    }
}
