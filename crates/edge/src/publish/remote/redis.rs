//! Requests of publishers that wait for Redis.
//!
//! The commands are those of memcached in the words of Redis: `SET` with `GET`, `NX` or `XX`, and
//! `DEL`.
//! A script in the server compares the value that was read, as memcached compares versions.

use super::{BYTES_MAX, Command, Pending, Publisher};
use crate::cursor::Cursor;
use crate::ids::PublishId;
use crate::publish::{Operation, Precondition, PublishRequest, PublishResult};
use bytes::Bytes;
use dwell_evloop::{Context, Id};
use dwell_proto::memcache::StoreVerb;
use dwell_redis::{Client, Error, Failure, Outcome, SetCondition, SetOptions};
use std::time::Duration;

/// The step after a reply.
#[derive(Clone, PartialEq, Eq, Debug)]
enum NextStep {
    Ask(Command),
    /// A command that is carried out if the key still has this value.
    Compare(Command, Box<[u8]>),
    End(PublishResult),
}

impl<A> Publisher<A> {
    /// Sends the commands to Redis; the caller flushes the client.
    pub(crate) fn ask_redis(&mut self, context: &mut Context, client: &mut Client) {
        for token in std::mem::take(&mut self.outbox) {
            let Some(pending) = self.pending.get(token) else {
                continue;
            };
            if pending.ask_redis(context, client, token.to_bits()).is_err() {
                self.end(token, PublishResult::Busy);
            }
        }
    }

    /// Handles a reply or a failure of Redis.
    pub(crate) fn redis_completed(&mut self, token: PublishId, outcome: &Outcome<'_>) {
        let has_room = self.bytes < BYTES_MAX;
        let Some(pending) = self.pending.get_mut(token) else {
            return;
        };
        match step(pending.request, pending.command, outcome) {
            NextStep::Ask(command) => {
                pending.command = command;
                self.outbox.push(token);
            }
            NextStep::Compare(command, expected) if has_room => {
                self.bytes += expected.len();
                (pending.command, pending.expected) = (command, expected);
                self.outbox.push(token);
            }
            NextStep::Compare(..) => self.end(token, PublishResult::Busy),
            NextStep::End(published) => self.end(token, published),
        }
    }
}

impl<A> Pending<A> {
    fn ask_redis(&self, context: &mut Context, client: &mut Client, tag: u64) -> Result<(), Error> {
        let (key, value) = (&self.key, &self.value);
        let lifetime = match self.request.act {
            Operation::Put { ttl } => ttl.map(|ttl| Duration::from_secs(u64::from(ttl))),
            Operation::Delete | Operation::Read => None,
        };
        let condition = match self.command {
            Command::Get => return client.get(context, key, tag),
            Command::Delete => return client.delete(context, key, tag),
            Command::DeleteVersion => {
                return client.delete_value(context, key, &self.expected, tag);
            }
            Command::Cas => {
                let values = (&*self.expected, &**value);
                return client.replace(context, key, values, lifetime, tag);
            }
            Command::Store(StoreVerb::Add) if self.request.condition == Precondition::None => {
                return client.swap(context, key, value, lifetime, tag);
            }
            Command::Store(StoreVerb::Add) => SetCondition::Absent,
            Command::Store(StoreVerb::Replace) => SetCondition::Present,
            Command::Store(_) => SetCondition::None,
        };
        let options = SetOptions {
            lifetime,
            condition,
        };
        client.set(context, key, value, options, tag)
    }
}

/// The step after the reply to a command.
fn step(request: PublishRequest, command: Command, outcome: &Outcome<'_>) -> NextStep {
    if let Outcome::Failed(failure) = outcome {
        return NextStep::End(failed(*failure));
    }
    let is_conditional = request.condition != Precondition::None;
    NextStep::End(match (command, outcome) {
        (Command::Get, Outcome::Value(value)) if request.act == Operation::Read => {
            PublishResult::Value(Bytes::copy_from_slice(value), 0)
        }
        (Command::Get, Outcome::Value(value)) => {
            if !request.condition.is_met(Some(Cursor::of(value, 0))) {
                return NextStep::End(PublishResult::Unmet);
            }
            let command = match request.act {
                Operation::Delete => Command::DeleteVersion,
                Operation::Put { .. } | Operation::Read => Command::Cas,
            };
            return NextStep::Compare(command, (*value).into());
        }
        (Command::Get, Outcome::Missing) if request.act == Operation::Read => {
            PublishResult::Missing
        }
        (Command::Store(StoreVerb::Add), Outcome::Missing) => PublishResult::Created,
        (Command::Store(StoreVerb::Add), Outcome::Done) if is_conditional => PublishResult::Created,
        // The key has a value of another type, or the server is old.
        (Command::Store(StoreVerb::Add), Outcome::Unmet) if !is_conditional => {
            return NextStep::Ask(Command::Store(StoreVerb::Set));
        }
        (Command::Store(_) | Command::Cas, Outcome::Done) => PublishResult::Replaced,
        (Command::Delete | Command::DeleteVersion, Outcome::Done) => PublishResult::Deleted,
        (Command::Delete, Outcome::Unmet) if !is_conditional => PublishResult::Missing,
        _ => PublishResult::Unmet,
    })
}

/// The result of a request that Redis has failed.
fn failed(failure: Failure) -> PublishResult {
    match failure {
        Failure::Full => PublishResult::NoRoom("Redis has no memory left"),
        Failure::NotReady => PublishResult::NotNow("Redis does not take writes now"),
        Failure::Unserved => PublishResult::NotNow("no server of the cluster has the key"),
        Failure::ReadOnly => PublishResult::NotNow("this Redis is a replica"),
        Failure::Denied => PublishResult::Unanswered("Redis does not allow it"),
        Failure::ErrorReply => PublishResult::Unanswered("Redis refuses the command"),
        Failure::TooLarge => PublishResult::Unanswered("the value in Redis exceeds the limit"),
        Failure::Timeout | Failure::Closed | Failure::Protocol => {
            PublishResult::Unanswered("Redis has not answered; it may have done it all the same")
        }
        // No command is sent before the greeting.
        _ => PublishResult::Unreached,
    }
}

#[cfg(test)]
mod tests {
    use super::super::first_command;
    use super::*;

    const PUT: Operation = Operation::Put { ttl: None };

    fn request(act: Operation, condition: Precondition) -> PublishRequest {
        PublishRequest::new(act, condition)
    }

    /// The results of a request to whose commands these are the replies.
    fn result(request: PublishRequest, outcomes: &[Outcome<'_>]) -> PublishResult {
        let mut command = first_command(request);
        for outcome in outcomes {
            command = match step(request, command, outcome) {
                NextStep::Ask(next) | NextStep::Compare(next, _) => next,
                NextStep::End(result) => return result,
            };
        }
        panic!("{command:?} is not the end");
    }

    #[test]
    fn replies_of_redis_become_results() {
        let is_v = Precondition::Is(Cursor::of(b"v", 0));
        let (v, w) = (Outcome::Value(b"v"), Outcome::Value(b"w"));
        let (done, unmet, missing) = (Outcome::Done, Outcome::Unmet, Outcome::Missing);
        for (act, condition, outcomes, expected) in [
            (
                PUT,
                Precondition::None,
                &[missing][..],
                PublishResult::Created,
            ),
            (PUT, Precondition::None, &[done], PublishResult::Replaced),
            (
                PUT,
                Precondition::None,
                &[unmet, done],
                PublishResult::Replaced,
            ),
            (PUT, Precondition::Missing, &[done], PublishResult::Created),
            (PUT, Precondition::Missing, &[unmet], PublishResult::Unmet),
            (PUT, Precondition::Present, &[done], PublishResult::Replaced),
            (PUT, Precondition::Present, &[unmet], PublishResult::Unmet),
            (PUT, is_v, &[v, done], PublishResult::Replaced),
            (PUT, is_v, &[v, unmet], PublishResult::Unmet),
            (PUT, is_v, &[w], PublishResult::Unmet),
            (PUT, is_v, &[missing], PublishResult::Unmet),
            (
                Operation::Delete,
                Precondition::None,
                &[done],
                PublishResult::Deleted,
            ),
            (
                Operation::Delete,
                Precondition::None,
                &[unmet],
                PublishResult::Missing,
            ),
            (
                Operation::Delete,
                Precondition::Present,
                &[unmet],
                PublishResult::Unmet,
            ),
            (Operation::Delete, is_v, &[v, done], PublishResult::Deleted),
            (
                Operation::Read,
                Precondition::None,
                &[missing],
                PublishResult::Missing,
            ),
        ] {
            let request = request(act, condition);
            assert_eq!(
                result(request, outcomes),
                expected,
                "{request:?} {outcomes:?}"
            );
        }
        let read = request(Operation::Read, Precondition::None);
        assert_eq!(
            result(read, &[v]),
            PublishResult::Value(Bytes::from("v"), 0)
        );
    }

    #[test]
    fn a_failure_that_may_pass_is_a_503() {
        let put = request(PUT, Precondition::None);
        let answered = |failure| {
            let mut status = 0;
            let result = result(put, &[Outcome::Failed(failure)]);
            let cursor = Cursor::of(b"", 0);
            crate::publish::send(&result, cursor, |response| status = response.status);
            status
        };
        for (failure, status) in [
            (Failure::Timeout, 502),
            (Failure::Denied, 502),
            (Failure::ErrorReply, 502),
            (Failure::NotReady, 503),
            (Failure::ReadOnly, 503),
            (Failure::Full, 507),
        ] {
            assert_eq!(answered(failure), status, "{failure:?}");
        }
    }
}
