//! A body that is gathered, in no more memory than it needs.

use crate::budget::{Budget, Charge};

/// The head of a request and what has come of its body.
///
/// Shape: its memory grows with what comes, by a quarter at a time, and is charged before it is
/// taken; what a client announces takes none.
#[derive(Debug)]
pub(crate) struct Gathered {
    head: Box<[u8]>,
    body: Vec<u8>,
    charge: Charge,
    /// Bytes that are charged for the most that TLS has kept beside the body.
    beside: usize,
    /// Bytes after which no more of the body is gathered; its announced length if that is less.
    wanted: usize,
}

impl Gathered {
    /// Begins with a head; `None` where there is no room for it.
    pub(crate) fn begin(
        head: &[u8],
        wanted: usize,
        budget: &Budget,
        bytes_max: usize,
    ) -> Option<Self> {
        Some(Self {
            charge: budget.charge(head.len(), bytes_max)?,
            head: head.into(),
            body: Vec::new(),
            beside: 0,
            wanted,
        })
    }

    /// Adds to the body; false where there is no room for it.
    #[must_use]
    pub(crate) fn extend(&mut self, data: &[u8], bytes_max: usize) -> bool {
        let (needed, capacity) = (self.body.len() + data.len(), self.body.capacity());
        if needed > capacity {
            let roomy = (capacity + capacity / 4).max(GATHERED_BYTES_MIN);
            let target = roomy.min(self.wanted).max(needed);
            if !self.charge.grow(target - capacity, bytes_max) {
                return false;
            }
            self.body.reserve_exact(target - self.body.len());
        }
        self.body.extend_from_slice(data);
        true
    }

    /// Charges for what TLS keeps beside the body; false where there is no room for it.
    #[must_use]
    pub(crate) fn hold_beside(&mut self, bytes: usize, bytes_max: usize) -> bool {
        let more = bytes.saturating_sub(self.beside);
        let has_room = self.charge.grow(more, bytes_max);
        if has_room {
            self.beside += more;
        }
        has_room
    }

    pub(crate) fn head(&self) -> &[u8] {
        &self.head
    }

    pub(crate) fn body(&self) -> &[u8] {
        &self.body
    }

    /// Bytes of the body that are still to be gathered.
    pub(crate) fn room(&self) -> usize {
        self.wanted - self.body.len().min(self.wanted)
    }
}

/// The least that a body takes once it has begun.
const GATHERED_BYTES_MIN: usize = 512;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_beside_is_charged_once() {
        let budget = Budget::default();
        let mut gathered = Gathered::begin(b"head", 1000, &budget, 100).unwrap();
        assert!(gathered.hold_beside(50, 100) && gathered.hold_beside(0, 100));
        assert!(gathered.hold_beside(60, 100));
        assert_eq!(budget.bytes(), 64);
        assert!(!gathered.hold_beside(97, 100));
        drop(gathered);
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn memory_follows_what_has_come_and_is_given_back() {
        let budget = Budget::default();
        let mut gathered = Gathered::begin(b"head", 64 << 10, &budget, usize::MAX).unwrap();
        for come in 1..=64 << 10 {
            assert!(gathered.extend(b"b", usize::MAX));
            let kept = gathered.body.capacity();
            assert_eq!((gathered.body().len(), budget.bytes()), (come, kept + 4));
            assert!(kept <= (come + come / 4).max(512), "{kept} for {come}");
        }
        // A body of its announced length has no byte of slack.
        assert_eq!((gathered.room(), budget.bytes()), (0, (64 << 10) + 4));
        drop(gathered);
        assert_eq!(budget.bytes(), 0);
    }

    #[test]
    fn what_is_beyond_the_budget_is_refused_and_takes_nothing() {
        let budget = Budget::default();
        assert!(Gathered::begin(b"head", 100, &budget, 3).is_none());
        let mut gathered = Gathered::begin(b"head", 1000, &budget, 600).unwrap();
        assert!(gathered.extend(&[b'b'; 512], 600));
        assert!(!gathered.extend(&[b'b'; 85], 600));
        assert_eq!((gathered.body().len(), budget.bytes()), (512, 516));
    }
}
