//! The channel between a loop and the holder of one of its exchanges.
//!
//! The holder puts its orders for the response here and wakes the loop. The loop puts the pieces of
//! the request's body here and wakes the reader. All orders that come before the loop runs cost one
//! wake-up.

use super::answer::{Answer, Field, borrowed};
use super::takeover::Takeover;
use crate::desk::Inflow;
use crate::reply::{Reply, WriteError};
use crate::server::LoopLink;
use bytes::Bytes;
use dwell_evloop::Token;
use dwell_proto::http1::Trailers;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker};

/// One thing to be done with an answer.
pub(crate) enum Order {
    Informational(u16, Vec<Field>),
    Send(Answer),
    Begin(Answer, Option<u64>),
    Write(Bytes),
    Finish(Vec<Field>),
    Abort,
    TakeOver(Answer, Takeover),
}

/// The progress of a response after its orders.
pub(crate) enum Work {
    /// It is owed, or its end is.
    Open,
    /// It is complete.
    Done,
    /// The connection is to be cut.
    Abort,
    /// The connection leaves HTTP after this answer.
    TakeOver(Answer, Takeover),
}

pub(crate) struct Channel {
    link: Arc<LoopLink>,
    /// The exchange's entry in the loop's table.
    token: Token,
    /// True while a wake-up of the loop is under way.
    asked: AtomicBool,
    state: Mutex<State>,
    changed: Condvar,
}

/// The state is small, because most waiting exchanges have no order, no waker and no body.
#[derive(Default)]
pub(super) struct State {
    orders: Vec<Order>,
    /// Bytes that the orders take, and those the connection had queued when the loop looked last.
    waiting_bytes: usize,
    /// One of the responders has answered; what others answer is refused.
    is_answered: bool,
    is_over: bool,
    wakers: Option<Box<Wakers>>,
    body: Option<Box<BodyState>>,
}

/// Wakers of tasks that wait for something other than the body.
#[derive(Default)]
struct Wakers {
    writer: Option<Waker>,
    /// Tasks that wait for the end of the exchange, or of the server.
    watchers: Vec<Waker>,
}

/// The body of a request on its way from the loop to its reader.
#[derive(Default)]
pub(super) struct BodyState {
    inflow: Inflow,
    trailers: Vec<(String, Vec<u8>)>,
    reader: Option<Waker>,
}

impl Channel {
    pub(crate) fn new(link: Arc<LoopLink>, token: Token) -> Self {
        Self {
            link,
            token,
            asked: AtomicBool::new(false),
            state: Mutex::default(),
            changed: Condvar::new(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the loop to look.
    pub(crate) fn ask(&self) {
        if !self.asked.swap(true, Ordering::AcqRel) {
            self.link.attend(self.token);
        }
    }

    /// Marks that the loop has begun to look: later orders wake it again.
    pub(crate) fn looked(&self) {
        // A swap, not a store: what was done before an `ask` that still found this set is seen by
        // the look that follows.
        self.asked.swap(false, Ordering::AcqRel);
    }

    /// Returns true on the thread of the loop, where a call that waits for the loop would wait for
    /// itself.
    pub(super) fn is_on_its_loop(&self) -> bool {
        self.link.is_here()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.lock().is_over
    }

    /// Ready when the exchange is over; else `waker` is woken when it is.
    pub(super) fn poll_over(&self, waker: &Waker) -> Poll<()> {
        let mut state = self.lock();
        if state.is_over {
            return Poll::Ready(());
        }
        state.watch(waker);
        Poll::Pending
    }

    /// Returns true if the server is shutting down.
    pub(super) fn is_draining(&self) -> bool {
        self.link.is_draining()
    }

    /// Ready when the server ends, or the exchange is over; else `waker` is woken when that is so.
    pub(super) fn poll_draining(&self, waker: &Waker) -> Poll<()> {
        let mut state = self.lock();
        // The loop sets its draining flag before it takes this lock to wake the watchers.
        if state.is_over || self.link.is_draining() {
            return Poll::Ready(());
        }
        state.watch(waker);
        Poll::Pending
    }

    /// Wakes the watchers: the server is shutting down.
    pub(crate) fn drain(&self) {
        let mut state = self.lock();
        let wakers = state.wakers.as_mut();
        let watchers = wakers.map(|wakers| std::mem::take(&mut wakers.watchers));
        drop(state);
        for watcher in watchers.into_iter().flatten() {
            watcher.wake();
        }
    }

    /// Leaves an order that begins the response. Returns false if the response has begun already or
    /// the exchange has ended.
    pub(super) fn answer(&self, order: Order) -> bool {
        let mut state = self.lock();
        if state.is_over || std::mem::replace(&mut state.is_answered, true) {
            return false;
        }
        self.leave(state, order);
        true
    }

    /// Leaves an order. Returns false if the exchange has ended.
    pub(super) fn order(&self, order: Order) -> bool {
        let state = self.lock();
        if state.is_over {
            return false;
        }
        self.leave(state, order);
        true
    }

    fn leave(&self, mut state: MutexGuard<'_, State>, order: Order) {
        state.waiting_bytes += order.bytes();
        state.orders.push(order);
        drop(state);
        self.ask();
    }

    /// Leaves a piece of the answer, or gives it back with the reason.
    pub(super) fn write(&self, piece: Bytes) -> Result<(), (Refusal, Bytes)> {
        let state = self.lock();
        if let Some(refusal) = self.refusal(&state) {
            return Err((refusal, piece));
        }
        self.leave(state, Order::Write(piece));
        Ok(())
    }

    fn refusal(&self, state: &State) -> Option<Refusal> {
        let limit = self.link.settings().limits.output_bytes_max;
        match () {
            () if state.is_over => Some(Refusal::Gone),
            () if state.waiting_bytes >= limit => Some(Refusal::Full),
            () => None,
        }
    }

    /// Returns the reason why a piece would be refused now; `waker` is woken when a full queue has
    /// room.
    pub(super) fn poll_writable(&self, waker: &Waker) -> Option<Refusal> {
        let mut state = self.lock();
        let refusal = self.refusal(&state);
        if let Some(Refusal::Full) = refusal {
            let writer = &mut state.wakers.get_or_insert_default().writer;
            let earlier = writer.replace(waker.clone());
            // Dropped without the lock: it may be all that is left of a task.
            drop(state);
            drop(earlier);
        }
        refusal
    }

    /// Waits until a piece would be taken. Returns false if the exchange has ended.
    pub(super) fn wait_writable(&self) -> bool {
        let mut state = self.lock();
        loop {
            match self.refusal(&state) {
                None => return true,
                Some(Refusal::Gone) => return false,
                Some(Refusal::Full) => state = self.wait(state),
            }
        }
    }

    pub(super) fn wait<'a>(&self, state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        let waited = self.changed.wait(state);
        waited.unwrap_or_else(PoisonError::into_inner)
    }

    /// Does what was ordered, as far as the answer's queue takes it.
    pub(crate) fn work(&self, reply: &mut Reply<'_>) -> Work {
        let orders = std::mem::take(&mut self.lock().orders);
        let mut orders = orders.into_iter();
        let mut work = Work::Open;
        let mut refused = None;
        let mut again = false;
        for order in orders.by_ref() {
            match carry_out(order, reply) {
                Carried::On => {}
                Carried::Refused(piece) => {
                    // What fills the queue is not with the socket yet, which therefore will not
                    // tell when it is gone.
                    again = reply.stream.is_flushed();
                    refused = Some(Order::Write(piece));
                    break;
                }
                Carried::Last(last) => {
                    work = last;
                    break;
                }
            }
        }
        self.settle(refused.into_iter().chain(orders).collect(), reply);
        if again {
            self.ask();
        }
        work
    }

    /// Keeps the orders that could not be carried out yet, and wakes the writer if there is room.
    fn settle(&self, left: Vec<Order>, reply: &Reply<'_>) {
        let mut state = self.lock();
        let newer = std::mem::replace(&mut state.orders, left);
        state.orders.extend(newer);
        let ordered_bytes: usize = state.orders.iter().map(Order::bytes).sum();
        // What is gathered goes out when this callback ends; only what the socket has refused is
        // waited for, and told of when it is gone.
        state.waiting_bytes = ordered_bytes + reply.stream.queued_bytes();
        let writer = match (self.refusal(&state), &mut state.wakers) {
            (None, Some(wakers)) => wakers.writer.take(),
            _ => None,
        };
        drop(state);
        self.changed.notify_all();
        wake(writer);
    }

    /// Returns true if the loop has something to do.
    pub(crate) fn has_work(&self) -> bool {
        let state = self.lock();
        let body = state.body.as_ref();
        !state.orders.is_empty() || body.is_some_and(|body| body.inflow.has_wish())
    }

    /// Gives the engine the wishes of the reader.
    pub(crate) fn want(&self, reply: &mut Reply<'_>) {
        if let Some(body) = &mut self.lock().body {
            reply.grant(body.inflow.take_wish().unwrap_or_default());
            reply.await_body(body.inflow.is_awaited());
        }
    }

    /// Ends the exchange: wakes all tasks that wait for it, and refuses later orders.
    pub(crate) fn end(&self) {
        let mut state = self.lock();
        state.is_over = true;
        // Dropped after the lock is given back: an answer may own anything.
        let orders = std::mem::take(&mut state.orders);
        let wakers = state.wakers.take();
        let reader = state.body.as_mut().and_then(|body| body.reader.take());
        drop(state);
        drop(orders);
        self.changed.notify_all();
        let wakers = wakers.map(|wakers| *wakers).unwrap_or_default();
        for waker in [wakers.writer, reader].into_iter().flatten() {
            waker.wake();
        }
        for watcher in wakers.watchers {
            watcher.wake();
        }
    }

    /// Makes room for the body of the request.
    pub(super) fn expect_body(&self) {
        self.lock().body.get_or_insert_default();
    }

    /// A piece of the body has come.
    pub(crate) fn arrive(&self, data: &[u8]) {
        self.change_body(|body| body.inflow.arrive(data));
    }

    /// The body is complete.
    pub(crate) fn complete(&self, trailers: Trailers<'_>) {
        self.change_body(|body| {
            let fields = trailers.iter();
            body.trailers = fields
                .map(|(name, value)| (name.into(), value.into()))
                .collect();
            body.inflow.complete();
        });
    }

    fn change_body(&self, change: impl FnOnce(&mut BodyState)) {
        let mut state = self.lock();
        let Some(body) = &mut state.body else {
            return;
        };
        change(body);
        let reader = body.reader.take();
        drop(state);
        self.changed.notify_all();
        wake(reader);
    }

    /// Returns the bytes of the body that have come. The first call starts its transfer.
    ///
    /// `state` stays locked, so that a reader that waits for more misses none of it.
    pub(super) fn read_body(&self, state: &mut State, waker: Option<&Waker>) -> BodyRead {
        let window = self.link.settings().body_window_bytes;
        let Some(body) = state.body.as_deref_mut() else {
            return BodyRead::Gone;
        };
        let had_wish = body.inflow.has_wish();
        let arrival = match body.inflow.read(window) {
            Poll::Ready(Some(data)) => BodyRead::Data(data),
            Poll::Ready(None) => BodyRead::End,
            Poll::Pending if state.is_over => BodyRead::Gone,
            Poll::Pending => {
                body.reader = waker.cloned();
                BodyRead::Later
            }
        };
        if !had_wish && body.inflow.has_wish() && !state.is_over {
            self.ask();
        }
        arrival
    }

    /// The trailer fields of a body that is complete.
    pub(super) fn trailers(&self) -> Vec<(String, Vec<u8>)> {
        let state = self.lock();
        let body = state.body.as_deref();
        body.map(|body| body.trailers.clone()).unwrap_or_default()
    }
}

impl State {
    fn watch(&mut self, waker: &Waker) {
        let watchers = &mut self.wakers.get_or_insert_default().watchers;
        if !watchers.iter().any(|watcher| watcher.will_wake(waker)) {
            watchers.push(waker.clone());
        }
    }
}

/// Reasons why a piece was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Refusal {
    Full,
    Gone,
}

/// The result of reading a body.
pub(super) enum BodyRead {
    Data(Bytes),
    Later,
    End,
    Gone,
}

enum Carried {
    On,
    Refused(Bytes),
    Last(Work),
}

fn carry_out(order: Order, reply: &mut Reply<'_>) -> Carried {
    match order {
        Order::Informational(status, fields) => {
            reply.informational(status, &borrowed(&fields));
            Carried::On
        }
        Order::Send(answer) => {
            answer.send(reply);
            Carried::Last(Work::Done)
        }
        Order::Begin(answer, length) => {
            answer.begin(length, reply);
            if reply.is_bodiless() {
                // It is complete: a writer of more pieces gets an error.
                let _ = reply.finish(&[]);
                return Carried::Last(Work::Done);
            }
            Carried::On
        }
        Order::Write(piece) => match reply.write_shared(&piece) {
            Ok(()) => Carried::On,
            Err(WriteError::Full { .. }) => Carried::Refused(piece),
            Err(_) => Carried::Last(Work::Abort),
        },
        Order::Finish(trailers) => match reply.finish(&borrowed(&trailers)) {
            Ok(()) => Carried::Last(Work::Done),
            Err(_) => Carried::Last(Work::Abort),
        },
        Order::Abort => Carried::Last(Work::Abort),
        Order::TakeOver(..) if reply.has_unread_body() => {
            let text = "the protocol changes only behind a body that was read\n";
            Answer::text(400, text).close_after().send(reply);
            Carried::Last(Work::Done)
        }
        Order::TakeOver(answer, takeover) => Carried::Last(Work::TakeOver(answer, takeover)),
    }
}

impl Order {
    /// Returns its size in the queue, which is more than that of its bytes for a small piece.
    fn bytes(&self) -> usize {
        match self {
            Self::Write(piece) => size_of::<Self>() + piece.len(),
            _ => 0,
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A future of the exchange is ready to go on: its loop looks.
impl Wake for Channel {
    fn wake(self: Arc<Self>) {
        self.ask();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ask();
    }
}

impl fmt::Debug for Channel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Channel").finish_non_exhaustive()
    }
}
