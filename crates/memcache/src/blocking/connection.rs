//! One connection: a request goes out, its replies come in, within one budget of time.

use std::sync::Arc;
use std::time::{Duration, Instant};

use dwell_proto::memcache::{Reply, ReplyLimits, ResponseDecoder};
use rustix::event::PollFlags;

use super::budget::Budget;
use super::fault::Fault;
use super::options::Timeouts;
use super::reaper::Reaper;
use super::socket::{Socket, Transfer};
use super::tls::{Layer, RECORD_BYTES_MAX};

/// The progress of a request after a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Progress {
    /// More replies will come.
    More,
    /// This was the last one.
    Done,
}

/// The receiver of the replies to a request.
pub(crate) trait Take {
    /// Takes the next reply.
    fn take(&mut self, reply: &Reply<'_>) -> Result<Progress, Fault>;

    /// Takes what is at the front of `input`; `None` if its end has not come yet.
    ///
    /// Shape: returns the bytes used, and what they have led to.
    fn read(
        &mut self,
        decoder: &mut ResponseDecoder,
        input: &[u8],
    ) -> Result<Option<Taken>, Fault> {
        let reply = decoder.decode(input)?;
        Ok(reply.map(|(used, reply)| (used, self.take(&reply))))
    }
}

/// Bytes that were used, and what they have led to.
pub(crate) type Taken = (usize, Result<Progress, Fault>);

/// Gives every whole reply in `input` to `take`; returns the bytes used with the outcome.
///
/// No bytes may follow the last reply, as they would belong to no request.
pub(crate) fn take_replies(
    take: &mut impl Take,
    decoder: &mut ResponseDecoder,
    input: &[u8],
) -> Taken {
    let mut used = 0;
    while used < input.len() {
        match take.read(decoder, &input[used..]) {
            Ok(None) => break,
            Ok(Some((count, Ok(Progress::More)))) => used += count,
            Ok(Some((count, Ok(Progress::Done)))) => {
                used += count;
                let rest = &input[used..];
                if rest.is_empty() {
                    return (used, Ok(Progress::Done));
                }
                let shown = &rest[..rest.len().min(40)];
                let fault = Fault::Unexpected(shown.escape_ascii().to_string());
                return (used, Err(fault));
            }
            Ok(Some((count, Err(fault)))) => return (used + count, Err(fault)),
            Err(fault) => return (used, Err(fault)),
        }
    }
    (used, Ok(Progress::More))
}

/// A connection, between operations or in the middle of one.
///
/// In the middle of an operation it belongs to that operation. It goes back to the pool only after
/// [`Connection::finish`] has found it in step; dropped anywhere else, it is closed.
#[derive(Debug)]
pub(crate) struct Connection {
    socket: Arc<Socket>,
    /// TLS between the buffers and the socket.
    layer: Option<Box<Layer>>,
    timeouts: Timeouts,
    reaper: Option<Reaper>,
    /// The limit for which the kernel's receive timeout was set.
    kernel_limit: Option<Duration>,
    decoder: ResponseDecoder,
    /// The input; bytes that were read and not used yet are at `start..end`.
    input: Vec<u8>,
    start: usize,
    end: usize,
    /// Bytes of a record of TLS that has begun, from `end` on.
    sealed: usize,
    /// Bytes of the current request that are out, or of its records.
    sent: usize,
    has_received: bool,
    /// True if it has carried an operation before the current one.
    is_used: bool,
    /// The instant at which the last operation began.
    last_used: Instant,
    /// The process that may use it, by [`dwell_timers::forks`].
    forks: u64,
}

impl Connection {
    pub(crate) fn new(socket: Socket, timeouts: Timeouts, limits: ReplyLimits) -> Self {
        let socket = Arc::new(socket);
        let reaper = (timeouts == Timeouts::Reaper).then(|| Reaper::new(Arc::clone(&socket)));
        Self {
            socket,
            layer: None,
            timeouts,
            reaper,
            kernel_limit: None,
            decoder: ResponseDecoder::new(limits),
            input: vec![0; INPUT_BYTES],
            start: 0,
            end: 0,
            sealed: 0,
            sent: 0,
            has_received: false,
            is_used: false,
            last_used: Instant::now(),
            forks: dwell_timers::forks(),
        }
    }

    /// Goes on under TLS, with the bytes that came behind its handshake.
    pub(crate) fn secure(&mut self, layer: Layer, early: &[u8]) -> Result<(), Fault> {
        self.layer = Some(Box::new(layer));
        self.make_room();
        self.input[..early.len()].copy_from_slice(early);
        self.take_bytes(early.len()).map(drop)
    }

    pub(crate) const fn forks(&self) -> u64 {
        self.forks
    }

    /// Returns true if it came from the pool, and so may have ended unnoticed.
    pub(crate) const fn is_used(&self) -> bool {
        self.is_used
    }

    /// Returns the time from its last use to `now`.
    pub(crate) fn idle_for(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.last_used)
    }

    pub(crate) fn socket(&self) -> &Socket {
        &self.socket
    }

    /// Returns true if bytes of the request have been given to the system: the server may have
    /// acted.
    pub(crate) const fn has_sent(&self) -> bool {
        self.sent > 0
    }

    /// Returns true if the server has sent anything since the request began.
    pub(crate) const fn has_received(&self) -> bool {
        self.has_received
    }

    /// Sends a request and gives its replies to `take`, all within the budget.
    ///
    /// If the request is taken in one piece and answered in one, this is one send and one receive.
    pub(crate) fn exchange(
        &mut self,
        request: &[u8],
        budget: &Budget,
        take: &mut impl Take,
    ) -> Result<(), Fault> {
        self.begin(budget)?;
        self.send(request)?;
        // The kernel's timeout is that of a whole operation.
        let is_plain = budget.is_whole() && self.timeouts != Timeouts::Strict;
        if is_plain
            && self.is_sent(request)
            && self.receive_first()?
            && self.take_replies(take)? == Progress::Done
        {
            return Ok(());
        }
        loop {
            self.progress(request, budget)?;
            if self.take_replies(take)? == Progress::Done {
                return Ok(());
            }
        }
    }

    /// Prepares for an operation.
    pub(crate) fn begin(&mut self, budget: &Budget) -> Result<(), Fault> {
        self.sent = 0;
        self.has_received = false;
        self.last_used = budget.started();
        if let Some(layer) = &mut self.layer {
            layer.begin();
        }
        match (&mut self.reaper, budget.limit()) {
            (Some(reaper), Some(limit)) => {
                let rest = if budget.is_whole() {
                    limit
                } else {
                    budget.rest()?.unwrap_or(limit)
                };
                reaper.begin(budget.started(), limit, rest);
            }
            (None, limit) if self.timeouts == Timeouts::Kernel && limit != self.kernel_limit => {
                self.socket.set_receive_timeout(limit)?;
                self.kernel_limit = limit;
            }
            _ => {}
        }
        Ok(())
    }

    /// Ends an operation; whether another may follow on this connection.
    pub(crate) fn finish(&mut self) -> bool {
        self.is_used = true;
        if self.input.len() > INPUT_KEEP_BYTES_MAX && self.sealed == 0 {
            self.input = vec![0; INPUT_BYTES];
        }
        let was_reaped = self.reaper.as_ref().is_some_and(Reaper::end);
        let is_ended = self.layer.as_ref().is_some_and(|layer| layer.is_ended());
        !was_reaped && !is_ended && self.start == self.end
    }

    /// Sends what the socket takes of the rest of `request`.
    pub(crate) fn send(&mut self, request: &[u8]) -> Result<bool, Fault> {
        let unsent = match &mut self.layer {
            None => &request[self.sent..],
            Some(layer) => {
                layer.seal(request)?;
                layer.unsent()
            }
        };
        let transfer = self.socket.send_now(unsent);
        match self.unless_reaped(transfer)? {
            Transfer::Bytes(count) => {
                self.sent += count;
                if let Some(layer) = &mut self.layer {
                    layer.has_sent(count);
                }
                Ok(true)
            }
            Transfer::Later => Ok(false),
        }
    }

    pub(crate) fn is_sent(&self, request: &[u8]) -> bool {
        match &self.layer {
            None => self.sent == request.len(),
            Some(layer) => layer.is_sent(),
        }
    }

    /// The first receive of an operation, which may take as long as the kernel lets it.
    fn receive_first(&mut self) -> Result<bool, Fault> {
        self.make_room();
        let transfer = self
            .socket
            .receive(&mut self.input[self.end + self.sealed..]);
        self.received(transfer)
    }

    /// Receives what is there; whether anything was.
    pub(crate) fn receive_now(&mut self) -> Result<bool, Fault> {
        self.make_room();
        let room = &mut self.input[self.end + self.sealed..];
        let transfer = self.socket.receive_now(room);
        self.received(transfer)
    }

    fn received(&mut self, transfer: Result<Transfer, Fault>) -> Result<bool, Fault> {
        match self.unless_reaped(transfer)? {
            Transfer::Bytes(0) if self.is_reaped() => Err(Fault::Timeout),
            Transfer::Bytes(0) => Err(Fault::Closed),
            Transfer::Bytes(count) => self.take_bytes(count),
            Transfer::Later => Ok(false),
        }
    }

    /// Takes bytes that were received into the input, where records of TLS are opened in place.
    fn take_bytes(&mut self, count: usize) -> Result<bool, Fault> {
        let Some(layer) = &mut self.layer else {
            self.end += count;
            self.has_received = true;
            return Ok(true);
        };
        let begin = self.end;
        let filled = begin + self.sealed + count;
        let (used, data) = layer.open(&mut self.input[begin..filled], &self.socket)?;
        self.end = begin + data;
        self.sealed = filled - begin - used;
        self.input.copy_within(begin + used..filled, self.end);
        self.has_received |= data > 0;
        if data == 0 && layer.is_ended() {
            return Err(Fault::Closed);
        }
        Ok(true)
    }

    /// Waits until something has been received, and sends the rest of the request meanwhile.
    ///
    /// A client that only writes while both sides' buffers are full waits for ever; so does one
    /// that only reads. Every round reads the clock, so bytes that drip do not move the end.
    fn progress(&mut self, request: &[u8], budget: &Budget) -> Result<(), Fault> {
        let mut is_early = self.timeouts == Timeouts::Strict;
        loop {
            let rest = budget.rest()?;
            let sent = !self.is_sent(request) && self.send(request)?;
            if !is_early && self.receive_now()? {
                return Ok(());
            }
            is_early = false;
            if !sent {
                let mut events = PollFlags::IN;
                events.set(PollFlags::OUT, !self.is_sent(request));
                self.socket.wait(events, rest)?;
            }
        }
    }

    /// Gives every whole reply that has been read to `take`.
    pub(crate) fn take_replies(&mut self, take: &mut impl Take) -> Result<Progress, Fault> {
        let input = &self.input[self.start..self.end];
        let (used, result) = take_replies(take, &mut self.decoder, input);
        self.start += used;
        if self.start == self.end {
            self.input.copy_within(self.end..self.end + self.sealed, 0);
            (self.start, self.end) = (0, 0);
        }
        result
    }

    /// Makes room for the rest of the reply that has begun, or for some bytes.
    fn make_room(&mut self) {
        let least = match &self.layer {
            None => 1,
            Some(_) => RECORD_BYTES_MAX,
        };
        if self.start > 0 && self.end + least > self.input.len() {
            self.input
                .copy_within(self.start..self.end + self.sealed, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        let needed = (self.start + self.decoder.needed()).max(self.end + least);
        if needed > self.input.len() {
            // The decoder refuses what is longer than a value may be before it asks for it.
            self.input.resize(needed.max(self.input.len() * 2), 0);
        }
    }

    fn is_reaped(&self) -> bool {
        self.reaper.as_ref().is_some_and(Reaper::has_reaped)
    }

    /// A connection that was shut down for being late fails in other ways too.
    fn unless_reaped(&self, result: Result<Transfer, Fault>) -> Result<Transfer, Fault> {
        match result {
            Err(Fault::Closed) if self.is_reaped() => Err(Fault::Timeout),
            result => result,
        }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        // A child of its process may not end it.
        if let Some(layer) = &mut self.layer
            && self.forks == dwell_timers::forks()
        {
            layer.close(&self.socket);
        }
    }
}

/// The size of a connection's input buffer.
const INPUT_BYTES: usize = 16 * 1024;
/// The size that the buffer may keep; memory beyond this for a large value is given back after it.
const INPUT_KEEP_BYTES_MAX: usize = 128 * 1024;
