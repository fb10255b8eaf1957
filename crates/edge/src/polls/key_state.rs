//! The record of a poll of several keys: the state of each, and the changes for the client.

use super::answers::Found;
use super::ask::Ask;
use super::cursors;
use super::json;
use super::kept_request::KeptRequest;
use super::misses::OriginRequest;
use super::parts::Parts;
use crate::access::CorsGrant;
use crate::config::{OnDelete, RouteId};
use crate::cursor::Condition;
use crate::ids::KeyId;
use crate::responder::{HeldRequest, RequestLine};
use bytes::Bytes;
use dwell_engine::ExchangeId;
use std::time::{Duration, Instant};

/// Bytes of values beyond which an answer leaves the rest to the next one.
const BYTES_AT_ONCE: usize = 256 * 1024;

/// One poll of several keys.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct MultiPoll {
    pub(super) exchange: ExchangeId,
    pub(super) arrived: Instant,
    /// The request, for the access log.
    pub(super) request: Option<Box<KeptRequest>>,
    pub(super) ask: Ask,
    /// In the order in which the client has named the keys.
    pub(super) keys: Vec<KeyState>,
    /// Lookups in progress for it.
    pub(super) asking: usize,
    pub(super) route: RouteId,
    /// The CORS grant of its page.
    pub(super) origin: Option<CorsGrant>,
    /// The client has said what it has by `If-None-Match`.
    pub(super) is_by_tag: bool,
    /// Inputs of a request to the application, until it has been sent.
    pub(super) unasked: Option<Box<Unasked>>,
    /// The application has been asked.
    pub(super) is_fetched: bool,
    /// A lookup has failed, or the application.
    pub(super) has_failed: bool,
    /// It waits for a change.
    pub(super) is_held: bool,
    /// It is among those that are answered when the turn ends.
    pub(super) is_ready: bool,
}

impl HeldRequest for MultiPoll {
    fn exchange(&self) -> ExchangeId {
        self.exchange
    }

    fn arrived(&self) -> Instant {
        self.arrived
    }

    fn was_held(&self) -> bool {
        self.is_held
    }

    fn line(&self) -> Option<RequestLine<'_>> {
        self.request.as_deref()?.line()
    }

    fn route(&self) -> RouteId {
        self.route
    }

    fn page(&self) -> Option<(RouteId, CorsGrant)> {
        Some((self.route, self.origin?))
    }
}

/// Inputs of requests to the application for the keys of a poll.
#[derive(Debug)]
pub(super) struct Unasked {
    pub(super) origin_request: OriginRequest,
    pub(super) names: Vec<Box<[u8]>>,
}

/// One key of such a poll.
#[derive(Debug)]
pub(super) struct KeyState {
    pub(super) label: Box<str>,
    /// The record of its key, once the poll needs one.
    pub(super) key: Option<KeyId>,
    /// The cursor that the client has sent.
    pub(super) said: Condition,
    /// The current cursor, as far as it is known.
    pub(super) current: Condition,
    /// The entry for the client.
    pub(super) news: Option<Entry>,
    pub(super) is_joined: bool,
    /// The application is asked for it, or has said what there is. That was never in the cache.
    pub(super) from_origin: bool,
}

/// The entry of one key in a response.
#[derive(Debug)]
pub(super) enum Entry {
    Gone,
    /// There is a value, of which these members of an object tell.
    Value(Bytes),
}

impl MultiPoll {
    /// Takes in what there is under one of the keys; whether that is a change to tell. `members`
    /// writes a value as members of an object.
    pub(super) fn note(
        &mut self,
        place: usize,
        found: Option<&Found<'_>>,
        on_delete: OnDelete,
        members: impl FnOnce(&Found<'_>) -> Bytes,
    ) -> bool {
        let others = self.keys.iter().enumerate();
        let bytes = others.filter(|(other, _)| *other != place);
        let bytes: usize = bytes.map(|(_, state)| state.news_bytes()).sum();
        let has_room = bytes < BYTES_AT_ONCE;
        let is_unasked = self.unasked.is_some();
        let Some(state) = self.keys.get_mut(place) else {
            return false;
        };
        if found.is_none() && state.from_origin {
            return false;
        }
        state.news = None;
        state.from_origin = false;
        state.current = match found {
            Some(found) => Condition::Since(found.content.cursor),
            // A poll that keeps waiting goes on as if nothing had happened.
            None if on_delete == OnDelete::KeepWaiting => return false,
            None => Condition::None,
        };
        let is_news = match (found, state.said) {
            // The application may have one.
            (None, _) if is_unasked => false,
            (_, said) if said == state.current => false,
            (_, Condition::Any) => false,
            _ => has_room,
        };
        if is_news {
            state.news = Some(found.map_or(Entry::Gone, |found| Entry::Value(members(found))));
        }
        is_news
    }

    /// Has it wait for a change; the application is not asked any more. Returns the rest of the
    /// time that it may be held.
    pub(super) fn begin_wait(&mut self, now: Instant) -> Duration {
        self.is_held = true;
        self.unasked = None;
        self.time_left(now)
    }

    /// The rest of the time that it may be held.
    pub(super) fn time_left(&self, now: Instant) -> Duration {
        self.ask.rest_of_wait(self.arrived, now)
    }

    /// Tells whether it waits neither for a change nor for an answer: it is answered when the turn
    /// ends.
    pub(super) fn is_stuck(&self) -> bool {
        !self.is_held && self.asking == 0
    }

    /// Returns true if the application has to be asked before the poll can be answered. A client
    /// that waits gets other changes at once, and the rest when it returns.
    pub(super) fn is_to_ask(&self) -> bool {
        let is_answered = self.waits() && self.has_news();
        self.unasked.is_some() && !is_answered && !self.missing().is_empty()
    }

    /// The places of the keys that have no value, as far as is known.
    pub(super) fn missing(&self) -> Vec<usize> {
        let all = self.keys.iter().enumerate();
        let is_missing =
            |state: &KeyState| state.current == Condition::None && state.said != Condition::Any;
        let missing = all.filter(|(_, state)| is_missing(state));
        missing.map(|(place, _)| place).collect()
    }

    /// Bytes of what it is to be told.
    pub(super) fn news_bytes(&self) -> usize {
        self.keys.iter().map(KeyState::news_bytes).sum()
    }

    pub(super) fn has_news(&self) -> bool {
        self.keys.iter().any(|state| state.news.is_some())
    }

    /// Returns true if it is held while there is no change.
    pub(super) fn waits(&self) -> bool {
        let is_any = |state: &KeyState| state.said == Condition::Any;
        self.ask.waits() && !self.keys.iter().any(is_any)
    }

    /// The cursors of what the client has when it has read the answer.
    pub(super) fn cursor(&self) -> String {
        let told = |state: &KeyState| match (&state.news, state.said) {
            (Some(_), _) | (None, Condition::Any) => state.current,
            (None, said) => said,
        };
        cursors::join(self.keys.iter().map(told))
    }

    /// The body of an answer.
    pub(super) fn json(&self, cursor: &str) -> Parts {
        let mut body = Parts::default();
        body.text().extend_from_slice(b"{\"cursor\":");
        json::string(body.text(), cursor);
        body.text().extend_from_slice(b",\"values\":{");
        let news = self.keys.iter().filter(|state| state.news.is_some());
        for (place, state) in news.enumerate() {
            if place > 0 {
                body.text().push(b',');
            }
            state.append_to(&mut body);
        }
        body.text().extend_from_slice(b"}}\n");
        body
    }

    /// Returns true if it does not wait for all of its keys: there was no room.
    pub(super) fn lacks_room(&self) -> bool {
        let has_no_wait = |state: &KeyState| state.key.is_some() && !state.is_joined;
        self.keys.iter().any(has_no_wait)
    }

    /// The keys whose values are other than what the client says it has, and that it does not get:
    /// there was no room.
    pub(super) fn left_out(&self) -> Vec<KeyId> {
        let is_left_out = |state: &&KeyState| {
            let is_value = matches!(state.current, Condition::Since(_));
            let is_other = state.current != state.said && state.said != Condition::Any;
            state.is_joined && state.news.is_none() && is_value && is_other
        };
        let left_out = self.keys.iter().filter(is_left_out);
        left_out.filter_map(|state| state.key).collect()
    }

    pub(super) fn places_of(&self, key: KeyId) -> Vec<usize> {
        let all = self.keys.iter().enumerate();
        let of_key = all.filter(|(_, state)| state.key == Some(key));
        #[cfg(feature = "sim")]
        let of_key = of_key
            .filter(|(place, _)| *place == 0 || !dwell_evloop::sim::Planted::FirstKeyAlone.is_in());
        of_key.map(|(place, _)| place).collect()
    }
}

impl KeyState {
    /// The key, if the poll is among those that wait for it.
    pub(super) fn joined(&self) -> Option<KeyId> {
        self.key.filter(|_| self.is_joined)
    }

    fn news_bytes(&self) -> usize {
        match &self.news {
            Some(Entry::Value(members)) => self.label.len() + members.len(),
            Some(Entry::Gone) => self.label.len(),
            None => 0,
        }
    }

    /// Appends what is new of the key to an answer.
    fn append_to(&self, body: &mut Parts) {
        json::string(body.text(), &self.label);
        body.text().push(b':');
        match &self.news {
            Some(Entry::Value(members)) => {
                body.text().push(b'{');
                body.share(members.clone());
                body.text().push(b'}');
            }
            Some(Entry::Gone) | None => body.text().extend_from_slice(b"null"),
        }
    }
}
