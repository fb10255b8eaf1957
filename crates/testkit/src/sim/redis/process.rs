//! The process of a simulated Redis.

use super::change::RedisChange;
use super::cluster::{Member, RedisSlots};
use super::quirks::{RedisQuirks, RedisStruck};
use super::server::Model;
use dwell_evloop::sim::{Peer, SimNet, SimServer, SimStream};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// One process of a simulated Redis, whose values a test changes and sees without a connection.
///
/// Shape: it is version 7.0.15 as a client of version 3 of the protocol sees it. It has `HELLO`
/// with `AUTH`, `AUTH` by itself, `CLIENT TRACKING ON`, `PING`, `GET`, `PTTL`, `SET` with `PX`,
/// `NX`, `XX` and `GET`, and `DEL`, and no other command. A clone is the same process. Tracking is
/// that of real servers:
///
/// * a read registers its connection for the next change of the key, whether there is a value or
///   not, and an invalidation ends the registration;
/// * invalidations stand between replies, and those of what a connection changes itself follow its
///   reply;
/// * the end of a lifetime is told when somebody reads the key, or when the cycle finds it;
/// * a flush is one invalidation of everything, and a swap of databases is silent.
///
/// A server of a cluster has `ASKING` and `CLUSTER` with `INFO`, `SLOTS` and `NODES`, too, and
/// redirects commands by the slots that it knows of. A test tells it of them, and moves slots.
///
/// ```
/// use dwell_testkit::sim::{RedisProcess, SimNet};
/// use std::io::Write;
/// use std::time::Duration;
///
/// let network = SimNet::new(1);
/// let process = RedisProcess::new(None, 1);
/// let server = process.serve(&network, ([127, 0, 0, 1], 6379).into())?;
/// let mut client = network.connect(server.address());
/// let mut ask = |words: &[u8]| {
///     client.write_all(words)?;
///     network.pass(Duration::from_secs(1));
///     let mut replies = Vec::new();
///     client.read_all(&mut replies);
///     Ok::<_, std::io::Error>(String::from_utf8_lossy(&replies).into_owned())
/// };
/// ask(b"*2\r\n$5\r\nHELLO\r\n$1\r\n3\r\n")?;
/// ask(b"*3\r\n$6\r\nCLIENT\r\n$8\r\nTRACKING\r\n$2\r\nON\r\n")?;
/// assert_eq!(ask(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")?, "_\r\n");
/// process.set("k", b"value", None);
/// assert_eq!(ask(b"")?, ">2\r\n$10\r\ninvalidate\r\n*1\r\n$1\r\nk\r\n");
/// process.set("k", b"next", None); // it has not read again
/// assert_eq!(ask(b"*2\r\n$3\r\nGET\r\n$1\r\nk\r\n")?, "$4\r\nnext\r\n");
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct RedisProcess(Rc<RefCell<Model>>);

impl RedisProcess {
    /// A process that has no values and listens nowhere yet; `seed` decides when quirks strike.
    #[must_use]
    pub fn new(password: Option<&'static str>, seed: u64) -> Self {
        Self(Rc::new(RefCell::new(Model::new(password, seed))))
    }

    /// Another one of the same cluster: both record the changes of clients in one order.
    #[must_use]
    pub fn beside(&self, seed: u64) -> Self {
        let mut model = Model::new(self.0.borrow().password, seed);
        model.changes = Rc::clone(&self.0.borrow().changes);
        Self(Rc::new(RefCell::new(model)))
    }

    /// Is one of a cluster from now on, and known by this address. It serves nothing while a slot
    /// has no server, if it `needs_all` (`cluster-require-full-coverage`).
    pub fn join(&self, address: SocketAddr, needs_all: bool) {
        self.0.borrow_mut().member = Some(Member {
            address,
            slots: RedisSlots::default(),
            needs_all,
            leaving: BTreeMap::new(),
            coming: BTreeMap::new(),
        });
    }

    /// Knows this of the slots of its cluster from now on.
    pub fn learn(&self, slots: &RedisSlots) {
        if let Some(member) = &mut self.0.borrow_mut().member {
            member.slots = slots.clone();
        }
    }

    /// Has another address from now on, by which those of its cluster know it, too.
    pub fn move_to(&self, address: SocketAddr) {
        if let Some(member) = &mut self.0.borrow_mut().member {
            member.address = address;
        }
    }

    /// Has what the connections that it has now are sent leave at this time, and not before, as on
    /// a way that has become slow.
    pub fn hold_replies_until(&self, time: Duration) {
        let mut model = self.0.borrow_mut();
        let connections = model.connections.values_mut();
        connections.for_each(|connection| connection.hold_until(time));
    }

    /// Begins to move a slot to another server (`CLUSTER SETSLOT` with `MIGRATING` and
    /// `IMPORTING`), or ends that.
    pub fn move_slot(&self, slot: u16, to: &Self, is_begun: bool) {
        let (mut from, mut to) = (self.0.borrow_mut(), to.0.borrow_mut());
        if let (Some(from), Some(to)) = (&mut from.member, &mut to.member) {
            if is_begun {
                from.leaving.insert(slot, to.address);
                to.coming.insert(slot, from.address);
            } else {
                from.leaving.remove(&slot);
                to.coming.remove(&slot);
            }
        }
    }

    /// Gives a key to another server (`MIGRATE`).
    pub fn migrate(&self, key: &str, to: &Self, now: Duration) {
        (self.0.borrow_mut()).migrate(key, &mut to.0.borrow_mut(), now);
    }

    /// Drops the keys whose slots others have; it tells of that as version 8.1 of Valkey does, or
    /// does not, as version 7.0.
    pub fn drop_foreign(&self, is_told: bool) {
        self.0.borrow_mut().drop_foreign(is_told);
    }

    /// Has the values of another server in the place of its own, as its replica.
    pub fn copy(&self, of: &Self) {
        self.0.borrow_mut().copy(&of.0.borrow());
    }

    /// Returns true if a key is there, and its lifetime is not over.
    #[must_use]
    pub fn has(&self, key: &str, now: Duration) -> bool {
        self.0.borrow().has(key, now)
    }

    /// Has it listen, until what is returned is dropped: then its connections have ended.
    ///
    /// # Errors
    /// `AddrInUse` when something listens there.
    pub fn serve(&self, network: &SimNet, at: SocketAddr) -> io::Result<SimServer> {
        network.serve(at, self.clone())
    }

    /// Gives a key a value, which perhaps `ends`, as a client does that nothing delays.
    pub fn set(&self, key: &str, value: &[u8], ends: Option<Duration>) {
        self.0.borrow_mut().put(key, Some(value), ends, None);
    }

    /// Gives a key a list, which `GET` refuses.
    pub fn set_list(&self, key: &str) {
        self.0.borrow_mut().put(key, None, None, None);
    }

    /// Deletes a key, or evicts it; returns true if it was there.
    pub fn delete(&self, key: &str) -> bool {
        self.0.borrow_mut().drop_key(key, None)
    }

    /// Tells of a key that has not changed, as `PERSIST` does.
    pub fn touch(&self, key: &str) {
        self.0.borrow_mut().changed(key, None);
    }

    /// Drops all values.
    pub fn flush_all(&self) {
        self.0.borrow_mut().flush_all();
    }

    /// Has another database with these values in the place of its own (`SWAPDB`).
    pub fn swap(&self, values: Vec<(String, Vec<u8>)>) {
        self.0.borrow_mut().swap(values);
    }

    /// The keys that are there, or whose end nobody has found.
    #[must_use]
    pub fn keys(&self) -> Vec<String> {
        self.0.borrow().keys()
    }

    /// Drops the keys that the cycle finds by now.
    pub fn drop_due(&self, now: Duration) {
        self.0.borrow_mut().drop_due(now);
    }

    /// The moments at which the cycle finds keys.
    #[must_use]
    pub fn drops(&self) -> Vec<Duration> {
        self.0.borrow().drops().collect()
    }

    /// Closes all connections (`CLIENT KILL`); returns true if there were some.
    pub fn close_all(&self) -> bool {
        self.0.borrow_mut().close_all()
    }

    /// Cuts off the connections that track, without a word; returns true if there were some.
    pub fn cut_tracking(&self) -> bool {
        self.0.borrow_mut().cut_tracking()
    }

    /// Stands still until then: its sockets take bytes, and nothing answers.
    pub fn pause_until(&self, time: Duration) {
        self.0.borrow_mut().until.paused = time;
    }

    /// Refuses until then what needs its values, which it reads from a disk.
    pub fn load_until(&self, time: Duration) {
        self.0.borrow_mut().until.loading = time;
    }

    /// Is a replica until then, which takes no writes.
    pub fn refuse_writes_until(&self, time: Duration) {
        self.0.borrow_mut().until.read_only = time;
    }

    /// Tracks for no connection that asks for it before then.
    pub fn refuse_tracking_until(&self, time: Duration) {
        self.0.borrow_mut().until.untracked = time;
    }

    /// Is of a version that knows no `HELLO`, and no `SET` with `GET`: 5, for instance.
    pub fn be_old(&self) {
        self.0.borrow_mut().is_old = true;
    }

    /// Has room for so many keys in its tracking table until then.
    pub fn bound_table_until(&self, most: usize, time: Duration) {
        self.0.borrow_mut().until.table_bound = (most, time);
    }

    /// Sets what it does now and then.
    pub fn set_quirks(&self, quirks: RedisQuirks) {
        self.0.borrow_mut().chance.quirks = quirks;
    }

    /// Takes the counts of the quirks that have struck.
    #[must_use]
    pub fn take_struck(&self) -> RedisStruck {
        std::mem::take(&mut self.0.borrow_mut().chance.struck)
    }

    /// Takes what clients have changed since the last call, in its order.
    #[must_use]
    pub fn take_changes(&self) -> Vec<RedisChange> {
        std::mem::take(&mut self.0.borrow().changes.borrow_mut())
    }

    /// Reads of a key over connections so far.
    #[must_use]
    pub fn reads(&self, key: &str) -> u64 {
        self.0.borrow().reads.get(key).copied().unwrap_or_default()
    }
}

impl Peer for RedisProcess {
    fn serve(&mut self, stream: &mut SimStream) {
        self.0.borrow_mut().serve(stream);
    }
}
