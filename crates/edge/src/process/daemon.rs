//! The background process, and the file with the process id.

use super::environment;
use crate::config::Config;
use nix::fcntl::OFlag;
use std::fs::OpenOptions;
use std::io::Write;
use std::net::TcpStream;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, io, process, thread};

/// Interval of checks if the process in the background listens.
const CHECK_INTERVAL: Duration = Duration::from_millis(20);

/// Returns true if this process was started by [`start`].
pub fn is_daemon() -> bool {
    env::var_os(environment::DAEMON).is_some()
}

/// Starts this program again with the same arguments, in a process group of its own and with its
/// output closed. Returns when it listens.
///
/// # Errors
/// The process cannot be started, or ends before it listens. Without `-d` the same command prints
/// the reason.
pub fn start(config: &Config) -> io::Result<()> {
    let mut child = Command::new(env::current_exe()?)
        .args(env::args_os().skip(1))
        // The name by which it was started decides what a link does.
        .arg0(env::args_os().next().unwrap_or_default())
        .env(environment::DAEMON, "1")
        .env_remove(environment::UPGRADE)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .process_group(0)
        .spawn()?;
    while !listens(config) {
        if let Some(status) = child.try_wait()? {
            let message = format!("the daemon has ended ({status}); without -d it says why");
            return Err(io::Error::other(message));
        }
        thread::sleep(CHECK_INTERVAL);
    }
    Ok(())
}

/// Returns true if the store accepts a connection, or if its configuration names no address to try.
fn listens(config: &Config) -> bool {
    let store = &config.store;
    match (store.listen, &store.unix_socket) {
        (Some(address), _) if address.port() != 0 => TcpStream::connect(address).is_ok(),
        (_, Some(path)) => UnixStream::connect(path).is_ok(),
        _ => true,
    }
}

/// A file with the process id while the process serves. It is removed when this is dropped, if the
/// system allows that.
#[derive(Debug)]
pub(crate) struct PidFile {
    path: PathBuf,
    is_written: bool,
}

impl PidFile {
    /// Makes a file that is not written yet.
    pub(crate) fn new(path: PathBuf) -> Self {
        Self {
            path,
            is_written: false,
        }
    }

    /// Writes the file, unless this process has. A link in its place is not followed.
    ///
    /// # Errors
    /// The error of the system, with the path.
    pub(crate) fn write(&mut self) -> io::Result<()> {
        if !self.is_written {
            self.try_write().map_err(|error| {
                let message = format!("cannot write {}: {error}", self.path.display());
                io::Error::new(error.kind(), message)
            })?;
            self.is_written = true;
        }
        Ok(())
    }

    fn try_write(&self) -> io::Result<()> {
        // Root may write it in a folder where others can create files.
        let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
        let mut file = OpenOptions::new()
            .write(true)
            .create(true)
            .truncate(true)
            .custom_flags(flags.bits())
            .open(&self.path)?;
        writeln!(file, "{}", process::id())
    }

    /// Leaves the file to another process, which writes its own id.
    pub(crate) fn leave(mut self) {
        self.is_written = false;
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if self.is_written {
            // Readers have to handle a stale file anyway.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

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
}
