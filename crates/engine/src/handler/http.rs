//! Handlers over the types of the `http` crate: closures from a request to a response.
//!
//! ```
//! use bytes::Bytes;
//! use dwell_engine::Server;
//! use dwell_engine::handler::http::inline;
//!
//! # let running =
//! Server::builder()
//!     .listen(([127, 0, 0, 1], 0).into())
//!     .serve(inline(|request: http::Request<Bytes>| {
//!         http::Response::new(format!("{} {}\n", request.method(), request.uri()))
//!     }))?;
//! # Ok::<(), dwell_engine::ServerError>(())
//! ```

use super::{Answer, BodyError, BodyMode, Exchange, Handler, RequestBody, Responder};
use crate::Request;
use ::http::header::{CONNECTION, CONTENT_LENGTH, DATE, TRANSFER_ENCODING};
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, response};
use bytes::Bytes;
use dwell_proto::http1::{RequestHead, Version, list_tokens};
use http_body::{Body, Frame, SizeHint};
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

/// The client's address, among the extensions of a request; absent over a unix socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerAddress(pub SocketAddr);

/// Lets `handler` run on the loop, with the whole body of the request; it must not block.
pub fn inline<F, B>(handler: F) -> Inline<F>
where
    F: Fn(::http::Request<Bytes>) -> ::http::Response<B> + Send + Sync + 'static,
    B: Into<Bytes>,
{
    Inline { handler }
}

/// Lets `handler` run on the worker pool, where it may block and read the body as it comes.
///
/// ```
/// use dwell_engine::Server;
/// use dwell_engine::handler::RequestBody;
/// use dwell_engine::handler::http::pooled;
/// use std::io::Read;
///
/// # let running =
/// Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     .serve(pooled(|mut request: http::Request<RequestBody>| {
///         let mut text = String::new();
///         match request.body_mut().read_to_string(&mut text) {
///             Ok(length) => http::Response::new(format!("{length} bytes of text\n")),
///             Err(error) => http::Response::new(format!("{error}\n")),
///         }
///     }))?;
/// # Ok::<(), dwell_engine::ServerError>(())
/// ```
pub fn pooled<F, B>(handler: F) -> Pooled<F>
where
    F: Fn(::http::Request<RequestBody>) -> ::http::Response<B> + Send + Sync + 'static,
    B: Into<Bytes>,
{
    Pooled {
        handler: Arc::new(handler),
    }
}

/// A closure on the loop; made by [`inline`].
#[derive(Debug)]
pub struct Inline<F> {
    handler: F,
}

/// A closure on the worker pool; made by [`pooled`].
#[derive(Debug)]
pub struct Pooled<F> {
    handler: Arc<F>,
}

impl<F, B> Handler for Inline<F>
where
    F: Fn(::http::Request<Bytes>) -> ::http::Response<B> + Send + Sync + 'static,
    B: Into<Bytes> + 'static,
{
    fn handle(&self, request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
        let body = Bytes::copy_from_slice(request.body);
        let Some(typed) = request_of(request, exchange, body) else {
            exchange.answer(not_understood());
            return;
        };
        let is_head = request.head.method == "HEAD";
        let (head, body) = (self.handler)(typed).into_parts();
        exchange.answer(whole(&head, body.into(), is_head));
    }
}

impl<F, B> Handler for Pooled<F>
where
    F: Fn(::http::Request<RequestBody>) -> ::http::Response<B> + Send + Sync + 'static,
    B: Into<Bytes> + 'static,
{
    fn body(&self, _: &RequestHead<'_, '_>) -> BodyMode {
        BodyMode::Stream
    }

    fn handle(&self, request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
        let body = exchange.body(request);
        let Some(typed) = request_of(request, exchange, body) else {
            exchange.answer(not_understood());
            return;
        };
        let responder: Responder = exchange.responder();
        let handler = Arc::clone(&self.handler);
        let is_head = request.head.method == "HEAD";
        // A full queue has answered the client already.
        let _ = exchange.offload(move || {
            let (head, body) = handler(typed).into_parts();
            // The client may have left meanwhile.
            let _ = responder.send(whole(&head, body.into(), is_head));
        });
    }
}

/// The request in the types of the `http` crate; `None` where they cannot express it.
pub(super) fn request_of<B>(
    request: &Request<'_>,
    exchange: &Exchange<'_, '_>,
    body: B,
) -> Option<::http::Request<B>> {
    let head = request.head;
    let mut typed = ::http::Request::new(body);
    *typed.method_mut() = Method::from_bytes(head.method.as_bytes()).ok()?;
    *typed.uri_mut() = head.target.parse().ok()?;
    *typed.version_mut() = match head.version {
        Version::Http10 => ::http::Version::HTTP_10,
        Version::Http11 => ::http::Version::HTTP_11,
    };
    typed.headers_mut().reserve(head.fields.len());
    for (name, value) in head.fields.iter() {
        let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
        typed
            .headers_mut()
            .append(name, HeaderValue::from_bytes(value).ok()?);
    }
    if let Some(peer) = exchange.peer_address() {
        typed.extensions_mut().insert(PeerAddress(peer));
    }
    Some(typed)
}

/// The answer to a request that the types of the `http` crate cannot express.
pub(super) fn not_understood() -> Answer {
    Answer::text(400, "Bad Request\n")
}

/// A whole answer.
pub(super) fn whole(head: &response::Parts, body: Bytes, is_head: bool) -> Answer {
    let length = announced(&head.headers);
    let answer = answer_of(head);
    if is_head && body.is_empty() {
        return answer.absent(length);
    }
    answer.body(body)
}

/// Status and fields, without those that the engine sets by itself.
pub(super) fn answer_of(head: &response::Parts) -> Answer {
    let is_switch = head.status == StatusCode::SWITCHING_PROTOCOLS;
    let mut answer = Answer::new(head.status.as_u16());
    for (name, value) in &head.headers {
        if *name == CONNECTION && !is_switch {
            if list_tokens(value.as_bytes()).any(|token| token.eq_ignore_ascii_case(b"close")) {
                answer = answer.close_after();
            }
        } else if *name != CONTENT_LENGTH && *name != TRANSFER_ENCODING && *name != DATE {
            let value = Bytes::copy_from_slice(value.as_bytes());
            answer = answer.field(name.as_str().to_owned(), value);
        }
    }
    answer
}

/// The size that a response says it has.
pub(super) fn announced(fields: &HeaderMap) -> Option<u64> {
    fields.get(CONTENT_LENGTH)?.to_str().ok()?.parse().ok()
}

/// The body of a request as its bytes come, with its trailer fields.
impl Body for RequestBody {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        task: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BodyError>>> {
        match self.poll_next(task) {
            Poll::Ready(None) => Poll::Ready(self.trailers_once().map(|trailers| {
                let fields = trailers.iter().filter_map(|(name, value)| {
                    let name = HeaderName::from_bytes(name.as_bytes()).ok()?;
                    Some((name, HeaderValue::from_bytes(value).ok()?))
                });
                Ok(Frame::trailers(fields.collect()))
            })),
            other => other.map(|next| next.map(|piece| piece.map(Frame::data))),
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.known_length()
            .map_or_else(SizeHint::new, SizeHint::with_exact)
    }

    fn is_end_stream(&self) -> bool {
        self.is_at_end()
    }
}
