//! The waits for keys of one server, and what each event of its connections means for them.

use crate::cluster::{Migrations, Redirect, Redirected, Told};
use crate::connection::{Flight, Operation, Reader};
use crate::digest::{MISSING, TOO_LARGE, digest_of};
use crate::greeting::{Refusal, words};
use crate::link::{Link, LinkEvent};
use crate::pace::{Pace, held_back};
use crate::shared::Shared;
use crate::swap::SwapOption;
use crate::table::TrackingTable;
use crate::waited::HoldEvent;
use crate::{
    Announced, ClientOptions, Completion, Failure, Outcome, PushKind, RedirectKind, ResyncReason,
    TopologyRead, UnusableValue,
};
use dwell_evloop::{Context, Token};
use dwell_proto::resp::{Items, Message, Value};
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The state of the waits for keys of one server, and what is known of how it tracks them.
#[derive(Debug)]
pub(crate) struct Waits {
    /// The index of the server.
    pub(crate) server: usize,
    /// Its part in a cluster, if it is one of a cluster.
    pub(crate) member: Option<Member>,
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
    pub(crate) unread: Vec<(Arc<[u8]>, Operation)>,
    /// The server has become a replica: its address may lead to another one now.
    pub(crate) is_demoted: bool,
    /// The time until which its connections are not made again for that.
    demoted_until: Option<Instant>,
    /// The option of writes that the server is known, or taken, to know.
    pub(crate) swap_option: SwapOption,
    /// The slots that are about to move away.
    pub(crate) migrations: Migrations,
    /// Since when no key was waited for.
    pub(crate) idle_since: Option<Instant>,
}

/// The part of a server in a cluster.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member {
    pub(crate) address: SocketAddr,
    /// It has none any more: what it was asked is asked of another one.
    pub(crate) is_retired: bool,
}

impl Waits {
    /// The waits of the server with this index, and with this address if it is one of a cluster.
    pub(crate) fn new(server: usize, address: Option<SocketAddr>, options: &ClientOptions) -> Self {
        Self {
            server,
            member: address.map(|address| Member {
                address,
                is_retired: false,
            }),
            is_tracking: options.announced != Announced::Nothing,
            table: TrackingTable::of(&options.announced),
            pace: Pace::new(dwell_evloop::seed()),
            lifetime: None,
            refused_until: None,
            refused_reason: None,
            unread: Vec::new(),
            is_demoted: false,
            demoted_until: None,
            swap_option: SwapOption::Get,
            migrations: Migrations::default(),
            idle_since: None,
        }
    }

    /// The server is one of its cluster no more, or is one again.
    pub(crate) fn set_retired(&mut self, is_retired: bool) {
        if let Some(member) = &mut self.member {
            member.is_retired = is_retired;
        }
    }

    /// Returns true of a server that is one of its cluster no more.
    pub(crate) fn is_retired(&self) -> bool {
        self.member.is_some_and(|member| member.is_retired)
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
        if matches!(event, LinkEvent::Down(Failure::Protocol)) {
            shared.metrics.protocol_errors.increment();
        }
        match event {
            LinkEvent::Up if is_tracked => {
                if shared.waited.waited(self.server) > 0 {
                    shared.metrics.resyncs.increment(ResyncReason::Connected);
                }
                shared.waited.all(self.server, HoldEvent::Touched);
                self.table.connected(shared.waited.announced());
            }
            #[cfg(feature = "sim")]
            LinkEvent::Down(_) if dwell_evloop::sim::Planted::ForgetResync.is_in() => {}
            LinkEvent::Down(_) if is_tracked => shared.waited.all(self.server, HoldEvent::Lost),
            LinkEvent::Down(_) => shared.want_topology(),
            LinkEvent::Up => {
                self.migrations.connected();
                // It may have been upgraded meanwhile.
                self.swap_option = SwapOption::Get;
            }
            LinkEvent::Push(items) => self.pushed(shared, items),
            LinkEvent::Failed(flight, failure) => {
                self.failed(context, flight, failure, shared, sink);
            }
            LinkEvent::Overdue(tag) => {
                let outcome = Outcome::Failed(Failure::Timeout);
                sink(context, Completion { tag, outcome });
            }
            LinkEvent::Reply(flight, message) => {
                if let Message::Value(Value::Error(text)) = message {
                    if !flight.is_own()
                        && let Some(redirect) =
                            self.member.and_then(|it| Redirect::read(text, it.address))
                    {
                        self.redirected(flight, redirect, shared);
                        return Ok(());
                    }
                    let is_told = matches!(
                        flight,
                        Flight::Table(_) | Flight::ClusterInfo | Flight::Migrations
                    );
                    if !text.starts_with(WRONG_TYPE) && !is_told {
                        shared.error_reply = Some(words(text));
                    }
                }
                let tag = flight.tag();
                let replied = self.replied(context, flight, &message, shared, sink);
                if let (Err(Failure::Protocol), Some(tag)) = (replied, tag) {
                    let outcome = Outcome::Failed(Failure::Protocol);
                    sink(context, Completion { tag, outcome });
                }
                return replied;
            }
        }
        Ok(())
    }

    /// Ends a command that will have no reply, or leaves it to another server.
    fn failed(
        &mut self,
        context: &mut Context,
        flight: Flight,
        failure: Failure,
        shared: &mut Shared,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        if flight.is_reread() {
            self.pace.ended();
        }
        if let Flight::Read { key, .. } = flight
            && shared.waited.server(key) == Some(self.server)
        {
            shared.waited.happens(key, HoldEvent::Deferred);
        }
        match flight {
            // The server refused the greeting, perhaps only to track: it executed nothing.
            Flight::Read {
                name,
                by: Reader::Operation(operation),
                ..
            } if failure == Failure::Refused => self.unread.push((name, operation)),
            // A write may have been executed.
            Flight::Read {
                by: Reader::Operation(_),
                ..
            }
            | Flight::Get { .. }
                if self.is_retired() =>
            {
                self.leave(flight, Redirect::Owner, shared);
            }
            Flight::ClusterSlots => {
                shared.metrics.topologies.increment(TopologyRead::Failed);
                if let Some(cluster) = &mut shared.cluster {
                    cluster.failed(self.server, failure.to_string());
                }
            }
            _ => {
                if let Some(tag) = flight.tag() {
                    let outcome = Outcome::Failed(failure);
                    sink(context, Completion { tag, outcome });
                }
            }
        }
    }

    /// Another server has to be sent a command.
    fn redirected(&mut self, flight: Flight, redirect: Redirect, shared: &mut Shared) {
        if flight.is_reread() {
            self.pace.ended();
        }
        // The read behind it is redirected as well.
        if matches!(flight, Flight::Lifetime) {
            self.lifetime = None;
            return;
        }
        let kind = match redirect {
            Redirect::Ask(_) => RedirectKind::Ask,
            Redirect::Moved(_) | Redirect::Owner => {
                shared.want_topology();
                RedirectKind::Moved
            }
        };
        shared.metrics.redirects.increment(kind);
        self.leave(flight, redirect, shared);
    }

    fn leave(&self, flight: Flight, redirect: Redirect, shared: &mut Shared) {
        let from = self.server;
        shared.redirections.add(Redirected {
            flight,
            from,
            redirect,
        });
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
            Flight::Ping | Flight::Asking | Flight::Ended => {}
            Flight::ClusterInfo => {
                if let Some(cluster) = &mut shared.cluster {
                    cluster.info(message);
                }
            }
            Flight::ClusterSlots => self.follow_topology(message, shared),
            Flight::Migrations => {
                let leaving = self.migrations.replied(message);
                shared.waited.may_be_elsewhere(self.server, &leaving);
            }
            Flight::Table(asked) => self.table.replied(asked, message),
            Flight::Lifetime => {
                self.lifetime = match message {
                    Message::Value(Value::Number(left)) => {
                        u64::try_from(*left).ok().map(Duration::from_millis)
                    }
                    _ => None,
                };
            }
            Flight::Read { .. } | Flight::Sweep { .. } | Flight::Get { .. } => {
                let outcome = value_of(shared, message)?;
                let tags = self.followed(context, flight, &outcome, shared);
                for tag in tags.into_iter().flatten() {
                    sink(context, Completion { tag, outcome });
                }
            }
            Flight::Write { tag, key, .. } => {
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
            Flight::Swap {
                tag, option, key, ..
            } => {
                let outcome = option.outcome(message)?;
                if option.is_unknown(message) {
                    self.swap_option = SwapOption::Absent;
                }
                shared.waited.written(&key);
                sink(context, Completion { tag, outcome });
                return self.follow_write(context, &outcome);
            }
        }
        Ok(())
    }

    /// Notes what a read has come to; returns the tags that are given it: of the operation, and of
    /// waits.
    fn followed(
        &mut self,
        context: &mut Context,
        flight: Flight,
        outcome: &Outcome<'_>,
        shared: &mut Shared,
    ) -> [Option<u64>; 2] {
        match flight {
            Flight::Read { key, by, .. } => {
                let tag = by.operation().map(|operation| operation.tag);
                let server = shared.waited.server(key);
                if server.is_some_and(|server| server != self.server) {
                    // Its waits may have been told something newer by the one that has it now.
                    self.lifetime = None;
                    if tag.is_some() {
                        self.leave(flight, Redirect::Owner, shared);
                    }
                    return [None; 2];
                }
                #[cfg(feature = "sim")]
                if dwell_evloop::sim::Planted::ForgetLifetime.is_in() {
                    self.lifetime = None;
                }
                self.follow_lifetime(context, key, outcome, shared);
                let of_waits = match (tag, outcome) {
                    (None, _) => shared.waited.tag(key),
                    // The key is read again for the waits.
                    (Some(_), Outcome::Failed(failure)) if *failure != Failure::TooLarge => None,
                    (Some(_), _) => shared.waited.owed(key).filter(|owed| tag != Some(*owed)),
                };
                self.follow_read(context, (key, by), outcome, shared);
                [tag, of_waits]
            }
            Flight::Sweep { key, is_asking } => {
                self.follow_refusal_of_all(context, outcome);
                let is_here = shared.waited.server(key) == Some(self.server);
                // Where it has been read for its announcement since, this reply may be older.
                let tag = shared.waited.tag(key);
                let may_tell = (is_here || is_asking) && !shared.waited.is_held(key);
                [None, tag.filter(|_| may_tell)]
            }
            Flight::Get {
                tag, again, repeat, ..
            } => {
                let Some(name) = again else {
                    return [Some(tag), None];
                };
                if let Some(repeat) = repeat.filter(|repeat| repeat.is_asking)
                    && let Some(key) = shared.waited.find(&name)
                    && shared.waited.is_held(key)
                {
                    // The slot has moved since, and what is waited for is newer.
                    let (name, deadline) = ((*name).into(), repeat.deadline);
                    let by = Reader::Operation(Operation { tag, deadline });
                    let flight = Flight::Read { key, name, by };
                    self.leave(flight, Redirect::Owner, shared);
                    return [None; 2];
                }
                shared.waited.may_have_changed(&name);
                [Some(tag), None]
            }
            _ => [None; 2],
        }
    }

    /// The server has told which servers the cluster has.
    fn follow_topology(&self, message: &Message<'_>, shared: &mut Shared) {
        let (Some(cluster), Some(member)) = (&mut shared.cluster, self.member) else {
            return;
        };
        let (told, topology) = cluster.slots(message, member.address);
        shared.metrics.topologies.increment(match told {
            Told::Same => TopologyRead::Same,
            Told::Changed => TopologyRead::Changed,
            Told::Outdated => TopologyRead::Outdated,
            Told::Failed => TopologyRead::Failed,
        });
        shared.is_confirmed = told == Told::Same;
        shared.told = topology;
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
        (key, by): (Token, Reader),
        outcome: &Outcome<'_>,
        shared: &mut Shared,
    ) {
        self.follow_refusal_of_all(context, outcome);
        let digest = match outcome {
            Outcome::Missing => MISSING,
            Outcome::Failed(Failure::TooLarge) => TOO_LARGE,
            Outcome::Value(value) => digest_of(value),
            Outcome::Failed(failure) if failure.is_of_all_reads() => {
                return shared.waited.happens(key, HoldEvent::Deferred);
            }
            _ => {
                Self::put_off(context, key, by == Reader::Waits, shared);
                return;
            }
        };
        if let Some(has_changed) = shared.waited.answered(key, digest, outcome) {
            self.pace.told(has_changed, context.now());
            (shared.metrics.unchanged_rereads).add(u64::from(!has_changed));
        }
    }

    /// Sets the time at which the waits read a key that was refused.
    fn put_off(context: &mut Context, key: Token, is_of_waits: bool, shared: &mut Shared) {
        let before = shared.waited.refusals(key);
        (shared.waited).happens(key, HoldEvent::Refused { is_of_waits });
        if shared.waited.tag(key).is_none() {
            return;
        }
        let refusals = shared.waited.refusals(key).clamp(1, 16);
        let delay = REFUSED_KEY_MAX.min(REFUSED_KEY_MIN * (1 << (refusals - 1)));
        // Requests come as often as they like, and put off no read of the waits.
        if is_of_waits {
            context.arm(key, delay);
        } else if before == 0 || context.is_armed(key) {
            context.arm_sooner(key, delay);
        } else if shared.waited.is_put_off(key) {
            // The time has passed during the request.
            shared.waited.happens(key, HoldEvent::Invalidated);
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

    /// Arms the end of a value's lifetime. A read that was refused does not return it, and leaves
    /// the deadline of the key to the waits.
    fn follow_lifetime(
        &mut self,
        context: &mut Context,
        key: Token,
        outcome: &Outcome<'_>,
        shared: &Shared,
    ) {
        let lifetime = self.lifetime.take();
        if shared.waited.server(key).is_none() {
            // Nobody waits for it any more, and nothing would end the deadline.
            return;
        }
        let has_lifetime = match outcome {
            Outcome::Value(_) | Outcome::Failed(Failure::TooLarge) => true,
            Outcome::Failed(_) => return,
            _ => false,
        };
        let lifetime = lifetime.filter(|_| has_lifetime);
        // One millisecond later it is over by the server's clock, too.
        let lifetime = lifetime.map(|it| it.min(LIFETIME_MAX) + Duration::from_millis(1));
        let untold = shared.waited.untold_beside(key).map(held_back);
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
/// The longest time until a key with a lifetime is read again.
const LIFETIME_MAX: Duration = Duration::from_secs(24 * 60 * 60);
/// The time for which a replica is not left for another server again, as it may be the only one.
const DEMOTED_FOR: Duration = Duration::from_secs(5);
const WRONG_TYPE: &[u8] = b"WRONGTYPE";
