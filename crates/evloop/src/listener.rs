//! Listening sockets, one a loop on the same port, accepted in batches.

mod inherited;
mod unix;

pub use inherited::share_out;
pub use unix::bind_unix;

use crate::{Acceptor, Context, Readiness, Stream, Token};
use mio::event::Source;
use mio::net::{TcpListener, UnixListener};
use socket2::{Domain, Protocol, SockAddr, SockRef, Type};
use std::io;
use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;
use unix::SocketFile;

/// Options of a listening socket.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct ListenOptions {
    /// Connections the kernel completes and keeps for us. Default 4096.
    pub backlog: i32,
    /// The permission bits of a unix socket's file, such as `0o660`: users who may write to it may
    /// connect. Default `None`: set by the process's umask.
    pub unix_permissions: Option<u32>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        Self {
            backlog: 4096,
            unix_permissions: None,
        }
    }
}

/// A listening socket of one loop.
#[derive(Debug)]
pub struct Listener {
    socket: Socket,
    /// Its clients speak TLS.
    acceptor: Option<Acceptor>,
}

#[derive(Debug)]
enum Socket {
    Tcp(TcpListener, SocketAddr),
    /// The file goes before its socket: a path that refuses is taken for a dead program's.
    Unix(Option<Arc<SocketFile>>, UnixListener),
    #[cfg(feature = "sim")]
    Sim(crate::sim::SimSocket, SocketAddr),
}

/// The end of one batch of accepts.
#[derive(Debug)]
pub enum Accepted {
    /// There may be more clients; the listener is delivered again in the next turn.
    More,
    /// No more for now; the next readiness means more.
    Drained,
    /// No descriptor or memory is left; the listener tries again on its own.
    Exhausted(io::Error),
}

/// Connections accepted in one turn before others get theirs.
const ACCEPTS_PER_TURN: usize = 256;
/// The pause of a listener when the process has no descriptor left.
const EXHAUSTED_PAUSE: Duration = Duration::from_millis(100);

/// Binds `count` listeners to one address, for `count` loops (`SO_REUSEPORT`).
///
/// Shape: port 0 takes one free port for all. Another process that listens there already is an
/// error, even if it shares its port: the kernel would split the clients between two programs.
///
/// # Errors
/// `AddrInUse` when the port is taken, and what else the system says of the address.
pub fn bind_group(
    address: SocketAddr,
    count: usize,
    options: ListenOptions,
) -> io::Result<Vec<Listener>> {
    #[cfg(feature = "sim")]
    if crate::sim::is_on() {
        return bind_simulated(address, count, options);
    }
    // A bind without SO_REUSEPORT fails where any socket listens. The claim is given up before the
    // group binds: the group could not bind beside it.
    let address = bind(address, false)?
        .local_addr()?
        .as_socket()
        .ok_or_else(|| io::Error::other("the system gave a listener no address"))?;
    (0..count)
        .map(|_| {
            let socket = bind(address, true)?;
            write_at_once(&socket)?;
            socket.listen(options.backlog)?;
            let socket = TcpListener::from_std(socket.into());
            Ok(Socket::Tcp(socket, address).into())
        })
        .collect()
}

/// Binds a listener on the simulated network of this thread.
#[cfg(feature = "sim")]
fn bind_simulated(
    address: SocketAddr,
    count: usize,
    options: ListenOptions,
) -> io::Result<Vec<Listener>> {
    let mut group: Vec<Listener> = Vec::with_capacity(count);
    for _ in 0..count {
        let at = group.first().and_then(Listener::address);
        let (shares, at) = (at.is_some(), at.unwrap_or(address));
        let (socket, at) = crate::sim::SimSocket::listen(at, options.backlog, shares)?;
        group.push(Socket::Sim(socket, at).into());
    }
    Ok(group)
}

fn bind(address: SocketAddr, share: bool) -> io::Result<socket2::Socket> {
    let socket = socket2::Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_nonblocking(true)?;
    socket.set_reuse_address(true)?;
    if share {
        socket.set_reuse_port(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.bind(&SockAddr::from(address))?;
    Ok(socket)
}

impl From<Socket> for Listener {
    fn from(socket: Socket) -> Self {
        let acceptor = None;
        Self { socket, acceptor }
    }
}

impl Listener {
    /// A TCP socket that listens already: one that a parent process or a service manager has made.
    ///
    /// # Errors
    /// When it has no address, or cannot be made non-blocking.
    ///
    /// ```
    /// use dwell_evloop::Listener;
    ///
    /// let socket = std::net::TcpListener::bind("127.0.0.1:0")?;
    /// let listener = Listener::from_tcp(socket)?;
    /// assert!(listener.address().is_some());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn from_tcp(socket: std::net::TcpListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        write_at_once(&socket)?;
        let address = socket.local_addr()?;
        Ok(Socket::Tcp(TcpListener::from_std(socket), address).into())
    }

    /// Makes a listener of a unix socket, as [`from_tcp`](Self::from_tcp) does; its file is left
    /// alone.
    ///
    /// # Errors
    /// When it cannot be made non-blocking.
    pub fn from_unix(socket: std::os::unix::net::UnixListener) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        Ok(Socket::Unix(None, UnixListener::from_std(socket)).into())
    }

    /// Puts TLS between its clients and their sockets from now on, as [`Stream::secure`] does; by
    /// `None` no longer.
    pub fn secure(&mut self, acceptor: impl Into<Option<Acceptor>>) {
        self.acceptor = acceptor.into();
    }

    /// The address it listens on, its port resolved; `None` for a unix socket.
    pub fn address(&self) -> Option<SocketAddr> {
        match &self.socket {
            Socket::Tcp(_, address) => Some(*address),
            Socket::Unix(..) => None,
            #[cfg(feature = "sim")]
            Socket::Sim(_, address) => Some(*address),
        }
    }

    /// Returns true if it is a socket of a simulated network, without a descriptor.
    #[cfg(feature = "sim")]
    pub fn is_simulated(&self) -> bool {
        matches!(self.socket, Socket::Sim(..))
    }

    /// The path of a unix socket, as it was bound; `None` for one that was bound elsewhere.
    pub fn path(&self) -> Option<&Path> {
        match &self.socket {
            Socket::Tcp(..) => None,
            #[cfg(feature = "sim")]
            Socket::Sim(..) => None,
            Socket::Unix(file, _) => file.as_ref().map(|file| file.path()),
        }
    }

    /// A second descriptor of the same socket, for another loop; whichever loop comes first
    /// accepts a client.
    ///
    /// Shape: for unix sockets, which cannot be bound in groups. The file of the socket is removed
    /// with the last of them.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub fn try_clone(&self) -> io::Result<Self> {
        let socket = match &self.socket {
            Socket::Tcp(socket, address) => {
                let twin = socket.as_fd().try_clone_to_owned()?;
                Socket::Tcp(TcpListener::from_std(twin.into()), *address)
            }
            Socket::Unix(file, socket) => {
                let twin = socket.as_fd().try_clone_to_owned()?;
                Socket::Unix(file.clone(), UnixListener::from_std(twin.into()))
            }
            #[cfg(feature = "sim")]
            Socket::Sim(socket, address) => Socket::Sim(socket.twin()?, *address),
        };
        let acceptor = self.acceptor.clone();
        Ok(Self { socket, acceptor })
    }

    /// Registers it with the loop under `token`.
    ///
    /// # Errors
    /// As [`Context::register`].
    pub fn register(&mut self, context: &mut Context, token: Token) -> io::Result<()> {
        context.register_readable(self.source(), token)
    }

    /// Stops listening. Connections that the kernel has completed and that were not accepted are
    /// reset.
    ///
    /// Shape: the file of a unix socket is removed, as it is when the listener is dropped, unless
    /// another socket has taken its place or a [clone](Self::try_clone) listens on.
    pub fn close(mut self, context: &mut Context) {
        // Closing the descriptor ends the registration even where this fails.
        let _ = context.deregister(self.source());
    }

    /// Accepts a bounded batch, and hands each connection to `accept` with its peer's address,
    /// `None` over a unix socket.
    ///
    /// Shape: call on readiness and on expiry of `token`. When the bound is reached, `token` is
    /// delivered again in the next turn; when descriptors run out, after 100 ms.
    pub fn accept_batch(
        &mut self,
        context: &mut Context,
        token: Token,
        mut accept: impl FnMut(&mut Context, Stream, Option<SocketAddr>),
    ) -> Accepted {
        for _ in 0..ACCEPTS_PER_TURN {
            match self.accept() {
                Ok((stream, peer)) => accept(context, stream, peer),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Accepted::Drained;
                }
                Err(error) if is_of_one_connection(&error) => {}
                Err(error) => {
                    context.arm(token, EXHAUSTED_PAUSE);
                    return Accepted::Exhausted(error);
                }
            }
        }
        context.again(token, Readiness::READABLE);
        Accepted::More
    }

    fn accept(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        let (mut stream, peer) = self.accept_plain()?;
        if let Some(acceptor) = &self.acceptor {
            stream.secure(acceptor);
        }
        Ok((stream, peer))
    }

    fn accept_plain(&self) -> io::Result<(Stream, Option<SocketAddr>)> {
        match &self.socket {
            Socket::Tcp(socket, _) => {
                let (socket, peer) = socket.accept()?;
                // On Linux a connection has the option from its listener. A socket that refuses it
                // elsewhere (its peer is gone already) fails at its first read.
                #[cfg(not(target_os = "linux"))]
                let _ = write_at_once(&socket);
                Ok((Stream::from_tcp(socket), Some(peer)))
            }
            Socket::Unix(_, socket) => {
                let (socket, _) = socket.accept()?;
                Ok((Stream::from_unix(socket), None))
            }
            #[cfg(feature = "sim")]
            Socket::Sim(socket, _) => {
                let (socket, peer) = socket.accept()?;
                Ok((Stream::from_sim(socket), Some(peer)))
            }
        }
    }

    fn source(&mut self) -> &mut dyn Source {
        match &mut self.socket {
            Socket::Tcp(socket, _) => socket,
            Socket::Unix(_, socket) => socket,
            #[cfg(feature = "sim")]
            Socket::Sim(socket, _) => socket,
        }
    }
}

/// Has what is written to the connections of a listener go out at once: answers are written whole,
/// so delaying a short segment only adds latency.
fn write_at_once<'s, S>(socket: &'s S) -> io::Result<()>
where
    SockRef<'s>: From<&'s S>,
{
    SockRef::from(socket).set_tcp_nodelay(true)
}

/// Errors of a connection that died in the queue, not of the listener (accept(2)).
fn is_of_one_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
            | io::ErrorKind::Interrupted
            | io::ErrorKind::NetworkUnreachable
            | io::ErrorKind::HostUnreachable
            | io::ErrorKind::TimedOut
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_group_shares_one_free_port_and_refuses_a_taken_one() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let group = bind_group(any, 3, ListenOptions::default()).unwrap();
        let address = group[0].address().unwrap();
        assert_ne!(address.port(), 0);
        assert!(
            group
                .iter()
                .all(|listener| listener.address() == Some(address))
        );
        let error = bind_group(address, 1, ListenOptions::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn what_is_written_to_a_client_goes_out_at_once() {
        let any = SocketAddr::from(([127, 0, 0, 1], 0));
        let made = bind_group(any, 1, ListenOptions::default())
            .unwrap()
            .remove(0);
        let given = Listener::from_tcp(std::net::TcpListener::bind(any).unwrap()).unwrap();
        for listener in [made, given] {
            let address = listener.address().unwrap();
            let _client = std::net::TcpStream::connect(address).unwrap();
            // Over loopback the connection is there when the client has it.
            let (stream, _) = listener.accept().unwrap();
            assert!(SockRef::from(&stream).tcp_nodelay().unwrap());
        }
    }
}
