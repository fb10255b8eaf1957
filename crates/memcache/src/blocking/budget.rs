//! The time an operation has.

use std::time::{Duration, Instant};

/// The beginning of an operation, and the time it may take.
///
/// The clock is read at the beginning, and then only when an operation has to wait a second time:
/// an answer that comes in one piece is never timed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    started: Instant,
    limit: Option<Duration>,
    /// True until some of it is used.
    is_whole: bool,
}

/// The time is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Elapsed;

impl Budget {
    pub(crate) fn start(limit: Option<Duration>) -> Self {
        Self {
            started: Instant::now(),
            limit,
            is_whole: true,
        }
    }

    pub(crate) const fn started(&self) -> Instant {
        self.started
    }

    pub(crate) const fn limit(&self) -> Option<Duration> {
        self.limit
    }

    /// Returns true at the beginning of an operation, when the limit is still whole.
    pub(crate) const fn is_whole(&self) -> bool {
        self.is_whole
    }

    /// Notes that some of it was used.
    pub(crate) const fn has_begun(&mut self) {
        self.is_whole = false;
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.started.elapsed()
    }

    /// Returns the rest; `None` if there is no limit.
    pub(crate) fn rest(&self) -> Result<Option<Duration>, Elapsed> {
        let Some(limit) = self.limit else {
            return Ok(None);
        };
        match limit.checked_sub(self.elapsed()) {
            Some(rest) if !rest.is_zero() => Ok(Some(rest)),
            _ => Err(Elapsed),
        }
    }

    /// The same, but ending at the latest `limit` from now.
    pub(crate) fn at_most(&self, limit: Option<Duration>) -> Self {
        let elapsed = self.elapsed();
        let from_start = limit.map(|limit| elapsed.saturating_add(limit));
        let limit = match (self.limit, from_start) {
            (Some(whole), Some(part)) => Some(whole.min(part)),
            (whole, part) => whole.or(part),
        };
        Self {
            limit,
            is_whole: false,
            ..*self
        }
    }

    /// The same, but leaving as much for each of `parts` that are still to come.
    pub(crate) fn share(&self, parts: u32) -> Self {
        match self.rest() {
            Ok(Some(rest)) => self.at_most(Some(rest / parts.max(1))),
            _ => *self,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HOUR: Duration = Duration::from_secs(3600);

    #[test]
    fn no_limit_is_never_over() {
        let budget = Budget::start(None);
        assert_eq!(budget.rest(), Ok(None));
        assert_eq!(budget.share(3).rest(), Ok(None));
        assert!(budget.at_most(Some(HOUR)).rest().unwrap() <= Some(HOUR));
    }

    #[test]
    fn nothing_left_is_over() {
        assert_eq!(Budget::start(Some(Duration::ZERO)).rest(), Err(Elapsed));
        let budget = Budget::start(Some(HOUR));
        assert_eq!(budget.at_most(Some(Duration::ZERO)).rest(), Err(Elapsed));
        let third = budget.share(3).rest().unwrap().unwrap();
        assert!(third <= HOUR / 3 && third > HOUR / 4);
    }
}
