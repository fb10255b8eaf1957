//! Reads: lookups for those who wait for a key, and for no request that could be refused.
//!
//! They have room of their own, so that a change of very many keys leaves that of requests alone.
//! A read without room is put off and never left out: the version of its key may be known already,
//! so that no sweep would have it read.

use super::super::tables::Keys;
use crate::ids::KeyId;
use std::collections::{HashSet, VecDeque};

/// Reads in progress at most. More would fill requests to memcached that others wait for; few in
/// the simulation, which has few keys.
pub(super) const READS_AT_ONCE: usize = if cfg!(any(test, feature = "sim")) {
    3
} else {
    1024
};

/// The reads of one loop.
#[derive(Debug, Default)]
pub(super) struct Reads {
    under_way: usize,
    /// Keys that are to be read when there is room, in their turn.
    put_off: VecDeque<KeyId>,
    /// The same keys.
    known: HashSet<KeyId>,
}

impl Reads {
    /// Reads that have no answer yet.
    pub(super) fn under_way(&self) -> usize {
        self.under_way
    }

    /// Returns true if one more may begin now.
    pub(super) fn has_room(&self) -> bool {
        self.under_way < READS_AT_ONCE
    }

    /// One has begun.
    pub(super) fn begin(&mut self) {
        self.under_way += 1;
    }

    /// One has ended, whatever it has brought.
    pub(super) fn end(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// Has a key wait for room, behind those that do.
    ///
    /// Shape: at most twice as many as are waited for, and a few: those that are not are left out
    /// when they are many, and `left_out` is given each.
    pub(super) fn put_off(&mut self, keys: &Keys, key: KeyId, mut left_out: impl FnMut(KeyId)) {
        if !self.known.insert(key) {
            return;
        }
        self.put_off.push_back(key);
        if self.put_off.len() > 2 * keys.waited() + FEW {
            let known = &mut self.known;
            self.put_off.retain(|key| {
                let is_waited = keys.waited_name(*key).is_some();
                if !is_waited {
                    known.remove(key);
                    left_out(*key);
                }
                is_waited
            });
        }
    }

    /// Returns true if a key waits for room.
    pub(super) fn is_put_off(&self, key: KeyId) -> bool {
        self.known.contains(&key)
    }

    /// Takes the key whose turn it is, if there is room; a key without a waiter gets none, and
    /// `left_out` is given it.
    pub(super) fn next(&mut self, keys: &Keys, mut left_out: impl FnMut(KeyId)) -> Option<KeyId> {
        if !self.has_room() {
            return None;
        }
        loop {
            let key = self.put_off.pop_front()?;
            self.known.remove(&key);
            if keys.waited_name(key).is_some() {
                return Some(key);
            }
            left_out(key);
        }
    }
}

/// Keys that may stand here without being waited for.
const FEW: usize = 16;

#[cfg(any(test, feature = "sim"))]
impl Reads {
    /// Keys that wait for room.
    pub(super) fn are_put_off(&self) -> usize {
        self.put_off.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PollId;

    fn waited(keys: &mut Keys, name: &str) -> KeyId {
        let key = keys.enter(name.as_bytes()).unwrap();
        let record = keys.get_mut(key).unwrap();
        record.waiting.join(PollId::nth(1).into());
        keys.count_waited(true);
        key
    }

    #[test]
    fn a_key_is_put_off_once_and_has_its_turn_when_there_is_room() {
        let (mut keys, mut reads) = (Keys::new(None), Reads::default());
        let [a, b] = ["a", "b"].map(|name| waited(&mut keys, name));
        for _ in 0..READS_AT_ONCE {
            reads.begin();
        }
        for key in [a, b, a] {
            reads.put_off(&keys, key, |_| ());
        }
        assert_eq!(reads.next(&keys, |_| ()), None, "there is no room");
        reads.end();
        assert_eq!(reads.next(&keys, |_| ()), Some(a));
        reads.put_off(&keys, a, |_| ());
        assert_eq!(reads.next(&keys, |_| ()), Some(b));
        assert_eq!(reads.next(&keys, |_| ()), Some(a), "behind the other");
        assert_eq!(reads.next(&keys, |_| ()), None);
        assert!(reads.known.is_empty());
    }

    #[test]
    fn keys_that_nobody_waits_for_are_not_kept() {
        let (mut keys, mut reads) = (Keys::new(None), Reads::default());
        let last = waited(&mut keys, "last");
        for number in 0..1000 {
            let key = keys.enter(format!("{number}").as_bytes()).unwrap();
            reads.put_off(&keys, key, |_| ());
            keys.release(key).unwrap();
        }
        assert!(reads.put_off.len() <= FEW + 2, "{}", reads.put_off.len());
        assert_eq!(reads.put_off.len(), reads.known.len());
        reads.put_off(&keys, last, |_| ());
        assert_eq!(reads.next(&keys, |_| ()), Some(last));
        assert!(reads.put_off.is_empty() && reads.known.is_empty());
    }
}
