//! The counts of a crowd, without its sockets.

use serde_json::json;
use std::fmt::Write;
use std::time::{Duration, Instant};

/// The counts of the clients, and the wave in progress.
#[derive(Debug, Default)]
pub(super) struct Tally {
    wanted: usize,
    /// Connections on which no value has come yet.
    connecting: usize,
    /// Clients that have a value and wait for the next one.
    waiting: usize,
    /// Connections that have ended.
    lost: u64,
    /// The value that clients get which come back, once their server is to be killed.
    expected: Option<Vec<u8>>,
    /// Clients that got another one.
    missed: u64,
    retry_at: Option<Instant>,
    /// The number of waves so far.
    waves: u32,
    wave: Option<Wave>,
    telling: Telling,
}

/// The clients that waited when a key was set.
#[derive(Debug)]
struct Wave {
    value: Vec<u8>,
    expected: usize,
    wrong: usize,
    /// The times at which the others got the value. Units: nanoseconds.
    at_ns: Vec<u64>,
    deadline: Instant,
}

/// The counts that the parent was told last, and when.
#[derive(Debug, Default)]
struct Telling {
    counts: Option<(usize, usize, u64, u64)>,
    at: Option<Instant>,
}

impl Tally {
    /// Sets the number of clients; it only grows.
    pub(super) fn want(&mut self, clients: usize) {
        self.wanted = self.wanted.max(clients);
    }

    /// Clients that come back from now on have to get `value`.
    pub(super) fn expect(&mut self, value: &str) {
        self.expected = Some(value.into());
        self.missed = 0;
    }

    /// Notes who waits, before `value` is set.
    pub(super) fn begin_wave(&mut self, value: &str, now: Instant) {
        self.waves += 1;
        self.expected = None;
        self.wave = Some(Wave {
            value: value.into(),
            expected: self.waiting,
            wrong: 0,
            at_ns: Vec::with_capacity(self.waiting),
            deadline: now + WAVE_TIMEOUT,
        });
        // The parent sets the key when it has read that its order was taken.
        self.telling = Telling::default();
    }

    /// Counts a value that a client got; returns the number of waves until then.
    ///
    /// Shape: `joined` is the result of the client's last call, `None` for its first value. A
    /// client that got a value since the wave began is not part of it.
    pub(super) fn value(&mut self, joined: Option<u32>, value: &[u8], at_ns: u64) -> u32 {
        match (joined, &mut self.wave) {
            (None, _) => {
                self.connecting = self.connecting.saturating_sub(1);
                self.waiting += 1;
                let is_other = self.expected.as_ref().is_some_and(|it| it != value);
                self.missed += u64::from(is_other);
            }
            (Some(before), Some(wave)) if before < self.waves => {
                if value == wave.value {
                    wave.at_ns.push(at_ns);
                } else {
                    wave.wrong += 1;
                }
            }
            _ => {}
        }
        self.waves
    }

    /// Counts a connection that has ended; `has_value` if its client waited.
    pub(super) fn left(&mut self, has_value: bool, now: Instant) {
        let count = if has_value {
            &mut self.waiting
        } else {
            &mut self.connecting
        };
        *count = count.saturating_sub(1);
        self.lost += 1;
        self.retry_at = Some(now + RETRY);
    }

    /// The end of a turn: the number of connections to open, and the lines for the parent.
    pub(super) fn turned(&mut self, now: Instant) -> (usize, String) {
        let mut told = self.counts_to_tell(now);
        if let Some(wave) = self.wave.take_if(|wave| wave.is_over(now)) {
            let (expected, wrong, at) = (wave.expected, wave.wrong, wave.at_ns);
            let line = json!({"wave": {"expected": expected, "wrong": wrong, "at_ns": at}});
            // Writing to a string does not fail.
            let _ = writeln!(told, "{line}");
        }
        (self.connect(now), told)
    }

    fn connect(&mut self, now: Instant) -> usize {
        if self.retry_at.is_some_and(|at| now < at) {
            return 0;
        }
        self.retry_at = None;
        let missing = self.wanted.saturating_sub(self.waiting + self.connecting);
        let room = CONNECTING_MAX.saturating_sub(self.connecting);
        let connects = missing.min(room).min(BATCH);
        self.connecting += connects;
        connects
    }

    fn counts_to_tell(&mut self, now: Instant) -> String {
        let counts = (self.waiting, self.connecting, self.lost, self.missed);
        let is_soon = self.telling.at.is_some_and(|at| now < at + INTERVAL);
        if self.telling.counts == Some(counts) || (is_soon && self.waiting < self.wanted) {
            return String::new();
        }
        self.telling = Telling {
            counts: Some(counts),
            at: Some(now),
        };
        let (waiting, _, lost, missed) = counts;
        format!(
            "{}\n",
            json!({"waiting": waiting, "lost": lost, "missed": missed, "waves": self.waves})
        )
    }
}

impl Wave {
    fn is_over(&self, now: Instant) -> bool {
        self.at_ns.len() + self.wrong >= self.expected || now >= self.deadline
    }
}

/// Connections that are opened in one turn.
const BATCH: usize = 200;
/// Connections that may wait for their first value.
const CONNECTING_MAX: usize = 500;
/// Time until new connections are tried when one has ended.
const RETRY: Duration = Duration::from_secs(1);
/// Time between two lines of counts while clients are missing.
const INTERVAL: Duration = Duration::from_millis(100);
/// Time for all clients of a wave.
pub(super) const WAVE_TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// `count` clients that wait, and the result of their first values.
    fn waiting(tally: &mut Tally, count: usize, now: Instant) -> u32 {
        tally.want(count);
        let mut joined = 0;
        while tally.waiting < count {
            let (connects, _) = tally.turned(now);
            assert!(connects > 0);
            for _ in 0..connects {
                joined = tally.value(None, b"first", 1);
            }
        }
        joined
    }

    fn told(tally: &mut Tally, now: Instant) -> Vec<Value> {
        let (_, lines) = tally.turned(now);
        let lines = lines.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("lines of JSON")
    }

    #[test]
    fn connections_are_opened_in_batches_and_few_wait_at_once() {
        let now = Instant::now();
        let mut tally = Tally::default();
        tally.want(10_000);
        let batches: Vec<_> = (0..4).map(|_| tally.turned(now).0).collect();
        assert_eq!(batches, [200, 200, 100, 0]);
        tally.value(None, b"first", 1);
        assert_eq!(tally.turned(now).0, 1);
        tally.want(1);
        assert_eq!(tally.wanted, 10_000);
    }

    #[test]
    fn a_lost_connection_is_opened_again_a_little_later() {
        let now = Instant::now();
        let mut tally = Tally::default();
        waiting(&mut tally, 2, now);
        tally.left(true, now);
        assert_eq!(tally.turned(now).0, 0);
        assert_eq!(tally.turned(now + RETRY).0, 1);
        tally.left(false, now);
        assert_eq!((tally.waiting, tally.connecting, tally.lost), (1, 0, 2));
    }

    #[test]
    fn clients_that_come_back_have_to_get_the_value_of_the_key() {
        let now = Instant::now();
        let mut tally = Tally::default();
        waiting(&mut tally, 2, now);
        tally.expect("newest");
        for value in [&b"newest"[..], b"older"] {
            tally.left(true, now);
            assert_eq!(tally.turned(now + RETRY).0, 1);
            tally.value(None, value, 1);
        }
        assert_eq!((tally.waiting, tally.lost, tally.missed), (2, 2, 1));
        tally.expect("newest");
        assert_eq!(tally.missed, 0);
        // Others come after a wave, with its value.
        tally.begin_wave("next", now);
        tally.value(None, b"next", 1);
        assert_eq!(tally.missed, 0);
    }

    #[test]
    fn each_client_of_a_wave_counts_once() {
        let now = Instant::now();
        let mut tally = Tally::default();
        let joined = waiting(&mut tally, 3, now);
        told(&mut tally, now);
        tally.begin_wave("new", now);
        let taken = told(&mut tally, now);
        assert_eq!(
            taken,
            [json!({"waiting": 3, "lost": 0, "missed": 0, "waves": 1})]
        );
        let first = tally.value(Some(joined), b"new", 5);
        // The same client again, and one that has come since.
        tally.value(Some(first), b"new", 6);
        tally.value(None, b"new", 6);
        assert!(
            told(&mut tally, now)
                .iter()
                .all(|line| line.get("wave").is_none())
        );
        tally.value(Some(joined), b"other", 7);
        tally.value(Some(joined), b"new", 8);
        let lines = told(&mut tally, now);
        let wave = json!({"expected": 3, "wrong": 1, "at_ns": [5, 8]});
        assert_eq!(lines.last().map(|line| &line["wave"]), Some(&wave));
        assert_eq!(told(&mut tally, now + INTERVAL), Vec::<Value>::new());
    }

    #[test]
    fn a_wave_ends_without_the_clients_that_get_nothing() {
        let now = Instant::now();
        let mut tally = Tally::default();
        let joined = waiting(&mut tally, 2, now);
        tally.begin_wave("new", now);
        tally.value(Some(joined), b"new", 5);
        assert!(
            told(&mut tally, now)
                .iter()
                .all(|line| line.get("wave").is_none())
        );
        let lines = told(&mut tally, now + WAVE_TIMEOUT);
        let wave = json!({"expected": 2, "wrong": 0, "at_ns": [5]});
        assert_eq!(lines.last().map(|line| &line["wave"]), Some(&wave));
    }

    #[test]
    fn counts_are_told_ten_times_a_second_at_most_while_clients_are_missing() {
        let now = Instant::now();
        let mut tally = Tally::default();
        tally.want(3);
        assert_eq!(told(&mut tally, now).len(), 1);
        tally.value(None, b"first", 1);
        assert_eq!(told(&mut tally, now).len(), 0);
        assert_eq!(told(&mut tally, now + INTERVAL).len(), 1);
        // The last one is told at once.
        tally.value(None, b"first", 1);
        tally.value(None, b"first", 1);
        assert_eq!(told(&mut tally, now + INTERVAL).len(), 1);
    }
}
