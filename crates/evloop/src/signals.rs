//! Signals delivered through the loop, so that they end its wait at once.

use crate::Token;
use mio::net::UnixStream;
use mio::{Interest, Registry};
use std::io::{self, Read};

/// One pipe per watched signal; the handler writes a byte, the loop reads it.
#[derive(Debug, Default)]
pub(crate) struct Signals {
    pipes: Vec<(i32, UnixStream)>,
}

impl Signals {
    pub(crate) fn watch(&mut self, registry: &Registry, signal: i32) -> io::Result<()> {
        let (read, write) = std::os::unix::net::UnixStream::pair()?;
        read.set_nonblocking(true)?;
        write.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(signal, write)?;
        let mut read = UnixStream::from_std(read);
        registry.register(&mut read, Token::SIGNAL.into(), Interest::READABLE)?;
        self.pipes.push((signal, read));
        Ok(())
    }

    /// The signals that came since the last call; several of one kind count once.
    pub(crate) fn take(&mut self) -> Vec<i32> {
        let mut bytes = [0; 64];
        let mut seen = Vec::new();
        for (signal, pipe) in &mut self.pipes {
            let mut came = false;
            while matches!(pipe.read(&mut bytes), Ok(read) if read > 0) {
                came = true;
            }
            if came {
                seen.push(*signal);
            }
        }
        seen
    }
}
