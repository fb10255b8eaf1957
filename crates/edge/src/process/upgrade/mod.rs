//! Replacing the program while it serves: the process starts its successor, and gives it the
//! listening sockets, the items of the embedded store, and the connections that owe nothing.
//!
//! The steps, each of which has to succeed before the next begins; up to the last one a successor
//! that fails is given up, and nothing has happened:
//!
//! 1. The successor starts with one end of a socket pair as its standard input, reads its
//!    configuration, takes the listening sockets that it has use for, and binds the others.
//! 2. It says that it could serve. All loops here pause at the ends of their turns: from now
//!    on no client writes to the store, and what comes waits in its socket.
//! 3. The items go over, and the successor says that it has them.
//! 4. It is told to serve, and says that it does: all its threads run already, and nothing is left
//!    that could fail. From now on it accepts the clients of all listening sockets, and the loops
//!    here go on: with handing over the connections (`handoff`), and ending the rest.

mod successor;

pub(super) use successor::Predecessor;

use super::environment;
use super::notify::Notifier;
use crate::event_loop::{Message, Settings};
use crate::handoff::{Channel, Handoff, HandoffSender, InheritedListener, Kind, Paused};
use crate::metrics::Metrics;
use crate::published::Published;
use dwell_evloop::{Fleet, Lifecycle};
use dwell_store_server::{Moment, StoreService, snapshot};
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fmt, process, thread};

/// Version of the protocol between the two processes; others are refused.
const VERSION: u8 = 1;
/// Time within which a successor that has gone silent ends.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// Time for which the loops may pause while nothing moves.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Time that the new process has for the connections, beyond the time that they have here.
const TAKE_TIMEOUT: Duration = Duration::from_secs(5);
/// In the mark of a listening socket: its file is the process's own.
const OWNS_FILE: u8 = 0x80;

/// Starts successors.
#[derive(Debug)]
pub(super) struct Upgrader {
    pub(super) fleet: Arc<Fleet<Message>>,
    pub(super) settings: Arc<Published<Settings>>,
    pub(super) handoff: Arc<Handoff>,
    pub(super) service: Option<Arc<StoreService>>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) notifier: Option<Arc<Notifier>>,
    pub(super) is_under_way: AtomicBool,
}

/// Why this process goes on.
#[derive(Debug)]
enum UpgradeError {
    /// The program cannot be started.
    Start(io::Error),
    /// The new process has ended.
    Ended(ExitStatus),
    /// It cannot be talked to, or takes too long.
    Talk(&'static str, io::Error),
    /// A loop here does not come to the end of its turn.
    Busy,
    /// This process is to end.
    Ending,
    /// This is the first process of a container, which ends with it.
    FirstProcess,
}

impl fmt::Display for UpgradeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Start(error) => write!(f, "the program cannot be started: {error}"),
            Self::Ended(status) => write!(f, "the new process has ended: {status}"),
            Self::Talk(step, error)
                if error.kind() == io::ErrorKind::TimedOut && error.get_ref().is_none() =>
            {
                write!(f, "{step}: it takes longer than limits.upgrade_timeout")
            }
            Self::Talk(step, error) => write!(f, "{step}: {error}"),
            Self::Busy => f.write_str("a loop has not come to the end of its turn in time"),
            Self::Ending => f.write_str("it is to end"),
            Self::FirstProcess => f.write_str(
                "it is process 1, and its container ends with it: start Dwell under an init \
                 process (docker run --init), or replace the container",
            ),
        }
    }
}

impl UpgradeError {
    /// Returns true if the new process has closed its end, most likely with its own.
    fn is_end(&self) -> bool {
        matches!(self, Self::Talk(_, error) if error.kind() != io::ErrorKind::TimedOut)
    }
}

/// The new process; ended if it is dropped before it serves.
struct Successor(Option<Child>);

impl Successor {
    fn id(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// It is on its own.
    fn release(mut self) {
        self.0 = None;
    }

    /// Waits shortly for its end, and returns how it has ended.
    fn ended(&mut self) -> Option<ExitStatus> {
        let until = Instant::now() + LAST_WORDS;
        while Instant::now() < until {
            if let Ok(Some(status)) = self.0.as_mut()?.try_wait() {
                self.0 = None;
                return Some(status);
            }
            thread::sleep(LOOK_INTERVAL);
        }
        None
    }
}

impl Drop for Successor {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // It has not served anybody, so there is nothing to end in order.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

impl Upgrader {
    /// Starts a successor in a thread of its own; asked for again meanwhile, it does nothing.
    pub(super) fn ask(self: &Arc<Self>) {
        if self.fleet.lifecycle() != Lifecycle::Serve {
            tracing::warn!("no upgrade: this process is ending");
        } else if self.handoff.queue.is_open() {
            tracing::warn!("no upgrade: the process before this one has not ended yet");
        } else if self.is_under_way.swap(true, Ordering::AcqRel) {
            tracing::warn!("no upgrade: one is under way");
        } else {
            let upgrader = Arc::clone(self);
            let spawned = thread::Builder::new().name("upgrade".to_owned());
            if let Err(error) = spawned.spawn(move || upgrader.attempt()) {
                self.give_up(&UpgradeError::Start(error));
            }
        }
    }

    fn attempt(&self) {
        if let Err(error) = self.upgrade() {
            self.give_up(&error);
        }
    }

    fn give_up(&self, error: &UpgradeError) {
        // A reader of the line may ask for the next one at once.
        self.is_under_way.store(false, Ordering::Release);
        self.metrics.upgrades_failed().add(1);
        tracing::error!("the upgrade is given up, this process goes on: {error}");
    }

    fn upgrade(&self) -> Result<(), UpgradeError> {
        // The kernel ends all processes of a PID namespace when the first one ends.
        if process::id() == 1 {
            return Err(UpgradeError::FirstProcess);
        }
        // What listens stays the same until it has been handed over.
        let _changes = self.settings.lock_changes();
        let timeout = self.settings.newest().config.limits.upgrade_timeout;
        let deadline = Instant::now() + timeout;
        let (paused, sockets) = self.pause(deadline)?;
        drop(paused);
        let (channel, other) = UnixStream::pair().map_err(UpgradeError::Start)?;
        let mut successor = start(other).map_err(UpgradeError::Start)?;
        let channel = Channel::new(channel, deadline);
        tracing::info!(process = successor.id(), "starting another process");
        match self.talk(channel, &successor, sockets, deadline) {
            Ok(()) => {
                successor.release();
                Ok(())
            }
            Err(error) if error.is_end() => {
                Err(successor.ended().map_or(error, UpgradeError::Ended))
            }
            Err(error) => Err(error),
        }
    }

    /// Pauses all loops, and returns their listening sockets.
    fn pause(
        &self,
        deadline: Instant,
    ) -> Result<(Paused<'_>, Vec<InheritedListener>), UpgradeError> {
        let fleet = &self.fleet;
        let deadline = deadline.min(Instant::now() + self.stall_timeout());
        let serves = || fleet.lifecycle() == Lifecycle::Serve;
        let barrier = &self.handoff.barrier;
        let paused = barrier.pause(fleet.loops(), deadline, || fleet.wake_all(), serves);
        match paused {
            _ if !serves() => Err(UpgradeError::Ending),
            Some(paused) => Ok(paused),
            None => Err(UpgradeError::Busy),
        }
    }

    /// Time for which nothing may move while the loops pause, which do not feed the watchdog then.
    fn stall_timeout(&self) -> Duration {
        let watchdog = self.notifier.as_ref();
        let watchdog = watchdog.and_then(|notifier| notifier.watchdog_interval());
        watchdog.map_or(STALL_TIMEOUT, |interval| interval.min(STALL_TIMEOUT))
    }

    fn talk(
        &self,
        mut channel: Channel,
        successor: &Successor,
        sockets: Vec<InheritedListener>,
        deadline: Instant,
    ) -> Result<(), UpgradeError> {
        let step = |name| move |error| UpgradeError::Talk(name, error);
        greet(&mut channel, self.service.is_some(), sockets).map_err(step("greeting it"))?;
        let ready = channel.expect(Kind::Ready);
        let wants_store = ready.map_err(step("waiting until it could serve"))?.mark == 1;
        let (paused, _) = self.pause(deadline)?;
        let began = Instant::now();
        channel.set_stall_timeout(Some(self.stall_timeout()));
        let service = self.service.as_ref().filter(|_| wants_store);
        let pulse = Pulse::new(self.notifier.as_deref());
        give_store(&mut channel, service, pulse).map_err(step("giving it the items"))?;
        if let Some(notifier) = &self.notifier {
            notifier.main_process(successor.id());
        }
        if let Err(error) = give_place(&mut channel) {
            if let Some(notifier) = &self.notifier {
                notifier.main_process(process::id());
            }
            return Err(UpgradeError::Talk("telling it to serve", error));
        }
        if let Some(service) = &self.service {
            service.store().retire();
        }
        let (process, pause) = (successor.id(), began.elapsed());
        tracing::info!(process, ?pause, "another process serves from now on");
        // What is still to go has its own time.
        let drain_timeout = self.settings.newest().config.limits.drain_timeout;
        channel.set_deadline(Some(Instant::now() + drain_timeout + TAKE_TIMEOUT));
        channel.set_stall_timeout(None);
        self.handoff.begin(HandoffSender::new(channel, wants_store));
        self.fleet.advance(Lifecycle::HandOver);
        drop(paused);
        Ok(())
    }
}

/// Starts the program as this process was started, with a socket for its standard input.
fn start(socket: UnixStream) -> io::Result<Successor> {
    let mut words = env::args_os();
    let program = words.next().unwrap_or_default();
    let mut command = Command::new(&program);
    command
        .arg0(&program)
        .args(words)
        .env(environment::UPGRADE, process::id().to_string())
        // They are for this process, and not for the next.
        .env_remove("WATCHDOG_PID")
        .env_remove("LISTEN_FDNAMES")
        .stdin(Stdio::from(OwnedFd::from(socket)));
    command.spawn().map(|child| Successor(Some(child)))
}

fn greet(
    channel: &mut Channel,
    has_store: bool,
    sockets: Vec<InheritedListener>,
) -> io::Result<()> {
    channel.send(Kind::Hello, u8::from(has_store), &[VERSION], None)?;
    for socket in sockets {
        let address = socket.address.to_bytes();
        let descriptor = Some(socket.descriptor.as_fd());
        let owns_file = if socket.owns_file { OWNS_FILE } else { 0 };
        let mark = socket.role as u8 | owns_file;
        channel.send(Kind::Listener, mark, &address, descriptor)?;
    }
    channel.send(Kind::Listeners, 0, b"", None)
}

/// Feeds the watchdog in the place of the loops that pause.
struct Pulse<'n> {
    notifier: Option<&'n Notifier>,
    interval: Duration,
    last: Instant,
}

impl<'n> Pulse<'n> {
    fn new(notifier: Option<&'n Notifier>) -> Self {
        let interval = notifier.and_then(Notifier::watchdog_interval);
        let pulse = Self {
            notifier: notifier.filter(|_| interval.is_some()),
            interval: interval.unwrap_or_default() / 4,
            last: Instant::now(),
        };
        pulse.say();
        pulse
    }

    fn say(&self) {
        if let Some(notifier) = self.notifier {
            notifier.alive();
        }
    }

    fn moved(&mut self) {
        if self.notifier.is_some() && self.last.elapsed() >= self.interval {
            self.last = Instant::now();
            self.say();
        }
    }
}

/// A channel on which every piece is a sign of life.
struct Lively<'c, 'n> {
    channel: &'c mut Channel,
    pulse: Pulse<'n>,
}

impl io::Write for Lively<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.pulse.moved();
        self.channel.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.channel.flush()
    }
}

fn give_store(
    channel: &mut Channel,
    service: Option<&Arc<StoreService>>,
    pulse: Pulse<'_>,
) -> io::Result<()> {
    channel.send(Kind::Store, u8::from(service.is_some()), b"", None)?;
    if let Some(service) = service {
        let now = Moment::now();
        let flush_at = service.pending_flush(now.steady);
        let channel = &mut *channel;
        snapshot::write(service.store(), flush_at, now, Lively { channel, pulse })?;
    }
    channel.expect(Kind::Taken).map(drop)
}

fn give_place(channel: &mut Channel) -> io::Result<()> {
    channel.send(Kind::Serve, 0, b"", None)?;
    channel.expect(Kind::Serving).map(drop)
}
