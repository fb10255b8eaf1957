//! Ticks that stayed published for too long.
//!
//! An owner that arms a timer counts from the published tick and reads no clock. That is sound
//! while the tick is replaced in time. When the sweeper comes late (the machine is starved, the
//! process was stopped), a timer may have been counted from a tick that was long over. The largest
//! error is known afterwards, and is kept here: a timer counted from such a tick waits that much
//! longer.

/// The ticks of the past that were published for too long, in their order.
#[derive(Debug)]
pub(crate) struct Gaps {
    entries: Vec<Gap>,
    /// The number of entries at which those are removed that no timer was counted from.
    pruned_at: usize,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    base: u32,
    extra_ticks: u32,
}

impl Gaps {
    pub(crate) const fn new() -> Self {
        Self {
            entries: Vec::new(),
            pruned_at: ENTRIES_KEPT,
        }
    }

    /// Makes room for a usual number of entries, so that noting one does not allocate.
    pub(crate) fn reserve(&mut self) {
        self.entries.reserve(ENTRIES_KEPT + 1);
    }

    /// Notes that `base` was published for `extra_ticks` too long.
    pub(crate) fn note(&mut self, base: u32, extra_ticks: u32) {
        // Before the numbers of ticks come round again.
        while self
            .entries
            .first()
            .is_some_and(|gap| base.wrapping_sub(gap.base) > TICKS_COMPARED)
        {
            self.entries.remove(0);
        }
        match self.entries.last_mut() {
            Some(last) if last.base == base => last.extra_ticks = last.extra_ticks.max(extra_ticks),
            _ => self.entries.push(Gap { base, extra_ticks }),
        }
    }

    /// Returns the additional ticks that a timer counted from `base` waits.
    #[inline]
    pub(crate) fn extra_ticks(&self, base: u32) -> u32 {
        if self.entries.is_empty() {
            return 0;
        }
        self.find(base)
            .map_or(0, |place| self.entries[place].extra_ticks)
    }

    /// Returns true if [`Gaps::prune`] is due.
    pub(crate) fn is_full(&self) -> bool {
        self.entries.len() >= self.pruned_at
    }

    /// Forgets what no timer can need any more.
    ///
    /// Shape: `show_bases` shows its argument the base of every armed timer. A gap younger than a
    /// minute stays in any case: a thread may have read the tick and not yet said that it armed.
    pub(crate) fn prune(&mut self, now: u32, show_bases: impl FnOnce(&mut dyn FnMut(u32))) {
        let mut is_needed: Vec<bool> = self
            .entries
            .iter()
            .map(|gap| now.wrapping_sub(gap.base) < TICKS_KEPT)
            .collect();
        show_bases(&mut |base| {
            if let Some(place) = self.find(base) {
                is_needed[place] = true;
            }
        });
        let mut needed = is_needed.into_iter();
        self.entries.retain(|_| needed.next() == Some(true));
        self.pruned_at = (2 * self.entries.len()).max(ENTRIES_KEPT);
    }

    fn find(&self, base: u32) -> Option<usize> {
        let newest = self.entries.last()?.base;
        let age = newest.wrapping_sub(base);
        self.entries
            .binary_search_by(|gap| age.cmp(&newest.wrapping_sub(gap.base)))
            .ok()
    }
}

const ENTRIES_KEPT: usize = 1024;
/// Twice what a timer can lie ahead.
const TICKS_COMPARED: u32 = 1 << 31;
/// One minute.
const TICKS_KEPT: u32 = 6000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_gap_concerns_its_own_tick_only() {
        let mut gaps = Gaps::new();
        assert_eq!(gaps.extra_ticks(7), 0);
        for (base, extra) in [(u32::MAX - 5, 1), (u32::MAX, 4), (3, 9), (3, 2)] {
            gaps.note(base, extra);
        }
        assert_eq!(gaps.extra_ticks(u32::MAX - 5), 1);
        assert_eq!(gaps.extra_ticks(u32::MAX), 4);
        assert_eq!(gaps.extra_ticks(3), 9);
        for base in [u32::MAX - 6, u32::MAX - 4, 0, 2, 4, 1 << 31] {
            assert_eq!(gaps.extra_ticks(base), 0, "{base}");
        }
    }

    #[test]
    fn pruning_keeps_what_is_young_and_what_is_counted_from() {
        let mut gaps = Gaps::new();
        for base in 0..ENTRIES_KEPT as u32 {
            gaps.note(base * 10, 1);
        }
        assert!(gaps.is_full());
        gaps.prune(10_240, |show| {
            for base in [0, 500, 505] {
                show(base);
            }
        });
        let kept = |base| gaps.extra_ticks(base) == 1;
        assert!(kept(0) && kept(500) && kept(4250) && kept(10_230));
        assert!(!kept(10) && !kept(490) && !kept(4240));
        assert!(!gaps.is_full());
    }
}
