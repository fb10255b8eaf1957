//! Supervision on the first loop: signals, and notifications to the service manager.

use super::notify::Notifier;
use super::reload::Reloader;
use super::store::credentials;
use super::tls::Certificates;
use super::upgrade::Upgrader;
use crate::config::Config;
use crate::event_loop::{Message, Settings, Supervise};
use crate::log::AccessSwitch;
use crate::metrics::Metrics;
use crate::published::Published;
use dwell_evloop::{EventLoop, Fleet, Lifecycle};
use dwell_store_server::StoreService;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM, SIGUSR1, SIGUSR2};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::Duration;

/// Supervision of the process, on its first loop.
#[derive(Debug)]
pub(crate) struct Supervisor {
    reloader: Arc<Reloader>,
    upgrader: Arc<Upgrader>,
    /// Absent without a service manager.
    notifier: Option<Arc<Notifier>>,
    fleet: Arc<Fleet<Message>>,
    settings: Arc<Published<Settings>>,
    metrics: Arc<Metrics>,
    files: Files,
    /// Turns of each loop at the last check.
    turns: Vec<u64>,
}

impl Supervisor {
    /// Makes a supervisor.
    pub(crate) fn new(
        reloader: Arc<Reloader>,
        upgrader: Arc<Upgrader>,
        notifier: Option<Arc<Notifier>>,
        fleet: Arc<Fleet<Message>>,
        settings: Arc<Published<Settings>>,
        metrics: Arc<Metrics>,
        files: Files,
    ) -> Self {
        Self {
            reloader,
            upgrader,
            notifier,
            fleet,
            settings,
            metrics,
            files,
            turns: Vec::new(),
        }
    }

    /// Waits for a change on all loops, as each had them when its last turn ended.
    fn waiting(&self) -> i64 {
        self.metrics.total(|cells| &cells.waits_held)
    }

    /// Reopens files in a thread, as the file system may block.
    fn read_again(&self, read: impl FnOnce(&Files, &Config) + Send + 'static) {
        let files = self.files.clone();
        let settings = self.settings.newest();
        let thread = thread::Builder::new().name("reopen".to_owned());
        if let Err(error) = thread.spawn(move || read(&files, &settings.config)) {
            tracing::error!(%error, "no file is opened again: no thread is left");
        }
    }
}

impl Supervise for Supervisor {
    fn handle_signal(&self, signal: i32) -> bool {
        if signal == SIGUSR2 {
            self.upgrader.ask();
            return true;
        }
        if signal == SIGUSR1 {
            // A store without HTTP clients has no access log, and ends as memcached does.
            let serves_clients = !self.settings.newest().config.server.listen.is_empty();
            if serves_clients {
                self.read_again(Files::open_log);
            }
            return serves_clients;
        }
        if signal != SIGHUP {
            return false;
        }
        if self.reloader.source.is_none() {
            tracing::info!("no configuration is read again: there is no --config FILE");
            self.read_again(|files, config| {
                files.open_log(config);
                files.read_credentials(config);
                files.certificates.look();
            });
            self.reloader.ask(|| {});
            return true;
        }
        let Some(notifier) = self.notifier.clone() else {
            self.reloader.ask(|| {});
            return true;
        };
        notifier.reloading();
        let metrics = Arc::clone(&self.metrics);
        self.reloader.ask(move || notifier.ready(status(&metrics)));
        true
    }

    fn serves(&self) {
        if let Some(notifier) = &self.notifier {
            notifier.ready(status(&self.metrics));
        }
    }

    fn drains(&self) {
        tracing::info!(waiting = self.waiting(), "draining");
        if let Some(notifier) = &self.notifier {
            notifier.stopping();
        }
    }

    fn hands_over(&self) {
        tracing::info!(waiting = self.waiting(), "handing over");
    }

    fn watchdog_interval(&self) -> Option<Duration> {
        self.notifier.as_ref()?.watchdog_interval()
    }

    fn check_loops(&mut self) {
        let Some(notifier) = &self.notifier else {
            return;
        };
        let loops = self.metrics.loops().iter();
        let turns: Vec<u64> = loops.map(|of_loop| of_loop.loop_turns.value()).collect();
        let lifecycle = self.fleet.lifecycle();
        if lifecycle == Lifecycle::HandOver {
            // The manager supervises another process now.
        } else if lifecycle != Lifecycle::Serve || all_have_turned(&self.turns, &turns) {
            // Loops that drain end at different times, within a bound of their own.
            notifier.alive();
        } else {
            tracing::error!(
                "an event loop hangs: no keep-alive message is sent to the service manager"
            );
        }
        self.turns = turns;
        self.fleet.wake_all();
    }
}

/// Files that a signal reopens without reading the configuration.
#[derive(Clone, Debug)]
pub(crate) struct Files {
    /// Absent without an access log.
    pub(crate) access: Option<AccessSwitch>,
    /// Absent without an embedded store.
    pub(crate) service: Option<Arc<StoreService>>,
    pub(crate) certificates: Arc<Certificates>,
}

impl Files {
    fn open_log(&self, config: &Config) {
        let Some(access) = &self.access else {
            return;
        };
        match access.switch_to(&config.log.access) {
            Ok(()) => tracing::info!("access log opened again"),
            Err(error) => tracing::error!(%error, "the access log cannot be opened again"),
        }
    }

    fn read_credentials(&self, config: &Config) {
        let (Some(service), Some(path)) = (&self.service, &config.store.auth_file) else {
            return;
        };
        match credentials(path) {
            Ok(credentials) => {
                service.change_credentials(credentials);
                tracing::info!(path = %path.display(), "credentials read again");
            }
            Err(error) => tracing::error!("the credentials before stay: {error}"),
        }
    }
}

/// Returns true if every loop has turned since the last check, if there was one.
fn all_have_turned(before: &[u64], now: &[u64]) -> bool {
    before.iter().zip(now).all(|(before, now)| before != now)
}

/// Status text for operators.
fn status(metrics: &Metrics) -> &'static str {
    if metrics.reloads().is_last_refused() {
        "serving; the configuration read last was refused"
    } else {
        "serving"
    }
}

/// Registers the signals on the first loop.
pub(crate) fn watch_signals(
    event_loop: &mut EventLoop<Message>,
    is_service: bool,
) -> io::Result<()> {
    for signal in [SIGTERM, SIGINT, SIGUSR1, SIGUSR2] {
        event_loop.watch_signal(signal)?;
    }
    // The demonstration ends with its terminal.
    if is_service {
        event_loop.watch_signal(SIGHUP)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_loop_that_stands_still_is_enough_to_be_silent() {
        assert!(all_have_turned(&[], &[0, 0]), "nobody has looked before");
        assert!(all_have_turned(&[3, 7], &[4, 8]));
        assert!(!all_have_turned(&[3, 7], &[4, 7]));
    }
}
