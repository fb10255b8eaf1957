//! Bytes that connections keep together, with a bound.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The bytes that several connections keep of what their clients have sent.
///
/// Shape: cheap to clone, and clones count together, so that the loops of a process can have one
/// bound ([`Http::share_gathered`](crate::Http::share_gathered)). A connection that goes gives its
/// part back.
///
/// ```
/// use dwell_engine::{Budget, Http, Kinds, Limits};
///
/// let gathered = Budget::default();
/// let loops = [0, 2].map(|kind| {
///     let kinds = Kinds { listener: kind, connection: kind + 1 };
///     let mut http = Http::new(kinds, Limits::default());
///     http.share_gathered(gathered.clone());
///     http
/// });
/// assert_eq!((loops.len(), gathered.bytes()), (2, 0));
/// ```
#[derive(Clone, Debug, Default)]
pub struct Budget(Arc<AtomicUsize>);

/// The part of one connection, given back when it is dropped.
#[derive(Debug)]
pub(crate) struct Charge {
    total: Budget,
    bytes: usize,
}

impl Budget {
    /// Bytes that are kept now.
    pub fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    /// Charges for `bytes`, as long as no more than `bytes_max` are kept with them.
    pub(crate) fn charge(&self, bytes: usize, bytes_max: usize) -> Option<Charge> {
        let mut charge = Charge {
            total: self.clone(),
            bytes: 0,
        };
        charge.grow(bytes, bytes_max).then_some(charge)
    }
}

impl Charge {
    /// Bytes that it has.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Charges for `bytes` more, as long as no more than `bytes_max` are kept with them; false, and
    /// nothing is charged, where there would be more.
    pub(crate) fn grow(&mut self, bytes: usize, bytes_max: usize) -> bool {
        let with = |kept: usize| {
            let total = kept.checked_add(bytes)?;
            (total <= bytes_max).then_some(total)
        };
        let (set, fetch) = (Ordering::Relaxed, Ordering::Relaxed);
        let is_charged = self.total.0.fetch_update(set, fetch, with).is_ok();
        if is_charged {
            self.bytes += bytes;
        }
        is_charged
    }

    /// Gives `bytes` back, of which it has at least as many.
    pub(crate) fn shrink(&mut self, bytes: usize) {
        let bytes = bytes.min(self.bytes);
        self.bytes -= bytes;
        self.total.0.fetch_sub(bytes, Ordering::Relaxed);
    }
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.total.0.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_given_back_can_be_charged_again() {
        let input = Budget::default();
        let first = input.charge(60, 100);
        assert!(first.is_some() && input.charge(41, 100).is_none());
        let mut second = input.charge(30, 100).unwrap();
        assert!(second.grow(10, 100) && !second.grow(1, 100));
        assert_eq!(input.bytes(), 100);
        second.shrink(10);
        assert_eq!(input.bytes(), 90);
        assert!(second.grow(10, 100));
        drop(first);
        assert!(input.charge(60, 100).is_some());
        drop(second);
        assert!(input.charge(100, 100).is_some());
        assert!(input.charge(usize::MAX, 100).is_none());
        assert_eq!(input.bytes(), 0);
    }
}
