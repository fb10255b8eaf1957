//! The upgrade: the process starts its successor, and hands over the listening sockets, the items
//! of the embedded store, and idle connections.
//!
//! Each step has to succeed before the next begins. If one before the last fails, the successor is
//! ended, and nothing has changed. `talk` has the order of the steps, for both processes:
//!
//! 1. All loops of this process duplicate their listening sockets at the ends of their turns. The
//!    successor starts with one end of a socket pair as its standard input, reads its
//!    configuration, takes the listening sockets it needs, and binds the others.
//! 2. The successor reports that it could serve. All loops of this process pause at the ends of
//!    their turns: no client writes to the store any more, and requests wait in their sockets.
//! 3. The keys of session tickets and the items are sent, and the successor confirms them.
//! 4. The successor is told to serve, and confirms: all its threads run, and no step is left that
//!    could fail. It accepts the clients of all listening sockets from now on. The loops of this
//!    process go on, hand idle connections over (`handoff`), and end the others. Not before this
//!    are connections under TLS frozen for it, which cannot go on here then. This thread sends
//!    them, so that no loop waits for a successor that has stopped; its connections end here.
//!    When the time is over in which it has to confirm, the successor can send nothing more. If it
//!    has confirmed just before, it serves; otherwise it ends, and this process serves.

mod successor;
pub(super) mod talk;

pub(super) use successor::Predecessor;
#[cfg(feature = "sim")]
pub(super) use successor::take_items;

use self::talk::{MainProcess, Place, PredecessorSide, PredecessorTalk};
use super::environment;
use super::notify::Notifier;
use super::signal_report::{SignalReporter, report_if_serving};
use super::tls::Certificates;
use crate::event_loop::{Message, Settings};
use crate::handoff::{Channel, Frame, Handoff, InheritedListener, Round, SEND_STALL_TIMEOUT};
use crate::metrics::Metrics;
use crate::published::Published;
use dwell_evloop::{Fleet, Lifecycle};
use dwell_store_server::{Moment, StoreService, snapshot};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use std::{env, fmt, process, thread};

/// Least time in which a successor that has closed its end of the channel has to end.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);
/// Longest pause of the loops without progress.
const STALL_TIMEOUT: Duration = Duration::from_secs(2);
const LOOK_INTERVAL: Duration = Duration::from_millis(5);
/// Time in which the successor takes connections, beyond the drain time here.
const TAKE_TIMEOUT: Duration = Duration::from_secs(5);

/// Starts successors.
#[derive(Debug)]
pub(super) struct Upgrader {
    pub(super) fleet: Arc<Fleet<Message>>,
    pub(super) settings: Arc<Published<Settings>>,
    pub(super) handoff: Arc<Handoff>,
    pub(super) service: Option<Arc<StoreService>>,
    pub(super) certificates: Arc<Certificates>,
    pub(super) metrics: Arc<Metrics>,
    pub(super) notifier: Option<Arc<Notifier>>,
    /// Writes failures for `dwell upgrade`; absent without a pid file.
    pub(super) reporter: Option<Arc<SignalReporter>>,
    pub(super) is_under_way: AtomicBool,
}

/// Reason why an upgrade has failed.
#[derive(Debug)]
pub(in crate::process) enum UpgradeError {
    /// The program cannot be started.
    Start(io::Error),
    /// The successor has ended.
    Ended(ExitStatus),
    /// The exchange with the successor has failed or timed out.
    Talk(&'static str, io::Error),
    /// A loop of this process does not end its turn.
    Busy,
    /// This process is ending.
    Ending,
    /// This process is the first of a container, which ends with it.
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
    /// Returns true if the successor has closed its end, most likely because it has ended.
    fn is_end(&self) -> bool {
        use io::ErrorKind::{BrokenPipe, ConnectionReset, UnexpectedEof};
        let closed = [BrokenPipe, ConnectionReset, UnexpectedEof];
        matches!(self, Self::Talk(_, error) if closed.contains(&error.kind()))
    }
}

/// The successor; it is killed if this is dropped before it serves.
struct Successor(Option<Child>);

impl Successor {
    fn id(&self) -> u32 {
        self.0.as_ref().map_or(0, Child::id)
    }

    /// Lets the successor run on its own.
    fn release(mut self) {
        self.0 = None;
    }

    /// Waits for the successor's end, and returns its status.
    fn ended(&mut self, until: Instant) -> Option<ExitStatus> {
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
            // It has not served, so it can be killed.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn spawn(work: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name("upgrade".to_owned());
    thread.spawn(work).map(drop)
}

impl Upgrader {
    /// Starts an upgrade in a thread; does nothing while one runs.
    pub(super) fn ask(self: &Arc<Self>) {
        if !self.serves() {
            self.refuse("this process is ending");
        } else if self.handoff.queue.is_open() {
            self.refuse("the process before this one has not ended yet");
        } else if self.is_under_way.swap(true, Ordering::AcqRel) {
            // Its result is that of this one, too.
            tracing::warn!("no upgrade: one is in progress");
        } else {
            let upgrader = Arc::clone(self);
            if let Err(error) = spawn(move || upgrader.attempt()) {
                self.report_failure(&UpgradeError::Start(error));
            }
        }
    }

    fn attempt(&self) {
        self.report(SignalReporter::begin_upgrade);
        match self.upgrade() {
            Ok(channel) => self.send_connections(channel),
            Err(error) => self.report_failure(&error),
        }
    }

    /// Sends the connections that the loops give, until this process ends.
    fn send_connections(&self, channel: Channel) {
        if let Some(sender) = self.handoff.sender() {
            sender.run(channel, || self.fleet.wake_all());
        }
    }

    fn refuse(self: &Arc<Self>, reason: &'static str) {
        tracing::warn!("no upgrade: {reason}");
        let upgrader = Arc::clone(self);
        let report = move || {
            upgrader.report(|reporter| {
                reporter.begin_upgrade();
                reporter.upgrade_failed(&reason);
            });
        };
        // The loop does not wait for a disk. Without a thread, the log alone has the reason.
        let _ = spawn(report);
    }

    /// Reports to `dwell upgrade`.
    fn report(&self, report: impl FnOnce(&SignalReporter)) {
        report_if_serving(self.reporter.as_deref(), &self.handoff, report);
    }

    fn report_failure(&self, error: &UpgradeError) {
        // The report has this result before the next upgrade can begin, and a reader of the log
        // line may start that at once.
        self.report(|reporter| reporter.upgrade_failed(error));
        self.is_under_way.store(false, Ordering::Release);
        self.metrics.upgrades_failed().add(1);
        tracing::error!("the upgrade is given up, this process goes on: {error}");
    }

    /// Returns the channel over which connections are to be sent.
    fn upgrade(&self) -> Result<Channel, UpgradeError> {
        // The kernel ends all processes of a PID namespace when the first one ends.
        if process::id() == 1 {
            return Err(UpgradeError::FirstProcess);
        }
        // The listeners do not change until they have been handed over.
        let _changes = self.settings.lock_changes();
        let timeout = self.settings.newest().config.limits.upgrade_timeout;
        let deadline = Instant::now() + timeout;
        let sockets = self.gather(deadline)?;
        let (channel, other) = UnixStream::pair().map_err(UpgradeError::Start)?;
        let mut successor = start(other).map_err(UpgradeError::Start)?;
        let channel = Channel::new(channel, deadline);
        tracing::info!(process = successor.id(), "starting another process");
        match self.talk(channel, &successor, sockets, deadline) {
            Ok(channel) => {
                successor.release();
                Ok(channel)
            }
            Err(error) if error.is_end() => {
                // It has closed its end, and may need a while to end itself.
                let until = deadline.max(Instant::now() + EXIT_TIMEOUT);
                Err(successor.ended(until).map_or(error, UpgradeError::Ended))
            }
            Err(error) => Err(error),
        }
    }

    /// Waits until every loop has come to the end of a turn; returns their listening sockets.
    fn gather(&self, deadline: Instant) -> Result<Vec<InheritedListener>, UpgradeError> {
        let (fleet, barrier) = (&self.fleet, &self.handoff.barrier);
        let (loops, wake) = (fleet.loops(), || fleet.wake_all());
        self.came(barrier.gather(loops, deadline, wake, || self.serves()))
    }

    /// Pauses all loops. One whose turn is long is waited for before the others stand still.
    fn pause(&self, deadline: Instant) -> Result<Round<'_>, UpgradeError> {
        self.gather(deadline)?;
        let deadline = deadline.min(Instant::now() + self.stall_timeout());
        let (fleet, barrier) = (&self.fleet, &self.handoff.barrier);
        let (loops, wake) = (fleet.loops(), || fleet.wake_all());
        self.came(barrier.pause(loops, deadline, wake, || self.serves()))
    }

    fn serves(&self) -> bool {
        self.fleet.lifecycle() == Lifecycle::Serve
    }

    fn came<T>(&self, round: Option<T>) -> Result<T, UpgradeError> {
        match round {
            _ if !self.serves() => Err(UpgradeError::Ending),
            Some(round) => Ok(round),
            None => Err(UpgradeError::Busy),
        }
    }

    /// Longest pause without progress, in which the watchdog is not notified by the loops.
    fn stall_timeout(&self) -> Duration {
        let watchdog = self.notifier.as_ref();
        let watchdog = watchdog.and_then(|notifier| notifier.watchdog_interval());
        watchdog.map_or(STALL_TIMEOUT, |interval| interval.min(STALL_TIMEOUT))
    }

    fn place(&self) -> Place<'_> {
        Place {
            service: self.service.as_deref(),
            acceptor: self.certificates.acceptor(),
            fleet: &self.fleet,
            handoff: &self.handoff,
        }
    }

    fn talk(
        &self,
        channel: Channel,
        successor: &Successor,
        sockets: Vec<InheritedListener>,
        deadline: Instant,
    ) -> Result<Channel, UpgradeError> {
        let place = self.place();
        let mut side = OverChannel {
            upgrader: self,
            channel,
            successor: successor.id(),
            deadline,
            paused: None,
        };
        let mut talk = PredecessorTalk::new(place.service.is_some(), sockets);
        // The channel waits for each frame.
        talk.go_on(place, &mut side).unwrap_or(Ok(()))?;
        Ok(side.channel)
    }
}

/// The predecessor's side of the talk with another process.
struct OverChannel<'u> {
    upgrader: &'u Upgrader,
    channel: Channel,
    /// Its process id.
    successor: u32,
    deadline: Instant,
    paused: Option<Paused<'u>>,
}

/// A pause of the loops, until this is dropped.
struct Paused<'u> {
    _round: Round<'u>,
    began: Instant,
    watchdog: Watchdog<'u>,
}

impl PredecessorSide for OverChannel<'_> {
    fn send(&mut self, frame: Frame) -> io::Result<()> {
        self.channel.send_frame(&frame)
    }

    fn receive(&mut self) -> Option<io::Result<Frame>> {
        Some(self.channel.receive())
    }

    fn receive_last(&mut self) -> Option<Frame> {
        self.channel.receive_last()
    }

    fn write_items(&mut self, service: &StoreService) -> io::Result<()> {
        let watchdog = self.paused.as_mut().map(|paused| &mut paused.watchdog);
        let channel = &mut self.channel;
        write_items(service, WatchdogWriter { channel, watchdog })
    }

    fn pause(&mut self) -> Result<(), UpgradeError> {
        let upgrader = self.upgrader;
        self.paused = Some(Paused {
            _round: upgrader.pause(self.deadline)?,
            began: Instant::now(),
            watchdog: Watchdog::new(upgrader.notifier.as_deref()),
        });
        let stall_timeout = upgrader.stall_timeout();
        self.channel.set_stall_timeout(Some(stall_timeout));
        Ok(())
    }

    fn resume(&mut self) {
        self.paused = None;
    }

    fn name_main(&mut self, main: MainProcess) {
        if let Some(notifier) = &self.upgrader.notifier {
            notifier.main_process(match main {
                MainProcess::This => process::id(),
                MainProcess::Successor => self.successor,
            });
        }
    }

    fn hands_over(&mut self) {
        // The rest of the hand-over has a deadline of its own.
        let settings = self.upgrader.settings.newest();
        let deadline = Instant::now() + settings.config.limits.drain_timeout + TAKE_TIMEOUT;
        self.channel.set_deadline(Some(deadline));
        self.channel.set_stall_timeout(Some(SEND_STALL_TIMEOUT));
        let pause = self.paused.as_ref().map(|paused| paused.began.elapsed());
        let (process, pause) = (self.successor, pause.unwrap_or_default());
        tracing::info!(process, ?pause, "another process serves from now on");
    }
}

/// Starts the program with the arguments of this process and a socket as standard input.
fn start(socket: UnixStream) -> io::Result<Successor> {
    let mut words = env::args_os();
    let program = words.next().unwrap_or_default();
    let mut command = Command::new(&program);
    command
        .arg0(&program)
        .args(words)
        .env(environment::UPGRADE, process::id().to_string())
        // These variables are for this process only.
        .env_remove("WATCHDOG_PID")
        .env_remove("LISTEN_FDNAMES")
        .stdin(Stdio::from(OwnedFd::from(socket)));
    command.spawn().map(|child| Successor(Some(child)))
}

/// Notifies the watchdog while the loops are paused.
struct Watchdog<'n> {
    notifier: Option<&'n Notifier>,
    interval: Duration,
    last: Instant,
}

impl<'n> Watchdog<'n> {
    fn new(notifier: Option<&'n Notifier>) -> Self {
        let interval = notifier.and_then(Notifier::watchdog_interval);
        let watchdog = Self {
            notifier: notifier.filter(|_| interval.is_some()),
            interval: interval.unwrap_or_default() / 4,
            last: Instant::now(),
        };
        watchdog.notify();
        watchdog
    }

    fn notify(&self) {
        if let Some(notifier) = self.notifier {
            notifier.alive();
        }
    }

    fn notify_if_due(&mut self) {
        if self.notifier.is_some() && self.last.elapsed() >= self.interval {
            self.last = Instant::now();
            self.notify();
        }
    }
}

/// A writer that notifies the watchdog at every piece.
struct WatchdogWriter<'c, 'n> {
    channel: &'c mut Channel,
    watchdog: Option<&'c mut Watchdog<'n>>,
}

impl io::Write for WatchdogWriter<'_, '_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(watchdog) = &mut self.watchdog {
            watchdog.notify_if_due();
        }
        self.channel.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.channel.flush()
    }
}

/// Writes the items of the store, for the successor.
pub(super) fn write_items(service: &StoreService, writer: impl io::Write) -> io::Result<()> {
    let now = Moment::now();
    let flush_at = service.pending_flush(now.steady);
    snapshot::write(service.store(), flush_at, now, writer).map(drop)
}

#[cfg(test)]
mod tests;
