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
//! # let answer = dwell_testkit::ask(running.addresses()[0], "GET / HTTP/1.0\r\n\r\n");
//! # assert!(answer.ends_with("GET /\n"), "{answer}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::{
    Answer, BodyError, BodyMode, Exchange, Handler, RequestBody, Responder, StreamHandler, Takeover,
};
use crate::Request;
use ::http::header::CONTENT_LENGTH;
use ::http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, response};
use bytes::Bytes;
use dwell_evloop::BlockingStream;
use dwell_proto::http1::{RequestHead, Version};
use http_body::{Body, Frame, SizeHint};
use std::fmt;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};

/// The client's address, among the extensions of a request; absent over a unix socket.
///
/// ```
/// use bytes::Bytes;
/// use dwell_engine::handler::http::PeerAddress;
/// use http::{Request, Response};
///
/// fn address_of(request: Request<Bytes>) -> Response<String> {
///     let peer = request.extensions().get::<PeerAddress>();
///     Response::new(match peer {
///         Some(PeerAddress(address)) => format!("you are {address}\n"),
///         None => "you are on this machine\n".into(),
///     })
/// }
/// #
/// # use dwell_engine::{Server, handler::http::inline};
/// # let running = Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(inline(address_of))?;
/// # let answer = dwell_testkit::ask(running.addresses()[0], "GET / HTTP/1.0\r\n\r\n");
/// # assert!(answer.contains("\r\n\r\nyou are 127.0.0.1:"), "{answer}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct PeerAddress(pub SocketAddr);

/// A mark among the extensions of a request that came under TLS. The certificates that its client
/// has shown are an extension too, of the type [`PeerCertificates`](crate::PeerCertificates).
///
/// ```
/// use bytes::Bytes;
/// use dwell_engine::handler::http::Secure;
/// use http::{Request, Response};
///
/// fn scheme_of(request: Request<Bytes>) -> Response<&'static str> {
///     let is_secure = request.extensions().get::<Secure>().is_some();
///     Response::new(if is_secure { "https\n" } else { "http\n" })
/// }
/// #
/// # use dwell_engine::{Server, handler::http::inline};
/// # let running = Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(inline(scheme_of))?;
/// # let answer = dwell_testkit::ask(running.addresses()[0], "GET / HTTP/1.0\r\n\r\n");
/// # assert!(answer.ends_with("\r\n\r\nhttp\n"), "{answer}");
/// # Ok::<(), dwell_engine::ServerError>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Secure;

/// The means by which a handler takes the connection over. It is among the extensions of a request
/// that asks for an upgrade; the handler then answers 101.
///
/// ```
/// use bytes::Bytes;
/// use dwell_engine::handler::http::{OnUpgrade, inline};
/// use dwell_engine::{Server, StreamRef};
/// use http::{Request, Response};
///
/// # let running =
/// Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     .serve(inline(|request: Request<Bytes>| {
///         let mut response = Response::new("upgrade to echo, please\n");
///         if let Some(upgrade) = request.extensions().get::<OnUpgrade>() {
///             upgrade.take_over(|stream: &mut StreamRef<'_>, input: &[u8]| {
///                 stream.write(input);
///                 input.len()
///             });
///             *response.status_mut() = http::StatusCode::SWITCHING_PROTOCOLS;
///             let fields = response.headers_mut();
///             fields.insert("connection", http::HeaderValue::from_static("upgrade"));
///             fields.insert("upgrade", http::HeaderValue::from_static("echo"));
///         }
///         response
///     }))?;
/// # let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: echo\r\n\r\nhi";
/// # let answer = dwell_testkit::ask_and_finish(running.addresses()[0], request);
/// # assert!(answer.starts_with("HTTP/1.1 101 ") && answer.ends_with("hi"), "{answer}");
/// # Ok::<(), dwell_engine::ServerError>(())
/// ```
#[derive(Clone)]
pub struct OnUpgrade {
    takeover: Arc<Mutex<Option<Takeover>>>,
}

impl OnUpgrade {
    /// Hands the connection's bytes to `handler` on its loop, once a 101 was answered.
    pub fn take_over(&self, handler: impl StreamHandler) {
        self.set(Takeover::Loop(Box::new(handler)));
    }

    /// Gives the connection to `run` in a thread of its own, once a 101 was answered, with what
    /// the client has sent beyond its request. A client under TLS gets 501.
    ///
    /// ```
    /// use bytes::Bytes;
    /// use dwell_engine::handler::http::OnUpgrade;
    /// use http::{Request, Response, StatusCode};
    /// use std::io::Write;
    ///
    /// fn classic(request: Request<Bytes>) -> Response<&'static str> {
    ///     let mut response = Response::new("");
    ///     if let Some(upgrade) = request.extensions().get::<OnUpgrade>() {
    ///         upgrade.take_over_blocking(|mut socket, early| {
    ///             // It is closed at the end of this, whatever came of it.
    ///             let _ = socket.write_all(&early);
    ///         });
    ///         *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    ///     }
    ///     response
    /// }
    /// #
    /// # use dwell_engine::{Server, handler::http::inline};
    /// # let running = Server::builder()
    /// #     .listen(([127, 0, 0, 1], 0).into())
    /// #     .serve(inline(classic))?;
    /// # let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\nhi";
    /// # let answer = dwell_testkit::ask(running.addresses()[0], request);
    /// # assert!(answer.starts_with("HTTP/1.1 101 ") && answer.ends_with("hi"), "{answer}");
    /// # Ok::<(), dwell_engine::ServerError>(())
    /// ```
    pub fn take_over_blocking(&self, run: impl FnOnce(BlockingStream, Vec<u8>) + Send + 'static) {
        self.set(Takeover::Thread(Box::new(run)));
    }

    pub(super) fn set(&self, takeover: Takeover) {
        let mut place = self.takeover.lock().unwrap_or_else(PoisonError::into_inner);
        *place = Some(takeover);
    }

    fn take(&self) -> Option<Takeover> {
        let mut place = self.takeover.lock().unwrap_or_else(PoisonError::into_inner);
        place.take()
    }
}

impl fmt::Debug for OnUpgrade {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OnUpgrade").finish_non_exhaustive()
    }
}

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
/// # let request = "POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello";
/// # let answer = dwell_testkit::ask(running.addresses()[0], request);
/// # assert!(answer.ends_with("\r\n\r\n5 bytes of text\n"), "{answer}");
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
        let form = Form::of(request, &typed);
        let (head, body) = (self.handler)(typed).into_parts();
        if head.status == StatusCode::SWITCHING_PROTOCOLS {
            form.switch(exchange.responder(), &head);
        } else {
            exchange.answer(form.whole(&head, body.into()));
        }
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
        let form = Form::of(request, &typed);
        // A full queue has answered the client already.
        let _ = exchange.offload(move || {
            let (head, body) = handler(typed).into_parts();
            if head.status == StatusCode::SWITCHING_PROTOCOLS {
                form.switch(responder, &head);
            } else {
                // The client may have left meanwhile.
                let _ = responder.send(form.whole(&head, body.into()));
            }
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
        Version::Http2 => ::http::Version::HTTP_2,
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
    if request.is_secure {
        typed.extensions_mut().insert(Secure);
    }
    if let Some(certificates) = exchange.peer_certificates() {
        typed.extensions_mut().insert(certificates.clone());
    }
    if head.upgrade.is_some() {
        typed.extensions_mut().insert(OnUpgrade {
            takeover: Arc::default(),
        });
    }
    Some(typed)
}

/// The answer to a request that the types of the `http` crate cannot express.
pub(super) fn not_understood() -> Answer {
    Answer::text(400, "Bad Request\n")
}

/// Properties of a request that decide how a response to it is sent.
pub(super) struct Form {
    pub(super) is_head: bool,
    upgrade: Option<OnUpgrade>,
}

impl Form {
    pub(super) fn of<B>(request: &Request<'_>, typed: &::http::Request<B>) -> Self {
        Self {
            is_head: request.head.method == "HEAD",
            upgrade: typed.extensions().get().cloned(),
        }
    }

    /// A whole answer; 500 in the place of one that is not final.
    fn whole(&self, head: &response::Parts, body: Bytes) -> Answer {
        if head.status.is_informational() {
            return Answer::text(500, "Internal Server Error\n");
        }
        if self.is_head && body.is_empty() {
            return answer_of(head).absent(announced(&head.headers));
        }
        answer_of(head).body(body)
    }

    /// Answers 101 and lets the connection go. Answers 500 if the handler has not taken it over, or
    /// the request did not ask for it.
    pub(super) fn switch(&self, responder: Responder, head: &response::Parts) {
        if let Some(takeover) = self.upgrade.as_ref().and_then(OnUpgrade::take) {
            // The client may have left meanwhile.
            let _ = responder.order_takeover(answer_of(head), takeover);
        }
    }
}

/// Returns true if a response of this status has no body (RFC 9110 section 6.4.1).
#[cfg(feature = "tower")]
pub(super) fn is_bodiless(status: StatusCode) -> bool {
    let is_empty = matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    is_empty || status.is_informational()
}

/// Status and fields.
pub(super) fn answer_of(head: &response::Parts) -> Answer {
    let answer = Answer::new(head.status.as_u16());
    head.headers.iter().fold(answer, |answer, (name, value)| {
        let value = Bytes::copy_from_slice(value.as_bytes());
        answer.field(name.as_str().to_owned(), value)
    })
}

/// The length that a response announces.
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
