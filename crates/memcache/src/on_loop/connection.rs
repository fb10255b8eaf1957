//! One pipelined connection: its requests, and the deadline of their replies.

use std::collections::VecDeque;
use std::io;
use std::time::Instant;

use dwell_evloop::{Handshakes, Peer, Readiness, Stream};
use dwell_proto::memcache::{Reply, ReplyLimits, ResponseDecoder};

use super::batch::{Batch, Form, Progress};
use super::ledger::{Reporter, Sink};
use super::{Failure, Outcome};

/// A connection that is being made or is up, with every request it owes an answer to.
///
/// Its first request is a probe. There is one deadline, that of the request that has waited
/// longest: it moves when a request is answered completely, never because bytes have come.
#[derive(Debug)]
pub(crate) struct Connection {
    pub(crate) peer: Peer,
    is_established: bool,
    in_flight: VecDeque<Flight>,
    decoder: ResponseDecoder,
    /// The beginning of a reply whose end has not come yet.
    tail: Vec<u8>,
}

#[derive(Debug)]
struct Flight {
    batch: Batch,
    deadline: Instant,
}

impl Connection {
    /// A connection whose attempt has just begun and has to end by `deadline`.
    pub(crate) fn new(stream: Stream, value_bytes_max: usize, deadline: Instant) -> Self {
        let limits = ReplyLimits {
            value_bytes_max,
            ..ReplyLimits::default()
        };
        let probe = Flight {
            batch: Batch::probe(),
            deadline,
        };
        Self {
            peer: Peer::new(stream),
            is_established: false,
            in_flight: VecDeque::from([probe]),
            decoder: ResponseDecoder::new(limits),
            tail: Vec::new(),
        }
    }

    pub(crate) const fn is_established(&self) -> bool {
        self.is_established
    }

    /// Returns true if the server has answered anything at all.
    pub(crate) fn is_proven(&self) -> bool {
        self.in_flight
            .front()
            .is_none_or(|flight| flight.batch.form() != Form::Probe)
    }

    /// Returns true if a reply is owed.
    pub(crate) fn is_owing(&self) -> bool {
        !self.in_flight.is_empty()
    }

    /// Returns true if a reply is owed to an operation.
    pub(crate) fn owes_operations(&self) -> bool {
        let mut owed = self.in_flight.iter();
        owed.any(|flight| flight.batch.form() != Form::Probe)
    }

    /// Returns the instant at which the connection fails; `None` while nothing is owed.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        // Operations may wait behind a probe that has more time than they have.
        self.in_flight
            .iter()
            .take(2)
            .map(|flight| flight.deadline)
            .min()
    }

    /// Checks the attempt to connect, and goes on with its handshake; returns true if it has just
    /// succeeded. How a handshake has ended is entered into `handshakes`.
    ///
    /// # Errors
    /// [`Failure::Connect`] or [`Failure::Handshake`] when it has failed.
    pub(crate) fn establish(
        &mut self,
        readiness: Readiness,
        probe_deadline: Instant,
        handshakes: &mut Handshakes,
    ) -> Result<bool, Failure> {
        match self.peer.stream.connect_error() {
            Ok(None) => {}
            Ok(Some(error)) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            Ok(Some(error)) | Err(error) => {
                handshakes.broken_off(self.peer.stream.handshake_broken_by(&error));
                return Err(Failure::Connect);
            }
        }
        // An end that comes with the last bytes is not told again.
        self.peer.observe(readiness);
        let entered = handshakes.enter(self.peer.handshake());
        if !entered.map_err(|_| Failure::Handshake)? {
            return Ok(false);
        }
        self.is_established = true;
        if let Some(probe) = self.in_flight.front_mut() {
            probe.deadline = probe_deadline;
        }
        Ok(true)
    }

    /// Adds a finished request, without writing it.
    pub(crate) fn push(&mut self, batch: Batch, deadline: Instant) {
        self.in_flight.push_back(Flight { batch, deadline });
    }

    /// Writes the last `count` requests in one go, and `wire` is scratch space for it.
    ///
    /// # Errors
    /// [`Failure::Closed`] when the connection has failed.
    pub(crate) fn write_last(&mut self, count: usize, wire: &mut Vec<u8>) -> Result<(), Failure> {
        let first = self.in_flight.len().saturating_sub(count);
        for flight in self.in_flight.range(first..) {
            wire.extend_from_slice(flight.batch.wire());
        }
        self.peer.stream.write(wire).map_err(|_| Failure::Closed)
    }

    /// Returns the number of requests that are owed a reply.
    pub(crate) fn in_flight(&self) -> usize {
        self.in_flight.len()
    }

    /// Takes what was read; reports outcomes, and requests that are answered completely.
    ///
    /// Shape: whole replies are used where they were read; only the beginning of one that is not
    /// complete is copied, at most a value and its line.
    ///
    /// # Errors
    /// When the server broke the protocol or refuses the connection.
    pub(crate) fn take_input<F: Sink>(
        &mut self,
        input: &[u8],
        reporter: &mut Reporter<'_, F>,
    ) -> Result<(), Failure> {
        if self.tail.is_empty() {
            let used = self.take_replies(input, reporter)?;
            self.tail.extend_from_slice(&input[used..]);
            return Ok(());
        }
        let mut tail = std::mem::take(&mut self.tail);
        tail.extend_from_slice(input);
        let used = self.take_replies(&tail, reporter)?;
        if used < tail.len() || tail.capacity() <= TAIL_KEEP_BYTES_MAX {
            tail.drain(..used);
            self.tail = tail;
        }
        Ok(())
    }

    fn take_replies<F: Sink>(
        &mut self,
        input: &[u8],
        reporter: &mut Reporter<'_, F>,
    ) -> Result<usize, Failure> {
        let mut used = 0;
        while used < input.len() {
            let decoded = self.decoder.decode(&input[used..]);
            let Some((consumed, reply)) = decoded.map_err(|_| Failure::Protocol)? else {
                break;
            };
            used += consumed;
            self.take_reply(&reply, reporter)?;
        }
        Ok(used)
    }

    fn take_reply<F: Sink>(
        &mut self,
        reply: &Reply<'_>,
        reporter: &mut Reporter<'_, F>,
    ) -> Result<(), Failure> {
        let Some(flight) = self.in_flight.front_mut() else {
            let refused = reply.is_connection_refused();
            return Err(if refused {
                Failure::TooManyConnections
            } else {
                Failure::Protocol
            });
        };
        let report = &mut |tag, outcome: Outcome<'_>| reporter.outcome(tag, outcome);
        let progress = flight.batch.take(reply, report)?;
        if progress != Progress::More
            && let Some(flight) = self.in_flight.pop_front()
        {
            reporter.answered(flight.batch, progress);
        }
        Ok(())
    }

    /// Drops the request that has waited longest, and keeps the connection.
    #[cfg(feature = "sim")]
    pub(crate) fn give_up_first(&mut self) -> Option<Batch> {
        self.in_flight.pop_front().map(|flight| flight.batch)
    }

    /// Ends the connection; gives back every request without a complete answer, oldest first.
    pub(crate) fn into_unanswered(self) -> impl Iterator<Item = Batch> {
        self.in_flight.into_iter().map(|flight| flight.batch)
    }
}

/// A tail that grew beyond this is given back when it is used up.
const TAIL_KEEP_BYTES_MAX: usize = 16 * 1024;
