//! Answers of memcached: which polls, streams and keys a lookup was for, and what each gets by it.

use super::Polls;
use super::answers::{self, Found};
use super::decide::{Decision, Stage, decide};
use super::explanation::Valued;
use super::feeds::Known;
use super::fetch::digest_of;
use super::fetched::StaleReason;
use super::lookups::{Lookup, LookupEnd, Lookups};
use crate::ids::{CacheOperation, KeyId, LookupMember, PollId};
use crate::metrics::{PollOutcome, WakeOutcome};
use crate::responder::Responder;
use dwell_engine::Http;
use dwell_evloop::Context;
use dwell_memcache::on_loop::{Answer, Completion, Failure, Outcome};

impl Polls {
    /// memcached has answered, or failed to.
    pub(crate) fn completed(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        completion: &Completion<'_>,
    ) {
        match CacheOperation::of(completion.tag) {
            CacheOperation::Lookup(lookup) => {
                let keys = &mut self.waiters.keys;
                if let Some(lookup) = self.lookups.completed(keys, lookup, completion) {
                    self.lookup_completed(context, http, lookup, completion);
                }
            }
            CacheOperation::Version(key) => self.version_came(context, http, key, completion),
            CacheOperation::Publish(publish) => self.publisher.completed(publish, completion),
            CacheOperation::Fill => {}
            CacheOperation::Explained(tag) => {
                self.lookups
                    .note_found(tag, Valued::of(&completion.outcome));
            }
        }
    }

    /// Redis has answered, or failed to, or has a new value of a key that is waited for.
    pub(crate) fn redis_completed(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        completion: &dwell_redis::Completion<'_>,
    ) {
        let outcome = match completion.outcome {
            dwell_redis::Outcome::Value(value) => Outcome::Hit {
                value,
                flags: 0,
                cas_unique: 0,
            },
            dwell_redis::Outcome::Missing => Outcome::Miss,
            dwell_redis::Outcome::Done | dwell_redis::Outcome::Unmet => {
                Outcome::Answer(Answer::Touched)
            }
            dwell_redis::Outcome::Failed(failure) => Outcome::Failed(as_of_memcached(failure)),
        };
        match CacheOperation::of(completion.tag) {
            CacheOperation::Publish(publish) => {
                self.publisher.redis_completed(publish, &completion.outcome);
            }
            CacheOperation::Version(key) => self.waited_value_came(context, http, key, &outcome),
            CacheOperation::Lookup(_) | CacheOperation::Fill | CacheOperation::Explained(_) => {
                let completion = Completion {
                    tag: completion.tag,
                    server: 0,
                    epoch: 0,
                    outcome,
                };
                self.completed(context, http, &completion);
            }
        }
    }

    /// A key that is waited for was read again.
    fn waited_value_came(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: KeyId,
        outcome: &Outcome<'_>,
    ) {
        let found = match *outcome {
            Outcome::Hit { value, flags, .. } => Some(Found::borrowed(value, flags)),
            Outcome::Miss => None,
            // Nothing is known of the key, so those who wait for it go on waiting.
            _ => return,
        };
        let Some(record) = self.waiters.keys.get(key) else {
            return;
        };
        let (came, has_upstream) = ((outcome, found.as_ref()), self.config.has_upstream());
        self.misses
            .note_lookup(&record.name, came, has_upstream, context.now());
        // It may have been read before those came who wait for reads of their own.
        let joined = self.lookups.pass_by(key);
        let woken = self.settle_but(context, http, key, found, &joined);
        // It may have been read in a sweep, or twice for one change. The client itself counts the
        // changes that were announced of the same value.
        self.count_sweep_wake(woken, false);
    }

    /// Decides what shared a lookup, and what waits for its key, by what memcached has.
    fn lookup_completed(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        lookup: Lookup,
        completion: &Completion<'_>,
    ) {
        let mut found = match completion.outcome {
            Outcome::Hit { value, flags, .. } => Some(Found::borrowed(value, flags)),
            _ => None,
        };
        if let Some(record) = self.waiters.keys.get(lookup.key) {
            let came = (&completion.outcome, found.as_ref());
            let has_upstream = self.config.has_upstream();
            self.misses
                .note_lookup(&record.name, came, has_upstream, context.now());
        }
        // A slow reader keeps what it is sent, so a single one is given no copy of its own, either.
        if let (Some(found), false) = (&mut found, lookup.is_of_sweep())
            && let Some(record) = self.waiters.keys.get(lookup.key)
        {
            self.delivery.encodings.share(&record.name, found);
        }
        let has_failed = matches!(completion.outcome, Outcome::Failed(_));
        #[cfg(feature = "sim")]
        let has_failed = has_failed && !dwell_evloop::sim::Planted::ErrorIsMiss.is_in();
        let (key, is_of_sweep) = (lookup.key, lookup.is_of_sweep());
        // Redis reads what is waited for on a connection of its own. A read on the other one may be
        // older than what those who wait have been told.
        let is_in_order = !self.lookups.reads_waits_apart() || lookup.may_wait();
        let end = if is_in_order {
            self.lookups.ended(&self.waiters.keys, &lookup, has_failed)
        } else {
            self.lookups.ended_aside(&self.waiters.keys, &lookup);
            LookupEnd::default()
        };
        for member in lookup.into_members() {
            let found = found.as_ref();
            match member.id() {
                LookupMember::SubFetch(sub_fetch) => {
                    let mut sub_fetches = self.sub_fetches();
                    sub_fetches.looked_up(context, key, sub_fetch, found.is_some());
                }
                LookupMember::MultiPoll(poll) => {
                    let mut polls = self.multi_polls();
                    polls.looked_up(context, http, key, poll, found, has_failed);
                }
                LookupMember::Poll(poll) => {
                    self.looked_up(context, http, key, poll, found, has_failed);
                }
            }
        }
        // A failure says nothing of the key, so those who wait for it go on waiting.
        if !has_failed && is_in_order {
            let woken = self.settle_but(context, http, key, found, &end.behind);
            self.count_sweep_wake(woken, is_of_sweep);
        }
        if end.is_to_repeat {
            self.lookups.read(&mut self.waiters.keys, key);
        }
        self.lookups.follow_hint(&mut self.waiters.keys, key);
        Lookups::leave(&mut self.waiters.keys, key);
    }

    /// Counts the outcome of a change that memcached reported: a version that moved and woke no
    /// poll is a value that was set again.
    fn count_sweep_wake(&self, woken: usize, has_moved: bool) {
        if woken > 0 {
            self.metrics.wakeups.increment(WakeOutcome::Answered);
        } else if has_moved {
            self.metrics.wakeups.increment(WakeOutcome::Unchanged);
        }
    }

    /// Decides one poll by what memcached has.
    fn looked_up(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: KeyId,
        token: PollId,
        found: Option<&Found<'_>>,
        failed: bool,
    ) {
        if failed && !self.config.has_upstream() && self.answer_unlooked(context, http, key, token)
        {
            return;
        }
        let Some(poll) = self.waiters.polls().get(token) else {
            return;
        };
        let current = found.as_ref().map(|found| found.content);
        let decision = match poll.ask.is_stream {
            true if found.is_none() && self.config.has_upstream() => Decision::Miss,
            true => Decision::Value,
            false => decide(
                &poll.ask,
                current,
                Stage::Arrived,
                self.routes.get(poll.route).rules,
            ),
        };
        if decision == Decision::Wait {
            return self.holding().wait_after_lookup(context, http, key, token);
        }
        let Some(poll) = self.waiters.remove(token) else {
            return;
        };
        if decision == Decision::Miss {
            return self.miss_later(context, http, key, poll);
        }
        if poll.ask.is_stream {
            let known = if failed {
                Known::Nothing
            } else {
                Known::Looked(found)
            };
            if let Some(name) = self.waiters.keys.get(key).map(|key| key.name.clone()) {
                self.stream_later(context, http, &poll, &name, known);
            }
            return;
        }
        let mut to = Responder::held(http, &poll, &self.responses);
        if failed && decision == Decision::NotFound {
            // It is unknown whether the key is there, so 404 would be a guess.
            let (outcome, reason) = (PollOutcome::Failed, self.lookups.no_answer());
            self.refusals.unavailable(context, &mut to, outcome, reason);
            return;
        }
        answers::conclude(
            &mut to,
            context,
            self.routes.get(poll.route),
            &poll.ask,
            decision,
            found,
        );
    }

    /// The sweep learnt the version of a key that is waited for.
    fn version_came(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: KeyId,
        completion: &Completion<'_>,
    ) {
        self.lookups
            .version_came(&mut self.waiters.keys, key, completion);
        let keys = &self.waiters.keys;
        // A read under way brings what is newer, also to those who came after this question.
        if completion.outcome == Outcome::Miss
            && keys.get(key).is_some()
            && !self.lookups.is_read(keys, key)
        {
            let woken = self.settle(context, http, key, None);
            self.count_sweep_wake(woken, false);
        }
    }

    /// memcached did not answer, and there is no application: gives the last value, if there is
    /// one that may be given.
    fn answer_unlooked(
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
        let digest = digest_of(&self.config, &self.routes, &self.misses, poll);
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
}

/// The failure of memcached that has the effects of one of Redis.
fn as_of_memcached(failure: dwell_redis::Failure) -> Failure {
    match failure {
        dwell_redis::Failure::Unavailable | dwell_redis::Failure::Unserved => Failure::Unavailable,
        dwell_redis::Failure::Connect => Failure::Connect,
        dwell_redis::Failure::Handshake => Failure::Handshake,
        dwell_redis::Failure::Timeout => Failure::Timeout,
        dwell_redis::Failure::Closed => Failure::Closed,
        dwell_redis::Failure::Protocol => Failure::Protocol,
        _ => Failure::ErrorLine,
    }
}
