//! Listening sockets that one process gives another, and their addresses.

use super::passed::Passed;
use dwell_evloop::Listener;
use std::ffi::OsStr;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::{fmt, io};

/// Purpose of a socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub(crate) enum Role {
    /// Clients that poll.
    Client = 0,
    /// Operators of the process.
    Admin = 1,
    /// memcached clients.
    Store = 2,
}

impl Role {
    /// The option that sets its address.
    pub(crate) fn option(self) -> &'static str {
        match self {
            Self::Client => "--listen",
            Self::Admin => "--admin",
            Self::Store => "--store",
        }
    }

    /// The role with this number in a frame.
    pub(crate) fn of(number: u8) -> Option<Self> {
        let all = [Self::Client, Self::Admin, Self::Store];
        all.into_iter().find(|role| *role as u8 == number)
    }
}

/// A listening socket on its way to another process.
#[derive(Debug)]
pub(crate) struct InheritedListener {
    pub(crate) role: Role,
    pub(crate) address: ListenAddress,
    /// The file of its address goes with it.
    pub(crate) owns_file: bool,
    pub(crate) descriptor: Passed,
}

/// Address of a listening socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ListenAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl ListenAddress {
    /// Reads the path of a unix socket.
    ///
    /// # Errors
    /// The socket has no path.
    pub(crate) fn of_unix(socket: &UnixListener) -> io::Result<Self> {
        let address = socket.local_addr()?;
        let path = address.as_pathname().map(Path::to_owned);
        let unnamed = || io::Error::other("it has no path");
        path.map(Self::Unix).ok_or_else(unnamed)
    }

    /// Reads the address of a listener.
    pub(crate) fn of(listener: &Listener) -> io::Result<Self> {
        if let Some(address) = listener.address() {
            return Ok(Self::Tcp(address));
        }
        let twin = listener.as_fd().try_clone_to_owned()?;
        Self::of_unix(&UnixListener::from(twin))
    }

    /// Returns true if both have the same IP address, on any ports.
    pub(crate) fn is_beside(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Tcp(one), Self::Tcp(other)) if one.ip() == other.ip())
    }

    /// Encodes the address for another process.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Tcp(address) => address.to_string().into_bytes(),
            Self::Unix(path) => path.as_os_str().as_bytes().to_vec(),
        }
    }

    /// Decodes the output of [`to_bytes`](Self::to_bytes): an IP address with a port, or a path.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let address = std::str::from_utf8(bytes).ok();
        match address.and_then(|text| text.parse().ok()) {
            Some(address) => Self::Tcp(address),
            None => Self::Unix(OsStr::from_bytes(bytes).into()),
        }
    }
}

impl fmt::Display for ListenAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_and_a_path_come_back_from_their_bytes() {
        let addresses = [
            ListenAddress::Tcp("127.0.0.1:80".parse().unwrap()),
            ListenAddress::Tcp("[::1]:80".parse().unwrap()),
            ListenAddress::Unix("/run/dwell.sock".into()),
            ListenAddress::Unix(OsStr::from_bytes(b"\xff").into()),
        ];
        for address in addresses {
            assert_eq!(ListenAddress::from_bytes(&address.to_bytes()), address);
        }
    }

    #[test]
    fn only_ports_may_differ_beside_an_address() {
        let of = |text: &str| ListenAddress::Tcp(text.parse().unwrap());
        let unix = || ListenAddress::Unix("/run/dwell.sock".into());
        assert!(of("127.0.0.1:80").is_beside(&of("127.0.0.1:81")));
        assert!(!of("127.0.0.1:80").is_beside(&of("127.0.0.2:80")));
        assert!(!unix().is_beside(&unix()));
    }
}
