//! Slots that the sweeper is to visit, because it would come too late otherwise.
//!
//! A fixed number of queues is shared out among the threads: there is nothing to register, and
//! nothing left behind by a thread that ends. A slot goes through here once per visit of the
//! sweeper, not once per arming.

use super::pool::{SlotRef, inbox_of_thread};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Debug)]
#[repr(align(64))]
struct Inbox {
    slots: Mutex<Vec<SlotRef>>,
}

/// Adds a slot to the inbox of the calling thread; `mark` runs before any thread can find it there.
///
/// Shape: how many slots the inbox holds now.
pub(crate) fn add(slot: SlotRef, mark: impl FnOnce()) -> usize {
    let chosen = inbox_of_thread(|| NEXT.fetch_add(1, Ordering::Relaxed) % INBOXES);
    let mut slots = lock(&ALL[chosen]);
    mark();
    slots.push(slot);
    slots.len()
}

/// Moves what all inboxes hold to the end of `slots`.
pub(crate) fn drain(slots: &mut Vec<SlotRef>) {
    for inbox in &ALL {
        let mut waiting = lock(inbox);
        if waiting.capacity() > SLOTS_KEPT {
            slots.append(&mut std::mem::take(&mut *waiting));
        } else {
            slots.append(&mut waiting);
        }
    }
}

/// Returns true if no inbox holds anything.
///
/// Shape: locks one inbox after the other. A thread that adds to one later sees the earlier writes
/// of the caller.
pub(crate) fn are_empty() -> bool {
    ALL.iter().all(|inbox| lock(inbox).is_empty())
}

/// Locks every inbox, for a `fork`.
pub(crate) fn lock_all() -> impl Iterator<Item = MutexGuard<'static, Vec<SlotRef>>> {
    ALL.iter().map(lock)
}

fn lock(inbox: &'static Inbox) -> MutexGuard<'static, Vec<SlotRef>> {
    inbox.slots.lock().unwrap_or_else(PoisonError::into_inner)
}

static ALL: [Inbox; INBOXES] = [const {
    Inbox {
        slots: Mutex::new(Vec::new()),
    }
}; INBOXES];
/// The inbox of the next new thread.
static NEXT: AtomicUsize = AtomicUsize::new(0);

pub(crate) const INBOXES: usize = 16;
/// Entries for which an inbox keeps room between sweeps.
const SLOTS_KEPT: usize = 4096;
