//! `Connection`.

#![expect(
    clippy::redundant_closure_for_method_calls,
    reason = "a method of `Conn` is of one lifetime, and a closure of any"
)]
#![expect(
    clippy::needless_pass_by_value,
    reason = "what comes from Python is a value"
)]

use super::act::{Act, SseEvent, check_frame, close_payload, opcode, takes_output};
use super::errors;
use super::files;
use super::frame;
use super::message::HttpMessage;
use super::shared::{Shared, Unavailable, lock};
use super::values::{address_of, bytes_of, chain_of, fields_of, python_bool, status_of};
use super::view::{Snapshot, View};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use dwell_engine::manager::{Conn, ConnError};
use dwell_engine::websocket::{OriginPolicy, UpgradeOptions};
use pyo3::exceptions::PyValueError;
use pyo3::gc::{PyTraverseError, PyVisit};
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyTuple};
use std::borrow::Cow;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

/// A connection or listener of a manager.
#[pyclass(frozen, weakref, module = "dwell", name = "Connection")]
pub(crate) struct Connection {
    /// 0 when it is closed.
    id: AtomicU64,
    shared: Arc<Shared>,
    userdata: Mutex<Option<Py<PyAny>>>,
}

/// An address as `(host, port, is_ipv6)`.
type Address = (String, u16, bool);

impl Connection {
    pub(super) fn new(shared: Arc<Shared>, id: u64) -> Self {
        Self {
            id: AtomicU64::new(id),
            shared,
            userdata: Mutex::default(),
        }
    }

    pub(super) fn id(&self) -> u64 {
        self.id.load(Ordering::Relaxed)
    }

    /// Assigns it to another connection; the object must be unused.
    pub(super) fn set_id(&self, id: u64) {
        self.id.store(id, Ordering::Relaxed);
    }

    /// Returns true if something would be lost with the object.
    pub(super) fn keeps_something(&self) -> bool {
        lock(&self.userdata).is_some()
    }

    /// The connection has ended.
    pub(super) fn end(&self, _: Python<'_>) {
        self.set_id(0);
    }

    fn act(&self, act: Act<'_>) -> PyResult<()> {
        self.shared.act(self.id(), act)
    }

    /// Ends the connection; one that is closed has.
    fn end_by(&self, act: Act<'_>) -> PyResult<()> {
        if self.id() == 0 {
            Ok(())
        } else {
            self.act(act)
        }
    }

    /// Asks what is false of a connection that is gone.
    fn is(&self, question: impl FnOnce(&mut Conn<'_>) -> bool + Send + 'static) -> PyResult<bool> {
        Ok(self.shared.ask(self.id(), question)?.unwrap_or(false))
    }

    fn length(&self) -> PyResult<usize> {
        let queued = self.shared.ask(self.id(), |conn| conn.queued_bytes())?;
        Ok(queued.unwrap_or(0))
    }

    fn input_length(&self) -> usize {
        frame::with_input(&self.shared, self.id(), <[u8]>::len).unwrap_or(0)
    }
}

#[pymethods]
impl Connection {
    /// Its number, above 0 and never given out again; 0 when it is closed.
    #[getter(id)]
    fn number(&self) -> u64 {
        self.id()
    }

    /// The handler it has of its own.
    #[getter]
    fn handler(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let own = lock(&self.shared.own_slots).get(&self.id()).cloned();
        if let Some(slot) = own {
            return slot.handler(py);
        }
        let is_own = |slot: &super::shared::Slot| {
            (!std::ptr::eq(slot, Arc::as_ptr(&self.shared.default))).then(|| slot.handler(py))
        };
        frame::with_slot(&self.shared, self.id(), is_own)
            .flatten()
            .flatten()
    }

    /// Gives it, and on a listener the clients to come, a handler of its own; `None` the manager's.
    #[pyo3(signature = (handler))]
    fn set_handler(&self, handler: Option<Bound<'_, PyAny>>) -> PyResult<()> {
        let own = super::callable(handler)?;
        if self.id() == 0 {
            return Ok(());
        }
        let is_own = own.is_some();
        let slot = self.shared.slot(own);
        let shared = Arc::downgrade(&self.shared);
        self.act(Act::Handler(shared, Arc::clone(&slot)))?;
        let before = {
            let mut own_slots = lock(&self.shared.own_slots);
            if is_own {
                own_slots.insert(self.id(), slot)
            } else {
                own_slots.remove(&self.id())
            }
        };
        drop(before);
        Ok(())
    }

    /// A value of the program's, kept as long as the connection.
    #[getter]
    fn userdata(&self, py: Python<'_>) -> Option<Py<PyAny>> {
        let value = lock(&self.userdata);
        value.as_ref().map(|value| value.clone_ref(py))
    }

    #[setter]
    fn set_userdata(&self, value: Option<Py<PyAny>>) {
        let before = std::mem::replace(&mut *lock(&self.userdata), value);
        drop(before);
    }

    /// Our `(host, port, is_ipv6)`; nothing on a unix socket, or when it is closed.
    #[getter]
    fn local_addr(&self) -> PyResult<Option<Address>> {
        let address = self.shared.ask(self.id(), |conn| conn.local_address())?;
        Ok(address.flatten().map(address_of))
    }

    /// The peer's; nothing for a listener, too.
    #[getter]
    fn remote_addr(&self) -> PyResult<Option<Address>> {
        let address = self.shared.ask(self.id(), |conn| conn.remote_address())?;
        Ok(address.flatten().map(address_of))
    }

    /// True for a listener.
    #[getter]
    fn is_listening(&self) -> PyResult<bool> {
        self.is(|conn| conn.is_listening())
    }

    /// True for an outbound connection.
    #[getter]
    fn is_client(&self) -> PyResult<bool> {
        self.is(|conn| conn.is_client())
    }

    /// True for a WebSocket.
    #[getter]
    fn is_websocket(&self) -> PyResult<bool> {
        self.is(|conn| conn.is_websocket())
    }

    /// True under TLS.
    #[getter]
    fn is_tls(&self) -> PyResult<bool> {
        self.is(|conn| conn.is_secure())
    }

    /// The certificates that the client has shown, in DER.
    #[getter]
    fn peer_certificates<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyTuple>> {
        let shown = self
            .shared
            .ask(self.id(), |conn| conn.peer_certificates())?;
        chain_of(py, shown.flatten().as_ref())
    }

    /// False: there is no UDP.
    #[getter]
    #[expect(clippy::unused_self, reason = "a property of every connection")]
    fn is_udp(&self) -> bool {
        false
    }

    /// True if `recv_data` has something.
    #[getter]
    fn is_readable(&self) -> bool {
        self.input_length() > 0
    }

    /// True if it takes output.
    #[getter]
    fn is_writable(&self) -> PyResult<bool> {
        self.is(takes_output)
    }

    /// True if so much output waits for the peer that no more is taken.
    #[getter]
    fn is_full(&self) -> PyResult<bool> {
        self.is(|conn| conn.is_full())
    }

    /// True if it is closed, or will be when its queued output is out.
    #[getter]
    fn is_closing(&self) -> PyResult<bool> {
        let closing = self.shared.ask(self.id(), |conn| conn.is_closing())?;
        Ok(closing.unwrap_or(true))
    }

    /// True if it closes after the response that is owed.
    #[getter]
    fn is_draining(&self) -> PyResult<bool> {
        self.is(|conn| conn.is_draining())
    }

    /// Bytes that `recv_data` has.
    #[getter]
    fn recv_len(&self) -> usize {
        self.input_length()
    }

    /// Same as `recv_len`.
    #[getter]
    fn recv_size(&self) -> usize {
        self.input_length()
    }

    /// Bytes of output that wait for the peer.
    #[getter]
    fn send_len(&self) -> PyResult<usize> {
        self.length()
    }

    /// Same as `send_len`.
    #[getter]
    fn send_size(&self) -> PyResult<usize> {
        self.length()
    }

    /// The received bytes, in `READ` of a raw connection.
    #[pyo3(signature = (length=-1), text_signature = "($self, length=-1)")]
    fn recv_data<'py>(&self, py: Python<'py>, length: isize) -> Bound<'py, PyBytes> {
        let read = |data: &[u8]| {
            let wanted = usize::try_from(length).unwrap_or(data.len());
            PyBytes::new(py, &data[..wanted.min(data.len())])
        };
        frame::with_input(&self.shared, self.id(), read).unwrap_or_else(|| PyBytes::new(py, b""))
    }

    /// Nothing: output that is queued cannot be had back.
    #[pyo3(signature = (length=-1), text_signature = "($self, length=-1)")]
    #[expect(clippy::unused_self, reason = "part of the interface")]
    fn send_data<'py>(&self, py: Python<'py>, length: isize) -> Bound<'py, PyBytes> {
        // What is queued is the kernel's or the engine's; nobody gets it back.
        let _ = length;
        PyBytes::new(py, b"")
    }

    /// Keeps the last `length` bytes, in `READ`: they come again with the next ones.
    fn keep(&self, length: usize) -> PyResult<()> {
        let kept = self.shared.ask_near(self.id(), |conn| conn.keep(length))?;
        kept.ok_or_else(errors::closed)
    }

    /// Sends bytes; on HTTP they are the answer, status line and all, or a piece of it.
    fn send(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = bytes_of(data)?;
        self.act(Act::Send(data))
    }

    /// Answers the request.
    #[pyo3(signature = (status_code, body=None, headers=None))]
    fn reply(
        &self,
        status_code: i64,
        body: Option<&Bound<'_, PyAny>>,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let body = body.map_or(Ok(Cow::Borrowed(&[][..])), bytes_of)?;
        let status = status_of(status_code)?;
        let fields = fields_of(headers)?;
        let is_stream = fields.iter().any(|(name, value)| {
            (name.eq_ignore_ascii_case("transfer-encoding")
                && value.eq_ignore_ascii_case(b"chunked"))
                || (body.is_empty()
                    && name.eq_ignore_ascii_case("content-type")
                    && value.starts_with(b"text/event-stream"))
        });
        self.act(if is_stream {
            Act::Begin {
                status,
                fields,
                length: None,
                first: body,
            }
        } else {
            Act::Reply {
                status,
                fields,
                body,
            }
        })
    }

    /// Answers the request with what `json.dumps` makes of `data`.
    #[pyo3(signature = (data, status_code=200, headers=None))]
    fn reply_json(
        &self,
        data: &Bound<'_, PyAny>,
        status_code: i64,
        headers: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let status = status_of(status_code)?;
        let mut fields = fields_of(headers)?;
        let json = data.py().import("json")?.call_method1("dumps", (data,))?;
        let body = bytes_of(&json)?;
        fields.retain(|(name, _)| !name.eq_ignore_ascii_case("content-type"));
        fields.push(("Content-Type".to_owned(), b"application/json".to_vec()));
        self.act(Act::Reply {
            status,
            fields,
            body,
        })
    }

    /// Begins an answer that `http_chunk` goes on with: of this length, or in chunks.
    #[pyo3(signature = (status_code=200, headers=None, length=None))]
    fn http_begin(
        &self,
        status_code: i64,
        headers: Option<&Bound<'_, PyAny>>,
        length: Option<u64>,
    ) -> PyResult<()> {
        self.act(Act::Begin {
            status: status_of(status_code)?,
            fields: fields_of(headers)?,
            length,
            first: Cow::Borrowed(&[]),
        })
    }

    /// Sends a piece of the answer that was begun; an empty one ends it.
    fn http_chunk(&self, data: &Bound<'_, PyAny>) -> PyResult<()> {
        let data = bytes_of(data)?;
        self.act(Act::Chunk(data))
    }

    /// Sends a server-sent event, and begins the stream where no answer was begun.
    #[pyo3(signature = (event_type, data, *, id=None, retry=None))]
    fn http_sse(
        &self,
        event_type: &str,
        data: &str,
        id: Option<&str>,
        retry: Option<u64>,
    ) -> PyResult<()> {
        self.act(Act::Sse(SseEvent {
            kind: Cow::Borrowed(event_type),
            data: Cow::Borrowed(data),
            id: id.map(Cow::Borrowed),
            retry,
        }))
    }

    /// Sends a request on an outbound HTTP connection; its response is `HTTP_MSG`.
    #[pyo3(signature = (method, target, headers=None, body=None))]
    fn http_request(
        &self,
        method: &str,
        target: &str,
        headers: Option<&Bound<'_, PyAny>>,
        body: Option<&Bound<'_, PyAny>>,
    ) -> PyResult<()> {
        let body = body.map_or(Ok(Cow::Borrowed(&[][..])), bytes_of)?;
        let fields = fields_of(headers)?;
        self.act(Act::Request {
            method: Cow::Borrowed(method),
            target: Cow::Borrowed(target),
            fields,
            body,
        })
    }

    /// On an outbound connection: sends an `Authorization` line of a request's head.
    fn http_basic_auth(&self, username: &str, password: &str) -> PyResult<()> {
        let credentials = BASE64.encode(format!("{username}:{password}"));
        let line = format!("Authorization: Basic {credentials}\r\n");
        self.act(Act::Send(Cow::Owned(line.into_bytes())))
    }

    /// Answers the request with what its path names beneath a directory, and nothing outside.
    #[pyo3(signature = (message, root_dir, extra_headers="", mime_types="", page404=""))]
    fn serve_dir(
        &self,
        message: &HttpMessage,
        root_dir: std::path::PathBuf,
        extra_headers: &str,
        mime_types: &str,
        page404: &str,
    ) -> PyResult<()> {
        let fields = files::extra_fields(extra_headers)?;
        self.shared
            .on_request(self.id(), message, |conn, view| {
                let answer = files::directory(view, &root_dir, mime_types, page404);
                files::send(conn, answer, &fields)
            })?
            .map_err(|error| errors::of_conn(&error))
    }

    /// Answers the request with a file, as `serve_dir` does.
    #[pyo3(signature = (message, path, extra_headers="", mime_types=""))]
    fn serve_file(
        &self,
        message: &HttpMessage,
        path: std::path::PathBuf,
        extra_headers: &str,
        mime_types: &str,
    ) -> PyResult<()> {
        let fields = files::extra_fields(extra_headers)?;
        self.shared
            .on_request(self.id(), message, |conn, view| {
                files::send(conn, files::file(view, &path, mime_types), &fields)
            })?
            .map_err(|error| errors::of_conn(&error))
    }

    /// Upgrades the connection to WebSocket; `WS_OPEN` follows.
    #[pyo3(signature = (
        message, extra_headers=None, *, subprotocols=Vec::new(), check_origin=true
    ))]
    fn ws_upgrade(
        &self,
        message: &HttpMessage,
        extra_headers: Option<&Bound<'_, PyAny>>,
        subprotocols: Vec<String>,
        check_origin: bool,
    ) -> PyResult<()> {
        let fields = fields_of(extra_headers)?;
        let spoken: Vec<&str> = subprotocols.iter().map(String::as_str).collect();
        let options = UpgradeOptions {
            subprotocols: &spoken,
            origin: if check_origin {
                OriginPolicy::SameHost
            } else {
                OriginPolicy::Any
            },
            ..UpgradeOptions::default()
        };
        let upgraded = self.shared.on_request(self.id(), message, |conn, view| {
            let View::Http(message) = view else {
                return Err(ConnError::Protocol);
            };
            let upgraded = super::act::with_fields(&fields, |fields| {
                conn.ws_upgrade_with(message, &options, fields)
            });
            upgraded.map(|()| Snapshot::of(message))
        })?;
        match upgraded {
            Ok(request) => {
                lock(&self.shared.upgrading).insert(self.id(), request);
                Ok(())
            }
            // It has its answer.
            Err(ConnError::Upgrade(_)) => Ok(()),
            Err(error) => Err(errors::of_conn(&error)),
        }
    }

    /// Sends a WebSocket message, or a control frame.
    #[pyo3(signature = (data, op=1))]
    fn ws_send(&self, data: &Bound<'_, PyAny>, op: u8) -> PyResult<()> {
        let is_str = data.is_instance_of::<pyo3::types::PyString>();
        let data = bytes_of(data)?;
        check_frame(op, &data, is_str)?;
        self.act(Act::WebSocket { opcode: op, data })
    }

    /// Closes a WebSocket in order.
    #[pyo3(signature = (code=1000, reason=""))]
    fn ws_close(&self, code: u16, reason: &str) -> PyResult<()> {
        let mut payload = code.to_be_bytes().to_vec();
        payload.extend_from_slice(reason.as_bytes());
        if close_payload(&payload).is_none() {
            return Err(PyValueError::new_err(format!(
                "close code may not be sent: {code}"
            )));
        }
        self.act(Act::WebSocket {
            opcode: opcode::CLOSE,
            data: Cow::Owned(payload),
        })
    }

    /// Hands the body over in pieces, by `HTTP_BODY`; call it in `HTTP_HDRS`. An empty piece is the
    /// end.
    fn stream_body(&self, length_max: u64) -> PyResult<()> {
        let asked = self
            .shared
            .ask_near(self.id(), |conn| conn.stream_body(length_max))?;
        asked.ok_or_else(errors::closed)
    }

    /// Reads no more for now, so that the peer's sending is held back.
    fn pause(&self) -> PyResult<()> {
        self.act(Act::Pause)
    }

    /// Reads again.
    fn resume(&self) -> PyResult<()> {
        self.act(Act::Resume)
    }

    /// Turns `POLL` at the end of every poll on or off. Later clients of a listener inherit it.
    fn set_poll_events(&self, wanted: bool) -> PyResult<()> {
        self.act(Act::PollEvents(wanted))
    }

    /// Closes it after the answer that is owed; one that was begun ends with what was sent of it.
    fn drain(&self) -> PyResult<()> {
        self.end_by(Act::Drain)
    }

    /// Closes it when what is queued is out.
    fn close(&self) -> PyResult<()> {
        self.end_by(Act::Close)
    }

    /// Ends it; what is queued is lost.
    fn abort(&self) -> PyResult<()> {
        self.end_by(Act::Abort)
    }

    /// Calls the handler with `ERROR` and this text, and ends the connection.
    fn error(&self, message: &str) -> PyResult<()> {
        self.act(Act::Error(Cow::Borrowed(message)))
    }

    /// Shape: never waits for another thread, so that it can be logged from anywhere.
    fn __repr__(&self) -> String {
        let id = self.id();
        let question = |conn: &mut Conn<'_>| takes_output(conn);
        match self.shared.reach(id, question, Shared::engine) {
            Ok(Some(writable)) => format!(
                "<Connection id={id} readable={} writable={}>",
                python_bool(self.is_readable()),
                python_bool(writable),
            ),
            Ok(None) | Err(Unavailable::Freed) => "<Connection closed>".to_owned(),
            Err(_) => format!("<Connection id={id}>"),
        }
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        if let Ok(userdata) = self.userdata.try_lock() {
            visit.call(&*userdata)?;
        }
        Ok(())
    }

    fn __clear__(&self) {
        self.set_userdata(None);
    }
}
