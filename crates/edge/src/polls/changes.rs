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
use super::decide::{Decision, Stage, decide};
use super::delivery::Queue;
use super::feeds::{News, Telling};
use super::frames;
use super::tables::Sink;
use super::waiters::SHUTTING_DOWN;
use crate::ids::{FeedId, KeyId, PollId, Waiter, WaiterId};
use dwell_engine::Http;
use dwell_engine::websocket::{Broadcast, CloseCode, MessageKind, WebSockets};
use dwell_evloop::{Context, Token};
use std::sync::Arc;

/// Frames by the name that a key has in them.
pub(super) type Frames = Vec<(Option<Box<str>>, Arc<Broadcast>)>;

impl Polls {
    /// Has `due` told of a change when the turn ends, or one after it.
    pub(super) fn note_change(
        &mut self,
        key: KeyId,
        found: Option<&Found<'_>>,
        due: impl IntoIterator<Item = WaiterId>,
    ) {
        // What can be read at once is read again then.
        let kept = found.filter(|_| !self.lookups.is_immediate());
        let change = kept.map(|found| (found.content, found.to_bytes()));
        self.delivery.changes.note(key, change, due);
    }

    /// Returns true while polls or feeds are still to be told of a key.
    pub(super) fn is_changing(&self, key: KeyId) -> bool {
        !self.delivery.changes.is_empty() && self.delivery.changes.contains(key)
    }

    /// Tells polls and streams of events what their key has, one after the other while there is
    /// budget; returns how many were told or need not be.
    pub(super) fn tell_some(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        budget: &mut Budget,
        key: KeyId,
        due: &[WaiterId],
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
        key: KeyId,
        waiter: WaiterId,
        telling: &mut Telling<'_, '_>,
    ) {
        match waiter.id() {
            Waiter::Feed(feed) => {
                self.tell_feed(context, http, budget, feed, telling);
                budget.encoded(self.delivery.encodings.take_work());
            }
            Waiter::Poll(poll) => self.wake(context, http, budget, key, poll, telling.found),
            // It is answered when it is ripe.
            Waiter::MultiPoll(_) => {}
        }
    }

    /// Answers one poll that is held for a key, if what there is now is news to it.
    fn wake(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        budget: &mut Budget,
        key: KeyId,
        token: PollId,
        found: Option<&Found<'_>>,
    ) {
        let poll = self.waiters.polls().get(token);
        let Some(poll) = poll.filter(|poll| poll.waits_for() == Some(key)) else {
            return;
        };
        let current = found.map(|found| found.content);
        let decision = decide(
            &poll.ask,
            current,
            Stage::Held,
            self.routes.get(poll.route).rules,
        );
        if decision == Decision::Wait {
            return;
        }
        // The key is still needed: the application may be asked for it next.
        let Some((poll, is_last)) = self.waiters.take(token) else {
            return;
        };
        self.answer_woken(context, http, key, poll, decision, found);
        if is_last {
            self.waiters.end_watch(key);
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
            && let Some((key, mut queue)) = self.delivery.changes.take()
        {
            let mut slice = budget.slice();
            self.tell_slice(context, http, websockets, &mut slice, key, &mut queue);
            budget.used(&slice);
            self.delivery.changes.put_back(key, queue);
        }
        for (socket, frame) in std::mem::take(&mut self.delivery.replies) {
            // A client that has left needs no answer.
            let _ = websockets.send(context, socket, MessageKind::Text, frame.as_bytes());
        }
        for socket in std::mem::take(&mut self.delivery.farewells) {
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
        key: KeyId,
        queue: &mut Queue,
    ) {
        let Some(record) = self.waiters.keys.get(key) else {
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
            self.delivery.encodings.share(&record.name, found);
            budget.encoded(self.delivery.encodings.take_work());
        }
        let found = found.as_ref();
        let mut telling = Telling::of(found);
        let mut frames = Frames::new();
        while !budget.is_spent()
            && let Some(waiter) = queue.next()
        {
            if let Waiter::Feed(id) = waiter.id()
                && let Some(feed) = self.waiters.feeds.get(id)
                && let Sink::Socket(socket) = feed.sink
            {
                let feed = (id, socket);
                self.tell_of_change(context, websockets, budget, feed, found, &mut frames);
            } else {
                self.tell_one(context, http, budget, key, waiter, &mut telling);
            }
        }
    }

    /// Tells a WebSocket what the key of one of its feeds has.
    fn tell_of_change(
        &mut self,
        context: &mut Context,
        websockets: &mut WebSockets,
        budget: &mut Budget,
        (token, socket): (FeedId, Token),
        found: Option<&Found<'_>>,
        frames: &mut Frames,
    ) {
        let current = found.map(|found| found.content);
        let Some(feed) = self.waiters.feeds.get(token) else {
            return;
        };
        if self.news(feed, current) == News::None {
            return;
        }
        if feed.ends.is_due(context.tick()) {
            self.end_by_age(self.waiters.feeds.stream_of(token), |code, why| {
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
        budget.encoded(self.delivery.encodings.take_work());
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
        token: FeedId,
        found: Option<&Found<'_>>,
    ) -> Arc<Broadcast> {
        let label = self.waiters.feeds.label_of(token);
        let known = frames.iter().find(|(other, _)| other.as_deref() == label);
        if let Some((_, frame)) = known {
            return Arc::clone(frame);
        }
        let label = label.map(Box::from);
        let frame = self.frame_of(token, found);
        frames.push((label, Arc::clone(&frame)));
        frame
    }

    /// The frame that tells a feed what its key has.
    pub(super) fn frame_of(&mut self, token: FeedId, found: Option<&Found<'_>>) -> Arc<Broadcast> {
        let label = self.waiters.feeds.label_of(token).map(str::to_owned);
        let name = self.waiters.name_of_feed(token);
        match found {
            Some(found) => {
                let name = name.unwrap_or_default();
                self.delivery.encodings.frame(name, label.as_deref(), found)
            }
            None => Arc::new(frames::of_members(label.as_deref(), frames::GONE)),
        }
    }
}
