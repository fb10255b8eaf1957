//! Reload of the configuration while the process serves.
//!
//! On SIGHUP a thread reads the file, resolves names and binds listeners, so that no loop is
//! blocked. A configuration without mistakes is published as `Settings`, which every loop applies
//! between two turns (`event_loop/turn_end.rs`).

use super::error::RunError;
use super::listeners::listen_at;
use super::names::{Addresses, Names};
use super::outward;
use super::plans::{is_at_same_addresses, looked_up, memcached_addresses, upstream_plan};
use super::redis::redis_endpoint;
use super::signal_report::{ReloadResult, SignalReporter, error_text, report_if_serving};
use super::store::credentials;
use super::tls::{self, Certificates};
use crate::access::Access;
use crate::config::{self, Config, FlagValue, PeerAddress};
use crate::descriptors::Descriptors;
use crate::event_loop::{Listening, Message, Settings};
use crate::handoff::Handoff;
use crate::log::{self, AccessSwitch};
use crate::metrics::Metrics;
use crate::published::Published;
use dwell_evloop::Fleet;
use dwell_redis::Endpoint;
use dwell_store_server::{StoreService, snapshot};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::{fmt, thread};

/// Source of the configuration of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConfigSource {
    /// The file.
    pub file: PathBuf,
    /// The flags, which override the file.
    pub flags: Vec<FlagValue>,
}

/// Reloads the configuration on request.
#[derive(Debug)]
pub(crate) struct Reloader {
    /// Absent if the configuration has no file: names are looked up, and no more.
    pub(crate) source: Option<ConfigSource>,
    /// The servers as they were found last.
    pub(super) servers: Mutex<FoundServers>,
    pub(crate) fleet: Arc<Fleet<Message>>,
    pub(crate) settings: Arc<Published<Settings>>,
    pub(crate) handoff: Arc<Handoff>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) access: Option<AccessSwitch>,
    pub(crate) service: Option<Arc<StoreService>>,
    pub(crate) descriptors: Arc<Descriptors>,
    /// The certificates of the listeners under TLS.
    pub(crate) certificates: Arc<Certificates>,
    /// Writes the results for `dwell reload`; absent without a pid file.
    pub(crate) reporter: Option<Arc<SignalReporter>>,
    /// Requests that no reload has served yet.
    pub(crate) asked: AtomicU64,
}

/// The addresses of servers, and what else of them is not in the configuration.
#[derive(Clone, Debug, Default)]
pub(super) struct FoundServers {
    pub(super) addresses: Addresses,
    /// A number that stands for the files of TLS towards the application.
    pub(super) upstream_files: u64,
}

/// Reason why a reload has failed.
#[derive(Debug)]
enum ReloadError {
    /// There are mistakes in the file or the flags.
    Config(config::ConfigError),
    /// A resource of the configuration is not available.
    Run(RunError),
}

impl fmt::Display for ReloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(error) => error.fmt(f),
            Self::Run(error) => error.fmt(f),
        }
    }
}

impl ReloadError {
    fn result(&self) -> ReloadResult {
        let error = error_text(self);
        match self {
            Self::Config(_) => ReloadResult::Invalid { error },
            Self::Run(_) => ReloadResult::Failed { error },
        }
    }
}

impl Reloader {
    /// Starts a reload in a thread; if one is running, it reads the file again.
    pub(crate) fn ask(self: &Arc<Self>, ended: impl Fn() + Send + 'static) {
        if self.asked.fetch_add(1, Ordering::AcqRel) > 0 {
            return;
        }
        let reloader = Arc::clone(self);
        let work = move || {
            loop {
                let asked = reloader.asked.load(Ordering::Acquire);
                reloader.reload_and_report();
                let answered =
                    reloader
                        .asked
                        .compare_exchange(asked, 0, Ordering::AcqRel, Ordering::Acquire);
                if answered.is_ok() {
                    break;
                }
            }
            ended();
        };
        if let Err(error) = thread::Builder::new().name("reload".to_owned()).spawn(work) {
            self.asked.store(0, Ordering::Release);
            self.metrics.reloads().count_refused(&error);
            tracing::error!(%error, "the configuration is not read: no thread is left");
            let error = format!("no thread is left: {error}");
            self.report(|reporter| {
                reporter.begin();
                reporter.end(ReloadResult::Failed { error });
            });
        }
    }

    fn reload_and_report(&self) {
        self.report(SignalReporter::begin);
        if let Some(result) = self.reload() {
            self.report(|reporter| reporter.end(result));
        }
    }

    /// Reports to `dwell reload`.
    fn report(&self, report: impl FnOnce(&SignalReporter)) {
        report_if_serving(self.reporter.as_deref(), &self.handoff, report);
    }

    /// Reloads; `None` if another process serves.
    fn reload(&self) -> Option<ReloadResult> {
        let Some(source) = &self.source else {
            return Some(self.look_up_again());
        };
        let file = source.file.display();
        match self.try_reload(source) {
            Ok(None) => {
                tracing::warn!(%file, "not taken: another process serves");
                None
            }
            Ok(Some(generation)) => {
                self.metrics.reloads().count_taken();
                tracing::info!(%file, generation, "configuration read");
                Some(ReloadResult::Applied {
                    generation,
                    needs_restart: self.metrics.reloads().state().needs_restart,
                })
            }
            Err(error) => {
                self.metrics.reloads().count_refused(&error);
                tracing::error!("{file} is not taken, the configuration before it stays:\n{error}");
                Some(error.result())
            }
        }
    }

    /// Looks names up again. The configuration stays, and is applied again if one has another
    /// address.
    fn look_up_again(&self) -> ReloadResult {
        let config = Arc::clone(&self.settings.newest().config);
        let taken = self.look_up(&config).and_then(|(names, redis)| {
            if names.is_as_before() {
                names.finish();
                tracing::info!("names are looked up: no server has another address");
                return Ok(());
            }
            self.apply((*config).clone(), (names, redis)).map(drop)
        });
        match taken {
            Ok(()) => ReloadResult::NoFile,
            Err(error) => {
                tracing::error!("the servers before stay: {error}");
                ReloadError::Run(error).result()
            }
        }
    }

    /// Reloads, and returns the generation that was published.
    fn try_reload(&self, source: &ConfigSource) -> Result<Option<u64>, ReloadError> {
        let config = config::load(Some(&source.file), &source.flags);
        self.take(config.map_err(ReloadError::Config)?)
            .map_err(ReloadError::Run)
    }

    /// Publishes the settings of a configuration without mistakes; returns their generation, or
    /// `None` if another process serves.
    pub(super) fn take(&self, mut config: Config) -> Result<Option<u64>, RunError> {
        let running = Arc::clone(&self.settings.newest().config);
        tls::verifies_clients(&config, &running)?;
        let kept = config.keep_what_needs_a_restart(&running);
        for option in &kept {
            tracing::warn!(%option, "needs a restart: the value before stays");
        }
        // These may take long. Nothing else waits for them, an upgrade least of all.
        let found = self.look_up(&config)?;
        let generation = self.apply(config, found)?;
        if generation.is_some() {
            self.metrics.reloads().await_restart(kept);
        }
        Ok(generation)
    }

    /// Looks up the names of servers; returns the place of Redis with them.
    fn look_up(&self, config: &Config) -> Result<(Names, Option<Endpoint>), RunError> {
        let mut names = Names::again(self.found().addresses, PeerAddress::resolve_all);
        for (name, option) in looked_up(config) {
            names.resolve(name, option)?;
        }
        let redis = redis_endpoint(config, &mut names)?;
        Ok((names, redis))
    }

    /// Publishes a configuration whose names have been looked up. All steps that can fail come
    /// first.
    fn apply(
        &self,
        config: Config,
        (mut names, redis): (Names, Option<Endpoint>),
    ) -> Result<Option<u64>, RunError> {
        let _changes = self.settings.lock_changes();
        if self.handoff.sender().is_some() {
            return Ok(None);
        }
        let before = self.settings.newest();
        let running = &before.config;
        let found = self.found();
        // A file that is replaced between the two is read again by the next reload.
        let upstream_files = outward::upstream_files(&config)?;
        let plan = upstream_plan(&config, self.fleet.loops(), &self.descriptors, &mut names)?;
        let is_same = config.upstream == running.upstream && upstream_files == found.upstream_files;
        let upstream = match (&before.upstream, plan) {
            (Some(before), Some(plan)) if is_same && is_at_same_addresses(before, &plan) => {
                Some(Arc::clone(before))
            }
            (before, plan) => plan.map(|plan| Arc::new(plan.following(before.as_deref()))),
        };
        let memcached = memcached_addresses(&config, &mut names)?;
        let access = Access::load(&config, before.access.as_deref()).map_err(RunError::Access)?;
        let pairs = tls::read(&config)?;
        let tickets = tls::read_tickets(&config)?;
        let mut listeners: Vec<Listening> = (0..self.fleet.loops()).map(|_| Vec::new()).collect();
        let listened: Vec<_> = client_addresses(running).map(|(at, _)| at).collect();
        // An address that moves between the two options keeps its listeners.
        let is_new = |(address, _): &(SocketAddr, _)| !listened.contains(address);
        for (address, option) in client_addresses(&config).filter(is_new) {
            let group = listen_at(address, option, self.fleet.loops())?;
            for (of_loop, listener) in listeners.iter_mut().zip(group) {
                of_loop.push((address, listener));
            }
        }
        if let (Some(path), Some(_)) = (&config.store.snapshot, &self.service) {
            snapshot::check_kind(path).map_err(RunError::Snapshot)?;
            snapshot::check_writable(path).map_err(RunError::Snapshot)?;
        }
        let auth_file = config.store.auth_file.as_deref();
        let credentials = auth_file.map(credentials).transpose()?;
        if let Some(log) = &self.access {
            let target = &config.log.access;
            log.switch_to(target)
                .map_err(|source| RunError::access_log(target, source))?;
        }
        log::change_level(config.log.level);
        if let Some(service) = &self.service
            && config.store.bytes_max != running.store.bytes_max
        {
            service.store().begin_resize(config.store.bytes_max);
        }
        if let (Some(service), Some(credentials)) = (&self.service, credentials) {
            service.change_credentials(credentials);
        }
        self.certificates.replace(pairs, tickets, &config);
        self.metrics.name_upstreams(&config.upstream.url);
        *self.servers.lock().unwrap_or_else(PoisonError::into_inner) = FoundServers {
            addresses: names.finish(),
            upstream_files,
        };
        let addresses: Vec<_> = client_addresses(&config).map(|(at, _)| at).collect();
        before.hand_on(&mut listeners, &addresses);
        let acceptor = self.certificates.acceptor_for(&config);
        let generation = self.settings.publish(Settings {
            config: Arc::new(config),
            upstream,
            memcached,
            redis,
            access: Some(Arc::new(access)),
            listeners: Mutex::new(listeners),
            acceptor: Some(acceptor),
        });
        self.fleet.wake_all();
        Ok(Some(generation))
    }

    fn found(&self) -> FoundServers {
        let servers = self.servers.lock();
        servers.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The addresses for clients with the options that name them.
fn client_addresses(config: &Config) -> impl Iterator<Item = (SocketAddr, &'static str)> {
    let plain = config.server.listen.iter();
    let secure = config.tls.listen.iter().map(|at| (*at, "tls.listen"));
    plain.map(|at| (*at, "--listen")).chain(secure)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn listening(address: SocketAddr) -> Listening {
        let group = listen_at(address, "--listen", 1).unwrap().into_iter();
        group.map(|listener| (address, listener)).collect()
    }

    #[test]
    fn listeners_outlive_settings_that_a_loop_has_not_seen() {
        let stays: SocketAddr = "127.0.0.1:0".parse().unwrap();
        let goes: SocketAddr = "127.0.0.2:0".parse().unwrap();
        let before = Settings {
            listeners: Mutex::new(vec![listening(stays), listening(stays), listening(goes)]),
            ..Settings::default()
        };
        assert_eq!(before.take_listeners(0).len(), 1, "this loop was quick");
        let mut listeners: Vec<Listening> = (0..3).map(|_| Vec::new()).collect();
        before.hand_on(&mut listeners, &[stays]);
        let counts: Vec<_> = listeners.iter().map(Vec::len).collect();
        assert_eq!(counts, [0, 1, 0]);
        assert!(before.take_listeners(1).is_empty(), "it has one owner");
    }
}
