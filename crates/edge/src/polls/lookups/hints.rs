//! Hints: a change that memcached reports makes a loop read keys, and nothing else.

use super::super::tables::{Keys, Version};
use super::Lookups;
use crate::ids::KeyId;
use dwell_memcache::watch::HintOutcome;

impl Lookups {
    /// Reads a key that may have changed, if it is waited for.
    pub(in crate::polls) fn hint(&mut self, keys: &mut Keys, name: &[u8]) -> HintOutcome {
        let key = keys.find(name);
        let Some((key, record)) = key.and_then(|key| Some((key, keys.get(key)?))) else {
            return HintOutcome::Unwatched;
        };
        if record.lookup.is_some() {
            // It is read when this turn ends.
            return HintOutcome::Joined;
        }
        if record.lookups > 0 {
            // What is under way may have been read before the change. So it is read once more, but
            // only then: a storm of changes is one read after the other.
            keys.hinted.insert(key);
            return HintOutcome::Joined;
        }
        if record.waiting.is_empty() {
            return HintOutcome::Unwatched;
        }
        #[cfg(feature = "sim")]
        if dwell_evloop::sim::Planted::HintIsRead.is_in() {
            keys.hinted.insert(key);
            return HintOutcome::Read;
        }
        self.read(keys, key);
        HintOutcome::Read
    }

    /// Reads a key again whose lookup has ended, if it may have changed meanwhile.
    pub(in crate::polls) fn follow_hint(&mut self, keys: &mut Keys, key: KeyId) {
        let is_hinted = !keys.hinted.is_empty() && keys.hinted.remove(&key);
        let is_waited = |key: &KeyId| keys.get(*key).is_some_and(|key| !key.waiting.is_empty());
        if is_hinted && is_waited(&key) {
            self.read(keys, key);
        }
    }

    /// Asks for the versions of all keys of one server that are waited for, before the next sweep
    /// would; where they are distrusted, all values are read.
    pub(in crate::polls) fn resync(
        &mut self,
        keys: &mut Keys,
        is_of_server: impl Fn(&[u8]) -> bool,
        is_distrusted: bool,
    ) {
        let waited = keys.waited_keys();
        // What is left of a sweep under way is among them all.
        let takes_all = !self.sweep.is_over();
        let mut versions = Vec::new();
        for key in waited {
            let Some(record) = keys.get_mut(key) else {
                continue;
            };
            let is_meant = is_of_server(&record.name);
            if is_meant && is_distrusted {
                // No version is this one, so the value is read.
                record.version = Version::default();
            }
            if is_meant || takes_all {
                versions.push(key);
            }
        }
        self.sweep.begin(versions);
    }
}
