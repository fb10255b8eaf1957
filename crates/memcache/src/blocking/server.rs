//! One server: its idle connections, and how it stands with it.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use dwell_proto::memcache::ReplyLimits;

use super::Error;
use super::budget::Budget;
use super::connection::Connection;
use super::fault::Fault;
use super::health::Health;
use super::options::{ClientOptions, ServerOptions};
use super::resolve::Resolver;
use super::socket::Socket;
use super::tls::{Connector, Layer};
use crate::ServerAddress;

/// A server of a client, shared by the threads that use it.
#[derive(Debug)]
pub(crate) struct Server {
    address: ServerAddress,
    /// The address in words.
    pub(crate) name: Arc<str>,
    /// Begins the handshakes of TLS; without it connections are plaintext.
    tls: Option<Connector>,
    local: Local,
}

/// The state that belongs to one process alone.
///
/// A child that was forked off has a copy of its parent's connections and of its locks, some of
/// them perhaps held by threads that the child does not have. So it touches neither, and begins
/// with a `Local` of its own.
#[derive(Debug)]
struct Local {
    forks: u64,
    idle: Mutex<Vec<Connection>>,
    health: Mutex<Health>,
    resolver: Option<Resolver>,
    /// Failures in a row, to be seen without a lock.
    failures: AtomicU32,
    child: OnceLock<Box<Self>>,
}

/// The state of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ServerStatus {
    /// Its address, as it was given.
    pub server: Arc<str>,
    /// Failures since the last answer.
    pub failures_in_row: u32,
    /// True while it is ejected after failures.
    pub is_ejected: bool,
    /// Connections that wait for an operation.
    pub idle_connections: usize,
}

impl Server {
    pub(crate) fn new(server: &ServerOptions, options: &ClientOptions) -> Result<Self, Error> {
        let host = server.address.host();
        let tls = options.tls.as_ref().map(|tls| tls.connector(host));
        Ok(Self {
            tls: tls.transpose()?,
            name: server.address.to_string().into(),
            local: Local::new(&server.address, options),
            address: server.address.clone(),
        })
    }

    /// Returns true if an operation may be sent to it now.
    pub(crate) fn admits(&self, options: &ClientOptions, now: Instant) -> bool {
        let local = self.local(options);
        local.failures.load(Ordering::Relaxed) < options.failures_max
            || lock(&local.health).admits(now)
    }

    /// The connector of TLS; `None` for plaintext.
    #[cfg(feature = "tls")]
    pub(crate) const fn connector(&self) -> Option<&Connector> {
        self.tls.as_ref()
    }

    /// A connection from the pool, if there is one.
    ///
    /// Shape: it is not asked whether it is still good, as that would be a system call each time.
    /// It is checked only where a failure could not be made good by asking again, and some time
    /// has passed.
    pub(crate) fn pooled(
        &self,
        options: &ClientOptions,
        now: Instant,
        is_repeatable: bool,
    ) -> Option<Connection> {
        let local = self.local(options);
        loop {
            let connection = lock(&local.idle).pop()?;
            let idle_for = connection.idle_for(now);
            let is_doubtful = !is_repeatable && idle_for > DOUBT_AFTER;
            if idle_for <= options.idle_timeout
                && connection.forks() == local.forks
                && !(is_doubtful && connection.socket().is_stale())
            {
                return Some(connection);
            }
        }
    }

    /// Makes a connection.
    pub(crate) fn connect(
        &self,
        options: &ClientOptions,
        budget: &mut Budget,
    ) -> Result<Connection, Fault> {
        budget.has_begun();
        let attempt = budget.at_most(Some(options.connect_timeout));
        let socket = match &self.address {
            ServerAddress::Unix(path) => Socket::connect_unix(path, &attempt)?,
            ServerAddress::Tcp { .. } => self.connect_tcp(options, &attempt)?,
        };
        let limits = ReplyLimits {
            value_bytes_max: options.value_bytes_max,
            ..ReplyLimits::default()
        };
        let secured = self
            .tls
            .as_ref()
            .map(|tls| Layer::shake(tls, &socket, &attempt));
        let secured = secured.transpose()?;
        let mut connection = Connection::new(socket, options.timeouts, limits);
        if let Some((layer, early)) = secured {
            connection.secure(layer, &early)?;
        }
        Ok(connection)
    }

    /// Tries each address of the host, with an equal share of the time that is left.
    fn connect_tcp(&self, options: &ClientOptions, attempt: &Budget) -> Result<Socket, Fault> {
        let Some(resolver) = &self.local(options).resolver else {
            return Err(Fault::Resolve("no host".to_owned()));
        };
        let addresses = resolver.addresses(attempt)?;
        let mut failed = Fault::Resolve("no address".to_owned());
        for (place, address) in addresses.iter().enumerate() {
            let left = (addresses.len() - place) as u32;
            match Socket::connect_tcp(*address, &attempt.share(left)) {
                Ok(socket) => return Ok(socket),
                Err(fault) => failed = fault,
            }
        }
        Err(failed)
    }

    /// Keeps a connection that is in step for the next operation.
    pub(crate) fn keep(&self, options: &ClientOptions, mut connection: Connection) {
        let local = self.local(options);
        local.answered();
        if connection.finish() && connection.forks() == local.forks {
            let mut idle = lock(&local.idle);
            if idle.len() < options.idle_connections_max {
                idle.push(connection);
            }
        }
    }

    /// Notes that the server has answered.
    pub(crate) fn answered(&self, options: &ClientOptions) {
        self.local(options).answered();
    }

    /// An operation failed in a way that speaks against the server.
    pub(crate) fn failed(&self, options: &ClientOptions) {
        let local = self.local(options);
        let mut health = lock(&local.health);
        health.failed(Instant::now());
        local.failures.store(health.failures(), Ordering::Relaxed);
    }

    /// A connection turned out to have ended while it was idle: the others will have too.
    pub(crate) fn forget_idle(&self, options: &ClientOptions) {
        let ended = std::mem::take(&mut *lock(&self.local(options).idle));
        drop(ended);
    }

    pub(crate) fn status(&self, options: &ClientOptions) -> ServerStatus {
        let local = self.local(options);
        let health = lock(&local.health);
        ServerStatus {
            server: Arc::clone(&self.name),
            failures_in_row: health.failures(),
            is_ejected: health.is_open(),
            idle_connections: lock(&local.idle).len(),
        }
    }

    /// Returns the state of this process.
    fn local(&self, options: &ClientOptions) -> &Local {
        let forks = dwell_timers::forks();
        let mut local = &self.local;
        while local.forks != forks {
            local = local.child.get_or_init(|| {
                // Closes this process's ends of its parent's connections, if they can be had.
                if let Ok(mut idle) = local.idle.try_lock() {
                    idle.clear();
                }
                Box::new(Local::new(&self.address, options))
            });
        }
        local
    }
}

impl Local {
    fn new(address: &ServerAddress, options: &ClientOptions) -> Self {
        let seed = seed_of(address);
        Self {
            forks: dwell_timers::forks(),
            idle: Mutex::new(Vec::new()),
            health: Mutex::new(Health::new(options, seed)),
            resolver: match address {
                ServerAddress::Tcp { host, port } => Some(Resolver::new(host, *port)),
                ServerAddress::Unix(_) => None,
            },
            failures: AtomicU32::new(0),
            child: OnceLock::new(),
        }
    }

    fn answered(&self) {
        if self.failures.load(Ordering::Relaxed) > 0 {
            lock(&self.health).answered();
            self.failures.store(0, Ordering::Relaxed);
        }
    }
}

/// A number that differs between servers and processes.
fn seed_of(address: &ServerAddress) -> u64 {
    use std::hash::{BuildHasher, RandomState};
    RandomState::new().hash_one(address)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A connection that was used so recently is taken for good.
const DOUBT_AFTER: Duration = Duration::from_secs(1);
