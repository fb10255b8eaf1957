//! The keys that are read most, by samples.
//!
//! One read in 64 on average is sampled, at distances that follow no pattern of the clients, and
//! the keys of those are counted in a table of fixed size: a key that is not in it takes the place
//! of the least counted one and inherits its count (Metwally et al., "Efficient computation of
//! frequent and top-k elements", 2005). A key that gets more than
//! a 64th of the reads is always in it. Counts are halved from time to time, so that the table
//! shows what is hot now.

use dwell_metrics::Counter;
use std::sync::{Mutex, PoisonError};

/// One read in this many is counted.
pub const READS_PER_SAMPLE: u64 = 64;
/// Keys a table holds.
const KEYS_MAX: usize = 64;
/// Samples after which all counts are halved.
const SAMPLES_PER_HALVING: u32 = 8192;

/// The most read keys of one loop; only that loop's thread samples, any thread may look.
#[derive(Debug, Default)]
pub struct HotKeys {
    /// Reads until the next sample.
    left: Counter,
    /// State of the generator of the distances.
    random: Counter,
    table: Mutex<Table>,
}

#[derive(Debug, Default)]
struct Table {
    keys: Vec<HotKey>,
    samples: u32,
}

/// A key with how often it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HotKey {
    /// The key.
    pub key: Box<[u8]>,
    /// The samples that hit it, lately.
    pub samples: u32,
}

impl HotKeys {
    /// Notes one read; most are only counted.
    pub fn read(&self, key: &[u8]) {
        match self.left.value().checked_sub(1) {
            Some(left) => self.left.set(left),
            None => self.sample(key),
        }
    }

    // Apart from the common case, which is inlined into the reads.
    #[cold]
    fn sample(&self, key: &[u8]) {
        // A linear congruential generator (Knuth's constants); its high bits are random enough.
        let random = self.random.value().wrapping_mul(6_364_136_223_846_793_005);
        let random = random.wrapping_add(1_442_695_040_888_963_407);
        self.random.set(random);
        // From 0 to 126 reads between two samples, so that 64 is the mean distance.
        self.left.set((random >> 32) % (2 * READS_PER_SAMPLE - 1));
        let mut table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.count(key);
    }

    /// The keys in the table, in no order.
    pub fn keys(&self) -> Vec<HotKey> {
        let table = self.table.lock().unwrap_or_else(PoisonError::into_inner);
        table.keys.clone()
    }
}

impl Table {
    fn count(&mut self, key: &[u8]) {
        self.samples += 1;
        if self.samples == SAMPLES_PER_HALVING {
            self.samples = 0;
            self.keys.iter_mut().for_each(|hot| hot.samples /= 2);
            self.keys.retain(|hot| hot.samples > 0);
        }
        if let Some(hot) = self.keys.iter_mut().find(|hot| *hot.key == *key) {
            hot.samples += 1;
        } else if self.keys.len() < KEYS_MAX {
            self.keys.push(HotKey {
                key: key.into(),
                samples: 1,
            });
        } else if let Some(least) = self.keys.iter_mut().min_by_key(|hot| hot.samples) {
            least.key = key.into();
            least.samples += 1;
        }
    }
}

/// The most read keys of several loops, the hottest first.
pub fn hottest(loops: impl Iterator<Item = Vec<HotKey>>, count: usize) -> Vec<HotKey> {
    let mut keys: Vec<HotKey> = Vec::new();
    for hot in loops.flatten() {
        match keys.iter_mut().find(|known| known.key == hot.key) {
            Some(known) => known.samples = known.samples.saturating_add(hot.samples),
            None => keys.push(hot),
        }
    }
    keys.sort_by(|a, b| b.samples.cmp(&a.samples).then_with(|| a.key.cmp(&b.key)));
    keys.truncate(count);
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hot_key_stands_out_of_many_cold_ones() {
        let hot = HotKeys::default();
        for number in 0..200_000_u32 {
            // A third of the reads, at places the sampling does not favour.
            if number.wrapping_mul(2_654_435_761) >> 16 < 21_845 {
                hot.read(b"hot");
            } else {
                hot.read(&number.to_le_bytes());
            }
        }
        let keys = hottest([hot.keys()].into_iter(), 3);
        assert_eq!(&*keys[0].key, b"hot");
        assert!(keys[0].samples > 5 * keys[1].samples, "{keys:?}");
        assert!(hot.keys().len() <= KEYS_MAX);
    }

    #[test]
    fn what_is_not_read_any_more_fades() {
        let mut table = Table::default();
        for _ in 0..100 {
            table.count(b"old");
        }
        for _ in 0..SAMPLES_PER_HALVING * 8 {
            table.count(b"new");
        }
        assert!(table.keys.iter().all(|hot| *hot.key != *b"old"));
    }

    #[test]
    fn loops_are_added_up() {
        let of_loop = |samples| {
            vec![HotKey {
                key: (*b"a").into(),
                samples,
            }]
        };
        let keys = hottest([of_loop(2), of_loop(3)].into_iter(), 10);
        assert_eq!(keys, of_loop(5));
    }
}
