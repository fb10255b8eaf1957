//! The connection of a client: a simulated socket, perhaps with TLS on it.

use crate::keys::Broken;
use crate::tls::Tls;
use dwell_evloop::sim::SimStream;
use std::io::{self, Write};
use std::time::Duration;

/// One connection to the edge.
pub(crate) struct Connection {
    stream: SimStream,
    tls: Option<Box<Tls>>,
}

impl Connection {
    pub(crate) fn plain(stream: SimStream) -> Self {
        Self { stream, tls: None }
    }

    pub(crate) fn secure(stream: SimStream, tls: Tls) -> Self {
        let mut connection = Self {
            stream,
            tls: Some(Box::new(tls)),
        };
        // The first flight of the handshake.
        if let Some(tls) = &mut connection.tls {
            tls.flush(&mut connection.stream);
        }
        connection
    }

    /// Writes what is taken of these bytes now.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match &mut self.tls {
            Some(tls) => Ok(tls.write(&mut self.stream, bytes)),
            None => self.stream.write(bytes),
        }
    }

    /// Returns true if a read would give something, or has something to send.
    pub(crate) fn is_readable(&self) -> bool {
        let owes = |tls: &Tls| tls.has_pending();
        self.stream.is_readable() || self.tls.as_deref().is_some_and(owes)
    }

    /// Reads all that has come; returns false at the end of the connection.
    pub(crate) fn read_all(&mut self, into: &mut Vec<u8>) -> bool {
        let Some(tls) = &mut self.tls else {
            return self.stream.read_all(into);
        };
        let is_open = self.stream.read_all(&mut tls.received);
        tls.take_received(&mut self.stream, into);
        is_open
    }

    /// Reads at most `most` bytes of what has come; returns false at the end of the connection.
    pub(crate) fn read_little(&mut self, into: &mut Vec<u8>, most: usize) -> bool {
        let Some(tls) = &mut self.tls else {
            return self.stream.read_little(into, most);
        };
        let is_open = self.stream.read_little(&mut tls.received, most);
        tls.take_received(&mut self.stream, into);
        is_open
    }

    pub(crate) fn set_window(&self, bytes: usize) {
        self.stream.set_window(bytes);
    }

    /// Ends the sending side: under TLS by its own means, by those of the socket, or by both.
    pub(crate) fn shutdown_write(&mut self) -> io::Result<()> {
        let Some(tls) = &mut self.tls else {
            return self.stream.shutdown_write();
        };
        if tls.finish(&mut self.stream) {
            return Ok(());
        }
        self.stream.shutdown_write()
    }

    /// Ends the connection in this way; under TLS the peer is told of it or not.
    pub(crate) fn leave(mut self, leave: impl FnOnce(&SimStream)) {
        if let Some(tls) = &mut self.tls {
            tls.say_goodbye(&mut self.stream);
        }
        leave(&self.stream);
    }

    /// Returns true if the server may have given up its handshake, and has read no request then.
    pub(crate) fn is_unconfirmed(&self) -> bool {
        self.tls.as_deref().is_some_and(Tls::is_unconfirmed)
    }

    /// Returns true if it ends with the process that has it: under TLS 1.2 it goes to no successor.
    pub(crate) fn stays_behind(&self) -> bool {
        self.tls.as_deref().is_some_and(Tls::is_tls12)
    }

    /// Checks that the server follows TLS, and that nothing of it is late. `is_read` says that the
    /// server has read all that was sent: while it owes an answer, it reads nothing.
    pub(crate) fn check(
        &self,
        now: Duration,
        clear_since: Duration,
        is_read: bool,
    ) -> Result<(), Broken> {
        let tls = self.tls.as_deref();
        tls.map_or(Ok(()), |tls| tls.check(now, clear_since, is_read))
    }
}
