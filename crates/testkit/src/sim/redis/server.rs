//! The values and the commands of a simulated Redis.

use super::change::RedisChange;
use super::cluster::{Member, RedisSlots};
use super::connection::Connection;
use super::quirks::Chance;
use super::tracking::TrackingTable;
use dwell_evloop::sim::SimStream;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::time::Duration;

/// Its values and its connections.
#[derive(Debug)]
pub(super) struct Model {
    /// The password of its default user, if it has one.
    pub(super) password: Option<&'static str>,
    /// It has version 2 of the protocol alone.
    pub(super) is_old: bool,
    /// Its part in a cluster, if it is one of a cluster.
    pub(super) member: Option<Member>,
    pub(super) chance: Chance,
    pub(super) until: Until,
    items: BTreeMap<String, Item>,
    tracking: TrackingTable,
    pub(super) connections: BTreeMap<u32, Connection>,
    /// Connections so far that were greeted.
    greeted: u64,
    /// The changes that clients have made over their connections; servers of a cluster share it.
    pub(super) changes: Rc<RefCell<Vec<RedisChange>>>,
    /// Reads of each key so far.
    pub(super) reads: BTreeMap<String, u64>,
}

/// The moments at which its states of a while are over.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Until {
    /// It stands still.
    pub(super) paused: Duration,
    /// It reads its values from a disk, and refuses commands that need them.
    pub(super) loading: Duration,
    /// It is a replica, and refuses to write.
    pub(super) read_only: Duration,
    /// Its ACL refuses tracking.
    pub(super) untracked: Duration,
    /// Its tracking table has room for so many keys alone.
    pub(super) table_bound: (usize, Duration),
}

/// A value of a key.
#[derive(Clone, Debug)]
struct Item {
    /// The bytes; none where it is a list.
    text: Option<Vec<u8>>,
    /// The end of its lifetime, and the moment at which the cycle finds that.
    ends: Option<(Duration, Duration)>,
}

/// The options of a `SET`.
#[derive(Default)]
struct SetOptions {
    lifetime: Option<Duration>,
    /// The key has to be there (`XX`), or may not be (`NX`).
    is_there: Option<bool>,
    /// The reply is the value that was there.
    gets: bool,
}

impl SetOptions {
    fn of(words: &[&[u8]]) -> Option<Self> {
        let (mut options, mut words) = (Self::default(), words.iter());
        while let Some(word) = words.next() {
            match *word {
                b"PX" => {
                    let time = text(words.next()?).parse().ok()?;
                    options.lifetime = Some(Duration::from_millis(time));
                }
                b"NX" => options.is_there = Some(false),
                b"XX" => options.is_there = Some(true),
                b"GET" => options.gets = true,
                _ => return None,
            }
        }
        Some(options)
    }
}

impl Model {
    pub(super) fn new(password: Option<&'static str>, seed: u64) -> Self {
        Self {
            password,
            is_old: false,
            member: None,
            chance: Chance::new(seed),
            until: Until::default(),
            items: BTreeMap::new(),
            tracking: TrackingTable::default(),
            connections: BTreeMap::new(),
            greeted: 0,
            changes: Rc::default(),
            reads: BTreeMap::new(),
        }
    }

    pub(super) fn serve(&mut self, stream: &SimStream) {
        let now = stream.elapsed();
        let rest = self.until.paused.saturating_sub(now);
        if !rest.is_zero() {
            return stream.serve_after(rest);
        }
        let known = self.connections.remove(&stream.id());
        let mut connection =
            known.unwrap_or_else(|| Connection::new(stream, self.password.is_none()));
        let is_open = connection.read();
        while let Some(words) = connection.take_command() {
            let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
            let reply = self.command(&mut connection, &words, now);
            connection.reply(&reply);
            self.bound_table(&mut connection, now);
        }
        connection.flush(&mut self.chance);
        if is_open {
            self.connections.insert(stream.id(), connection);
        } else {
            self.tracking.forget(stream.id());
            connection.stream.close();
        }
    }

    /// Carries a command out; returns the reply.
    fn command(&mut self, by: &mut Connection, words: &[&[u8]], now: Duration) -> Vec<u8> {
        match *words {
            [b"HELLO", ..] if self.is_old => {
                self.chance.struck.not_greeted += 1;
                return b"-ERR unknown command `HELLO`\r\n".to_vec();
            }
            [b"AUTH", password] => return self.authenticate(by, password),
            [b"HELLO", b"3", ref rest @ ..] => return self.greet(by, rest),
            _ if !by.is_authenticated => return b"-NOAUTH Authentication required.\r\n".to_vec(),
            [b"CLIENT", b"TRACKING", b"ON"] => return self.track(by, now),
            _ if now < self.until.loading => {
                return b"-LOADING Redis is loading the dataset in memory\r\n".to_vec();
            }
            _ => {}
        }
        if let Some(reply) = self.as_member(by, words, now) {
            return reply.into_bytes();
        }
        match *words {
            [b"PING"] => b"+PONG\r\n".to_vec(),
            [b"GET", key] => self.get(by, &text(key), now),
            [b"PTTL", key] => self.lifetime(by, &text(key), now),
            [b"SET" | b"DEL", ..] if now < self.until.read_only => {
                b"-READONLY You can't write against a read only replica.\r\n".to_vec()
            }
            [b"SET", key, value, ref options @ ..] => {
                self.store(by, &text(key), value, options, now)
            }
            [b"DEL", key] => self.remove(by, &text(key), now),
            [name, ..] => format!("-ERR unknown command '{}'\r\n", text(name)).into_bytes(),
            [] => b"-ERR Protocol error\r\n".to_vec(),
        }
    }

    /// The reply of a server of a cluster, where that is not the one of any server.
    fn as_member(&self, by: &mut Connection, words: &[&[u8]], now: Duration) -> Option<String> {
        let member = self.member.as_ref()?;
        let is_asking = std::mem::take(&mut by.is_asking);
        match *words {
            [b"ASKING"] => {
                by.is_asking = true;
                Some("+OK\r\n".to_owned())
            }
            [b"CLUSTER", what] => member.reply(what),
            [b"GET" | b"PTTL" | b"SET" | b"DEL", key, ..] => {
                let key = text(key);
                member.refusal(&key, self.has(&key, now), is_asking)
            }
            _ => None,
        }
    }

    /// Returns true if a key is there, and its lifetime is not over.
    pub(super) fn has(&self, key: &str, now: Duration) -> bool {
        let item = self.items.get(key);
        item.is_some_and(|item| item.ends.is_none_or(|(ends, _)| ends > now))
    }

    /// Gives a key to another server (`MIGRATE`): both tell those who have read it.
    pub(super) fn migrate(&mut self, key: &str, to: &mut Self, now: Duration) {
        let item = self.items.get(key).cloned().filter(|_| self.has(key, now));
        if !self.drop_key(key, None) {
            return;
        }
        if let Some(item) = item {
            to.items.insert(key.to_owned(), item);
            to.changed(key, None);
        }
    }

    /// Drops the keys whose slots others have, and tells of it or not.
    pub(super) fn drop_foreign(&mut self, is_told: bool) {
        let Some(member) = &self.member else {
            return;
        };
        let is_foreign = |key: &&String| {
            let slot = RedisSlots::slot_of(key);
            let is_own = member.slots.owner(slot) == Some(member.address);
            !is_own && !member.coming.contains_key(&slot)
        };
        let foreign: Vec<_> = self.items.keys().filter(is_foreign).cloned().collect();
        for key in foreign {
            if is_told {
                self.drop_key(&key, None);
            } else {
                self.items.remove(&key);
            }
        }
    }

    /// Has the values of another server in the place of its own, and nobody is told.
    pub(super) fn copy(&mut self, of: &Self) {
        self.items.clone_from(&of.items);
    }

    /// The reply where there is nothing.
    fn nothing(&self) -> Vec<u8> {
        let nothing: &[u8] = if self.is_old { b"$-1\r\n" } else { b"_\r\n" };
        nothing.to_vec()
    }

    fn authenticate(&self, by: &mut Connection, password: &[u8]) -> Vec<u8> {
        by.is_authenticated = self.password.is_none_or(|it| password == it.as_bytes());
        if by.is_authenticated {
            return b"+OK\r\n".to_vec();
        }
        b"-WRONGPASS invalid username-password pair or user is disabled.\r\n".to_vec()
    }

    fn greet(&mut self, by: &mut Connection, options: &[&[u8]]) -> Vec<u8> {
        let options = match *options {
            [b"AUTH", user, password, ref rest @ ..] => {
                let is_right = self.password.is_none_or(|it| password == it.as_bytes());
                if user != b"default" || !is_right {
                    return b"-WRONGPASS invalid username-password pair or user is disabled.\r\n"
                        .to_vec();
                }
                by.is_authenticated = true;
                rest
            }
            ref rest => rest,
        };
        match options {
            _ if !by.is_authenticated => b"-NOAUTH HELLO must be called with the client already \
                authenticated\r\n"
                .to_vec(),
            [] | [b"SETNAME", _] => {
                self.greeted += 1;
                let id = self.greeted;
                let mode = self.member.as_ref().map_or("standalone", |_| "cluster");
                let text = format!(
                    "%7\r\n+server\r\n+redis\r\n+version\r\n+7.0.15\r\n+proto\r\n:3\r\n+id\r\n\
                     :{id}\r\n+mode\r\n+{mode}\r\n+role\r\n+master\r\n+modules\r\n*0\r\n"
                );
                text.into_bytes()
            }
            _ => b"-ERR Syntax error in HELLO\r\n".to_vec(),
        }
    }

    fn track(&self, by: &mut Connection, now: Duration) -> Vec<u8> {
        if now < self.until.untracked || self.is_old {
            return b"-NOPERM this user has no permissions to run the 'client|tracking' command\r\n"
                .to_vec();
        }
        by.is_tracking = true;
        b"+OK\r\n".to_vec()
    }

    fn get(&mut self, by: &mut Connection, key: &str, now: Duration) -> Vec<u8> {
        *self.reads.entry(key.to_owned()).or_default() += 1;
        self.read(by, key, now);
        match self.items.get(key).map(|item| &item.text) {
            Some(Some(value)) => bulk(value),
            Some(None) => WRONG_TYPE.to_vec(),
            None => self.nothing(),
        }
    }

    fn lifetime(&mut self, by: &mut Connection, key: &str, now: Duration) -> Vec<u8> {
        self.read(by, key, now);
        let left = match self.items.get(key).map(|item| item.ends) {
            Some(Some((ends, _))) => ends.saturating_sub(now).as_millis() as i64,
            Some(None) => -1,
            None => -2,
        };
        format!(":{left}\r\n").into_bytes()
    }

    /// A command that only reads names a key.
    fn read(&mut self, by: &mut Connection, key: &str, now: Duration) {
        self.expire(key, now, Some(by));
        if by.is_tracking {
            self.tracking.register(key, by.stream.id());
        }
    }

    fn store(
        &mut self,
        by: &mut Connection,
        key: &str,
        value: &[u8],
        options: &[&[u8]],
        now: Duration,
    ) -> Vec<u8> {
        let options = SetOptions::of(options).filter(|it| !it.gets || !self.is_old);
        let Some(options) = options else {
            return b"-ERR syntax error\r\n".to_vec();
        };
        self.expire(key, now, Some(by));
        let before = self.items.get(key).map(|item| item.text.clone());
        if self.chance.lacks_memory() {
            return b"-OOM command not allowed when used memory > 'maxmemory'.\r\n".to_vec();
        }
        if options.gets && before == Some(None) {
            return WRONG_TYPE.to_vec();
        }
        if options
            .is_there
            .is_some_and(|wanted| wanted != before.is_some())
        {
            return self.nothing();
        }
        let ends = options.lifetime.map(|lifetime| now + lifetime);
        self.put(key, Some(value), ends, Some(by));
        self.changes.borrow_mut().push(RedisChange {
            key: key.to_owned(),
            value: Some(value.to_vec()),
            ends,
        });
        match before.flatten() {
            _ if !options.gets => b"+OK\r\n".to_vec(),
            Some(before) => bulk(&before),
            None => self.nothing(),
        }
    }

    fn remove(&mut self, by: &mut Connection, key: &str, now: Duration) -> Vec<u8> {
        self.expire(key, now, Some(by));
        if !self.drop_key(key, Some(by)) {
            return b":0\r\n".to_vec();
        }
        self.changes.borrow_mut().push(RedisChange {
            key: key.to_owned(),
            value: None,
            ends: None,
        });
        b":1\r\n".to_vec()
    }

    /// Gives a key this value, or a list.
    pub(super) fn put(
        &mut self,
        key: &str,
        value: Option<&[u8]>,
        ends: Option<Duration>,
        by: Option<&mut Connection>,
    ) {
        let ends = ends.map(|ends| (ends, ends + self.chance.drop_delay()));
        let text = value.map(<[u8]>::to_vec);
        self.items.insert(key.to_owned(), Item { text, ends });
        self.changed(key, by);
    }

    /// Drops a key; returns true if it was there.
    pub(super) fn drop_key(&mut self, key: &str, by: Option<&mut Connection>) -> bool {
        let was_there = self.items.remove(key).is_some();
        if was_there {
            self.changed(key, by);
        }
        was_there
    }

    /// Drops a key whose lifetime is over.
    fn expire(&mut self, key: &str, now: Duration, by: Option<&mut Connection>) {
        let item = self.items.get(key);
        if item.is_some_and(|item| item.ends.is_some_and(|(ends, _)| ends <= now)) {
            self.drop_key(key, by);
        }
    }

    /// Drops the keys that the cycle finds now.
    pub(super) fn drop_due(&mut self, now: Duration) {
        let is_due = |item: &Item| item.ends.is_some_and(|(_, found)| found <= now);
        let due = self.items.iter().filter(|(_, item)| is_due(item));
        let due: Vec<String> = due.map(|(key, _)| key.clone()).collect();
        for key in due {
            self.chance.struck.dropped += 1;
            self.drop_key(&key, None);
        }
    }

    /// The moments at which the cycle finds a key.
    pub(super) fn drops(&self) -> impl Iterator<Item = Duration> {
        let found = self.items.values().filter_map(|item| item.ends);
        found.map(|(_, found)| found)
    }

    /// The keys that are there.
    pub(super) fn keys(&self) -> Vec<String> {
        self.items.keys().cloned().collect()
    }

    /// Drops everything; every client that tracks is told so.
    pub(super) fn flush_all(&mut self) {
        self.items.clear();
        self.tracking.clear();
        let is_running = |connection: &Connection, paused| connection.stream.elapsed() >= paused;
        for connection in self.connections.values_mut().filter(|it| it.is_tracking) {
            connection.push(b">2\r\n$10\r\ninvalidate\r\n_\r\n");
            if is_running(connection, self.until.paused) {
                connection.flush(&mut self.chance);
            }
        }
    }

    /// Another database takes the place of this one, of which nobody is told.
    pub(super) fn swap(&mut self, values: Vec<(String, Vec<u8>)>) {
        let item = |text| Item {
            text: Some(text),
            ends: None,
        };
        let items = values.into_iter().map(|(key, value)| (key, item(value)));
        self.items = items.collect();
    }

    /// Tells those who have read a key that it has changed, or may have.
    pub(super) fn changed(&mut self, key: &str, mut by: Option<&mut Connection>) {
        let mut push = b">2\r\n$10\r\ninvalidate\r\n*1\r\n".to_vec();
        push.extend(bulk(key.as_bytes()));
        for id in self.tracking.take(key) {
            if let Some(by) = by.as_deref_mut().filter(|by| by.stream.id() == id) {
                by.push_behind(&push);
            } else if let Some(connection) = self.connections.get_mut(&id) {
                connection.push(&push);
                if connection.stream.elapsed() >= self.until.paused {
                    connection.flush(&mut self.chance);
                }
            }
        }
    }

    /// Tells of keys that have not changed, as long as there are more than the table may have.
    fn bound_table(&mut self, by: &mut Connection, now: Duration) {
        let (most, until) = self.until.table_bound;
        while now < until && self.tracking.len() > most {
            let place = self.chance.choose(self.tracking.len());
            if let Some(key) = self.tracking.name(place) {
                self.chance.struck.pushed_out += 1;
                self.changed(&key, Some(by));
            }
        }
        // No reply follows.
        by.reply(b"");
    }

    /// Closes all connections; returns true if there were some.
    pub(super) fn close_all(&mut self) -> bool {
        let connections = std::mem::take(&mut self.connections);
        self.tracking.clear();
        for connection in connections.values() {
            connection.stream.close();
        }
        !connections.is_empty()
    }

    /// Cuts off the connections that track, without a word; returns true if there were some.
    pub(super) fn cut_tracking(&mut self) -> bool {
        let before = self.connections.len();
        self.connections.retain(|id, connection| {
            if connection.is_tracking {
                self.tracking.forget(*id);
                connection.stream.silence();
            }
            !connection.is_tracking
        });
        before > self.connections.len()
    }
}

const WRONG_TYPE: &[u8] = b"-WRONGTYPE Operation against a key holding the wrong kind of value\r\n";

fn text(word: &[u8]) -> String {
    String::from_utf8_lossy(word).into_owned()
}

fn bulk(bytes: &[u8]) -> Vec<u8> {
    let mut reply = format!("${}\r\n", bytes.len()).into_bytes();
    reply.extend_from_slice(bytes);
    reply.extend_from_slice(b"\r\n");
    reply
}
