//! The processes beside the page: servers and their clients, each a child with pipes.
//!
//! A child ends when its standard input does. The kernel closes the parent's end of that pipe
//! however the parent ends, so that no child outlives it.

use super::room::CLIENTS_MAX;
use super::transport::Transport;
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::SocketAddr;
use std::os::unix::process::CommandExt;
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};
use std::str::FromStr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::{env, process, thread};

/// The purpose of a child process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum PartName {
    /// A server at this address, or on a port of the system's choice.
    Server(Option<SocketAddr>),
    /// Clients of the server at this address.
    Clients(Transport, SocketAddr),
}

impl FromStr for PartName {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        if text == SERVER {
            return Ok(Self::Server(None));
        }
        let (part, address) = text.split_once('@').ok_or("write TRANSPORT@ADDRESS")?;
        let address = address.parse().map_err(|_| "not an address".to_owned())?;
        Ok(match part {
            SERVER => Self::Server(Some(address)),
            transport => Self::Clients(transport.parse()?, address),
        })
    }
}

impl PartName {
    fn argument(self) -> String {
        match self {
            Self::Server(None) => SERVER.to_owned(),
            Self::Server(Some(address)) => format!("{SERVER}@{address}"),
            Self::Clients(transport, address) => format!("{transport}@{address}"),
        }
    }
}

/// A child process; it is killed when this is dropped.
#[derive(Debug)]
pub(super) struct Part {
    child: Child,
    orders: ChildStdin,
    /// The lines that it writes, in order.
    lines: Receiver<String>,
}

impl Part {
    /// Starts this program again as a part of the demonstration.
    ///
    /// # Errors
    /// When the system has no process or descriptor left.
    pub(super) fn start(name: PartName) -> io::Result<Self> {
        let mut command = Command::new("/proc/self/exe");
        command.arg0("dwell").args(["demo", "--part"]);
        command.arg(name.argument()).stdin(Stdio::piped());
        // A terminal sends its signals to the parent alone, which ends the others.
        command.process_group(0);
        for variable in env::vars_os().map(|(variable, _)| variable) {
            if is_for_servers(&variable) {
                command.env_remove(variable);
            }
        }
        match name {
            // A server's log is what it tells.
            PartName::Server(_) => command.stdout(Stdio::null()).stderr(Stdio::piped()),
            PartName::Clients(..) => command.stdout(Stdio::piped()),
        };
        let mut child = command.spawn()?;
        let (line_to, lines) = sync_channel(LINES_MAX);
        let told: Option<Box<dyn Read + Send>> = match (child.stdout.take(), child.stderr.take()) {
            (Some(out), _) => Some(Box::new(out)),
            (None, Some(out)) => Some(Box::new(out)),
            (None, None) => None,
        };
        let orders = child.stdin.take();
        let (Some(told), Some(orders)) = (told, orders) else {
            return Err(io::Error::other("a child has no pipes"));
        };
        thread::Builder::new()
            .name("demo-lines".to_owned())
            .spawn(move || forward(told, &line_to))?;
        Ok(Self {
            child,
            orders,
            lines,
        })
    }

    pub(super) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Kills the process, and waits for its end.
    pub(super) fn kill(&mut self) {
        // It fails only if the process has ended, which is waited for all the same.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Sends a signal to the process.
    ///
    /// # Errors
    /// When the process has ended.
    pub(super) fn signal(&mut self, signal: Signal) -> io::Result<()> {
        // A process that has not been waited for keeps its id.
        match self.child.try_wait()? {
            None => Ok(kill_process(Pid::from_child(&self.child), signal)?),
            Some(status) => Err(io::Error::other(format!("it has ended: {status}"))),
        }
    }

    /// Sends an order of one line.
    ///
    /// # Errors
    /// When the process has ended.
    pub(super) fn order(&mut self, order: &str) -> io::Result<()> {
        self.orders.write_all(format!("{order}\n").as_bytes())
    }

    /// The next line that it has written, if there is one.
    pub(super) fn line(&self) -> Option<String> {
        self.lines.try_recv().ok()
    }

    /// The status of a process that has ended.
    pub(super) fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().ok().flatten()
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.kill();
    }
}

fn forward(told: impl Read, line_to: &SyncSender<String>) {
    // A line that is too long ends the pipe, and with it the process.
    let mut told = BufReader::new(told);
    loop {
        let mut line = Vec::new();
        match (&mut told)
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)
        {
            Ok(1..) if line.ends_with(b"\n") => {}
            _ => return,
        }
        let line = String::from_utf8_lossy(&line).trim_end().to_owned();
        if line_to.send(line).is_err() {
            return;
        }
    }
}

/// Returns true for variables that would change how a server starts.
fn is_for_servers(variable: &OsString) -> bool {
    let name = variable.to_string_lossy();
    name.starts_with("DWELL_") || name.starts_with("LISTEN_") || name == "NOTIFY_SOCKET"
}

/// Calls `obey` with each order of the parent, on a thread; ends this process with the last one.
///
/// # Errors
/// When the system has no thread left.
pub(super) fn obey_parent(mut obey: impl FnMut(&str) + Send + 'static) -> io::Result<()> {
    let listen = move || {
        for line in io::stdin().lock().lines() {
            match line {
                Ok(line) => obey(&line),
                Err(_) => break,
            }
        }
        process::exit(0);
    };
    let thread = thread::Builder::new().name("demo-orders".to_owned());
    thread.spawn(listen).map(|_| ())
}

const SERVER: &str = "server";

/// Lines of one child that wait to be read.
const LINES_MAX: usize = 256;

/// The longest line is the times of a wave: up to 20 digits and a comma for each client.
const LINE_BYTES_MAX: u64 = 1 << 20;
const _: () = assert!(CLIENTS_MAX * 21 + 1000 < LINE_BYTES_MAX as usize);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_is_read_as_it_is_written() {
        let address = "127.0.0.1:80".parse().expect("an address");
        let clients = Transport::ALL.map(|transport| PartName::Clients(transport, address));
        let servers = [PartName::Server(None), PartName::Server(Some(address))];
        for part in clients.into_iter().chain(servers) {
            assert_eq!(part.argument().parse(), Ok(part));
        }
        for wrong in [
            "",
            "clients",
            "long-poll@",
            "server@",
            "poll@127.0.0.1:80",
            "long-poll@nowhere",
        ] {
            assert!(wrong.parse::<PartName>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn lines_are_forwarded_until_one_is_too_long() {
        let long = "x".repeat(LINE_BYTES_MAX as usize);
        for (told, expected) in [
            ("a\nb\r\n", vec!["a", "b"]),
            ("a\nno end", vec!["a"]),
            (&*format!("a\n{long}\nb\n"), vec!["a"]),
        ] {
            let (line_to, lines) = sync_channel(LINES_MAX);
            forward(told.as_bytes(), &line_to);
            assert_eq!(lines.try_iter().collect::<Vec<_>>(), expected);
        }
    }

    #[test]
    fn options_of_the_environment_are_the_pages_alone() {
        for (name, expected) in [
            ("DWELL_SERVER_LISTEN", true),
            ("LISTEN_FDS", true),
            ("NOTIFY_SOCKET", true),
            ("PATH", false),
        ] {
            assert_eq!(is_for_servers(&name.into()), expected, "{name}");
        }
    }
}
