//! A model of memcached.

mod process;
mod quirks;

pub use process::{MemcachedOptions, MemcachedProcess, Stored};
pub use quirks::{Quirks, Struck};

use dwell_evloop::sim::{SimNet, SimServer};
use std::io::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::time::Duration;

/// A memcached that is simulated: version 1.6.18 as clients of the text and meta commands see it.
///
/// Shape: it has `get`, `gets`, `mg`, `mn`, `set`, `add`, `delete`, `version`, `stats` and `watch`,
/// and answers `ERROR` to everything else. Items neither expire nor are evicted. Watchers are told
/// of what is stored, not of what is deleted.
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
    let options = MemcachedOptions {
        has_cas,
        ..MemcachedOptions::default()
    };
    match MemcachedProcess::new(options).serve(network, at) {
        Ok(server) => server,
        Err(error) => panic!("the model of memcached cannot listen on {at}: {error}"),
    }
}
