//! Counters, gauges and histograms that one thread writes and a scrape reads.
//!
//! A cell has one writer, so counting takes no lock and no locked instruction. Every loop has cells
//! of its own, and a scrape adds them up. [`labels!`] makes the closed sets of label values that
//! [`CounterSet`] and [`HistogramSet`] count by.
//!
//! ```
//! use dwell_metrics::{CounterSet, Label, labels};
//!
//! labels! {
//!     /// Results of a lookup.
//!     pub Found, "result":
//!     /// There is a value.
//!     Hit = "hit",
//!     /// There is none.
//!     Miss = "miss",
//! }
//!
//! let lookups = CounterSet::<Found>::default();
//! lookups.increment(Found::Hit);
//! assert_eq!(lookups.of(Found::Hit).value(), 1);
//! assert_eq!((Found::NAME, Found::Miss.as_str()), ("result", "miss"));
//! ```
#![forbid(unsafe_code)]

mod cells;
mod labels;

pub use cells::{
    Cell, Counter, CounterSet, Gauge, Histogram, HistogramSet, HistogramSum, SharedCounter,
};
pub use labels::Label;
