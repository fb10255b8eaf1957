//! `start_response` and `write`: how an app answers.

use super::meeting::Meeting;
use crate::web::answer::{AnswerBody, AnswerHead, WebAnswer, shared_bytes};
use bytes::Bytes;
use dwell_engine::desk::{Fields, Order, Owed, Refusal};
use dwell_proto::http1::encode;
use pyo3::exceptions::{
    PyAssertionError, PyConnectionError, PyRuntimeError, PyTypeError, PyValueError,
};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyList, PyString, PyTuple};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The answer to one request, while its app makes it; called, it is `start_response`.
#[pyclass(frozen, module = "dwell.wsgi")]
#[derive(Debug)]
pub(super) struct StartResponse {
    owed: Arc<Owed<Meeting>>,
    is_head: bool,
    state: Mutex<State>,
}

/// The result of `start_response`.
#[pyclass(frozen, module = "dwell.wsgi")]
#[derive(Debug)]
struct Write {
    answer: Py<StartResponse>,
}

#[derive(Debug, Default)]
struct State {
    head: Option<Box<AnswerHead>>,
    /// The body is sent piece by piece.
    is_begun: bool,
    /// The announced length of the body, and what is left of it.
    owed: Option<(u64, u64)>,
    is_over: bool,
}

/// The outcome of writing a piece of a body.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Wrote {
    Taken,
    /// The client has left.
    Gone,
}

#[pymethods]
impl StartResponse {
    #[pyo3(signature = (status, headers, exc_info=None, /))]
    fn __call__(
        slf: Bound<'_, Self>,
        status: &Bound<'_, PyString>,
        headers: &Bound<'_, PyAny>,
        exc_info: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<Write> {
        let this = slf.get();
        let exc_info = exc_info.filter(|info| !info.is_none());
        let (has_head, is_sent) = {
            let state = this.lock();
            (
                state.head.is_some() || state.is_begun,
                state.is_begun || state.is_over,
            )
        };
        match exc_info {
            Some(info) if is_sent => {
                let value = info.get_item(1)?;
                return Err(PyErr::from_value(value));
            }
            None if has_head => {
                let text = "start_response was called before, and exc_info is missing";
                return Err(PyAssertionError::new_err(text));
            }
            _ => {}
        }
        let head = parse_head(status, headers)?;
        this.lock().head = Some(Box::new(head));
        Ok(Write {
            answer: slf.unbind(),
        })
    }
}

#[pymethods]
impl Write {
    fn __call__(&self, py: Python<'_>, data: PyBackedBytes) -> PyResult<()> {
        match self.answer.get().write(py, data)? {
            Wrote::Taken => Ok(()),
            Wrote::Gone => Err(PyConnectionError::new_err("the client has left")),
        }
    }
}

impl StartResponse {
    pub(super) fn new(owed: Arc<Owed<Meeting>>, is_head: bool) -> Self {
        Self {
            owed,
            is_head,
            state: Mutex::default(),
        }
    }

    /// Returns true if nothing was sent yet, so that a whole response can be.
    pub(super) fn is_unsent(&self) -> bool {
        let state = self.lock();
        !state.is_begun && !state.is_over
    }

    /// Sends the answer with its whole body.
    ///
    /// # Errors
    /// `AssertionError` where `start_response` was not called. `RuntimeError` for a body that
    /// exceeds its length, behind what was sent of it.
    pub(super) fn send_whole(&self, body: Bytes) -> PyResult<()> {
        let head = self.take_head()?;
        let length = body.len() as u64;
        let limit = self.announced(&head).filter(|limit| length > *limit);
        let body = if self.is_head {
            let length = (!body.is_empty()).then_some(body.len() as u64);
            AnswerBody::Absent(head.content_length.or(length))
        } else {
            AnswerBody::Bytes(body)
        };
        self.answer(head, body);
        limit.map_or(Ok(()), |limit| Err(too_long(limit)))
    }

    /// The length that an answer has announced for its body, where it has one.
    fn announced(&self, head: &AnswerHead) -> Option<u64> {
        head.content_length
            .filter(|_| !self.is_head && !head.is_bodiless())
    }

    /// Sends the answer with a file for its body.
    ///
    /// # Errors
    /// As [`send_whole`](Self::send_whole).
    pub(super) fn send_file(&self, mut slice: dwell_evloop::FileSlice) -> PyResult<()> {
        let head = self.take_head()?;
        if let Some(length) = head.content_length {
            slice.length = slice.length.min(length);
        }
        let body = if self.is_head {
            AnswerBody::Absent(head.content_length.or(Some(slice.length)))
        } else {
            AnswerBody::File(slice)
        };
        self.answer(head, body);
        Ok(())
    }

    fn answer(&self, head: Box<AnswerHead>, body: AnswerBody) {
        self.owed.order(Order::Send(WebAnswer { head, body }));
    }

    /// Sends a piece of the body, after the head if that was not sent yet; waits while the client
    /// takes nothing.
    ///
    /// # Errors
    /// As [`send_whole`](Self::send_whole).
    pub(super) fn write(&self, py: Python<'_>, data: PyBackedBytes) -> PyResult<Wrote> {
        if data.is_empty() {
            return Ok(Wrote::Taken);
        }
        self.begin()?;
        let (fits, limit) = self.fitting(data.len());
        let piece = shared_bytes(data).slice(..fits);
        if !self.owed.order(Order::Write(piece)) {
            return Ok(Wrote::Gone);
        }
        if let Some(limit) = limit {
            self.finish()?;
            return Err(too_long(limit));
        }
        if self.owed.is_refused() == Some(Refusal::Full) {
            py.detach(|| self.owed.wait_writable());
        }
        Ok(Wrote::Taken)
    }

    /// The bytes of a piece that the announced length has room for, and that length where they are
    /// less than all.
    fn fitting(&self, length: usize) -> (usize, Option<u64>) {
        let mut state = self.lock();
        let Some((limit, left)) = &mut state.owed else {
            return (length, None);
        };
        let fits = usize::try_from(*left).map_or(length, |left| left.min(length));
        *left -= fits as u64;
        (fits, (fits < length).then_some(*limit))
    }

    /// Begins the body if that was not done yet.
    fn begin(&self) -> PyResult<()> {
        let mut state = self.lock();
        if state.is_begun {
            return Ok(());
        }
        let head = state.head.take().ok_or_else(not_started)?;
        state.is_begun = true;
        state.owed = self.announced(&head).map(|length| (length, length));
        drop(state);
        self.owed.order(WebAnswer::begin(head));
        Ok(())
    }

    /// The body is complete.
    ///
    /// # Errors
    /// As [`send_whole`](Self::send_whole).
    pub(super) fn finish(&self) -> PyResult<()> {
        if self.is_unsent() {
            return self.send_whole(Bytes::new());
        }
        if !std::mem::replace(&mut self.lock().is_over, true) {
            self.owed.order(Order::Finish(Fields::new()));
        }
        Ok(())
    }

    /// The app has failed: answers 500, or cuts off what was begun.
    pub(super) fn fail(&self) {
        let mut state = self.lock();
        if std::mem::replace(&mut state.is_over, true) {
            return;
        }
        let is_begun = state.is_begun;
        drop(state);
        if is_begun {
            self.owed.order(Order::Abort);
            return;
        }
        let mut head = AnswerHead::new(500);
        // The name and the value are as they have to be.
        let _ = head.add(b"Content-Type", b"text/plain; charset=utf-8");
        let body = Bytes::from_static(b"Internal Server Error\n");
        let body = if self.is_head {
            AnswerBody::Absent(Some(body.len() as u64))
        } else {
            AnswerBody::Bytes(body)
        };
        self.answer(head.into(), body);
    }

    fn take_head(&self) -> PyResult<Box<AnswerHead>> {
        let mut state = self.lock();
        let head = state.head.take().ok_or_else(not_started)?;
        state.is_over = true;
        Ok(head)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn too_long(limit: u64) -> PyErr {
    PyRuntimeError::new_err(format!("body exceeds its Content-Length of {limit} bytes"))
}

fn not_started() -> PyErr {
    PyAssertionError::new_err("start_response was not called before the body")
}

/// Reads a status such as `404 Not Found` and the list of fields.
fn parse_head(status: &Bound<'_, PyString>, headers: &Bound<'_, PyAny>) -> PyResult<AnswerHead> {
    let text = status.to_cow()?;
    let (code, reason) = text.split_once(' ').unwrap_or((&text, ""));
    let wrong = || PyValueError::new_err(format!("no status and reason: {text:?}"));
    if code.len() != 3 {
        return Err(wrong());
    }
    let code: u16 = code.parse().map_err(|_| wrong())?;
    if !(200..=599).contains(&code) {
        return Err(wrong());
    }
    if reason.bytes().any(|byte| byte.is_ascii_control()) {
        return Err(wrong());
    }
    let mut head = AnswerHead::new(code);
    if !reason.is_empty() && reason != encode::reason(code) {
        head.reason = Some(latin1_bytes(reason)?.into());
    }
    fields_of(headers, &mut head)?;
    Ok(head)
}

/// Adds a list of names and values.
pub(super) fn fields_of(headers: &Bound<'_, PyAny>, head: &mut AnswerHead) -> PyResult<()> {
    if let Ok(list) = headers.cast::<PyList>() {
        for field in list.iter() {
            add_field(head, &field)?;
        }
    } else {
        for field in headers.try_iter()? {
            add_field(head, &field?)?;
        }
    }
    Ok(())
}

fn add_field(head: &mut AnswerHead, field: &Bound<'_, PyAny>) -> PyResult<()> {
    let pair = field.cast::<PyTuple>().ok().filter(|pair| pair.len() == 2);
    let Some(pair) = pair else {
        let text = format!("a header is a tuple of name and value: {field:?}");
        return Err(PyTypeError::new_err(text));
    };
    let (name, value) = (pair.get_item(0)?, pair.get_item(1)?);
    let (Ok(name), Ok(value)) = (name.cast::<PyString>(), value.cast::<PyString>()) else {
        let text = format!("name and value of a header are str: {field:?}");
        return Err(PyTypeError::new_err(text));
    };
    let (name, value) = (name.to_cow()?, value.to_cow()?);
    if value.is_ascii() {
        return head.add(name.as_bytes(), value.as_bytes());
    }
    head.add(name.as_bytes(), &latin1_bytes(&value)?)
}

/// The bytes of a text that has a byte for each character (PEP 3333, "Unicode Issues").
fn latin1_bytes(text: &str) -> PyResult<Vec<u8>> {
    text.chars()
        .map(u8::try_from)
        .collect::<Result<_, _>>()
        .map_err(|_| PyValueError::new_err(format!("not in latin-1: {text:?}")))
}
