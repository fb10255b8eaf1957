//! The outcomes of the requests of the last seconds, by path and by client.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// The path and the client of a request, each as one of 256 places.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Witness {
    path: u8,
    client: u8,
}

impl Witness {
    /// Returns the witness of the request that begins with this head.
    ///
    /// Shape: the query does not count, so that one resource is one place.
    pub(super) fn of(head: &[u8], client: Option<IpAddr>) -> Self {
        let target = head.split(|byte| *byte == b' ').nth(1).unwrap_or_default();
        let path = target.split(|byte| *byte == b'?').next();
        Self {
            path: place_of(&path),
            client: place_of(&client),
        }
    }
}

fn place_of(what: &impl Hash) -> u8 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish().to_le_bytes()[0]
}

/// The outcomes of a server's requests within a window of time.
///
/// Shape: per path and per client the newest outcome counts, not how many there were. So one path
/// that always fails is one failure however often it is asked for, and so is one client. The
/// window moves by half of its length.
#[derive(Debug)]
pub(super) struct Recent {
    window: Duration,
    began: Option<Instant>,
    now: Half,
    before: Half,
}

#[derive(Clone, Copy, Debug, Default)]
struct Half {
    failures: u32,
    paths: Newest,
    clients: Newest,
}

/// The newest outcome of each place.
#[derive(Clone, Copy, Debug, Default)]
struct Newest {
    seen: [u64; 4],
    failed: [u64; 4],
}

impl Newest {
    fn note(&mut self, place: u8, has_failed: bool) {
        let (word, bit) = (usize::from(place / 64), 1 << (place % 64));
        self.seen[word] |= bit;
        if has_failed {
            self.failed[word] |= bit;
        } else {
            self.failed[word] &= !bit;
        }
    }

    /// Returns true if more than half of all places have failed last.
    fn has_mostly_failed(&self, before: &Self) -> bool {
        let (mut seen, mut failed) = (0, 0);
        for word in 0..self.seen.len() {
            let older = before.failed[word] & !self.seen[word];
            seen += (self.seen[word] | before.seen[word]).count_ones();
            failed += (self.failed[word] | older).count_ones();
        }
        2 * failed > seen
    }
}

impl Recent {
    pub(super) fn new(window: Duration) -> Self {
        Self {
            window,
            began: None,
            now: Half::default(),
            before: Half::default(),
        }
    }

    /// Takes a request's outcome in.
    pub(super) fn note(&mut self, now: Instant, witness: Witness, has_failed: bool) {
        self.move_on(now);
        self.now.failures = self.now.failures.saturating_add(u32::from(has_failed));
        self.now.paths.note(witness.path, has_failed);
        self.now.clients.note(witness.client, has_failed);
    }

    /// Returns true if at least so many requests have failed, and the newest outcome is a failure
    /// for more than half of the paths, and for more than half of the clients.
    pub(super) fn has_mostly_failed(&self, failures_min: u32) -> bool {
        self.now.failures.saturating_add(self.before.failures) >= failures_min
            && self.now.paths.has_mostly_failed(&self.before.paths)
            && self.now.clients.has_mostly_failed(&self.before.clients)
    }

    /// Forgets all.
    pub(super) fn clear(&mut self) {
        *self = Self::new(self.window);
    }

    fn move_on(&mut self, now: Instant) {
        let half = self.window / 2;
        let began = *self.began.get_or_insert(now);
        let age = now.saturating_duration_since(began);
        if age < half {
            return;
        }
        let is_next = age < self.window;
        let past = std::mem::take(&mut self.now);
        self.before = if is_next { past } else { Half::default() };
        self.began = Some(if is_next { began + half } else { now });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(30);
    const MIN: u32 = 5;

    fn witness(path: u8, client: u8) -> Witness {
        Witness { path, client }
    }

    #[test]
    fn the_query_of_a_target_does_not_count() {
        let place = |head: &[u8]| Witness::of(head, None);
        let plain = place(b"GET /a HTTP/1.1\r\nHost: a\r\n\r\n");
        assert_eq!(place(b"GET /a?b=c HTTP/1.1\r\n\r\n"), plain);
        assert_ne!(place(b"GET /b HTTP/1.1\r\n\r\n"), plain);
        let client = Some("192.0.2.1".parse().unwrap());
        assert_ne!(Witness::of(b"GET /a HTTP/1.1\r\n\r\n", client), plain);
    }

    #[test]
    fn a_server_that_answers_nothing_has_mostly_failed() {
        let now = Instant::now();
        let mut recent = Recent::new(WINDOW);
        for count in 1..=MIN {
            recent.note(now, witness(1, 1), true);
            assert_eq!(recent.has_mostly_failed(MIN), count == MIN);
        }
    }

    #[test]
    fn one_path_is_one_failure_however_often_it_is_asked_for() {
        let now = Instant::now();
        let mut recent = Recent::new(WINDOW);
        recent.note(now, witness(2, 9), false);
        for client in 0..200 {
            recent.note(now, witness(1, client), true);
        }
        assert!(!recent.has_mostly_failed(MIN));
    }

    #[test]
    fn one_client_is_one_failure_whatever_it_asks_for() {
        let now = Instant::now();
        let mut recent = Recent::new(WINDOW);
        recent.note(now, witness(201, 2), false);
        for path in 0..200 {
            recent.note(now, witness(path, 1), true);
        }
        assert!(!recent.has_mostly_failed(MIN));
    }

    #[test]
    fn many_paths_of_many_clients_are_many_failures() {
        let now = Instant::now();
        let mut recent = Recent::new(WINDOW);
        for place in 0..200 {
            recent.note(now, witness(place, place), place % 3 != 0);
        }
        assert!(recent.has_mostly_failed(MIN));
        for place in 0..200 {
            recent.note(now, witness(place, place), place % 3 == 0);
        }
        assert!(!recent.has_mostly_failed(MIN), "the newest outcome counts");
    }

    #[test]
    fn what_is_older_than_the_window_does_not_count() {
        let start = Instant::now();
        let mut recent = Recent::new(WINDOW);
        for _ in 0..MIN - 1 {
            recent.note(start, witness(1, 1), true);
        }
        let mut later = Recent { ..recent };
        recent.note(start + WINDOW / 2, witness(1, 1), true);
        assert!(recent.has_mostly_failed(MIN));
        later.note(start + WINDOW, witness(1, 1), true);
        assert!(!later.has_mostly_failed(MIN));
        // Slower than so many in a window, they never add up.
        let mut slow = Recent::new(WINDOW);
        for count in 0..100 {
            slow.note(start + count * WINDOW / 4, witness(1, 1), true);
            assert!(!slow.has_mostly_failed(MIN + 1), "{count}");
        }
    }
}
