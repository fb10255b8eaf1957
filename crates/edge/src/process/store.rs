//! The embedded store of a server: its configuration, its snapshot, and its listeners.

use super::error::RunError;
use super::inherited::Inherited;
use super::listeners::AddressPlan;
use crate::config::Config;
use crate::handoff::{ListenAddress, Role};
use crate::metrics::Metrics;
use dwell_evloop::{ListenOptions, Listener, bind_unix, share_out};
use dwell_proto::memcache::RequestLimits;
use dwell_store::{Expiry, Notify, Seconds, Store, StoreConfig};
use dwell_store_server::{
    Allowed, Credentials, Listening, Moment, StoreServerLimits, StoreService, snapshot,
};
use std::fs;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// Makes the store and its service. Its items are loaded from the snapshot, unless they come from
/// the predecessor. `None` if values come from memcached.
pub(super) fn service(
    config: &Config,
    limits: StoreServerLimits,
    notify: Box<dyn Notify>,
    metrics: &Arc<Metrics>,
    now: Moment,
    comes_by_hand: bool,
) -> Result<Option<Arc<StoreService>>, RunError> {
    if !config.uses_embedded_store() {
        return Ok(None);
    }
    let options = StoreConfig {
        bytes_max: config.store.bytes_max,
        item_bytes_max: config.store.item_bytes_max,
        evicts: config.store.evictions,
        ..StoreConfig::default()
    };
    let store = Arc::new(Store::new(&options, notify));
    let flush_at = match &config.store.snapshot {
        Some(path) => {
            // The items stored from now on must be writable at the end.
            snapshot::check_writable(path).map_err(RunError::Snapshot)?;
            if comes_by_hand {
                None
            } else {
                load(&store, path, now)?
            }
        }
        None => None,
    };
    let (cells, host) = (metrics.of_stores(), Arc::clone(metrics));
    let service = StoreService::new(store, limits, cells, host, now.steady);
    if let Some(at) = flush_at {
        service.flush_all(Expiry::at(at), now.steady);
    }
    Ok(Some(service))
}

/// Reads the file with names and passwords, if there is one, and rejects an unusable snapshot path.
pub(super) fn limits(config: &Config) -> Result<StoreServerLimits, RunError> {
    let store = &config.store;
    if let (Some(path), true) = (&store.snapshot, config.uses_embedded_store()) {
        snapshot::check_kind(path).map_err(RunError::Snapshot)?;
    }
    let credentials = match &store.auth_file {
        Some(path) => Some(Arc::new(credentials(path)?)),
        None => None,
    };
    Ok(StoreServerLimits {
        connections_max: store.connections_max,
        idle_timeout: Some(store.idle_timeout).filter(|timeout| !timeout.is_zero()),
        bytes_max: store.bytes_max,
        request: RequestLimits {
            item_bytes_max: store.item_bytes_max,
            ..RequestLimits::default()
        },
        protocols: store.protocols,
        cas_enabled: store.cas,
        commands_per_turn: store.commands_per_turn,
        allowed: Allowed {
            dump: store.dump,
            flush_all: store.flush_all,
            shutdown: store.shutdown,
        },
        credentials,
        write_rate_min: config.limits.write_rate_min,
        ..StoreServerLimits::default()
    })
}

/// Reads names and passwords.
pub(crate) fn credentials(path: &Path) -> Result<Credentials, RunError> {
    let wrong = |reason: String| RunError::AuthFile {
        path: path.to_owned(),
        reason,
    };
    let text = fs::read(path).map_err(|error| wrong(error.to_string()))?;
    Credentials::parse(&text).map_err(|error| wrong(error.to_string()))
}

/// Loads the snapshot; returns the time of its pending `flush_all`, if it has one.
///
/// A damaged snapshot is logged and skipped. If it cannot be opened, the start fails, because the
/// end of the process would overwrite it.
fn load(store: &Store, path: &Path, now: Moment) -> Result<Option<Seconds>, RunError> {
    match snapshot::load(store, path, now) {
        Ok(summary) => {
            let (items, restored) = (summary.items, summary.restored);
            tracing::info!(path = %path.display(), items, restored, "snapshot read");
            summary.warn_of_left_out(store);
            Ok(summary.flush_at)
        }
        Err(error @ snapshot::SnapshotError::Damaged { .. }) => {
            tracing::error!("{error}; the store starts empty");
            Ok(None)
        }
        Err(error) => Err(RunError::Snapshot(error)),
    }
}

/// Writes the snapshot, after the process has stopped serving.
pub(super) fn save(config: &Config, service: &StoreService, now: Moment) -> Result<(), RunError> {
    let Some(path) = &config.store.snapshot else {
        return Ok(());
    };
    let flush_at = service.pending_flush(now.steady);
    let summary =
        snapshot::save(service.store(), flush_at, path, now).map_err(RunError::Snapshot)?;
    tracing::info!(path = %path.display(), items = summary.items, "snapshot written");
    Ok(())
}

/// Binds the store's listeners for each loop, and describes them for `stats`.
pub(super) fn bind(
    config: &Config,
    loops: usize,
    demo: bool,
    inherited: &mut Inherited,
) -> Result<(Vec<Vec<Listener>>, Listening), RunError> {
    let mut of_loops: Vec<Vec<Listener>> = (0..loops).map(|_| Vec::new()).collect();
    let mut listening = Listening::default();
    if !config.uses_embedded_store() {
        return Ok((of_loops, listening));
    }
    let mut options = ListenOptions::default();
    options.backlog = i32::from(config.store.backlog);
    listening.backlog = config.store.backlog;
    for address in config.store.listen.iter().chain(&config.store.listen_also) {
        let listen = AddressPlan::new(Role::Store, *address, options, demo);
        let shares = listen.shares(inherited, loops)?;
        let bound = shares.iter().flatten().find_map(Listener::address);
        listening.tcp = listening.tcp.or(bound);
        add(&mut of_loops, shares);
    }
    if let Some(path) = &config.store.unix_socket {
        options.unix_permissions = Some(config.store.unix_permissions);
        let shares = listen_at_path(path, loops, options, inherited);
        let shares = shares.map_err(|source| RunError::ListenUnix {
            path: path.clone(),
            source,
        })?;
        tracing::info!(path = %path.display(), option = "store.unix_socket", "listening");
        add(&mut of_loops, shares);
        listening.unix = Some(path.clone());
    }
    Ok((of_loops, listening))
}

/// Writes the port to a file, as memcached does for its tests. The file is renamed into place, so
/// that a waiting program always finds the whole content.
pub(super) fn tell_port(path: Option<&Path>, listening: &Listening) -> Result<(), RunError> {
    let (Some(path), Some(tcp)) = (path, listening.tcp) else {
        return Ok(());
    };
    let family = if tcp.is_ipv4() { "INET" } else { "INET6" };
    let mut draft = path.as_os_str().to_owned();
    draft.push(".lck");
    let written = fs::write(&draft, format!("TCP {family}: {}\n", tcp.port()));
    let told = written.and_then(|()| fs::rename(&draft, path));
    told.map_err(|error| {
        let message = format!("cannot write {}: {error}", path.display());
        RunError::PortFile(io::Error::new(error.kind(), message))
    })
}

/// Gives each loop its share of listeners.
fn add(of_loops: &mut [Vec<Listener>], shares: Vec<Vec<Listener>>) {
    for (of_loop, share) in of_loops.iter_mut().zip(shares) {
        of_loop.extend(share);
    }
}

fn listen_at_path(
    path: &Path,
    loops: usize,
    options: ListenOptions,
    inherited: &mut Inherited,
) -> io::Result<Vec<Vec<Listener>>> {
    let place = ListenAddress::Unix(path.to_owned());
    let mut sockets = inherited.take(Role::Store, &place, false, options)?;
    if sockets.is_empty() {
        sockets.push(bind_unix(path, options)?);
    }
    share_out(sockets, loops)
}
