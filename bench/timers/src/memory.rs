//! Bytes in use, by an allocator that counts while it is told to.

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};

pub(crate) struct Counting;

static IS_COUNTING: AtomicBool = AtomicBool::new(false);
static LIVE: AtomicI64 = AtomicI64::new(0);

/// From here on; what is freed that was allocated before counts as negative.
pub(crate) fn start() {
    LIVE.store(0, Ordering::SeqCst);
    IS_COUNTING.store(true, Ordering::SeqCst);
}

/// Bytes in use more than at the start.
pub(crate) fn live() -> i64 {
    LIVE.load(Ordering::SeqCst)
}

pub(crate) fn stop() {
    IS_COUNTING.store(false, Ordering::SeqCst);
}

fn count(bytes: i64) {
    if IS_COUNTING.load(Ordering::Relaxed) {
        LIVE.fetch_add(bytes, Ordering::Relaxed);
    }
}

// SAFETY: all is passed on to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        count(layout.size() as i64);
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, memory: *mut u8, layout: Layout) {
        count(-(layout.size() as i64));
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(memory, layout) }
    }
}
