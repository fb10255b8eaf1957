//! Notifications to a service manager, by systemd's protocol.
//!
//! The manager names a socket in `NOTIFY_SOCKET`, and a message is one datagram of lines. Without
//! the variable nothing is sent. A message that cannot be sent is lost: the process serves with or
//! without a manager.
//!
//! By hand, as `sd-notify` sends on a socket that blocks and finds no abstract names.
//!
//! Source: `sd_notify(3)`.

use rustix::time::{ClockId, clock_gettime};
use std::env;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process;
use std::time::Duration;

/// Connection to the service manager.
#[derive(Debug)]
pub(crate) struct Notifier {
    socket: UnixDatagram,
    address: Address,
    /// Timeout of the manager's watchdog.
    watchdog: Option<Duration>,
}

#[derive(Debug)]
enum Address {
    File(PathBuf),
    /// A name in the abstract namespace. Source: `unix(7)`.
    #[cfg(target_os = "linux")]
    Abstract(std::os::unix::net::SocketAddr),
}

impl Notifier {
    /// Opens the socket named by the environment; `None` without a manager.
    pub(crate) fn from_environment() -> Option<Self> {
        let address = Address::of(&env::var_os("NOTIFY_SOCKET")?)?;
        let socket = UnixDatagram::unbound().ok()?;
        // A manager that does not read must not block a loop.
        socket.set_nonblocking(true).ok()?;
        let variable = |name| env::var(name).ok();
        let (every, id) = (variable("WATCHDOG_USEC"), variable("WATCHDOG_PID"));
        let watchdog = watchdog(every.as_deref(), id.as_deref(), process::id());
        Some(Self {
            socket,
            address,
            watchdog,
        })
    }

    /// Interval for calls of [`alive`](Self::alive): half of the watchdog's timeout.
    pub(crate) fn watchdog_interval(&self) -> Option<Duration> {
        self.watchdog.map(|timeout| timeout / 2)
    }

    /// Reports that the process serves; `status` is text for operators.
    pub(crate) fn ready(&self, status: &str) {
        self.send(&format!("READY=1\nSTATUS={}", line(status)));
    }

    /// Reports a reload; [`ready`](Self::ready) follows.
    pub(crate) fn reloading(&self) {
        let now = clock_gettime(ClockId::Monotonic);
        // Both are positive: the clock counts from the start of the system.
        let micros = now.tv_sec * 1_000_000 + now.tv_nsec / 1000;
        self.send(&format!(
            "RELOADING=1\nMONOTONIC_USEC={micros}\nSTATUS=reloading"
        ));
    }

    /// Reports that the process is ending.
    pub(crate) fn stopping(&self) {
        self.send("STOPPING=1\nSTATUS=draining");
    }

    /// Reports the id of the process that serves.
    pub(crate) fn main_process(&self, id: u32) {
        self.send(&format!("MAINPID={id}"));
    }

    /// Notifies the watchdog.
    pub(crate) fn alive(&self) {
        self.send("WATCHDOG=1");
    }

    fn send(&self, message: &str) {
        let sent = match &self.address {
            Address::File(path) => self.socket.send_to(message.as_bytes(), path),
            #[cfg(target_os = "linux")]
            Address::Abstract(address) => self.socket.send_to_addr(message.as_bytes(), address),
        };
        if let Err(error) = sent {
            tracing::debug!(%error, "the service manager does not hear");
        }
    }
}

impl Address {
    fn of(name: &OsStr) -> Option<Self> {
        match name.as_bytes() {
            [b'/', ..] => Some(Self::File(PathBuf::from(name))),
            #[cfg(target_os = "linux")]
            [b'@', name @ ..] => {
                use std::os::linux::net::SocketAddrExt;
                let address = std::os::unix::net::SocketAddr::from_abstract_name(name);
                address.ok().map(Self::Abstract)
            }
            _ => None,
        }
    }
}

/// Replaces line ends: a status is one line.
fn line(text: &str) -> String {
    text.replace(['\n', '\r'], " ")
}

/// The watchdog's timeout for the process `own`; `None` without a watchdog.
///
/// Source: `sd_watchdog_enabled(3)`.
fn watchdog(every: Option<&str>, id: Option<&str>, own: u32) -> Option<Duration> {
    let micros: u64 = every?.parse().ok().filter(|micros| *micros > 0)?;
    let is_ours = id.is_none_or(|id| id.parse() == Ok(own));
    is_ours.then(|| Duration::from_micros(micros))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn notifier(name: &OsStr) -> Notifier {
        Notifier {
            socket: UnixDatagram::unbound().unwrap(),
            address: Address::of(name).unwrap(),
            watchdog: None,
        }
    }

    fn received(socket: &UnixDatagram) -> String {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).unwrap();
        String::from_utf8(bytes[..length].to_vec()).unwrap()
    }

    #[test]
    fn messages_are_lines_of_one_datagram() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("notify");
        let manager = UnixDatagram::bind(&path).unwrap();
        let notifier = notifier(path.as_os_str());
        notifier.ready("two\nlines");
        assert_eq!(received(&manager), "READY=1\nSTATUS=two lines");
        notifier.reloading();
        let message = received(&manager);
        let micros = message.split("MONOTONIC_USEC=").nth(1).unwrap();
        let micros: u64 = micros.lines().next().unwrap().parse().unwrap();
        assert!(
            message.starts_with("RELOADING=1\n") && micros > 0,
            "{message}"
        );
        drop(manager);
        notifier.alive();
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_name_without_a_file_is_an_address_too() {
        use std::os::linux::net::SocketAddrExt;
        let name = format!("dwell-notify-{}", process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        notifier(OsStr::new(&format!("@{name}"))).stopping();
        assert_eq!(received(&manager), "STOPPING=1\nSTATUS=draining");
        assert!(Address::of(OsStr::new("relative")).is_none());
    }

    #[test]
    fn the_watchdog_is_for_whom_it_names() {
        let second = Some(Duration::from_secs(1));
        assert_eq!(watchdog(Some("1000000"), None, 7), second);
        assert_eq!(watchdog(Some("1000000"), Some("7"), 7), second);
        assert_eq!(watchdog(Some("1000000"), Some("8"), 7), None);
        for senseless in ["0", "", "-1", "x"] {
            assert_eq!(watchdog(Some(senseless), None, 7), None, "{senseless}");
        }
        assert_eq!(watchdog(None, None, 7), None);
    }
}
