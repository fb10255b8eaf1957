//! Listening sockets that are there before the process: a service manager has made them.
//!
//! Which of them is for what is told by their addresses: each has to be one that the configuration
//! listens at, and one that nobody would accept from stops the start.
//!
//! Source: `sd_listen_fds(3)`.

use dwell_evloop::{ListenOptions, Listener};
use listenfd::ListenFd;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Where a socket listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

/// The sockets that nobody has asked for yet.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    sockets: Vec<Socket>,
}

#[derive(Debug)]
struct Socket {
    place: Place,
    /// What the service manager calls it.
    name: String,
    descriptor: OwnedFd,
}

/// Why inherited sockets cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum InheritedError {
    /// A descriptor is no socket that listens.
    Unusable {
        /// Its place among those that were passed, from 0.
        index: usize,
        /// What the system says.
        source: io::Error,
    },
    /// The configuration listens at no such address.
    Unwanted {
        /// Its address.
        place: String,
        /// Its name.
        name: String,
    },
}

impl fmt::Display for InheritedError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unusable { index, source } => {
                write!(
                    f,
                    "passed socket number {index} cannot be listened on: {source}"
                )
            }
            Self::Unwanted { place, name } => write!(
                f,
                "passed socket {place} ({name}) is none of server.listen, server.admin, \
                 store.listen, store.listen_also and store.unix_socket"
            ),
        }
    }
}

impl std::error::Error for InheritedError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unusable { source, .. } => Some(source),
            Self::Unwanted { .. } => None,
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Tcp(address) => address.fmt(f),
            Self::Unix(path) => path.display().fmt(f),
        }
    }
}

impl Inherited {
    /// Those that the environment tells of; it does so once.
    ///
    /// # Errors
    /// [`InheritedError::Unusable`].
    pub(super) fn from_environment() -> Result<Self, InheritedError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':').map(str::to_owned);
        let mut passed = ListenFd::from_env();
        let sockets = (0..passed.len()).map(|index| {
            let (place, descriptor) = take(&mut passed, index)
                .map_err(|source| InheritedError::Unusable { index, source })?;
            let name = names.next().unwrap_or_default();
            Ok(Socket {
                place,
                name,
                descriptor,
            })
        });
        let sockets = sockets.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { sockets })
    }

    /// The sockets that listen at `place`, if there are any.
    ///
    /// # Errors
    /// When the system refuses one.
    pub(super) fn take(
        &mut self,
        place: &Place,
        options: ListenOptions,
    ) -> io::Result<Vec<Listener>> {
        let wanted = self.sockets.extract_if(.., |socket| socket.place == *place);
        let listeners = wanted.map(|socket| {
            tracing::info!(listening = %socket.place, name = socket.name, "inherited");
            Listener::from_descriptor(socket.descriptor, options)
        });
        listeners.collect()
    }

    /// Makes sure that every socket has somebody who accepts from it.
    ///
    /// # Errors
    /// [`InheritedError::Unwanted`].
    pub(super) fn finish(self) -> Result<(), InheritedError> {
        match self.sockets.into_iter().next() {
            None => Ok(()),
            Some(Socket { place, name, .. }) => Err(InheritedError::Unwanted {
                place: place.to_string(),
                name,
            }),
        }
    }
}

fn take(passed: &mut ListenFd, index: usize) -> io::Result<(Place, OwnedFd)> {
    // An error leaves the descriptor where it is, so the other kind can be tried.
    if let Ok(Some(socket)) = passed.take_unix_listener(index) {
        return Ok((Place::of_unix(&socket)?, socket.into()));
    }
    let none = || io::Error::other("it was taken before");
    let socket: TcpListener = passed.take_tcp_listener(index)?.ok_or_else(none)?;
    Ok((Place::Tcp(socket.local_addr()?), socket.into()))
}

impl Place {
    fn of_unix(socket: &UnixListener) -> io::Result<Self> {
        let address = socket.local_addr()?;
        let path = address.as_pathname().map(Path::to_owned);
        let unnamed = || io::Error::other("it has no path");
        path.map(Self::Unix).ok_or_else(unnamed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inherited() -> (Inherited, Place) {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::Tcp(socket.local_addr().unwrap());
        let sockets = vec![Socket {
            place: place.clone(),
            name: "web".to_owned(),
            descriptor: socket.into(),
        }];
        (Inherited { sockets }, place)
    }

    #[test]
    fn a_socket_is_taken_once_by_whoever_listens_there() {
        let (mut inherited, place) = inherited();
        let options = ListenOptions::default();
        let elsewhere = Place::Unix("/run/dwell".into());
        assert!(inherited.take(&elsewhere, options).unwrap().is_empty());
        assert_eq!(inherited.take(&place, options).unwrap().len(), 1);
        assert!(inherited.take(&place, options).unwrap().is_empty());
        inherited.finish().unwrap();
    }

    #[test]
    fn a_socket_that_nobody_wants_is_named() {
        let (inherited, place) = inherited();
        let message = inherited.finish().unwrap_err().to_string();
        assert!(message.contains(&format!("{place} (web)")), "{message}");
    }
}
