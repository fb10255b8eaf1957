//! One pipelined connection: the commands in progress, and the deadline of their replies.

mod pipeline;

use crate::Failure;
use crate::cluster::Repeat;
use crate::greeting::Step;
use crate::swap::SwapOption;
use crate::table::TableQuestion;
use dwell_evloop::{Handshakes, Peer, Readiness, Stream, Token};
use dwell_proto::resp::{Decoded, Decoder, Items, Limits, Message, Value};
use pipeline::Pipeline;
use std::io;
use std::sync::Arc;
use std::time::Instant;

/// A command that is owed a reply.
#[derive(Debug)]
pub(crate) enum Flight {
    /// `PING`.
    Ping,
    /// A question for the use of the server's table.
    Table(TableQuestion),
    /// `CLUSTER INFO`, for the epoch.
    ClusterInfo,
    /// `CLUSTER SLOTS`.
    ClusterSlots,
    /// `CLUSTER NODES`, for the slots that are about to move.
    Migrations,
    /// `ASKING`: the command that follows is for a slot that is about to move here.
    Asking,
    /// `PTTL` of the key that is read next.
    Lifetime,
    /// `GET` of a key of the table.
    Read {
        key: Token,
        name: Arc<[u8]>,
        by: Reader,
    },
    /// `GET` of a key of the table, where nothing is tracked.
    Sweep {
        key: Token,
        /// It was sent to where the slot of the key is about to move.
        is_asking: bool,
    },
    /// `GET` where nothing is tracked.
    Get {
        tag: u64,
        /// The key, where waits for it have to be compared with a later value.
        again: Option<Box<[u8]>>,
        /// The operation ends by then, where it was begun on another connection.
        end: Option<Instant>,
        repeat: Option<Box<Repeat>>,
    },
    /// A command that changes a key.
    Write {
        tag: u64,
        key: Box<[u8]>,
        repeat: Option<Box<Repeat>>,
    },
    /// `SET` that replies what was there.
    Swap {
        tag: u64,
        option: SwapOption,
        key: Box<[u8]>,
        repeat: Option<Box<Repeat>>,
    },
    /// A command whose operation has ended before its reply.
    Ended,
}

/// The one that a key is read for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Reader {
    /// An operation.
    Operation(Operation),
    /// The waits for changes of the key.
    Waits,
    /// An operation that has ended before the reply, which those who wait are given.
    Ended,
}

/// An operation that asks for a value.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Operation {
    pub(crate) tag: u64,
    /// It ends by then, whichever servers are asked.
    pub(crate) deadline: Instant,
}

impl Flight {
    /// Returns true of reads for those who wait for a key alone.
    pub(crate) fn is_reread(&self) -> bool {
        matches!(
            self,
            Self::Read {
                by: Reader::Waits,
                ..
            } | Self::Sweep {
                is_asking: false,
                ..
            }
        )
    }

    /// Returns true of what is asked of the server itself, and not of a key.
    pub(crate) fn is_own(&self) -> bool {
        matches!(
            self,
            Self::Ping
                | Self::Table(_)
                | Self::ClusterInfo
                | Self::ClusterSlots
                | Self::Migrations
                | Self::Asking
        )
    }

    /// Returns true of a command that is of no use without the one behind it.
    fn is_of_next(&self) -> bool {
        matches!(self, Self::Asking | Self::Lifetime)
    }

    /// The tag of the operation that waits for the reply.
    pub(crate) fn tag(&self) -> Option<u64> {
        match self {
            Self::Ping
            | Self::Table(_)
            | Self::ClusterInfo
            | Self::ClusterSlots
            | Self::Migrations
            | Self::Asking
            | Self::Lifetime
            | Self::Sweep { .. }
            | Self::Ended => None,
            Self::Read { by, .. } => by.operation().map(|operation| operation.tag),
            Self::Get { tag, .. } | Self::Write { tag, .. } | Self::Swap { tag, .. } => Some(*tag),
        }
    }

    /// The record by which it is sent once more, of an operation in a cluster.
    pub(crate) fn repeat(&mut self) -> Option<&mut Repeat> {
        match self {
            Self::Get { repeat, .. } | Self::Write { repeat, .. } | Self::Swap { repeat, .. } => {
                repeat.as_deref_mut()
            }
            _ => None,
        }
    }

    /// The end of the time of its operation, where that may have begun before.
    fn operation_deadline(&mut self) -> Option<Instant> {
        match self {
            Self::Read { by, .. } => by.operation().map(|operation| operation.deadline),
            Self::Get { end: Some(end), .. } => Some(*end),
            _ => self.repeat().map(|repeat| repeat.deadline),
        }
    }

    /// Ends its operation before the reply; returns the tag.
    fn end(&mut self) -> Option<u64> {
        let tag = self.tag();
        match self {
            // The reply registers the key.
            Self::Read { by, .. } => *by = Reader::Ended,
            _ => *self = Self::Ended,
        }
        tag
    }

    /// Bytes of the command that are kept until its reply.
    fn kept_bytes(&mut self) -> usize {
        self.repeat().map_or(0, |repeat| repeat.wire.len())
    }
}

impl Reader {
    pub(crate) fn operation(self) -> Option<Operation> {
        match self {
            Self::Operation(operation) => Some(operation),
            Self::Waits | Self::Ended => None,
        }
    }
}

/// Something that a server has sent.
#[derive(Debug)]
pub(crate) enum Received<'b> {
    Greeting(Step, Message<'b>),
    Reply(Flight, Message<'b>),
    Push(Items<'b>),
}

/// A connection that is being made or is up, with the commands that it owes a reply to.
///
/// There is one deadline: of the greeting, then of the command that has waited longest. It moves
/// when a reply is complete, never because bytes have come.
#[derive(Debug)]
pub(crate) struct Connection {
    peer: Peer,
    is_established: bool,
    greeting: Option<Step>,
    /// The end of the greeting, and of the attempt at another server that this one names.
    attempt_deadline: Instant,
    /// The end of its step that was sent, which is not later.
    step_deadline: Instant,
    commands: Pipeline,
    decoder: Decoder,
    /// The largest value that a key may have.
    value_bytes_max: usize,
    /// The beginning of a message whose end has not come yet.
    tail: Vec<u8>,
}

impl Connection {
    /// A connection whose attempt has just begun with `first`; it has to be greeted by `deadline`.
    pub(crate) fn new(
        stream: Stream,
        first: Step,
        value_bytes_max: usize,
        deadline: Instant,
    ) -> Self {
        let limits = Limits {
            value_bytes_max: value_bytes_max.max(OWN_REPLY_BYTES_MAX),
            aggregate_bytes_max: AGGREGATE_BYTES_MAX,
            ..Limits::default()
        };
        Self {
            peer: Peer::new(stream),
            is_established: false,
            greeting: Some(first),
            attempt_deadline: deadline,
            step_deadline: deadline,
            commands: Pipeline::default(),
            decoder: Decoder::new(limits),
            value_bytes_max,
            tail: Vec::new(),
        }
    }

    /// Goes on with another server, which has to greet it by `deadline`, and to which the commands
    /// that wait go.
    pub(crate) fn turned_to(
        self,
        (stream, first): (Stream, Step),
        value_bytes_max: usize,
        deadline: Instant,
    ) -> Self {
        Self {
            commands: self.commands,
            ..Self::new(stream, first, value_bytes_max, deadline)
        }
    }

    pub(crate) fn greeting(&self) -> Option<Step> {
        self.greeting
    }

    pub(crate) fn is_established(&self) -> bool {
        self.is_established
    }

    pub(crate) fn is_greeted(&self) -> bool {
        self.greeting.is_none()
    }

    /// Returns the instant at which the connection fails, or an operation before that; `None` while
    /// nothing is owed.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        // A command may wait behind a greeting that has more time than it has.
        let greeting = (!self.is_greeted()).then_some(self.step_deadline);
        self.commands.deadline().into_iter().chain(greeting).min()
    }

    pub(crate) fn attempt_deadline(&self) -> Instant {
        self.attempt_deadline
    }

    /// Has the replies that no operation waits for change nothing.
    pub(crate) fn forget_own(&mut self) {
        self.commands.forget_own();
    }

    /// Takes the operations of reads of keys that are waited for; their replies change nothing.
    pub(crate) fn take_reads(&mut self, reads: &mut Vec<(Arc<[u8]>, Operation)>) {
        self.commands.take_reads(reads);
    }

    /// Has the replies to sweeps change nothing; returns the number of them.
    pub(crate) fn end_sweeps(&mut self) -> usize {
        self.commands.end_sweeps()
    }

    /// Takes the commands whose time is over while the connection is not greeted, and nothing was
    /// sent. The connection has a deadline of its own.
    pub(crate) fn take_unsent(&mut self, now: Instant) -> Vec<Flight> {
        if self.is_greeted() {
            return Vec::new();
        }
        self.commands.take_unsent(now)
    }

    /// Ends the operations whose time is over while the server still has some, as they were begun
    /// on another connection; returns their tags.
    pub(crate) fn end_overdue(&mut self, now: Instant) -> Vec<u64> {
        self.commands.end_overdue(now)
    }

    /// Commands without a reply.
    pub(crate) fn in_flight(&self) -> usize {
        self.commands.len()
    }

    /// Bytes that the socket has not taken, or that are kept until a reply.
    pub(crate) fn request_bytes(&self) -> usize {
        let unsent = self.commands.unsent().len() + self.peer.stream.queued_bytes();
        unsent.max(self.commands.kept_bytes())
    }

    /// Checks the attempt to connect, and goes on with its handshake; returns true if it has just
    /// succeeded. How a handshake has ended is entered into `handshakes`.
    ///
    /// # Errors
    /// [`Failure::Connect`] or [`Failure::Handshake`] when it has failed.
    pub(crate) fn establish(
        &mut self,
        readiness: Readiness,
        handshakes: &mut Handshakes,
    ) -> Result<bool, Failure> {
        match self.peer.stream.connect_error() {
            Ok(None) => {}
            Ok(Some(error)) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            Ok(Some(error)) | Err(error) => {
                let was_begun = handshakes.broken_off(self.peer.stream.handshake_broken_by(&error));
                return Err(if was_begun {
                    Failure::Handshake
                } else {
                    Failure::Connect
                });
            }
        }
        // An end that comes with the last bytes is not told again.
        self.peer.observe(readiness);
        let entered = handshakes.enter(self.peer.handshake());
        self.is_established = entered.map_err(|_| Failure::Handshake)?;
        Ok(self.is_established)
    }

    /// The failure of a connection that has not answered in time.
    pub(crate) fn late(&self, handshakes: &mut Handshakes) -> Failure {
        if handshakes.broken_off(self.peer.stream.handshake_given_up()) {
            Failure::Handshake
        } else {
            Failure::Timeout
        }
    }

    /// Adds a command that `encode` writes.
    pub(crate) fn push(
        &mut self,
        flight: Flight,
        deadline: Instant,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        self.commands.push(flight, deadline, encode);
    }

    /// Goes on with the greeting by `step`, whose reply has to come by `deadline`, or ends it. The
    /// commands that waited for its end go out with the next [`send`](Self::send): what the server
    /// has sent before is no reply to them.
    ///
    /// # Errors
    /// [`Failure::Closed`] when the connection has failed.
    pub(crate) fn greet(
        &mut self,
        step: Option<Step>,
        deadline: Instant,
        encode: impl FnOnce(Step, &mut Vec<u8>),
    ) -> Result<(), Failure> {
        self.greeting = step;
        let Some(step) = step else {
            return Ok(());
        };
        self.step_deadline = deadline.min(self.attempt_deadline);
        let mut wire = Vec::new();
        encode(step, &mut wire);
        self.peer.stream.write(&wire).map_err(|_| Failure::Closed)
    }

    /// Gives the socket what was added, if the connection is greeted.
    ///
    /// # Errors
    /// [`Failure::Closed`] when the connection has failed.
    pub(crate) fn send(&mut self) -> Result<(), Failure> {
        if !self.is_greeted() || self.commands.unsent().is_empty() {
            return Ok(());
        }
        let written = self.peer.stream.write(self.commands.unsent());
        self.commands.given();
        written.map_err(|_| Failure::Closed)
    }

    /// Gives the socket what it has refused before.
    ///
    /// # Errors
    /// [`Failure::Closed`] when the connection has failed.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let flushed = self.peer.stream.flush();
        flushed.map(drop).map_err(|_| Failure::Closed)
    }

    /// Reads once into `input`; returns the bytes, and whether there may be more.
    ///
    /// # Errors
    /// [`Failure::Closed`] at the end of the stream.
    pub(crate) fn read(
        &mut self,
        input: &mut [u8],
        readiness: Readiness,
    ) -> Result<(usize, bool), Failure> {
        use dwell_evloop::ReadOutcome;
        match self.peer.stream.read(input) {
            Ok(ReadOutcome::More(length)) => Ok((length, true)),
            // After the end of the stream has been told, nothing tells it again.
            Ok(ReadOutcome::Drained(length)) => Ok((length, readiness.is_read_closed())),
            Ok(ReadOutcome::WouldBlock) => Ok((0, false)),
            Ok(ReadOutcome::Closed) | Err(_) => Err(Failure::Closed),
        }
    }

    /// Takes what was read, and gives `on` one message at a time.
    ///
    /// # Errors
    /// When the server broke the protocol, and what `on` says.
    pub(crate) fn take_input(
        &mut self,
        input: &[u8],
        on: &mut impl FnMut(&mut Self, Received<'_>) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        if self.tail.is_empty() {
            let used = self.take_messages(input, on)?;
            self.tail.extend_from_slice(&input[used..]);
            return Ok(());
        }
        let mut tail = std::mem::take(&mut self.tail);
        tail.extend_from_slice(input);
        let used = self.take_messages(&tail, on)?;
        if used < tail.len() || tail.capacity() <= WIRE_KEEP_BYTES_MAX {
            tail.drain(..used);
            self.tail = tail;
        }
        Ok(())
    }

    fn take_messages(
        &mut self,
        input: &[u8],
        on: &mut impl FnMut(&mut Self, Received<'_>) -> Result<(), Failure>,
    ) -> Result<usize, Failure> {
        let mut used = 0;
        while used < input.len() {
            let decoded = self.decoder.decode(&input[used..]);
            match decoded.map_err(|_| Failure::Protocol)? {
                Decoded::Incomplete(more) => {
                    used += more;
                    break;
                }
                Decoded::Message(more, message) => {
                    used += more;
                    let received = self.received(message)?;
                    on(self, received)?;
                }
            }
        }
        Ok(used)
    }

    fn received<'b>(&mut self, message: Message<'b>) -> Result<Received<'b>, Failure> {
        if let Message::Value(Value::Push(items)) = message {
            return Ok(Received::Push(items));
        }
        if let Some(step) = self.greeting {
            return Ok(Received::Greeting(step, message));
        }
        // What waits in the stream is the end of all that it was given.
        let unwritten = self.peer.stream.unsealed_bytes() as u64;
        let is_error = matches!(message, Message::Value(Value::Error(_)));
        let flight = self.commands.reply(unwritten, is_error)?;
        let message = match message {
            Message::Value(Value::BulkString(value))
                if value.len() > self.value_bytes_max && !flight.is_own() =>
            {
                let length = value.len();
                Message::Oversized { length }
            }
            message => message,
        };
        Ok(Received::Reply(flight, message))
    }

    /// Ends the connection; gives back every command without a reply, oldest first.
    pub(crate) fn into_unanswered(self) -> impl Iterator<Item = Flight> {
        self.commands.into_flights()
    }
}

/// Bytes that the reply to a question for the server itself may have, however small values are: one
/// line for each server of a cluster.
const OWN_REPLY_BYTES_MAX: usize = 512 * 1024;
/// Bytes that a list in a reply or a push may have. That of a cluster has an entry for each range
/// of slots, and a push names each key that was changed.
const AGGREGATE_BYTES_MAX: usize = 4 << 20;
/// Buffers that grew beyond this are given back when they are used up.
const WIRE_KEEP_BYTES_MAX: usize = 16 * 1024;

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;
    use std::os::unix::net::UnixListener;

    #[test]
    fn the_bound_of_values_is_not_that_of_replies_about_the_server() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let stream = Stream::connect_unix(&path).unwrap();
        let mut connection = Connection::new(stream, Step::Hello, 1000, Instant::now());
        connection.greet(None, Instant::now(), |_, _| ()).unwrap();
        let get = || Flight::Get {
            tag: 1,
            again: None,
            end: None,
            repeat: None,
        };
        for flight in [get(), Flight::Table(TableQuestion::Use), get()] {
            connection.push(flight, Instant::now(), |wire| wire.push(b'x'));
        }
        let bulk = |length| format!("${length}\r\n{}\r\n", "x".repeat(length));
        connection.send().unwrap();
        let wire = bulk(1001) + &bulk(5000) + &bulk(1000);
        let mut found = Vec::new();
        let mut on = |_: &mut Connection, received: Received<'_>| {
            found.push(match received {
                Received::Reply(_, Message::Value(_)) => "whole",
                Received::Reply(_, Message::Oversized { length: 1001 }) => "too large",
                _ => "another",
            });
            Ok(())
        };
        connection.take_input(wire.as_bytes(), &mut on).unwrap();
        assert_eq!(found, ["too large", "whole", "whole"]);
    }

    #[test]
    fn each_step_of_a_greeting_has_its_time_within_that_of_the_attempt() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let stream = Stream::connect_unix(&path).unwrap();
        let now = Instant::now();
        let later = |seconds| now + std::time::Duration::from_secs(seconds);
        let mut connection = Connection::new(stream, Step::Hello, 1000, later(9));
        assert_eq!(connection.deadline(), Some(later(9)), "it is not open");
        for (step, by, deadline) in [
            (Step::Hello, 2, 2),
            (Step::Select, 4, 4),
            (Step::Tracking, 10, 9),
        ] {
            let greeted = connection.greet(Some(step), later(by), |_, wire| wire.push(b'x'));
            assert_eq!(greeted, Ok(()));
            assert_eq!(connection.deadline(), Some(later(deadline)));
            assert_eq!(connection.attempt_deadline(), later(9));
        }
        connection.greet(None, later(11), |_, _| ()).unwrap();
        assert_eq!(connection.deadline(), None);
    }

    #[test]
    fn a_reply_to_no_command_that_was_sent_breaks_the_protocol() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let _listener = UnixListener::bind(&path).unwrap();
        let stream = Stream::connect_unix(&path).unwrap();
        let mut connection = Connection::new(stream, Step::Hello, 1000, Instant::now());
        connection.greet(None, Instant::now(), |_, _| ()).unwrap();
        let take = |connection: &mut Connection| {
            connection.take_input(b"+PONG\r\n", &mut |_: &mut Connection, _: Received<'_>| {
                Ok(())
            })
        };
        connection.push(Flight::Ping, Instant::now(), |wire| wire.push(b'x'));
        connection.send().unwrap();
        connection.push(Flight::Ping, Instant::now(), |wire| wire.push(b'x'));
        assert_eq!(take(&mut connection), Ok(()), "the first was sent");
        assert_eq!(take(&mut connection), Err(Failure::Protocol));
        connection.send().unwrap();
        assert_eq!(take(&mut connection), Ok(()));
        assert_eq!(
            take(&mut connection),
            Err(Failure::Protocol),
            "none is owed"
        );
    }

    #[test]
    fn a_reply_before_the_socket_has_taken_its_command_breaks_the_protocol() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let stream = Stream::connect_unix(&path).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let mut connection = Connection::new(stream, Step::Hello, 1000, Instant::now());
        connection.greet(None, Instant::now(), |_, _| ()).unwrap();
        let take = |connection: &mut Connection| {
            let mut on = |_: &mut Connection, _: Received<'_>| Ok(());
            connection.take_input(b"+PONG\r\n", &mut on)
        };
        let push = |connection: &mut Connection, length: usize| {
            connection.push(Flight::Ping, Instant::now(), |wire| {
                wire.resize(wire.len() + length, b'x');
            });
        };
        // Nobody reads, so the second one fills the socket, and the third waits behind it.
        for length in [10, 8 << 20, 10] {
            push(&mut connection, length);
        }
        connection.send().unwrap();
        assert_eq!(take(&mut connection), Ok(()), "the first was written");
        assert_eq!(take(&mut connection), Err(Failure::Protocol));
        let (mut left, mut input) = (20 + (8 << 20), vec![0; 1 << 20]);
        while left > 0 {
            left -= peer.read(&mut input).unwrap();
            connection.flush().unwrap();
        }
        assert_eq!(take(&mut connection), Ok(()));
        assert_eq!(take(&mut connection), Ok(()));
        assert_eq!(connection.in_flight(), 0);
    }
}
