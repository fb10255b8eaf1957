//! What is remembered of a key's misses: who need not be asked again at once, which value was there
//! last, and what of the application's answers the cache is given.

use super::admitted::Arrival;
use super::answers::{self, Found};
use super::ask::{Ask, Method};
use super::common::{Common, Variant};
use super::decide::{Decision, Stage, decide};
use super::feeds::Known;
use super::freshness::Freshness;
use super::hold::Keep;
use super::misses::{CachedOutcome, FetchedValue, NewValue, StaleValue, UpstreamResult};
use super::responder::Responder;
use super::sharing::Owner;
use super::tables::{Fetch, Poll, kind};
use super::{FetchRequest, Polls, seconds};
use crate::config::RouteId;
use crate::cursor::Cursor;
use crate::metrics::{PollOutcome, UpstreamOutcome};
use bytes::Bytes;
use dwell_engine::{Http, Outcome as Owed, Request};
use dwell_evloop::{Context, Token};
use dwell_memcache::on_loop::Outcome;
use dwell_upstream::{Answer, UpstreamError};
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How an answer from memory tells where it comes from (RFC 9211).
pub(super) enum Origin<'a> {
    /// The application was not asked.
    Memory,
    /// It answered with this status.
    Answered(u16),
    /// It did not answer.
    Failed(&'a UpstreamError),
}

impl Polls {
    /// What need not be asked for: the application has just failed to answer, or the last value may
    /// be given while a newer one is fetched.
    pub(super) fn recall(
        &self,
        now: Instant,
        name: &[u8],
        variant: Variant,
        route: RouteId,
    ) -> Option<CachedOutcome> {
        let rules = self.route(route);
        if let Some(verdict) = self.misses.memory.verdict(name, variant, now) {
            return Some(CachedOutcome::Result(verdict));
        }
        if !rules.fill {
            return None;
        }
        let known = self.misses.memory.last_known(name, variant.digest, now)?;
        let within = known
            .while_revalidate
            .unwrap_or(rules.stale_while_revalidate);
        is_within(&known, within).then_some(CachedOutcome::Stale(known))
    }

    pub(super) fn recall_for(
        &self,
        context: &Context,
        arrival: &Arrival<'_>,
        variant: Variant,
    ) -> Option<CachedOutcome> {
        self.recall(context.now(), arrival.name, variant, arrival.route)
    }

    /// A poll whose request something remembered takes the place of, as it arrives.
    pub(super) fn recall_arrival(
        &mut self,
        context: &mut Context,
        arrival: Arrival<'_>,
        recall: CachedOutcome,
        to: &mut Responder<'_, '_>,
    ) -> Owed {
        let (ask, route, name) = (arrival.ask, arrival.route, arrival.name);
        let Request { head, body, .. } = *arrival.request;
        let common = self.common_of(head, &ask, route);
        if recall.is_for_renewal() {
            let forward = self.encode(head, body, to.peer_address(), true, &ask, route);
            self.revalidate(name, route, forward);
        }
        let Some(fetch) = self.open_recalled(recall, name, common, route) else {
            return self.refuse_busy(context, to);
        };
        let poll = self.record(context, &arrival, fetch, Keep::Request);
        let token = self.waiters.insert(poll).ok();
        if let (Some(token), Some(fetch)) = (token, self.misses.fetches.get_mut(fetch)) {
            fetch.polls.push(token);
        }
        self.hold_or_refuse(context, token, to)
    }

    /// A poll that was held, whose request something remembered takes the place of.
    pub(super) fn recall_later(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        name: &[u8],
        poll: Poll,
        recall: CachedOutcome,
    ) {
        let common = self.common_of_kept(&poll);
        if recall.is_for_renewal()
            && let Some(kept) = poll.request.as_deref()
        {
            let peer = http.peer_address(poll.exchange);
            let forward = self.encode_kept(kept, peer, true, &poll.ask, poll.route);
            if let Some(forward) = forward {
                self.revalidate(name, poll.route, forward);
            }
        }
        let Some(fetch) = self.open_recalled(recall, name, common, poll.route) else {
            let mut to = Responder::held(http, &poll, &self.responses);
            self.refuse_busy(context, &mut to);
            return;
        };
        self.place_in_fetch(context, http, fetch, poll);
    }

    /// A record for polls that are answered from memory when the turn ends.
    pub(super) fn open_recalled(
        &mut self,
        recall: CachedOutcome,
        name: &[u8],
        common: Common,
        route: RouteId,
    ) -> Option<Token> {
        let outcome = match recall {
            CachedOutcome::Result(_) => UpstreamOutcome::Remembered,
            CachedOutcome::Stale(_) => UpstreamOutcome::Revalidated,
        };
        let fetch = self.misses.fetches.insert(Fetch {
            is_anothers: true,
            ..Fetch::new(name, route, common)
        });
        let fetch = fetch.ok()?;
        self.metrics.upstream_requests.increment(outcome);
        self.misses.recalled.push((fetch, recall));
        Some(fetch)
    }

    /// Answers polls from memory.
    pub(crate) fn recalled(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: Token,
        recall: CachedOutcome,
    ) {
        match recall {
            CachedOutcome::Result(verdict) => {
                self.verdict_came(context, http, fetch, &verdict, true);
            }
            CachedOutcome::Stale(known) => {
                let Some(fetch) = self.close_fetch(fetch) else {
                    return;
                };
                for token in fetch.polls {
                    if token.kind() == kind::MISSING {
                        let said = FetchedValue::Value(known.body.clone(), known.flags);
                        self.missing_ends(context, http, token, said);
                    } else if let Some(poll) = self.waiters.remove(token) {
                        let origin = Origin::Memory;
                        self.answer_stale(context, http, poll, &fetch.name, &known, &origin);
                    }
                }
            }
        }
    }

    /// Asks for a newer value of a key that somebody was given a stale one of.
    pub(super) fn revalidate(&mut self, name: &[u8], route: RouteId, forward: FetchRequest) {
        let Some(key) = self.waiters.keys.enter(name) else {
            return;
        };
        let is_asked = self.under_way(Some(key), forward.common.variant).is_some();
        if is_asked || self.open_fetch(Some(key), name, route, forward).is_none() {
            self.waiters.keys.release(key);
        }
    }

    /// Notes what a shared fetch of this loop came to, and gives the cache what is for it.
    pub(super) fn remember(&mut self, context: &Context, fetch: &Fetch, verdict: &UpstreamResult) {
        let memory = Arc::clone(&self.misses.memory);
        let rules = self.route(fetch.route);
        let (now, name, common) = (context.now(), &*fetch.name, fetch.common);
        let refuse = |verdict: UpstreamResult, during: Duration| {
            if !during.is_zero() {
                memory.refuse(name, common.variant, verdict, now + during, now);
            }
        };
        let is_for_all = Owner::of(verdict, common.is_plain) == Owner::All;
        match verdict {
            _ if !is_for_all && has_failed(verdict) => {}
            // A full queue says nothing of the key.
            Err(error) if error.status() == 503 => {}
            Err(error) => refuse(Err(error.clone()), rules.negative),
            Ok(_) if !is_for_all => memory.forget_of(name, common.variant.digest),
            Ok(answer) if answer.status >= 500 => refuse(Ok(in_short(answer)), rules.negative),
            Ok(answer) if answer.status == 200 => {
                if common.variant.method == Method::Post {
                    return;
                }
                let freshness = Freshness::of(answer);
                let value = NewValue {
                    bytes: &answer.body,
                    shared: Some(&answer.body),
                    flags: 0,
                    cursor: Cursor::of(&answer.body, 0),
                    freshness,
                    of: Some(common.variant.digest),
                };
                memory.note(name, &value, now);
                if rules.fill && common.is_of_key && is_whole_value(answer) {
                    let lifetime = freshness.lifetime.unwrap_or_default();
                    self.fill(context, name, &answer.body, lifetime);
                }
            }
            Ok(answer) => {
                memory.forget_of(name, common.variant.digest);
                if matches!(answer.status, 404 | 410) {
                    refuse(Ok(in_short(answer)), rules.negative_not_found);
                }
            }
        }
    }

    /// Puts an answer of the application into the cache, unless something is there already: what
    /// the application has stored by itself is newer.
    fn fill(&mut self, context: &Context, name: &[u8], body: &Bytes, lifetime: Duration) {
        let lifetime = u32::try_from(lifetime.as_secs())
            .unwrap_or(u32::MAX)
            .min(MONTH_SECONDS);
        if lifetime == 0 {
            return;
        }
        self.metrics.fills.increment();
        self.lookups.fill(name, body, lifetime, seconds(context));
    }

    /// Notes what memcached has, to be given when it does not answer. That it has nothing is
    /// final only where there is no application to say more.
    pub(super) fn note_lookup(
        &self,
        now: Instant,
        key: Token,
        outcome: &Outcome<'_>,
        found: Option<&Found<'_>>,
    ) {
        let Some(record) = self
            .waiters
            .keys
            .get(key)
            .filter(|_| self.misses.keeps_last_known)
        else {
            return;
        };
        match (outcome, found) {
            (Outcome::Hit { value, flags, .. }, Some(found)) => {
                let value = NewValue {
                    bytes: value,
                    shared: None,
                    flags: *flags,
                    cursor: found.content.cursor,
                    freshness: Freshness::default(),
                    of: None,
                };
                self.misses.memory.note(&record.name, &value, now);
            }
            (Outcome::Miss, _) if !self.has_upstream() => self.misses.memory.forget(&record.name),
            _ => {}
        }
    }

    /// memcached did not answer, and there is no application: gives the last value, if there is
    /// one that may be given.
    pub(super) fn answer_unlooked(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: Token,
        token: Token,
    ) -> bool {
        let name = self.waiters.keys.get(key).map(|key| key.name.clone());
        let (Some(name), Some(poll)) = (name, self.waiters.polls().get(token)) else {
            return false;
        };
        // A stream says nothing until something is known.
        if poll.ask.is_stream {
            return false;
        }
        let digest = self.common_of_kept(poll).variant.digest;
        let Some(known) = self.stale_if_error(context.now(), &name, digest, poll.route) else {
            return false;
        };
        if let Some(poll) = self.waiters.remove(token) {
            self.answer_stale(context, http, poll, &name, &known, &Origin::Memory);
        }
        true
    }

    /// The last value of a key whose newest cannot be had, if it may be given.
    pub(super) fn stale_if_error(
        &self,
        now: Instant,
        name: &[u8],
        digest: u64,
        route: RouteId,
    ) -> Option<StaleValue> {
        let rules = self.route(route);
        let known = self.misses.memory.last_known(name, digest, now)?;
        let within = known.if_error.unwrap_or(rules.stale_if_error);
        is_within(&known, within).then_some(known)
    }

    /// The last value, where the application failed to say whether there is a newer one
    /// (RFC 5861 section 4).
    pub(super) fn instead_of(
        &self,
        context: &Context,
        fetch: &Fetch,
        verdict: &UpstreamResult,
    ) -> Option<StaleValue> {
        if has_failed(verdict) {
            let digest = fetch.common.variant.digest;
            self.stale_if_error(context.now(), &fetch.name, digest, fetch.route)
        } else {
            None
        }
    }

    /// Answers a poll by a value that is stale; one whose client has it is held on.
    pub(super) fn answer_stale(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        poll: Poll,
        name: &[u8],
        known: &StaleValue,
        origin: &Origin<'_>,
    ) {
        if poll.ask.is_stream {
            let known = Known::Answered(&known.body);
            return self.stream_later(context, http, &poll, name, known);
        }
        let found = Found::remembered(known.body.clone(), known.flags);
        let waited = context.now().saturating_duration_since(poll.arrived);
        let stage = if poll.ask.waits() && waited >= poll.ask.wait() {
            Stage::Ended
        } else {
            Stage::Arrived
        };
        match decide(
            &poll.ask,
            Some(found.content),
            stage,
            self.rules(poll.route),
        ) {
            Decision::Wait => self.wait_on(context, http, poll, name),
            decision => {
                let status = origin.cache_status(known);
                let mut to = Responder::held(http, &poll, &self.responses);
                to.ends(PollOutcome::Stale);
                let status = status.as_bytes();
                if let Decision::NotModified(code) = decision {
                    let cursor = Some(found.content.cursor);
                    answers::not_modified_by(&mut to, context, &poll.ask, cursor, code, status);
                } else {
                    let rules = self.route(poll.route);
                    answers::value_by(&mut to, context, rules, &poll.ask, &found, status);
                }
            }
        }
    }
}

impl Origin<'_> {
    /// Source: RFC 9211 section 2: a hit that is stale has a negative `ttl`.
    fn cache_status(&self, known: &StaleValue) -> String {
        match self {
            Self::Memory => format!("dwell; hit; ttl=-{}", known.staleness.as_secs()),
            Self::Answered(status) => format!("dwell; fwd=stale; fwd-status={status}"),
            Self::Failed(error) => format!("dwell; fwd=stale; detail=\"{error}\""),
        }
    }
}

/// Whether a value that is known may be given to who asks so: not to a client that says who it is,
/// and the answer to a GET to no other method.
pub(super) fn stands_for(known: &StaleValue, ask: &Ask) -> bool {
    ask.anybodys && (ask.method != Method::Post || !known.is_answer)
}

/// Returns true if the application gave no answer, or failed to make one.
fn has_failed(verdict: &UpstreamResult) -> bool {
    verdict.as_ref().map_or(true, |answer| answer.status >= 500)
}

fn is_within(known: &StaleValue, within: Duration) -> bool {
    !within.is_zero() && known.staleness <= within
}

/// Whether the body is the value itself: not a part of it, nor in another coding.
pub(super) fn is_whole_value(answer: &Answer) -> bool {
    let has = |name: &str| {
        answer
            .fields
            .iter()
            .any(|(field, _)| field.eq_ignore_ascii_case(name))
    };
    !has("content-encoding") && !has("content-range")
}

/// The answer, or where it is long one of the same status: a memory is not for pages.
fn in_short(answer: &Arc<Answer>) -> Arc<Answer> {
    if answer.body.len() <= REMEMBERED_BYTES_MAX {
        return Arc::clone(answer);
    }
    let text = (
        String::from("Content-Type"),
        Bytes::from_static(b"text/plain; charset=utf-8"),
    );
    Arc::new(Answer {
        status: answer.status,
        fields: vec![text],
        content_length: None,
        body: Bytes::from_static(b"the upstream has answered so a moment ago\n"),
    })
}

const REMEMBERED_BYTES_MAX: usize = 16 << 10;
/// memcached takes a longer time for a date.
const MONTH_SECONDS: u32 = 30 * 24 * 60 * 60;
