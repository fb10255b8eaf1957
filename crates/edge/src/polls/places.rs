//! The places of a poll of one key, and its moves between them.
//!
//! A request that cannot be answered at once becomes a [`Poll`](super::tables::Poll), and its place
//! is the source of its response. [`MOVES`] is the whole of its life; the place of a poll changes
//! by nothing else.

use crate::ids::{Packed, Place};

/// A move of a poll: its place, an event, and the place that it has then.
pub(super) type Move = (At, Event, At);

/// Every move there is.
pub(super) const MOVES: [Move; 15] = [
    (At::Arrival, Event::AccessUnknown, At::Subrequest),
    (At::Arrival, Event::Unread, At::Lookup),
    (At::Arrival, Event::Current, At::Wait),
    (At::Arrival, Event::Missing, At::Fetch),
    (At::Lookup, Event::Current, At::Wait),
    (At::Lookup, Event::Missing, At::Fetch),
    // Its key was deleted, and the application is asked then (`on_delete = "origin"`).
    (At::Wait, Event::Missing, At::Fetch),
    // A value that is stale stands for the response, and its client has that.
    (At::Fetch, Event::Current, At::Wait),
    // The request of another loop, which it shared, is lost.
    (At::Fetch, Event::Missing, At::Fetch),
    (At::Fetch, Event::NotShared, At::Fetch),
    (At::Arrival, Event::Ended, At::Gone),
    (At::Lookup, Event::Ended, At::Gone),
    (At::Wait, Event::Ended, At::Gone),
    (At::Fetch, Event::Ended, At::Gone),
    // Once access is granted, its request arrives again.
    (At::Subrequest, Event::Ended, At::Gone),
];

/// A place of a poll.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum At {
    /// None yet: its request is at hand.
    Arrival,
    /// A subrequest that asks the application for access.
    Subrequest,
    /// A lookup of its key in memcached.
    Lookup,
    /// The record of its key: it is held for a change.
    Wait,
    /// A request to the application, or the queue for one.
    Fetch,
    /// None any more: its record is dropped.
    Gone,
}

/// An event that moves a poll.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Event {
    /// The application has to be asked for access.
    AccessUnknown,
    /// memcached has to be asked for the value.
    Unread,
    /// The client has the current value, or there is none and it waits for one.
    Current,
    /// There is no value, and the application has to be asked for it.
    Missing,
    /// The response of a shared request is for another client: it asks for itself.
    NotShared,
    /// It is answered, or its client has left.
    Ended,
}

/// The place of one poll, in the room of an id.
#[derive(Default, Debug)]
pub(crate) struct PollPlace(Option<Packed<Place>>);

impl PollPlace {
    /// The source of the response; `None` while the request is at hand.
    pub(super) fn source(&self) -> Option<Place> {
        self.0.map(Packed::id)
    }

    /// Moves the poll.
    ///
    /// Shape: a move that is not among [`MOVES`] is a mistake in this crate, which a debug build
    /// stops at. A release build makes the move, as the caller has joined the poll to its new
    /// source; should that bring nothing, the client is answered at the deadline of its exchange.
    pub(super) fn moves(&mut self, event: Event, to: impl Into<Packed<Place>>) {
        let to = to.into();
        let made = (At::of(self.source()), event, At::of(Some(to.id())));
        debug_assert!(
            MOVES.contains(&made),
            "no move of a poll from {:?} to {:?}, by {event:?}",
            made.0,
            made.2
        );
        #[cfg(test)]
        seen::note(made);
        self.0 = Some(to);
    }
}

impl At {
    fn of(source: Option<Place>) -> Self {
        match source {
            None => Self::Arrival,
            Some(Place::Subrequest(_)) => Self::Subrequest,
            Some(Place::Lookup(_)) => Self::Lookup,
            Some(Place::Key(_)) => Self::Wait,
            Some(Place::Fetch(_)) => Self::Fetch,
        }
    }
}

#[cfg(test)]
impl Drop for PollPlace {
    fn drop(&mut self) {
        seen::note((At::of(self.source()), Event::Ended, At::Gone));
    }
}

/// The moves that the polls of a test have made.
#[cfg(test)]
pub(super) mod seen {
    use super::Move;
    use std::cell::RefCell;
    use std::collections::BTreeSet;

    thread_local! {
        static SEEN: RefCell<BTreeSet<Move>> = const { RefCell::new(BTreeSet::new()) };
    }

    pub(super) fn note(made: Move) {
        // Polls may be dropped with the thread.
        let _ = SEEN.try_with(|seen| seen.borrow_mut().insert(made));
    }

    /// Takes the moves since the last call.
    pub(in crate::polls) fn take() -> BTreeSet<Move> {
        SEEN.take()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{FetchId, KeyId, LookupId, SubrequestId};
    use std::panic::{AssertUnwindSafe, catch_unwind};

    const SOURCES: [At; 4] = [At::Subrequest, At::Lookup, At::Wait, At::Fetch];
    const EVENTS: [Event; 6] = [
        Event::AccessUnknown,
        Event::Unread,
        Event::Current,
        Event::Missing,
        Event::NotShared,
        Event::Ended,
    ];

    fn source(at: At) -> Option<Packed<Place>> {
        match at {
            At::Arrival | At::Gone => None,
            At::Subrequest => Some(SubrequestId::nth(1).into()),
            At::Lookup => Some(LookupId::nth(1).into()),
            At::Wait => Some(KeyId::nth(1).into()),
            At::Fetch => Some(FetchId::nth(1).into()),
        }
    }

    /// Moves a poll; the message of the panic where that is no move.
    fn moved((from, event, to): Move) -> Result<At, String> {
        let (mut place, to) = (PollPlace(source(from)), source(to).unwrap());
        let made = catch_unwind(AssertUnwindSafe(|| place.moves(event, to)));
        let made = made.map_err(|panic| *panic.downcast::<String>().unwrap());
        made.map(|()| At::of(place.source()))
    }

    #[test]
    fn a_poll_moves_as_the_table_says_and_not_otherwise() {
        let mut legal = 0;
        for from in [At::Arrival].into_iter().chain(SOURCES) {
            for (event, to) in EVENTS
                .into_iter()
                .flat_map(|event| SOURCES.map(|to| (event, to)))
            {
                let made = (from, event, to);
                if MOVES.contains(&made) {
                    legal += 1;
                    assert_eq!(moved(made), Ok(to));
                } else if cfg!(debug_assertions) {
                    let message = moved(made).unwrap_err();
                    let places = format!("from {from:?} to {to:?}");
                    assert!(message.contains(&places), "{message}");
                } else {
                    assert_eq!(moved(made), Ok(to));
                }
            }
        }
        let ends = MOVES.iter().filter(|(_, _, to)| *to == At::Gone).count();
        assert_eq!(legal + ends, MOVES.len());
    }

    #[test]
    fn an_event_leads_from_a_place_to_one_other_and_every_poll_ends() {
        for (from, event, to) in MOVES {
            assert_ne!(from, At::Gone);
            assert_eq!(event == Event::Ended, to == At::Gone);
            let same = MOVES
                .iter()
                .filter(|other| (other.0, other.1) == (from, event));
            assert_eq!(same.count(), 1, "{from:?} {event:?}");
            assert!(MOVES.contains(&(from, Event::Ended, At::Gone)), "{from:?}");
        }
    }
}
