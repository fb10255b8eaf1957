//! A bounded cache of decisions and claims.

use aws_lc_rs::digest::{Context, SHA256};
use std::hash::{BuildHasher, RandomState};

/// A digest of a credential, resistant to collisions.
pub(crate) type Digest = [u8; 32];

/// Makes digests. Those of one process have no meaning in another.
#[derive(Clone, Debug)]
pub(crate) struct Digester(u64);

impl Digester {
    pub(crate) fn new() -> Self {
        Self(RandomState::new().hash_one(0))
    }

    /// Digests several parts; the boundaries between them count.
    pub(crate) fn digest(&self, parts: &[&[u8]]) -> Digest {
        let mut context = Context::new(&SHA256);
        context.update(&self.0.to_le_bytes());
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let mut digest = [0; 32];
        digest.copy_from_slice(context.finish().as_ref());
        digest
    }
}

/// A cache with a fixed number of places. If all places of a digest are taken, the entry that was
/// not used for the longest time is replaced.
#[derive(Debug)]
pub(crate) struct ExpiringCache<V> {
    places: Vec<Option<CacheEntry<V>>>,
    places_max: usize,
    uses: u64,
}

#[derive(Debug)]
struct CacheEntry<V> {
    digest: Digest,
    /// End of the entry's validity, in the caller's unit.
    until: u64,
    used: u64,
    value: V,
}

const WAYS: usize = 4;

impl<V> ExpiringCache<V> {
    /// Makes a cache of `places_max` places, which are allocated at the first use.
    pub(crate) fn new(places_max: usize) -> Self {
        Self {
            places: Vec::new(),
            places_max: places_max.next_multiple_of(WAYS).max(WAYS),
            uses: 0,
        }
    }

    /// The value of a digest, if it is valid at `now`.
    pub(crate) fn get(&mut self, digest: &Digest, now: u64) -> Option<&V> {
        self.uses += 1;
        let uses = self.uses;
        let entry = self
            .ways(digest)
            .iter_mut()
            .flatten()
            .find(|entry| entry.digest == *digest && entry.until > now)?;
        entry.used = uses;
        Some(&entry.value)
    }

    /// Keeps a value until a time.
    pub(crate) fn put(&mut self, digest: Digest, until: u64, value: V, now: u64) {
        if self.places.is_empty() {
            self.places.resize_with(self.places_max, || None);
        }
        self.uses += 1;
        let used = self.uses;
        let worth = |place: &Option<CacheEntry<V>>| match place {
            None => 0,
            Some(entry) if entry.digest == digest || entry.until <= now => 0,
            Some(entry) => entry.used,
        };
        let place = self
            .ways(&digest)
            .iter_mut()
            .min_by_key(|place| worth(place));
        if let Some(place) = place {
            *place = Some(CacheEntry {
                digest,
                until,
                used,
                value,
            });
        }
    }

    /// Removes all values.
    pub(crate) fn clear(&mut self) {
        self.places = Vec::new();
    }

    fn ways(&mut self, digest: &Digest) -> &mut [Option<CacheEntry<V>>] {
        if self.places.is_empty() {
            return &mut [];
        }
        let mut bits = [0; 8];
        bits.copy_from_slice(&digest[..8]);
        let set = u64::from_le_bytes(bits) as usize % (self.places.len() / WAYS);
        &mut self.places[set * WAYS..(set + 1) * WAYS]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_that_of_all_its_parts() {
        let digester = Digester::new();
        let name = digester.digest(&[b"ab", b"c"]);
        assert_eq!(name, digester.digest(&[b"ab", b"c"]));
        assert_ne!(name, digester.digest(&[b"a", b"bc"]));
        assert_ne!(name, digester.digest(&[b"abc"]));
    }

    #[test]
    fn what_is_kept_is_kept_for_a_while() {
        let digester = Digester::new();
        let mut known = ExpiringCache::new(16);
        let name = digester.digest(&[b"a"]);
        assert_eq!(known.get(&name, 0), None);
        known.put(name, 10, "first", 0);
        assert_eq!(known.get(&name, 9), Some(&"first"));
        assert_eq!(known.get(&name, 10), None);
        known.put(name, 20, "second", 10);
        assert_eq!(known.get(&name, 10), Some(&"second"));
        known.clear();
        assert_eq!(known.get(&name, 10), None);
    }

    #[test]
    fn many_names_take_no_more_than_the_table() {
        let digester = Digester::new();
        let mut known = ExpiringCache::new(1024);
        let regular = digester.digest(&[b"regular"]);
        known.put(regular, u64::MAX, 0, 0);
        for number in 1..100_000_u32 {
            known.put(
                digester.digest(&[&number.to_le_bytes()]),
                u64::MAX,
                number,
                0,
            );
            assert!(known.get(&regular, 0).is_some(), "{number}");
        }
        assert_eq!(known.places.len(), 1024);
    }
}
