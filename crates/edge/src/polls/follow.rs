//! Streams that follow several keys.
//!
//! Each key has a feed of its own, and all of them share one answer. The id of an event is the
//! cursors of all the keys, so it says what the client has, whichever event it has seen last.

use super::answers::Found;
use super::ask::{Admitted, KEYS_MAX};
use super::budget::Now;
use super::cursors;
use super::events::{self, DELETE};
use super::feeds::{EventStreams, RETRY};
use super::parts::Parts;
use super::poll_error::PollError;
use super::tables::{Feed, Member, News, Sink};
use crate::config::{RouteId, Routes};
use crate::cursor::Condition;
use crate::ids::{FeedId, SetId};
use crate::metrics::PollOutcome;
use crate::query::parameters;
use crate::responder::{Exchange, Responder};
use dwell_engine::{Http, Outcome, Reply, sse};
use dwell_evloop::{Context, Id};
use std::time::Duration;

/// Bytes of events after which a stream waits for its client, and for its turn.
const BYTES_AT_ONCE: usize = 64 * 1024;
/// Time after which a stream that has not told all goes on, if its client has taken everything.
const SOON: Duration = Duration::from_millis(10);
const NO_SLASH: &str = "keys of this route are named behind a path that ends with a slash";

/// One of the keys that a request names, in its path or by `k`.
pub(super) struct NamedKey {
    /// Nothing where the path of the request names it.
    pub(super) label: Option<Box<str>>,
    pub(super) name: Box<[u8]>,
}

impl NamedKey {
    /// The keys of a request that names several; nothing where it names none.
    pub(super) fn of(routes: &Routes, admitted: Admitted<'_>) -> Result<Vec<Self>, PollError> {
        let (route, head) = (admitted.route, admitted.request.head);
        let inputs = admitted.key_inputs();
        let mut keys: Vec<Self> = Vec::new();
        let template = &routes.get(route).key;
        let query = head.query.filter(|_| template.takes_path());
        let mut scratch = Vec::new();
        for (_, label) in parameters(query.unwrap_or("")).filter(|(name, _)| name == "k") {
            if keys
                .iter()
                .any(|other| other.label.as_deref() == Some(&*label))
            {
                continue;
            }
            if keys.len() == KEYS_MAX {
                return Err(PollError::Keys);
            }
            let path = [head.path, &label].concat();
            let name = template.render(&path, head.query, &inputs, &mut scratch);
            let name = name.map_err(PollError::Key)?.into();
            // A path that makes a key is short.
            check_foreign_key(routes, route, head.path, &path)?;
            keys.push(Self {
                name,
                label: Some(label.into()),
            });
        }
        Ok(keys)
    }
}

/// Checks that a request for the path `asked` may name the key of `path`, which is below it.
///
/// Shape: a longer path can be that of another route, which lets other clients in. The application
/// knows what stands below a path with a slash at its end, and not what begins like any other.
fn check_foreign_key(
    routes: &Routes,
    route: RouteId,
    asked: &str,
    path: &str,
) -> Result<(), PollError> {
    stays_below(routes, route, path)?;
    if routes.get(route).access.auth.is_some() && !asked.ends_with('/') {
        return Err(PollError::ForeignKey(NO_SLASH));
    }
    Ok(())
}

/// Makes sure that a request for `path` would be one of this route, however it is read.
pub(super) fn stays_below(routes: &Routes, route: RouteId, path: &str) -> Result<(), PollError> {
    let stays = routes.stays_below(route, path);
    stays.map_err(PollError::ForeignKey)
}

impl EventStreams<'_> {
    /// Makes the records of a stream of several keys; returns its token.
    ///
    /// # Errors
    /// The outcome of a request that was answered instead.
    pub(super) fn open_set(
        &mut self,
        context: &mut Context,
        admitted: Admitted<'_>,
        keys: Vec<NamedKey>,
        to: &mut Responder<'_, '_>,
    ) -> Result<SetId, Outcome> {
        let Admitted { route, request, .. } = admitted;
        if keys.iter().any(|key| key.label.as_deref() == Some(DELETE)) {
            PollError::Label.refuse(context, to);
            return Err(Outcome::Answered);
        }
        if let Some(refusal) = self.waiters.no_records(keys.len()) {
            return Err(self.refusals.refuse(context, to, refusal));
        }
        let Some(set) = self.waiters.feeds.open_set(None) else {
            return Err(self.refusals.refuse_busy(context, to));
        };
        let left = admitted.time_left(context.unix_seconds());
        let lifetime = self.config.limits.stream_lifetime;
        let most = left.unwrap_or(Duration::MAX);
        let ends = self.spread.end_of_life(context.tick(), lifetime, most);
        let has = cursors::of_stream(request.head, keys.len());
        let now = Now::of(context).seconds;
        for (NamedKey { label, name }, has) in keys.into_iter().zip(has) {
            // There is room, as was made sure of before.
            self.waiters.follow_in_set(&name, label, now, |key| Feed {
                sink: Sink::Events(request.exchange),
                key,
                has,
                ends,
                set: Some(set),
                route,
                // What the client has was in a cache once.
                is_cached: has != Condition::None,
                is_asking: false,
            });
        }
        self.metrics.streams.increment();
        Ok(set)
    }

    /// Begins a stream of several keys with what there is of them.
    pub(super) fn begin_set(
        &mut self,
        context: &mut Context,
        set: SetId,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        let mut first = Parts::default();
        events::retry(first.text(), self.spread.within(RETRY));
        let is_all = self.gather(context, set, &mut first);
        to.ends(PollOutcome::Streamed);
        events::begin(to, context, false, first);
        self.hold_set(context, set, is_all, to.exchange())
    }

    fn hold_set(
        &mut self,
        context: &mut Context,
        set: SetId,
        is_all: bool,
        mut exchange: Exchange<'_, '_>,
    ) -> Outcome {
        if is_all {
            return self.hold(context, set.into(), exchange);
        }
        exchange.hold(context, set.to_bits(), SOON)
    }

    /// Writes what is new to a stream; if that is nothing and its heartbeat is due, this.
    pub(super) fn catch_up(
        &mut self,
        context: &mut Context,
        set: SetId,
        is_due: bool,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let mut news = Parts::default();
        let is_all = self.gather(context, set, &mut news);
        let written = if news.is_empty() && !(is_all && is_due) {
            Ok(())
        } else if news.is_empty() {
            sse::heartbeat(reply)
        } else {
            reply.write_parts(&news.finish())
        };
        if written.is_err() {
            return Outcome::Close;
        }
        self.hold_set(context, set, is_all, Exchange::Now(reply))
    }

    /// Appends what is new to a stream, as far as it may be sent at once; whether that was all.
    /// Values of memcached are sent when they come.
    fn gather(&mut self, context: &Context, set: SetId, out: &mut Parts) -> bool {
        for token in self.waiters.feeds.feeds_of(set.into()) {
            let Some(feed) = self.waiters.feeds.get(token) else {
                continue;
            };
            let key = feed.key;
            let answered = self.waiters.feeds.answered_value(token);
            if answered.is_none() && self.lookups.reads_for(&mut self.waiters.keys, key, token) {
                continue;
            }
            let now = Now::of(context);
            let item = self
                .lookups
                .stored_key(&self.waiters.keys, key, now.seconds);
            let is_stored = item.is_some();
            let from_origin = answered.is_some() && !is_stored;
            let found = item.as_ref().map(Found::stored).or(answered);
            let current = found.as_ref().map(|found| found.content);
            let is_news = feed.news(current, self.rules(feed)) != News::None;
            if is_news && out.len() > BYTES_AT_ONCE {
                return false;
            }
            if is_news && !from_origin && self.delivery.is_busy(now) {
                // It is read when there is room to tell of it.
                self.delivery
                    .note_change(self.lookups, key, None, [token.into()]);
                continue;
            }
            if is_news {
                let before = out.len();
                self.append_news(set, token, found.as_ref(), out);
                self.delivery.has_written(now, out.len() - before);
            }
            self.waiters.feeds.note_told(token, current, is_stored);
        }
        true
    }

    /// Tells a stream of several keys what is new of one of them; returns how many bytes it took.
    pub(super) fn tell_member(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        set: SetId,
        token: FeedId,
        found: Option<&Found<'_>>,
    ) -> usize {
        let Some(Sink::Events(exchange)) = self.waiters.feeds.get(token).map(|feed| feed.sink)
        else {
            return 0;
        };
        let mut event = Parts::default();
        self.append_news(set, token, found, &mut event);
        let bytes = event.len();
        let event = event.finish();
        http.with_reply(context, exchange, |reply| reply.write_parts(&event).is_ok());
        bytes
    }

    /// Tells a stream of several keys what the application has said of one of them.
    pub(super) fn tell_answered(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        set: SetId,
        token: FeedId,
    ) {
        let Some(feed) = self.waiters.feeds.get(token) else {
            return;
        };
        let now = Now::of(context).seconds;
        let item = self.lookups.stored_key(&self.waiters.keys, feed.key, now);
        let stored = item.as_ref().map(Found::stored);
        let is_stored = stored.is_some();
        let found = stored.or_else(|| self.waiters.feeds.answered_value(token));
        let current = found.as_ref().map(|found| found.content);
        if feed.news(current, self.rules(feed)) != News::None {
            self.tell_member(context, http, set, token, found.as_ref());
        }
        self.waiters.feeds.note_told(token, current, is_stored);
    }

    /// Appends the event of one key of a stream, which gets its changes from now on.
    fn append_news(
        &mut self,
        set: SetId,
        token: FeedId,
        found: Option<&Found<'_>>,
        out: &mut Parts,
    ) {
        let content = found.map(|found| found.content);
        self.waiters.feeds.was_told(token, content);
        let Some(set) = self.waiters.feeds.set(set) else {
            return;
        };
        let has = |member: &Member| self.waiters.feeds.get(member.feed).map(|feed| feed.has);
        let id = cursors::join(set.members.iter().filter_map(has));
        let Some(member) = set.members.iter().find(|member| member.feed == token) else {
            return;
        };
        let label = member.label.as_deref().unwrap_or_default();
        let name = self.waiters.name_of_feed(token);
        match found {
            Some(found) => {
                let lines = self
                    .delivery
                    .encodings
                    .lines(name.unwrap_or_default(), found);
                events::value_of(out, label, &id, lines);
            }
            None => events::deleted_of(out, label, &id),
        }
        self.metrics.stream_events.increment();
    }
}
