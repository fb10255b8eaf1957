//! The component that a driver owns.

use crate::connection::Flight;
use crate::server::{Part, Server};
use crate::shared::Shared;
use crate::waited::{HoldEvent, WaitedKeys};
use crate::{
    ClientOptions, Completion, Endpoint, Error, Outcome, RedisMetrics, SetCondition, SetOptions,
    Status,
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
/// * A key whose value has a lifetime is read again when that is over: a server tells of an expiry
///   only when it drops the key.
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
    server: Server,
    shared: Shared,
    options: ClientOptions,
    kinds: Kinds,
}

/// Kinds of the tokens of a client.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Kinds {
    /// Kind of its two connections.
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
        let server = Server::new(0, kinds.connection, endpoint, &options);
        let (announced, kept_bytes_max) = (options.announced.clone(), options.kept_bytes_max);
        let shared = Shared {
            waited: WaitedKeys::new(kinds.key, announced, kept_bytes_max),
            metrics,
            error_reply: None,
        };
        Self {
            server,
            shared,
            options,
            kinds,
        }
    }

    /// Connects before the first operation, so that it does not wait for that.
    pub fn connect(&mut self, context: &mut Context) {
        self.server.plain.ensure(context, &self.options);
    }

    /// Asks for the value of `key`; ends as a value, missing or a failure.
    ///
    /// # Errors
    /// When too much waits for the server already; there will be no completion.
    pub fn get(&mut self, context: &mut Context, key: &[u8], tag: u64) -> Result<(), Error> {
        let flight = Flight::Get { tag, again: None };
        self.operation(context, flight, &[b"GET", key])
    }

    /// As [`get`](Self::get), but that a caller may [wait](Self::wait) for a change of what it is
    /// given.
    ///
    /// # Errors
    /// As [`get`](Self::get).
    pub fn read(&mut self, context: &mut Context, key: &[u8], tag: u64) -> Result<(), Error> {
        let Self {
            server,
            shared,
            options,
            ..
        } = self;
        server.read(context, options, shared, (key, tag))
    }

    /// The value of `key` without a round trip: it was read, and the server announces its next
    /// change. It is as old as an announcement may be late, so a caller that has to see a write of
    /// another connection asks by [`get`](Self::get).
    ///
    /// Shape: values of keys that are waited for, at most
    /// [`kept_bytes_max`](ClientOptions::kept_bytes_max) together. None of them is older than a
    /// write of this client that has completed, or outlives the connection on which it was read.
    pub fn kept(&self, key: &[u8]) -> Option<Outcome<'_>> {
        let outcome = self.shared.waited.kept(key)?;
        self.shared.metrics.kept_hits.increment();
        Some(outcome)
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
        arguments.push(if self.server.waits.is_without_swap {
            b"NX"
        } else {
            b"GET"
        });
        let key = key.into();
        self.operation(context, Flight::Swap { tag, key }, &arguments)
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
        let key = key.into();
        self.operation(context, Flight::Write { tag, key }, arguments)
    }

    fn operation(
        &mut self,
        context: &mut Context,
        flight: Flight,
        arguments: &[&[u8]],
    ) -> Result<(), Error> {
        (self.server).operation(context, &self.options, flight, arguments)
    }

    /// Begins to wait for changes of `key`, which complete with `tag`; a second wait for the key
    /// replaces the tag of the first.
    pub fn wait(&mut self, key: &[u8], tag: u64) {
        self.shared.waited.wait(key, tag, 0);
    }

    /// Ends the wait for changes of `key`.
    pub fn unwait(&mut self, key: &[u8]) {
        self.shared.waited.unwait(key);
    }

    /// The next change of `key` is announced; `None` if it is not waited for.
    pub fn is_armed(&self, key: &[u8]) -> Option<bool> {
        self.shared.waited.is_armed(key)
    }

    /// Operations without a completion.
    pub fn operations(&self) -> usize {
        self.server.operations()
    }

    /// The state of the server.
    pub fn status(&self) -> Status<'_> {
        self.server.status(self.shared.waited.waited(0) > 0)
    }

    /// Takes the handshakes of TLS that have ended since the last call.
    pub fn take_handshakes(&mut self) -> HandshakeCounts {
        self.server.take_handshakes()
    }

    /// Takes the last error that the server has replied to a command.
    pub fn take_error_reply(&mut self) -> Option<Box<str>> {
        self.shared.error_reply.take()
    }

    /// Sends the operations of the turn, and reads the keys that have changed.
    pub fn flush(
        &mut self,
        context: &mut Context,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        self.settle(context);
        let Self {
            server,
            shared,
            options,
            ..
        } = self;
        server.flush(context, options, shared, sink);
        let gauge = |count: usize| i64::try_from(count).unwrap_or(i64::MAX);
        let (waited, metrics) = (&shared.waited, &shared.metrics);
        metrics.armed_keys.set(gauge(waited.armed()));
        metrics.kept_bytes.set(gauge(waited.kept_bytes()));
    }

    /// Queues the keys that are to be read, and drops those that are of no more use.
    fn settle(&mut self, context: &mut Context) {
        self.shared.waited.settle(|key| context.disarm(key));
    }

    /// Has every key that is waited for read once more, beside what is announced.
    ///
    /// Shape: a sweep of very many keys takes long; this does nothing before it is over, nor while
    /// there is no connection, after which everything is read anyway.
    pub fn sweep(&mut self) {
        self.server.sweep(&mut self.shared);
    }

    /// Adds the reads of keys that have changed, as many as may be under way;
    /// [`flush`](Self::flush) does so, too. A caller that begins with it has them sent before its
    /// own.
    pub fn read_changed(&mut self, context: &mut Context) {
        self.settle(context);
        (self.server).read_changed(context, &self.options, &mut self.shared);
    }

    /// An event of one of the connections.
    pub fn ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        let Self {
            server,
            shared,
            options,
            ..
        } = self;
        if Part::of(token).0 == 0 {
            server.ready(context, (token, readiness), options, shared, sink);
        }
    }

    /// A deadline of a connection or a key has passed.
    pub fn expired(
        &mut self,
        context: &mut Context,
        token: Token,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        let Self {
            server,
            shared,
            options,
            ..
        } = self;
        if token.kind() == self.kinds.key {
            // Its value is over: the read has the server drop it, and tell everybody.
            shared.waited.happens(token, HoldEvent::Invalidated);
        } else if Part::of(token).0 == 0 {
            server.expired(context, token, options, shared, sink);
        }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Tracking;
    use dwell_evloop::EventLoop;

    #[test]
    fn a_refusal_whose_time_is_over_is_forgotten_where_nothing_waits() {
        let kinds = Kinds {
            connection: 1,
            key: 2,
        };
        let endpoint = Endpoint::Unix("/none".into());
        let mut client = Client::new(kinds, endpoint, ClientOptions::default(), Arc::default());
        let mut event_loop = EventLoop::<()>::new().unwrap();
        let context = event_loop.context();
        let mut after = |until| {
            client.server.waits.refused_reason = Some("NOPERM".into());
            client.server.waits.refused_until = Some(until);
            client.flush(context, &mut |_, _| ());
            let status = client.status();
            (status.tracking, status.tracking_reason.map(str::to_owned))
        };
        let now = std::time::Instant::now();
        let past = now.checked_sub(Duration::from_secs(1)).unwrap();
        let refused = (Tracking::Refused, Some("NOPERM".to_owned()));
        assert_eq!(after(now + Duration::from_secs(60)), refused);
        assert_eq!(after(past), (Tracking::Idle, None));
    }
}
