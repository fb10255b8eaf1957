//! What memcached tells of changes makes a loop look, and nothing else.

use super::Polls;
use super::tables::Version;
use crate::metrics::HintOutcome;
use dwell_evloop::Token;

impl Polls {
    /// These keys may have changed; each that polls wait for is read.
    pub(crate) fn hinted(&mut self, names: &[Box<[u8]>]) {
        for name in names {
            let outcome = self.hint(name);
            self.metrics.feed_hints.increment(outcome);
        }
    }

    fn hint(&mut self, name: &[u8]) -> HintOutcome {
        let key = self.keys.find(name);
        let Some((key, record)) = key.and_then(|key| Some((key, self.keys.get(key)?))) else {
            return HintOutcome::Unwatched;
        };
        if record.lookup.token().is_some() {
            // It is read when this turn ends.
            return HintOutcome::Joined;
        }
        if record.lookups > 0 {
            // What is under way may have been read before the change. So it is read once more, but
            // only then: a storm of changes is one read after the other.
            self.keys.hinted.insert(key);
            return HintOutcome::Joined;
        }
        if record.waiting.is_empty() {
            return HintOutcome::Unwatched;
        }
        self.lookup_of(key);
        HintOutcome::Read
    }

    /// A lookup of `key` has ended: reads it again if it may have changed meanwhile.
    pub(super) fn follow_hint(&mut self, key: Token) {
        let is_hinted = !self.keys.hinted.is_empty() && self.keys.hinted.remove(&key);
        let is_waited = |key| {
            self.keys
                .get(key)
                .is_some_and(|key| !key.waiting.is_empty())
        };
        if is_hinted && is_waited(key) {
            self.lookup_of(key);
        }
    }

    /// Looks at everything that polls wait for on one server, before the next sweep would.
    pub(crate) fn look_at_all(
        &mut self,
        is_of_server: impl Fn(&[u8]) -> bool,
        is_distrusted: bool,
    ) {
        let keys = self.keys.waited_keys();
        // What is left of a sweep under way is among them all.
        let takes_all = !self.outbox.versions.is_empty();
        self.outbox.versions.clear();
        for key in keys {
            let Some(record) = self.keys.get_mut(key) else {
                continue;
            };
            let is_meant = is_of_server(&record.name);
            if is_meant && is_distrusted {
                // No version is this one, so the value is read.
                record.version = Version::default();
            }
            if is_meant || takes_all {
                self.outbox.versions.push(key);
            }
        }
    }
}
