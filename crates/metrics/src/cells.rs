//! Numbers that one loop writes and a scrape reads.
//!
//! A cell has one writer, so an addition is a relaxed load and a relaxed store: no locked
//! instruction on the hot path. A scrape may read a cell a moment late, never a torn one.

use super::labels::Label;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::time::Duration;

/// A number that only grows; one thread writes it.
#[derive(Debug, Default)]
pub struct Counter(AtomicU64);

impl Counter {
    /// Adds `amount`.
    #[inline]
    pub fn add(&self, amount: u64) {
        let value = self.0.load(Ordering::Relaxed);
        self.0.store(value.wrapping_add(amount), Ordering::Relaxed);
    }

    /// Adds one.
    #[inline]
    pub fn increment(&self) {
        self.add(1);
    }

    /// Replaces the number, where it counts down rather than up.
    #[inline]
    pub fn set(&self, value: u64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The number now.
    #[inline]
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that many threads add to, for what is too rare to be kept per loop.
#[derive(Debug, Default)]
pub struct SharedCounter(AtomicU64);

impl SharedCounter {
    /// Adds `amount`.
    pub fn add(&self, amount: u64) {
        self.0.fetch_add(amount, Ordering::Relaxed);
    }

    /// The number now.
    pub fn value(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A number that goes up and down; one thread writes it.
#[derive(Debug, Default)]
pub struct Gauge(AtomicI64);

impl Gauge {
    /// Replaces the number.
    pub fn set(&self, value: i64) {
        self.0.store(value, Ordering::Relaxed);
    }

    /// The number now.
    pub fn value(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A cell of which each loop has one.
pub trait Cell {
    /// Sum of such cells.
    type Total;
    /// Adds up the cells of the loops.
    fn total(cells: &[&Self]) -> Self::Total;
}

impl Cell for Counter {
    type Total = u64;

    fn total(cells: &[&Self]) -> u64 {
        cells.iter().map(|cell| cell.value()).sum()
    }
}

impl Cell for Gauge {
    type Total = i64;

    fn total(cells: &[&Self]) -> i64 {
        cells.iter().map(|cell| cell.value()).sum()
    }
}

/// One counter for each value of a label.
#[derive(Debug)]
pub struct CounterSet<L: Label>(L::Counters);

impl<L: Label> Default for CounterSet<L> {
    fn default() -> Self {
        Self(L::Counters::default())
    }
}

impl<L: Label> CounterSet<L> {
    /// The counter of one value of the label.
    pub fn of(&self, label: L) -> &Counter {
        &self.0.as_ref()[label.index()]
    }

    /// Adds one to the counter of `label`.
    pub fn increment(&self, label: L) {
        self.of(label).increment();
    }
}

impl<L: Label> Cell for CounterSet<L> {
    type Total = Vec<(&'static str, u64)>;

    fn total(cells: &[&Self]) -> Self::Total {
        let of = |label: &L| cells.iter().map(|set| set.of(*label).value()).sum();
        let labels = L::ALL.iter();
        labels.map(|label| (label.as_str(), of(label))).collect()
    }
}

/// Durations in fixed buckets from 50 to ten million of a unit: microseconds, where nothing else is
/// said.
#[derive(Debug, Default)]
pub struct Histogram {
    counts: [Counter; BUCKETS + 1],
    sum: Counter,
}

impl Histogram {
    /// Counts one duration, in microseconds.
    pub fn observe(&self, duration: Duration) {
        self.add(duration.as_micros());
    }

    /// Counts one duration, in nanoseconds; see [`HistogramSum::of_nanoseconds`].
    pub fn observe_nanoseconds(&self, duration: Duration) {
        self.add(duration.as_nanos());
    }

    fn add(&self, amount: u128) {
        let amount = u64::try_from(amount).unwrap_or(u64::MAX);
        // Short durations are the common ones, and they are found first.
        let bucket = BOUNDS.iter().position(|bound| amount <= *bound);
        self.counts[bucket.unwrap_or(BUCKETS)].increment();
        self.sum.add(amount);
    }

    /// The number of durations that were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().map(Counter::value).sum()
    }

    /// Forgets everything, which a scraper takes for a start of the process.
    pub fn clear(&self) {
        for cell in self.counts.iter().chain([&self.sum]) {
            cell.set(0);
        }
    }

    /// Adds what has been counted to `total`.
    pub fn add_to(&self, total: &mut HistogramSum) {
        for (sum, count) in total.counts.iter_mut().zip(&self.counts) {
            *sum += count.value();
        }
        total.sum = total.sum.wrapping_add(self.sum.value());
    }
}

impl Cell for Histogram {
    type Total = HistogramSum;

    fn total(cells: &[&Self]) -> HistogramSum {
        let mut total = HistogramSum::default();
        for cell in cells {
            cell.add_to(&mut total);
        }
        total
    }
}

/// One histogram for each value of a label, in nanoseconds.
#[derive(Debug)]
pub struct HistogramSet<L: Label>(Box<[Histogram]>, PhantomData<L>);

impl<L: Label> Default for HistogramSet<L> {
    fn default() -> Self {
        Self(
            L::ALL.iter().map(|_| Histogram::default()).collect(),
            PhantomData,
        )
    }
}

impl<L: Label> HistogramSet<L> {
    /// The histogram of one value of the label.
    pub fn of(&self, label: L) -> &Histogram {
        &self.0[label.index()]
    }
}

/// The sums of the labels that were counted at all.
impl<L: Label> Cell for HistogramSet<L> {
    type Total = Vec<(&'static str, HistogramSum)>;

    fn total(cells: &[&Self]) -> Self::Total {
        let of = |label: &L| {
            let mut total = HistogramSum::of_nanoseconds();
            for set in cells {
                set.of(*label).add_to(&mut total);
            }
            (label.as_str(), total)
        };
        let totals = L::ALL.iter().map(of);
        totals.filter(|(_, total)| total.count() > 0).collect()
    }
}

/// Histograms of several loops added up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HistogramSum {
    counts: [u64; BUCKETS + 1],
    sum: u64,
    units_per_second: u32,
}

impl Default for HistogramSum {
    fn default() -> Self {
        Self {
            counts: [0; BUCKETS + 1],
            sum: 0,
            units_per_second: 1_000_000,
        }
    }
}

impl HistogramSum {
    /// A sum of histograms that counted nanoseconds.
    pub fn of_nanoseconds() -> Self {
        Self {
            units_per_second: 1_000_000_000,
            ..Self::default()
        }
    }

    /// The number of durations that were counted.
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// All durations together. Units: seconds.
    #[expect(
        clippy::cast_precision_loss,
        reason = "a sum is shown, not computed with; 2^53 nanoseconds are 104 days"
    )]
    pub fn sum_seconds(&self) -> f64 {
        self.sum as f64 / f64::from(self.units_per_second)
    }

    /// The upper bound in seconds of the bucket that holds this part of all durations; 0 without
    /// any.
    ///
    /// Shape: `per_mille` is the part: 500 is the median, 990 the 99th percentile.
    pub fn quantile_seconds(&self, per_mille: u64) -> f64 {
        let rank = (self.count() * per_mille).div_ceil(1000);
        let mut seen = 0;
        for (bound, count) in self.buckets() {
            seen += count;
            if rank > 0 && seen >= rank {
                return bound;
            }
        }
        0.0
    }

    /// Upper bounds in seconds, the last one infinite, with the durations in each bucket alone.
    #[expect(clippy::cast_precision_loss, reason = "the bounds are small constants")]
    pub fn buckets(&self) -> [(f64, u64); BUCKETS + 1] {
        let mut buckets = [(f64::INFINITY, 0); BUCKETS + 1];
        for (index, count) in self.counts.iter().enumerate() {
            if let Some(bound) = BOUNDS.get(index) {
                buckets[index].0 = *bound as f64 / f64::from(self.units_per_second);
            }
            buckets[index].1 = *count;
        }
        buckets
    }
}

const BUCKETS: usize = 17;

const BOUNDS: [u64; BUCKETS] = [
    50, 100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000,
    1_000_000, 2_500_000, 5_000_000, 10_000_000,
];

#[cfg(test)]
mod tests {
    use super::*;

    crate::labels! {
        /// Directions of a flow.
        Direction, "direction":
        /// From a client.
        In = "in",
        /// To a client.
        Out = "out",
    }

    #[test]
    fn a_duration_on_a_bound_belongs_to_its_bucket() {
        let histogram = Histogram::default();
        histogram.observe(Duration::ZERO);
        histogram.observe(Duration::from_micros(50));
        histogram.observe(Duration::from_micros(51));
        histogram.observe(Duration::from_secs(11));
        let mut total = HistogramSum::default();
        histogram.add_to(&mut total);
        histogram.add_to(&mut total);
        let buckets = total.buckets();
        assert_eq!((buckets[0], buckets[1]), ((0.000_05, 4), (0.000_1, 2)));
        assert_eq!(buckets[BUCKETS], (f64::INFINITY, 2));
        assert_eq!(total.count(), 8);
        assert!(
            (total.sum_seconds() - 22.000_202).abs() < 1e-9,
            "{}",
            total.sum_seconds()
        );
    }

    #[test]
    fn the_longest_duration_is_counted() {
        let histogram = Histogram::default();
        histogram.observe(Duration::MAX);
        let mut total = HistogramSum::default();
        histogram.add_to(&mut total);
        assert_eq!(total.count(), 1);
    }

    #[test]
    fn each_label_has_its_own_counter() {
        let flows = CounterSet::<Direction>::default();
        for (index, direction) in Direction::ALL.iter().enumerate() {
            flows.of(*direction).add(index as u64);
        }
        for (index, direction) in Direction::ALL.iter().enumerate() {
            assert_eq!(flows.of(*direction).value(), index as u64);
        }
    }
}
