//! `dwell reload`, `dwell stop` and `dwell upgrade`: signals to a process that serves.
//!
//! The process is found by its pid file, and only as long as it holds the lock on that file. The
//! signal goes through a descriptor of the process, so that a process that gets the id later is
//! never reached.

use crate::environment;
use crate::output::{STATUS_WRONG_CONFIGURATION, say, wrong};
use clap::Args;
use dwell_edge::config::load;
use dwell_edge::process::{ReloadResult, SignalReport, pid_file_holder};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use std::{fmt, io, thread};

/// Flags that find a process.
#[derive(Clone, Debug, Args)]
pub(crate) struct ProcessArguments {
    /// The file with the process id [default: `server.pid_file` of the configuration]
    #[arg(long, value_name = "FILE")]
    pub(crate) pid_file: Option<PathBuf>,
    /// The configuration file of the process [default: `DWELL_CONFIG`, or none]
    #[arg(long, short, value_name = "FILE")]
    pub(crate) config: Option<PathBuf>,
}

/// Flags of a command that waits for its result.
#[derive(Clone, Debug, Args)]
pub(crate) struct WaitArguments {
    /// The flags that find the process.
    #[command(flatten)]
    pub(crate) process: ProcessArguments,
    /// Seconds to wait for the result; 0 does not wait
    #[arg(long, value_name = "SECONDS", default_value_t = 60,
          value_parser = clap::value_parser!(u64).range(0..=86400))]
    pub(crate) timeout: u64,
}

/// Has the process read its configuration again.
pub(crate) fn reload(arguments: &WaitArguments) -> ExitCode {
    let timeout = Duration::from_secs(arguments.timeout);
    act("reload", &arguments.process, |process| {
        let id = process.id;
        if timeout.is_zero() {
            process.send(Signal::HUP)?;
            return Ok(format!(
                "process {id} reads its configuration again; its log has the result"
            ));
        }
        // A reload that begins later than this reads what is in the file now.
        let begun = process.report().map_or(0, |report| report.begun);
        process.send(Signal::HUP)?;
        match process.reload_after(begun, timeout)? {
            ReloadResult::Applied {
                generation,
                needs_restart,
            } => {
                for option in needs_restart {
                    let text = format!("{option} needs a restart: the value before stays");
                    say(&mut io::stderr(), &format!("dwell: warning: {text}\n"));
                }
                Ok(format!(
                    "process {id} has applied its configuration as generation {generation}"
                ))
            }
            ReloadResult::NoFile => Ok(format!(
                "process {id} serves without a configuration file: it has looked names up \
                 again; its log has the results of its other files"
            )),
            ReloadResult::Invalid { error } => Err(ControlError::Invalid(id, error)),
            ReloadResult::Failed { error } => Err(ControlError::Refused(id, error)),
        }
    })
}

/// Ends the process after a drain.
pub(crate) fn stop(arguments: &WaitArguments) -> ExitCode {
    let timeout = Duration::from_secs(arguments.timeout);
    act(STOP, &arguments.process, |process| {
        process.send(Signal::TERM)?;
        let id = process.id;
        if timeout.is_zero() {
            return Ok(format!("process {id} drains"));
        }
        if process.ends_within(timeout)? {
            return Ok(format!("process {id} has ended"));
        }
        let seconds = timeout.as_secs();
        Err(ControlError::Late(format!(
            "process {id} still drains after {seconds} s"
        )))
    })
}

/// Has the process replaced by the program that is installed.
pub(crate) fn upgrade(arguments: &WaitArguments) -> ExitCode {
    let timeout = Duration::from_secs(arguments.timeout);
    act("upgrade", &arguments.process, |process| {
        let id = process.id;
        if timeout.is_zero() {
            process.send(Signal::USR2)?;
            return Ok(format!(
                "process {id} starts its successor; its log has the result"
            ));
        }
        let failed = (process.report()).map_or(0, |report| report.upgrades_failed);
        process.send(Signal::USR2)?;
        let mut until = Instant::now() + timeout;
        let mut has_ended = false;
        loop {
            if let Some(successor) = process.holder()?.filter(|holder| *holder != id) {
                return Ok(format!("process {successor} serves in the place of {id}"));
            }
            let failure = (process.report()).filter(|report| report.upgrades_failed > failed);
            if let Some(error) = failure.and_then(|report| report.upgrade_error) {
                return Err(ControlError::NoUpgrade(id, error));
            }
            if Instant::now() >= until {
                break;
            }
            if has_ended {
                thread::sleep(CHECK_INTERVAL);
            } else if process.ends_within(CHECK_INTERVAL)? {
                has_ended = true;
                // The successor writes the file a moment after the last message of this one.
                until = until.min(Instant::now() + WRITE_TIMEOUT);
            }
        }
        Err(ControlError::Late(if has_ended {
            let file = process.file.display();
            format!("process {id} has ended, and no other has written {file}: see the log")
        } else {
            let seconds = timeout.as_secs();
            format!("process {id} still serves after {seconds} s: its log has the reason")
        }))
    })
}

/// Finds the process, and prints the result of `action` on it.
fn act(
    command: &str,
    arguments: &ProcessArguments,
    action: impl FnOnce(&Process) -> Result<String, ControlError>,
) -> ExitCode {
    let config = environment::config_file(arguments.config.clone());
    // A process can be stopped whatever its configuration has become.
    let is_enough = config.is_none() || command == STOP;
    let file = match &arguments.pid_file {
        Some(file) if is_enough => Some(file.clone()),
        named => match load(config.as_deref(), &environment::options().flags) {
            Ok(config) => named.clone().or(config.server.pid_file),
            Err(error) => return wrong(&error),
        },
    };
    let Some(file) = file else {
        let text = format!(
            "dwell {command}: no pid file: name it in --pid-file, or the configuration that has \
             server.pid_file in --config\n"
        );
        say(&mut io::stderr(), &text);
        return ExitCode::from(STATUS_WRONG_CONFIGURATION);
    };
    match Process::find(&file).and_then(|process| action(&process)) {
        Ok(text) => say(&mut io::stdout(), &format!("{text}\n")),
        Err(error) => {
            say(&mut io::stderr(), &format!("dwell {command}: {error}\n"));
            match error {
                ControlError::Invalid(..) => STATUS_WRONG_CONFIGURATION.into(),
                _ => ExitCode::FAILURE,
            }
        }
    }
}

/// A process that serves with a pid file.
struct Process {
    file: PathBuf,
    id: u32,
    /// A descriptor of the process itself, whatever becomes of its id.
    handle: OwnedFd,
}

impl Process {
    /// Finds the process that holds the lock on a pid file.
    fn find(file: &Path) -> Result<Self, ControlError> {
        let none = || ControlError::None(file.to_owned());
        let holder = || pid_file_holder(file).map_err(ControlError::File);
        let id = holder()?.ok_or_else(none)?;
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw);
        let handle = match pidfd_open(pid.ok_or_else(none)?, PidfdFlags::empty()) {
            Ok(handle) => handle,
            Err(Errno::SRCH) => return Err(none()),
            Err(error) => return Err(ControlError::System("open", id, error)),
        };
        // Only the process that was opened can have the lock now: it is alive, and has this id.
        if holder()? != Some(id) {
            return Err(none());
        }
        let file = file.to_owned();
        Ok(Self { file, id, handle })
    }

    fn send(&self, signal: Signal) -> Result<(), ControlError> {
        match pidfd_send_signal(&self.handle, signal) {
            Ok(()) => Ok(()),
            Err(Errno::SRCH) => Err(ControlError::None(self.file.clone())),
            Err(error) => Err(ControlError::System("signal", self.id, error)),
        }
    }

    /// The report of this process, if it has written one that can be read.
    fn report(&self) -> Option<SignalReport> {
        let report = SignalReport::read(&self.file).ok().flatten();
        report.filter(|report| report.process == self.id)
    }

    /// The process that holds the lock on the pid file.
    fn holder(&self) -> Result<Option<u32>, ControlError> {
        pid_file_holder(&self.file).map_err(ControlError::File)
    }

    /// Waits for the end of a reload that is not among the first `begun`; returns its result.
    fn reload_after(&self, begun: u64, timeout: Duration) -> Result<ReloadResult, ControlError> {
        let until = Instant::now() + timeout;
        let id = self.id;
        loop {
            let report = self.report();
            let is_absent = report.is_none();
            let ended = report.filter(|report| report.ended > begun);
            if let Some(result) = ended.and_then(|report| report.result) {
                return Ok(result);
            }
            let left = until.saturating_duration_since(Instant::now());
            let late = if self.ends_within(left.min(CHECK_INTERVAL))? {
                format!("process {id} has ended without a result")
            } else if let Some(other) = self.holder()?.filter(|holder| *holder != id) {
                format!("process {other} serves in the place of {id}")
            } else if !left.is_zero() {
                continue;
            } else if is_absent {
                format!("process {id} writes no results beside its pid file: its log has them")
            } else {
                let seconds = timeout.as_secs();
                format!("process {id} has no result after {seconds} s: its log will have it")
            };
            return Err(ControlError::Late(late));
        }
    }

    /// Waits for the end of the process; false if it is alive after `timeout`.
    fn ends_within(&self, timeout: Duration) -> Result<bool, ControlError> {
        let until = Instant::now() + timeout;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let left = Timespec::try_from(left).unwrap_or_default();
            let mut end = [PollFd::new(&self.handle, PollFlags::IN)];
            match poll(&mut end, Some(&left)) {
                Ok(ready) => return Ok(ready > 0),
                Err(Errno::INTR) => {}
                Err(error) => return Err(ControlError::System("wait for", self.id, error)),
            }
        }
    }
}

/// Reason why a command fails.
#[derive(Debug)]
enum ControlError {
    /// The pid file cannot be used.
    File(io::Error),
    /// No process has the lock on the pid file.
    None(PathBuf),
    /// The system refuses an action on the process.
    System(&'static str, u32, Errno),
    /// The process keeps its configuration, as that of the file has mistakes.
    Invalid(u32, String),
    /// The process keeps its configuration, as a resource of that of the file is not available.
    Refused(u32, String),
    /// The process still serves, as its upgrade has failed.
    NoUpgrade(u32, String),
    /// The process has not done in time what it was to do.
    Late(String),
}

impl fmt::Display for ControlError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(error) => error.fmt(f),
            Self::None(file) => write!(f, "no process serves with {}", file.display()),
            Self::System("open", id, Errno::NOSYS) => {
                write!(
                    f,
                    "cannot open process {id}: the kernel is older than Linux 5.3"
                )
            }
            Self::System(action, id, error) => write!(f, "cannot {action} process {id}: {error}"),
            Self::Invalid(id, error) | Self::Refused(id, error) => {
                write!(f, "process {id} keeps the configuration before:\n{error}")
            }
            Self::NoUpgrade(id, error) => write!(f, "process {id} still serves: {error}"),
            Self::Late(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for ControlError {}

const STOP: &str = "stop";

/// Interval of checks of the pid file and of the report beside it.
const CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Time for a successor to write the pid file, once its predecessor has ended.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);
