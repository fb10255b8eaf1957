//! The answers that one loop owes.

use super::order::Work;
use super::{End, Entry, Line, Owed};
use crate::app::{ExchangeId, Outcome};
use crate::reply::Reply;
use dwell_evloop::{Slab, Token};
use std::fmt;
use std::sync::Arc;

/// The answers that one loop owes; the engine's tag for an exchange names its entry.
pub struct Ledger<L: Line, E> {
    held: Slab<Held<L, E>>,
    line: Arc<L>,
    /// Handles to be used again, where their holders have dropped them.
    spare: Vec<Arc<Owed<L>>>,
}

/// An exchange that is answered later.
struct Held<L: Line, E> {
    exchange: ExchangeId,
    owed: Arc<Owed<L>>,
    entry: E,
    /// The program that takes the connection over when it leaves HTTP.
    takeover: Option<Box<L::Takeover>>,
}

/// Handles that are kept for exchanges to come.
const SPARE_MAX: usize = 32;

impl<L: Line, E: Entry<L>> Ledger<L, E> {
    /// Makes an empty one, whose tokens are of this kind.
    pub(crate) fn new(kind: u8, line: Arc<L>) -> Self {
        Self {
            held: Slab::new(kind, usize::MAX),
            line,
            spare: Vec::new(),
        }
    }

    /// The part of the loop that other threads use.
    pub fn line(&self) -> &Arc<L> {
        &self.line
    }

    /// Returns the number of answers that are owed.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Returns true if no answer is owed.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// Makes an entry for an exchange.
    pub fn open(&mut self, exchange: ExchangeId, entry: E) -> (Token, Arc<Owed<L>>) {
        let token = self.held.next_token();
        let owed = self.handle(token);
        let held = Held {
            exchange,
            owed: Arc::clone(&owed),
            entry,
            takeover: None,
        };
        // Only four thousand million exchanges fill the table; a handle that is over serves then.
        if self.held.insert(held).is_err() {
            owed.end(End::Gone);
        }
        (token, owed)
    }

    fn handle(&mut self, token: Token) -> Arc<Owed<L>> {
        if let Some(mut spare) = self.spare.pop()
            && let Some(owed) = Arc::get_mut(&mut spare)
        {
            owed.renew(token);
            return spare;
        }
        Arc::new(Owed::new(Arc::clone(&self.line), token))
    }

    /// The handle of an exchange, if its answer is owed.
    pub fn owed(&self, token: Token) -> Option<&Arc<Owed<L>>> {
        self.held.get(token).map(|held| &held.owed)
    }

    /// The state beside an answer that is owed.
    pub fn entry(&mut self, token: Token) -> Option<&mut E> {
        self.held.get_mut(token).map(|held| &mut held.entry)
    }

    /// The exchange of an answer that is owed.
    pub fn exchange(&self, token: Token) -> Option<ExchangeId> {
        self.held.get(token).map(|held| held.exchange)
    }

    /// Lets the program that answers go on; returns false if there is nothing to be done then.
    pub(super) fn look(&mut self, token: Token) -> bool {
        let Some(held) = self.held.get_mut(token) else {
            return false;
        };
        held.owed.looked();
        held.entry.go_on(&held.owed);
        held.owed.has_work()
    }

    /// Does what was ordered, and gives the engine the wishes of the body's reader.
    pub(super) fn work(&mut self, token: Token, reply: &mut Reply<'_>) -> Work<L> {
        let Some(held) = self.held.get_mut(token) else {
            return Work::Done;
        };
        held.owed.work(reply, &mut held.entry)
    }

    /// Calls every holder that waits: the server is shutting down.
    pub(crate) fn drain(&self) {
        for held in self.held.values() {
            held.owed.drain();
        }
    }

    /// Ends an exchange, in whatever way.
    pub(crate) fn end(&mut self, token: Token, end: End) -> Option<E> {
        let held = self.held.remove(token)?;
        if held.owed.end(end) && self.spare.len() < SPARE_MAX {
            self.spare.push(held.owed);
        }
        Some(held.entry)
    }

    /// Notes that the connection of an exchange is about to leave HTTP; its answer was given.
    pub(super) fn will_leave(&mut self, token: Token, takeover: L::Takeover) -> Outcome {
        if let Some(held) = self.held.get_mut(token) {
            held.owed.end(End::Complete);
            held.takeover = Some(Box::new(takeover));
        }
        Outcome::Detach {
            tag: token.to_bits(),
        }
    }

    /// The program that takes the connection of an exchange over.
    pub(super) fn takeover(&mut self, token: Token) -> Option<L::Takeover> {
        let takeover = self.held.get_mut(token)?.takeover.take();
        takeover.map(|takeover| *takeover)
    }
}

impl<L: Line, E> Ledger<L, E> {
    /// Ends all exchanges, and returns what was kept beside them.
    pub(crate) fn clear(&mut self) -> Vec<E> {
        let tokens: Vec<_> = self.held.tokens().collect();
        let held = tokens
            .into_iter()
            .filter_map(|token| self.held.remove(token));
        held.map(|held| {
            held.owed.end(End::Gone);
            held.entry
        })
        .collect()
    }
}

/// Ends the exchanges of a loop that ends, in whatever way, so that their holders wake up.
impl<L: Line, E> Drop for Ledger<L, E> {
    fn drop(&mut self) {
        self.clear();
    }
}

impl<L: Line, E> fmt::Debug for Ledger<L, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ledger")
            .field("held", &self.held.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::desk::{Attention, BodyRead, INFORMATIONAL_MAX, Order, OwnedAnswer, Refusal};
    use crate::server::{LoopLink, Next};
    use bytes::Bytes;
    use dwell_proto::http1::Trailers;
    use std::convert::Infallible;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::task::{Wake, Waker};

    /// A line whose loop is the test.
    #[derive(Default)]
    struct TestLine {
        attention: Attention,
        wakes: AtomicUsize,
    }

    struct Nothing;

    impl OwnedAnswer for Nothing {
        fn send(self, _: &mut Reply<'_>) {}

        fn begin(self, _: Option<u64>, _: &mut Reply<'_>) -> bool {
            false
        }

        fn informational(self, _: &mut Reply<'_>) {}
    }

    impl Line for TestLine {
        type Answer = Nothing;
        type Takeover = Infallible;

        fn output_bytes_max(&self) -> usize {
            200
        }

        fn body_window_bytes(&self) -> u64 {
            8
        }

        fn attention(&self) -> &Attention {
            &self.attention
        }

        fn wake(&self, _: bool) {
            self.wakes.fetch_add(1, Ordering::Relaxed);
        }
    }

    impl Entry<TestLine> for u8 {}

    /// A task that counts how often it was woken.
    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn ledger() -> Ledger<TestLine, u8> {
        Ledger::new(7, Arc::default())
    }

    fn exchange(number: u32) -> ExchangeId {
        ExchangeId::new(Token::new(2, 0, number), 0)
    }

    fn asked(ledger: &Ledger<TestLine, u8>) -> Vec<Token> {
        let mut asked = Vec::new();
        ledger.line().attention().take(&mut asked);
        asked
    }

    #[test]
    fn an_exchange_that_waits_is_small() {
        // With the connection's own entry: what a held long-poll costs.
        let (held, owed) = (
            size_of::<Held<LoopLink, Next>>(),
            size_of::<Owed<LoopLink>>(),
        );
        assert!(held + owed <= 136, "{held} + {owed}");
    }

    #[test]
    fn a_burst_of_orders_asks_the_loop_once_until_it_looks() {
        let mut ledger = ledger();
        let (token, owed) = ledger.open(exchange(1), 0);
        assert!(owed.answer(Order::Begin(Nothing, None)));
        assert!(!owed.answer(Order::Send(Nothing)), "it was begun");
        assert!(owed.order(Order::Write(Bytes::from_static(b"one"))));
        assert_eq!(asked(&ledger), [token]);
        assert!(ledger.look(token), "there is something to do");
        assert!(owed.order(Order::Finish(Vec::new())));
        assert_eq!(asked(&ledger), [token]);
        assert_eq!(ledger.line().wakes.load(Ordering::Relaxed), 2);
    }

    #[test]
    fn informational_answers_are_bounded_for_each_exchange() {
        let mut ledger = ledger();
        for number in 0..2 {
            let (token, owed) = ledger.open(exchange(number), 0);
            for _ in 0..=INFORMATIONAL_MAX {
                assert!(owed.order(Order::Informational(Nothing)));
            }
            assert_eq!(owed.ordered(), usize::from(INFORMATIONAL_MAX));
            assert!(owed.answer(Order::Send(Nothing)), "the answer is taken");
            drop(owed);
            ledger.end(token, End::Gone);
        }
    }

    #[test]
    fn a_writer_waits_for_room_and_for_no_client_that_has_left() {
        let mut ledger = ledger();
        let (token, owed) = ledger.open(exchange(1), 0);
        let piece = || Bytes::from_static(&[b'a'; 120]);
        assert!(owed.write(piece()).is_ok());
        let task = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&task));
        while owed.poll_writable(&waker).is_none() {
            assert!(owed.write(piece()).is_ok());
        }
        let refused = owed.write(piece());
        assert_eq!(refused, Err((Refusal::Full, piece())));
        assert_eq!(task.0.load(Ordering::Relaxed), 0);
        assert_eq!(ledger.end(token, End::Gone), Some(0));
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        assert_eq!(owed.poll_writable(&waker), Some(Refusal::Gone));
        assert!(!owed.wait_writable());
        assert!(!owed.order(Order::Abort));
        assert!(ledger.owed(token).is_none());
    }

    #[test]
    fn a_reader_gets_what_came_before_the_end() {
        let mut ledger = ledger();
        let (token, owed) = ledger.open(exchange(1), 0);
        owed.expect_body();
        let task = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&task));
        assert_eq!(owed.read_body(Some(&waker)), BodyRead::Later);
        assert_eq!(asked(&ledger), [token], "the loop has to grant");
        owed.arrive(b"ab");
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        ledger.end(token, End::Gone);
        let read = owed.wait_body();
        assert_eq!(read, BodyRead::Data(Bytes::from_static(b"ab"), false));
        assert_eq!(owed.wait_body(), BodyRead::Gone);
        let (_, owed) = ledger.open(exchange(2), 0);
        owed.expect_body();
        owed.arrive(b"cd");
        owed.complete(Trailers::default());
        let read = owed.read_body(None);
        assert_eq!(read, BodyRead::Data(Bytes::from_static(b"cd"), true));
        assert_eq!(owed.read_body(None), BodyRead::End);
    }

    #[test]
    fn a_handle_is_used_again_only_where_its_holder_has_dropped_it() {
        let mut ledger = ledger();
        let (first, kept) = ledger.open(exchange(1), 1);
        assert!(kept.order(Order::Write(Bytes::new())));
        assert_eq!(ledger.end(first, End::Complete), Some(1));
        let (second, owed) = ledger.open(exchange(2), 2);
        assert!(!Arc::ptr_eq(&kept, &owed));
        let address = Arc::as_ptr(&owed);
        drop(owed);
        assert_eq!(ledger.end(second, End::Gone), Some(2));
        let (third, owed) = ledger.open(exchange(3), 3);
        assert_eq!(Arc::as_ptr(&owed), address);
        assert_eq!(
            (owed.ended(), ledger.exchange(third)),
            (None, Some(exchange(3)))
        );
        assert!(!ledger.look(third), "orders of before are gone");
        assert!(owed.answer(Order::Send(Nothing)));
        assert_eq!(asked(&ledger), [first, third]);
        assert_eq!(kept.ended(), Some(End::Complete));
    }

    #[test]
    fn the_end_of_a_loop_ends_all_that_it_owes() {
        let mut ledger = ledger();
        let held: Vec<_> = (0..3)
            .map(|number| ledger.open(exchange(number), 0).1)
            .collect();
        ledger.end(Token::new(7, 9, 9), End::Complete);
        assert_eq!((ledger.len(), ledger.is_empty()), (3, false));
        drop(ledger);
        assert!(held.iter().all(|owed| owed.ended() == Some(End::Gone)));
    }
}
