//! Listeners on the simulated network.

use super::end::Owner;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::SocketAddr;
use std::rc::Rc;

/// One descriptor of a socket that listens; its twins have the same queue.
#[derive(Debug)]
pub(super) struct Listening {
    at: SocketAddr,
    backlog: usize,
    queue: Queue,
    pub(super) owner: Owner,
    pub(super) is_marked: bool,
    is_closed: bool,
}

/// Ends that have come and were not accepted.
type Queue = Rc<RefCell<VecDeque<u32>>>;

impl Listening {
    pub(super) fn new(at: SocketAddr, backlog: usize, owner: Owner) -> Self {
        Self {
            at,
            backlog,
            queue: Queue::default(),
            owner,
            is_marked: false,
            is_closed: false,
        }
    }

    /// Another descriptor of the same socket.
    pub(super) fn twin(&self) -> Self {
        Self {
            queue: Rc::clone(&self.queue),
            ..Self::new(self.at, self.backlog, Owner::Test)
        }
    }

    /// Returns true if both are descriptors of one socket.
    pub(super) fn is_twin_of(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.queue, &other.queue)
    }

    pub(super) fn listens_at(&self, at: SocketAddr) -> bool {
        self.at == at && !self.is_closed
    }

    pub(super) fn has_some(&self) -> bool {
        !self.queue.borrow().is_empty()
    }

    pub(super) fn is_full(&self) -> bool {
        self.queue.borrow().len() > self.backlog
    }

    pub(super) fn put(&self, end: u32) {
        self.queue.borrow_mut().push_back(end);
    }

    pub(super) fn take(&self) -> Option<u32> {
        self.queue.borrow_mut().pop_front()
    }

    /// Closes this descriptor; returns those that nobody accepts any more, if it was the last one.
    pub(super) fn close(&mut self) -> VecDeque<u32> {
        self.is_closed = true;
        self.owner = Owner::Test;
        let queue = Rc::try_unwrap(std::mem::take(&mut self.queue));
        queue.map(RefCell::into_inner).unwrap_or_default()
    }
}

/// The sockets that listen at an address, several where they share it; each by its first
/// descriptor.
pub(super) fn sockets_at<'a>(
    all: impl Iterator<Item = (&'a Listening, u32)>,
    at: SocketAddr,
) -> Vec<u32> {
    let mut there: Vec<(&Listening, u32)> = Vec::new();
    for (one, handle) in all {
        let is_new = !there.iter().any(|(other, _)| one.is_twin_of(other));
        if one.listens_at(at) && is_new {
            there.push((one, handle));
        }
    }
    there.into_iter().map(|(_, handle)| handle).collect()
}

/// All descriptors of the socket that this one is of.
pub(super) fn twins_of<'a>(
    all: impl Iterator<Item = (&'a Listening, u32)> + Clone,
    listener: u32,
) -> Vec<u32> {
    let Some((first, _)) = all.clone().find(|(_, handle)| *handle == listener) else {
        return Vec::new();
    };
    let twins = all.filter(|(one, _)| one.is_twin_of(first));
    twins.map(|(_, handle)| handle).collect()
}
