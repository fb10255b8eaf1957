//! The background process.

use super::environment;
use crate::config::Config;
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::Duration;
use std::{env, io, thread};

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
