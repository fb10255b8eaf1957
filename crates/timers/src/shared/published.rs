//! The published tick, which all threads read instead of a clock.
//!
//! Also compiled by `tests/loom.rs`.

use super::atomics::{AtomicU64, Ordering};

/// The tick in progress, published by the sweeper for the owners of timers.
#[derive(Debug)]
#[repr(align(64))]
pub(crate) struct Published {
    /// The tick in the low half, with `STOPPED` while no sweeper replaces it.
    word: AtomicU64,
}

impl Published {
    /// Makes one with `word`, at first [`STOPPED`].
    pub(crate) const fn new(word: AtomicU64) -> Self {
        Self { word }
    }

    /// The tick in progress; `None` if the sweeper is parked, dead or not yet started.
    #[inline]
    pub(crate) fn tick(&self) -> Option<u32> {
        let word = self.word.load(Ordering::Relaxed);
        (word & STOPPED == 0).then_some(word as u32)
    }

    /// The tick in progress, or the last one there was.
    pub(crate) fn last_tick(&self) -> u32 {
        self.word.load(Ordering::Relaxed) as u32
    }

    #[inline]
    pub(crate) fn is_stopped(&self) -> bool {
        self.word.load(Ordering::Relaxed) & STOPPED != 0
    }

    /// Returns true if the tick stopped; ordered behind the caller's earlier writes, to pair with
    /// `stop`.
    pub(crate) fn is_stopped_by_now(&self) -> bool {
        self.word.load(Ordering::SeqCst) & STOPPED != 0
    }

    pub(crate) fn publish(&self, tick: u32) {
        self.word.store(u64::from(tick), Ordering::SeqCst);
    }

    pub(crate) fn stop(&self) {
        self.word.fetch_or(STOPPED, Ordering::SeqCst);
    }
}

/// The bit of a published word that marks a tick which stands still.
pub(crate) const STOPPED: u64 = 1 << 32;
