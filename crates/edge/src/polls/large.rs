//! Answers to misses that are too large to be gathered.

use super::ask::Method;
use super::tables::Poll;
use crate::ids::FetchId;
use crate::responder::{HeldClient, HeldRequest};
use crate::route_figures::RouteFigures;
use dwell_evloop::Token;
use dwell_upstream::AnswerPart;
use std::net::SocketAddr;

/// The beginning of an answer that polls cannot take as a whole.
#[derive(Debug)]
pub(crate) struct TooLarge {
    /// The exchange with the application, its server, and the fetch that it is for.
    pub(crate) connection: Token,
    pub(crate) server: SocketAddr,
    pub(crate) fetch: FetchId,
    pub(crate) parts: Vec<AnswerPart>,
    /// The poll whose request was sent, if its client is still there and may have the answer.
    pub(super) poll: Option<Poll>,
}

impl TooLarge {
    /// The client that the answer goes on to.
    pub(crate) fn client<'a>(&'a self, figures: &'a RouteFigures) -> Option<HeldClient<'a>> {
        let poll = self.poll.as_ref()?;
        Some(HeldClient {
            exchange: poll.exchange,
            arrived: poll.arrived,
            was_held: poll.was_held(),
            route_place: figures.place(poll.route),
            route: figures.prefix(poll.route),
            line: poll.line(),
            is_head: poll.ask.method == Method::Head,
        })
    }
}
