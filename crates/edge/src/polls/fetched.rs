//! Misses as they end: which poll gets the answer of a fetch, and which asks once more.

use super::Polls;
use super::answers::{self, FETCHED};
use super::ask::Method;
use super::feeds::Known;
use super::large::TooLarge;
use super::misses::{SubFetch, UpstreamResult};
use super::recall::StaleReason;
use super::tables::Poll;
use crate::cursor::{Cursor, CursorText};
use crate::ids::{FetchId, FetchMember, Packed};
use crate::metrics::{PollOutcome, UpstreamOutcome};
use crate::responder::Responder;
use dwell_engine::{Body, Http, Response};
use dwell_evloop::Context;
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
                connection, parts, ..
            } => {
                let poll = self.answer_is_large(context, http, fetch);
                return Some(TooLarge {
                    connection,
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
                self.fill(context, &fetch.name, &answer.body, lifetime);
            }
        }
        let rules = self.routes.get(fetch.route);
        let stale = self.misses.instead_of(rules, &fetch, result, context.now());
        let mut members = fetch.members.clone();
        self.queue_up(context, http, &fetch, result, &mut members);
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
                    self.key_fetched(context, http, &sub_fetch, result, stale.as_ref());
                    continue;
                }
                None => continue,
            };
            self.metrics
                .http_request_duration
                .observe(context.now().duration_since(poll.arrived));
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
                    self.tell_failure(context, error, &mut to);
                }
            }
        }
        if let Some(key) = fetch.key {
            self.waiters.keys.release(key);
        }
        self.next_in_queue(context, http, fetch.queue);
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
        self.pass_on(context, http, poll, answer, shared.cursor.as_ref(), status);
    }

    /// Gives one client the upstream's answer.
    fn pass_on(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        poll: &Poll,
        answer: &Answer,
        cursor: Option<&CursorText>,
        cache_status: &[u8],
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
        let mut to = Responder::held(http, poll, &self.responses);
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
        &mut self,
        context: &mut Context,
        error: &UpstreamError,
        to: &mut Responder<'_, '_>,
    ) {
        to.ends(PollOutcome::Failed);
        let (status, text) = (error.status(), format!("upstream: {error}"));
        if status == 503 {
            self.refuse(context, to, &text);
        } else {
            to.text(context, status, &text);
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
        for token in others.extract_if(.., is_key).collect::<Vec<_>>() {
            self.turn_away(context, http, token);
        }
        let sender = fetch.members.first();
        let sender = sender.filter(|sender| others.first() == Some(*sender));
        let own = sender.and_then(|member| match member.id() {
            FetchMember::Poll(poll) => self.waiters.remove(poll),
            FetchMember::SubFetch(_) => None,
        });
        if own.is_some() {
            others.remove(0);
            self.metrics.polls.increment(PollOutcome::Miss);
        }
        self.each_for_itself(context, http, &fetch, &others);
        if let Some(key) = fetch.key {
            self.waiters.keys.release(key);
        }
        self.next_in_queue(context, http, fetch.queue);
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
            self.refuse_busy(context, &mut to);
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
        if let Some(key) = fetch.key {
            self.waiters.keys.release(key);
        }
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
                        self.ask_again(context, http, &fetch.name, sub_fetch);
                    }
                    None => {}
                }
            }
            self.waiters.keys.release(key);
        }
    }
}

/// The part of an answer that is the same for all who share it.
struct Shared {
    cursor: Option<CursorText>,
    is_remembered: bool,
}
