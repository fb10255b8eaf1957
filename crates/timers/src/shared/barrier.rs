//! The pair of barriers between owners and sweeper.
//!
//! Both sides write one thing and then read another, and at least one of them has to see the write
//! of the other. A full fence on both sides does that, at 10 ns each time a timer is armed. If
//! Linux offers `membarrier`, the sweeper makes the kernel run a fence on every core that runs a
//! thread of this process, once per sweep. The owners' fence then shrinks to an order of
//! instructions.

use super::sys;
use std::sync::atomic::{AtomicBool, Ordering, compiler_fence, fence};
use std::time::Duration;

/// True if the sweeper's barrier reaches all threads. Set once the process is registered.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Barrier {
    is_asymmetric: AtomicBool,
}

impl Barrier {
    pub(crate) const fn new() -> Self {
        Self {
            is_asymmetric: AtomicBool::new(false),
        }
    }

    /// Registers the process with the kernel, where that is possible.
    ///
    /// Shape: any thread, any number of times. A thread that still sees the old answer uses the
    /// stronger fence, which is always right.
    pub(crate) fn register(&self) {
        self.is_asymmetric
            .store(sys::register_membarrier(), Ordering::SeqCst);
    }

    #[inline]
    pub(crate) fn light(&self) {
        if self.is_asymmetric.load(Ordering::Relaxed) {
            compiler_fence(Ordering::SeqCst);
        } else {
            fence(Ordering::SeqCst);
        }
    }

    pub(crate) fn heavy(&self) {
        if self.is_asymmetric.load(Ordering::Relaxed) && !sys::membarrier() {
            // It was registered and yet fails: a filter was installed since. Owners use fences
            // from here on; what those already past their light barrier wrote is visible long
            // before a store buffer could hold it for a millisecond.
            self.is_asymmetric.store(false, Ordering::SeqCst);
            super::clock::pause(Duration::from_millis(1));
        }
        fence(Ordering::SeqCst);
    }
}
