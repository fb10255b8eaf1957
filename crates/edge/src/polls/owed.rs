//! A bound on waits for memcached, the application and other loops. Each of these has deadlines of
//! its own; this one limits the effect of a fault in them.

use super::key_state::MultiPoll;
use super::{Polls, tables::Poll};
use crate::held::held;
use crate::ids::{PollId, PublishId, ResponseSource};
use crate::metrics::PollOutcome;
use crate::responder::Responder;
use dwell_engine::{Http, Outcome, Reply};
use dwell_evloop::{Context, Id};
use std::time::Duration;

/// The reason for which an answer is given up, for the log.
pub(super) const OVERDUE: &str = "no answer in time";
/// Beyond the time that memcached and the application have.
const SPARE: Duration = Duration::from_secs(5);
/// Longest time for a response that is sent when the turn ends.
const AT_ONCE: Duration = Duration::from_secs(1);

impl Polls {
    /// Longest time for a response that depends on memcached and the application. The application
    /// may have to be asked twice, if its first response was for another client.
    pub(crate) fn owed_time(&self) -> Duration {
        let (cache, upstream) = (&self.config.memcached, &self.config.upstream);
        let cache = cache.connect_timeout.saturating_add(cache.timeout);
        let upstream = upstream.total_timeout.saturating_mul(2);
        cache.saturating_mul(3).saturating_add(upstream) + SPARE
    }

    /// Resumes a poll whose time is over and that waits for no change, or answers it with 504.
    pub(super) fn owed_expired(
        &mut self,
        context: &mut Context,
        token: PollId,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        if let Some(outcome) = self.resume_granted(context, token, reply) {
            return outcome;
        }
        let Some(poll) = self.waiters.remove(token) else {
            return Outcome::Close;
        };
        let mut to = Responder::ended(reply, &poll, &self.responses);
        to.ends(PollOutcome::Failed);
        to.text(context, 504, OVERDUE);
        Outcome::Answered
    }

    /// Handles a publish whose result memcached has not sent in time.
    pub(crate) fn publish_expired(&mut self, publish: PublishId) -> Outcome {
        if self.publisher.expire(publish) || self.publisher.has_finished() {
            // It is answered when the turn ends.
            return held(publish.to_bits(), AT_ONCE);
        }
        Outcome::Close
    }

    /// Returns true if an exchange waits for its response.
    pub(crate) fn owes(&self) -> bool {
        self.waiters.owes()
    }

    /// Returns true if the end of a turn has left something to be sent: a step may produce work for
    /// one before it.
    pub(crate) fn has_left(&self) -> bool {
        let is_sent = !self.lookups.has_left() && !self.misses.has_left();
        let has_orders = self.publisher.has_commands() || self.publisher.has_finished();
        !is_sent || self.delivery.has_left() || has_orders
    }

    /// Looks at everything that waits, of every kind, whether what it waits for is still there: as
    /// with [`recheck`](Self::recheck), nothing is expected to be found.
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
            self.multi_poll_asked(context, http, token);
        }
        let tokens = self.waiters.polls().tokens();
        let lost: Vec<_> = tokens
            .filter(|token| {
                self.waiters
                    .polls()
                    .get(*token)
                    .is_some_and(|poll| self.is_lost(poll))
            })
            .collect();
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

    /// Returns true if the source of a poll's response is gone.
    fn is_lost(&self, poll: &Poll) -> bool {
        match poll.place.source() {
            Some(ResponseSource::Key(key)) => self.waiters.keys.get(key).is_none(),
            Some(ResponseSource::Lookup(lookup)) => !self.lookups.is_open(lookup),
            Some(ResponseSource::Fetch(fetch)) => !self.misses.is_open(fetch),
            Some(ResponseSource::Subrequest(subrequest)) => {
                !self.gate.subrequests.is_open(subrequest)
            }
            None => false,
        }
    }
}
