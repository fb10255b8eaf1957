//! Connections that go from one process to the next, as the loops of both see it.

use super::Role;
use super::channel::{Channel, Kind};
use dwell_evloop::Stream;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// The way out for the connections of a process that another one has succeeded.
#[derive(Debug)]
pub(crate) struct Leaving {
    /// Absent once the other end has failed.
    channel: Mutex<Option<Channel>>,
    has_items: bool,
}

impl Leaving {
    pub(super) fn new(channel: Channel, has_items: bool) -> Self {
        Self {
            channel: Mutex::new(Some(channel)),
            has_items,
        }
    }

    /// Whether the other process has taken the items of the store.
    pub(crate) fn has_items(&self) -> bool {
        self.has_items
    }

    /// Gives a connection away, with what has come on it and is not used; the socket is closed
    /// here. One that the other process cannot take any more is closed there and then.
    pub(crate) fn give(&self, role: Role, is_trusted: bool, stream: &Stream, input: &[u8]) {
        let kind = if is_trusted {
            Kind::TrustedConnection
        } else {
            Kind::Connection
        };
        // A frame that a panic has cut short makes no sense of what follows.
        let Ok(mut channel) = self.channel.lock() else {
            return;
        };
        let Some(open) = channel.as_mut() else { return };
        if let Err(error) = open.send(kind, role as u8, input, Some(stream.as_fd())) {
            tracing::error!(%error, "connections cannot be handed over any more");
            *channel = None;
        }
    }

    /// Nothing more leaves: the other process is on its own.
    pub(crate) fn close(&self) {
        *self.channel.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}

/// A connection that the process before has handed over.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) role: Role,
    /// Its memcached client has said who it is.
    pub(crate) is_trusted: bool,
    pub(crate) input: Vec<u8>,
    pub(crate) descriptor: OwnedFd,
}

/// Those that no loop has taken yet, by loops.
#[derive(Debug)]
pub(crate) struct Arrivals {
    queues: Box<[Queue]>,
    /// More may come.
    is_open: AtomicBool,
}

#[derive(Debug, Default)]
struct Queue {
    /// Read at every turn's end; the list only when it is set.
    has_some: AtomicBool,
    list: Mutex<Vec<Arrival>>,
}

impl Arrivals {
    pub(crate) fn new(loops: usize) -> Self {
        Self {
            queues: (0..loops).map(|_| Queue::default()).collect(),
            is_open: AtomicBool::new(false),
        }
    }

    /// The process before begins to hand over.
    pub(crate) fn open(&self) {
        self.is_open.store(true, Ordering::Release);
    }

    /// It has ended.
    pub(crate) fn close(&self) {
        self.is_open.store(false, Ordering::Release);
    }

    /// Whether it may hand over more.
    pub(crate) fn is_open(&self) -> bool {
        self.is_open.load(Ordering::Acquire)
    }

    /// Puts one in the queue of the loop that has its turn; returns which.
    pub(crate) fn put(&self, count: usize, arrival: Arrival) -> usize {
        let of_loop = match arrival.role {
            // Only the first loop has an admin listener.
            Role::Admin => 0,
            Role::Client | Role::Store => count % self.queues.len().max(1),
        };
        if let Some(queue) = self.queues.get(of_loop) {
            let mut list = queue.list.lock().unwrap_or_else(PoisonError::into_inner);
            list.push(arrival);
            queue.has_some.store(true, Ordering::Release);
        }
        of_loop
    }

    /// Takes the connections that one loop is to serve.
    pub(crate) fn take(&self, of_loop: usize) -> Vec<Arrival> {
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
