//! The poll API: `Manager` and what belongs to it.

mod act;
mod cache;
mod call;
mod connection;
mod errand;
mod errors;
mod events;
mod files;
mod frame;
mod limits;
mod message;
mod shared;
mod signals;
mod timer;
mod tls;
mod trampoline;
mod values;
mod view;

use connection::Connection;
use dwell_engine::manager::{self as engine, ManagerError, Scope};
use dwell_engine::tls::{Tls, TlsClient};
use errand::Reply;
use message::{HttpMessage, WsMessage};
use pyo3::exceptions::{PyNotImplementedError, PyOverflowError, PyRuntimeError, PyValueError};
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyCFunction, PyDict, PyTuple};
use shared::{Shared, Unavailable, WAKEUP_ID, lock};
use signals::{Handlers, SignalWakeup};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use timer::Timer;
use tls::TlsOpts;
pub(crate) use tls::refused as tls_refused;
use trampoline::trampoline;

/// Adds what is here to the native module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let py = module.py();
    module.add_class::<Manager>()?;
    module.add_class::<Connection>()?;
    module.add_class::<HttpMessage>()?;
    module.add_class::<WsMessage>()?;
    module.add_class::<Timer>()?;
    module.add_class::<TlsOpts>()?;
    for (class, names, hint) in LEFT_OUT {
        let class = module.getattr(*class)?;
        for name in *names {
            class.setattr(*name, left_out(py, name, hint)?)?;
        }
    }
    let keywords = PyDict::new(py);
    let forked = PyCFunction::new_closure(py, None, None, |_, _| shared::forked())?;
    keywords.set_item("after_in_child", forked)?;
    py.import("os")?
        .call_method("register_at_fork", (), Some(&keywords))?;
    Ok(())
}

/// Methods of the reference that are not here, and what there is instead.
const LEFT_OUT: &[(&str, &[&str], &str)] = &[
    ("Manager", &["mqtt_connect", "mqtt_listen"], MQTT),
    ("Manager", &["sntp_connect"], SNTP),
    (
        "Connection",
        &[
            "mqtt_disconnect",
            "mqtt_ping",
            "mqtt_pong",
            "mqtt_pub",
            "mqtt_sub",
            "mqtt_unsub",
        ],
        MQTT,
    ),
    ("Connection", &["sntp_request"], SNTP),
    ("Connection", &["tls_init", "tls_free"], TLS),
    ("Connection", &["resolve", "resolve_cancel"], RESOLVE),
];

const MQTT: &str = "MQTT is not part of dwell; paho-mqtt or aiomqtt speak it";
const SNTP: &str = "SNTP is not part of dwell; ntplib speaks it";
const TLS: &str =
    "give tls=TlsOpts(..) to listen() or connect() of the Manager, use https:// or wss://";
const RESOLVE: &str = "names are resolved by connect(); for others there is socket.getaddrinfo()";

/// Makes a function that raises the name of its replacement.
fn left_out<'py>(
    py: Python<'py>,
    name: &'static str,
    hint: &'static str,
) -> PyResult<Bound<'py, PyCFunction>> {
    PyCFunction::new_closure(py, None, None, move |_, _| -> PyResult<()> {
        Err(PyNotImplementedError::new_err(format!("{name}(): {hint}")))
    })
}

/// Refuses what cannot be called.
fn callable(handler: Option<Bound<'_, PyAny>>) -> PyResult<Option<Py<PyAny>>> {
    match handler {
        Some(handler) if !handler.is_callable() => {
            Err(errors::wrong_type("a callable or None", &handler))
        }
        handler => Ok(handler.map(Bound::unbind)),
    }
}

/// An event loop that the caller polls.
#[pyclass(frozen, weakref, module = "dwell", name = "Manager")]
pub(crate) struct Manager {
    shared: Arc<Shared>,
    signals: Mutex<SignalWakeup>,
}

#[pymethods]
impl Manager {
    #[new]
    #[pyo3(signature = (
        handler=None, enable_wakeup=false, error_handler=None, *, events=None, **limits
    ))]
    fn new(
        py: Python<'_>,
        handler: Option<Bound<'_, PyAny>>,
        enable_wakeup: bool,
        error_handler: Option<Bound<'_, PyAny>>,
        events: Option<&Bound<'_, PyAny>>,
        limits: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        // Wake-ups cost nothing until they are used.
        let _ = enable_wakeup;
        let mut options = limits::options_of(limits)?;
        if let Some(events) = events {
            options.events = events::event_set(events)?;
        }
        let handler = callable(handler)?;
        let error_handler = callable(error_handler)?;
        let manager = engine::Manager::with_options(options, |_, _| {});
        let manager = manager.map_err(|error| errors::of_manager(py, error))?;
        Ok(Self {
            shared: Shared::new(manager, handler, error_handler),
            signals: Mutex::default(),
        })
    }

    /// Listens on a URL: `http://`, `ws://` or `tcp://` and `host:port`, or `unix:///path` or
    /// `http+unix:///path`; with `tls` on `https://` or `wss://`.
    #[pyo3(signature = (url, handler=None, *, http=None, tls=None))]
    fn listen(
        &self,
        py: Python<'_>,
        url: &str,
        handler: Option<Bound<'_, PyAny>>,
        http: Option<bool>,
        tls: Option<&TlsOpts>,
    ) -> PyResult<Py<Connection>> {
        let opening = match tls {
            Some(tls) => Opening::ListenTls(tls.server()?),
            None => Opening::Listen,
        };
        self.open(py, opening, url, handler, http)
    }

    /// Starts to connect; `CONNECT`, or `ERROR` and `CLOSE`, follow in a poll.
    #[pyo3(signature = (url, handler=None, *, http=None, tls=None))]
    fn connect(
        &self,
        py: Python<'_>,
        url: &str,
        handler: Option<Bound<'_, PyAny>>,
        http: Option<bool>,
        tls: Option<&TlsOpts>,
    ) -> PyResult<Py<Connection>> {
        let opening = Opening::Connect(tls.map(TlsOpts::client).transpose()?);
        self.open(py, opening, url, handler, http)
    }

    /// Starts to connect as a WebSocket; `WS_OPEN`, or `ERROR` and `CLOSE`, follow in a poll.
    #[pyo3(signature = (url, handler=None, *, tls=None))]
    fn ws_connect(
        &self,
        py: Python<'_>,
        url: &str,
        handler: Option<Bound<'_, PyAny>>,
        tls: Option<&TlsOpts>,
    ) -> PyResult<Py<Connection>> {
        let opening = Opening::WebSocket(tls.map(TlsOpts::client).transpose()?);
        self.open(py, opening, url, handler, None)
    }

    /// Waits once, and calls the handlers for all events.
    #[pyo3(signature = (timeout_ms=0))]
    fn poll(&self, py: Python<'_>, timeout_ms: i64) -> PyResult<()> {
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        if timeout_ms != 0 && self.hear_signals(py)? {
            py.check_signals()?;
        }
        let mut engine = self.shared.engine_soon().map_err(errors::not_reentrant)?;
        let manager = engine.manager().ok_or_else(errors::freed)?;
        self.shared.polls.store(true, Ordering::Release);
        let polled = manager.poll_around(timeout, &mut |wait| py.detach(&mut *wait));
        self.shared.polls.store(false, Ordering::Release);
        drop(engine);
        self.shared.cache.sweep(py);
        self.conclude(py)?;
        polled.map_err(|error| errors::of_manager(py, error))?;
        py.check_signals()
    }

    /// Polls until SIGINT or SIGTERM comes or a handler closes the manager, then closes it.
    #[pyo3(signature = (poll_ms=100))]
    fn run(&self, py: Python<'_>, poll_ms: i64) -> PyResult<()> {
        // Refused in a handler, or while another thread polls: the manager is theirs to close.
        drop(self.shared.engine_soon().map_err(errors::not_reentrant)?);
        let stopped = Arc::new(AtomicBool::new(false));
        let stop = Arc::clone(&stopped);
        let callback = PyCFunction::new_closure(py, None, None, move |_, _| {
            stop.store(true, Ordering::Relaxed);
        })?;
        let handlers = Handlers::install(py, &callback)?;
        let mut outcome = Ok(());
        while outcome.is_ok() && !stopped.load(Ordering::Relaxed) && !self.is_closed() {
            outcome = self.poll(py, poll_ms);
        }
        let restored = handlers.restore();
        let closed = self.close(py);
        outcome.and(restored).and(closed)
    }

    /// Ends the poll under way, or the next one at once; from any thread.
    #[pyo3(signature = (connection_id=None, data=None))]
    fn wakeup(
        &self,
        connection_id: Option<i64>,
        data: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<bool> {
        if !self.shared.is_of_this_process() {
            return Err(errors::unavailable(Unavailable::Forked));
        }
        let data = data.map_or(Ok(Vec::new()), values::binary_of)?;
        let id = connection_id.map(u64::try_from).transpose();
        let id = id.map_err(|_| PyOverflowError::new_err("connection id is negative"))?;
        if self.is_closed() {
            return Err(errors::freed());
        }
        let woken = match id {
            Some(0) => return Ok(false),
            None | Some(WAKEUP_ID) => self.shared.waker.wakeup(),
            Some(id) => self.shared.waker.wakeup_with(id, data),
        };
        woken.map_err(errors::of_wakeup)?;
        Ok(true)
    }

    /// An id that `wakeup` takes and no connection has.
    #[getter]
    #[expect(clippy::unused_self, reason = "a property of every manager")]
    fn wakeup_id(&self) -> u64 {
        WAKEUP_ID
    }

    /// Has `callback` called after a time, never early, and at most 20 ms and a turn late.
    #[pyo3(signature = (milliseconds, callback, *, repeat=false, run_now=false))]
    fn timer_add(
        &self,
        milliseconds: i64,
        callback: Bound<'_, PyAny>,
        repeat: bool,
        run_now: bool,
    ) -> PyResult<Timer> {
        let delay = u64::try_from(milliseconds).map_err(|_| {
            PyValueError::new_err(format!("milliseconds is negative: {milliseconds}"))
        })?;
        if !callback.is_callable() {
            return Err(errors::wrong_type("a callable", &callback));
        }
        if self.is_closed() {
            return Err(errors::freed());
        }
        let number = self.shared.add_timer(callback.unbind());
        let weak = Arc::downgrade(&self.shared);
        let start = move |scope: &mut Scope<'_>| {
            let ring = move |scope: &mut Scope<'_>| {
                if let Some(shared) = weak.upgrade() {
                    Python::attach(|py| shared.ring(py, scope, number, !repeat));
                }
            };
            let delay = Duration::from_millis(delay);
            match (run_now, repeat) {
                (true, false) => scope.timer(Duration::ZERO, false, ring),
                (true, true) => {
                    scope.timer(Duration::ZERO, false, ring.clone());
                    scope.timer(delay, true, ring)
                }
                (false, _) => scope.timer(delay, repeat, ring),
            }
        };
        match self.with_scope(start) {
            Ok(timer) => Ok(Timer::new(timer, &self.shared, number)),
            Err(why) => {
                let callback = lock(&self.shared.timers).remove(&number);
                drop(callback);
                Err(why)
            }
        }
    }

    /// All connections and listeners as they are now; none of a closed manager.
    #[getter]
    fn connections<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let ids = match self.with_scope(|scope| scope.connections()) {
            Ok(ids) => ids,
            Err(_) if self.is_closed() => Vec::new(),
            Err(why) => return Err(why),
        };
        let objects = ids.into_iter().map(|id| self.shared.object(py, id));
        PyTuple::new(py, objects.collect::<PyResult<Vec<_>>>()?)
    }

    /// A descriptor, for other loops, that is readable when `poll(0)` has an event.
    fn fileno(&self) -> PyResult<i32> {
        let mut engine = self.shared.engine_soon().map_err(errors::unavailable)?;
        let manager = engine.manager().ok_or_else(errors::freed)?;
        manager.fileno().map_err(|_| errors::freed())
    }

    /// Seconds until `poll(0)` is due although the descriptor is not readable.
    fn wait_max(&self) -> PyResult<Option<f64>> {
        let mut engine = self.shared.engine_soon().map_err(errors::unavailable)?;
        let manager = engine.manager().ok_or_else(errors::freed)?;
        let wait = manager.wait_max().map_err(|_| errors::freed())?;
        Ok(wait.map(|wait| wait.as_secs_f64()))
    }

    /// Makes every call between two polls, and each signal, end the next wait, for a host that
    /// waits elsewhere: in C code, it hears of no signal that has come just before.
    fn _wake_after_calls(&self, py: Python<'_>) -> PyResult<()> {
        self.shared.wakes_after_calls.store(true, Ordering::Relaxed);
        self.hear_signals(py)?;
        py.check_signals()
    }

    /// True after `close`.
    #[getter(closed)]
    fn is_closed(&self) -> bool {
        self.shared.waker.is_closed()
    }

    /// Stops listening, sends queued output, for a second at most, and calls all handlers with
    /// `CLOSE`.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if !self.shared.is_of_this_process() {
            return Ok(());
        }
        if frame::is_within(&self.shared) {
            self.shared.close_asked.store(true, Ordering::Relaxed);
            return Ok(());
        }
        match self.shared.take_engine() {
            Ok(Some(engine)) => self.shut(py, engine),
            Ok(None) => Ok(()),
            Err(_) => Err(PyRuntimeError::new_err(
                "Cannot close Manager while poll() is active in another thread; \
                 have a handler close it, or stop polling first",
            )),
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exception))]
    fn __exit__(&self, py: Python<'_>, _exception: &Bound<'_, PyTuple>) -> PyResult<bool> {
        self.close(py)?;
        Ok(false)
    }

    fn __repr__(&self) -> String {
        match self.near(|scope| scope.connections().len()) {
            Ok(connections) => format!("<Manager connections={connections}>"),
            Err(Unavailable::Freed) => "<Manager closed>".to_owned(),
            Err(_) => "<Manager polling>".to_owned(),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        self.shared.traverse(visit)
    }

    fn __clear__(&self) {
        Python::attach(|py| self.abandon(py));
    }
}

/// Kinds of openings: `listen` and its variants.
#[derive(Clone)]
enum Opening {
    Listen,
    ListenTls(Tls),
    Connect(Option<TlsClient>),
    WebSocket(Option<TlsClient>),
}

impl Manager {
    fn open(
        &self,
        py: Python<'_>,
        opening: Opening,
        url: &str,
        handler: Option<Bound<'_, PyAny>>,
        http: Option<bool>,
    ) -> PyResult<Py<Connection>> {
        let own = callable(handler)?;
        let is_own = own.is_some();
        let slot = self.shared.slot(own);
        let target = with_protocol(url, http);
        let handler = trampoline(Arc::downgrade(&self.shared), Arc::clone(&slot));
        let verb = opening.verb();
        let opened = self.with_scope(move |scope| match opening {
            Opening::Listen => scope.listen_with(&target, handler),
            Opening::ListenTls(tls) => scope.listen_tls_with(&target, &tls, handler),
            Opening::Connect(None) => scope.connect_with(&target, handler),
            Opening::Connect(Some(tls)) => scope.connect_tls_with(&target, &tls, handler),
            Opening::WebSocket(tls) => ws_connect(scope, &target, tls.as_ref(), handler),
        })?;
        if frame::is_within(&self.shared) || !self.shared.polls.load(Ordering::Acquire) {
            self.conclude(py)?;
        }
        let id = opened.map_err(|error| match error {
            ManagerError::Url { fault, .. } => errors::of_url(py, verb, url, &fault),
            error => errors::of_manager(py, error),
        })?;
        if is_own {
            lock(&self.shared.own_slots).insert(id, slot);
        }
        self.shared.object(py, id)
    }

    /// Calls `act` with the manager: at once from a handler or while no thread polls, else on the
    /// thread that polls.
    fn with_scope<R: Send + 'static>(
        &self,
        act: impl FnOnce(&mut Scope<'_>) -> R + Send + 'static,
    ) -> PyResult<R> {
        let mut act = Some(act);
        loop {
            let once = |scope: &mut Scope<'_>| act.take().map(|act| act(scope));
            match self.near(once) {
                Ok(Some(result)) => return Ok(result),
                Ok(None) => return Err(errors::unavailable(Unavailable::Here)),
                Err(Unavailable::Elsewhere) => {}
                Err(unavailable) => return Err(errors::unavailable(unavailable)),
            }
            let Some(asked) = act.take() else {
                return Err(errors::unavailable(Unavailable::Here));
            };
            let reply = errand::ask(
                asked,
                |courier| {
                    let call = |scope: &mut Scope<'_>| courier.deliver(|asked| asked(scope));
                    self.shared.waker.call(call)
                },
                || self.shared.polls.load(Ordering::Acquire),
            );
            match reply.map_err(errors::of_wakeup)? {
                Reply::Answer(result) => return Ok(result),
                Reply::Gone => return Err(errors::freed()),
                Reply::Back(asked) => act = Some(asked),
                Reply::Late => return Err(errors::unavailable(Unavailable::Busy)),
            }
        }
    }

    /// Calls `act` with the manager, from a handler or while no thread polls.
    fn near<R>(&self, act: impl FnOnce(&mut Scope<'_>) -> R) -> Result<R, Unavailable> {
        let mut act = Some(act);
        let mut once = |scope: &mut Scope<'_>| act.take().map(|act| act(scope));
        if let Some(Some(result)) = frame::with_scope(&self.shared, &mut once) {
            return Ok(result);
        }
        let mut engine = self.shared.engine_soon()?;
        let manager = engine.manager().ok_or(Unavailable::Freed)?;
        let result = manager.call(&mut once).map_err(|_| Unavailable::Freed)?;
        drop(engine);
        self.shared.called();
        result.ok_or(Unavailable::Here)
    }

    /// Has signals end waits from now on; true where they did not before.
    fn hear_signals(&self, py: Python<'_>) -> PyResult<bool> {
        let Ok(mut signals) = self.signals.try_lock() else {
            return Ok(false);
        };
        if !signals.is_to_ask() {
            return Ok(false);
        }
        let mut engine = self.shared.engine_soon().map_err(errors::not_reentrant)?;
        signals.ensure(py, engine.manager().ok_or_else(errors::freed)?)
    }

    /// Does and raises what handlers have left to be done and raised.
    fn conclude(&self, py: Python<'_>) -> PyResult<()> {
        if self.shared.close_asked.load(Ordering::Relaxed)
            && !frame::is_within(&self.shared)
            && let Ok(Some(engine)) = self.shared.take_engine()
        {
            self.shut(py, engine)?;
        }
        let raised = lock(&self.shared.raised).take();
        raised.map_or(Ok(()), Err)
    }

    /// Closes the engine, and calls its handlers.
    fn shut(&self, py: Python<'_>, mut engine: engine::Manager) -> PyResult<()> {
        // What is queued may take a while to go out; other threads run meanwhile.
        py.detach(|| engine.close());
        drop(engine);
        self.abandon(py);
        let raised = lock(&self.shared.raised).take();
        raised.map_or(Ok(()), Err)
    }

    /// Drops everything.
    fn abandon(&self, py: Python<'_>) {
        if let Ok(mut signals) = self.signals.try_lock() {
            signals.release(py);
        }
        self.shared.clear(py);
    }
}

impl Drop for Manager {
    fn drop(&mut self) {
        Python::attach(|py| self.abandon(py));
    }
}

impl Opening {
    fn verb(&self) -> &'static str {
        match self {
            Self::Listen | Self::ListenTls(_) => "listen on",
            Self::Connect(_) | Self::WebSocket(_) => "connect to",
        }
    }
}

impl Shared {
    /// Calls the callback of a timer.
    fn ring(&self, py: Python<'_>, scope: &mut Scope<'_>, number: u64, is_last: bool) {
        let callback = {
            let mut timers = lock(&self.timers);
            if is_last {
                timers.remove(&number)
            } else {
                timers.get(&number).map(|callback| callback.clone_ref(py))
            }
        };
        let Some(callback) = callback else { return };
        let called = frame::with_timer(self, scope, || callback.call0(py));
        if let Err(error) = called {
            self.report(py, error);
        }
    }
}

fn ws_connect(
    scope: &mut Scope<'_>,
    url: &str,
    tls: Option<&TlsClient>,
    handler: impl FnMut(&mut engine::Conn<'_>, engine::Event<'_>) + Send + 'static,
) -> Result<u64, ManagerError> {
    let id = match tls {
        Some(tls) => scope.ws_connect_tls(url, tls)?,
        None => scope.ws_connect(url)?,
    };
    if let Some(mut conn) = scope.conn(id) {
        conn.set_handler(handler);
    }
    Ok(id)
}

/// Returns the URL with its protocol replaced by that of `http`, if given.
fn with_protocol(url: &str, http: Option<bool>) -> String {
    let Some((scheme, rest)) = url.split_once("://") else {
        return url.to_owned();
    };
    let wanted = match (http, scheme) {
        (Some(true), "tcp") => "http",
        (Some(true), "tls") => "https",
        (Some(false), "http" | "ws") => "tcp",
        (Some(false), "https" | "wss") => "tls",
        _ => scheme,
    };
    format!("{wanted}://{rest}")
}
