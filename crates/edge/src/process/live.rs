//! Checks that ask the servers of a configuration.

use super::plans::resolve;
use super::redis::redis_server;
use crate::config::{Config, PeerAddress};
use dwell_redis::{ClientOptions, Endpoint, Inspection, Right, SampleKey, inspect};
use std::fmt;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant, SystemTime};

/// A finding about one server.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LiveFinding {
    /// The server, as the configuration has it.
    pub server: String,
    /// The finding, in words.
    pub text: String,
    /// The weight of the finding.
    pub severity: Severity,
}

/// The weight of a finding.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Severity {
    /// The server is as it has to be.
    Good,
    /// Something that few need is lacking, or will be.
    Warning,
    /// The configuration asks for something that the server does not give.
    Fault,
}

impl fmt::Display for LiveFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.server, self.text)
    }
}

/// Connects to the servers that a configuration names, and asks those of values what they allow.
///
/// Shape: one after the other, each within its timeouts and ten seconds; after a minute no other is
/// asked. Nothing is stored. The application, and memcached under TLS, are only connected to.
pub fn live(config: &Config) -> Vec<LiveFinding> {
    let mut check = LiveCheck {
        end: Instant::now() + ALL_LIMIT,
        found: Vec::new(),
    };
    check.redis(config);
    let memcached = &config.memcached;
    for server in &memcached.servers {
        let timeouts = (memcached.connect_timeout, memcached.timeout);
        let name = format!("memcached {}", server.address);
        check.ask(&name, timeouts, |timeouts| {
            let stream = connect(&server.address, "--memcached", timeouts)?;
            if memcached.tls {
                return Ok("accepts connections".to_owned());
            }
            version(stream)
        });
    }
    for url in &config.upstream.url {
        let timeouts = (config.upstream.connect_timeout, Duration::ZERO);
        check.ask(&format!("upstream {url}"), timeouts, |timeouts| {
            connect(&url.address, "--upstream", timeouts)?;
            Ok("accepts connections".to_owned())
        });
    }
    check.found
}

struct LiveCheck {
    /// No server is asked later.
    end: Instant,
    found: Vec<LiveFinding>,
}

impl LiveCheck {
    fn note(&mut self, server: &str, severity: Severity, text: impl Into<String>) {
        self.found.push(LiveFinding {
            server: server.to_owned(),
            text: text.into(),
            severity,
        });
    }

    /// The time that a server may take, if there is any left.
    fn limit(&mut self, server: &str, wanted: Duration) -> Option<Duration> {
        let left = self.end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            self.note(
                server,
                Severity::Fault,
                "was not asked: others took a minute",
            );
            return None;
        }
        Some(wanted.min(SERVER_LIMIT).min(left))
    }

    /// Asks a server that is reached without options of its own.
    fn ask(
        &mut self,
        server: &str,
        (connect_timeout, timeout): (Duration, Duration),
        ask: impl FnOnce((Duration, Duration)) -> io::Result<String>,
    ) {
        let Some(limit) = self.limit(server, connect_timeout.max(timeout)) else {
            return;
        };
        let timeout = timeout.clamp(Duration::from_millis(1), limit);
        match ask((connect_timeout.min(limit), timeout)) {
            Ok(text) => self.note(server, Severity::Good, text),
            Err(error) => {
                self.note(server, Severity::Fault, format!("does not answer: {error}"));
            }
        }
    }

    fn redis(&mut self, config: &Config) {
        // What keeps a start from succeeding is another check.
        let Ok(Some(server)) = redis_server(config) else {
            return;
        };
        let samples = samples(config);
        let Endpoint::Primary { name, sentinels } = &server.endpoint else {
            let place = format!("Redis {}", server.endpoint);
            let found = self.inspect(&place, server.endpoint.clone(), &server.options, &samples);
            if let Some(found) = found {
                self.inspected(&place, &found);
            }
            return;
        };
        let mut primaries = Vec::new();
        for sentinel in sentinels {
            let place = format!("Sentinel {sentinel}");
            let endpoint = Endpoint::Primary {
                name: name.clone(),
                sentinels: vec![*sentinel],
            };
            let found = self.inspect(&place, endpoint, &server.options, &samples);
            let Some((found, primary)) = found.and_then(|it| it.primary.map(|at| (it, at))) else {
                continue;
            };
            self.note(&place, Severity::Good, format!("names {primary} as {name}"));
            if !primaries.contains(&primary) {
                self.inspected(&format!("Redis {primary}"), &found);
                primaries.push(primary);
            }
        }
        if primaries.len() > 1 {
            let text = "the Sentinels name different primaries: a failover is under way, or they \
                        have different configurations";
            self.note(name, Severity::Warning, text);
        }
    }

    /// The findings about a server that answers.
    fn inspect(
        &mut self,
        place: &str,
        endpoint: Endpoint,
        options: &ClientOptions,
        samples: &[SampleKey],
    ) -> Option<Inspection> {
        let limit = self.limit(place, options.connect_timeout + options.timeout)?;
        let found = match inspect(endpoint, options, samples, limit) {
            Ok(found) => found,
            Err(error) => {
                self.note(place, Severity::Fault, format!("cannot be asked: {error}"));
                return None;
            }
        };
        let Some((failure, reason)) = &found.failure else {
            return Some(found);
        };
        let reason = reason
            .as_ref()
            .map_or(String::new(), |it| format!(": {it}"));
        self.note(place, Severity::Fault, format!("{failure}{reason}"));
        None
    }

    fn inspected(&mut self, place: &str, found: &Inspection) {
        let server = found.server.as_deref().unwrap_or("answers");
        let role = found
            .role
            .as_ref()
            .map_or(String::new(), |role| format!(", {role}"));
        self.note(place, Severity::Good, format!("{server}{role}"));
        for (right, key, reason) in &found.lacking {
            let (command, severity, effect) = effect_of(*right);
            let of = if key.is_empty() {
                String::new()
            } else {
                format!(" of keys such as {}", key.escape_ascii())
            };
            let text = format!("refuses {command}{of}: {reason}; {effect}");
            self.note(place, severity, text);
        }
        if let Some(table) = found.table {
            let (keys, keys_max) = (table.keys, table.keys_max);
            let severity = if keys.saturating_mul(100) >= keys_max.saturating_mul(80) {
                Severity::Warning
            } else {
                Severity::Good
            };
            let text = format!("tracking table: {keys} of {keys_max} keys");
            self.note(place, severity, text);
        }
    }
}

/// The command of a right, and what lacks without it.
fn effect_of(right: Right) -> (&'static str, Severity, &'static str) {
    use Severity::{Fault, Warning};
    match right {
        Right::Version => ("HELLO", Fault, "changes are found by a sweep every 250 ms"),
        Right::Tracking => (
            "CLIENT TRACKING",
            Fault,
            "changes are found by a sweep every 250 ms",
        ),
        Right::Read => ("GET", Fault, "polls for them are misses"),
        Right::Lifetime => ("PTTL", Fault, "the end of a lifetime is found late"),
        Right::Write => ("SET", Fault, "nothing can be stored"),
        Right::Delete => ("DEL", Fault, "nothing can be removed over HTTP"),
        Right::LifeSign => ("PING", Warning, "each probe is an entry in its ACL LOG"),
        Right::Script => ("EVAL", Warning, "publishing with If-Match fails"),
        Right::TableBound => (
            "CONFIG GET",
            Warning,
            "the bound of its tracking table is taken for 1000000 keys",
        ),
        Right::TableUse => (
            "INFO",
            Warning,
            "there is no warning before its tracking table is full",
        ),
        _ => ("a command", Warning, "something may not work"),
    }
}

/// A key of each route that has no value.
fn samples(config: &Config) -> Vec<SampleKey> {
    let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
    let end = format!("dwell-check-{}-{}", std::process::id(), now.as_nanos());
    let mut samples = Vec::<SampleKey>::new();
    for route in config.routes.iter().take(ROUTES_MAX) {
        let name = route.key.beginning(&route.prefix) + &end;
        let is_removed = route.access.publish && config.publish.is_on();
        let is_written = is_removed || route.fill;
        if let Some(same) = samples.iter_mut().find(|it| it.name == name.as_bytes()) {
            same.is_written |= is_written;
            same.is_removed |= is_removed;
        } else {
            samples.push(SampleKey {
                name: name.into_bytes(),
                is_written,
                is_removed,
            });
        }
    }
    samples
}

fn connect(
    address: &PeerAddress,
    option: &'static str,
    (connect_timeout, timeout): (Duration, Duration),
) -> io::Result<TcpStream> {
    let address = resolve(address, option).map_err(io::Error::other)?;
    let connect_timeout = connect_timeout.max(Duration::from_millis(1));
    let stream = TcpStream::connect_timeout(&address, connect_timeout)?;
    stream.set_read_timeout(Some(timeout))?;
    stream.set_write_timeout(Some(timeout))?;
    Ok(stream)
}

/// The version of a memcached server.
fn version(mut stream: TcpStream) -> io::Result<String> {
    stream.write_all(b"version\r\n")?;
    let mut line = Vec::new();
    let mut reader = BufReader::new(stream.take(LINE_BYTES_MAX));
    reader.read_until(b'\n', &mut line)?;
    let line = line.trim_ascii();
    match line.strip_prefix(b"VERSION ") {
        Some(version) => Ok(format!("memcached {}", version.escape_ascii())),
        None => Err(io::Error::other(format!(
            "not a version: {}",
            line.escape_ascii()
        ))),
    }
}

/// The longest time that one server is asked for.
const SERVER_LIMIT: Duration = Duration::from_secs(10);
/// The time after which no other server is asked.
const ALL_LIMIT: Duration = Duration::from_secs(60);
/// Routes whose keys are asked for.
const ROUTES_MAX: usize = 16;
/// Bytes that a reply with a version may have.
const LINE_BYTES_MAX: u64 = 256;
