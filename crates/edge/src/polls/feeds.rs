//! Streams of events: how a poll that asks for one becomes a [`Feed`], what it is told, and how it
//! ends.
//!
//! A feed takes nothing but its record while its key does not change: the connection's deadline is
//! its heartbeat, and a value that its client does not take is not kept but read again when the
//! client has taken what was before it. So a slow client misses values and never the newest.

use super::answers::Found;
use super::ask::Ask;
use super::budget::{Budget, Now};
use super::delivery::{Delivery, Telling};
use super::events::{self, SharedEvent};
use super::lookups::Lookups;
use super::parts::Parts;
use super::refusals::{Refusal, Refusals};
use super::spread::Spread;
use super::tables::{Feed, News, Poll, Sink};
use super::waiters::{Waiters, Watch};
use crate::config::{Config, OnDelete, RouteId, Routes, Rules};
use crate::cursor::Condition;
use crate::ids::{FeedId, FeedOrSet, SetId, StreamId};
use crate::metrics::{LoopMetrics, PollOutcome, StreamEnd};
use crate::responder::{Exchange, Responder};
use bytes::Bytes;
use dwell_engine::{ExchangeId, Http, Outcome, Reply, sse};
use dwell_evloop::{Context, Id};
use dwell_timers::{TICK, Tick};
use std::time::{Duration, Instant};

/// Milliseconds after which a client comes back when its stream has ended in the course of things.
pub(super) const RETRY: std::ops::Range<u64> = 1_000..5_000;
/// The same if the application is to be asked for the value that is gone.
const RETRY_SOON: std::ops::Range<u64> = 100..1_000;

/// Inputs of a new stream besides its key.
pub(super) struct Opening<'a> {
    pub(super) ask: Ask,
    pub(super) route: RouteId,
    pub(super) name: &'a [u8],
    pub(super) exchange: ExchangeId,
    pub(super) known: Known<'a>,
}

impl<'a> Opening<'a> {
    /// A stream for an exchange that was held as a poll, which has spent some of its time.
    pub(super) fn held(now: Instant, poll: &Poll, name: &'a [u8], known: Known<'a>) -> Self {
        let mut ask = poll.ask;
        if ask.wait_ms != u32::MAX {
            let gone = now.saturating_duration_since(poll.arrived);
            let gone = u32::try_from(gone.as_millis()).unwrap_or(u32::MAX);
            ask.wait_ms = ask.wait_ms.saturating_sub(gone);
        }
        Self {
            ask,
            route: poll.route,
            name,
            exchange: poll.exchange,
            known,
        }
    }
}

/// The value of the key when a stream begins, as far as it is known.
#[derive(Clone, Copy)]
pub(super) enum Known<'a> {
    /// The embedded store has to be asked.
    Unread,
    /// The result of a memcached lookup.
    Looked(Option<&'a Found<'a>>),
    /// Unknown: memcached has failed.
    Nothing,
    /// The cache has none, and the application has answered with this one.
    Answered(&'a [u8]),
}

/// Streams of events, with the parts of the loop that they touch: no request to the application is
/// among them, and nothing that decides on access.
pub(crate) struct EventStreams<'a> {
    pub(super) config: &'a Config,
    pub(super) routes: &'a Routes,
    pub(super) metrics: &'a LoopMetrics,
    pub(super) lookups: &'a mut Lookups,
    pub(super) waiters: &'a mut Waiters,
    pub(super) delivery: &'a mut Delivery,
    pub(super) spread: &'a mut Spread,
    pub(super) refusals: &'a mut Refusals,
}

impl EventStreams<'_> {
    /// Begins a stream, or answers why not; returns the token of its feed.
    fn open(
        &mut self,
        context: &mut Context,
        opening: &Opening<'_>,
        to: &mut Responder<'_, '_>,
    ) -> Option<FeedId> {
        if let Some(refusal) = self.waiters.no_records(1) {
            self.refusals.refuse(context, to, refusal);
            return None;
        }
        let Some(key) = self.waiters.keys.enter(opening.name) else {
            self.refusals.refuse(context, to, Refusal::Busy);
            return None;
        };
        let now = Now::of(context);
        let item = match self.waiters.watch(key, now.seconds) {
            Watch::Begun(item) => item,
            Watch::Running => self.lookups.stored(opening.name, now.seconds),
        };
        let stored = item.as_ref().map(Found::stored);
        let found = if let Known::Looked(found) = opening.known {
            found
        } else {
            #[cfg(feature = "sim")]
            let is_kept = dwell_evloop::sim::Planted::KeepAnswer.is_in();
            #[cfg(not(feature = "sim"))]
            let is_kept = false;
            // memcached may have had a value since, of which others were told meanwhile.
            if !is_kept {
                self.lookups.begin_uncompared(&mut self.waiters.keys, key);
            }
            stored.as_ref()
        };
        let lifetime = self.config.limits.stream_lifetime;
        let most = opening.ask.wait();
        let ends = self.spread.end_of_life(context.tick(), lifetime, most);
        let mut feed = Feed {
            sink: Sink::Events(opening.exchange),
            key,
            has: opening.ask.condition,
            // While the value is unknown, the one that its client has may yet turn out to be gone.
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
        let is_put_off = found.is_some() && self.delivery.is_busy(now);
        if !is_put_off {
            self.first_event(&mut feed, opening, found, &mut first);
        }
        self.delivery.has_written(now, first.len());
        // There is room, as was made sure of before the key was entered.
        let token = self.waiters.insert_feed(feed)?;
        if is_put_off {
            self.delivery
                .note_change(self.lookups, key, found, [token.into()]);
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
                let is_told = self.rules(feed).on_delete != OnDelete::KeepWaiting;
                if is_told && feed.has != Condition::None {
                    feed.has = Condition::None;
                    events::deleted(out);
                    self.metrics.stream_events.increment();
                }
                return;
            }
        };
        let cursor = found.content.cursor;
        if !opening.ask.condition.has(cursor) {
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
    pub(super) fn begin(
        &mut self,
        context: &mut Context,
        opening: &Opening<'_>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        match self.open(context, opening, to) {
            Some(feed) => self.hold(context, feed.into(), to.exchange()),
            None => Outcome::Answered,
        }
    }

    /// Holds the exchange of a stream until the client is to hear of it again.
    pub(super) fn hold(
        &mut self,
        context: &mut Context,
        stream: StreamId,
        mut exchange: Exchange<'_, '_>,
    ) -> Outcome {
        let timeout = self.next_heartbeat(context, stream);
        exchange.hold(context, stream.to_bits(), timeout)
    }

    /// Draws the time until the heartbeat of a quiet stream: around the interval, at most its end.
    fn next_heartbeat(&mut self, context: &Context, stream: StreamId) -> Duration {
        let heartbeat = self.config.limits.stream_heartbeat;
        let interval = self.spread.around(heartbeat, 3, 5);
        let ends = self.waiters.feeds.any_feed(stream).map(|feed| feed.ends);
        ends.map_or(interval, |ends| interval.min(time_to(context, ends)))
    }

    /// The rules of the route of a feed.
    pub(super) fn rules(&self, feed: &Feed) -> Rules {
        self.routes.get(feed.route).rules
    }

    /// Tells a stream of events what its key has, if that is a change to it.
    pub(super) fn tell(
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
        match feed.news(current, self.rules(feed)) {
            News::None => return,
            News::Ends => {
                return self.end(context, http, token.into(), RETRY_SOON, StreamEnd::Gone);
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
                Some(found) => self.delivery.event(self.waiters, token, found),
                None => events::deletion(),
            }),
        };
        budget.written(event.bytes());
        let written = http.with_reply(context, exchange, |reply| event.write(reply));
        telling.event = Some(event);
        if written == Some(Ok(())) {
            self.waiters.was_told(token, current);
        }
    }

    /// The client of a stream has taken all that it was sent: what it has missed meanwhile is
    /// looked up, and only the newest of it is sent.
    pub(crate) fn drained(
        &mut self,
        context: &mut Context,
        stream: StreamId,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let token = match stream.id() {
            FeedOrSet::Set(set) => return self.catch_up(context, set, false, reply),
            FeedOrSet::Feed(feed) => feed,
        };
        let Some(feed) = self.waiters.feeds.get(token) else {
            return Outcome::Close;
        };
        let key = feed.key;
        if self.lookups.reads_later(&mut self.waiters.keys, key) {
            return self.hold(context, stream, Exchange::Now(reply));
        }
        if self.delivery.is_busy(Now::of(context)) {
            // It is read when there is room to tell of it.
            self.delivery
                .note_change(self.lookups, key, None, [token.into()]);
            return self.hold(context, stream, Exchange::Now(reply));
        }
        let now = Now::of(context).seconds;
        let item = self.lookups.stored_key(&self.waiters.keys, key, now);
        let found = item.as_ref().map(Found::stored);
        let current = found.as_ref().map(|found| found.content);
        let Some(feed) = self.waiters.feeds.get(token) else {
            return Outcome::Close;
        };
        let event = match (feed.news(current, self.rules(feed)), &found) {
            (News::Value, Some(found)) => self.delivery.event(self.waiters, token, found),
            (News::Ends, _) => {
                return self.close(stream, reply, RETRY_SOON, StreamEnd::Gone);
            }
            (News::Deleted, _) => events::deletion(),
            _ => return self.hold(context, stream, Exchange::Now(reply)),
        };
        let bytes = event.iter().map(Bytes::len).sum();
        self.delivery.has_written(Now::of(context), bytes);
        if reply.write_parts(&event).is_ok() {
            self.waiters.was_told(token, current);
        }
        self.hold(context, stream, Exchange::Now(reply))
    }

    /// The deadline of a stream has passed: it shows that it is alive, or ends if it is old.
    pub(crate) fn expired(
        &mut self,
        context: &mut Context,
        stream: StreamId,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let Some(feed) = self.waiters.feeds.any_feed(stream) else {
            return Outcome::Close;
        };
        if feed.ends.is_due(context.tick()) {
            return self.close(stream, reply, RETRY, StreamEnd::Lifetime);
        }
        if let FeedOrSet::Set(set) = stream.id() {
            return self.catch_up(context, set, true, reply);
        }
        let timeout = self.next_heartbeat(context, stream);
        sse::keep_alive(reply, stream.to_bits(), timeout)
    }

    /// Ends streams whose key has no record any more, so that no change could reach them.
    pub(super) fn end_lost(&mut self, context: &mut Context, http: &mut Http) {
        for stream in self.waiters.lost_streams() {
            self.end(context, http, stream, RETRY, StreamEnd::Gone);
        }
    }

    /// The client of a stream has left.
    pub(crate) fn abandoned(&mut self, stream: StreamId) {
        if self.waiters.remove_stream(stream).is_some() {
            self.metrics.streams_ended.increment(StreamEnd::Client);
        }
    }

    /// Ends a stream in the callback of its exchange.
    fn close(
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
    fn end(
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
            Sink::Socket(socket) => self.delivery.closing.push(socket),
            Sink::Leaving(_) => {}
        }
    }

    /// The server ends: at most `count` streams end now, with a time to come back at.
    pub(super) fn drain(&mut self, context: &mut Context, http: &mut Http, count: usize) {
        // A stream that is about to be told of a change is told before it ends.
        let quiet = self
            .waiters
            .feeds
            .tokens()
            .map(|feed| self.waiters.feeds.stream_of(feed))
            .filter(|stream| self.is_quiet(*stream) && !self.is_leaving(*stream));
        let streams: Vec<StreamId> = quiet.take(count).collect();
        for stream in streams {
            self.end(context, http, stream, RETRY, StreamEnd::Drain);
        }
        let empty_sets = self.waiters.feeds.empty_sets();
        let there = empty_sets.filter(|set| !self.is_leaving((*set).into()));
        let sets: Vec<SetId> = there.take(count).collect();
        for set in sets {
            self.end(context, http, set.into(), RETRY, StreamEnd::Drain);
        }
    }

    /// Returns true if a stream is becoming a WebSocket in this turn: it is closed as one, later.
    fn is_leaving(&self, stream: StreamId) -> bool {
        let sink = self.waiters.feeds.sink_of(stream);
        matches!(sink, Some(Sink::Leaving(_)))
    }

    /// Returns true if a stream is about to get no change of its keys.
    fn is_quiet(&self, stream: StreamId) -> bool {
        let is_told = |token| {
            let feed = self.waiters.feeds.get(token);
            feed.is_none_or(|feed| !self.delivery.changes.contains(feed.key))
        };
        self.delivery.changes.is_empty()
            || self.waiters.feeds.feeds_of(stream).into_iter().all(is_told)
    }
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
