//! Start and end of the process: listeners, loops, signals.

use super::error::RunError;
use super::inherited::Inherited;
use super::listeners::Bound;
use super::parts::LoopParts;
use super::peers::Peers;
use super::pid_file::PidFile;
use super::reload::ConfigSource;
use super::run_lines::RunLines;
use super::tls::Certificates;
use super::upgrade::Predecessor;
use super::{privileges, store, supervisor};
use crate::access::Access;
use crate::config::{Config, IoUring};
use crate::descriptors::{self, Descriptors};
use crate::event_loop::{EdgeLoop, HistoryRest, Message, Settings};
use crate::handoff::Handoff;
use crate::log::{self, AccessLog};
use crate::metrics::Metrics;
use crate::pages::MakePages;
use crate::polls::Memory;
use crate::presence::Presence;
use crate::published::Published;
use dwell_evloop::{EventLoop, Fleet, Listener, Sender, Sends};
use dwell_memcache::watch::WaitedKeys;
use dwell_store::{Notify, Seconds, WatcherId};
use dwell_store_server::{Moment, StoreService};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, mpsc};
use std::thread::JoinHandle;
use std::{io, thread};

/// Runs the edge until a signal ends it.
///
/// Shape: SIGTERM or SIGINT drains: listeners close, held polls end over half of
/// `limits.drain_timeout`, open requests finish. A second signal ends the process at once. With
/// `demo` its pages are served, and if a port is in use the next one is tried. SIGHUP reloads the
/// configuration if it has a `source`, and reopens the access log; it ends the demonstration.
/// SIGUSR1 reopens the log; it ends a store without HTTP clients. SIGUSR2 starts a successor, which
/// takes over.
///
/// # Errors
/// [`RunError`] if a resource of the configuration is not available.
pub fn run(config: Config, options: RunOptions) -> Result<(), RunError> {
    let file = options.source.as_ref().map(|source| source.file.clone());
    let server = EdgeServer::start(config, options)?;
    let (config, metrics) = (&server.settings.newest().config, &server.metrics);
    let store = server.store_address();
    let lines = RunLines::start(config, file.as_deref(), store, metrics, &server.fleet);
    let ended = server.run();
    lines.end(ended.as_ref().err());
    ended
}

/// Options of a process besides its configuration.
#[derive(Debug, Default)]
pub struct RunOptions {
    /// Source from which the configuration is reloaded.
    pub source: Option<ConfigSource>,
    /// Pages of the demonstration, if the process is one.
    pub demo: Option<Arc<dyn MakePages>>,
    /// A file for the process id while the process serves, instead of that of the configuration.
    pub pid_file: Option<PathBuf>,
    /// A file for the port of the store, if the system chooses it.
    pub port_file: Option<PathBuf>,
}

/// The loops with their components, ready to run.
struct EdgeServer {
    /// Writes pending lines when it is dropped, after the loops have ended.
    access: Option<AccessLog>,
    loops: Vec<(EventLoop<Message>, EdgeLoop)>,
    fleet: Arc<Fleet<Message>>,
    settings: Arc<Published<Settings>>,
    handoff: Arc<Handoff>,
    service: Option<Arc<StoreService>>,
    certificates: Arc<Certificates>,
    metrics: Arc<Metrics>,
    /// The process that serves until this one does.
    predecessor: Option<Predecessor>,
    pid_file: Option<PidFile>,
    /// Takes the configurations of a test.
    #[cfg(feature = "sim")]
    reloader: super::reload::Reloader,
}

/// Notifies the loops of changes in the embedded store through their inboxes.
struct Inboxes(Vec<Sender<Message>>);

impl Notify for Inboxes {
    fn changed(&self, watcher: WatcherId, key: &[u8]) {
        if let Some(sender) = self.0.get(usize::from(watcher.index())) {
            // A full inbox has changes that were not read yet; the recheck finds this one. The
            // clock is read here because the change happens during the turn of its writer.
            let name = key.into();
            let at = dwell_evloop::now();
            let _ = sender.send(Message::Changed { name, at });
        }
    }
}

impl EdgeServer {
    fn start(config: Config, options: RunOptions) -> Result<Self, RunError> {
        Self::start_on(config, options, bind)
    }

    /// Starts a process whose listening sockets `bind` makes or takes over.
    fn start_on(
        config: Config,
        options: RunOptions,
        bind: impl FnOnce(&Config, usize, bool) -> Result<(Option<Predecessor>, Bound), RunError>,
    ) -> Result<Self, RunError> {
        let RunOptions { source, demo, .. } = options;
        let loops = loops_of(&config);
        let limit = descriptors::raise_limit();
        let event_loops = event_loops(loops, demo.is_none()).map_err(RunError::Loop)?;
        // Only the files that need root are read, as no thread runs yet. A fault in them ends the
        // start before any client can connect.
        let limits = store::limits(&config)?;
        let gate = Arc::new(Access::load(&config, None).map_err(RunError::Access)?);
        let (predecessor, mut bound) = bind(&config, loops, demo.is_some())?;
        let pid_file = options.pid_file.or_else(|| config.server.pid_file.clone());
        let mut pid_file = pid_file.map(PidFile::new);
        let first = pid_file.as_mut().filter(|_| predecessor.is_none());
        if let Some(first) = &first {
            first.warn_of_other();
        }
        use_rights(&config, &bound, first)?;
        store::tell_port(options.port_file.as_deref(), &bound.store_at)?;
        let descriptors = Arc::new(Descriptors::measure(limit));
        descriptors.warn_of_shortage(&config);
        let config = Arc::new(config);
        let everyone: Vec<_> = event_loops.iter().map(EventLoop::sender).collect();
        let now = Moment::now();
        let metrics = metrics_of(&config, loops, now.unix);
        let access = start_logs(&config, loops, &metrics)?;
        let has_store = predecessor.as_ref().is_some_and(Predecessor::has_store);
        let inboxes = Box::new(Inboxes(everyone.clone()));
        let service = store::service(&config, limits, inboxes, &metrics, now, has_store)?;
        if let Some(service) = &service {
            service.listens(std::mem::take(&mut bound.store_at));
        }
        let peers = Peers::find(&config, loops, &descriptors)?;
        let settings = peers.settings(&config, &gate);
        let parts = LoopParts {
            memory: Arc::new(Memory::new(config.limits.stale_bytes_max)),
            limit_log: Arc::default(),
            history: HistoryRest::default(),
            presence: presence_of(&config),
            waited: waited_of(&config, loops),
            certificates: certificates_of(&config, &mut bound, &metrics),
            reporter: pid_file.as_ref().map(PidFile::reporter),
            peers,
            config,
            metrics,
            service,
            fleet: Arc::new(Fleet::new(everyone)),
            settings: Published::new(settings),
            handoff: Handoff::new(loops),
            access,
            gate,
            loops,
            demo,
            descriptors,
        };
        Ok(Self {
            loops: parts.edge_loops(event_loops, &mut bound, source)?,
            #[cfg(feature = "sim")]
            reloader: parts.reloader(None),
            access: parts.access,
            fleet: parts.fleet,
            settings: parts.settings,
            handoff: parts.handoff,
            service: parts.service,
            certificates: parts.certificates,
            metrics: parts.metrics,
            predecessor,
            pid_file,
        })
    }

    /// The address on which the embedded store listens.
    fn store_address(&self) -> Option<SocketAddr> {
        let mut servers = self
            .loops
            .iter()
            .filter_map(|(_, edge)| edge.servers.store.as_ref());
        servers.find_map(|store| store.listeners().find_map(Listener::address))
    }

    /// Takes over from the predecessor, if there is one; from then on only this process serves.
    fn succeed(&mut self, first: &mut EdgeLoop) -> Result<(), RunError> {
        let Some(predecessor) = self.predecessor.take() else {
            return Ok(());
        };
        let owns_file = predecessor.owns_file();
        let (service, acceptor) = (self.service.as_deref(), self.certificates.acceptor());
        let succeeded = predecessor.succeed(service, acceptor, &self.fleet, &self.handoff);
        succeeded.map_err(RunError::Upgrade)?;
        let config = &self.settings.newest().config;
        if let (Some(path), Some(server)) = (&config.store.unix_socket, &mut first.servers.store)
            && owns_file
        {
            server.own_file(path);
        }
        Ok(())
    }

    /// Runs the loops; the first one runs on this thread and handles signals. The loops end
    /// together: if one fails, the others stop.
    fn run(mut self) -> Result<(), RunError> {
        let mut loops = std::mem::take(&mut self.loops).into_iter();
        let Some((mut first, mut edge)) = loops.next() else {
            return Ok(());
        };
        // Steps that can fail are done while the predecessor serves.
        let threads = loops
            .enumerate()
            .map(|(index, (event_loop, edge))| {
                LoopThread::start(index + 1, event_loop, edge, &self.fleet)
            })
            .collect::<io::Result<Vec<_>>>()
            .map_err(RunError::Loop)?;
        self.succeed(&mut edge)?;
        // A successor serves already, and goes on if it cannot write the file.
        if let Some(Err(error)) = self.pid_file.as_mut().map(PidFile::serve) {
            tracing::error!("{error}");
        }
        let pid_file = self.pid_file;
        let (_access, fleet) = (self.access, self.fleet);
        let service = self.service;
        let handles: Vec<_> = threads.into_iter().map(LoopThread::begin).collect();
        edge.supervise(first.context());
        let mut result = turn_to_the_end(first, edge, &fleet);
        for handle in handles {
            let panicked = |_| Err(io::Error::other("a loop panicked"));
            result = result.and(handle.join().unwrap_or_else(panicked));
        }
        let result = result.map_err(RunError::Loop);
        let sender = self.handoff.sender();
        if let Some(sender) = sender {
            sender.close();
            if let Some(pid_file) = pid_file {
                pid_file.leave();
            }
        }
        // Items are saved even if a loop has failed, unless the successor has them.
        let is_kept_there = sender.is_some_and(|sender| sender.has_items());
        let service = service.filter(|_| !is_kept_there);
        let saved = service.map_or(Ok(()), |service| {
            store::save(&self.settings.newest().config, &service, Moment::now())
        });
        result.and(saved)
    }
}

/// A loop on its own thread, which waits for [`begin`](Self::begin). If it is dropped before, the
/// thread ends.
struct LoopThread {
    gate: mpsc::SyncSender<()>,
    handle: JoinHandle<io::Result<()>>,
}

impl LoopThread {
    fn start(
        index: usize,
        event_loop: EventLoop<Message>,
        edge: EdgeLoop,
        fleet: &Arc<Fleet<Message>>,
    ) -> io::Result<Self> {
        let (gate, opened) = mpsc::sync_channel(1);
        let fleet = Arc::clone(fleet);
        let turn = move || match opened.recv() {
            Ok(()) => turn_to_the_end(event_loop, edge, &fleet),
            Err(_) => Ok(()),
        };
        let thread = thread::Builder::new().name(format!("loop-{index}"));
        let handle = thread.spawn(turn)?;
        Ok(Self { gate, handle })
    }

    fn begin(self) -> JoinHandle<io::Result<()>> {
        // The thread waits for this.
        let _ = self.gate.send(());
        self.handle
    }
}

/// Logs how answers to many are sent.
fn tell_of_sends(config: &Config) {
    if config.server.io_uring == IoUring::Off {
        return;
    }
    match Sends::probe() {
        Ok(()) => tracing::debug!("answers to many are sent by io_uring"),
        Err(error) => tracing::debug!(%error, "answers to many are sent one by one: no io_uring"),
    }
}

/// The keys that are waited for, where memcached servers are asked to report their changes.
fn waited_of(config: &Config, loops: usize) -> Option<Arc<WaitedKeys>> {
    let watches = !config.memcached.servers.is_empty() && config.memcached.watch;
    watches.then(|| WaitedKeys::new(loops))
}

/// Makes the board of watched keys, if there is a webhook.
fn presence_of(config: &Config) -> Option<Arc<Presence>> {
    let presence = &config.presence;
    presence.webhook_url.as_ref()?;
    let board = Presence::new(presence.linger, presence.webhook_queue_max);
    Some(Arc::new(board))
}

/// Makes the loops, with signals on the first one.
fn event_loops(loops: usize, is_service: bool) -> io::Result<Vec<EventLoop<Message>>> {
    let mut event_loops = (0..loops)
        .map(|_| EventLoop::new())
        .collect::<io::Result<Vec<_>>>()?;
    // Before clients can send signals: one that arrives early is handled later.
    if let Some(first) = event_loops.first_mut() {
        supervisor::watch_signals(first, is_service)?;
    }
    Ok(event_loops)
}

/// Takes inherited sockets, and binds the other addresses.
fn bind(
    config: &Config,
    loops: usize,
    demo: bool,
) -> Result<(Option<Predecessor>, Bound), RunError> {
    let timeout = config.limits.upgrade_timeout;
    let mut predecessor = Predecessor::from_environment(timeout).map_err(RunError::Upgrade)?;
    let inherited = match &mut predecessor {
        Some(predecessor) => Inherited::handed(predecessor.sockets()),
        None => Inherited::from_environment().map_err(RunError::Inherited)?,
    };
    let bound = Bound::bind(config, loops, demo, inherited)?;
    Ok((predecessor, bound))
}

/// Starts the threads that write logs, with the current rights of the process.
fn start_logs(
    config: &Config,
    loops: usize,
    metrics: &Metrics,
) -> Result<Option<AccessLog>, RunError> {
    let metrics = metrics.of_process();
    log::write_in_background(&metrics).map_err(RunError::Loop)?;
    tell_of_sends(config);
    let target = &config.log.access;
    AccessLog::open(target, loops, &metrics).map_err(|source| RunError::access_log(target, source))
}

/// Shows the certificates, and checks their files from now on.
fn certificates_of(
    config: &Config,
    bound: &mut Bound,
    metrics: &Arc<Metrics>,
) -> Arc<Certificates> {
    let pairs = std::mem::take(&mut bound.pairs);
    let tickets = bound.tickets.take();
    let acceptor = bound.acceptor.clone();
    let certificates = Certificates::new(acceptor, pairs, tickets, Arc::clone(metrics));
    let certificates = Arc::new(certificates);
    certificates.begin(config);
    if config.tls.self_signed {
        tracing::warn!(
            "the certificate of tls.listen is self-signed, for localhost and a week: it is for \
             development, and clients have to be told to take it (curl: --insecure)"
        );
    }
    certificates
}

/// Makes zeroed metrics for these loops and peers.
fn metrics_of(config: &Config, loops: usize, now: Seconds) -> Arc<Metrics> {
    let memcached = config.memcached.servers.iter();
    let memcached = memcached.map(|server| server.address.to_string());
    let redis = config.redis.place();
    let is_redis = redis.is_some();
    let servers = memcached.chain(redis).collect();
    let upstreams = config.upstream.url.iter().map(ToString::to_string);
    let upstreams: Vec<_> = upstreams.collect();
    let now = u64::from(now);
    let metrics = Metrics::with_upstreams(loops, servers, &upstreams, now);
    Arc::new(metrics.of_redis(is_redis))
}

/// Makes the only loop of a server, for tests.
#[cfg(test)]
pub(crate) fn single_loop(config: Config) -> Result<(EventLoop<Message>, EdgeLoop), RunError> {
    let mut server = EdgeServer::start(config, RunOptions::default())?;
    server
        .loops
        .pop()
        .ok_or_else(|| RunError::Loop(io::Error::other("no loop")))
}

/// Runs one loop until it ends or fails; a failure stops the others.
fn turn_to_the_end(
    mut event_loop: EventLoop<Message>,
    mut edge: EdgeLoop,
    fleet: &Arc<Fleet<Message>>,
) -> io::Result<()> {
    let guard = fleet.guard();
    event_loop.run(&mut edge)?;
    guard.end();
    Ok(())
}

/// Does the work that needs root, and drops root's rights if the configuration has a user.
fn use_rights(
    config: &Config,
    bound: &Bound,
    pid_file: Option<&mut PidFile>,
) -> Result<(), RunError> {
    let written = pid_file.map_or(Ok(()), PidFile::write);
    written.map_err(RunError::PidFile)?;
    match &config.server.user {
        Some(user) => become_user(user, bound),
        None => Ok(()),
    }
}

/// Drops root's rights, and gives the unix socket to the user.
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

/// The number of loops: each needs a watcher id in the embedded store.
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

#[cfg(feature = "sim")]
mod simulated;
#[cfg(feature = "sim")]
pub use simulated::{LoopLoad, Refusals, Simulated, UpgradeFrame, UpgradeNews};

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
