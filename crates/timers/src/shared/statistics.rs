use super::{pool, sweeper};

/// Counters of the shared timers since the process began.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[non_exhaustive]
pub struct Statistics {
    /// Turns of the sweeper; none are added while nothing is armed.
    pub sweeper_turns: u64,
    /// Threads that were started to sweep; more than one after a `fork`, or if one got stuck.
    pub sweeper_starts: u64,
    /// Ticks that were published more than 0.5 ms late, the machine being busy.
    pub late_ticks: u64,
    /// Slots in memory, 32 bytes each: the peak of timers armed at once, and some to spare.
    pub slots: usize,
}

/// The figures up to now.
///
/// Shape: waits for a sweep in progress; not for a hot path.
///
/// ```
/// # smol::block_on(async {
/// use dwell_timers::{sleep, statistics};
///
/// sleep(std::time::Duration::from_millis(1)).await;
/// let statistics = statistics();
/// assert!(statistics.sweeper_starts > 0 && statistics.sweeper_turns > 0);
/// # });
/// ```
pub fn statistics() -> Statistics {
    let slots = pool::slots_made();
    let state = sweeper::lock();
    Statistics {
        sweeper_turns: state.turns,
        sweeper_starts: state.starts,
        late_ticks: state.late_ticks,
        slots,
    }
}
