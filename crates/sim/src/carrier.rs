//! A simulated socket, perhaps with TLS on it.

use crate::keys::Broken;
use crate::tls::Tls;
use dwell_evloop::sim::SimStream;
use std::io::{self, Write};
use std::time::Duration;

/// One socket to the edge.
pub(crate) enum Carrier {
    Plain(SimStream),
    Secure(SimStream, Box<Tls>),
}

impl Carrier {
    pub(crate) fn secure(mut stream: SimStream, mut tls: Tls) -> Self {
        // The first flight of the handshake.
        tls.flush(&mut stream);
        Self::Secure(stream, Box::new(tls))
    }

    fn stream(&self) -> &SimStream {
        let (Self::Plain(stream) | Self::Secure(stream, _)) = self;
        stream
    }

    pub(crate) fn tls(&self) -> Option<&Tls> {
        match self {
            Self::Plain(_) => None,
            Self::Secure(_, tls) => Some(tls),
        }
    }

    pub(crate) fn elapsed(&self) -> Duration {
        self.stream().elapsed()
    }

    /// Returns true if its handshake is not over.
    pub(crate) fn is_shaking(&self) -> bool {
        self.tls().is_some_and(Tls::is_shaking)
    }

    /// Returns true if the network is to take something that was written.
    pub(crate) fn has_pending(&self) -> bool {
        self.tls().is_some_and(Tls::has_pending)
    }

    /// Writes what is taken of these bytes now.
    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Plain(stream) => stream.write(bytes),
            Self::Secure(stream, tls) => Ok(tls.write(stream, bytes)),
        }
    }

    /// Returns true if a read would give something, or has something to send.
    pub(crate) fn is_readable(&self) -> bool {
        self.stream().is_readable() || self.has_pending()
    }

    /// Reads all that has come; returns false at the end of the connection.
    pub(crate) fn read_all(&mut self, into: &mut Vec<u8>) -> bool {
        match self {
            Self::Plain(stream) => stream.read_all(into),
            Self::Secure(stream, tls) => {
                let is_open = stream.read_all(&mut tls.received);
                tls.take_received(stream, into);
                is_open
            }
        }
    }

    /// Reads at most `most` bytes of what has come; returns false at the end of the connection.
    pub(crate) fn read_little(&mut self, into: &mut Vec<u8>, most: usize) -> bool {
        match self {
            Self::Plain(stream) => stream.read_little(into, most),
            Self::Secure(stream, tls) => {
                let is_open = stream.read_little(&mut tls.received, most);
                tls.take_received(stream, into);
                is_open
            }
        }
    }

    pub(crate) fn set_window(&self, bytes: usize) {
        self.stream().set_window(bytes);
    }

    /// Ends the sending side: under TLS by its own means, by those of the socket, or by both.
    ///
    /// # Errors
    /// As the socket says.
    pub(crate) fn shutdown_write(&mut self) -> io::Result<()> {
        if let Self::Secure(stream, tls) = self
            && tls.finish(stream)
        {
            return Ok(());
        }
        self.stream().shutdown_write()
    }

    /// Ends the connection in this way; under TLS the peer is told of it or not.
    pub(crate) fn leave(&mut self, leave: impl FnOnce(&SimStream)) {
        if let Self::Secure(stream, tls) = self {
            tls.say_goodbye(stream);
        }
        leave(self.stream());
    }

    /// Checks that the server follows TLS, and that nothing of it is late. `is_read` says that the
    /// server has read all that was sent.
    pub(crate) fn check(
        &self,
        now: Duration,
        clear_since: Duration,
        is_read: bool,
    ) -> Result<(), Broken> {
        self.tls()
            .map_or(Ok(()), |tls| tls.check(now, clear_since, is_read))
    }
}
