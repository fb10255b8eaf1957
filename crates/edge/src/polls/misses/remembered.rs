//! Answers of the application that stand for later ones: results that a route remembers for a
//! moment, and the last value of a key.

use super::super::answers::Found;
use super::super::ask::Method;
use super::super::common::Variant;
use super::super::freshness::Freshness;
use super::super::sharing::Owner;
use super::memory::{CachedOutcome, NewValue, StaleValue, UpstreamResult};
use super::{Fetch, Misses};
use crate::config::RouteConfig;
use crate::cursor::Cursor;
use bytes::Bytes;
use dwell_memcache::on_loop::Outcome;
use dwell_upstream::Answer;
use std::sync::Arc;
use std::time::{Duration, Instant};

impl Misses {
    /// The substitute for a request: the application has just failed to answer, or the last value
    /// may be given while a newer one is fetched.
    pub(in crate::polls) fn cached(
        &self,
        rules: &RouteConfig,
        name: &[u8],
        variant: Variant,
        now: Instant,
    ) -> Option<CachedOutcome> {
        if let Some(result) = self.memory.verdict(name, variant, now) {
            return Some(CachedOutcome::Result(result));
        }
        if !rules.fill {
            return None;
        }
        let known = self.memory.last_known(name, variant.digest, now)?;
        let within = known
            .while_revalidate
            .unwrap_or(rules.stale_while_revalidate);
        is_within(&known, within).then_some(CachedOutcome::Stale(known))
    }

    /// The last value of a key whose newest cannot be had, if it may be given (RFC 5861 section 4).
    pub(in crate::polls) fn stale_if_error(
        &self,
        rules: &RouteConfig,
        name: &[u8],
        digest: u64,
        now: Instant,
    ) -> Option<StaleValue> {
        let known = self.memory.last_known(name, digest, now)?;
        let within = known.if_error.unwrap_or(rules.stale_if_error);
        is_within(&known, within).then_some(known)
    }

    /// As [`stale_if_error`](Self::stale_if_error), where the result of a fetch is a failure.
    pub(in crate::polls) fn instead_of(
        &self,
        rules: &RouteConfig,
        fetch: &Fetch,
        result: &UpstreamResult,
        now: Instant,
    ) -> Option<StaleValue> {
        let digest = fetch.common.variant.digest;
        has_failed(result)
            .then(|| self.stale_if_error(rules, &fetch.name, digest, now))
            .flatten()
    }

    /// Notes the result of a shared fetch of this loop; returns the lifetime of a value that the
    /// cache is to have.
    pub(in crate::polls) fn remember(
        &self,
        rules: &RouteConfig,
        fetch: &Fetch,
        result: &UpstreamResult,
        now: Instant,
    ) -> Option<Duration> {
        let (memory, name, common) = (&self.memory, &*fetch.name, fetch.common);
        let refuse = |result: UpstreamResult, during: Duration| {
            if !during.is_zero() {
                memory.refuse(name, common.variant, result, now + during, now);
            }
        };
        let is_for_all = Owner::of(result, common.is_plain) == Owner::All;
        match result {
            _ if !is_for_all && has_failed(result) => {}
            // A full queue says nothing of the key.
            Err(error) if error.status() == 503 => {}
            Err(error) => refuse(Err(error.clone()), rules.negative),
            Ok(_) if !is_for_all => memory.forget_of(name, common.variant.digest),
            Ok(answer) if answer.status >= 500 => refuse(Ok(in_short(answer)), rules.negative),
            Ok(answer) if answer.status == 200 => {
                if common.variant.method == Method::Post {
                    return None;
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
                let is_cached = rules.fill && common.is_of_key && is_whole_value(answer);
                return is_cached.then(|| freshness.lifetime.unwrap_or_default());
            }
            Ok(answer) => {
                memory.forget_of(name, common.variant.digest);
                if matches!(answer.status, 404 | 410) {
                    refuse(Ok(in_short(answer)), rules.negative_not_found);
                }
            }
        }
        None
    }

    /// Notes what memcached has, to be given when it does not answer. That it has nothing is
    /// final only where there is no application to say more.
    pub(in crate::polls) fn note_lookup(
        &self,
        name: &[u8],
        (outcome, found): (&Outcome<'_>, Option<&Found<'_>>),
        has_upstream: bool,
        now: Instant,
    ) {
        if !self.keeps_last_known {
            return;
        }
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
                self.memory.note(name, &value, now);
            }
            (Outcome::Miss, _) if !has_upstream => self.memory.forget(name),
            _ => {}
        }
    }
}

/// Returns true if the application gave no answer, or failed to make one.
fn has_failed(result: &UpstreamResult) -> bool {
    result.as_ref().map_or(true, |answer| answer.status >= 500)
}

fn is_within(known: &StaleValue, within: Duration) -> bool {
    !within.is_zero() && known.staleness <= within
}

/// Returns true if the body is the value itself: not a part of it, nor in another coding.
pub(in crate::polls) fn is_whole_value(answer: &Answer) -> bool {
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
