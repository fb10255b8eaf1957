//! A generational arena: the table of a component's connections.

use crate::{Id, Token};
use std::marker::PhantomData;

/// Holds the values of one kind, each addressed by a [`Token`], or by an [`Id`] of that kind alone.
///
/// Shape: places are reused last-in first-out, so that a busy component keeps touching the same
/// memory; a token of an earlier tenant finds nothing. Never holds more than `capacity_max`. The
/// memory of a crowd goes when most of it has left, as far as its last places are empty.
#[derive(Debug)]
pub struct Slab<T, K = Token> {
    kind: u8,
    places: Vec<Place<T>>,
    /// The tenants of the places; a table of its own, as most values leave a number no room beside
    /// them.
    generations: Vec<u32>,
    free: u32,
    len: usize,
    capacity_max: usize,
    /// The generation of a place that is made: no place that was given back has had it lately.
    first_generation: u32,
    /// At this number of values or fewer, the places that can be given back are counted.
    shrinks_at: usize,
    ids: PhantomData<fn() -> K>,
}

#[derive(Debug)]
enum Place<T> {
    Occupied(T),
    Vacant { next: u32 },
}

const NONE: u32 = u32::MAX;
/// So many places are never given back.
const PLACES_KEPT: usize = 64;

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
            places: Vec::new(),
            generations: Vec::new(),
            free: NONE,
            len: 0,
            capacity_max,
            first_generation: 0,
            shrinks_at: 0,
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
        if let Some(place) = self.places.get_mut(index as usize) {
            if let Place::Vacant { next } = *place {
                self.free = next;
            }
            *place = Place::Occupied(value);
        } else {
            self.places.push(Place::Occupied(value));
            self.generations.push(self.first_generation);
            self.shrinks_at = self.places.len() / 4;
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
        K::from_token(match self.generations.get(self.free as usize) {
            Some(generation) => Token::new(self.kind, *generation, self.free),
            None => Token::new(self.kind, self.first_generation, self.places.len() as u32),
        })
    }

    /// The value that `id` names, if it still lives; nothing for an id of another kind.
    pub fn get(&self, id: K) -> Option<&T> {
        match self.places.get(self.index_of(id)?)? {
            Place::Occupied(value) => Some(value),
            Place::Vacant { .. } => None,
        }
    }

    /// The value in a place, whatever tenant it is; for tables beside this one, whose entries are
    /// places.
    pub fn at(&self, index: u32) -> Option<&T> {
        match self.places.get(index as usize)? {
            Place::Occupied(value) => Some(value),
            Place::Vacant { .. } => None,
        }
    }

    /// The name of the value in a place.
    pub fn id_at(&self, index: u32) -> Option<K> {
        self.at(index)?;
        let generation = self.generations.get(index as usize)?;
        Some(K::from_token(Token::new(self.kind, *generation, index)))
    }

    /// The value that `id` names, to change it.
    pub fn get_mut(&mut self, id: K) -> Option<&mut T> {
        let index = self.index_of(id)?;
        match self.places.get_mut(index)? {
            Place::Occupied(value) => Some(value),
            Place::Vacant { .. } => None,
        }
    }

    /// The place of the tenant that `id` names, or would have if it had not left.
    fn index_of(&self, id: K) -> Option<usize> {
        let token = id.token();
        let index = token.index() as usize;
        let is_it =
            token.kind() == self.kind && self.generations.get(index) == Some(&token.generation());
        #[cfg(feature = "sim")]
        if crate::sim::Planted::ForgetGeneration.is_in() {
            return (token.kind() == self.kind).then_some(index);
        }
        is_it.then_some(index)
    }

    /// Takes the value out; its id names nothing from now on.
    pub fn remove(&mut self, id: K) -> Option<T> {
        self.remove_if(id, |_| Some(())).map(|(value, ())| value)
    }

    /// Takes the value out if `choose` has something for it, which is returned with it.
    pub fn remove_if<R>(&mut self, id: K, choose: impl FnOnce(&T) -> Option<R>) -> Option<(T, R)> {
        let index = self.index_of(id)?;
        let place = self.places.get_mut(index)?;
        let chosen = match place {
            Place::Occupied(value) => choose(value)?,
            Place::Vacant { .. } => return None,
        };
        let place = std::mem::replace(place, Place::Vacant { next: self.free });
        let generation = &mut self.generations[index];
        *generation = (*generation + 1) & Token::GENERATION_MASK;
        self.free = index as u32;
        self.len -= 1;
        if self.len <= self.shrinks_at && self.places.len() > 2 * PLACES_KEPT {
            self.shrink();
        }
        match place {
            Place::Occupied(value) => Some((value, chosen)),
            Place::Vacant { .. } => None,
        }
    }

    /// Gives the last places back if they are empty, and half of all or more.
    ///
    /// Shape: checked once for each halving of the number of values, so that one removal of as
    /// many pays for it.
    #[cold]
    fn shrink(&mut self) {
        let is_occupied = |place: &Place<T>| matches!(place, Place::Occupied(_));
        let used = self.places.iter().rposition(is_occupied);
        let kept = used.map_or(0, |last| last + 1).max(PLACES_KEPT);
        if kept > self.places.len() / 2 {
            self.shrinks_at = self.len / 2;
            return;
        }
        // The furthest generation that is given up was in use for none of these places. They go
        // round: one that is behind is more than half of the circle ahead.
        let first = self.first_generation;
        let ahead = |generation: u32| generation.wrapping_sub(first) & Token::GENERATION_MASK;
        let given_up = self.generations.drain(kept..).map(ahead);
        let furthest = given_up.filter(|ahead| *ahead <= Token::GENERATION_MASK / 2);
        let furthest = furthest.max().unwrap_or(0);
        self.first_generation = (first + furthest) & Token::GENERATION_MASK;
        self.generations.shrink_to_fit();
        self.places.truncate(kept);
        self.places.shrink_to_fit();
        self.shrinks_at = kept / 4;
        self.free = NONE;
        for (index, place) in self.places.iter_mut().enumerate().rev() {
            if let Place::Vacant { next } = place {
                *next = self.free;
                self.free = index as u32;
            }
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
        let places = self.places.iter().zip(&self.generations).enumerate();
        places.filter_map(|(index, (place, generation))| match place {
            Place::Occupied(_) => {
                let token = Token::new(self.kind, *generation, index as u32);
                Some(K::from_token(token))
            }
            Place::Vacant { .. } => None,
        })
    }

    /// All values, in order of place.
    pub fn values(&self) -> impl Iterator<Item = &T> + '_ {
        self.places.iter().filter_map(|place| match place {
            Place::Occupied(value) => Some(value),
            Place::Vacant { .. } => None,
        })
    }

    /// All values, in order of place, to change them.
    pub fn values_mut(&mut self) -> impl Iterator<Item = &mut T> + '_ {
        self.places.iter_mut().filter_map(|place| match place {
            Place::Occupied(value) => Some(value),
            Place::Vacant { .. } => None,
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
                let tenant = slab.id_at(token.index());
                prop_assert_eq!(slab.at(token.index()), tenant.and_then(|id| twin.get(&id)));
                prop_assert_eq!(tenant == Some(token), twin.contains_key(&token));
                prop_assert_eq!(slab.get_mut(token).copied(), twin.get(&token).copied());
            }
            let mut tokens: Vec<_> = slab.tokens().collect();
            tokens.sort();
            prop_assert_eq!(tokens, twin.into_keys().collect::<Vec<_>>());
        }
    }

    proptest! {
        #[test]
        fn the_places_of_a_crowd_are_given_back_and_its_names_name_nothing(
            crowds in prop::collection::vec((1_usize..1000, any::<u64>(), 0_usize..200), 1..6),
        ) {
            let mut slab = Slab::new(3, 2000);
            let (mut live, mut gone) = (Vec::new(), Vec::new());
            for (number, (size, order, left)) in crowds.into_iter().enumerate() {
                while live.len() < size {
                    let token = slab.insert(number).unwrap();
                    prop_assert!(!live.contains(&token), "{token:?} has a tenant");
                    prop_assert!(!gone.contains(&token), "{token:?} was used before");
                    live.push(token);
                }
                while live.len() > left {
                    let token = live.swap_remove(order as usize % live.len());
                    prop_assert!(slab.remove(token).is_some());
                    gone.push(token);
                }
                let places = slab.places.len();
                prop_assert!(!live.is_empty() || places <= 2 * PLACES_KEPT, "{places} places");
                prop_assert_eq!(slab.places.len(), slab.generations.len());
                prop_assert!(gone.iter().all(|token| slab.get(*token).is_none()));
                prop_assert!(live.iter().all(|token| slab.get(*token).is_some()));
                prop_assert_eq!(slab.tokens().count(), live.len());
            }
        }
    }

    #[test]
    fn the_memory_of_a_crowd_goes_with_it() {
        let mut slab = Slab::new(1, usize::MAX);
        for _ in 0..2 {
            let tokens: Vec<_> = (0..10_000).map(|n| slab.insert(n).unwrap()).collect();
            for token in tokens {
                slab.remove(token);
            }
            assert!(slab.places.capacity() <= PLACES_KEPT);
            assert!(slab.generations.capacity() <= PLACES_KEPT);
        }
    }

    #[test]
    fn generations_of_places_that_are_made_again_go_round() {
        let mut slab = Slab::new(1, usize::MAX);
        slab.first_generation = Token::GENERATION_MASK - 1;
        let mut last = Vec::new();
        for _ in 0..5 {
            let tokens: Vec<_> = (0..1000).map(|n| slab.insert(n).unwrap()).collect();
            assert!(last.iter().all(|token| slab.get(*token).is_none()));
            for token in &tokens {
                slab.remove(*token);
            }
            assert!(slab.places.len() <= PLACES_KEPT);
            last = tokens;
        }
        assert_eq!(slab.first_generation, 3);
    }

    #[test]
    fn a_value_costs_its_size_and_a_number() {
        assert_eq!(size_of::<Place<Box<u64>>>(), 16);
        assert_eq!(size_of::<Place<(Box<u64>, bool)>>(), 16);
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
