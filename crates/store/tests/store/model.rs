//! Random commands against a naive model of memcached: one map, no sharing, no laziness.
//!
//! The model also remembers what each watcher last read. After every command, a watcher whose last
//! read differs from the item must have been told; only an expiry may wait for the next sweep.

use std::collections::{BTreeMap, BTreeSet};

use dwell_store::{
    ArithmeticOptions, ArithmeticOutcome, DeleteOptions, DeleteOutcome, Direction, Expiry, Item,
    MetaGet, Store, StoreConfig, StoreMode, StoreOptions, StoreOutcome,
};
use proptest::prelude::*;

use crate::{Calls, NOW, watched_store, watcher};

#[derive(Clone, Debug)]
struct ModelItem {
    value: Vec<u8>,
    flags: u32,
    /// 0 is never.
    expires: u32,
    cas: u64,
    stale: bool,
    win_sent: bool,
    fetched: bool,
    used: u32,
}

/// What a reader can tell apart.
type Seen = Option<(Vec<u8>, u32, u64)>;

#[derive(Debug, Default)]
struct Model {
    items: BTreeMap<u8, ModelItem>,
    cas: u64,
    flush_at: Option<u32>,
    /// What each watcher last read of each key it watches.
    watches: BTreeMap<(u8, u8), Seen>,
    /// Keys that time alone has emptied since the last sweep.
    lapsed: BTreeSet<u8>,
}

#[derive(Clone, Debug)]
enum Command {
    Pass(u32),
    Get(u8),
    GetAndTouch(u8, i64),
    Touch(u8, i64),
    Store(u8, Vec<u8>, StoreOptions, CasChoice),
    Discard(u8),
    Arithmetic(u8, ArithmeticOptions, CasChoice),
    MetaGet(u8, MetaGet),
    Delete(u8, DeleteOptions, CasChoice),
    Flush(i64),
    Sweep,
    Watch(u8, u8),
    Reread(u8, u8),
    Unwatch(u8, u8),
}

/// Which version a command names, chosen so that all outcomes are common.
#[derive(Clone, Copy, Debug)]
enum CasChoice {
    None,
    Current,
    Older,
    Newer,
}

impl Model {
    fn expire(&mut self, now: u32) {
        let flushed = self.flush_at.is_some_and(|at| at <= now);
        if flushed {
            self.flush_at = None;
        }
        let gone = |item: &ModelItem| flushed || (item.expires != 0 && item.expires <= now);
        self.lapsed.extend(
            self.items
                .iter()
                .filter(|(_, item)| gone(item))
                .map(|(key, _)| key),
        );
        self.items.retain(|_, item| !gone(item));
    }

    fn seen(&self, key: u8) -> Seen {
        self.items
            .get(&key)
            .map(|item| (item.value.clone(), item.flags, item.cas))
    }

    fn cas(&self, key: u8, choice: CasChoice) -> Option<u64> {
        let current = self.items.get(&key).map_or(self.cas, |item| item.cas);
        match choice {
            CasChoice::None => None,
            CasChoice::Current => Some(current),
            CasChoice::Older => Some(current.saturating_sub(1)),
            CasChoice::Newer => Some(current + 1),
        }
    }

    fn next_cas(&mut self, named: Option<u64>) -> u64 {
        named.unwrap_or_else(|| {
            self.cas += 1;
            self.cas
        })
    }

    fn store(&mut self, key: u8, value: &[u8], options: &StoreOptions, now: u32) -> StoreOutcome {
        use StoreMode::{Add, Append, Prepend, Replace, Set};
        let mode = options.mode;
        let mut item = ModelItem {
            value: value.to_vec(),
            flags: options.flags,
            expires: options.expiry.time().unwrap_or(0),
            cas: 0,
            stale: false,
            win_sent: false,
            fetched: false,
            used: now,
        };
        match (self.items.get(&key), mode, options.cas) {
            (None, Set | Replace, Some(_)) => return StoreOutcome::NotFound,
            (None, Replace, None) | (Some(_), Add, _) => return StoreOutcome::NotStored,
            (None, Append | Prepend, _) => match options.vivify {
                None => return StoreOutcome::NotStored,
                Some(vivify) => item.expires = vivify.time().unwrap_or(0),
            },
            (None, Set | Add, _) => {}
            (Some(old), mode, cas) => {
                let late = cas.is_some_and(|cas| cas != old.cas);
                if late {
                    let taken = matches!(mode, Set | Replace) && options.invalidate;
                    if !taken || cas > Some(old.cas) {
                        return StoreOutcome::Exists;
                    }
                    item.stale = true;
                    item.win_sent = old.win_sent;
                    item.expires = old.expires;
                }
                if matches!(mode, Append | Prepend) {
                    item.flags = old.flags;
                    item.expires = old.expires;
                    item.value = match mode {
                        Append => [&old.value, value].concat(),
                        _ => [value, &old.value].concat(),
                    };
                }
            }
        }
        item.cas = self.next_cas(options.cas_new);
        let cas = item.cas;
        self.items.insert(key, item);
        StoreOutcome::Stored { cas }
    }

    fn arithmetic(&mut self, key: u8, options: &ArithmeticOptions, now: u32) -> ArithmeticOutcome {
        let Some(old) = self.items.get(&key).cloned() else {
            let Some(vivify) = options.vivify else {
                return ArithmeticOutcome::NotFound;
            };
            let expiry = options.expiry.unwrap_or(vivify);
            let cas = self.next_cas(options.cas_new);
            let item = ModelItem {
                value: options.initial.to_string().into_bytes(),
                flags: 0,
                expires: expiry.time().unwrap_or(0),
                cas,
                stale: false,
                win_sent: false,
                fetched: false,
                used: now,
            };
            self.items.insert(key, item);
            return ArithmeticOutcome::Done {
                number: options.initial,
                cas,
                expiry,
            };
        };
        if options.cas.is_some_and(|cas| cas != old.cas) {
            return ArithmeticOutcome::Exists;
        }
        let text = String::from_utf8(old.value.clone()).unwrap();
        // Whatever stands behind a blank does not count.
        let number = text.split_ascii_whitespace().next().unwrap_or_default();
        let Ok(before) = number.parse::<u64>() else {
            return ArithmeticOutcome::NotNumeric;
        };
        let number = match options.direction {
            Direction::Increment => before.wrapping_add(options.delta),
            Direction::Decrement => before.saturating_sub(options.delta),
        };
        let expires = options
            .expiry
            .map_or(old.expires, |expiry| expiry.time().unwrap_or(0));
        let cas = self.next_cas(options.cas_new);
        let value = format!("{number:<width$}", width = old.value.len()).into_bytes();
        self.items.insert(
            key,
            ModelItem {
                value,
                expires,
                cas,
                used: now,
                ..old
            },
        );
        ArithmeticOutcome::Done {
            number,
            cas,
            expiry: expiry(expires),
        }
    }

    fn delete(&mut self, key: u8, options: &DeleteOptions, now: u32) -> DeleteOutcome {
        let Some(old) = self.items.get(&key).cloned() else {
            return DeleteOutcome::NotFound;
        };
        if options.cas.is_some_and(|cas| cas != old.cas) {
            return DeleteOutcome::Exists;
        }
        if !options.invalidate && !options.remove_value {
            self.items.remove(&key);
            return DeleteOutcome::Deleted;
        }
        let mut item = old;
        item.cas = self.next_cas(options.cas_new);
        if options.invalidate {
            item.stale = true;
            item.win_sent = false;
            item.expires = options
                .expiry
                .map_or(item.expires, |at| at.time().unwrap_or(0));
        }
        if options.remove_value {
            item.value.clear();
            item.flags = 0;
            item.used = now;
        }
        self.items.insert(key, item);
        DeleteOutcome::Deleted
    }
}

fn expiry(expires: u32) -> Expiry {
    if expires == 0 {
        Expiry::NEVER
    } else {
        Expiry::at(expires)
    }
}

fn seen(item: Option<Item>) -> Seen {
    item.map(|item| (item.value.to_vec(), item.flags, item.cas))
}

/// The store and the model side by side.
struct Pair {
    store: Store,
    calls: Calls,
    model: Model,
    now: u32,
    /// Watchers told since their last reread.
    told: BTreeSet<(u8, u8)>,
}

impl Pair {
    fn run(&mut self, command: Command) {
        self.model.expire(self.now);
        let (store, model, now) = (&self.store, &mut self.model, self.now);
        match command {
            Command::Pass(seconds) => self.now += seconds,
            Command::Get(key) => {
                assert_eq!(seen(store.get(&[key], now)), model.seen(key));
                if let Some(item) = model.items.get_mut(&key) {
                    (item.fetched, item.used) = (true, now);
                }
            }
            Command::GetAndTouch(key, exptime) => {
                let at = Expiry::from_exptime(exptime, now);
                assert_eq!(seen(store.get_and_touch(&[key], at, now)), model.seen(key));
                self.touched(key, at);
            }
            Command::Touch(key, exptime) => {
                let at = Expiry::from_exptime(exptime, now);
                assert_eq!(store.touch(&[key], at, now), model.items.contains_key(&key));
                self.touched(key, at);
            }
            Command::Store(key, value, options, choice) => {
                let options = StoreOptions {
                    cas: model.cas(key, choice),
                    ..options
                };
                let outcome = store.store(&[key], &value, &options, now);
                assert_eq!(
                    outcome,
                    model.store(key, &value, &options, now),
                    "{options:?}"
                );
            }
            Command::Discard(key) => {
                store.discard(&[key], now);
                model.items.remove(&key);
            }
            Command::Arithmetic(key, options, choice) => {
                let options = ArithmeticOptions {
                    cas: model.cas(key, choice),
                    ..options
                };
                let outcome = store.arithmetic(&[key], &options, now);
                assert_eq!(outcome, model.arithmetic(key, &options, now), "{options:?}");
            }
            Command::MetaGet(key, options) => self.meta_get(key, &options),
            Command::Delete(key, options, choice) => {
                let options = DeleteOptions {
                    cas: model.cas(key, choice),
                    ..options
                };
                let outcome = store.meta_delete(&[key], &options, now);
                assert_eq!(outcome, model.delete(key, &options, now), "{options:?}");
            }
            Command::Flush(delay) => {
                store.flush_all(delay, now);
                if delay <= 0 {
                    model.flush_at = None;
                    model.items.clear();
                } else {
                    model.flush_at = Some(now + u32::try_from(delay).unwrap());
                }
            }
            Command::Sweep => {
                store.sweep(now, 3);
                model.lapsed.clear();
            }
            Command::Watch(key, index) => {
                assert_eq!(
                    seen(store.watch(&[key], watcher(index), now)),
                    model.seen(key)
                );
                if let Some(item) = model.items.get_mut(&key) {
                    (item.fetched, item.used) = (true, now);
                }
                let seen = model.seen(key);
                if self.told.contains(&(key, index)) {
                    // Registered before and told since: the reread is still owed.
                    model.watches.entry((key, index)).or_insert(seen);
                } else {
                    model.watches.insert((key, index), seen);
                }
            }
            Command::Reread(key, index) => {
                assert_eq!(
                    seen(store.reread(&[key], watcher(index), now)),
                    model.seen(key)
                );
                if let Some(item) = model.items.get_mut(&key) {
                    (item.fetched, item.used) = (true, now);
                }
                self.told.remove(&(key, index));
                if let Some(last) = self.model.watches.get_mut(&(key, index)) {
                    *last = self
                        .model
                        .items
                        .get(&key)
                        .map(|item| (item.value.clone(), item.flags, item.cas));
                }
            }
            Command::Unwatch(key, index) => {
                let was_watching = model.watches.remove(&(key, index)).is_some();
                assert_eq!(store.unwatch(&[key], watcher(index)), was_watching);
                self.told.remove(&(key, index));
            }
        }
        self.check_calls();
    }

    fn touched(&mut self, key: u8, at: Expiry) {
        if let Some(item) = self.model.items.get_mut(&key) {
            (item.fetched, item.used) = (true, self.now);
            item.expires = at.time().unwrap_or(0);
        }
    }

    fn meta_get(&mut self, key: u8, options: &MetaGet) {
        let now = self.now;
        let hit = self.store.meta_get(&[key], options, now);
        let Some(item) = self.model.items.get_mut(&key) else {
            let Some(vivify) = options.vivify else {
                return assert_eq!(hit, None);
            };
            let hit = hit.unwrap();
            assert!(
                hit.created && hit.won && !hit.stale && !hit.win_sent && hit.item.value.is_empty()
            );
            let cas = self.model.next_cas(options.cas_new);
            assert_eq!(hit.item.cas, cas);
            let expires = options.expiry.unwrap_or(vivify).time().unwrap_or(0);
            let item = ModelItem {
                value: Vec::new(),
                flags: 0,
                expires,
                cas,
                stale: false,
                win_sent: true,
                fetched: true,
                used: now,
            };
            self.model.items.insert(key, item);
            return;
        };
        let hit = hit.unwrap();
        let left = if item.expires == 0 {
            u32::MAX
        } else {
            item.expires - now
        };
        let won = !item.win_sent && (item.stale || left < options.recache.unwrap_or(0));
        assert_eq!(
            (
                hit.won,
                hit.stale,
                hit.win_sent,
                hit.fetched,
                hit.unused_seconds,
                hit.created
            ),
            (
                won,
                item.stale,
                item.win_sent,
                item.fetched,
                now - item.used,
                false
            ),
        );
        assert_eq!(hit.expiry_before, expiry(item.expires));
        assert_eq!((&*hit.item.value, hit.item.cas), (&*item.value, item.cas));
        item.win_sent |= won;
        item.expires = options
            .expiry
            .map_or(item.expires, |at| at.time().unwrap_or(0));
        assert_eq!(hit.expiry, expiry(item.expires));
        if !options.no_bump {
            (item.fetched, item.used) = (true, now);
        }
    }

    /// Checks who was told against what each watcher last read.
    fn check_calls(&mut self) {
        for (index, key) in self.calls.take() {
            let watch = (key[0], index);
            assert!(
                self.model.watches.contains_key(&watch),
                "told without watching: {watch:?}"
            );
            assert!(self.told.insert(watch), "told twice: {watch:?}");
        }
        self.model.expire(self.now);
        for (watch, last) in &self.model.watches {
            let is_news = *last != self.model.seen(watch.0);
            let may_wait = self.model.lapsed.contains(&watch.0);
            assert!(
                !is_news || may_wait || self.told.contains(watch),
                "not told: {watch:?}"
            );
        }
    }
}

fn key() -> impl Strategy<Value = u8> {
    0_u8..4
}

fn exptime() -> impl Strategy<Value = i64> {
    prop_oneof![3 => Just(0), 4 => 1_i64..6, 1 => Just(-1)]
}

fn maybe_expiry() -> impl Strategy<Value = Option<Expiry>> {
    // Times near the start of the run, so that some are in the past and some ahead.
    let at = (0_u32..40).prop_map(|offset| Expiry::at(NOW + offset));
    prop_oneof![3 => Just(None), 1 => Just(Some(Expiry::NEVER)), 2 => at.prop_map(Some)]
}

fn choice() -> impl Strategy<Value = CasChoice> {
    use CasChoice::{Current, Newer, None, Older};
    prop_oneof![4 => Just(None), 2 => Just(Current), 1 => Just(Older), 1 => Just(Newer)]
}

fn named() -> impl Strategy<Value = Option<u64>> {
    prop_oneof![9 => Just(None), 1 => (1_u64..1000).prop_map(Some)]
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        2 => (0_u64..2000).prop_map(|number| number.to_string().into_bytes()),
        1 => prop::collection::vec(b'a'..=b'z', 0..40),
    ]
}

fn store_command() -> impl Strategy<Value = Command> {
    use StoreMode::{Add, Append, Prepend, Replace, Set};
    let mode = prop_oneof![3 => Just(Set), 1 => Just(Add), 1 => Just(Replace), 1 => Just(Append),
        1 => Just(Prepend)];
    let options = (
        mode,
        0_u32..3,
        maybe_expiry(),
        any::<bool>(),
        maybe_expiry(),
        named(),
    );
    let options = options.prop_map(|(mode, flags, expiry, invalidate, vivify, cas_new)| {
        let expiry = expiry.unwrap_or_default();
        StoreOptions {
            mode,
            flags,
            expiry,
            cas: None,
            invalidate,
            vivify,
            cas_new,
        }
    });
    (key(), bytes(), options, choice())
        .prop_map(|(key, value, options, cas)| Command::Store(key, value, options, cas))
}

fn arithmetic_command() -> impl Strategy<Value = Command> {
    let options = (
        any::<bool>(),
        0_u64..300,
        maybe_expiry(),
        0_u64..50,
        maybe_expiry(),
        named(),
    );
    let options = options.prop_map(|(up, delta, vivify, initial, expiry, cas_new)| {
        let direction = if up {
            Direction::Increment
        } else {
            Direction::Decrement
        };
        ArithmeticOptions {
            direction,
            delta,
            cas: None,
            vivify,
            initial,
            expiry,
            cas_new,
        }
    });
    (key(), options, choice())
        .prop_map(|(key, options, cas)| Command::Arithmetic(key, options, cas))
}

fn meta_get_command() -> impl Strategy<Value = Command> {
    let recache = prop_oneof![1 => Just(None), 1 => (0_u32..6).prop_map(Some)];
    (
        key(),
        maybe_expiry(),
        maybe_expiry(),
        recache,
        any::<bool>(),
        named(),
    )
        .prop_map(|(key, expiry, vivify, recache, no_bump, cas_new)| {
            Command::MetaGet(
                key,
                MetaGet {
                    expiry,
                    vivify,
                    recache,
                    no_bump,
                    cas_new,
                },
            )
        })
}

fn delete_command() -> impl Strategy<Value = Command> {
    let options = (
        any::<bool>(),
        maybe_expiry(),
        prop::bool::weighted(0.2),
        named(),
    );
    let options = options.prop_map(
        |(invalidate, expiry, remove_value, cas_new)| DeleteOptions {
            cas: None,
            invalidate,
            expiry,
            remove_value,
            cas_new,
        },
    );
    (key(), options, choice()).prop_map(|(key, options, cas)| Command::Delete(key, options, cas))
}

fn command() -> impl Strategy<Value = Command> {
    prop_oneof![
        4 => (0_u32..3).prop_map(Command::Pass),
        4 => key().prop_map(Command::Get),
        2 => (key(), exptime()).prop_map(|(key, at)| Command::GetAndTouch(key, at)),
        2 => (key(), exptime()).prop_map(|(key, at)| Command::Touch(key, at)),
        9 => store_command(),
        1 => key().prop_map(Command::Discard),
        4 => arithmetic_command(),
        4 => meta_get_command(),
        3 => delete_command(),
        1 => prop_oneof![Just(0_i64), Just(-1), 1_i64..4].prop_map(Command::Flush),
        1 => Just(Command::Sweep),
        5 => (key(), 0_u8..3).prop_map(|(key, index)| Command::Watch(key, index)),
        4 => (key(), 0_u8..3).prop_map(|(key, index)| Command::Reread(key, index)),
        2 => (key(), 0_u8..3).prop_map(|(key, index)| Command::Unwatch(key, index)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn the_store_agrees_with_the_model(
        shards in 0_u32..3,
        commands in prop::collection::vec(command(), 1..120),
    ) {
        let config = StoreConfig { shards: 1 << shards, ..StoreConfig::default() };
        let (store, calls) = watched_store(&config);
        let model = Model::default();
        let mut pair = Pair { store, calls, model, now: NOW, told: BTreeSet::new() };
        for command in commands {
            pair.run(command);
        }
        pair.run(Command::Sweep);
    }
}
