//! Simulated servers that answer by themselves.

use super::current::with;
use super::end::Owner;
use super::network::Network;
use super::socket::{SimListener, SimStream};
use std::cell::RefCell;
use std::io;
use std::net::SocketAddr;

/// A simulated server that answers without the test, on any number of connections.
///
/// It is called in the middle of a wait, so it turns no loop.
pub trait Peer {
    /// Something has happened to a connection: it has come, has brought bytes, an end or a reset,
    /// or has room again. More of it may come at once; a call that finds nothing is no fault.
    ///
    /// Shape: the network keeps the connection until the peer closes it.
    fn serve(&mut self, connection: &mut SimStream);
}

/// The place of a [`Peer`], which ends with all its connections when this is dropped, as a process
/// does that is killed.
#[derive(Debug)]
pub struct SimServer {
    listener: SimListener,
    peer: u32,
}

thread_local! {
    /// The peers of the network of this thread, by their numbers. They stand beside it because they
    /// use it when they are called.
    static PEERS: RefCell<Vec<Option<Box<dyn Peer>>>> = const { RefCell::new(Vec::new()) };
}

impl SimServer {
    pub(super) fn start(at: SocketAddr, peer: Box<dyn Peer>) -> io::Result<Self> {
        let number = PEERS.with_borrow_mut(|peers| {
            peers.push(Some(peer));
            peers.len() as u32 - 1
        });
        let listener = SimListener::of(at, Owner::Peer(number))?;
        Ok(Self {
            listener,
            peer: number,
        })
    }

    /// The address it listens on.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.listener.address()
    }
}

impl Drop for SimServer {
    fn drop(&mut self) {
        with(|network| network.close_all_of(self.peer));
        drop(take(self.peer));
    }
}

/// Calls the peer that has this end.
pub(super) fn serve(end: u32) {
    let owner = with(|network: &mut Network| network.peer_of(end)).flatten();
    if let Some(number) = owner
        && let Some(mut peer) = take(number)
    {
        peer.serve(&mut SimStream::borrowed(end));
        PEERS.with_borrow_mut(|peers| {
            if let Some(place) = peers.get_mut(number as usize) {
                *place = Some(peer);
            }
        });
    }
}

/// Ends all of them.
pub(super) fn remove_all() {
    // A peer may hold sockets, which look for the network when they are dropped.
    drop(PEERS.take());
}

fn take(number: u32) -> Option<Box<dyn Peer>> {
    let taken = PEERS.try_with(|peers| {
        peers
            .borrow_mut()
            .get_mut(number as usize)
            .and_then(Option::take)
    });
    taken.ok().flatten()
}
