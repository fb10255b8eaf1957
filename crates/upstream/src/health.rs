//! The health of a server: it decides by the outcomes of requests if more are sent.

use std::time::{Duration, Instant};

use super::UpstreamError;
use super::recent::{Recent, Witness};
use dwell_evloop::Backoff;

/// Health checks of servers without requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthCheck {
    /// The target of the check, which is a `GET`.
    pub path: String,
    /// The interval of checks, and the timeout of one.
    pub interval: Duration,
}

/// The evidence of a failed request against its server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Nothing: it was not sent.
    None,
    /// The server could not be connected to.
    Connection,
    /// The server is there, and this request got no answer: the request may be why.
    Gateway,
}

impl Fault {
    pub(super) fn of(error: &UpstreamError) -> Self {
        match error {
            // A server that has too much to do is not one that is dead.
            UpstreamError::QueueFull { .. }
            | UpstreamError::QueueTimeout(_)
            | UpstreamError::Descriptors
            | UpstreamError::Unavailable => Self::None,
            UpstreamError::Connect(_)
            | UpstreamError::ConnectTimeout(_)
            | UpstreamError::Handshake(_) => Self::Connection,
            _ => Self::Gateway,
        }
    }
}

/// The health of one server.
///
/// Shape: it is left out after so many failed connection attempts in a row, or failed health
/// checks in a row, or when most of what it was asked within the window failed. Then nothing goes
/// to it for a while that grows with every failed trial, and after that one request at a time: the
/// trial. The instants are given. (memcached clients have a breaker of their own, which counts
/// failures in a row alone and is closed by a probe.)
#[derive(Debug)]
pub(super) struct Health {
    failures_max: u32,
    /// Connection attempts that failed, in a row.
    unconnected: u32,
    /// Health checks that failed, in a row.
    unhealthy: u32,
    recent: Recent,
    state: State,
    /// Times that it was ejected, or stayed so, in a row.
    ejections: u32,
    backoff: Backoff,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    InUse,
    LeftOut {
        until: Instant,
    },
    /// One request is on its way; should nothing come of it by then, another is tried.
    HalfOpen {
        until: Instant,
    },
}

/// The permission to send a request to a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Permit {
    Yes,
    /// Once, to see whether it answers.
    Trial,
    No,
}

impl Health {
    /// A server in use; `seed` decides the random parts of its delays, so that loops and edges do
    /// not try together.
    pub(super) fn new(failures_max: u32, window: Duration, seed: u64) -> Self {
        Self {
            failures_max,
            unconnected: 0,
            unhealthy: 0,
            recent: Recent::new(window),
            state: State::InUse,
            ejections: 0,
            backoff: Backoff::new(DELAY_MIN, DELAY_MAX, seed),
        }
    }

    pub(super) fn permit(&self, now: Instant) -> Permit {
        match self.state {
            State::InUse => Permit::Yes,
            State::LeftOut { until } | State::HalfOpen { until } if until <= now => Permit::Trial,
            State::LeftOut { .. } | State::HalfOpen { .. } => Permit::No,
        }
    }

    /// Returns true if requests go to it as to any other.
    pub(super) fn is_in_use(&self) -> bool {
        self.state == State::InUse
    }

    /// Returns true if its health checks fail: no request is sent, even if no other server is left.
    pub(super) fn is_down(&self) -> bool {
        self.unhealthy >= self.failures_max
    }

    /// The trial is sent, and has the time `timeout`.
    pub(super) fn begin_trial(&mut self, now: Instant, timeout: Duration) {
        let until = now + timeout;
        self.state = State::HalfOpen { until };
    }

    /// Nothing has come of the trial, good or bad: another may be made at once.
    pub(super) fn end_trial(&mut self, now: Instant) {
        if matches!(self.state, State::HalfOpen { .. }) {
            self.state = State::LeftOut { until: now };
        }
    }

    /// The server has answered a request; true if that brings it back, where an answer may.
    pub(super) fn answered(&mut self, now: Instant, witness: Witness, may_return: bool) -> bool {
        self.unconnected = 0;
        if !self.is_in_use() {
            return may_return && self.comes_back();
        }
        self.recent.note(now, witness, false);
        self.ejections = 0;
        false
    }

    /// A connection attempt has failed; true if the server is left out from now on.
    pub(super) fn unconnected(&mut self, now: Instant) -> bool {
        self.unconnected = self.unconnected.saturating_add(1);
        self.fails(now, self.unconnected >= self.failures_max)
    }

    /// A request got no answer; true if the server is left out from now on.
    ///
    /// Shape: where it may not be left out, what it came to is remembered all the same.
    pub(super) fn unanswered(&mut self, now: Instant, witness: Witness, may_leave: bool) -> bool {
        self.unconnected = 0;
        self.recent.note(now, witness, true);
        let leaves = may_leave && self.recent.has_mostly_failed(self.failures_max);
        self.fails(now, leaves)
    }

    /// A health check has succeeded; true if the server is back.
    pub(super) fn note_passed_check(&mut self) -> bool {
        self.unconnected = 0;
        self.unhealthy = 0;
        !self.is_in_use() && self.comes_back()
    }

    /// A health check has failed; true if the server is left out from now on.
    pub(super) fn note_failed_check(&mut self, now: Instant) -> bool {
        self.unhealthy = self.unhealthy.saturating_add(1);
        self.fails(now, self.is_down())
    }

    fn comes_back(&mut self) -> bool {
        self.state = State::InUse;
        self.recent.clear();
        self.ejections = 0;
        true
    }

    /// Leaves the server out, if that is to be or its trial has failed; true if it was in use.
    ///
    /// Shape: requests that were sent before and fail later change nothing.
    fn fails(&mut self, now: Instant, leaves: bool) -> bool {
        let is_left_out = match self.state {
            State::InUse => leaves,
            State::HalfOpen { .. } => true,
            State::LeftOut { .. } => false,
        };
        if !is_left_out {
            return false;
        }
        let was_in_use = self.is_in_use();
        self.ejections = self.ejections.saturating_add(1);
        let until = now + self.backoff.delay(self.ejections);
        self.state = State::LeftOut { until };
        was_in_use
    }
}

/// The longest time for which a server is ejected at first.
const DELAY_MIN: Duration = Duration::from_secs(1);
/// The longest time in the end.
const DELAY_MAX: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    const PATIENCE: Duration = Duration::from_secs(60);
    const WINDOW: Duration = Duration::from_secs(30);
    const STEP: Duration = Duration::from_millis(10);

    fn health(failures_max: u32) -> Health {
        Health::new(failures_max, WINDOW, 7)
    }

    fn witness(path: &str) -> Witness {
        Witness::of(format!("GET {path} HTTP/1.1\r\n").as_bytes(), None)
    }

    fn left_out(now: Instant) -> Health {
        let mut health = health(3);
        assert!(!health.unconnected(now));
        assert!(!health.unconnected(now));
        assert!(health.unconnected(now));
        health
    }

    #[test]
    fn failed_attempts_to_connect_in_a_row_leave_it_out_and_an_answer_between_them_does_not() {
        let now = Instant::now();
        let mut health = health(3);
        for _ in 0..10 {
            assert!(!health.unconnected(now));
            assert!(!health.unconnected(now));
            assert!(!health.answered(now, witness("/"), true));
        }
        assert_eq!(health.permit(now), Permit::Yes);
        assert_eq!(left_out(now).permit(now), Permit::No);
    }

    #[test]
    fn one_url_that_fails_leaves_no_server_out_that_answers_another() {
        let start = Instant::now();
        let mut health = health(5);
        let mut now = start;
        while now < start + 10 * WINDOW {
            assert!(!health.answered(now, witness("/good"), true));
            for _ in 0..500 {
                assert!(!health.unanswered(now, witness("/bad"), true));
            }
            now += Duration::from_millis(100);
        }
        assert_eq!(health.permit(now), Permit::Yes);
    }

    #[test]
    fn a_server_that_answers_nothing_is_left_out_where_that_may_be() {
        let now = Instant::now();
        let mut health = health(3);
        for _ in 0..100 {
            assert!(!health.unanswered(now, witness("/a"), false));
        }
        assert!(health.unanswered(now, witness("/a"), true));
        assert_eq!(health.permit(now), Permit::No);
        assert!(!health.is_down(), "it may be asked if no other is left");
    }

    #[test]
    fn what_it_failed_before_does_not_count_when_it_is_back() {
        let now = Instant::now();
        let mut health = health(3);
        for _ in 0..3 {
            health.unanswered(now, witness("/a"), true);
        }
        let later = now + DELAY_MIN;
        health.begin_trial(later, PATIENCE);
        assert!(health.answered(later, witness("/b"), true));
        assert!(!health.unanswered(later, witness("/a"), true));
        assert!(!health.unanswered(later, witness("/a"), true));
        assert_eq!(health.permit(later), Permit::Yes);
    }

    #[test]
    fn only_its_health_checks_bring_a_server_down_and_back() {
        let now = Instant::now();
        let mut health = health(2);
        assert!(!health.note_failed_check(now));
        assert!(!health.answered(now, witness("/"), false));
        assert!(
            health.note_failed_check(now),
            "an answer to a request is no check"
        );
        assert!(health.is_down());
        assert!(!health.answered(now, witness("/"), false));
        assert!(health.is_down());
        assert!(health.note_passed_check());
        assert!(!health.is_down() && health.is_in_use());
    }

    #[test]
    fn one_trial_is_let_through_when_the_time_has_come() {
        let now = Instant::now();
        let mut health = left_out(now);
        let later = now + DELAY_MIN;
        assert_eq!(health.permit(now + DELAY_MIN / 3), Permit::No);
        assert_eq!(health.permit(later), Permit::Trial);
        health.begin_trial(later, PATIENCE);
        assert_eq!(health.permit(later), Permit::No);
        assert!(health.answered(later, witness("/"), true));
        assert_eq!(health.permit(later), Permit::Yes);
    }

    #[test]
    fn a_trial_of_which_nothing_comes_does_not_leave_it_out_for_ever() {
        let now = Instant::now();
        let mut health = left_out(now);
        health.begin_trial(now, PATIENCE);
        assert_eq!(health.permit(now + PATIENCE), Permit::Trial);
    }

    #[test]
    fn each_failed_trial_makes_the_time_longer_up_to_a_bound() {
        let mut now = Instant::now();
        let mut health = left_out(now);
        let mut waits = Vec::new();
        for _ in 0..6 {
            let opened = now;
            while health.permit(now) != Permit::Trial {
                now += STEP;
            }
            waits.push(now - opened);
            health.begin_trial(now, PATIENCE);
            assert!(
                !health.unanswered(now, witness("/"), false),
                "it was out before"
            );
        }
        for (wait, longest) in waits.into_iter().zip([1, 2, 4, 8, 10, 10]) {
            let longest = Duration::from_secs(longest);
            let is_spread = (longest / 2..=longest + STEP).contains(&wait);
            assert!(is_spread, "{wait:?} of {longest:?}");
        }
    }

    #[test]
    fn late_failures_do_not_make_the_time_longer() {
        let now = Instant::now();
        let mut health = left_out(now);
        let later = now + DELAY_MIN;
        assert!(!health.unconnected(later));
        assert_eq!(health.permit(later), Permit::Trial);
    }

    #[test]
    fn chance_spreads_the_trials_over_half_of_the_time() {
        let now = Instant::now();
        let first_trial = |seed| {
            let mut health = Health::new(1, WINDOW, seed);
            assert!(health.unconnected(now));
            assert_eq!(health.permit(now + DELAY_MIN / 3), Permit::No);
            assert_eq!(health.permit(now + DELAY_MIN), Permit::Trial);
            (0..=100).find(|steps| health.permit(now + STEP * *steps) == Permit::Trial)
        };
        let trials: HashSet<_> = (0..100).map(first_trial).collect();
        assert!(trials.len() > 20, "{trials:?}");
    }
}
