//! The figures of one wave: a key is set, and all clients get it.

use serde_json::{Value, json};

/// A wave as the clients' process has told it, with the times of the parent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wave {
    /// Clients that waited when the key was set.
    pub(super) expected: usize,
    /// Clients that got another value.
    pub(super) wrong: usize,
    /// From the command that set the key until each client had the value, in ascending order.
    /// Units: nanoseconds.
    pub(super) took_ns: Vec<u64>,
    /// Time that the server had a processor. Units: nanoseconds.
    pub(super) cpu_ns: Option<u64>,
}

impl Wave {
    /// Reads the line of the clients' process; `set_ns` is when the key was set.
    pub(super) fn read(line: &Value, set_ns: u64, cpu_ns: Option<u64>) -> Option<Self> {
        let count = |name: &str| usize::try_from(line[name].as_u64()?).ok();
        let at = line["at_ns"].as_array()?.iter();
        let took = at.map(|at| Some(at.as_u64()?.saturating_sub(set_ns)));
        let mut took_ns = took.collect::<Option<Vec<_>>>()?;
        took_ns.sort_unstable();
        Some(Self {
            expected: count("expected")?,
            wrong: count("wrong")?,
            took_ns,
            cpu_ns,
        })
    }

    /// Returns true if every client got the value.
    pub(super) fn is_complete(&self) -> bool {
        self.took_ns.len() == self.expected && self.wrong == 0
    }

    /// The figures as JSON. Units: milliseconds.
    pub(super) fn document(&self) -> Value {
        let last = self.took_ns.last().copied().unwrap_or(0);
        let bucket_ns = (last / BUCKETS as u64 + 1).max(1);
        let mut histogram = [0_u32; BUCKETS];
        for took in &self.took_ns {
            let bucket = usize::try_from(took / bucket_ns).unwrap_or(usize::MAX);
            histogram[bucket.min(BUCKETS - 1)] += 1;
        }
        json!({
            "expected": self.expected,
            "answered": self.took_ns.len(),
            "wrong": self.wrong,
            "first_ms": self.at(0.0),
            "p50_ms": self.at(0.50),
            "p99_ms": self.at(0.99),
            "last_ms": self.at(1.0),
            "server_cpu_ms": self.cpu_ns.map(milliseconds),
            "bucket_ms": milliseconds(bucket_ns),
            "histogram": histogram.to_vec(),
        })
    }

    /// The time by which this share of the clients had the value (the nearest rank).
    pub(super) fn at(&self, share: f64) -> Option<f64> {
        let count = self.took_ns.len();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a share of a count is a count"
        )]
        let rank = (share * count as f64).ceil() as usize;
        self.took_ns.get(rank.max(1) - 1).copied().map(milliseconds)
    }
}

/// Units: nanoseconds to milliseconds, with three decimals.
#[expect(clippy::cast_precision_loss, reason = "times are far below 2^52 ns")]
pub(super) fn milliseconds(ns: u64) -> f64 {
    (ns / 1000) as f64 / 1000.0
}

/// Bars of the histogram.
const BUCKETS: usize = 50;

#[cfg(test)]
mod tests {
    use super::*;

    fn wave(at_ms: &[u64], expected: usize, wrong: usize) -> Wave {
        let at: Vec<_> = at_ms.iter().map(|at| 7_000_000 + at * 1_000_000).collect();
        let line = json!({"expected": expected, "wrong": wrong, "at_ns": at});
        Wave::read(&line, 7_000_000, Some(2_500_000)).expect("it is whole")
    }

    #[test]
    fn the_figures_are_those_of_the_sorted_times() {
        let times: Vec<_> = (1..=100).rev().collect();
        let wave = wave(&times, 100, 0);
        assert!(wave.is_complete());
        let document = wave.document();
        for (name, expected) in [
            ("first_ms", 1.0),
            ("p50_ms", 50.0),
            ("p99_ms", 99.0),
            ("last_ms", 100.0),
            ("server_cpu_ms", 2.5),
        ] {
            assert_eq!(document[name], expected, "{name}");
        }
        let histogram = document["histogram"].as_array().expect("an array");
        let counts: Vec<_> = histogram.iter().filter_map(Value::as_u64).collect();
        assert_eq!((counts.len(), counts.iter().sum()), (BUCKETS, 100_u64));
        assert!(counts.iter().all(|count| *count <= 3), "{counts:?}");
    }

    #[test]
    fn a_client_without_the_value_is_missing() {
        assert!(!wave(&[1, 2], 3, 0).is_complete());
        assert!(!wave(&[1, 2], 3, 1).is_complete());
        let none = wave(&[], 1, 0).document();
        assert_eq!(
            (&none["answered"], &none["last_ms"]),
            (&json!(0), &Value::Null)
        );
    }

    #[test]
    fn a_line_that_is_not_whole_is_none() {
        for line in [
            json!({}),
            json!({"expected": 1, "wrong": 0, "at_ns": ["x"]}),
        ] {
            assert_eq!(Wave::read(&line, 0, None), None);
        }
    }
}
