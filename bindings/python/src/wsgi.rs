//! Applications that speak WSGI: a loop without the interpreter, and threads that call the app.
//!
//! Source: PEP 3333.

mod environ;
mod exchange;
mod face;
mod file;
mod hints;
mod input;
mod meeting;
mod uploads;
mod worker;

use crate::web::listen;
use crate::web::mount::Mount;
use crate::web::options::Options;
use dwell_engine::desk::DeskLoop;
use dwell_evloop::EventLoop;
use environ::Environ;
use face::WsgiFace;
use file::FileWrapper;
use hints::EarlyHints;
use meeting::Meeting;
use pyo3::exceptions::PyOSError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;
use worker::Worker;

/// A WSGI server in this process.
///
/// Shape: the loop runs on a thread of its own from the beginning; threads that call `work` serve.
#[pyclass(frozen, module = "dwell._native")]
#[derive(Debug)]
struct WsgiServer {
    meeting: Arc<Meeting>,
    app: Py<PyAny>,
    report: Py<PyAny>,
    base: Py<PyDict>,
    mount: Mount,
    thread: Mutex<Option<JoinHandle<io::Result<()>>>>,
    ended: Arc<(Mutex<bool>, Condvar)>,
}

#[pymethods]
impl WsgiServer {
    /// Listens on `sockets`, pairs of a descriptor, which is taken over, and whether it is a unix
    /// socket.
    #[new]
    #[pyo3(signature = (app, sockets, base, report, *, parallel=false, **options))]
    fn new(
        app: Py<PyAny>,
        sockets: Vec<(i32, bool)>,
        base: Py<PyDict>,
        report: Py<PyAny>,
        parallel: bool,
        options: Option<&Bound<'_, PyDict>>,
    ) -> PyResult<Self> {
        let options = Arc::new(Options::of(options)?);
        let mut event_loop = EventLoop::<()>::new()?;
        let sender = event_loop.sender();
        let meeting = Arc::new(Meeting::new(sender, &options, parallel));
        let face = WsgiFace::new(Arc::clone(&meeting), Arc::clone(&options));
        let line = Arc::clone(&meeting);
        let driver = DeskLoop::new(face, line, options.limits, options.web_socket);
        let mut driver = driver.h2c(options.h2c).http2(options.http2);
        for (descriptor, is_unix) in sockets {
            let listener = listen::adopt(descriptor, is_unix, &options)?;
            driver.listen(event_loop.context(), listener)?;
        }
        let ended = Arc::new((Mutex::new(false), Condvar::new()));
        let end = Arc::clone(&ended);
        let run = move || {
            let result = face::run(driver, &mut event_loop);
            *end.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            end.1.notify_all();
            result
        };
        let thread = std::thread::Builder::new()
            .name("dwell-wsgi".to_owned())
            .spawn(run)?;
        Ok(Self {
            meeting,
            app,
            report,
            base,
            mount: options.mount.clone(),
            thread: Mutex::new(Some(thread)),
            ended,
        })
    }

    /// Serves on the calling thread until the server ends.
    fn work(&self, py: Python<'_>) -> PyResult<()> {
        let hints = Py::new(py, EarlyHints::new())?;
        let base = self.base.bind(py).copy()?;
        base.set_item("wsgi.early_hints", &hints)?;
        let mut worker = Worker {
            meeting: Arc::clone(&self.meeting),
            app: self.app.clone_ref(py),
            report: self.report.clone_ref(py),
            environ: Environ::new(base.unbind(), self.mount.clone()),
            hints,
        };
        worker.run(py);
        Ok(())
    }

    /// The requests that wait for a thread, and the number of those that threads have taken so far.
    fn progress(&self) -> (usize, u64) {
        self.meeting.progress()
    }

    /// Stops accepting; ends when every client has its answer.
    fn drain(&self) {
        self.meeting.drain();
    }

    /// Ends at once.
    fn stop(&self) {
        self.meeting.stop();
    }

    /// Waits for `seconds` at most until the loop has ended; whether it has.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<bool> {
        let timeout = Duration::try_from_secs_f64(seconds.max(0.0))
            .map_err(|error| PyOSError::new_err(error.to_string()))?;
        let ended = py.detach(|| {
            let ended = self.ended.0.lock().unwrap_or_else(PoisonError::into_inner);
            let waited = self
                .ended
                .1
                .wait_timeout_while(ended, timeout, |ended| !*ended);
            *waited.unwrap_or_else(PoisonError::into_inner).0
        });
        let mut thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner);
        if ended && let Some(thread) = thread.take() {
            match thread.join() {
                Ok(result) => result?,
                Err(_) => return Err(PyOSError::new_err("the loop of the server has panicked")),
            }
        }
        Ok(ended)
    }
}

/// Adds what is here to the native module.
pub(crate) fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<WsgiServer>()?;
    module.add_class::<FileWrapper>()
}
