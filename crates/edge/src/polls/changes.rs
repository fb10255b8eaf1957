//! What WebSockets are told of their keys when a turn ends, as far as its budget goes.
//!
//! What is left goes on in the next turn, see [`budget`](super::budget), from where it was: the
//! members of a key are told in a circle, so that all of them have their turn of a key that changes
//! all the time.

use super::answers::Found;
use super::budget::Budget;
use super::decide::Content;
use super::feeds::News;
use super::tables::{Sink, kind};
use super::{Polls, Source, seconds};
use bytes::Bytes;
use dwell_engine::Http;
use dwell_engine::websocket::{Broadcast, CloseCode, MessageKind, WebSockets};
use dwell_evloop::{Context, Token};
use std::collections::HashMap;
use std::sync::Arc;

/// What a key has that WebSockets are to be told of when the turn ends.
pub(super) type Change = Option<(Content, Bytes)>;

/// Frames by the name that a key has in them.
type Frames = Vec<(Option<Box<str>>, Arc<Broadcast>)>;

/// The keys of which WebSockets are to be told.
#[derive(Debug, Default)]
pub(super) struct Changes {
    /// The newest of each, by the bits of its token.
    newest: HashMap<u64, Change>,
    rests: HashMap<u64, Rest>,
}

/// Where telling of a key goes on, and how many members are left.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Rest {
    at: usize,
    left: usize,
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.newest.is_empty()
    }

    fn contains(&self, key: Token) -> bool {
        self.newest.contains_key(&key.to_bits())
    }

    /// A key has changed: all of its members are to be told of it.
    fn note(&mut self, key: Token, change: Change) {
        self.newest.insert(key.to_bits(), change);
        if let Some(rest) = self.rests.get_mut(&key.to_bits()) {
            rest.left = usize::MAX;
        }
    }

    fn take(&mut self) -> HashMap<u64, Change> {
        std::mem::take(&mut self.newest)
    }

    /// The members of a key that are to be told, in their turn; the first of them is at the place
    /// that is returned.
    fn in_turn(&mut self, key: Token, mut members: Vec<Token>) -> (usize, Vec<Token>) {
        let rest = self.rests.remove(&key.to_bits());
        let Rest { at, left } = rest.unwrap_or(Rest {
            at: 0,
            left: usize::MAX,
        });
        let at = at % members.len().max(1);
        members.rotate_left(at);
        members.truncate(left);
        (at, members)
    }

    /// The next turn goes on with a key.
    fn put_off(&mut self, key: Token, change: Change, rest: Rest) {
        self.rests.insert(key.to_bits(), rest);
        self.newest.entry(key.to_bits()).or_insert(change);
    }

    fn forget(&mut self, key: Token) {
        self.rests.remove(&key.to_bits());
    }
}

impl Polls {
    /// Notes what a key has, for the WebSockets that are told of it when the turn ends.
    pub(super) fn note_change(&mut self, key: Token, found: Option<&Found<'_>>) {
        let change = match &self.source {
            // It is read anew then.
            Source::Embedded(..) => None,
            Source::Memcached => found.map(|found| (found.content, found.to_bytes())),
        };
        self.outbox.changes.note(key, change);
    }

    /// Whether WebSockets are going to be told of a key when the turn ends.
    pub(super) fn is_changing(&self, key: Token) -> bool {
        !self.outbox.changes.is_empty() && self.outbox.changes.contains(key)
    }

    /// The frame that tells a feed what its key has, made once for each name of the key.
    fn frame_among(
        &mut self,
        frames: &mut Frames,
        token: Token,
        found: Option<&Found<'_>>,
    ) -> Arc<Broadcast> {
        let label = self.label_of(token);
        let known = frames.iter().find(|(other, _)| other.as_deref() == label);
        if let Some((_, frame)) = known {
            return Arc::clone(frame);
        }
        let label = label.map(Box::from);
        let frame = self.frame_of(token, found);
        frames.push((label, Arc::clone(&frame)));
        frame
    }

    /// Tells WebSockets what the turn has brought of their keys; whoever has not taken what it was
    /// sent before is told when it has.
    pub(crate) fn tell_sockets(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        websockets: &mut WebSockets,
    ) {
        self.tell_answered(context, http, websockets);
        if !self.outbox.changes.is_empty() {
            let mut budget = Budget::of_turn();
            for (key, change) in self.outbox.changes.take() {
                let key = Token::from_bits(key);
                self.tell_of_change(context, websockets, &mut budget, key, &change);
            }
        }
        for (socket, frame) in std::mem::take(&mut self.outbox.replies) {
            // Whoever has left asks for no answer.
            let _ = websockets.send(context, socket, MessageKind::Text, frame.as_bytes());
        }
        for socket in std::mem::take(&mut self.outbox.farewells) {
            websockets.close(context, socket, CloseCode::GOING_AWAY, "shutting down");
        }
    }

    fn tell_of_change(
        &mut self,
        context: &mut Context,
        websockets: &mut WebSockets,
        budget: &mut Budget,
        key: Token,
        change: &Change,
    ) {
        let Some(record) = self.keys.get(key) else {
            return self.outbox.changes.forget(key);
        };
        let is_feed = |token: &Token| token.kind() == kind::FEED;
        let members = record.waiting.members().iter().copied();
        let feeds = members.filter(is_feed).collect();
        let (at, feeds) = self.outbox.changes.in_turn(key, feeds);
        // The turn may have brought a newer value, which others have been told already.
        let item = self.stored_at(seconds(context), &record.name);
        let found = match &self.source {
            Source::Embedded(..) => item.as_ref().map(Found::stored),
            Source::Memcached => change
                .as_ref()
                .map(|(content, value)| Found::shared(*content, value)),
        };
        let current = found.as_ref().map(|found| found.content);
        let mut frames = Vec::new();
        let count = feeds.len();
        for (told, token) in feeds.into_iter().enumerate() {
            if budget.is_spent() {
                let rest = Rest {
                    at: at + told,
                    left: count - told,
                };
                return self.outbox.changes.put_off(key, change.clone(), rest);
            }
            let Some(feed) = self.feeds.get(token) else {
                continue;
            };
            let Sink::Socket(socket) = feed.sink else {
                continue;
            };
            if self.news(feed, current) == News::None {
                continue;
            }
            if feed.ends.is_due(context.tick()) {
                self.end_by_age(feed.set.token().unwrap_or(token), |code, why| {
                    websockets.close(context, socket, code, why);
                });
                continue;
            }
            let frame = self.frame_among(&mut frames, token, found.as_ref());
            let sent = websockets.with_socket(context, socket, |socket| {
                if socket.queued_bytes() > 0 {
                    return false;
                }
                if frame.is_to_compress(socket.negotiated().deflate) {
                    budget.compressed(frame.plain().len());
                }
                socket.send_shared(&frame).is_ok()
            });
            budget.written(frame.plain().len());
            budget.encoded(self.encodings.take_work());
            if sent == Some(true) {
                self.was_told(token, current);
            } else {
                self.metrics.stream_postponed.increment();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_their_turn_however_often_a_key_changes() {
        let key = Token::new(kind::KEY, 0, 1);
        let members = || {
            (0..5)
                .map(|index| Token::new(kind::FEED, 0, index))
                .collect()
        };
        let indices = |told: &[Token]| told.iter().map(|token| token.index()).collect::<Vec<_>>();
        let mut changes = Changes::default();
        let mut told = vec![0; 5];
        for _ in 0..5 {
            changes.note(key, None);
            assert_eq!(changes.take().len(), 1);
            let (at, feeds) = changes.in_turn(key, members());
            assert_eq!(feeds.len(), 5, "all are to be told of the newest");
            // Two of them, and the budget is spent.
            for index in indices(&feeds[..2]) {
                told[index as usize] += 1;
            }
            let rest = Rest {
                at: at + 2,
                left: 3,
            };
            changes.put_off(key, None, rest);
        }
        assert_eq!(told, [2; 5]);
        // No change any more: only those who are left.
        let (at, feeds) = changes.in_turn(key, members());
        assert_eq!((at, indices(&feeds)), (0, vec![0, 1, 2]));
        assert_eq!(changes.rests.len(), 0);
    }

    #[test]
    fn what_came_while_others_were_told_is_not_replaced_by_what_they_were() {
        let key = Token::new(kind::KEY, 0, 1);
        let content = super::super::answers::content(b"new", 0);
        let mut changes = Changes::default();
        changes.note(key, Some((content, Bytes::from_static(b"new"))));
        changes.put_off(key, None, Rest { at: 1, left: 1 });
        assert!(changes.take()[&key.to_bits()].is_some());
    }
}
