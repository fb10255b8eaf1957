//! Feeds that have joined those who wait for a key, and may be told of no read that is older.
//!
//! A WebSocket, or a stream of several keys, waits as soon as it has named a key. A read of the key
//! may be under way then. Its value may be older than a write that the client knows of, so only
//! those who waited before are told of it; the feed is told of the read that it has begun itself.

use crate::ids::{FeedId, KeyId};
use std::collections::HashMap;

/// The feeds of each key with older lookups under way, and the number of the first lookup that each
/// of them may be told of.
///
/// Shape: a key is here while it has lookups.
#[derive(Debug, Default)]
pub(super) struct Joined {
    feeds: HashMap<KeyId, Vec<(FeedId, u64)>>,
}

impl Joined {
    /// A feed has joined that may be told of this lookup, and of those behind it. One that is here
    /// already goes on waiting for the lookup that was its first.
    pub(super) fn add(&mut self, key: KeyId, feed: FeedId, first: u64) {
        let feeds = self.feeds.entry(key).or_default();
        if feeds.iter().all(|(known, _)| *known != feed) {
            feeds.push((feed, first));
        }
    }

    /// A lookup of a key has ended; returns the feeds that may not be told of it.
    pub(super) fn end(&mut self, key: KeyId, number: u64, is_last: bool) -> Vec<FeedId> {
        let Some(feeds) = self.feeds.get_mut(&key) else {
            return Vec::new();
        };
        feeds.retain(|(_, first)| *first > number);
        let left = feeds.iter().map(|(feed, _)| *feed).collect();
        if is_last || feeds.is_empty() {
            self.feeds.remove(&key);
        }
        left
    }

    /// The feeds of a key that wait for a lookup of their own.
    pub(super) fn of(&self, key: KeyId) -> Vec<FeedId> {
        let feeds = self.feeds.get(&key).into_iter().flatten();
        feeds.map(|(feed, _)| *feed).collect()
    }
}

#[cfg(any(test, feature = "sim"))]
impl Joined {
    /// Keys with such feeds.
    pub(super) fn len(&self) -> usize {
        self.feeds.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_feed_is_told_of_no_lookup_before_its_first() {
        let [key, other] = [1, 2].map(KeyId::nth);
        let [a, b] = [1, 2].map(FeedId::nth);
        let mut joined = Joined::default();
        joined.add(key, a, 3);
        joined.add(key, b, 4);
        joined.add(key, a, 5);
        assert_eq!(joined.end(other, 1, true), []);
        assert_eq!(joined.of(key), [a, b]);
        assert_eq!(joined.end(key, 2, false), [a, b]);
        assert_eq!(joined.end(key, 3, false), [b], "its first is not put off");
        assert_eq!(joined.end(key, 4, false), []);
        assert_eq!(joined.len(), 0);
        joined.add(key, a, 6);
        assert_eq!(joined.end(key, 5, true), [a]);
        assert_eq!(joined.len(), 0, "no lookup is left that could be older");
    }
}
