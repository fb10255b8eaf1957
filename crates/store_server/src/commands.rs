//! Executing commands: a command and the store in, reply bytes out.

use std::sync::atomic::Ordering;

use dwell_proto::memcache::encode::reply::{self, Status};
use dwell_proto::memcache::{
    ArithmeticMode, Command, ErrorLine, KeyScratch, MetaKey, StoreVerb, Tokens,
};
use dwell_store::{
    ArithmeticOptions, ArithmeticOutcome, Direction, Expiry, StoreMode, StoreOptions, StoreOutcome,
};

use super::metrics::{StoreCommand, StoreMetrics};
use super::service::{StoreService, VERSION};
use super::stats::{StatsOutcome, StatsWriter};
use crate::moment::Moment;

/// The fate of the connection after a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum After {
    /// The next command may follow.
    Continue,
    /// The client said goodbye.
    Close,
}

/// Executes commands at one moment for one client.
#[derive(Debug)]
pub(super) struct Executor<'e> {
    pub(super) service: &'e StoreService,
    /// The counters of the loop.
    pub(super) metrics: &'e StoreMetrics,
    /// The moment of the turn.
    pub(super) moment: Moment,
    /// The buffer to which replies are appended.
    pub(super) out: &'e mut Vec<u8>,
}

/// The form of a retrieval command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Retrieval {
    pub(super) with_cas: bool,
    /// `gat` and `gats`: the new exptime, as on the wire.
    pub(super) exptime: Option<i64>,
}

impl Executor<'_> {
    /// Executes any command but the retrievals, which [`Executor::retrieve`] does piece by piece.
    pub(super) fn execute(&mut self, command: &Command<'_>) -> After {
        match *command {
            Command::Store {
                verb,
                key,
                flags,
                exptime,
                noreply,
                value,
            } => {
                let mut options = store_options(verb, flags, self.expiry(exptime));
                options.cas = options.cas.map(|cas| self.required(cas));
                let outcome = self
                    .service
                    .store
                    .store(key, value, &options, self.moment.steady);
                self.answer(noreply, stored(outcome));
            }
            Command::Delete { key, noreply } => {
                let found = self.service.store.delete(key, self.moment.steady);
                self.answer_found(noreply, found, Status::Deleted);
            }
            Command::Touch {
                key,
                exptime,
                noreply,
            } => {
                let found = self
                    .service
                    .store
                    .touch(key, self.expiry(exptime), self.moment.steady);
                self.answer_found(noreply, found, Status::Touched);
            }
            Command::Arithmetic {
                mode,
                key,
                delta,
                noreply,
            } => {
                self.count(mode, key, delta, noreply);
            }
            Command::FlushAll { delay, noreply } => {
                let answer = self.flush(delay);
                self.answer(noreply, answer);
            }
            // The log's level stays the operator's; `stats settings` shows what was asked for.
            Command::Verbosity { level, noreply } => {
                let verbosity = &self.service.counters.verbosity;
                verbosity.store(level, Ordering::Relaxed);
                self.answer(noreply, Ok(Status::Ok));
            }
            Command::Shutdown { is_mode_known } => return self.shut_down(is_mode_known),
            Command::Version => reply::version(self.out, VERSION),
            Command::Stats { arguments } => self.stats(arguments.text()),
            Command::Quit => return After::Close,
            _ => self.execute_meta(command),
        }
        After::Continue
    }

    /// Answers keys until `out` holds `output_bytes_max` or `work` is used up.
    ///
    /// Shape: returns the keys that are left; the caller comes back with them. With none left,
    /// `END` has been written.
    pub(super) fn retrieve<'b>(
        &mut self,
        retrieval: Retrieval,
        keys: Tokens<'b>,
        output_bytes_max: usize,
        work: &mut usize,
    ) -> Option<Tokens<'b>> {
        let store = &self.service.store;
        let mut keys = keys.iter();
        loop {
            // What is left must be a command of its own, so nothing pauses behind the last key.
            let rest = keys.rest();
            let Some(key) = keys.next() else {
                reply::status(self.out, Status::End);
                return None;
            };
            if self.out.len() >= output_bytes_max || *work == 0 {
                return Some(rest);
            }
            *work -= 1;
            self.metrics.hot.read(key);
            let hides_cas = !self.service.limits.cas_enabled;
            let expiry = retrieval.exptime.map(|exptime| self.expiry(exptime));
            store.read(key, expiry, self.moment.steady, |item| {
                let cas_unique = retrieval
                    .with_cas
                    .then_some(if hides_cas { 0 } else { item.cas });
                reply::value(self.out, key, item.flags, cas_unique, item.value);
            });
        }
    }

    /// Deletes what a value that was too large should have replaced.
    pub(super) fn discard(&mut self, key: &MetaKey<'_>) {
        self.service
            .store
            .discard(key.decode(&mut KeyScratch::new()), self.moment.steady);
    }

    /// The cas unique that clients see of an item.
    pub(super) fn told(&self, cas_unique: u64) -> u64 {
        if self.service.limits.cas_enabled {
            cas_unique
        } else {
            0
        }
    }

    /// The cas unique that an item has to have; where items have none, one that none has.
    pub(super) fn required(&self, cas_unique: u64) -> u64 {
        if self.service.limits.cas_enabled {
            cas_unique
        } else {
            u64::MAX
        }
    }

    /// Reads an exptime of the wire.
    pub(super) fn expiry(&self, exptime: i64) -> Expiry {
        Expiry::from_exptime_by(exptime, self.moment.steady, self.moment.unix)
    }

    pub(super) fn answer(&mut self, noreply: bool, answer: Result<Status, ErrorLine>) {
        match answer {
            _ if noreply => {}
            Ok(status) => reply::status(self.out, status),
            Err(line) => reply::error(self.out, line),
        }
    }

    fn answer_found(&mut self, noreply: bool, found: bool, done: Status) {
        self.answer(noreply, Ok(if found { done } else { Status::NotFound }));
    }

    fn flush(&mut self, delay: i64) -> Result<Status, ErrorLine> {
        if !self.service.limits.allowed.flush_all {
            return Err(ErrorLine::FlushDisabled);
        }
        self.service
            .flush_all(self.expiry(delay.max(0)), self.moment.steady);
        Ok(Status::Ok)
    }

    fn shut_down(&mut self, is_mode_known: bool) -> After {
        if !self.service.limits.allowed.shutdown {
            reply::error(self.out, ErrorLine::ShutdownDisabled);
        } else if !is_mode_known {
            reply::error(self.out, ErrorLine::InvalidShutdownMode);
        } else {
            self.service.ask_shutdown();
            return After::Close;
        }
        After::Continue
    }

    fn stats(&mut self, topic: &[u8]) {
        let outcome = StatsWriter::text(self.out).topic(self.service, topic, self.moment.steady);
        match outcome {
            StatsOutcome::Shown => reply::status(self.out, Status::End),
            StatsOutcome::Taken => reply::status(self.out, Status::Ok),
            StatsOutcome::Reset => reply::status(self.out, Status::Reset),
            StatsOutcome::DetailUsage => reply::error(self.out, ErrorLine::StatsDetailUsage),
            StatsOutcome::Unknown => reply::error(self.out, ErrorLine::Unknown),
        }
    }

    fn count(&mut self, mode: ArithmeticMode, key: &[u8], delta: u64, noreply: bool) {
        let options = ArithmeticOptions {
            direction: direction(mode),
            delta,
            ..ArithmeticOptions::default()
        };
        let answer = match self
            .service
            .store
            .arithmetic(key, &options, self.moment.steady)
        {
            ArithmeticOutcome::Done { number, .. } => {
                if !noreply {
                    reply::new_number(self.out, number);
                }
                return;
            }
            ArithmeticOutcome::NotFound => Ok(Status::NotFound),
            // Only a version that was asked for can differ, and `incr` asks for none.
            ArithmeticOutcome::Exists => Ok(Status::Exists),
            ArithmeticOutcome::NotNumeric => Err(ErrorLine::NonNumeric),
            ArithmeticOutcome::TooLarge => Err(ErrorLine::TooLarge),
            ArithmeticOutcome::OutOfMemory => Err(ErrorLine::OutOfMemory),
        };
        self.answer(noreply, answer);
    }

    /// `cache_memlimit`, which may lower the store's bound but not raise it above the configured
    /// one: the change is to be gone on with, or an error has been answered.
    pub(super) fn begin_memlimit(&mut self, megabytes: u32, noreply: bool) -> bool {
        let bytes = (megabytes as usize).saturating_mul(1 << 20);
        let line: &[u8] = if megabytes < MEGABYTES_MIN {
            b"MEMLIMIT_TOO_SMALL cannot set maxbytes to less than 8m\r\n"
        } else if megabytes > MEGABYTES_MAX {
            b"MEMLIMIT_ADJUST_FAILED input value is megabytes not bytes\r\n"
        } else if bytes > self.service.limits.bytes_max {
            b"MEMLIMIT_ADJUST_FAILED out of bounds or unable to adjust\r\n"
        } else {
            self.service.store.begin_resize(bytes);
            return true;
        };
        if !noreply {
            self.out.extend_from_slice(line);
        }
        false
    }
}

/// Returns the counter of a command.
pub(super) fn command_label(command: &Command<'_>) -> StoreCommand {
    match command {
        Command::Get { .. } => StoreCommand::Get,
        Command::GetAndTouch { .. } => StoreCommand::GetAndTouch,
        Command::Store { verb, .. } => verb_label(*verb),
        Command::Delete { .. } => StoreCommand::Delete,
        Command::Arithmetic { mode, .. } => arithmetic_label(*mode),
        Command::Touch { .. } => StoreCommand::Touch,
        Command::FlushAll { .. } => StoreCommand::FlushAll,
        Command::Stats { .. } => StoreCommand::Stats,
        Command::MetaGet(_) => StoreCommand::MetaGet,
        Command::MetaSet(_) => StoreCommand::MetaSet,
        Command::MetaDelete(_) => StoreCommand::MetaDelete,
        Command::MetaArithmetic(_) => StoreCommand::MetaArithmetic,
        Command::MetaNoop => StoreCommand::Noop,
        Command::MetaDebug { .. } => StoreCommand::MetaDebug,
        _ => StoreCommand::Other,
    }
}

pub(super) fn verb_label(verb: StoreVerb) -> StoreCommand {
    match verb {
        StoreVerb::Set => StoreCommand::Set,
        StoreVerb::Add => StoreCommand::Add,
        StoreVerb::Replace => StoreCommand::Replace,
        StoreVerb::Append => StoreCommand::Append,
        StoreVerb::Prepend => StoreCommand::Prepend,
        StoreVerb::Cas(_) => StoreCommand::Cas,
    }
}

pub(super) fn arithmetic_label(mode: ArithmeticMode) -> StoreCommand {
    match mode {
        ArithmeticMode::Increment => StoreCommand::Increment,
        ArithmeticMode::Decrement => StoreCommand::Decrement,
    }
}

pub(super) fn direction(mode: ArithmeticMode) -> Direction {
    match mode {
        ArithmeticMode::Increment => Direction::Increment,
        ArithmeticMode::Decrement => Direction::Decrement,
    }
}

pub(super) fn store_options(verb: StoreVerb, flags: u32, expiry: Expiry) -> StoreOptions {
    let (mode, cas) = match verb {
        StoreVerb::Set => (StoreMode::Set, None),
        StoreVerb::Add => (StoreMode::Add, None),
        StoreVerb::Replace => (StoreMode::Replace, None),
        StoreVerb::Append => (StoreMode::Append, None),
        StoreVerb::Prepend => (StoreMode::Prepend, None),
        StoreVerb::Cas(cas_unique) => (StoreMode::Set, Some(cas_unique)),
    };
    StoreOptions {
        mode,
        flags,
        expiry,
        cas,
        ..StoreOptions::default()
    }
}

fn stored(outcome: StoreOutcome) -> Result<Status, ErrorLine> {
    match outcome {
        StoreOutcome::Stored { .. } => Ok(Status::Stored),
        StoreOutcome::NotStored => Ok(Status::NotStored),
        StoreOutcome::Exists => Ok(Status::Exists),
        StoreOutcome::NotFound => Ok(Status::NotFound),
        StoreOutcome::TooLarge => Err(ErrorLine::TooLarge),
        StoreOutcome::OutOfMemory => Err(ErrorLine::OutOfMemory),
    }
}

/// The least memory memcached lets itself be limited to. Units: MiB.
const MEGABYTES_MIN: u32 = 8;
/// The most that memcached takes for a number of MiB.
const MEGABYTES_MAX: u32 = 1_000_000_000;
