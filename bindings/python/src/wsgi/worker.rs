//! A worker: takes requests and calls the app, on a thread that Python has made.

use super::environ::Environ;
use super::exchange::{StartResponse, Wrote};
use super::file::FileWrapper;
use super::hints::EarlyHints;
use super::input::Input;
use super::meeting::{Job, JobBody, Meeting};
use crate::web::answer::shared_bytes;
use bytes::Bytes;
use pyo3::exceptions::PyTypeError;
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict, PyList, PyTuple};
use std::sync::Arc;

/// One thread's share of the server.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) meeting: Arc<Meeting>,
    pub(super) app: Py<PyAny>,
    /// Called with an exception that an app has raised, and the environment of its request.
    pub(super) report: Py<PyAny>,
    pub(super) environ: Environ,
    pub(super) hints: Py<EarlyHints>,
}

impl Worker {
    /// Serves until the server ends.
    pub(super) fn run(&mut self, py: Python<'_>) {
        let _place = self.meeting.join();
        let mut had = false;
        loop {
            let job = match self.meeting.try_take(had) {
                Some(job) => job,
                None => match py.detach(|| self.meeting.take()) {
                    Some(job) => job,
                    None => break,
                },
            };
            self.serve(py, job);
            had = true;
        }
    }

    fn serve(&mut self, py: Python<'_>, mut job: Job) {
        let answer = StartResponse::new(Arc::clone(&job.owed), job.head.method() == b"HEAD");
        let Ok(answer) = Bound::new(py, answer) else {
            return;
        };
        let environ = self.environ(py, &mut job);
        self.hints.get().is_for(Some(Arc::clone(&job.owed)));
        let outcome = match &environ {
            Ok(environ) => self.call(py, environ, &answer),
            Err(error) => Err(error.clone_ref(py)),
        };
        self.hints.get().is_for(None);
        if let Err(error) = outcome {
            answer.get().fail();
            let environ = environ.ok();
            if let Err(error) = self.report.bind(py).call1((error, environ)) {
                error.write_unraisable(py, None);
            }
        }
    }

    fn environ<'py>(&mut self, py: Python<'py>, job: &mut Job) -> PyResult<Bound<'py, PyDict>> {
        let environ = self.environ.build(py, job)?;
        let body = std::mem::replace(&mut job.body, JobBody::Whole(Vec::new()));
        let input = match body {
            JobBody::Whole(body) => Input::whole(body),
            JobBody::Streamed => Input::streamed(Arc::clone(&job.owed)),
        };
        environ.set_item(intern!(py, "wsgi.input"), Bound::new(py, input)?)?;
        Ok(environ)
    }

    fn call(
        &self,
        py: Python<'_>,
        environ: &Bound<'_, PyDict>,
        answer: &Bound<'_, StartResponse>,
    ) -> PyResult<()> {
        let body = self.app.bind(py).call1((environ, answer))?;
        let sent = send(py, &body, answer.get());
        // Lists have no `close`; everything else is closed whatever has happened.
        if body.is_exact_instance_of::<PyList>() || body.is_exact_instance_of::<PyTuple>() {
            return sent;
        }
        match body.getattr_opt(intern!(py, "close")) {
            Ok(Some(close)) => sent.and(close.call0().map(|_| ())),
            Ok(None) => sent,
            Err(error) => sent.and(Err(error)),
        }
    }
}

/// Sends what an app has returned.
fn send(py: Python<'_>, body: &Bound<'_, PyAny>, answer: &StartResponse) -> PyResult<()> {
    if answer.is_unsent() {
        if let Some(whole) = only_piece(body) {
            return answer.send_whole(whole?);
        }
        if let Ok(file) = body.cast::<FileWrapper>()
            && let Some(slice) = file.get().slice(py)
        {
            return answer.send_file(slice);
        }
    }
    for piece in body.try_iter()? {
        let piece = piece?;
        let piece: PyBackedBytes = piece
            .cast::<PyBytes>()
            .map_err(|_| not_bytes(&piece))?
            .clone()
            .into();
        if answer.write(py, piece)? == Wrote::Gone {
            return Ok(());
        }
    }
    answer.finish()
}

/// The whole body, where an app has returned a list or tuple of one piece or none.
fn only_piece(body: &Bound<'_, PyAny>) -> Option<PyResult<Bytes>> {
    let piece = if let Ok(list) = body.cast_exact::<PyList>() {
        match list.len() {
            0 => return Some(Ok(Bytes::new())),
            1 => list.get_item(0),
            _ => return None,
        }
    } else if let Ok(tuple) = body.cast_exact::<PyTuple>() {
        match tuple.len() {
            0 => return Some(Ok(Bytes::new())),
            1 => tuple.get_item(0),
            _ => return None,
        }
    } else {
        return None;
    };
    Some(piece.and_then(|piece| match piece.cast::<PyBytes>() {
        Ok(bytes) => Ok(shared_bytes(bytes.clone().into())),
        Err(_) => Err(not_bytes(&piece)),
    }))
}

fn not_bytes(piece: &Bound<'_, PyAny>) -> PyErr {
    PyTypeError::new_err(format!("a body is made of bytes: {piece:?}"))
}
