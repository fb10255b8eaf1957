//! A connected socket: blocking, with the kernel's own timeout.

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::net::sockopt::{self, Timeout};
use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, Shutdown, SocketAddrUnix, SocketType, connect, recv, send,
    shutdown, socket_with,
};

use super::budget::Budget;
use super::fault::Fault;

/// A stream socket that is connected and in blocking mode.
///
/// It has to be: the kernel's receive timeout has no effect on a non-blocking descriptor.
#[derive(Debug)]
pub(crate) struct Socket {
    descriptor: OwnedFd,
}

/// The outcome of a send or a receive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transfer {
    /// The number of bytes; for a receive, 0 is the end of the stream.
    Bytes(usize),
    /// Nothing for now: the socket is full or empty, the kernel's timeout has passed, or a signal
    /// came.
    Later,
}

impl Socket {
    /// Connects to an internet address.
    pub(crate) fn connect_tcp(address: SocketAddr, budget: &Budget) -> Result<Self, Fault> {
        let family = match address {
            SocketAddr::V4(_) => AddressFamily::INET,
            SocketAddr::V6(_) => AddressFamily::INET6,
        };
        let socket = Self::new(family)?;
        // A request is one write; waiting for more to send with it only delays the answer.
        sockopt::set_tcp_nodelay(&socket.descriptor, true).map_err(Fault::system)?;
        socket.connect(budget, |descriptor| connect(descriptor, &address))?;
        Ok(socket)
    }

    /// Connects to a unix socket.
    pub(crate) fn connect_unix(path: &Path, budget: &Budget) -> Result<Self, Fault> {
        let address = SocketAddrUnix::new(path).map_err(Fault::system)?;
        let socket = Self::new(AddressFamily::UNIX)?;
        socket.connect(budget, |descriptor| connect(descriptor, &address))?;
        Ok(socket)
    }

    fn new(family: AddressFamily) -> Result<Self, Fault> {
        let descriptor =
            socket_with(family, SocketType::STREAM, flags::SOCKET, None).map_err(Fault::system)?;
        #[cfg(target_vendor = "apple")]
        flags::prepare(&descriptor).map_err(Fault::system)?;
        Ok(Self { descriptor })
    }

    /// Connects within the budget: the kernel's send timeout bounds `connect` too, and what it is
    /// early by, or a signal took, is waited for by `poll`.
    fn connect(
        &self,
        budget: &Budget,
        attempt: impl Fn(BorrowedFd<'_>) -> rustix::io::Result<()>,
    ) -> Result<(), Fault> {
        loop {
            self.set_timeout(Timeout::Send, kernel_timeout(budget.rest()?))?;
            match attempt(self.descriptor.as_fd()) {
                Ok(()) | Err(Errno::ISCONN) => return Ok(()),
                Err(Errno::INPROGRESS | Errno::ALREADY) => return self.finish_connect(budget),
                // The backlog of a unix socket stayed full, or a signal came.
                Err(Errno::AGAIN | Errno::INTR) => {}
                Err(error) => return Err(Fault::Connect(error.into())),
            }
        }
    }

    fn finish_connect(&self, budget: &Budget) -> Result<(), Fault> {
        loop {
            let flags = self.wait(PollFlags::OUT, budget.rest()?)?;
            if flags.is_empty() {
                continue;
            }
            return match sockopt::socket_error(&self.descriptor).map_err(Fault::system)? {
                Ok(()) => Ok(()),
                Err(error) => Err(Fault::Connect(error.into())),
            };
        }
    }

    /// Sets the kernel's receive timeout for operations of at most `limit`.
    pub(crate) fn set_receive_timeout(&self, limit: Option<Duration>) -> Result<(), Fault> {
        self.set_timeout(Timeout::Recv, kernel_timeout(limit))
    }

    fn set_timeout(&self, which: Timeout, timeout: Option<Duration>) -> Result<(), Fault> {
        sockopt::set_socket_timeout(&self.descriptor, which, timeout).map_err(Fault::system)
    }

    /// Sends what the socket takes at once.
    pub(crate) fn send_now(&self, bytes: &[u8]) -> Result<Transfer, Fault> {
        transfer(send(&self.descriptor, bytes, flags::SEND))
    }

    /// Receives, waiting as long as the kernel's timeout lets it.
    pub(crate) fn receive(&self, buffer: &mut [u8]) -> Result<Transfer, Fault> {
        transfer(recv(&self.descriptor, buffer, RecvFlags::empty()).map(|(_, count)| count))
    }

    /// Receives what is there.
    pub(crate) fn receive_now(&self, buffer: &mut [u8]) -> Result<Transfer, Fault> {
        transfer(recv(&self.descriptor, buffer, RecvFlags::DONTWAIT).map(|(_, count)| count))
    }

    /// Returns true if the peer has ended an idle connection, or sent unexpected bytes.
    pub(crate) fn is_stale(&self) -> bool {
        let mut byte = [0];
        let peeked = recv(
            &self.descriptor,
            &mut byte,
            RecvFlags::DONTWAIT | RecvFlags::PEEK,
        );
        !matches!(peeked, Err(Errno::AGAIN))
    }

    /// Waits for any of `events`; empty if there was none, or a signal came first.
    pub(crate) fn wait(
        &self,
        events: PollFlags,
        timeout: Option<Duration>,
    ) -> Result<PollFlags, Fault> {
        let mut descriptors = [PollFd::new(&self.descriptor, events)];
        wait_for(&mut descriptors, timeout)?;
        Ok(descriptors[0].revents())
    }

    /// Ends the connection from another thread: a call that waits on it returns.
    pub(crate) fn shut_down(&self) {
        // Failing here means that the peer has ended it already.
        let _ = shutdown(&self.descriptor, Shutdown::Both);
    }
}

impl AsFd for Socket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

/// Waits for what the descriptors name; a signal ends it early.
pub(crate) fn wait_for(
    descriptors: &mut [PollFd<'_>],
    timeout: Option<Duration>,
) -> Result<(), Fault> {
    // Whatever does not fit a timespec is longer than any wait.
    let timeout = timeout.and_then(|timeout| Timespec::try_from(timeout).ok());
    match poll(descriptors, timeout.as_ref()) {
        Ok(_) | Err(Errno::INTR) => Ok(()),
        Err(error) => Err(Fault::system(error)),
    }
}

fn transfer(result: rustix::io::Result<usize>) -> Result<Transfer, Fault> {
    match result {
        Ok(count) => Ok(Transfer::Bytes(count)),
        // With a timeout on the socket, a receive is not begun again after a signal, whatever the
        // signal's own flags say.
        Err(Errno::AGAIN | Errno::INTR) => Ok(Transfer::Later),
        Err(Errno::CONNRESET | Errno::PIPE | Errno::CONNABORTED | Errno::NOTCONN) => {
            Err(Fault::Closed)
        }
        // What keep-alive or the network finds out about a peer that is gone.
        Err(Errno::TIMEDOUT | Errno::HOSTUNREACH | Errno::NETUNREACH) => Err(Fault::Closed),
        Err(error) => Err(Fault::Io(io::Error::from(error))),
    }
}

/// Returns the kernel timeout for operations of at most `limit`: an eighth less.
///
/// The kernel rounds such timeouts up, by as much as an eighth. So it is told less, and what is
/// left when it comes back is waited for by `poll`, which is exact: together they are never late
/// by more than the scheduler, and the operation that is answered in time has paid for neither.
fn kernel_timeout(limit: Option<Duration>) -> Option<Duration> {
    let limit = limit?;
    let early = limit / 8 * 7;
    // The kernel keeps microseconds, and 0 means for ever.
    Some(early.clamp(Duration::from_micros(1), KERNEL_TIMEOUT_MAX))
}

/// Longer ones are ended by `poll` as well, in several steps.
const KERNEL_TIMEOUT_MAX: Duration = Duration::from_secs(24 * 3600);

/// Constants that differ between systems.
#[cfg(not(target_vendor = "apple"))]
mod flags {
    use super::SendFlags;
    use rustix::net::SocketFlags;

    pub(super) const SOCKET: SocketFlags = SocketFlags::CLOEXEC;
    pub(super) const SEND: SendFlags = SendFlags::DONTWAIT.union(SendFlags::NOSIGNAL);
}

#[cfg(target_vendor = "apple")]
mod flags {
    use super::{OwnedFd, SendFlags};
    use rustix::io::{FdFlags, fcntl_setfd};
    use rustix::net::{SocketFlags, sockopt};

    pub(super) const SOCKET: SocketFlags = SocketFlags::empty();
    pub(super) const SEND: SendFlags = SendFlags::DONTWAIT;

    pub(super) fn prepare(descriptor: &OwnedFd) -> rustix::io::Result<()> {
        fcntl_setfd(descriptor, FdFlags::CLOEXEC)?;
        sockopt::set_socket_nosigpipe(descriptor, true)
    }
}
