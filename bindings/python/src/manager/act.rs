//! Acts on a connection, as values that can wait for its thread.

use super::shared::{Shared, Slot};
use super::trampoline::trampoline;
use dwell_engine::manager::{Conn, ConnError};
use dwell_engine::sse;
use dwell_engine::websocket::{CloseCode, MessageKind};
use pyo3::PyResult;
use pyo3::exceptions::PyValueError;
use std::borrow::Cow;
use std::sync::{Arc, Weak};

/// Header fields, as (name, value).
pub(super) type Fields = Vec<(String, Vec<u8>)>;

/// A server-sent event.
#[derive(Clone, Debug)]
pub(super) struct SseEvent<'a> {
    pub(super) kind: Cow<'a, str>,
    pub(super) data: Cow<'a, str>,
    pub(super) id: Option<Cow<'a, str>>,
    pub(super) retry: Option<u64>,
}

/// An act on a connection.
#[derive(Clone)]
pub(super) enum Act<'a> {
    Send(Cow<'a, [u8]>),
    Reply {
        status: u16,
        fields: Fields,
        body: Cow<'a, [u8]>,
    },
    /// Begins an answer that is written by and by, of this length if it is known.
    Begin {
        status: u16,
        fields: Fields,
        length: Option<u64>,
        first: Cow<'a, [u8]>,
    },
    /// Writes a piece of it; an empty one ends it.
    Chunk(Cow<'a, [u8]>),
    Sse(SseEvent<'a>),
    WebSocket {
        opcode: u8,
        data: Cow<'a, [u8]>,
    },
    /// A client's request.
    Request {
        method: Cow<'a, str>,
        target: Cow<'a, str>,
        fields: Fields,
        body: Cow<'a, [u8]>,
    },
    Drain,
    Close,
    Abort,
    Error(Cow<'a, str>),
    Pause,
    Resume,
    PollEvents(bool),
    Handler(Weak<Shared>, Arc<Slot>),
}

/// The opcodes of RFC 6455 section 5.2.
pub(super) mod opcode {
    pub(in crate::manager) const TEXT: u8 = 1;
    pub(in crate::manager) const BINARY: u8 = 2;
    pub(in crate::manager) const CLOSE: u8 = 8;
    pub(in crate::manager) const PING: u8 = 9;
    pub(in crate::manager) const PONG: u8 = 10;
}

impl Act<'_> {
    pub(super) fn apply(&self, conn: &mut Conn<'_>) -> Result<(), ConnError> {
        match self {
            Self::Send(data) => conn.send(data),
            Self::Reply {
                status,
                fields,
                body,
            } => with_fields(fields, |fields| conn.reply(*status, fields, body)),
            Self::Begin {
                status,
                fields,
                length,
                first,
            } => {
                with_fields(fields, |fields| conn.begin(*status, fields, *length))?;
                if first.is_empty() {
                    Ok(())
                } else {
                    conn.chunk(first)
                }
            }
            Self::Chunk(data) => conn.chunk(data),
            Self::Sse(event) => event.send(conn),
            Self::WebSocket { opcode, data } => send_frame(conn, *opcode, data),
            Self::Request {
                method,
                target,
                fields,
                body,
            } => with_fields(fields, |fields| conn.request(method, target, fields, body)),
            simple => {
                simple.apply_simple(conn);
                Ok(())
            }
        }
    }

    /// Carries out an act that cannot fail.
    fn apply_simple(&self, conn: &mut Conn<'_>) {
        match self {
            Self::Drain => {
                // An answer that was begun ends with what was sent of it. It fails where none was.
                let _ = conn.finish(&[]);
                conn.drain();
            }
            Self::Close => conn.close(),
            Self::Abort => conn.abort(),
            Self::Error(text) => conn.error(text),
            Self::Pause => conn.pause(),
            Self::Resume => conn.resume(),
            Self::PollEvents(wanted) => conn.set_poll_events(*wanted),
            Self::Handler(shared, slot) => {
                conn.set_handler(trampoline(shared.clone(), Arc::clone(slot)));
            }
            _ => {}
        }
    }

    /// The same, with copies of what it borrows.
    pub(super) fn into_owned(self) -> Act<'static> {
        match self {
            Self::Send(data) => Act::Send(owned(data)),
            Self::Reply {
                status,
                fields,
                body,
            } => Act::Reply {
                status,
                fields,
                body: owned(body),
            },
            Self::Begin {
                status,
                fields,
                length,
                first,
            } => Act::Begin {
                status,
                fields,
                length,
                first: owned(first),
            },
            Self::Chunk(data) => Act::Chunk(owned(data)),
            Self::Sse(event) => Act::Sse(SseEvent {
                kind: Cow::Owned(event.kind.into_owned()),
                data: Cow::Owned(event.data.into_owned()),
                id: event.id.map(|id| Cow::Owned(id.into_owned())),
                retry: event.retry,
            }),
            Self::WebSocket { opcode, data } => Act::WebSocket {
                opcode,
                data: owned(data),
            },
            Self::Request {
                method,
                target,
                fields,
                body,
            } => Act::Request {
                method: Cow::Owned(method.into_owned()),
                target: Cow::Owned(target.into_owned()),
                fields,
                body: owned(body),
            },
            Self::Abort => Act::Abort,
            Self::Error(text) => Act::Error(Cow::Owned(text.into_owned())),
            Self::Drain => Act::Drain,
            Self::Close => Act::Close,
            Self::Pause => Act::Pause,
            Self::Resume => Act::Resume,
            Self::PollEvents(wanted) => Act::PollEvents(wanted),
            Self::Handler(shared, slot) => Act::Handler(shared, slot),
        }
    }
}

fn owned(data: Cow<'_, [u8]>) -> Cow<'static, [u8]> {
    Cow::Owned(data.into_owned())
}

/// Lends the fields as the engine takes them.
pub(super) fn with_fields<R>(fields: &Fields, act: impl FnOnce(&[(&str, &[u8])]) -> R) -> R {
    if fields.is_empty() {
        return act(&[]);
    }
    let borrowed: Vec<(&str, &[u8])> = fields
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_slice()))
        .collect();
    act(&borrowed)
}

impl SseEvent<'_> {
    /// Sends it; on a request that has no answer yet it begins the stream.
    fn send(&self, conn: &mut Conn<'_>) -> Result<(), ConnError> {
        let mut event = sse::Event::new(&self.data);
        event.event = (!self.kind.is_empty()).then_some(&*self.kind);
        event.id = self.id.as_deref();
        event.retry = self.retry;
        match conn.sse_event(&event) {
            Err(ConnError::NotOpen) => {
                conn.sse()?;
                conn.sse_event(&event)
            }
            sent => sent,
        }
    }
}

/// True where a piece of output would be taken.
pub(super) fn takes_output(conn: &mut Conn<'_>) -> bool {
    !conn.is_listening() && !conn.is_closing() && !conn.is_full()
}

fn send_frame(conn: &mut Conn<'_>, opcode: u8, data: &[u8]) -> Result<(), ConnError> {
    match opcode {
        opcode::TEXT => conn.ws_send(MessageKind::Text, data),
        opcode::BINARY => conn.ws_send(MessageKind::Binary, data),
        opcode::PING => conn.ws_ping(data),
        opcode::PONG => conn.ws_pong(data),
        _ => {
            let (code, reason) = close_payload(data).unwrap_or((CloseCode::NORMAL, ""));
            conn.ws_close(code, reason)
        }
    }
}

/// The code and the reason of a close frame's payload (RFC 6455 section 5.5.1).
pub(super) fn close_payload(data: &[u8]) -> Option<(CloseCode, &str)> {
    let (code, reason) = data.split_first_chunk()?;
    let code = CloseCode::new(u16::from_be_bytes(*code))?;
    Some((code, std::str::from_utf8(reason).ok()?))
}

/// Refuses a frame that cannot be sent; text that came as a `str` is UTF-8.
pub(super) fn check_frame(opcode: u8, data: &[u8], is_str: bool) -> PyResult<()> {
    match opcode {
        opcode::TEXT if !is_str && std::str::from_utf8(data).is_err() => {
            return Err(PyValueError::new_err("text message is not valid UTF-8"));
        }
        opcode::CLOSE if !data.is_empty() && close_payload(data).is_none() => {
            return Err(PyValueError::new_err(
                "payload of a close frame is not a code that may be sent and UTF-8",
            ));
        }
        opcode::PING | opcode::PONG if data.len() > 125 => {
            return Err(PyValueError::new_err(format!(
                "payload of a control frame exceeds 125 bytes: {}",
                data.len()
            )));
        }
        opcode::TEXT | opcode::BINARY | opcode::CLOSE | opcode::PING | opcode::PONG => {}
        _ => {
            return Err(PyValueError::new_err(format!(
                "opcode is none of 1, 2, 8, 9, 10: {opcode}"
            )));
        }
    }
    Ok(())
}
