//! The process of a simulated memcached.

use super::quirks::{Chance, Quirks, Struck};
use crate::sim::tls::{PeerStream, SimTls};
use dwell_evloop::sim::{Peer, SimNet, SimServer, SimStream};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// One process of a simulated memcached, whose items a test changes and sees without a connection.
///
/// Shape: the commands and the version are those of [`SimMemcached`](super::SimMemcached). A clone
/// is the same process. A new one has no items, and counts its cas uniques from 1.
///
/// ```
/// use dwell_testkit::sim::{MemcachedOptions, MemcachedProcess, SimNet};
/// use std::io::Write;
/// use std::time::Duration;
///
/// let network = SimNet::new(1);
/// let process = MemcachedProcess::new(MemcachedOptions::default());
/// let server = process.serve(&network, ([127, 0, 0, 1], 11211).into())?;
/// process.set("key", b"value");
/// let mut client = network.connect(server.address());
/// client.write_all(b"get key\r\nadd other 0 0 1\r\nx\r\n")?;
/// network.pass(Duration::from_secs(1));
/// let mut replies = Vec::new();
/// client.read_all(&mut replies);
/// assert_eq!(replies, b"VALUE key 0 5\r\nvalue\r\nEND\r\nSTORED\r\n");
/// assert_eq!(process.take_stored()[0].key, "other");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct MemcachedProcess(Rc<RefCell<Model>>);

/// The command line by which a [`MemcachedProcess`] was started.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemcachedOptions {
    /// Its number; in a container all have the same.
    pub pid: u64,
    /// It counts cas uniques, which `-C` turns off: all of them are 0 then.
    pub has_cas: bool,
    /// It tells watchers of deletions, as it does from version 1.6.20 on.
    pub tells_deletions: bool,
    /// Decides when quirks strike.
    pub seed: u64,
}

impl Default for MemcachedOptions {
    fn default() -> Self {
        Self {
            pid: 1,
            has_cas: true,
            tells_deletions: false,
            seed: 1,
        }
    }
}

/// A value that a client has stored over its connection, or wanted to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Stored {
    /// The key.
    pub key: String,
    /// The value; none where there was no memory for it, and the item before is gone.
    pub value: Option<Vec<u8>>,
    /// There was another value before.
    pub replaces: bool,
}

impl MemcachedProcess {
    /// A process that listens nowhere yet.
    #[must_use]
    pub fn new(options: MemcachedOptions) -> Self {
        Self(Rc::new(RefCell::new(Model {
            options,
            chance: Chance::new(options.seed),
            tls: None,
            paused_until: Duration::ZERO,
            last_cas: 0,
            items: BTreeMap::new(),
            sets: 0,
            deletes: 0,
            flushes: 0,
            dropped_lines: 0,
            stored: Vec::new(),
            connections: BTreeMap::new(),
        })))
    }

    /// Has it listen, until what is returned is dropped: then its connections have ended.
    ///
    /// # Errors
    /// `AddrInUse` when something listens there.
    pub fn serve(&self, network: &SimNet, at: SocketAddr) -> io::Result<SimServer> {
        network.serve(at, self.clone())
    }

    /// Stores a value, as a client does that nothing delays.
    pub fn set(&self, key: &str, value: &[u8]) {
        let mut model = self.0.borrow_mut();
        model.set(key, "0", value);
        model.tell("item_store", key, " status=stored cmd=set ttl=0");
    }

    /// Deletes a key; returns true if it was there.
    pub fn delete(&self, key: &str) -> bool {
        self.0.borrow_mut().delete(key)
    }

    /// Drops an item for want of memory; returns true if it was there.
    pub fn evict(&self, key: &str) -> bool {
        let mut model = self.0.borrow_mut();
        let was_there = model.items.remove(key).is_some();
        if was_there {
            model.tell("eviction", key, " fetch=no ttl=-1");
        }
        was_there
    }

    /// Drops an item whose time is over, of which nobody is told.
    pub fn expire(&self, key: &str) {
        self.0.borrow_mut().items.remove(key);
    }

    /// Drops all items.
    pub fn flush_all(&self) {
        let mut model = self.0.borrow_mut();
        model.flushes += 1;
        model.items.clear();
    }

    /// The cas unique of a key.
    #[must_use]
    pub fn cas_of(&self, key: &str) -> Option<u64> {
        self.0.borrow().items.get(key).map(|item| item.cas)
    }

    /// Counts cas uniques up to this one, as when other keys are stored.
    pub fn count_to(&self, cas: u64) {
        let mut model = self.0.borrow_mut();
        model.last_cas = model.last_cas.max(cas);
    }

    /// Stands still until then: its sockets take bytes, and nothing answers.
    pub fn pause_until(&self, time: Duration) {
        self.0.borrow_mut().paused_until = time;
    }

    /// Resets all connections; returns true if there were some.
    pub fn reset_connections(&self) -> bool {
        let connections = std::mem::take(&mut self.0.borrow_mut().connections);
        for connection in connections.values() {
            connection.stream.reset();
        }
        !connections.is_empty()
    }

    /// Has connections from now on speak TLS, as with `-Z`.
    pub fn set_tls(&self, tls: SimTls) {
        self.0.borrow_mut().tls = Some(tls);
    }

    /// Sets what it does now and then.
    pub fn set_quirks(&self, quirks: Quirks) {
        self.0.borrow_mut().chance.quirks = quirks;
    }

    /// Takes the counts of the quirks that have struck.
    #[must_use]
    pub fn take_struck(&self) -> Struck {
        std::mem::take(&mut self.0.borrow_mut().chance.struck)
    }

    /// Takes what clients have stored since the last call, in its order.
    #[must_use]
    pub fn take_stored(&self) -> Vec<Stored> {
        std::mem::take(&mut self.0.borrow_mut().stored)
    }
}

impl Peer for MemcachedProcess {
    fn serve(&mut self, stream: &mut SimStream) {
        self.0.borrow_mut().serve(stream);
    }
}

/// Its items and its connections.
#[derive(Debug)]
struct Model {
    options: MemcachedOptions,
    /// Its certificates, if its clients speak TLS.
    tls: Option<SimTls>,
    chance: Chance,
    paused_until: Duration,
    last_cas: u64,
    items: BTreeMap<String, Item>,
    sets: u64,
    deletes: u64,
    flushes: u64,
    /// Lines that no watcher was told of.
    dropped_lines: u64,
    stored: Vec<Stored>,
    connections: BTreeMap<u32, Connection>,
}

#[derive(Debug)]
struct Item {
    flags: String,
    value: Vec<u8>,
    cas: u64,
}

#[derive(Debug)]
struct Connection {
    stream: PeerStream,
    input: Vec<u8>,
    /// Replies that have not been taken yet.
    output: Vec<u8>,
    /// Nothing of them leaves before.
    torn_until: Duration,
    is_watching: bool,
    /// Lines that were lost since the last one that was told.
    skipped: u64,
}

impl Connection {
    fn new(stream: &SimStream, tls: Option<&SimTls>) -> Self {
        Self {
            stream: PeerStream::of(stream, tls),
            input: Vec::new(),
            output: Vec::new(),
            torn_until: Duration::ZERO,
            is_watching: false,
            skipped: 0,
        }
    }

    /// Writes what there is, as far as it is taken.
    fn flush(&mut self, chance: &mut Chance) {
        let now = self.stream.elapsed();
        if now < self.torn_until {
            return;
        }
        let (length, rest_after) = chance.tear(self.output.len());
        let taken = self.stream.write(&self.output[..length]).unwrap_or(0);
        self.output.drain(..taken);
        if let Some(time) = rest_after {
            self.torn_until = now + time;
            self.stream.serve_after(time);
        }
    }
}

impl Model {
    fn serve(&mut self, stream: &SimStream) {
        let id = stream.id();
        let rest = self.paused_until.saturating_sub(stream.elapsed());
        if !rest.is_zero() {
            return stream.serve_after(rest);
        }
        let connection = self.connections.remove(&id);
        let mut connection =
            connection.unwrap_or_else(|| Connection::new(stream, self.tls.as_ref()));
        let is_open = connection.stream.read_all(&mut connection.input);
        while let Some(length) = self.command(&mut connection) {
            connection.input.drain(..length);
        }
        connection.flush(&mut self.chance);
        if is_open {
            self.connections.insert(id, connection);
        } else {
            connection.stream.close();
        }
    }

    /// Carries out the next command; returns its length if it has come whole.
    fn command(&mut self, connection: &mut Connection) -> Option<usize> {
        let end = connection.input.windows(2).position(|two| two == b"\r\n")?;
        let line = String::from_utf8_lossy(&connection.input[..end]).into_owned();
        let mut length = end + 2;
        let words: Vec<&str> = line.split(' ').collect();
        let reply = match words[..] {
            ["get", ref keys @ ..] => self.get(keys, false),
            ["gets", ref keys @ ..] => self.get(keys, true),
            ["mg", key, ref flags @ ..] => self.meta_get(key, flags),
            ["mn"] => b"MN\r\n".to_vec(),
            [verb @ ("set" | "add"), key, flags, _, bytes] => {
                let bytes: usize = bytes.parse().ok()?;
                let value = connection.input.get(length..length + bytes + 2)?;
                length += value.len();
                self.store(verb, key, flags, &value[..bytes])
            }
            ["delete", key] if self.delete(key) => b"DELETED\r\n".to_vec(),
            ["delete", _] => b"NOT_FOUND\r\n".to_vec(),
            ["version"] => b"VERSION 1.6.18\r\n".to_vec(),
            ["stats"] => self.stats(),
            ["watch", ref kinds @ ..] if kinds.iter().all(|kind| self.can_tell(kind)) => {
                connection.is_watching = true;
                b"OK\r\n".to_vec()
            }
            _ => b"ERROR\r\n".to_vec(),
        };
        connection.output.extend_from_slice(&reply);
        Some(length)
    }

    /// A version that does not know one of the words of `watch` refuses all of them.
    fn can_tell(&self, kind: &str) -> bool {
        ["mutations", "evictions"].contains(&kind)
            || kind == "deletions" && self.options.tells_deletions
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

    /// Stores what a client has sent, if that may be and there is memory.
    fn store(&mut self, verb: &str, key: &str, flags: &str, value: &[u8]) -> Vec<u8> {
        let replaces = self.items.contains_key(key);
        if verb == "add" && replaces {
            return b"NOT_STORED\r\n".to_vec();
        }
        if self.chance.lacks_memory() {
            // The old item goes with it, as a client would take that for the new one.
            if self.items.remove(key).is_some() {
                self.note_stored(key, None, replaces);
            }
            return b"SERVER_ERROR out of memory storing object\r\n".to_vec();
        }
        self.set(key, flags, value);
        self.note_stored(key, Some(value), replaces);
        let details = format!(" status=stored cmd={verb} ttl=0");
        self.tell("item_store", key, &details);
        b"STORED\r\n".to_vec()
    }

    fn note_stored(&mut self, key: &str, value: Option<&[u8]>, replaces: bool) {
        self.stored.push(Stored {
            key: key.to_owned(),
            value: value.map(<[u8]>::to_vec),
            replaces,
        });
    }

    fn set(&mut self, key: &str, flags: &str, value: &[u8]) {
        self.sets += 1;
        self.last_cas += u64::from(self.options.has_cas);
        let item = Item {
            flags: flags.to_owned(),
            value: value.to_vec(),
            cas: self.last_cas,
        };
        self.items.insert(key.to_owned(), item);
    }

    fn delete(&mut self, key: &str) -> bool {
        let was_there = self.items.remove(key).is_some();
        self.deletes += u64::from(was_there);
        if was_there && self.options.tells_deletions {
            self.tell("deleted", key, " cmd=delete");
        }
        was_there
    }

    /// Tells the watchers, which are other connections than the one that asks.
    fn tell(&mut self, kind: &str, key: &str, details: &str) {
        let key = key.replace('/', "%2F");
        let number = self.sets;
        let line =
            format!("ts=1.0 gid={number} type={kind} key={key}{details} clsid=1 cfd=1 size=1\n");
        let chance = &mut self.chance;
        for connection in self.connections.values_mut().filter(|it| it.is_watching) {
            match chance.loses_line() {
                Some(true) => connection.skipped += 1,
                Some(false) => self.dropped_lines += 1,
                None => {
                    let skipped = std::mem::take(&mut connection.skipped);
                    if skipped > 0 {
                        let text = format!("skipped={skipped}\n");
                        connection.output.extend_from_slice(text.as_bytes());
                    }
                    connection.output.extend_from_slice(line.as_bytes());
                    if connection.stream.elapsed() >= self.paused_until {
                        connection.flush(chance);
                    }
                }
            }
        }
    }

    fn stats(&self) -> Vec<u8> {
        let figures = [
            ("pid", self.options.pid),
            ("uptime", 1),
            ("curr_items", self.items.len() as u64),
            ("cmd_set", self.sets),
            ("cmd_flush", self.flushes),
            ("delete_hits", self.deletes),
            ("incr_hits", 0),
            ("decr_hits", 0),
            ("log_worker_dropped", self.dropped_lines),
        ];
        let lines = figures.map(|(name, figure)| format!("STAT {name} {figure}\r\n"));
        (lines.concat() + "END\r\n").into_bytes()
    }
}
