//! Several servers with the same application: which one is asked, and what if it fails.

use std::net::SocketAddr;
use std::ops::Range;
use std::time::{Duration, Instant};

use bytes::Bytes;
use dwell_evloop::{Context, Readiness, Token};

use crate::random::Random;

use super::client::Upstream;
use super::connection::Exchange;
use super::health::{Breaker, HealthCheck, Permit};
use super::{Taking, Unanswered, UpstreamError, UpstreamEvent, UpstreamOptions, UpstreamRequest};

/// The most servers of one group.
pub const UPSTREAMS_MAX: usize = 64;

/// How a group treats its servers.
#[derive(Clone, Debug)]
pub struct GroupOptions {
    /// Requests in a row without an answer after which a server is left alone for a while.
    pub failures_max: u32,
    /// How servers are looked after; without it requests try those that were left alone.
    pub health: Option<HealthCheck>,
    /// Where chance begins.
    pub seed: u64,
}

/// The servers of the application with what may be asked of them.
#[derive(Clone, Debug)]
pub struct UpstreamPlan {
    /// Where each is, and its bounds.
    pub servers: Vec<UpstreamOptions>,
    /// What concerns all.
    pub options: GroupOptions,
}

/// The servers of the application, as one loop sees them.
///
/// A request goes to the server with the fewest under way, of those that answer. If it fails there
/// and may be sent to another, it is, each server being asked once; so whoever sent it hears of a
/// failure only when nobody is left.
#[derive(Debug)]
pub struct UpstreamGroup {
    members: Vec<Member>,
    options: GroupOptions,
    first_kind: u8,
    random: Random,
    moved: u64,
    is_started: bool,
}

#[derive(Debug)]
struct Member {
    client: Upstream,
    breaker: Breaker,
    address: SocketAddr,
    /// Bears the deadline of the next look; no connection has it.
    look_token: Token,
    /// A look is under way.
    is_looked_at: bool,
    /// The tag of the request that tries whether it answers again.
    trial: Option<u64>,
}

/// What can be seen of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamStatus {
    /// Its address.
    pub address: SocketAddr,
    /// Whether it is asked.
    pub is_up: bool,
    /// Requests under way or waiting.
    pub outstanding: usize,
}

/// What came of the requests of one server in one event.
#[derive(Default)]
struct Seen {
    has_answered: bool,
    look: Option<Result<u16, UpstreamError>>,
    failures: Vec<(u64, UpstreamError, Option<Box<Unanswered>>)>,
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
            UpstreamEvent::Answer { tag: LOOK, answer } => self.look = Some(Ok(answer.status)),
            UpstreamEvent::Failed {
                tag: LOOK, error, ..
            } => self.look = Some(Err(error)),
            UpstreamEvent::Failed {
                tag,
                error,
                unanswered,
            } => self.failures.push((tag, error, unanswered)),
            // A request that was sent, and no answer yet.
            event @ (UpstreamEvent::Started { .. } | UpstreamEvent::BodyTaken { .. }) => {
                sink(context, event);
            }
            answer => {
                self.has_answered = true;
                sink(context, answer);
            }
        }
    }
}

impl UpstreamGroup {
    /// A group without connections. The tokens of its servers have the kinds from `first_kind` on,
    /// one for each; nobody else on the loop may use them.
    ///
    /// Shape: of `servers`, the first [`UPSTREAMS_MAX`] count.
    pub fn new(first_kind: u8, servers: &[UpstreamOptions], options: GroupOptions) -> Self {
        let kinds = (first_kind..Token::RESERVED_KIND).take(UPSTREAMS_MAX);
        let members = servers.iter().zip(kinds).map(|(server, kind)| {
            let client = Upstream::new(kind, *server);
            Member {
                look_token: client.spare_token(),
                client,
                breaker: Breaker::new(options.failures_max),
                address: server.address,
                is_looked_at: false,
                trial: None,
            }
        });
        Self {
            members: members.collect(),
            first_kind,
            random: Random::new(options.seed),
            options,
            moved: 0,
            is_started: false,
        }
    }

    /// Whether nothing is under way.
    pub fn is_done(&self) -> bool {
        self.statuses().all(|status| status.outstanding == 0)
    }

    /// Gets no more requests, and is to be done when those that are under way have ended.
    pub fn retire(&mut self, context: &mut Context) {
        self.options.health = None;
        for member in &mut self.members {
            context.disarm(member.look_token);
            if std::mem::take(&mut member.is_looked_at) {
                member.client.cancel(context, LOOK);
            }
        }
    }

    /// The kinds of the tokens of its servers.
    pub fn kinds(&self) -> Range<u8> {
        // No more kinds than there are were given.
        self.first_kind..self.first_kind + self.members.len() as u8
    }

    /// Open connections, to all servers.
    pub fn connections(&self) -> usize {
        let open = self
            .members
            .iter()
            .map(|member| member.client.connections());
        open.sum()
    }

    /// Every server as it stands now, in the order they were given.
    pub fn statuses(&self) -> impl ExactSizeIterator<Item = UpstreamStatus> {
        self.members.iter().map(|member| UpstreamStatus {
            address: member.address,
            is_up: member.breaker.is_closed(),
            outstanding: member.client.outstanding(),
        })
    }

    /// How many requests were sent to another server since this was asked last.
    pub fn take_moved(&mut self) -> u64 {
        std::mem::take(&mut self.moved)
    }

    /// How long requests took from being sent to the head of their answer, since this was asked
    /// last, with the place of their server.
    pub fn take_heads(&mut self) -> impl Iterator<Item = (usize, Duration)> {
        self.members
            .iter_mut()
            .enumerate()
            .flat_map(|(index, member)| {
                let heads = member.client.heads.drain(..);
                let of_clients = heads.filter(|(tag, _)| *tag != LOOK);
                of_clients.map(move |(_, waited)| (index, waited))
            })
    }

    /// Begins to look after the servers, where that is wanted; for the end of every turn.
    pub fn start(&mut self, context: &mut Context) {
        if std::mem::replace(&mut self.is_started, true) {
            return;
        }
        if let Some(health) = &self.options.health {
            let interval = health.interval;
            for index in 0..self.members.len() {
                let spread = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
                let delay = Duration::from_millis(self.random.below(spread));
                context.arm(self.members[index].look_token, delay);
            }
        }
    }

    /// Sends a request to one of the servers.
    ///
    /// # Errors
    /// [`UpstreamError::Unavailable`] when every server is left alone, or what kept the one that
    /// was chosen last from taking it. No event follows then.
    pub fn send(
        &mut self,
        context: &mut Context,
        request: UpstreamRequest,
    ) -> Result<(), UpstreamError> {
        let Some(first) = self.members.first() else {
            return Err(UpstreamError::Unavailable);
        };
        let exchange = first.client.exchange(context, request);
        self.place(context, exchange, UpstreamError::Unavailable)
    }

    /// A socket of one of the servers is ready.
    pub fn ready(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let index = self.index_of(token);
        let mut seen = Seen::default();
        if let Some(member) = self.members.get_mut(index) {
            let mut notice = |context: &mut Context, event| seen.notice(context, event, sink);
            member.client.ready(context, token, readiness, &mut notice);
        }
        self.conclude(context, index, seen, sink);
    }

    /// The deadline of a token of one of the servers has passed.
    pub fn expired(
        &mut self,
        context: &mut Context,
        token: Token,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let index = self.index_of(token);
        if self
            .members
            .get(index)
            .is_some_and(|member| member.look_token == token)
        {
            return self.look_at(context, index);
        }
        let mut seen = Seen::default();
        if let Some(member) = self.members.get_mut(index) {
            let mut notice = |context: &mut Context, event| seen.notice(context, event, sink);
            member.client.expired(context, token, &mut notice);
        }
        self.conclude(context, index, seen, sink);
    }

    /// The client of the server whose connection this is.
    pub fn client_of(&mut self, connection: Token) -> Option<&mut Upstream> {
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

    /// Notes what has come of one server's requests, and sends those that failed to others.
    fn conclude(
        &mut self,
        context: &mut Context,
        index: usize,
        seen: Seen,
        sink: &mut impl FnMut(&mut Context, UpstreamEvent),
    ) {
        let Some(member) = self.members.get_mut(index) else {
            return;
        };
        // Where servers are looked after, one answer does not make a sick one well.
        let is_proof = self.options.health.is_none() || member.breaker.is_closed();
        if seen.has_answered && is_proof {
            self.succeeded(index);
        }
        if let Some(result) = seen.look {
            self.looked(context.now(), index, &result);
        }
        for (tag, error, unanswered) in seen.failures {
            self.failed(context.now(), index, &error);
            self.trial_is_over(context.now(), tag);
            let result = match unanswered {
                Some(unanswered) => self.place(context, unanswered.0, error),
                None => Err(error),
            };
            if let Err(error) = result {
                sink(context, UpstreamEvent::failed(tag, error));
            }
        }
    }

    /// Gives a request to the best server of those that it was not with yet; `error` is what is
    /// told if there is none.
    fn place(
        &mut self,
        context: &mut Context,
        mut exchange: Exchange,
        mut error: UpstreamError,
    ) -> Result<(), UpstreamError> {
        let now = context.now();
        while exchange.deadline > now
            && let Some(index) = self.choose(now, &exchange)
        {
            if exchange.asked != 0 {
                self.moved += 1;
            }
            exchange.asked |= 1 << index;
            let member = &mut self.members[index];
            if !member.breaker.is_closed() {
                let patience = exchange.deadline.saturating_duration_since(now);
                member.breaker.begin_trial(now, patience);
                member.trial = Some(exchange.request.tag);
            }
            match member.client.take(context, exchange.clone()) {
                Ok(()) => return Ok(()),
                // It had the fewest under way: the others are as full.
                Err(full @ UpstreamError::QueueFull { .. }) => {
                    self.trial_is_over(now, exchange.request.tag);
                    return Err(full);
                }
                Err(other) => {
                    self.failed(now, index, &other);
                    error = other;
                }
            }
        }
        Err(error)
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
        let (mut best, mut trial) = (None, None);
        for index in (start..count).chain(0..start) {
            if exchange.asked & (1 << index) != 0 {
                continue;
            }
            let member = &self.members[index];
            match member.breaker.permit(now) {
                Permit::Yes => {
                    let outstanding = member.client.outstanding();
                    if best.is_none_or(|(least, _)| outstanding < least) {
                        best = Some((outstanding, index));
                    }
                }
                Permit::Trial if !has_looks => trial = Some(index),
                Permit::Trial | Permit::No => {}
            }
        }
        let best = best.map(|(_, index)| index);
        if exchange.request.is_idempotent {
            trial.or(best)
        } else {
            best.or(trial)
        }
    }

    /// The request with this tag tries no server any more. Where that has shown nothing, as its
    /// client has left or it had no connection, the next request is the trial: the server may be
    /// well.
    pub(super) fn trial_is_over(&mut self, now: Instant, tag: u64) {
        for member in &mut self.members {
            if member.trial.take_if(|trial| *trial == tag).is_some() {
                member.breaker.end_trial(now);
            }
        }
    }

    /// A look at a server has ended.
    fn looked(&mut self, now: Instant, index: usize, result: &Result<u16, UpstreamError>) {
        self.members[index].is_looked_at = false;
        match result {
            Ok(..400) => self.succeeded(index),
            Ok(status) => self.left_alone(now, index, &format_args!("status {status}")),
            Err(error) => self.failed(now, index, error),
        }
    }

    fn succeeded(&mut self, index: usize) {
        let member = &mut self.members[index];
        if member.breaker.succeeded() {
            tracing::info!(server = %member.address, "upstream is asked again");
        }
    }

    fn failed(&mut self, now: Instant, index: usize, error: &UpstreamError) {
        // A server that has too much to do is not one that is dead.
        let is_full = matches!(
            error,
            UpstreamError::QueueFull { .. }
                | UpstreamError::QueueTimeout(_)
                | UpstreamError::Descriptors
        );
        if !is_full {
            self.left_alone(now, index, error);
        }
    }

    fn left_alone(&mut self, now: Instant, index: usize, reason: &dyn std::fmt::Display) {
        let random = self.random.next();
        let member = &mut self.members[index];
        if member.breaker.failed(now, random) {
            tracing::warn!(server = %member.address, %reason, "upstream is left alone");
        }
    }

    /// Asks a server how it is. The look before this one had its time.
    fn look_at(&mut self, context: &mut Context, index: usize) {
        let Some(health) = &self.options.health else {
            return;
        };
        let interval = health.interval;
        let member = &mut self.members[index];
        let bytes = look_request(&health.path, member.address);
        context.arm(member.look_token, interval);
        if std::mem::take(&mut member.is_looked_at) {
            member.client.cancel(context, LOOK);
            let error = UpstreamError::HeaderTimeout(interval);
            self.failed(context.now(), index, &error);
        }
        let member = &mut self.members[index];
        // One that has no connection free is at work, and needs no look.
        if !member.client.has_room() {
            return;
        }
        if member.breaker.permit(context.now()) == Permit::Trial {
            member.breaker.begin_trial(context.now(), interval);
        }
        let request = UpstreamRequest {
            bytes,
            is_head: false,
            is_idempotent: true,
            body_follows: false,
            is_upgrade: false,
            taking: Taking::Whole,
            client: None,
            tag: LOOK,
        };
        match member.client.send(context, request) {
            Ok(()) => member.is_looked_at = true,
            Err(error) => self.failed(context.now(), index, &error),
        }
    }
}

fn look_request(path: &str, address: SocketAddr) -> Bytes {
    format!("GET {path} HTTP/1.1\r\nHost: {address}\r\nUser-Agent: dwell\r\n\r\n").into()
}

/// The tag of a look; no token has it.
const LOOK: u64 = u64::MAX;

#[cfg(test)]
mod tests;
