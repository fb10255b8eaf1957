//! Keys without a value of streams, of WebSockets and of polls of several keys: the application is
//! asked for each of them as a poll of that key alone would ask, and shares the requests of such
//! polls.
//!
//! A feed is told the answer as if the cache had it, unless the cache has got a value meanwhile. A
//! failure of the application says nothing of the key, so nothing is told of it.

use super::Polls;
use super::ask::{Admitted, Ask};
use super::budget::Now;
use super::common::target_of;
use super::fetch::{Kept, Missed};
use super::follow::NamedKey;
use super::misses::{
    FetchedValue, OriginRequest, StaleValue, SubFetch, UpstreamResult, is_whole_value,
};
use super::sockets::NotOpened;
use super::tables::{KeptRequest, Sink};
use crate::ids::{FeedId, KeyId, MultiPollId, StreamId, SubFetchAsker, SubFetchId};
use crate::responder::Responder;
use dwell_engine::websocket::WebSockets;
use dwell_engine::{Http, Outcome};
use dwell_evloop::{Context, Id};
use dwell_proto::http1::FieldStorage;
use std::time::Duration;

impl Polls {
    /// Begins a stream of several keys, or answers why not.
    pub(super) fn open_set(
        &mut self,
        context: &mut Context,
        admitted: Admitted<'_>,
        ask: &Ask,
        keys: Vec<NamedKey>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        let opened = self.event_streams().open_set(context, admitted, keys, to);
        let set = match opened {
            Ok(set) => set,
            Err(outcome) => return outcome,
        };
        self.seek_all(context, set.into(), admitted, ask, to);
        self.event_streams().begin_set(context, set, to)
    }

    /// Makes a WebSocket of the connection of a poll, or answers why not.
    pub(super) fn open_socket(
        &mut self,
        context: &mut Context,
        admitted: Admitted<'_>,
        ask: &Ask,
        keys: Vec<NamedKey>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        let left = admitted.time_left(context.unix_seconds());
        let (lifetime, most) = (
            self.config.limits.stream_lifetime,
            left.unwrap_or(Duration::MAX),
        );
        let ends = self.spread.end_of_life(context.tick(), lifetime, most);
        let mut sockets = self.socket_streams();
        match sockets.open(context, admitted, ask, keys, ends, to) {
            Ok(stream) => {
                self.seek_all(context, stream, admitted, ask, to);
                let tag = stream.to_bits();
                Outcome::Detach { tag }
            }
            Err(NotOpened::NoRoom(reason)) => self.spread.refused(context, to, reason),
            Err(NotOpened::Answered) => Outcome::Answered,
        }
    }

    /// Asks the application for the keys of a stream that have no value, once that is known.
    fn seek_all(
        &mut self,
        context: &Context,
        stream: StreamId,
        admitted: Admitted<'_>,
        ask: &Ask,
        to: &Responder<'_, '_>,
    ) {
        if !self.config.has_upstream() {
            return;
        }
        let Admitted { route, request, .. } = admitted;
        let request = OriginRequest::of(request, ask, route, to.peer_address());
        for feed in self.waiters.feeds.feeds_of(stream) {
            self.seek(context, feed, &request);
        }
    }

    /// As [`seek_all`](Self::seek_all), for the key of one feed.
    pub(super) fn seek(&mut self, context: &Context, token: FeedId, request: &OriginRequest) {
        let Some(key) = self.waiters.feeds.get(token).map(|feed| feed.key) else {
            return;
        };
        if self.last_look(context, key).is_some() {
            return;
        }
        let label = self.waiters.feeds.label_of(token).map(str::to_owned);
        let Some(sub_fetch) = self.sub_fetch_of(request, label.as_deref(), token.into(), 0) else {
            return;
        };
        let is_under_way = if self.lookups.is_immediate() {
            let name = self.waiters.keys.get(key).map(|key| key.name.clone());
            name.is_some_and(|name| self.ask_for(context, &name, sub_fetch))
        } else {
            self.look_for(key, sub_fetch)
        };
        if is_under_way {
            self.waiters.feeds.begin_asking(token);
        }
    }

    /// Asks the application for one of the keys of a poll; whether anything comes of it.
    pub(super) fn seek_for(
        &mut self,
        context: &Context,
        request: &OriginRequest,
        label: &str,
        name: &[u8],
        (poll, place): (MultiPollId, usize),
    ) -> bool {
        let sub_fetch = self.sub_fetch_of(request, Some(label), poll.into(), place);
        sub_fetch.is_some_and(|sub_fetch| self.ask_for(context, name, sub_fetch))
    }

    /// The record of a key; `None` where no poll of that key alone stands for it.
    fn sub_fetch_of(
        &self,
        request: &OriginRequest,
        label: Option<&str>,
        asker: SubFetchAsker,
        place: usize,
    ) -> Option<SubFetch> {
        let target = match label {
            Some(label) => Some(self.target_beside(&request.kept, label)?),
            None => None,
        };
        Some(SubFetch {
            request: request.clone(),
            target,
            asker,
            place,
        })
    }

    /// The target of the poll that a key named beside the path stands for.
    fn target_beside(&self, kept: &KeptRequest, label: &str) -> Option<Box<str>> {
        let mut storage = FieldStorage::new();
        let head = kept.parse(&mut storage, &self.head_limits())?;
        target_beside(head.path, head.query, label)
    }

    /// Puts a key among the lookups of this turn; it is asked for if memcached has no value.
    fn look_for(&mut self, key: KeyId, sub_fetch: SubFetch) -> bool {
        let lookup = self.lookups.ask(&mut self.waiters.keys, key);
        let kept = lookup.and_then(|lookup| Some((lookup, self.misses.keep(sub_fetch)?)));
        if let Some((lookup, member)) = kept {
            self.lookups.join(lookup, member.into());
        }
        kept.is_some()
    }

    /// memcached has answered for the key of a feed, or failed to, which is a miss.
    pub(super) fn missing_looked_up(
        &mut self,
        context: &Context,
        key: KeyId,
        token: SubFetchId,
        is_found: bool,
    ) {
        let Some(sub_fetch) = self.misses.take_sub_fetch(token) else {
            return;
        };
        let asker = sub_fetch.asker;
        let name = self.waiters.keys.get(key).map(|key| key.name.clone());
        if !is_found && name.is_some_and(|name| self.ask_for(context, &name, sub_fetch)) {
            return;
        }
        if let SubFetchAsker::Feed(feed) = asker {
            self.waiters.feeds.end_asking(feed);
        }
    }

    /// Asks the application for a key, or joins the polls that ask; true if anything comes of it.
    fn ask_for(&mut self, context: &Context, name: &[u8], sub_fetch: SubFetch) -> bool {
        if !self.misses.has_room() {
            return false;
        }
        let kept = Kept::of_key(&sub_fetch);
        let mut storage = FieldStorage::new();
        let Some(head) = kept.head(&mut storage, &self.head_limits()) else {
            return false;
        };
        let missed = Missed {
            name,
            ask: kept.ask,
            route: kept.route,
            head: &head,
            body: kept.request.body(),
            peer: &|| kept.peer,
        };
        let Some(fetch) = self.fetch_for(context.now(), &missed) else {
            return false;
        };
        if let Some(member) = self.misses.keep(sub_fetch) {
            self.misses.join(fetch, member.into());
        }
        true
    }

    /// Ends a key that was asked for by the result of a fetch that was shared.
    pub(super) fn key_fetched(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        sub_fetch: &SubFetch,
        result: &UpstreamResult,
        stale: Option<&StaleValue>,
    ) {
        let stale = stale.filter(|known| known.stands_for(&sub_fetch.request.ask));
        let value = match (result, stale) {
            (_, Some(known)) => FetchedValue::Value(known.body.clone(), known.flags),
            (Ok(answer), _) => match answer.status {
                200 if is_whole_value(answer) => FetchedValue::Value(answer.body.clone(), 0),
                200 | 500.. => FetchedValue::Unknown,
                _ => FetchedValue::Nothing,
            },
            (Err(_), _) => FetchedValue::Unknown,
        };
        self.end_sub_fetch(context, http, sub_fetch, value);
    }

    /// Asks once more for a key that another loop has asked for.
    pub(super) fn ask_again(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        name: &[u8],
        sub_fetch: SubFetch,
    ) {
        let (asker, place) = (sub_fetch.asker, sub_fetch.place);
        if !self.ask_for(context, name, sub_fetch) {
            self.tell_asker(context, http, (asker, place), FetchedValue::Unknown);
        }
    }

    /// Tells the feed or poll that asks for a key what the application has said of it.
    pub(super) fn end_sub_fetch(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        sub_fetch: &SubFetch,
        value: FetchedValue,
    ) {
        let asker = (sub_fetch.asker, sub_fetch.place);
        self.tell_asker(context, http, asker, value);
    }

    fn tell_asker(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        (asker, place): (SubFetchAsker, usize),
        value: FetchedValue,
    ) {
        match asker {
            SubFetchAsker::MultiPoll(poll) => {
                self.multi_poll_answered(context, http, poll, place, &value);
            }
            SubFetchAsker::Feed(feed) => self.feed_answered(feed, value),
        }
    }

    fn feed_answered(&mut self, token: FeedId, value: FetchedValue) {
        let feeds = &mut self.waiters.feeds;
        let Some(feed) = feeds.get(token).filter(|feed| feed.is_asking) else {
            // It is gone, or the cache has had a value since, which is newer.
            return;
        };
        let key = feed.key;
        match value {
            FetchedValue::Value(body, flags) => feeds.keep_answer(token, body, flags),
            FetchedValue::Nothing => {
                feeds.end_asking(token);
                if self.lookups.reads_later(&mut self.waiters.keys, key) {
                    return;
                }
            }
            FetchedValue::Unknown => return feeds.give_up_asking(token),
        }
        self.delivery.answered.push(token);
    }

    /// Tells feeds what the application has said of their keys.
    pub(super) fn tell_answered(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        websockets: &mut WebSockets,
    ) {
        for token in std::mem::take(&mut self.delivery.answered) {
            let Some((sink, set)) = self
                .waiters
                .feeds
                .get(token)
                .map(|feed| (feed.sink, feed.set))
            else {
                continue;
            };
            match (sink, set) {
                (Sink::Socket(socket), _) => {
                    let now = Now::of(context);
                    let mut sockets = self.socket_streams();
                    websockets.with_socket(context, socket, |socket| {
                        sockets.tell(now, token, socket);
                    });
                }
                (Sink::Events(exchange), Some(set)) if http.is_flushed(exchange) => {
                    self.event_streams()
                        .tell_answered(context, http, set, token);
                }
                // It is told when its client has taken what was before.
                (Sink::Events(_) | Sink::Leaving(_), _) => {}
            }
        }
    }
}

/// The target of a poll of the path with `label` behind it; `None` for what no request line can
/// hold.
fn target_beside(path: &str, query: Option<&str>, label: &str) -> Option<Box<str>> {
    let path = [path, label].concat();
    let is_plain = |byte: u8| byte.is_ascii_graphic() && !matches!(byte, b'?' | b'#');
    let is_plain = path.bytes().all(is_plain);
    is_plain.then(|| target_of(&path, query).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_beside_the_path_is_a_poll_of_its_own() {
        let target = |query, label| target_beside("/poll/", query, label);
        assert_eq!(target(None, "a").as_deref(), Some("/poll/a"));
        let query = Some("k=a&room=1&since=x&wait=25&k=b&last_event_id=y&z&");
        assert_eq!(target(query, "b").as_deref(), Some("/poll/b?room=1&z"));
        for label in ["a?b", "a b", "a#", "\u{e9}"] {
            assert_eq!(target(None, label), None, "{label}");
        }
    }
}
