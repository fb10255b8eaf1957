//! One server, as the two connections to it.

use crate::cluster::{Repeat, slot_of};
use crate::connection::{Flight, Operation};
use crate::greeting::Purpose;
use crate::left::Left;
use crate::link::{Link, LinkEvent};
use crate::names::Tried;
use crate::part::Part;
use crate::reads::send_rereads;
use crate::shared::Shared;
use crate::waited::HoldEvent;
use crate::waits::Waits;
use crate::{ClientOptions, Completion, Endpoint, Error, Failure, Outcome, Status, Tracking};
use dwell_evloop::{Context, HandshakeCounts, Readiness, Token};
use dwell_proto::resp::command;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// A server with a connection for reads and writes, and one on which it tracks what is read.
#[derive(Debug)]
pub(crate) struct Server {
    /// Its place among the servers of the client.
    index: usize,
    /// Kind of the tokens of its connections.
    kind: u8,
    endpoint: Endpoint,
    pub(crate) plain: Link,
    pub(crate) tracked: Link,
    /// The place where it was before, until that has replied.
    left: Option<Left>,
    pub(crate) waits: Waits,
    /// Operations that fail with the next flush. Those without a failure had no connection.
    failed: Vec<(u64, Option<Failure>)>,
}

impl Server {
    /// A server; with an `address` it is one of a cluster.
    pub(crate) fn new(
        (index, kind): (usize, u8),
        endpoint: Endpoint,
        address: Option<SocketAddr>,
        options: &ClientOptions,
    ) -> Self {
        let link = |purpose, endpoint, part: Part| {
            Link::new(purpose, endpoint, part.token(kind, index), options)
        };
        Self {
            index,
            kind,
            plain: link(Purpose::Plain, endpoint.clone(), Part::Plain),
            tracked: link(Purpose::Tracking, endpoint.clone(), Part::Tracked),
            endpoint,
            left: None,
            waits: Waits::new(index, address, options),
            failed: Vec::new(),
        }
    }

    pub(crate) fn endpoint(&self) -> &Endpoint {
        &self.endpoint
    }

    /// Its address, if it is one of a cluster.
    pub(crate) fn address(&self) -> Option<SocketAddr> {
        Some(self.waits.member?.address)
    }

    /// It is one of the cluster no more.
    pub(crate) fn is_retired(&self) -> bool {
        self.waits.is_retired()
    }

    /// Ends its connections, for it is one of the cluster no more.
    pub(crate) fn retire(
        &mut self,
        context: &mut Context,
        options: &ClientOptions,
        shared: &mut Shared,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        self.set_retired(true);
        let waits = &mut self.waits;
        for (link, is_tracked) in [(&mut self.plain, false), (&mut self.tracked, true)] {
            let mut on = |context: &mut Context, event: LinkEvent<'_>| {
                waits.happens(context, is_tracked, event, shared, sink)
            };
            link.end(context, Failure::Closed, options, &mut on);
            link.give_up(context);
        }
    }

    /// It is one of the cluster again.
    pub(crate) fn come_back(&mut self) {
        self.set_retired(false);
    }

    fn set_retired(&mut self, is_retired: bool) {
        self.waits.set_retired(is_retired);
        if let Some(left) = &mut self.left {
            left.set_retired(is_retired);
        }
    }

    /// Returns true if another server may take its place: it is retired and owes nothing, and no
    /// key waits here until its slot has a server again.
    pub(crate) fn is_free(&self, shared: &Shared) -> bool {
        self.is_retired() && self.is_idle(shared)
    }

    /// Returns true if it owes nothing, and no key waits here.
    pub(crate) fn is_idle(&self, shared: &Shared) -> bool {
        let is_waited = shared.waited.waited(self.index) > 0;
        !is_waited && self.operations() == 0 && self.failed.is_empty()
    }

    /// Has another server of the cluster take its place.
    pub(crate) fn turn_to(
        &mut self,
        context: &mut Context,
        address: SocketAddr,
        options: &ClientOptions,
    ) {
        let endpoint = Endpoint::Tcp(address);
        for link in [&mut self.plain, &mut self.tracked] {
            link.close(context);
            link.give_up(context);
            link.turn_to_other(endpoint.clone(), options);
        }
        self.waits = Waits::new(self.index, Some(address), options);
        self.endpoint = endpoint;
    }

    /// Goes on at another place, where its name leads now, and with what was tried there before, if
    /// anything. The place before answers the commands that it was sent, unless a third place
    /// follows; reads of keys that are waited for are made again. Returns what was tried there.
    pub(crate) fn move_to(
        &mut self,
        context: &mut Context,
        (endpoint, tried): (Endpoint, Option<Tried>),
        options: &ClientOptions,
        shared: &mut Shared,
    ) -> Tried {
        let (waits, failed) = (&mut self.waits, &mut self.failed);
        let mut sink = |_: &mut Context, completion: Completion<'_>| {
            failed.push((completion.tag, completion.outcome.failure()));
        };
        if let Some(left) = self.left.take() {
            left.end(context, options, shared, &mut sink);
        }
        let mut on = |context: &mut Context, event: LinkEvent<'_>| {
            waits.happens(context, true, event, shared, &mut sink)
        };
        // Reads that it owes are made on the other connection.
        self.tracked
            .end(context, Failure::Refused, options, &mut on);
        let of_tracked = self.tracked.take_attempts(options);
        self.tracked.give_up(context);
        let followed = endpoint.clone();
        #[cfg(feature = "sim")]
        let followed = if dwell_evloop::sim::Planted::StayBehind.is_in() {
            self.endpoint.clone()
        } else {
            followed
        };
        self.tracked.turn_to_other(followed, options);
        let mut on = |context: &mut Context, event: LinkEvent<'_>| {
            waits.happens(context, false, event, shared, &mut sink)
        };
        self.plain.flush(context, options, &mut on);
        let turns =
            [Part::Plain, Part::Other].map(|part| part.token(self.kind, self.index).index());
        let index = turns[usize::from(self.plain.index() == turns[0])];
        let place = (endpoint.clone(), index);
        let before = Tried::new(self.plain.take_attempts(options), of_tracked);
        let link = self.plain.leave_for(context, place, options);
        if let Some(cluster) = &mut shared.cluster {
            cluster.failed(self.index, "the server has another address");
            cluster.left(self.index);
        }
        let address = self.address().and(endpoint.address());
        let there = Waits::new(self.index, address, options);
        let mut waits = std::mem::replace(&mut self.waits, there);
        let unread = &mut self.waits.unread;
        unread.append(&mut waits.unread);
        self.left = link.map(|mut link| {
            // A value from there could be older than what is read at the new place before it comes.
            link.take_reads(unread);
            Left::new(link, waits)
        });
        shared.waited.all(self.index, HoldEvent::Lost);
        self.endpoint = endpoint;
        if let Some(tried) = tried {
            tried.resume(context, &mut self.plain, &mut self.tracked);
        }
        self.plain.ensure(context, options);
        before
    }

    /// Asks other Sentinels from the next connection on.
    pub(crate) fn ask_others(&mut self, endpoint: &Endpoint) {
        self.plain.ask_others(endpoint.clone());
        self.tracked.ask_others(endpoint.clone());
        self.endpoint = endpoint.clone();
    }

    /// The place before, if the token is of its connection.
    fn left_at(&mut self, token: Token) -> Option<&mut Left> {
        self.left.as_mut().filter(|left| left.has(token))
    }

    /// Drops the connection to the place before if it owes nothing.
    fn follow_left(&mut self, context: &mut Context) {
        if let Some(left) = self.left.take_if(|left| left.in_flight() == 0) {
            left.close(context);
        }
    }

    /// Asks for a value over the plain connection; waits for its key are compared with a value that
    /// is read after this one.
    pub(crate) fn read_untracked(
        &mut self,
        context: &mut Context,
        options: &ClientOptions,
        (key, Operation { tag, deadline }): (&[u8], Operation),
    ) -> Result<(), Error> {
        let arguments: &[&[u8]] = &[b"GET", key];
        let repeat = self.repeat(key, arguments, deadline);
        // A wait for the key may begin before the reply.
        let again = Some(key.into());
        let flight = Flight::Get {
            tag,
            again,
            end: Some(deadline),
            repeat,
        };
        self.operation(context, options, flight, arguments)
    }

    /// Returns the record by which an operation is sent once more, if the server is one of a
    /// cluster.
    pub(crate) fn repeat(
        &self,
        key: &[u8],
        arguments: &[&[u8]],
        deadline: Instant,
    ) -> Option<Box<Repeat>> {
        self.waits.member?;
        let mut wire = Vec::new();
        command(&mut wire, arguments);
        Some(Box::new(Repeat {
            wire: wire.into(),
            slot: slot_of(key),
            deadline,
            redirects: 0,
            is_asking: false,
        }))
    }

    /// Adds a command to the plain connection. Without a connection its operation fails.
    pub(crate) fn operation(
        &mut self,
        context: &mut Context,
        options: &ClientOptions,
        flight: Flight,
        arguments: &[&[u8]],
    ) -> Result<(), Error> {
        let tag = flight.tag();
        let is_taken = self.plain.ensure(context, options)
            && (self.plain).push(context, flight, options, |wire| command(wire, arguments))?;
        if !is_taken {
            self.fail(tag);
        }
        Ok(())
    }

    /// As [`operation`](Self::operation), for a command that another server has redirected; where
    /// there is no room for it, it fails.
    pub(crate) fn redirected(
        &mut self,
        context: &mut Context,
        options: &ClientOptions,
        flight: Flight,
        (wire, is_asking): (&Arc<[u8]>, bool),
    ) {
        let tag = flight.tag();
        let is_up = self.plain.ensure(context, options);
        let asking = |wire: &mut Vec<u8>| command(wire, &[b"ASKING"]);
        let again = |out: &mut Vec<u8>| out.extend_from_slice(wire);
        let is_taken = if is_up && is_asking {
            let is_taken = self.plain.push(context, Flight::Asking, options, asking);
            if is_taken == Ok(true) {
                self.plain.push_behind(context, flight, options, again);
            }
            is_taken
        } else if is_up {
            self.plain.push(context, flight, options, again)
        } else {
            Ok(false)
        };
        if is_taken != Ok(true) {
            self.fail(tag);
        }
    }

    /// Has an operation fail for which there was no connection.
    fn fail(&mut self, tag: Option<u64>) {
        self.failed.extend(tag.map(|tag| (tag, None)));
    }

    /// Asks for the topology of the cluster; false if there is no connection.
    pub(crate) fn ask_for_topology(
        &mut self,
        context: &mut Context,
        options: &ClientOptions,
    ) -> bool {
        if !self.plain.ensure(context, options) {
            return false;
        }
        let info = |wire: &mut Vec<u8>| command(wire, &[b"CLUSTER", b"INFO"]);
        let slots = |wire: &mut Vec<u8>| command(wire, &[b"CLUSTER", b"SLOTS"]);
        // A flood of operations leaves it its room.
        self.plain
            .push_behind(context, Flight::ClusterInfo, options, info);
        self.plain
            .push_behind(context, Flight::ClusterSlots, options, slots);
        true
    }

    /// Operations without a completion.
    pub(crate) fn operations(&self) -> usize {
        let left = self.left.as_ref().map_or(0, Left::in_flight);
        left + self.plain.in_flight() + self.tracked.in_flight() + self.waits.unread.len()
    }

    /// Its state; `is_waited` if a key of it is waited for.
    pub(crate) fn status(&self, is_waited: bool) -> Status<'_> {
        let waits = &self.waits;
        let tracking = if waits.is_refusing() {
            Tracking::Refused
        } else if self.tracked.is_up() {
            Tracking::On
        } else if is_waited {
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
    pub(crate) fn take_handshakes(&mut self) -> HandshakeCounts {
        let mut counts = self.plain.handshakes().take_counts();
        counts.append(self.tracked.handshakes().take_counts());
        counts
    }

    /// Sends the operations of the turn, and reads the keys that have changed.
    pub(crate) fn flush(
        &mut self,
        context: &mut Context,
        options: &ClientOptions,
        shared: &mut Shared,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        for (key, operation) in std::mem::take(&mut self.waits.unread) {
            let read = (&*key, operation);
            if operation.deadline <= context.now() {
                self.failed.push((operation.tag, Some(Failure::Timeout)));
            } else if self.read_untracked(context, options, read).is_err() {
                self.failed.push((operation.tag, None));
            }
        }
        for (tag, failure) in std::mem::take(&mut self.failed) {
            let failure = failure.or(self.plain.last_failure());
            let outcome = Outcome::Failed(failure.unwrap_or(FAILED_AT_ONCE));
            sink(context, Completion { tag, outcome });
        }
        self.read_changed(context, options, shared);
        let waits = &mut self.waits;
        let mut on = |context: &mut Context, event: LinkEvent<'_>| {
            waits.happens(context, false, event, shared, sink)
        };
        self.plain.flush(context, options, &mut on);
        let mut on = |context: &mut Context, event: LinkEvent<'_>| {
            waits.happens(context, true, event, shared, sink)
        };
        self.tracked.flush(context, options, &mut on);
        waits.follow_refusal(context, &mut self.tracked);
    }

    /// Returns true if its keys can be read. If they cannot, they all are read later anyway.
    pub(crate) fn has_connection(&self) -> bool {
        self.plain.is_up() || self.tracked.is_up()
    }

    /// Adds the reads of keys that have changed, as many as may be in progress.
    pub(crate) fn read_changed(
        &mut self,
        context: &mut Context,
        options: &ClientOptions,
        shared: &mut Shared,
    ) {
        let (tracked, waits) = (&mut self.tracked, &mut self.waits);
        if shared.waited.waited(self.index) == 0 {
            return waits.forget_refusal(context);
        }
        tracked.follow(self.plain.primary_if_up());
        if waits.is_refused(context) {
            // Nothing else may connect to a server that a redirection alone has named.
            self.plain.ensure(context, options);
        } else {
            tracked.ensure(context, options);
        }
        let links = (&mut self.plain, &mut *tracked);
        send_rereads(links, (&mut *waits, &mut *shared), context, options);
        if tracked.is_up() && self.plain.is_up() && waits.table.is_due(context.now()) {
            self.plain.ask_for_table(context, options);
        }
        if waits.member.is_some()
            && tracked.is_up()
            && waits
                .migrations
                .is_due(context.now(), options.topology_interval)
        {
            let ask = |wire: &mut Vec<u8>| command(wire, &[b"CLUSTER", b"NODES"]);
            // Where there is no room, it is asked another time.
            let _ = (self.plain).push(context, Flight::Migrations, options, ask);
        }
        if let Some(pause) = waits.pace.pause(context.now())
            && shared.waited.has_queued(self.index)
        {
            context.arm_sooner(Part::Pace.token(self.kind, self.index), pause);
        }
    }

    /// An event of one of the connections.
    pub(crate) fn ready(
        &mut self,
        context: &mut Context,
        (token, readiness): (Token, Readiness),
        options: &ClientOptions,
        shared: &mut Shared,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        if let Some(left) = self.left_at(token) {
            left.ready(context, (token, readiness), options, shared, sink);
            return self.follow_left(context);
        }
        let waits = &mut self.waits;
        let (_, part) = Part::of(token);
        let (link, other) = match part {
            Part::Plain | Part::Other => (&mut self.plain, &mut self.tracked),
            Part::Tracked | Part::Pace | Part::Topology => (&mut self.tracked, &mut self.plain),
        };
        let (connects, was_connected) = (link.connects(), link.is_connected());
        let mut on = |context: &mut Context, event: LinkEvent<'_>| {
            waits.happens(context, part == Part::Tracked, event, shared, sink)
        };
        link.ready(context, token, readiness, options, &mut on);
        let has_gone = was_connected && !link.is_connected();
        if std::mem::take(&mut waits.is_demoted) {
            let mut on = |context: &mut Context, event: LinkEvent<'_>| {
                waits.happens(context, true, event, shared, sink)
            };
            let tracked = if part == Part::Tracked {
                &mut *link
            } else {
                &mut *other
            };
            tracked.end(context, Failure::ReadOnly, options, &mut on);
        }
        let has_come = link.connects() != connects && link.is_up();
        if has_come && other.is_up() && other.primary() != link.primary() {
            // Only the server that is written to tells what was written. Sentinels may disagree:
            // the tracking connection is made again, to the server of the plain one.
            let mut on = |context: &mut Context, event: LinkEvent<'_>| {
                waits.happens(context, true, event, shared, sink)
            };
            (self.tracked).end(context, Failure::Closed, options, &mut on);
        }
        waits.follow_refusal(context, &mut self.tracked);
        if part == Part::Tracked && has_come && self.tracked.is_up() {
            self.read_in_order(context, options, shared);
        }
        if has_gone {
            self.leave_replica(context, options, shared, sink);
        }
    }

    /// Ends the plain connection if the tracking one, which follows it, was just refused by a
    /// server that is the primary no more.
    fn leave_replica(
        &mut self,
        context: &mut Context,
        options: &ClientOptions,
        shared: &mut Shared,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        let demoted = self.tracked.demoted();
        if demoted.is_none() || self.plain.primary_if_up() != demoted {
            return;
        }
        let failure = match self.plain.in_flight() {
            0 => Failure::ReadOnly,
            // They may have been executed before.
            _ => Failure::Closed,
        };
        let waits = &mut self.waits;
        let mut on = |context: &mut Context, event: LinkEvent<'_>| {
            waits.happens(context, false, event, shared, sink)
        };
        self.plain.end(context, failure, options, &mut on);
    }

    /// A deadline of a connection has passed, or that until which reads were held back: the flush
    /// at the end of the turn reads on.
    pub(crate) fn expired(
        &mut self,
        context: &mut Context,
        token: Token,
        options: &ClientOptions,
        shared: &mut Shared,
        sink: &mut impl FnMut(&mut Context, Completion<'_>),
    ) {
        if let Some(left) = self.left_at(token) {
            left.expired(context, token, options, shared, sink);
            return self.follow_left(context);
        }
        let (waits, (_, part)) = (&mut self.waits, Part::of(token));
        let mut on = |context: &mut Context, event: LinkEvent<'_>| {
            waits.happens(context, part == Part::Tracked, event, shared, sink)
        };
        self.tracked.follow(self.plain.primary_if_up());
        let link = match part {
            Part::Plain | Part::Other => &mut self.plain,
            Part::Tracked => &mut self.tracked,
            Part::Pace | Part::Topology => return,
        };
        let is_silent = link.expired(context, token, options, &mut on);
        waits.follow_refusal(context, &mut self.tracked);
        match part {
            Part::Tracked if is_silent => self.probe(context, options, shared),
            Part::Plain | Part::Other if is_silent => ping(&mut self.plain, context, options),
            _ => {}
        }
    }

    /// Asks a silent tracking connection for a sign of life, or closes it if nothing needs it.
    fn probe(&mut self, context: &mut Context, options: &ClientOptions, shared: &mut Shared) {
        let (waits, now) = (&mut self.waits, context.now());
        if shared.waited.waited(self.index) > 0 {
            waits.idle_since = None;
        } else if now >= *waits.idle_since.get_or_insert(now) + IDLE_MAX {
            waits.idle_since = None;
            self.tracked.close(context);
            shared.waited.all(self.index, HoldEvent::Lost);
            return;
        }
        ping(&mut self.tracked, context, options);
    }
}

/// Asks a silent connection for a sign of life.
fn ping(link: &mut Link, context: &Context, options: &ClientOptions) {
    let ping = |wire: &mut Vec<u8>| command(wire, &[b"PING"]);
    // There is room: nothing is owed.
    let _ = link.push(context, Flight::Ping, options, ping);
}

/// The time that a tracking connection stays when no key is waited for.
const IDLE_MAX: Duration = Duration::from_secs(10);
const FAILED_AT_ONCE: Failure = Failure::Unavailable;
