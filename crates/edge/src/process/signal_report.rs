//! The file with the results of reloads and failed upgrades, beside the pid file.
//!
//! The file has its own name, as scripts take the whole pid file for an id. It is renamed into
//! place, so that a reader always finds the whole content.

use super::pid_file::named;
use crate::handoff::Handoff;
use nix::fcntl::OFlag;
use serde::{Deserialize, Serialize};
use std::ffi::OsStr;
use std::fmt::Display;
use std::fs::{self, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The reloads and failed upgrades of a process since its start.
///
/// A reload that has the number after `begun` reads its configuration later than the report was
/// read: its result is that of a signal that is sent in between.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct SignalReport {
    /// Id of the process that has written the report.
    pub process: u32,
    /// Number of reloads that have begun.
    pub begun: u64,
    /// Number of reloads that have ended. Each begins after the one before it has ended.
    pub ended: u64,
    /// Result of the last one that has ended; absent from the beginning of the next one.
    pub result: Option<ReloadResult>,
    /// Number of upgrades that have begun.
    pub upgrades_begun: u64,
    /// Number of upgrades that have failed. The result of one that succeeds is another process.
    pub upgrades_failed: u64,
    /// Error of the last one of them; absent from the beginning of the next one.
    pub upgrade_error: Option<String>,
}

/// Result of a reload.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum ReloadResult {
    /// The configuration was applied.
    Applied {
        /// Its generation.
        generation: u64,
        /// Options whose new values need a restart.
        needs_restart: Vec<String>,
    },
    /// There is no file to read: the names of servers were looked up.
    NoFile,
    /// The configuration has mistakes.
    Invalid {
        /// The mistakes.
        error: String,
    },
    /// A resource of the configuration is not available.
    Failed {
        /// The reason.
        error: String,
    },
}

impl SignalReport {
    /// Reads the report beside a pid file, if there is one.
    ///
    /// # Errors
    /// The error of the system, with the path; the file has other content.
    pub fn read(pid_file: &Path) -> io::Result<Option<Self>> {
        let path = path_of(pid_file);
        match read(&path) {
            Ok(report) => Ok(Some(report)),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
            Err(error) => Err(named("cannot use", &path, &error)),
        }
    }
}

fn read(path: &Path) -> io::Result<SignalReport> {
    let file = OpenOptions::new()
        .read(true)
        // As the pid file, it may be in a folder of a user who has less rights than the caller.
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut text = Vec::new();
    file.take(REPORT_BYTES_MAX).read_to_end(&mut text)?;
    Ok(serde_json::from_slice(&text)?)
}

/// Writes the report of this process.
#[derive(Debug)]
pub(crate) struct SignalReporter {
    path: PathBuf,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    report: SignalReport,
    /// The file is that of this process.
    is_own: bool,
}

impl SignalReporter {
    /// Makes the reporter of a process with a pid file; it writes nothing before it is started.
    pub(crate) fn new(pid_file: &Path) -> Self {
        let report = SignalReport {
            process: process::id(),
            ..SignalReport::default()
        };
        let state = State {
            report,
            is_own: false,
        };
        Self {
            path: path_of(pid_file),
            state: Mutex::new(state),
        }
    }

    /// Writes the first report, in place of one that was left behind.
    pub(crate) fn start(&self) {
        let mut state = self.lock();
        state.is_own = true;
        self.write(&state.report);
    }

    /// Removes a report that was left behind.
    pub(crate) fn clear(&self) {
        // One that stays has the id of another process, or is written over.
        let _ = fs::remove_file(&self.path);
    }

    /// Notes that a reload begins.
    pub(crate) fn begin(&self) {
        self.change(|report| {
            report.begun += 1;
            report.result = None;
        });
    }

    /// Notes the result of the reload that has begun last.
    pub(crate) fn end(&self, result: ReloadResult) {
        self.change(|report| {
            report.ended = report.begun;
            report.result = Some(result);
        });
    }

    /// Notes that an upgrade begins.
    pub(crate) fn begin_upgrade(&self) {
        self.change(|report| {
            report.upgrades_begun += 1;
            report.upgrade_error = None;
        });
    }

    /// Notes that the upgrade that has begun last has failed.
    pub(crate) fn upgrade_failed(&self, error: &impl Display) {
        self.change(|report| {
            report.upgrades_failed = report.upgrades_begun;
            report.upgrade_error = Some(error_text(error));
        });
    }

    /// Removes the file, unless another process has written it since.
    pub(crate) fn remove(&self) {
        let mut state = self.lock();
        state.is_own = false;
        if !self.is_of_other(&state.report) {
            // A file that stays behind has the id of a process that has ended.
            let _ = fs::remove_file(&self.path);
        }
    }

    fn is_of_other(&self, own: &SignalReport) -> bool {
        read(&self.path).is_ok_and(|found| found.process != own.process)
    }

    /// Leaves the file to another process.
    pub(crate) fn leave(&self) {
        self.lock().is_own = false;
    }

    fn change(&self, change: impl FnOnce(&mut SignalReport)) {
        let mut state = self.lock();
        change(&mut state.report);
        // Another process may serve with the same pid file since.
        state.is_own &= !self.is_of_other(&state.report);
        if state.is_own {
            self.write(&state.report);
        }
    }

    fn write(&self, report: &SignalReport) {
        if let Err(error) = write(&self.path, report) {
            let error = named("cannot write", &self.path, &error);
            tracing::warn!("dwell reload and dwell upgrade get no result: {error}");
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // A panicking thread leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Reports, unless the report is that of a successor, which serves once the hand-over begins.
pub(super) fn report_if_serving(
    reporter: Option<&SignalReporter>,
    handoff: &Handoff,
    report: impl FnOnce(&SignalReporter),
) {
    if let Some(reporter) = reporter
        && handoff.sender().is_none()
    {
        report(reporter);
    }
}

fn write(path: &Path, report: &SignalReport) -> io::Result<()> {
    let text = serde_json::to_vec(report)?;
    let draft = with_ending(path, ".new");
    match fs::remove_file(&draft) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    // Those who may send the signal may read the result: the user of the process, and root.
    let mut file = OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(&draft)?;
    file.write_all(&text)?;
    fs::rename(&draft, path)
}

/// The report of the process with this pid file.
fn path_of(pid_file: &Path) -> PathBuf {
    with_ending(pid_file, ".results")
}

fn with_ending(path: &Path, ending: impl AsRef<OsStr>) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(ending);
    path.into()
}

/// The text of an error in a report.
pub(super) fn error_text(error: &impl Display) -> String {
    let text = error.to_string();
    text.chars().take(ERROR_CHARACTERS_MAX).collect()
}

/// Characters of an error that are written.
const ERROR_CHARACTERS_MAX: usize = 8000;

/// Bytes of a report that are read: each character of its two errors may be escaped in six.
const REPORT_BYTES_MAX: u64 = 128 << 10;

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt, symlink};

    #[test]
    fn a_report_says_which_reload_has_ended() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        assert_eq!(SignalReport::read(&pid_file).unwrap(), None);
        let reporter = SignalReporter::new(&pid_file);
        reporter.start();
        let numbers = || {
            let report = SignalReport::read(&pid_file).unwrap().unwrap();
            assert_eq!(report.process, process::id());
            (report.begun, report.ended, report.result)
        };
        assert_eq!(numbers(), (0, 0, None));
        reporter.begin();
        assert_eq!(numbers(), (1, 0, None));
        let error = error_text(&"\u{1}".repeat(2 * ERROR_CHARACTERS_MAX));
        let invalid = ReloadResult::Invalid { error };
        reporter.end(invalid.clone());
        assert_eq!(numbers(), (1, 1, Some(invalid)));
        reporter.begin();
        assert_eq!(numbers(), (2, 1, None), "it has none yet");
        reporter.end(ReloadResult::NoFile);
        assert_eq!(numbers(), (2, 2, Some(ReloadResult::NoFile)));
        let upgrades = || {
            let report = SignalReport::read(&pid_file).unwrap().unwrap();
            assert_eq!(report.ended, 2);
            (
                report.upgrades_begun,
                report.upgrades_failed,
                report.upgrade_error,
            )
        };
        reporter.begin_upgrade();
        reporter.upgrade_failed(&"no program");
        assert_eq!(upgrades(), (1, 1, Some("no program".to_owned())));
        reporter.begin_upgrade();
        assert_eq!(upgrades(), (2, 1, None));
        let mode = path_of(&pid_file).metadata().unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        reporter.remove();
        assert_eq!(SignalReport::read(&pid_file).unwrap(), None);
        reporter.begin();
        assert_eq!(SignalReport::read(&pid_file).unwrap(), None, "it has ended");
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }

    #[test]
    fn the_report_of_another_process_stays() {
        let folder = tempfile::tempdir().unwrap();
        let pid_file = folder.path().join("pid");
        let other = SignalReport {
            process: process::id() + 1,
            ..SignalReport::default()
        };
        write(&path_of(&pid_file), &other).unwrap();
        let reporter = SignalReporter::new(&pid_file);
        reporter.begin();
        let found = || SignalReport::read(&pid_file).unwrap().unwrap();
        assert_eq!(found(), other, "it has not started");
        reporter.remove();
        assert_eq!(found(), other);
        reporter.start();
        assert_eq!(found().process, process::id());
        write(&path_of(&pid_file), &other).unwrap();
        reporter.end(ReloadResult::NoFile);
        assert_eq!(found(), other, "it serves with the same file since");
        reporter.start();
        reporter.leave();
        write(&path_of(&pid_file), &other).unwrap();
        reporter.end(ReloadResult::NoFile);
        assert_eq!(found(), other);
    }

    #[test]
    fn a_report_neither_follows_a_link_nor_is_read_through_one() {
        let folder = tempfile::tempdir().unwrap();
        let (pid_file, victim) = (folder.path().join("pid"), folder.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        let path = path_of(&pid_file);
        for link in [path.clone(), with_ending(&path, ".new")] {
            symlink(&victim, link).unwrap();
        }
        assert!(SignalReport::read(&pid_file).is_err());
        SignalReporter::new(&pid_file).start();
        assert!(SignalReport::read(&pid_file).unwrap().is_some());
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }
}
