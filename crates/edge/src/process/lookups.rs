//! Lookups of names that end in time, for checks and reloads. The resolver of the system has no
//! such bound.

use super::error::RunError;
use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// The result of `work`, if it does not take longer; then its thread is left behind.
///
/// Shape: with no time left, or with 32 threads left behind, `work` is not begun.
pub(super) fn within<T: Send + 'static>(
    limit: Duration,
    work: impl FnOnce() -> T + Send + 'static,
) -> Option<T> {
    if limit.is_zero() {
        return None;
    }
    let place = Place::take()?;
    let (sender, receiver) = mpsc::sync_channel(1);
    let work = move || {
        let result = work();
        drop(place);
        drop(sender.send(result));
    };
    thread::Builder::new().spawn(work).ok()?;
    receiver.recv_timeout(limit).ok()
}

/// The place of one thread among those that may be in progress.
struct Place;

static TAKEN: AtomicUsize = AtomicUsize::new(0);

impl Place {
    fn take() -> Option<Self> {
        let next = |taken: usize| (taken < THREADS_MAX).then_some(taken + 1);
        let taken = TAKEN.fetch_update(Ordering::AcqRel, Ordering::Acquire, next);
        taken.is_ok().then_some(Self)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        TAKEN.fetch_sub(1, Ordering::AcqRel);
    }
}

/// The time for several lookups, one after the other.
#[derive(Debug)]
pub(super) struct LookupTime {
    end: Instant,
}

impl LookupTime {
    /// All of them take at most the time `all`.
    pub(super) fn new(all: Duration) -> Self {
        let end = Instant::now() + all;
        Self { end }
    }

    /// The result of looking up `name`, the value of `option`.
    ///
    /// # Errors
    /// The errors of the lookup, and [`RunError::Resolve`] if it does not end in time.
    pub(super) fn look_up<T: Send + 'static>(
        &self,
        (name, option): (String, &'static str),
        work: impl FnOnce() -> Result<T, RunError> + Send + 'static,
    ) -> Result<T, RunError> {
        let left = self.end.saturating_duration_since(Instant::now());
        let limit = LOOKUP_LIMIT.min(left);
        within(limit, work).unwrap_or_else(|| {
            let text = format!("no answer of the resolver within {} s", limit.as_secs());
            let source = io::Error::new(io::ErrorKind::TimedOut, text);
            Err(RunError::Resolve {
                name,
                option,
                source,
            })
        })
    }
}

/// Threads of lookups that the resolver of the system keeps waiting.
const THREADS_MAX: usize = 32;
/// The time for one lookup.
pub(super) const LOOKUP_LIMIT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_takes_too_long_is_left_behind() {
        let (release, gate) = mpsc::channel::<()>();
        let late = within(Duration::from_millis(1), move || gate.recv().is_ok());
        assert_eq!(late, None);
        drop(release);
        assert_eq!(within(LOOKUP_LIMIT, || 7), Some(7));
        assert_eq!(within(Duration::ZERO, || 7), None, "no time is left");
    }

    #[test]
    fn a_name_that_is_looked_up_for_too_long_is_told_with_its_option() {
        let (release, gate) = mpsc::channel::<()>();
        let name = || ("cache.test:6379".to_owned(), "redis.url");
        let time = LookupTime::new(Duration::from_millis(1));
        let late = time.look_up(name(), move || Ok(gate.recv().is_ok()));
        let error = late.unwrap_err().to_string();
        let told =
            "cannot resolve cache.test:6379 (redis.url): no answer of the resolver within 0 s";
        assert_eq!(error, told);
        drop(release);
        let time = LookupTime::new(LOOKUP_LIMIT);
        assert_eq!(time.look_up(name(), || Ok(7)).unwrap(), 7);
    }
}
