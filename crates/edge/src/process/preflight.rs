//! Checks that find errors of a start without starting.

use super::error::RunError;
use super::lookups::LookupTime;
use super::names::Names;
use super::plans::{looked_up, resolve};
use super::redis::redis_server;
use super::{outward, pid_file, privileges, store, tls};
use crate::access::Access;
use crate::config::{AccessTarget, Config, PeerAddress};
use crate::descriptors::Descriptors;
use dwell_store_server::snapshot::SnapshotError;
use nix::unistd::{AccessFlags, access};
use rustix::process::{Resource, getrlimit};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

/// Returns the errors with which `dwell serve` would end under this configuration.
///
/// Shape: names are resolved, each in ten seconds and all in a minute, and files are read or
/// checked, as at the start. Nothing is bound, created or changed. So a port in use is not found,
/// nor missing rights of another user.
pub fn preflight(config: &Config) -> Vec<RunError> {
    let mut found = Vec::new();
    found.extend(store::limits(config).err());
    found.extend(Access::load(config, None).err().map(RunError::Access));
    found.extend(tls::read(config).err());
    found.extend(outward::check(config));
    found.extend(tls::acceptor(config, &[], 1).err());
    found.extend(tls::read_tickets(config).err());
    let time = LookupTime::new(LOOKUPS_LIMIT);
    if let Some(place) = config.redis.place() {
        let of_lookup = config.clone();
        let server = time.look_up((place, "[redis]"), move || {
            redis_server(&of_lookup, &mut Names::at_start())
        });
        found.extend(server.err());
    }
    for (name, option) in names(config) {
        let of_lookup = name.clone();
        let address = time.look_up((name.to_string(), option), move || {
            resolve(&of_lookup, option)
        });
        found.extend(address.err());
    }
    if let Some(path) = &config.server.pid_file {
        let named = |error| pid_file::named("cannot write", path, &error);
        found.extend(appendable(path).err().map(named).map(RunError::PidFile));
    }
    if let Some(name) = &config.server.user {
        found.extend(privileges::user(name).err().map(RunError::Privileges));
    }
    if config.uses_embedded_store() {
        if let Some(path) = &config.store.snapshot {
            let file = |source| SnapshotError::File {
                path: path.clone(),
                source,
            };
            found.extend(folder(path).err().map(file).map(RunError::Snapshot));
        }
        if let Some(path) = &config.store.unix_socket {
            let listen = |source| RunError::ListenUnix {
                path: path.clone(),
                source,
            };
            found.extend(folder(path).err().map(listen));
        }
    }
    if let AccessTarget::File(path) = &config.log.access {
        let file = |source| RunError::AccessLog {
            path: path.clone(),
            source,
        };
        found.extend(appendable(path).err().map(file));
    }
    found
}

/// Returns warnings about certificates that clients refuse, because they have expired, are not
/// valid yet, or name no host.
pub fn preflight_warnings(config: &Config) -> Vec<String> {
    let pairs = tls::read(config).unwrap_or_default();
    tls::warnings(&pairs, SystemTime::now())
}

/// Returns the warning about a limit on open files that is too low; it reads no file.
///
/// Shape: the limit is that of this process, which a service manager may set differently.
pub fn descriptor_warning(config: &Config) -> Option<String> {
    // The start raises the soft limit to the hard one.
    let descriptors = Descriptors::measure(getrlimit(Resource::Nofile).maximum);
    let shortage = descriptors.shortage(config);
    shortage.map(|shortage| shortage.to_string())
}

/// The servers in the configuration, with their options.
fn names(config: &Config) -> impl Iterator<Item = (&PeerAddress, &'static str)> {
    let webhook = config.presence.webhook_url.iter();
    let webhook = webhook.map(|url| (&url.address, "presence.webhook_url"));
    looked_up(config).chain(webhook)
}

/// Checks that a file can be created in the folder of `path`.
fn folder(path: &Path) -> io::Result<()> {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    if !folder.metadata()?.is_dir() {
        return Err(io::ErrorKind::NotADirectory.into());
    }
    Ok(access(folder, AccessFlags::W_OK | AccessFlags::X_OK)?)
}

/// Checks that the file at `path` can be appended to, or created.
fn appendable(path: &Path) -> io::Result<()> {
    match path.metadata() {
        Ok(found) if found.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
        Ok(_) => Ok(access(path, AccessFlags::W_OK)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => folder(path),
        Err(error) => Err(error),
    }
}

/// The time for all names.
const LOOKUPS_LIMIT: Duration = Duration::from_secs(60);
