//! Options that a running process applies when it reloads its file.

use super::options::single_options;
use super::{AccessTarget, Config};

/// Options that are only applied at the start, by their full names. A reload applies all others.
pub(super) const NEEDS_RESTART: &[&str] = &[
    "server.admin",
    "server.pollers",
    "server.io_uring",
    "server.user",
    "server.h2c",
    "server.pid_file",
    "tls.client_ca",
    "tls.client_auth",
    "tls.self_signed",
    "tls.handshakes_max",
    "store.listen",
    "store.listen_also",
    "store.allow_remote",
    "store.unix_socket",
    "store.unix_permissions",
    "store.auth_file",
    "store.protocols",
    "limits.websocket_message_bytes_max",
    "store.item_bytes_max",
    "store.evictions",
    "store.cas",
    "store.dump",
    "store.flush_all",
    "store.shutdown",
    "store.connections_max",
    "store.idle_timeout",
    "store.commands_per_turn",
    "store.backlog",
    "memcached.servers",
    "memcached.tls",
    "memcached.tls_ca",
    "memcached.tls_server_name",
    "memcached.tls_certificate",
    "memcached.tls_key",
    "memcached.timeout",
    "memcached.connect_timeout",
    "memcached.failures_max",
    "memcached.value_bytes_max",
    "memcached.watch",
    "redis.url",
    "redis.sentinels",
    "redis.sentinel_name",
    "redis.cluster",
    "redis.cluster_interval",
    "redis.tracking_prefixes",
    "redis.tls_ca",
    "redis.tls_server_name",
    "redis.tls_certificate",
    "redis.tls_key",
    "redis.username",
    "redis.password_file",
    "redis.database",
    "redis.tracking",
    "redis.timeout",
    "redis.connect_timeout",
    "redis.probe",
    "redis.failures_max",
    "redis.value_bytes_max",
    "redis.kept_bytes_max",
    "upstream.tunnel_timeout",
    "limits.head_bytes_max",
    "limits.target_bytes_max",
    "limits.header_count_max",
    "limits.stale_bytes_max",
    "log.format",
    "presence.webhook_url",
    "presence.webhook_tls_ca",
    "presence.webhook_tls_server_name",
    "presence.webhook_tls_certificate",
    "presence.webhook_tls_key",
    "presence.webhook_path",
    "presence.webhook_token",
    "presence.linger",
    "presence.webhook_timeout",
    "presence.webhook_attempts_max",
    "presence.webhook_batch_max",
    "presence.webhook_queue_max",
];

impl Config {
    /// Resets the options that need a restart to the values of `running`; returns the names of
    /// those that differed.
    pub fn keep_what_needs_a_restart(&mut self, running: &Self) -> Vec<String> {
        let mut kept = Vec::new();
        for spec in single_options() {
            let name = spec.full_name();
            let stays = NEEDS_RESTART.contains(&name.as_str())
                || (name == ACCESS_LOG && is_off(self) != is_off(running));
            if stays && !(spec.is_same)(self, running) {
                (spec.keep)(self, running);
                kept.push(name);
            }
        }
        kept
    }
}

/// A reload may change the target of the access log, but not turn the log on or off.
const ACCESS_LOG: &str = "log.access";

fn is_off(config: &Config) -> bool {
    config.log.access == AccessTarget::Off
}

#[cfg(test)]
mod tests {
    use super::super::options::{OptionSpec, ROUTE_OPTIONS};
    use super::*;
    use crate::config::parse;
    use std::collections::BTreeSet;

    /// The options that a reload takes. A new option is listed here or in [`NEEDS_RESTART`]; what
    /// is read from `Polls::config` when it is needed is live already, what is copied elsewhere
    /// has to be copied again by `Polls::reconfigure` or `apply` of `event_loop/turn_end.rs`.
    const LIVE: &[&str] = &[
        "server.listen",
        "server.admin_hosts",
        "tls.listen",
        "tls.http2",
        "tls.certificate",
        "tls.key",
        "tls.ocsp",
        "tls.ticket_keys",
        "tls.check_interval",
        "tls.client_cert_field",
        "tls.acme_challenge",
        "server.trusted_proxies",
        "server.proxy_protocol",
        "publish.token",
        "publish.token_file",
        "publish.clients",
        "publish.value_bytes_max",
        "route.publish",
        "store.bytes_max",
        "store.snapshot",
        "memcached.sweep_interval",
        "redis.sweep_interval",
        "upstream.url",
        "upstream.tls_ca",
        "upstream.tls_server_name",
        "upstream.tls_certificate",
        "upstream.tls_key",
        "upstream.default_host",
        "upstream.connect_timeout",
        "upstream.header_timeout",
        "upstream.total_timeout",
        "upstream.connections_max",
        "upstream.transfers_max",
        "upstream.failures_window",
        "upstream.answer_head_bytes_max",
        "upstream.answer_header_count_max",
        "upstream.idle_max",
        "upstream.idle_timeout",
        "upstream.answer_bytes_max",
        "upstream.stall_timeout",
        "upstream.window_bytes",
        "upstream.request_buffer_bytes",
        "upstream.queue_max",
        "upstream.queue_timeout",
        "upstream.failures_max",
        "upstream.health_path",
        "upstream.health_interval",
        "limits.body_bytes_max",
        "limits.poll_body_bytes_max",
        "limits.connections_max",
        "limits.connections_per_address",
        "limits.requests_per_connection_max",
        "limits.rate_buckets",
        "limits.waiters_max",
        "limits.stream_heartbeat",
        "limits.stream_lifetime",
        "limits.websocket_messages_rate",
        "limits.header_timeout",
        "limits.body_timeout",
        "limits.body_rate_min",
        "limits.gathered_bytes_max",
        "limits.idle_timeout",
        "limits.write_timeout",
        "limits.write_rate_min",
        "limits.output_bytes_max",
        "limits.drain_timeout",
        "limits.upgrade_timeout",
        "jwt.secret_file",
        "jwt.public_key_file",
        "jwt.jwks_file",
        "jwt.issuer",
        "jwt.audience",
        "jwt.leeway",
        "jwt.expiry_required",
        "jwt.query_parameter",
        "jwt.cookie",
        "log.level",
        "log.access",
        "route.prefix",
        "route.key",
        "route.content_type",
        "route.methods",
        "route.wait_default",
        "route.wait_max",
        "route.empty",
        "route.coalesce_post",
        "route.share_cookies",
        "route.identity_headers",
        "route.on_delete",
        "route.allowed_origins",
        "route.websocket_publish",
        "route.cors_origins",
        "route.cors_credentials",
        "route.cors_max_age",
        "route.rate_per_address",
        "route.rate_per_key",
        "route.rate_per_publisher",
        "route.jwt",
        "route.auth",
        "route.auth_time",
        "route.fill",
        "route.stale_if_error",
        "route.stale_while_revalidate",
        "route.negative",
        "route.negative_not_found",
    ];

    #[test]
    fn every_option_is_live_or_needs_a_restart() {
        let once = single_options().map(OptionSpec::full_name);
        let of_routes = ROUTE_OPTIONS.iter().map(OptionSpec::full_name);
        let options: BTreeSet<String> = once.chain(of_routes).collect();
        let named = LIVE.iter().chain(NEEDS_RESTART);
        let named: BTreeSet<String> = named.map(|name| (*name).to_owned()).collect();
        let unnamed: Vec<_> = options.difference(&named).collect();
        assert_eq!(unnamed, Vec::<&String>::new(), "live, or not?");
        let unknown: Vec<_> = named.difference(&options).collect();
        assert_eq!(unknown, Vec::<&String>::new(), "no such option");
        assert_eq!(named.len(), LIVE.len() + NEEDS_RESTART.len(), "named twice");
    }

    #[test]
    fn what_needs_a_restart_stays_and_is_named() {
        let running = parse("a", "[server]\npollers = 3\n", &[]).unwrap();
        let text = "[server]\npollers = 4\n[limits]\nwaiters_max = 7\n[log]\naccess = \"-\"\n";
        let mut config = parse("a", text, &[]).unwrap();
        let kept = config.keep_what_needs_a_restart(&running);
        assert_eq!(kept, ["server.pollers", "log.access"]);
        assert_eq!(config.server.pollers, 3);
        assert_eq!(config.limits.waiters_max, 7);
        assert_eq!(config.keep_what_needs_a_restart(&running), [""; 0]);
    }
}
