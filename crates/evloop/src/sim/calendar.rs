//! Events to come, by their time.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Something that happens on the network.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// A connection is asked for at the address that its client's end names.
    Asked { client: u32 },
    /// The answer to that comes to the client's end: it is open, or refused.
    Answered { client: u32, is_open: bool },
    /// The next segment on its way to an end arrives.
    Arrives { end: u32 },
    /// An end that refused a write has room again.
    Room { end: u32 },
    /// The wait of a loop is ended.
    Wake { event_loop: u32 },
    /// The peer that has this end is called.
    Serve { end: u32 },
}

/// Events by time; those of one time in the order of their ties, which a seed draws.
#[derive(Debug, Default)]
pub(super) struct Calendar {
    events: BinaryHeap<Reverse<(u64, u64, u64, Event)>>,
    count: u64,
}

impl Calendar {
    pub(super) fn plan(&mut self, at: u64, tie: u64, event: Event) {
        self.count += 1;
        self.events.push(Reverse((at, tie, self.count, event)));
    }

    /// The time of the next event.
    pub(super) fn next_at(&self) -> Option<u64> {
        self.events.peek().map(|Reverse((at, ..))| *at)
    }

    /// Takes the next event, if its time has come.
    pub(super) fn take_due(&mut self, now: u64) -> Option<Event> {
        if self.next_at()? > now {
            return None;
        }
        let Reverse((_, _, _, event)) = self.events.pop()?;
        Some(event)
    }
}
