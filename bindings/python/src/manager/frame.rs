//! The part of the engine that a Python call can reach while a handler runs.
//!
//! The engine lends a handler its connection and the message for as long as the handler runs.
//! Python objects know no such terms, so they name the loan instead: a connection by its manager
//! and id, a message by a serial number. Each handler that runs has a [`Frame`] on the stack of
//! its thread, and the name is looked up there. On another thread, or when the handler has
//! returned, there is no such frame, and nothing is reached.

#![expect(
    unsafe_code,
    reason = "loans of a handler are kept as pointers, in a list that ends with the loan"
)]

use super::shared::{Shared, Slot};
use super::view::View;
use dwell_engine::manager::{Conn, Scope};
use std::cell::Cell;
use std::ptr::{from_mut, from_ref, null, null_mut};

thread_local! {
    /// The innermost frame of this thread, or null.
    static TOP: Cell<*const Frame> = const { Cell::new(null()) };
}

/// A handler or timer that runs.
struct Frame {
    shared: *const Shared,
    /// The connection the handler was called for; 0 for a timer.
    id: u64,
    /// Null for a timer, and while a call has it.
    conn: Cell<*mut Conn<'static>>,
    /// Null for a handler, and while a call has it.
    scope: Cell<*mut Scope<'static>>,
    /// Names the message; 0 where there is none.
    serial: u64,
    view: *const View<'static>,
    /// The slot of the running handler; null for a timer.
    slot: *const Slot,
    outer: *const Frame,
}

/// The result of looking for a connection.
pub(super) enum Reached<R> {
    /// It was there.
    Done(R),
    /// The manager is within reach, and has no such connection any more.
    Gone,
    /// Nothing of the manager is within reach of this thread's handlers.
    Absent,
}

/// Runs `body` while `conn` and the message `view` are within reach of this thread.
pub(super) fn with_handler<R>(
    shared: &Shared,
    slot: &Slot,
    conn: &mut Conn<'_>,
    (serial, view): (u64, &View<'_>),
    body: impl FnOnce() -> R,
) -> R {
    within(
        &Frame {
            shared: from_ref(shared),
            id: conn.id(),
            conn: Cell::new(from_mut(conn).cast()),
            scope: Cell::new(null_mut()),
            serial,
            view: from_ref(view).cast(),
            slot: from_ref(slot),
            outer: TOP.get(),
        },
        body,
    )
}

/// Runs `body`, of a timer, while `scope` is within reach of this thread.
pub(super) fn with_timer<R>(shared: &Shared, scope: &mut Scope<'_>, body: impl FnOnce() -> R) -> R {
    within(
        &Frame {
            shared: from_ref(shared),
            id: 0,
            conn: Cell::new(null_mut()),
            scope: Cell::new(from_mut(scope).cast()),
            serial: 0,
            view: null(),
            slot: null(),
            outer: TOP.get(),
        },
        body,
    )
}

fn within<R>(frame: &Frame, body: impl FnOnce() -> R) -> R {
    /// Takes the frame off the list, even when `body` panics.
    struct Leave(*const Frame);
    impl Drop for Leave {
        fn drop(&mut self) {
            TOP.set(self.0);
        }
    }
    let _leave = Leave(frame.outer);
    TOP.set(from_ref(frame));
    body()
}

/// Finds the innermost frame of this thread that `wanted` accepts.
fn find<R>(wanted: impl Fn(&Frame) -> bool, act: impl FnOnce(&Frame) -> R) -> Option<R> {
    let mut at = TOP.get();
    // SAFETY: `TOP` and each `outer` are null or point to a frame that was lent to a call of
    // `within` on this thread which has not returned: `Leave` takes it off the list before that,
    // so frames leave in the order opposite to that in which they came. Nothing moves a frame
    // that is lent, and nothing has a mutable reference to one.
    while let Some(frame) = unsafe { at.as_ref() } {
        if wanted(frame) {
            return Some(act(frame));
        }
        at = frame.outer;
    }
    None
}

/// Takes the pointer out of `cell` while `act` uses what it points to; nothing where it is null.
fn lend<T, R>(cell: &Cell<*mut T>, act: impl FnOnce(*mut T) -> R) -> Option<R> {
    struct Back<'c, T>(&'c Cell<*mut T>, *mut T);
    impl<T> Drop for Back<'_, T> {
        fn drop(&mut self) {
            self.0.set(self.1);
        }
    }
    let pointer = cell.replace(null_mut());
    let _back = Back(cell, pointer);
    (!pointer.is_null()).then(|| act(pointer))
}

/// Calls `act` with connection `id` of a manager that runs a handler on this thread.
pub(super) fn with_conn<R>(
    shared: &Shared,
    id: u64,
    act: impl FnOnce(&mut Conn<'_>) -> R,
) -> Reached<R> {
    let mut act = Some(act);
    let mut take = |conn: &mut Conn<'_>| act.take().map(|act| act(conn));
    let reached = with_frame(shared, |frame| {
        let own = lend(&frame.conn, |conn| {
            // SAFETY: `with_handler` was given a mutable reference that lives until its frame is
            // off the list, which it is not, and touches it no more. `lend` has the pointer out
            // of the frame, so no second reference is made while this one is used. `act` works
            // for a connection of any lifetime, so nothing of the true one can leave it.
            let conn = unsafe { &mut *conn };
            if frame.id == id {
                return take(conn);
            }
            conn.scope().conn(id).and_then(|mut conn| take(&mut conn))
        });
        own.or_else(|| {
            lend(&frame.scope, |scope| {
                // SAFETY: as above, for `with_timer`.
                let scope = unsafe { &mut *scope };
                scope.conn(id).and_then(|mut conn| take(&mut conn))
            })
        })
    });
    match reached.flatten() {
        Some(Some(result)) => Reached::Done(result),
        Some(None) => Reached::Gone,
        None => Reached::Absent,
    }
}

/// Calls `act` with the manager that runs a handler on this thread.
pub(super) fn with_scope<R>(shared: &Shared, act: impl FnOnce(&mut Scope<'_>) -> R) -> Option<R> {
    let mut act = Some(act);
    let mut take = |scope: &mut Scope<'_>| act.take().map(|act| act(scope));
    with_frame(shared, |frame| {
        // SAFETY: as in `with_conn`.
        let own = lend(&frame.conn, |conn| take(&mut unsafe { &mut *conn }.scope()));
        // SAFETY: as in `with_conn`.
        own.or_else(|| lend(&frame.scope, |scope| take(unsafe { &mut *scope })))
    })
    .flatten()
    .flatten()
}

/// Returns true if a handler or timer of this manager runs on this thread.
pub(super) fn is_within(shared: &Shared) -> bool {
    with_frame(shared, |_| ()).is_some()
}

/// Calls `act` with the message of this number, while its handler runs on this thread.
pub(super) fn with_view<R>(serial: u64, act: impl FnOnce(&View<'_>) -> R) -> Option<R> {
    if serial == 0 {
        return None;
    }
    find(
        |frame| frame.serial == serial,
        // SAFETY: a frame with a serial is made by `with_handler` alone, whose view lives until
        // the frame is off the list, and is only ever read. `act` works for a view of any
        // lifetime, so nothing of the true one can leave it.
        |frame| act(unsafe { &*frame.view }),
    )
}

/// Calls `act` with the received bytes of raw connection `id`, while its handler runs.
pub(super) fn with_input<R>(shared: &Shared, id: u64, act: impl FnOnce(&[u8]) -> R) -> Option<R> {
    find(
        |frame| std::ptr::eq(frame.shared, shared) && frame.id == id,
        // SAFETY: as in `with_view`; a frame with an id is made by `with_handler` alone.
        |frame| match unsafe { &*frame.view } {
            View::Input(data) => Some(act(data)),
            _ => None,
        },
    )
    .flatten()
}

/// Calls `act` with the slot of the handler that runs for connection `id`.
pub(super) fn with_slot<R>(shared: &Shared, id: u64, act: impl FnOnce(&Slot) -> R) -> Option<R> {
    find(
        |frame| std::ptr::eq(frame.shared, shared) && frame.id == id,
        // SAFETY: as in `with_view`, for the slot.
        |frame| act(unsafe { &*frame.slot }),
    )
}

fn with_frame<R>(shared: &Shared, act: impl FnOnce(&Frame) -> R) -> Option<R> {
    find(|frame| std::ptr::eq(frame.shared, shared), act)
}
