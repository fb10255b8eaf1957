//! The server of the crate `h2`, without a socket.

use super::{End, Seen, request, trailers};
use bytes::Bytes;
use dwell_proto::http2::{PREFACE, encode};
use h2::server::{Builder, Connection, Handshake, SendResponse};
use h2::{Error, RecvStream};
use http::{HeaderMap, request::Parts};
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

pub struct Theirs {
    wire: Wire,
    connection: Connection<Wire, Bytes>,
    /// The bodies that have not ended. An answer that is never given keeps its stream open.
    bodies: Vec<(u32, RecvStream, SendResponse<Bytes>)>,
}

/// Bytes that the client has sent; what it is sent goes nowhere.
#[derive(Clone, Default)]
struct Wire(Rc<RefCell<Vec<u8>>>);

const IDLE_POLLS: u32 = 3;

impl Theirs {
    pub fn new() -> Self {
        let wire = Wire::default();
        wire.0.borrow_mut().extend_from_slice(PREFACE);
        encode::settings(&[], &mut wire.0.borrow_mut());
        let mut handshake: Handshake<Wire, Bytes> = Builder::new()
            .enable_connect_protocol()
            .handshake(wire.clone());
        let mut context = Context::from_waker(Waker::noop());
        let Poll::Ready(Ok(connection)) = Pin::new(&mut handshake).poll(&mut context) else {
            panic!("the preface is complete");
        };
        let mut theirs = Self {
            wire,
            connection,
            bodies: Vec::new(),
        };
        theirs.receive(&[]);
        theirs
    }

    pub fn receive(&mut self, frame: &[u8]) -> Seen {
        self.wire.0.borrow_mut().extend_from_slice(frame);
        let mut seen = Seen::default();
        let mut context = Context::from_waker(Waker::noop());
        // It may give way to others before it has done everything.
        let mut idle = 0;
        while idle < IDLE_POLLS {
            match self.connection.poll_accept(&mut context) {
                Poll::Ready(Some(Ok((request, answer)))) => {
                    let (head, body) = request.into_parts();
                    let stream = body.stream_id().into();
                    seen.lines.push(line(stream, &head));
                    self.bodies.push((stream, body, answer));
                }
                Poll::Ready(Some(Err(error))) => {
                    seen.end = End::Failed(code(&error));
                    break;
                }
                Poll::Ready(None) => {
                    seen.end = End::Failed(0);
                    break;
                }
                Poll::Pending => idle += 1,
            }
        }
        self.bodies.retain_mut(|(stream, body, answer)| {
            let goes_on = read(*stream, body, &mut context, &mut seen);
            if let Poll::Ready(Ok(reason)) = answer.poll_reset(&mut context) {
                // With the connection all its streams end.
                if seen.end == End::GoesOn {
                    seen.lines
                        .push(format!("{stream} fails {}", u32::from(reason)));
                }
                return false;
            }
            goes_on
        });
        seen
    }
}

/// Reads what has come of a body; false if no more comes.
fn read(stream: u32, body: &mut RecvStream, context: &mut Context, seen: &mut Seen) -> bool {
    loop {
        match body.poll_data(context) {
            Poll::Ready(Some(Ok(data))) => {
                let released = body.flow_control().release_capacity(data.len());
                released.expect("it was received");
                if !data.is_empty() {
                    seen.lines
                        .push(format!("{stream} data {}", data.escape_ascii()));
                }
            }
            Poll::Ready(Some(Err(_))) => return true,
            Poll::Ready(None) => break,
            Poll::Pending => return true,
        }
    }
    if let Poll::Ready(Ok(Some(fields))) = body.poll_trailers(context) {
        seen.lines.push(trailers(stream, fields_of(&fields)));
    }
    if body.is_end_stream() {
        seen.lines.push(format!("{stream} ends"));
    }
    !body.is_end_stream()
}

fn line(stream: u32, head: &Parts) -> String {
    let uri = &head.uri;
    let authority = uri.authority().map_or("", |authority| authority.as_str());
    let target = uri.path_and_query().map_or("", |target| target.as_str());
    let scheme = uri.scheme_str().unwrap_or("");
    let words = [head.method.as_str(), scheme, authority, target];
    request(stream, words, fields_of(&head.headers))
}

fn fields_of(fields: &HeaderMap) -> Vec<(String, Vec<u8>)> {
    let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
        (name.as_str().to_owned(), value.as_bytes().to_vec())
    };
    fields.iter().map(field).collect()
}

fn code(error: &Error) -> u32 {
    error.reason().map_or(u32::MAX, u32::from)
}

impl AsyncRead for Wire {
    fn poll_read(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<std::io::Result<()>> {
        let mut bytes = self.0.borrow_mut();
        if bytes.is_empty() {
            return Poll::Pending;
        }
        let count = bytes.len().min(into.remaining());
        into.put_slice(&bytes[..count]);
        bytes.drain(..count);
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Wire {
    fn poll_write(
        self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<std::io::Result<usize>> {
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<std::io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
