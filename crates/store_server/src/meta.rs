//! Executing the meta commands.

use dwell_proto::memcache::encode::reply;
use dwell_proto::memcache::{
    Command, ErrorLine, Flags, KeyScratch, MetaArithmetic, MetaDelete, MetaGet, MetaKey, MetaSet,
    MetaSetMode, MetaStatus,
};
use dwell_store::{
    self as store, ArithmeticOptions, ArithmeticOutcome, DeleteOptions, DeleteOutcome, Expiry,
    ItemRef, MetaHit, Seconds, StoreMode, StoreOptions, StoreOutcome,
};

use super::commands::{Executor, direction};

impl Executor<'_> {
    /// Executes a meta command; it is never called with others.
    pub(super) fn execute_meta(&mut self, command: &Command<'_>) {
        match command {
            Command::MetaGet(get) => self.meta_get(get),
            Command::MetaSet(set) => self.meta_set(set),
            Command::MetaDelete(delete) => self.meta_delete(delete),
            Command::MetaArithmetic(arithmetic) => self.meta_arithmetic(arithmetic),
            Command::MetaDebug { key } => self.meta_debug(*key),
            Command::MetaNoop => {
                reply::meta_status(self.out, MetaStatus::Noop);
                reply::end_line(self.out);
            }
            _ => {}
        }
    }

    fn meta_get(&mut self, get: &MetaGet<'_>) {
        let flags = &get.flags;
        let times = self.times(flags.all, flags.exptime, flags.vivify);
        let options = store::MetaGet {
            expiry: times.touch,
            vivify: times.created(),
            recache_last: comes_before(flags.all, b'T', b'R'),
            recache: flags
                .recache
                .map(|recache| Seconds::try_from(recache).unwrap_or(0)),
            no_bump: flags.no_bump,
            cas_new: flags.cas_new,
        };
        let mut scratch = KeyScratch::new();
        let key = get.key.decode(&mut scratch);
        self.metrics.hot.read(key);
        let store = &self.service.store;
        let found = store.meta_read(key, &options, self.moment.steady, |hit| {
            let value = hit.item.value;
            if flags.value {
                reply::meta_value(self.out, value.len());
            } else {
                reply::meta_status(self.out, MetaStatus::Header);
            }
            self.hit_flags(get, &times, &hit);
            reply::end_line(self.out);
            if flags.value {
                reply::data(self.out, value);
            }
        });
        if found.is_none() && !flags.quiet {
            self.status_line(MetaStatus::End, flags.all, get.key);
        }
    }

    /// The flags a hit returns, in the order they were asked for, then those it adds itself.
    fn hit_flags(&mut self, get: &MetaGet<'_>, times: &Times, hit: &MetaHit<ItemRef<'_>>) {
        let before = (!hit.created).then_some(hit.expiry_before);
        let mut expiry = before.unwrap_or(Expiry::NEVER);
        let told = self.told(hit.item.cas);
        let out = &mut *self.out;
        for flag in get.flags.all.iter() {
            match flag.letter {
                b'N' | b'T' => expiry = times.after(flag.letter, expiry, before),
                b's' => reply::meta_flag_number(out, b's', hit.item.value.len()),
                b't' => remaining_flag(out, expiry, self.moment.steady),
                b'c' => reply::meta_flag_number(out, b'c', told),
                b'f' => reply::meta_flag_number(out, b'f', hit.item.flags),
                b'l' => reply::meta_flag_number(out, b'l', hit.unused_seconds),
                b'h' => reply::meta_flag_number(out, b'h', u8::from(hit.fetched)),
                b'O' => reply::meta_flag_token(out, b'O', flag.token),
                b'k' => key_flag(out, get.key),
                _ => {}
            }
        }
        for (letter, is_set) in [(b'Z', hit.win_sent), (b'X', hit.stale), (b'W', hit.won)] {
            if is_set {
                reply::meta_flag(out, letter);
            }
        }
    }

    fn meta_set(&mut self, set: &MetaSet<'_>) {
        let flags = &set.flags;
        let options = StoreOptions {
            mode: store_mode(set.mode),
            flags: flags.client_flags,
            expiry: self.optional_expiry(flags.exptime).unwrap_or(Expiry::NEVER),
            cas: flags.cas_unique.map(|cas| self.required(cas)),
            // C0 asks for a version that no item has, rather than for one older than all.
            invalidate: flags.invalidate && flags.cas_unique != Some(0),
            vivify: self.optional_expiry(flags.vivify),
            cas_new: flags.cas_new,
            filled: false,
        };
        let mut scratch = KeyScratch::new();
        let key = set.key.decode(&mut scratch);
        let (status, cas) =
            match self
                .service
                .store
                .meta_set(key, set.value, &options, self.moment.steady)
            {
                StoreOutcome::Stored { .. } if flags.quiet => return,
                StoreOutcome::Stored { cas } => (MetaStatus::Header, self.told(cas)),
                StoreOutcome::NotStored => (MetaStatus::NotStored, 0),
                StoreOutcome::Exists => (MetaStatus::Exists, 0),
                StoreOutcome::NotFound => (MetaStatus::NotFound, 0),
                StoreOutcome::TooLarge => return reply::error(self.out, ErrorLine::TooLarge),
                StoreOutcome::OutOfMemory => return reply::error(self.out, ErrorLine::OutOfMemory),
            };
        reply::meta_status(self.out, status);
        for flag in flags.all.iter() {
            match flag.letter {
                b'O' => reply::meta_flag_token(self.out, b'O', flag.token),
                b'k' => key_flag(self.out, set.key),
                // A refused store has no version to return; memcached says 0.
                b'c' => reply::meta_flag_number(self.out, b'c', cas),
                _ => {}
            }
        }
        reply::end_line(self.out);
    }

    fn meta_delete(&mut self, delete: &MetaDelete<'_>) {
        let flags = &delete.flags;
        let options = DeleteOptions {
            cas: flags.cas_unique.and_then(|cas| self.required_or_none(cas)),
            invalidate: flags.invalidate,
            expiry: self.optional_expiry(flags.exptime),
            remove_value: flags.remove_value,
            cas_new: flags.cas_new,
        };
        let mut scratch = KeyScratch::new();
        let key = delete.key.decode(&mut scratch);
        let status = match self
            .service
            .store
            .meta_delete(key, &options, self.moment.steady)
        {
            DeleteOutcome::Deleted if flags.quiet => return,
            DeleteOutcome::Deleted => MetaStatus::Header,
            DeleteOutcome::NotFound => MetaStatus::NotFound,
            DeleteOutcome::Exists => MetaStatus::Exists,
        };
        self.status_line(status, flags.all, delete.key);
    }

    fn meta_arithmetic(&mut self, arithmetic: &MetaArithmetic<'_>) {
        let MetaArithmetic { key, flags, mode } = arithmetic;
        let times = self.times(flags.all, flags.exptime, flags.vivify);
        let options = ArithmeticOptions {
            direction: direction(*mode),
            delta: flags.delta,
            // Unlike the other commands, memcached's `ma` takes C0 for no version at all.
            cas: flags
                .cas_unique
                .filter(|cas_unique| *cas_unique != 0)
                .map(|cas_unique| self.required(cas_unique)),
            vivify: times.created(),
            initial: flags.initial,
            expiry: times.touch,
            cas_new: flags.cas_new,
        };
        let mut scratch = KeyScratch::new();
        let store = &self.service.store;
        match store.meta_arithmetic(key.decode(&mut scratch), &options, self.moment.steady) {
            ArithmeticOutcome::Done { .. } if flags.quiet => {}
            ArithmeticOutcome::Done {
                number,
                cas,
                expiry_before,
                ..
            } => {
                let cas = self.told(cas);
                self.number_reply(arithmetic, &times, (number, cas), expiry_before);
            }
            ArithmeticOutcome::NotFound => self.status_line(MetaStatus::NotFound, flags.all, *key),
            ArithmeticOutcome::Exists => self.status_line(MetaStatus::Exists, flags.all, *key),
            ArithmeticOutcome::NotNumeric => reply::error(self.out, ErrorLine::NonNumeric),
            ArithmeticOutcome::TooLarge => reply::error(self.out, ErrorLine::TooLarge),
            ArithmeticOutcome::OutOfMemory => reply::error(self.out, ErrorLine::OutOfMemory),
        }
    }

    /// Answers with a number, which has the cas unique after it, in an item that had an expiry
    /// `before`, or was created.
    fn number_reply(
        &mut self,
        asked: &MetaArithmetic<'_>,
        times: &Times,
        (number, cas): (u64, u64),
        before: Option<Expiry>,
    ) {
        let mut expiry = before.unwrap_or(Expiry::NEVER);
        let out = &mut *self.out;
        let mut digits = itoa::Buffer::new();
        let digits = digits.format(number);
        if asked.flags.value {
            reply::meta_value(out, digits.len());
        } else {
            reply::meta_status(out, MetaStatus::Header);
        }
        for flag in asked.flags.all.iter() {
            match flag.letter {
                b'N' | b'T' => expiry = times.after(flag.letter, expiry, before),
                b'c' => reply::meta_flag_number(out, b'c', cas),
                b't' => remaining_flag(out, expiry, self.moment.steady),
                b'O' => reply::meta_flag_token(out, b'O', flag.token),
                b'k' => key_flag(out, asked.key),
                _ => {}
            }
        }
        reply::end_line(out);
        if asked.flags.value {
            reply::data(out, digits.as_bytes());
        }
    }

    fn meta_debug(&mut self, key: MetaKey<'_>) {
        let mut scratch = KeyScratch::new();
        let Some(debug) = self
            .service
            .store
            .meta_debug(key.decode(&mut scratch), self.moment.steady)
        else {
            reply::meta_status(self.out, MetaStatus::End);
            return reply::end_line(self.out);
        };
        // memcached shows the seconds since the expiry, negative before it, and -1 for none.
        let expiry = debug
            .expiry
            .remaining(self.moment.steady)
            .map_or(-1, |left| -i64::from(left));
        self.out.extend_from_slice(b"ME ");
        self.out.extend_from_slice(key.token);
        let attributes = format!(
            " exp={expiry} la={} cas={} fetch={} cls=1 size={}\r\n",
            debug.unused_seconds,
            self.told(debug.cas),
            if debug.fetched { "yes" } else { "no" },
            debug.bytes,
        );
        self.out.extend_from_slice(attributes.as_bytes());
    }

    /// A reply that returns nothing but what identifies the request.
    fn status_line(&mut self, status: MetaStatus, flags: Flags<'_>, key: MetaKey<'_>) {
        reply::meta_status(self.out, status);
        for flag in flags.iter() {
            match flag.letter {
                b'O' => reply::meta_flag_token(self.out, b'O', flag.token),
                b'k' => key_flag(self.out, key),
                _ => {}
            }
        }
        reply::end_line(self.out);
    }

    /// Returns the condition of a cas unique. For items without one, 0 is right.
    fn required_or_none(&self, cas_unique: u64) -> Option<u64> {
        let is_absent = cas_unique == 0 && !self.service.limits.cas_enabled;
        (!is_absent).then(|| self.required(cas_unique))
    }

    fn times(&self, all: Flags<'_>, exptime: Option<i64>, vivify: Option<i64>) -> Times {
        Times {
            touch: self.optional_expiry(exptime),
            vivify: self.optional_expiry(vivify),
            touches_last: comes_before(all, b'N', b'T'),
        }
    }

    fn optional_expiry(&self, exptime: Option<i64>) -> Option<Expiry> {
        exptime.map(|exptime| self.expiry(exptime))
    }
}

/// The expiries that a line gives, of which the flag that comes later counts.
///
/// memcached goes through the flags in their order, and shows what is so far. It creates an item
/// without an expiry.
#[derive(Clone, Copy, Debug)]
struct Times {
    /// `T`.
    touch: Option<Expiry>,
    /// `N`, of an item that is created.
    vivify: Option<Expiry>,
    /// `T` comes after `N`.
    touches_last: bool,
}

impl Times {
    /// The expiry that an item is created with, if it may be.
    fn created(&self) -> Option<Expiry> {
        let touch = self.touch.filter(|_| self.touches_last);
        self.vivify.map(|vivify| touch.unwrap_or(vivify))
    }

    /// The expiry of an item after one of the flags, which existed `before` unless it is created.
    fn after(&self, letter: u8, expiry: Expiry, before: Option<Expiry>) -> Expiry {
        let given = match letter {
            b'T' => self.touch,
            _ if before.is_none() => self.vivify,
            _ => None,
        };
        given.unwrap_or(expiry)
    }
}

/// True if the first one of these flags on a line is `first`.
fn comes_before(flags: Flags<'_>, first: u8, second: u8) -> bool {
    let mut letters = flags.iter().map(|flag| flag.letter);
    letters.find(|letter| [first, second].contains(letter)) == Some(first)
}

fn store_mode(mode: MetaSetMode) -> StoreMode {
    match mode {
        MetaSetMode::Set => StoreMode::Set,
        MetaSetMode::Add => StoreMode::Add,
        MetaSetMode::Replace => StoreMode::Replace,
        MetaSetMode::Append => StoreMode::Append,
        MetaSetMode::Prepend => StoreMode::Prepend,
    }
}

/// The key as it was asked for.
fn key_flag(out: &mut Vec<u8>, key: MetaKey<'_>) {
    reply::meta_flag_token(out, b'k', key.token);
    if key.base64 {
        reply::meta_flag(out, b'b');
    }
}

fn remaining_flag(out: &mut Vec<u8>, expiry: Expiry, now: Seconds) {
    match expiry.remaining(now) {
        Some(left) => reply::meta_flag_number(out, b't', left),
        None => reply::meta_flag_number(out, b't', -1),
    }
}
