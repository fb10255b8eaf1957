//! Requests that are refused with 503 and a time to come back at, and the log of the limits that
//! are the reason.

use crate::config::{Config, LimitsConfig};
use crate::log::LogThrottle;
use crate::metrics::PollOutcome;
use crate::responder::Responder;
use crate::retry_after::RetryAfter;
use dwell_engine::Outcome;
use dwell_evloop::Context;
use std::sync::Arc;
use std::time::Instant;

/// The reason why a request, or a key of a WebSocket, is not taken on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    /// `limits.waiters_max` is reached.
    TooManyWait,
    /// A table is full, whose bound is this loop's share of `limits.connections_max`.
    Busy,
    /// The server ends.
    ShuttingDown,
    /// A reload has removed the route, and with it the rules for its clients.
    RouteGone,
}

impl Refusal {
    /// The words that the client gets.
    pub(super) fn text(self) -> &'static str {
        match self {
            Self::TooManyWait => "too many polls are waiting",
            Self::Busy => "too many requests are in progress",
            Self::ShuttingDown => "shutting down",
            Self::RouteGone => "the route is gone",
        }
    }
}

/// Refusals of one loop.
#[derive(Debug)]
pub(super) struct Refusals {
    retry_after: RetryAfter,
    log: Arc<LimitLog>,
    /// The limits of the process, as the log names them where one is reached.
    config: Arc<Config>,
    loops: usize,
}

impl Refusals {
    /// Refusals of one of `loops`, which share the limits evenly.
    pub(super) fn new(seed: u64, log: Arc<LimitLog>, config: Arc<Config>, loops: usize) -> Self {
        Self {
            retry_after: RetryAfter::new(seed),
            log,
            config,
            loops,
        }
    }

    /// Goes by the limits of another configuration, which the log has.
    pub(super) fn reconfigure(&mut self, config: &Arc<Config>) {
        self.config = Arc::clone(config);
    }

    /// Counts a refusal, and logs the limit that is its reason if that is due.
    pub(super) fn note(&self, context: &Context, refusal: Refusal) {
        let limits = &self.config.limits;
        self.log.refused(context.now(), refusal, limits, self.loops);
    }

    /// Refuses a poll or stream, which ends by it.
    pub(super) fn refuse(
        &mut self,
        context: &mut Context,
        to: &mut Responder<'_, '_>,
        refusal: Refusal,
    ) -> Outcome {
        self.note(context, refusal);
        self.unavailable(context, to, PollOutcome::Refused, refusal.text())
    }

    /// As [`refuse`](Self::refuse), as no further request can be taken on.
    pub(super) fn refuse_busy(
        &mut self,
        context: &mut Context,
        to: &mut Responder<'_, '_>,
    ) -> Outcome {
        self.refuse(context, to, Refusal::Busy)
    }

    /// Answers 503 for another reason than a limit, with a time to come back at.
    pub(super) fn unavailable(
        &mut self,
        context: &mut Context,
        to: &mut Responder<'_, '_>,
        outcome: PollOutcome,
        reason: &str,
    ) -> Outcome {
        let seconds = self.retry_after.next(context.now());
        to.ends(outcome);
        to.text_with(context, 503, reason, &[("Retry-After", seconds.as_bytes())]);
        Outcome::Answered
    }
}

/// The log lines of all loops about their limits: one for each limit in ten seconds.
#[derive(Debug, Default)]
pub(crate) struct LimitLog {
    /// Refusals at `limits.waiters_max`.
    waiters: LogThrottle,
    /// Refusals at `limits.connections_max`, which bounds the requests that are held, too.
    requests: LogThrottle,
}

/// A limit that is reached, with the refusals since it was logged last.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Reached {
    option: &'static str,
    limit: usize,
    refused: u64,
}

impl LimitLog {
    /// Counts a refusal, and logs the limit that is its reason if that is due.
    ///
    /// Shape: `loops` share the limits evenly. Other reasons than a limit are ignored.
    fn refused(&self, now: Instant, refusal: Refusal, limits: &LimitsConfig, loops: usize) {
        let Some(reached) = self.reached(now, refusal, limits) else {
            return;
        };
        let Reached {
            option,
            limit,
            refused,
        } = reached;
        let per_loop = crate::config::share(limit, loops);
        tracing::warn!(
            refused,
            limit,
            per_loop,
            "{option} is reached: requests get 503, and WebSockets an error"
        );
    }

    fn reached(&self, now: Instant, refusal: Refusal, limits: &LimitsConfig) -> Option<Reached> {
        let (throttle, option, limit) = match refusal {
            Refusal::TooManyWait => (&self.waiters, "limits.waiters_max", limits.waiters_max),
            Refusal::Busy => (
                &self.requests,
                "limits.connections_max",
                limits.connections_max,
            ),
            Refusal::ShuttingDown | Refusal::RouteGone => return None,
        };
        throttle.note(now).map(|refused| Reached {
            option,
            limit,
            refused,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_limit_is_named_with_its_own_value_once_in_a_while() {
        let (log, now) = (LimitLog::default(), dwell_evloop::now());
        let limits = LimitsConfig {
            connections_max: 7,
            waiters_max: 3,
            ..LimitsConfig::default()
        };
        let told = |after, refusal| log.reached(now + Duration::from_secs(after), refusal, &limits);
        let line = |option, limit, refused| {
            Some(Reached {
                option,
                limit,
                refused,
            })
        };
        assert_eq!(
            told(0, Refusal::TooManyWait),
            line("limits.waiters_max", 3, 1)
        );
        assert_eq!(told(0, Refusal::Busy), line("limits.connections_max", 7, 1));
        assert_eq!(told(1, Refusal::TooManyWait), None);
        assert_eq!(told(1, Refusal::ShuttingDown), None);
        assert_eq!(
            told(10, Refusal::TooManyWait),
            line("limits.waiters_max", 3, 2)
        );
        assert_eq!(
            told(10, Refusal::Busy),
            line("limits.connections_max", 7, 1)
        );
    }
}
