//! Servers that send a command to another one.

use super::slots::redirected_to;
use crate::connection::Flight;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// The server that has to be sent a command in the place of another one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Redirect {
    /// The one at this address has the slot from now on, if it has one.
    Moved(Option<SocketAddr>),
    /// The one at this address may have the key, whose slot is about to move there.
    Ask(Option<SocketAddr>),
    /// The one that has the key now, as far as it is known.
    Owner,
}

impl Redirect {
    /// Reads `MOVED slot address` or `ASK slot address` of the server at `asked`.
    pub(crate) fn read(text: &[u8], asked: SocketAddr) -> Option<Self> {
        let mut words = text.split(|byte| *byte == b' ');
        let of: fn(Option<SocketAddr>) -> Self = match words.next()? {
            b"MOVED" => Self::Moved,
            b"ASK" => Self::Ask,
            _ => return None,
        };
        let address = words.nth(1).unwrap_or_default();
        Some(of(redirected_to(address, asked)))
    }

    pub(crate) fn address(self) -> Option<SocketAddr> {
        match self {
            Self::Moved(address) | Self::Ask(address) => address,
            Self::Owner => None,
        }
    }
}

/// A record by which an operation is sent once more.
#[derive(Debug)]
pub(crate) struct Repeat {
    /// The command as it is sent.
    pub(crate) wire: Arc<[u8]>,
    pub(crate) slot: u16,
    /// The operation ends by then, whichever servers are asked.
    pub(crate) deadline: Instant,
    pub(crate) redirects: u8,
    /// It was sent to where its slot is about to move.
    pub(crate) is_asking: bool,
}

/// A command that a server did not execute, and the one that may.
#[derive(Debug)]
pub(crate) struct Redirected {
    pub(crate) flight: Flight,
    /// The server that has replied.
    pub(crate) from: usize,
    pub(crate) redirect: Redirect,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn redirections_are_told_from_other_errors() {
        let asked = "10.0.0.9:7000".parse().unwrap();
        let read = |text: &str| Redirect::read(text.as_bytes(), asked);
        assert_eq!(
            read("MOVED 5 10.0.0.1:7"),
            Some(Redirect::Moved("10.0.0.1:7".parse().ok()))
        );
        assert_eq!(
            read("ASK 5 ::1:7"),
            Some(Redirect::Ask("[::1]:7".parse().ok()))
        );
        assert_eq!(
            read("MOVED 5 :7"),
            Some(Redirect::Moved("10.0.0.9:7".parse().ok()))
        );
        for text in ["MOVED", "MOVED 5", "MOVED 5 ?:7", "MOVED 5 a.test:7"] {
            assert_eq!(read(text), Some(Redirect::Moved(None)), "{text}");
        }
        assert_eq!(read("ERR MOVED 5 10.0.0.1:7"), None);
        assert_eq!(read("MOVEDX 5 10.0.0.1:7"), None);
    }
}
