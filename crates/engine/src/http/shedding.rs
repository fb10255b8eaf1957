//! Bodies and handshakes that are given up for others.

use super::Http;
use crate::app::App;
use crate::connection::{Incoming, Phase, Taking};
use dwell_evloop::{Context, Token};
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// A body may be given up after this time, or an eighth of its timeout if that is less.
const AGE_MAX: Duration = Duration::from_secs(4);
/// The time from one pass through all connections to the next.
const INTERVAL: Duration = Duration::from_millis(100);

/// A component's notes of what it may have to drop.
#[derive(Debug, Default)]
pub(super) struct Overload {
    /// The time at which bodies may be given up for others again.
    shedding_next: Option<Instant>,
    /// Connections whose handshake has begun, the oldest first; of some it has ended.
    handshakes: VecDeque<Token>,
}

impl Http {
    /// Counts a handshake that has begun. If there are more than `at_once_max`, the oldest one is
    /// ended, so that clients which stall keep no others out.
    pub(super) fn handshake_began<A: App>(
        &mut self,
        context: &mut Context,
        token: Token,
        at_once_max: usize,
        app: &mut A,
    ) {
        self.overload.handshakes.push_back(token);
        if self.overload.handshakes.len() <= at_once_max {
            return;
        }
        let connections = &self.connections;
        self.overload.handshakes.retain(|token| {
            let connection = connections.get(*token);
            connection.is_some_and(|connection| connection.exchange.phase == Phase::Handshake)
        });
        while self.overload.handshakes.len() > at_once_max {
            let Some(oldest) = self.overload.handshakes.pop_front() else {
                return;
            };
            let visit = self.visit(context, oldest, app);
            let fate = visit.map(|mut visit| visit.give_way());
            self.settle(context, oldest, fate, app);
        }
    }

    /// Drops the oldest bodies that are gathered, if less than an eighth of what all may take
    /// is left, until a quarter is.
    ///
    /// Shape: a client that sends most of many bodies and then pauses would hold all there is for
    /// as long as a body may take, and the bodies of all others would be refused. Those of the last
    /// seconds are not dropped: beyond them new bodies are refused.
    pub(super) fn shed_bodies<A: App>(&mut self, context: &mut Context, app: &mut A) {
        let bytes_max = self.limits.gathered_bytes_max;
        if self.accounts.gathered.bytes() <= bytes_max - bytes_max / 8 {
            return;
        }
        let now = context.now();
        if self.overload.shedding_next.is_some_and(|next| now < next) {
            return;
        }
        self.overload.shedding_next = Some(now + INTERVAL);
        for token in self.oldest_bodies(now) {
            if self.accounts.gathered.bytes() <= bytes_max - bytes_max / 4 {
                return;
            }
            if self.is_stream(token) {
                self.shed_stream(context, token, app);
                continue;
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
        let is_late = |(since, _): &(Instant, Token)| now.saturating_duration_since(*since) >= age;
        let mut old: Vec<(Instant, Token)> = tokens
            .filter_map(|token| Some((began(token)?, token)))
            .chain(self.stream_bodies().filter(is_late))
            .collect();
        old.sort_unstable_by_key(|(began, _)| *began);
        old.into_iter().map(|(_, token)| token).collect()
    }
}
