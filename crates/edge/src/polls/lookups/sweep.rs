//! The sweep in progress: keys whose versions have still to be asked for.

use crate::ids::KeyId;

/// The keys of a sweep.
///
/// A key whose question finds no room is put off, and asked for in a later turn: a sweep that left
/// it out could leave it out each time, while a publisher or a fill has the room.
#[derive(Debug, Default)]
pub(super) struct Sweep {
    /// The last one is next.
    keys: Vec<KeyId>,
    put_off: Vec<KeyId>,
}

impl Sweep {
    /// Begins with these keys, and with no others.
    pub(super) fn begin(&mut self, keys: Vec<KeyId>) {
        self.keys = keys;
        self.put_off.clear();
    }

    /// True if no key is left.
    pub(super) fn is_over(&self) -> bool {
        self.keys.is_empty() && self.put_off.is_empty()
    }

    /// Takes the next key; `None` if all that are left were put off.
    pub(super) fn next(&mut self) -> Option<KeyId> {
        self.keys.pop()
    }

    /// Has a key wait for the next turn.
    pub(super) fn put_off(&mut self, key: KeyId) {
        self.put_off.push(key);
    }

    /// Begins a turn: keys that were put off come behind the others, which may have other servers.
    pub(super) fn resume(&mut self) {
        if !self.put_off.is_empty() {
            self.put_off.append(&mut self.keys);
            std::mem::swap(&mut self.keys, &mut self.put_off);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_evloop::{Id, Token};

    #[test]
    fn keys_that_were_put_off_come_behind_the_others_in_the_next_turn() {
        let keys = [1, 2, 3].map(|index| KeyId::from_bits(Token::new(0, 0, index).to_bits()));
        let mut sweep = Sweep::default();
        sweep.begin(keys.to_vec());
        for key in [keys[2], keys[1]] {
            assert_eq!(sweep.next(), Some(key));
            sweep.put_off(key);
        }
        sweep.resume();
        assert_eq!(sweep.next(), Some(keys[0]));
        let mut rest = [sweep.next(), sweep.next()];
        rest.sort_by_key(|key| key.map(Id::to_bits));
        assert_eq!(rest, [Some(keys[1]), Some(keys[2])]);
        assert!(sweep.is_over());
        sweep.put_off(keys[0]);
        assert_eq!(sweep.next(), None, "not in this turn");
        assert!(!sweep.is_over());
        sweep.begin(Vec::new());
        assert!(sweep.is_over());
    }
}
