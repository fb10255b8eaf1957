//! Answers to misses that are too large to be gathered.

use super::ask::Method;
use super::tables::Poll;
use crate::ids::FetchId;
use crate::responder::HeldRequest;
use dwell_engine::ExchangeId;
use dwell_evloop::Token;
use dwell_upstream::AnswerPart;
use std::time::Instant;

/// The beginning of an answer that polls cannot take as a whole.
#[derive(Debug)]
pub(crate) struct TooLarge {
    /// The exchange with the application, and the fetch that it is for.
    pub(crate) connection: Token,
    pub(crate) fetch: FetchId,
    pub(crate) parts: Vec<AnswerPart>,
    /// The poll whose request was sent, if its client is still there and may have the answer.
    pub(super) poll: Option<Poll>,
}

/// The client of a poll that takes its answer in parts.
#[derive(Debug)]
pub(crate) struct LargeClient<'a> {
    pub(crate) exchange: ExchangeId,
    pub(crate) arrived: Instant,
    /// Method and target, where the access log wants them.
    pub(crate) line: Option<(&'a str, &'a str)>,
    pub(crate) is_head: bool,
}

impl TooLarge {
    /// The client that the answer goes on to.
    pub(crate) fn client(&self) -> Option<LargeClient<'_>> {
        let poll = self.poll.as_ref()?;
        Some(LargeClient {
            exchange: poll.exchange,
            arrived: poll.arrived,
            line: poll.line(),
            is_head: poll.ask.method == Method::Head,
        })
    }
}
