//! Operations that are answered one by one.

use dwell_proto::memcache::{ErrorKind, MetaStatus, Reply};

use super::batch::{Progress, Wants};
use super::{Answer, Failure, Outcome};
use crate::StoreOutcome;

/// A meta command on a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetaCommand<'v> {
    /// `mg`.
    Get,
    /// `ms`, with its value.
    Set(&'v [u8]),
    /// `md`.
    Delete,
    /// `ma`.
    Arithmetic,
}

/// Returns the outcome of the next operation by this reply.
///
/// # Errors
/// When the reply is not one to the operation: the connection is of no more use.
pub(super) fn answer<'a>(
    wants: Wants,
    opaque: usize,
    reply: &Reply<'a>,
) -> Result<Outcome<'a>, Failure> {
    if let Reply::Error { kind, .. } = reply {
        let is_read_past = !wants.has_data() || *kind == ErrorKind::ServerError;
        // Otherwise the server may take the data for commands.
        return if is_read_past {
            Ok(Outcome::Failed(Failure::ErrorLine))
        } else {
            Err(Failure::ErrorLine)
        };
    }
    let outcome = match wants {
        Wants::Meta { .. } => meta_answer(opaque, reply),
        Wants::Store => store_answer(reply),
        Wants::Delete => said(reply, &Reply::Deleted, Answer::Deleted),
        Wants::Touch => said(reply, &Reply::Touched, Answer::Touched),
        Wants::Number => match reply {
            Reply::Number(number) => Some(Outcome::Answer(Answer::Number(*number))),
            Reply::NotFound => Some(Outcome::Miss),
            _ => None,
        },
        Wants::Value | Wants::Version => None,
    };
    outcome.ok_or(Failure::Protocol)
}

fn said<'a>(reply: &Reply<'_>, yes: &Reply<'_>, answer: Answer<'a>) -> Option<Outcome<'a>> {
    if reply == yes {
        Some(Outcome::Answer(answer))
    } else {
        (*reply == Reply::NotFound).then_some(Outcome::Miss)
    }
}

fn store_answer<'a>(reply: &Reply<'_>) -> Option<Outcome<'a>> {
    let outcome = match reply {
        Reply::Stored => StoreOutcome::Stored,
        Reply::NotStored => StoreOutcome::NotStored,
        Reply::Exists => StoreOutcome::Exists,
        Reply::NotFound => StoreOutcome::NotFound,
        _ => return None,
    };
    Some(Outcome::Answer(Answer::Stored(outcome)))
}

fn meta_answer<'a>(opaque: usize, reply: &Reply<'a>) -> Option<Outcome<'a>> {
    let (status, flags, value) = match *reply {
        Reply::MetaValue { flags, value } => (MetaStatus::Header, flags, Some(value)),
        Reply::Meta { status, flags } => (status, flags, None),
        _ => return None,
    };
    let came = flags.number(b'O').map(usize::try_from);
    let is_miss = matches!(status, MetaStatus::End | MetaStatus::NotFound);
    // Some servers send no flags where there is no item.
    let is_ours = match came {
        Some(came) => came == Ok(opaque),
        None => is_miss,
    };
    let outcome = if is_miss {
        Outcome::Miss
    } else {
        Outcome::Answer(Answer::Meta {
            status,
            flags,
            value,
        })
    };
    (is_ours && status != MetaStatus::Noop).then_some(outcome)
}

/// Returns the progress of a batch when its next operation has been answered.
pub(super) fn progress(next: usize, count: usize, outcome: &Outcome<'_>) -> Progress {
    match outcome {
        _ if next < count => Progress::More,
        Outcome::Failed(_) => Progress::Refused,
        _ => Progress::Done,
    }
}
