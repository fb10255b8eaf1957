//! Inherited listening sockets, from a service manager or from the predecessor.
//!
//! The purpose of a service manager's socket follows from its address, which must be one that the
//! configuration listens at. A socket that no listener would use stops the start.
//!
//! Source: `sd_listen_fds(3)`.

use crate::handoff::{InheritedListener, ListenAddress, Passed, Role};
use dwell_evloop::{ListenOptions, Listener};
use listenfd::ListenFd;
use std::fmt;
use std::io;
use std::net::TcpListener;
use std::os::fd::OwnedFd;

/// Inherited sockets that no listener has taken.
#[derive(Debug, Default)]
pub(super) struct Inherited {
    sockets: Vec<Socket>,
}

#[derive(Debug)]
struct Socket {
    /// Purpose of the socket, if known.
    role: Option<Role>,
    address: ListenAddress,
    /// The name given by the service manager.
    name: String,
    descriptor: Passed,
}

/// Reason why inherited sockets cannot be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum InheritedError {
    /// A descriptor is not a listening socket.
    Unusable {
        /// Its index among those that were passed.
        index: usize,
        /// Error of the system.
        source: io::Error,
    },
    /// No option of the configuration has the address.
    Unwanted {
        /// Its address.
        address: String,
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
            Self::Unwanted { address, name } => write!(
                f,
                "passed socket {address} ({name}) is not one of server.listen, server.admin, \
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

impl Inherited {
    /// Takes the sockets named by the environment; later calls find none.
    ///
    /// # Errors
    /// [`InheritedError::Unusable`].
    pub(super) fn from_environment() -> Result<Self, InheritedError> {
        let names = std::env::var("LISTEN_FDNAMES").unwrap_or_default();
        let mut names = names.split(':').map(str::to_owned);
        let mut passed = ListenFd::from_env();
        let sockets = (0..passed.len()).map(|index| {
            let (address, descriptor) = take(&mut passed, index)
                .map_err(|source| InheritedError::Unusable { index, source })?;
            let name = names.next().unwrap_or_default();
            Ok(Socket {
                role: None,
                address,
                name,
                descriptor: descriptor.into(),
            })
        });
        let sockets = sockets.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { sockets })
    }

    /// Takes the sockets of the predecessor.
    pub(super) fn handed(sockets: Vec<InheritedListener>) -> Self {
        let sockets = sockets.into_iter().map(|handed| Socket {
            role: Some(handed.role),
            address: handed.address,
            name: String::new(),
            descriptor: handed.descriptor,
        });
        Self {
            sockets: sockets.collect(),
        }
    }

    /// Takes the sockets that listen at `address`, if there are any. With `is_loose` the port may
    /// differ.
    ///
    /// # Errors
    /// The error of the system.
    pub(super) fn take(
        &mut self,
        role: Role,
        address: &ListenAddress,
        is_loose: bool,
        options: ListenOptions,
    ) -> io::Result<Vec<Listener>> {
        let of_role = |socket: &&Socket| socket.role.is_none_or(|other| other == role);
        let mut addresses = self
            .sockets
            .iter()
            .filter(of_role)
            .map(|socket| &socket.address);
        let like = |other: &&ListenAddress| is_loose && other.is_beside(address);
        let exact = addresses.clone().any(|other| other == address);
        let address = if exact {
            address.clone()
        } else {
            match addresses.find(like) {
                Some(other) => other.clone(),
                None => return Ok(Vec::new()),
            }
        };
        let is_wanted = |socket: &mut Socket| of_role(&&*socket) && socket.address == address;
        let listeners = self.sockets.extract_if(.., is_wanted).map(|socket| {
            tracing::info!(listening = %socket.address, name = socket.name, "inherited");
            socket.descriptor.into_listener(options)
        });
        listeners.collect()
    }

    /// Checks that every socket of a service manager is used. Further sockets of the predecessor
    /// are closed.
    ///
    /// # Errors
    /// [`InheritedError::Unwanted`].
    pub(super) fn finish(self) -> Result<(), InheritedError> {
        let mut left = self.sockets.into_iter();
        match left.find(|socket| socket.role.is_none()) {
            None => Ok(()),
            Some(Socket { address, name, .. }) => Err(InheritedError::Unwanted {
                address: address.to_string(),
                name,
            }),
        }
    }
}

fn take(passed: &mut ListenFd, index: usize) -> io::Result<(ListenAddress, OwnedFd)> {
    // A failed call leaves the descriptor in place, so the other kind can be tried.
    if let Ok(Some(socket)) = passed.take_unix_listener(index) {
        return Ok((ListenAddress::of_unix(&socket)?, socket.into()));
    }
    let none = || io::Error::other("it was taken before");
    let socket: TcpListener = passed.take_tcp_listener(index)?.ok_or_else(none)?;
    Ok((ListenAddress::Tcp(socket.local_addr()?), socket.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn inherited() -> (Inherited, ListenAddress) {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = ListenAddress::Tcp(socket.local_addr().unwrap());
        let sockets = vec![Socket {
            role: None,
            address: address.clone(),
            name: "web".to_owned(),
            descriptor: Passed::Descriptor(socket.into()),
        }];
        (Inherited { sockets }, address)
    }

    #[test]
    fn a_socket_is_taken_once_by_whoever_listens_there() {
        let (mut inherited, address) = inherited();
        let options = ListenOptions::default();
        let elsewhere = ListenAddress::Unix("/run/dwell".into());
        assert!(
            inherited
                .take(Role::Client, &elsewhere, false, options)
                .unwrap()
                .is_empty()
        );
        assert_eq!(
            inherited
                .take(Role::Client, &address, false, options)
                .unwrap()
                .len(),
            1
        );
        assert!(
            inherited
                .take(Role::Client, &address, false, options)
                .unwrap()
                .is_empty()
        );
        inherited.finish().unwrap();
    }

    #[test]
    fn those_of_the_process_before_have_their_roles_and_may_be_left() {
        let handed = |role| {
            let socket = TcpListener::bind("127.0.0.1:0").unwrap();
            let address = ListenAddress::Tcp(socket.local_addr().unwrap());
            assert_eq!(ListenAddress::from_bytes(&address.to_bytes()), address);
            let descriptor = Passed::Descriptor(socket.into());
            InheritedListener {
                role,
                address,
                owns_file: false,
                descriptor,
            }
        };
        let mut inherited = Inherited::handed(vec![handed(Role::Client), handed(Role::Store)]);
        let options = ListenOptions::default();
        let any = ListenAddress::Tcp("127.0.0.1:0".parse().unwrap());
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
        let (inherited, address) = inherited();
        let message = inherited.finish().unwrap_err().to_string();
        assert!(message.contains(&format!("{address} (web)")), "{message}");
    }
}
