//! The servers that the process is a client of, as a start finds them.

use super::error::RunError;
use super::names::Names;
use super::outward;
use super::plans::upstream_plan;
use super::redis::{RedisServer, redis_at_start};
use super::reload::FoundServers;
use crate::access::Access;
use crate::config::Config;
use crate::descriptors::Descriptors;
use crate::event_loop::Settings;
use dwell_memcache::on_loop::ServerOptions;
use dwell_upstream::UpstreamPlan;
use std::sync::Arc;

/// The servers, with resolved names.
#[derive(Debug)]
pub(super) struct Peers {
    pub(super) upstream: Option<Arc<UpstreamPlan>>,
    pub(super) memcached: Vec<ServerOptions>,
    pub(super) redis: Option<RedisServer>,
    pub(super) found: FoundServers,
}

impl Peers {
    /// Looks names up, and reads files.
    ///
    /// # Errors
    /// A name that is not found, or a file that cannot be used.
    pub(super) fn find(
        config: &Config,
        loops: usize,
        descriptors: &Descriptors,
    ) -> Result<Self, RunError> {
        let mut names = Names::at_start();
        // Before the files are used: one that is replaced meanwhile is read again by a reload.
        let upstream_files = outward::upstream_files(config)?;
        let upstream = upstream_plan(config, loops, descriptors, &mut names)?;
        let memcached = memcached_servers(config, &mut names)?;
        let redis = redis_at_start(config, &mut names)?;
        let found = FoundServers {
            addresses: names.finish(),
            upstream_files,
        };
        Ok(Self {
            upstream: upstream.map(Arc::new),
            memcached,
            redis,
            found,
        })
    }

    /// The settings that the loops begin with.
    pub(super) fn settings(&self, config: &Arc<Config>, access: &Arc<Access>) -> Settings {
        let memcached = self.memcached.iter().map(|server| server.address);
        Settings {
            config: Arc::clone(config),
            upstream: self.upstream.clone(),
            memcached: memcached.collect(),
            redis: self.redis.as_ref().map(|redis| redis.endpoint.clone()),
            access: Some(Arc::clone(access)),
            ..Settings::default()
        }
    }
}

/// The memcached servers, whose names are looked up and whose files are read now.
///
/// # Errors
/// A name that is not found, or a file that cannot be used.
fn memcached_servers(config: &Config, names: &mut Names) -> Result<Vec<ServerOptions>, RunError> {
    let outward = outward::memcached(config)?;
    let servers = config.memcached.servers.iter().map(|server| {
        let connector = |outward: &outward::Outward<'_>| outward.connector(&server.address);
        Ok(ServerOptions {
            address: names.resolve(&server.address, "--memcached")?,
            host: server.address.host.clone(),
            weight: server.weight,
            tls: outward.as_ref().map(connector).transpose()?,
        })
    });
    servers.collect()
}
