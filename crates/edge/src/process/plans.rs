//! Parts of the configuration with resolved names, and with the shares of one loop.

use super::error::RunError;
use super::names::Names;
use super::outward;
use crate::config::{Config, PeerAddress, UpstreamUrl, share};
use crate::descriptors::Descriptors;
use dwell_proto::http1::HeadLimits;
use dwell_upstream::{GroupOptions, HealthCheck, UpstreamOptions, UpstreamPlan};
use std::net::SocketAddr;
use std::sync::Arc;

/// The application's servers and limits for one of `loops` loops.
///
/// # Errors
/// [`RunError::Resolve`], [`RunError::Certificate`], [`RunError::ServerName`].
pub(super) fn upstream_plan(
    config: &Config,
    loops: usize,
    descriptors: &Descriptors,
    names: &mut Names,
) -> Result<Option<UpstreamPlan>, RunError> {
    let upstream = &config.upstream;
    let descriptor_bound = descriptors.bounds(config).upstream;
    let outward = outward::upstream(config)?;
    let connector = |url: &UpstreamUrl| {
        let outward = outward.as_ref().filter(|_| url.is_secure);
        let connector = outward.map(|outward| outward.connector(&url.address));
        connector.transpose()
    };
    let server = |url: &UpstreamUrl| {
        Ok(UpstreamOptions {
            tls: connector(url)?,
            connect_timeout: upstream.connect_timeout,
            header_timeout: upstream.header_timeout,
            total_timeout: upstream.total_timeout,
            idle_timeout: upstream.idle_timeout,
            connections_max: share(upstream.connections_max, loops),
            transfers_max: share(upstream.transfers_max, loops),
            idle_max: share(upstream.idle_max, loops),
            queue_max: share(upstream.queue_max, loops),
            queue_timeout: upstream.queue_timeout,
            stall_timeout: upstream.stall_timeout,
            window_bytes: upstream.window_bytes as usize,
            answer_bytes_max: upstream.answer_bytes_max,
            descriptor_bound,
            answer_head: HeadLimits {
                head_bytes_max: upstream.answer_head_bytes_max,
                field_count_max: upstream.answer_header_count_max,
                ..HeadLimits::default()
            },
            ..UpstreamOptions::new(names.resolve(&url.address, "--upstream")?)
        })
    };
    let servers = upstream.url.iter().map(server);
    let servers = servers.collect::<Result<Vec<_>, RunError>>()?;
    let health = upstream.health_path.clone().map(|path| HealthCheck {
        path,
        interval: upstream.health_interval,
    });
    let options = GroupOptions {
        failures_max: upstream.failures_max,
        failures_window: upstream.failures_window,
        health,
        seed: 0,
        faults: Arc::default(),
    };
    let is_there = !servers.is_empty();
    Ok(is_there.then_some(UpstreamPlan { servers, options }))
}

/// The servers whose names a reload looks up, with the options that name them.
pub(super) fn looked_up(config: &Config) -> impl Iterator<Item = (&PeerAddress, &'static str)> {
    let upstreams = config.upstream.url.iter();
    let upstreams = upstreams.map(|url| (&url.address, "--upstream"));
    let memcached = config.memcached.servers.iter();
    upstreams.chain(memcached.map(|server| (&server.address, "--memcached")))
}

/// The addresses of the memcached servers, in the order of the configuration.
///
/// # Errors
/// [`RunError::Resolve`].
pub(super) fn memcached_addresses(
    config: &Config,
    names: &mut Names,
) -> Result<Vec<SocketAddr>, RunError> {
    let servers = config.memcached.servers.iter();
    let addresses = servers.map(|server| names.resolve(&server.address, "--memcached"));
    addresses.collect()
}

/// Returns true if two plans of the same options are for the same servers.
pub(super) fn is_at_same_addresses(one: &UpstreamPlan, other: &UpstreamPlan) -> bool {
    let one = one.servers.iter().map(|server| server.address);
    one.eq(other.servers.iter().map(|server| server.address))
}

/// Resolves the address of a server.
///
/// # Errors
/// [`RunError::Resolve`].
pub(super) fn resolve(name: &PeerAddress, option: &'static str) -> Result<SocketAddr, RunError> {
    name.resolve().map_err(|source| RunError::Resolve {
        name: name.to_string(),
        option,
        source,
    })
}
