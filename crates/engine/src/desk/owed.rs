//! One answer that is owed: what the loop and its holder share.
//!
//! The holder puts its orders for the answer here and wakes the loop. The loop puts the pieces of
//! the request's body here and wakes the reader. All orders that come before the loop runs cost one
//! wake-up.

use super::order::{Carried, Work};
use super::{Entry, Inflow, Line, Order};
use crate::reply::Reply;
use bytes::Bytes;
use dwell_evloop::Token;
use dwell_proto::http1::Trailers;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Poll, Wake, Waker};

/// Informational answers to one request.
pub const INFORMATIONAL_MAX: u8 = 32;

/// The handle of an answer that is owed, for its holder on any thread.
pub struct Owed<L: Line> {
    line: Arc<L>,
    /// The exchange's entry in the loop's ledger.
    token: Token,
    /// True while a wake-up of the loop is in progress.
    asked: AtomicBool,
    state: Mutex<State<L>>,
    changed: Condvar,
}

/// The state is small, because most waiting exchanges have no order, no waker and no body.
struct State<L: Line> {
    orders: Vec<Order<L>>,
    /// Bytes that the orders take, and those the connection had queued when the loop looked last.
    waiting_bytes: usize,
    /// One of the holders has answered; what others answer is refused.
    is_answered: bool,
    /// Informational answers that were ordered.
    informational: u8,
    end: Option<End>,
    /// Threads that wait: a signal to none would be a system call for nothing.
    waiting_threads: u32,
    wakers: Option<Box<Wakers>>,
    body: Option<Box<BodyState>>,
}

/// Ways in which an owed answer comes to its end.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// It was given whole, or its connection has left HTTP.
    Complete,
    /// Its client has left, or was cut off.
    Gone,
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
struct BodyState {
    inflow: Inflow,
    trailers: Vec<(String, Vec<u8>)>,
    reader: Option<Waker>,
}

/// Reasons why a piece was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// The client has to take of what waits for it first.
    Full,
    /// The exchange has ended.
    Gone,
}

/// The result of reading a body.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum BodyRead {
    /// All that has come, and whether it is the last of the body.
    Data(Bytes, bool),
    /// Nothing yet.
    Later,
    /// The body was read to its end.
    End,
    /// The rest does not come any more.
    Gone,
}

impl<L: Line> Owed<L> {
    pub(super) fn new(line: Arc<L>, token: Token) -> Self {
        Self {
            line,
            token,
            asked: AtomicBool::new(false),
            state: Mutex::new(State::new()),
            changed: Condvar::new(),
        }
    }

    /// Makes the handle that of another exchange.
    pub(super) fn renew(&mut self, token: Token) {
        self.token = token;
        *self.asked.get_mut() = false;
        let state = self.state.get_mut().unwrap_or_else(PoisonError::into_inner);
        let mut orders = std::mem::take(&mut state.orders);
        orders.clear();
        *state = State {
            orders,
            ..State::new()
        };
    }

    /// The part of its loop that other threads use.
    pub fn line(&self) -> &Arc<L> {
        &self.line
    }

    pub(super) fn token(&self) -> Token {
        self.token
    }

    fn lock(&self) -> MutexGuard<'_, State<L>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks the loop to look.
    pub(crate) fn ask(&self) {
        self.ask_for(false);
    }

    fn ask_for(&self, is_last: bool) {
        if !self.asked.swap(true, Ordering::AcqRel) {
            self.line.attention().push(self.token);
            self.line.wake(is_last);
        }
    }

    /// Marks that the loop has begun to look: later orders wake it again.
    pub(super) fn looked(&self) {
        // A swap, not a store: what was done before an `ask` that still found this set is seen by
        // the look that follows.
        self.asked.swap(false, Ordering::AcqRel);
    }

    /// The way in which it has ended, if it has.
    pub fn ended(&self) -> Option<End> {
        self.lock().end
    }

    /// Ready when the exchange is over; else `waker` is woken when it is.
    pub fn poll_over(&self, waker: &Waker) -> Poll<()> {
        let mut state = self.lock();
        if state.end.is_some() {
            return Poll::Ready(());
        }
        state.watch(waker);
        Poll::Pending
    }

    /// Ready when the server ends, or the exchange is over; else `waker` is woken when that is so.
    pub(crate) fn poll_draining(&self, waker: &Waker) -> Poll<()> {
        let mut state = self.lock();
        // The loop sets its draining flag before it takes this lock to wake the watchers.
        if state.end.is_some() || self.line.is_draining() {
            return Poll::Ready(());
        }
        state.watch(waker);
        Poll::Pending
    }

    /// Wakes the watchers: the server is shutting down.
    pub(super) fn drain(&self) {
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
    pub fn answer(&self, order: Order<L>) -> bool {
        let mut state = self.lock();
        if state.end.is_some() || std::mem::replace(&mut state.is_answered, true) {
            return false;
        }
        self.leave(state, order);
        true
    }

    /// Leaves an order, whatever room there is. Returns false if the exchange has ended.
    ///
    /// Shape: an informational answer beyond [`INFORMATIONAL_MAX`] is dropped, as clients may
    /// ignore any of them.
    pub fn order(&self, order: Order<L>) -> bool {
        let mut state = self.lock();
        if state.end.is_some() {
            return false;
        }
        if let Order::Informational(_) = order {
            if state.informational == INFORMATIONAL_MAX {
                return true;
            }
            state.informational += 1;
        }
        self.leave(state, order);
        true
    }

    fn leave(&self, mut state: MutexGuard<'_, State<L>>, order: Order<L>) {
        let is_last = order.is_last();
        state.waiting_bytes += order.bytes();
        state.orders.push(order);
        drop(state);
        self.ask_for(is_last);
    }

    /// Leaves a piece of the answer, or gives it back with the reason.
    pub(crate) fn write(&self, piece: Bytes) -> Result<(), (Refusal, Bytes)> {
        let state = self.lock();
        if let Some(refusal) = self.refusal(&state) {
            return Err((refusal, piece));
        }
        self.leave(state, Order::Write(piece));
        Ok(())
    }

    fn refusal(&self, state: &State<L>) -> Option<Refusal> {
        match () {
            () if state.end.is_some() => Some(Refusal::Gone),
            () if state.waiting_bytes >= self.line.output_bytes_max() => Some(Refusal::Full),
            () => None,
        }
    }

    /// Returns the reason why a piece would be refused now.
    pub fn is_refused(&self) -> Option<Refusal> {
        self.refusal(&self.lock())
    }

    /// Returns the reason why a piece would be refused now; `waker` is woken when a full queue has
    /// room.
    pub fn poll_writable(&self, waker: &Waker) -> Option<Refusal> {
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
    pub fn wait_writable(&self) -> bool {
        let mut state = self.lock();
        loop {
            match self.refusal(&state) {
                None => return true,
                Some(Refusal::Gone) => return false,
                Some(Refusal::Full) => state = self.wait(state),
            }
        }
    }

    fn wait<'a>(&self, mut state: MutexGuard<'a, State<L>>) -> MutexGuard<'a, State<L>> {
        state.waiting_threads += 1;
        let waited = self.changed.wait(state);
        let mut state = waited.unwrap_or_else(PoisonError::into_inner);
        state.waiting_threads -= 1;
        state
    }

    /// Gives the lock back, and wakes the threads that wait for a change.
    fn change(&self, state: MutexGuard<'_, State<L>>) {
        let is_awaited = state.waiting_threads > 0;
        drop(state);
        if is_awaited {
            self.changed.notify_all();
        }
    }

    /// Gives the engine the wishes of the body's reader, and does what was ordered, as far as the
    /// answer's queue takes it.
    pub(super) fn work(&self, reply: &mut Reply<'_>, entry: &mut impl Entry<L>) -> Work<L> {
        let mut state = self.lock();
        let body = state.body.as_mut().map(|body| &mut body.inflow);
        let wish = body.map(|body| (body.take_wish(), body.is_awaited()));
        let mut orders = std::mem::take(&mut state.orders);
        drop(state);
        if let Some((bytes, is_awaited)) = wish {
            reply.grant(bytes.unwrap_or_default());
            reply.await_body(is_awaited);
        }
        let mut work = Work::Open;
        let mut refused = None;
        let mut again = false;
        let mut left = orders.drain(..);
        for order in left.by_ref() {
            match order.carry_out(reply, entry) {
                Carried::On => {}
                Carried::Refused(order) => {
                    // What fills the queue is not with the socket yet, which therefore will not
                    // tell when it is gone.
                    again = !reply.tells_when_drained();
                    refused = Some(order);
                    break;
                }
                Carried::Last(last) => {
                    work = last;
                    break;
                }
            }
        }
        if let Work::Open = work {
            let left = refused.into_iter().chain(left).collect();
            self.settle(left, reply);
        } else {
            // The memory is for the next exchange that gets this handle.
            drop(left);
            let newer = std::mem::replace(&mut self.lock().orders, orders);
            drop(newer);
        }
        if again {
            self.ask();
        }
        work
    }

    /// Keeps the orders that could not be carried out yet, and wakes the writer if there is room.
    fn settle(&self, left: Vec<Order<L>>, reply: &Reply<'_>) {
        let mut state = self.lock();
        let newer = std::mem::replace(&mut state.orders, left);
        state.orders.extend(newer);
        let ordered_bytes: usize = state.orders.iter().map(Order::bytes).sum();
        // What is gathered goes out when this callback ends; only what the socket has refused is
        // waited for, and told of when it is gone.
        state.waiting_bytes = ordered_bytes + reply.refused_bytes();
        let writer = match (self.refusal(&state), &mut state.wakers) {
            (None, Some(wakers)) => wakers.writer.take(),
            _ => None,
        };
        self.change(state);
        wake(writer);
    }

    /// Returns true if the loop has something to do.
    pub(super) fn has_work(&self) -> bool {
        let state = self.lock();
        let body = state.body.as_ref();
        !state.orders.is_empty()
            || state.waiting_bytes > 0
            || body.is_some_and(|body| body.inflow.has_wish())
    }

    /// Ends the exchange: wakes all tasks that wait for it, and refuses later orders. Returns true
    /// if it holds no body that its reader may still take.
    pub(super) fn end(&self, end: End) -> bool {
        let mut state = self.lock();
        state.end.get_or_insert(end);
        let is_bare = state.body.is_none();
        // Dropped after the lock is given back: an answer may own anything.
        let has_orders = !state.orders.is_empty();
        let orders = has_orders.then(|| std::mem::take(&mut state.orders));
        let wakers = state.wakers.take();
        let reader = state.body.as_mut().and_then(|body| body.reader.take());
        self.change(state);
        drop(orders);
        let wakers = wakers.map(|wakers| *wakers).unwrap_or_default();
        for waker in [wakers.writer, reader].into_iter().flatten() {
            waker.wake();
        }
        for watcher in wakers.watchers {
            watcher.wake();
        }
        is_bare
    }

    /// Returns the number of orders that wait for the loop.
    #[cfg(test)]
    pub(super) fn ordered(&self) -> usize {
        self.lock().orders.len()
    }

    /// Makes room for the body of the request.
    pub fn expect_body(&self) {
        self.lock().body.get_or_insert_default();
    }

    /// Counts bytes of the body that were granted without a wish of its reader.
    pub fn granted(&self, bytes: u64) {
        if let Some(body) = &mut self.lock().body {
            body.inflow.granted(bytes);
        }
    }

    /// Returns true while the reader has all that came of the body, and waits for more.
    pub fn is_awaited(&self) -> bool {
        let state = self.lock();
        let body = state.body.as_ref();
        body.is_some_and(|body| body.inflow.is_awaited())
    }

    /// Adds a piece of the body that has come.
    pub fn arrive(&self, data: &[u8]) {
        self.change_body(|body| body.inflow.arrive(data));
    }

    /// Ends the body: it is complete.
    pub fn complete(&self, trailers: Trailers<'_>) {
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
        self.change(state);
        wake(reader);
    }

    /// Returns the bytes of the body that have come. The first call starts its transfer.
    pub fn read_body(&self, waker: Option<&Waker>) -> BodyRead {
        self.read(&mut self.lock(), waker)
    }

    /// Waits for bytes of the body, its end, or that of the exchange.
    pub fn wait_body(&self) -> BodyRead {
        let mut state = self.lock();
        loop {
            match self.read(&mut state, None) {
                BodyRead::Later => state = self.wait(state),
                read => return read,
            }
        }
    }

    /// `state` stays locked, so that a reader that waits for more misses no byte.
    fn read(&self, state: &mut State<L>, waker: Option<&Waker>) -> BodyRead {
        let Some(body) = state.body.as_deref_mut() else {
            return BodyRead::Gone;
        };
        let had_wish = body.inflow.has_wish();
        let read = match body.inflow.read(self.line.body_window_bytes()) {
            Poll::Ready(Some(data)) => BodyRead::Data(data, body.inflow.is_complete()),
            Poll::Ready(None) => BodyRead::End,
            Poll::Pending if state.end.is_some() => BodyRead::Gone,
            Poll::Pending => {
                body.reader = waker.cloned();
                BodyRead::Later
            }
        };
        if !had_wish && body.inflow.has_wish() && state.end.is_none() {
            self.ask();
        }
        read
    }

    /// The trailer fields of a body that is complete.
    pub(crate) fn trailers(&self) -> Vec<(String, Vec<u8>)> {
        let state = self.lock();
        let body = state.body.as_deref();
        body.map(|body| body.trailers.clone()).unwrap_or_default()
    }
}

impl<L: Line> State<L> {
    fn new() -> Self {
        Self {
            orders: Vec::new(),
            waiting_bytes: 0,
            is_answered: false,
            informational: 0,
            end: None,
            waiting_threads: 0,
            wakers: None,
            body: None,
        }
    }

    fn watch(&mut self, waker: &Waker) {
        let watchers = &mut self.wakers.get_or_insert_default().watchers;
        if !watchers.iter().any(|watcher| watcher.will_wake(waker)) {
            watchers.push(waker.clone());
        }
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

/// A future of the exchange is ready to go on: its loop looks.
impl<L: Line> Wake for Owed<L> {
    fn wake(self: Arc<Self>) {
        self.ask();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.ask();
    }
}

impl<L: Line> fmt::Debug for Owed<L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Owed")
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
