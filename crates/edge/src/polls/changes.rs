//! The delivery of changes to the clients that wait, as far as the budget of a turn goes.
//!
//! A change is told at once to as many as the turn has room for. The others stand in a queue of
//! their key, which the ends of this turn and of the next ones go on with, see
//! [`budget`](super::budget): a slice of each key in turn, so that a key with very many does not
//! keep the others from theirs. WebSockets always stand there, as their frames go out when the turn
//! ends. A client that stands in a queue waits for its key like any other: whatever else ends its
//! wait still does, and what it is told is what there is by then.

use super::Polls;
use super::answers::Found;
use super::budget::Budget;
use super::decide::{Content, Decision, Stage, decide};
use super::feeds::{News, Telling};
use super::hold::SHUTTING_DOWN;
use super::tables::{Sink, kind};
use bytes::Bytes;
use dwell_engine::Http;
use dwell_engine::websocket::{Broadcast, CloseCode, MessageKind, WebSockets};
use dwell_evloop::{Context, Token};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet, VecDeque};
use std::sync::Arc;

/// The content of a key that is to be told, if it cannot be read again by then.
pub(super) type Change = Option<(Content, Bytes)>;

/// Frames by the name that a key has in them.
pub(super) type Frames = Vec<(Option<Box<str>>, Arc<Broadcast>)>;

/// The keys with changes that are still to be told.
#[derive(Debug, Default)]
pub(super) struct Changes {
    queues: HashMap<u64, Queue>,
    /// The keys that have a queue, each once, in their turn.
    order: VecDeque<Token>,
}

/// The polls and feeds that are still to be told of one key.
#[derive(Debug, Default)]
struct Queue {
    /// The newest.
    change: Change,
    left: VecDeque<Token>,
    /// The members of `left`, once others have joined a queue that was not empty.
    known: Option<HashSet<Token>>,
}

impl Queue {
    /// These come behind the others, but for those who stand here already.
    fn join(&mut self, due: impl IntoIterator<Item = Token>) {
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
    fn next(&mut self) -> Option<Token> {
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

    fn contains(&self, key: Token) -> bool {
        self.queues.contains_key(&key.to_bits())
    }

    /// These are to be told of a change, behind those who are to be told already.
    fn note(&mut self, key: Token, change: Change, due: impl IntoIterator<Item = Token>) {
        let queue = match self.queues.entry(key.to_bits()) {
            Entry::Occupied(queue) => queue.into_mut(),
            Entry::Vacant(place) => {
                self.order.push_back(key);
                place.insert(Queue::default())
            }
        };
        queue.change = change;
        queue.join(due);
    }

    /// The key whose turn it is, and its queue, which it has no longer.
    fn take(&mut self) -> Option<(Token, Queue)> {
        let key = self.order.pop_front()?;
        Some((key, self.queues.remove(&key.to_bits())?))
    }

    /// The rest of the queue of a key, for when its turn comes again.
    fn put_back(&mut self, key: Token, queue: Queue) {
        if queue.left.is_empty() {
            return;
        }
        match self.queues.remove(&key.to_bits()) {
            None => self.order.push_back(key),
            Some(newer) => {
                self.queues.insert(key.to_bits(), queue);
                return self.note(key, newer.change, newer.left);
            }
        }
        self.queues.insert(key.to_bits(), queue);
    }
}

impl Polls {
    /// Has `due` told of a change when the turn ends, or one after it.
    pub(super) fn note_change(
        &mut self,
        key: Token,
        found: Option<&Found<'_>>,
        due: impl IntoIterator<Item = Token>,
    ) {
        // What can be read at once is read again then.
        let kept = found.filter(|_| !self.lookups.is_immediate());
        let change = kept.map(|found| (found.content, found.to_bytes()));
        self.outbox.changes.note(key, change, due);
    }

    /// Returns true while polls or feeds are still to be told of a key.
    pub(super) fn is_changing(&self, key: Token) -> bool {
        !self.outbox.changes.is_empty() && self.outbox.changes.contains(key)
    }

    /// Tells polls and streams of events what their key has, one after the other while there is
    /// budget; returns how many were told or need not be.
    pub(super) fn tell_some(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        budget: &mut Budget,
        key: Token,
        due: &[Token],
        found: Option<&Found<'_>>,
    ) -> usize {
        let mut telling = Telling::of(found);
        for (count, token) in due.iter().enumerate() {
            if budget.is_spent() {
                return count;
            }
            self.tell_one(context, http, budget, key, *token, &mut telling);
        }
        due.len()
    }

    /// Tells one poll or stream of events what its key has.
    fn tell_one(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        budget: &mut Budget,
        key: Token,
        token: Token,
        telling: &mut Telling<'_, '_>,
    ) {
        match token.kind() {
            kind::FEED => self.tell_feed(context, http, budget, token, telling),
            _ => self.wake(context, http, budget, key, token, telling.found),
        }
        budget.encoded(self.encodings.take_work());
    }

    /// Answers one poll that is held for a key, if what there is now is news to it.
    fn wake(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        budget: &mut Budget,
        key: Token,
        token: Token,
        found: Option<&Found<'_>>,
    ) {
        let poll = self.records.get(token);
        let Some(poll) = poll.filter(|poll| poll.waits_for() == Some(key)) else {
            return;
        };
        let current = found.map(|found| found.content);
        let decision = decide(&poll.ask, current, Stage::Held, self.rules(poll.route));
        if decision == Decision::Wait {
            return;
        }
        let Some(poll) = self.records.remove(token) else {
            return;
        };
        // The key is still needed: the application may be asked for it next.
        let is_last = self.leave_group(key);
        self.answer_woken(context, http, key, poll, decision, found);
        if is_last {
            self.stop_waiting_for(key);
        }
        budget.written(found.map_or(0, |found| found.bytes().len()));
    }

    /// Tells the queues of the changes of their keys, as far as the budget of this turn goes; a
    /// client that has not taken what it was sent before is told when it has.
    pub(crate) fn tell_changes(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        websockets: &mut WebSockets,
    ) {
        self.tell_answered(context, http, websockets);
        let mut budget = Budget::of_turn();
        while !budget.is_spent()
            && let Some((key, mut queue)) = self.outbox.changes.take()
        {
            let mut slice = budget.slice();
            self.tell_slice(context, http, websockets, &mut slice, key, &mut queue);
            budget.used(&slice);
            self.outbox.changes.put_back(key, queue);
        }
        for (socket, frame) in std::mem::take(&mut self.outbox.replies) {
            // A client that has left needs no answer.
            let _ = websockets.send(context, socket, MessageKind::Text, frame.as_bytes());
        }
        for socket in std::mem::take(&mut self.outbox.farewells) {
            websockets.close(context, socket, CloseCode::GOING_AWAY, SHUTTING_DOWN);
        }
    }

    /// Tells the next in the queue of a key.
    fn tell_slice(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        websockets: &mut WebSockets,
        budget: &mut Budget,
        key: Token,
        queue: &mut Queue,
    ) {
        let Some(record) = self.keys.get(key) else {
            // It is not waited for any more.
            return queue.left.clear();
        };
        // The turn may have brought a newer value, which others have been told already.
        let item = self.stored(context, &record.name);
        let kept = queue.change.as_ref();
        let mut found = if self.lookups.is_immediate() {
            item.as_ref().map(Found::stored)
        } else {
            kept.map(|(content, value)| Found::shared(*content, value))
        };
        if let Some(found) = &mut found {
            self.encodings.share(&record.name, found);
        }
        let found = found.as_ref();
        let mut telling = Telling::of(found);
        let mut frames = Frames::new();
        while !budget.is_spent()
            && let Some(token) = queue.next()
        {
            let sink = self.feeds.get(token).map(|feed| feed.sink);
            match (token.kind(), sink) {
                (kind::FEED, Some(Sink::Socket(socket))) => {
                    let feed = (token, socket);
                    self.tell_of_change(context, websockets, budget, feed, found, &mut frames);
                }
                _ => self.tell_one(context, http, budget, key, token, &mut telling),
            }
        }
    }

    /// Tells a WebSocket what the key of one of its feeds has.
    fn tell_of_change(
        &mut self,
        context: &mut Context,
        websockets: &mut WebSockets,
        budget: &mut Budget,
        (token, socket): (Token, Token),
        found: Option<&Found<'_>>,
        frames: &mut Frames,
    ) {
        let current = found.map(|found| found.content);
        let Some(feed) = self.feeds.get(token) else {
            return;
        };
        if self.news(feed, current) == News::None {
            return;
        }
        if feed.ends.is_due(context.tick()) {
            self.end_by_age(feed.set.token().unwrap_or(token), |code, why| {
                websockets.close(context, socket, code, why);
            });
            return;
        }
        let frame = self.frame_among(frames, token, found);
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
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(index: u32) -> Token {
        Token::new(kind::KEY, 0, index)
    }

    fn members(indices: impl IntoIterator<Item = u32>) -> Vec<Token> {
        let token = |index| Token::new(kind::FEED, 0, index);
        indices.into_iter().map(token).collect()
    }

    /// Tells so many of the queue whose turn it is.
    fn tell(changes: &mut Changes, count: usize) -> (u32, Vec<u32>) {
        let (key, mut queue) = changes.take().unwrap();
        let next = std::iter::from_fn(|| queue.next());
        let told = next.take(count).map(Token::index).collect();
        changes.put_back(key, queue);
        (key.index(), told)
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
    fn one_after_the_other_comes_to_a_long_queue() {
        let mut changes = Changes::default();
        let begun = std::time::Instant::now();
        for member in members(0..10_000) {
            changes.note(key(1), None, [member]);
            changes.note(key(1), None, [member]);
        }
        // With a look at all who stand there it took minutes.
        assert!(begun.elapsed().as_secs() < 10, "{:?}", begun.elapsed());
        assert_eq!(tell(&mut changes, usize::MAX).1.len(), 10_000);
        assert!(changes.is_empty());
    }
}
