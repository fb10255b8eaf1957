//! The server: the engine's loop, turned by the loop of asyncio.

use super::awaitable::Done;
use super::face::{Arrival, AsgiFace, AsgiLine};
use super::http::HttpExchange;
use super::scope::Scopes;
use super::web_socket::WebSocketExchange;
use crate::web::listen;
use crate::web::options::Options;
use dwell_engine::desk::{DeskLoop, Line};
use dwell_evloop::{Context, EventLoop};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// An ASGI server on the running loop of asyncio; everything happens on that loop's thread.
#[pyclass(frozen, module = "dwell._native")]
pub(super) struct AsgiServer {
    core: Mutex<Core>,
    scopes: Mutex<Scopes>,
    /// Begins the task of a request: called with its scope and its exchange.
    start: Py<PyAny>,
    create_future: Py<PyAny>,
    call_soon: Py<PyAny>,
    call_later: Py<PyAny>,
    done: Py<Done>,
    armed: Mutex<Armed>,
    heads: Mutex<Heads>,
}

/// The engine's loop and what is on it.
struct Core {
    event_loop: EventLoop<()>,
    driver: DeskLoop<AsgiFace>,
    line: Arc<AsgiLine>,
}

/// The calls of the server that are scheduled on the asyncio loop.
#[derive(Default)]
struct Armed {
    /// `self.turn`, to be called by the loop; given up with the server.
    turn: Option<Py<PyAny>>,
    soon: bool,
    timer: Option<(Instant, Py<PyAny>)>,
    drained: Option<Py<PyAny>>,
}

/// Answers whose head waits for a body: a small answer leaves in one write.
///
/// Shape: what is still here when the app has given way to the loop is sent without one.
#[derive(Default)]
struct Heads {
    held: Vec<Py<HttpExchange>>,
    /// They are looked at when this turn of asyncio is over.
    is_armed: bool,
    /// `self.flush_heads`, to be called by the loop; given up with the server.
    flush: Option<Py<PyAny>>,
}

#[pymethods]
impl AsgiServer {
    /// Listens on `sockets`, pairs of a descriptor, which is taken over, and whether it is a unix
    /// socket.
    #[new]
    #[pyo3(signature = (event_loop, start, sockets, scopes, state=None, **options))]
    fn new(
        py: Python<'_>,
        event_loop: &Bound<'_, PyAny>,
        start: Py<PyAny>,
        sockets: Vec<(i32, bool)>,
        scopes: (Py<PyDict>, Py<PyDict>),
        state: Option<Py<PyDict>>,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = Arc::new(Options::of(options)?);
        let line = Arc::<AsgiLine>::default();
        let face = AsgiFace::new(Arc::clone(&options));
        let mut core = Core {
            event_loop: EventLoop::new()?,
            driver: DeskLoop::new(face, Arc::clone(&line), options.limits, options.web_socket)
                .h2c(options.h2c)
                .http2(options.http2)
                .take_connect(),
            line,
        };
        for (descriptor, is_unix) in sockets {
            let listener = listen::adopt(descriptor, is_unix, &options)?;
            let context = core.event_loop.context();
            core.driver.listen(context, listener)?;
        }
        Ok(Self {
            core: Mutex::new(core),
            scopes: Mutex::new(Scopes::new(
                scopes.0,
                scopes.1,
                state,
                options.mount.clone(),
            )),
            start,
            create_future: event_loop.getattr("create_future")?.unbind(),
            call_soon: event_loop.getattr("call_soon")?.unbind(),
            call_later: event_loop.getattr("call_later")?.unbind(),
            done: Py::new(py, Done)?,
            armed: Mutex::default(),
            heads: Mutex::default(),
        })
    }

    /// The descriptor that is readable when a turn has something to do.
    fn fileno(&self) -> i32 {
        self.core().event_loop.as_raw_fd()
    }

    /// Delivers what has happened; never waits.
    fn turn(slf: &Bound<'_, Self>) -> PyResult<()> {
        let this = slf.get();
        this.armed().soon = false;
        let arrivals = {
            let core = &mut *this.core();
            core.event_loop
                .turn(&mut core.driver, Some(Duration::ZERO))?;
            std::mem::take(&mut core.driver.face().arrivals)
        };
        // Tasks that run as they are made have given way when they are begun.
        this.heads().is_armed = true;
        let begun = arrivals
            .iter()
            .try_for_each(|arrival| this.begin(slf, arrival));
        this.send_heads();
        begun?;
        this.settle(slf)
    }

    /// The timer has come, which counts as armed no more: clocks differ, and it may be early.
    fn due(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get().armed().timer = None;
        Self::turn(slf)
    }

    /// Sends the heads of answers whose body has not come with them.
    fn flush_heads(slf: &Bound<'_, Self>) -> PyResult<()> {
        slf.get().send_heads();
        slf.get().settle(slf)
    }

    /// Stops accepting; `drained` is resolved when every client is gone.
    fn drain(slf: &Bound<'_, Self>, drained: Py<PyAny>) -> PyResult<()> {
        slf.get().armed().drained = Some(drained);
        {
            let core = &mut *slf.get().core();
            let context = core.event_loop.context();
            core.driver.drain(context, "server stops");
        }
        slf.get().turn_soon(slf)
    }

    /// Cuts off every client that is left.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        let woken = {
            let core = &mut *self.core();
            core.driver.close_all(core.event_loop.context());
            core.driver.face().log.flush();
            core.line.take_woken()
        };
        resolve_all(py, woken)?;
        // What is armed refers to this server, which would keep itself alive.
        let heads = std::mem::take(&mut *self.heads());
        drop(heads);
        let armed = std::mem::take(&mut *self.armed());
        if let Some((_, timer)) = armed.timer {
            timer.call_method0(py, intern!(py, "cancel"))?;
        }
        Ok(())
    }

    /// Connections that are open.
    fn connections(&self) -> usize {
        self.core().driver.connections()
    }
}

impl AsgiServer {
    /// Lets `act` work with the components, between turns.
    pub(super) fn with<T>(
        &self,
        act: impl FnOnce(&mut Context, &mut DeskLoop<AsgiFace>) -> T,
    ) -> T {
        let core = &mut *self.core();
        act(core.event_loop.context(), &mut core.driver)
    }

    /// A new future of the loop.
    pub(super) fn future<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        self.create_future.bind(py).call0()
    }

    /// An awaitable that is done.
    pub(super) fn done<'py>(&self, py: Python<'py>) -> Bound<'py, PyAny> {
        self.done.bind(py).clone().into_any()
    }

    /// Carries out what was ordered, resolves what has come true, and sees to it that the next
    /// turn comes when something is to be done.
    pub(super) fn settle(&self, own: &Bound<'_, Self>) -> PyResult<()> {
        let py = own.py();
        let (woken, wait, is_empty) = {
            let core = &mut *self.core();
            core.driver.look(core.event_loop.context());
            let wait = if core.line.attention().is_any() {
                Some(Duration::ZERO)
            } else {
                core.event_loop.wait_max()
            };
            let is_empty = core.driver.connections() == 0;
            (core.line.take_woken(), wait, is_empty)
        };
        resolve_all(py, woken)?;
        if is_empty && let Some(drained) = self.armed().drained.take() {
            resolve(drained.bind(py))?;
        }
        match wait {
            None => Ok(()),
            Some(Duration::ZERO) => self.turn_soon(own),
            Some(wait) => self.turn_later(own, wait),
        }
    }

    /// Keeps the head of an answer until its body comes, or the app gives way to the loop.
    pub(super) fn hold_head(
        &self,
        own: &Bound<'_, Self>,
        exchange: &Bound<'_, HttpExchange>,
    ) -> PyResult<()> {
        let py = own.py();
        let mut heads = self.heads();
        heads.held.push(exchange.clone().unbind());
        if std::mem::replace(&mut heads.is_armed, true) {
            return Ok(());
        }
        let flush = heads.flush.as_ref().map(|flush| flush.clone_ref(py));
        drop(heads);
        let flush = match flush {
            Some(flush) => flush,
            None => own.getattr(intern!(py, "flush_heads"))?.unbind(),
        };
        self.heads().flush = Some(flush.clone_ref(py));
        self.call_soon.bind(py).call1((flush,)).map(|_| ())
    }

    fn send_heads(&self) {
        let held = {
            let mut heads = self.heads();
            heads.is_armed = false;
            std::mem::take(&mut heads.held)
        };
        for exchange in held {
            exchange.get().flush_head();
        }
    }

    /// Returns true while a turn is to come at once.
    pub(super) fn is_due(&self) -> bool {
        self.armed().soon
    }

    fn turn_soon(&self, own: &Bound<'_, Self>) -> PyResult<()> {
        if std::mem::replace(&mut self.armed().soon, true) {
            return Ok(());
        }
        let turn = self.own_turn(own)?;
        self.call_soon.bind(own.py()).call1((turn,)).map(|_| ())
    }

    fn turn_later(&self, own: &Bound<'_, Self>, wait: Duration) -> PyResult<()> {
        let py = own.py();
        let now = Instant::now();
        let due = now + wait;
        let mut armed = self.armed();
        // A timer that is early finds nothing to do, and another one is armed.
        if let Some((at, _)) = &armed.timer
            && *at > now
            && *at <= due
        {
            return Ok(());
        }
        let before = armed.timer.take();
        drop(armed);
        if let Some((_, timer)) = before {
            timer.call_method0(py, intern!(py, "cancel"))?;
        }
        let come = own.getattr(intern!(py, "due"))?;
        let timer = self.call_later.bind(py).call1((wait.as_secs_f64(), come))?;
        self.armed().timer = Some((due, timer.unbind()));
        Ok(())
    }

    fn own_turn<'py>(&self, own: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        let py = own.py();
        if let Some(turn) = &self.armed().turn {
            return Ok(turn.bind(py).clone());
        }
        let turn = own.getattr(intern!(py, "turn"))?;
        self.armed().turn = Some(turn.clone().unbind());
        Ok(turn)
    }

    fn begin(&self, own: &Bound<'_, Self>, arrival: &Arrival) -> PyResult<()> {
        let py = own.py();
        let is_web_socket = arrival.web_socket.is_some();
        let scope = self
            .scopes
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .build(py, arrival, is_web_socket)?;
        let server = own.clone().unbind();
        let exchange = match &arrival.web_socket {
            None => Bound::new(py, HttpExchange::new(server, arrival))?.into_any(),
            Some(state) => {
                let exchange = WebSocketExchange::new(server, arrival, Arc::clone(state));
                Bound::new(py, exchange)?.into_any()
            }
        };
        self.start.bind(py).call1((scope, exchange)).map(|_| ())
    }

    fn core(&self) -> MutexGuard<'_, Core> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn heads(&self) -> MutexGuard<'_, Heads> {
        self.heads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn armed(&self) -> MutexGuard<'_, Armed> {
        self.armed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Resolves futures, but for the cancelled ones.
pub(super) fn resolve_all(py: Python<'_>, futures: Vec<Py<PyAny>>) -> PyResult<()> {
    for future in futures {
        resolve(future.bind(py))?;
    }
    Ok(())
}

/// Resolves a future, unless it is cancelled.
pub(super) fn resolve(future: &Bound<'_, PyAny>) -> PyResult<()> {
    let py = future.py();
    if future.call_method0(intern!(py, "done"))?.is_truthy()? {
        return Ok(());
    }
    future
        .call_method1(intern!(py, "set_result"), (py.None(),))
        .map(|_| ())
}
