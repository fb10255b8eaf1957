//! One request and the operations it carries.

use dwell_proto::memcache::{ErrorKind, Key, MetaStatus, Reply};

use super::{Failure, Outcome, command};

/// A request, with the state that relates each of its replies to an operation.
///
/// The server answers keys in the order they were asked and says nothing of those it does not
/// have, so a reply that names a key settles that operation and all before it; the end of the
/// replies settles the rest.
///
/// Shape: holds each key once, in the request as it goes on the wire, written while it grows.
#[derive(Debug)]
pub(crate) struct Batch {
    form: Form,
    wire: Vec<u8>,
    operations: Vec<Operation>,
    /// The first operation without an answer.
    next: usize,
    /// Error lines that are still to come for a request whose commands the server does not support.
    refusals: usize,
    /// The only epoch in which the request may be sent.
    epoch: Option<u64>,
}

/// The commands a request is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// `version`: carries no operation and proves that the server answers.
    Probe,
    /// `gets key key ...`, answered by `VALUE`s and `END`.
    Gets,
    /// `mg key c k q` for each key, and `mn`; answered by `HD`s and `MN`.
    MetaGets,
    /// Anything else, one command behind the other, each with one reply.
    Commands,
}

/// The kind of result that an operation expects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wants {
    Value,
    Version,
    Store,
    Delete,
    Touch,
    Number,
    Meta { has_data: bool },
}

impl Wants {
    /// Returns true if a value follows its line.
    pub(crate) const fn has_data(self) -> bool {
        matches!(self, Self::Store | Self::Meta { has_data: true })
    }
}

#[derive(Clone, Copy, Debug)]
struct Operation {
    tag: u64,
    key_start: u32,
    key_end: u32,
    wants: Wants,
}

/// The progress of a request after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More replies will come.
    More,
    /// This was the last reply.
    Done,
    /// This was the last reply and an error.
    Refused,
}

impl Batch {
    pub(crate) const fn new(form: Form) -> Self {
        Self {
            form,
            wire: Vec::new(),
            operations: Vec::new(),
            next: 0,
            refusals: 0,
            epoch: None,
        }
    }

    /// Makes a request without a key.
    pub(crate) fn probe() -> Self {
        let mut batch = Self::new(Form::Probe);
        batch.wire.extend_from_slice(b"version\r\n");
        batch
    }

    pub(crate) const fn form(&self) -> Form {
        self.form
    }

    /// The request as it goes on the wire; complete after [`finish`](Self::finish).
    pub(crate) fn wire(&self) -> &[u8] {
        &self.wire
    }

    pub(crate) fn len(&self) -> usize {
        self.operations.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.operations.is_empty()
    }

    /// Returns true if the server has refused these commands as unknown.
    pub(crate) const fn is_refused(&self) -> bool {
        self.refusals > 0
    }

    /// Empties it for another request, keeping its memory.
    pub(crate) fn reuse(&mut self, form: Form) {
        self.form = form;
        self.wire.clear();
        self.operations.clear();
        self.next = 0;
        self.refusals = 0;
        self.epoch = None;
    }

    /// Lets the request be sent in one epoch only.
    pub(crate) const fn bind_to(&mut self, epoch: u64) {
        self.epoch = Some(epoch);
    }

    /// Returns true if the request may be sent in this epoch.
    pub(crate) fn is_for(&self, epoch: u64) -> bool {
        self.epoch.is_none_or(|own| own == epoch)
    }

    /// Adds an operation.
    pub(crate) fn push(&mut self, key: Key<'_>, tag: u64, wants: Wants) {
        match self.form {
            Form::MetaGets => self.wire.extend_from_slice(b"mg "),
            _ if self.wire.is_empty() => self.wire.extend_from_slice(b"gets "),
            _ => self.wire.push(b' '),
        }
        let key_start = self.wire.len() as u32;
        self.wire.extend_from_slice(key.as_bytes());
        let key_end = self.wire.len() as u32;
        self.operations.push(Operation {
            tag,
            key_start,
            key_end,
            wants,
        });
        if self.form == Form::MetaGets {
            self.wire.extend_from_slice(b" c k q\r\n");
        }
    }

    /// Adds an operation that `encode` writes, given the opaque of a meta command.
    pub(crate) fn push_command(
        &mut self,
        tag: u64,
        wants: Wants,
        encode: impl FnOnce(&mut Vec<u8>, usize),
    ) {
        encode(&mut self.wire, self.operations.len());
        self.operations.push(Operation {
            tag,
            key_start: 0,
            key_end: 0,
            wants,
        });
    }

    /// Ends the request, which must not be empty.
    pub(crate) fn finish(&mut self) {
        match self.form {
            Form::Probe | Form::Commands => {}
            Form::Gets => self.wire.extend_from_slice(b"\r\n"),
            Form::MetaGets => self.wire.extend_from_slice(b"mn\r\n"),
        }
    }

    /// Takes the next reply and reports the operations it settles.
    ///
    /// # Errors
    /// When the reply does not belong here: the connection is of no more use. Operations that are
    /// not settled yet stay so.
    pub(crate) fn take(
        &mut self,
        reply: &Reply<'_>,
        report: &mut impl FnMut(u64, Outcome<'_>),
    ) -> Result<Progress, Failure> {
        if reply.is_connection_refused() {
            return Err(Failure::TooManyConnections);
        }
        match self.form {
            Form::Probe => take_probe_reply(reply),
            Form::Gets => self.take_gets_reply(reply, report),
            Form::MetaGets => self.take_meta_reply(reply, report),
            Form::Commands => self.take_command_reply(reply, report),
        }
    }

    /// Reports every operation that is not settled yet with the same outcome.
    pub(crate) fn settle_rest(
        &mut self,
        outcome: Outcome<'_>,
        report: &mut impl FnMut(u64, Outcome<'_>),
    ) {
        self.settle_until(self.operations.len(), outcome, report);
    }

    fn take_gets_reply(
        &mut self,
        reply: &Reply<'_>,
        report: &mut impl FnMut(u64, Outcome<'_>),
    ) -> Result<Progress, Failure> {
        match *reply {
            Reply::Value {
                key,
                flags,
                cas_unique: Some(cas_unique),
                value,
            } => {
                let index = self.find(key)?;
                self.settle_until(index, Outcome::Miss, report);
                let outcome = match self.operations[index].wants {
                    Wants::Value => Outcome::Hit {
                        value,
                        flags,
                        cas_unique,
                    },
                    _ => Outcome::Version { cas_unique },
                };
                self.settle_until(index + 1, outcome, report);
                Ok(Progress::More)
            }
            Reply::End => {
                self.settle_rest(Outcome::Miss, report);
                Ok(Progress::Done)
            }
            // Ends this command alone (protocol.txt, "Error strings"): a proxy says so for the
            // keys of one dead server behind it.
            Reply::Error {
                kind: ErrorKind::ServerError,
                ..
            } => {
                self.settle_rest(Outcome::Failed(Failure::ErrorLine), report);
                Ok(Progress::Refused)
            }
            _ => Err(unexpected(reply)),
        }
    }

    fn take_meta_reply(
        &mut self,
        reply: &Reply<'_>,
        report: &mut impl FnMut(u64, Outcome<'_>),
    ) -> Result<Progress, Failure> {
        match *reply {
            Reply::Error {
                kind: ErrorKind::Error,
                ..
            } => {
                if self.refusals == 0 {
                    if self.next > 0 {
                        return Err(Failure::ErrorLine);
                    }
                    self.settle_rest(Outcome::Failed(Failure::Unsupported), report);
                    // One line for each `mg`, and one for the `mn`.
                    self.refusals = self.operations.len() + 1;
                }
                self.refusals -= 1;
                let last = self.refusals == 0;
                Ok(if last {
                    Progress::Refused
                } else {
                    Progress::More
                })
            }
            _ if self.is_refused() => Err(unexpected(reply)),
            Reply::Meta {
                status: MetaStatus::Header,
                flags,
            } => {
                let (key, cas_unique) = flags
                    .find(b'k')
                    .zip(flags.cas_unique())
                    .ok_or(Failure::Protocol)?;
                let index = self.find(key)?;
                self.settle_until(index, Outcome::Miss, report);
                self.settle_until(index + 1, Outcome::Version { cas_unique }, report);
                Ok(Progress::More)
            }
            Reply::Meta {
                status: MetaStatus::Noop,
                ..
            } => {
                self.settle_rest(Outcome::Miss, report);
                Ok(Progress::Done)
            }
            _ => Err(unexpected(reply)),
        }
    }

    fn take_command_reply(
        &mut self,
        reply: &Reply<'_>,
        report: &mut impl FnMut(u64, Outcome<'_>),
    ) -> Result<Progress, Failure> {
        let operation = self.operations.get(self.next).ok_or(Failure::Protocol)?;
        let outcome = command::answer(operation.wants, self.next, reply)?;
        self.settle_until(self.next + 1, outcome, report);
        Ok(command::progress(
            self.next,
            self.operations.len(),
            &outcome,
        ))
    }

    /// Returns the first operation on `key` without a result.
    fn find(&self, key: &[u8]) -> Result<usize, Failure> {
        #[cfg(feature = "sim")]
        if dwell_evloop::sim::Planted::ReplyByOrder.is_in() && self.next < self.operations.len() {
            return Ok(self.next);
        }
        let rest = &self.operations[self.next..];
        let found = rest
            .iter()
            .position(|operation| self.key(*operation) == key);
        found
            .map(|offset| self.next + offset)
            .ok_or(Failure::Protocol)
    }

    fn key(&self, operation: Operation) -> &[u8] {
        &self.wire[operation.key_start as usize..operation.key_end as usize]
    }

    fn settle_until(
        &mut self,
        end: usize,
        outcome: Outcome<'_>,
        report: &mut impl FnMut(u64, Outcome<'_>),
    ) {
        for operation in &self.operations[self.next..end] {
            report(operation.tag, outcome);
        }
        self.next = end;
    }
}

/// Any answer will do, even that the command is unknown: some proxies do not have it.
fn take_probe_reply(reply: &Reply<'_>) -> Result<Progress, Failure> {
    match reply {
        Reply::Version(_) => Ok(Progress::Done),
        Reply::Error { .. } => Ok(Progress::Refused),
        _ => Err(Failure::Protocol),
    }
}

fn unexpected(reply: &Reply<'_>) -> Failure {
    match reply {
        Reply::Error { .. } => Failure::ErrorLine,
        _ => Failure::Protocol,
    }
}

#[cfg(test)]
mod tests;
