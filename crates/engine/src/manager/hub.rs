//! The switchboard: which component gets an event, and what is done when no component is busy.

use super::conn::Access;
use super::event::Event;
use super::resolve::Resolved;
use super::state::{Act, Call, ManagerApp};
use super::{Conn, Scope, kind};
use crate::components::Components;
use dwell_evloop::{Context, Driver, Readiness, Token};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::Ordering;

/// Rounds of deferred work in one turn; what they defer in turn is left to the next.
const ROUNDS_MAX: usize = 16;
/// Delivered in the next turn, which does not wait, when deferred work is left.
const WORK: Token = Token::new(kind::WORK, 0, 0);

/// Messages from other threads.
pub(super) enum Message {
    Wakeup { id: u64, data: bytes::Bytes },
    Act { id: u64, act: Act },
    Call(Call),
    ForgetTimer(Token),
    Resolved(Resolved),
}

/// A manager but for its loop.
pub(super) struct ManagerDriver {
    pub(super) components: Components,
    pub(super) state: ManagerApp,
    /// Signals that end [`run`](super::Manager::run); while none are watched, none come.
    pub(super) signalled: bool,
}

impl Driver for ManagerDriver {
    type Message = Message;

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        let Self {
            components, state, ..
        } = self;
        if !components.ready(context, token, readiness, state) && token.kind() == kind::TIMER {
            self.fire(context, token);
        }
        self.settle(context);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        let Self {
            components, state, ..
        } = self;
        if !components.expired(context, token, state) && token.kind() == kind::TIMER {
            self.fire(context, token);
        }
        self.settle(context);
    }

    fn message(&mut self, context: &mut Context, message: Message) {
        match message {
            Message::Wakeup { id, data } => {
                if let Some(token) = self.state.find(id) {
                    self.tell(context, token, Event::Wakeup(&data));
                }
            }
            Message::Act { id, act } => self.act(context, id, act),
            Message::Call(call) => self.call(context, call),
            Message::ForgetTimer(token) => self.forget_timer(context, token),
            Message::Resolved(resolved) => self.resolved(context, resolved),
        }
        self.settle(context);
    }

    fn signal(&mut self, _: &mut Context, _: i32) {
        self.signalled = true;
    }

    fn turn_end(&mut self, context: &mut Context) {
        if !self.state.polled.is_empty() {
            let polled = self.state.take_polled();
            for token in &polled {
                self.tell(context, *token, Event::Poll);
            }
            // Handlers may have added to the list.
            self.state.polled.extend(polled);
        }
        self.settle(context);
        if self.has_work() {
            context.again(WORK, Readiness::default());
        }
    }
}

impl ManagerDriver {
    /// Everything but the loop.
    pub(super) fn scope<'s>(&'s mut self, context: &'s mut Context) -> Scope<'s> {
        Scope {
            state: &mut self.state,
            context,
            components: Some(&mut self.components),
        }
    }

    /// Returns true if deferred work is left.
    pub(super) fn has_work(&self) -> bool {
        !self.state.acts.is_empty()
            || !self.state.leaving.is_empty()
            || self.components.http.has_ended_streams()
    }

    /// Does what callbacks have deferred, as none runs now.
    pub(super) fn settle(&mut self, context: &mut Context) {
        for _ in 0..ROUNDS_MAX {
            if !self.has_work() {
                return;
            }
            self.take_over(context);
            self.end_streams(context);
            for (id, act) in std::mem::take(&mut self.state.acts) {
                self.act(context, id, act);
            }
        }
    }

    /// Forgets the streams of HTTP/2 that have ended, and calls their handlers.
    fn end_streams(&mut self, context: &mut Context) {
        for stream in self.components.http.take_ended_streams() {
            if let Some(token) = self.state.http_record(stream) {
                if let Some(record) = self.state.records.get_mut(token) {
                    record.closing = true;
                }
                self.tell(context, token, Event::Close);
                self.state.remove(token);
            }
        }
    }

    /// Calls the handler of a connection with everything in reach.
    fn tell(&mut self, context: &mut Context, token: Token, event: Event<'_>) {
        let components = Some(&mut self.components);
        self.state
            .tell(context, components, token, Access::None, event);
    }

    /// Runs what was to be done on a connection, if that is still here.
    fn act(&mut self, context: &mut Context, id: u64, act: Act) {
        let Some(token) = self.state.find(id) else {
            return;
        };
        let mut conn = Conn {
            scope: self.scope(context),
            id,
            token,
            access: Access::None,
        };
        let outcome = catch_unwind(AssertUnwindSafe(|| act(&mut conn)));
        if outcome.is_err() {
            conn.abort();
            self.state.panics += 1;
        }
    }

    /// Runs a function of another thread with the manager.
    fn call(&mut self, context: &mut Context, call: Call) {
        let mut scope = self.scope(context);
        if catch_unwind(AssertUnwindSafe(|| call(&mut scope))).is_err() {
            self.state.panics += 1;
        }
    }

    /// Gives connections that have left HTTP to the component that has them now.
    fn take_over(&mut self, context: &mut Context) {
        for leaving in std::mem::take(&mut self.state.leaving) {
            let token = leaving.record;
            let Some(record) = self.state.records.get_mut(token) else {
                continue;
            };
            let (detached, tag) = (leaving.detached, token.to_bits());
            let adopted = self
                .components
                .adopt(context, detached, leaving.protocol, tag);
            let (id, closing, paused) = (record.id, record.closing, record.paused);
            match adopted {
                Ok(place) => {
                    record.place = place;
                    record.closing = false;
                    if place.kind() == kind::WEBSOCKET {
                        self.state.defer(id, |conn| conn.tell(Event::WebSocketOpen));
                    }
                    if paused {
                        self.state.defer(id, |conn| {
                            conn.pause();
                        });
                    }
                    if closing {
                        self.state.defer(id, |conn| {
                            conn.close();
                        });
                    }
                }
                Err(error) => {
                    let text = error.to_string();
                    self.tell(context, token, Event::Error(&text));
                    self.state.end_later(id);
                }
            }
        }
    }

    /// A timer is due.
    fn fire(&mut self, context: &mut Context, token: Token) {
        let Some(entry) = self.state.timers.get_mut(token) else {
            return;
        };
        if entry.due > context.now() {
            // The wheel does not reach that far at once.
            entry.arm(context, token);
            return;
        }
        let is_active = entry.is_active.load(Ordering::Acquire);
        let Some(mut callback) = entry.callback.take().filter(|_| is_active) else {
            return self.forget_timer(context, token);
        };
        if !entry.advance(context.now()) {
            entry.is_active.store(false, Ordering::Release);
        }
        let mut scope = self.scope(context);
        if catch_unwind(AssertUnwindSafe(|| callback(&mut scope))).is_err() {
            self.state.panics += 1;
        }
        let Some(entry) = self.state.timers.get_mut(token) else {
            return;
        };
        if entry.is_active.load(Ordering::Acquire) {
            entry.callback = Some(callback);
            entry.arm(context, token);
        } else {
            self.forget_timer(context, token);
        }
    }

    fn forget_timer(&mut self, context: &mut Context, token: Token) {
        context.disarm(token);
        self.state.timers.remove(token);
    }
}
