//! One request for a key over all loops: who asks, who follows, and what the followers are told.

use super::common::Variant;
use super::misses::{LoopFetch, Role, UpstreamResult};
use super::sharing::Owner;
use super::tables::{Fetch, kind};
use super::{FlightResult, Polls};
use crate::metrics::UpstreamOutcome;
use dwell_engine::Http;
use dwell_evloop::{Context, Token};

impl Polls {
    /// Begins a shared fetch: as its leader, or as a follower of the loop that asks already.
    pub(super) fn begin_flight(&mut self, fetch: Token, name: &[u8], variant: Variant) -> Role {
        let follower = LoopFetch {
            of_loop: self.misses.of_loop,
            fetch: fetch.to_bits(),
        };
        let begun = self.misses.memory.begin(name, variant, follower);
        if let Role::Follower(leader) = begun {
            self.misses.following += 1;
            self.metrics
                .upstream_requests
                .increment(UpstreamOutcome::Coalesced);
            if let Some(fetch) = self.misses.fetches.get_mut(fetch) {
                fetch.is_anothers = true;
                fetch.leader = Some(leader);
            }
        }
        begun
    }

    /// Tells the loops that follow what a fetch of this one came to, if that is theirs, too.
    pub(super) fn end_flight(&mut self, fetch: &Fetch, verdict: &UpstreamResult) {
        if fetch.key.is_none() || fetch.is_anothers {
            return;
        }
        let is_for_all = Owner::of(verdict, fetch.common.is_plain) == Owner::All;
        for follower in self.misses.memory.end(&fetch.name, fetch.common.variant) {
            let verdict = is_for_all.then(|| verdict.clone());
            self.misses.told.push(FlightResult { follower, verdict });
        }
    }

    /// Tells the loops that follow a fetch of this one to ask for themselves.
    pub(super) fn end_flight_for_each(&mut self, name: &[u8], variant: Variant) {
        for follower in self.misses.memory.end(name, variant) {
            let verdict = None;
            self.misses.told.push(FlightResult { follower, verdict });
        }
    }

    /// Looks whether those that this loop follows still ask: the bound on what a lost word, or a
    /// loop that has ended, could cost.
    pub(crate) fn recheck_flights(&mut self, context: &mut Context, http: &mut Http) {
        let is_lost = |fetch: &Fetch| {
            let follows = fetch.is_anothers && fetch.key.is_some();
            follows
                && !self
                    .misses
                    .memory
                    .is_asked(&fetch.name, fetch.common.variant)
        };
        let tokens = self.misses.fetches.tokens();
        let lost: Vec<Token> = tokens
            .filter(|token| self.misses.fetches.get(*token).is_some_and(is_lost))
            .collect();
        for token in lost {
            let Some(Fetch {
                key: Some(key),
                name,
                polls,
                ..
            }) = self.close_fetch(token)
            else {
                continue;
            };
            for poll in polls {
                if poll.kind() == kind::MISSING {
                    self.missing_again(context, http, &name, poll);
                } else if let Some(poll) = self.waiters.remove(poll) {
                    self.miss_later(context, http, key, poll);
                }
            }
            self.waiters.keys.release(key);
        }
    }

    /// The loop ends: nobody is to wait for what it has asked for.
    pub(crate) fn give_up_flights(&self) {
        for token in self.misses.fetches.tokens() {
            if let Some(fetch) = self.misses.fetches.get(token)
                && fetch.key.is_some()
                && !fetch.is_anothers
            {
                self.misses.memory.end(&fetch.name, fetch.common.variant);
            }
        }
    }

    /// What another loop's request came to, which this one has followed; `None` where each has to
    /// ask for itself.
    pub(crate) fn followed(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: u64,
        verdict: Option<&UpstreamResult>,
    ) {
        let fetch = Token::from_bits(fetch);
        if let Some(verdict) = verdict {
            return self.verdict_came(context, http, fetch, verdict, false);
        }
        let Some(fetch) = self.close_fetch(fetch) else {
            return;
        };
        self.each_for_itself(context, http, &fetch, &fetch.polls);
        if let Some(key) = fetch.key {
            self.waiters.keys.release(key);
        }
    }
}
