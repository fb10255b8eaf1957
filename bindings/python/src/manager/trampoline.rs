//! From the engine's callbacks to the handlers of a program.

use super::call::call;
use super::connection::Connection;
use super::events;
use super::frame;
use super::message::{HttpMessage, WsMessage};
use super::shared::{Shared, Slot, lock};
use super::view::View;
use dwell_engine::manager::{Conn, Event, EventKind};
use pyo3::exceptions::{PyBaseException, PyException};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict, PyString};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};

/// Begins the next run of numbers for the messages of all managers.
static NEXT_RUN: AtomicU64 = AtomicU64::new(1);
/// Numbers in a run.
const RUN: u64 = 1024;

/// Unused message objects, to be used again, and unused numbers for them.
#[derive(Default)]
struct Spares {
    http: Option<Py<HttpMessage>>,
    websocket: Option<Py<WsMessage>>,
    serials: std::ops::Range<u64>,
}

impl Spares {
    /// Returns a number that no message has had.
    fn serial(&mut self) -> u64 {
        if let Some(serial) = self.serials.next() {
            return serial;
        }
        let first = NEXT_RUN.fetch_add(RUN, Ordering::Relaxed);
        self.serials = first + 1..first + RUN;
        first
    }
}

/// The callback that the engine is given for the handler in `slot`.
pub(super) fn trampoline(
    shared: Weak<Shared>,
    slot: Arc<Slot>,
) -> impl FnMut(&mut Conn<'_>, Event<'_>) + Send + 'static {
    let mut spares = Spares::default();
    move |conn, event| {
        let Some(shared) = shared.upgrade() else {
            return;
        };
        Python::attach(|py| {
            let told = Told {
                py,
                shared: &shared,
                slot: &slot,
            };
            told.tell(conn, &event, &mut spares);
        });
    }
}

/// The values needed to call a handler for one event.
struct Told<'t, 'py> {
    py: Python<'py>,
    shared: &'t Arc<Shared>,
    slot: &'t Slot,
}

impl Told<'_, '_> {
    fn tell(&self, conn: &mut Conn<'_>, event: &Event<'_>, spares: &mut Spares) {
        if let Some(handler) = self.slot.handler(self.py)
            && let Err(error) = self.call(&handler, conn, event, spares)
        {
            self.shared.report(self.py, error);
            if matches!(
                event.kind(),
                EventKind::HttpHeaders
                    | EventKind::HttpMessage
                    | EventKind::HttpBody
                    | EventKind::Wakeup
            ) {
                // Refused where none is owed, or one was begun.
                let _ = conn.reply(500, &[], b"Internal Server Error\n");
            }
        }
        if event.kind() == EventKind::Close {
            self.shared.forget(self.py, conn.id());
        }
    }

    fn call(
        &self,
        handler: &Py<PyAny>,
        conn: &mut Conn<'_>,
        event: &Event<'_>,
        spares: &mut Spares,
    ) -> PyResult<()> {
        let py = self.py;
        let object = self.shared.cache.object(py, self.shared, conn.id())?;
        let kind = events::object(py, event.kind())?;
        let call = |conn: &mut Conn<'_>, serial, view: &View<'_>, data: &Bound<'_, PyAny>| {
            frame::with_handler(self.shared, self.slot, conn, (serial, view), || {
                call(handler.bind(py), [object.bind(py), kind, data]).map(drop)
            })
        };
        match event {
            Event::HttpHeaders(message) | Event::HttpMessage(message) => self
                .with_http(spares, |serial, data| {
                    call(conn, serial, &View::Http(message), data)
                }),
            Event::WebSocketOpen => {
                let request = lock(&self.shared.upgrading).remove(&conn.id());
                let view = request.as_ref().map_or(View::None, View::Request);
                self.with_http(spares, |serial, data| call(conn, serial, &view, data))
            }
            Event::WebSocketMessage { is_text, data } => {
                let flags = if *is_text { 0x81 } else { 0x82 };
                let view = View::WebSocket { flags, data };
                self.with_websocket(spares, |serial, data| call(conn, serial, &view, data))
            }
            Event::WebSocketControl { opcode, data } => {
                let flags = 0x80 | opcode;
                let view = View::WebSocket { flags, data };
                self.with_websocket(spares, |serial, data| call(conn, serial, &view, data))
            }
            Event::Wakeup(data) | Event::HttpBody { data, .. } => {
                call(conn, 0, &View::None, &PyBytes::new(py, data))
            }
            Event::Error(text) => call(conn, 0, &View::None, &PyString::new(py, text)),
            Event::Read { data, .. } => call(conn, 0, &View::Input(data), py.None().bind(py)),
            _ => call(conn, 0, &View::None, py.None().bind(py)),
        }
    }

    fn with_http(
        &self,
        spares: &mut Spares,
        call: impl FnOnce(u64, &Bound<'_, PyAny>) -> PyResult<()>,
    ) -> PyResult<()> {
        let message = match spares.http.take() {
            Some(message) => message,
            None => Py::new(self.py, HttpMessage::default())?,
        };
        let serial = spares.serial();
        message.get().loan.set(serial);
        let called = call(serial, message.bind(self.py).as_any());
        message.get().loan.set(0);
        spares.http = is_alone(self.py, &message).then_some(message);
        called
    }

    fn with_websocket(
        &self,
        spares: &mut Spares,
        call: impl FnOnce(u64, &Bound<'_, PyAny>) -> PyResult<()>,
    ) -> PyResult<()> {
        let message = match spares.websocket.take() {
            Some(message) => message,
            None => Py::new(self.py, WsMessage::default())?,
        };
        let serial = spares.serial();
        message.get().loan.set(serial);
        let called = call(serial, message.bind(self.py).as_any());
        message.get().loan.set(0);
        spares.websocket = is_alone(self.py, &message).then_some(message);
        called
    }
}

/// Returns true if no other reference to the object exists, and so none can appear.
pub(super) fn is_alone<T>(_: Python<'_>, object: &Py<T>) -> bool {
    #[expect(unsafe_code, reason = "the count of references has no safe function")]
    // SAFETY: `object` is alive, as it owns a reference, and this thread is attached.
    let count = unsafe { pyo3::ffi::Py_REFCNT(object.as_ptr()) };
    // Only the low half counts in CPython 3.14, which has flags in the other.
    count & 0xffff_ffff == 1
}

impl Shared {
    /// An exception has left a handler or callback: the error handler hears of it, or the log. One
    /// that is no `Exception`, such as `KeyboardInterrupt`, leaves the poll.
    pub(super) fn report(&self, py: Python<'_>, error: PyErr) {
        if !error.is_instance_of::<PyException>(py) {
            return self.raise_later(error);
        }
        let handler = {
            let handler = lock(&self.error_handler);
            handler.as_ref().map(|handler| handler.clone_ref(py))
        };
        // So that it has its traceback with it.
        let error = error.into_value(py).into_bound(py);
        let Some(handler) = handler else {
            return log(&error);
        };
        match handler.call1(py, (error,)) {
            Ok(_) => {}
            Err(error) if error.is_instance_of::<PyException>(py) => {
                log(error.into_value(py).bind(py));
            }
            Err(error) => self.raise_later(error),
        }
    }

    fn raise_later(&self, error: PyErr) {
        let later = {
            let mut raised = lock(&self.raised);
            match *raised {
                Some(_) => Some(error),
                None => raised.replace(error),
            }
        };
        // The first one counts.
        drop(later);
    }

    /// The object of a connection.
    pub(super) fn object(self: &Arc<Self>, py: Python<'_>, id: u64) -> PyResult<Py<Connection>> {
        self.cache.object(py, self, id)
    }
}

/// Logs an exception with its traceback, as `dwell`.
fn log(error: &Bound<'_, PyBaseException>) {
    let py = error.py();
    let logged = || -> PyResult<()> {
        let logger = py
            .import("logging")?
            .call_method1("getLogger", ("dwell",))?;
        let keywords = PyDict::new(py);
        keywords.set_item("exc_info", error)?;
        logger.call_method("error", ("exception in a handler",), Some(&keywords))?;
        Ok(())
    };
    if logged().is_err() {
        PyErr::from_value(error.clone().into_any()).print(py);
    }
}
