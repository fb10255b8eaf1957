//! Figures of the listeners of clients. The clients' server labels each of them with its place
//! among the figures, and knows the label of every connection.

use crate::metrics::{LoopMetrics, figure};
use dwell_engine::Http;
use dwell_evloop::Token;
use std::net::SocketAddr;

/// The label of a listener without figures of its own: there are too many.
const NONE: u8 = u8::MAX;

/// Labels a listener, so that its connections and requests are counted.
pub(super) fn name(
    metrics: &LoopMetrics,
    http: &mut Http,
    listener: Token,
    address: SocketAddr,
    is_secure: bool,
) {
    let name = format!("{address}{}", if is_secure { " TLS" } else { "" });
    let place = metrics.listener_names.of(&name);
    let label = place.and_then(|place| u8::try_from(place).ok());
    http.label(listener, label.unwrap_or(NONE));
}

/// Copies the numbers of connections.
pub(super) fn keep(http: &Http, metrics: &LoopMetrics) {
    for (label, cells) in (0..NONE).zip(&metrics.listeners) {
        cells.open.set(figure(http.open_of(label)));
        cells.connections.set(http.accepted_of(label));
    }
}
