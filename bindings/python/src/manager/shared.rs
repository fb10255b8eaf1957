//! State that a manager and its connections share.

use super::act::Act;
use super::cache::Cache;
use super::errand::{self, Reply};
use super::errors;
use super::frame::{self, Reached};
use super::message::HttpMessage;
use super::view::{Snapshot, View};
use dwell_engine::manager::{self as engine, Conn, Waker, WakeupError};
use pyo3::PyTraverseError;
use pyo3::exceptions::PyValueError;
use pyo3::gc::PyVisit;
use pyo3::prelude::*;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};
use std::thread::ThreadId;

/// The id that wakes a manager and belongs to no connection.
pub(super) const WAKEUP_ID: u64 = i64::MAX as u64;

/// The number of forks that led to this process, counted along its ancestors.
static FORKS: AtomicU64 = AtomicU64::new(0);

/// A child was forked off, and this is it.
pub(super) fn forked() {
    FORKS.fetch_add(1, Ordering::Relaxed);
}

/// A handler, and all connections that inherit it. The engine's closure owns it, so it lasts as
/// long as it is in use.
pub(super) struct Slot {
    handler: Mutex<Option<Py<PyAny>>>,
}

impl Slot {
    pub(super) fn new(handler: Option<Py<PyAny>>) -> Arc<Self> {
        Arc::new(Self {
            handler: Mutex::new(handler),
        })
    }

    pub(super) fn handler(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let handler = lock(&self.handler);
        handler.as_ref().map(|handler| handler.clone_ref(py))
    }
}

/// A manager but for its Python object: the connections have it too.
///
/// No Python code runs while one of its locks is held, as it may when objects are made and dropped.
/// The lock of the engine is the exception, for which no thread waits.
pub(super) struct Shared {
    engine: Mutex<Option<engine::Manager>>,
    /// The thread that has the engine.
    user: Mutex<Option<ThreadId>>,
    /// True while a thread polls, and so may hold the engine for long.
    pub(super) polls: AtomicBool,
    forks: u64,
    pub(super) waker: Waker,
    pub(super) default: Arc<Slot>,
    pub(super) error_handler: Mutex<Option<Py<PyAny>>>,
    /// Every slot in use, for the garbage collector.
    slots: Mutex<Vec<Weak<Slot>>>,
    /// The slots of those that were given one of their own.
    pub(super) own_slots: Mutex<HashMap<u64, Arc<Slot>>>,
    pub(super) timers: Mutex<HashMap<u64, Py<PyAny>>>,
    next_timer: AtomicU64,
    pub(super) cache: Cache,
    /// Requests that ask for a WebSocket, until it is open.
    pub(super) upgrading: Mutex<HashMap<u64, Snapshot>>,
    /// The exception that the poll under way is to raise.
    pub(super) raised: Mutex<Option<PyErr>>,
    /// A handler has closed the manager; it is done when all have returned.
    pub(super) close_asked: AtomicBool,
    /// Another loop polls, and has to hear of what is done between its polls.
    pub(super) wakes_after_calls: AtomicBool,
}

/// Reasons why the engine cannot be used.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Unavailable {
    /// It was closed.
    Freed,
    /// It belongs to the parent of this process.
    Forked,
    /// This thread polls, and a handler of it is running.
    Here,
    /// Another thread polls.
    Elsewhere,
    /// Another thread polls, and has had no time for a question.
    Busy,
}

/// The engine, while this thread alone has it.
pub(super) struct Engine<'s> {
    guard: MutexGuard<'s, Option<engine::Manager>>,
    user: &'s Mutex<Option<ThreadId>>,
}

impl Engine<'_> {
    /// Nothing where it was closed meanwhile.
    pub(super) fn manager(&mut self) -> Option<&mut engine::Manager> {
        self.guard.as_mut()
    }
}

impl Drop for Engine<'_> {
    fn drop(&mut self) {
        *lock(self.user) = None;
    }
}

impl Shared {
    pub(super) fn new(
        engine: engine::Manager,
        handler: Option<Py<PyAny>>,
        error_handler: Option<Py<PyAny>>,
    ) -> Arc<Self> {
        let default = Slot::new(handler);
        Arc::new(Self {
            waker: engine.waker(),
            engine: Mutex::new(Some(engine)),
            user: Mutex::default(),
            polls: AtomicBool::new(false),
            forks: FORKS.load(Ordering::Relaxed),
            slots: Mutex::new(vec![Arc::downgrade(&default)]),
            default,
            error_handler: Mutex::new(error_handler),
            own_slots: Mutex::default(),
            timers: Mutex::default(),
            next_timer: AtomicU64::new(1),
            cache: Cache::default(),
            upgrading: Mutex::default(),
            raised: Mutex::default(),
            close_asked: AtomicBool::new(false),
            wakes_after_calls: AtomicBool::new(false),
        })
    }

    /// Makes a slot for `handler`, or gives the manager's own where there is none.
    pub(super) fn slot(&self, handler: Option<Py<PyAny>>) -> Arc<Slot> {
        let Some(handler) = handler else {
            return Arc::clone(&self.default);
        };
        let slot = Slot::new(Some(handler));
        let mut slots = lock(&self.slots);
        if slots.len() == slots.capacity() {
            slots.retain(|slot| slot.strong_count() > 0);
        }
        slots.push(Arc::downgrade(&slot));
        slot
    }

    /// Keeps the callback of a timer, and numbers it.
    pub(super) fn add_timer(&self, callback: Py<PyAny>) -> u64 {
        let number = self.next_timer.fetch_add(1, Ordering::Relaxed);
        lock(&self.timers).insert(number, callback);
        number
    }

    /// Takes the engine, if it is free.
    pub(super) fn engine(&self) -> Result<Engine<'_>, Unavailable> {
        if self.forks != FORKS.load(Ordering::Relaxed) {
            return Err(Unavailable::Forked);
        }
        let guard = match self.engine.try_lock() {
            Ok(guard) => guard,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => {
                let here = *lock(&self.user) == Some(std::thread::current().id());
                return Err(if here {
                    Unavailable::Here
                } else {
                    Unavailable::Elsewhere
                });
            }
        };
        if guard.is_none() {
            return Err(Unavailable::Freed);
        }
        *lock(&self.user) = Some(std::thread::current().id());
        Ok(Engine {
            guard,
            user: &self.user,
        })
    }

    /// Takes the engine as [`engine`](Self::engine) does, but waits for a thread that has it for a
    /// moment; it does not wait for one that polls.
    pub(super) fn engine_soon(&self) -> Result<Engine<'_>, Unavailable> {
        loop {
            match self.engine() {
                Err(Unavailable::Elsewhere) if !self.polls.load(Ordering::Acquire) => {
                    Python::attach(|py| py.detach(std::thread::yield_now));
                }
                taken => return taken,
            }
        }
    }

    /// Takes the engine away for good.
    pub(super) fn take_engine(&self) -> Result<Option<engine::Manager>, Unavailable> {
        match self.engine_soon() {
            Ok(mut engine) => Ok(engine.guard.take()),
            Err(Unavailable::Freed) => Ok(None),
            Err(unavailable) => Err(unavailable),
        }
    }

    /// Returns true in the process that made the manager.
    pub(super) fn is_of_this_process(&self) -> bool {
        self.forks == FORKS.load(Ordering::Relaxed)
    }

    /// Does `act` on a connection: at once from handlers and while no thread polls, otherwise on
    /// the thread that polls.
    pub(super) fn act(&self, id: u64, act: Act<'_>) -> PyResult<()> {
        match self.reach(id, |conn| act.apply(conn), Self::engine) {
            Ok(Some(done)) => done.map_err(|error| errors::of_conn(&error)),
            Ok(None) | Err(Unavailable::Freed) => Err(errors::closed()),
            Err(Unavailable::Forked) => Err(errors::unavailable(Unavailable::Forked)),
            Err(_) => {
                let act = act.into_owned();
                // It is the connection's end that is told of what fails there.
                let queued = self.waker.run(id, move |conn| drop(act.apply(conn)));
                queued.map_err(errors::of_wakeup)
            }
        }
    }

    /// Queries a connection; nothing if it is gone. While another thread polls, the query runs on
    /// that thread.
    pub(super) fn ask<R: Send + 'static>(
        &self,
        id: u64,
        question: impl FnOnce(&mut Conn<'_>) -> R + Send + 'static,
    ) -> PyResult<Option<R>> {
        let mut question = Some(question);
        loop {
            let once = |conn: &mut Conn<'_>| question.take().map(|question| question(conn));
            match self.reach(id, once, Self::engine_soon) {
                Ok(answer) => return Ok(answer.flatten()),
                Err(Unavailable::Freed) => return Ok(None),
                Err(Unavailable::Elsewhere) => {}
                Err(unavailable) => return Err(errors::unavailable(unavailable)),
            }
            let Some(asked) = question.take() else {
                return Ok(None);
            };
            let reply = errand::ask(
                asked,
                |courier| {
                    let answer = |conn: &mut Conn<'_>| courier.deliver(|asked| asked(conn));
                    self.waker.run(id, answer)
                },
                || self.polls.load(Ordering::Acquire),
            );
            match reply {
                Ok(Reply::Answer(answer)) => return Ok(Some(answer)),
                Ok(Reply::Gone) | Err(WakeupError::Closed) => return Ok(None),
                Ok(Reply::Back(asked)) => question = Some(asked),
                Ok(Reply::Late) => return Err(errors::unavailable(Unavailable::Busy)),
                Err(error) => return Err(errors::of_wakeup(error)),
            }
        }
    }

    /// Asks as [`ask`](Self::ask) does, but only from handlers, or while no thread polls.
    pub(super) fn ask_near<R>(
        &self,
        id: u64,
        question: impl FnOnce(&mut Conn<'_>) -> R,
    ) -> PyResult<Option<R>> {
        match self.reach(id, question, Self::engine_soon) {
            Ok(answer) => Ok(answer),
            Err(Unavailable::Freed) => Ok(None),
            Err(unavailable) => Err(errors::unavailable(unavailable)),
        }
    }

    /// Calls `act` with the request that the running handler was shown, and a connection.
    pub(super) fn on_request<R>(
        &self,
        id: u64,
        message: &HttpMessage,
        act: impl FnOnce(&mut Conn<'_>, &View<'_>) -> R,
    ) -> PyResult<R> {
        let shown = frame::with_view(message.loan.serial(), |view| {
            self.ask_near(id, |conn| act(conn, view))
        });
        match shown {
            Some(done) => done?.ok_or_else(errors::closed),
            None => Err(PyValueError::new_err(
                "HttpMessage is no longer valid: its handler has returned",
            )),
        }
    }

    /// Calls `use_it` with a connection; nothing where it is gone.
    pub(super) fn reach<'s, R>(
        &'s self,
        id: u64,
        use_it: impl FnOnce(&mut Conn<'_>) -> R,
        engine: impl FnOnce(&'s Self) -> Result<Engine<'s>, Unavailable>,
    ) -> Result<Option<R>, Unavailable> {
        if id == 0 {
            return Ok(None);
        }
        let mut use_it = Some(use_it);
        let mut once = |conn: &mut Conn<'_>| use_it.take().map(|use_it| use_it(conn));
        match frame::with_conn(self, id, &mut once) {
            Reached::Done(result) => return Ok(result),
            Reached::Gone => return Ok(None),
            Reached::Absent => {}
        }
        let mut engine = engine(self)?;
        let conn = engine.manager().and_then(|manager| manager.conn(id));
        let used = conn.and_then(|mut conn| once(&mut conn));
        drop(engine);
        self.called();
        Ok(used)
    }

    /// Wakes the next poll after a call between two polls, for a host that waits elsewhere.
    pub(super) fn called(&self) {
        if self.wakes_after_calls.load(Ordering::Relaxed) {
            // One that is closed has no more polls.
            let _ = self.waker.wakeup();
        }
    }

    /// Forgets a connection that has ended: drops its state, and marks its object as closed.
    pub(super) fn forget(&self, py: Python<'_>, id: u64) {
        let slot = lock(&self.own_slots).remove(&id);
        drop(slot);
        lock(&self.upgrading).remove(&id);
        self.cache.forget(py, id);
    }

    /// Shows the garbage collector every Python object.
    pub(super) fn traverse(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        // A lock that is held leaves its objects unseen, so that they are not collected this time.
        if let Ok(slots) = self.slots.try_lock() {
            for slot in slots.iter().filter_map(Weak::upgrade) {
                if let Ok(handler) = slot.handler.try_lock() {
                    visit.call(&*handler)?;
                }
            }
        }
        if let Ok(handler) = self.error_handler.try_lock() {
            visit.call(&*handler)?;
        }
        if let Ok(timers) = self.timers.try_lock() {
            for callback in timers.values() {
                visit.call(callback)?;
            }
        }
        self.cache.traverse(visit)
    }

    /// Drops every Python object, and the engine with its sockets.
    pub(super) fn clear(&self, py: Python<'_>) {
        if let Ok(Some(engine)) = self.take_engine() {
            drop(engine);
        }
        let slots = std::mem::take(&mut *lock(&self.slots));
        for slot in slots.iter().filter_map(Weak::upgrade) {
            let handler = lock(&slot.handler).take();
            drop(handler);
        }
        let handler = lock(&self.error_handler).take();
        drop(handler);
        let timers = std::mem::take(&mut *lock(&self.timers));
        drop(timers);
        let own_slots = std::mem::take(&mut *lock(&self.own_slots));
        drop(own_slots);
        self.cache.clear(py);
    }
}

impl Drop for Shared {
    fn drop(&mut self) {
        if !self.is_of_this_process() {
            // The sockets are the parent's too, which would see them shut down.
            std::mem::forget(lock(&self.engine).take());
        }
    }
}

/// Locks what no code of others runs under, so that a panic has left nothing half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
