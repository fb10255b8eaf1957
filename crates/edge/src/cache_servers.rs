//! What becomes of the memcached servers, as one loop sees it.

use crate::metrics::ServerState;
use dwell_memcache::on_loop::{ServerStatus, State};

/// Whether a server answers, as health and metrics show it.
pub(crate) fn state_of(status: &ServerStatus) -> ServerState {
    match status.state {
        State::Up => ServerState::Up,
        State::Connecting if status.last_failure.is_none() => ServerState::Unknown,
        _ => ServerState::Down,
    }
}

/// Says that a memcached server has come or gone, as one loop sees it.
pub(crate) fn log_state(status: &ServerStatus, state: ServerState) {
    let server = status.address;
    let failure = status.last_failure.filter(|_| status.failures_in_row > 0);
    match (state, failure) {
        (ServerState::Up, _) => tracing::info!(%server, "memcached answers"),
        (ServerState::Down, Some(failure)) => {
            tracing::warn!(%server, %failure, "memcached does not answer");
        }
        (ServerState::Down, None) if status.epoch > 0 => {
            tracing::warn!(%server, "memcached has closed the connection");
        }
        // Nobody has connected yet.
        _ => {}
    }
}
