//! The limit on file descriptors, and its division.
//!
//! The system gives a new descriptor the lowest free number (POSIX.1, section 2.6). So the number
//! of a new socket bounds the count of the whole process, without a counter that all loops would
//! share. A client whose number is [`Bounds::clients`] or above is closed at once: those numbers
//! are reserved for the application, the memcached port and the operator.

use crate::config::{Config, IoUring};
use crate::log::LogThrottle;
use dwell_store_server::RefusalObserver;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::fmt;
use std::fs::File;
use std::os::fd::{AsRawFd, RawFd};

/// Reserved for the admin listener.
const ADMIN: u32 = 16;
/// Primaries of a cluster that descriptors are reserved for.
const PRIMARIES: u32 = 16;
/// Reserved for files that are read again, the snapshot, and an upgrade.
const SPARE: u32 = 16;
/// Smallest reserve for memcached clients, and for requests to the application.
const PEERS_MIN: u32 = 16;
/// Most connections of the admin listener.
const ADMIN_MAX: u64 = 256;

/// Raises the soft limit on open descriptors to the hard one.
///
/// Shape: the soft limit protects programs that use `select`; this one does not. Returns the limit
/// in force, or `None` without one. If the system refuses, the limit stays as it was.
pub fn raise_limit() -> Option<u64> {
    let limits = getrlimit(Resource::Nofile);
    if limits.current == limits.maximum {
        return limits.current;
    }
    let raised = Rlimit {
        current: limits.maximum,
        maximum: limits.maximum,
    };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limits.maximum,
        Err(_) => limits.current,
    }
}

/// The limit, and the descriptors in use before the process serves.
#[derive(Debug)]
pub(crate) struct Descriptors {
    limit: u32,
    in_use: u32,
    refused: LogThrottle,
}

/// Exclusive bounds: a socket with this number or a higher one is closed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Bounds {
    /// For clients.
    pub(crate) clients: RawFd,
    /// For connections to the application.
    pub(crate) upstream: RawFd,
    /// For memcached clients.
    pub(crate) store: RawFd,
}

impl Descriptors {
    /// Reads the descriptors in use, under `limit`; `None` is no limit.
    pub(crate) fn measure(limit: Option<u64>) -> Self {
        let most = RawFd::MAX.unsigned_abs();
        let limit = limit.and_then(|limit| u32::try_from(limit).ok());
        // The lowest free number. If there is none, there is nothing to divide.
        let lowest = File::open("/dev/null").map(|file| file.as_raw_fd().unsigned_abs());
        let limit = limit.unwrap_or(most).min(most);
        Self::new(limit, lowest.unwrap_or(limit))
    }

    fn new(limit: u32, in_use: u32) -> Self {
        Self {
            limit,
            in_use: in_use.min(limit),
            refused: LogThrottle::default(),
        }
    }

    /// The bounds under a configuration.
    ///
    /// Shape: clients get at least half of the free descriptors.
    pub(crate) fn bounds(&self, config: &Config) -> Bounds {
        let left = self.limit - self.in_use;
        let kept = Reserved::of(config, self.limit);
        let all = kept.operation + kept.store + kept.upstream;
        let has_clients = !config.server.listen.is_empty();
        let scale = |part: u32| match left / 2 {
            half if has_clients && all > half => {
                (u64::from(part) * u64::from(half) / u64::from(all)) as u32
            }
            _ => part.min(left),
        };
        let store = self.limit - scale(kept.operation);
        let upstream = store - scale(kept.store).min(store);
        let clients = upstream - scale(kept.upstream).min(upstream);
        let number = |bound: u32| RawFd::try_from(bound).unwrap_or(RawFd::MAX);
        Bounds {
            clients: number(clients),
            upstream: number(upstream),
            store: number(store),
        }
    }

    /// The clients that the limit leaves room for, under a configuration.
    pub(crate) fn clients_max(&self, config: &Config) -> u32 {
        let bound = self.bounds(config).clients.unsigned_abs();
        bound.saturating_sub(self.in_use)
    }

    /// Logs a warning if the limit allows fewer connections than the configuration.
    pub(crate) fn warn_of_shortage(&self, config: &Config) {
        if let Some(shortage) = self.shortage(config) {
            let Shortage {
                limit,
                needed,
                possible,
                ..
            } = shortage;
            tracing::warn!(limit, needed, possible, "{}", shortage.advice());
        }
    }

    /// The shortage, if the limit allows fewer connections than the configuration.
    pub(crate) fn shortage(&self, config: &Config) -> Option<Shortage> {
        let needed = self.needed(config);
        if u64::from(self.limit) >= needed {
            return None;
        }
        let bounds = self.bounds(config);
        let free = |bound: RawFd| bound.unsigned_abs().saturating_sub(self.in_use);
        let (option, configured, possible) = if config.server.listen.is_empty() {
            let configured = config.store.connections_max;
            ("store.connections_max", configured, free(bounds.store))
        } else {
            let configured = config.limits.connections_max;
            ("limits.connections_max", configured, free(bounds.clients))
        };
        let missing = usize::try_from(needed - u64::from(self.limit)).unwrap_or(usize::MAX);
        Some(Shortage {
            limit: self.limit,
            needed,
            possible,
            option,
            fitting: configured.checked_sub(missing).filter(|count| *count > 0),
        })
    }

    /// The descriptors that a process with all connections of the configuration needs.
    fn needed(&self, config: &Config) -> u64 {
        let count = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        let mut needed = u64::from(self.in_use) + u64::from(SPARE) + u64::from(rings(config));
        if !config.server.listen.is_empty() {
            needed = needed.saturating_add(count(config.limits.connections_max));
        }
        if has_store_listener(config) {
            needed = needed.saturating_add(count(config.store.connections_max));
        }
        if config.server.admin.is_some() {
            needed = needed.saturating_add(ADMIN_MAX);
        }
        let servers = count(config.upstream.url.len());
        let upstream = &config.upstream;
        let each = count(upstream.connections_max).saturating_add(count(upstream.transfers_max));
        let upstream = each.saturating_mul(servers);
        needed.saturating_add(upstream)
    }

    /// Logs, at most every ten seconds, that connections were refused for want of descriptors.
    pub(crate) fn log_refused(&self) {
        if let Some(count) = self.refused.note(dwell_evloop::now()) {
            tracing::warn!(
                limit = self.limit,
                count,
                "connections were refused: the limit on open files is reached"
            );
        }
    }
}

/// A limit on open files that is too low for a configuration.
pub(crate) struct Shortage {
    limit: u32,
    needed: u64,
    possible: u32,
    option: &'static str,
    /// The highest value of the option for which the limit is enough, if the option alone is the
    /// reason.
    fitting: Option<usize>,
}

impl Shortage {
    fn advice(&self) -> String {
        let option = self.option;
        let lower = match self.fitting {
            Some(count) => format!("set {option} = {count}"),
            None => format!("lower {option}"),
        };
        format!(
            "the limit on open files is too low for {option}, and connections beyond it are \
             refused: raise it (LimitNOFILE= of a systemd unit, `ulimit -Hn` of a shell, \
             `--ulimit nofile=` of a container), or {lower}"
        )
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (limit, needed, possible) = (self.limit, self.needed, self.possible);
        let advice = self.advice();
        write!(
            f,
            "{advice}; the limit here is {limit}, {needed} are needed, and {possible} connections \
             are possible"
        )
    }
}

/// Descriptors reserved from clients, by purpose.
struct Reserved {
    operation: u32,
    store: u32,
    upstream: u32,
}

impl Reserved {
    fn of(config: &Config, limit: u32) -> Self {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let mut operation = SPARE;
        if config.server.admin.is_some() {
            operation += ADMIN;
        }
        // Each loop has a connection to each server, and the change feed has two per process. To
        // Redis each loop has two, and to a cluster two for each primary.
        let loops = count(config.server.loops());
        if config.redis.is_on() {
            let servers = match config.redis.cluster.len() {
                0 => 1,
                known => count(known).max(PRIMARIES),
            };
            operation = operation.saturating_add(loops.saturating_mul(2 * servers));
        }
        let servers = count(config.memcached.servers.len());
        operation = operation.saturating_add(servers.saturating_mul(loops.saturating_add(2)));
        operation = operation.saturating_add(rings(config));
        let store = if has_store_listener(config) {
            count(config.store.connections_max).min(PEERS_MIN.max(limit / 16))
        } else {
            0
        };
        let upstreams = count(config.upstream.url.len());
        let upstream = &config.upstream;
        let each = count(upstream.connections_max).saturating_add(count(upstream.transfers_max));
        let upstream = each.saturating_mul(upstreams).min(PEERS_MIN.max(limit / 8));
        // Each term is bounded, so that the sum does not overflow.
        let most = u32::MAX / 4;
        Self {
            operation: operation.min(most),
            store: store.min(most),
            upstream: upstream.min(most),
        }
    }
}

/// Descriptors of the rings of `io_uring`: each loop makes one when it answers many at once first.
fn rings(config: &Config) -> u32 {
    match config.server.io_uring {
        IoUring::Auto => u32::try_from(config.server.loops()).unwrap_or(u32::MAX),
        IoUring::Off => 0,
    }
}

fn has_store_listener(config: &Config) -> bool {
    let store = &config.store;
    let is_bound = store.listen.is_some() || store.unix_socket.is_some();
    config.uses_embedded_store() && (is_bound || !store.listen_also.is_empty())
}

impl RefusalObserver for Descriptors {
    fn refused(&self) {
        self.log_refused();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    fn config(text: &str) -> Config {
        let text = format!("server.io_uring = \"off\"\n{text}");
        config::parse("test.toml", &text, &[]).unwrap()
    }

    #[test]
    fn the_soft_limit_becomes_the_hard_one() {
        let raised = raise_limit();
        let limits = getrlimit(Resource::Nofile);
        assert_eq!(limits.current, limits.maximum);
        assert_eq!(raised, limits.current);
    }

    #[test]
    fn a_new_descriptor_is_numbered_by_how_many_there_are() {
        let before = Descriptors::measure(None).in_use;
        let files: Vec<_> = (0..50).map(|_| File::open("/dev/null").unwrap()).collect();
        let highest = files.iter().map(AsRawFd::as_raw_fd).max().unwrap();
        // Other tests open and close theirs meanwhile.
        assert!(highest.unsigned_abs() + 1 >= 50, "{highest} from {before}");
    }

    #[test]
    fn each_has_its_reserve_above_the_clients() {
        let text = "upstream.url = \"http://127.0.0.1:1\"\nserver.admin = \"127.0.0.1:2\"";
        let bounds = Descriptors::new(1024, 24).bounds(&config(text));
        assert_eq!(bounds.store, 1024 - 32);
        assert_eq!(bounds.upstream, 1024 - 32 - 64);
        assert_eq!(bounds.clients, 1024 - 32 - 64 - 128);
        let many = Descriptors::new(1_000_000, 24).bounds(&config(text));
        assert_eq!(many.clients, 1_000_000 - 32 - 1024 - 256 - 4096);
    }

    #[test]
    fn the_rings_of_the_loops_are_made_later_and_take_no_reserve_of_others() {
        let rings = "server.pollers = 40\nserver.io_uring";
        let [off, auto] = ["off", "auto"]
            .map(|mode| config::parse("test.toml", &format!("{rings} = \"{mode}\""), &[]).unwrap());
        let descriptors = Descriptors::new(1300, 100);
        let (without, with) = (descriptors.bounds(&off), descriptors.bounds(&auto));
        assert_eq!(with.clients, without.clients - 40);
        assert_eq!(descriptors.needed(&auto), descriptors.needed(&off) + 40);
    }

    #[test]
    fn however_few_there_are_clients_have_half_and_the_others_some() {
        let text = "upstream.url = \"http://127.0.0.1:1\"\nserver.admin = \"127.0.0.1:2\"";
        let config = config(text);
        for limit in [64, 65, 80, 100, 128, 200] {
            let bounds = Descriptors::new(limit, 24).bounds(&config);
            let half = i32::try_from(24 + (limit - 24) / 2).unwrap();
            assert!(bounds.clients >= half, "{limit}: {bounds:?}");
            assert!(bounds.clients < bounds.upstream, "{limit}: {bounds:?}");
            assert!(bounds.upstream < bounds.store, "{limit}: {bounds:?}");
            let limit = i32::try_from(limit).unwrap();
            assert!(bounds.store < limit - 4, "{limit}: {bounds:?}");
        }
        // Nothing is left: nobody is let in, and nothing overflows.
        let bounds = Descriptors::new(10, 10).bounds(&config);
        assert_eq!(bounds.clients, 10);
    }

    #[test]
    fn the_value_that_is_advised_fits() {
        let of = |count: usize| {
            config::parse("a.toml", &format!("limits.connections_max = {count}"), &[])
        };
        let descriptors = Descriptors::new(20_000, 24);
        let shortage = descriptors.shortage(&of(100_000).unwrap()).unwrap();
        let fitting = shortage.fitting.unwrap();
        let advice = format!("or set limits.connections_max = {fitting};");
        assert!(shortage.to_string().contains(&advice), "{shortage}");
        assert!(descriptors.shortage(&of(fitting).unwrap()).is_none());
        assert!(descriptors.shortage(&of(fitting + 1).unwrap()).is_some());
        // The store alone needs more.
        let few = Descriptors::new(64, 24)
            .shortage(&of(100_000).unwrap())
            .unwrap();
        assert!(
            few.to_string().contains("or lower limits.connections_max;"),
            "{few}"
        );
    }

    #[test]
    fn what_all_connections_would_take_is_added_up() {
        let text = "upstream.url = \"http://127.0.0.1:1\"\nserver.admin = \"127.0.0.1:2\"\n\
                    limits.connections_max = 1000";
        let needed = Descriptors::new(64, 24).needed(&config(text));
        assert_eq!(needed, 24 + 16 + 1000 + 1024 + 256 + 256 + 4096);
    }

    #[test]
    fn without_a_limit_nobody_is_refused() {
        let bounds = Descriptors::measure(None).bounds(&config(""));
        assert!(bounds.clients > 1_000_000_000, "{bounds:?}");
    }
}
