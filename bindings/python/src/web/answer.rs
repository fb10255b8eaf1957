//! Answers on their way from Python to the engine.

use super::access_log::Record;
use bytes::Bytes;
use dwell_engine::desk::{Line, Order, OwnedAnswer};
use dwell_engine::{Body, Reply, Response};
use dwell_evloop::FileSlice;
use dwell_proto::http1::{is_hop_by_hop, is_token};
use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyTuple};

/// Bodies up to this size are copied out of Python's objects; larger ones are kept by reference.
const COPY_BYTES_MAX: usize = 16 * 1024;

/// The answer where the app has as many requests as it may have.
pub(crate) const OVERLOADED: Response<'static> = Response {
    status: 503,
    fields: &[
        ("Content-Type", b"text/plain; charset=utf-8"),
        ("Retry-After", b"1"),
    ],
    body: Body::Slice(b"too many requests at once\n"),
};

/// An answer: whole, or the head of one whose body follows.
#[derive(Debug)]
pub(crate) struct WebAnswer {
    pub(crate) head: Box<AnswerHead>,
    pub(crate) body: AnswerBody,
}

/// Status and fields of an answer; the framing is the engine's.
#[derive(Debug, Default)]
pub(crate) struct AnswerHead {
    pub(crate) status: u16,
    /// A reason phrase that is not the registered one.
    pub(crate) reason: Option<Box<[u8]>>,
    pub(crate) content_length: Option<u64>,
    names: String,
    values: Vec<u8>,
    /// The ends of each name and value.
    ends: Vec<(u32, u32)>,
}

/// The body of a whole answer.
#[derive(Debug)]
pub(crate) enum AnswerBody {
    Bytes(Bytes),
    File(FileSlice),
    /// No body: the response to HEAD.
    Absent(Option<u64>),
}

impl WebAnswer {
    /// Makes one whose body, if it has any, follows.
    pub(crate) fn of(head: Box<AnswerHead>) -> Self {
        let body = AnswerBody::Absent(None);
        Self { head, body }
    }

    /// Orders the head alone; the body follows.
    pub(crate) fn begin<L: Line<Answer = Self>>(head: Box<AnswerHead>) -> Order<L> {
        let length = head.content_length;
        Order::Begin(Self::of(head), length)
    }

    /// Notes it in the access log.
    pub(crate) fn note(&self, record: Option<&mut Record>) {
        if let Some(record) = record {
            record.status = self.head.status;
            record.bytes += self.body.length();
        }
    }
}

impl OwnedAnswer for WebAnswer {
    fn send(self, reply: &mut Reply<'_>) {
        self.head.send_whole(reply, &self.body);
    }

    fn begin(self, length: Option<u64>, reply: &mut Reply<'_>) -> bool {
        self.head.send(reply, Body::Stream(length));
        false
    }

    fn informational(self, reply: &mut Reply<'_>) {
        reply.informational(self.head.status, &self.head.fields());
    }
}

impl AnswerHead {
    pub(crate) fn new(status: u16) -> Self {
        Self {
            status,
            ..Self::default()
        }
    }

    /// Adds a field as the app gave it, or takes note of one that is the engine's to write.
    ///
    /// # Errors
    /// `ValueError` for a name that is no token, a value with a line end or NUL, or a
    /// `Content-Length` that is no number.
    pub(crate) fn add(&mut self, name: &[u8], value: &[u8]) -> PyResult<()> {
        if !is_token(name) {
            return Err(illegal("name", name));
        }
        if value.iter().any(|byte| matches!(byte, b'\r' | b'\n' | 0)) {
            return Err(illegal("value", value));
        }
        // A token is ASCII.
        let name = str::from_utf8(name).unwrap_or_default();
        match name.len() {
            // What the connection is to do behind the answer is the engine's to read.
            10 if name.eq_ignore_ascii_case("connection") => {}
            14 if name.eq_ignore_ascii_case("content-length") => {
                let text = str::from_utf8(value.trim_ascii()).unwrap_or_default();
                let length = text.parse().map_err(|_| illegal("Content-Length", value))?;
                self.content_length = Some(length);
                return Ok(());
            }
            _ if is_hop_by_hop(name) => return Ok(()),
            _ => {}
        }
        self.names.push_str(name);
        self.values.extend_from_slice(value);
        self.ends
            .push((end(self.names.len()), end(self.values.len())));
        Ok(())
    }

    /// Returns true if a response of this status has no body, even if the app gives one.
    pub(crate) fn is_bodiless(&self) -> bool {
        matches!(self.status, 100..=199 | 204 | 304)
    }

    /// The fields that are the app's own.
    pub(crate) fn fields(&self) -> Vec<(&str, &[u8])> {
        let mut start = (0, 0);
        let part = |end: &(u32, u32)| {
            let end = (end.0 as usize, end.1 as usize);
            let field = (&self.names[start.0..end.0], &self.values[start.1..end.1]);
            start = end;
            field
        };
        self.ends.iter().map(part).collect()
    }

    /// Sends the answer, or with [`Body::Stream`] its head.
    pub(crate) fn send(&self, reply: &mut Reply<'_>, body: Body<'_>) {
        let fields = self.fields();
        let response = Response {
            status: self.status,
            fields: &fields,
            body,
        };
        match &self.reason {
            Some(reason) => reply.send_with_reason(&response, reason),
            None => reply.send(&response),
        }
    }

    /// Sends the answer with its whole body, as far as it fits the announced length.
    ///
    /// Shape: of one that falls short the rest is owed, so the connection closes behind it.
    pub(crate) fn send_whole(&self, reply: &mut Reply<'_>, body: &AnswerBody) {
        match body {
            AnswerBody::Absent(length) => self.send(reply, Body::Absent(*length)),
            AnswerBody::File(slice) => self.send(reply, Body::File(slice.clone())),
            AnswerBody::Bytes(bytes) => match self.content_length {
                Some(length) if length > bytes.len() as u64 && !self.is_bodiless() => {
                    self.send(reply, Body::Stream(Some(length)));
                    // Both fail only for an answer that is over already.
                    let _ = reply.write_shared(bytes);
                    let _ = reply.finish(&[]);
                }
                Some(length) => {
                    let whole = usize::try_from(length).unwrap_or(usize::MAX);
                    self.send(reply, Body::Shared(bytes.slice(..whole.min(bytes.len()))));
                }
                None => self.send(reply, Body::Shared(bytes.clone())),
            },
        }
    }
}

impl AnswerBody {
    /// Its size in bytes.
    pub(crate) fn length(&self) -> u64 {
        match self {
            Self::Bytes(bytes) => bytes.len() as u64,
            Self::File(slice) => slice.length,
            Self::Absent(_) => 0,
        }
    }
}

/// Adds a field that is a pair of bytes.
///
/// # Errors
/// As [`AnswerHead::add`]; `TypeError` for anything but a pair of bytes.
pub(crate) fn add_field(head: &mut AnswerHead, field: &Bound<'_, PyAny>) -> PyResult<()> {
    let wrong = || PyTypeError::new_err(format!("a header is a pair of bytes: {field:?}"));
    if let Ok(pair) = field.cast::<PyTuple>()
        && pair.len() == 2
        && let (name, value) = (pair.get_item(0)?, pair.get_item(1)?)
        && let (Ok(name), Ok(value)) = (name.cast::<PyBytes>(), value.cast::<PyBytes>())
    {
        return head.add(name.as_bytes(), value.as_bytes());
    }
    let pair: [PyBackedBytes; 2] = field.extract().map_err(|_| wrong())?;
    head.add(&pair[0], &pair[1])
}

/// The bytes of a `bytes` object, for a thread that does not hold the interpreter.
pub(crate) fn shared_bytes(bytes: PyBackedBytes) -> Bytes {
    if bytes.len() <= COPY_BYTES_MAX {
        Bytes::copy_from_slice(&bytes)
    } else {
        Bytes::from_owner(bytes)
    }
}

/// Fields are limited by memory alone; 4 GiB of them are not sent.
fn end(length: usize) -> u32 {
    u32::try_from(length).unwrap_or(u32::MAX)
}

fn illegal(what: &str, text: &[u8]) -> PyErr {
    let text = String::from_utf8_lossy(text);
    PyValueError::new_err(format!("header {what} is not allowed: {text:?}"))
}
