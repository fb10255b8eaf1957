//! The places of a poll of one key, and its moves between them.
//!
//! A request that cannot be answered at once becomes a [`Poll`](super::tables::Poll), and its place
//! is the source of its response. [`MOVES`] is the whole of its life; the place of a poll changes
//! by nothing else.

use crate::ids::{Packed, ResponseSource};

/// A move of a poll: its place, an event, and the place that it has then.
pub(super) type Move = (Place, Event, Place);

/// Every move there is.
pub(super) const MOVES: [Move; 15] = [
    (Place::Arrival, Event::AccessUnknown, Place::Subrequest),
    (Place::Arrival, Event::Unread, Place::Lookup),
    (Place::Arrival, Event::Current, Place::Wait),
    (Place::Arrival, Event::Missing, Place::Fetch),
    (Place::Lookup, Event::Current, Place::Wait),
    (Place::Lookup, Event::Missing, Place::Fetch),
    // Its key was deleted, and the application is asked then (`on_delete = "origin"`).
    (Place::Wait, Event::Missing, Place::Fetch),
    // A stale value is the response, and the client has that value.
    (Place::Fetch, Event::Current, Place::Wait),
    // The request of another loop, which it shared, is lost.
    (Place::Fetch, Event::Missing, Place::Fetch),
    (Place::Fetch, Event::NotShared, Place::Fetch),
    (Place::Arrival, Event::Ended, Place::Gone),
    (Place::Lookup, Event::Ended, Place::Gone),
    (Place::Wait, Event::Ended, Place::Gone),
    (Place::Fetch, Event::Ended, Place::Gone),
    // Once access is granted, its request arrives again.
    (Place::Subrequest, Event::Ended, Place::Gone),
];

/// A place of a poll.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) enum Place {
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
    /// The client has the current value, or the key has no value and it waits for one.
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
pub(crate) struct PollPlace(Option<Packed<ResponseSource>>);

impl PollPlace {
    /// The source of the response; `None` while the request is at hand.
    pub(super) fn source(&self) -> Option<ResponseSource> {
        self.0.map(Packed::id)
    }

    /// Moves the poll.
    ///
    /// Shape: a move that is not among [`MOVES`] is a mistake in this crate, which a debug build
    /// stops at. A release build makes the move, as the caller has joined the poll to its new
    /// source; should that bring nothing, the client is answered at the deadline of its exchange.
    pub(super) fn moves(&mut self, event: Event, to: impl Into<Packed<ResponseSource>>) {
        let to = to.into();
        let made = (Place::of(self.source()), event, Place::of(Some(to.id())));
        debug_assert_eq!(mistake(made), None);
        #[cfg(test)]
        seen::note(made);
        self.0 = Some(to);
    }
}

/// The mistake in a move that is not among [`MOVES`].
fn mistake(made: Move) -> Option<String> {
    let (from, event, to) = made;
    let is_legal = MOVES.contains(&made);
    (!is_legal).then(|| format!("no move of a poll from {from:?} to {to:?}, by {event:?}"))
}

impl Place {
    fn of(source: Option<ResponseSource>) -> Self {
        match source {
            None => Self::Arrival,
            Some(ResponseSource::Subrequest(_)) => Self::Subrequest,
            Some(ResponseSource::Lookup(_)) => Self::Lookup,
            Some(ResponseSource::Key(_)) => Self::Wait,
            Some(ResponseSource::Fetch(_)) => Self::Fetch,
        }
    }
}

#[cfg(test)]
impl Drop for PollPlace {
    fn drop(&mut self) {
        seen::note((Place::of(self.source()), Event::Ended, Place::Gone));
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
    use std::cell::Cell;
    use std::panic::{catch_unwind, set_hook, take_hook};

    const SOURCES: [Place; 4] = [Place::Subrequest, Place::Lookup, Place::Wait, Place::Fetch];
    const EVENTS: [Event; 6] = [
        Event::AccessUnknown,
        Event::Unread,
        Event::Current,
        Event::Missing,
        Event::NotShared,
        Event::Ended,
    ];

    fn source(place: Place) -> Option<Packed<ResponseSource>> {
        match place {
            Place::Arrival | Place::Gone => None,
            Place::Subrequest => Some(SubrequestId::nth(1).into()),
            Place::Lookup => Some(LookupId::nth(1).into()),
            Place::Wait => Some(KeyId::nth(1).into()),
            Place::Fetch => Some(FetchId::nth(1).into()),
        }
    }

    /// Moves a poll; returns its place then.
    fn moved((from, event, to): Move) -> Place {
        let mut place = PollPlace(source(from));
        place.moves(event, source(to).unwrap());
        Place::of(place.source())
    }

    #[test]
    fn a_poll_moves_as_the_table_says_and_not_otherwise() {
        let mut legal = 0;
        for from in [Place::Arrival].into_iter().chain(SOURCES) {
            for (event, to) in EVENTS
                .into_iter()
                .flat_map(|event| SOURCES.map(|to| (event, to)))
            {
                let made = (from, event, to);
                if MOVES.contains(&made) {
                    legal += 1;
                    assert_eq!((moved(made), mistake(made)), (to, None));
                } else {
                    let message = mistake(made).unwrap();
                    let places = format!("from {from:?} to {to:?}");
                    assert!(message.contains(&places), "{message}");
                }
            }
        }
        let ends = MOVES.iter().filter(|(_, _, to)| *to == Place::Gone).count();
        assert_eq!(legal + ends, MOVES.len());
    }

    thread_local! {
        /// A panic of this thread is expected, so nothing is to be printed of it: to name the
        /// frames of one takes longer than any other test of this folder.
        static IS_EXPECTED: Cell<bool> = const { Cell::new(false) };
    }

    #[test]
    fn a_debug_build_stops_at_a_move_that_is_none() {
        let made = (Place::Wait, Event::Unread, Place::Lookup);
        let print = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_EXPECTED.get() {
                print(panic);
            }
        }));
        IS_EXPECTED.set(true);
        let moved = catch_unwind(|| moved(made));
        IS_EXPECTED.set(false);
        assert_eq!(moved.is_err(), cfg!(debug_assertions));
    }

    #[test]
    fn an_event_leads_from_a_place_to_one_other_and_every_poll_ends() {
        for (from, event, to) in MOVES {
            assert_ne!(from, Place::Gone);
            assert_eq!(event == Event::Ended, to == Place::Gone);
            let same = MOVES
                .iter()
                .filter(|other| (other.0, other.1) == (from, event));
            assert_eq!(same.count(), 1, "{from:?} {event:?}");
            assert!(
                MOVES.contains(&(from, Event::Ended, Place::Gone)),
                "{from:?}"
            );
        }
    }
}
