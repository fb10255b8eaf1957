//! Keys without a value of streams, of WebSockets and of polls of several keys: the application is
//! asked for each of them as a poll of that key alone would ask, and shares the requests of such
//! polls.
//!
//! A feed is told the answer as if the cache had it, unless the cache has got a value meanwhile. A
//! failure of the application says nothing of the key, so nothing is told of it.

use super::answers::Found;
use super::budget::Now;
use super::common::target_of;
use super::feeds::News;
use super::misses::{FetchedValue, OriginRequest, StaleValue, SubFetch, UpstreamResult};
use super::recall::{is_whole_value, stands_for};
use super::tables::{KeptRequest, Sink, kind};
use super::{FetchRequest, Polls};
use dwell_engine::Http;
use dwell_engine::websocket::WebSockets;
use dwell_evloop::{Context, Token};
use dwell_proto::http1::{FieldStorage, RequestHead, parse_request};
use std::net::SocketAddr;

impl Polls {
    /// Asks the application for the keys of a stream that have no value, once that is known.
    pub(super) fn seek_all(&mut self, context: &Context, stream: Token, behalf: &OriginRequest) {
        for feed in self.waiters.feeds.feeds_of(stream) {
            self.seek(context, feed, behalf);
        }
    }

    /// As [`seek_all`](Self::seek_all), for the key of one feed.
    pub(super) fn seek(&mut self, context: &Context, token: Token, behalf: &OriginRequest) {
        let Some(key) = self.waiters.feeds.get(token).map(|feed| feed.key) else {
            return;
        };
        if self.last_look(context, key).is_some() {
            return;
        }
        let label = self.waiters.feeds.label_of(token).map(str::to_owned);
        let Some(missing) = self.enter_missing(behalf, label.as_deref(), token, 0) else {
            return;
        };
        let is_under_way = if self.lookups.is_immediate() {
            let name = self.waiters.keys.get(key).map(|key| key.name.clone());
            name.is_some_and(|name| self.ask_for(context, &name, missing))
        } else {
            self.look_for(key, missing)
        };
        if !(is_under_way && self.waiters.feeds.begin_asking(token)) {
            self.misses.missing.remove(missing);
        }
    }

    /// Asks the application for one of the keys of a poll; whether anything comes of it.
    pub(super) fn seek_for(
        &mut self,
        context: &Context,
        behalf: &OriginRequest,
        label: &str,
        name: &[u8],
        (poll, place): (Token, usize),
    ) -> bool {
        let Some(missing) = self.enter_missing(behalf, Some(label), poll, place) else {
            return false;
        };
        let is_asked = self.ask_for(context, name, missing);
        if !is_asked {
            self.misses.missing.remove(missing);
        }
        is_asked
    }

    /// Makes the record of a key; `None` where no poll of that key alone stands for it.
    fn enter_missing(
        &mut self,
        behalf: &OriginRequest,
        label: Option<&str>,
        asker: Token,
        place: usize,
    ) -> Option<Token> {
        let target = match label {
            Some(label) => Some(self.target_beside(&behalf.request, label)?),
            None => None,
        };
        let missing = SubFetch {
            behalf: behalf.clone(),
            target,
            asker,
            place,
        };
        self.misses.missing.insert(missing).ok()
    }

    /// The target of the poll that a key named beside the path stands for.
    fn target_beside(&self, kept: &KeptRequest, label: &str) -> Option<Box<str>> {
        let mut storage = FieldStorage::new();
        let head = parse_request(kept.head(), &mut storage, &self.head_limits()).ok()?;
        target_beside(head.path, head.query, label)
    }

    /// Puts a key among the lookups of this turn; it is asked for if memcached has no value.
    fn look_for(&mut self, key: Token, missing: Token) -> bool {
        let lookup = self.lookups.ask(&mut self.waiters.keys, key);
        if let Some(lookup) = lookup {
            self.lookups.join(lookup, missing);
        }
        lookup.is_some()
    }

    /// memcached has answered for the key of a feed, or failed to, which is a miss.
    pub(super) fn missing_looked_up(
        &mut self,
        context: &Context,
        key: Token,
        token: Token,
        is_found: bool,
    ) {
        let name = self.waiters.keys.get(key).map(|key| key.name.clone());
        if !is_found && name.is_some_and(|name| self.ask_for(context, &name, token)) {
            return;
        }
        if let Some(missing) = self.misses.missing.remove(token) {
            self.waiters.feeds.end_asking(missing.asker);
        }
    }

    /// Asks the application for a key, or joins those who ask; whether anything comes of it.
    fn ask_for(&mut self, context: &Context, name: &[u8], token: Token) -> bool {
        let Some(missing) = self.misses.missing.get(token) else {
            return false;
        };
        let (ask, route) = (missing.behalf.ask, missing.behalf.route);
        let Some(forward) = self.encode_missing(token, self.is_shared(&ask, route)) else {
            return false;
        };
        let (shared, common) = (self.is_shared(&ask, route), forward.common);
        if shared && let Some(recall) = self.recall(context.now(), name, common.variant, route) {
            if recall.is_for_renewal() {
                self.revalidate(name, route, forward);
            }
            let fetch = self.open_recalled(recall, name, common, route);
            let fetch = fetch.and_then(|fetch| self.misses.fetches.get_mut(fetch));
            return fetch.is_some_and(|fetch| {
                fetch.polls.push(token);
                true
            });
        }
        let key = shared.then(|| self.waiters.keys.enter(name)).flatten();
        if let Some(fetch) = self.under_way(key, common.variant) {
            self.misses.join(fetch, token);
            return true;
        }
        let fetch = self.open_fetch(key, name, route, forward);
        match (fetch, key) {
            (Some(fetch), _) => self.misses.join(fetch, token),
            (None, Some(key)) => {
                self.waiters.keys.release(key);
            }
            (None, None) => {}
        }
        fetch.is_some()
    }

    /// The request on behalf of which a key is asked for, and the address that it came from.
    pub(super) fn asked_by(&self, token: Token) -> Option<(&KeptRequest, Option<SocketAddr>)> {
        let behalf = &self.misses.missing.get(token)?.behalf;
        Some((&behalf.request, behalf.peer))
    }

    /// The request that a poll of the key alone would be.
    pub(super) fn encode_missing(&self, token: Token, is_shared: bool) -> Option<FetchRequest> {
        let SubFetch { behalf, target, .. } = self.misses.missing.get(token)?;
        let kept = &behalf.request;
        let mut storage = FieldStorage::new();
        let head = parse_request(kept.head(), &mut storage, &self.head_limits()).ok()?;
        let head = match target {
            Some(target) => RequestHead {
                target,
                authority: None,
                path: target.split('?').next().unwrap_or_default(),
                query: target.split_once('?').map(|(_, query)| query),
                ..head
            },
            None => head,
        };
        let (ask, route) = (&behalf.ask, behalf.route);
        Some(self.encode(&head, kept.body(), behalf.peer, is_shared, ask, route))
    }

    /// A fetch that was shared has ended for a key: what of its verdict is for who asks for it.
    pub(super) fn missing_told(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        token: Token,
        verdict: &UpstreamResult,
        stale: Option<&StaleValue>,
    ) {
        let Some(missing) = self.misses.missing.get(token) else {
            return;
        };
        let stale = stale.filter(|known| stands_for(known, &missing.behalf.ask));
        let said = match (verdict, stale) {
            (_, Some(known)) => FetchedValue::Value(known.body.clone(), known.flags),
            (Ok(answer), _) => match answer.status {
                200 if is_whole_value(answer) => FetchedValue::Value(answer.body.clone(), 0),
                200 | 500.. => FetchedValue::Unknown,
                _ => FetchedValue::Nothing,
            },
            (Err(_), _) => FetchedValue::Unknown,
        };
        self.missing_ends(context, http, token, said);
    }

    /// Asks once more for a key that another loop has asked for.
    pub(super) fn missing_again(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        name: &[u8],
        token: Token,
    ) {
        if !self.ask_for(context, name, token) {
            self.missing_ends(context, http, token, FetchedValue::Unknown);
        }
    }

    /// Gives who asks for a key what the application has said of it.
    pub(super) fn missing_ends(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        token: Token,
        said: FetchedValue,
    ) {
        let Some(SubFetch { asker, place, .. }) = self.misses.missing.remove(token) else {
            return;
        };
        match asker.kind() {
            kind::SEVERAL => self.several_answered(context, http, asker, place, &said),
            _ => self.feed_answered(asker, said),
        }
    }

    fn feed_answered(&mut self, token: Token, said: FetchedValue) {
        let feeds = &mut self.waiters.feeds;
        let Some(feed) = feeds.get(token).filter(|feed| feed.is_asking) else {
            // It is gone, or the cache has had a value since, which is newer.
            return;
        };
        let key = feed.key;
        match said {
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
            match (sink, set.token()) {
                (Sink::Socket(socket), _) => {
                    let now = Now::of(context);
                    websockets.with_socket(context, socket, |socket| {
                        self.tell_socket(now, token, socket);
                    });
                }
                (Sink::Events(exchange), Some(set)) if http.is_flushed(exchange) => {
                    self.tell_stream(context, http, set, token);
                }
                // It is told when its client has taken what was before.
                (Sink::Events(_) | Sink::Leaving(_), _) => {}
            }
        }
    }

    /// Tells a stream of several keys what the application has said of one of them.
    fn tell_stream(&mut self, context: &mut Context, http: &mut Http, set: Token, token: Token) {
        let Some(feed) = self.waiters.feeds.get(token) else {
            return;
        };
        let item = self.last_look(context, feed.key);
        let stored = item.as_ref().map(Found::stored);
        let is_stored = stored.is_some();
        let found = stored.or_else(|| self.waiters.feeds.answered_value(token));
        let current = found.as_ref().map(|found| found.content);
        if self.news(feed, current) != News::None {
            self.tell_member(context, http, set, token, found.as_ref());
        }
        self.waiters.feeds.note_told(token, current, is_stored);
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
