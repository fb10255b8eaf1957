//! Delivery: what is still to be told to clients, in the order of its turns.
//!
//! A change for which a turn has no room stands in a queue of its key, which the ends of this turn
//! and of the next ones go on with, see [`budget`](super::budget): a slice of each key in turn, so
//! that a key with very many does not keep the others from theirs. WebSockets always stand there,
//! as their frames go out when the turn ends. A client that stands in a queue waits for its key
//! like any other: whatever else ends its wait still does, and what it is told is what there is by
//! then.

use super::answers::{Alike, Found};
use super::budget::{Now, Work};
use super::decide::Content;
use super::encodings::Encodings;
use super::events::SharedEvent;
use super::lookups::Lookups;
use super::misses::FetchedValue;
use super::parts::Parts;
use super::waiters::Waiters;
use super::{events, frames};
use crate::ids::{FeedId, KeyId, MultiPollId, StreamId, WaiterId};
use bytes::Bytes;
use dwell_engine::Detached;
use dwell_engine::websocket::Broadcast;
use dwell_evloop::Token;
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// Answers, events and frames that go out when the turn ends, or one after it.
#[derive(Debug, Default)]
pub(super) struct Delivery {
    /// Polls and feeds that still have to get changes of their keys.
    pub(super) changes: Changes,
    /// Polls of several keys with a change; other changes of their keys in this turn go along.
    pub(super) ready: Vec<MultiPollId>,
    /// Feeds of whose keys the application has said something.
    pub(super) answered: Vec<FeedId>,
    /// Connections that have become WebSockets, by their streams.
    pub(super) detached: Vec<(StreamId, Detached)>,
    /// Frames for one WebSocket each.
    pub(super) replies: Vec<(Token, String)>,
    /// WebSockets that end with the server.
    pub(super) closing: Vec<Token>,
    /// Large values as streams and polls of several keys bring them.
    pub(super) encodings: Encodings,
    /// The rest of what this turn may spend on them.
    pub(super) work: Work,
}

impl Delivery {
    /// Gives the next turn room for work again.
    pub(super) fn begin_turn(&mut self) {
        self.work = Work::of_turn();
    }

    /// True if no more work that can be put off is to be begun in this turn; what was encoded
    /// since counts.
    pub(super) fn is_busy(&mut self, now: Now) -> bool {
        let work = self.work.left(now);
        work.encoded(self.encodings.take_work());
        work.is_spent()
    }

    /// Counts bytes that were made for a client, on their way or not.
    pub(super) fn has_written(&mut self, now: Now, bytes: usize) {
        self.work.left(now).written(bytes);
    }

    /// Has `due` get a change when the turn ends, or one after it.
    pub(super) fn note_change(
        &mut self,
        lookups: &Lookups,
        key: KeyId,
        found: Option<&Found<'_>>,
        due: impl IntoIterator<Item = WaiterId>,
    ) {
        // What can be read at once is read again then.
        let kept = found.filter(|_| !lookups.is_immediate());
        let change = kept.map(|found| (found.content, found.to_bytes()));
        self.changes.note(key, change, due);
    }

    /// Has a feed told when the turn ends what the application has said of its key.
    pub(super) fn note_answer(
        &mut self,
        lookups: &mut Lookups,
        waiters: &mut Waiters,
        token: FeedId,
        value: FetchedValue,
    ) {
        let feeds = &mut waiters.feeds;
        let Some(feed) = feeds.get(token).filter(|feed| feed.is_asking) else {
            // It is gone, or the cache has had a value since, which is newer.
            return;
        };
        let key = feed.key;
        match value {
            FetchedValue::Value(body, flags) => feeds.keep_answer(token, body, flags),
            FetchedValue::Nothing => {
                feeds.end_asking(token);
                if lookups.reads_later(&mut waiters.keys, key) {
                    return;
                }
            }
            FetchedValue::Unknown => return feeds.give_up_asking(token),
        }
        self.answered.push(token);
    }

    /// The event that tells a feed of a value of its key.
    pub(super) fn event(
        &mut self,
        waiters: &Waiters,
        feed: FeedId,
        found: &Found<'_>,
    ) -> Vec<Bytes> {
        let name = waiters.name_of_feed(feed).unwrap_or_default();
        let mut event = Parts::default();
        let lines = self.encodings.lines(name, found);
        events::value(&mut event, found.content.cursor, lines);
        event.finish()
    }

    /// The frame that tells a feed what its key has.
    pub(super) fn frame(
        &mut self,
        waiters: &Waiters,
        feed: FeedId,
        found: Option<&Found<'_>>,
    ) -> Arc<Broadcast> {
        let label = waiters.feeds.label_of(feed);
        match found {
            Some(found) => {
                let name = waiters.name_of_feed(feed).unwrap_or_default();
                self.encodings.frame(name, label, found)
            }
            None => Arc::new(frames::of_members(label, frames::GONE)),
        }
    }

    /// True if the end of a turn has left something to be told.
    pub(super) fn has_left(&self) -> bool {
        !(self.ready.is_empty()
            && self.answered.is_empty()
            && self.changes.is_empty()
            && self.replies.is_empty()
            && self.closing.is_empty())
    }
}

/// Content of a key that is to be told, if it cannot be read again by then.
pub(super) type Change = Option<(Content, Bytes)>;

/// Keys with changes that are still to be told.
#[derive(Debug, Default)]
pub(super) struct Changes {
    queues: HashMap<KeyId, Queue>,
    /// The keys that have a queue, each once, in their turn.
    order: VecDeque<KeyId>,
}

/// Polls and feeds that still have to get the change of one key.
#[derive(Debug, Default)]
pub(super) struct Queue {
    /// The newest.
    pub(super) change: Change,
    pub(super) left: VecDeque<WaiterId>,
    /// The members of `left`, once others have joined a queue that was not empty.
    known: Option<HashSet<WaiterId>>,
}

impl Queue {
    /// Appends members, but for those that stand here already.
    fn join(&mut self, due: impl IntoIterator<Item = WaiterId>) {
        if self.left.is_empty() {
            self.known = None;
            return self.left.extend(due);
        }
        let left = &self.left;
        let known = self
            .known
            .get_or_insert_with(|| left.iter().copied().collect());
        self.left
            .extend(due.into_iter().filter(|token| known.insert(*token)));
    }

    /// Takes the one whose turn it is.
    pub(super) fn next(&mut self) -> Option<WaiterId> {
        let token = self.left.pop_front()?;
        if let Some(known) = &mut self.known {
            known.remove(&token);
        }
        Some(token)
    }
}

impl Changes {
    pub(super) fn is_empty(&self) -> bool {
        self.queues.is_empty()
    }

    pub(super) fn contains(&self, key: KeyId) -> bool {
        self.queues.contains_key(&key)
    }

    /// Notes members that are to get a change, behind those that are noted already.
    pub(super) fn note(
        &mut self,
        key: KeyId,
        change: Change,
        due: impl IntoIterator<Item = WaiterId>,
    ) {
        let queue = match self.queues.entry(key) {
            Entry::Occupied(queue) => queue.into_mut(),
            Entry::Vacant(place) => {
                self.order.push_back(key);
                place.insert(Queue::default())
            }
        };
        queue.change = change;
        queue.join(due);
    }

    /// Takes the key whose turn it is, with its queue.
    pub(super) fn take(&mut self) -> Option<(KeyId, Queue)> {
        let key = self.order.pop_front()?;
        Some((key, self.queues.remove(&key)?))
    }

    /// Keeps the rest of the queue of a key, for when its turn comes again.
    pub(super) fn put_back(&mut self, key: KeyId, queue: Queue) {
        if queue.left.is_empty() {
            return;
        }
        match self.queues.insert(key, queue) {
            None => self.order.push_back(key),
            Some(newer) => self.note(key, newer.change, newer.left),
        }
    }
}

/// The content of a key as it is told to many: event and fields are made once for all of them.
pub(super) struct Telling<'f, 'v> {
    pub(super) found: Option<&'f Found<'v>>,
    pub(super) event: Option<SharedEvent>,
    pub(super) alike: Option<Alike>,
}

impl<'f, 'v> Telling<'f, 'v> {
    pub(super) fn of(found: Option<&'f Found<'v>>) -> Self {
        Self {
            found,
            event: None,
            alike: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_evloop::Id;

    fn key(index: u32) -> KeyId {
        KeyId::nth(index)
    }

    fn members(indices: impl IntoIterator<Item = u32>) -> Vec<WaiterId> {
        let feed = |index| WaiterId::from(FeedId::nth(index));
        indices.into_iter().map(feed).collect()
    }

    /// Tells so many of the queue whose turn it is.
    fn tell(changes: &mut Changes, count: usize) -> (u32, Vec<u32>) {
        let (key, mut queue) = changes.take().unwrap();
        let next = std::iter::from_fn(|| queue.next());
        let told = next
            .take(count)
            .map(|waiter| waiter.token().index())
            .collect();
        changes.put_back(key, queue);
        (key.token().index(), told)
    }

    #[test]
    fn members_have_their_turn_however_often_a_key_changes() {
        let mut changes = Changes::default();
        let mut told = Vec::new();
        for _ in 0..5 {
            changes.note(key(1), None, members(0..5));
            told.extend(tell(&mut changes, 2).1);
        }
        assert_eq!(told, [0, 1, 2, 3, 4, 0, 1, 2, 3, 0]);
        // No change any more: only those who are left, and each of them once.
        let mut rest = Vec::new();
        while !changes.is_empty() {
            rest.extend(tell(&mut changes, 2).1);
        }
        assert_eq!(rest, [4, 1, 2]);
        assert!(changes.order.is_empty());
    }

    #[test]
    fn keys_have_their_turn_however_many_wait_for_one_of_them() {
        let mut changes = Changes::default();
        changes.note(key(1), None, members(0..5));
        changes.note(key(2), None, members(7..8));
        let told: Vec<_> = (0..4).map(|_| tell(&mut changes, 2)).collect();
        let expected = [(1, vec![0, 1]), (2, vec![7]), (1, vec![2, 3]), (1, vec![4])];
        assert_eq!(told, expected);
        assert!(changes.is_empty());
    }

    #[test]
    fn what_came_while_others_were_told_is_not_replaced_by_what_they_were() {
        let content = super::super::answers::content(b"new", 0);
        let mut changes = Changes::default();
        changes.note(key(1), None, members(0..3));
        let (_, queue) = changes.take().unwrap();
        let newest = Some((content, Bytes::from_static(b"new")));
        changes.note(key(1), newest, members(2..5));
        changes.put_back(key(1), queue);
        let (_, queue) = changes.take().unwrap();
        assert!(queue.change.is_some());
        assert_eq!(queue.left, members(0..5));
        assert!(changes.is_empty() && changes.order.is_empty());
    }

    #[test]
    fn noting_a_member_twice_queues_it_once() {
        let mut changes = Changes::default();
        for member in members(0..10_000) {
            changes.note(key(1), None, [member]);
            changes.note(key(1), None, [member]);
        }
        let queue = &changes.queues[&key(1)];
        assert_eq!(queue.known.as_ref().map(HashSet::len), Some(10_000));
        assert_eq!(tell(&mut changes, usize::MAX).1.len(), 10_000);
        assert!(changes.is_empty());
    }

    #[test]
    fn a_newcomer_to_a_queue_is_compared_with_no_other_member() {
        let mut changes = Changes::default();
        changes.note(key(1), None, members(0..2));
        changes.note(key(1), None, members(2..3));
        // Members that the set alone has are taken for queued, and those that only the queue has
        // are not: neither is the queue searched, nor the set made again.
        let known = changes.queues.get_mut(&key(1)).unwrap().known.as_mut();
        let known = known.unwrap();
        known.extend(members(7..8));
        assert!(known.remove(&members(0..1)[0]));
        changes.note(key(1), None, members([7, 0]));
        assert_eq!(tell(&mut changes, usize::MAX).1, [0, 1, 2, 0]);
    }
}
