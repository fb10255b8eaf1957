//! The connection of a client: a simulated socket, perhaps with TLS on it, or a place on a
//! connection of HTTP/2.

use crate::carrier::Carrier;
use crate::h2::Requests;
use crate::keys::Broken;
use crate::tls::Tls;
use dwell_evloop::sim::SimStream;
use std::io::{self, ErrorKind};
use std::time::Duration;

/// One connection to the edge.
pub(crate) struct Connection(Way);

/// The way of bytes to the edge and back.
enum Way {
    Own(Carrier),
    Streams(Requests),
}

impl Connection {
    /// Has a socket of its own.
    pub(crate) fn own(carrier: Carrier) -> Self {
        Self(Way::Own(carrier))
    }

    /// Has each request on a stream of HTTP/2.
    pub(crate) fn streams(requests: Requests) -> Self {
        Self(Way::Streams(requests))
    }

    /// Writes what is taken of these bytes now.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.0 {
            Way::Own(carrier) => carrier.write(bytes),
            Way::Streams(requests) => Ok(requests.write(bytes)),
        }
    }

    /// Returns true if a read would give something, or has something to send.
    pub(crate) fn is_readable(&self) -> bool {
        match &self.0 {
            Way::Own(carrier) => carrier.is_readable(),
            Way::Streams(requests) => requests.is_readable(),
        }
    }

    /// Reads all that has come; returns false at the end of the connection.
    pub(crate) fn read_all(&mut self, into: &mut Vec<u8>) -> bool {
        match &mut self.0 {
            Way::Own(carrier) => carrier.read_all(into),
            Way::Streams(requests) => requests.read(into, usize::MAX),
        }
    }

    /// Reads at most `most` bytes of what has come; returns false at the end of the connection.
    pub(crate) fn read_little(&mut self, into: &mut Vec<u8>, most: usize) -> bool {
        match &mut self.0 {
            Way::Own(carrier) => carrier.read_little(into, most),
            Way::Streams(requests) => requests.read(into, most),
        }
    }

    pub(crate) fn set_window(&self, bytes: usize) {
        match &self.0 {
            Way::Own(carrier) => carrier.set_window(bytes),
            Way::Streams(requests) => requests.set_window(bytes),
        }
    }

    /// Ends the sending side.
    ///
    /// # Errors
    /// A stream that is no WebSocket has none, as its request is whole.
    pub(crate) fn shutdown_write(&mut self) -> io::Result<()> {
        match &mut self.0 {
            Way::Own(carrier) => carrier.shutdown_write(),
            Way::Streams(requests) => {
                let has_finished = requests.finish();
                has_finished
                    .then_some(())
                    .ok_or_else(|| ErrorKind::Unsupported.into())
            }
        }
    }

    /// Ends the connection in this way. A stream is reset.
    pub(crate) fn leave(self, leave: impl FnOnce(&SimStream)) {
        match self.0 {
            Way::Own(mut carrier) => carrier.leave(leave),
            Way::Streams(requests) => drop(requests),
        }
    }

    fn requests(&self) -> Option<&Requests> {
        match &self.0 {
            Way::Streams(requests) => Some(requests),
            Way::Own(_) => None,
        }
    }

    fn tls(&self) -> Option<&Tls> {
        match &self.0 {
            Way::Own(carrier) => carrier.tls(),
            Way::Streams(_) => None,
        }
    }

    /// Returns true if each of its requests has a stream.
    pub(crate) fn has_streams(&self) -> bool {
        self.requests().is_some()
    }

    /// Returns true if the server has not begun with its request, and says so.
    pub(crate) fn is_refused(&self) -> bool {
        self.requests().is_some_and(Requests::is_refused)
    }

    /// Returns true if its windows have held up an answer for as long as a process that ends waits.
    pub(crate) fn has_stalled(&self) -> bool {
        self.requests().is_some_and(Requests::has_stalled)
    }

    /// Returns true if its client has ended the connection under it.
    pub(crate) fn is_own_end(&self) -> bool {
        self.requests().is_some_and(Requests::is_own_end)
    }

    /// Returns true if another client has told of the end of the connection under it.
    pub(crate) fn is_end_told(&self) -> bool {
        self.requests().is_some_and(Requests::is_end_told)
    }

    /// The last moment at which the connection under it has hindered what comes.
    pub(crate) fn clear_since(&self) -> Duration {
        let since = self.requests().map(Requests::clear_since);
        since.unwrap_or_default()
    }

    /// Returns true if the server may have given up its handshake, and has read no request then.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        let is_shared = self.requests().is_some_and(Requests::is_unconfirmed);
        is_shared || self.tls().is_some_and(Tls::is_unconfirmed)
    }

    /// Returns true if it ends with the process that has it: under TLS 1.2 it goes to no successor.
    pub(crate) fn stays_behind(&self) -> bool {
        self.tls().is_some_and(Tls::is_tls12)
    }

    /// Checks that the server follows TLS, and that nothing of it is late. `is_read` says that the
    /// server has read all that was sent: while it owes an answer, it reads nothing.
    pub(crate) fn check(
        &self,
        now: Duration,
        clear_since: Duration,
        is_read: bool,
    ) -> Result<(), Broken> {
        match &self.0 {
            Way::Own(carrier) => carrier.check(now, clear_since, is_read),
            Way::Streams(_) => Ok(()),
        }
    }
}
