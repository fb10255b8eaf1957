//! Bodies that are given up so that those of others can be gathered.

use super::Http;
use crate::app::App;
use crate::connection::{Incoming, Taking};
use dwell_evloop::{Context, Token};
use std::time::{Duration, Instant};

/// A body may be given up after this time, or an eighth of its timeout if that is less.
const AGE_MAX: Duration = Duration::from_secs(4);
/// The time from one look through all connections to the next.
const INTERVAL: Duration = Duration::from_millis(100);

impl Http {
    /// Gives up the oldest bodies that are gathered, where less than an eighth of what all may take
    /// is left, until a quarter is.
    ///
    /// Shape: a client that sends most of many bodies and then pauses would hold all there is for
    /// as long as a body may take, and the bodies of all others would be refused. Those of the last
    /// seconds are not given up: beyond them newcomers are refused.
    pub(super) fn shed_bodies<A: App>(&mut self, context: &mut Context, app: &mut A) {
        let bytes_max = self.limits.gathered_bytes_max;
        if self.accounts.gathered.bytes() <= bytes_max - bytes_max / 8 {
            return;
        }
        let now = context.now();
        if self.shedding_next.is_some_and(|next| now < next) {
            return;
        }
        self.shedding_next = Some(now + INTERVAL);
        for token in self.oldest_bodies(now) {
            if self.accounts.gathered.bytes() <= bytes_max - bytes_max / 4 {
                return;
            }
            let visit = self.visit(context, token, app);
            let fate = visit.map(|mut visit| visit.shed());
            self.settle(context, token, fate, app);
        }
    }

    fn oldest_bodies(&self, now: Instant) -> Vec<Token> {
        let age = (self.limits.body_timeout / 8).min(AGE_MAX);
        let is_old = |incoming: &Incoming| {
            let is_gathered = matches!(incoming.taking, Taking::Collect { .. });
            is_gathered && now.saturating_duration_since(incoming.began) >= age
        };
        let began = |token| {
            let incoming = self.connections.get(token)?.incoming.as_deref();
            Some(incoming.filter(|incoming| is_old(incoming))?.began)
        };
        let tokens = self.connections.tokens();
        let mut old: Vec<(Instant, Token)> = tokens
            .filter_map(|token| Some((began(token)?, token)))
            .collect();
        old.sort_unstable_by_key(|(began, _)| *began);
        old.into_iter().map(|(_, token)| token).collect()
    }
}
