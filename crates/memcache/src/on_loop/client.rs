//! The component that a driver owns.

use std::net::SocketAddr;

use dwell_evloop::{Context, HandshakeCounts, Readiness, Token};
use dwell_proto::memcache::encode::request::{self, MetaLine, StoreOptions};
use dwell_proto::memcache::{ArithmeticMode, Key, StoreVerb};

use super::batch::Wants;
use super::server::Server;
use super::{ClientOptions, Completion, Error, MetaCommand, ServerOptions, ServerStatus, Version};
use crate::{Ring, RingServer};

/// A client of one or more memcached servers, living on an event loop.
///
/// Operations are taken during a turn and sent by [`flush`](Self::flush) at its end: to each server
/// one write, with the keys of all `get`s in one `gets` line (several if they are many). The caller
/// of an operation gets its [`Completion`] through the `sink` of a later call, with the value
/// borrowed from the loop's input buffer.
///
/// * Each server has one connection, pipelined. Its replies are matched with what was asked in
///   order, key by key; anything else is a protocol error. A miss is never an error, and an error
///   never a miss.
/// * Each connection has one deadline, that of its oldest operation. It moves when operations are
///   answered, not when bytes come, so a server that drips cannot extend it.
/// * After a timeout, a malformed reply, or the end of the connection, every operation on it fails
///   at once and it is never used again. (A `SERVER_ERROR` ends only its own request.)
/// * It is made again after 25 to 50 ms, doubling with every failure in a row up to 2 s. During
///   that time, operations fail at once. After three failures in a row they go on failing at once
///   until the server, connected again, has answered a probe (`version`).
///
/// Shape: at most 16384 operations and 1 MiB of requests wait per server; more are refused. The
/// times and numbers given here are the defaults of [`ClientOptions`].
///
/// ```
/// use dwell_evloop::{Context, Driver, EventLoop, Readiness, Token};
/// use dwell_memcache::on_loop::{
///     Client, ClientOptions, Completion, Failure, Outcome, ServerOptions,
/// };
///
/// /// The token kind that this driver gives to its client.
/// const MEMCACHE: u8 = 1;
///
/// struct App {
///     client: Client,
///     ended: Option<(u64, bool)>,
/// }
///
/// impl Driver for App {
///     type Message = ();
///     fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
///         let Self { client, ended } = self;
///         client.ready(context, token, readiness, &mut |_, completion| note(ended, completion));
///     }
///     fn expired(&mut self, context: &mut Context, token: Token) {
///         let Self { client, ended } = self;
///         client.expired(context, token, &mut |_, completion| note(ended, completion));
///     }
///     fn message(&mut self, _: &mut Context, (): ()) {}
///     fn turn_end(&mut self, context: &mut Context) {
///         let Self { client, ended } = self;
///         client.flush(context, &mut |_, completion| note(ended, completion));
///     }
/// }
///
/// fn note(ended: &mut Option<(u64, bool)>, completion: Completion<'_>) {
///     let failed = matches!(completion.outcome, Outcome::Failed(Failure::Connect));
///     *ended = Some((completion.tag, failed));
/// }
///
/// // No server listens on the discard port.
/// let servers = [ServerOptions::new("127.0.0.1:9".parse()?)];
/// let client = Client::new(MEMCACHE, &servers, ClientOptions::default())?;
/// let mut app = App { client, ended: None };
/// app.client.get(b"/poll/alice", 7)?;
/// let mut event_loop = EventLoop::new()?;
/// app.turn_end(event_loop.context()); // Begins to connect.
/// while app.ended.is_none() {
///     event_loop.turn(&mut app, None)?;
/// }
/// assert_eq!(app.ended, Some((7, true)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Client {
    ring: Ring,
    servers: Vec<Server>,
    options: ClientOptions,
    /// Servers with operations of this turn.
    asked: Vec<usize>,
    is_started: bool,
}

impl Client {
    /// Makes a client for tokens of `kind`; it connects with the first [`flush`](Self::flush).
    ///
    /// # Errors
    /// When there is no server, or a weight or option is 0.
    pub fn new(kind: u8, servers: &[ServerOptions], options: ClientOptions) -> Result<Self, Error> {
        options.check()?;
        if servers.is_empty() {
            return Err(Error::NoServers);
        }
        if let Some(server) = servers.iter().position(|server| server.weight == 0) {
            return Err(Error::ZeroWeight { server });
        }
        let on_ring: Vec<_> = servers
            .iter()
            .map(
                |ServerOptions {
                     address,
                     host,
                     weight,
                     ..
                 }| {
                    RingServer {
                        host,
                        port: address.port(),
                        weight: *weight,
                    }
                },
            )
            .collect();
        let make = |(index, server): (usize, &ServerOptions)| {
            let token = Token::new(kind, 0, index as u32);
            Server::new(server, token, &options, dwell_evloop::seed())
        };
        Ok(Self {
            ring: Ring::new(&on_ring),
            servers: servers.iter().enumerate().map(make).collect(),
            options,
            asked: Vec::new(),
            is_started: false,
        })
    }

    /// Asks for the value of `key`; ends as a hit, a miss or a failure.
    ///
    /// # Errors
    /// When the key cannot be sent (it has 1 to 250 bytes, without spaces and control characters),
    /// or too much waits for this server already; there will be no completion.
    pub fn get(&mut self, key: &[u8], tag: u64) -> Result<(), Error> {
        self.ask(key, tag, Wants::Value)
    }

    /// Asks only for the cas unique of `key`; ends as a version, a miss or a failure.
    ///
    /// Shape: a quiet `mg` that costs the server no answer on a miss; on a server that turns out
    /// not to know it, operations of that request fail as unsupported and later ones use `gets`.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn version(&mut self, key: &[u8], tag: u64) -> Result<(), Error> {
        self.ask(key, tag, Wants::Version)
    }

    /// Stores a value by `verb`; ends as [`Answer::Stored`](super::Answer::Stored) or a failure.
    ///
    /// Shape: operations on one server are done in the order in which they were asked for. After a
    /// failure other than an error line, the value may be stored all the same.
    /// Units: `exptime` in `options` is the number on the wire.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn store(
        &mut self,
        verb: StoreVerb,
        key: &[u8],
        value: &[u8],
        options: StoreOptions,
        tag: u64,
    ) -> Result<(), Error> {
        self.store_in(None, verb, key, value, options, tag)
    }

    /// Stores a value if the item still has this version; ends as [`store`](Self::store) does.
    ///
    /// Shape: as [`store`](Self::store). It fails as
    /// [`Failure::Reconnected`](super::Failure::Reconnected), and is not sent, where the connection
    /// is not the one on which the server told the version.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn cas(
        &mut self,
        key: &[u8],
        value: &[u8],
        version: Version,
        options: StoreOptions,
        tag: u64,
    ) -> Result<(), Error> {
        let Version { epoch, cas_unique } = version;
        let verb = StoreVerb::Cas(cas_unique);
        self.store_in(Some(epoch), verb, key, value, options, tag)
    }

    /// Deletes an item if it still has this version, by `md` with the flag `C`; ends as
    /// [`meta`](Self::meta) does.
    ///
    /// Shape: as [`cas`](Self::cas).
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn delete_version(&mut self, key: &[u8], version: Version, tag: u64) -> Result<(), Error> {
        let Version { epoch, cas_unique } = version;
        let wants = Wants::Meta { has_data: false };
        self.command(key, (tag, Some(epoch)), wants, 0, |out, key, opaque| {
            let line = MetaLine::delete(out, key).number(b'C', cas_unique);
            line.number(b'O', opaque).end();
        })
    }

    /// Deletes an item; ends as [`Answer::Deleted`](super::Answer::Deleted), a miss or a failure.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn delete(&mut self, key: &[u8], tag: u64) -> Result<(), Error> {
        self.command(key, (tag, None), Wants::Delete, 0, |out, key, _| {
            request::delete(out, key, false);
        })
    }

    /// Counts an item up or down; ends as [`Answer::Number`](super::Answer::Number), a miss or a
    /// failure.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn arithmetic(
        &mut self,
        mode: ArithmeticMode,
        key: &[u8],
        delta: u64,
        tag: u64,
    ) -> Result<(), Error> {
        self.command(
            key,
            (tag, None),
            Wants::Number,
            0,
            |out, key, _| match mode {
                ArithmeticMode::Increment => request::incr(out, key, delta, false),
                ArithmeticMode::Decrement => request::decr(out, key, delta, false),
            },
        )
    }

    /// Sets an item's exptime; ends as [`Answer::Touched`](super::Answer::Touched), a miss or a
    /// failure.
    ///
    /// Units: the number on the wire.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn touch(&mut self, key: &[u8], exptime: i64, tag: u64) -> Result<(), Error> {
        self.command(key, (tag, None), Wants::Touch, 0, |out, key, _| {
            request::touch(out, key, exptime, false);
        })
    }

    /// Sends a meta command with the flags that `flags` adds; ends as
    /// [`Answer::Meta`](super::Answer::Meta), a miss or a failure.
    ///
    /// Shape: the client adds an opaque of its own, by which it knows the answer, so `flags` may
    /// not; nor `q`, as every command is answered.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn meta(
        &mut self,
        command: MetaCommand<'_>,
        key: &[u8],
        tag: u64,
        flags: impl for<'o> FnOnce(MetaLine<'o>) -> MetaLine<'o>,
    ) -> Result<(), Error> {
        let value = match command {
            MetaCommand::Set(value) => Some(value),
            _ => None,
        };
        let has_data = value.is_some();
        let length = value.map_or(0, <[u8]>::len);
        self.command(
            key,
            (tag, None),
            Wants::Meta { has_data },
            length,
            |out, key, opaque| {
                let line = match command {
                    MetaCommand::Get => MetaLine::get(out, key),
                    MetaCommand::Set(value) => MetaLine::set(out, key, value.len()),
                    MetaCommand::Delete => MetaLine::delete(out, key),
                    MetaCommand::Arithmetic => MetaLine::arithmetic(out, key),
                };
                let line = flags(line).number(b'O', opaque);
                match value {
                    Some(value) => line.end_with_value(value),
                    None => line.end(),
                }
            },
        )
    }

    /// Sends the operations since the last flush; call it at the end of every turn.
    ///
    /// Shape: one write per server. Operations for a server that is not available end here. While
    /// a server owes many answers, fewer than a quarter as many operations (and than
    /// [`ClientOptions::held_max`]) wait for them, and go together.
    pub fn flush(
        &mut self,
        context: &mut Context,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        if !self.is_started {
            self.is_started = true;
            for server in &mut self.servers {
                server.connect(context, &self.options);
            }
        }
        let (servers, options) = (&mut self.servers, &self.options);
        self.asked
            .retain(|index| servers[*index].flush(context, options, sink));
    }

    /// Goes on with other addresses of the servers, which stay where they are on the ring; a server
    /// whose address is the same keeps its connection.
    ///
    /// Shape: one for each server, in the order they were given. Requests that were sent to a
    /// server at its old address are answered from there, and those that follow wait for that.
    pub fn turn_to(&mut self, context: &mut Context, addresses: &[SocketAddr]) {
        for (server, address) in self.servers.iter_mut().zip(addresses) {
            server.turn_to(context, *address, &self.options);
        }
    }

    /// Takes readiness of a token of this client's kind.
    pub fn ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        if let Some(server) = self.servers.get_mut(token.index() as usize) {
            server.ready(context, token, readiness, &self.options, sink);
        }
    }

    /// Takes the expiry of a token of this client's kind.
    pub fn expired(
        &mut self,
        context: &mut Context,
        token: Token,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        if let Some(server) = self.servers.get_mut(token.index() as usize) {
            server.expired(context, token, &self.options, sink);
        }
    }

    /// The index of the server that `key` belongs to.
    pub fn server_of(&self, key: &[u8]) -> usize {
        self.ring.server_of(key)
    }

    /// Takes the counts of handshakes with all servers since the last call.
    pub fn take_handshakes(&mut self) -> HandshakeCounts {
        let mut counts = HandshakeCounts::default();
        for server in &mut self.servers {
            counts.append(server.take_handshakes());
        }
        counts
    }

    /// Every server as it stands now, in the order they were given.
    pub fn statuses(&self) -> impl ExactSizeIterator<Item = ServerStatus> {
        self.servers.iter().map(Server::status)
    }

    /// The reason for which the last handshake with each server failed, if it did, in the same
    /// order.
    pub fn handshake_errors(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.servers.iter().map(Server::handshake_error)
    }

    /// Operations without an answer, over all servers.
    pub fn operations(&self) -> usize {
        self.servers
            .iter()
            .map(|server| server.status().operations)
            .sum()
    }

    fn store_in(
        &mut self,
        epoch: Option<u64>,
        verb: StoreVerb,
        key: &[u8],
        value: &[u8],
        options: StoreOptions,
        tag: u64,
    ) -> Result<(), Error> {
        let options = StoreOptions {
            noreply: false,
            ..options
        };
        let (asked, length) = ((tag, epoch), value.len());
        self.command(key, asked, Wants::Store, length, |out, key, _| {
            request::store(out, verb, key, options, value);
        })
    }

    fn command(
        &mut self,
        key: &[u8],
        asked: (u64, Option<u64>),
        wants: Wants,
        value_bytes: usize,
        encode: impl FnOnce(&mut Vec<u8>, Key<'_>, usize),
    ) -> Result<(), Error> {
        let key = Key::new(key)?;
        let index = self.ring.server_of(key.as_bytes());
        let length = key.as_bytes().len() + value_bytes + COMMAND_OVERHEAD_BYTES;
        let encode = |out: &mut Vec<u8>, opaque| encode(out, key, opaque);
        let server = &mut self.servers[index];
        if server.command(asked, wants, length, &self.options, encode)? {
            self.asked.push(index);
        }
        Ok(())
    }

    fn ask(&mut self, key: &[u8], tag: u64, wants: Wants) -> Result<(), Error> {
        let key = Key::new(key)?;
        let index = self.ring.server_of(key.as_bytes());
        if self.servers[index].ask(key, tag, wants, &self.options)? {
            self.asked.push(index);
        }
        Ok(())
    }
}

/// Bytes of a command besides its key and value, but for a meta command with many flags.
const COMMAND_OVERHEAD_BYTES: usize = 64;
