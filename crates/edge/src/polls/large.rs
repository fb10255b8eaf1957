//! Answers to misses that are too large to be gathered.

use super::Polls;
use super::ask::Method;
use super::missing::Said;
use super::tables::{Fetch, kind};
use super::to::{To, request_line};
use crate::forward::{Adopted, FORWARD_LOOK};
use crate::held::hold;
use crate::metrics::PollOutcome;
use crate::upstream::AnswerPart;
use dwell_engine::Http;
use dwell_evloop::{Context, Token};

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
        let Some(Fetch {
            key,
            name,
            polls,
            method,
            ..
        }) = self.close_fetch(fetch)
        else {
            return;
        };
        if key.is_some() {
            self.end_flight_for_each(&name, method);
        }
        let mut is_taken = false;
        for (place, token) in polls.into_iter().enumerate() {
            if token.kind() == kind::MISSING {
                self.missing_ends(context, http, token, Said::Unknown);
                continue;
            }
            let Some(poll) = self.records.remove(token) else {
                continue;
            };
            if place > 0 {
                self.send_kept(context, http, None, &name, poll);
                continue;
            }
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
                let mut to = To::held(http, &poll, &self.journal);
                self.refuse_busy(context, poll.route, &mut to);
            }
        }
        if !is_taken {
            self.forwards.cancel(connection, fetch);
        }
        if let Some(key) = key {
            self.keys.release(key);
        }
    }
}
