//! Feeds: the keys that event streams and WebSockets follow.
//!
//! A stream is a feed, or a set of feeds that share one connection. Each has the token of its
//! record, and the kind of the token tells which it is.

use super::super::answers::Found;
use super::super::decide::Content;
use super::super::tables::{Feed, FeedSet, Member, News, Sink, SocketSet};
use crate::config::{RouteId, Rules};
use crate::cursor::Condition;
use crate::ids::{FeedId, FeedOrSet, SetId, StreamId};
use bytes::Bytes;
use dwell_evloop::Slab;
use dwell_timers::Tick;
use std::collections::HashMap;

/// Streams of one loop: their feeds, and what these have been told.
#[derive(Debug)]
pub(in crate::polls) struct Feeds {
    table: Slab<Feed, FeedId>,
    sets: Slab<FeedSet, SetId>,
    /// Answers of the application that feeds have not been told yet, by feed.
    answered: HashMap<FeedId, (Bytes, u32)>,
    /// Open event streams.
    streams: usize,
    /// Open WebSockets.
    sockets: usize,
}

impl Feeds {
    /// Tables for so many sets, and for so many feeds.
    pub(super) fn new(sets_max: usize, feeds_max: usize) -> Self {
        Self {
            table: FeedId::slab(feeds_max),
            sets: SetId::slab(sets_max),
            answered: HashMap::new(),
            streams: 0,
            sockets: 0,
        }
    }

    /// Changes the sizes of the tables.
    pub(super) fn set_limits(&mut self, sets_max: usize, feeds_max: usize) {
        self.table.set_capacity_max(feeds_max);
        self.sets.set_capacity_max(sets_max);
    }

    /// Streams of events that are open now.
    pub(in crate::polls) fn streams(&self) -> usize {
        self.streams
    }

    /// WebSockets that are open now.
    pub(in crate::polls) fn sockets(&self) -> usize {
        self.sockets
    }

    /// Keys that are followed now, each as often as it is.
    pub(in crate::polls) fn len(&self) -> usize {
        self.table.len()
    }

    /// True while no key is followed.
    pub(in crate::polls) fn is_empty(&self) -> bool {
        self.table.is_empty()
    }

    /// The record of one feed.
    pub(in crate::polls) fn get(&self, feed: FeedId) -> Option<&Feed> {
        self.table.get(feed)
    }

    /// The tokens of all feeds.
    pub(in crate::polls) fn tokens(&self) -> impl Iterator<Item = FeedId> + '_ {
        self.table.tokens()
    }

    /// Streams that may follow several keys, and follow none now.
    pub(in crate::polls) fn empty_sets(&self) -> impl Iterator<Item = SetId> + '_ {
        let is_empty = |set: &FeedSet| set.members.is_empty();
        let tokens = self.sets.tokens();
        tokens.filter(move |token| self.sets.get(*token).is_some_and(is_empty))
    }

    /// Routes of all streams, some more than once.
    pub(super) fn routes(&self) -> impl Iterator<Item = RouteId> {
        let sockets = self.sets.values().filter_map(|set| set.socket.as_ref());
        let of_feeds = self.table.values().map(|feed| feed.route);
        of_feeds.chain(sockets.map(|socket| socket.route))
    }

    /// The stream that a feed belongs to.
    pub(in crate::polls) fn stream_of(&self, feed: FeedId) -> StreamId {
        let set = self.table.get(feed).and_then(|feed| feed.set);
        set.map_or(feed.into(), StreamId::from)
    }

    /// The destination of a stream.
    pub(in crate::polls) fn sink_of(&self, stream: StreamId) -> Option<Sink> {
        match self.socket_of(stream) {
            Some(set) => Some(set.sink),
            None => self.any_feed(stream).map(|feed| feed.sink),
        }
    }

    /// One of the feeds of a stream, which have its times and its sink in common.
    pub(in crate::polls) fn any_feed(&self, stream: StreamId) -> Option<&Feed> {
        let feed = match stream.id() {
            FeedOrSet::Set(set) => self.set(set)?.members.first()?.feed,
            FeedOrSet::Feed(feed) => feed,
        };
        self.table.get(feed)
    }

    /// The record of one set.
    pub(in crate::polls) fn set(&self, set: SetId) -> Option<&FeedSet> {
        self.sets.get(set)
    }

    /// The record of a WebSocket that is a set.
    pub(in crate::polls) fn socket_set(&self, set: SetId) -> Option<&SocketSet> {
        self.set(set)?.socket.as_deref()
    }

    /// As [`socket_set`](Self::socket_set), of a stream that may be one.
    fn socket_of(&self, stream: StreamId) -> Option<&SocketSet> {
        match stream.id() {
            FeedOrSet::Set(set) => self.socket_set(set),
            FeedOrSet::Feed(_) => None,
        }
    }

    /// The feeds of a stream.
    pub(in crate::polls) fn feeds_of(&self, stream: StreamId) -> Vec<FeedId> {
        match stream.id() {
            FeedOrSet::Feed(feed) => vec![feed],
            FeedOrSet::Set(set) => {
                let members = self.set(set).map_or(&[][..], |set| &set.members);
                members.iter().map(|member| member.feed).collect()
            }
        }
    }

    /// The name under which a client follows the key of one of its feeds.
    pub(in crate::polls) fn label_of(&self, feed: FeedId) -> Option<&str> {
        let set = self.table.get(feed)?.set?;
        let mut members = self.set(set)?.members.iter();
        members.find(|member| member.feed == feed)?.label.as_deref()
    }

    /// The feed of the key that the path of the request names, while it is followed.
    pub(in crate::polls) fn unnamed_feed(&self, stream: StreamId) -> Option<FeedId> {
        let set = match stream.id() {
            FeedOrSet::Set(set) => self.set(set)?,
            FeedOrSet::Feed(feed) => return Some(feed),
        };
        let mut members = set.members.iter();
        Some(members.find(|member| member.label.is_none())?.feed)
    }

    /// The route that a WebSocket was opened on.
    pub(in crate::polls) fn route_of(&self, stream: StreamId) -> Option<RouteId> {
        match stream.id() {
            FeedOrSet::Set(set) => self.socket_set(set).map(|set| set.route),
            FeedOrSet::Feed(feed) => self.table.get(feed).map(|feed| feed.route),
        }
    }

    /// The time at which a WebSocket ends.
    pub(in crate::polls) fn end_of(&self, stream: StreamId) -> Option<Tick> {
        match self.socket_of(stream) {
            Some(set) => Some(set.ends),
            None => self.any_feed(stream).map(|feed| feed.ends),
        }
    }

    /// Begins a stream that may follow several keys; `socket` is what a WebSocket has beside them.
    pub(in crate::polls) fn open_set(&mut self, socket: Option<SocketSet>) -> Option<SetId> {
        let is_socket = socket.is_some();
        let set = FeedSet {
            members: Vec::new(),
            socket: socket.map(Box::new),
        };
        let set = self.sets.insert(set).ok()?;
        if is_socket {
            self.sockets += 1;
        } else {
            self.streams += 1;
        }
        Some(set)
    }

    /// Makes a set of a WebSocket that had a single key, which the path of its request names.
    pub(super) fn widen(&mut self, id: FeedId, path: Box<str>) -> Option<SetId> {
        let feed = self.table.get_mut(id)?;
        let socket = SocketSet {
            sink: feed.sink,
            ends: feed.ends,
            route: feed.route,
            path,
            given_up: Vec::new(),
        };
        let member = Member {
            feed: id,
            label: None,
        };
        let set = FeedSet {
            members: vec![member],
            socket: Some(Box::new(socket)),
        };
        let set = self.sets.insert(set).ok()?;
        feed.set = Some(set);
        Some(set)
    }

    /// Adds a feed to the set that it names.
    pub(super) fn join_set(&mut self, feed: FeedId, label: Option<Box<str>>) {
        let set = self.table.get(feed).and_then(|feed| feed.set);
        if let Some(set) = set.and_then(|set| self.sets.get_mut(set)) {
            set.members.push(Member { feed, label });
        }
    }

    /// Makes the record of a feed; one that is a stream alone counts as open.
    pub(super) fn insert(&mut self, feed: Feed) -> Option<FeedId> {
        let (sink, is_stream) = (feed.sink, feed.set.is_none());
        let token = self.table.insert(feed).ok()?;
        match sink {
            _ if !is_stream => {}
            Sink::Events(_) => self.streams += 1,
            Sink::Leaving(_) | Sink::Socket(_) => self.sockets += 1,
        }
        Some(token)
    }

    /// Forgets one key of a stream, and what its client was to get of it.
    pub(super) fn remove(&mut self, feed: FeedId) -> Option<Feed> {
        let removed = self.table.remove(feed)?;
        if removed.is_asking {
            self.answered.remove(&feed);
        }
        Some(removed)
    }

    /// Forgets a stream whose feeds are gone, and which went to `sink`.
    pub(super) fn close(&mut self, stream: StreamId, sink: Sink) {
        if let FeedOrSet::Set(set) = stream.id() {
            self.sets.remove(set);
        }
        match sink {
            Sink::Events(_) => self.streams -= 1,
            Sink::Leaving(_) | Sink::Socket(_) => self.sockets -= 1,
        }
    }

    /// Takes the feed of one key out of a set, by the name that its client gives it.
    pub(super) fn take_member(&mut self, stream: StreamId, label: &str) -> Option<FeedId> {
        let FeedOrSet::Set(set) = stream.id() else {
            return None;
        };
        let set = self.sets.get_mut(set)?;
        let is_it = |member: &Member| member.label.as_deref() == Some(label);
        let place = set.members.iter().position(is_it)?;
        let Member { feed, label } = set.members.remove(place);
        let told = self.table.get(feed).map(|feed| feed.has);
        if let (Some(socket), Some(label), Some(told)) = (&mut set.socket, label, told) {
            socket.give_up(label, told);
        }
        Some(feed)
    }

    /// The version that the client of a WebSocket has of a key that it takes up, if it says that it
    /// `has` this.
    ///
    /// Shape: of a key that it has followed before, a frame may be on its way that it had not read
    /// when it said so. Having read it, it has what that says; so unless both are the same, it is
    /// told what there is.
    pub(in crate::polls) fn still_has(&self, set: SetId, label: &str, has: Condition) -> Condition {
        #[cfg(feature = "sim")]
        if dwell_evloop::sim::Planted::TrustSince.is_in() {
            return has;
        }
        let socket = self.socket_set(set);
        match socket.and_then(|socket| socket.told_last(label)) {
            Some(told) if told != has => Condition::Foreign,
            _ => has,
        }
    }

    /// Gives a stream another destination: its connection has become a WebSocket.
    pub(in crate::polls) fn set_sink(&mut self, stream: StreamId, sink: Sink) {
        if let FeedOrSet::Set(set) = stream.id()
            && let Some(socket) = self.sets.get_mut(set).and_then(|set| set.socket.as_mut())
        {
            socket.sink = sink;
        }
        for token in self.feeds_of(stream) {
            if let Some(feed) = self.table.get_mut(token) {
                feed.sink = sink;
            }
        }
    }

    /// Notes what the key of a feed has; tells what that is to the feed, and its destination.
    pub(in crate::polls) fn note_current(
        &mut self,
        feed: FeedId,
        current: Option<Content>,
        rules: impl FnOnce(RouteId) -> Rules,
    ) -> Option<(News, Sink)> {
        let record = self.table.get(feed)?;
        let news = (record.news(current, rules(record.route)), record.sink);
        if current.is_some() {
            self.is_in_cache(feed);
        }
        Some(news)
    }

    /// Notes what the client of a feed was sent last; false if the feed is gone.
    pub(in crate::polls) fn was_told(&mut self, feed: FeedId, content: Option<Content>) -> bool {
        let feed = self.table.get_mut(feed);
        feed.map(|feed| feed.was_told(content)).is_some()
    }

    /// Notes that the application is asked for the key of a feed; false if the feed is gone.
    pub(in crate::polls) fn begin_asking(&mut self, feed: FeedId) -> bool {
        let feed = self.table.get_mut(feed);
        feed.map(|feed| feed.is_asking = true).is_some()
    }

    /// Notes that the application is not asked for the key of a feed any more.
    pub(in crate::polls) fn end_asking(&mut self, feed: FeedId) {
        if let Some(feed) = self.table.get_mut(feed) {
            feed.is_asking = false;
        }
    }

    /// As [`end_asking`](Self::end_asking), without an answer: the value that a client has may be
    /// there still, or not.
    pub(in crate::polls) fn give_up_asking(&mut self, feed: FeedId) {
        if let Some(feed) = self.table.get_mut(feed) {
            (feed.is_asking, feed.is_cached) = (false, false);
        }
    }

    /// Keeps a value of the application until the feed gets it.
    pub(in crate::polls) fn keep_answer(&mut self, feed: FeedId, body: Bytes, flags: u32) {
        self.answered.insert(feed, (body, flags));
    }

    /// The value that the application has answered with and a feed is to be told, where the cache
    /// has none.
    pub(in crate::polls) fn answered_value(&self, feed: FeedId) -> Option<Found<'static>> {
        let (body, flags) = self.answered.get(&feed)?;
        Some(Found::remembered(body.clone(), *flags))
    }

    /// Notes what a feed has now: a value of the cache, or one that the application has answered
    /// with. That was never in the cache, so it is not missed there.
    pub(in crate::polls) fn note_told(
        &mut self,
        token: FeedId,
        current: Option<Content>,
        is_stored: bool,
    ) {
        match current {
            Some(_) if is_stored => self.is_in_cache(token),
            Some(content) => {
                self.answered.remove(&token);
                if let Some(feed) = self.table.get_mut(token) {
                    feed.has = Condition::Since(content.cursor);
                    (feed.is_asking, feed.is_cached) = (false, false);
                }
            }
            None => {}
        }
    }

    /// Notes that the cache has a value for a feed, whatever the application answers.
    pub(in crate::polls) fn is_in_cache(&mut self, token: FeedId) {
        if let Some(feed) = self.table.get_mut(token) {
            feed.is_cached = true;
            if std::mem::take(&mut feed.is_asking) {
                self.answered.remove(&token);
            }
        }
    }
}

#[cfg(any(test, feature = "sim"))]
impl Feeds {
    /// True while no record is left.
    pub(in crate::polls) fn has_nothing(&self) -> bool {
        self.table.is_empty()
            && self.sets.is_empty()
            && self.answered.is_empty()
            && self.streams + self.sockets == 0
    }
}
