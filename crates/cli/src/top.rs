//! `dwell top`: a live view of an embedded store.
//!
//! All figures come from `stats` and `stats dwell` over the memcached protocol, so it works
//! wherever a client can connect.

mod page;
mod peer;

use clap::Args;
use crossterm::style::{Attribute, SetAttribute};
use crossterm::{cursor, execute, queue, terminal};
use page::{Look, ONCE_ROWS, page};
use peer::Peer;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Read, Write};
use std::path::PathBuf;
use std::sync::mpsc::{Sender, channel};
use std::thread;
use std::time::Duration;

/// Flags of `dwell top`.
#[derive(Clone, Debug, Args)]
pub(crate) struct TopArguments {
    /// Address of the store: HOST:PORT, or the path of its unix socket
    #[arg(default_value = "127.0.0.1:11211")]
    pub(crate) address: String,
    /// Seconds between two updates
    #[arg(long, short, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub(crate) interval: u16,
    /// Print the figures once, as plain text, and end
    #[arg(long)]
    pub(crate) once: bool,
    /// Log in with the first line of this file of name:password
    #[arg(long, value_name = "FILE")]
    pub(crate) auth_file: Option<PathBuf>,
}

/// Error that ends `dwell top`.
#[derive(Debug)]
#[non_exhaustive]
pub(crate) enum TopError {
    /// The store cannot be reached, or does not reply.
    Connection {
        /// Its address.
        address: String,
        /// Error of the system.
        source: io::Error,
    },
    /// The reply is not that of a store.
    Answer {
        /// The reply.
        text: String,
    },
    /// The terminal cannot be written to.
    Terminal(io::Error),
}

impl Display for TopError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Connection { address, source } => {
                write!(formatter, "cannot ask {address}: {source}")
            }
            Self::Answer { text } => write!(formatter, "the store answers: {text}"),
            Self::Terminal(source) => write!(formatter, "cannot write to the terminal: {source}"),
        }
    }
}

impl std::error::Error for TopError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Connection { source, .. } | Self::Terminal(source) => Some(source),
            Self::Answer { .. } => None,
        }
    }
}

/// Shows the store until the user quits.
///
/// Shape: a store that fails later is queried again, at growing intervals. A store that cannot be
/// reached at the start is an error.
///
/// # Errors
/// [`TopError`]; the terminal is restored.
pub(crate) fn run(arguments: &TopArguments) -> Result<(), TopError> {
    let mut peer = Peer::connect(arguments)?;
    let first = peer.look()?;
    if arguments.once || !io::stdout().is_terminal() {
        let lines = page(&arguments.address, &first, None, ONCE_ROWS);
        let text = lines.join("\n") + "\n";
        return io::stdout()
            .write_all(text.as_bytes())
            .map_err(TopError::Terminal);
    }
    let (sender, events) = channel();
    // Before the screen is taken, so that a signal always finds a handler that restores it.
    watch_signals(sender.clone()).map_err(TopError::Terminal)?;
    watch_keys(sender.clone());
    keep_looking(arguments.clone(), peer, sender);
    let _screen = Screen::enter().map_err(TopError::Terminal)?;
    let (mut before, mut now) = (None, first);
    let mut status = None;
    loop {
        let shown = show(&arguments.address, status.as_deref(), &now, before.as_ref());
        shown.map_err(TopError::Terminal)?;
        match events.recv() {
            Ok(Event::Look(next)) => {
                before = Some(std::mem::replace(&mut now, next));
                // After a restart the counters of a store begin again.
                before = before.filter(|_| status.is_none());
                status = None;
            }
            Ok(Event::Lost(error, pause)) => {
                status = Some(format!("{error}; asked again in {} s", pause.as_secs()));
            }
            // Control-C and Control-D come as bytes in raw mode.
            Ok(Event::Key(b'q' | b'Q' | 3 | 4) | Event::Signal) | Err(_) => return Ok(()),
            Ok(Event::Key(_)) => {}
        }
    }
}

/// Event for the screen.
enum Event {
    /// A byte from the keyboard.
    Key(u8),
    /// A signal that ends the process.
    Signal,
    /// A reply of the store.
    Look(Look),
    /// A failure of the store, and the pause before the next query.
    Lost(TopError, Duration),
}

/// Queries the store at every interval on a thread, so that the user never waits for a reply. The
/// thread ends with the process.
fn keep_looking(arguments: TopArguments, peer: Peer, events: Sender<Event>) {
    let interval = Duration::from_secs(u64::from(arguments.interval));
    let mut peer = Some(peer);
    let mut pause = interval;
    let mut look = move || {
        let mut connected = match peer.take() {
            Some(connected) => connected,
            None => Peer::connect(&arguments)?,
        };
        let look = connected.look()?;
        peer = Some(connected);
        Ok(look)
    };
    thread::spawn(move || {
        let mut retry = RETRY_FIRST;
        loop {
            thread::sleep(pause);
            let event = match look() {
                Ok(look) => {
                    (pause, retry) = (interval, RETRY_FIRST);
                    Event::Look(look)
                }
                Err(error) => {
                    pause = retry;
                    retry = (retry * 2).min(RETRY_MAX);
                    Event::Lost(error, pause)
                }
            };
            if events.send(event).is_err() {
                return;
            }
        }
    });
}

/// The pause after the first failure; it doubles for each further one.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// Longest pause.
const RETRY_MAX: Duration = Duration::from_secs(8);

/// Sends the bytes typed, from a thread that ends with the process.
fn watch_keys(events: Sender<Event>) {
    thread::spawn(move || {
        let mut byte = [0];
        while matches!(io::stdin().read(&mut byte), Ok(1)) {
            if events.send(Event::Key(byte[0])).is_err() {
                return;
            }
        }
    });
}

/// Sends the signals that end a program, which would leave the terminal as it is.
fn watch_signals(events: Sender<Event>) -> io::Result<()> {
    let mut signals = Signals::new([SIGTERM, SIGINT, SIGHUP])?;
    thread::spawn(move || {
        for _ in signals.forever() {
            if events.send(Event::Signal).is_err() {
                return;
            }
        }
    });
    Ok(())
}

/// The terminal in raw mode on its alternate screen; restored when this is dropped.
struct Screen;

impl Screen {
    fn enter() -> io::Result<Self> {
        terminal::enable_raw_mode()?;
        let screen = Self;
        execute!(io::stdout(), terminal::EnterAlternateScreen, cursor::Hide)?;
        Ok(screen)
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // There is no way to report an error.
        let _ = execute!(io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}

/// Draws the page; a status replaces its title.
fn show(address: &str, status: Option<&str>, now: &Look, before: Option<&Look>) -> io::Result<()> {
    let (columns, rows) = terminal::size()?;
    let mut out = io::stdout().lock();
    let mut lines = page(address, now, before, usize::from(rows));
    if let (Some(title), Some(status)) = (lines.first_mut(), status) {
        *title = format!("dwell top - {status}");
    }
    queue!(out, terminal::Clear(terminal::ClearType::All))?;
    for (row, line) in lines.iter().take(usize::from(rows)).enumerate() {
        // Text from a store must not move the cursor.
        let printed = line.chars().map(|c| if c.is_control() { '?' } else { c });
        let line: String = printed.take(usize::from(columns)).collect();
        let row = u16::try_from(row).unwrap_or(u16::MAX);
        queue!(out, cursor::MoveTo(0, row))?;
        let is_heading = row == 0 || line.starts_with("COMMAND") || line.starts_with("HOTTEST");
        if is_heading {
            queue!(out, SetAttribute(Attribute::Bold))?;
        }
        write!(out, "{line}")?;
        if is_heading {
            queue!(out, SetAttribute(Attribute::Reset))?;
        }
    }
    out.flush()
}
