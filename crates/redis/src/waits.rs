//! The waits for keys of one server, and what each event of its connections means for them.

use crate::connection::Flight;
use crate::greeting::{Refusal, words};
use crate::link::{Link, LinkEvent};
use crate::pace::Pace;
use crate::shared::Shared;
use crate::table::TrackingTable;
use crate::waited::HoldEvent;
use crate::{
    Announced, ClientOptions, Completion, Error, Failure, Outcome, PushKind, ResyncReason,
    UnusableValue,
};
use dwell_evloop::{Context, Token};
use dwell_proto::resp::{Items, Message, Value, command};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

/// The state of the waits for keys of one server, and what is known of how it tracks them.
#[derive(Debug)]
pub(crate) struct Waits {
    /// The index of the server.
    server: usize,
    /// The server is asked to track.
    is_tracking: bool,
    pub(crate) table: TrackingTable,
    pub(crate) pace: Pace,
    /// The lifetime that the server has replied for the key whose value comes next.
    lifetime: Option<Duration>,
    /// The time until which the server is not asked again to track.
    pub(crate) refused_until: Option<Instant>,
    pub(crate) refused_reason: Option<Box<str>>,
    /// Reads that waited for a connection which the server has refused, to be made on the other.
    pub(crate) unread: Vec<(Box<[u8]>, u64)>,
    /// The server has become a replica: its address may lead to another one now.
    pub(crate) is_demoted: bool,
    /// The time until which its connections are not made anew for that.
    demoted_until: Option<Instant>,
    /// The server knows no `SET` with `GET`.
    pub(crate) is_without_swap: bool,
    /// Since when no key was waited for.
    pub(crate) idle_since: Option<Instant>,
}

/// Adds the two commands that read a key and its lifetime. The lifetime comes first: one that is
/// too short costs a read, one that is too long a wait.
pub(crate) fn send_read(
    tracked: &mut Link,
    (waits, shared): (&Waits, &mut Shared),
    context: &mut Context,
    options: &ClientOptions,
    name: &[u8],
    tag: u64,
) -> Result<(), Error> {
    let Some(key) = shared.waited.enter(name, waits.server) else {
        return Ok(());
    };
    let lifetime = |wire: &mut Vec<u8>| command(wire, &[b"PTTL", name]);
    if let Err(error) = tracked.push(context, Flight::Lifetime, options, lifetime) {
        // It is read later, or dropped again where nobody waits for it.
        shared.waited.put_back(name);
        return Err(error);
    }
    let read = |wire: &mut Vec<u8>| command(wire, &[b"GET", name]);
    let tag = Some(tag);
    tracked.push_behind(context, Flight::Read { key, tag }, options, read);
    shared.waited.happens(key, HoldEvent::Sent);
    Ok(())
}

/// Adds the reads of keys that are to be read again, as many as may be under way. They have room of
/// their own, so that a flood of lookups leaves them theirs.
pub(crate) fn send_rereads(
    (plain, tracked): (&mut Link, &mut Link),
    (waits, shared): (&mut Waits, &mut Shared),
    context: &mut Context,
    options: &ClientOptions,
) {
    let is_told = !waits.is_refused(context) && tracked.is_up();
    if !is_told && !plain.is_up() {
        return;
    }
    let (now, waited) = (context.now(), shared.waited.waited(waits.server));
    let (room, mut count) = (waits.pace.room(now, waited), 0);
    while count < room
        && let Some((key, name)) = shared.waited.next(waits.server, is_told)
    {
        count += 1;
        let read = |wire: &mut Vec<u8>| command(wire, &[b"GET", &*name]);
        if is_told {
            let lifetime = |wire: &mut Vec<u8>| command(wire, &[b"PTTL", &*name]);
            tracked.push_behind(context, Flight::Lifetime, options, lifetime);
            tracked.push_behind(context, Flight::Read { key, tag: None }, options, read);
            shared.waited.happens(key, HoldEvent::Sent);
        } else {
            plain.push_behind(context, Flight::Sweep { key }, options, read);
        }
    }
    waits.pace.sent(count, now);
    shared.metrics.rereads.add(count as u64);
}

impl Waits {
    pub(crate) fn new(server: usize, options: &ClientOptions) -> Self {
        Self {
            server,
            is_tracking: options.announced != Announced::Nothing,
            table: TrackingTable::of(&options.announced),
            pace: Pace::new(dwell_evloop::seed()),
            lifetime: None,
            refused_until: None,
            refused_reason: None,
            unread: Vec::new(),
            is_demoted: false,
            demoted_until: None,
            is_without_swap: false,
            idle_since: None,
        }
    }

    pub(crate) fn is_refused(&mut self, context: &Context) -> bool {
        self.refused_until = self.refused_until.filter(|until| *until > context.now());
        self.is_refusing()
    }

    /// Returns true if the server does not track, or is not asked to.
    pub(crate) fn is_refusing(&self) -> bool {
        !self.is_tracking || self.refused_until.is_some()
    }

    /// Ends a refusal whose time is over where nothing is waited for: the server is asked again
    /// when something is.
    pub(crate) fn forget_refusal(&mut self, context: &Context) {
        if self.refused_until.is_some() && !self.is_refused(context) {
            self.refused_reason = None;
        }
    }

    /// Notes that the server does not track, if the last greeting has ended so.
    pub(crate) fn follow_refusal(&mut self, context: &mut Context, tracked: &mut Link) {
        if self.refused_until.is_none()
            && let Some(Refusal::Untracked(reason)) = tracked.refusal()
        {
            self.refused_reason = Some(reason.clone());
            self.refused_until = Some(context.now() + REFUSED_FOR);
            tracked.give_up(context);
        } else if tracked.is_up() {
            self.refused_reason = None;
        }
    }

    /// Follows an event of one of the connections.
    pub(crate) fn happens(
        &mut self,
        context: &mut Context,
        is_tracked: bool,
        event: LinkEvent<'_>,
        shared: &mut Shared,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) -> Result<(), Failure> {
        match event {
            LinkEvent::Up if is_tracked => {
                if shared.waited.waited(self.server) > 0 {
                    shared.metrics.resyncs.increment(ResyncReason::Connected);
                }
                shared.waited.all(self.server, HoldEvent::Touched);
                self.table.connected(shared.waited.announced());
            }
            #[cfg(feature = "sim")]
            LinkEvent::Down if dwell_evloop::sim::Planted::ForgetResync.is_in() => {}
            LinkEvent::Down if is_tracked => shared.waited.all(self.server, HoldEvent::Lost),
            LinkEvent::Up | LinkEvent::Down => {}
            LinkEvent::Push(items) => self.pushed(shared, items),
            LinkEvent::Failed(flight, failure) => {
                if flight.is_reread() {
                    self.pace.ended();
                }
                if let Flight::Read {
                    key,
                    tag: Some(tag),
                } = flight
                    && failure == Failure::Refused
                    && let Some(name) = shared.waited.name(key)
                {
                    // The server refused the greeting, perhaps only to track: it executed nothing.
                    self.unread.push((name.into(), tag));
                } else if let Some(tag) = flight.tag() {
                    let outcome = Outcome::Failed(failure);
                    sink(context, Completion { tag, outcome });
                }
            }
            LinkEvent::Reply(flight, message) => {
                if let Message::Value(Value::Error(text)) = message
                    && !text.starts_with(WRONG_TYPE)
                    && !matches!(flight, Flight::Table(_))
                {
                    shared.error_reply = Some(words(text));
                }
                return self.replied(context, flight, &message, shared, sink);
            }
        }
        Ok(())
    }

    fn replied(
        &mut self,
        context: &mut Context,
        flight: Flight,
        message: &Message<'_>,
        shared: &mut Shared,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) -> Result<(), Failure> {
        if flight.is_reread() {
            self.pace.ended();
        }
        match flight {
            // An error is a sign of life as well.
            Flight::Ping => {}
            Flight::Table(asked) => self.table.replied(asked, message),
            Flight::Lifetime => {
                self.lifetime = match message {
                    Message::Value(Value::Number(left)) => {
                        u64::try_from(*left).ok().map(Duration::from_millis)
                    }
                    _ => None,
                };
            }
            Flight::Read { key, tag } => {
                let outcome = value_of(shared, message)?;
                #[cfg(feature = "sim")]
                if dwell_evloop::sim::Planted::ForgetLifetime.is_in() {
                    self.lifetime = None;
                }
                self.follow_lifetime(context, key, &outcome, shared);
                let tag = tag.or(shared.waited.tag(key));
                self.follow_read(context, key, &outcome, shared);
                if let Some(tag) = tag {
                    sink(context, Completion { tag, outcome });
                }
            }
            Flight::Sweep { key } => {
                let outcome = value_of(shared, message)?;
                self.follow_refusal_of_all(context, &outcome);
                // Where it has been read for its announcement since, this reply may be older.
                let tag = shared.waited.tag(key);
                if let Some(tag) = tag.filter(|_| !shared.waited.is_held(key)) {
                    sink(context, Completion { tag, outcome });
                }
            }
            Flight::Get { tag, again } => {
                let outcome = value_of(shared, message)?;
                if let Some(name) = again {
                    shared.waited.invalidated(&name);
                }
                sink(context, Completion { tag, outcome });
            }
            Flight::Write { tag, key } => {
                let outcome = match message {
                    Message::Value(Value::SimpleString(_)) => Outcome::Done,
                    Message::Value(Value::Number(number)) if *number > 0 => Outcome::Done,
                    Message::Value(Value::Number(_) | Value::Null) => Outcome::Unmet,
                    Message::Value(Value::Error(text)) => Outcome::Failed(Failure::of_error(text)),
                    _ => return Err(Failure::Protocol),
                };
                shared.waited.written(&key);
                sink(context, Completion { tag, outcome });
                return self.follow_write(context, &outcome);
            }
            Flight::Swap { tag, key } => {
                let outcome = self.swapped(message)?;
                shared.waited.written(&key);
                sink(context, Completion { tag, outcome });
                return self.follow_write(context, &outcome);
            }
        }
        Ok(())
    }

    /// The outcome of a `SET` that replies what was there.
    fn swapped(&mut self, message: &Message<'_>) -> Result<Outcome<'static>, Failure> {
        Ok(match message {
            // It was sent with `NX`, where the server knows no `GET`.
            Message::Value(Value::Null) if self.is_without_swap => Outcome::Unmet,
            Message::Value(Value::SimpleString(_) | Value::Null) => Outcome::Missing,
            Message::Value(Value::BulkString(_)) | Message::Oversized { .. } => Outcome::Done,
            Message::Value(Value::Error(text)) if text.starts_with(SYNTAX) => {
                self.is_without_swap = true;
                Outcome::Unmet
            }
            // It replaces strings alone.
            Message::Value(Value::Error(text)) if text.starts_with(WRONG_TYPE) => Outcome::Unmet,
            Message::Value(Value::Error(text)) => Outcome::Failed(Failure::of_error(text)),
            Message::Value(_) => return Err(Failure::Protocol),
        })
    }

    /// Ends the connections to a server that has become a replica.
    fn follow_write(&mut self, context: &Context, outcome: &Outcome<'_>) -> Result<(), Failure> {
        let now = context.now();
        if *outcome != Outcome::Failed(Failure::ReadOnly)
            || self.demoted_until.is_some_and(|until| now < until)
        {
            return Ok(());
        }
        self.is_demoted = true;
        self.demoted_until = Some(now + DEMOTED_FOR);
        Err(Failure::ReadOnly)
    }

    /// Notes what a read on the tracking connection has come to.
    fn follow_read(
        &mut self,
        context: &mut Context,
        key: Token,
        outcome: &Outcome<'_>,
        shared: &mut Shared,
    ) {
        self.follow_refusal_of_all(context, outcome);
        let digest = match outcome {
            Outcome::Failed(Failure::TooLarge) | Outcome::Missing => 0,
            Outcome::Value(value) => digest_of(value),
            Outcome::Failed(failure) if failure.is_of_all_reads() => {
                return shared.waited.happens(key, HoldEvent::Deferred);
            }
            _ => {
                shared.waited.happens(key, HoldEvent::Refused);
                if let Some(refusals) = shared.waited.put_off(key) {
                    let delay = REFUSED_KEY_MIN * (1 << (refusals - 1).min(16));
                    context.arm(key, delay.min(REFUSED_KEY_MAX));
                }
                return;
            }
        };
        if let Some(has_changed) = shared.waited.answered(key, digest, outcome) {
            self.pace.told(has_changed, context.now());
            (shared.metrics.unchanged_rereads).add(u64::from(!has_changed));
        }
    }

    /// Follows a server that refuses every read for now, or executes them again.
    fn follow_refusal_of_all(&mut self, context: &Context, outcome: &Outcome<'_>) {
        match outcome {
            Outcome::Failed(failure) if failure.is_of_all_reads() => {
                self.pace.refused(context.now());
            }
            Outcome::Failed(_) => {}
            _ => self.pace.answered(),
        }
    }

    /// Arms the end of a value's lifetime.
    fn follow_lifetime(
        &mut self,
        context: &mut Context,
        key: Token,
        outcome: &Outcome<'_>,
        shared: &Shared,
    ) {
        let lifetime = self.lifetime.take();
        let lifetime = lifetime.filter(|_| matches!(outcome, Outcome::Value(_)));
        // One millisecond later it is over by the server's clock, too.
        let lifetime = lifetime.map(|it| it.min(LIFETIME_MAX) + Duration::from_millis(1));
        let untold = shared.waited.is_untold(key).then_some(UNTOLD_FOR);
        match lifetime.into_iter().chain(untold).min() {
            Some(delay) => context.arm(key, delay),
            _ if context.is_armed(key) => context.disarm(key),
            _ => {}
        }
    }

    /// The server has sent something of its own; what is no invalidation is ignored.
    fn pushed(&self, shared: &mut Shared, items: Items<'_>) {
        let mut items = items.into_iter();
        if items.next().and_then(|kind| kind.text()) != Some(b"invalidate") {
            return;
        }
        let Some(Value::Array(names)) = items.next() else {
            #[cfg(feature = "sim")]
            if dwell_evloop::sim::Planted::ForgetFlush.is_in() {
                return;
            }
            shared.metrics.pushes.increment(PushKind::All);
            shared.metrics.resyncs.increment(ResyncReason::Flushed);
            return shared.waited.all(self.server, HoldEvent::Invalidated);
        };
        for name in names {
            #[cfg(feature = "sim")]
            if dwell_evloop::sim::Planted::DropPush.strikes(4) {
                continue;
            }
            let name = name.text().unwrap_or_default();
            let kind = if shared.waited.invalidated(name) {
                PushKind::Waited
            } else {
                PushKind::Unwaited
            };
            shared.metrics.pushes.increment(kind);
        }
    }
}

fn value_of<'b>(shared: &Shared, message: &Message<'b>) -> Result<Outcome<'b>, Failure> {
    let unusable = &shared.metrics.unusable_values;
    Ok(match message {
        Message::Value(Value::BulkString(value)) => Outcome::Value(value),
        Message::Value(Value::Null) => Outcome::Missing,
        Message::Value(Value::Error(text)) if text.starts_with(WRONG_TYPE) => {
            unusable.increment(UnusableValue::WrongType);
            Outcome::Missing
        }
        Message::Value(Value::Error(text)) => Outcome::Failed(Failure::of_error(text)),
        Message::Oversized { .. } => {
            unusable.increment(UnusableValue::TooLarge);
            Outcome::Failed(Failure::TooLarge)
        }
        Message::Value(_) => return Err(Failure::Protocol),
    })
}

/// The time after which a server that does not track is asked again.
const REFUSED_FOR: Duration = Duration::from_secs(30);
/// The time after which a key that the server has refused is read again; each refusal in a row
/// doubles it.
const REFUSED_KEY_MIN: Duration = Duration::from_millis(250);
const REFUSED_KEY_MAX: Duration = Duration::from_secs(30);
/// The time after which a key whose changes no announcement tells is read again.
const UNTOLD_FOR: Duration = Duration::from_millis(250);
/// The longest time until a key with a lifetime is read again.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The time for which a replica is not left for another server again, as it may be the only one.
const DEMOTED_FOR: Duration = Duration::from_secs(5);
const WRONG_TYPE: &[u8] = b"WRONGTYPE";
const SYNTAX: &[u8] = b"ERR syntax error";

/// A digest by which most values differ: of the length and both ends, so that large ones cost no
/// more than others. It only sets the pace of reads.
fn digest_of(value: &[u8]) -> u64 {
    let end = value.len().saturating_sub(DIGEST_BYTES);
    let mut hasher = DefaultHasher::new();
    (
        value.len(),
        &value[..value.len().min(DIGEST_BYTES)],
        &value[end..],
    )
        .hash(&mut hasher);
    hasher.finish() | 1
}

const DIGEST_BYTES: usize = 64;
