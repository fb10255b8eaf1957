//! The responses of `/-/health` and `/-/ready`.

use super::{Metrics, ServerState};
use serde::Serialize;
use std::time::Duration;

/// Statuses of the responses of `/-/health` and `/-/ready`, and the JSON body of both.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Health {
    /// 200, or 503 while draining, so that load balancers send no more requests.
    pub status: u16,
    /// 200, or 503 while draining and while no request can be answered.
    pub readiness: u16,
    /// One JSON object and a line end.
    pub body: String,
}

impl Health {
    /// Tells whether the process should be sent requests.
    ///
    /// `status` is `ok`; `degraded` when an external server does not answer (polls still do, from
    /// the upstream); `draining` after SIGTERM.
    pub(crate) fn of(metrics: &Metrics, uptime: Duration, draining: bool) -> Self {
        let servers = metrics.servers();
        let is_down = |(_, state): &(String, ServerState)| *state == ServerState::Down;
        let any_down = servers.iter().any(is_down);
        // A cluster is down where one of its primaries is, and the others go on.
        let primaries = metrics.redis_primaries();
        let sources = if primaries.is_empty() {
            &servers
        } else {
            &primaries
        };
        // With an application, polls are answered by it. Servers are tried again by themselves, so
        // no request is needed for that.
        let any_source =
            servers.is_empty() || !sources.iter().all(is_down) || !metrics.upstreams().is_empty();
        let status = match (draining, any_down) {
            (true, _) => "draining",
            (false, true) => "degraded",
            (false, false) => "ok",
        };
        let bodies = |servers: &'_ [(String, ServerState)]| -> Vec<_> {
            let body = |(server, state): &(String, ServerState)| ServerBody {
                server: server.clone(),
                state: state.as_str(),
            };
            servers.iter().map(body).collect()
        };
        let redis = bodies(&metrics.redis_servers());
        let body = Body {
            status,
            version: env!("CARGO_PKG_VERSION"),
            uptime_seconds: uptime.as_secs(),
            values: match (redis.is_empty(), servers.is_empty()) {
                (false, _) => "redis",
                (true, false) => "memcached",
                (true, true) => "embedded store",
            },
            memcached: bodies(&metrics.memcached_servers()),
            redis,
        };
        // Fails only for maps with keys that are not strings, or when writing fails.
        let mut body = serde_json::to_string(&body).unwrap_or_default();
        body.push('\n');
        let status = |is_good: bool| if is_good { 200 } else { 503 };
        Self {
            status: status(!draining),
            readiness: status(!draining && any_source),
            body,
        }
    }
}

#[derive(Serialize)]
struct Body {
    status: &'static str,
    version: &'static str,
    uptime_seconds: u64,
    values: &'static str,
    memcached: Vec<ServerBody>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    redis: Vec<ServerBody>,
}

#[derive(Serialize)]
struct ServerBody {
    server: String,
    state: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_embedded_store_needs_nobody() {
        let health = Health::of(
            &Metrics::new(2, Vec::new(), 0),
            Duration::from_millis(2_900),
            false,
        );
        assert_eq!((health.status, health.readiness), (200, 200));
        let version = env!("CARGO_PKG_VERSION");
        let expected = format!(
            "{{\"status\":\"ok\",\"version\":\"{version}\",\"uptime_seconds\":2,\
             \"values\":\"embedded store\",\"memcached\":[]}}\n"
        );
        assert_eq!(health.body, expected);
    }

    #[test]
    fn one_loop_that_reaches_a_server_is_enough() {
        let servers = vec!["a:1".to_owned(), "b:2".to_owned(), "c:3".to_owned()];
        let metrics = Metrics::new(2, servers, 0);
        metrics.of_loop(0).servers[0].set(ServerState::Down);
        metrics.of_loop(1).servers[0].set(ServerState::Up);
        metrics.of_loop(1).servers[1].set(ServerState::Down);
        let states: Vec<_> = metrics
            .servers()
            .iter()
            .map(|(_, state)| state.as_str())
            .collect();
        assert_eq!(states, ["up", "down", "unknown"]);
        let health = Health::of(&metrics, Duration::ZERO, false);
        assert!(
            health.body.starts_with("{\"status\":\"degraded\""),
            "{}",
            health.body
        );
        assert!(
            health
                .body
                .contains("{\"server\":\"b:2\",\"state\":\"down\"}")
        );
    }

    #[test]
    fn a_process_without_any_source_of_values_is_not_ready() {
        use ServerState::{Down, Unknown, Up};
        let servers = vec!["a:1".to_owned(), "b:2".to_owned()];
        let statuses = |upstreams: &[String], states: [ServerState; 2]| {
            let metrics = Metrics::with_upstreams(1, servers.clone(), upstreams, 0);
            for (cell, state) in metrics.of_loop(0).servers.iter().zip(states) {
                cell.set(state);
            }
            let health = Health::of(&metrics, Duration::ZERO, false);
            (health.status, health.readiness)
        };
        assert_eq!(statuses(&[], [Unknown, Unknown]), (200, 200));
        assert_eq!(statuses(&[], [Down, Unknown]), (200, 200));
        assert_eq!(statuses(&[], [Down, Up]), (200, 200));
        assert_eq!(statuses(&[], [Down, Down]), (200, 503));
        let upstreams = ["http://app:8000".to_owned()];
        assert_eq!(statuses(&upstreams, [Down, Down]), (200, 200));
    }

    #[test]
    fn a_cluster_is_a_source_as_long_as_one_primary_is() {
        use ServerState::{Down, Up};
        let metrics = Metrics::new(1, vec!["cluster of a:1".to_owned()], 0).of_redis(true);
        let cells = metrics.of_loop(0);
        cells.servers[0].set(Down);
        let readiness = |states: [ServerState; 2]| {
            let names = ["a:1", "b:2"].map(str::to_owned);
            cells
                .redis_primaries
                .set(names.into_iter().zip(states).collect());
            Health::of(&metrics, Duration::ZERO, false).readiness
        };
        assert_eq!(readiness([Down, Up]), 200);
        assert_eq!(readiness([Down, Down]), 503);
        cells.redis_primaries.set(Vec::new());
        let health = Health::of(&metrics, Duration::ZERO, false);
        assert_eq!(health.readiness, 503, "nothing is known of its primaries");
    }

    #[test]
    fn a_draining_process_turns_balancers_away() {
        let health = Health::of(&Metrics::new(1, Vec::new(), 0), Duration::ZERO, true);
        assert_eq!((health.status, health.readiness), (503, 503));
        assert!(
            health.body.starts_with("{\"status\":\"draining\""),
            "{}",
            health.body
        );
    }
}
