//! A simulated network with a clock of its own: loops, clients and servers of one thread, in an
//! order that a seed chooses. For tests; the feature `sim` has it.
//!
//! While a thread has a [`SimNet`], whatever it makes is simulated: an
//! [`EventLoop`](crate::EventLoop) waits for the network instead of the system and reads the
//! simulated clock, [`bind_group`](crate::bind_group) and
//! [`Stream::connect`](crate::Stream::connect) give simulated sockets, and an inbox ends the wait
//! of its loop by an event. Nothing of it opens a socket or waits for time: a wait of an hour is
//! over when its first event is, or at once.
//!
//! Events stand in a calendar by their time; the seed decides among those of one time, how long
//! each takes within the bounds of the [`Link`], into which pieces bytes are split, and which
//! writes are refused. The same seed and the same calls give the same [`Trace`].
//!
//! ```
//! use dwell_evloop::sim::SimNet;
//! use dwell_evloop::{Context, Driver, EventLoop, ListenOptions, Listener};
//! use dwell_evloop::{Readiness, Token, bind_group};
//! use std::time::Duration;
//!
//! /// Accepts clients and lets them go an hour later.
//! struct Host(Listener, Option<dwell_evloop::Stream>);
//! impl Driver for Host {
//!     type Message = ();
//!     fn ready(&mut self, context: &mut Context, token: Token, _: Readiness) {
//!         let Self(listener, client) = self;
//!         listener.accept_batch(context, token, |context, stream, _| {
//!             *client = Some(stream);
//!             context.arm(Token::new(1, 0, 1), Duration::from_secs(3600));
//!         });
//!     }
//!     fn expired(&mut self, _: &mut Context, _: Token) {
//!         self.1 = None;
//!     }
//!     fn message(&mut self, _: &mut Context, (): ()) {}
//! }
//!
//! let network = SimNet::new(7);
//! let mut event_loop = EventLoop::new()?;
//! let any = ([127, 0, 0, 1], 0).into();
//! let mut listener = bind_group(any, 1, ListenOptions::default())?.remove(0);
//! let address = listener.address().expect("it is bound");
//! listener.register(event_loop.context(), Token::new(1, 0, 0))?;
//! let mut host = Host(listener, None);
//! let client = network.connect(address);
//! while !client.has_ended() {
//!     event_loop.turn(&mut host, Some(Duration::from_secs(600)))?;
//! }
//! assert!(network.elapsed() >= Duration::from_secs(3600));
//! # Ok::<(), std::io::Error>(())
//! ```

mod calendar;
mod current;
mod cutting;
mod delivery;
mod end;
mod link;
mod listening;
mod names;
mod network;
mod peer;
mod planted;
mod socket;
#[cfg(test)]
mod tests;
mod trace;

pub use link::Link;
pub use names::address_of;
pub use peer::{Peer, SimServer};
pub use planted::{Planted, plant};
pub use socket::{SimListener, SimStream};
pub use trace::Trace;

pub(crate) use current::{Registering, draw, is_on, now, origin, wall};
pub(crate) use network::SimLoop;
pub(crate) use socket::SimSocket;

use current::with;
use std::io;
use std::marker::PhantomData;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

/// The simulated network of this thread, which ends when it is dropped; sockets and loops that are
/// left then do nothing more.
#[derive(Debug)]
pub struct SimNet {
    /// It belongs to its thread.
    _thread: PhantomData<*const ()>,
}

impl SimNet {
    /// Makes the network of this thread, whose orders `seed` chooses.
    ///
    /// # Panics
    /// If the thread has one.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        current::begin(seed);
        Self {
            _thread: PhantomData,
        }
    }

    /// Sets how bytes travel from now on.
    pub fn set_link(&self, link: Link) {
        with(|network| network.link = link);
    }

    /// Simulated time since the network was made.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        with(|network| network.elapsed()).unwrap_or_default()
    }

    /// The events so far, as numbers that can be compared.
    #[must_use]
    pub fn trace(&self) -> Trace {
        with(|network| network.trace).unwrap_or_default()
    }

    /// Returns the time of the next event, as [`elapsed`](Self::elapsed) counts.
    #[must_use]
    pub fn next_event(&self) -> Option<Duration> {
        let next = with(|network| network.calendar.next_at());
        next.flatten().map(Duration::from_nanos)
    }

    /// Sets the wall clock forward or back by so many seconds, against what it would read.
    pub fn set_wall(&self, seconds: i64) {
        with(|network| network.wall_ahead = seconds);
    }

    /// Keeps a line for each event from now on.
    pub fn begin_record(&self) {
        with(|network| network.record = Some(Vec::new()));
    }

    /// Puts a line between those of the events, if they are kept.
    pub fn remark(&self, line: impl FnOnce() -> String) {
        with(|network| network.remark(line));
    }

    /// Takes the lines that were kept.
    #[must_use]
    pub fn take_record(&self) -> Vec<String> {
        let taken = with(|network| network.record.as_mut().map(std::mem::take));
        taken.flatten().unwrap_or_default()
    }

    /// Begins a connection that a test holds; bytes that are written before it is there follow it.
    #[must_use]
    pub fn connect(&self, to: SocketAddr) -> SimStream {
        SimStream::new(SimSocket::connect(to, true))
    }

    /// Listens for a test, which accepts the connections.
    ///
    /// # Errors
    /// `AddrInUse` when something listens there.
    pub fn listen(&self, at: SocketAddr) -> io::Result<SimListener> {
        SimListener::new(at)
    }

    /// Has a server answer at an address, until what is returned is dropped.
    ///
    /// # Errors
    /// `AddrInUse` when something listens there.
    pub fn serve(&self, at: SocketAddr, peer: impl Peer + 'static) -> io::Result<SimServer> {
        SimServer::start(at, Box::new(peer))
    }

    /// Has all connections to this address [sealed](SimStream::seal) from their beginning.
    pub fn seal_at(&self, at: SocketAddr) {
        with(|network| network.sealed.push(at));
    }

    /// Cuts an address off, until it is [joined](Self::join_at) again: what is on its way to and
    /// from it disappears, its connections are [silent](SimStream::silence) for good, and those
    /// that are asked for get no answer.
    ///
    /// ```
    /// use dwell_evloop::sim::SimNet;
    /// use std::io::Write;
    /// use std::time::Duration;
    ///
    /// let network = SimNet::new(1);
    /// let listener = network.listen(([127, 0, 0, 1], 11211).into())?;
    /// let mut client = network.connect(listener.address());
    /// network.pass(Duration::from_secs(1));
    /// let server = listener.accept().expect("a client has come");
    /// network.cut_off(listener.address());
    /// client.write_all(b"version\r\n")?;
    /// let late = network.connect(listener.address());
    /// network.pass(Duration::from_secs(3600));
    /// assert!(!server.is_readable() && listener.accept().is_none());
    /// assert!(!client.has_ended() && !late.has_ended(), "nobody is told");
    /// assert_eq!(network.silent_at(listener.address()), 1);
    ///
    /// network.join_at(listener.address());
    /// let next = network.connect(listener.address());
    /// network.pass(Duration::from_secs(1));
    /// assert!(listener.accept().is_some() && !server.is_readable());
    ///
    /// network.reset_silent_at(listener.address());
    /// assert!(client.has_ended() && !late.has_ended() && !next.has_ended());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cut_off(&self, at: SocketAddr) {
        with(|network| cutting::cut_off(network, at));
    }

    /// Number of connections to an address that have fallen silent, and that their clients have not
    /// closed.
    #[must_use]
    pub fn silent_at(&self, at: SocketAddr) -> usize {
        with(|network| cutting::silent_at(network, at).len()).unwrap_or_default()
    }

    /// Resets those connections, as a machine does that is there again and has lost them.
    pub fn reset_silent_at(&self, at: SocketAddr) {
        with(|network| cutting::reset_silent_at(network, at));
    }

    /// Joins an address again that was [cut off](Self::cut_off): connections from now on are as
    /// others.
    pub fn join_at(&self, at: SocketAddr) {
        with(|network| cutting::join_at(network, at));
    }

    /// Has a name lead to an address, for those who [look it up](address_of) from now on.
    ///
    /// ```
    /// use dwell_evloop::sim::{SimNet, address_of};
    ///
    /// let network = SimNet::new(1);
    /// network.name("redis.test", [127, 0, 0, 2].into());
    /// assert_eq!(address_of("redis.test"), Some([127, 0, 0, 2].into()));
    /// drop(network);
    /// assert_eq!(address_of("redis.test"), None);
    /// ```
    pub fn name(&self, name: &str, ip: IpAddr) {
        names::set(name, ip);
    }

    /// Lets time pass with all that happens in it, but for what the loops do.
    pub fn pass(&self, time: Duration) {
        delivery::pass(time);
    }
}

impl Drop for SimNet {
    fn drop(&mut self) {
        peer::remove_all();
        names::remove_all();
        current::end();
    }
}
