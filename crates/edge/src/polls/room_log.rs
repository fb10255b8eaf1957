//! Refusals because a limit of the process is reached, as the log has them.

use super::waiters::{BUSY, TOO_MANY_WAIT};
use crate::config::LimitsConfig;
use crate::log::LogThrottle;
use std::time::Instant;

/// The log lines of all loops about their limits: one for each limit in ten seconds.
#[derive(Debug, Default)]
pub(crate) struct RoomLog {
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

impl RoomLog {
    /// Counts a refusal for this reason, and logs the limit if that is due.
    ///
    /// Shape: `loops` share the limits evenly. Other reasons than a limit are ignored.
    pub(super) fn refused(&self, now: Instant, reason: &str, limits: &LimitsConfig, loops: usize) {
        let Some(reached) = self.reached(now, reason, limits) else {
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

    fn reached(&self, now: Instant, reason: &str, limits: &LimitsConfig) -> Option<Reached> {
        let (throttle, option, limit) = match reason {
            TOO_MANY_WAIT => (&self.waiters, "limits.waiters_max", limits.waiters_max),
            BUSY => (
                &self.requests,
                "limits.connections_max",
                limits.connections_max,
            ),
            _ => return None,
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
    use super::super::waiters::SHUTTING_DOWN;
    use super::*;
    use std::time::Duration;

    #[test]
    fn each_limit_is_named_with_its_own_value_once_in_a_while() {
        let (log, now) = (RoomLog::default(), dwell_evloop::now());
        let limits = LimitsConfig {
            connections_max: 7,
            waiters_max: 3,
            ..LimitsConfig::default()
        };
        let told = |after, reason| log.reached(now + Duration::from_secs(after), reason, &limits);
        let line = |option, limit, refused| {
            Some(Reached {
                option,
                limit,
                refused,
            })
        };
        assert_eq!(told(0, TOO_MANY_WAIT), line("limits.waiters_max", 3, 1));
        assert_eq!(told(0, BUSY), line("limits.connections_max", 7, 1));
        assert_eq!(told(1, TOO_MANY_WAIT), None);
        assert_eq!(told(1, SHUTTING_DOWN), None);
        assert_eq!(told(10, TOO_MANY_WAIT), line("limits.waiters_max", 3, 2));
        assert_eq!(told(10, BUSY), line("limits.connections_max", 7, 1));
    }
}
