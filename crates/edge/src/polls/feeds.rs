//! Streams of events: how a poll that asks for one becomes a [`Feed`], what it is told, and how it
//! ends.
//!
//! A feed takes nothing but its record while its key does not change: the connection's deadline is
//! its heartbeat, and a value that its client does not take is not kept but read anew when the
//! client has taken what was before it. So a slow client misses values and never the newest.

use super::answers::Found;
use super::ask::{Ask, Condition};
use super::budget::{Budget, Now};
use super::decide::Content;
use super::events;
use super::parts::Parts;
use super::tables::{Feed, Sink};
use super::waiters::Watch;
use super::{Polls, seconds};
use crate::config::{OnDelete, RouteId};
use crate::ids::{FeedId, FeedOrSet, SetId, StreamId};
use crate::metrics::{PollOutcome, StreamEnd};
use crate::responder::{Exchange, Responder};
use bytes::Bytes;
use dwell_engine::{ExchangeId, Http, Outcome, Reply, SharedPiece, WriteError, sse};
use dwell_evloop::{Context, Id};
use dwell_timers::{TICK, Tick, ticks_ceil};
use std::time::Duration;

/// Milliseconds after which a client comes back when its stream has ended in the course of things.
pub(super) const RETRY: std::ops::Range<u64> = 1_000..5_000;
/// As that, when the application is to be asked for the value that is gone.
const RETRY_SOON: std::ops::Range<u64> = 100..1_000;

/// Inputs of a new stream besides its key.
pub(super) struct Opening<'a> {
    pub(super) ask: Ask,
    pub(super) route: RouteId,
    pub(super) name: &'a [u8],
    pub(super) exchange: ExchangeId,
    pub(super) known: Known<'a>,
}

/// The value of the key when a stream begins, as far as it is known.
#[derive(Clone, Copy)]
pub(super) enum Known<'a> {
    /// The embedded store has to be asked.
    Unread,
    /// The result of a memcached lookup.
    Looked(Option<&'a Found<'a>>),
    /// memcached has failed, so nobody knows.
    Nothing,
    /// The cache has none, and the application has answered with this one.
    Answered(&'a [u8]),
}

/// The effect of a change of its key on a feed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum News {
    None,
    Value,
    Deleted,
    /// It ends, so that its client comes back and the application is asked.
    Ends,
}

/// The content of a key as it is told to many streams: the event is made once for all of them.
pub(super) struct Telling<'f, 'v> {
    pub(super) found: Option<&'f Found<'v>>,
    event: Option<SharedEvent>,
}

impl<'f, 'v> Telling<'f, 'v> {
    pub(super) fn of(found: Option<&'f Found<'v>>) -> Self {
        Self { found, event: None }
    }
}

/// An event for many streams.
enum SharedEvent {
    /// A small one, which is kept by reference, however many wait for it.
    Piece(SharedPiece, usize),
    Parts(Vec<Bytes>),
}

impl SharedEvent {
    fn new(event: Vec<Bytes>) -> Self {
        match event.as_slice() {
            [text] => Self::Piece(SharedPiece::new(text), text.len()),
            _ => Self::Parts(event),
        }
    }

    fn bytes(&self) -> usize {
        match self {
            Self::Piece(_, bytes) => *bytes,
            Self::Parts(parts) => parts.iter().map(Bytes::len).sum(),
        }
    }

    fn write(&self, reply: &mut Reply<'_>) -> Result<(), WriteError> {
        match self {
            Self::Piece(piece, _) => reply.write_piece(piece),
            Self::Parts(parts) => reply.write_parts(parts),
        }
    }
}

impl Polls {
    /// Begins a stream, or answers why not; returns the token of its feed.
    pub(super) fn open_feed(
        &mut self,
        context: &mut Context,
        opening: &Opening<'_>,
        to: &mut Responder<'_, '_>,
    ) -> Option<FeedId> {
        let key = self.room_to_wait(context, opening.name, to)?;
        let item = match self.waiters.watch(key, seconds(context)) {
            Watch::Begun(item) => item,
            Watch::Running => self.stored(context, opening.name),
        };
        let stored = item.as_ref().map(Found::stored);
        let found = match opening.known {
            Known::Looked(found) => found,
            _ => stored.as_ref(),
        };
        let ends = self.end_of_life(context, opening.ask.wait());
        let mut feed = Feed {
            sink: Sink::Events(opening.exchange),
            key,
            has: opening.ask.condition,
            // Where nobody knows what there is, what its client has may yet turn out to be gone.
            is_cached: found.is_some()
                || matches!(opening.known, Known::Nothing)
                    && opening.ask.condition != Condition::None,
            ends,
            set: None,
            route: opening.route,
            is_asking: false,
        };
        let mut first = Parts::default();
        events::retry(first.text(), self.spread.within(RETRY));
        // What the application has said cannot be read again.
        let is_put_off = found.is_some() && self.delivery.is_busy(Now::of(context));
        if !is_put_off {
            self.first_event(&mut feed, opening, found, &mut first);
        }
        self.delivery.has_written(Now::of(context), first.len());
        // There is room, as was made sure of before the key was entered.
        let token = self.waiters.insert_feed(feed)?;
        if is_put_off {
            self.note_change(key, found, [token.into()]);
        }
        self.metrics.streams.increment();
        to.ends(PollOutcome::Streamed);
        let is_fetched = found.is_none() && matches!(opening.known, Known::Answered(_));
        events::begin(to, context, is_fetched, first);
        Some(token)
    }

    /// Writes what the client is told before anything changes, if it is anything.
    fn first_event(
        &mut self,
        feed: &mut Feed,
        opening: &Opening<'_>,
        found: Option<&Found<'_>>,
        out: &mut Parts,
    ) {
        let answered;
        let found = match (found, opening.known) {
            (Some(found), _) => found,
            (None, Known::Answered(body)) => {
                answered = Found::borrowed(body, 0);
                &answered
            }
            (None, Known::Nothing) => return,
            (None, Known::Unread | Known::Looked(_)) => {
                let is_told = self.routes.get(feed.route).rules.on_delete != OnDelete::KeepWaiting;
                if is_told && feed.has != Condition::None {
                    feed.has = Condition::None;
                    events::deleted(out);
                    self.metrics.stream_events.increment();
                }
                return;
            }
        };
        let cursor = found.content.cursor;
        if !opening.ask.has(cursor) {
            feed.has = Condition::Since(cursor);
            events::value(
                out,
                cursor,
                self.delivery.encodings.lines(opening.name, found),
            );
            self.metrics.stream_events.increment();
        }
    }

    /// Begins a stream, and holds its exchange.
    pub(super) fn stream(
        &mut self,
        context: &mut Context,
        opening: &Opening<'_>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        match self.open_feed(context, opening, to) {
            Some(feed) => self.hold_feed(context, feed.into(), to.exchange()),
            None => Outcome::Answered,
        }
    }

    /// Holds the exchange of a stream until the client is to hear of it again.
    pub(super) fn hold_feed(
        &mut self,
        context: &mut Context,
        stream: StreamId,
        mut exchange: Exchange<'_, '_>,
    ) -> Outcome {
        let timeout = self.next_heartbeat(context, stream);
        exchange.hold(context, stream.to_bits(), timeout)
    }

    /// When a quiet stream is next heard of: at random around the interval, and not after its end.
    fn next_heartbeat(&mut self, context: &Context, stream: StreamId) -> Duration {
        let interval = self
            .spread
            .around(self.config.limits.stream_heartbeat, 3, 5);
        let ends = self.waiters.feeds.any_feed(stream).map(|feed| feed.ends);
        ends.map_or(interval, |ends| interval.min(time_to(context, ends)))
    }

    /// When a stream that begins now is to end: by its age, and after `most`.
    pub(super) fn end_of_life(&mut self, context: &Context, most: Duration) -> Tick {
        let lifetime = self
            .spread
            .around(self.config.limits.stream_lifetime, 3, 4)
            .min(most);
        context.tick().plus(ticks_ceil(lifetime))
    }

    /// The effect of the current content of its key on a feed.
    pub(super) fn news(&self, feed: &Feed, current: Option<Content>) -> News {
        let rules = self.routes.get(feed.route).rules;
        match (current, rules.on_delete) {
            (Some(content), _) if feed.has(content.cursor) => News::None,
            (Some(_), _) => News::Value,
            // What was never in the cache cannot have gone from there.
            (None, _) if !feed.is_cached || feed.is_asking => News::None,
            (None, OnDelete::KeepWaiting) => News::None,
            // The application is asked for one value at a time.
            (None, OnDelete::Origin)
                if rules.has_upstream
                    && feed.set.is_none()
                    && matches!(feed.sink, Sink::Events(_)) =>
            {
                News::Ends
            }
            // A value that came and went before its client was told of it is no news.
            (None, _) if feed.has == Condition::None => News::None,
            (None, OnDelete::Origin | OnDelete::NotFound) => News::Deleted,
        }
    }

    /// Tells a stream of events what its key has, if that is news to it.
    pub(super) fn tell_feed(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        budget: &mut Budget,
        token: FeedId,
        telling: &mut Telling<'_, '_>,
    ) {
        let found = telling.found;
        let current = found.map(|found| found.content);
        let Some(feed) = self.waiters.feeds.get(token) else {
            return;
        };
        let (Sink::Events(exchange), set) = (feed.sink, feed.set) else {
            return;
        };
        match self.news(feed, current) {
            News::None => return,
            News::Ends => {
                return self.end_feed(context, http, token.into(), RETRY_SOON, StreamEnd::Gone);
            }
            News::Value | News::Deleted => {}
        }
        if !http.is_flushed(exchange) {
            // It is looked at again when its client has taken what it was sent.
            return self.metrics.stream_postponed.increment();
        }
        if let Some(set) = set {
            let bytes = self.tell_member(context, http, set, token, found);
            return budget.written(bytes);
        }
        let event = match telling.event.take() {
            Some(event) => event,
            None => SharedEvent::new(match found {
                Some(found) => self.event_of(token, found),
                None => deletion(),
            }),
        };
        budget.written(event.bytes());
        let written = http.with_reply(context, exchange, |reply| event.write(reply));
        telling.event = Some(event);
        if written == Some(Ok(())) {
            self.was_told(token, current);
        }
    }

    /// The event that tells a feed of a value of its key.
    fn event_of(&mut self, feed: FeedId, found: &Found<'_>) -> Vec<Bytes> {
        let name = self.waiters.name_of_feed(feed);
        let lines = self
            .delivery
            .encodings
            .lines(name.unwrap_or_default(), found);
        let mut event = Parts::default();
        events::value(&mut event, found.content.cursor, lines);
        event.finish()
    }

    /// The client of a stream has taken all that it was sent: what it has missed meanwhile is
    /// looked up, and only the newest of it is sent.
    pub(crate) fn feed_drained(
        &mut self,
        context: &mut Context,
        stream: StreamId,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let token = match stream.id() {
            FeedOrSet::Set(set) => return self.catch_up(context, set, reply),
            FeedOrSet::Feed(feed) => feed,
        };
        let Some(feed) = self.waiters.feeds.get(token) else {
            return Outcome::Close;
        };
        let key = feed.key;
        if self.lookups.reads_later(&mut self.waiters.keys, key) {
            return self.hold_feed(context, stream, Exchange::Now(reply));
        }
        if self.delivery.is_busy(Now::of(context)) {
            // It is read when there is room to tell of it.
            self.note_change(key, None, [token.into()]);
            return self.hold_feed(context, stream, Exchange::Now(reply));
        }
        let item = self.last_look(context, key);
        let found = item.as_ref().map(Found::stored);
        let current = found.as_ref().map(|found| found.content);
        let Some(feed) = self.waiters.feeds.get(token) else {
            return Outcome::Close;
        };
        let event = match (self.news(feed, current), &found) {
            (News::Value, Some(found)) => self.event_of(token, found),
            (News::Ends, _) => {
                return self.close_feed(stream, reply, RETRY_SOON, StreamEnd::Gone);
            }
            (News::Deleted, _) => deletion(),
            _ => return self.hold_feed(context, stream, Exchange::Now(reply)),
        };
        let bytes = event.iter().map(Bytes::len).sum();
        self.delivery.has_written(Now::of(context), bytes);
        if reply.write_parts(&event).is_ok() {
            self.was_told(token, current);
        }
        self.hold_feed(context, stream, Exchange::Now(reply))
    }

    /// The deadline of a stream has passed: it shows that it is alive, or ends if it is old.
    pub(crate) fn feed_expired(
        &mut self,
        context: &mut Context,
        stream: StreamId,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let Some(feed) = self.waiters.feeds.any_feed(stream) else {
            return Outcome::Close;
        };
        if feed.ends.is_due(context.tick()) {
            return self.close_feed(stream, reply, RETRY, StreamEnd::Lifetime);
        }
        if let FeedOrSet::Set(set) = stream.id() {
            return self.catch_up(context, set, reply);
        }
        let timeout = self.next_heartbeat(context, stream);
        sse::keep_alive(reply, stream.to_bits(), timeout)
    }

    /// Ends streams whose key has no record any more, so that no change could reach them.
    pub(super) fn end_lost_feeds(&mut self, context: &mut Context, http: &mut Http) {
        for stream in self.waiters.lost_streams() {
            self.end_feed(context, http, stream, RETRY, StreamEnd::Gone);
        }
    }

    /// The client of a stream has left.
    pub(crate) fn feed_abandoned(&mut self, stream: StreamId) {
        if self.waiters.remove_stream(stream).is_some() {
            self.metrics.streams_ended.increment(StreamEnd::Client);
        }
    }

    /// Ends a stream in the callback of its exchange.
    fn close_feed(
        &mut self,
        stream: StreamId,
        reply: &mut Reply<'_>,
        retry: std::ops::Range<u64>,
        why: StreamEnd,
    ) -> Outcome {
        self.waiters.remove_stream(stream);
        self.metrics.streams_ended.increment(why);
        events::end(reply, self.spread.within(retry));
        Outcome::Answered
    }

    /// Ends a stream outside of the callbacks of its exchange.
    fn end_feed(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        stream: StreamId,
        retry: std::ops::Range<u64>,
        why: StreamEnd,
    ) {
        let retry = self.spread.within(retry);
        let Some(sink) = self.waiters.remove_stream(stream) else {
            return;
        };
        self.metrics.streams_ended.increment(why);
        match sink {
            Sink::Events(exchange) => {
                http.with_reply(context, exchange, |reply| events::end(reply, retry));
            }
            Sink::Socket(socket) => self.delivery.farewells.push(socket),
            Sink::Leaving(_) => {}
        }
    }

    /// The server ends: at most `count` streams end now, with a time to come back at.
    pub(super) fn drain_feeds(&mut self, context: &mut Context, http: &mut Http, count: usize) {
        // A stream that is about to be told of a change is told before it ends.
        let quiet = self
            .waiters
            .feeds
            .tokens()
            .map(|feed| self.waiters.feeds.stream_of(feed))
            .filter(|stream| self.is_quiet(*stream));
        let streams: Vec<StreamId> = quiet.take(count).collect();
        for stream in streams {
            self.end_feed(context, http, stream, RETRY, StreamEnd::Drain);
        }
        let sets: Vec<SetId> = self.waiters.feeds.empty_sets().take(count).collect();
        for set in sets {
            self.end_feed(context, http, set.into(), RETRY, StreamEnd::Drain);
        }
    }

    /// Returns true if a stream is about to be told of no change of its keys.
    fn is_quiet(&self, stream: StreamId) -> bool {
        self.delivery.changes.is_empty()
            || self
                .waiters
                .feeds
                .feeds_of(stream)
                .into_iter()
                .all(|token| {
                    let key = self.waiters.feeds.get(token).map(|feed| feed.key);
                    key.is_none_or(|key| !self.is_changing(key))
                })
    }
}

/// The event that tells that there is no value any more.
fn deletion() -> Vec<Bytes> {
    let mut event = Parts::default();
    events::deleted(&mut event);
    event.finish()
}

/// The time from now until `end`; zero if that has passed.
fn time_to(context: &Context, end: Tick) -> Duration {
    let now = context.tick();
    if end.is_due(now) {
        Duration::ZERO
    } else {
        TICK * end.ticks_since(now)
    }
}
