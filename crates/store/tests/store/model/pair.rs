//! The store and its model, doing the same and compared after each step.

use std::collections::BTreeSet;

use dwell_store::{ArithmeticOptions, DeleteOptions, Expiry, Item, MetaGet, Store, StoreOptions};

use super::commands::Command;
use super::naive::{Model, ModelItem, Seen, expiry};
use crate::{Calls, watcher};

/// The store and the model side by side.
pub(super) struct Pair {
    pub(super) store: Store,
    pub(super) calls: Calls,
    pub(super) model: Model,
    pub(super) now: u32,
    /// Watchers told since their last reread.
    pub(super) told: BTreeSet<(u8, u8)>,
}

impl Pair {
    pub(super) fn run(&mut self, command: Command) {
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
            other => self.run_watch(other),
        }
        self.check_calls();
    }

    fn run_watch(&mut self, command: Command) {
        let (store, model, now) = (&self.store, &mut self.model, self.now);
        match command {
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
            other => unreachable!("{other:?}"),
        }
    }

    fn touched(&mut self, key: u8, at: Expiry) {
        if let Some(item) = self.model.items.get_mut(&key) {
            (item.fetched, item.used) = (true, self.now);
            item.expires = at.time().unwrap_or(0);
        }
    }

    fn meta_get(&mut self, key: u8, options: &MetaGet) {
        let now = self.now;
        let hit = if key.is_multiple_of(2) {
            let hit = self.store.meta_get(&[key], options, now);
            hit.map(|hit| hit.map(|item| (item.value.to_vec(), item.cas)))
        } else {
            self.store.meta_read(&[key], options, now, |hit| {
                hit.map(|item| (item.value.to_vec(), item.cas))
            })
        };
        let Some(item) = self.model.items.get_mut(&key) else {
            let Some(vivify) = options.vivify else {
                return assert_eq!(hit, None);
            };
            let hit = hit.unwrap();
            assert!(hit.created && hit.won && !hit.stale && !hit.win_sent && hit.item.0.is_empty());
            let cas = self.model.next_cas(options.cas_new);
            assert_eq!(hit.item.1, cas);
            let expires = vivify.time().unwrap_or(0);
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
        let judged = options.expiry.filter(|_| options.recache_last);
        let judged = judged.map_or(item.expires, |expiry| expiry.time().unwrap_or(0));
        let left = if judged == 0 {
            u32::MAX
        } else {
            judged.saturating_sub(now)
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
        assert_eq!(hit.item, (item.value.clone(), item.cas));
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

fn seen(item: Option<Item>) -> Seen {
    item.map(|item| (item.value.to_vec(), item.flags, item.cas))
}
