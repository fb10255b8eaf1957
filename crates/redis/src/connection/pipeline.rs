//! The commands of a connection that have no reply yet, with the bytes of those that were not sent.

use super::{Flight, Operation, WIRE_KEEP_BYTES_MAX};
use crate::Failure;
use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

/// Commands in the order in which a server replies to them.
///
/// Shape: commands that were not sent go to another server as they are.
#[derive(Debug, Default)]
pub(super) struct Pipeline {
    in_flight: VecDeque<Owed>,
    /// Bytes of commands that the stream was given so far.
    given: u64,
    /// Bytes of those that have their replies.
    replied: u64,
    /// No operation that was begun on another connection ends earlier.
    first_end: Option<Instant>,
    /// Commands that were not given to the socket.
    unsent: Vec<u8>,
    /// Bytes of commands that are kept until their replies.
    kept_bytes: usize,
}

/// A command, and what is known of its reply.
#[derive(Debug)]
struct Owed {
    flight: Flight,
    deadline: Instant,
    /// Bytes of commands up to its end. An error alone can be its reply before the socket has taken
    /// them.
    end: u64,
}

impl Pipeline {
    pub(super) fn len(&self) -> usize {
        self.in_flight.len()
    }

    pub(super) fn unsent(&self) -> &[u8] {
        &self.unsent
    }

    pub(super) fn kept_bytes(&self) -> usize {
        self.kept_bytes
    }

    /// Returns the first time at which the connection fails by a command, or an operation ends.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let oldest = self.in_flight.front().map(|owed| owed.deadline);
        oldest.into_iter().chain(self.first_end).min()
    }

    pub(super) fn forget_own(&mut self) {
        for owed in &mut self.in_flight {
            // A word for the command behind it goes with that, and its reply changes nothing.
            if owed.flight.tag().is_none() && !owed.flight.is_of_next() {
                owed.flight = Flight::Ended;
            }
        }
    }

    pub(super) fn take_reads(&mut self, reads: &mut Vec<(Arc<[u8]>, Operation)>) {
        for owed in &mut self.in_flight {
            let (deadline, flight) = (owed.end_of_time(), &mut owed.flight);
            if let Flight::Get {
                tag,
                again: Some(name),
                ..
            } = flight
            {
                let (tag, name) = (*tag, (**name).into());
                self.kept_bytes -= flight.kept_bytes();
                flight.end();
                reads.push((name, Operation { tag, deadline }));
            }
        }
    }

    /// Has the replies to sweeps change nothing; returns the number of them.
    pub(super) fn end_sweeps(&mut self) -> usize {
        let flights = self.in_flight.iter_mut().map(|owed| &mut owed.flight);
        let sweeps =
            flights.filter(|flight| matches!(flight, Flight::Sweep { .. }) && flight.is_reread());
        sweeps.map(|flight| *flight = Flight::Ended).count()
    }

    pub(super) fn push(
        &mut self,
        mut flight: Flight,
        deadline: Instant,
        encode: impl FnOnce(&mut Vec<u8>),
    ) {
        self.kept_bytes += flight.kept_bytes();
        let end = flight.operation_deadline().filter(|end| *end < deadline);
        self.first_end = self.first_end.into_iter().chain(end).min();
        encode(&mut self.unsent);
        self.in_flight.push_back(Owed {
            flight,
            deadline,
            end: self.given + self.unsent.len() as u64,
        });
    }

    /// The stream was given all that was unsent.
    pub(super) fn given(&mut self) {
        self.given += self.unsent.len() as u64;
        self.unsent.clear();
        self.unsent.shrink_to(WIRE_KEEP_BYTES_MAX);
    }

    /// Takes the command that a reply is to, while the socket has not taken the last `unwritten`
    /// bytes that the stream was given.
    ///
    /// # Errors
    /// [`Failure::Protocol`] if there is no such command.
    pub(super) fn reply(&mut self, unwritten: u64, is_error: bool) -> Result<Flight, Failure> {
        // A server may refuse a command by its beginning.
        let is_begun = self.replied + unwritten < self.given;
        let can_reply = |owed: &Owed| owed.end + unwritten <= self.given || is_error && is_begun;
        if !self.in_flight.front().is_some_and(can_reply) {
            return Err(Failure::Protocol);
        }
        let mut owed = self.in_flight.pop_front().ok_or(Failure::Protocol)?;
        self.replied = owed.end;
        self.kept_bytes -= owed.flight.kept_bytes();
        if self.in_flight.is_empty() {
            self.first_end = None;
        }
        Ok(owed.flight)
    }

    /// Takes the commands whose time is over; the stream was given none.
    pub(super) fn take_unsent(&mut self, now: Instant) -> Vec<Flight> {
        let mut taken = Vec::new();
        let is_over = |owed: &mut Owed| owed.end_of_time() <= now;
        if !self.in_flight.iter_mut().any(is_over) {
            return taken;
        }
        let (before, mut begin) = (std::mem::take(&mut self.unsent), 0);
        let (mut group, mut first_end) = (Vec::new(), None);
        for owed in std::mem::take(&mut self.in_flight) {
            let is_first = owed.flight.is_of_next();
            group.push(owed);
            if is_first {
                continue;
            }
            let is_over = group.last_mut().is_some_and(is_over);
            for mut owed in group.drain(..) {
                let end = (owed.end - self.given) as usize;
                let wire = &before[begin..end];
                begin = end;
                if is_over {
                    self.kept_bytes -= owed.flight.kept_bytes();
                    taken.push(owed.flight);
                    continue;
                }
                self.unsent.extend_from_slice(wire);
                owed.end = self.given + self.unsent.len() as u64;
                first_end = first_end.into_iter().chain(owed.early_end()).min();
                self.in_flight.push_back(owed);
            }
        }
        self.first_end = first_end;
        taken
    }

    /// Ends the operations whose time is over while the server still has some; returns their tags.
    pub(super) fn end_overdue(&mut self, now: Instant) -> Vec<u64> {
        let mut tags = Vec::new();
        if self.first_end.is_none_or(|end| now < end) {
            return tags;
        }
        self.first_end = None;
        for owed in &mut self.in_flight {
            match owed.early_end() {
                Some(end) if end <= now => {
                    self.kept_bytes -= owed.flight.kept_bytes();
                    tags.extend(owed.flight.end());
                }
                end => self.first_end = self.first_end.into_iter().chain(end).min(),
            }
        }
        tags
    }

    /// Gives back every command, oldest first.
    pub(super) fn into_flights(self) -> impl Iterator<Item = Flight> {
        self.in_flight.into_iter().map(|owed| owed.flight)
    }
}

impl Owed {
    /// The end of the time of its operation, if that is before the deadline of the reply.
    fn early_end(&mut self) -> Option<Instant> {
        let end = self.flight.operation_deadline();
        end.filter(|end| *end < self.deadline)
    }

    /// The time by which its operation ends.
    fn end_of_time(&mut self) -> Instant {
        self.early_end().unwrap_or(self.deadline)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Connection;
    use super::*;
    use crate::cluster::Repeat;
    use crate::greeting::Step;
    use dwell_evloop::Stream;
    use std::io::Read;
    use std::os::unix::net::UnixListener;
    use std::time::Duration;

    #[test]
    fn what_waits_for_a_greeting_too_long_is_not_sent() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("socket");
        let listener = UnixListener::bind(&path).unwrap();
        let stream = Stream::connect_unix(&path).unwrap();
        let (mut peer, _) = listener.accept().unwrap();
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let mut connection = Connection::new(stream, Step::Hello, 1000, later(9));
        let get = |tag, end: Option<u64>| Flight::Get {
            tag,
            again: None,
            end: None,
            repeat: end.map(|end| {
                Box::new(Repeat {
                    wire: (*b"kept").into(),
                    slot: 0,
                    deadline: later(end),
                    redirects: 1,
                    is_asking: true,
                })
            }),
        };
        for (flight, deadline, word) in [
            (get(1, None), 1, &b"one "[..]),
            (Flight::Asking, 5, b"asking "),
            (get(2, Some(2)), 5, b"two "),
            (Flight::Asking, 5, b"ASKING "),
            (get(3, Some(3)), 5, b"three "),
            (get(4, None), 5, b"four"),
        ] {
            connection.push(flight, later(deadline), |wire| wire.extend(word));
        }
        let mut take = |now| {
            let taken = connection.take_unsent(now);
            let tags = taken.iter().filter_map(Flight::tag).collect::<Vec<_>>();
            (taken.len(), tags, connection.deadline().unwrap())
        };
        assert_eq!(take(now), (0, vec![], later(1)));
        assert_eq!(take(later(1)), (1, vec![1], later(2)));
        // The word that lets it in would let the next one in.
        assert_eq!(take(later(2)), (2, vec![2], later(3)));
        assert_eq!(connection.commands.kept_bytes, 4);
        connection.greet(None, later(8), |_, _| ()).unwrap();
        assert!(
            connection.take_unsent(later(8)).is_empty(),
            "it may be sent"
        );
        connection.send().unwrap();
        let (mut buffer, wire) = ([0; 100], b"ASKING three four");
        let length = peer.read(&mut buffer).unwrap();
        assert_eq!(buffer[..length], *wire);
        let ends = connection.commands.in_flight.iter().map(|owed| owed.end);
        assert_eq!(ends.collect::<Vec<_>>(), [7, 13, 17]);
    }

    #[test]
    fn a_word_for_a_command_goes_with_it_also_behind_a_place_that_was_left() {
        let now = Instant::now();
        let later = |seconds| now + Duration::from_secs(seconds);
        let mut pipeline = Pipeline::default();
        let get = Flight::Get {
            tag: 1,
            again: None,
            end: Some(later(2)),
            repeat: None,
        };
        pipeline.push(Flight::Asking, later(5), |wire| wire.extend(b"asking "));
        pipeline.push(get, later(5), |wire| wire.extend(b"get "));
        pipeline.push(Flight::Ping, later(5), |wire| wire.extend(b"ping"));
        pipeline.forget_own();
        assert_eq!(pipeline.take_unsent(later(2)).len(), 2);
        assert_eq!(pipeline.unsent(), b"ping");
    }
}
