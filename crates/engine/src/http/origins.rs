//! The origins of connections: the addresses of clients, and the labels of listeners.

use super::listener_labels::ListenerLabels;
use super::peers::Peers;
use dwell_evloop::{Stream, Token};
use std::net::SocketAddr;

/// The origins of connections, as far as they are kept, each by the token of its connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origins<'a> {
    peers: Option<&'a Peers>,
    labels: Option<&'a ListenerLabels>,
}

impl<'a> Origins<'a> {
    pub(super) fn new(peers: Option<&'a Peers>, labels: Option<&'a ListenerLabels>) -> Self {
        Self { peers, labels }
    }

    /// The origin of a connection.
    pub(crate) fn of(self, connection: Token) -> Origin<'a> {
        Origin {
            all: self,
            connection,
        }
    }
}

/// The origin of one connection.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Origin<'a> {
    all: Origins<'a>,
    pub(crate) connection: Token,
}

impl Origin<'_> {
    /// The address of the client, asked of the system unless it is kept; `None` over a unix
    /// socket, or when it is gone.
    pub(crate) fn address(self, stream: &Stream) -> Option<SocketAddr> {
        match self.all.peers {
            Some(peers) => peers.find(self.connection, stream),
            None => stream.peer_address().ok().flatten(),
        }
    }

    /// The label of the listener that has accepted the connection, if it has one.
    pub(crate) fn label(self) -> Option<u8> {
        self.all.labels?.find(self.connection)
    }
}
