//! Values that are given in place of newer ones, which nothing has brought.

use super::Polls;
use super::answers::{self, Found};
use super::decide::{Decision, Stage, decide};
use super::feeds::Known;
use super::fetched::Member;
use super::misses::{CachedOutcome, FetchedValue, StaleValue};
use super::seconds;
use super::tables::Poll;
use crate::ids::{FetchId, KeyId, PollId};
use crate::metrics::PollOutcome;
use crate::responder::Responder;
use bytes::Bytes;
use dwell_engine::Http;
use dwell_evloop::Context;
use dwell_proto::http1::FieldStorage;
use dwell_upstream::UpstreamError;
use std::time::Duration;

/// The reason for a stale value, as `Cache-Status` gives it (RFC 9211).
pub(super) enum StaleReason<'a> {
    /// The application was not asked.
    Memory,
    /// It answered with this status.
    Answered(u16),
    /// It did not answer.
    Failed(&'a UpstreamError),
}

impl Polls {
    /// Answers the members of a fetch from memory.
    pub(crate) fn cached_came(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: FetchId,
        outcome: CachedOutcome,
    ) {
        let known = match outcome {
            CachedOutcome::Stale(known) => known,
            CachedOutcome::Result(result) => {
                return self.result_came(context, http, fetch, &result, true);
            }
        };
        let Some(fetch) = self.misses.close(&mut self.waiters.keys, fetch) else {
            return;
        };
        for token in fetch.members {
            match self.take_member(token) {
                Some(Member::Poll(poll)) => {
                    let reason = StaleReason::Memory;
                    self.answer_stale(context, http, poll, &fetch.name, &known, &reason);
                }
                Some(Member::Key(sub_fetch)) => {
                    let value = FetchedValue::Value(known.body.clone(), known.flags);
                    self.end_sub_fetch(context, http, &sub_fetch, value);
                }
                None => {}
            }
        }
    }

    /// Puts an answer of the application into the cache, unless something is there already: what
    /// the application has stored by itself is newer.
    pub(super) fn fill(
        &mut self,
        context: &Context,
        name: &[u8],
        body: &Bytes,
        lifetime: Duration,
    ) {
        let lifetime = u32::try_from(lifetime.as_secs())
            .unwrap_or(u32::MAX)
            .min(MONTH_SECONDS);
        if lifetime == 0 {
            return;
        }
        self.metrics.fills.increment();
        self.lookups.fill(name, body, lifetime, seconds(context));
    }

    /// memcached did not answer, and there is no application: gives the last value, if there is
    /// one that may be given.
    pub(super) fn answer_unlooked(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: KeyId,
        token: PollId,
    ) -> bool {
        let name = self.waiters.keys.get(key).map(|key| key.name.clone());
        let (Some(name), Some(poll)) = (name, self.waiters.polls().get(token)) else {
            return false;
        };
        // A stream says nothing until something is known.
        if poll.ask.is_stream {
            return false;
        }
        let digest = self.digest_of(poll);
        let rules = self.routes.get(poll.route);
        let known = self
            .misses
            .stale_if_error(rules, &name, digest, context.now());
        let Some(known) = known else {
            return false;
        };
        if let Some(poll) = self.waiters.remove(token) {
            self.answer_stale(context, http, poll, &name, &known, &StaleReason::Memory);
        }
        true
    }

    /// The digest of the request of a poll; 0 where that is not kept.
    fn digest_of(&self, poll: &Poll) -> u64 {
        let mut storage = FieldStorage::new();
        let kept = poll.request.as_deref();
        let head = kept.and_then(|kept| kept.parse(&mut storage, &self.head_limits()));
        head.map_or(0, |head| {
            let common = self.common_of(&head, &poll.ask, poll.route);
            common.variant.digest
        })
    }

    /// Answers a poll by a value that is stale; one whose client has it is held on.
    pub(super) fn answer_stale(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        poll: Poll,
        name: &[u8],
        known: &StaleValue,
        reason: &StaleReason<'_>,
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
            self.routes.get(poll.route).rules,
        ) {
            Decision::Wait => self.wait_on(context, http, poll, name),
            decision => {
                let status = reason.cache_status(known);
                let mut to = Responder::held(http, &poll, &self.responses);
                to.ends(PollOutcome::Stale);
                let status = status.as_bytes();
                if let Decision::NotModified(code) = decision {
                    let cursor = Some(found.content.cursor);
                    answers::not_modified_by(&mut to, context, &poll.ask, cursor, code, status);
                } else {
                    let rules = self.routes.get(poll.route);
                    answers::value_by(&mut to, context, rules, &poll.ask, &found, status);
                }
            }
        }
    }
}

impl StaleReason<'_> {
    /// Source: RFC 9211 section 2: a hit that is stale has a negative `ttl`.
    fn cache_status(&self, known: &StaleValue) -> String {
        match self {
            Self::Memory => format!("dwell; hit; ttl=-{}", known.staleness.as_secs()),
            Self::Answered(status) => format!("dwell; fwd=stale; fwd-status={status}"),
            Self::Failed(error) => format!("dwell; fwd=stale; detail=\"{error}\""),
        }
    }
}

/// memcached takes a longer time for a date.
const MONTH_SECONDS: u32 = 30 * 24 * 60 * 60;
