//! Listening sockets made by another process: a service manager, or the process before this.

use super::unix::SocketFile;
use super::{ListenOptions, Listener, Socket};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

impl Listener {
    /// Takes over a socket, TCP or unix, that is bound already and may listen already.
    ///
    /// Shape: the backlog is that of `options` from now on; the file of a unix socket is left
    /// alone, unless [`own_file`](Self::own_file) says otherwise.
    ///
    /// # Errors
    /// What the system says of a descriptor that cannot listen, such as a connected socket's.
    ///
    /// ```
    /// use dwell_evloop::{ListenOptions, Listener};
    ///
    /// let socket = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let address = socket.local_addr()?;
    /// let listener = Listener::from_descriptor(socket.into(), ListenOptions::default())?;
    /// assert_eq!(listener.address(), Some(address));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn from_descriptor(descriptor: OwnedFd, options: ListenOptions) -> io::Result<Self> {
        let socket = socket2::Socket::from(descriptor);
        // Of one that listens already it changes nothing but the backlog.
        socket.listen(options.backlog)?;
        if socket.local_addr()?.is_unix() {
            return Self::from_unix(OwnedFd::from(socket).into());
        }
        Self::from_tcp(socket.into())
    }

    /// Removes the file of a unix socket at `path` with the listener from now on, as one does that
    /// was bound here.
    ///
    /// # Errors
    /// When there is no file at `path`.
    pub fn own_file(&mut self, path: &Path) -> io::Result<()> {
        if let Socket::Unix(file, _) = &mut self.socket {
            *file = Some(Arc::new(SocketFile::at(path)?));
        }
        Ok(())
    }

    /// Leaves the file of a unix socket where it is, although this listener and its
    /// [clones](Self::try_clone) end: another process listens on.
    pub fn leave_file(&self) {
        if let Socket::Unix(Some(file), _) = &self.socket {
            file.leave();
        }
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        match &self.socket {
            Socket::Tcp(socket, _) => socket.as_fd(),
            Socket::Unix(_, socket) => socket.as_fd(),
            #[cfg(feature = "sim")]
            Socket::Sim(..) => panic!("a simulated socket has no descriptor"),
        }
    }
}

/// Gives every one of `loops` loops at least one of the listeners of an address, and leaves none
/// out: clients in a socket without a loop would wait for ever.
///
/// # Errors
/// When no descriptor is left for another loop on the same socket.
pub fn share_out(listeners: Vec<Listener>, loops: usize) -> io::Result<Vec<Vec<Listener>>> {
    let mut of_loops: Vec<Vec<Listener>> = (0..loops).map(|_| Vec::new()).collect();
    let count = listeners.len();
    for (index, of_loop) in of_loops.iter_mut().enumerate().skip(count) {
        let twin = index
            .checked_rem(count)
            .and_then(|twin| listeners.get(twin));
        of_loop.extend(twin.map(Listener::try_clone).transpose()?);
    }
    for (index, listener) in listeners.into_iter().enumerate() {
        if let Some(of_loop) = index.checked_rem(loops) {
            of_loops[of_loop].push(listener);
        }
    }
    Ok(of_loops)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bind_group, bind_unix};
    use std::net::{SocketAddr, TcpStream, UdpSocket};

    #[test]
    fn only_a_listening_socket_is_taken() {
        let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
        let tcp = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(tcp.local_addr().unwrap()).unwrap();
        let file = std::fs::File::open("Cargo.toml").unwrap();
        for descriptor in [OwnedFd::from(udp), client.into(), file.into()] {
            Listener::from_descriptor(descriptor, ListenOptions::default()).unwrap_err();
        }
        Listener::from_descriptor(tcp.into(), ListenOptions::default()).unwrap();
    }

    #[test]
    fn the_file_of_a_unix_socket_has_one_owner() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let first = bind_unix(&path, ListenOptions::default()).unwrap();
        let descriptor = first.as_fd().try_clone_to_owned().unwrap();
        let mut second = Listener::from_descriptor(descriptor, ListenOptions::default()).unwrap();
        assert_eq!(second.path(), None);
        second.own_file(&path).unwrap();
        let clone = first.try_clone().unwrap();
        first.leave_file();
        drop((first, clone));
        assert!(path.exists());
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn every_loop_has_a_listener_and_every_listener_a_loop() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        for (sockets, loops) in [(1, 1), (1, 3), (2, 5), (3, 3), (5, 2)] {
            let group = bind_group(any, sockets, ListenOptions::default()).unwrap();
            let inode = |listener: &Listener| {
                let file = std::fs::File::from(listener.as_fd().try_clone_to_owned().unwrap());
                std::os::unix::fs::MetadataExt::ino(&file.metadata().unwrap())
            };
            let mut before: Vec<u64> = group.iter().map(inode).collect();
            let shared = share_out(group, loops).unwrap();
            assert_eq!(shared.len(), loops);
            assert!(shared.iter().all(|of_loop| !of_loop.is_empty()));
            let mut after: Vec<u64> = shared.iter().flatten().map(inode).collect();
            before.sort_unstable();
            after.sort_unstable();
            after.dedup();
            assert_eq!(before, after);
        }
        assert_eq!(share_out(Vec::new(), 2).unwrap().len(), 2);
    }
}
