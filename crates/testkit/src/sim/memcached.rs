//! A model of memcached.

use dwell_evloop::sim::{Peer, SimNet, SimServer, SimStream};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

/// A memcached that is simulated: version 1.6.18 as clients of the text and meta commands see it.
///
/// Shape: it has `get`, `gets`, `mg`, `mn`, `set`, `delete`, `version`, `stats` and `watch`, and
/// answers `ERROR` to everything else. Items neither expire nor are evicted. Watchers are told of
/// what is stored, not of what is deleted.
///
/// ```
/// use dwell_testkit::sim::{SimMemcached, SimNet};
/// use std::rc::Rc;
///
/// let network = Rc::new(SimNet::new(1));
/// let mut memcached = SimMemcached::start(&network);
/// memcached.set("key", "value");
/// assert_eq!(memcached.ask("get key\r\n"), "VALUE key 0 5\r\nvalue\r\nEND\r\n");
/// memcached.restart(); // empty, on the same port
/// assert_eq!(memcached.ask("get key\r\n"), "END\r\n");
/// ```
#[derive(Debug)]
pub struct SimMemcached {
    server: Option<SimServer>,
    network: Rc<SimNet>,
    address: SocketAddr,
    has_cas: bool,
}

/// Simulated time within which it has answered whatever was asked.
const ANSWERED: Duration = Duration::from_millis(1);

impl SimMemcached {
    /// Starts one on a port of its own.
    ///
    /// # Panics
    /// If the network has ended.
    #[must_use]
    pub fn start(network: &Rc<SimNet>) -> Self {
        Self::begin(network, true)
    }

    /// Starts one that counts no cas uniques (`-C`): all of them are 0.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    #[must_use]
    pub fn start_without_cas(network: &Rc<SimNet>) -> Self {
        Self::begin(network, false)
    }

    fn begin(network: &Rc<SimNet>, has_cas: bool) -> Self {
        let any = (Ipv4Addr::LOCALHOST, 0).into();
        let server = serve(network, any, has_cas);
        Self {
            network: Rc::clone(network),
            address: server.address(),
            server: Some(server),
            has_cas,
        }
    }

    /// The address it listens on, or has listened on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Ends it at once, with all its items; the port then refuses.
    pub fn kill(&mut self) {
        self.server = None;
    }

    /// Starts it again, empty, on the same port.
    ///
    /// # Panics
    /// As [`start`](Self::start).
    pub fn restart(&mut self) {
        self.kill();
        self.server = Some(serve(&self.network, self.address, self.has_cas));
    }

    /// Sends commands on a connection of their own; returns the replies.
    ///
    /// # Panics
    /// If it does not run.
    pub fn ask(&self, commands: &str) -> String {
        let mut connection = self.network.connect(self.address);
        let mut replies = Vec::new();
        let sent = connection.write_all(commands.as_bytes());
        self.network.pass(ANSWERED);
        let is_open = connection.read_all(&mut replies);
        assert!(sent.is_ok() && is_open, "the model of memcached is gone");
        String::from_utf8_lossy(&replies).into_owned()
    }

    /// Stores a value.
    ///
    /// # Panics
    /// If it does not.
    pub fn set(&self, key: &str, value: &str) {
        let length = value.len();
        let reply = self.ask(&format!("set {key} 0 0 {length}\r\n{value}\r\n"));
        assert_eq!(reply, "STORED\r\n");
    }

    /// Deletes a key that it has.
    ///
    /// # Panics
    /// If it has no such key.
    pub fn delete(&self, key: &str) {
        assert_eq!(self.ask(&format!("delete {key}\r\n")), "DELETED\r\n");
    }
}

fn serve(network: &SimNet, at: SocketAddr, has_cas: bool) -> SimServer {
    let model = Model {
        has_cas,
        ..Model::default()
    };
    match network.serve(at, model) {
        Ok(server) => server,
        Err(error) => panic!("the model of memcached cannot listen on {at}: {error}"),
    }
}

/// The process: its items and its connections.
#[derive(Debug, Default)]
struct Model {
    has_cas: bool,
    last_cas: u64,
    items: BTreeMap<String, Item>,
    sets: u64,
    deletes: u64,
    connections: BTreeMap<u32, Connection>,
}

#[derive(Debug)]
struct Item {
    flags: String,
    value: Vec<u8>,
    cas: u64,
}

#[derive(Debug, Default)]
struct Connection {
    input: Vec<u8>,
    /// Replies that have not been taken yet.
    output: Vec<u8>,
    is_watching: bool,
}

impl Connection {
    /// Writes what there is, as far as it is taken.
    fn flush(&mut self, stream: &mut SimStream) {
        let taken = stream.write(&self.output).unwrap_or(0);
        self.output.drain(..taken);
    }
}

impl Peer for Model {
    fn serve(&mut self, stream: &mut SimStream) {
        let mut connection = self.connections.remove(&stream.id()).unwrap_or_default();
        let is_open = stream.read_all(&mut connection.input);
        while let Some(length) = self.command(&mut connection, stream) {
            connection.input.drain(..length);
        }
        connection.flush(stream);
        if is_open {
            self.connections.insert(stream.id(), connection);
        } else {
            stream.close();
        }
    }
}

impl Model {
    /// Carries out the next command; returns its length if it has come whole.
    fn command(&mut self, connection: &mut Connection, stream: &SimStream) -> Option<usize> {
        let end = connection.input.windows(2).position(|two| two == b"\r\n")?;
        let line = String::from_utf8_lossy(&connection.input[..end]).into_owned();
        let mut length = end + 2;
        let words: Vec<&str> = line.split(' ').collect();
        let reply = match words[..] {
            ["get", ref keys @ ..] => self.get(keys, false),
            ["gets", ref keys @ ..] => self.get(keys, true),
            ["mg", key, ref flags @ ..] => self.meta_get(key, flags),
            ["mn"] => b"MN\r\n".to_vec(),
            ["set", key, flags, _, bytes] => {
                let bytes: usize = bytes.parse().ok()?;
                let value = connection.input.get(length..length + bytes + 2)?;
                length += value.len();
                self.set(key, flags, &value[..bytes]);
                self.tell(stream, key);
                b"STORED\r\n".to_vec()
            }
            ["delete", key] if self.items.remove(key).is_some() => {
                self.deletes += 1;
                b"DELETED\r\n".to_vec()
            }
            ["delete", _] => b"NOT_FOUND\r\n".to_vec(),
            ["version"] => b"VERSION 1.6.18\r\n".to_vec(),
            ["stats"] => self.stats(),
            // This version knows no `deletions`, and refuses all of the words for one.
            ["watch", ref kinds @ ..]
                if kinds
                    .iter()
                    .all(|kind| ["mutations", "evictions"].contains(kind)) =>
            {
                connection.is_watching = true;
                b"OK\r\n".to_vec()
            }
            _ => b"ERROR\r\n".to_vec(),
        };
        connection.output.extend_from_slice(&reply);
        Some(length)
    }

    fn get(&self, keys: &[&str], with_cas: bool) -> Vec<u8> {
        let mut reply = Vec::new();
        for (key, item) in keys.iter().filter_map(|key| self.items.get_key_value(*key)) {
            let Item { flags, value, cas } = item;
            let mut line = format!("VALUE {key} {flags} {}", value.len());
            if with_cas {
                // Writing to a string does not fail.
                let _ = write!(line, " {cas}");
            }
            reply.extend_from_slice(line.as_bytes());
            reply.extend_from_slice(b"\r\n");
            reply.extend_from_slice(value);
            reply.extend_from_slice(b"\r\n");
        }
        reply.extend_from_slice(b"END\r\n");
        reply
    }

    fn meta_get(&self, key: &str, flags: &[&str]) -> Vec<u8> {
        let item = self.items.get(key);
        if item.is_none() && flags.contains(&"q") {
            return Vec::new();
        }
        let value = item
            .map(|item| &item.value)
            .filter(|_| flags.contains(&"v"));
        let mut reply = match (item, value) {
            (None, _) => "EN".to_owned(),
            (_, Some(value)) => format!("VA {}", value.len()),
            (_, None) => "HD".to_owned(),
        };
        for flag in flags {
            let _ = match (*flag, item) {
                ("k", _) => write!(reply, " k{key}"),
                (flag, _) if flag.starts_with('O') => write!(reply, " {flag}"),
                ("c", Some(item)) => write!(reply, " c{}", item.cas),
                ("f", Some(item)) => write!(reply, " f{}", item.flags),
                ("s", Some(item)) => write!(reply, " s{}", item.value.len()),
                _ => Ok(()),
            };
        }
        let mut reply = reply.into_bytes();
        reply.extend_from_slice(b"\r\n");
        if let Some(value) = value {
            reply.extend_from_slice(value);
            reply.extend_from_slice(b"\r\n");
        }
        reply
    }

    fn set(&mut self, key: &str, flags: &str, value: &[u8]) {
        self.sets += 1;
        self.last_cas += u64::from(self.has_cas);
        let item = Item {
            flags: flags.to_owned(),
            value: value.to_vec(),
            cas: self.last_cas,
        };
        self.items.insert(key.to_owned(), item);
    }

    /// Tells the watchers, which are other connections than the one that has stored.
    fn tell(&mut self, stream: &SimStream, key: &str) {
        let line = format!(
            "ts=1.0 gid={} type=item_store key={key} status=stored cmd=set ttl=0 clsid=1 cfd=1\n",
            self.sets
        );
        for (id, connection) in &mut self.connections {
            if connection.is_watching {
                connection.output.extend_from_slice(line.as_bytes());
                connection.flush(&mut stream.beside(*id));
            }
        }
    }

    fn stats(&self) -> Vec<u8> {
        let figures = [
            ("pid", 1),
            ("uptime", 1),
            ("curr_items", self.items.len() as u64),
            ("cmd_set", self.sets),
            ("cmd_flush", 0),
            ("delete_hits", self.deletes),
            ("incr_hits", 0),
            ("decr_hits", 0),
            ("log_worker_dropped", 0),
        ];
        let lines = figures.map(|(name, figure)| format!("STAT {name} {figure}\r\n"));
        (lines.concat() + "END\r\n").into_bytes()
    }
}
