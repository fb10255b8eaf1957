//! Faults of TLS behind its handshake.

use super::tls::{Fault, fault_of};
use std::fmt;
use std::io;

/// A fault of TLS behind its handshake: the peer's alert, or what it has sent against the protocol.
///
/// ```
/// use dwell_evloop::TlsFault;
/// use std::io::{Error, ErrorKind};
///
/// // That the connection was reset is none.
/// assert_eq!(TlsFault::of(&Error::from(ErrorKind::ConnectionReset)), None);
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TlsFault(Fault);

impl TlsFault {
    /// The fault that an error of a stream under TLS stands for, if it does.
    pub fn of(error: &io::Error) -> Option<Self> {
        fault_of(error).map(Self)
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
