//! Requests of publishers that wait for memcached or Redis.

use super::request::exptime;
use super::{Operation, Precondition, PublishRequest, PublishResult};
use crate::cursor::Cursor;
use crate::ids::PublishId;
use bytes::Bytes;
use dwell_evloop::{Context, Id, Slab};
use dwell_memcache::StoreOutcome;
use dwell_memcache::on_loop::{Answer, Client, Completion, Error, Failure, Outcome, Version};
use dwell_proto::memcache::encode::request::StoreOptions;
use dwell_proto::memcache::{MetaStatus, StoreVerb};

mod redis;

/// The requests of one loop that wait for memcached or Redis.
#[derive(Debug)]
pub(crate) struct Publisher<A> {
    pending: Slab<Pending<A>, PublishId>,
    /// Bytes of the values in the table.
    bytes: usize,
    /// Requests with a query that is sent when the turn ends.
    outbox: Vec<PublishId>,
    finished: Vec<Finished<A>>,
}

/// A request that has ended, and the client that gets the result.
#[derive(Debug)]
pub(crate) struct Finished<A> {
    pub(crate) asker: A,
    pub(crate) key: Box<[u8]>,
    /// Cursor of the value in the request.
    pub(crate) cursor: Cursor,
    pub(crate) published: PublishResult,
}

impl<A> Finished<A> {
    /// Separates the client from the result.
    pub(crate) fn parts(self) -> (A, Finished<()>) {
        let rest = Finished {
            asker: (),
            key: self.key,
            cursor: self.cursor,
            published: self.published,
        };
        (self.asker, rest)
    }
}

#[derive(Debug)]
struct Pending<A> {
    asker: A,
    request: PublishRequest,
    key: Box<[u8]>,
    value: Box<[u8]>,
    exptime: i64,
    cursor: Cursor,
    command: Command,
    /// The version that the next command replaces or deletes, where memcached compares it.
    version: Version,
    /// The value likewise, where Redis compares it.
    expected: Box<[u8]>,
}

/// The next command for memcached.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Command {
    Get,
    Store(StoreVerb),
    Delete,
    /// Stores the value if the one that was read is still there.
    Cas,
    /// Deletes the key likewise.
    DeleteVersion,
}

/// The step after a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
enum NextStep {
    Ask(Command),
    /// Sends a command that compares this version with the one that is there.
    Compare(Command, Version),
    End(PublishResult),
}

impl<A> Publisher<A> {
    /// Makes an empty table.
    pub(crate) fn new() -> Self {
        Self {
            pending: PublishId::slab(REQUESTS_MAX),
            bytes: 0,
            outbox: Vec::new(),
            finished: Vec::new(),
        }
    }

    /// Takes a request, which ends in exactly one [`Finished`].
    pub(crate) fn take(
        &mut self,
        context: &Context,
        asker: impl FnOnce(PublishId) -> A,
        request: PublishRequest,
        key: &[u8],
        value: &[u8],
    ) -> PublishId {
        let ttl = match request.act {
            Operation::Put { ttl } => ttl,
            Operation::Delete | Operation::Read => None,
        };
        let token = self.pending.next_token();
        let cursor = Cursor::of(value, 0);
        let asker = asker(token);
        let has_room = !self.pending.is_full() && self.bytes + value.len() <= BYTES_MAX;
        if !has_room || request.condition == Precondition::Never {
            let published = if has_room {
                PublishResult::Unmet
            } else {
                PublishResult::Busy
            };
            self.finished.push(Finished {
                asker,
                key: key.into(),
                cursor,
                published,
            });
            return token;
        }
        let pending = Pending {
            asker,
            request,
            key: key.into(),
            value: value.into(),
            exptime: exptime(ttl, context.unix_seconds()),
            cursor,
            command: first_command(request),
            version: Version::default(),
            expected: Box::default(),
        };
        // There is room: this was checked above.
        if let Ok(token) = self.pending.insert(pending) {
            self.bytes += value.len();
            self.outbox.push(token);
        }
        token
    }

    /// Returns true if there are queries that have not been sent.
    pub(crate) fn has_commands(&self) -> bool {
        !self.outbox.is_empty()
    }

    /// Sends the queries to memcached; the caller flushes the client.
    pub(crate) fn ask(&mut self, client: &mut Client) {
        for token in std::mem::take(&mut self.outbox) {
            let Some(pending) = self.pending.get(token) else {
                continue;
            };
            if pending.ask(client, token.to_bits()).is_err() {
                self.end(token, PublishResult::Busy);
            }
        }
    }

    /// Handles a reply or a failure of memcached.
    pub(crate) fn completed(&mut self, token: PublishId, completion: &Completion<'_>) {
        let Some(pending) = self.pending.get_mut(token) else {
            return;
        };
        match step(pending.request, pending.command, completion) {
            NextStep::Ask(command) => {
                pending.command = command;
                self.outbox.push(token);
            }
            NextStep::Compare(command, version) => {
                (pending.command, pending.version) = (command, version);
                self.outbox.push(token);
            }
            NextStep::End(published) => self.end(token, published),
        }
    }

    /// Ends a request that has timed out; returns false if it had ended already.
    pub(crate) fn expire(&mut self, token: PublishId) -> bool {
        let is_under_way = self.pending.get(token).is_some();
        self.end(token, failed(Failure::Timeout));
        is_under_way
    }

    /// Returns true if there are results that have not been taken.
    pub(crate) fn has_finished(&self) -> bool {
        !self.finished.is_empty()
    }

    /// Takes the results since the last call.
    pub(crate) fn finished(&mut self) -> Vec<Finished<A>> {
        std::mem::take(&mut self.finished)
    }

    fn end(&mut self, token: PublishId, published: PublishResult) {
        let Some(pending) = self.pending.remove(token) else {
            return;
        };
        self.bytes -= pending.value.len() + pending.expected.len();
        self.finished.push(Finished {
            asker: pending.asker,
            key: pending.key,
            cursor: pending.cursor,
            published,
        });
    }
}

impl<A> Pending<A> {
    fn ask(&self, client: &mut Client, tag: u64) -> Result<(), Error> {
        let options = StoreOptions {
            exptime: self.exptime,
            ..StoreOptions::default()
        };
        match self.command {
            Command::Get => client.get(&self.key, tag),
            Command::Store(verb) => client.store(verb, &self.key, &self.value, options, tag),
            Command::Cas => client.cas(&self.key, &self.value, self.version, options, tag),
            Command::Delete => client.delete(&self.key, tag),
            Command::DeleteVersion => client.delete_version(&self.key, self.version, tag),
        }
    }
}

fn first_command(request: PublishRequest) -> Command {
    match (request.act, request.condition) {
        (Operation::Read, _) | (_, Precondition::Is(_)) => Command::Get,
        (Operation::Delete, _) => Command::Delete,
        (Operation::Put { .. }, Precondition::Present) => Command::Store(StoreVerb::Replace),
        (Operation::Put { .. }, Precondition::None) if !request.tells_before => {
            Command::Store(StoreVerb::Set)
        }
        // The first query assumes that there is no value; its reply tells.
        (Operation::Put { .. }, _) => Command::Store(StoreVerb::Add),
    }
}

/// The step after the reply to a query.
fn step(request: PublishRequest, command: Command, completion: &Completion<'_>) -> NextStep {
    let outcome = &completion.outcome;
    match outcome {
        // The server may be another one now: its value is read, and compared, again.
        Outcome::Failed(Failure::Reconnected) => return NextStep::Ask(Command::Get),
        Outcome::Failed(failure) => return NextStep::End(failed(*failure)),
        _ => {}
    }
    let is_conditional = request.condition != Precondition::None;
    let end = match (command, outcome) {
        (Command::Get, Outcome::Hit { value, flags, .. }) if request.act == Operation::Read => {
            PublishResult::Value(Bytes::copy_from_slice(value), *flags)
        }
        (
            Command::Get,
            Outcome::Hit {
                value,
                flags,
                cas_unique,
            },
        ) => {
            if !request.condition.is_met(Some(Cursor::of(value, *flags))) {
                return NextStep::End(PublishResult::Unmet);
            }
            let version = Version {
                epoch: completion.epoch,
                cas_unique: *cas_unique,
            };
            return match (request.act, cas_unique) {
                (_, 0) => NextStep::End(PublishResult::Unanswered(
                    "memcached keeps no versions (-C)",
                )),
                (Operation::Delete, _) => NextStep::Compare(Command::DeleteVersion, version),
                _ => NextStep::Compare(Command::Cas, version),
            };
        }
        (Command::Get, Outcome::Miss) if request.act == Operation::Read => PublishResult::Missing,
        (Command::Store(StoreVerb::Add), Outcome::Answer(Answer::Stored(stored))) => {
            match (stored, is_conditional) {
                (StoreOutcome::Stored, _) => PublishResult::Created,
                (_, false) => return NextStep::Ask(Command::Store(StoreVerb::Set)),
                (_, true) => PublishResult::Unmet,
            }
        }
        (
            Command::Store(_) | Command::Cas,
            Outcome::Answer(Answer::Stored(StoreOutcome::Stored)),
        ) => PublishResult::Replaced,
        (Command::Delete, Outcome::Answer(Answer::Deleted)) => PublishResult::Deleted,
        (Command::DeleteVersion, Outcome::Answer(Answer::Meta { status, .. }))
            if *status == MetaStatus::Header =>
        {
            PublishResult::Deleted
        }
        (Command::Delete, Outcome::Miss) if !is_conditional => PublishResult::Missing,
        _ => PublishResult::Unmet,
    };
    NextStep::End(end)
}

/// The result of a request that memcached has failed.
fn failed(failure: Failure) -> PublishResult {
    match failure {
        Failure::ErrorLine => PublishResult::NoRoom("memcached refuses the value"),
        Failure::Unsupported => PublishResult::Unanswered("memcached lacks the meta commands"),
        Failure::Timeout | Failure::Closed | Failure::Protocol => PublishResult::Unanswered(
            "memcached has not answered; it may have done it all the same",
        ),
        _ => PublishResult::Unanswered("memcached cannot be reached"),
    }
}

/// Requests of one loop that may wait for memcached.
const REQUESTS_MAX: usize = 1024;
/// Bytes of their values.
const BYTES_MAX: usize = 64 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_whose_answer_tells_nothing_of_before_is_one_command() {
        let request = PublishRequest::store();
        let command = first_command(request);
        assert_eq!(command, Command::Store(StoreVerb::Set));
        let stored = Outcome::Answer(Answer::Stored(StoreOutcome::Stored));
        let end = NextStep::End(PublishResult::Replaced);
        assert_eq!(step(request, command, &of(stored)), end);
        // One that tells it takes two, between which others may store and delete.
        let request = PublishRequest::new(request.act, request.condition);
        let command = first_command(request);
        assert_eq!(command, Command::Store(StoreVerb::Add));
        let refused = Outcome::Answer(Answer::Stored(StoreOutcome::NotStored));
        let next = NextStep::Ask(Command::Store(StoreVerb::Set));
        assert_eq!(step(request, command, &of(refused)), next);
    }

    #[test]
    fn a_version_of_another_connection_is_read_again() {
        let put = Operation::Put { ttl: None };
        let cursor = Cursor::of(b"before", 0);
        for (act, compares) in [
            (put, Command::Cas),
            (Operation::Delete, Command::DeleteVersion),
        ] {
            let request = PublishRequest::new(act, Precondition::Is(cursor));
            assert_eq!(first_command(request), Command::Get);
            let hit = Outcome::Hit {
                value: b"before",
                flags: 0,
                cas_unique: 7,
            };
            let version = Version {
                epoch: EPOCH,
                cas_unique: 7,
            };
            let next = step(request, Command::Get, &of(hit));
            assert_eq!(next, NextStep::Compare(compares, version));
            let other = of(Outcome::Failed(Failure::Reconnected));
            assert_eq!(step(request, compares, &other), NextStep::Ask(Command::Get));
        }
    }

    const EPOCH: u64 = 3;

    fn of(outcome: Outcome<'_>) -> Completion<'_> {
        Completion {
            tag: 0,
            server: 0,
            epoch: EPOCH,
            outcome,
        }
    }
}
