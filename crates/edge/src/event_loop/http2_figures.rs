//! Figures of the clients' HTTP/2 for scrapes.

use crate::metrics::{Http2Code, LoopMetrics, StreamRefusal, figure};
use dwell_engine::{CodeCounts, Http, Http2Figures};
use dwell_metrics::CounterSet;

/// Copies the figures, as far as they have changed since the last turn.
pub(super) fn keep(http: &Http, metrics: &LoopMetrics) {
    let speaks_it = http.http2_figures();
    let connections = speaks_it.map_or(0, |figures| figures.connections);
    let others = &metrics.http1_connections;
    others.set(figure(http.connections() - connections));
    let Some(figures) = speaks_it else {
        return;
    };
    metrics.http2_connections.set(figure(connections));
    metrics.http2_streams_open.set(figure(figures.streams_open));
    metrics.http2_streams.set(figures.streams);
    let by_code = [
        (&metrics.http2_resets_sent, &figures.resets_sent),
        (&metrics.http2_resets_received, &figures.resets_received),
        (&metrics.http2_goaways_sent, &figures.go_aways_sent),
        (&metrics.http2_goaways_received, &figures.go_aways_received),
    ];
    let counts = by_code.iter().map(|(_, counts)| counts.total());
    let count = counts.sum::<u64>() + figures.refused.app;
    // Each refusal but that one is a reset as well.
    if metrics.http2_faults.value() == count {
        return;
    }
    metrics.http2_faults.set(count);
    keep_refusals(figures, metrics);
    for (cells, counts) in by_code {
        keep_codes(cells, counts);
    }
}

fn keep_refusals(figures: &Http2Figures, metrics: &LoopMetrics) {
    let refused = figures.refused;
    for (reason, count) in [
        (StreamRefusal::StreamsMax, refused.streams),
        (StreamRefusal::Work, refused.work),
        (StreamRefusal::Output, refused.output),
        (StreamRefusal::ConnectionsPerAddress, refused.app),
    ] {
        metrics.http2_streams_refused.of(reason).set(count);
    }
}

fn keep_codes(cells: &CounterSet<Http2Code>, counts: &CodeCounts) {
    for (code, count) in Http2Code::ALL.iter().zip(counts.by_number()) {
        cells.of(*code).set(*count);
    }
}
