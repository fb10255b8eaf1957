//! Connections that have come from the predecessor, and the queue in which they wait for a loop.

use super::listeners::Role;
use super::passed::Passed;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use zeroize::Zeroizing;

/// A connection from the predecessor.
pub(crate) struct HandedConnection {
    pub(crate) role: Role,
    /// Its memcached client is authenticated.
    pub(crate) is_trusted: bool,
    /// Its TLS, if it is under TLS.
    pub(crate) frozen: Option<Zeroizing<Vec<u8>>>,
    pub(crate) input: Vec<u8>,
    pub(crate) descriptor: Passed,
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
    use std::os::fd::OwnedFd;
    use std::os::unix::net::UnixStream;

    fn connection(role: Role, input: &[u8]) -> HandedConnection {
        HandedConnection {
            role,
            is_trusted: false,
            frozen: None,
            input: input.to_vec(),
            descriptor: OwnedFd::from(UnixStream::pair().unwrap().0).into(),
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
}
