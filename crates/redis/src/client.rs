//! The component that a driver owns.

use crate::connection::Flight;
use crate::greeting::Purpose;
use crate::link::{Link, LinkEvent};
use crate::waited::HoldEvent;
use crate::waits::{Waits, send_read, send_rereads};
use crate::{
    ClientOptions, Completion, Endpoint, Error, Failure, Outcome, RedisMetrics, SetCondition,
    SetOptions, Status, Tracking,
};
use dwell_evloop::{Context, HandshakeCounts, Readiness, Token};
use dwell_proto::resp::command;
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
    plain: Link,
    tracked: Link,
    waits: Waits,
    options: ClientOptions,
    kinds: Kinds,
    /// Operations that fail with the next flush: there was no connection for them.
    failed: Vec<u64>,
    /// The last error that the server has replied to a command, if it was not taken yet.
    error_reply: Option<Box<str>>,
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
        let token = |index| Token::new(kinds.connection, 0, index);
        let plain = Link::new(Purpose::Plain, endpoint.clone(), token(PLAIN), &options);
        Self {
            plain,
            tracked: Link::new(Purpose::Tracking, endpoint, token(TRACKED), &options),
            waits: Waits::new(kinds.key, &options, metrics),
            options,
            kinds,
            failed: Vec::new(),
            error_reply: None,
        }
    }

    /// Connects before the first operation, so that it does not wait for that.
    pub fn connect(&mut self, context: &mut Context) {
        self.plain.ensure(context, &self.options);
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
        self.tracked.follow(self.plain.primary_if_up());
        if !self.waits.is_refused(context) && self.tracked.ensure(context, &self.options) {
            return send_read(
                &mut self.tracked,
                &mut self.waits,
                context,
                &self.options,
                key,
                tag,
            );
        }
        self.read_untracked(context, key, tag)
    }

    /// Asks for a value over the plain connection; waits for its key are compared with a value that
    /// is read after this one.
    fn read_untracked(&mut self, context: &mut Context, key: &[u8], tag: u64) -> Result<(), Error> {
        let again = self.waits.waited.find(key).map(|_| key.into());
        self.operation(context, Flight::Get { tag, again }, &[b"GET", key])
    }

    /// The value of `key` without a round trip: it was read, and the server announces its next
    /// change. It is as old as an announcement may be late, so a caller that has to see a write of
    /// another connection asks by [`get`](Self::get).
    ///
    /// Shape: values of keys that are waited for, at most
    /// [`kept_bytes_max`](ClientOptions::kept_bytes_max) together. None of them is older than a
    /// write of this client that has completed, or outlives the connection on which it was read.
    pub fn kept(&self, key: &[u8]) -> Option<Outcome<'_>> {
        let outcome = self.waits.waited.kept(key)?;
        self.waits.metrics.kept_hits.increment();
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
        arguments.push(if self.waits.is_without_swap {
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
        let tag = flight.tag();
        let is_taken = self.plain.ensure(context, &self.options)
            && (self.plain).push(context, flight, &self.options, |wire| {
                command(wire, arguments);
            })?;
        if !is_taken {
            self.failed.extend(tag);
        }
        Ok(())
    }

    /// Begins to wait for changes of `key`, which complete with `tag`; a second wait for the key
    /// replaces the tag of the first.
    pub fn wait(&mut self, key: &[u8], tag: u64) {
        self.waits.waited.wait(key, tag);
    }

    /// Ends the wait for changes of `key`.
    pub fn unwait(&mut self, key: &[u8]) {
        self.waits.waited.unwait(key);
    }

    /// The next change of `key` is announced; `None` if it is not waited for.
    pub fn is_armed(&self, key: &[u8]) -> Option<bool> {
        self.waits.waited.is_armed(key)
    }

    /// Operations without a completion.
    pub fn operations(&self) -> usize {
        self.plain.in_flight() + self.tracked.in_flight() + self.waits.unread.len()
    }

    /// The state of the server.
    pub fn status(&self) -> Status<'_> {
        let waits = &self.waits;
        let tracking = if waits.is_refusing() {
            Tracking::Refused
        } else if self.tracked.is_up() {
            Tracking::On
        } else if waits.waited.waited() > 0 {
            Tracking::Connecting
        } else {
            Tracking::Idle
        };
        Status {
            is_up: self.plain.is_up(),
            primary: self.plain.primary(),
            connects: self.plain.connects(),
            last_failure: self.plain.last_failure(),
            reason: self.plain.reason(),
            tracking,
            tracking_reason: waits.refused_reason.as_deref(),
            has_idle_pushes: waits.pace.has_idle_pushes(),
            table: waits.table.nearly_full(),
        }
    }

    /// Takes the handshakes of TLS that have ended since the last call.
    pub fn take_handshakes(&mut self) -> HandshakeCounts {
        let mut counts = self.plain.handshakes().take_counts();
        counts.append(self.tracked.handshakes().take_counts());
        counts
    }

    /// Takes the last error that the server has replied to a command.
    pub fn take_error_reply(&mut self) -> Option<Box<str>> {
        self.error_reply.take()
    }

    /// Sends the operations of the turn, and reads the keys that have changed.
    pub fn flush(
        &mut self,
        context: &mut Context,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        for (key, tag) in std::mem::take(&mut self.waits.unread) {
            if self.read_untracked(context, &key, tag).is_err() {
                self.failed.push(tag);
            }
        }
        for tag in std::mem::take(&mut self.failed) {
            let outcome = Outcome::Failed(self.plain.last_failure().unwrap_or(FAILED_AT_ONCE));
            sink(context, Completion { tag, outcome });
        }
        self.read_changed(context);
        let (options, error_reply) = (&self.options, &mut self.error_reply);
        let waits = &mut self.waits;
        let mut on = |context: &mut Context, event: LinkEvent<'_>| {
            waits.happens(context, false, event, error_reply, sink)
        };
        self.plain.flush(context, options, &mut on);
        let mut on = |context: &mut Context, event: LinkEvent<'_>| {
            waits.happens(context, true, event, error_reply, sink)
        };
        self.tracked.flush(context, options, &mut on);
        waits.follow_refusal(context, &mut self.tracked);
        let armed = i64::try_from(waits.waited.armed()).unwrap_or(i64::MAX);
        waits.metrics.armed_keys.set(armed);
        let kept = i64::try_from(waits.waited.kept_bytes()).unwrap_or(i64::MAX);
        waits.metrics.kept_bytes.set(kept);
    }

    /// Has every key that is waited for read once more, beside what is announced.
    ///
    /// Shape: a sweep of very many keys takes long; this does nothing before it is over, nor while
    /// there is no connection, after which everything is read anyway.
    pub fn sweep(&mut self) {
        if (self.plain.is_up() || self.tracked.is_up()) && self.waits.waited.sweep() {
            self.waits.metrics.sweeps.increment();
        }
    }

    /// Adds the reads of keys that have changed, as many as may be under way;
    /// [`flush`](Self::flush) does so, too. A caller that begins with it has them sent before its
    /// own.
    pub fn read_changed(&mut self, context: &mut Context) {
        let (tracked, waits) = (&mut self.tracked, &mut self.waits);
        waits.waited.settle(|key| context.disarm(key));
        if waits.waited.waited() == 0 {
            return waits.forget_refusal(context);
        }
        tracked.follow(self.plain.primary_if_up());
        if !waits.is_refused(context) {
            tracked.ensure(context, &self.options);
        }
        send_rereads((&mut self.plain, tracked), waits, context, &self.options);
        if tracked.is_up() && self.plain.is_up() && waits.table.is_due(context.now()) {
            self.plain.ask_for_table(context, &self.options);
        }
        if let Some(pause) = waits.pace.pause(context.now())
            && waits.waited.has_queued()
        {
            context.arm_sooner(Token::new(self.kinds.connection, 0, PACE), pause);
        }
    }

    /// An event of one of the connections.
    pub fn ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        let (waits, error_reply) = (&mut self.waits, &mut self.error_reply);
        let index = token.index();
        let (link, other) = match index {
            PLAIN => (&mut self.plain, &mut self.tracked),
            _ => (&mut self.tracked, &mut self.plain),
        };
        let connects = link.connects();
        let mut on = |context: &mut Context, event: LinkEvent<'_>| {
            waits.happens(context, index == TRACKED, event, error_reply, sink)
        };
        link.ready(context, token, readiness, &self.options, &mut on);
        if std::mem::take(&mut waits.is_demoted) {
            let mut on = |context: &mut Context, event: LinkEvent<'_>| {
                waits.happens(context, true, event, error_reply, sink)
            };
            let tracked = if index == TRACKED {
                &mut *link
            } else {
                &mut *other
            };
            tracked.end(context, Failure::ReadOnly, &self.options, &mut on);
        }
        let has_come = link.connects() != connects && link.is_up();
        if has_come && other.is_up() && other.primary() != link.primary() {
            // Only the server that is written to tells what was written. Sentinels may disagree:
            // the tracking connection is made again, to the server of the plain one.
            let mut on = |context: &mut Context, event: LinkEvent<'_>| {
                waits.happens(context, true, event, error_reply, sink)
            };
            self.tracked
                .end(context, Failure::Closed, &self.options, &mut on);
        }
        waits.follow_refusal(context, &mut self.tracked);
    }

    /// A deadline of a connection or a key has passed.
    pub fn expired(
        &mut self,
        context: &mut Context,
        token: Token,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        let (waits, error_reply) = (&mut self.waits, &mut self.error_reply);
        if token.kind() == self.kinds.key {
            // Its value is over: the read has the server drop it, and tell everybody.
            return waits.waited.happens(token, HoldEvent::Invalidated);
        }
        let index = token.index();
        if index == PACE {
            // The flush at the end of the turn reads on.
            return;
        }
        let mut on = |context: &mut Context, event: LinkEvent<'_>| {
            waits.happens(context, index == TRACKED, event, error_reply, sink)
        };
        self.tracked.follow(self.plain.primary_if_up());
        let link = match index {
            PLAIN => &mut self.plain,
            _ => &mut self.tracked,
        };
        let is_silent = link.expired(context, token, &self.options, &mut on);
        waits.follow_refusal(context, &mut self.tracked);
        match index {
            TRACKED if is_silent => self.probe(context),
            PLAIN if is_silent => ping(&mut self.plain, context, &self.options),
            _ => {}
        }
    }

    /// Asks a silent tracking connection for a sign of life, or closes it if nothing needs it.
    fn probe(&mut self, context: &mut Context) {
        let (waits, now) = (&mut self.waits, context.now());
        if waits.waited.waited() > 0 {
            waits.idle_since = None;
        } else if now >= *waits.idle_since.get_or_insert(now) + IDLE_MAX {
            waits.idle_since = None;
            self.tracked.close(context);
            waits.waited.all(HoldEvent::Lost);
            return;
        }
        ping(&mut self.tracked, context, &self.options);
    }
}

/// Asks a silent connection for a sign of life.
fn ping(link: &mut Link, context: &Context, options: &ClientOptions) {
    let ping = |wire: &mut Vec<u8>| command(wire, &[b"PING"]);
    // There is room: nothing is owed.
    let _ = link.push(context, Flight::Ping, options, ping);
}

/// The number of milliseconds that a value lives, at least one.
fn milliseconds(lifetime: Duration) -> String {
    lifetime.as_millis().max(1).to_string()
}

const PLAIN: u32 = 0;
const TRACKED: u32 = 1;
/// Index of the deadline until which reads are held back.
const PACE: u32 = 2;
/// The time that a tracking connection stays when no key is waited for.
const IDLE_MAX: Duration = Duration::from_secs(10);
const FAILED_AT_ONCE: Failure = Failure::Unavailable;
const REPLACE: &[u8] = b"if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end \
if ARGV[3]=='0' then redis.call('SET',KEYS[1],ARGV[2]) \
else redis.call('SET',KEYS[1],ARGV[2],'PX',ARGV[3]) end return 1";
const DELETE: &[u8] =
    b"if redis.call('GET',KEYS[1])~=ARGV[1] then return 0 end return redis.call('DEL',KEYS[1])";

#[cfg(test)]
mod tests {
    use super::*;
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
            client.waits.refused_reason = Some("NOPERM".into());
            client.waits.refused_until = Some(until);
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
