//! Keys without a value of streams, of WebSockets and of polls of several keys: the application is
//! asked for each of them as a poll of that key alone would ask, and shares the requests of such
//! polls.
//!
//! A feed is told the answer as if the cache had it, unless the cache has got a value meanwhile. A
//! failure of the application says nothing about the key, so no feed gets it.

use super::ask::{Admitted, Ask};
use super::common::target_of;
use super::fetch::{Fetching, Kept, Missed, head_limits};
use super::kept_request::KeptRequest;
use super::lookups::{Lookups, seconds};
use super::misses::{OriginRequest, SubFetch};
use crate::ids::{FeedId, KeyId, MultiPollId, StreamId, SubFetchAsker, SubFetchId};
use crate::responder::Responder;
use dwell_evloop::Context;
use dwell_proto::http1::FieldStorage;

/// Keys that the application is asked for beside polls, with the parts of the loop that they touch.
pub(super) struct SubFetches<'a> {
    pub(super) fetching: Fetching<'a>,
    pub(super) lookups: &'a mut Lookups,
}

impl SubFetches<'_> {
    /// Asks the application for the keys of a stream that have no value, once that is known.
    pub(super) fn seek_all(
        &mut self,
        context: &Context,
        stream: StreamId,
        admitted: Admitted<'_>,
        ask: &Ask,
        to: &Responder<'_, '_>,
    ) {
        if !self.fetching.config.has_upstream() {
            return;
        }
        let Admitted { route, request, .. } = admitted;
        let request = OriginRequest::of(request, ask, route, to);
        for feed in self.fetching.waiters.feeds.feeds_of(stream) {
            self.seek(context, feed, &request);
        }
    }

    /// As [`seek_all`](Self::seek_all), for the key of one feed.
    pub(super) fn seek(&mut self, context: &Context, token: FeedId, request: &OriginRequest) {
        let Some(key) = self.fetching.waiters.feeds.get(token).map(|feed| feed.key) else {
            return;
        };
        let keys = &self.fetching.waiters.keys;
        if self
            .lookups
            .stored_key(keys, key, seconds(context))
            .is_some()
        {
            return;
        }
        let label = self
            .fetching
            .waiters
            .feeds
            .label_of(token)
            .map(str::to_owned);
        let Some(sub_fetch) = self.sub_fetch_of(request, label.as_deref(), token.into(), 0) else {
            return;
        };
        let is_under_way = if self.lookups.is_immediate() {
            let name = self
                .fetching
                .waiters
                .keys
                .get(key)
                .map(|key| key.name.clone());
            name.is_some_and(|name| self.ask_for(context, &name, sub_fetch))
        } else {
            self.look_for(key, sub_fetch)
        };
        if is_under_way {
            self.fetching.waiters.feeds.begin_asking(token);
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
        let head = kept.parse(&mut storage, &head_limits(self.fetching.config))?;
        target_beside(head.path, head.query, label)
    }

    /// Puts a key among the lookups of this turn; it is asked for if memcached has no value.
    fn look_for(&mut self, key: KeyId, sub_fetch: SubFetch) -> bool {
        let lookup = self.lookups.ask(&mut self.fetching.waiters.keys, key);
        let kept = lookup.and_then(|lookup| Some((lookup, self.fetching.misses.keep(sub_fetch)?)));
        if let Some((lookup, member)) = kept {
            self.lookups.join(lookup, member.into());
        }
        kept.is_some()
    }

    /// memcached has answered for the key of a feed, or failed to, which is a miss.
    pub(super) fn looked_up(
        &mut self,
        context: &Context,
        key: KeyId,
        token: SubFetchId,
        is_found: bool,
    ) {
        let Some(sub_fetch) = self.fetching.misses.take_sub_fetch(token) else {
            return;
        };
        let asker = sub_fetch.asker;
        let name = self
            .fetching
            .waiters
            .keys
            .get(key)
            .map(|key| key.name.clone());
        if !is_found && name.is_some_and(|name| self.ask_for(context, &name, sub_fetch)) {
            return;
        }
        if let SubFetchAsker::Feed(feed) = asker {
            self.fetching.waiters.feeds.end_asking(feed);
        }
    }

    /// Asks the application for a key, or joins the polls that ask; true if anything comes of it.
    pub(super) fn ask_for(&mut self, context: &Context, name: &[u8], sub_fetch: SubFetch) -> bool {
        if !self.fetching.misses.has_room() {
            return false;
        }
        let kept = Kept::of_key(&sub_fetch);
        let mut storage = FieldStorage::new();
        let Some(head) = kept.head(&mut storage, &head_limits(self.fetching.config)) else {
            return false;
        };
        let missed = Missed {
            name,
            ask: kept.ask,
            route: kept.route,
            head: &head,
            body: kept.request.body(),
            peer: &|| kept.peer,
            client: &|| kept.client.clone(),
        };
        let Some(fetch) = self.fetching.fetch_for(context.now(), &missed) else {
            return false;
        };
        if let Some(member) = self.fetching.misses.keep(sub_fetch) {
            self.fetching.misses.join(fetch, member.into());
        }
        true
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
