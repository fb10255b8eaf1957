//! Whether a server may be asked, by what has come of asking it.

use std::time::{Duration, Instant};

/// How servers are looked after while nobody asks them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// What is asked for by `GET`.
    pub path: String,
    /// How often, and how long an answer may take.
    pub interval: Duration,
}

/// A breaker: so many failures in a row open it, and one success closes it.
///
/// Shape: open, it lets nothing through for a while that grows with every failed trial, and then
/// one request at a time: the trial. The instants are given, and so is what is random.
#[derive(Debug)]
pub(super) struct Breaker {
    failures_max: u32,
    failures: u32,
    state: State,
    /// How long it stays open next, at most.
    delay: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Closed,
    Open {
        until: Instant,
    },
    /// One request is on its way; should nothing come of it by then, another is tried.
    Trying {
        until: Instant,
    },
}

/// Whether a server may be asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permit {
    Yes,
    /// Once, to see whether it answers.
    Trial,
    No,
}

impl Breaker {
    pub(super) fn new(failures_max: u32) -> Self {
        Self {
            failures_max,
            failures: 0,
            state: State::Closed,
            delay: DELAY_MIN,
        }
    }

    pub(super) fn permit(&self, now: Instant) -> Permit {
        match self.state {
            State::Closed => Permit::Yes,
            State::Open { until } | State::Trying { until } if until <= now => Permit::Trial,
            State::Open { .. } | State::Trying { .. } => Permit::No,
        }
    }

    pub(super) fn is_closed(&self) -> bool {
        self.state == State::Closed
    }

    /// The trial is sent, and has so long.
    pub(super) fn begin_trial(&mut self, now: Instant, patience: Duration) {
        let until = now + patience;
        self.state = State::Trying { until };
    }

    /// Nothing has come of the trial, good or bad: another may be made at once.
    pub(super) fn end_trial(&mut self, now: Instant) {
        if matches!(self.state, State::Trying { .. }) {
            self.state = State::Open { until: now };
        }
    }

    /// The server has answered; true if it had not for a while.
    pub(super) fn succeeded(&mut self) -> bool {
        let was_open = !self.is_closed();
        self.failures = 0;
        self.state = State::Closed;
        self.delay = DELAY_MIN;
        was_open
    }

    /// The server has not answered; true if it is left alone from now on.
    ///
    /// Shape: from a half of the delay on, by `random`, so that loops and edges do not try
    /// together. Requests that were sent before it opened and fail later change nothing.
    pub(super) fn failed(&mut self, now: Instant, random: u64) -> bool {
        self.failures = self.failures.saturating_add(1);
        let opens = match self.state {
            State::Closed => self.failures >= self.failures_max,
            State::Trying { .. } => true,
            State::Open { .. } => false,
        };
        if !opens {
            return false;
        }
        let was_closed = self.is_closed();
        let half = self.delay / 2;
        let spread = u64::try_from(half.as_millis()).unwrap_or(u64::MAX);
        let until = now + half + Duration::from_millis(random % spread.max(1));
        self.state = State::Open { until };
        self.delay = (self.delay * 2).min(DELAY_MAX);
        was_closed
    }
}

/// How long a server is left alone at first, at most.
const DELAY_MIN: Duration = Duration::from_secs(1);
/// How long in the end.
const DELAY_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn open(now: Instant) -> Breaker {
        let mut breaker = Breaker::new(3);
        assert!(!breaker.failed(now, 0));
        assert!(!breaker.failed(now, 0));
        assert!(breaker.failed(now, 0));
        breaker
    }

    #[test]
    fn failures_in_a_row_open_it_and_a_success_between_them_does_not() {
        let now = Instant::now();
        let mut breaker = Breaker::new(3);
        for _ in 0..10 {
            assert!(!breaker.failed(now, 0));
            assert!(!breaker.failed(now, 0));
            assert!(!breaker.succeeded());
        }
        assert_eq!(breaker.permit(now), Permit::Yes);
        assert_eq!(open(now).permit(now), Permit::No);
    }

    #[test]
    fn one_trial_is_let_through_when_the_time_has_come() {
        let now = Instant::now();
        let mut breaker = open(now);
        let later = now + DELAY_MIN / 2;
        assert_eq!(breaker.permit(now + DELAY_MIN / 3), Permit::No);
        assert_eq!(breaker.permit(later), Permit::Trial);
        breaker.begin_trial(later, PATIENCE);
        assert_eq!(breaker.permit(later), Permit::No);
        assert!(breaker.succeeded());
        assert_eq!(breaker.permit(later), Permit::Yes);
    }

    #[test]
    fn a_trial_of_which_nothing_comes_does_not_close_it_for_ever() {
        let now = Instant::now();
        let mut breaker = open(now);
        breaker.begin_trial(now, PATIENCE);
        assert_eq!(breaker.permit(now + PATIENCE), Permit::Trial);
    }

    #[test]
    fn each_failed_trial_makes_the_time_longer_up_to_a_bound() {
        let mut now = Instant::now();
        let mut breaker = open(now);
        let mut waits = Vec::new();
        for _ in 0..6 {
            let opened = now;
            while breaker.permit(now) != Permit::Trial {
                now += Duration::from_millis(10);
            }
            waits.push(now - opened);
            breaker.begin_trial(now, PATIENCE);
            assert!(!breaker.failed(now, 0), "it was open before");
        }
        let seconds: Vec<_> = waits.iter().map(Duration::as_millis).collect();
        assert_eq!(seconds, [500, 1000, 2000, 4000, 5000, 5000]);
    }

    #[test]
    fn late_failures_do_not_make_the_time_longer() {
        let now = Instant::now();
        let mut breaker = open(now);
        let later = now + DELAY_MIN / 2;
        assert!(!breaker.failed(later, 0));
        assert_eq!(breaker.permit(later), Permit::Trial);
    }

    #[test]
    fn chance_spreads_the_trials_over_half_of_the_time() {
        let now = Instant::now();
        let mut breaker = Breaker::new(1);
        assert!(breaker.failed(now, u64::MAX));
        assert_eq!(breaker.permit(now + DELAY_MIN), Permit::Trial);
        let mut breaker = Breaker::new(1);
        assert!(breaker.failed(now, 499));
        assert_eq!(breaker.permit(now + Duration::from_millis(998)), Permit::No);
        assert_eq!(
            breaker.permit(now + Duration::from_millis(999)),
            Permit::Trial
        );
    }
}
