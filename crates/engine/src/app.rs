//! The one seam: what a program on the engine implements.

use crate::Reply;
use dwell_evloop::{Context, Token};
use dwell_proto::http1::RequestHead;
use std::time::Duration;

/// Names one request and the answer owed to it.
///
/// Shape: valid until the answer is sent or [`App::abandoned`] tells that nobody waits for it;
/// afterwards it names nothing, never the next request of the same connection.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct ExchangeId {
    pub(crate) token: Token,
    pub(crate) sequence: u32,
}

/// A complete request.
#[derive(Debug)]
pub struct Request<'a> {
    /// The name to answer by, if not at once.
    pub exchange: ExchangeId,
    /// Method, target and fields, as received.
    pub head: &'a RequestHead<'a, 'a>,
    /// The head's bytes as received, the empty line included.
    pub head_bytes: &'a [u8],
    /// The body, its transfer coding removed.
    pub body: &'a [u8],
}

/// What became of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The [`Reply`] was used; if it was not, the client gets 500.
    Answered,
    /// The answer comes later, by [`Http::answer`](crate::Http::answer). Where one was sent
    /// already, that counts, and the hold is abandoned at once.
    Held {
        /// Handed back with everything the engine tells of this exchange.
        tag: u64,
        /// When [`App::expired`] is to be called; `None` where the app keeps its own deadline.
        timeout: Option<Duration>,
    },
    /// The connection is closed: without an answer, or after the one that was sent.
    Close,
}

/// What the engine did by itself, for counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Event {
    /// A connection came.
    Accepted,
    /// A connection was closed because there are too many.
    Refused,
    /// No descriptor was left to accept with.
    Exhausted,
    /// The engine answered a request by itself, with this status.
    Rejected(u16),
    /// A client took nothing of its answer for too long.
    WriteTimeout,
}

/// A program on the engine: it is handed requests and owes each an answer.
pub trait App {
    /// How many bytes of body the request may bring; more gets 413.
    fn body_bytes_max(&mut self, head: &RequestHead<'_, '_>) -> u64;

    /// A request is complete.
    fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome;

    /// The timeout of a held exchange has passed; answer now or hold on.
    fn expired(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome;

    /// The peer of a held exchange has ended its sending side; true gives the exchange up, after
    /// which [`abandoned`](Self::abandoned) is called.
    ///
    /// Shape: asked once for each hold, be it by an [`Outcome::Held`] or by
    /// [`Http::hold`](crate::Http::hold); at once where the peer ended its side before.
    fn peer_closed(&mut self, exchange: ExchangeId, tag: u64) -> bool {
        let _ = (exchange, tag);
        true
    }

    /// Nobody waits for the answer any more.
    fn abandoned(&mut self, context: &mut Context, exchange: ExchangeId, tag: u64);

    /// Something worth counting happened.
    fn event(&mut self, event: Event) {
        let _ = event;
    }
}
