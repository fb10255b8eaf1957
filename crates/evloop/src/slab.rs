//! A generational arena: the table of a component's connections.

use crate::{Id, Token};
use std::marker::PhantomData;

/// Holds the values of one kind, each addressed by a [`Token`], or by an [`Id`] of that kind alone.
///
/// Shape: places are reused last-in first-out, so that a busy component keeps touching the same
/// memory; a token of an earlier tenant finds nothing. Never holds more than `capacity_max`.
#[derive(Debug)]
pub struct Slab<T, K = Token> {
    kind: u8,
    slots: Vec<Slot<T>>,
    free: u32,
    len: usize,
    capacity_max: usize,
    ids: PhantomData<fn() -> K>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    entry: Entry<T>,
}

#[derive(Debug)]
enum Entry<T> {
    Occupied(T),
    Vacant { next: u32 },
}

const NONE: u32 = u32::MAX;

impl<T> Slab<T> {
    /// Makes an empty slab for tokens of `kind` that holds at most `capacity_max` values.
    pub fn new(kind: u8, capacity_max: usize) -> Self {
        Self::with_ids(kind, capacity_max)
    }
}

impl<T, K: Id> Slab<T, K> {
    /// Makes an empty slab as [`new`](Slab::new) does, whose values have names of a type.
    pub fn with_ids(kind: u8, capacity_max: usize) -> Self {
        let capacity_max = capacity_max.min(NONE as usize);
        Self {
            kind,
            slots: Vec::new(),
            free: NONE,
            len: 0,
            capacity_max,
            ids: PhantomData,
        }
    }

    /// Adds a value.
    ///
    /// # Errors
    /// Gives the value back when the slab is full.
    pub fn insert(&mut self, value: T) -> Result<K, T> {
        if self.len >= self.capacity_max {
            return Err(value);
        }
        let token = self.next_token();
        self.len += 1;
        let index = self.free;
        if let Some(slot) = self.slots.get_mut(index as usize) {
            if let Entry::Vacant { next } = slot.entry {
                self.free = next;
            }
            slot.entry = Entry::Occupied(value);
        } else {
            self.slots.push(Slot {
                generation: 0,
                entry: Entry::Occupied(value),
            });
        }
        Ok(token)
    }

    /// Holds at most so many values from now on; those that are there stay, however many.
    pub fn set_capacity_max(&mut self, capacity_max: usize) {
        self.capacity_max = capacity_max.min(NONE as usize);
    }

    /// Returns the token that the next value will have, if there is room for it; for values that
    /// hold their own token.
    pub fn next_token(&self) -> K {
        K::from_token(match self.slots.get(self.free as usize) {
            Some(slot) => Token::new(self.kind, slot.generation, self.free),
            None => Token::new(self.kind, 0, self.slots.len() as u32),
        })
    }

    /// The value that `id` names, if it still lives; nothing for an id of another kind.
    pub fn get(&self, id: K) -> Option<&T> {
        let token = id.token();
        if token.kind() != self.kind {
            return None;
        }
        let slot = self.slots.get(token.index() as usize)?;
        match &slot.entry {
            Entry::Occupied(value) if slot.generation == token.generation() => Some(value),
            _ => None,
        }
    }

    /// The value that `id` names, to change it.
    pub fn get_mut(&mut self, id: K) -> Option<&mut T> {
        let token = id.token();
        if token.kind() != self.kind {
            return None;
        }
        let slot = self.slots.get_mut(token.index() as usize)?;
        match &mut slot.entry {
            Entry::Occupied(value) if slot.generation == token.generation() => Some(value),
            _ => None,
        }
    }

    /// Takes the value out; its id names nothing from now on.
    pub fn remove(&mut self, id: K) -> Option<T> {
        self.get(id)?;
        let token = id.token();
        let slot = self.slots.get_mut(token.index() as usize)?;
        slot.generation = (slot.generation + 1) & Token::GENERATION_MASK;
        let entry = std::mem::replace(&mut slot.entry, Entry::Vacant { next: self.free });
        self.free = token.index();
        self.len -= 1;
        match entry {
            Entry::Occupied(value) => Some(value),
            Entry::Vacant { .. } => None,
        }
    }

    /// Returns the number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns true if it holds no value.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns true if the next insertion would be refused.
    pub fn is_full(&self) -> bool {
        self.len >= self.capacity_max
    }

    /// The tokens of all values, in order of place.
    pub fn tokens(&self) -> impl Iterator<Item = K> + '_ {
        self.slots
            .iter()
            .enumerate()
            .filter_map(|(index, slot)| match slot.entry {
                Entry::Occupied(_) => {
                    let token = Token::new(self.kind, slot.generation, index as u32);
                    Some(K::from_token(token))
                }
                Entry::Vacant { .. } => None,
            })
    }

    /// All values, in order of place.
    pub fn values(&self) -> impl Iterator<Item = &T> + '_ {
        self.slots.iter().filter_map(|slot| match &slot.entry {
            Entry::Occupied(value) => Some(value),
            Entry::Vacant { .. } => None,
        })
    }

    /// All values, in order of place, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> + '_ {
        self.slots
            .iter_mut()
            .filter_map(|slot| match &mut slot.entry {
                Entry::Occupied(value) => Some(value),
                Entry::Vacant { .. } => None,
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::BTreeMap;

    proptest! {
        #[test]
        fn a_slab_is_a_map_with_names_that_are_never_used_twice(
            steps in prop::collection::vec((any::<bool>(), any::<prop::sample::Index>()), 0..200),
            capacity_max in 1_usize..20,
        ) {
            let mut slab = Slab::new(3, capacity_max);
            let mut twin = BTreeMap::new();
            let mut named = Vec::new();
            for (value, (inserts, which)) in steps.into_iter().enumerate() {
                if inserts {
                    let next = slab.next_token();
                    match slab.insert(value) {
                        Ok(token) => {
                            prop_assert_eq!(token, next);
                            prop_assert!(!named.contains(&token), "{token:?} was used before");
                            named.push(token);
                            twin.insert(token, value);
                        }
                        Err(refused) => {
                            prop_assert_eq!(refused, value);
                            prop_assert_eq!(twin.len(), capacity_max);
                        }
                    }
                } else if !named.is_empty() {
                    // Of those that live and those that are gone.
                    let token = *which.get(&named);
                    prop_assert_eq!(slab.remove(token), twin.remove(&token));
                }
                prop_assert_eq!(slab.len(), twin.len());
                prop_assert_eq!(slab.is_full(), twin.len() == capacity_max);
            }
            for token in named {
                prop_assert_eq!(slab.get(token), twin.get(&token));
                prop_assert_eq!(slab.get_mut(token).copied(), twin.get(&token).copied());
            }
            let mut tokens: Vec<_> = slab.tokens().collect();
            tokens.sort();
            prop_assert_eq!(tokens, twin.into_keys().collect::<Vec<_>>());
        }
    }

    #[test]
    fn a_removed_token_never_names_the_next_tenant() {
        let mut slab = Slab::new(1, 10);
        let first = slab.insert("first").unwrap();
        assert_eq!(slab.remove(first), Some("first"));
        let second = slab.insert("second").unwrap();
        assert_eq!(second.index(), first.index());
        assert_eq!(slab.get(first), None);
        assert_eq!(slab.remove(first), None);
        assert_eq!(slab.get(second), Some(&"second"));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn a_token_of_another_kind_names_nothing() {
        let mut slab = Slab::new(1, 10);
        let token = slab.insert("one").unwrap();
        let other = Token::new(2, token.generation(), token.index());
        assert_eq!(slab.get(other), None);
        assert_eq!(slab.get_mut(other), None);
        assert_eq!(slab.remove(other), None);
        assert_eq!(slab.get(token), Some(&"one"));
    }

    #[test]
    fn values_may_be_named_by_a_type_of_their_own() {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        struct Name(Token);
        impl Id for Name {
            fn from_token(token: Token) -> Self {
                Self(token)
            }
            fn token(self) -> Token {
                self.0
            }
        }
        let mut slab: Slab<_, Name> = Slab::with_ids(4, 10);
        assert_eq!(slab.next_token(), Name(Token::new(4, 0, 0)));
        let name = slab.insert("one").unwrap();
        assert_eq!(slab.get(Name::from_bits(name.to_bits())), Some(&"one"));
        assert_eq!(slab.tokens().collect::<Vec<_>>(), [name]);
        assert_eq!(slab.remove(name), Some("one"));
        assert_eq!(slab.get_mut(name), None);
    }

    #[test]
    fn a_full_slab_gives_the_value_back() {
        let mut slab = Slab::new(1, 2);
        let first = slab.insert(1).unwrap();
        slab.insert(2).unwrap();
        assert!(slab.is_full());
        assert_eq!(slab.insert(3), Err(3));
        slab.remove(first);
        assert!(slab.insert(3).is_ok());
        assert_eq!(slab.tokens().count(), 2);
    }

    #[test]
    fn places_are_reused_last_in_first_out() {
        let mut slab = Slab::new(1, 10);
        let tokens: Vec<_> = (0..4).map(|n| slab.insert(n).unwrap()).collect();
        slab.remove(tokens[1]);
        slab.remove(tokens[3]);
        assert_eq!(slab.insert(9).unwrap().index(), 3);
        assert_eq!(slab.insert(9).unwrap().index(), 1);
        assert_eq!(slab.insert(9).unwrap().index(), 4);
    }
}
