//! The time that a client has for the body of its request.

use std::time::{Duration, Instant};

/// The time that is left to a client while its body is waited for.
///
/// Shape: it has `timeout` at first. Waiting for it takes from that, every byte that comes gives
/// the time back that the byte may take at the lowest rate, and there is never more than `timeout`
/// left. So a body of `n` bytes has `timeout + n / rate_min` in all, and one that pauses has no
/// more than `timeout`, however quick it was before. While nothing is wanted of the client, no time
/// passes. With a rate of 0 every byte gives all time back.
#[derive(Debug)]
pub(crate) struct BodyPace {
    /// Nanoseconds that were left at `since`; below 0 where it is late.
    left: i64,
    /// The time from which on it is waited for, if it is.
    since: Option<Instant>,
}

impl BodyPace {
    /// Nothing is waited for yet.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self {
            left: nanoseconds(timeout),
            since: None,
        }
    }

    /// The client is waited for from now on.
    pub(crate) fn wait(&mut self, now: Instant) {
        self.since.get_or_insert(now);
    }

    /// Nothing is wanted of it for now.
    pub(crate) fn rest(&mut self, now: Instant) {
        self.left = self.left_at(now);
        self.since = None;
    }

    /// Notes that so many bytes have come.
    pub(crate) fn received(&mut self, now: Instant, bytes: usize, timeout: Duration, rate: u32) {
        let given = match (bytes as u64, u64::from(rate)) {
            (0, _) => 0,
            (_, 0) => i64::MAX,
            (bytes, rate) => {
                i64::try_from(bytes.saturating_mul(NANOSECONDS) / rate).unwrap_or(i64::MAX)
            }
        };
        let left = self.left_at(now).saturating_add(given);
        self.left = left.min(nanoseconds(timeout));
        if let Some(since) = &mut self.since {
            *since = now;
        }
    }

    /// The time for which it may still be waited for: none where it is late.
    pub(crate) fn left(&self, now: Instant) -> Duration {
        let left = u64::try_from(self.left_at(now));
        left.map_or(Duration::ZERO, Duration::from_nanos)
    }

    fn left_at(&self, now: Instant) -> i64 {
        let waited = self.since.map(|since| now.saturating_duration_since(since));
        self.left.saturating_sub(waited.map_or(0, nanoseconds))
    }
}

const NANOSECONDS: u64 = 1_000_000_000;

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const TIMEOUT: Duration = Duration::from_secs(30);
    const RATE: u32 = 500;

    /// Seconds after which a client is late that sends so much in each of so many milliseconds,
    /// within an hour.
    fn late_after(bytes: usize, every: u64, rate: u32) -> Option<u64> {
        let start = Instant::now();
        let mut pace = BodyPace::new(TIMEOUT);
        pace.wait(start);
        (1..3_600_000 / every).find_map(|piece| {
            let now = start + Duration::from_millis(piece * every);
            pace.received(now, bytes, TIMEOUT, rate);
            pace.left(now).is_zero().then_some(piece * every / 1000)
        })
    }

    #[test]
    fn a_body_has_its_time_and_that_of_its_bytes() {
        // However small its pieces are.
        assert_eq!(late_after(0, 100, RATE), Some(30));
        assert_eq!(late_after(1, 10, RATE), Some(37));
        assert_eq!(late_after(1, 12_000, RATE), Some(36));
        assert_eq!(late_after(250, 1000, RATE), Some(60));
        assert_eq!(late_after(400, 1000, RATE), Some(150));
        for (bytes, every) in [(500, 1000), (5, 10), (10_000, 20_000), (100_000, 100)] {
            assert_eq!(
                late_after(bytes, every, RATE),
                None,
                "{bytes} every {every} ms"
            );
        }
    }

    #[test]
    fn haste_is_no_leave_for_a_long_pause() {
        let start = Instant::now();
        let mut pace = BodyPace::new(TIMEOUT);
        pace.wait(start);
        pace.received(start, 10_000_000, TIMEOUT, RATE);
        assert_eq!(pace.left(start), TIMEOUT);
        assert_eq!(pace.left(start + TIMEOUT), Duration::ZERO);
    }

    #[test]
    fn time_in_which_nothing_is_wanted_is_not_the_clients() {
        let start = Instant::now();
        let mut pace = BodyPace::new(TIMEOUT);
        let mut now = start;
        for _ in 0..100 {
            assert_eq!(pace.left(now), TIMEOUT);
            now += 10 * TIMEOUT;
        }
        for left in (1..30).rev() {
            pace.wait(now);
            pace.wait(now + Duration::from_millis(500));
            now += Duration::from_secs(1);
            pace.rest(now);
            now += 10 * TIMEOUT;
            assert_eq!(pace.left(now), Duration::from_secs(left));
        }
        pace.wait(now);
        assert_eq!(pace.left(now + Duration::from_secs(1)), Duration::ZERO);
    }

    #[test]
    fn without_a_rate_any_byte_is_enough() {
        assert_eq!(late_after(1, 29_000, 0), None);
        assert_eq!(late_after(1, 30_000, 0), None);
        assert_eq!(late_after(0, 1000, 0), Some(30));
    }

    #[test]
    fn times_without_end_do_not_overflow() {
        let now = Instant::now();
        let mut pace = BodyPace::new(Duration::MAX);
        pace.wait(now);
        pace.received(now, usize::MAX, Duration::MAX, 1);
        assert!(!pace.left(now + TIMEOUT).is_zero());
    }
}
