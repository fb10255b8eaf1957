//! Listening sockets that Python has made.

use super::options::Options;
use dwell_evloop::Listener;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes over a socket that listens already, and puts its clients under TLS if the options have it.
///
/// # Errors
/// When `descriptor` is no descriptor of a listening socket.
#[expect(unsafe_code, reason = "a descriptor comes from Python as a number")]
pub(crate) fn adopt(descriptor: RawFd, is_unix: bool, options: &Options) -> io::Result<Listener> {
    if descriptor < 0 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: Python gives the descriptor away with `socket.detach()`, so nobody else closes it;
    // a number that is no descriptor fails in the calls that follow.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    let mut listener = if is_unix {
        Listener::from_unix(socket.into())?
    } else {
        Listener::from_tcp(socket.into())?
    };
    if let Some(tls) = &options.tls {
        tls.get().secure(&mut listener, options.http2);
    }
    Ok(listener)
}
