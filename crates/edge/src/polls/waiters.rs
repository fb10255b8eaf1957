//! Membership of everything that waits on one loop: keys, and the polls and streams that wait for
//! a change of them.

use super::tables::{Feed, FeedSet, Keys, Poll, kind};
use super::wanted::Several;
use crate::config::RouteId;
use crate::presence::Change as PresenceChange;
use bytes::Bytes;
use dwell_evloop::{Slab, Token};
use dwell_memcache::watch::WaitedByLoop;
use std::collections::HashMap;

/// Polls and streams of one loop, with the keys that they wait for.
#[derive(Debug)]
pub(super) struct Waiters {
    pub(super) keys: Keys,
    pub(super) records: Slab<Poll>,
    pub(super) feeds: Slab<Feed>,
    pub(super) sets: Slab<FeedSet>,
    pub(super) several: Slab<Several>,
    /// Answers of the application that feeds have not been told yet, by the tokens of the feeds.
    pub(super) answered: HashMap<u64, (Bytes, u32)>,
    pub(super) streams: usize,
    pub(super) sockets: usize,
    pub(super) waiting: usize,
    pub(super) waiting_max: usize,
    pub(super) draining: bool,
    /// Keys that began or ended to be waited for, where a webhook is to be told.
    presence: Option<Vec<PresenceChange>>,
}

impl Waiters {
    /// Tables for `held_max` exchanges, and for `waiting_max` waits.
    pub(super) fn new(seen: Option<WaitedByLoop>, held_max: usize, waiting_max: usize) -> Self {
        Self {
            keys: Keys::new(seen),
            records: Slab::new(kind::POLL, held_max),
            feeds: Slab::new(kind::FEED, waiting_max),
            sets: Slab::new(kind::SET, held_max),
            several: Slab::new(kind::SEVERAL, held_max),
            answered: HashMap::new(),
            streams: 0,
            sockets: 0,
            waiting: 0,
            waiting_max,
            draining: false,
            presence: None,
        }
    }

    /// Changes the limits; smaller ones end nothing that is there.
    pub(super) fn set_limits(&mut self, held_max: usize, waiting_max: usize) {
        self.waiting_max = waiting_max;
        self.records.set_capacity_max(held_max);
        self.sets.set_capacity_max(held_max);
        self.several.set_capacity_max(held_max);
        self.feeds.set_capacity_max(waiting_max);
    }

    /// Routes that exchanges are held under, some more than once.
    pub(super) fn routes(&self) -> impl Iterator<Item = RouteId> {
        let polls = self.records.values().map(|poll| poll.route);
        let several = self.several.values().map(|poll| poll.route);
        let feeds = self.feeds.values().map(|feed| feed.route);
        let sockets = self.sets.values().filter_map(|set| set.socket.as_ref());
        let sockets = sockets.map(|socket| socket.route);
        polls.chain(several).chain(feeds).chain(sockets)
    }

    /// Notes from now on which keys begin and end to be waited for.
    pub(super) fn note_presence(&mut self) {
        self.presence = Some(Vec::new());
    }

    /// Takes the notes of [`note_presence`](Self::note_presence).
    pub(super) fn take_presence(&mut self) -> Vec<PresenceChange> {
        let noted = self.presence.as_mut();
        noted.map(std::mem::take).unwrap_or_default()
    }

    /// Counts a key that begins to be waited for on this loop, or ends to.
    pub(super) fn count_waited(&mut self, key: Token, begins: bool) {
        self.keys.count_waited(begins);
        if let (Some(noted), Some(record)) = (&mut self.presence, self.keys.get(key)) {
            let name = Box::from(&*record.name);
            noted.push(PresenceChange { name, begins });
        }
    }

    /// Leaves `key`, which is still needed; true for the last one that waited for it.
    pub(super) fn leave_group(&mut self, key: Token) -> bool {
        self.waiting = self.waiting.saturating_sub(1);
        let (polls, feeds, several) = (&self.records, &self.feeds, &self.several);
        let mut is_last = false;
        if let Some(record) = self.keys.get_mut(key) {
            let is_member = |token: Token| match token.kind() {
                kind::POLL => polls.get(token).is_some(),
                kind::SEVERAL => several.get(token).is_some(),
                _ => feeds.get(token).is_some(),
            };
            record.waiting.leave(is_member);
            is_last = record.waiting.is_empty();
        }
        is_last
    }

    /// The reason why so many more may not wait, if there is one.
    pub(super) fn no_waits(&self, count: usize) -> Option<&'static str> {
        if self.draining {
            return Some(SHUTTING_DOWN);
        }
        (self.waiting + count > self.waiting_max).then_some(TOO_MANY_WAIT)
    }

    /// As [`no_waits`](Self::no_waits), for exchanges that have no record yet.
    pub(super) fn no_records(&self, count: usize) -> Option<&'static str> {
        let is_full = self.records.is_full();
        self.no_waits(count)
            .or_else(|| is_full.then_some(TOO_MANY_WAIT))
    }

    /// True if no exchange is owed an answer.
    pub(super) fn is_idle(&self) -> bool {
        self.records.is_empty()
            && self.feeds.is_empty()
            && self.several.is_empty()
            && self.sockets == 0
    }
}

/// The reason given where `limits.waiters_max` is reached.
pub(super) const TOO_MANY_WAIT: &str = "too many polls are waiting";
/// The reason given when the server ends.
pub(super) const SHUTTING_DOWN: &str = "shutting down";
