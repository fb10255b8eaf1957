//! Figures of the application's clients for scrapes.

use crate::metrics::{LoopMetrics, ServerState, UpstreamOutcome, add_handshakes, figure};
use dwell_upstream::Upstreams;

/// Copies gauges, and adds the counts since the last turn.
pub(super) fn keep(upstreams: &mut Upstreams, metrics: &LoopMetrics) {
    let figures = upstreams.take_figures(|index, waited| {
        if let Some(heads) = metrics.upstream_heads.get(index) {
            heads.observe(waited);
        }
    });
    let retried = metrics.upstream_requests.of(UpstreamOutcome::Moved);
    retried.add(figures.retried);
    add_handshakes(&metrics.upstream_handshakes, &figures.handshakes);
    let open = &metrics.upstream_connections_open;
    open.set(figure(figures.connections));
    metrics
        .upstream_outstanding
        .set(figure(figures.outstanding));
    let cells = metrics.upstreams.iter().zip(&metrics.upstream_details);
    for (index, status) in upstreams.statuses().enumerate() {
        let Some((cell, details)) = cells.clone().nth(index) else {
            break;
        };
        let state = if status.is_up {
            ServerState::Up
        } else {
            ServerState::Down
        };
        details.outstanding.set(figure(status.outstanding));
        details.queued.set(figure(status.queued));
        if cell.state() != state {
            cell.set(state);
            details.set_reason(upstreams.reason(index));
        }
    }
    for (index, details) in metrics.upstream_details.iter().enumerate() {
        if let Some((count, error)) = upstreams.take_failed(index) {
            details.failed(count, error.to_string().into(), dwell_evloop::now());
        }
    }
}
