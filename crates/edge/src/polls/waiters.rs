//! Waiters: everything that waits on one loop for a change of a key.
//!
//! A key has a record while anything is in progress for it. The first member that waits for it has
//! the embedded store report its changes, and the last one takes that watch along.

mod by_route;
mod feeds;

use super::decide::Content;
use super::key_state::{KeyState, MultiPoll};
use super::lookups::Source;
use super::refusals::Refusal;
use super::tables::{Feed, Group, Keys, Poll, Sink};
use super::watchers::Watchers;
use crate::config::{LimitsConfig, Rooms, RouteId};
use crate::ids::{
    FeedId, FeedOrSet, KeyId, MultiPollId, PollId, SetId, StreamId, Waiter, WaiterId,
};
use crate::metrics::LoopMetrics;
use crate::presence::WatchChange;
use by_route::WaitsByRoute;
use dwell_evloop::Slab;
use dwell_memcache::watch::WaitedByLoop;
use dwell_store::{Item, SharedKey};
use feeds::Feeds;
use std::sync::Arc;

/// Polls and streams of one loop, with the keys that they wait for.
#[derive(Debug)]
pub(super) struct Waiters {
    pub(super) keys: Keys,
    pub(super) feeds: Feeds,
    /// Exchanges that are owed an answer, whatever they wait for.
    polls: Slab<Poll, PollId>,
    multi_polls: Slab<MultiPoll, MultiPollId>,
    source: Source,
    metrics: Arc<LoopMetrics>,
    waiting: usize,
    waiting_max: usize,
    /// Loops that share the limits evenly.
    loops: usize,
    /// The server ends, so that nothing begins to wait.
    draining: bool,
    /// Keys that began or ended to be waited for, where a webhook is to be told.
    presence: Option<Vec<WatchChange>>,
    /// Keys that began or ended to be waited for, where Redis announces changes.
    changed_waits: Vec<SharedKey>,
    /// The numbers of waits by route.
    pub(super) by_route: WaitsByRoute,
}

/// The beginning of a wait for changes of a key.
#[derive(Debug)]
pub(super) enum Watch {
    /// The embedded store reports them from now on; and what it has now.
    Begun(Option<Item>),
    /// This loop gets them already, or finds them by its sweeps.
    Running,
}

impl Waiters {
    /// Tables for so many exchanges and waits.
    pub(super) fn new(
        source: Source,
        metrics: Arc<LoopMetrics>,
        seen: Option<WaitedByLoop>,
        rooms: Rooms,
        loops: usize,
    ) -> Self {
        Self {
            keys: Keys::new(seen),
            feeds: Feeds::new(rooms.held_max, rooms.waiting_max),
            polls: PollId::slab(rooms.held_max),
            multi_polls: MultiPollId::slab(rooms.held_max),
            source,
            metrics,
            waiting: 0,
            waiting_max: rooms.waiting_max,
            loops,
            draining: false,
            presence: None,
            changed_waits: Vec::new(),
            by_route: WaitsByRoute::default(),
        }
    }

    /// Changes the limits; smaller ones end nothing that is there. Returns the room of this loop.
    pub(super) fn set_limits(&mut self, limits: &LimitsConfig) -> Rooms {
        let rooms = limits.rooms(self.loops);
        self.waiting_max = rooms.waiting_max;
        self.polls.set_capacity_max(rooms.held_max);
        self.multi_polls.set_capacity_max(rooms.held_max);
        self.feeds.set_limits(rooms.held_max, rooms.waiting_max);
        rooms
    }

    /// Refuses every further wait: the server ends.
    pub(super) fn refuse_waits(&mut self) {
        self.draining = true;
    }

    /// The reason why so many more may not wait, if there is one.
    pub(super) fn no_waits(&self, count: usize) -> Option<Refusal> {
        if self.draining {
            return Some(Refusal::ShuttingDown);
        }
        #[cfg(feature = "sim")]
        let count = if dwell_evloop::sim::Planted::ForgetBound.is_in() {
            count.min(1)
        } else {
            count
        };
        (self.waiting + count > self.waiting_max).then_some(Refusal::TooManyWait)
    }

    /// As [`no_waits`](Self::no_waits), for exchanges that have no record yet.
    pub(super) fn no_records(&self, count: usize) -> Option<Refusal> {
        let is_full = self.polls.is_full();
        self.no_waits(count)
            .or_else(|| is_full.then_some(Refusal::Busy))
    }

    /// Waits for a change: one for each poll of a key, and for each key of the others.
    pub(super) fn waiting(&self) -> usize {
        self.waiting
    }

    /// True while some exchange is owed an answer.
    pub(super) fn owes(&self) -> bool {
        !(self.polls.is_empty() && self.multi_polls.is_empty() && self.feeds.is_empty())
    }

    /// True if no exchange is owed an answer, and no WebSocket is open.
    pub(super) fn is_idle(&self) -> bool {
        !self.owes() && self.feeds.sockets() == 0
    }

    /// Routes that exchanges are held under, some more than once.
    pub(super) fn routes(&self) -> impl Iterator<Item = RouteId> {
        let polls = self.polls.values().map(|poll| poll.route);
        let multi_polls = self.multi_polls.values().map(|poll| poll.route);
        polls.chain(multi_polls).chain(self.feeds.routes())
    }

    /// Notes from now on which keys begin and end to be waited for.
    pub(super) fn note_presence(&mut self) {
        self.presence = Some(Vec::new());
    }

    /// Takes the notes of [`note_presence`](Self::note_presence).
    pub(super) fn take_presence(&mut self) -> Vec<WatchChange> {
        let noted = self.presence.as_mut();
        noted.map(std::mem::take).unwrap_or_default()
    }

    /// Takes the keys that have begun or ended to be waited for, each with its id if it is waited
    /// for now.
    pub(super) fn take_changed_waits(&mut self) -> Vec<(SharedKey, Option<KeyId>)> {
        let names = std::mem::take(&mut self.changed_waits).into_iter();
        let now = |name: SharedKey| {
            let key = self.keys.find(&name);
            let key = key.filter(|key| self.keys.waited_name(*key).is_some());
            (name, key)
        };
        names.map(now).collect()
    }

    /// Has the embedded store report changes of a key, if it is the first wait for it.
    pub(super) fn watch(&self, key: KeyId, now: u32) -> Watch {
        match (&self.source, self.keys.unwaited(key)) {
            (Source::Embedded(store, watcher), Some(name)) => {
                Watch::Begun(store.watch_shared(name, *watcher, now))
            }
            _ => Watch::Running,
        }
    }

    /// Enters a key that is going to be waited for, and watches it.
    pub(super) fn enter(&mut self, name: &[u8], now: u32) -> Option<(KeyId, Watch)> {
        let key = self.keys.enter(name)?;
        Some((key, self.watch(key, now)))
    }

    /// Forgets a key that was going to be waited for, unless another member waits for it.
    pub(super) fn give_up(&mut self, key: KeyId) {
        let is_waited = self.keys.get(key).is_none_or(|key| !key.waiting.is_empty());
        if !is_waited {
            self.unwatch(key);
            self.keys.release(key);
        }
    }

    /// Reads a key that the embedded store has reported, which reports the next change again;
    /// nothing if nothing is in progress for the key any more.
    pub(super) fn reread(&self, name: &[u8], now: u32) -> Option<(KeyId, Option<Item>)> {
        let Source::Embedded(store, watcher) = &self.source else {
            return None;
        };
        #[cfg(feature = "sim")]
        if dwell_evloop::sim::Planted::SkipReread.is_in() {
            return Some((self.keys.find(name)?, store.get(name, now)));
        }
        let item = store.reread(name, *watcher, now);
        Some((self.keys.find(name)?, item))
    }

    fn unwatch(&self, key: KeyId) {
        if let (Source::Embedded(store, watcher), Some(record)) = (&self.source, self.keys.get(key))
        {
            store.unwatch(&record.name, *watcher);
        }
    }

    /// Adds a member, whose record says so, to those that wait for `key`.
    fn join(&mut self, key: KeyId, member: WaiterId) {
        self.waiting += 1;
        self.metrics.waits.increment();
        if let Some(record) = self.keys.get_mut(key) {
            let is_first = record.waiting.is_empty();
            record.waiting.join(member);
            if is_first {
                self.count_waited(key, true);
            }
        }
    }

    /// Takes a member, whose record is gone, from those that wait for `key`.
    fn leave(&mut self, key: KeyId) {
        if self.leave_group(key) {
            self.end_watch(key);
        }
    }

    /// As [`leave`](Self::leave), but that the key is still needed; true for its last member.
    fn leave_group(&mut self, key: KeyId) -> bool {
        self.waiting = self.waiting.saturating_sub(1);
        let (polls, feeds, multi_polls) = (&self.polls, &self.feeds, &self.multi_polls);
        let mut is_last = false;
        if let Some(record) = self.keys.get_mut(key) {
            let is_member = |waiter: WaiterId| match waiter.id() {
                Waiter::Poll(poll) => polls.get(poll).is_some(),
                Waiter::MultiPoll(poll) => multi_polls.get(poll).is_some(),
                Waiter::Feed(feed) => feeds.get(feed).is_some(),
            };
            record.waiting.leave(is_member);
            is_last = record.waiting.is_empty();
        }
        is_last
    }

    /// Ends the watch of a key whose last member is gone, and forgets it if nothing else is in
    /// progress for it.
    pub(super) fn end_watch(&mut self, key: KeyId) {
        self.count_waited(key, false);
        self.unwatch(key);
        self.keys.release(key);
    }

    fn count_waited(&mut self, key: KeyId, begins: bool) {
        self.keys.count_waited(begins);
        if let (Source::Redis, Some(record)) = (&self.source, self.keys.get(key)) {
            self.changed_waits.push(record.name.clone());
        }
        if let (Some(noted), Some(record)) = (&mut self.presence, self.keys.get(key)) {
            let name = Box::from(&*record.name);
            noted.push(WatchChange { name, begins });
        }
    }

    /// Takes the members of a key, to be checked one by one; `None` if it has no members.
    pub(super) fn take_members(&mut self, key: KeyId) -> Option<Group> {
        let record = self.keys.get_mut(key)?;
        (!record.waiting.is_empty()).then(|| std::mem::take(&mut record.waiting))
    }

    /// Gives a key those of its members back that are still there; false if no member is left, and
    /// the key is not waited for any more.
    pub(super) fn put_members_back(&mut self, key: KeyId, members: Group) -> bool {
        let is_empty = members.is_empty();
        if let Some(record) = self.keys.get_mut(key) {
            record.waiting = members;
        }
        if is_empty {
            self.end_watch(key);
        }
        !is_empty
    }

    /// Keys that are waited for and whose names begin so, each with its watchers.
    pub(super) fn watched_below(&self, prefix: &[u8]) -> Vec<(Box<[u8]>, Watchers)> {
        let keys = self.keys.waited_keys().into_iter();
        let named = keys.filter_map(|key| Some((key, &*self.keys.get(key)?.name)));
        let below = named.filter(|(_, name)| name.starts_with(prefix));
        below
            .map(|(key, name)| (name.into(), self.watchers_of(key)))
            .collect()
    }

    /// As [`watched_below`](Self::watched_below), for one key that has a record.
    pub(super) fn watched(&self, name: Box<[u8]>) -> Option<(Box<[u8]>, Watchers)> {
        let key = self.keys.find(&name)?;
        Some((name, self.watchers_of(key)))
    }

    /// Members of a key, by transport.
    pub(super) fn watchers_of(&self, key: KeyId) -> Watchers {
        let mut watchers = Watchers::default();
        let members = self.keys.get(key).map(|record| record.waiting.members());
        for member in members.unwrap_or_default() {
            // Among the members there may be some that left.
            match member.id() {
                Waiter::Poll(poll) => {
                    let poll = self.polls.get(poll);
                    let waits = poll.is_some_and(|poll| poll.waits_for() == Some(key));
                    watchers.polls += u64::from(waits);
                }
                Waiter::MultiPoll(poll) => {
                    watchers.polls += u64::from(self.multi_polls.get(poll).is_some());
                }
                Waiter::Feed(feed) => match self.feeds.get(feed).map(|feed| feed.sink) {
                    Some(Sink::Events(_)) => watchers.streams += 1,
                    Some(Sink::Leaving(_) | Sink::Socket(_)) => watchers.websockets += 1,
                    None => {}
                },
            }
        }
        watchers
    }
}

/// Polls of one key.
impl Waiters {
    /// Polls of one key, whatever they wait for.
    pub(super) fn polls(&self) -> &Slab<Poll, PollId> {
        &self.polls
    }

    /// The record of a poll, to be changed in everything but its key.
    pub(super) fn poll_mut(&mut self, poll: PollId) -> Option<&mut Poll> {
        self.polls.get_mut(poll)
    }

    /// Makes the record of a poll, which waits for a key from now on if that is its place.
    ///
    /// # Errors
    /// The poll, where there is no room for it.
    pub(super) fn insert(&mut self, poll: Poll) -> Result<PollId, Poll> {
        let (key, route) = (poll.waits_for(), poll.route);
        let inserted = self.polls.insert(poll);
        if inserted.is_ok() {
            self.by_route.begins(route);
        }
        match (&inserted, key) {
            (Ok(token), Some(key)) => self.join(key, (*token).into()),
            (Err(_), Some(key)) => self.give_up(key),
            (_, None) => {}
        }
        inserted
    }

    /// Has a poll wait for a key that waited for something else.
    pub(super) fn wait_for(&mut self, key: KeyId, token: PollId) {
        if let Some(poll) = self.polls.get_mut(token) {
            poll.waits_from_now(key);
        }
        self.join(key, token.into());
    }

    /// Takes a poll out of the table, and from its key.
    pub(super) fn remove(&mut self, poll: PollId) -> Option<Poll> {
        let removed = self.polls.remove(poll)?;
        self.by_route.ends(removed.route);
        if let Some(key) = removed.waits_for() {
            self.leave(key);
        }
        Some(removed)
    }

    /// As [`remove`](Self::remove), if `choose` has something for the poll, which waits for this
    /// key. The key stays; true with its last poll, whose watch is to be [ended](Self::end_watch).
    pub(super) fn take<T>(
        &mut self,
        poll: PollId,
        key: KeyId,
        choose: impl FnOnce(&Poll) -> Option<T>,
    ) -> Option<(Poll, T, bool)> {
        let (removed, chosen) = self.polls.remove_if(poll, choose)?;
        self.by_route.ends(removed.route);
        debug_assert_eq!(removed.waits_for(), Some(key), "the place of a waiter");
        Some((removed, chosen, self.leave_group(key)))
    }

    /// The poll that alone waits for a key, as is mostly so.
    pub(super) fn only_poll(&self, key: KeyId) -> Option<PollId> {
        match self.keys.get(key)?.waiting {
            Group::One(waiter) => match waiter.id() {
                Waiter::Poll(poll) => self.polls.get(poll).map(|_| poll),
                Waiter::Feed(_) | Waiter::MultiPoll(_) => None,
            },
            Group::Empty | Group::Many(_) => None,
        }
    }
}

/// Polls of several keys.
impl Waiters {
    /// Polls of several keys.
    pub(super) fn multi_polls(&self) -> &Slab<MultiPoll, MultiPollId> {
        &self.multi_polls
    }

    pub(super) fn multi_poll(&self, poll: MultiPollId) -> Option<&MultiPoll> {
        self.multi_polls.get(poll)
    }

    /// The record of a poll of several keys, to be changed in everything but its keys.
    pub(super) fn multi_poll_mut(&mut self, poll: MultiPollId) -> Option<&mut MultiPoll> {
        self.multi_polls.get_mut(poll)
    }

    /// As [`multi_poll_mut`](Self::multi_poll_mut), with the name of a key.
    pub(super) fn multi_poll_and_name(
        &mut self,
        poll: MultiPollId,
        key: KeyId,
    ) -> Option<(&mut MultiPoll, &[u8])> {
        let name = &*self.keys.get(key)?.name;
        Some((self.multi_polls.get_mut(poll)?, name))
    }

    /// Makes the record of a poll of several keys, which does not wait for them yet; `None` where
    /// there is no room.
    pub(super) fn insert_multi_poll(&mut self, poll: MultiPoll) -> Option<MultiPollId> {
        let route = poll.route;
        let inserted = self.multi_polls.insert(poll).ok()?;
        self.by_route.begins(route);
        Some(inserted)
    }

    /// Has a poll wait for one of its keys.
    pub(super) fn join_multi_poll(&mut self, token: MultiPollId, place: usize, key: KeyId) {
        let poll = self.multi_polls.get_mut(token);
        if let Some(state) = poll.and_then(|poll| poll.keys.get_mut(place)) {
            state.key = Some(key);
            state.is_joined = true;
            self.join(key, token.into());
        }
    }

    /// Takes a poll out of the table, and from all of its keys.
    pub(super) fn remove_multi_poll(&mut self, token: MultiPollId) -> Option<MultiPoll> {
        let poll = self.multi_polls.remove(token)?;
        self.by_route.ends(poll.route);
        for key in poll.keys.iter().filter_map(KeyState::joined) {
            self.leave(key);
        }
        Some(poll)
    }
}

/// Streams.
impl Waiters {
    /// Enters a key, and a feed that waits for it from now on; `None` where there is no room.
    pub(super) fn follow(
        &mut self,
        name: &[u8],
        now: u32,
        feed: impl FnOnce(KeyId) -> Feed,
    ) -> Option<FeedId> {
        let (key, _) = self.enter(name, now)?;
        self.insert_feed(feed(key))
    }

    /// Makes the record of a feed, which waits from now on for its key, as was entered before.
    pub(super) fn insert_feed(&mut self, feed: Feed) -> Option<FeedId> {
        let (key, route) = (feed.key, feed.route);
        let feed = self.feeds.insert(feed);
        match feed {
            Some(feed) => {
                self.by_route.begins(route);
                self.join(key, feed.into());
            }
            None => self.give_up(key),
        }
        feed
    }

    /// As [`follow`](Self::follow), for one more key of a set, under the name its client gives it.
    pub(super) fn follow_in_set(
        &mut self,
        name: &[u8],
        label: Option<Box<str>>,
        now: u32,
        feed: impl FnOnce(KeyId) -> Feed,
    ) -> Option<FeedId> {
        let feed = self.follow(name, now, feed)?;
        self.feeds.join_set(feed, label);
        Some(feed)
    }

    /// Has a stream follow a key no longer; false if it did not.
    pub(super) fn unfollow(&mut self, stream: StreamId, label: &str) -> bool {
        let feed = self.feeds.take_member(stream, label);
        feed.map(|feed| self.remove_feed(feed)).is_some()
    }

    fn remove_feed(&mut self, feed: FeedId) {
        if let Some(feed) = self.feeds.remove(feed) {
            self.by_route.ends(feed.route);
            self.leave(feed.key);
        }
    }

    /// Forgets a stream; returns its destination.
    pub(super) fn remove_stream(&mut self, stream: StreamId) -> Option<Sink> {
        let sink = self.feeds.sink_of(stream)?;
        for feed in self.feeds.feeds_of(stream) {
            self.remove_feed(feed);
        }
        self.feeds.close(stream, sink);
        Some(sink)
    }

    /// The set of a WebSocket's keys, made of its one feed where it had no other.
    pub(super) fn widen(&mut self, stream: StreamId) -> Option<SetId> {
        let feed = match stream.id() {
            FeedOrSet::Set(set) => return Some(set),
            FeedOrSet::Feed(feed) => feed,
        };
        let name = self.name_of_feed(feed)?;
        let path = std::str::from_utf8(name).ok()?.into();
        self.feeds.widen(feed, path)
    }

    /// Notes what the client of a feed was sent last.
    pub(super) fn was_told(&mut self, feed: FeedId, content: Option<Content>) {
        if self.feeds.was_told(feed, content) {
            self.metrics.stream_events.increment();
        }
    }

    /// The name of the key of a feed.
    pub(super) fn name_of_feed(&self, feed: FeedId) -> Option<&[u8]> {
        let key = self.feeds.get(feed)?.key;
        Some(&self.keys.get(key)?.name)
    }

    /// The path of the request that a WebSocket was opened with.
    pub(super) fn path_of(&self, stream: StreamId) -> Option<&str> {
        match stream.id() {
            FeedOrSet::Set(set) => Some(&self.feeds.socket_set(set)?.path),
            FeedOrSet::Feed(feed) => std::str::from_utf8(self.name_of_feed(feed)?).ok(),
        }
    }

    /// Streams with a key that has no record any more, so that no change could reach them.
    pub(super) fn lost_streams(&self) -> Vec<StreamId> {
        let is_lost = |token: &FeedId| {
            let feed = self.feeds.get(*token);
            feed.is_some_and(|feed| self.keys.get(feed.key).is_none())
        };
        let lost = self.feeds.tokens().filter(is_lost);
        lost.map(|feed| self.feeds.stream_of(feed)).collect()
    }
}

#[cfg(any(test, feature = "sim"))]
impl Waiters {
    /// The records of all polls of several keys.
    #[cfg(test)]
    pub(super) fn all_multi_polls_mut(&mut self) -> impl Iterator<Item = &mut MultiPoll> {
        self.multi_polls.values_mut()
    }

    /// True while no record is left.
    pub(super) fn has_nothing(&self) -> bool {
        !self.owes()
            && self.feeds.has_nothing()
            && self.keys.is_empty()
            && self.waiting + self.keys.waited() == 0
    }
}

#[cfg(test)]
mod tests;
