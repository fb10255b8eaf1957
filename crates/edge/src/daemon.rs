//! Going to the background, and the file that tells the process id.

use crate::config::Config;
use crate::upgrade;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, fs, io, process, thread};

/// Tells a process that it is the one in the background.
const MARK: &str = "DWELL_DAEMON";
/// Between two looks whether the process in the background listens.
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

/// Whether this process was started by [`start`].
pub fn is_daemon() -> bool {
    env::var_os(MARK).is_some()
}

/// Starts this program once more, with the same arguments, in a process group of its own and with
/// its output closed; returns when it listens.
///
/// # Errors
/// When it cannot be started, or ends before it listens: the same command without `-d` says why.
pub fn start(config: &Config) -> io::Result<()> {
    let mut child = Command::new(env::current_exe()?)
        .args(env::args_os().skip(1))
        // Its own name decides which program a link stands for.
        .arg0(env::args_os().next().unwrap_or_default())
        .env(MARK, "1")
        .env_remove(upgrade::MARK)
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
        thread::sleep(LOOK_INTERVAL);
    }
    Ok(())
}

/// Whether somebody answers where the store should listen; where nobody can know, yes.
fn listens(config: &Config) -> bool {
    let store = &config.store;
    match (store.listen, &store.unix_socket) {
        (Some(address), _) if address.port() != 0 => TcpStream::connect(address).is_ok(),
        (_, Some(path)) => UnixStream::connect(path).is_ok(),
        _ => true,
    }
}

/// A file with the process id, removed when it is dropped.
#[derive(Debug)]
pub struct PidFile(Option<PathBuf>);

impl PidFile {
    /// Writes the file.
    ///
    /// # Errors
    /// When the system refuses it; the message names it.
    pub fn write(path: PathBuf) -> io::Result<Self> {
        fs::write(&path, format!("{}\n", process::id())).map_err(|error| {
            io::Error::new(
                error.kind(),
                format!("cannot write {}: {error}", path.display()),
            )
        })?;
        Ok(Self(Some(path)))
    }

    /// Leaves the file to another process, which writes its own id there.
    pub fn leave(mut self) {
        self.0 = None;
    }
}

impl Drop for PidFile {
    fn drop(&mut self) {
        if let Some(path) = &self.0 {
            // Whoever reads it has to cope with a stale one anyway.
            let _ = fs::remove_file(path);
        }
    }
}
