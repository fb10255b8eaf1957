//! Answers to misses that are too large to be gathered.

use super::Polls;
use super::ask::Method;
use super::missing::Said;
use super::responder::{Responder, request_line};
use super::tables::kind;
use crate::held::hold;
use crate::metrics::PollOutcome;
use crate::proxy::{Adopted, FORWARD_LOOK};
use dwell_engine::Http;
use dwell_evloop::{Context, Token};
use dwell_upstream::AnswerPart;

impl Polls {
    /// An answer is too large to be shared: it goes on to the client whose request was sent, and
    /// the others ask for themselves.
    pub(super) fn answer_is_large(
        &mut self,
        context: &mut Context,
        http: &mut Http,
        fetch: Token,
        connection: Token,
        parts: &[AnswerPart],
    ) {
        let Some(closed) = self.close_fetch(fetch) else {
            return;
        };
        if closed.key.is_some() {
            self.end_flight_for_each(&closed.name, closed.common.variant);
        }
        let mut polls = closed.polls.clone();
        let missing = polls.extract_if(.., |token| token.kind() == kind::MISSING);
        for token in missing.collect::<Vec<_>>() {
            self.missing_ends(context, http, token, Said::Unknown);
        }
        let own = closed
            .polls
            .first()
            .filter(|token| polls.first() == Some(*token));
        let mut is_taken = false;
        if let Some(poll) = own.and_then(|token| self.records.remove(*token)) {
            polls.remove(0);
            self.metrics.polls.increment(PollOutcome::Miss);
            let kept = poll.request.as_deref();
            let adopted = Adopted {
                exchange: poll.exchange,
                arrived: poll.arrived,
                line: kept.and_then(|kept| request_line(kept.head())),
                is_head: poll.ask.method == Method::Head,
            };
            if let Some(forward) = self.forwards.adopt(http, &adopted, connection, fetch) {
                is_taken = true;
                hold(
                    http,
                    context,
                    poll.exchange,
                    forward.to_bits(),
                    FORWARD_LOOK,
                );
                self.forwards
                    .parts(context, http, forward, connection, parts);
            } else {
                let mut to = Responder::held(http, &poll, &self.responses);
                self.refuse_busy(context, poll.route, &mut to);
            }
        }
        if !is_taken {
            self.forwards.cancel(connection, fetch);
        }
        self.each_for_itself(context, http, &closed, &polls);
        if let Some(key) = closed.key {
            self.keys.release(key);
        }
        self.next_in_queue(context, http, closed.queue);
    }
}
