//! Errors that stop a server, or keep it from starting.

use super::inherited::InheritedError;
use super::privileges::PrivilegesError;
use crate::config::AccessTarget;
use dwell_store_server::snapshot::SnapshotError;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::{fmt, io};

/// Error that stops the server, or keeps it from starting.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// An address cannot be listened on.
    Listen {
        /// The address.
        address: SocketAddr,
        /// The option that sets it.
        option: &'static str,
        /// Error of the system.
        source: io::Error,
    },
    /// A unix socket cannot be listened on.
    ListenUnix {
        /// Its path.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The inherited sockets do not match the configuration.
    Inherited(InheritedError),
    /// The file with names and passwords cannot be used.
    AuthFile {
        /// Its path.
        path: PathBuf,
        /// The fault in it.
        reason: String,
    },
    /// A certificate of TLS, or its key, cannot be used.
    Certificate {
        /// The path of the file that is wrong.
        path: PathBuf,
        /// The option that sets it.
        option: &'static str,
        /// The fault in it.
        reason: String,
    },
    /// A certificate for development cannot be made.
    SelfSigned(String),
    /// The certificate of a server cannot be for this name.
    ServerName {
        /// The option that sets it.
        option: &'static str,
        /// The fault in it.
        reason: String,
    },
    /// The snapshot cannot be read or written.
    Snapshot(SnapshotError),
    /// The name of a server cannot be resolved.
    Resolve {
        /// The name as configured.
        name: String,
        /// The option that has it.
        option: &'static str,
        /// Error of the resolver.
        source: io::Error,
    },
    /// The password of Redis cannot be read.
    RedisPassword {
        /// The file.
        path: PathBuf,
        /// The reason.
        reason: String,
    },
    /// The memcached servers do not form a ring.
    Memcached(dwell_memcache::on_loop::Error),
    /// Credentials cannot be loaded.
    Access(String),
    /// The process cannot become `server.user`.
    Privileges(PrivilegesError),
    /// The predecessor has ended the upgrade.
    Upgrade(io::Error),
    /// The file with the process id cannot be written.
    PidFile(io::Error),
    /// The file with the port of the store cannot be written.
    PortFile(io::Error),
    /// The access log cannot be opened.
    AccessLog {
        /// Its path, or the words `standard output`.
        path: PathBuf,
        /// Error of the system.
        source: io::Error,
    },
    /// The system has no descriptor, memory or thread for a loop.
    Loop(io::Error),
}

impl RunError {
    /// The access log that cannot be opened.
    pub(super) fn access_log(target: &AccessTarget, source: io::Error) -> Self {
        let path = match target {
            AccessTarget::File(path) => path.clone(),
            AccessTarget::Off | AccessTarget::Stdout => PathBuf::from("standard output"),
        };
        Self::AccessLog { path, source }
    }
}

impl fmt::Display for RunError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen {
                address,
                option,
                source,
            } if source.kind() == io::ErrorKind::AddrInUse => {
                write!(
                    f,
                    "cannot listen on {address}: the port is taken by another program; \
                     {option} chooses another"
                )
            }
            Self::Listen {
                address,
                option,
                source,
            } => {
                write!(f, "cannot listen on {address} ({option}): {source}")
            }
            Self::ListenUnix { path, source } => {
                write!(
                    f,
                    "cannot listen on {} (store.unix_socket): {source}",
                    path.display()
                )
            }
            Self::AuthFile { path, reason } => {
                write!(
                    f,
                    "cannot use {} (store.auth_file): {reason}",
                    path.display()
                )
            }
            Self::Certificate {
                path,
                option,
                reason,
            } => write!(f, "cannot use {} ({option}): {reason}", path.display()),
            Self::SelfSigned(reason) => write!(f, "no certificate can be made: {reason}"),
            Self::ServerName { option, reason } => write!(f, "{reason} ({option})"),
            Self::Inherited(error) => error.fmt(f),
            Self::Snapshot(error) => error.fmt(f),
            Self::Resolve {
                name,
                option,
                source,
            } => write!(f, "cannot resolve {name} ({option}): {source}"),
            Self::RedisPassword { path, reason } => {
                write!(
                    f,
                    "cannot use {} (redis.password_file): {reason}",
                    path.display()
                )
            }
            Self::Memcached(error) => write!(f, "memcached servers: {error}"),
            Self::Access(reason) => f.write_str(reason),
            Self::Privileges(error) => write!(f, "{error} (server.user)"),
            Self::Upgrade(source) => write!(f, "cannot succeed the process before: {source}"),
            Self::PidFile(source) | Self::PortFile(source) => source.fmt(f),
            Self::AccessLog { path, source } => {
                write!(f, "cannot open {}: {source} (log.access)", path.display())
            }
            Self::Loop(source) => write!(f, "cannot run an event loop: {source}"),
        }
    }
}

impl std::error::Error for RunError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen { source, .. }
            | Self::ListenUnix { source, .. }
            | Self::Resolve { source, .. }
            | Self::Upgrade(source)
            | Self::PidFile(source)
            | Self::PortFile(source)
            | Self::AccessLog { source, .. }
            | Self::Loop(source) => Some(source),
            Self::Memcached(error) => Some(error),
            Self::Inherited(error) => error.source(),
            Self::Privileges(error) => error.source(),
            Self::Snapshot(error) => error.source(),
            Self::AuthFile { .. }
            | Self::Certificate { .. }
            | Self::SelfSigned(_)
            | Self::RedisPassword { .. }
            | Self::ServerName { .. }
            | Self::Access(_) => None,
        }
    }
}
