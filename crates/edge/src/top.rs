//! `dwell top`: what an embedded store does, as it does it.
//!
//! Everything shown comes from `stats` and `stats dwell` over the memcached protocol, so it works
//! wherever a client can connect.

use clap::Args;
use crossterm::style::{Attribute, SetAttribute};
use crossterm::{cursor, execute, queue, terminal};
use dwell_proto::memcache::{Reply, ReplyLimits, ResponseDecoder};
use std::collections::BTreeMap;
use std::fmt::{self, Display};
use std::io::{self, IsTerminal, Read, Write};
use std::net::TcpStream;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};
use std::{fs, thread};

/// Flags of `dwell top`.
#[derive(Clone, Debug, Args)]
pub struct TopArguments {
    /// Where the store listens: HOST:PORT, or the path of its unix socket
    #[arg(default_value = "127.0.0.1:11211")]
    pub address: String,
    /// Seconds between two looks
    #[arg(long, short, default_value_t = 1, value_parser = clap::value_parser!(u16).range(1..))]
    pub interval: u16,
    /// Look once, print plain text, and end
    #[arg(long)]
    pub once: bool,
    /// Log in with the first line of this file of name:password
    #[arg(long, value_name = "FILE")]
    pub auth_file: Option<PathBuf>,
}

/// Why there is nothing to show.
#[derive(Debug)]
#[non_exhaustive]
pub enum TopError {
    /// The store cannot be reached, or does not answer.
    Connection {
        /// Where it should be.
        address: String,
        /// What the system says.
        source: io::Error,
    },
    /// It answers, but not as a store does.
    Answer {
        /// What it says.
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

/// How long the store may take for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Shows the store until the user has seen enough.
///
/// # Errors
/// [`TopError`]; the terminal is as it was before.
pub fn run(arguments: &TopArguments) -> Result<(), TopError> {
    let mut peer = Peer::connect(arguments)?;
    let first = peer.look()?;
    if arguments.once || !io::stdout().is_terminal() {
        let lines = page(&arguments.address, &first, None, ONCE_ROWS);
        let text = lines.join("\n") + "\n";
        return io::stdout()
            .write_all(text.as_bytes())
            .map_err(TopError::Terminal);
    }
    let keys = keys();
    let _screen = Screen::enter().map_err(TopError::Terminal)?;
    let interval = Duration::from_secs(u64::from(arguments.interval));
    let (mut before, mut now) = (None, first);
    loop {
        show(&arguments.address, &now, before.as_ref()).map_err(TopError::Terminal)?;
        let wake_at = Instant::now() + interval;
        loop {
            match keys.recv_timeout(wake_at.saturating_duration_since(Instant::now())) {
                // Control-C and Control-D come as bytes in raw mode.
                Ok(b'q' | b'Q' | 3 | 4) => return Ok(()),
                Ok(_) => {}
                Err(RecvTimeoutError::Timeout) => break,
                Err(RecvTimeoutError::Disconnected) => {
                    thread::sleep(wake_at.saturating_duration_since(Instant::now()));
                    break;
                }
            }
        }
        let next = peer.look()?;
        before = Some(std::mem::replace(&mut now, next));
    }
}

/// The bytes typed, read by a thread of their own that ends with the process.
fn keys() -> Receiver<u8> {
    let (sender, receiver) = channel();
    thread::spawn(move || {
        let mut byte = [0];
        while matches!(io::stdin().read(&mut byte), Ok(1)) && sender.send(byte[0]).is_ok() {}
    });
    receiver
}

/// The terminal in raw mode on its other screen; dropped, it is as it was.
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
        // There is nobody left to tell.
        let _ = execute!(io::stdout(), terminal::LeaveAlternateScreen, cursor::Show);
        let _ = terminal::disable_raw_mode();
    }
}

fn show(address: &str, now: &Look, before: Option<&Look>) -> io::Result<()> {
    let (columns, rows) = terminal::size()?;
    let mut out = io::stdout().lock();
    let lines = page(address, now, before, usize::from(rows));
    queue!(out, terminal::Clear(terminal::ClearType::All))?;
    for (row, line) in lines.iter().take(usize::from(rows)).enumerate() {
        let line: String = line.chars().take(usize::from(columns)).collect();
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

/// A connection to the store.
struct Peer {
    address: String,
    stream: Box<dyn ReadWrite>,
}

trait ReadWrite: Read + Write {}
impl<T: Read + Write> ReadWrite for T {}

impl Peer {
    fn connect(arguments: &TopArguments) -> Result<Self, TopError> {
        let address = arguments.address.clone();
        let stream = connect(&address).map_err(|source| TopError::Connection {
            address: address.clone(),
            source,
        })?;
        let mut peer = Self { address, stream };
        if let Some(path) = &arguments.auth_file {
            peer.log_in(path)?;
        }
        Ok(peer)
    }

    fn failed(&self, source: io::Error) -> TopError {
        let address = self.address.clone();
        TopError::Connection { address, source }
    }

    fn log_in(&mut self, path: &Path) -> Result<(), TopError> {
        let text = fs::read_to_string(path).map_err(|error| self.failed(error))?;
        let token = text
            .lines()
            .next()
            .unwrap_or_default()
            .replacen(':', " ", 1);
        let line = format!("set login 0 0 {}\r\n{token}\r\n", token.len());
        self.stream
            .write_all(line.as_bytes())
            .map_err(|error| self.failed(error))?;
        self.replies(1, &mut |_, _| {})
    }

    /// Asks for everything once.
    fn look(&mut self) -> Result<Look, TopError> {
        let asked = self.stream.write_all(b"stats\r\nstats dwell\r\n");
        asked.map_err(|error| self.failed(error))?;
        let mut figures = BTreeMap::new();
        self.replies(2, &mut |name, value| {
            figures.insert(name, value);
        })?;
        let at = Instant::now();
        Ok(Look { figures, at })
    }

    /// Reads until `ends` requests are answered.
    fn replies(
        &mut self,
        mut ends: usize,
        figure: &mut dyn FnMut(String, String),
    ) -> Result<(), TopError> {
        let mut decoder = ResponseDecoder::new(ReplyLimits::default());
        let mut input = Vec::new();
        let mut piece = [0; 1 << 14];
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        while ends > 0 {
            let front = decoder.decode(&input).map_err(|error| TopError::Answer {
                text: error.to_string(),
            })?;
            let Some((used, reply)) = front else {
                let read = self
                    .stream
                    .read(&mut piece)
                    .map_err(|error| self.failed(error))?;
                if read == 0 {
                    return Err(self.failed(io::ErrorKind::UnexpectedEof.into()));
                }
                input.extend_from_slice(&piece[..read]);
                continue;
            };
            match reply {
                Reply::Stat { name, value } => figure(text(name), text(value)),
                Reply::Error { text: what, .. } => {
                    let text = format!("ERROR {}", text(what));
                    return Err(TopError::Answer { text });
                }
                _ => ends -= 1,
            }
            input.drain(..used);
        }
        Ok(())
    }
}

fn connect(address: &str) -> io::Result<Box<dyn ReadWrite>> {
    if address.contains('/') {
        let stream = UnixStream::connect(address)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        return Ok(Box::new(stream));
    }
    let stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
    Ok(Box::new(stream))
}

/// What the store said at one moment.
#[derive(Clone, Debug)]
struct Look {
    figures: BTreeMap<String, String>,
    at: Instant,
}

impl Look {
    fn text(&self, name: &str) -> &str {
        self.figures.get(name).map_or("-", String::as_str)
    }

    fn number(&self, name: &str) -> u64 {
        self.text(name).parse().unwrap_or(0)
    }

    /// Commands with their counts, the most frequent first.
    fn commands(&self) -> Vec<(&str, u64)> {
        let counts = self.figures.keys().filter_map(|name| {
            let command = name.strip_prefix("command:")?.strip_suffix(":count")?;
            Some((command, self.number(name)))
        });
        let mut counts: Vec<_> = counts.collect();
        counts.sort_by_key(|(name, count)| (u64::MAX - count, *name));
        counts
    }
}

/// Keys shown where there is no screen to fill.
const ONCE_ROWS: usize = 60;
/// Commands shown at most.
const COMMANDS_SHOWN: usize = 8;

/// The lines of the page, at most `rows`.
fn page(address: &str, now: &Look, before: Option<&Look>, rows: usize) -> Vec<String> {
    let rates = Rates { now, before };
    let mut lines = vec![
        format!(
            "dwell top - {address} - version {} - up {}",
            now.text("version"),
            span(now.number("uptime"))
        ),
        format!(
            "memory   {} of {} ({}), {} items, {} evicted/s, {} expired/s",
            bytes(now.number("bytes")),
            bytes(now.number("limit_maxbytes")),
            percent(now.number("bytes"), now.number("limit_maxbytes")),
            now.number("curr_items"),
            rates.of("evictions"),
            rates.of("reclaimed"),
        ),
        format!(
            "reads    {}/s, hit ratio {}{}",
            rates.of("cmd_get"),
            hit_ratio(now, before),
            if before.is_some() {
                " now"
            } else {
                " since the start"
            },
        ),
        format!(
            "writes   {} sets/s, {} deletes/s",
            rates.of("cmd_set"),
            rates.of("delete_hits")
        ),
        format!(
            "waiters  {} polls on {} keys, {} changes told/s",
            now.number("waiters"),
            now.number("watched_keys"),
            rates.of("watch_notifications"),
        ),
        format!(
            "clients  {} memcached, {} http, {} in/s, {} out/s",
            now.number("curr_connections"),
            now.number("connections_open"),
            bytes(rates.per_second("bytes_read")),
            bytes(rates.per_second("bytes_written")),
        ),
        String::new(),
        format!(
            "{:<12}{:>14}{:>14}{:>12}{:>12}",
            "COMMAND", "total", "per s", "p50 us", "p99 us"
        ),
    ];
    lines.extend(command_lines(now, &rates));
    lines.push(String::new());
    lines.push(format!("{:<14}{:>12}", "HOTTEST KEYS", "reads"));
    lines.extend(key_lines(now));
    lines.truncate(rows);
    lines
}

fn command_lines<'l>(now: &'l Look, rates: &'l Rates<'_>) -> impl Iterator<Item = String> + 'l {
    let shown = now.commands().into_iter().take(COMMANDS_SHOWN);
    shown.map(|(command, count)| {
        let figure = |part: &str| now.text(&format!("command:{command}:{part}")).to_owned();
        format!(
            "{command:<12}{count:>14}{:>14}{:>12}{:>12}",
            rates.of(&format!("command:{command}:count")),
            figure("p50_us"),
            figure("p99_us"),
        )
    })
}

fn key_lines(now: &Look) -> impl Iterator<Item = String> {
    let key = |place: usize| now.figures.get(&format!("hot:{place}:key"));
    (0..).map_while(move |place| {
        let key = key(place)?;
        let reads = now.number(&format!("hot:{place}:reads"));
        Some(format!("{:>14}{reads:>12}  {key}", place + 1))
    })
}

/// What changed between two looks.
struct Rates<'l> {
    now: &'l Look,
    before: Option<&'l Look>,
}

impl Rates<'_> {
    /// How much a counter grew in a second; the mean since the start without an earlier look.
    fn per_second(&self, name: &str) -> u64 {
        let count = self.now.number(name);
        let Some(before) = self.before else {
            return count / self.now.number("uptime").max(1);
        };
        let millis = self.now.at.duration_since(before.at).as_millis().max(1);
        let grown = u128::from(count.saturating_sub(before.number(name)));
        u64::try_from(grown * 1000 / millis).unwrap_or(u64::MAX)
    }

    fn of(&self, name: &str) -> String {
        self.per_second(name).to_string()
    }
}

fn hit_ratio(now: &Look, before: Option<&Look>) -> String {
    let grown = |name: &str| {
        let earlier = before.map_or(0, |before| before.number(name));
        now.number(name).saturating_sub(earlier)
    };
    let hits = grown("get_hits");
    percent(hits, hits + grown("get_misses"))
}

fn percent(part: u64, whole: u64) -> String {
    match (u128::from(part) * 1000).checked_div(u128::from(whole)) {
        Some(per_mille) => format!("{}.{} %", per_mille / 10, per_mille % 10),
        None => "-".to_owned(),
    }
}

fn bytes(count: u64) -> String {
    let units = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
    match units.into_iter().find(|(_, size)| count >= *size) {
        Some((unit, size)) => {
            let tenths = u128::from(count) * 10 / u128::from(size);
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{count} B"),
    }
}

fn span(seconds: u64) -> String {
    let (days, hours) = (seconds / 86_400, seconds / 3600 % 24);
    let (minutes, seconds) = (seconds / 60 % 60, seconds % 60);
    if days > 0 {
        format!("{days}d {hours}h")
    } else if hours > 0 {
        format!("{hours}h {minutes}m")
    } else {
        format!("{minutes}m {seconds}s")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(at: Instant, figures: &[(&str, &str)]) -> Look {
        let figures = figures
            .iter()
            .map(|(name, value)| ((*name).into(), (*value).into()));
        Look {
            figures: figures.collect(),
            at,
        }
    }

    #[test]
    fn rates_are_what_changed_between_two_looks() {
        let start = Instant::now();
        let before = look(
            start,
            &[
                ("cmd_get", "1000"),
                ("get_hits", "900"),
                ("get_misses", "100"),
            ],
        );
        let figures = [
            ("cmd_get", "3000"),
            ("get_hits", "1900"),
            ("get_misses", "1100"),
        ];
        let now = look(start + Duration::from_secs(2), &figures);
        let text = page("here", &now, Some(&before), 40).join("\n");
        assert!(
            text.contains("reads    1000/s, hit ratio 50.0 % now"),
            "{text}"
        );
    }

    #[test]
    fn one_look_shows_the_mean_since_the_start() {
        let figures = [
            ("uptime", "10"),
            ("cmd_get", "200"),
            ("bytes", "1572864"),
            ("limit_maxbytes", "67108864"),
            ("command:get:count", "200"),
            ("command:get:p50_us", "0.25"),
            ("command:set:count", "300"),
            ("hot:0:key", "a\\x00b"),
            ("hot:0:reads", "64"),
        ];
        let text = page("here", &look(Instant::now(), &figures), None, 40).join("\n");
        assert!(
            text.contains("memory   1.5 MiB of 64.0 MiB (2.3 %)"),
            "{text}"
        );
        assert!(
            text.contains("reads    20/s, hit ratio - since the start"),
            "{text}"
        );
        assert!(
            text.find("\nset ").unwrap() < text.find("\nget ").unwrap(),
            "{text}"
        );
        assert!(text.contains("          64  a\\x00b"), "{text}");
    }

    #[test]
    fn the_page_fits_its_screen() {
        let now = look(Instant::now(), &[("hot:0:key", "a"), ("hot:1:key", "b")]);
        for rows in 0..20 {
            assert!(page("here", &now, None, rows).len() <= rows);
        }
    }
}
