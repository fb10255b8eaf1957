//! State that the loops of one store server share.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use dwell_proto::memcache::{ErrorLine, Protocols, RequestLimits};
use dwell_store::{Expiry, Seconds, Store};

use super::credentials::{self, Credentials};
use super::metrics::{HostFigures, StoreMetrics};

/// Bounds of the store server, and what its operator allows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoreServerLimits {
    /// Open connections over all loops; the next gets an error line and is closed. Default: 1024.
    pub connections_max: usize,
    /// Time that a connection may be silent between commands. `None`, the default, is for ever, as
    /// pooled clients expect it.
    pub idle_timeout: Option<Duration>,
    /// Time for which a peer may neither finish a command it began nor read a reply. Default: 60 s.
    pub stall_timeout: Duration,
    /// Bytes a second that a peer takes at least while replies wait for it, on the average of a
    /// `stall_timeout`. Default: 512.
    pub write_rate_min: u32,
    /// The size to which `cache_memlimit` may raise the store. Units: bytes. Default: 64 MiB.
    pub bytes_max: usize,
    /// Lines and items.
    pub request: RequestLimits,
    /// The protocols that are spoken. Default: both.
    pub protocols: Protocols,
    /// True gives items a cas unique; without, every one is 0. Default: true.
    pub cas_enabled: bool,
    /// Commands of one connection before another has its turn. Default: 64.
    pub commands_per_turn: usize,
    /// The commands beside reading and writing that clients may use.
    pub allowed: Allowed,
    /// The users of the store by the text protocol, at the start; `None`, the default, admits every
    /// client that can connect. With it the binary protocol is not spoken.
    pub credentials: Option<Arc<Credentials>>,
}

impl Default for StoreServerLimits {
    fn default() -> Self {
        Self {
            connections_max: 1024,
            idle_timeout: None,
            stall_timeout: Duration::from_secs(60),
            write_rate_min: 512,
            bytes_max: 64 << 20,
            request: RequestLimits::default(),
            protocols: Protocols::Both,
            cas_enabled: true,
            commands_per_turn: 64,
            allowed: Allowed::default(),
            credentials: None,
        }
    }
}

/// Commands that an operator may want to keep from clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Allowed {
    /// Listings of all keys. Default: yes.
    pub dump: bool,
    /// `flush_all`. Default: yes.
    pub flush_all: bool,
    /// `shutdown`. Default: no.
    pub shutdown: bool,
}

impl Default for Allowed {
    fn default() -> Self {
        Self {
            dump: true,
            flush_all: true,
            shutdown: false,
        }
    }
}

/// The addresses of a store server, for `stats`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Listening {
    /// Its first TCP address.
    pub tcp: Option<SocketAddr>,
    /// Its unix socket.
    pub unix: Option<PathBuf>,
    /// Connections that the kernel keeps until they are accepted.
    pub backlog: u16,
}

/// The store with what its servers on all loops count.
#[derive(Debug)]
pub struct StoreService {
    pub(super) store: Arc<Store>,
    pub(super) limits: StoreServerLimits,
    /// The cells of each loop that serves the store.
    pub(super) loops: Vec<Arc<StoreMetrics>>,
    pub(super) host: Arc<dyn HostFigures>,
    pub(super) started: Seconds,
    pub(super) counters: Counters,
    pub(super) listening: OnceLock<Listening>,
    connections: Mutex<BTreeMap<u64, Arc<ConnectionRecord>>>,
    /// The second of a delayed `flush_all`; the past means nothing.
    flush_at: Mutex<Seconds>,
    shutdown_asked: AtomicBool,
    /// The users that may log in now.
    credentials: RwLock<Arc<Credentials>>,
}

/// Figures of the connections. All are statistics only: no other memory is published with them.
#[derive(Debug, Default)]
pub(super) struct Counters {
    pub(super) curr_connections: AtomicU64,
    pub(super) total_connections: AtomicU64,
    pub(super) rejected_connections: AtomicU64,
    pub(super) bytes_read: AtomicU64,
    pub(super) bytes_written: AtomicU64,
    pub(super) conn_yields: AtomicU64,
    pub(super) idle_kicks: AtomicU64,
    pub(super) auth_commands: AtomicU64,
    pub(super) auth_errors: AtomicU64,
    pub(super) verbosity: AtomicU32,
}

/// The facts of one connection for `stats conns`.
#[derive(Debug)]
pub(super) struct ConnectionRecord {
    pub(super) id: u64,
    /// The peer; `None` by unix socket.
    pub(super) peer: Option<SocketAddr>,
    /// The second in which its last command was executed, or in which it came.
    pub(super) last_command: AtomicU32,
    /// The state that it is in: a [`Doing`].
    pub(super) doing: AtomicU8,
}

/// The state of a connection, for `stats conns`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Doing {
    /// It waits for a line, or the rest of one.
    Reading = 0,
    /// It executes a command.
    Executing = 1,
    /// It waits for the rest of a value.
    ReadingValue = 2,
    /// It discards a value that was refused.
    Discarding = 3,
    /// It waits for its peer to take replies.
    Writing = 4,
}

impl ConnectionRecord {
    pub(super) fn does(&self, doing: Doing) {
        self.doing.store(doing as u8, Relaxed);
    }

    /// The state that it is in, in memcached's words.
    pub(super) fn state(&self) -> &'static str {
        const STATES: [&str; 5] = [
            "conn_read",
            "conn_parse_cmd",
            "conn_nread",
            "conn_swallow",
            "conn_mwrite",
        ];
        let doing = usize::from(self.doing.load(Relaxed));
        STATES.get(doing).copied().unwrap_or(STATES[0])
    }
}

impl StoreService {
    /// A service on `store`, started at `now` (Unix time), each of whose loops counts in its own of
    /// `loops`.
    pub fn new(
        store: Arc<Store>,
        limits: StoreServerLimits,
        loops: Vec<Arc<StoreMetrics>>,
        host: Arc<impl HostFigures + 'static>,
        now: Seconds,
    ) -> Arc<Self> {
        let credentials = limits.credentials.clone().unwrap_or_default();
        Arc::new(Self {
            store,
            credentials: RwLock::new(credentials),
            limits,
            loops,
            host,
            started: now,
            counters: Counters::default(),
            listening: OnceLock::new(),
            connections: Mutex::default(),
            flush_at: Mutex::default(),
            shutdown_asked: AtomicBool::new(false),
        })
    }

    /// The store itself.
    pub fn store(&self) -> &Arc<Store> {
        &self.store
    }

    /// Tells, once, where the service listens.
    pub fn listens(&self, listening: Listening) {
        // The first word counts; there is one caller.
        let _ = self.listening.set(listening);
    }

    /// Open connections over all loops.
    pub fn connections(&self) -> u64 {
        self.counters.curr_connections.load(Relaxed)
    }

    /// Removes everything at a moment, as [`Store::flush_all`] does, and remembers it if it has not
    /// come; [`Expiry::NEVER`], as an exptime of 0 is read, is now.
    pub fn flush_all(&self, at: Expiry, now: Seconds) {
        let at = at.time().filter(|at| *at > now).unwrap_or(0);
        // Held over the flush, so that of two at once the same is the later one here and there.
        let mut flush_at = self.flush_at.lock().unwrap_or_else(PoisonError::into_inner);
        *flush_at = at;
        self.store.flush_all(i64::from(at), now);
    }

    /// The second at which everything stored by then goes, if that is still to come.
    pub fn pending_flush(&self, now: Seconds) -> Option<Seconds> {
        let flush_at = self.flush_at.lock().unwrap_or_else(PoisonError::into_inner);
        Some(*flush_at).filter(|at| *at > now)
    }

    /// Replaces the credentials for later logins; clients that have logged in stay.
    pub fn change_credentials(&self, credentials: Credentials) {
        let mut current = self
            .credentials
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *current = Arc::new(credentials);
    }

    /// Checks a name and a password, with a space between.
    pub(super) fn authenticate(&self, token: &[u8]) -> Result<(), ErrorLine> {
        if credentials::split(token).is_none() {
            return Err(ErrorLine::BadAuthenticationToken);
        }
        self.counters.auth_commands.fetch_add(1, Relaxed);
        let current = self.credentials.read();
        if current.unwrap_or_else(PoisonError::into_inner).admit(token) {
            return Ok(());
        }
        self.counters.auth_errors.fetch_add(1, Relaxed);
        Err(ErrorLine::AuthenticationFailed)
    }

    /// Returns true if a client has sent `shutdown`, where that is allowed.
    pub fn is_shutdown_asked(&self) -> bool {
        self.shutdown_asked.load(Relaxed)
    }

    /// Notes that a client asks for the end of the process.
    pub(super) fn ask_shutdown(&self) {
        self.shutdown_asked.store(true, Relaxed);
    }

    /// Counts a connection in, unless there are too many.
    pub(super) fn admit(
        &self,
        peer: Option<SocketAddr>,
        now: Seconds,
    ) -> Option<Arc<ConnectionRecord>> {
        let limit = self.limits.connections_max as u64;
        let counters = &self.counters;
        if counters.curr_connections.fetch_add(1, Relaxed) >= limit {
            counters.curr_connections.fetch_sub(1, Relaxed);
            counters.rejected_connections.fetch_add(1, Relaxed);
            return None;
        }
        let record = Arc::new(ConnectionRecord {
            id: counters.total_connections.fetch_add(1, Relaxed) + 1,
            peer,
            last_command: AtomicU32::new(now),
            doing: AtomicU8::new(Doing::Reading as u8),
        });
        self.records().insert(record.id, Arc::clone(&record));
        Some(record)
    }

    /// Counts one that was not let in.
    pub(super) fn refused(&self) {
        self.counters.rejected_connections.fetch_add(1, Relaxed);
    }

    /// Counts a connection out.
    pub(super) fn leave(&self, record: &ConnectionRecord) {
        self.records().remove(&record.id);
        self.counters.curr_connections.fetch_sub(1, Relaxed);
    }

    /// The open connections, the oldest first.
    pub(super) fn records(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<ConnectionRecord>>> {
        // A list that was left half changed by a panic is shown as it is.
        self.connections
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reply to `version`: the memcached whose behaviour this is, and the name of its replacement.
///
/// Clients read the first three numbers.
pub const VERSION: &str = "1.6.18-dwell";
