//! Operations whose time is over before that of their connection.

use super::{Connection, Flight, Owed};
use std::time::Instant;

impl Connection {
    /// Takes the commands whose time is over while the connection is not greeted: they were not
    /// sent. The connection has a deadline of its own.
    pub(crate) fn take_unsent(&mut self, now: Instant) -> Vec<Flight> {
        let mut taken = Vec::new();
        let is_over = |owed: &mut Owed| owed.end_of_time() <= now;
        if self.is_greeted() || !self.in_flight.iter_mut().any(is_over) {
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

    /// Ends the operations whose time is over while the server still has some, as they were begun
    /// on another connection; returns their tags.
    pub(crate) fn end_overdue(&mut self, now: Instant) -> Vec<u64> {
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
}

impl Owed {
    /// The end of the time of its operation, if that is before the deadline of the reply.
    fn early_end(&mut self) -> Option<Instant> {
        let end = self.flight.operation_deadline();
        end.filter(|end| *end < self.deadline)
    }

    /// The time by which its operation ends.
    pub(super) fn end_of_time(&mut self) -> Instant {
        self.early_end().unwrap_or(self.deadline)
    }
}

#[cfg(test)]
mod tests {
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
        assert_eq!(connection.kept_bytes, 4);
        connection.greet(None, |_, _| ()).unwrap();
        assert!(
            connection.take_unsent(later(8)).is_empty(),
            "it may be sent"
        );
        connection.send().unwrap();
        let (mut buffer, wire) = ([0; 100], b"ASKING three four");
        let length = peer.read(&mut buffer).unwrap();
        assert_eq!(buffer[..length], *wire);
        let ends = connection.in_flight.iter().map(|owed| owed.end);
        assert_eq!(ends.collect::<Vec<_>>(), [7, 13, 17]);
    }
}
