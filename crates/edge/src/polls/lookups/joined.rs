//! Feeds that have joined those who wait for a key, and may not get a read that is older.
//!
//! A WebSocket, or a stream of several keys, waits as soon as it has named a key. A read of the key
//! may be in progress then. Its value may be older than a write that the client knows of, so only
//! those who waited before get it; the feed gets the read that it has begun itself.

use crate::ids::{FeedId, KeyId};
use std::collections::HashMap;

/// The feeds of each key with older lookups in progress.
///
/// Shape: a key is here while it has lookups, or one that waits for room.
#[derive(Debug, Default)]
pub(super) struct Joined {
    feeds: HashMap<KeyId, Vec<Behind>>,
}

/// A feed that may get no lookup before its own one.
#[derive(Debug)]
struct Behind {
    feed: FeedId,
    /// The number of its own lookup, the first that it may get.
    first: u64,
    /// Others got a value that it did not get.
    has_missed: bool,
}

/// The feeds of a key where one of its lookups has ended.
#[derive(Debug, Default, PartialEq, Eq)]
pub(in crate::polls) struct LookupEnd {
    /// They may not get it.
    pub(in crate::polls) behind: Vec<FeedId>,
    /// It has failed, and was to bring what a feed had not been told before.
    pub(in crate::polls) is_to_repeat: bool,
}

impl Joined {
    /// A feed has joined that may get this lookup, and those behind it. A feed that is here already
    /// goes on waiting for the lookup that was its first.
    pub(super) fn add(&mut self, key: KeyId, feed: FeedId, first: u64) {
        let feeds = self.feeds.entry(key).or_default();
        if feeds.iter().all(|known| known.feed != feed) {
            feeds.push(Behind {
                feed,
                first,
                has_missed: false,
            });
        }
    }

    /// A lookup of a key has ended.
    pub(super) fn end(
        &mut self,
        key: KeyId,
        number: u64,
        is_last: bool,
        has_failed: bool,
    ) -> LookupEnd {
        let Some(feeds) = self.feeds.get_mut(&key) else {
            return LookupEnd::default();
        };
        let mut end = LookupEnd::default();
        feeds.retain_mut(|behind| {
            let waits = behind.first > number;
            end.is_to_repeat |= !waits && has_failed && behind.has_missed;
            behind.has_missed |= !has_failed;
            waits
        });
        end.behind = feeds.iter().map(|behind| behind.feed).collect();
        if is_last || feeds.is_empty() {
            self.forget(key);
        }
        end
    }

    /// No lookup of a key is left that could be older than those of its feeds.
    pub(super) fn forget(&mut self, key: KeyId) {
        self.feeds.remove(&key);
    }

    /// A value of a key has come that is of no lookup; returns the feeds that may not be told.
    pub(super) fn pass_by(&mut self, key: KeyId) -> Vec<FeedId> {
        let feeds = self.feeds.get_mut(&key).into_iter().flatten();
        let passed = feeds.map(|behind| {
            behind.has_missed = true;
            behind.feed
        });
        passed.collect()
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
        assert_eq!(joined.end(other, 1, true, false).behind, []);
        assert_eq!(joined.pass_by(other), []);
        assert_eq!(joined.pass_by(key), [a, b]);
        assert_eq!(joined.end(key, 2, false, false).behind, [a, b]);
        let third = joined.end(key, 3, false, false);
        assert_eq!(third.behind, [b], "its first is not put off");
        assert_eq!(joined.end(key, 4, false, false), LookupEnd::default());
        assert_eq!(joined.len(), 0);
        joined.add(key, a, 6);
        assert_eq!(joined.end(key, 5, true, false).behind, [a]);
        assert_eq!(joined.len(), 0, "no lookup is left that could be older");
    }

    #[test]
    fn a_lookup_that_fails_is_repeated_for_a_feed_that_has_missed_a_value() {
        let (key, feed) = (KeyId::nth(1), FeedId::nth(1));
        let mut joined = Joined::default();
        let mut fails = |misses: &dyn Fn(&mut Joined)| {
            joined.add(key, feed, 3);
            misses(&mut joined);
            assert!(!joined.end(key, 2, false, true).is_to_repeat, "not its own");
            joined.end(key, 3, true, true).is_to_repeat
        };
        assert!(!fails(&|_| ()), "others know no more");
        assert!(fails(&|joined| drop(joined.pass_by(key))));
        assert!(fails(&|joined| drop(joined.end(key, 1, false, false))));
        joined.add(key, feed, 3);
        joined.pass_by(key);
        assert!(!joined.end(key, 3, true, false).is_to_repeat, "it is told");
    }
}
