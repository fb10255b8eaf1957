//! Checks that ask the servers of a configuration.

use super::lookups::within;
use super::names::Names;
use super::plans::resolve;
use super::redis::redis_server;
use crate::config::{Config, PeerAddress};
use dwell_redis::{ClientOptions, Endpoint, Inspection, Right, SampleKey, inspect};
use std::collections::HashSet;
use std::fmt;
use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
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
/// Shape: one after the other, each within its timeouts and ten seconds, and as long again to find
/// its address; after a minute no other is asked. Nothing is stored. The application, and memcached
/// under TLS, are only connected to.
pub fn live(config: &Config) -> Vec<LiveFinding> {
    let mut check = LiveCheck {
        end: Instant::now() + ALL_LIMIT,
        found: Vec::new(),
    };
    check.redis(config);
    let memcached = &config.memcached;
    for server in &memcached.servers {
        let name = format!("memcached {}", server.address);
        let limit = memcached.connect_timeout + memcached.timeout;
        let at = (&server.address, "--memcached");
        check.ask(&name, at, limit, |address, end| {
            let stream = TcpStream::connect_timeout(&address, left(end)?)?;
            if memcached.tls {
                return Ok("accepts connections".to_owned());
            }
            version(stream, end)
        });
    }
    for url in &config.upstream.url {
        let (name, limit) = (format!("upstream {url}"), config.upstream.connect_timeout);
        check.ask(
            &name,
            (&url.address, "--upstream"),
            limit,
            |address, end| {
                TcpStream::connect_timeout(&address, left(end)?)?;
                Ok("accepts connections".to_owned())
            },
        );
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

    /// Asks a server that is reached without options of its own; `ask` gets its address, and the
    /// end of its time.
    fn ask(
        &mut self,
        server: &str,
        (address, option): (&PeerAddress, &'static str),
        wanted: Duration,
        ask: impl FnOnce(SocketAddr, Instant) -> io::Result<String>,
    ) {
        let address = address.clone();
        let Some(found) = self.look_up(server, move || resolve(&address, option)) else {
            return;
        };
        let Some(limit) = self.limit(server, wanted) else {
            return;
        };
        let answer = found.map_err(io::Error::other);
        match answer.and_then(|address| ask(address, Instant::now() + limit)) {
            Ok(text) => self.note(server, Severity::Good, text),
            Err(error) => {
                self.note(server, Severity::Fault, format!("does not answer: {error}"));
            }
        }
    }

    /// The result of a lookup of names, if it comes in time.
    fn look_up<T: Send + 'static>(
        &mut self,
        server: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Option<T> {
        let found = within(self.limit(server, SERVER_LIMIT)?, work);
        if found.is_none() {
            let text = "its name was not looked up in time";
            self.note(server, Severity::Fault, text);
        }
        found
    }

    fn redis(&mut self, config: &Config) {
        let Some(place) = config.redis.place() else {
            return;
        };
        let of_lookup = config.clone();
        let server = self.look_up(&format!("Redis {place}"), move || {
            redis_server(&of_lookup, &mut Names::at_start())
        });
        let server = match server {
            Some(Ok(Some(server))) => server,
            Some(Err(error)) => {
                let text = error.to_string();
                return self.note(&format!("Redis {place}"), Severity::Fault, text);
            }
            Some(Ok(None)) | None => return,
        };
        for left_out in &server.left_out {
            let text = format!("a server is left out: {left_out}");
            self.note(&format!("Redis {place}"), Severity::Warning, text);
        }
        let samples = Samples::of(config);
        if samples.left_out > 0 {
            let text = format!("the keys of {} routes were not tried", samples.left_out);
            self.note(&format!("Redis {place}"), Severity::Warning, text);
        }
        let options = &server.options;
        if let Endpoint::Cluster(servers) = server.endpoint {
            return self.cluster(&place, servers, options, &samples);
        }
        let Endpoint::Primary { name, sentinels } = &server.endpoint else {
            let place = format!("Redis {}", server.endpoint);
            if let Some(found) = self.inspect(&place, server.endpoint.clone(), options, &samples) {
                self.inspected(&place, &found, &samples);
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
            let Some(found) = self.inspect(&place, endpoint, options, &samples) else {
                continue;
            };
            // A fault before it has named a server is its own.
            let Some(primary) = found.primary else {
                self.inspected(&place, &found, &samples);
                continue;
            };
            self.note(&place, Severity::Good, format!("names {primary} as {name}"));
            if !primaries.contains(&primary) {
                self.inspected(&format!("Redis {primary}"), &found, &samples);
                primaries.push(primary);
            }
        }
        if primaries.len() > 1 {
            let text = "the Sentinels name different primaries: a failover is in progress, or they \
                        have different configurations";
            self.note(name, Severity::Warning, text);
        }
    }

    /// Asks the servers of a cluster that are known, and those that they name.
    fn cluster(
        &mut self,
        cluster: &str,
        mut servers: Vec<SocketAddr>,
        options: &ClientOptions,
        samples: &Samples,
    ) {
        let (mut at, mut is_told) = (0, false);
        while let Some(server) = servers.get(at).copied() {
            at += 1;
            let place = format!("Redis {server}");
            let endpoint = Endpoint::Cluster(vec![server]);
            let Some(found) = self.inspect(&place, endpoint, options, samples) else {
                continue;
            };
            self.inspected(&place, &found, samples);
            let Some((primaries, missing)) = found.cluster else {
                continue;
            };
            servers.extend(
                primaries
                    .iter()
                    .filter(|it| !servers.contains(it))
                    .copied()
                    .collect::<Vec<_>>(),
            );
            if !std::mem::replace(&mut is_told, true) {
                let place = format!("Redis {cluster}");
                let text = format!("{} primaries", primaries.len());
                self.note(&place, Severity::Good, text);
                if missing > 0 {
                    let text =
                        format!("{missing} slots have no primary: polls for their keys are misses");
                    self.note(&place, Severity::Fault, text);
                }
            }
        }
    }

    /// The findings about a server, if it could be asked.
    fn inspect(
        &mut self,
        place: &str,
        endpoint: Endpoint,
        options: &ClientOptions,
        samples: &Samples,
    ) -> Option<Inspection> {
        let limit = self.limit(place, options.connect_timeout + options.timeout)?;
        let found = inspect(endpoint, options, &samples.keys, limit);
        if let Err(error) = &found {
            self.note(place, Severity::Fault, format!("cannot be asked: {error}"));
        }
        found.ok()
    }

    fn inspected(&mut self, place: &str, found: &Inspection, samples: &Samples) {
        if let Some((failure, reason)) = &found.failure {
            let reason = reason.as_ref();
            let reason = reason.map_or(String::new(), |it| format!(": {it}"));
            return self.note(place, Severity::Fault, format!("{failure}{reason}"));
        }
        let server = found.server.as_deref().unwrap_or("answers");
        let role = found
            .role
            .as_ref()
            .map_or(String::new(), |role| format!(", {role}"));
        self.note(place, Severity::Good, format!("{server}{role}"));
        for (right, key, reason) in &found.lacking {
            let (command, severity, effect) = effect_of(*right);
            let (severity, effect) = if samples.is_guess(key, reason) {
                (Severity::Warning, "it may allow those that requests make")
            } else {
                (severity, effect)
            };
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
        Right::Slots => (
            "CLUSTER SLOTS",
            Fault,
            "nothing is known of the other servers",
        ),
        Right::Epoch => (
            "CLUSTER INFO",
            Warning,
            "a server that was cut off from the others is not told from them",
        ),
        Right::Migrations => (
            "CLUSTER NODES",
            Warning,
            "the first value of a key is found late while its slot moves",
        ),
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

/// Keys without a value, of the routes.
struct Samples {
    keys: Vec<SampleKey>,
    /// Names of keys whose like the server has to allow whatever a client asks for.
    of_choice: HashSet<Vec<u8>>,
    /// Routes whose keys are too many more.
    left_out: usize,
}

impl Samples {
    fn of(config: &Config) -> Self {
        let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let word = format!("dwell-check-{}-{}", std::process::id(), now.as_nanos());
        let mut samples = Self {
            keys: Vec::new(),
            of_choice: HashSet::new(),
            left_out: 0,
        };
        for route in &config.routes {
            let name = route.key.sample(&route.prefix, &word).into_bytes();
            let is_removed = route.access.publish && config.publish.is_on();
            let is_written = is_removed || route.fill;
            if let Some(same) = samples.keys.iter_mut().find(|it| it.name == name) {
                same.is_written |= is_written;
                same.is_removed |= is_removed;
            } else if samples.keys.len() < SAMPLES_MAX {
                samples.keys.push(SampleKey {
                    name: name.clone(),
                    is_written,
                    is_removed,
                });
            } else {
                samples.left_out += 1;
                continue;
            }
            if route.key.is_of_choice() {
                samples.of_choice.insert(name);
            }
        }
        samples
    }

    /// Returns true if the server refuses a key and perhaps not its like: tokens or the application
    /// may make such keys alone as it allows.
    fn is_guess(&self, key: &[u8], reason: &str) -> bool {
        !key.is_empty()
            && reason.starts_with("NOPERM")
            && reason.contains(" access ")
            && !self.of_choice.contains(key)
    }
}

/// The time until `end`.
fn left(end: Instant) -> io::Result<Duration> {
    let left = end.saturating_duration_since(Instant::now());
    (!left.is_zero())
        .then_some(left)
        .ok_or_else(|| io::ErrorKind::TimedOut.into())
}

/// The version of a memcached server.
fn version(mut stream: TcpStream, end: Instant) -> io::Result<String> {
    stream.set_write_timeout(Some(left(end)?))?;
    stream.write_all(b"version\r\n")?;
    let (mut line, mut byte) = (Vec::new(), [0]);
    while line.len() < LINE_BYTES_MAX && !line.ends_with(b"\n") {
        // However slowly they come.
        stream.set_read_timeout(Some(left(end)?))?;
        if stream.read(&mut byte)? == 0 {
            break;
        }
        line.extend(byte);
    }
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
/// Different keys that are asked for.
const SAMPLES_MAX: usize = 64;
/// Bytes that a reply with a version may have.
const LINE_BYTES_MAX: usize = 256;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config;
    use std::net::TcpListener;

    fn samples(routes: &str) -> Samples {
        let text = format!("redis.url = \"redis://a\"\nstore.listen = \"off\"\n{routes}");
        Samples::of(&config::parse("test.toml", &text, &[]).unwrap())
    }

    #[test]
    fn a_sample_has_every_part_of_its_route() {
        let routes = "[jwt]\nsecret_file = \"/a\"\n\
                      [[route]]\nprefix = \"/in/\"\nkey = \"user:{claim.sub}:in\"\njwt = true\n\
                      [[route]]\nprefix = \"/q/\"\nkey = \"q:{query.id}:in\"\n\
                      [[route]]\nprefix = \"/u/\"\nkey = \"{uri}\"\n";
        let samples = samples(routes);
        let names: Vec<_> = samples.keys.iter().map(|it| it.name.clone()).collect();
        let names: Vec<_> = names.iter().map(|it| String::from_utf8_lossy(it)).collect();
        let is_of = |one: &str, begin, end| {
            one.starts_with(begin) && one.contains("dwell-check-") && one.ends_with(end)
        };
        assert!(is_of(&names[0], "user:", ":in"), "{names:?}");
        assert!(is_of(&names[1], "q:", ":in"), "{names:?}");
        assert!(is_of(&names[2], "/u/", ""), "{names:?}");
        let hidden = "NOPERM No permissions to access a key";
        let denied = "NOPERM User a has no permissions to run the 'get' command";
        let guesses = |reason| samples.keys.iter().map(move |it| (it, reason));
        let is_guess = |(it, reason): (&SampleKey, &str)| samples.is_guess(&it.name, reason);
        let found: Vec<_> = guesses(hidden).map(is_guess).collect();
        assert_eq!(found, [true, false, false], "clients choose the other two");
        assert!(!guesses(denied).any(is_guess));
    }

    #[test]
    fn routes_beyond_the_bound_are_counted() {
        let routes = |count| {
            let of = |number| format!("[[route]]\nprefix = \"/{number}/\"\n");
            (0..count).map(of).collect::<String>()
        };
        assert_eq!(samples(&routes(SAMPLES_MAX)).left_out, 0);
        let more = samples(&routes(SAMPLES_MAX + 3));
        assert_eq!((more.keys.len(), more.left_out), (SAMPLES_MAX, 3));
        // Those with the same keys count once.
        let same = (0..100)
            .map(|number| format!("[[route]]\nprefix = \"/{number}/\"\nkey = \"a{{query.a}}\"\n"));
        assert_eq!(samples(&same.collect::<String>()).left_out, 0);
    }

    #[test]
    fn a_version_has_one_deadline_whatever_comes() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let connect = || {
            let stream = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            (stream, listener.accept().unwrap().0)
        };
        let later = || Instant::now() + SERVER_LIMIT;
        let (stream, mut server) = connect();
        server.write_all(b"VERSION 1.6\r\n").unwrap();
        assert_eq!(version(stream, later()).unwrap(), "memcached 1.6");
        let (stream, mut server) = connect();
        server.write_all(&[b'V'; 2 * LINE_BYTES_MAX]).unwrap();
        let long = version(stream, later()).unwrap_err().to_string();
        assert!(long.starts_with("not a version: VV"), "{long}");
        // What came before is no reason to wait longer.
        let (stream, mut server) = connect();
        server.write_all(b"VERSION 1.6").unwrap();
        let end = Instant::now() + Duration::from_millis(20);
        assert!(version(stream, end).is_err());
        assert!(Instant::now() >= end, "it waits as long as it may");
        let (stream, mut server) = connect();
        server.write_all(b"VERSION 1.6\r\n").unwrap();
        assert!(version(stream, Instant::now()).is_err(), "no time is left");
    }
}
