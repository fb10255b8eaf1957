//! What one loop asks the memcached servers of the keys that polls wait for, and how they are.

use super::EdgeLoop;
use crate::change_feed::Resync;
use crate::metrics::{ResyncReason, ServerCell, ServerState};
use dwell_evloop::Context;
use dwell_memcache::on_loop::{Completion, ServerStatus, State};

impl EdgeLoop {
    /// Asks for the versions of the keys of a sweep, as many as may be under way.
    pub(crate) fn send_versions(&mut self, context: &mut Context) {
        let Some(client) = &mut self.memcached else {
            return;
        };
        let (polls, http) = (&mut self.front.polls, &mut self.http);
        // A server that is down fails them in `flush`, which makes room for the next.
        while polls.lookups.is_sweeping() && client.operations() < VERSIONS_AT_ONCE {
            let room = VERSIONS_AT_ONCE - client.operations();
            for _ in 0..room {
                let Some(key) = polls.lookups.next_version() else {
                    break;
                };
                if let Some(name) = polls.waited_name(key) {
                    // One that does not fit is asked for by the next sweep.
                    let _ = client.version(name, key.to_bits());
                }
            }
            client.flush(
                context,
                &mut |context: &mut Context, completion: Completion<'_>| {
                    polls.completed(context, http, &completion);
                },
            );
        }
    }

    /// Looks at everything that polls wait for on the servers that have come back since the last
    /// turn: what the feed told while they were away could not be followed.
    pub(crate) fn look_at_returned(&mut self) {
        let Some(client) = &self.memcached else {
            return;
        };
        for server in returned(&self.metrics.servers, client.statuses()) {
            self.metrics.feed_resyncs.increment(ResyncReason::Returned);
            self.resync(Resync {
                server,
                is_distrusted: false,
            });
        }
    }
}

/// The servers that answer, and did not when that was noted in `cells`.
fn returned(cells: &[ServerCell], statuses: impl IntoIterator<Item = ServerStatus>) -> Vec<usize> {
    let servers = cells.iter().zip(statuses).enumerate();
    let has_returned = |(cell, status): &(&ServerCell, ServerStatus)| {
        cell.state() != ServerState::Up && state_of(status) == ServerState::Up
    };
    let returned = servers.filter(|(_, server)| has_returned(server));
    returned.map(|(index, _)| index).collect()
}

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

/// Versions that are asked for at once. Few enough that a sweep of many keys leaves the lookups of
/// new polls their room in the requests to memcached; the rest follows as answers come.
const VERSIONS_AT_ONCE: usize = 2048;

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_memcache::on_loop::Statistics;

    fn status(state: State) -> ServerStatus {
        ServerStatus {
            address: ([127, 0, 0, 1], 11211).into(),
            state,
            epoch: 1,
            operations: 0,
            failures_in_row: 0,
            last_failure: None,
            statistics: Statistics::default(),
        }
    }

    #[test]
    fn a_server_returns_once_each_time_it_was_away() {
        let cells = [ServerCell::default(), ServerCell::default()];
        let turn = |states: [State; 2]| {
            let found = returned(&cells, states.map(status));
            for (cell, state) in cells.iter().zip(states) {
                cell.set(state_of(&status(state)));
            }
            found
        };
        assert_eq!(turn([State::Connecting, State::Up]), [1]);
        assert_eq!(turn([State::Up, State::Up]), [0]);
        assert_eq!(turn([State::Up, State::Up]), [0_usize; 0]);
        assert_eq!(turn([State::Broken, State::Down]), [0_usize; 0]);
        assert_eq!(turn([State::Broken, State::Connecting]), [0_usize; 0]);
        assert_eq!(turn([State::Up, State::Up]), [0, 1]);
    }
}
