//! Misses as they end: which poll gets the answer of a fetch, and which asks once more.

use super::Polls;
use super::answers::{self, FETCHED, Found};
use super::ask::Method;
use super::decide::{Decision, Stage, decide};
use super::feeds::Known;
use super::fetch::{Missed, head_limits};
use super::large::TooLarge;
use super::lookups::seconds;
use super::misses::{CachedOutcome, Fetch, FetchedValue, StaleValue, SubFetch, UpstreamResult};
use super::places::Event;
use super::queued::left_to_ask;
use super::refusals::Refusals;
use super::tables::Poll;
use crate::cursor::{Cursor, CursorText};
use crate::ids::{FetchId, FetchMember, KeyId, Packed, SubFetchAsker};
use crate::metrics::{PollOutcome, UpstreamOutcome};
use crate::responder::{Exchange, Responder};
use dwell_engine::{Body, Http, Outcome, Response};
use dwell_evloop::{Context, Id};
use dwell_proto::http1::FieldStorage;
use dwell_upstream::{Answer, UpstreamError, UpstreamEvent};

/// The `Cache-Status` of the further answers of a fetch.
const COLLAPSED: &[u8] = b"dwell; fwd=miss; collapsed";
/// The `Cache-Status` of a fetch that was not sent, as the last one came to this a moment ago.
const REMEMBERED: &[u8] = b"dwell; hit; detail=negative";

/// A member of a fetch, out of its table.
pub(super) enum Member {
    Poll(Poll),
    /// A key of a feed, or of a poll of several keys.
    Key(SubFetch),
}

impl Polls {
    /// Takes an event of a request of polls to the application; returns an answer that is too large
    /// for them.
    pub(crate) fn fetch_event(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: FetchId,
        event: UpstreamEvent,
    ) -> Option<TooLarge> {
        match event {
            UpstreamEvent::Large {
                connection,
                server,
                parts,
                ..
            } => {
                let poll = self.answer_is_large(context, http, fetch);
                return Some(TooLarge {
                    connection,
                    server,
                    fetch,
                    parts,
                    poll,
                });
            }
            UpstreamEvent::Answer { answer, .. } => {
                let outcome = match answer.status {
                    500.. => UpstreamOutcome::ServerError,
                    _ => UpstreamOutcome::Answered,
                };
                self.metrics.upstream_requests.increment(outcome);
                self.result_came(context, http, fetch, &Ok(answer), false);
            }
            UpstreamEvent::Failed { error, .. } => {
                self.metrics.upstream_requests.increment((&error).into());
                self.result_came(context, http, fetch, &Err(error), false);
            }
            // Of requests that are passed on only.
            UpstreamEvent::Started { .. }
            | UpstreamEvent::BodyTaken { .. }
            | UpstreamEvent::Parts { .. }
            | UpstreamEvent::Switched { .. } => {}
        }
        None
    }

    /// A poll that was held, and whose key has no value.
    pub(super) fn miss_later(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        key: KeyId,
        poll: Poll,
    ) {
        let name = self.waiters.keys.get(key).map(|key| key.name.clone());
        let mut storage = FieldStorage::new();
        let limits = head_limits(&self.config);
        let kept = poll.request.as_deref();
        let kept = kept.and_then(|kept| Some((kept, kept.parse(&mut storage, &limits)?)));
        let Some((kept, head)) = kept else {
            let mut to = Responder::held(http, &poll, &self.responses);
            to.ends(PollOutcome::NotFound);
            return to.text(context, 404, "no such key");
        };
        let fetch = self.fetching().fetch_for(
            context.now(),
            &Missed {
                name: name.as_deref().unwrap_or_default(),
                ask: &poll.ask,
                route: poll.route,
                head: &head,
                body: kept.body(),
                peer: &|| http.peer_address(poll.exchange),
                client: &|| http.client_names(poll.exchange).cloned(),
            },
        );
        let Some(fetch) = fetch else {
            let mut to = Responder::held(http, &poll, &self.responses);
            self.refusals.refuse_busy(context, &mut to);
            return;
        };
        let exchange = Exchange::Held(http, poll.exchange);
        self.place_in_fetch(context, poll, fetch, exchange);
    }

    /// Puts a poll among those that a fetch answers.
    pub(super) fn place_in_fetch(
        &mut self,
        context: &mut Context,
        mut poll: Poll,
        fetch: FetchId,
        mut exchange: Exchange<'_, '_>,
    ) -> Outcome {
        poll.place.moves(Event::Missing, fetch);
        match self.waiters.insert(poll) {
            Ok(token) => {
                self.misses.join(fetch, token.into());
                exchange.hold(context, token.to_bits(), self.owed_time())
            }
            // There is room: it was looked for, or the poll was taken out a moment ago.
            Err(poll) => {
                let mut to = Responder::of(exchange, &poll, &self.responses);
                self.refusals.refuse_busy(context, &mut to)
            }
        }
    }

    /// Gives everything that shares a fetch its result, or the value that stands for it.
    pub(super) fn result_came(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: FetchId,
        result: &UpstreamResult,
        is_remembered: bool,
    ) {
        let Some(fetch) = self.misses.close(&mut self.waiters.keys, fetch) else {
            return;
        };
        self.misses.end_flight(&fetch, Some(result));
        if fetch.is_led() {
            let rules = self.routes.get(fetch.route);
            let lifetime = self.misses.remember(rules, &fetch, result, context.now());
            if let (Some(lifetime), Ok(answer)) = (lifetime, result) {
                self.lookups
                    .fill(&fetch.name, &answer.body, lifetime, seconds(context));
            }
        }
        let rules = self.routes.get(fetch.route);
        let stale = self.misses.instead_of(rules, &fetch, result, context.now());
        let mut members = fetch.members.clone();
        let queued = left_to_ask(&fetch, result, &mut members);
        self.each_for_itself(context, http, &fetch, &queued);
        let shared = Shared {
            // An app that answers with the value it has stored saves its client the same value
            // again.
            cursor: match result {
                Ok(answer) if answer.status == 200 => Some(Cursor::of(&answer.body, 0).text()),
                _ => None,
            },
            is_remembered,
        };
        for (place, token) in members.into_iter().enumerate() {
            let poll = match self.take_member(token) {
                Some(Member::Poll(poll)) => poll,
                Some(Member::Key(sub_fetch)) => {
                    let value = FetchedValue::of(&sub_fetch, result, stale.as_ref());
                    self.tell_asker(context, http, sub_fetch.asker(), value);
                    continue;
                }
                None => continue,
            };
            if let Some(known) = stale.as_ref().filter(|known| known.stands_for(&poll.ask)) {
                let reason = match result {
                    _ if is_remembered => StaleReason::Memory,
                    Ok(answer) => StaleReason::Answered(answer.status),
                    Err(error) => StaleReason::Failed(error),
                };
                self.answer_stale(context, http, poll, &fetch.name, known, &reason);
                continue;
            }
            let is_own = place == 0 && fetch.is_own();
            match result {
                Ok(answer) => {
                    self.give_answer(context, http, &fetch.name, &poll, answer, &shared, is_own);
                }
                Err(error) => {
                    let mut to = Responder::held(http, &poll, &self.responses);
                    tell_failure(&mut self.refusals, context, error, &mut to);
                }
            }
        }
        self.end_fetch(context, http, &fetch);
    }

    /// Answers the members of a fetch from memory.
    pub(crate) fn cached_came(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: FetchId,
        outcome: CachedOutcome,
    ) {
        let known = match outcome {
            CachedOutcome::Stale(known) => known,
            CachedOutcome::Result(result) => {
                return self.result_came(context, http, fetch, &result, true);
            }
        };
        let Some(fetch) = self.misses.close(&mut self.waiters.keys, fetch) else {
            return;
        };
        for token in fetch.members {
            match self.take_member(token) {
                Some(Member::Poll(poll)) => {
                    let reason = StaleReason::Memory;
                    self.answer_stale(context, http, poll, &fetch.name, &known, &reason);
                }
                Some(Member::Key(sub_fetch)) => {
                    let value = FetchedValue::Value(known.body.clone(), known.flags);
                    self.tell_asker(context, http, sub_fetch.asker(), value);
                }
                None => {}
            }
        }
    }

    /// Answers a poll by a value that is stale; one whose client has it is held on.
    pub(super) fn answer_stale(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        poll: Poll,
        name: &[u8],
        known: &StaleValue,
        reason: &StaleReason<'_>,
    ) {
        if poll.ask.is_stream {
            let known = Known::Answered(&known.body);
            return self.stream_later(context, http, &poll, name, known);
        }
        let found = Found::remembered(known.body.clone(), known.flags);
        let waited = context.now().saturating_duration_since(poll.arrived);
        let stage = if poll.ask.waits() && waited >= poll.ask.wait() {
            Stage::Ended
        } else {
            Stage::Arrived
        };
        match decide(
            &poll.ask,
            Some(found.content),
            stage,
            self.routes.get(poll.route).rules,
        ) {
            Decision::Wait => self.holding().wait_on(context, http, poll, name),
            decision => {
                let status = reason.cache_status(known);
                let mut to = Responder::held(http, &poll, &self.responses);
                to.ends(PollOutcome::Stale);
                let status = status.as_bytes();
                if let Decision::NotModified(code) = decision {
                    let cursor = Some(found.content.cursor);
                    answers::not_modified_by(&mut to, context, &poll.ask, cursor, code, status);
                } else {
                    let rules = self.routes.get(poll.route);
                    answers::value_by(&mut to, context, rules, &poll.ask, &found, status);
                }
            }
        }
    }

    /// Takes a member of a fetch out of its table, if its client is still there.
    pub(super) fn take_member(&mut self, member: Packed<FetchMember>) -> Option<Member> {
        match member.id() {
            FetchMember::SubFetch(key) => self.misses.take_sub_fetch(key).map(Member::Key),
            FetchMember::Poll(poll) => self.waiters.remove(poll).map(Member::Poll),
        }
    }

    /// Gives one client an answer that may be another's.
    #[expect(
        clippy::too_many_arguments,
        reason = "who is answered, by what, and what is known of both"
    )]
    fn give_answer(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        name: &[u8],
        poll: &Poll,
        answer: &Answer,
        shared: &Shared,
        is_own: bool,
    ) {
        if poll.ask.is_stream && answer.status == 200 {
            let known = Known::Answered(&answer.body);
            return self.stream_later(context, http, poll, name, known);
        }
        let status = match is_own {
            _ if shared.is_remembered => REMEMBERED,
            true => FETCHED,
            false => COLLAPSED,
        };
        let mut to = Responder::held(http, poll, &self.responses);
        pass_on(
            context,
            poll,
            answer,
            shared.cursor.as_ref(),
            status,
            &mut to,
        );
    }

    /// Has each of these ask for itself; those for which nothing can be sent are turned away.
    fn each_for_itself(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: &Fetch,
        members: &[Packed<FetchMember>],
    ) {
        let left = self.fetching().each_for_itself(http, fetch, members);
        self.turn_away(context, http, left);
    }

    /// Ends what is common to the members of a fetch that has ended.
    fn end_fetch(&mut self, context: &mut Context, http: &mut Http, fetch: &Fetch) {
        if let Some(key) = fetch.key {
            self.waiters.keys.release(key);
        }
        let left = self.fetching().next_in_queue(http, fetch.queue);
        self.turn_away(context, http, left);
    }

    /// Answers members for which nothing can be sent, as far as they are still there.
    fn turn_away(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        members: Vec<Packed<FetchMember>>,
    ) {
        for member in members {
            match self.take_member(member) {
                Some(Member::Poll(poll)) => {
                    let mut to = Responder::held(http, &poll, &self.responses);
                    self.refusals.refuse_busy(context, &mut to);
                }
                Some(Member::Key(sub_fetch)) => {
                    self.tell_asker(context, http, sub_fetch.asker(), FetchedValue::Unknown);
                }
                None => {}
            }
        }
    }

    /// Tells the feed or poll that asks for a key what the application has said of it.
    fn tell_asker(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        (asker, place): (SubFetchAsker, usize),
        value: FetchedValue,
    ) {
        match asker {
            SubFetchAsker::MultiPoll(poll) => {
                let mut polls = self.multi_polls();
                polls.fetched(context, http, poll, place, &value);
            }
            SubFetchAsker::Feed(feed) => {
                let (lookups, waiters) = (&mut self.lookups, &mut self.waiters);
                self.delivery.note_answer(lookups, waiters, feed, value);
            }
        }
    }

    /// Ends a fetch whose answer is too large to be shared: it goes on to the client whose request
    /// was sent, which is returned, and the others ask for themselves.
    fn answer_is_large(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: FetchId,
    ) -> Option<Poll> {
        let fetch = self.misses.close(&mut self.waiters.keys, fetch)?;
        self.misses.end_flight(&fetch, None);
        let is_key =
            |member: &mut Packed<FetchMember>| matches!(member.id(), FetchMember::SubFetch(_));
        let mut others = fetch.members.clone();
        let keys = others.extract_if(.., is_key).collect();
        self.turn_away(context, http, keys);
        let sender = fetch.members.first();
        let sender = sender.filter(|sender| others.first() == Some(*sender));
        let own = sender.and_then(|member| match member.id() {
            FetchMember::Poll(poll) => self.waiters.remove(poll),
            FetchMember::SubFetch(_) => None,
        });
        if own.is_some() {
            others.remove(0);
        }
        self.each_for_itself(context, http, &fetch, &others);
        self.end_fetch(context, http, &fetch);
        own
    }

    /// Refuses the client of an answer that nothing could take in parts.
    pub(crate) fn refuse_large(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        large: &TooLarge,
    ) {
        if let Some(poll) = &large.poll {
            let mut to = Responder::held(http, poll, &self.responses);
            self.refusals.refuse_busy(context, &mut to);
        }
    }

    /// Takes the result of another loop's request that this one has followed; without one, each
    /// has to ask for itself.
    pub(crate) fn followed(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: FetchId,
        result: Option<&UpstreamResult>,
    ) {
        if let Some(result) = result {
            return self.result_came(context, http, fetch, result, false);
        }
        let Some(fetch) = self.misses.close(&mut self.waiters.keys, fetch) else {
            return;
        };
        self.each_for_itself(context, http, &fetch, &fetch.members);
        self.end_fetch(context, http, &fetch);
    }

    /// Looks whether the loops that this one follows still ask: the bound on the cost of a lost
    /// word, or of a loop that has ended.
    pub(crate) fn recheck_flights(&mut self, context: &mut Context, http: &mut Http) {
        for token in self.misses.lost() {
            let Some(fetch) = self.misses.close(&mut self.waiters.keys, token) else {
                continue;
            };
            let Some(key) = fetch.key else { continue };
            for token in fetch.members {
                match self.take_member(token) {
                    Some(Member::Poll(poll)) => self.miss_later(context, http, key, poll),
                    Some(Member::Key(sub_fetch)) => {
                        let asker = sub_fetch.asker();
                        if !self.sub_fetches().ask_for(context, &fetch.name, sub_fetch) {
                            self.tell_asker(context, http, asker, FetchedValue::Unknown);
                        }
                    }
                    None => {}
                }
            }
            self.waiters.keys.release(key);
        }
    }
}

/// Gives one client the upstream's answer.
fn pass_on(
    context: &mut Context,
    poll: &Poll,
    answer: &Answer,
    cursor: Option<&CursorText>,
    cache_status: &[u8],
    to: &mut Responder<'_, '_>,
) {
    let mut fields: Vec<(&str, &[u8])> = answer
        .fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_ref()))
        .collect();
    fields.push(("Cache-Status", cache_status));
    // A HEAD brought no body to take the cursor of.
    let has_cursor = poll.ask.method != Method::Head;
    if let (true, Some(cursor)) = (has_cursor, cursor) {
        fields.push(("Poll-Cursor", cursor.bare()));
        fields.push(answers::EXPOSED);
    }
    let body = match (poll.ask.method, answer.content_length) {
        (Method::Head, length) => Body::Absent(length),
        _ => Body::Shared(answer.body.clone()),
    };
    to.ends(PollOutcome::Miss);
    to.send(
        context,
        &Response {
            status: answer.status,
            fields: &fields,
            body,
        },
    );
}

/// Tells one client that the application gave no answer.
pub(super) fn tell_failure(
    refusals: &mut Refusals,
    context: &mut Context,
    error: &UpstreamError,
    to: &mut Responder<'_, '_>,
) {
    let (status, text) = (error.status(), format!("upstream: {error}"));
    if status == 503 {
        refusals.unavailable(context, to, PollOutcome::Failed, &text);
    } else {
        to.ends(PollOutcome::Failed);
        to.text(context, status, &text);
    }
}

/// The reason for a stale value, as `Cache-Status` gives it (RFC 9211).
pub(super) enum StaleReason<'a> {
    /// The application was not asked.
    Memory,
    /// It answered with this status.
    Answered(u16),
    /// It did not answer.
    Failed(&'a UpstreamError),
}

impl StaleReason<'_> {
    /// Source: RFC 9211 section 2: a hit that is stale has a negative `ttl`.
    fn cache_status(&self, known: &StaleValue) -> String {
        match self {
            Self::Memory => format!("dwell; hit; ttl=-{}", known.staleness.as_secs()),
            Self::Answered(status) => format!("dwell; fwd=stale; fwd-status={status}"),
            Self::Failed(error) => format!("dwell; fwd=stale; detail=\"{error}\""),
        }
    }
}

/// The part of an answer that is the same for all who share it.
struct Shared {
    cursor: Option<CursorText>,
    is_remembered: bool,
}
