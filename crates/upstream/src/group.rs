//! Several servers with the same application: which one is asked, and what if it fails.

use std::fmt::Display;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dwell_evloop::{Context, HandshakeCounts, Random, Readiness, Token};

use super::client::Upstream;
use super::connection::Exchange;
use super::health::{Fault, Health, Permit};
use super::plan::{GroupOptions, UPSTREAMS_MAX};
use super::recent::Witness;
use super::{
    FaultReport, Unanswered, Unsent, UpstreamError, UpstreamEvent, UpstreamOptions, UpstreamRequest,
};

/// [`FaultLog`] has a bit for each server in one word.
const _: () = assert!(UPSTREAMS_MAX <= u64::BITS as usize);

/// The servers of the application, as one loop sees them.
///
/// A request goes to the server with the fewest in progress, of those that are in use. If it fails
/// there and may be sent to another, it is: to each that takes no connection, and to one more where
/// it was sent and got no answer, since it may be the request that brings its server down.
///
/// Servers that take no connections, or whose health checks fail, are left out, however many they
/// are. For requests without an answer no more than half of all are: what fails at one server
/// fails at the others, too, where the application is at fault. While none is in use all are tried
/// but those whose health checks fail.
#[derive(Debug)]
pub(crate) struct UpstreamGroup {
    members: Vec<Member>,
    options: GroupOptions,
    first_kind: u8,
    random: Random,
    retried: u64,
    is_started: bool,
}

#[derive(Debug)]
struct Member {
    client: Upstream,
    health: Health,
    address: SocketAddr,
    /// The token of the next health check; no connection has it.
    probe_token: Token,
    /// A health check is open.
    is_probed: bool,
    /// Attempts that failed here since they were taken last, with the last error.
    failed: Option<(u64, UpstreamError)>,
    /// The tag of the request that tries whether it answers again.
    trial: Option<u64>,
    /// The reason for which it is left out.
    reason: Option<Arc<str>>,
}

/// The visible state of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// Its address.
    pub address: SocketAddr,
    /// True if it is in use.
    pub is_up: bool,
    /// Requests in progress or waiting.
    pub outstanding: usize,
    /// Requests that wait for a connection.
    pub queued: usize,
}

/// The outcomes of the requests of one server in one event.
#[derive(Default)]
struct Seen {
    check: Option<Result<u16, UpstreamError>>,
    failures: Vec<Failure>,
}

/// A request that failed.
struct Failure {
    tag: u64,
    error: UpstreamError,
    witness: Witness,
    unanswered: Option<Box<Unanswered>>,
}

impl Seen {
    /// Passes answers on, and keeps what the group has to act upon.
    fn notice(
        &mut self,
        context: &mut Context,
        event: UpstreamEvent,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        match event {
            UpstreamEvent::Answer {
                tag: HEALTH_CHECK,
                answer,
            } => self.check = Some(Ok(answer.status)),
            UpstreamEvent::Failed {
                tag: HEALTH_CHECK,
                error,
                ..
            } => self.check = Some(Err(error)),
            UpstreamEvent::Failed {
                tag,
                error,
                witness,
                unanswered,
                report: _,
            } => self.failures.push(Failure {
                tag,
                error,
                witness,
                unanswered,
            }),
            other => sink(context, other),
        }
    }
}

impl UpstreamGroup {
    /// A group without connections. The tokens of its servers have the kinds from `first_kind` on,
    /// one for each; no other component of the loop may use them.
    ///
    /// Shape: of `servers`, the first [`UPSTREAMS_MAX`] count.
    pub(crate) fn new(first_kind: u8, servers: &[UpstreamOptions], options: GroupOptions) -> Self {
        let kinds = (first_kind..Token::RESERVED_KIND).take(UPSTREAMS_MAX);
        let mut random = Random::new(options.seed);
        let (failures_max, window) = (options.failures_max, options.failures_window);
        let members = servers.iter().zip(kinds).map(|(server, kind)| {
            let client = Upstream::of_group(kind, server.clone());
            Member {
                probe_token: client.spare_token(),
                client,
                health: Health::new(failures_max, window, random.draw()),
                address: server.address,
                is_probed: false,
                failed: None,
                trial: None,
                reason: None,
            }
        });
        Self {
            members: members.collect(),
            first_kind,
            random,
            options,
            retried: 0,
            is_started: false,
        }
    }

    /// Returns true if nothing is in progress.
    pub(crate) fn is_done(&self) -> bool {
        self.statuses().all(|status| status.outstanding == 0)
    }

    /// Gets no more requests, and is to be done when those that are in progress have ended.
    pub(crate) fn retire(&mut self, context: &mut Context) {
        self.options.health = None;
        for member in &mut self.members {
            context.disarm(member.probe_token);
            if std::mem::take(&mut member.is_probed) {
                member.client.cancel(context, HEALTH_CHECK);
            }
        }
    }

    /// The kinds of the tokens of its servers.
    pub(crate) fn kinds(&self) -> Range<u8> {
        // No more kinds than there are were given.
        self.first_kind..self.first_kind + self.members.len() as u8
    }

    /// Open connections, to all servers.
    pub(crate) fn connections(&self) -> usize {
        let open = self
            .members
            .iter()
            .map(|member| member.client.connections());
        open.sum()
    }

    /// Every server as it stands now, in the order they were given.
    pub(crate) fn statuses(&self) -> impl ExactSizeIterator<Item = UpstreamStatus> {
        self.members.iter().map(|member| UpstreamStatus {
            address: member.address,
            is_up: member.health.is_in_use(),
            outstanding: member.client.outstanding(),
            queued: member.client.queued(),
        })
    }

    /// The reason for which the server at this place is left out, if it is.
    pub(crate) fn reason(&self, index: usize) -> Option<Arc<str>> {
        self.members.get(index)?.reason.clone()
    }

    /// Takes the attempts that failed at the server at this place, with the last error: also of
    /// requests that another server has answered.
    pub(crate) fn take_failed(&mut self, index: usize) -> Option<(u64, UpstreamError)> {
        self.members.get_mut(index)?.failed.take()
    }

    /// Takes the number of requests retried on another server since the last call.
    pub(crate) fn take_retried(&mut self) -> u64 {
        std::mem::take(&mut self.retried)
    }

    /// Takes the counts of handshakes since the last call.
    pub(crate) fn take_handshakes(&mut self) -> HandshakeCounts {
        let mut counts = HandshakeCounts::default();
        for member in &mut self.members {
            counts.append(std::mem::take(&mut member.client.handshakes));
        }
        counts
    }

    /// Takes the times to the first byte of requests since the last call, with the places of their
    /// servers.
    pub(crate) fn take_first_bytes(&mut self) -> impl Iterator<Item = (usize, Duration)> {
        self.members
            .iter_mut()
            .enumerate()
            .flat_map(|(index, member)| {
                let first_bytes = member.client.first_bytes.drain(..);
                let of_clients = first_bytes.filter(|head| head.tag != HEALTH_CHECK);
                of_clients.map(move |head| (index, head.waited))
            })
    }

    /// Begins the health checks, if they are on; called at the end of every turn.
    pub(crate) fn start(&mut self, context: &mut Context) {
        if std::mem::replace(&mut self.is_started, true) {
            return;
        }
        if let Some(health) = &self.options.health {
            let interval = health.interval;
            for index in 0..self.members.len() {
                let spread = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
                let delay = Duration::from_millis(self.random.below(spread));
                context.arm(self.members[index].probe_token, delay);
            }
        }
    }

    /// Sends a request to one of the servers.
    ///
    /// # Errors
    /// [`UpstreamError::Unavailable`] when the health checks of every server fail, or what kept the
    /// one that was chosen last from taking it. No event follows then.
    pub(crate) fn send(
        &mut self,
        context: &mut Context,
        request: UpstreamRequest,
    ) -> Result<(), Unsent> {
        let unavailable = UpstreamError::Unavailable;
        let Some(first) = self.members.first() else {
            return Err(self.unsent(context.now(), None, unavailable));
        };
        let exchange = first.client.exchange(context, request);
        self.place(context, exchange, None, unavailable)
    }

    /// Counts a request whose connection has ended before all of its body was sent.
    pub(crate) fn lost(&mut self, now: Instant, connection: Token) -> Unsent {
        let (index, error) = (self.index_of(connection), UpstreamError::Closed);
        if let Some(member) = self.members.get_mut(index) {
            member.count_failure(&error);
        }
        self.unsent(now, Some(index), error)
    }

    /// A request fails, the last time at the server at this place, or at none.
    fn unsent(&self, now: Instant, index: Option<usize>, error: UpstreamError) -> Unsent {
        let member = index.and_then(|index| self.members.get(index));
        let server = member.map(|member| member.address);
        let place = server.and(index);
        let count = self.options.faults.failed(now, place);
        let report = FaultReport { server, count };
        Unsent { error, report }
    }

    /// A socket of one of the servers is ready.
    pub(crate) fn ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let index = self.index_of(token);
        let Some(member) = self.members.get_mut(index) else {
            return;
        };
        let (mut seen, first_bytes) = (Seen::default(), member.client.first_bytes.len());
        let mut notice = |context: &mut Context, event| seen.notice(context, event, sink);
        member.client.ready(context, token, readiness, &mut notice);
        self.conclude(context, index, first_bytes, seen, sink);
    }

    /// The deadline of a token of one of the servers has passed.
    pub(crate) fn expired(
        &mut self,
        context: &mut Context,
        token: Token,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let index = self.index_of(token);
        let Some(member) = self.members.get_mut(index) else {
            return;
        };
        if member.probe_token == token {
            return self.send_check(context, index);
        }
        let (mut seen, first_bytes) = (Seen::default(), member.client.first_bytes.len());
        let mut notice = |context: &mut Context, event| seen.notice(context, event, sink);
        member.client.expired(context, token, &mut notice);
        self.conclude(context, index, first_bytes, seen, sink);
    }

    /// Returns the client of the server that this connection belongs to.
    pub(crate) fn client_of(&mut self, connection: Token) -> Option<&mut Upstream> {
        let index = self.index_of(connection);
        Some(&mut self.members.get_mut(index)?.client)
    }

    /// The clients of all servers.
    pub(super) fn clients(&mut self) -> impl Iterator<Item = &mut Upstream> {
        self.members.iter_mut().map(|member| &mut member.client)
    }

    fn index_of(&self, token: Token) -> usize {
        usize::from(token.kind().wrapping_sub(self.first_kind))
    }

    /// Notes what has come of one server's requests, and sends those that failed to others; its
    /// heads from `first_bytes_before` on are new.
    fn conclude(
        &mut self,
        context: &mut Context,
        index: usize,
        first_bytes_before: usize,
        seen: Seen,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let now = context.now();
        // Where servers are checked, one answer does not make a sick one well.
        let is_proof = self.options.health.is_none();
        let Some(member) = self.members.get_mut(index) else {
            return;
        };
        let new = member
            .client
            .first_bytes
            .get(first_bytes_before..)
            .unwrap_or_default();
        let (mut is_back, mut has_answered) = (false, false);
        for head in new.iter().filter(|head| head.tag != HEALTH_CHECK) {
            is_back |= member.health.answered(now, head.witness, is_proof);
            has_answered = true;
        }
        if has_answered && self.options.faults.answered(index) {
            tracing::info!(server = %member.address, "upstream answers");
        }
        if is_back {
            member.is_restored();
        }
        if let Some(result) = seen.check {
            self.note_check(now, index, &result);
        }
        for failure in seen.failures {
            let Failure { tag, error, .. } = failure;
            self.failed(now, index, &error, failure.witness);
            self.trial_is_over(now, tag);
            let result = match failure.unanswered {
                Some(unanswered) => self.place(context, unanswered.0, Some(index), error),
                None => Err(self.unsent(now, Some(index), error)),
            };
            if let Err(unsent) = result {
                sink(context, UpstreamEvent::unsent(tag, unsent));
            }
        }
    }

    /// Gives a request to the best server of those that it was not with yet; without such a server
    /// it fails with `error`, and `failed_at` is the place of the server that this is of.
    fn place(
        &mut self,
        context: &mut Context,
        mut exchange: Exchange,
        mut failed_at: Option<usize>,
        mut error: UpstreamError,
    ) -> Result<(), Unsent> {
        let now = context.now();
        while exchange.deadline > now
            && let Some(index) = self.choose(now, &exchange)
        {
            if exchange.asked != 0 {
                self.retried += 1;
            }
            exchange.asked |= 1 << index;
            let member = &mut self.members[index];
            if member.health.permit(now) == Permit::Trial {
                let timeout = exchange.deadline.saturating_duration_since(now);
                member.health.begin_trial(now, timeout);
                member.trial = Some(exchange.request.tag);
            }
            match member.client.take(context, exchange.clone()) {
                Ok(()) => return Ok(()),
                // It had the fewest under way: the others are as full.
                Err(full @ UpstreamError::QueueFull { .. }) => {
                    self.members[index].count_failure(&full);
                    self.trial_is_over(now, exchange.request.tag);
                    return Err(self.unsent(now, Some(index), full));
                }
                Err(other) => {
                    self.failed(now, index, &other, exchange.witness);
                    (failed_at, error) = (Some(index), other);
                }
            }
        }
        Err(self.unsent(now, failed_at, error))
    }

    /// The server that is asked next.
    ///
    /// Shape: a full scan, as there are few; it begins anywhere, so that equal ones take turns. A
    /// server whose trial is due comes first, or it would never be asked again while the others
    /// have nothing to do; but not with a request that might fail there and not be repeated, if
    /// there is another.
    fn choose(&mut self, now: Instant, exchange: &Exchange) -> Option<usize> {
        let count = self.members.len();
        let start = self.random.below(count as u64) as usize;
        let has_looks = self.options.health.is_some();
        let is_any_in_use = self.members.iter().any(|member| member.health.is_in_use());
        let (mut best, mut trial) = (None, None);
        for index in (start..count).chain(0..start) {
            if exchange.asked & (1 << index) != 0 {
                continue;
            }
            let member = &self.members[index];
            let is_asked = match member.health.permit(now) {
                Permit::Yes => true,
                // Nobody else is there to be asked.
                _ if !is_any_in_use => !member.health.is_down(),
                Permit::Trial if !has_looks => {
                    trial = Some(index);
                    false
                }
                Permit::Trial | Permit::No => false,
            };
            let outstanding = member.client.outstanding();
            if is_asked && best.is_none_or(|(least, _)| outstanding < least) {
                best = Some((outstanding, index));
            }
        }
        let best = best.map(|(_, index)| index);
        if exchange.request.is_idempotent {
            trial.or(best)
        } else {
            best.or(trial)
        }
    }

    /// The request with this tag tries no server any more. If that has shown nothing, as its client
    /// has left or it had no connection, the next request is the trial: the server may be well.
    pub(super) fn trial_is_over(&mut self, now: Instant, tag: u64) {
        for member in &mut self.members {
            if member.trial.take_if(|trial| *trial == tag).is_some() {
                member.health.end_trial(now);
            }
        }
    }

    /// Handles the end of a health check.
    fn note_check(&mut self, now: Instant, index: usize, result: &Result<u16, UpstreamError>) {
        let member = &mut self.members[index];
        member.is_probed = false;
        match result {
            Ok(..400) => {
                if member.health.note_passed_check() {
                    member.is_restored();
                }
            }
            Ok(status) => self.note_failed_check(now, index, &format_args!("status {status}")),
            Err(error) if Fault::of(error) == Fault::None => {}
            Err(error) => self.note_failed_check(now, index, error),
        }
    }

    /// A health check has failed.
    fn note_failed_check(&mut self, now: Instant, index: usize, reason: &dyn Display) {
        let member = &mut self.members[index];
        if member.health.note_failed_check(now) {
            member.is_ejected(&format_args!("health check: {reason}"));
        }
    }

    /// A request has failed at a server.
    fn failed(&mut self, now: Instant, index: usize, error: &UpstreamError, witness: Witness) {
        let others = self.members.iter().enumerate();
        let out = others.filter(|(other, it)| *other != index && !it.health.is_in_use());
        let may_leave = 2 * (out.count() + 1) <= self.members.len();
        let member = &mut self.members[index];
        member.count_failure(error);
        let leaves = match Fault::of(error) {
            Fault::None => false,
            Fault::Connection => member.health.unconnected(now),
            Fault::Gateway => member.health.unanswered(now, witness, may_leave),
        };
        if leaves {
            member.is_ejected(error);
        }
    }

    /// Sends a health check. The one before has timed out if it is still open.
    fn send_check(&mut self, context: &mut Context, index: usize) {
        let Some(health) = &self.options.health else {
            return;
        };
        let interval = health.interval;
        let member = &mut self.members[index];
        let bytes = check_request(&health.path, &member.client.authority());
        context.arm(member.probe_token, interval);
        if std::mem::take(&mut member.is_probed) {
            member.client.cancel(context, HEALTH_CHECK);
            let error = UpstreamError::HeaderTimeout(interval);
            self.note_failed_check(context.now(), index, &error);
        }
        let member = &mut self.members[index];
        // A server without a free connection is at work, and needs no check.
        if !member.client.has_room_for(None) {
            return;
        }
        if member.health.permit(context.now()) == Permit::Trial {
            member.health.begin_trial(context.now(), interval);
        }
        let request = UpstreamRequest {
            is_idempotent: true,
            ..UpstreamRequest::new(bytes, HEALTH_CHECK)
        };
        match member.client.send(context, request) {
            Ok(()) => member.is_probed = true,
            Err(error) => self.note_check(context.now(), index, &Err(error)),
        }
    }
}

impl Member {
    fn count_failure(&mut self, error: &UpstreamError) {
        let before = self.failed.take().map_or(0, |(count, _)| count);
        self.failed = Some((before + 1, error.clone()));
    }

    fn is_ejected(&mut self, reason: &dyn Display) {
        self.reason = Some(reason.to_string().into());
        tracing::warn!(server = %self.address, %reason, "upstream is left out");
    }

    fn is_restored(&mut self) {
        self.reason = None;
        tracing::info!(server = %self.address, "upstream is back in use");
    }
}

fn check_request(path: &str, authority: &str) -> Bytes {
    format!("GET {path} HTTP/1.1\r\nHost: {authority}\r\nUser-Agent: dwell\r\n\r\n").into()
}

/// The tag of a health check; no token has it.
const HEALTH_CHECK: u64 = u64::MAX;

#[cfg(test)]
mod tests;
