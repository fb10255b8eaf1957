//! Lookups before an embedded store, and before a memcached that the tests speak for.

use super::reads::READS_AT_ONCE;
use super::*;
use crate::ids::{FeedId, MultiPollId, PollId};
use crate::metrics::Metrics;
use dwell_evloop::Id;
use dwell_memcache::watch::HintOutcome;
use dwell_store::StoreConfig;
use std::sync::Mutex;

const NOW: u32 = 1000;
const MINUTE: Duration = Duration::from_secs(60);

/// The keys and lookups of a loop that has a place for three lookups.
struct Fixture {
    keys: Keys,
    lookups: Lookups,
    metrics: Arc<LoopMetrics>,
}

impl Fixture {
    fn new(source: Source) -> Self {
        let metrics = Metrics::new(1, Vec::new(), 0).of_loop(0);
        Self {
            keys: Keys::new(None),
            lookups: Lookups::new(source, Arc::clone(&metrics), 3),
            metrics,
        }
    }

    fn before_memcached() -> Self {
        Self::new(Source::Memcached)
    }

    fn key(&mut self, name: &str) -> KeyId {
        self.keys.enter(name.as_bytes()).unwrap()
    }

    /// A key that one poll waits for.
    fn waited(&mut self, name: &str) -> KeyId {
        let key = self.key(name);
        let record = self.keys.get_mut(key).unwrap();
        record.waiting.join(PollId::nth(1).into());
        key
    }

    fn ask(&mut self, key: KeyId) -> Option<LookupId> {
        self.lookups.ask(&mut self.keys, key)
    }

    /// Ends the turn: what it has collected goes out; returns the names that memcached is asked.
    fn send(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        for lookup in self.lookups.take_unsent() {
            let name = self.lookups.sent(&mut self.keys, lookup).unwrap();
            names.push(String::from_utf8(name.to_vec()).unwrap());
        }
        names
    }

    fn complete(&mut self, lookup: LookupId, outcome: Outcome<'_>) -> Option<Lookup> {
        let completion = completion(lookup, outcome);
        let lookup = self
            .lookups
            .completed(&mut self.keys, lookup, &completion)?;
        Lookups::leave(&mut self.keys, lookup.key);
        Some(lookup)
    }

    fn version(&mut self, key: KeyId, cas_unique: u64) {
        let completion = completion(key, Outcome::Version { cas_unique });
        self.lookups.version_came(&mut self.keys, key, &completion);
    }

    fn hint(&mut self, name: &str) -> HintOutcome {
        self.lookups.hint(&mut self.keys, name.as_bytes())
    }

    /// The names of the keys whose versions are to be asked for.
    fn versions(&mut self) -> Vec<String> {
        let mut names = Vec::new();
        while let Some(key) = self.lookups.next_version() {
            let name = &self.keys.get(key).unwrap().name;
            names.push(String::from_utf8(name.to_vec()).unwrap());
        }
        names.sort();
        names
    }
}

fn completion(of: impl Id, outcome: Outcome<'_>) -> Completion<'_> {
    Completion {
        tag: of.to_bits(),
        server: 2,
        epoch: 1,
        outcome,
    }
}

fn hit(cas_unique: u64) -> Outcome<'static> {
    Outcome::Hit {
        value: b"value",
        flags: 0,
        cas_unique,
    }
}

#[test]
fn what_asks_for_a_key_in_one_turn_shares_a_lookup() {
    let mut of = Fixture::before_memcached();
    let (a, b) = (of.key("a"), of.key("b"));
    let lookup = of.ask(a).unwrap();
    assert_eq!(of.ask(a), Some(lookup));
    of.ask(b);
    let members = [
        Packed::from(PollId::nth(1)),
        Packed::from(MultiPollId::nth(2)),
    ];
    for member in members {
        of.lookups.join(lookup, member);
    }
    assert!(of.lookups.has_left());
    assert_eq!(of.send(), ["a", "b"]);
    assert!(!of.lookups.has_left());
    let next = of.ask(a).unwrap();
    assert_ne!(next, lookup, "what has gone out is shared no more");
    let ended = of.complete(lookup, hit(1)).unwrap();
    assert!(!ended.is_of_sweep());
    assert_eq!(ended.into_members().collect::<Vec<_>>(), members);
    assert!(of.complete(next, Outcome::Miss).unwrap().is_of_sweep());
    assert!(of.complete(lookup, hit(1)).is_none(), "it has ended");
}

#[test]
fn a_key_is_kept_until_its_last_lookup_has_ended() {
    let mut of = Fixture::before_memcached();
    let key = of.key("a");
    let first = of.ask(key).unwrap();
    of.send();
    let second = of.ask(key).unwrap();
    of.send();
    for lookup in [first, second] {
        assert!(of.lookups.is_open(lookup));
        assert_eq!(of.keys.release(key), None);
        of.complete(lookup, Outcome::Failed(Failure::Timeout));
        assert!(!of.lookups.is_open(lookup));
    }
    assert!(of.keys.get(key).is_none());
}

#[test]
fn lookups_of_requests_have_a_bound() {
    let mut of = Fixture::before_memcached();
    let keys = ["a", "b", "c", "d"].map(|name| of.key(name));
    let read = of.waited("read");
    of.version(read, 1);
    let lookups = keys.map(|key| of.ask(key));
    assert!(lookups[2].is_some(), "a read takes none of their room");
    assert_eq!(lookups[3], None, "there is room for three");
    assert!(of.lookups.reads_later(&mut of.keys, keys[2]), "it shares");
    of.complete(lookups[0].unwrap(), Outcome::Miss);
    assert!(of.ask(keys[3]).is_some());
}

#[test]
fn a_read_without_room_comes_when_there_is_some_and_each_key_has_its_turn() {
    let mut of = Fixture::before_memcached();
    let names = ["a", "b", "c", "d", "e", "f"];
    let keys = names.map(|name| of.waited(name));
    for _ in 0..2 {
        for key in keys {
            of.version(key, 1);
        }
    }
    assert_eq!(of.hint("f"), HintOutcome::Read);
    let first = of.lookups.take_unsent();
    assert_eq!(first.len(), READS_AT_ONCE, "there is room for so many");
    for lookup in &first {
        of.lookups.sent(&mut of.keys, *lookup).unwrap();
    }
    let asked = of.ask(keys[3]);
    of.complete(first[0], hit(1));
    assert_eq!(of.send(), ["d", "e"], "one that is asked for takes no room");
    let Some(asked) = asked else {
        panic!("a request has room of its own");
    };
    of.complete(asked, Outcome::Failed(Failure::Timeout));
    assert_eq!(of.send(), [""; 0], "that was no read");
    of.complete(first[1], Outcome::Failed(Failure::Timeout));
    assert_eq!(of.send(), ["f"]);
    assert_eq!(of.lookups.len(), READS_AT_ONCE);
}

#[test]
fn each_end_of_a_lookup_is_counted() {
    let mut of = Fixture::before_memcached();
    for (outcome, counted) in [
        (hit(1), LookupOutcome::Hit),
        (Outcome::Miss, LookupOutcome::Miss),
        (Outcome::Failed(Failure::Timeout), LookupOutcome::Timeout),
        (
            Outcome::Failed(Failure::Unavailable),
            LookupOutcome::Skipped,
        ),
        (Outcome::Failed(Failure::Closed), LookupOutcome::Error),
    ] {
        let key = of.key("a");
        let lookup = of.ask(key).unwrap();
        of.send();
        of.complete(lookup, outcome);
        assert_eq!(of.metrics.memcached_lookups.of(counted).value(), 1);
    }
}

#[test]
fn a_version_that_moved_has_the_value_read() {
    let mut of = Fixture::before_memcached();
    let key = of.waited("a");
    let lookup = of.ask(key).unwrap();
    of.send();
    of.complete(lookup, hit(7));
    of.version(key, 7);
    assert!(!of.lookups.has_unsent(), "the version it has");
    of.version(key, 8);
    assert_eq!(of.send(), ["a"]);
    assert_eq!(of.lookups.take_went_back(), None);
    of.version(key, 6);
    assert_eq!(of.send(), ["a"]);
    assert_eq!(
        of.lookups.take_went_back(),
        Some(2),
        "the server has counted anew"
    );
    assert_eq!(of.lookups.take_went_back(), None);
    of.version(key, 0);
    assert_eq!(of.send(), ["a"], "a server that counts no versions");
}

#[test]
fn a_lookup_that_failed_has_the_value_read_though_its_version_has_not_moved() {
    let mut fixture = Fixture::before_memcached();
    let key = fixture.waited("a");
    let lookup = fixture.ask(key).unwrap();
    fixture.send();
    fixture.complete(lookup, hit(5));
    fixture.version(key, 5);
    assert_eq!(fixture.send(), [""; 0], "others were compared with it");
    // One that comes now waits without having been compared.
    let lookup = fixture.ask(key).unwrap();
    fixture.send();
    fixture.complete(lookup, Outcome::Failed(Failure::ErrorLine));
    fixture.version(key, 5);
    assert_eq!(fixture.send(), ["a"]);
}

#[test]
fn a_sweep_asks_for_what_is_waited_for_and_the_next_waits_for_it() {
    let mut of = Fixture::before_memcached();
    of.key("a");
    for name in ["b", "c"] {
        of.waited(name);
    }
    of.lookups.sweep(&of.keys);
    assert!(of.lookups.is_sweeping());
    let first = of.lookups.next_version();
    of.lookups.sweep(&of.keys);
    assert_eq!(of.metrics.memcached_sweeps.value(), 1);
    assert_eq!(of.versions().len(), 1, "the one that was left");
    assert!(first.is_some() && !of.lookups.is_sweeping());
    of.lookups.sweep(&of.keys);
    assert_eq!(of.versions(), ["b", "c"]);
    assert_eq!(of.metrics.memcached_sweeps.value(), 2);
}

#[test]
fn a_hint_has_a_key_read_that_is_waited_for() {
    let mut of = Fixture::before_memcached();
    of.key("a");
    of.waited("b");
    assert_eq!(of.hint("a"), HintOutcome::Unwatched);
    assert_eq!(of.hint("nobody"), HintOutcome::Unwatched);
    assert_eq!(of.hint("b"), HintOutcome::Read);
    assert_eq!(of.hint("b"), HintOutcome::Joined, "it is read this turn");
    assert_eq!(of.send(), ["b"]);
}

#[test]
fn hints_during_a_lookup_are_one_more_after_it() {
    let mut of = Fixture::before_memcached();
    let key = of.waited("a");
    let lookup = of.ask(key).unwrap();
    of.send();
    for _ in 0..3 {
        assert_eq!(of.hint("a"), HintOutcome::Joined);
        assert!(!of.lookups.has_unsent());
    }
    of.complete(lookup, hit(1));
    of.lookups.follow_hint(&mut of.keys, key);
    assert_eq!(of.send(), ["a"]);
    of.lookups.follow_hint(&mut of.keys, key);
    assert_eq!(of.send(), [""; 0], "once");
}

#[test]
fn a_resync_asks_for_the_keys_of_one_server() {
    let mut of = Fixture::before_memcached();
    let keys = ["a", "b"].map(|name| of.waited(name));
    for key in keys {
        let lookup = of.ask(key).unwrap();
        of.send();
        of.complete(lookup, hit(7));
    }
    of.lookups.resync(&mut of.keys, |name| name == b"a", false);
    assert_eq!(of.versions(), ["a"]);
    of.lookups.sweep(&of.keys);
    of.lookups.resync(&mut of.keys, |name| name == b"a", true);
    assert_eq!(of.versions(), ["a", "b"], "and what is left of the sweep");
    for key in keys {
        of.version(key, 7);
    }
    assert_eq!(of.send(), ["a"], "whose version is trusted no more");
}

#[test]
fn a_fill_goes_out_with_the_turn() {
    let mut of = Fixture::before_memcached();
    of.lookups
        .fill(b"a", &Bytes::from_static(b"one"), MINUTE, NOW);
    assert!(of.lookups.has_left() && !of.lookups.has_unsent());
    let fills = of.lookups.take_fills();
    let [fill] = fills.as_slice() else {
        panic!("{fills:?}");
    };
    assert_eq!(
        (&*fill.name, &*fill.body, fill.exptime),
        (&b"a"[..], &b"one"[..], 60)
    );
    assert!(!of.lookups.has_left());
}

/// Notes what a store tells its watcher.
#[derive(Clone, Debug, Default)]
struct Told(Arc<Mutex<Vec<Box<[u8]>>>>);

impl dwell_store::Notify for Told {
    fn changed(&self, _: WatcherId, key: &[u8]) {
        self.0.lock().unwrap().push(key.into());
    }
}

/// Lookups before an embedded store, the store, and what it has told.
fn embedded() -> (Fixture, Arc<Store>, Told) {
    let told = Told::default();
    let store = Store::new(&StoreConfig::default(), Box::new(told.clone()));
    let store = Arc::new(store);
    let watcher = WatcherId::new(0).unwrap();
    let of = Fixture::new(Source::Embedded(Arc::clone(&store), watcher));
    (of, store, told)
}

fn set(store: &Store, name: &str, value: &str) {
    store.set(name.as_bytes(), 0, Expiry::NEVER, value.as_bytes(), NOW);
}

#[test]
fn the_embedded_store_is_read_at_once() {
    let (mut of, store, _) = embedded();
    let key = of.key("a");
    assert!(of.lookups.is_immediate() && of.lookups.store().is_some());
    assert!(!of.lookups.reads_later(&mut of.keys, key));
    assert_eq!(of.lookups.len(), 0);
    assert!(of.lookups.stored(b"a", NOW).is_none());
    set(&store, "a", "one");
    assert_eq!(&*of.lookups.stored(b"a", NOW).unwrap().value, b"one");
    let mut copy = b"what was there".to_vec();
    let flags = of.lookups.copied(b"a", NOW, &mut copy).unwrap();
    assert_eq!((flags.ok(), &*copy), (Some(0), &b"one"[..]));
}

#[test]
fn memcached_is_never_read_at_once() {
    let mut of = Fixture::before_memcached();
    let key = of.key("a");
    assert!(of.lookups.stored(b"a", NOW).is_none());
    assert!(of.lookups.copied(b"a", NOW, &mut Vec::new()).is_none());
    assert!(of.lookups.reads_later(&mut of.keys, key));
    assert_eq!(of.send(), ["a"]);
}

#[test]
fn a_fill_takes_no_place_of_a_value_that_is_there() {
    let (mut of, store, _) = embedded();
    let body = Bytes::from_static(b"from the application");
    set(&store, "a", "one");
    of.lookups.fill(b"a", &body, MINUTE, NOW);
    of.lookups.fill(b"b", &body, MINUTE, NOW);
    assert_eq!(&*of.lookups.stored(b"a", NOW).unwrap().value, b"one");
    assert_eq!(&*of.lookups.stored(b"b", NOW + 59).unwrap().value, &*body);
    assert!(
        of.lookups.stored(b"b", NOW + 60).is_none(),
        "its time is over"
    );
    assert!(!of.lookups.has_left(), "nothing is to be sent");
}

#[test]
fn a_feed_is_told_nothing_by_a_lookup_that_had_gone_out_when_it_joined() {
    let mut of = Fixture::before_memcached();
    let key = of.waited("a");
    let ends = |of: &mut Fixture, lookup| {
        let completion = completion(lookup, hit(1));
        let lookup = of.lookups.completed(&mut of.keys, lookup, &completion);
        let end = of.lookups.ended(&of.keys, &lookup.unwrap(), false);
        Lookups::leave(&mut of.keys, key);
        end.behind
    };
    let feeds = [1, 2].map(FeedId::nth);
    assert!(of.lookups.reads_for(&mut of.keys, key, feeds[0]));
    assert!(of.lookups.pass_by(key).is_empty(), "nothing is older");
    let first = of.lookups.first_of(key).unwrap();
    of.send();
    assert!(of.lookups.is_read(&of.keys, key));
    let second = of.ask(key).unwrap();
    assert!(of.lookups.reads_for(&mut of.keys, key, feeds[1]));
    of.send();
    let third = of.ask(key).unwrap();
    assert!(of.lookups.reads_for(&mut of.keys, key, feeds[1]), "again");
    of.send();
    assert_eq!(ends(&mut of, first), [feeds[1]]);
    assert_eq!(ends(&mut of, second), [], "it is its own");
    assert_eq!(ends(&mut of, third), []);
    assert!(!of.lookups.is_read(&of.keys, key));
    assert!(of.lookups.is_empty());
}

#[test]
fn a_feed_that_has_joined_and_left_is_forgotten_with_the_last_lookup() {
    let mut of = Fixture::new(Source::Redis);
    for name in ["b", "c", "d"] {
        let key = of.waited(name);
        of.lookups.read(&mut of.keys, key);
    }
    let key = of.key("a");
    let asked = of.lookups.ask_for(&mut of.keys, key, false).unwrap();
    of.send();
    let feed = FeedId::nth(1);
    assert!(of.lookups.reads_for(&mut of.keys, key, feed));
    assert_eq!(of.send(), [""; 0], "its own read has no room");
    assert_eq!(of.lookups.pass_by(key), [feed]);
    let lookup = of
        .lookups
        .completed(&mut of.keys, asked, &completion(asked, hit(1)))
        .unwrap();
    of.lookups.ended_aside(&of.keys, &lookup);
    assert_eq!(of.lookups.pass_by(key), [feed], "its own is still to come");
    // Nobody waits any more when there is room.
    let first = of.lookups.table.tokens().next().unwrap();
    of.complete(first, Outcome::Miss);
    assert_eq!(of.lookups.pass_by(key), []);
}

#[test]
fn a_feed_whose_read_has_to_wait_for_room_is_told_nothing_before_it() {
    let mut of = Fixture::new(Source::Redis);
    let others = ["b", "c", "d"].map(|name| of.waited(name));
    for key in others {
        of.lookups.read(&mut of.keys, key);
    }
    let first = of.lookups.first_of(others[0]).unwrap();
    of.send();
    let (key, feed) = (of.waited("a"), FeedId::nth(1));
    assert!(of.lookups.reads_for(&mut of.keys, key, feed));
    assert_eq!(of.send(), [""; 0], "there is no room");
    // The announcement of a change that the client has seen already, or one before that.
    assert_eq!(of.lookups.pass_by(key), [feed]);
    of.complete(first, hit(1));
    assert_eq!(of.send(), ["a"]);
    assert_eq!(of.lookups.pass_by(key), [feed]);
    let own = of.lookups.first_of(key).unwrap();
    let lookup = of
        .lookups
        .completed(&mut of.keys, own, &completion(own, hit(2)))
        .unwrap();
    let end = of.lookups.ended(&of.keys, &lookup, false);
    assert_eq!(end, LookupEnd::default(), "it is told of this one");
    assert_eq!(of.lookups.pass_by(key), []);
}
