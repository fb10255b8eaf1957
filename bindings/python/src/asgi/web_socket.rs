//! One WebSocket: `receive` and `send`, from the handshake to the end.

use super::awaitable::{Wait, Waiting};
use super::face::{Arrival, AsgiFace, AsgiLine, UPGRADES};
use super::message::{
    bytes_of, event, fields_of, flag, kind_of, left, start_of, unexpected, unknown,
};
use super::server::AsgiServer;
use super::shared::{OUTPUT_WINDOW, Shared, WebSocketState};
use crate::web::answer::{AnswerBody, AnswerHead, WebAnswer, shared_bytes};
use crate::web::head::Head;
use bytes::Bytes;
use dwell_engine::UnderWay;
use dwell_engine::desk::{DeskLoop, Order, Owed};
use dwell_engine::websocket::{CloseCode, MessageKind, UpgradeOptions, upgrade};
use dwell_evloop::{Context, Token};
use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};
use pyo3::exceptions::{PyRuntimeError, PyValueError};
use pyo3::intern;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::{PyBytes, PyDict};
use std::sync::Arc;

/// A WebSocket that the app was handed.
#[pyclass(frozen, module = "dwell._native")]
pub(super) struct WebSocketExchange {
    server: Py<AsgiServer>,
    owed: Arc<Owed<AsgiLine>>,
    head: Arc<Head>,
    state: Arc<Shared<WebSocketState>>,
    /// An answer that is no WebSocket, while its body comes.
    denial: Shared<Option<(Box<AnswerHead>, Vec<u8>)>>,
    /// Held until the app has returned.
    under_way: Shared<Option<UnderWay>>,
}

/// Waits for the next event.
struct Receive {
    state: Arc<Shared<WebSocketState>>,
}

/// Waits until the client has taken what is queued for it.
struct Room {
    state: Arc<Shared<WebSocketState>>,
}

#[pymethods]
impl WebSocketExchange {
    /// The next event: `websocket.connect`, a message, or `websocket.disconnect`.
    fn receive(&self, py: Python<'_>) -> Waiting {
        let receive = Receive {
            state: Arc::clone(&self.state),
        };
        Waiting::new(self.server.clone_ref(py), receive)
    }

    /// Accepts, refuses, sends or closes; what it returns waits while the client takes nothing.
    fn send<'py>(
        &self,
        py: Python<'py>,
        message: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let kind = kind_of(message)?;
        match &*kind {
            "websocket.send" => return self.message(py, message),
            "websocket.accept" => self.accept(py, message)?,
            "websocket.close" => self.close(py, message)?,
            "websocket.http.response.start" => self.deny(message)?,
            "websocket.http.response.body" => self.deny_body(py, message)?,
            _ => return Err(unknown(&kind)),
        }
        let server = self.server.bind(py);
        server.get().settle(server)?;
        Ok(server.get().done(py))
    }

    /// The app has returned, with an error or without: a handshake that is open is answered, a
    /// WebSocket closed. Whether it had come to its end before.
    fn end(&self, py: Python<'_>, failed: bool) -> PyResult<bool> {
        drop(self.under_way.lock().take());
        let (token, is_open, is_over) = {
            let state = self.state.lock();
            (state.token, state.is_handshake, state.end.is_some())
        };
        let server = self.server.bind(py);
        if is_open {
            let status = if failed { 500 } else { 403 };
            self.refuse(py, AnswerHead::new(status).into(), Bytes::new())?;
        } else if let Some(token) = token {
            let code = if failed {
                CloseCode::INTERNAL_ERROR
            } else {
                CloseCode::NORMAL
            };
            server.get().with(|context, driver| {
                driver.web_sockets().close(context, token, code, "");
            });
        }
        server.get().settle(server)?;
        Ok(is_over)
    }

    /// Method and target, for the log.
    fn describe(&self) -> String {
        format!("WebSocket {}", self.head.target().escape_ascii())
    }
}

impl WebSocketExchange {
    pub(super) fn new(
        server: Py<AsgiServer>,
        arrival: &Arrival,
        state: Arc<Shared<WebSocketState>>,
    ) -> Self {
        Self {
            server,
            owed: Arc::clone(&arrival.owed),
            head: Arc::clone(&arrival.head),
            state,
            denial: Shared::default(),
            under_way: Shared::new(arrival.under_way.lock().take()),
        }
    }

    fn accept(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let mut fields = AnswerHead::new(101);
        fields_of(message, &mut fields)?;
        let subprotocol: Option<String> = match message.get_item(intern!(py, "subprotocol"))? {
            Some(subprotocol) => subprotocol.extract()?,
            None => None,
        };
        {
            let state = self.state.lock();
            if state.end.is_some() {
                return Err(left());
            }
            if !state.is_handshake || self.denial.lock().is_some() {
                return Err(unexpected("websocket.accept"));
            }
        }
        let token = self.server.get().with(|context, driver| {
            self.upgrade(context, driver, &fields, subprotocol.as_deref())
        })?;
        let mut state = self.state.lock();
        state.is_handshake = false;
        state.token = Some(token);
        Ok(())
    }

    /// Answers the handshake, and hands the connection over.
    fn upgrade(
        &self,
        context: &mut Context,
        driver: &mut DeskLoop<AsgiFace>,
        fields: &AnswerHead,
        subprotocol: Option<&str>,
    ) -> PyResult<Token> {
        let mut storage = FieldStorage::new();
        let limits = HeadLimits {
            head_bytes_max: usize::MAX,
            target_bytes_max: usize::MAX,
            field_count_max: usize::MAX,
        };
        // It was parsed and judged when it came, so neither fails.
        let head = parse_request(self.head.bytes(), &mut storage, &limits)
            .map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        let spoken: Vec<&str> = subprotocol.into_iter().collect();
        let options = UpgradeOptions {
            subprotocols: &spoken,
            deflate: Some(driver.face().options.web_socket.deflate),
            ..UPGRADES
        };
        let upgrade =
            upgrade(&head, &options).map_err(|error| PyRuntimeError::new_err(error.to_string()))?;
        if let Some(subprotocol) = subprotocol.filter(|_| upgrade.subprotocol().is_none()) {
            let text = format!("subprotocol was not offered: {subprotocol:?}");
            return Err(PyValueError::new_err(text));
        }
        let answer = upgrade.head(fields.fields());
        if let Some(entry) = driver.entry(&self.owed) {
            entry.note(101);
        }
        let sockets = &mut driver.face().web_sockets;
        let tag = sockets.insert(Arc::clone(&self.state)).ok_or_else(left)?;
        let negotiated = upgrade.negotiated();
        let token = driver.upgrade(context, &self.owed, &answer, negotiated, tag);
        if !matches!(token, Some(Ok(_))) {
            driver.face().web_sockets.remove(tag);
        }
        token.ok_or_else(left)?.map_err(|_| left())
    }

    fn message<'py>(
        &self,
        py: Python<'py>,
        message: &Bound<'py, PyDict>,
    ) -> PyResult<Bound<'py, PyAny>> {
        let token = self.open("websocket.send")?;
        let server = self.server.bind(py);
        let text = message.get_item(intern!(py, "text"))?;
        let text = text.filter(|text| !text.is_none());
        let text: Option<PyBackedStr> = text.map(|text| text.extract()).transpose()?;
        let queued = if let Some(text) = text {
            self.send_on(server, token, MessageKind::Text, text.as_bytes())
        } else {
            let data = bytes_of(message, intern!(py, "bytes"))?;
            let data: &[u8] = data.as_ref().map_or(&[], |data| data.as_ref());
            self.send_on(server, token, MessageKind::Binary, data)
        };
        let is_blocked = queued? > OUTPUT_WINDOW;
        server.get().settle(server)?;
        if !is_blocked {
            return Ok(server.get().done(py));
        }
        self.state.lock().is_blocked = true;
        let room = Room {
            state: Arc::clone(&self.state),
        };
        Waiting::new(server.clone().unbind(), room).into_bound(py)
    }

    /// Sends a message; returns how much waits for the client then.
    fn send_on(
        &self,
        server: &Bound<'_, AsgiServer>,
        token: Token,
        kind: MessageKind,
        data: &[u8],
    ) -> PyResult<usize> {
        let sent = server.get().with(|context, driver| {
            driver.web_sockets().with_socket(context, token, |socket| {
                let sent = socket.send(kind, data);
                sent.map(|()| socket.queued_bytes())
            })
        });
        match sent {
            Some(Ok(queued)) => Ok(queued),
            Some(Err(error)) if self.state.lock().is_blocked => {
                let text = format!("send was not awaited before: {error}");
                Err(PyRuntimeError::new_err(text))
            }
            _ => Err(left()),
        }
    }

    fn close(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let code: Option<u16> = match message.get_item(intern!(py, "code"))? {
            Some(code) => code.extract()?,
            None => None,
        };
        let reason: Option<String> = match message.get_item(intern!(py, "reason"))? {
            Some(reason) => reason.extract()?,
            None => None,
        };
        if self.state.lock().is_handshake {
            return self.refuse(py, AnswerHead::new(403).into(), Bytes::new());
        }
        let token = self.open("websocket.close")?;
        let code = CloseCode::new(code.unwrap_or(1000)).ok_or_else(|| {
            PyValueError::new_err(format!("close code is out of range: {code:?}"))
        })?;
        let reason = reason.unwrap_or_default();
        self.server.get().with(|context, driver| {
            driver.web_sockets().close(context, token, code, &reason);
        });
        let mut state = self.state.lock();
        state.end = None;
        state.leave(code.number(), &reason);
        Ok(())
    }

    fn deny(&self, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let head = start_of(message)?;
        let mut denial = self.denial.lock();
        if denial.is_some() || !self.state.lock().is_handshake {
            return Err(unexpected("websocket.http.response.start"));
        }
        *denial = Some((Box::new(head), Vec::new()));
        Ok(())
    }

    fn deny_body(&self, py: Python<'_>, message: &Bound<'_, PyDict>) -> PyResult<()> {
        let data = bytes_of(message, intern!(py, "body"))?;
        let more = flag(message, intern!(py, "more_body"))?;
        let mut denial = self.denial.lock();
        let Some((_, body)) = &mut *denial else {
            return Err(unexpected("websocket.http.response.body"));
        };
        body.extend_from_slice(&data.map(shared_bytes).unwrap_or_default());
        if more {
            return Ok(());
        }
        let answer = denial.take();
        drop(denial);
        match answer {
            Some((head, body)) => self.refuse(py, head, body.into()),
            None => Ok(()),
        }
    }

    /// Answers the handshake with something else than a WebSocket.
    fn refuse(&self, py: Python<'_>, head: Box<AnswerHead>, body: Bytes) -> PyResult<()> {
        self.state.lock().is_handshake = false;
        let body = AnswerBody::Bytes(body);
        let is_there = self.owed.order(Order::Send(WebAnswer { head, body }));
        self.state.lock().leave(1006, "");
        let server = self.server.bind(py);
        server.get().settle(server)?;
        if is_there { Ok(()) } else { Err(left()) }
    }

    /// The connection of a WebSocket that is open.
    fn open(&self, kind: &str) -> PyResult<Token> {
        let state = self.state.lock();
        match (state.token, &state.end) {
            (Some(token), None) => Ok(token),
            (_, Some(_)) if !state.is_handshake => Err(left()),
            _ => Err(unexpected(kind)),
        }
    }
}

impl Wait for Receive {
    fn poll(&self, py: Python<'_>, server: &Bound<'_, AsgiServer>) -> PyResult<Option<Py<PyAny>>> {
        let mut state = self.state.lock();
        if !state.connect_told {
            state.connect_told = true;
            drop(state);
            return event(py, intern!(py, "websocket.connect"), |_| Ok(()));
        }
        if let Some((kind, data)) = state.messages.pop_front() {
            state.message_bytes -= data.len();
            let resumes = state.is_paused && state.messages.is_empty();
            let token = state.token;
            state.is_paused &= !resumes;
            drop(state);
            if resumes && let Some(token) = token {
                server.get().with(|context, driver| {
                    let sockets = driver.web_sockets();
                    sockets.with_socket(context, token, |socket| {
                        socket.resume();
                    })
                });
                server.get().settle(server)?;
            }
            return event(py, intern!(py, "websocket.receive"), |event| match kind {
                MessageKind::Text => {
                    // The engine hands over valid UTF-8 only.
                    let text = str::from_utf8(&data).unwrap_or_default();
                    event.set_item(intern!(py, "text"), text)
                }
                MessageKind::Binary => {
                    event.set_item(intern!(py, "bytes"), PyBytes::new(py, &data))
                }
            });
        }
        let Some((code, reason)) = state.end.clone() else {
            return Ok(None);
        };
        drop(state);
        event(py, intern!(py, "websocket.disconnect"), |event| {
            event.set_item(intern!(py, "code"), code)?;
            event.set_item(intern!(py, "reason"), reason)
        })
    }

    fn park(&self, future: &Bound<'_, PyAny>) {
        self.state.lock().receivers.clone().park(future);
    }
}

impl Wait for Room {
    fn poll(&self, py: Python<'_>, _: &Bound<'_, AsgiServer>) -> PyResult<Option<Py<PyAny>>> {
        let state = self.state.lock();
        if state.end.is_some() {
            return Err(left());
        }
        Ok((!state.is_blocked).then(|| py.None()))
    }

    fn park(&self, future: &Bound<'_, PyAny>) {
        self.state.lock().senders.clone().park(future);
    }
}
