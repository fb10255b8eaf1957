//! The last hour in coarse steps, kept whether or not the page is open.

use std::collections::VecDeque;
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

/// Time between two of its readings.
pub(crate) const HISTORY_INTERVAL: Duration = Duration::from_secs(10);
/// The same in milliseconds, the unit of a reading's time.
const STEP: u64 = HISTORY_INTERVAL.as_millis() as u64;
/// Readings that are kept: those of an hour, and the one at its beginning.
const READINGS_MAX: usize = 361;
/// Bytes of all of them. Beyond it the oldest go, so that less than an hour is kept.
const BYTES_MAX: usize = 512 * 1024;

/// A reading that is kept.
#[derive(Clone, Debug)]
pub(super) struct Reading {
    /// Units: milliseconds since the start.
    pub(super) at: u64,
    pub(super) resident_bytes: Option<u64>,
    /// Counts and gauges, as a JSON object. Equal neighbours share it.
    pub(super) figures: Arc<str>,
}

impl Reading {
    fn write(&self, text: &mut String) {
        let resident = (self.resident_bytes).map_or("null".to_owned(), |bytes| bytes.to_string());
        let members = self.figures.strip_prefix('{').unwrap_or("}");
        // Writing to a string does not fail.
        let _ = write!(
            text,
            "{{\"at\":{},\"resident_bytes\":{resident},{members}",
            self.at
        );
    }
}

/// The readings of the last hour, the oldest first.
#[derive(Debug, Default)]
pub(super) struct History {
    readings: VecDeque<Reading>,
    /// Bytes of the figures, those that are shared counted once.
    bytes: usize,
}

impl History {
    /// Adds a reading, and returns whether its figures differ from those of the last one. It is
    /// not kept if the last one is younger than the interval.
    pub(super) fn add(&mut self, mut reading: Reading) -> bool {
        self.fill_until(reading.at);
        let Some(last) = self.readings.back() else {
            self.push(reading);
            return true;
        };
        let is_changed = last.figures != reading.figures;
        if reading.at.saturating_sub(last.at) >= STEP {
            if !is_changed {
                reading.figures = Arc::clone(&last.figures);
            }
            self.push(reading);
        }
        is_changed
    }

    /// Repeats the last reading for the time in which none was taken, as nothing was counted.
    fn fill_until(&mut self, at: u64) {
        let Some(last) = self.readings.back().cloned() else {
            return;
        };
        let missed = (at.saturating_sub(last.at) / STEP).saturating_sub(1);
        for step in missed.saturating_sub(READINGS_MAX as u64)..missed {
            let at = last.at + (step + 1) * STEP;
            self.push(Reading { at, ..last.clone() });
        }
    }

    fn push(&mut self, reading: Reading) {
        let is_shared =
            (self.readings.back()).is_some_and(|last| Arc::ptr_eq(&last.figures, &reading.figures));
        self.bytes += if is_shared { 0 } else { reading.figures.len() };
        self.readings.push_back(reading);
        while self.readings.len() > READINGS_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.readings.pop_front() else {
                break;
            };
            let is_shared = (self.readings.front())
                .is_some_and(|next| Arc::ptr_eq(&next.figures, &oldest.figures));
            self.bytes -= if is_shared { 0 } else { oldest.figures.len() };
        }
    }

    /// The readings as the members of a JSON array, with the one of now behind them.
    pub(super) fn with(&mut self, now: &Reading) -> String {
        self.fill_until(now.at);
        let mut text = String::new();
        for reading in &self.readings {
            reading.write(&mut text);
            text.push(',');
        }
        now.write(&mut text);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(at: u64, figures: &str) -> Reading {
        Reading {
            at,
            resident_bytes: Some(5),
            figures: figures.into(),
        }
    }

    fn times(history: &History) -> Vec<u64> {
        history.readings.iter().map(|reading| reading.at).collect()
    }

    #[test]
    fn an_hour_is_kept_in_bounded_memory() {
        let mut history = History::default();
        for number in 0..1000 {
            assert!(history.add(reading(number * STEP, &format!("{{\"n\":{number}}}"))));
        }
        assert_eq!(history.readings.len(), READINGS_MAX);
        let text = history.with(&reading(1000 * STEP, "{\"n\":1000}"));
        assert!(text.starts_with("{\"at\":6390000,\"resident_bytes\":5,\"n\":639},{"));
        assert!(text.ends_with(",{\"at\":10000000,\"resident_bytes\":5,\"n\":1000}"));
        for number in 1000..2000 {
            history.add(reading(number * STEP, &format!("{{{number:10000}}}")));
        }
        let bytes: usize = (history.readings.iter())
            .map(|reading| reading.figures.len())
            .sum();
        assert_eq!(history.bytes, bytes);
        assert!((BYTES_MAX - 10_002..=BYTES_MAX).contains(&bytes), "{bytes}");
        history.add(reading(2000 * STEP, &"y".repeat(BYTES_MAX + 1)));
        assert_eq!((history.readings.len(), history.bytes), (0, 0));
    }

    #[test]
    fn equal_figures_are_kept_once() {
        let mut history = History::default();
        assert!(history.add(reading(0, "{}")));
        for number in 1..1000 {
            assert!(!history.add(reading(number * STEP, "{}")));
        }
        assert_eq!((history.readings.len(), history.bytes), (READINGS_MAX, 2));
        for number in 1000..2000 {
            history.add(reading(number * STEP, "{ }"));
        }
        assert_eq!((history.readings.len(), history.bytes), (READINGS_MAX, 3));
    }

    #[test]
    fn a_time_without_readings_is_filled() {
        let mut history = History::default();
        history.add(reading(5, "{}"));
        assert!(history.add(reading(3 * STEP + 100, "{ }")));
        assert_eq!(times(&history), [5, STEP + 5, 2 * STEP + 5, 3 * STEP + 100]);
        // Too early to be kept, but compared.
        assert!(history.add(reading(4 * STEP, "{}")));
        assert!(!history.add(reading(4 * STEP, "{ }")));
        assert_eq!(history.readings.len(), 4);
        history.with(&reading(5 * STEP + 200, "{ }"));
        assert_eq!(times(&history)[4..], [4 * STEP + 100]);
        // Far more than an hour.
        history.add(reading(u64::MAX - 1, "{}"));
        assert_eq!(history.readings.len(), READINGS_MAX);
        let last = history.readings.back().map(|reading| reading.at);
        assert_eq!(last, Some(u64::MAX - 1));
        let middle = times(&history);
        assert!(middle.windows(2).all(|pair| pair[1] - pair[0] >= STEP));
    }
}
