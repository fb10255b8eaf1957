//! One transport: a server with the clients that wait on it.

use super::measure::{self, Measured, measure, monotonic_ns};
use super::part::{Part, PartName};
use super::transport::{KEY, Transport};
use super::wave::Wave;
use dwell_memcache::{Client, StoreOptions};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::fmt;
use std::net::SocketAddr;
use std::process::ExitStatus;
use std::thread;
use std::time::{Duration, Instant};

/// The server and the clients of one transport.
#[derive(Debug)]
pub(super) struct Lane {
    transport: Transport,
    server: Part,
    clients: Part,
    /// The address of the server for clients.
    listen: SocketAddr,
    store: Client,
    counts: Counts,
    /// Memory of the server when one client had waited. Units: bytes.
    before: Option<u64>,
    measured: Measured,
    /// Times of the server on a processor since all clients wait, the last of ten seconds.
    idle: VecDeque<(Instant, u64)>,
    idle_percent: Option<f64>,
    setting: Option<Setting>,
    wave: Option<Wave>,
    waves: u32,
    /// True from a reload of the server until its log reports the end.
    is_reloading: bool,
}

/// The counts that the clients' process told last.
#[derive(Clone, Copy, Debug, Default)]
struct Counts {
    waiting: usize,
    lost: u64,
    missed: u64,
    waves: u64,
}

/// A wave in progress.
#[derive(Debug)]
struct Setting {
    value: String,
    /// The number that the clients' process counts it by.
    number: u64,
    /// The time at which the key was set, and the server's time on a processor before.
    set: Option<(u64, Option<u64>)>,
}

/// Faults that end the demonstration.
#[derive(Debug)]
pub(super) enum Fault {
    /// The system gives no process, thread or descriptor.
    Start(std::io::Error),
    /// A process has ended that was not told to.
    Ended {
        part: String,
        status: ExitStatus,
        last: String,
    },
    /// A server does not listen in time.
    Silent(Transport),
    /// The store of a server takes no value.
    Store(dwell_memcache::Error),
    /// Clients do not get so far in time.
    Late(String),
}

impl Lane {
    /// Starts the server, sets its key to `value`, and starts the clients with a single one.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn start(transport: Transport, value: &str) -> Result<Self, Fault> {
        let mut server = Part::start(PartName::Server(None)).map_err(Fault::Start)?;
        let (listen, store) = addresses(transport, &mut server)?;
        let store = Client::for_servers(&[&store.to_string()]).map_err(Fault::Store)?;
        set(&store, value)?;
        let clients = PartName::Clients(transport, listen);
        let mut lane = Self {
            transport,
            server,
            clients: Part::start(clients).map_err(Fault::Start)?,
            listen,
            store,
            counts: Counts::default(),
            before: None,
            measured: Measured::default(),
            idle: VecDeque::new(),
            idle_percent: None,
            setting: None,
            wave: None,
            waves: 0,
            is_reloading: false,
        };
        lane.order(&json!({"clients": 1}))?;
        Ok(lane)
    }

    pub(super) fn transport(&self) -> Transport {
        self.transport
    }

    pub(super) fn waiting(&self) -> usize {
        self.counts.waiting
    }

    /// Connections that have ended so far.
    pub(super) fn lost(&self) -> u64 {
        self.counts.lost
    }

    /// Clients that came back after the last restart and got another value than the key's.
    pub(super) fn missed(&self) -> u64 {
        self.counts.missed
    }

    /// Kills the server, and starts another one at its address, whose key has `value`.
    ///
    /// Shape: returns when the new one listens; its clients come back on their own.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn restart(&mut self, value: &str) -> Result<(), Fault> {
        self.order(&json!({"expect": value}))?;
        self.server.kill();
        let again = PartName::Server(Some(self.listen));
        self.server = Part::start(again).map_err(Fault::Start)?;
        let (_, store) = addresses(self.transport, &mut self.server)?;
        self.store = Client::for_servers(&[&store.to_string()]).map_err(Fault::Store)?;
        self.is_reloading = false;
        self.idle.clear();
        // The memory of the other process is no measure for this one.
        self.before = None;
        set(&self.store, value)
    }

    /// Has the server read its configuration again.
    ///
    /// # Errors
    /// [`Fault::Start`].
    pub(super) fn reload(&mut self) -> Result<(), Fault> {
        self.is_reloading = true;
        self.idle.clear();
        let signalled = self.server.signal(Signal::HUP);
        signalled.map_err(|error| self.reason(Fault::Start(error)))
    }

    /// Returns true until the server has read its configuration again.
    pub(super) fn is_reloading(&self) -> bool {
        self.is_reloading
    }

    /// The wave that has ended last.
    pub(super) fn wave(&self) -> Option<&Wave> {
        self.wave.as_ref()
    }

    /// Notes the memory of the server with its first client, and orders all of them.
    ///
    /// # Errors
    /// [`Fault::Ended`].
    pub(super) fn fill(&mut self, clients: usize) -> Result<(), Fault> {
        self.before = measure(self.server.id()).resident;
        self.order(&json!({"clients": clients}))
    }

    /// Measures the server while nothing happens.
    pub(super) fn measure(&mut self, now: Instant) {
        self.measured = measure(self.server.id());
        if let Some(cpu_ns) = self.measured.cpu_ns {
            self.idle.push_back((now, cpu_ns));
        }
        while self.idle.len() > IDLE_SAMPLES {
            self.idle.pop_front();
        }
        self.idle_percent = percent(&self.idle).or(self.idle_percent);
    }

    /// Sets the key to `value`, as soon as the clients' process expects it.
    ///
    /// # Errors
    /// [`Fault::Ended`].
    pub(super) fn set(&mut self, value: &str) -> Result<(), Fault> {
        self.setting = Some(Setting {
            value: value.to_owned(),
            number: self.counts.waves + 1,
            set: None,
        });
        self.idle.clear();
        self.order(&json!({"wave": value}))
    }

    /// Reads what the processes have told; true if a wave has ended.
    ///
    /// # Errors
    /// [`Fault`].
    pub(super) fn step(&mut self) -> Result<bool, Fault> {
        let mut has_ended = false;
        while let Some(line) = self.clients.line() {
            let told: Value = serde_json::from_str(&line).unwrap_or_default();
            if let Some(setting) = self.setting.take_if(|_| told.get("wave").is_some()) {
                let (set_ns, before) = setting.set.unwrap_or_default();
                let cpu_ns = measure::cpu_ns(self.server.id()).zip(before);
                let cpu_ns = cpu_ns.map(|(after, before)| after.saturating_sub(before));
                self.waves += 1;
                self.wave = Wave::read(&told["wave"], set_ns, cpu_ns);
                has_ended = true;
            } else if let (Some(waiting), Some(lost), Some(missed), Some(waves)) = (
                count(&told, "waiting"),
                count(&told, "lost"),
                count(&told, "missed"),
                count(&told, "waves"),
            ) {
                let waiting = usize::try_from(waiting).unwrap_or(usize::MAX);
                self.counts = Counts {
                    waiting,
                    lost,
                    missed,
                    waves,
                };
            }
        }
        // The log of the server; a pipe that is not read would hold it up.
        let mut last = String::new();
        while let Some(line) = self.server.line() {
            self.is_reloading &= !reports(&line, RELOADED);
            last = line;
        }
        self.ended(&last)?;
        if let Some(setting) = &mut self.setting
            && setting.set.is_none()
            && self.counts.waves == setting.number
        {
            let before = measure::cpu_ns(self.server.id());
            setting.set = Some((monotonic_ns(), before));
            let stored = set(&self.store, &setting.value);
            stored.map_err(|fault| self.reason(fault))?;
        }
        Ok(has_ended)
    }

    fn ended(&mut self, last: &str) -> Result<(), Fault> {
        let transport = self.transport;
        for (part, name) in [
            (&mut self.server, format!("the {transport} server")),
            (
                &mut self.clients,
                format!("the process of the {transport} clients"),
            ),
        ] {
            if let Some(status) = part.ended() {
                let (part, last) = (name, last.to_owned());
                return Err(Fault::Ended { part, status, last });
            }
        }
        Ok(())
    }

    fn order(&mut self, order: &Value) -> Result<(), Fault> {
        let sent = self.clients.order(&order.to_string());
        sent.map_err(|error| self.reason(Fault::Start(error)))
    }

    /// The reason for `fault`: a process that has ended, if there is one.
    fn reason(&mut self, fault: Fault) -> Fault {
        let deadline = Instant::now() + END_TIMEOUT;
        loop {
            match self.ended("") {
                Err(ended) => return ended,
                Ok(()) if Instant::now() > deadline => return fault,
                // Its pipes and sockets are closed a moment before its status is known.
                Ok(()) => thread::sleep(Duration::from_millis(2)),
            }
        }
    }

    /// Memory of the server for each client, beside what it took with one. Units: bytes.
    pub(super) fn bytes_per_client(&self) -> Option<u64> {
        let grown = self.measured.resident?.saturating_sub(self.before?);
        let clients = u64::try_from(self.counts.waiting).ok()?.checked_sub(1)?;
        grown.checked_div(clients)
    }

    /// The figures as JSON.
    pub(super) fn document(&self) -> Value {
        json!({
            "transport": self.transport.name(),
            "waiting": self.counts.waiting,
            "lost": self.counts.lost,
            "bytes_per_client": self.bytes_per_client(),
            "threads": self.measured.threads,
            "cpu_idle_percent": self.idle_percent,
            "waves": self.waves,
            "wave": self.wave().map(Wave::document),
        })
    }
}

/// The share of a processor between the first and the last of these times on it. Units: per cent.
fn percent(times: &VecDeque<(Instant, u64)>) -> Option<f64> {
    let ((begun, before), (ended, after)) = (times.front()?, times.back()?);
    let spent = Duration::from_nanos(after.saturating_sub(*before)).as_secs_f64();
    let seconds = ended.duration_since(*begun).as_secs_f64();
    (seconds > 0.0).then(|| (spent / seconds * 100_000.0).round() / 1000.0)
}

fn count(told: &Value, name: &str) -> Option<u64> {
    told[name].as_u64()
}

/// Returns true if a line of a server's log has this message.
fn reports(line: &str, message: &str) -> bool {
    let told: Value = serde_json::from_str(line).unwrap_or_default();
    told["message"] == message
}

fn set(store: &Client, value: &str) -> Result<(), Fault> {
    store
        .set(KEY, value, StoreOptions::default())
        .map_err(Fault::Store)
}

/// The addresses for clients and of the store, from the log of a server that has started.
fn addresses(transport: Transport, server: &mut Part) -> Result<(SocketAddr, SocketAddr), Fault> {
    let deadline = Instant::now() + START_TIMEOUT;
    let (mut listen, mut store) = (None, None);
    let mut last = String::new();
    while Instant::now() < deadline {
        while let Some(line) = server.line() {
            let told: Value = serde_json::from_str(&line).unwrap_or_default();
            let address = told["address"].as_str().and_then(|text| text.parse().ok());
            match told["option"].as_str() {
                Some("--listen") => listen = address,
                Some("--store") => store = address,
                _ => last = line,
            }
        }
        if let (Some(listen), Some(store)) = (listen, store) {
            return Ok((listen, store));
        }
        if let Some(status) = server.ended() {
            let part = format!("the {transport} server");
            return Err(Fault::Ended { part, status, last });
        }
        thread::sleep(Duration::from_millis(2));
    }
    Err(Fault::Silent(transport))
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "cannot start a process: {error}"),
            Self::Ended { part, status, last } => {
                write!(f, "{part} has ended: {status}")?;
                match last.as_str() {
                    "" => Ok(()),
                    last => write!(f, "; its last line: {last}"),
                }
            }
            Self::Silent(transport) => write!(
                f,
                "the {transport} server does not listen after {} s",
                START_TIMEOUT.as_secs()
            ),
            Self::Store(error) => write!(f, "cannot set the key: {error}"),
            Self::Late(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Fault {}

/// The message of a server that has applied its configuration.
const RELOADED: &str = "configuration read";

/// Time until a server listens.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Time until the status of a process is known whose pipes are closed.
const END_TIMEOUT: Duration = Duration::from_millis(500);

/// Samples of a second each, and the one before them.
const IDLE_SAMPLES: usize = 11;
