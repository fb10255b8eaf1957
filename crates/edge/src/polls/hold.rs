//! Records of polls that cannot be answered at once.

use super::answers::{self, Found};
use super::ask::{Arrival, Ask};
use super::decide::{Decision, Stage, decide, ended_status};
use super::kept_request::KeptRequest;
use super::lookups::{Lookups, seconds};
use super::owed::owed_time;
use super::places::{Event, PollPlace};
use super::refusals::{Refusal, Refusals};
use super::spread::Spread;
use super::tables::Poll;
use super::waiters::{Waiters, Watch};
use crate::config::{Config, OnDelete, RouteId, Routes};
use crate::cursor::Condition;
use crate::held::hold;
use crate::ids::{KeyId, PollId};
use crate::metrics::PollOutcome;
use crate::responder::{Exchange, Responder, ResponseLog, Responses};
use dwell_engine::{Http, Outcome, Request};
use dwell_evloop::{Context, Id};
use dwell_store::Item;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The part of a request that its record keeps.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Keep {
    /// All, if there is an upstream: it may yet be forwarded.
    Request,
    /// The part of it that the access log has.
    Line,
}

/// Polls that cannot be answered at once, with the parts of the loop that take them in: no request
/// to the application is among them, and nothing that decides on access.
pub(super) struct Holding<'a> {
    pub(super) config: &'a Config,
    pub(super) routes: &'a Routes,
    pub(super) responses: &'a Arc<Responses>,
    pub(super) lookups: &'a mut Lookups,
    pub(super) waiters: &'a mut Waiters,
    pub(super) spread: &'a mut Spread,
    pub(super) refusals: &'a mut Refusals,
}

impl Holding<'_> {
    /// Registers a wait in the embedded store and then looks again.
    ///
    /// # Errors
    /// What is there now, when the second look says that the poll need not wait.
    pub(super) fn begin_wait(
        &mut self,
        context: &mut Context,
        arrival: Arrival<'_>,
        to: &mut Responder<'_, '_>,
    ) -> Result<Outcome, Option<Item>> {
        let left = arrival.ask.rest_of_wait(to.arrived(), context.now());
        let Some(key) = self.room_to_wait(context, arrival.name, (&arrival.ask, left), to) else {
            return Ok(Outcome::Answered);
        };
        if let Watch::Begun(item) = self.waiters.watch(key, seconds(context)) {
            let current = item.as_ref().map(|item| Found::stored(item).content);
            let rules = self.routes.get(arrival.route).rules;
            if decide(&arrival.ask, current, Stage::Arrived, rules) != Decision::Wait {
                self.waiters.give_up(key);
                return Err(item);
            }
        }
        let keep = self.keep_while_waiting(&arrival.ask, arrival.route);
        let poll = record(
            self.config,
            &self.responses.log,
            to.arrived(),
            &arrival,
            keep,
        );
        Ok(self.hold(context, poll, key, to.exchange()))
    }

    /// A poll that waits is forwarded only when its key goes away, and not by every rule.
    pub(super) fn keep_while_waiting(&self, ask: &Ask, route: RouteId) -> Keep {
        let is_origin = self.routes.get(route).rules.on_delete == OnDelete::Origin;
        if is_origin && ask.condition != Condition::None {
            Keep::Request
        } else {
            Keep::Line
        }
    }

    /// Enters `name` for a poll that has this time `left`; [refuses](Self::refuse_wait) it and
    /// returns `None` if one more poll may not wait.
    fn room_to_wait(
        &mut self,
        context: &mut Context,
        name: &[u8],
        (ask, left): (&Ask, Duration),
        to: &mut Responder<'_, '_>,
    ) -> Option<KeyId> {
        if let Some(refusal) = self.waiters.no_records(1) {
            self.refuse_wait(context, (ask, left), refusal, to);
            return None;
        }
        let key = self.waiters.keys.enter(name);
        if key.is_none() {
            self.refusals.refuse_busy(context, to);
        }
        key
    }

    /// Sends 503 to a poll that may not wait, or the end of its wait if it has no time `left`.
    fn refuse_wait(
        &mut self,
        context: &mut Context,
        (ask, left): (&Ask, Duration),
        refusal: Refusal,
        to: &mut Responder<'_, '_>,
    ) {
        if left.is_zero() {
            to.ends(PollOutcome::WaitEnded);
            answers::not_modified(to, context, ask, None, ended_status(ask));
        } else {
            self.refusals.refuse(context, to, refusal);
        }
    }

    /// Puts a poll among those that wait for `key`, for the rest of its wait.
    fn hold(
        &mut self,
        context: &mut Context,
        mut poll: Poll,
        key: KeyId,
        mut exchange: Exchange<'_, '_>,
    ) -> Outcome {
        poll.waits_from_now(key);
        let timeout = self.spread.beyond(poll.time_left(context.now()));
        match self.waiters.insert(poll) {
            Ok(token) => exchange.hold(context, token.to_bits(), timeout),
            // There is room, as was made sure of before the key was entered.
            Err(poll) => {
                let mut to = Responder::of(exchange, &poll, self.responses);
                self.refusals.refuse_busy(context, &mut to)
            }
        }
    }

    /// Holds a poll whose key has no value now, and whose client has the last one: for the rest of
    /// its wait, or until there is another.
    pub(super) fn wait_on(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        poll: Poll,
        name: &[u8],
    ) {
        let mut to = Responder::held(http, &poll, self.responses);
        let wait = (&poll.ask, poll.time_left(context.now()));
        let Some(key) = self.room_to_wait(context, name, wait, &mut to) else {
            return;
        };
        let watch = self.waiters.watch(key, seconds(context));
        if let Watch::Begun(Some(item)) = watch {
            // It is back: what there is now is compared as if it had come this moment.
            let found = Found::stored(&item);
            let rules = self.routes.get(poll.route).rules;
            let decision = decide(&poll.ask, Some(found.content), Stage::Held, rules);
            if decision != Decision::Wait {
                self.waiters.give_up(key);
                let (ask, route) = (poll.ask, poll.route);
                let (route, found) = (self.routes.get(route), Some(&found));
                return answers::conclude(&mut to, context, route, &ask, decision, found);
            }
        }
        // memcached may have had one since, of which others were told meanwhile.
        self.lookups.begin_uncompared(&mut self.waiters.keys, key);
        let exchange = Exchange::Held(http, poll.exchange);
        self.hold(context, poll, key, exchange);
    }

    /// Holds a poll whose key memcached has in the version the client has.
    pub(super) fn wait_after_lookup(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: KeyId,
        token: PollId,
    ) {
        let Some(poll) = self.waiters.polls().get(token) else {
            return;
        };
        let (exchange, wait) = (poll.exchange, poll.time_left(context.now()));
        let keep = self.keep_while_waiting(&poll.ask, poll.route);
        let is_logged = self.responses.log.is_written();
        if let Some(refusal) = self.waiters.no_waits(1) {
            let Some(poll) = self.waiters.remove(token) else {
                return;
            };
            let mut to = Responder::held(http, &poll, self.responses);
            self.refuse_wait(context, (&poll.ask, wait), refusal, &mut to);
            return;
        }
        if keep == Keep::Line
            && let Some(poll) = self.waiters.poll_mut(token)
        {
            let kept = poll.request.take().filter(|_| is_logged);
            poll.request =
                kept.map(|kept| Box::new(KeptRequest::named_line(kept.head(), kept.name())));
        }
        self.waiters.wait_for(key, token);
        let timeout = self.spread.beyond(wait);
        hold(http, context, exchange, token.to_bits(), timeout);
    }

    /// Puts the poll with the others of this turn that ask memcached for the same key.
    pub(super) fn ask_memcached(
        &mut self,
        context: &mut Context,
        arrival: Arrival<'_>,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        if self.waiters.polls().is_full() {
            return self.refusals.refuse_busy(context, to);
        }
        let Some(key) = self.waiters.keys.enter(arrival.name) else {
            return self.refusals.refuse_busy(context, to);
        };
        let may_wait = arrival.ask.waits() || arrival.ask.is_stream;
        let lookup = (self.lookups).ask_for(&mut self.waiters.keys, key, may_wait);
        let Some(lookup) = lookup else {
            self.waiters.keys.release(key);
            return self.refusals.refuse_busy(context, to);
        };
        let log = &self.responses.log;
        let mut poll = record(self.config, log, to.arrived(), &arrival, Keep::Request);
        poll.place.moves(Event::Unread, lookup);
        let token = self.waiters.insert(poll).ok();
        if let Some(token) = token {
            self.lookups.join(lookup, token.into());
        }
        match token {
            Some(token) => to.hold(context, token.to_bits(), owed_time(self.config)),
            None => self.refusals.refuse_busy(context, to),
        }
    }
}

/// The record of a request at hand, which may have `arrived` earlier: before the application was
/// asked for access.
pub(super) fn record(
    config: &Config,
    log: &ResponseLog,
    arrived: Instant,
    arrival: &Arrival<'_>,
    keep: Keep,
) -> Poll {
    let Request {
        head_bytes, body, ..
    } = *arrival.request;
    let kept = if keep == Keep::Request && config.has_upstream() {
        // A stream takes its key from it once more, and the access log has it.
        let name = if arrival.ask.is_stream || log.is_written() {
            arrival.name
        } else {
            &[]
        };
        let kept = KeptRequest::new(head_bytes, body, name);
        Some(kept.came_by(arrival.request.head.version))
    } else if log.is_written() {
        Some(KeptRequest::named_line(head_bytes, arrival.name))
    } else {
        None
    };
    Poll {
        exchange: arrival.request.exchange,
        ask: arrival.ask,
        place: PollPlace::default(),
        arrived,
        request: kept.map(Box::new),
        route: arrival.route,
        origin: arrival.origin,
    }
}
