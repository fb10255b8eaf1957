//! The talk of the two processes of an upgrade, without sockets, threads and clocks.
//!
//! Each side is a state machine. It takes an event and returns the next act, and its side carries
//! that out: between two processes over a [`Channel`](crate::handoff::Channel), in the
//! simulation between two simulated processes. The order of all steps is here alone.

mod predecessor;
mod successor;
#[cfg(test)]
mod tests;

pub(in crate::process) use predecessor::{MainProcess, PredecessorSide, PredecessorTalk};
pub(in crate::process) use successor::{Greeting, SuccessorSide, SuccessorTalk};

use crate::event_loop::Message;
use crate::handoff::Handoff;
use dwell_evloop::{Acceptor, Fleet};
use dwell_store_server::StoreService;

/// Version of the protocol between the two processes; others are rejected.
pub(super) const VERSION: u8 = 1;
/// Bit in the mark of a listening socket: the process owns its file.
pub(super) const OWNS_FILE: u8 = 0x80;

/// The parts of a process that go over to its successor, or come from its predecessor.
#[derive(Clone, Copy)]
pub(in crate::process) struct Place<'p> {
    pub(in crate::process) service: Option<&'p StoreService>,
    pub(in crate::process) acceptor: &'p Acceptor,
    pub(in crate::process) fleet: &'p Fleet<Message>,
    pub(in crate::process) handoff: &'p Handoff,
}
