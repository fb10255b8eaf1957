//! Listening sockets that are there before the process: a service manager has made them, or the
//! process that this one succeeds.
//!
//! Which of a service manager's is for what is told by their addresses: each has to be one that the
//! configuration listens at, and one that nobody would accept from stops the start.
//!
//! Source: `sd_listen_fds(3)`.

use super::upgrade::{Handed, Role};
use dwell_evloop::{ListenOptions, Listener};
use listenfd::ListenFd;
use std::ffi::OsStr;
use std::fmt;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
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
    /// What it is for, if that is known.
    role: Option<Role>,
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
                role: None,
                place,
                name,
                descriptor,
            })
        });
        let sockets = sockets.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { sockets })
    }

    /// Those of the process before this one.
    pub(super) fn handed(sockets: Vec<Handed>) -> Self {
        let sockets = sockets.into_iter().map(|handed| Socket {
            role: Some(handed.role),
            place: handed.place,
            name: String::new(),
            descriptor: handed.descriptor,
        });
        Self {
            sockets: sockets.collect(),
        }
    }

    /// The sockets that listen at `place`, if there are any; `is_loose` says that the port may be
    /// another.
    ///
    /// # Errors
    /// When the system refuses one.
    pub(super) fn take(
        &mut self,
        role: Role,
        place: &Place,
        is_loose: bool,
        options: ListenOptions,
    ) -> io::Result<Vec<Listener>> {
        let of_role = |socket: &&Socket| socket.role.is_none_or(|other| other == role);
        let mut places = self
            .sockets
            .iter()
            .filter(of_role)
            .map(|socket| &socket.place);
        let like = |other: &&Place| is_loose && other.is_beside(place);
        let exact = places.clone().any(|other| other == place);
        let place = if exact {
            place.clone()
        } else {
            match places.find(like) {
                Some(other) => other.clone(),
                None => return Ok(Vec::new()),
            }
        };
        let is_wanted = |socket: &mut Socket| of_role(&&*socket) && socket.place == place;
        let listeners = self.sockets.extract_if(.., is_wanted).map(|socket| {
            tracing::info!(listening = %socket.place, name = socket.name, "inherited");
            Listener::from_descriptor(socket.descriptor, options)
        });
        listeners.collect()
    }

    /// Makes sure that every socket of a service manager has somebody who accepts from it. What the
    /// process before has listened at beside it is closed.
    ///
    /// # Errors
    /// [`InheritedError::Unwanted`].
    pub(super) fn finish(self) -> Result<(), InheritedError> {
        let mut left = self.sockets.into_iter();
        match left.find(|socket| socket.role.is_none()) {
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

    /// That of a listener whose descriptor has this twin.
    pub(crate) fn of(listener: &Listener, twin: &OwnedFd) -> io::Result<Self> {
        match listener.address() {
            Some(address) => Ok(Self::Tcp(address)),
            None => Self::of_unix(&UnixListener::from(twin.try_clone()?)),
        }
    }

    /// Whether both are on one address, with any ports.
    fn is_beside(&self, other: &Self) -> bool {
        matches!((self, other), (Self::Tcp(one), Self::Tcp(other)) if one.ip() == other.ip())
    }

    /// As one process tells it another.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        match self {
            Self::Tcp(address) => address.to_string().into_bytes(),
            Self::Unix(path) => path.as_os_str().as_bytes().to_vec(),
        }
    }

    /// What [`to_bytes`](Self::to_bytes) has made: an address, or the path that it is else.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Self {
        let address = std::str::from_utf8(bytes).ok();
        match address.and_then(|text| text.parse().ok()) {
            Some(address) => Self::Tcp(address),
            None => Self::Unix(OsStr::from_bytes(bytes).into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inherited() -> (Inherited, Place) {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let place = Place::Tcp(socket.local_addr().unwrap());
        let sockets = vec![Socket {
            role: None,
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
        assert!(
            inherited
                .take(Role::Client, &elsewhere, false, options)
                .unwrap()
                .is_empty()
        );
        assert_eq!(
            inherited
                .take(Role::Client, &place, false, options)
                .unwrap()
                .len(),
            1
        );
        assert!(
            inherited
                .take(Role::Client, &place, false, options)
                .unwrap()
                .is_empty()
        );
        inherited.finish().unwrap();
    }

    #[test]
    fn those_of_the_process_before_have_their_roles_and_may_be_left() {
        let handed = |role| {
            let socket = TcpListener::bind("127.0.0.1:0").unwrap();
            let place = Place::Tcp(socket.local_addr().unwrap());
            assert_eq!(Place::from_bytes(&place.to_bytes()), place);
            let descriptor = socket.into();
            Handed {
                role,
                place,
                owns_file: false,
                descriptor,
            }
        };
        let mut inherited = Inherited::handed(vec![handed(Role::Client), handed(Role::Store)]);
        let options = ListenOptions::default();
        let any = Place::Tcp("127.0.0.1:0".parse().unwrap());
        let mut taken = |role, is_loose| {
            let taken = inherited.take(role, &any, is_loose, options).unwrap();
            taken.len()
        };
        assert_eq!(taken(Role::Client, false), 0, "its port is another");
        assert_eq!(taken(Role::Admin, true), 0);
        assert_eq!(taken(Role::Client, true), 1);
        inherited.finish().unwrap();
    }

    #[test]
    fn a_socket_that_nobody_wants_is_named() {
        let (inherited, place) = inherited();
        let message = inherited.finish().unwrap_err().to_string();
        assert!(message.contains(&format!("{place} (web)")), "{message}");
    }
}
