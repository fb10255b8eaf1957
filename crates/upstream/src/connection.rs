//! One connection to the application, and the request it works on.

use std::io::ErrorKind;
use std::time::Instant;

use dwell_evloop::{Peer, ReadOutcome, Stream};

use super::answer::{AnswerHead, AnswerReader};
use super::recent::Witness;
use super::shares::Client;
use super::{Unanswered, UpstreamError, UpstreamOptions, UpstreamRequest};

/// A request on its way.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Exchange {
    pub(super) request: UpstreamRequest,
    /// The time by which it must have ended.
    pub(super) deadline: Instant,
    /// The time by which it must have got a connection.
    pub(super) queue_deadline: Instant,
    /// A connection that had been used before failed under it.
    pub(super) retried: bool,
    /// The servers that were asked, a bit for each.
    pub(super) asked: u64,
    /// It got no answer where it was sent before.
    pub(super) is_resent: bool,
    /// The evidence by which its server is judged.
    pub(super) witness: Witness,
    /// True until its connection is announced for its body.
    pub(super) unannounced: bool,
    /// The time at which all of it was sent, as far as it was there.
    pub(super) sent_at: Instant,
    /// Part of its body was written and is not kept any more.
    pub(super) committed: bool,
    /// The head of the 101, until the connection is given away.
    pub(super) switched: Option<Box<AnswerHead>>,
}

/// One connection.
#[derive(Debug)]
pub(super) struct Connection {
    /// The socket. Its tail is what came behind a switch of protocols, and it is unread while
    /// there may be input that was not granted.
    pub(super) peer: Peer,
    pub(super) work: Work,
    /// The deadline of the exchange's stage that the loop has been told. It is told only changes:
    /// to set a deadline again rounds it up to a whole tick again, and an application that takes
    /// or gives a little in each tick would put it off for ever.
    pub(super) armed: Option<Instant>,
    /// True if it has brought a response before.
    pub(super) is_reused: bool,
    /// The client among whose transfers it counts, if it does.
    pub(super) transfer_of: Option<Client>,
    /// The error of writing a body. It is no failure before its answer was looked for.
    pub(super) write_error: Option<ErrorKind>,
}

/// The work of a connection.
#[derive(Debug)]
pub(super) enum Work {
    /// Nothing; it waits for a request.
    Idle,
    /// It is being made for this request.
    Connecting(Exchange),
    /// The request is sent, or being sent, and its answer read.
    Exchanging(Exchange, Box<AnswerReader>),
}

impl Exchange {
    /// A request that begins at `now`, and must have got a connection and have ended by then.
    pub(super) fn new(
        request: UpstreamRequest,
        now: Instant,
        queue_deadline: Instant,
        deadline: Instant,
    ) -> Self {
        Self {
            unannounced: request.body_follows,
            committed: false,
            switched: None,
            witness: Witness::of(&request.bytes, request.client),
            request,
            deadline,
            sent_at: now,
            queue_deadline,
            retried: false,
            asked: 0,
            is_resent: false,
        }
    }

    /// Goes on another connection, which is announced again for the body.
    fn again(self) -> Self {
        Self {
            unannounced: self.request.body_follows,
            ..self
        }
    }
}

impl Connection {
    pub(super) fn connecting(stream: Stream, exchange: Exchange) -> Self {
        Self {
            peer: Peer::new(stream),
            work: Work::Connecting(exchange),
            armed: None,
            is_reused: false,
            transfer_of: None,
            write_error: None,
        }
    }

    pub(super) fn exchange(&self) -> Option<&Exchange> {
        match &self.work {
            Work::Idle => None,
            Work::Connecting(exchange) | Work::Exchanging(exchange, _) => Some(exchange),
        }
    }

    /// Returns the request, to be sent again.
    pub(super) fn into_exchange(self) -> Option<Exchange> {
        match self.work {
            Work::Idle => None,
            Work::Connecting(exchange) | Work::Exchanging(exchange, _) => Some(exchange.again()),
        }
    }

    /// The time at which the next step is late; `None` where the exchange waits for its client.
    pub(super) fn stage_deadline(
        &self,
        options: &UpstreamOptions,
        now: Instant,
    ) -> Option<Instant> {
        match &self.work {
            Work::Idle => None,
            Work::Connecting(exchange) => {
                Some(exchange.deadline.min(now + options.connect_timeout))
            }
            Work::Exchanging(_, reader) if reader.has_head() && reader.is_in_parts() => {
                (!reader.is_paused()).then(|| now + options.stall_timeout)
            }
            Work::Exchanging(exchange, reader) if reader.has_head() => Some(exchange.deadline),
            Work::Exchanging(exchange, _) if exchange.request.body_follows => {
                (self.peer.stream.queued_bytes() > 0).then(|| now + options.stall_timeout)
            }
            Work::Exchanging(exchange, _) => {
                Some(exchange.deadline.min(now + options.header_timeout))
            }
        }
    }

    /// Returns the error of its deadline, now that it has passed.
    pub(super) fn lateness(&self, options: &UpstreamOptions, now: Instant) -> UpstreamError {
        match &self.work {
            Work::Exchanging(exchange, reader)
                if exchange.request.body_follows || (reader.has_head() && reader.is_in_parts()) =>
            {
                UpstreamError::Stalled(options.stall_timeout)
            }
            Work::Connecting(exchange) | Work::Exchanging(exchange, _)
                if exchange.deadline <= now =>
            {
                UpstreamError::TotalTimeout(options.total_timeout)
            }
            Work::Exchanging(..) => UpstreamError::HeaderTimeout(options.header_timeout),
            Work::Connecting(_) | Work::Idle => {
                UpstreamError::ConnectTimeout(options.connect_timeout)
            }
        }
    }

    /// Returns true if an idle connection is still open and silent.
    pub(super) fn is_usable(&mut self) -> bool {
        #[cfg(feature = "sim")]
        if dwell_evloop::sim::Planted::KeepDead.is_in() {
            return true;
        }
        // The beginning of a record is something that was said, though nothing can be read of it.
        matches!(self.peer.stream.read(&mut [0]), Ok(ReadOutcome::WouldBlock))
            && !self.peer.stream.has_begun_record()
    }

    /// Returns the request, if another server may be sent it: nothing has reached this one, or it
    /// may be sent twice and nothing of an answer has come. It is sent once more only, as it may be
    /// what ended the connection. A server that is slow is not left for another, which would be as
    /// slow with twice the work.
    pub(super) fn into_unanswered(self, error: &UpstreamError) -> Option<Box<Unanswered>> {
        let exchange = match self.work {
            Work::Connecting(exchange) => exchange,
            Work::Exchanging(exchange, reader)
                if may_repeat(&exchange.request)
                    && !exchange.is_resent
                    && !exchange.committed
                    && !reader.has_begun()
                    && error.is_loss() =>
            {
                Exchange {
                    is_resent: true,
                    ..exchange
                }
            }
            Work::Idle | Work::Exchanging(..) => return None,
        };
        Some(Box::new(Unanswered(exchange.again())))
    }

    /// Returns true if the request may be sent again after this connection ended without a
    /// response: its end was on its way already when the request was sent, or may have been.
    ///
    /// Source: RFC 9112 section 9.3.1.
    pub(super) fn may_retry(&self) -> bool {
        let Work::Exchanging(exchange, reader) = &self.work else {
            return false;
        };
        let nothing_sent = self.peer.stream.queued_bytes() == exchange.request.bytes.len();
        self.is_reused
            && !exchange.retried
            && !exchange.committed
            && !reader.has_begun()
            && (may_repeat(&exchange.request) || nothing_sent)
    }
}

/// Returns true if a request may reach the application twice.
fn may_repeat(request: &UpstreamRequest) -> bool {
    #[cfg(feature = "sim")]
    if dwell_evloop::sim::Planted::RepeatPost.is_in() {
        return true;
    }
    request.is_idempotent
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_is_small() {
        assert!(
            size_of::<Connection>() <= 272,
            "{}",
            size_of::<Connection>()
        );
    }
}
