//! Polls of several keys: one answer for all that is new, as JSON.
//!
//! Such a poll is one record that waits for each of its keys. The first change makes it ready, and
//! it is answered when the turn ends, with everything that the turn has brought of its keys.

use super::answers::{EXPOSED, FETCHED, Found, HIT, NOSNIFF, control};
use super::ask::{Admitted, Ask, Method};
use super::budget::{Budget, Now};
use super::cursors;
use super::delivery::Delivery;
use super::encodings::members;
use super::fetch::Fetching;
use super::follow::NamedKey;
use super::kept_request::KeptRequest;
use super::key_state::{KeyState, MultiPoll, Unasked};
use super::lookups::{Lookups, seconds};
use super::misses::{FetchedValue, Misses, OriginRequest};
use super::missing::SubFetches;
use super::owed::{OVERDUE, owed_time};
use super::parts::Parts;
use super::refusals::{Refusal, Refusals};
use super::spread::Spread;
use super::waiters::Waiters;
use crate::access::Gate;
use crate::config::{Config, Routes};
use crate::cursor::Condition;
use crate::held;
use crate::ids::{KeyId, MultiPollId};
use crate::metrics::{LoopMetrics, PollOutcome};
use crate::responder::{Responder, Responses};
use dwell_engine::{Body, Http, Outcome, Reply, Response};
use dwell_evloop::{Context, Id};
use std::sync::Arc;

/// Polls of several keys, with the parts of the loop that they touch: nothing that decides on
/// access is changed by them, and nothing is published.
pub(crate) struct MultiPolls<'a> {
    pub(super) config: &'a Config,
    pub(super) routes: &'a Routes,
    pub(super) metrics: &'a LoopMetrics,
    pub(super) responses: &'a Arc<Responses>,
    pub(super) gate: &'a Gate,
    pub(super) lookups: &'a mut Lookups,
    pub(super) misses: &'a mut Misses,
    pub(super) waiters: &'a mut Waiters,
    pub(super) delivery: &'a mut Delivery,
    pub(super) spread: &'a mut Spread,
    pub(super) refusals: &'a mut Refusals,
}

impl MultiPolls<'_> {
    /// Answers a poll of several keys, holds it, or asks memcached.
    pub(super) fn begin(
        &mut self,
        context: &mut Context,
        admitted: Admitted<'_>,
        ask: Ask,
        keys: Vec<NamedKey>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        let Admitted { route, request, .. } = admitted;
        let (said, is_by_tag) = cursors::of_poll(request.head, ask.method, keys.len());
        let (labels, names): (Vec<_>, Vec<_>) = keys
            .into_iter()
            .map(|key| (key.label.unwrap_or_default(), key.name))
            .unzip();
        let keys = labels.into_iter().zip(said).map(|(label, said)| KeyState {
            label,
            key: None,
            said,
            current: Condition::None,
            news: None,
            is_joined: false,
            from_origin: false,
        });
        let is_logged = self.responses.log.is_written();
        let mut poll = MultiPoll {
            exchange: request.exchange,
            arrived: to.arrived(),
            unasked: None,
            is_fetched: false,
            request: is_logged.then(|| Box::new(KeptRequest::request_line(request.head_bytes))),
            ask,
            keys: keys.collect(),
            asking: 0,
            route,
            origin: admitted.origin(),
            is_by_tag,
            has_failed: false,
            is_held: false,
            is_ready: false,
        };
        if self.config.has_upstream() {
            let origin_request = OriginRequest::of(request, &poll.ask, route, to);
            let names = names.clone();
            poll.unasked = Some(Box::new(Unasked {
                origin_request,
                names,
            }));
        }
        if !self.lookups.is_immediate() {
            return self.ask_for(context, poll, &names, to);
        }
        let on_delete = self.routes.get(route).rules.on_delete;
        for (place, name) in names.iter().enumerate() {
            let item = self.lookups.stored(name, seconds(context));
            let found = item.as_ref().map(Found::stored);
            poll.note(place, found.as_ref(), on_delete, |found| {
                self.delivery.encodings.members(name, found)
            });
        }
        if !poll.is_to_ask() && (poll.has_news() || !poll.waits()) {
            return self.answer_now(context, &poll, to);
        }
        self.hold(context, poll, &names, to)
    }

    /// Registers the waits in the embedded store and then looks again.
    fn hold(
        &mut self,
        context: &mut Context,
        poll: MultiPoll,
        names: &[Box<[u8]>],
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        let waits = poll.waits();
        let refusal = self.waiters.no_records(names.len()).filter(|_| waits);
        if let Some(refusal) = refusal {
            return self.refusals.refuse(context, to, refusal);
        }
        let Some(token) = self.waiters.insert_multi_poll(poll) else {
            return self.refusals.refuse_busy(context, to);
        };
        for (place, name) in names.iter().enumerate().filter(|_| waits) {
            if let Some((key, _)) = self.waiters.enter(name, seconds(context)) {
                self.waiters.join_multi_poll(token, place, key);
            }
        }
        self.look_at(context, token);
        if self.asks_for_missing(context, token) {
            return to.hold(context, token.to_bits(), owed_time(self.config));
        }
        let has_answer = |poll: &MultiPoll| poll.has_news() || !poll.waits();
        if self.waiters.multi_poll(token).is_some_and(has_answer)
            && let Some(poll) = self.waiters.remove_multi_poll(token)
        {
            return self.answer_now(context, &poll, to);
        }
        let poll = self.waiters.multi_poll_mut(token);
        let rest = poll.map(|poll| poll.begin_wait(context.now()));
        let timeout = self.spread.beyond(rest.unwrap_or_default());
        to.hold(context, token.to_bits(), timeout)
    }

    /// Answers a poll that has just come.
    fn answer_now(
        &mut self,
        context: &mut Context,
        poll: &MultiPoll,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        answer(context, poll, Moment::Arrived, to);
        self.delivery
            .has_written(Now::of(context), MAKING * poll.news_bytes());
        Outcome::Answered
    }

    /// Takes in what the embedded store has under every key of a poll; memcached would have to be
    /// asked.
    fn look_at(&mut self, context: &Context, token: MultiPollId) {
        if !self.lookups.is_immediate() {
            return;
        }
        let Some(poll) = self.waiters.multi_poll(token) else {
            return;
        };
        let on_delete = self.routes.get(poll.route).rules.on_delete;
        for place in 0..poll.keys.len() {
            let poll = self.waiters.multi_poll(token);
            let key = poll.and_then(|poll| poll.keys.get(place)?.joined());
            let Some(key) = key else { continue };
            let item = self
                .lookups
                .stored_key(&self.waiters.keys, key, seconds(context));
            let found = item.as_ref().map(Found::stored);
            if let Some((poll, name)) = self.waiters.multi_poll_and_name(token, key) {
                poll.note(place, found.as_ref(), on_delete, |found| {
                    self.delivery.encodings.members(name, found)
                });
            }
        }
    }

    /// Puts every key among the lookups of this turn.
    fn ask_for(
        &mut self,
        context: &mut Context,
        poll: MultiPoll,
        names: &[Box<[u8]>],
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        let Some(token) = self.waiters.insert_multi_poll(poll) else {
            return self.refusals.refuse_busy(context, to);
        };
        for (place, name) in names.iter().enumerate() {
            let lookup = self.waiters.keys.enter(name).and_then(|key| {
                let lookup = self.lookups.ask(&mut self.waiters.keys, key);
                if lookup.is_none() {
                    self.waiters.keys.release(key);
                }
                Some((key, lookup?))
            });
            let Some((key, lookup)) = lookup else {
                // The lookups that were begun find no poll.
                self.waiters.remove_multi_poll(token);
                return self.refusals.refuse_busy(context, to);
            };
            if let Some(poll) = self.waiters.multi_poll_mut(token) {
                poll.keys[place].key = Some(key);
                poll.asking += 1;
            }
            self.lookups.join(lookup, token.into());
        }
        to.hold(context, token.to_bits(), owed_time(self.config))
    }

    /// memcached has answered for one key of a poll, or failed to.
    pub(super) fn looked_up(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: KeyId,
        token: MultiPollId,
        found: Option<&Found<'_>>,
        has_failed: bool,
    ) {
        let Some(poll) = self.waiters.multi_poll_mut(token) else {
            return;
        };
        poll.asking = poll.asking.saturating_sub(1);
        // A failure is a miss if the application can still be asked.
        let has_failed = has_failed && poll.unasked.is_none();
        #[cfg(feature = "sim")]
        let has_failed = has_failed && !dwell_evloop::sim::Planted::FailureIsGone.is_in();
        poll.has_failed |= has_failed;
        let waits = poll.waits();
        let places = poll.places_of(key);
        if !has_failed {
            self.note(token, key, found);
        }
        for place in places {
            let poll = self.waiters.multi_poll(token);
            let is_joined = poll.is_none_or(|poll| poll.keys[place].is_joined);
            // It has to be told of every change from here on, where it can be held at all.
            if waits && !is_joined && self.waiters.no_waits(1).is_none() {
                self.waiters.join_multi_poll(token, place, key);
            }
        }
        let poll = self.waiters.multi_poll(token);
        if poll.is_some_and(|poll| poll.asking == 0) {
            self.all_asked(context, http, token);
        }
    }

    /// Every lookup of a poll has ended.
    pub(super) fn all_asked(&mut self, context: &mut Context, http: &mut Http, token: MultiPollId) {
        if self.asks_for_missing(context, token) {
            return;
        }
        // Its keys count among those that wait already, unless there was no room for them.
        let no_waits = self.waiters.no_waits(0);
        let Some(poll) = self.waiters.multi_poll_mut(token) else {
            return;
        };
        if poll.has_news() {
            return self.make_ready(token);
        }
        let is_over = poll.waits() && poll.time_left(context.now()).is_zero();
        let refusal = no_waits
            .or_else(|| poll.lacks_room().then_some(Refusal::TooManyWait))
            .filter(|_| poll.waits());
        if refusal.is_none() && poll.waits() {
            let timeout = self.spread.beyond(poll.begin_wait(context.now()));
            held::hold(http, context, poll.exchange, token.to_bits(), timeout);
            return;
        }
        let Some(poll) = self.waiters.remove_multi_poll(token) else {
            return;
        };
        let mut to = Responder::held(http, &poll, self.responses);
        if refusal.is_some() && is_over {
            answer(context, &poll, Moment::Ended, &mut to);
        } else if let Some(refusal) = refusal {
            self.refusals.refuse(context, &mut to, refusal);
        } else if poll.has_failed && !poll.waits() {
            let reason = if poll.is_fetched {
                "the application does not answer"
            } else {
                self.lookups.no_answer()
            };
            self.refusals
                .unavailable(context, &mut to, PollOutcome::Failed, reason);
        } else {
            answer(context, &poll, Moment::Arrived, &mut to);
        }
    }

    /// Takes in what a key of a poll has now; whether that is a change to it.
    pub(super) fn note(
        &mut self,
        token: MultiPollId,
        key: KeyId,
        found: Option<&Found<'_>>,
    ) -> bool {
        let Some(route) = self.waiters.multi_poll(token).map(|poll| poll.route) else {
            return false;
        };
        let on_delete = self.routes.get(route).rules.on_delete;
        let Some((poll, name)) = self.waiters.multi_poll_and_name(token, key) else {
            return false;
        };
        let mut is_news = false;
        for place in poll.places_of(key) {
            is_news |= poll.note(place, found, on_delete, |found| {
                self.delivery.encodings.members(name, found)
            });
        }
        if is_news && poll.is_held {
            self.make_ready(token);
        }
        is_news
    }

    /// Has a poll answered when the turn ends, or one after it.
    fn make_ready(&mut self, token: MultiPollId) {
        if let Some(poll) = self.waiters.multi_poll_mut(token)
            && !std::mem::replace(&mut poll.is_ready, true)
        {
            self.delivery.ready.push(token);
        }
    }

    /// Answers the polls of several keys for which the turn has brought changes, as far as its
    /// budget goes.
    pub(crate) fn answer_ready(&mut self, context: &mut Context, http: &mut Http) {
        let mut budget = Budget::of_turn();
        let mut ready = std::mem::take(&mut self.delivery.ready).into_iter();
        while !budget.is_spent()
            && let Some(token) = ready.next()
        {
            if let Some(poll) = self.waiters.multi_poll_mut(token) {
                poll.is_ready = false;
            }
            self.look_at(context, token);
            let poll = self.waiters.multi_poll(token);
            if !poll.is_some_and(MultiPoll::has_news) {
                self.waits_after_all(context, http, token);
                continue;
            }
            let Some(poll) = self.waiters.remove_multi_poll(token) else {
                continue;
            };
            let moment = if poll.is_held {
                Moment::Woken
            } else {
                Moment::Arrived
            };
            let mut to = Responder::held(http, &poll, self.responses);
            answer(context, &poll, moment, &mut to);
            budget.written(MAKING * poll.news_bytes());
            budget.encoded(self.delivery.encodings.take_work());
        }
        // They come before whatever the next turn brings.
        self.delivery.ready.splice(0..0, ready);
    }

    /// Returns a poll to waiting, as its changes were reverted before it was answered. The
    /// application is asked for keys that have gone meanwhile.
    fn waits_after_all(&mut self, context: &mut Context, http: &mut Http, token: MultiPollId) {
        let poll = self.waiters.multi_poll(token);
        if poll.is_some_and(MultiPoll::is_stuck) {
            self.all_asked(context, http, token);
        }
        // What had no room beside the news that is gone has room now.
        if !self.lookups.is_immediate()
            && let Some(poll) = self.waiters.multi_poll(token).filter(|poll| poll.is_held)
        {
            for key in poll.left_out() {
                self.lookups.read(&mut self.waiters.keys, key);
            }
        }
    }

    /// The wait of a poll has ended, or the time in which its keys are to be known.
    pub(crate) fn expired(
        &mut self,
        context: &mut Context,
        token: MultiPollId,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let is_overdue = self.is_asking(token);
        self.look_at(context, token);
        let Some(poll) = self.waiters.remove_multi_poll(token) else {
            return Outcome::Close;
        };
        let mut to = Responder::ended(reply, &poll, self.responses);
        if is_overdue && !poll.has_news() {
            to.ends(PollOutcome::Failed);
            to.text(context, 504, OVERDUE);
            return Outcome::Answered;
        }
        answer(context, &poll, Moment::Ended, &mut to);
        Outcome::Answered
    }

    /// Returns true if lookups of a poll are open.
    pub(crate) fn is_asking(&self, token: MultiPollId) -> bool {
        let poll = self.waiters.multi_poll(token);
        poll.is_some_and(|poll| !poll.is_held)
    }

    /// The client of a poll has left.
    pub(crate) fn abandoned(&mut self, token: MultiPollId) {
        if self.waiters.remove_multi_poll(token).is_some() {
            self.metrics.polls.increment(PollOutcome::Abandoned);
        }
    }

    /// The server ends: at most `count` polls that wait end now.
    pub(super) fn drain(&mut self, context: &mut Context, http: &mut Http, count: usize) {
        let is_idle = |poll: &MultiPoll| poll.is_held || poll.is_stuck();
        let is_held = |token: &MultiPollId| self.waiters.multi_poll(*token).is_some_and(is_idle);
        let tokens = self.waiters.multi_polls().tokens().filter(is_held);
        for token in tokens.take(count).collect::<Vec<_>>() {
            self.look_at(context, token);
            if let Some(poll) = self.waiters.remove_multi_poll(token) {
                let mut to = Responder::held(http, &poll, self.responses);
                answer(context, &poll, Moment::Ended, &mut to);
            }
        }
    }

    fn sub_fetches(&mut self) -> SubFetches<'_> {
        SubFetches {
            fetching: Fetching {
                config: self.config,
                routes: self.routes,
                gate: self.gate,
                misses: self.misses,
                waiters: self.waiters,
            },
            lookups: self.lookups,
        }
    }

    /// Asks the application for the keys of a poll that have no value; whether it has to be waited
    /// for.
    fn asks_for_missing(&mut self, context: &Context, token: MultiPollId) -> bool {
        let poll = self.waiters.multi_poll_mut(token);
        let Some(poll) = poll.filter(|poll| poll.is_to_ask()) else {
            return false;
        };
        let (missing, route) = (poll.missing(), poll.route);
        let Some(Unasked {
            origin_request,
            names,
        }) = poll.unasked.take().map(|unasked| *unasked)
        else {
            return false;
        };
        let on_delete = self.routes.get(route).rules.on_delete;
        let mut asked = 0;
        for place in missing {
            let poll = self.waiters.multi_poll(token);
            let label = poll.map(|poll| poll.keys[place].label.clone());
            let label = label.unwrap_or_default();
            let is_asked = self.sub_fetches().seek_for(
                context,
                &origin_request,
                &label,
                &names[place],
                (token, place),
            );
            let Some(poll) = self.waiters.multi_poll_mut(token) else {
                return false;
            };
            if is_asked {
                poll.keys[place].from_origin = true;
                poll.asking += 1;
                asked += 1;
            } else {
                poll.note(place, None, on_delete, members);
            }
        }
        if let Some(poll) = self.waiters.multi_poll_mut(token) {
            poll.is_fetched = asked > 0;
        }
        asked > 0
    }

    /// The application has said what a key of a poll has.
    pub(super) fn fetched(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        token: MultiPollId,
        place: usize,
        said: &FetchedValue,
    ) {
        let Some(route) = self.waiters.multi_poll(token).map(|poll| poll.route) else {
            return;
        };
        let on_delete = self.routes.get(route).rules.on_delete;
        let Some(poll) = self.waiters.multi_poll_mut(token) else {
            return;
        };
        poll.asking = poll.asking.saturating_sub(1);
        // Where it is none any more, the cache has had a value meanwhile.
        if std::mem::take(&mut poll.keys[place].from_origin) {
            let found = match said {
                FetchedValue::Value(body, flags) => Some(Found::remembered(body.clone(), *flags)),
                FetchedValue::Nothing | FetchedValue::Unknown => None,
            };
            poll.has_failed |= matches!(said, FetchedValue::Unknown);
            if !matches!(said, FetchedValue::Unknown) {
                poll.note(place, found.as_ref(), on_delete, members);
            }
            poll.keys[place].from_origin = !matches!(said, FetchedValue::Nothing);
        }
        if poll.asking == 0 {
            self.all_asked(context, http, token);
        }
    }
}

/// The moment of a poll at which it is answered.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moment {
    Arrived,
    Woken,
    Ended,
}

/// Answers with the changes, or that nothing has changed.
fn answer(context: &mut Context, poll: &MultiPoll, moment: Moment, to: &mut Responder<'_, '_>) {
    let (has_news, ask) = (poll.has_news(), &poll.ask);
    let knows_nothing = poll.keys.iter().all(|state| state.said == Condition::None);
    let (outcome, status) = match moment {
        Moment::Woken if has_news => (PollOutcome::Woken, 200),
        _ if has_news => (PollOutcome::Hit, 200),
        Moment::Ended if poll.is_by_tag => (PollOutcome::WaitEnded, 304),
        Moment::Ended => (PollOutcome::WaitEnded, 204),
        _ if knows_nothing => (PollOutcome::Empty, 200),
        _ if ask.method == Method::Post => (PollOutcome::NotModified, 204),
        _ => (PollOutcome::NotModified, 304),
    };
    let (outcome, cache_status) = match outcome {
        PollOutcome::Hit if poll.is_fetched => (PollOutcome::Miss, FETCHED),
        outcome => (outcome, HIT),
    };
    let cursor = poll.cursor();
    let tag = format!("\"{cursor}\"");
    let preference = format!("wait={}", ask.wait().as_secs());
    let mut fields: Vec<(&str, &[u8])> = vec![
        ("ETag", tag.as_bytes()),
        ("Poll-Cursor", cursor.as_bytes()),
        EXPOSED,
        ("Cache-Control", control(ask)),
    ];
    if ask.form.prefers() {
        fields.push(("Preference-Applied", preference.as_bytes()));
    }
    let mut body = Parts::default();
    if status == 200 {
        fields.push(("Content-Type", b"application/json"));
        fields.push(NOSNIFF);
        body = poll.json(&cursor);
    }
    let body = body.finish();
    fields.push(("Cache-Status", cache_status));
    to.ends(outcome);
    to.send(
        context,
        &Response {
            status,
            fields: &fields,
            body: if status == 200 {
                Body::Parts(&body)
            } else {
                Body::Empty
            },
        },
    );
}

/// The work of putting an answer together, for each byte of it.
const MAKING: usize = 2;
