//! Hints of memcached servers that keys may have changed.

use super::cache::Cache;
use super::{Message, TokenEvent};
use crate::metrics::{LoopMetrics, ServerState};
use crate::polls::Polls;
use dwell_evloop::{Context, Fleet, Token};
use dwell_memcache::watch::{ChangeFeed, Resync, ResyncReason, WaitedKeys, WatchState};
use std::net::SocketAddr;
use std::sync::Arc;

/// A loop's part in the hints: each loop reads the keys that it watches; the first one has the
/// feed.
#[derive(Debug)]
pub(crate) struct Hints {
    /// The feed of the servers, on the first loop.
    feed: Option<ChangeFeed>,
    /// Keys that any loop watches, if there is a feed.
    waited: Option<Arc<WaitedKeys>>,
    metrics: Arc<LoopMetrics>,
}

impl Hints {
    pub(crate) fn new(
        feed: Option<ChangeFeed>,
        waited: Option<Arc<WaitedKeys>>,
        metrics: Arc<LoopMetrics>,
    ) -> Self {
        Self {
            feed,
            waited,
            metrics,
        }
    }

    /// Goes on with other addresses of the servers, where they are others.
    pub(super) fn turn_to(&mut self, context: &mut Context, servers: &[SocketAddr]) {
        if let Some(feed) = &mut self.feed {
            feed.turn_to(context, servers);
        }
    }

    /// Ends the feed.
    #[cfg(test)]
    pub(crate) fn end_feed(&mut self) {
        self.feed = None;
    }

    /// Passes an event of one of its tokens to the feed.
    pub(super) fn token_event(&mut self, context: &mut Context, token: Token, what: TokenEvent) {
        let Some(feed) = &mut self.feed else { return };
        match what {
            TokenEvent::Ready(readiness) => feed.ready(context, token, readiness),
            TokenEvent::Expired => feed.expired(context, token),
        }
    }

    /// Advances the feed, and sends its hints to all loops; `index` is that of this loop in
    /// `fleet`.
    pub(super) fn follow(
        &mut self,
        context: &mut Context,
        polls: &mut Polls,
        cache: &Cache,
        (fleet, index): (&Fleet<Message>, usize),
    ) {
        if let Some(waited) = &self.waited
            && polls.watched_keys() > 0
        {
            if waited.wake() {
                fleet.wake(0);
            }
            self.read_returned(polls, cache);
        }
        let spread = |polls: &mut Polls, resync: Resync| {
            for of_loop in 0..fleet.loops() {
                if of_loop == index {
                    read_all(polls, cache, resync);
                } else {
                    fleet.send(of_loop, Message::Resync(resync));
                }
            }
        };
        if let Some(server) = polls.lookups.take_went_back() {
            self.metrics.feed.resyncs.increment(ResyncReason::Reversed);
            let is_distrusted = true;
            spread(
                polls,
                Resync {
                    server,
                    is_distrusted,
                },
            );
        }
        let Some(feed) = &mut self.feed else { return };
        feed.follow(context);
        for (cell, state) in self.metrics.watches.iter().zip(feed.states()) {
            cell.set(match state {
                WatchState::Unknown => ServerState::Unknown,
                WatchState::Refused => ServerState::Down,
                WatchState::Told => ServerState::Up,
            });
        }
        for (of_loop, names) in feed.hints() {
            if of_loop == index {
                polls.hinted(&names);
            } else {
                fleet.send(of_loop, Message::Hinted(names));
            }
        }
        for resync in feed.resyncs() {
            spread(polls, resync);
        }
    }

    /// Reads all watched keys of servers that have come back since the last turn: hints that came
    /// while they were away could not be followed.
    fn read_returned(&self, polls: &mut Polls, cache: &Cache) {
        for server in cache.returned() {
            self.metrics.feed.resyncs.increment(ResyncReason::Returned);
            let is_distrusted = false;
            let resync = Resync {
                server,
                is_distrusted,
            };
            read_all(polls, cache, resync);
        }
    }
}

/// Reads all watched keys of one server.
pub(super) fn read_all(polls: &mut Polls, cache: &Cache, resync: Resync) {
    let is_of_server = |name: &[u8]| cache.server_of(name) == Some(resync.server);
    polls.resync(is_of_server, resync.is_distrusted);
}
