//! Starting and ending the process: listeners, loops, signals.

mod store;

use crate::admin::Admin;
use crate::config::{Config, PeerAddress, share};
use crate::descriptors;
use crate::driver::{CLIENT_KINDS, EdgeLoop, Message, kind};
use crate::fleet::Fleet;
use crate::log::AccessLog;
use crate::metrics::Metrics;
use crate::polls::{Journal, Polls, Source};
use crate::privileges::{self, PrivilegesError};
use crate::snapshot::SnapshotError;
use crate::store_server::{Kinds as StoreKinds, Listening, StoreServer, StoreService};
use crate::upstream::{Upstream, UpstreamOptions};
use dwell_engine::{Http, Limits};
use dwell_evloop::{Context, EventLoop, ListenOptions, Listener, Sender, bind_group};
use dwell_memcache::on_loop::{Client, ClientOptions, Completion, ServerOptions};
use dwell_proto::http1::HeadLimits;
use dwell_store::{Notify, Seconds, WatcherId};
use signal_hook::consts::{SIGINT, SIGTERM};
use std::hash::{BuildHasher, RandomState};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Instant, SystemTime, UNIX_EPOCH};
use std::{fmt, io, thread};

/// Why the server did not start, or stopped.
#[derive(Debug)]
#[non_exhaustive]
pub enum RunError {
    /// An address cannot be listened on.
    Listen {
        /// The address asked for.
        address: SocketAddr,
        /// The option that chooses another.
        option: &'static str,
        /// What the system says.
        source: io::Error,
    },
    /// A unix socket cannot be listened on.
    ListenUnix {
        /// Its path.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The file of names and passwords cannot be used.
    AuthFile {
        /// Its path.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The snapshot cannot be read or written.
    Snapshot(SnapshotError),
    /// The name of a server has no address.
    Resolve {
        /// The name as configured.
        name: String,
        /// The option that has it.
        option: &'static str,
        /// What the resolver says.
        source: io::Error,
    },
    /// The memcached servers make no ring.
    Memcached(dwell_memcache::on_loop::Error),
    /// The process cannot become `server.user`.
    Privileges(PrivilegesError),
    /// The access log cannot be opened.
    AccessLog(io::Error),
    /// The system has no descriptor, memory or thread for a loop.
    Loop(io::Error),
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
            Self::Snapshot(error) => error.fmt(f),
            Self::Resolve {
                name,
                option,
                source,
            } => write!(f, "cannot resolve {name} ({option}): {source}"),
            Self::Memcached(error) => write!(f, "memcached servers: {error}"),
            Self::Privileges(error) => write!(f, "{error} (server.user)"),
            Self::AccessLog(source) => write!(f, "cannot open the access log: {source}"),
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
            | Self::AccessLog(source)
            | Self::Loop(source) => Some(source),
            Self::Memcached(error) => Some(error),
            Self::Privileges(error) => error.source(),
            Self::Snapshot(error) => error.source(),
            Self::AuthFile { .. } => None,
        }
    }
}

/// Runs the edge until a signal ends it.
///
/// Shape: SIGTERM or SIGINT drains: listeners close, held polls end spread over half of
/// `limits.drain_timeout`, requests under way finish; a second signal ends at once. With `demo`
/// the demonstration page and its app are served too, and taken ports give way to the next free.
///
/// # Errors
/// [`RunError`] when something of the configuration cannot be had; nothing was served then.
pub fn run(config: Config, demo: bool) -> Result<(), RunError> {
    Server::start(config, demo)?.run()
}

/// The loops with everything on them, ready to turn.
struct Server {
    /// Writes what is left when it is dropped, after the loops have ended.
    access: Option<AccessLog>,
    loops: Vec<(EventLoop<Message>, EdgeLoop)>,
    fleet: Arc<Fleet>,
    config: Arc<Config>,
    service: Option<Arc<StoreService>>,
}

/// Tells the loops of changes in the embedded store, each by its inbox.
struct Inboxes(Vec<Sender<Message>>);

impl Notify for Inboxes {
    fn changed(&self, watcher: WatcherId, key: &[u8]) {
        if let Some(sender) = self.0.get(usize::from(watcher.index())) {
            // An inbox is full only of changes not yet looked at; the recheck finds this one. The
            // clock is read here because a change comes in the middle of its writer's turn.
            let name = key.into();
            let at = Instant::now();
            let _ = sender.send(Message::Changed { name, at });
        }
    }
}

/// The listeners of all loops, bound before anything runs.
struct Bound {
    clients: Vec<Vec<Listener>>,
    store: Vec<Vec<Listener>>,
    store_at: Listening,
    admin: Option<Listener>,
}

impl Server {
    fn start(config: Config, demo: bool) -> Result<Self, RunError> {
        let loops = loops_of(&config);
        if let Some(descriptors) = descriptors::raise_limit() {
            tracing::debug!(descriptors, "descriptor limit");
        }
        let mut bound = Bound::bind(&config, loops, demo)?;
        // What only root can read is read, and nothing else is: no thread runs yet.
        let limits = store::limits(&config)?;
        if let Some(user) = &config.server.user {
            become_user(user, &bound)?;
        }
        let config = Arc::new(config);
        let event_loops = (0..loops)
            .map(|_| EventLoop::new())
            .collect::<io::Result<Vec<_>>>()
            .map_err(RunError::Loop)?;
        let everyone: Vec<_> = event_loops.iter().map(EventLoop::sender).collect();
        let names = config
            .memcached
            .servers
            .iter()
            .map(|s| s.address.to_string())
            .collect();
        let now = unix_seconds();
        let metrics = Arc::new(Metrics::new(loops, names, u64::from(now)));
        let service = store::service(
            &config,
            limits,
            Box::new(Inboxes(everyone.clone())),
            &metrics,
            now,
        )?;
        if let Some(service) = &service {
            service.listens(std::mem::take(&mut bound.store_at));
        }
        let access = AccessLog::open(&config.log.access, loops, metrics.of_process())
            .map_err(RunError::AccessLog)?;
        let parts = Parts {
            config,
            metrics,
            service,
            fleet: Fleet::new(everyone),
            access,
            loops,
            demo,
        };
        let mut ready = Vec::with_capacity(loops);
        for (index, mut event_loop) in event_loops.into_iter().enumerate() {
            let edge = parts.edge_loop(index, &mut event_loop, &mut bound)?;
            ready.push((event_loop, edge));
        }
        Ok(Self {
            access: parts.access,
            loops: ready,
            fleet: parts.fleet,
            config: parts.config,
            service: parts.service,
        })
    }

    /// The first loop runs on this thread and hears the signals. The loops end together: one that
    /// fails stops the others.
    fn run(self) -> Result<(), RunError> {
        let (_access, fleet) = (self.access, self.fleet);
        let (config, service) = (self.config, self.service);
        let mut loops = self.loops.into_iter();
        let Some((mut first, edge)) = loops.next() else {
            return Ok(());
        };
        for signal in [SIGTERM, SIGINT] {
            first.watch_signal(signal).map_err(RunError::Loop)?;
        }
        let threads = loops
            .enumerate()
            .map(|(index, (event_loop, edge))| {
                let fleet = Arc::clone(&fleet);
                thread::Builder::new()
                    .name(format!("loop-{}", index + 1))
                    .spawn(move || turn_to_the_end(event_loop, edge, &fleet))
            })
            .collect::<io::Result<Vec<_>>>()
            .map_err(RunError::Loop)?;
        let mut result = turn_to_the_end(first, edge, &fleet);
        for thread in threads {
            let panicked = |_| Err(io::Error::other("a loop panicked"));
            result = result.and(thread.join().unwrap_or_else(panicked));
        }
        let result = result.map_err(RunError::Loop);
        // What a failed loop leaves is still worth keeping.
        let saved = service.map_or(Ok(()), |service| {
            store::save(&config, &service, unix_seconds())
        });
        result.and(saved)
    }
}

fn unix_seconds() -> Seconds {
    let now = SystemTime::now().duration_since(UNIX_EPOCH);
    now.map_or(0, |now| {
        Seconds::try_from(now.as_secs()).unwrap_or(Seconds::MAX)
    })
}

/// The only loop of a server, to be turned by a test.
#[cfg(test)]
pub(crate) fn single_loop(config: Config) -> Result<(EventLoop<Message>, EdgeLoop), RunError> {
    let mut server = Server::start(config, false)?;
    server
        .loops
        .pop()
        .ok_or_else(|| RunError::Loop(io::Error::other("no loop")))
}

/// Runs one loop until it is told to end, or fails, which the others are told.
fn turn_to_the_end(
    mut event_loop: EventLoop<Message>,
    mut edge: EdgeLoop,
    fleet: &Arc<Fleet>,
) -> io::Result<()> {
    let member = fleet.member();
    event_loop.run(&mut edge)?;
    member.ended();
    Ok(())
}

/// Gives up the rights of root; the unix socket belongs to the user from now on.
fn become_user(user: &str, bound: &Bound) -> Result<(), RunError> {
    let sockets: Vec<_> = bound.store_at.unix.iter().map(PathBuf::as_path).collect();
    if privileges::become_user(user, &sockets).map_err(RunError::Privileges)? {
        tracing::info!(user, "not root any more");
    } else {
        tracing::warn!(
            user,
            "the user stays the same: only root can become another"
        );
    }
    Ok(())
}

/// How many loops to run: each that waits for keys of the embedded store needs a name there.
fn loops_of(config: &Config) -> usize {
    let loops = config.server.loops();
    let most = usize::from(WatcherId::COUNT);
    if config.uses_embedded_store() && loops > most {
        tracing::warn!(
            asked = loops,
            loops = most,
            "fewer loops: the store knows no more"
        );
        return most;
    }
    loops
}

impl Bound {
    fn bind(config: &Config, loops: usize, demo: bool) -> Result<Self, RunError> {
        let mut clients: Vec<Vec<Listener>> = (0..loops).map(|_| Vec::new()).collect();
        for &address in &config.server.listen {
            let group = listen(address, loops, ListenOptions::default(), "--listen", demo)?;
            for (of_loop, listener) in clients.iter_mut().zip(group) {
                of_loop.push(listener);
            }
        }
        let (store, store_at) = store::bind(config, loops, demo)?;
        let admin = match config.server.admin {
            Some(address) => listen(address, 1, ListenOptions::default(), "--admin", demo)?.pop(),
            None => None,
        };
        let first = clients.first().and_then(|of_loop| of_loop.first());
        if let (true, Some(address)) = (demo, first.and_then(Listener::address)) {
            tracing::info!("open http://{address}/ in a browser");
        }
        Ok(Self {
            clients,
            store,
            store_at,
            admin,
        })
    }
}

/// Ports tried after a taken one.
const NEXT_PORTS_MAX: u16 = 20;

/// Binds `count` listeners; where `next_free` is set, a taken port gives way to the next.
fn listen(
    address: SocketAddr,
    count: usize,
    options: ListenOptions,
    option: &'static str,
    next_free: bool,
) -> Result<Vec<Listener>, RunError> {
    let mut candidate = address;
    loop {
        match bind_group(candidate, count, options) {
            Ok(group) => {
                let listening = group
                    .first()
                    .and_then(Listener::address)
                    .unwrap_or(candidate);
                if candidate == address {
                    tracing::info!(%listening, option, "listening");
                } else {
                    tracing::warn!(%listening, taken = %address, option, "on the next free port");
                }
                return Ok(group);
            }
            Err(source)
                if next_free
                    && source.kind() == io::ErrorKind::AddrInUse
                    && candidate.port() < address.port().saturating_add(NEXT_PORTS_MAX) =>
            {
                candidate.set_port(candidate.port() + 1);
            }
            Err(source) => {
                return Err(RunError::Listen {
                    address,
                    option,
                    source,
                });
            }
        }
    }
}

const STORE_KINDS: StoreKinds = StoreKinds {
    listener: kind::STORE_LISTENER,
    connection: kind::STORE,
};

/// What every loop is made from.
struct Parts {
    config: Arc<Config>,
    metrics: Arc<Metrics>,
    service: Option<Arc<StoreService>>,
    fleet: Arc<Fleet>,
    access: Option<AccessLog>,
    loops: usize,
    demo: bool,
}

impl Parts {
    fn edge_loop(
        &self,
        index: usize,
        event_loop: &mut EventLoop<Message>,
        bound: &mut Bound,
    ) -> Result<EdgeLoop, RunError> {
        let context = event_loop.context();
        let metrics = self.metrics.of_loop(index);
        let source = match (&self.service, WatcherId::new(index as u8)) {
            (Some(service), Some(watcher)) => {
                Source::Embedded(Arc::clone(service.store()), watcher)
            }
            _ => Source::Memcached,
        };
        let seed = RandomState::new().hash_one(index);
        let mut polls = Polls::new(
            Arc::clone(&self.config),
            self.journal(index),
            source.clone(),
            self.loops,
            seed,
        );
        let mut http = Http::new(CLIENT_KINDS, self.http_limits());
        for listener in std::mem::take(&mut bound.clients[index]) {
            http.listen(context, listener).map_err(RunError::Loop)?;
        }
        let mut store_server = None;
        let listeners = std::mem::take(&mut bound.store[index]);
        if let (Some(service), false) = (&self.service, listeners.is_empty()) {
            let mut server =
                StoreServer::new(STORE_KINDS, Arc::clone(service), Arc::clone(&metrics));
            for listener in listeners {
                if let (true, Some(address)) = (self.demo, listener.address()) {
                    polls.enable_demo(address);
                }
                server.listen(context, listener).map_err(RunError::Loop)?;
            }
            store_server = Some(server);
        }
        let mut admin = None;
        if let (0, Some(listener)) = (index, bound.admin.take()) {
            let (metrics, service) = (Arc::clone(&self.metrics), self.service.clone());
            let mut server = Admin::new(metrics, service, context.now());
            server.listen(context, listener).map_err(RunError::Loop)?;
            admin = Some(server);
        }
        Ok(EdgeLoop {
            http,
            polls,
            admin,
            store_server,
            memcached: self.memcached(context)?,
            upstream: self.upstream()?,
            recheck_interval: EdgeLoop::recheck_interval(
                &source,
                self.config.memcached.sweep_interval,
            ),
            source,
            metrics,
            fleet: Arc::clone(&self.fleet),
            is_first: index == 0,
            drain_timeout: self.config.limits.drain_timeout,
            draining: None,
        })
    }

    fn journal(&self, index: usize) -> Journal {
        Journal {
            metrics: self.metrics.of_loop(index),
            access: self.access.as_ref().map(|access| access.of_loop(index)),
        }
    }

    fn http_limits(&self) -> Limits {
        let limits = &self.config.limits;
        Limits {
            head: HeadLimits {
                head_bytes_max: limits.head_bytes_max,
                target_bytes_max: limits.target_bytes_max,
                field_count_max: limits.header_count_max,
            },
            connections_max: share(limits.connections_max, self.loops),
            requests_per_connection_max: u32::try_from(limits.requests_per_connection_max)
                .unwrap_or(u32::MAX),
            header_timeout: limits.header_timeout,
            body_timeout: limits.body_timeout,
            idle_timeout: limits.idle_timeout,
            write_timeout: limits.write_timeout,
            ..Limits::default()
        }
    }

    fn memcached(&self, context: &mut Context) -> Result<Option<Client>, RunError> {
        let memcached = &self.config.memcached;
        if memcached.servers.is_empty() {
            return Ok(None);
        }
        let servers = memcached
            .servers
            .iter()
            .map(|server| {
                let address = resolve(&server.address, "--memcached")?;
                let host = server.address.host.clone();
                Ok(ServerOptions {
                    address,
                    host,
                    weight: server.weight,
                })
            })
            .collect::<Result<Vec<_>, RunError>>()?;
        let options = ClientOptions {
            timeout: memcached.timeout,
            connect_timeout: memcached.connect_timeout,
            failures_max: memcached.failures_max,
            value_bytes_max: memcached.value_bytes_max,
            ..ClientOptions::default()
        };
        let mut client =
            Client::new(kind::MEMCACHED, &servers, options).map_err(RunError::Memcached)?;
        // Connects, so that the first poll does not wait for it.
        client.flush(context, &mut |_: &mut Context, _: Completion<'_>| {});
        Ok(Some(client))
    }

    fn upstream(&self) -> Result<Option<Upstream>, RunError> {
        let upstream = &self.config.upstream;
        let Some(url) = &upstream.url else {
            return Ok(None);
        };
        let options = UpstreamOptions {
            connect_timeout: upstream.connect_timeout,
            header_timeout: upstream.header_timeout,
            total_timeout: upstream.total_timeout,
            idle_timeout: upstream.idle_timeout,
            connections_max: share(upstream.connections_max, self.loops),
            idle_max: share(upstream.idle_max, self.loops),
            answer_bytes_max: upstream.answer_bytes_max,
            ..UpstreamOptions::new(resolve(&url.address, "--upstream")?)
        };
        Ok(Some(Upstream::new(kind::UPSTREAM, options)))
    }
}

fn resolve(name: &PeerAddress, option: &'static str) -> Result<SocketAddr, RunError> {
    name.resolve().map_err(|source| RunError::Resolve {
        name: name.to_string(),
        option,
        source,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;

    #[test]
    fn the_embedded_store_bounds_the_loops() {
        let loops = |text: &str| loops_of(&config::parse("test.toml", text, &[]).unwrap());
        assert_eq!(loops("server.pollers = 100"), 64);
        let memcached = "server.pollers = 100\nmemcached.servers = \"127.0.0.1:11211\"";
        assert_eq!(loops(memcached), 100);
    }
}
