//! The file with the process id, and the way from it to the process.
//!
//! A process locks the byte of the file whose offset is its id, for as long as it serves. The
//! kernel removes the lock with the process. So a file that was left behind names no process, even
//! if another one has the id by now. A successor can write the file while its predecessor drains.

use super::signal_report::SignalReporter;
use nix::errno::Errno;
use nix::fcntl::{FcntlArg, OFlag, fcntl};
use nix::libc;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process;
use std::sync::Arc;

/// Returns the id of the process that serves with this file, if there is one.
///
/// Shape: the process is alive when this returns; its id may be that of another one at any time
/// later. A caller that sends a signal opens the process first and asks again.
///
/// # Errors
/// The error of the system, with the path, unless the file is absent. The process is in another
/// namespace, so that its id means nothing here.
pub fn holder(path: &Path) -> io::Result<Option<u32>> {
    let found = match find_holder(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        found => found,
    };
    found.map_err(|error| named("cannot use", path, &error))
}

fn find_holder(path: &Path) -> io::Result<Option<u32>> {
    let file = OpenOptions::new()
        .read(true)
        // The folder may be that of a user who has less rights than the caller.
        .custom_flags((OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits())
        .open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let Some(id) = read_id(&file)? else {
        return Ok(None);
    };
    let mut lock = lock_of(id, libc::F_RDLCK)?;
    fcntl(&file, FcntlArg::F_GETLK(&mut lock))?;
    if libc::c_int::from(lock.l_type) == libc::F_UNLCK {
        Ok(None)
    } else if u32::try_from(lock.l_pid) == Ok(id) {
        Ok(Some(id))
    } else {
        Err(io::Error::other(
            "its process is in another container, or another process has locked the file",
        ))
    }
}

/// The id in a file; `None` if there is no text of one.
fn read_id(mut file: &File) -> io::Result<Option<u32>> {
    file.rewind()?;
    let mut text = Vec::with_capacity(ID_BYTES_MAX);
    file.take(ID_BYTES_MAX as u64).read_to_end(&mut text)?;
    let text = String::from_utf8_lossy(&text);
    let id = text.trim().parse().ok();
    Ok(id.filter(|id| (1..=ID_MAX).contains(id)))
}

/// The description of a lock on the byte of process `id`.
fn lock_of(id: u32, kind: libc::c_int) -> io::Result<libc::flock> {
    let kind = libc::c_short::try_from(kind).map_err(io::Error::other)?;
    let whence = libc::c_short::try_from(libc::SEEK_SET).map_err(io::Error::other)?;
    Ok(libc::flock {
        l_type: kind,
        l_whence: whence,
        l_start: id.into(),
        l_len: 1,
        l_pid: 0,
    })
}

/// Locks the byte of this process, if the file is one that can be locked.
fn locked(file: File) -> io::Result<File> {
    if !file.metadata()?.is_file() {
        return Ok(file);
    }
    match fcntl(
        &file,
        FcntlArg::F_SETLK(&lock_of(process::id(), libc::F_WRLCK)?),
    ) {
        Ok(_) => {}
        Err(Errno::ENOLCK | Errno::ENOSYS | Errno::EOPNOTSUPP | Errno::EINVAL) => tracing::warn!(
            "the file system of the pid file has no locks: dwell reload, stop and upgrade find no \
             process"
        ),
        Err(error) => return Err(error.into()),
    }
    Ok(file)
}

/// Returns true if a file belongs to somebody else, or is locked by somebody else.
fn is_of_others(error: &io::Error) -> bool {
    use io::ErrorKind::{PermissionDenied, WouldBlock};
    matches!(error.kind(), PermissionDenied | WouldBlock)
}

/// The error with the action that failed, and the path.
pub(super) fn named(what: &str, path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{what} {}: {error}", path.display()))
}

/// A file with the process id while the process serves. It is removed when this is dropped, if the
/// system allows that and the file still has this id.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    /// Open once it is written: the lock ends when any descriptor of the file is closed.
    written: Option<File>,
    /// Writes the results of reloads beside the file, while the process serves.
    reporter: Arc<SignalReporter>,
}

impl PidFile {
    /// Makes a file that is not written yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            reporter: Arc::new(SignalReporter::new(&path)),
            path,
            written: None,
        }
    }

    /// The reporter of the results of reloads.
    pub(crate) fn reporter(&self) -> Arc<SignalReporter> {
        Arc::clone(&self.reporter)
    }

    /// Writes the file, unless this process has, and the report of reloads beside it: it is that
    /// of the user of the process, so root's rights have been dropped by now.
    ///
    /// # Errors
    /// The error of the system, with the path.
    pub(crate) fn serve(&mut self) -> io::Result<()> {
        self.write()?;
        let is_regular = |file: &File| file.metadata().is_ok_and(|found| found.is_file());
        if self.written.as_ref().is_some_and(is_regular) {
            self.reporter.start();
        }
        Ok(())
    }

    /// Writes the file, unless this process has. A link in its place is not followed.
    ///
    /// # Errors
    /// The error of the system, with the path.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        if self.written.is_none() {
            let written = self.try_write();
            self.written =
                Some(written.map_err(|error| named("cannot write", &self.path, &error))?);
            // Until this process serves, there is no report: that of a former one may have its id.
            self.reporter.clear();
        }
        Ok(())
    }

    /// Logs that another process serves with this file: the commands will not find it any more.
    pub(crate) fn warn_of_other(&self) {
        if let Ok(Some(other)) = holder(&self.path)
            && other != process::id()
        {
            let path = self.path.display();
            tracing::warn!(%path, process = other, "another process serves with this pid file");
        }
    }

    fn try_write(&self) -> io::Result<File> {
        let opened = self.open(false).and_then(locked);
        let mut file = match opened {
            // A predecessor has written it as root, in a folder of the user that both became; or
            // another program, or a process of another container, has locked the byte of this id.
            Err(error) if is_of_others(&error) => {
                // The first error is that of the file; a folder of root refuses this, too.
                fs::remove_file(&self.path).map_err(|_| error)?;
                self.open(true).and_then(locked)?
            }
            file => file?,
        };
        if file.metadata()?.is_file() {
            file.set_len(0)?;
        }
        writeln!(file, "{}", process::id())?;
        Ok(file)
    }

    fn open(&self, is_new: bool) -> io::Result<File> {
        // Root may write it in a folder where others can create files.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .create_new(is_new)
            // It is emptied once it is locked.
            .truncate(false)
            .custom_flags(flags.bits())
            .open(&self.path)
    }

    /// Leaves the file to another process, which writes its own id.
    pub(crate) fn leave(mut self) {
        self.written = None;
        self.reporter.leave();
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        let Some(file) = &self.written else {
            return;
        };
        self.reporter.remove();
        let is_named = |found: fs::Metadata| {
            let own = file.metadata();
            own.is_ok_and(|own| (own.dev(), own.ino()) == (found.dev(), found.ino()))
        };
        let is_there = fs::symlink_metadata(&self.path).is_ok_and(is_named);
        // Another process may have begun to serve with it.
        let is_own = matches!(read_id(file), Ok(Some(id)) if id == process::id());
        if is_there && is_own {
            // A file that stays behind has no lock, and names no process.
            let _ = fs::remove_file(&self.path);
        }
    }
}

/// Process ids of Linux are smaller.
const ID_MAX: u32 = 1 << 22;

/// Bytes of a file that are read: the digits of an id and some white space.
const ID_BYTES_MAX: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;
    use std::env;
    use std::io::{BufRead, BufReader};
    use std::os::unix::fs::symlink;
    use std::process::Command;

    #[test]
    fn a_pid_file_is_there_from_when_it_is_written_until_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let mut file = PidFile::new(path.clone());
        assert!(!path.exists());
        file.write().unwrap();
        let expected = format!("{}\n", process::id());
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        fs::remove_file(&path).unwrap();
        file.write().unwrap();
        assert!(!path.exists(), "it is written once");
        drop(file);
        fs::write(&path, "of another process").unwrap();
        drop(PidFile::new(path.clone()));
        assert!(path.exists(), "it was not written");
        let mut file = PidFile::new(path.clone());
        file.write().unwrap();
        file.leave();
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        let mut file = PidFile::new(path.clone());
        file.write().unwrap();
        drop(file);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_another_process_has_written_since_stays() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let mut file = PidFile::new(path.clone());
        file.write().unwrap();
        fs::write(&path, "1\n").unwrap();
        drop(file);
        assert_eq!(fs::read_to_string(&path).unwrap(), "1\n");
        let mut file = PidFile::new(path.clone());
        file.write().unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, format!("{}\n", process::id())).unwrap();
        drop(file);
        assert!(path.exists(), "it is another file");
    }

    #[test]
    fn nothing_is_written_to_where_a_link_leads() {
        let folder = tempfile::tempdir().unwrap();
        let (path, victim) = (folder.path().join("pid"), folder.path().join("victim"));
        fs::write(&victim, "precious").unwrap();
        symlink(&victim, &path).unwrap();
        let error = PidFile::new(path).write().unwrap_err().to_string();
        assert!(error.contains("pid: "), "{error}");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
    }

    #[test]
    fn a_file_names_no_process_without_its_lock() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        assert_eq!(holder(&path).unwrap(), None, "there is no file");
        // The id of a process that runs, and has not written the file.
        let parent = std::os::unix::process::parent_id();
        for text in [
            &parent.to_string(),
            "",
            "0",
            "-1",
            "x",
            "99999999999999999999",
        ] {
            fs::write(&path, text).unwrap();
            assert_eq!(holder(&path).unwrap(), None, "{text}");
        }
        let error = holder(folder.path()).unwrap_err().to_string();
        assert!(error.contains("not a regular file"), "{error}");
    }

    /// A process of the test below: it locks the byte of its parent in a file until its input ends.
    #[test]
    #[ignore = "it is started by another test"]
    fn locks_the_byte_of_its_parent() {
        let Some(path) = env::var_os(FILE) else {
            return;
        };
        let file = File::open(path).unwrap();
        let lock = lock_of(std::os::unix::process::parent_id(), libc::F_RDLCK).unwrap();
        fcntl(&file, FcntlArg::F_SETLK(&lock)).unwrap();
        println!("{READY}");
        io::stdin().read_to_end(&mut Vec::new()).unwrap();
    }

    #[test]
    fn a_file_that_somebody_else_has_locked_is_replaced() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        fs::write(&path, "1\n").unwrap();
        let name = "process::pid_file::tests::locks_the_byte_of_its_parent";
        let mut child = child_with(&path, name);
        let mut file = PidFile::new(path.clone());
        file.write().unwrap();
        let expected = format!("{}\n", process::id());
        assert_eq!(fs::read_to_string(&path).unwrap(), expected);
        drop(child.stdin.take());
        child.wait().unwrap();
    }

    /// Starts a test that is a process of another one, and waits until it is ready.
    fn child_with(path: &Path, name: &str) -> process::Child {
        let mut child = Command::new(env::current_exe().unwrap())
            .args(["--ignored", "--exact", name, "--nocapture"])
            .env(FILE, path)
            .stdin(process::Stdio::piped())
            .stdout(process::Stdio::piped())
            .spawn()
            .unwrap();
        // Its end stays open: the harness of the child goes on to write.
        let mut lines = BufReader::new(child.stdout.as_mut().unwrap()).lines();
        lines.find(|line| line.as_ref().is_ok_and(|line| line.contains(READY)));
        child
    }

    /// A process of the test below: it serves with a file until its input ends.
    #[test]
    #[ignore = "it is started by another test"]
    fn serves_with_a_file() {
        let Some(path) = env::var_os(FILE) else {
            return;
        };
        let mut file = PidFile::new(path.into());
        file.write().unwrap();
        println!("{READY}");
        io::stdin().read_to_end(&mut Vec::new()).unwrap();
        // As if the process were killed.
        process::exit(0);
    }

    #[test]
    fn another_process_finds_the_holder_until_its_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("pid");
        let name = "process::pid_file::tests::serves_with_a_file";
        let mut child = child_with(&path, name);
        let text = fs::read_to_string(&path).unwrap();
        assert_eq!(text, format!("{}\n", child.id()));
        assert_eq!(holder(&path).unwrap(), Some(child.id()));
        // The id of another process, which has no lock.
        fs::write(&path, process::id().to_string()).unwrap();
        assert_eq!(holder(&path).unwrap(), None);
        fs::write(&path, &text).unwrap();
        assert_eq!(holder(&path).unwrap(), Some(child.id()));
        drop(child.stdin.take());
        child.wait().unwrap();
        assert_eq!(
            fs::read_to_string(&path).unwrap(),
            text,
            "it is left behind"
        );
        assert_eq!(holder(&path).unwrap(), None);
    }

    const FILE: &str = "DWELL_TEST_PID_FILE";
    const READY: &str = "the file is written";
}
