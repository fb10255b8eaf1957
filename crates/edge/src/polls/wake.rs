//! Ends of waits: a change, the end of their time, or the end of the server.
//!
//! A change is told at once to as many polls and streams as the turn has room for, and to the
//! others from the queue of its key, see [`delivery`](super::delivery).

use super::Polls;
use super::answers::{self, Alike, Found};
use super::budget::{Budget, Now};
use super::decide::{Decision, Stage, decide};
use super::delivery::{Queue, Telling};
use super::feeds::{Known, Opening};
use super::key_state::MultiPoll;
use super::lookups::seconds;
use super::owed::{OVERDUE, lost_polls};
use super::refusals::Refusal;
use super::sockets::Frames;
use super::tables::{News, Poll, Sink};
use crate::ids::{FeedId, KeyId, PollId, Waiter, WaiterId};
use crate::metrics::{PollOutcome, WakeOutcome};
use crate::responder::Responder;
use dwell_engine::Http;
use dwell_engine::websocket::{CloseCode, MessageKind, WebSockets};
use dwell_evloop::Context;
use dwell_store::Item;
use std::time::Instant;

impl Polls {
    /// The embedded store tells that `name` is no longer what this loop last read.
    pub(crate) fn changed(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        name: &[u8],
        at: Instant,
    ) {
        let outcome = match self.look_again(context, http, name) {
            None => WakeOutcome::Unwatched,
            Some(0) => WakeOutcome::Unchanged,
            Some(_) => {
                let latency = context.now().saturating_duration_since(at);
                self.metrics.wake_latency.observe(latency);
                WakeOutcome::Answered
            }
        };
        self.metrics.wakeups.increment(outcome);
    }

    /// Reads a key of the embedded store and answers those for whom its value has changed; returns
    /// how many, or `None` if nothing is in progress for the key any more.
    fn look_again(&mut self, context: &mut Context, http: &mut Http, name: &[u8]) -> Option<usize> {
        let now = seconds(context);
        let (key, item) = self.waiters.reread(name, now)?;
        let found = item.as_ref().map(Found::stored);
        if let Some(poll) = self.waiters.only_poll(key)
            && let Some(told) = self.settle_one(context, http, key, poll, found.as_ref())
        {
            return Some(told);
        }
        Some(self.settle(context, http, key, found))
    }

    /// As [`settle`](Self::settle), for a key that one poll alone waits for: nothing is shared.
    /// `None` where the turn has no room for it, or the value is large.
    fn settle_one(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: KeyId,
        poll: PollId,
        found: Option<&Found<'_>>,
    ) -> Option<usize> {
        let now = Now::of(context);
        if self.delivery.work.left(now).is_spent() || found.is_some_and(Found::is_large) {
            return None;
        }
        let told = self.wake(context, http, key, poll, found, None);
        if let Some(bytes) = told {
            self.delivery.work.left(now).written(bytes);
        }
        Some(usize::from(told.is_some()))
    }

    /// Checks again everything that is waited for: the bound on what a lost report of a change
    /// could cost (each wait registers before it reads, so none is expected to be lost).
    pub(crate) fn recheck(&mut self, context: &mut Context, http: &mut Http) {
        if !self.lookups.is_immediate() {
            return self.lookups.sweep(&self.waiters.keys);
        }
        for key in self.waiters.keys.waited_keys() {
            let Some(name) = self.waiters.keys.get(key).map(|key| key.name.clone()) else {
                continue;
            };
            self.look_again(context, http, &name);
        }
    }

    /// Compares all polls and feeds of `key` with its value now, and tells those for which it
    /// is a change, at once or, when the turn has no room for that, by and by; returns how many.
    pub(super) fn settle(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: KeyId,
        found: Option<Found<'_>>,
    ) -> usize {
        self.settle_but(context, http, key, found, &[])
    }

    /// As [`settle`](Self::settle), for all but these feeds.
    pub(super) fn settle_but(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: KeyId,
        mut found: Option<Found<'_>>,
        joined: &[FeedId],
    ) -> usize {
        let Some(mut group) = self.waiters.take_members(key) else {
            return 0;
        };
        let current = found.as_ref().map(|found| found.content);
        let (mut due, mut sockets, mut ready) = (Vec::new(), Vec::new(), 0);
        group.retain(|waiter| match waiter.id() {
            Waiter::Feed(feed) if joined.contains(&feed) => self.waiters.feeds.get(feed).is_some(),
            Waiter::Feed(feed) => {
                let rules = |route| self.routes.get(route).rules;
                let news = self.waiters.feeds.note_current(feed, current, rules);
                match news {
                    // One that leaves is told when it has become a WebSocket.
                    Some((News::None, _) | (_, Sink::Leaving(_))) | None => {}
                    Some((_, Sink::Events(_))) => due.push(waiter),
                    Some((_, Sink::Socket(_))) => sockets.push(waiter),
                }
                news.is_some()
            }
            Waiter::MultiPoll(poll) => {
                let mut polls = self.multi_polls();
                ready += usize::from(polls.note(poll, key, found.as_ref()));
                self.waiters.multi_poll(poll).is_some()
            }
            Waiter::Poll(poll) => {
                let poll = self.waiters.polls().get(poll);
                let is_news = |poll: &Poll| {
                    let rules = self.routes.get(poll.route).rules;
                    decide(&poll.ask, current, Stage::Held, rules) != Decision::Wait
                };
                if poll.is_some_and(is_news) {
                    due.push(waiter);
                }
                poll.is_some()
            }
        });
        if !self.waiters.put_members_back(key, group) {
            return ready;
        }
        let is_shared = found.as_ref().is_some_and(Found::is_large) && !due.is_empty();
        if let (Some(found), true) = (&mut found, is_shared)
            && let Some(record) = self.waiters.keys.get(key)
        {
            self.delivery.encodings.share(&record.name, found);
        }
        let (count, found) = (due.len() + sockets.len() + ready, found.as_ref());
        // Those who are to be told already come first.
        let told = if self.delivery.changes.contains(key) {
            0
        } else {
            let mut budget = std::mem::take(self.delivery.work.left(Now::of(context)));
            if is_shared {
                budget.encoded(self.delivery.encodings.take_work());
            }
            let told = self.tell_some(context, http, &mut budget, key, &due, found);
            *self.delivery.work.left(Now::of(context)) = budget;
            told
        };
        let left = due.drain(told..).chain(sockets);
        let mut left = left.peekable();
        if left.peek().is_some() || self.delivery.changes.contains(key) {
            self.delivery.note_change(&self.lookups, key, found, left);
        }
        count
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
        let mut told = 0;
        http.gather(context, due.len());
        for token in due {
            if budget.is_spent() {
                break;
            }
            self.tell_one(context, http, budget, key, *token, &mut telling);
            told += 1;
        }
        http.send_gathered(context);
        told
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
                let mut streams = self.event_streams();
                streams.tell(context, http, budget, feed, telling);
                budget.encoded(self.delivery.encodings.take_work());
            }
            Waiter::Poll(poll) => {
                let (found, alike) = (telling.found, &mut telling.alike);
                if let Some(bytes) = self.wake(context, http, key, poll, found, Some(alike)) {
                    budget.written(bytes);
                }
            }
            // It is answered when it is ready.
            Waiter::MultiPoll(_) => {}
        }
    }

    /// Answers one poll that is held for a key, with the fields of others that ask alike, if what
    /// there is now is a change to it; returns the length of that.
    fn wake(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: KeyId,
        token: PollId,
        found: Option<&Found<'_>>,
        alike: Option<&mut Option<Alike>>,
    ) -> Option<usize> {
        let current = found.map(|found| found.content);
        let routes = &self.routes;
        let is_due = |poll: &Poll| {
            let rules = routes.get(poll.route).rules;
            let decision = decide(&poll.ask, current, Stage::Held, rules);
            (decision != Decision::Wait).then_some(decision)
        };
        // The key is still needed: the application may be asked for it next.
        let (poll, decision, is_last) = self.waiters.take(token, key, is_due)?;
        self.answer_woken(context, http, key, poll, (decision, found), alike);
        if is_last {
            self.waiters.end_watch(key);
        }
        Some(found.map_or(0, |found| found.bytes().len()))
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
        for socket in std::mem::take(&mut self.delivery.closing) {
            websockets.close(
                context,
                socket,
                CloseCode::GOING_AWAY,
                Refusal::ShuttingDown.text(),
            );
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
        let item = self.lookups.stored(&record.name, seconds(context));
        let mut found = if self.lookups.is_immediate() {
            item.as_ref().map(Found::stored)
        } else {
            let kept = queue.change.as_ref();
            kept.map(|(content, value)| Found::shared(*content, value))
        };
        if let Some(found) = &mut found {
            self.delivery.encodings.share(&record.name, found);
            budget.encoded(self.delivery.encodings.take_work());
        }
        let found = found.as_ref();
        let mut telling = Telling::of(found);
        let (mut frames, mut gathers_frames) = (Frames::new(), false);
        http.gather(context, queue.left.len());
        while !budget.is_spent()
            && let Some(waiter) = queue.next()
        {
            if let Waiter::Feed(id) = waiter.id()
                && let Some(feed) = self.waiters.feeds.get(id)
                && let Sink::Socket(socket) = feed.sink
            {
                if !std::mem::replace(&mut gathers_frames, true) {
                    http.send_gathered(context);
                    websockets.gather(context, queue.left.len() + 1);
                }
                let (feed, mut sockets) = ((id, socket), self.socket_streams());
                sockets.tell_of_change(context, websockets, budget, feed, found, &mut frames);
            } else {
                self.tell_one(context, http, budget, key, waiter, &mut telling);
            }
        }
        http.send_gathered(context);
        websockets.send_gathered(context);
    }

    /// Answers one poll that was held.
    fn answer_woken(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: KeyId,
        poll: Poll,
        (decision, found): (Decision, Option<&Found<'_>>),
        alike: Option<&mut Option<Alike>>,
    ) {
        if decision == Decision::Miss {
            return self.miss_later(context, http, key, poll);
        }
        let mut to = Responder::held(http, &poll, &self.responses);
        match (decision, found) {
            (Decision::Value, Some(found)) => {
                to.ends(PollOutcome::Woken);
                let route = self.routes.get(poll.route);
                match alike {
                    Some(alike) => {
                        answers::value_alike(&mut to, context, route, &poll, found, alike);
                    }
                    None => answers::value_held(&mut to, context, route, &poll.ask, found),
                }
            }
            _ => answers::conclude(
                &mut to,
                context,
                self.routes.get(poll.route),
                &poll.ask,
                decision,
                found,
            ),
        }
    }

    /// The wait of one poll has ended; the last look makes sure that nothing was overlooked.
    pub(super) fn end_wait(
        &self,
        context: &mut Context,
        poll: &Poll,
        last_look: Option<&Item>,
        to: &mut Responder<'_, '_>,
    ) {
        let found = last_look.map(Found::stored);
        let current = found.as_ref().map(|found| found.content);
        match decide(
            &poll.ask,
            current,
            Stage::Ended,
            self.routes.get(poll.route).rules,
        ) {
            Decision::NotModified(status) => {
                to.ends(PollOutcome::WaitEnded);
                answers::not_modified(to, context, &poll.ask, None, status);
            }
            decision => {
                answers::conclude(
                    to,
                    context,
                    self.routes.get(poll.route),
                    &poll.ask,
                    decision,
                    found.as_ref(),
                );
            }
        }
    }

    /// At most `count` held polls end now, and as many streams.
    ///
    /// Shape: returns whether any are left.
    pub(crate) fn drain(&mut self, context: &mut Context, http: &mut Http, count: usize) -> bool {
        self.event_streams().drain(context, http, count);
        // A poll that is about to be told of a change is not told that there is none.
        let waiting: Vec<(PollId, KeyId)> = self
            .waiters
            .polls()
            .tokens()
            .filter_map(|token| Some((token, self.waiters.polls().get(token)?.waits_for()?)))
            .filter(|(_, key)| !self.delivery.changes.contains(*key))
            .take(count)
            .collect();
        for (token, key) in waiting {
            let item = self.last_look(context, key);
            let Some(poll) = self.waiters.remove(token) else {
                continue;
            };
            let mut to = Responder::held(http, &poll, &self.responses);
            self.end_wait(context, &poll, item.as_ref(), &mut to);
        }
        self.multi_polls().drain(context, http, count);
        self.waiters.waiting() > 0
    }

    /// Begins a stream for an exchange that was held.
    pub(super) fn stream_later(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        poll: &Poll,
        name: &[u8],
        known: Known<'_>,
    ) {
        let opening = Opening::held(context.now(), poll, name, known);
        let mut to = Responder::held(http, poll, &self.responses);
        self.event_streams().begin(context, &opening, &mut to);
    }

    /// Tells feeds what the application has said of their keys.
    fn tell_answered(
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

    /// Checks for everything that waits, of every kind, whether what it waits for is still there.
    /// As with [`recheck`](Self::recheck), nothing is expected to be found.
    pub(crate) fn recheck_owed(&mut self, context: &mut Context, http: &mut Http) {
        let tokens = self.waiters.multi_polls().tokens();
        let stuck: Vec<_> = tokens
            .filter(|token| {
                self.waiters
                    .multi_poll(*token)
                    .is_some_and(MultiPoll::is_stuck)
            })
            .collect();
        for token in stuck {
            self.multi_polls().all_asked(context, http, token);
        }
        let subrequests = &self.gate.subrequests;
        let lost = lost_polls(&self.waiters, &self.lookups, &self.misses, subrequests);
        for token in lost {
            let Some(poll) = self.waiters.remove(token) else {
                continue;
            };
            let mut to = Responder::held(http, &poll, &self.responses);
            to.ends(PollOutcome::Failed);
            to.text(context, 504, OVERDUE);
        }
        self.event_streams().end_lost(context, http);
    }
}
