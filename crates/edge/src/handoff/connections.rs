//! Connections on their way from one process to its successor: the sender, and the queue at the
//! other end.

use super::channel::{Channel, FrameKind};
use super::listeners::Role;
use super::secure::{self, TakesTls};
use dwell_evloop::{Acceptor, Stream};
use std::fmt;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use zeroize::Zeroizing;

/// The sender of connections to the successor.
#[derive(Debug)]
pub(crate) struct HandoffSender {
    /// Absent once the other end has failed.
    channel: Mutex<Option<Channel>>,
    has_items: bool,
    takes_tls: bool,
    takes_names: bool,
}

impl HandoffSender {
    /// Makes a sender over `channel`.
    pub(crate) fn new(channel: Channel, has_items: bool) -> Self {
        Self {
            channel: Mutex::new(Some(channel)),
            has_items,
            takes_tls: false,
            takes_names: false,
        }
    }

    /// The successor takes this of TLS from a process that accepts connections by `acceptor`.
    pub(crate) fn with_tls(mut self, takes: TakesTls, acceptor: &Acceptor) -> Self {
        self.takes_tls = takes.takes_connections(acceptor.client_authorities());
        self.takes_names = takes.takes_names(acceptor.authorities());
        self
    }

    /// Returns true if the successor has taken the items of the store.
    pub(crate) fn has_items(&self) -> bool {
        self.has_items
    }

    /// Returns true if the successor takes connections of TLS 1.3.
    pub(crate) fn takes_tls(&self) -> bool {
        self.takes_tls
    }

    /// Sends a connection with its unread input; its socket is to be closed here. If the successor
    /// cannot take it, the connection is closed.
    ///
    /// Shape: this is the only place where a session of TLS leaves the process, and there is a
    /// sender only after the successor has confirmed that it serves. Before it, nothing is frozen,
    /// so a failed upgrade leaves every session as it was. From the freezing on nothing can be
    /// sealed here, also if the frame does not get through: how much of it the successor has read
    /// is not known, and a record of each of the two might have the same nonce.
    pub(crate) fn give(&self, role: Role, is_trusted: bool, stream: &mut Stream, input: &[u8]) {
        let kind = if is_trusted {
            FrameKind::TrustedConnection
        } else {
            FrameKind::Connection
        };
        // After a frame that a panic has cut short, the channel is out of step.
        let Ok(mut channel) = self.channel.lock() else {
            return;
        };
        let Some(open) = channel.as_mut() else { return };
        let sent = if stream.is_secure() {
            let Some(frozen) = stream.freeze(self.takes_names) else {
                return;
            };
            let (kind, bytes) = (
                FrameKind::SecureConnection,
                secure::to_bytes(&frozen, input),
            );
            open.send(kind, role as u8, &bytes, Some(stream.as_fd()))
        } else {
            open.send(kind, role as u8, input, Some(stream.as_fd()))
        };
        if let Err(error) = sent {
            tracing::error!(%error, "connections cannot be handed over any more");
            *channel = None;
        }
    }

    /// Ends the hand-over.
    pub(crate) fn close(&self) {
        *self.channel.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// A connection from the predecessor.
pub(crate) struct HandedConnection {
    pub(crate) role: Role,
    /// Its memcached client is authenticated.
    pub(crate) is_trusted: bool,
    /// Its TLS, if it is under TLS.
    pub(crate) frozen: Option<Zeroizing<Vec<u8>>>,
    pub(crate) input: Vec<u8>,
    pub(crate) descriptor: OwnedFd,
}

/// Shows neither secrets nor what a client has sent.
impl fmt::Debug for HandedConnection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (role, input) = (self.role, self.input.len());
        write!(f, "HandedConnection({role:?}, {input} bytes)")
    }
}

/// Connections from the predecessor that no loop has taken yet, by loop.
#[derive(Debug)]
pub(crate) struct HandoffQueue {
    queues: Box<[LoopQueue]>,
    /// More may arrive.
    is_open: AtomicBool,
}

#[derive(Debug, Default)]
struct LoopQueue {
    /// Read at the end of every turn; the list is read only if it is set.
    has_some: AtomicBool,
    list: Mutex<Vec<HandedConnection>>,
}

impl HandoffQueue {
    /// Makes an empty queue for each of `loops` loops.
    pub(crate) fn new(loops: usize) -> Self {
        Self {
            queues: (0..loops).map(|_| LoopQueue::default()).collect(),
            is_open: AtomicBool::new(false),
        }
    }

    /// Opens the queue: the predecessor begins to send.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    /// Closes the queue: the predecessor has ended.
    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
    }

    /// Returns true while the predecessor may send more.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Puts a connection in the queue of the next loop, and returns the index of that loop.
    ///
    /// `count` is the number of connections before it.
    pub(crate) fn put(&self, count: usize, connection: HandedConnection) -> usize {
        let of_loop = match connection.role {
            // Only the first loop has an admin listener.
            Role::Admin => 0,
            Role::Client | Role::Store => count % self.queues.len().max(1),
        };
        if let Some(queue) = self.queues.get(of_loop) {
            let mut list = queue.list.lock().unwrap_or_else(PoisonError::into_inner);
            list.push(connection);
            queue.has_some.store(true, Ordering::Release);
        }
        of_loop
    }

    /// Takes the connections for one loop.
    pub(crate) fn take(&self, of_loop: usize) -> Vec<HandedConnection> {
        let queue = self.queues.get(of_loop);
        let queue = queue.filter(|queue| queue.has_some.load(Ordering::Acquire));
        let Some(queue) = queue else {
            return Vec::new();
        };
        let mut list = queue.list.lock().unwrap_or_else(PoisonError::into_inner);
        queue.has_some.store(false, Ordering::Release);
        std::mem::take(&mut list)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    fn connection(role: Role, input: &[u8]) -> HandedConnection {
        HandedConnection {
            role,
            is_trusted: false,
            frozen: None,
            input: input.to_vec(),
            descriptor: UnixStream::pair().unwrap().0.into(),
        }
    }

    #[test]
    fn loops_get_connections_by_turns_and_the_first_those_of_operators() {
        let queue = HandoffQueue::new(2);
        let roles = [Role::Client, Role::Store, Role::Client, Role::Admin];
        let loops: Vec<usize> = roles
            .into_iter()
            .enumerate()
            .map(|(count, role)| queue.put(count, connection(role, &[count as u8])))
            .collect();
        assert_eq!(loops, [0, 1, 0, 0]);
        let inputs = |of_loop| -> Vec<u8> {
            let taken = queue.take(of_loop).into_iter();
            taken.map(|taken| taken.input[0]).collect()
        };
        assert_eq!(inputs(0), [0, 2, 3]);
        assert!(inputs(0).is_empty(), "they are taken once");
        assert_eq!(inputs(1), [1]);
    }

    #[test]
    fn after_a_failure_nothing_more_is_sent() {
        let (one, other) = UnixStream::pair().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
        let sender = HandoffSender::new(Channel::new(one, deadline), true);
        let (client, _server) = UnixStream::pair().unwrap();
        let mut client = Stream::from_descriptor(client.into()).unwrap();
        let mut receiver = Channel::new(other, deadline);
        sender.give(Role::Client, false, &mut client, b"GET");
        let frame = receiver.expect(FrameKind::Connection).unwrap();
        assert_eq!(
            (frame.mark, &*frame.bytes),
            (Role::Client as u8, &b"GET"[..])
        );
        assert!(frame.descriptor.is_some());
        drop(receiver);
        sender.give(Role::Client, false, &mut client, b"");
        assert!(sender.channel.lock().unwrap().is_none());
        sender.give(Role::Client, false, &mut client, b"");
    }
}
