//! The component that a driver owns: the commands of each operation.

use crate::connection::Flight;
use crate::servers::{Known, Servers};
use crate::{
    ClientOptions, ClusterStatus, Completion, Endpoint, Error, Outcome, RedisMetrics, SetCondition,
    SetOptions, Status, Tracking,
};
use dwell_evloop::{Context, HandshakeCounts, Readiness, Token};
use std::sync::Arc;
use std::time::Duration;

/// A client of one Redis or Valkey server, living on an event loop.
///
/// Operations are taken during a turn and sent by [`flush`](Self::flush) at its end, pipelined. The
/// caller of an operation gets its [`Completion`] through the `sink` of a later call, with the
/// value borrowed from the loop's input buffer.
///
/// * [`get`](Self::get), [`set`](Self::set) and the others go over a plain connection.
/// * [`read`](Self::read) goes over the tracking connection: its reply is the newest value, and the
///   server announces the next change. A caller that decides by that reply to wait says so with
///   [`wait`](Self::wait), in the same turn; from then on each change of the key is read once, and
///   completes with the tag of the wait.
/// * A lost connection fails its operations. Then every key that is waited for is read again, a
///   bounded number at a time. A silent connection is probed, so that a server that has stopped is
///   noticed before it is asked.
/// * A key whose value has a lifetime is read again when that is over: a server reports an
///   expiry only when it drops the key.
/// * A server that does not track for this client (it is old, or its ACL forbids it) is asked again
///   after 30 s; until then [`Status::tracking`] says [`Tracking::Refused`], and the caller sweeps.
///
/// Shape: at most 16384 operations and 1 MiB of requests wait per connection by default; more are
/// refused. Every operation taken ends in exactly one completion.
///
/// ```
/// use dwell_evloop::{Context, Driver, EventLoop, Readiness, Token};
/// use dwell_redis::{Client, ClientOptions, Completion, Endpoint, Failure, Kinds, Outcome};
/// use std::sync::Arc;
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
/// let kinds = Kinds { connection: 1, key: 2 };
/// let endpoint = Endpoint::Tcp(([127, 0, 0, 1], 9).into());
/// let client = Client::new(kinds, endpoint, ClientOptions::default(), Arc::default());
/// let mut app = App { client, ended: None };
/// let mut event_loop = EventLoop::new()?;
/// app.client.get(event_loop.context(), b"/poll/alice", 7)?;
/// while app.ended.is_none() {
///     event_loop.turn(&mut app, None)?;
/// }
/// assert_eq!(app.ended, Some((7, true)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Client {
    servers: Servers,
}

/// Kinds of the tokens of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kinds {
    /// Kind of its connections.
    pub connection: u8,
    /// Kind of the deadlines of its keys.
    pub key: u8,
}

impl Client {
    /// Makes a client for tokens of `kinds`; it connects with the first operation, or by
    /// [`connect`](Self::connect).
    pub fn new(
        kinds: Kinds,
        endpoint: Endpoint,
        options: ClientOptions,
        metrics: Arc<RedisMetrics>,
    ) -> Self {
        Self {
            servers: Servers::new(kinds, endpoint, options, metrics),
        }
    }

    /// Connects before the first operation, so that it does not wait for that.
    pub fn connect(&mut self, context: &mut Context) {
        self.servers.connect(context);
    }

    /// Goes on with another endpoint of the same kind, to which the names of the servers lead now.
    ///
    /// Shape: what was sent to a server is answered there. All else goes to the new one, where each
    /// key that is waited for is read again. The primary that Sentinels have named stays, and so
    /// does one of a cluster, while there is a connection to it.
    pub fn turn_to(&mut self, context: &mut Context, endpoint: &Endpoint) {
        self.servers.move_to(context, endpoint);
    }

    /// Asks for the value of `key`; ends as a value, missing or a failure.
    ///
    /// # Errors
    /// When too much waits for the server already; there will be no completion.
    pub fn get(&mut self, context: &mut Context, key: &[u8], tag: u64) -> Result<(), Error> {
        (self.servers).operation(context, key, &[b"GET", key], |repeat| Flight::Get {
            tag,
            again: None,
            end: None,
            repeat,
        })
    }

    /// As [`get`](Self::get), but that a caller may [wait](Self::wait) for a change of what it is
    /// given.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn read(&mut self, context: &mut Context, key: &[u8], tag: u64) -> Result<(), Error> {
        self.servers.read(context, key, tag)
    }

    /// The value of `key` without a round trip: it was read, and the server announces its next
    /// change. It is as old as an announcement may be late, so a caller that has to see a write of
    /// another connection asks by [`get`](Self::get).
    ///
    /// Shape: values of keys that are waited for, at most
    /// [`kept_bytes_max`](ClientOptions::kept_bytes_max) together. A value is not older than a
    /// write of this client that has completed, and ends with the connection on which it was read.
    pub fn kept(&self, key: &[u8]) -> Option<Outcome<'_>> {
        self.servers.kept(key)
    }

    /// Stores a value; ends as done, unmet or a failure.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn set(
        &mut self,
        context: &mut Context,
        key: &[u8],
        value: &[u8],
        options: SetOptions,
        tag: u64,
    ) -> Result<(), Error> {
        let lifetime = options.lifetime.map(milliseconds);
        let mut arguments: Vec<&[u8]> = vec![b"SET", key, value];
        if let Some(lifetime) = &lifetime {
            arguments.extend([&b"PX"[..], lifetime.as_bytes()]);
        }
        match options.condition {
            SetCondition::None => {}
            SetCondition::Absent => arguments.push(b"NX"),
            SetCondition::Present => arguments.push(b"XX"),
        }
        self.write(context, key, tag, &arguments)
    }

    /// Stores a value in one round trip: ends as missing where there was none, as done where
    /// another was replaced, or a failure. It ends as unmet where nothing was stored and
    /// [`set`](Self::set) has to be used: for a key of another type, or a server older than 6.2.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn swap(
        &mut self,
        context: &mut Context,
        key: &[u8],
        value: &[u8],
        lifetime: Option<Duration>,
        tag: u64,
    ) -> Result<(), Error> {
        let lifetime = lifetime.map(milliseconds);
        let mut arguments: Vec<&[u8]> = vec![b"SET", key, value];
        if let Some(lifetime) = &lifetime {
            arguments.extend([&b"PX"[..], lifetime.as_bytes()]);
        }
        let option = self.servers.swap_option(key);
        arguments.push(option.word());
        (self.servers).operation(context, key, &arguments, |repeat| Flight::Swap {
            tag,
            option,
            key: key.into(),
            repeat,
        })
    }

    /// Deletes a key; ends as done, unmet where there was none, or a failure.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn delete(&mut self, context: &mut Context, key: &[u8], tag: u64) -> Result<(), Error> {
        self.write(context, key, tag, &[b"DEL", key])
    }

    /// Stores `value` if the key has the value `expected`; ends as done, unmet or a failure. The
    /// server runs a script for it.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn replace(
        &mut self,
        context: &mut Context,
        key: &[u8],
        (expected, value): (&[u8], &[u8]),
        lifetime: Option<Duration>,
        tag: u64,
    ) -> Result<(), Error> {
        let lifetime = lifetime.map_or_else(|| "0".to_owned(), milliseconds);
        let arguments: &[&[u8]] = &[
            b"EVAL",
            REPLACE,
            b"1",
            key,
            expected,
            value,
            lifetime.as_bytes(),
        ];
        self.write(context, key, tag, arguments)
    }

    /// Deletes a key that has the value `expected`; ends as [`replace`](Self::replace).
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn delete_value(
        &mut self,
        context: &mut Context,
        key: &[u8],
        expected: &[u8],
        tag: u64,
    ) -> Result<(), Error> {
        let arguments: &[&[u8]] = &[b"EVAL", DELETE, b"1", key, expected];
        self.write(context, key, tag, arguments)
    }

    /// Adds a command that changes a key.
    fn write(
        &mut self,
        context: &mut Context,
        key: &[u8],
        tag: u64,
        arguments: &[&[u8]],
    ) -> Result<(), Error> {
        (self.servers).operation(context, key, arguments, |repeat| Flight::Write {
            tag,
            key: key.into(),
            repeat,
        })
    }

    /// Begins to wait for changes of `key`, which complete with `tag`; a second wait for the key
    /// replaces the tag of the first.
    pub fn wait(&mut self, key: &[u8], tag: u64) {
        self.servers.wait(key, tag);
    }

    /// Ends the wait for changes of `key`.
    pub fn unwait(&mut self, key: &[u8]) {
        self.servers.unwait(key);
    }

    /// The next change of `key` is announced; `None` if it is not waited for.
    pub fn is_armed(&self, key: &[u8]) -> Option<bool> {
        self.servers.is_armed(key)
    }

    /// Operations without a completion.
    pub fn operations(&self) -> usize {
        self.servers.operations()
    }

    /// The servers that are known: of a cluster the primaries, or those of the endpoint until they
    /// have named them. Another endpoint has one server.
    pub fn servers(&self) -> impl Iterator<Item = Known<'_>> {
        self.servers.known()
    }

    /// The state of the server that has `key`, or would be asked for it.
    pub fn server_of(&self, key: &[u8]) -> Known<'_> {
        self.servers.server_of(key)
    }

    /// The state of the server; of a cluster, that of its first one.
    pub fn status(&self) -> Status<'_> {
        self.servers.first().status
    }

    /// The state of the announcements of all servers: the worst of them.
    pub fn tracking(&self) -> Tracking {
        self.servers.tracking()
    }

    /// The slots of the cluster without a primary, and the reason why its topology is not known;
    /// `None` where there is no cluster.
    pub fn cluster(&self) -> Option<ClusterStatus<'_>> {
        self.servers.cluster()
    }

    /// Takes the handshakes of TLS that have ended since the last call.
    pub fn take_handshakes(&mut self) -> HandshakeCounts {
        self.servers.take_handshakes()
    }

    /// Takes the last error that a server has replied to a command.
    pub fn take_error_reply(&mut self) -> Option<Box<str>> {
        self.servers.take_error_reply()
    }

    /// Sends the operations of the turn, and reads the keys that have changed.
    pub fn flush(
        &mut self,
        context: &mut Context,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        self.servers.flush(context, sink);
    }

    /// Has every key that is waited for read once more, beside what is announced.
    ///
    /// Shape: a sweep of very many keys takes long; this does nothing before it is over, nor while
    /// there is no connection, after which everything is read anyway. It reads no more than 20,000
    /// keys a second of a server that announces nothing.
    pub fn sweep(&mut self, context: &Context) {
        self.servers.sweep(context.now(), true);
    }

    /// As [`sweep`](Self::sweep), for the keys of servers that announce no changes now.
    ///
    /// Shape: meant to be called often. It does nothing for a server of which more than 20,000 keys
    /// a second would be read.
    pub fn sweep_untold(&mut self, context: &Context) {
        self.servers.sweep(context.now(), false);
    }

    /// Adds the reads of keys that have changed, as many as may be in progress;
    /// [`flush`](Self::flush) does so, too. A caller that begins with it has them sent before its
    /// own.
    pub fn read_changed(&mut self, context: &mut Context) {
        self.servers.read_changed(context);
    }

    /// An event of one of the connections.
    pub fn ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        self.servers.ready(context, token, readiness, sink);
    }

    /// A deadline of a connection or a key has passed.
    pub fn expired(
        &mut self,
        context: &mut Context,
        token: Token,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        self.servers.expired(context, token, sink);
    }
}

/// The number of milliseconds that a value lives, at least one.
fn milliseconds(lifetime: Duration) -> String {
    lifetime.as_millis().max(1).to_string()
}

const REPLACE: &[u8] = b"if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end \
if ARGV[3]=='0' then redis.call('SET',KEYS[1],ARGV[2]) \
else redis.call('SET',KEYS[1],ARGV[2],'PX',ARGV[3]) end return 1";
const DELETE: &[u8] =
    b"if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end return redis.call('DEL',KEYS[1])";
