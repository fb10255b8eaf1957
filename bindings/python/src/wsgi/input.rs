//! `wsgi.input`: the body of a request as a file.

use super::meeting::Meeting;
use dwell_engine::desk::{BodyRead, Owed};
use memchr::memchr;
use pyo3::exceptions::PyConnectionError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The body of a request, read as it comes.
#[pyclass(frozen, module = "dwell.wsgi")]
#[derive(Debug)]
pub(super) struct Input {
    source: Option<Arc<Owed<Meeting>>>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    buffer: Vec<u8>,
    position: usize,
    ended: bool,
}

/// The amount that a reader wants.
#[derive(Clone, Copy)]
enum Want {
    All,
    Bytes(usize),
    /// A line, of so many bytes at most.
    Line(usize),
}

impl Input {
    pub(super) fn whole(body: Vec<u8>) -> Self {
        let state = State {
            buffer: body,
            position: 0,
            ended: true,
        };
        Self {
            source: None,
            state: Mutex::new(state),
        }
    }

    pub(super) fn streamed(owed: Arc<Owed<Meeting>>) -> Self {
        Self {
            source: Some(owed),
            state: Mutex::default(),
        }
    }

    fn take<'py>(&self, py: Python<'py>, want: Want) -> PyResult<Bound<'py, PyBytes>> {
        loop {
            let mut state = self.lock();
            if let Some(length) = state.has(want) {
                return Ok(state.consume(py, length));
            }
            drop(state);
            self.receive(py)?;
        }
    }

    /// Adds what comes next to the buffer; waits for it without the interpreter.
    fn receive(&self, py: Python<'_>) -> PyResult<()> {
        let Some(source) = &self.source else {
            self.lock().ended = true;
            return Ok(());
        };
        let read = match source.read_body(None) {
            BodyRead::Later => py.detach(|| source.wait_body()),
            read => read,
        };
        match read {
            BodyRead::Data(data, _) => {
                let mut state = self.lock();
                state.make_room();
                state.buffer.extend_from_slice(&data);
            }
            BodyRead::End | BodyRead::Later => self.lock().ended = true,
            BodyRead::Gone => {
                let text = "the client left before its request body was complete";
                return Err(PyConnectionError::new_err(text));
            }
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl Input {
    /// Reads `size` bytes, fewer only at the end; all of them for a negative size.
    #[pyo3(signature = (size=-1, /))]
    fn read<'py>(&self, py: Python<'py>, size: Option<isize>) -> PyResult<Bound<'py, PyBytes>> {
        let want = usize::try_from(size.unwrap_or(-1)).map_or(Want::All, Want::Bytes);
        self.take(py, want)
    }

    /// Reads a line, or `size` bytes of it.
    #[pyo3(signature = (size=-1, /))]
    fn readline<'py>(&self, py: Python<'py>, size: Option<isize>) -> PyResult<Bound<'py, PyBytes>> {
        let size = usize::try_from(size.unwrap_or(-1)).unwrap_or(usize::MAX);
        self.take(py, Want::Line(size))
    }

    /// Reads the lines that are left, `hint` bytes of them or a little more.
    #[pyo3(signature = (hint=-1, /))]
    fn readlines<'py>(
        &self,
        py: Python<'py>,
        hint: Option<isize>,
    ) -> PyResult<Vec<Bound<'py, PyBytes>>> {
        let hint = usize::try_from(hint.unwrap_or(-1))
            .ok()
            .filter(|hint| *hint > 0);
        let mut lines = Vec::new();
        let mut total = 0;
        while hint.is_none_or(|hint| total < hint) {
            let line = self.take(py, Want::Line(usize::MAX))?;
            if line.as_bytes().is_empty() {
                break;
            }
            total += line.as_bytes().len();
            lines.push(line);
        }
        Ok(lines)
    }

    fn __iter__(slf: PyRef<'_, Self>) -> PyRef<'_, Self> {
        slf
    }

    fn __next__<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyBytes>>> {
        let line = self.take(py, Want::Line(usize::MAX))?;
        Ok(Some(line).filter(|line| !line.as_bytes().is_empty()))
    }
}

impl State {
    /// Returns how many of the bytes that are here make up the wanted amount; `None` when more are
    /// needed.
    fn has(&self, want: Want) -> Option<usize> {
        let rest = &self.buffer[self.position..];
        let enough = match want {
            Want::All => None,
            Want::Bytes(size) => (rest.len() >= size).then_some(size),
            Want::Line(size) => match memchr(b'\n', rest) {
                Some(end) => Some((end + 1).min(size)),
                None => (rest.len() >= size).then_some(size),
            },
        };
        enough.or_else(|| self.ended.then_some(rest.len()))
    }

    fn consume<'py>(&mut self, py: Python<'py>, length: usize) -> Bound<'py, PyBytes> {
        let end = self.position + length;
        let bytes = PyBytes::new(py, &self.buffer[self.position..end]);
        self.position = end;
        bytes
    }

    /// Forgets what was read.
    fn make_room(&mut self) {
        self.buffer.drain(..self.position);
        self.position = 0;
    }
}
