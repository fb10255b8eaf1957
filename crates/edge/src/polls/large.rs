//! Answers to misses that are too large to be gathered.

use super::Polls;
use super::ask::Method;
use super::misses::FetchedValue;
use super::responder::{Responder, request_line};
use super::tables::{Poll, kind};
use crate::metrics::PollOutcome;
use dwell_engine::{ExchangeId, Http};
use dwell_evloop::{Context, Token};
use dwell_upstream::AnswerPart;
use std::time::Instant;

/// The beginning of an answer that polls cannot take as a whole.
#[derive(Debug)]
pub(crate) struct TooLarge {
    /// The exchange with the application, and the fetch that it is for.
    pub(crate) connection: Token,
    pub(crate) fetch: Token,
    pub(crate) parts: Vec<AnswerPart>,
    /// The poll whose request was sent, if its client is still there and may have the answer.
    pub(super) poll: Option<Poll>,
}

/// The client of a poll that takes its answer in parts.
#[derive(Debug)]
pub(crate) struct LargeClient<'a> {
    pub(crate) exchange: ExchangeId,
    pub(crate) arrived: Instant,
    /// Method and target, where the access log wants them.
    pub(crate) line: Option<(&'a str, &'a str)>,
    pub(crate) is_head: bool,
}

impl TooLarge {
    /// The client that the answer goes on to.
    pub(crate) fn client(&self) -> Option<LargeClient<'_>> {
        let poll = self.poll.as_ref()?;
        let kept = poll.request.as_deref();
        Some(LargeClient {
            exchange: poll.exchange,
            arrived: poll.arrived,
            line: kept.and_then(|kept| request_line(kept.head())),
            is_head: poll.ask.method == Method::Head,
        })
    }
}

impl Polls {
    /// Ends a fetch whose answer is too large to be shared: it goes on to the client whose request
    /// was sent, which is returned, and the others ask for themselves.
    pub(super) fn answer_is_large(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: Token,
    ) -> Option<Poll> {
        let closed = self.close_fetch(fetch)?;
        if closed.key.is_some() {
            self.end_flight_for_each(&closed.name, closed.common.variant);
        }
        let mut polls = closed.polls.clone();
        let missing = polls.extract_if(.., |token| token.kind() == kind::MISSING);
        for token in missing.collect::<Vec<_>>() {
            self.missing_ends(context, http, token, FetchedValue::Unknown);
        }
        let own = closed
            .polls
            .first()
            .filter(|token| polls.first() == Some(*token));
        let own = own.and_then(|token| self.waiters.remove(*token));
        if own.is_some() {
            polls.remove(0);
            self.metrics.polls.increment(PollOutcome::Miss);
        }
        self.each_for_itself(context, http, &closed, &polls);
        if let Some(key) = closed.key {
            self.waiters.keys.release(key);
        }
        self.next_in_queue(context, http, closed.queue);
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
}
