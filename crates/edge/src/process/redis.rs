//! The Redis server of the configuration, whose name is looked up and whose password is read.

use super::error::RunError;
use super::names::Names;
use super::outward;
use crate::config::{Config, RedisConfig, RedisTracking, RedisUrl};
use dwell_redis::{Announced, ClientOptions, Endpoint};
use std::fs;
use std::net::SocketAddr;
use std::path::Path;

/// The server, and the options of the client of each loop.
#[derive(Clone, Debug)]
pub(super) struct RedisServer {
    pub(super) endpoint: Endpoint,
    pub(super) options: ClientOptions,
    /// The reasons why others of the configuration are not asked.
    pub(super) left_out: Vec<String>,
}

/// Reads what belongs to the server; `None` if values come from elsewhere.
///
/// # Errors
/// A name that is not found, or a file that cannot be used.
pub(super) fn redis_server(
    config: &Config,
    names: &mut Names,
) -> Result<Option<RedisServer>, RunError> {
    let redis = &config.redis;
    let mut left_out = Vec::new();
    let Some(endpoint) = endpoint(redis, &mut left_out, names)? else {
        return Ok(None);
    };
    let default = ClientOptions::default();
    let values = config.publish.value_bytes_max.saturating_mul(4);
    let values = usize::try_from(values).unwrap_or(usize::MAX);
    let options = ClientOptions {
        tls: outward::redis(config)?,
        username: redis.username.clone(),
        password: redis.password_file.as_deref().map(password).transpose()?,
        database: redis.database,
        announced: announced(redis),
        timeout: redis.timeout,
        connect_timeout: redis.connect_timeout,
        topology_interval: redis.cluster_interval,
        probe: redis.probe,
        failures_max: redis.failures_max,
        request_bytes_max: default.request_bytes_max.max(values),
        value_bytes_max: redis.value_bytes_max,
        kept_bytes_max: redis.kept_bytes_max,
        ..default
    };
    Ok(Some(RedisServer {
        endpoint,
        options,
        left_out,
    }))
}

/// The place of the server, where its names lead now. A server among several whose name has no
/// address is left out.
///
/// # Errors
/// As [`redis_server`].
pub(super) fn redis_endpoint(
    config: &Config,
    names: &mut Names,
) -> Result<Option<Endpoint>, RunError> {
    endpoint(&config.redis, &mut Vec::new(), names)
}

/// As [`redis_server`], for a start, which logs what is left out.
///
/// # Errors
/// As [`redis_server`].
pub(super) fn redis_at_start(
    config: &Config,
    names: &mut Names,
) -> Result<Option<RedisServer>, RunError> {
    let server = redis_server(config, names)?;
    for reason in server.iter().flat_map(|server| &server.left_out) {
        tracing::warn!("a server of Redis is left out: {reason}");
    }
    Ok(server)
}

/// The changes that the server is asked to announce.
fn announced(redis: &RedisConfig) -> Announced {
    let prefixes = redis.tracking_prefixes.iter();
    match redis.tracking {
        RedisTracking::Keys => Announced::Keys,
        RedisTracking::Prefix => {
            Announced::Prefixes(prefixes.map(|it| it.as_bytes().into()).collect())
        }
        RedisTracking::Off => Announced::Nothing,
    }
}

/// The server, the Sentinels that know it, or servers of the cluster.
fn endpoint(
    redis: &RedisConfig,
    left_out: &mut Vec<String>,
    names: &mut Names,
) -> Result<Option<Endpoint>, RunError> {
    let sentinels = several(&redis.sentinels, "redis.sentinels", left_out, names)?;
    let cluster = several(&redis.cluster, "redis.cluster", left_out, names)?;
    Ok(match (&redis.url, &redis.sentinel_name) {
        (Some(RedisUrl::Tcp(address) | RedisUrl::Secure(address)), _) => {
            Some(Endpoint::Tcp(names.resolve(address, "--redis")?))
        }
        (Some(RedisUrl::Unix(path)), _) => Some(Endpoint::Unix(path.clone())),
        (None, Some(name)) if !sentinels.is_empty() => Some(Endpoint::Primary {
            name: name.clone(),
            sentinels,
        }),
        (None, _) => (!cluster.is_empty()).then_some(Endpoint::Cluster(cluster)),
    })
}

/// The addresses of servers, of which one that is found is enough; the errors of others are left
/// out.
fn several(
    urls: &[RedisUrl],
    option: &'static str,
    left_out: &mut Vec<String>,
    names: &mut Names,
) -> Result<Vec<SocketAddr>, RunError> {
    let (mut found, mut unknown) = (Vec::new(), None);
    for url in urls {
        if let RedisUrl::Tcp(address) | RedisUrl::Secure(address) = url {
            match names.resolve(address, option) {
                Ok(address) if found.contains(&address) => {}
                Ok(address) => found.push(address),
                Err(error) => {
                    left_out.push(error.to_string());
                    unknown = Some(error);
                }
            }
        }
    }
    match unknown {
        Some(error) if found.is_empty() => Err(error),
        _ => Ok(found),
    }
}

/// The first line of a file.
fn password(path: &Path) -> Result<String, RunError> {
    let refused = |reason: String| RunError::RedisPassword {
        path: path.to_owned(),
        reason,
    };
    let text = fs::read_to_string(path).map_err(|error| refused(error.to_string()))?;
    let password = text.trim_end_matches(['\r', '\n']);
    if password.is_empty() {
        return Err(refused("it is empty".to_owned()));
    }
    Ok(password.to_owned())
}
