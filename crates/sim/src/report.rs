//! Counts of what runs have met.

use std::collections::BTreeMap;

/// Counts of faults that have struck, and of states that were reached.
#[derive(Clone, Debug, Default)]
pub struct Counts {
    /// Times that a fault of each kind has struck.
    pub faults: BTreeMap<&'static str, u64>,
    /// Times that each state was reached.
    pub states: BTreeMap<&'static str, u64>,
}

impl Counts {
    /// Counts a fault that strikes.
    pub(crate) fn strike(&mut self, fault: &'static str) {
        *self.faults.entry(fault).or_default() += 1;
    }

    /// Counts a state that is reached.
    pub(crate) fn reach(&mut self, state: &'static str) {
        *self.states.entry(state).or_default() += 1;
    }

    /// Adds the counts of another run.
    pub fn add(&mut self, other: &Self) {
        for (all, counts) in [
            (&mut self.faults, &other.faults),
            (&mut self.states, &other.states),
        ] {
            for (name, count) in counts {
                *all.entry(name).or_default() += count;
            }
        }
    }
}
