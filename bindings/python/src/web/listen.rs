//! Listening sockets that Python has made.

use dwell_evloop::Listener;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};

/// Takes over a socket that listens already.
///
/// # Errors
/// When `descriptor` is no descriptor of a listening socket.
#[expect(unsafe_code, reason = "a descriptor comes from Python as a number")]
pub(crate) fn adopt(descriptor: RawFd, is_unix: bool) -> io::Result<Listener> {
    if descriptor < 0 {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    // SAFETY: Python gives the descriptor away with `socket.detach()`, so nobody else closes it;
    // a number that is no descriptor fails in the calls that follow.
    let socket = unsafe { OwnedFd::from_raw_fd(descriptor) };
    if is_unix {
        Listener::from_unix(socket.into())
    } else {
        Listener::from_tcp(socket.into())
    }
}
