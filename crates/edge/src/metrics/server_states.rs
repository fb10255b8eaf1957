//! States of servers: of those that a configuration names, and of others that come and go.

use dwell_metrics::Gauge;
use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// State of one server on one loop.
#[derive(Debug, Default)]
pub(crate) struct ServerCell(Gauge);

impl ServerCell {
    /// Sets the state.
    pub(crate) fn set(&self, state: ServerState) {
        self.0.set(state as i64);
    }

    /// The state that was set last.
    pub(crate) fn state(&self) -> ServerState {
        [ServerState::Up, ServerState::Down]
            .into_iter()
            .find(|state| *state as i64 == self.0.value())
            .unwrap_or(ServerState::Unknown)
    }
}

/// State of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ServerState {
    /// No request was sent to it yet.
    Unknown = 0,
    /// It does not respond.
    Down = 1,
    /// It responds.
    Up = 2,
}

impl ServerState {
    /// The state as text, for the health response.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Unknown => "unknown",
            Self::Down => "down",
            Self::Up => "up",
        }
    }
}

/// Servers that come and go, such as the primaries of a cluster, as one loop knows them.
#[derive(Debug, Default)]
pub(crate) struct NamedServers(Mutex<Vec<(String, ServerState)>>);

impl NamedServers {
    /// Replaces all of them.
    pub(crate) fn set(&self, servers: Vec<(String, ServerState)>) {
        *self.lock() = servers;
    }

    fn lock(&self) -> MutexGuard<'_, Vec<(String, ServerState)>> {
        // Replaced in one step, so a panicking thread leaves it whole.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The servers that any loop knows, in order of their names, each in the best of its states.
    pub(super) fn of_loops<'a>(
        loops: impl Iterator<Item = &'a Self>,
    ) -> Vec<(String, ServerState)> {
        let mut all = BTreeMap::new();
        for servers in loops {
            for (name, state) in &*servers.lock() {
                let best = all.entry(name.clone()).or_insert(*state);
                if *state as i64 > *best as i64 {
                    *best = *state;
                }
            }
        }
        all.into_iter().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::metrics::Metrics;

    #[test]
    fn a_server_is_shown_while_a_loop_knows_it() {
        use ServerState::{Down, Unknown, Up};
        let metrics = Metrics::new(2, vec!["cluster".to_owned()], 0).of_redis(true);
        let set = |index: usize, states: &[(&str, ServerState)]| {
            let states = states
                .iter()
                .map(|(name, state)| ((*name).to_owned(), *state));
            metrics.of_loop(index).redis_primaries.set(states.collect());
        };
        let shown = || {
            let servers = metrics.shown_servers();
            let names = servers
                .iter()
                .map(|(name, state)| format!("{name} {state:?}"));
            names.collect::<Vec<_>>().join(", ")
        };
        assert_eq!(shown(), "cluster Unknown");
        set(0, &[("b:1", Down), ("a:1", Up)]);
        set(1, &[("b:1", Up), ("c:1", Unknown)]);
        assert_eq!(shown(), "a:1 Up, b:1 Up, c:1 Unknown");
        set(1, &[("b:1", Unknown)]);
        assert_eq!(shown(), "a:1 Up, b:1 Down");
        // A slot that no primary has is nothing that one of them shows.
        metrics.of_loop(0).servers[0].set(Down);
        assert_eq!(shown(), "a:1 Up, b:1 Down");
        set(0, &[("a:1", Up)]);
        set(1, &[]);
        assert_eq!(shown(), "cluster Down, a:1 Up");
    }
}
