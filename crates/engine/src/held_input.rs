//! What clients have sent behind requests that are held.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Input behind one held request that may always be kept.
pub(crate) const HELD_INPUT_BYTES_FREE: usize = 4 * 1024;

/// The bytes of long input that all connections of a component keep while their requests are held.
///
/// Shape: only its loop counts; it is shared so that a connection that goes gives its part back.
#[derive(Debug, Default)]
pub(crate) struct HeldInput(Arc<AtomicUsize>);

/// What one connection keeps, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct InputCharge {
    total: Arc<AtomicUsize>,
    bytes: usize,
}

impl HeldInput {
    /// Charges for `bytes`, as long as no more than `bytes_max` are kept with them.
    pub(crate) fn charge(&self, bytes: usize, bytes_max: usize) -> Option<InputCharge> {
        let total = self.0.load(Ordering::Relaxed).saturating_add(bytes);
        if total > bytes_max {
            return None;
        }
        self.0.store(total, Ordering::Relaxed);
        Some(InputCharge {
            total: Arc::clone(&self.0),
            bytes,
        })
    }
}

impl Drop for InputCharge {
    fn drop(&mut self) {
        self.total.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_charged_again() {
        let input = HeldInput::default();
        let first = input.charge(60, 100);
        assert!(first.is_some() && input.charge(41, 100).is_none());
        let second = input.charge(40, 100);
        assert!(second.is_some() && input.charge(1, 100).is_none());
        drop(first);
        assert!(input.charge(60, 100).is_some());
        drop(second);
        assert!(input.charge(100, 100).is_some());
        assert!(input.charge(usize::MAX, 100).is_none());
    }
}
