//! Executing the requests of the binary protocol.

use dwell_proto::memcache::StoreVerb;
use dwell_proto::memcache::binary::{Command, Echo, Reply, Request, Status};
use dwell_store::{
    ArithmeticOptions, ArithmeticOutcome, DeleteOptions, DeleteOutcome, Expiry, StoreOutcome,
};

use super::commands::{After, Executor, direction, store_options};
use super::metrics::StoreCommand;
use super::service::VERSION;
use super::stats::{StatsOutcome, StatsWriter};

impl Executor<'_> {
    /// Executes one request; returns what to count it as.
    pub(super) fn execute_binary(&mut self, request: &Request<'_>) -> (StoreCommand, After) {
        let (echo, is_quiet) = (request.echo, request.quiet.is_quiet());
        let label = match request.command {
            Command::Get {
                key,
                with_key,
                exptime,
            } => {
                self.binary_get(request, key, with_key, exptime);
                match exptime {
                    None => StoreCommand::Get,
                    Some(_) => StoreCommand::GetAndTouch,
                }
            }
            Command::Touch { key, exptime } => {
                let expiry = self.binary_expiry(exptime);
                let store = &self.service.store;
                let item = store.read(key, Some(expiry), self.moment.steady, |item| {
                    (item.cas, item.flags)
                });
                match item {
                    Some((cas, flags)) => found(self.out, echo, (self.told(cas), flags), &[], &[]),
                    None => self.refuse(echo, Status::KeyNotFound),
                }
                StoreCommand::Touch
            }
            Command::Store { .. } => self.binary_store(request),
            Command::Delete { key } => self.binary_delete(request, key),
            Command::Arithmetic { .. } => self.binary_arithmetic(request),
            Command::Flush { delay } => {
                if self.service.limits.allowed.flush_all {
                    let at = self.expiry(i64::from(delay));
                    self.service.flush_all(at, self.moment.steady);
                    self.done(request, 0);
                } else {
                    self.refuse(echo, Status::AuthError);
                }
                StoreCommand::FlushAll
            }
            Command::Noop => {
                self.done(request, 0);
                StoreCommand::Noop
            }
            Command::Version => {
                let reply = Reply::new(echo, Status::Success);
                let value = VERSION.as_bytes();
                Reply { value, ..reply }.write(self.out);
                StoreCommand::Other
            }
            Command::Stat { topic } => {
                self.binary_stats(echo, topic);
                StoreCommand::Stats
            }
            Command::Quit => {
                if !is_quiet {
                    self.done(request, 0);
                }
                return (StoreCommand::Other, After::Close);
            }
            // A command that the decoder knows and this server does not.
            _ => {
                self.refuse(echo, Status::UnknownCommand);
                StoreCommand::Other
            }
        };
        (label, After::Continue)
    }

    /// Refuses a value that is too large, and deletes what it should have replaced.
    pub(super) fn refuse_large(&mut self, echo: Echo, key: &[u8], deletes_old: bool) {
        if deletes_old {
            self.service.store.discard(key, self.moment.steady);
        }
        self.refuse(echo, Status::TooLarge);
    }

    fn binary_get(
        &mut self,
        request: &Request<'_>,
        key: &[u8],
        with_key: bool,
        exptime: Option<u32>,
    ) {
        let store = &self.service.store;
        self.metrics.hot.read(key);
        let expiry = exptime.map(|exptime| self.binary_expiry(exptime));
        let shown = if with_key { key } else { &[] };
        let tells_cas = self.service.limits.cas_enabled;
        let item = store.read(key, expiry, self.moment.steady, |item| {
            let state = (if tells_cas { item.cas } else { 0 }, item.flags);
            found(self.out, request.echo, state, shown, item.value);
        });
        match item {
            Some(()) => {}
            None if request.quiet.is_quiet() => {}
            None if with_key => {
                let reply = Reply::new(request.echo, Status::KeyNotFound);
                let value = &[];
                Reply {
                    key,
                    value,
                    ..reply
                }
                .write(self.out);
            }
            None => self.refuse(request.echo, Status::KeyNotFound),
        }
    }

    fn binary_store(&mut self, request: &Request<'_>) -> StoreCommand {
        let Command::Store {
            verb,
            key,
            flags,
            exptime,
            value,
        } = request.command
        else {
            return StoreCommand::Other;
        };
        let mut options = store_options(verb, flags, self.binary_expiry(exptime));
        // An item that has no cas unique cannot carry the one that is asked for either.
        options.cas = asked(request.cas_unique).filter(|_| self.service.limits.cas_enabled);
        if options.cas.is_some() && matches!(verb, StoreVerb::Add | StoreVerb::Replace) {
            // With a cas unique, memcached takes every store for a `cas`.
            options.mode = dwell_store::StoreMode::Set;
        }
        let outcome = self
            .service
            .store
            .store(key, value, &options, self.moment.steady);
        let refusal = match (outcome, verb) {
            (StoreOutcome::Stored { cas }, _) => {
                self.done(request, self.told(cas));
                None
            }
            (StoreOutcome::Exists, _) | (StoreOutcome::NotStored, StoreVerb::Add) => {
                Some(Status::KeyExists)
            }
            (StoreOutcome::NotFound, _) | (StoreOutcome::NotStored, StoreVerb::Replace) => {
                Some(Status::KeyNotFound)
            }
            (StoreOutcome::NotStored, _) => Some(Status::NotStored),
            (StoreOutcome::TooLarge, _) => Some(Status::TooLarge),
            (StoreOutcome::OutOfMemory, _) => Some(Status::OutOfMemory),
        };
        if let Some(status) = refusal {
            self.refuse(request.echo, status);
        }
        super::commands::verb_label(verb)
    }

    fn binary_delete(&mut self, request: &Request<'_>, key: &[u8]) -> StoreCommand {
        let options = DeleteOptions {
            cas: asked(request.cas_unique).map(|cas| self.required(cas)),
            ..DeleteOptions::default()
        };
        match self
            .service
            .store
            .delete_with(key, &options, self.moment.steady)
        {
            DeleteOutcome::Deleted => self.done(request, 0),
            DeleteOutcome::NotFound => self.refuse(request.echo, Status::KeyNotFound),
            DeleteOutcome::Exists => self.refuse(request.echo, Status::KeyExists),
        }
        StoreCommand::Delete
    }

    fn binary_arithmetic(&mut self, request: &Request<'_>) -> StoreCommand {
        let Command::Arithmetic {
            mode,
            key,
            delta,
            initial,
            exptime,
        } = request.command
        else {
            return StoreCommand::Other;
        };
        let options = ArithmeticOptions {
            direction: direction(mode),
            delta,
            cas: asked(request.cas_unique).map(|cas| self.required(cas)),
            vivify: exptime.map(|exptime| self.binary_expiry(exptime)),
            initial,
            ..ArithmeticOptions::default()
        };
        let echo = request.echo;
        match self
            .service
            .store
            .arithmetic(key, &options, self.moment.steady)
        {
            ArithmeticOutcome::Done { number, cas, .. } => {
                if !request.quiet.is_quiet() {
                    Reply {
                        cas_unique: self.told(cas),
                        value: &number.to_be_bytes(),
                        ..Reply::new(echo, Status::Success)
                    }
                    .write(self.out);
                }
            }
            ArithmeticOutcome::NotFound => self.refuse(echo, Status::KeyNotFound),
            ArithmeticOutcome::Exists => self.refuse(echo, Status::KeyExists),
            ArithmeticOutcome::NotNumeric => self.refuse(echo, Status::NonNumeric),
            ArithmeticOutcome::TooLarge | ArithmeticOutcome::OutOfMemory => {
                self.refuse(echo, Status::OutOfMemory);
            }
        }
        super::commands::arithmetic_label(mode)
    }

    fn binary_stats(&mut self, echo: Echo, topic: &[u8]) {
        let outcome =
            StatsWriter::binary(self.out, echo).topic(self.service, topic, self.moment.steady);
        match outcome {
            StatsOutcome::Shown | StatsOutcome::Reset | StatsOutcome::Taken => {
                Reply::new(echo, Status::Success).write(self.out);
            }
            StatsOutcome::DetailUsage | StatsOutcome::Unknown => {
                self.refuse(echo, Status::KeyNotFound);
            }
        }
    }

    fn done(&mut self, request: &Request<'_>, cas_unique: u64) {
        if request.quiet.is_quiet() {
            return;
        }
        let reply = Reply::new(request.echo, Status::Success);
        Reply {
            cas_unique,
            ..reply
        }
        .write(self.out);
    }

    fn refuse(&mut self, echo: Echo, status: Status) {
        Reply::new(echo, status).write(self.out);
    }

    /// Reads an exptime, which is unsigned here: no number means the past.
    fn binary_expiry(&self, exptime: u32) -> Expiry {
        match i32::try_from(exptime) {
            Ok(exptime) => self.expiry(i64::from(exptime)),
            Err(_) => self.moment.expiry(exptime),
        }
    }
}

/// Shows an item, of which `state` is the cas unique and the flags.
fn found(out: &mut Vec<u8>, echo: Echo, state: (u64, u32), key: &[u8], value: &[u8]) {
    let (cas_unique, flags) = state;
    Reply {
        cas_unique,
        extras: &flags.to_be_bytes(),
        key,
        value,
        ..Reply::new(echo, Status::Success)
    }
    .write(out);
}

fn asked(cas_unique: u64) -> Option<u64> {
    (cas_unique != 0).then_some(cas_unique)
}
