//! Exposition of the metrics to a scrape.

use super::process::ProcessFigures;
use super::table::FAMILIES;
use super::{Metrics, PROTOCOLS, StoreFigures};
use dwell_metrics::{Counter, CounterSet, Gauge, Histogram, HistogramSet, HistogramSum, Label};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, MetricEncoder, NoLabelSet, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{Registry, Unit};
use std::fmt;
use std::marker::PhantomData;

impl Metrics {
    /// Adds up the loops and writes everything as [`CONTENT_TYPE`](super::CONTENT_TYPE).
    ///
    /// Shape: `store` is absent when values come from memcached servers.
    pub(crate) fn render(&self, store: Option<StoreFigures>) -> String {
        let mut registry = Registry::default();
        registry.register_collector(Box::new(Scrape {
            metrics: self.clone(),
            store,
            process: ProcessFigures::read(),
        }));
        let mut text = String::with_capacity(16 * 1024);
        // Writing to a String cannot fail, and the encoders have no other error.
        let _ = text::encode(&mut text, &registry);
        text
    }
}

/// One scrape; a collector must own its metrics.
#[derive(Debug)]
pub(super) struct Scrape {
    pub(super) metrics: Metrics,
    pub(super) store: Option<StoreFigures>,
    pub(super) process: Option<ProcessFigures>,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = FAMILIES.iter();
        families.try_for_each(|family| (family.encode)(family, self, &mut encoder))
    }
}

/// A label of samples: its name and, where they are a closed set, its values.
pub(super) struct LabelInfo {
    pub(super) name: &'static str,
    pub(super) values: Vec<&'static str>,
}

impl LabelInfo {
    /// A label whose values are those of a set.
    fn of<L: Label>() -> Self {
        Self {
            name: L::NAME,
            values: L::ALL.iter().map(|value| value.as_str()).collect(),
        }
    }

    /// A label whose values depend on the configuration.
    fn open(name: &'static str) -> Self {
        let values = Vec::new();
        Self { name, values }
    }
}

/// One row of the table of metrics.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) help: &'static str,
    pub(super) unit: Option<Unit>,
    pub(super) kind: MetricType,
    /// The label of its samples.
    pub(super) label: fn() -> Option<LabelInfo>,
    /// A label of its samples in front of that one.
    pub(super) outer_label: Option<&'static str>,
    /// Computes the total and writes it.
    pub(super) encode: fn(&Self, &Scrape, &mut DescriptorEncoder<'_>) -> fmt::Result,
}

impl Family {
    /// Writes a total with its name, help and kind; nothing without a total.
    pub(super) fn encode<K: Kind>(
        &self,
        encoder: &mut DescriptorEncoder<'_>,
        total: impl Into<Option<K::Total>>,
    ) -> fmt::Result {
        let Some(total) = total.into() else {
            return Ok(());
        };
        let (name, unit) = (self.name, self.unit.as_ref());
        let mut encoder = encoder.encode_descriptor(name, self.help, unit, K::TYPE)?;
        K::encode(&total, &mut encoder)
    }
}

/// A kind of metric: its type, and how its total becomes samples.
pub(super) trait Kind {
    type Total;
    const TYPE: MetricType;
    /// A label of its samples in front of the other one.
    const OUTER_LABEL: Option<&'static str> = None;

    /// The label of its samples, where they have one.
    fn label() -> Option<LabelInfo> {
        None
    }

    fn encode(total: &Self::Total, encoder: &mut MetricEncoder<'_>) -> fmt::Result;
}

impl Kind for Counter {
    type Total = u64;
    const TYPE: MetricType = MetricType::Counter;

    fn encode(total: &u64, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_counter(total, NO_EXEMPLAR)
    }
}

/// A counter of seconds.
pub(super) struct Time;

impl Kind for Time {
    type Total = f64;
    const TYPE: MetricType = MetricType::Counter;

    fn encode(total: &f64, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_counter(total, NO_EXEMPLAR)
    }
}

impl Kind for Gauge {
    type Total = i64;
    const TYPE: MetricType = MetricType::Gauge;

    fn encode(total: &i64, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_gauge(total)
    }
}

/// Labels that describe the program.
pub(super) struct Info;

impl Info {
    /// The version, and the commit that `DWELL_COMMIT` has named to the compiler, if it has.
    pub(super) fn of_build() -> Vec<(&'static str, &'static str)> {
        let commit = option_env!("DWELL_COMMIT").filter(|commit| !commit.is_empty());
        let version = ("version", env!("CARGO_PKG_VERSION"));
        let commit = commit.map(|commit| ("commit", commit));
        std::iter::once(version).chain(commit).collect()
    }
}

impl Kind for Info {
    type Total = Vec<(&'static str, &'static str)>;
    const TYPE: MetricType = MetricType::Info;

    fn encode(labels: &Self::Total, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        encoder.encode_info(&labels.as_slice())
    }
}

impl Kind for Histogram {
    type Total = HistogramSum;
    const TYPE: MetricType = MetricType::Histogram;

    fn encode(total: &HistogramSum, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        let (sum, count) = (total.sum_seconds(), total.count());
        encoder.encode_histogram::<NoLabelSet>(sum, count, &total.buckets(), None)
    }
}

impl<L: Label> Kind for CounterSet<L> {
    type Total = Vec<(&'static str, u64)>;
    const TYPE: MetricType = Counter::TYPE;

    fn label() -> Option<LabelInfo> {
        Some(LabelInfo::of::<L>())
    }

    fn encode(totals: &Self::Total, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        labelled::<Counter>(L::NAME, totals, encoder)
    }
}

impl<L: Label> Kind for HistogramSet<L> {
    type Total = Vec<(&'static str, HistogramSum)>;
    const TYPE: MetricType = Histogram::TYPE;

    fn label() -> Option<LabelInfo> {
        Some(LabelInfo::of::<L>())
    }

    fn encode(totals: &Self::Total, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        labelled::<Histogram>(L::NAME, totals, encoder)
    }
}

/// A label whose values are named by the configuration or the program.
pub(super) trait OpenLabel {
    const NAME: &'static str;
}

/// One total for each value of a label.
pub(super) struct By<L, K>(PhantomData<(L, K)>);

impl<L: OpenLabel, K: Kind> Kind for By<L, K> {
    type Total = Vec<(String, K::Total)>;
    const TYPE: MetricType = K::TYPE;

    fn label() -> Option<LabelInfo> {
        Some(LabelInfo::open(L::NAME))
    }

    fn encode(totals: &Self::Total, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        labelled::<K>(L::NAME, totals, encoder)
    }
}

pub(super) struct Server;

impl OpenLabel for Server {
    const NAME: &'static str = "server";
}

pub(super) struct Route;

impl OpenLabel for Route {
    const NAME: &'static str = "route";
}

/// A listener of clients.
pub(super) struct Listener;

impl OpenLabel for Listener {
    const NAME: &'static str = "listener";
}

pub(super) struct Name;

impl OpenLabel for Name {
    const NAME: &'static str = "name";
}

/// The counters of a set for each value of another label.
pub(super) struct SetBy<O, L>(PhantomData<(O, L)>);

impl<O: OpenLabel, L: Label> Kind for SetBy<O, L> {
    type Total = Vec<(String, Vec<(&'static str, u64)>)>;
    const TYPE: MetricType = Counter::TYPE;
    const OUTER_LABEL: Option<&'static str> = Some(O::NAME);

    fn label() -> Option<LabelInfo> {
        Some(LabelInfo::of::<L>())
    }

    fn encode(totals: &Self::Total, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        for (outer, totals) in totals {
            for (value, total) in totals {
                let labels = [(O::NAME, outer.as_str()), (L::NAME, *value)];
                Counter::encode(total, &mut encoder.encode_family(&labels)?)?;
            }
        }
        Ok(())
    }
}

/// One total for each protocol.
pub(super) struct ByProtocol<K>(PhantomData<K>);

impl<K: Kind> Kind for ByProtocol<K> {
    type Total = Vec<(&'static str, K::Total)>;
    const TYPE: MetricType = K::TYPE;

    fn label() -> Option<LabelInfo> {
        Some(LabelInfo {
            name: PROTOCOL,
            values: PROTOCOLS.to_vec(),
        })
    }

    fn encode(totals: &Self::Total, encoder: &mut MetricEncoder<'_>) -> fmt::Result {
        labelled::<K>(PROTOCOL, totals, encoder)
    }
}

fn labelled<K: Kind>(
    label: &str,
    totals: &[(impl AsRef<str>, K::Total)],
    encoder: &mut MetricEncoder<'_>,
) -> fmt::Result {
    for (value, total) in totals {
        let labels = [(label, value.as_ref())];
        K::encode(total, &mut encoder.encode_family(&labels)?)?;
    }
    Ok(())
}

const PROTOCOL: &str = "protocol";
const NO_EXEMPLAR: Option<&Exemplar<NoLabelSet, f64>> = None;

#[cfg(test)]
mod tests;
