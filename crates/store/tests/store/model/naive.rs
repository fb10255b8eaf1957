//! memcached as one map, without sharing or laziness.

use std::collections::{BTreeMap, BTreeSet};

use dwell_store::{
    ArithmeticOptions, ArithmeticOutcome, DeleteOptions, DeleteOutcome, Direction, Expiry,
    StoreMode, StoreOptions, StoreOutcome,
};

use super::commands::CasChoice;

#[derive(Clone, Debug)]
pub(super) struct ModelItem {
    pub(super) value: Vec<u8>,
    pub(super) flags: u32,
    /// 0 is never.
    pub(super) expires: u32,
    pub(super) cas: u64,
    pub(super) stale: bool,
    pub(super) win_sent: bool,
    pub(super) fetched: bool,
    pub(super) used: u32,
}

/// What a reader can tell apart.
pub(super) type Seen = Option<(Vec<u8>, u32, u64)>;

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) items: BTreeMap<u8, ModelItem>,
    pub(super) cas: u64,
    pub(super) flush_at: Option<u32>,
    /// What each watcher last read of each key it watches.
    pub(super) watches: BTreeMap<(u8, u8), Seen>,
    /// Keys that time alone has emptied since the last sweep.
    pub(super) lapsed: BTreeSet<u8>,
}

impl Model {
    pub(super) fn expire(&mut self, now: u32) {
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

    pub(super) fn seen(&self, key: u8) -> Seen {
        self.items
            .get(&key)
            .map(|item| (item.value.clone(), item.flags, item.cas))
    }

    pub(super) fn cas(&self, key: u8, choice: CasChoice) -> Option<u64> {
        let current = self.items.get(&key).map_or(self.cas, |item| item.cas);
        match choice {
            CasChoice::None => None,
            CasChoice::Current => Some(current),
            CasChoice::Older => Some(current.saturating_sub(1)),
            CasChoice::Newer => Some(current + 1),
        }
    }

    pub(super) fn next_cas(&mut self, named: Option<u64>) -> u64 {
        named.unwrap_or_else(|| {
            self.cas += 1;
            self.cas
        })
    }

    pub(super) fn store(
        &mut self,
        key: u8,
        value: &[u8],
        options: &StoreOptions,
        now: u32,
    ) -> StoreOutcome {
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

    pub(super) fn arithmetic(
        &mut self,
        key: u8,
        options: &ArithmeticOptions,
        now: u32,
    ) -> ArithmeticOutcome {
        let Some(old) = self.items.get(&key).cloned() else {
            let Some(expiry) = options.vivify else {
                return ArithmeticOutcome::NotFound;
            };
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
                expiry_before: None,
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
            expiry_before: Some(expiry(old.expires)),
        }
    }

    pub(super) fn delete(&mut self, key: u8, options: &DeleteOptions, now: u32) -> DeleteOutcome {
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

pub(super) fn expiry(expires: u32) -> Expiry {
    if expires == 0 {
        Expiry::NEVER
    } else {
        Expiry::at(expires)
    }
}
