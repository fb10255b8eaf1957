//! The last hour in coarse steps, kept whether or not the page is open.

use std::collections::VecDeque;
use std::time::Duration;

/// Time between two of its readings.
pub(crate) const HISTORY_INTERVAL: Duration = Duration::from_secs(10);
/// Readings that are kept: those of an hour, and the one at its beginning.
const READINGS_MAX: usize = 361;
/// Bytes of all of them. Beyond it the oldest go, so that less than an hour is kept.
const BYTES_MAX: usize = 512 * 1024;

/// The readings of the last hour, the oldest first, each encoded as JSON.
#[derive(Debug, Default)]
pub(super) struct History {
    readings: VecDeque<Box<str>>,
    bytes: usize,
}

impl History {
    pub(super) fn add(&mut self, reading: String) {
        self.bytes += reading.len();
        self.readings.push_back(reading.into_boxed_str());
        while self.readings.len() > READINGS_MAX || self.bytes > BYTES_MAX {
            let oldest = self.readings.pop_front();
            self.bytes -= oldest.map_or(0, |oldest| oldest.len());
        }
    }

    /// The readings as the members of a JSON array, with the one of now behind them.
    pub(super) fn with(&self, now: &str) -> String {
        let mut text = String::with_capacity(self.bytes + self.readings.len() + now.len());
        for reading in &self.readings {
            text.push_str(reading);
            text.push(',');
        }
        text.push_str(now);
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_hour_is_kept_in_bounded_memory() {
        let mut history = History::default();
        for number in 0..1000 {
            history.add(number.to_string());
        }
        assert_eq!(history.readings.len(), READINGS_MAX);
        assert!(history.with("now").starts_with("639,640,"));
        assert!(history.with("now").ends_with(",999,now"));
        for _ in 0..1000 {
            history.add("x".repeat(10_000));
        }
        let bytes: usize = history.readings.iter().map(|reading| reading.len()).sum();
        assert_eq!(history.bytes, bytes);
        assert!((BYTES_MAX - 10_000..=BYTES_MAX).contains(&bytes), "{bytes}");
        history.add("y".repeat(BYTES_MAX + 1));
        assert_eq!((history.readings.len(), history.bytes), (0, 0));
    }
}
