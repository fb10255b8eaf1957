//! Request rates.
//!
//! A bucket of tokens is one number: the time at which it will be full again (the generic cell rate
//! algorithm). A full bucket is therefore the same as none, and nothing has to be refilled. The
//! table of all buckets has a fixed size: places of eight bytes, eight of them per hash. The place
//! of a full bucket is taken for the next client; if none of the eight is full, the fullest one is
//! taken.
//!
//! All loops share one table, so a rate is that of the process. A place is one atomic, changed by
//! compare-and-swap: no thread waits for another.

use crate::config::Rate;
use std::hash::{BuildHasher, Hash, RandomState};
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// The subject of a rate: requests of equal subjects are counted together.
#[derive(Clone, Copy, Debug, Hash)]
pub(crate) enum RateKey<'a> {
    /// Requests of a client address, if it is known.
    Address(Option<IpAddr>),
    /// Requests for a key.
    Key(&'a [u8]),
    /// Requests of a client address that store or remove values.
    Publisher(Option<IpAddr>),
    /// Frames with values on one WebSocket, by its loop and its token there.
    Socket(usize, u64),
    /// Messages of any kind on one WebSocket, by the keys they name.
    Messages(usize, u64),
}

/// The buckets of all clients.
#[derive(Debug)]
pub(crate) struct Limiter {
    /// A mark that separates clients of the same hash, and the time at which the bucket is full.
    places: Box<[AtomicU64]>,
    hasher: RandomState,
    started: Instant,
}

/// Places that one hash may take.
const WAYS: usize = 8;
/// Bits of a time, in sixteenths of a millisecond: four years from the start.
const TIME_BITS: u32 = 41;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;
/// Swaps that may fail before a request is admitted uncounted.
const ATTEMPTS_MAX: usize = 8;

impl Limiter {
    /// Makes a table of at least `buckets` buckets; times count from `started`.
    pub(crate) fn new(buckets: usize, started: Instant) -> Self {
        Self {
            places: (0..places(buckets)).map(|_| AtomicU64::new(0)).collect(),
            hasher: RandomState::new(),
            started,
        }
    }

    /// Returns true if a table of `buckets` buckets would have the same size.
    pub(crate) fn is_for(&self, buckets: usize) -> bool {
        self.places.len() == places(buckets)
    }

    /// Takes a token from the bucket of `subject`.
    ///
    /// # Errors
    /// The time until there is one.
    pub(crate) fn take(
        &self,
        subject: impl Hash,
        rate: Rate,
        now: Instant,
    ) -> Result<(), Duration> {
        self.swap(subject, now, |full_at, now| rate.take(full_at, now))
    }

    /// Takes further tokens for a request that was admitted, even if there are fewer: the next
    /// request waits for them.
    pub(crate) fn charge(&self, subject: impl Hash, rate: Rate, now: Instant, tokens: u32) {
        let charged = |full_at, _| Ok(full_at + rate.token() * u64::from(tokens));
        // A charge is never refused.
        let _: Result<(), Duration> = self.swap(subject, now, charged);
    }

    /// Replaces the time at which the bucket of `subject` is full by the result of `next`.
    fn swap(
        &self,
        subject: impl Hash,
        now: Instant,
        next: impl Fn(u64, u64) -> Result<u64, Duration>,
    ) -> Result<(), Duration> {
        let hash = self.hasher.hash_one(subject);
        // The lower bits choose the places, so the mark has the upper ones; 0 is a free place.
        let mark = (hash >> TIME_BITS).max(1);
        let first = hash as usize % (self.places.len() / WAYS) * WAYS;
        let ways = &self.places[first..first + WAYS];
        let now = self.units(now);
        for _ in 0..ATTEMPTS_MAX {
            let (place, seen) = find(ways, mark);
            let is_known = seen >> TIME_BITS == mark;
            let full_at = if is_known {
                (seen & TIME_MASK).max(now)
            } else {
                now
            };
            let bucket = mark << TIME_BITS | (next(full_at, now)? & TIME_MASK);
            // Relaxed: a place orders no other memory.
            let swapped =
                place.compare_exchange(seen, bucket, Ordering::Relaxed, Ordering::Relaxed);
            if swapped.is_ok() {
                break;
            }
        }
        Ok(())
    }

    fn units(&self, now: Instant) -> u64 {
        units(now.saturating_duration_since(self.started)) & TIME_MASK
    }
}

fn places(buckets: usize) -> usize {
    buckets.next_power_of_two().max(WAYS)
}

/// The place of a mark, or the one that is full soonest.
fn find(ways: &[AtomicU64], mark: u64) -> (&AtomicU64, u64) {
    let mut soonest = (&ways[0], ways[0].load(Ordering::Relaxed));
    for way in ways {
        let seen = way.load(Ordering::Relaxed);
        if seen >> TIME_BITS == mark {
            return (way, seen);
        }
        if seen & TIME_MASK < soonest.1 & TIME_MASK {
            soonest = (way, seen);
        }
    }
    soonest
}

impl Rate {
    /// The time in which one token comes.
    fn token(self) -> u64 {
        (units(self.per) / u64::from(self.count)).max(1)
    }

    /// The time at which the bucket is full after a token is taken.
    fn take(self, full_at: u64, now: u64) -> Result<u64, Duration> {
        let one = self.token();
        let next = full_at + one;
        let latest = now + one * u64::from(self.count);
        if next > latest {
            return Err(Duration::from_micros(
                (next - latest) * MICROSECONDS_PER_UNIT_X2 / 2,
            ));
        }
        Ok(next)
    }
}

/// Sixteenths of a millisecond.
fn units(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX / 2) * 2 / MICROSECONDS_PER_UNIT_X2
}

const MICROSECONDS_PER_UNIT_X2: u64 = 125;

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::net::Ipv4Addr;

    fn rate(count: u32, seconds: u64) -> Rate {
        let per = Duration::from_secs(seconds);
        Rate { count, per }
    }

    fn limiter(buckets: usize) -> (Limiter, Instant) {
        let started = Instant::now();
        (Limiter::new(buckets, started), started)
    }

    #[test]
    fn a_full_bucket_is_taken_at_once_and_refilled_evenly() {
        let (limiter, start) = limiter(64);
        let rate = rate(4, 2);
        for _ in 0..4 {
            assert_eq!(limiter.take("a", rate, start), Ok(()));
        }
        let wait = limiter.take("a", rate, start).unwrap_err();
        assert_eq!(wait, Duration::from_millis(500));
        assert_eq!(limiter.take("b", rate, start), Ok(()), "another's bucket");
        let later = start + Duration::from_millis(499);
        assert_eq!(
            limiter.take("a", rate, later),
            Err(Duration::from_millis(1))
        );
        let due = start + wait;
        assert_eq!(limiter.take("a", rate, due), Ok(()));
        assert!(limiter.take("a", rate, due).is_err());
        let full = start + Duration::from_secs(60);
        for _ in 0..4 {
            assert_eq!(limiter.take("a", rate, full), Ok(()));
        }
        assert!(limiter.take("a", rate, full).is_err());
    }

    #[test]
    fn what_is_charged_beyond_the_bucket_is_waited_for() {
        let (limiter, start) = limiter(64);
        let rate = rate(4, 4);
        assert_eq!(limiter.take("a", rate, start), Ok(()));
        limiter.charge("a", rate, start, 9);
        // Ten were taken of four; the seventh second brings the first that is free.
        let wait = limiter.take("a", rate, start).unwrap_err();
        assert_eq!(wait, Duration::from_secs(7));
        assert_eq!(limiter.take("a", rate, start + wait), Ok(()));
        assert_eq!(limiter.take("b", rate, start), Ok(()), "another's bucket");
    }

    #[test]
    fn a_hundred_thousand_addresses_take_no_more_than_the_table() {
        let (limiter, start) = limiter(4096);
        let busy = rate(1, 3600);
        assert_eq!(limiter.places.len(), 4096);
        let is_let_in = |number: u32| limiter.take(Ipv4Addr::from(number), busy, start).is_ok();
        let refused = (0..100_000).filter(|number| !is_let_in(*number)).count();
        // Of a million one is taken for another: the marks have 23 bits.
        assert!(refused <= 5, "{refused}");
        assert_eq!(limiter.places.len(), 4096);
        // Who came last is still known; those before gave way, and were let in.
        assert!(limiter.take(Ipv4Addr::from(99_999), busy, start).is_err());
    }

    #[test]
    fn full_buckets_give_way_before_others() {
        let (limiter, start) = limiter(WAYS);
        let slow = rate(1, 3600);
        assert_eq!(limiter.take("culprit", slow, start), Ok(()));
        for number in 0..10_000_u32 {
            let now = start + Duration::from_millis(u64::from(number) * 20);
            let _ = limiter.take(number, rate(100, 1), now);
        }
        let now = start + Duration::from_secs(300);
        assert!(limiter.take("culprit", slow, now).is_err());
    }

    #[test]
    fn threads_take_each_token_once() {
        let (limiter, start) = limiter(64);
        let rate = rate(1000, 3600);
        let taken: usize = std::thread::scope(|scope| {
            let take = || {
                (0..2000)
                    .filter(|_| limiter.take("a", rate, start).is_ok())
                    .count()
            };
            let threads: Vec<_> = (0..4).map(|_| scope.spawn(take)).collect();
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .sum()
        });
        // A swap that fails eight times lets one in uncounted.
        assert!((1000..1010).contains(&taken), "{taken}");
    }

    /// A bucket as textbooks describe it: tokens that drip in.
    struct Naive {
        tokens: f64,
        at: Duration,
    }

    proptest! {
        #[test]
        fn it_is_a_bucket_of_tokens(
            count in 1..50_u32,
            seconds in 1..10_u32,
            steps in prop::collection::vec(0..2000_u64, 1..200),
        ) {
            let (limiter, start) = limiter(64);
            let rate = rate(count, seconds.into());
            let mut naive = Naive { tokens: f64::from(count), at: Duration::ZERO };
            for step in steps {
                let gone = Duration::from_millis(step);
                let at = naive.at + gone;
                let drip = f64::from(count) / f64::from(seconds) * gone.as_secs_f64();
                naive = Naive { tokens: (naive.tokens + drip).min(f64::from(count)), at };
                let result = limiter.take("a", rate, start + at);
                // Where it is a matter of a rounding, either is right.
                if (naive.tokens - 1.0).abs() > 0.02 {
                    prop_assert_eq!(result.is_ok(), naive.tokens > 1.0, "{}", naive.tokens);
                }
                if result.is_ok() {
                    naive.tokens -= 1.0;
                }
            }
        }
    }
}
