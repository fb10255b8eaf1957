//! Handlers that are a `tower::Service`, such as an axum `Router`.
//!
//! Their futures are polled on the loop of the connection: a request that waits is an entry in a
//! table and its future, and an idle connection has neither. Bodies stream both ways, with trailer
//! fields; the client's window is the backpressure of a request's, `poll_frame` that of a
//! response's.
//!
//! A service that uses tokio's timers, sockets or `spawn` needs a tokio runtime that runs elsewhere
//! and is [entered](Tower::around) around every poll:
//!
//! ```
//! use axum::{Router, routing::get};
//! use dwell_engine::Server;
//! use dwell_engine::handler::tower::service;
//! use std::time::Duration;
//!
//! let runtime = tokio::runtime::Builder::new_multi_thread()
//!     .worker_threads(1)
//!     .enable_all()
//!     .build()?;
//! let handle = runtime.handle().clone();
//! let router = Router::new().route("/", get(|| async {
//!     tokio::time::sleep(Duration::from_millis(10)).await;
//!     "hello"
//! }));
//! let running = Server::builder()
//!     .listen(([127, 0, 0, 1], 0).into())
//!     .serve(service(router).around(move |poll| {
//!         let _guard = handle.enter();
//!         poll();
//!     }))?;
//! # let answer = dwell_testkit::ask(running.addresses()[0], "GET / HTTP/1.0\r\n\r\n");
//! # assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::answer::Field;
use super::http::{Form, announced, answer_of, is_bodiless, not_understood, request_of};
use super::{BodyMode, BodyWriter, Exchange, Handler, RequestBody, Responder, TryWriteError};
use crate::Request;
use ::http::StatusCode;
use bytes::{Buf, Bytes};
use dwell_proto::http1::RequestHead;
use http_body::{Body, Frame};
use std::cell::Cell;
use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use tower_service::Service;

/// Runs around every poll of a future, and calls what it is given once.
type Around = dyn Fn(&mut dyn FnMut()) + Send + Sync;

/// A service as a handler; made by [`service`].
pub struct Tower<S> {
    /// The service as it was given; each loop works on a copy. It need not be `Sync`.
    service: Mutex<S>,
    around: Option<Arc<Around>>,
    /// Ends with the handler; loops know their copies by it.
    life: Arc<()>,
}

/// A handler on one loop.
struct Local<S> {
    service: S,
    /// The copy that the last request has used; the next one goes on with it, if it is not waiting.
    free: Cell<Option<S>>,
    around: Option<Arc<Around>>,
}

/// Serves requests by a `tower::Service`.
///
/// Shape: its futures need not be `Send`: each stays on one loop. A service that fails answers 500;
/// a response body that fails cuts the connection. When a client leaves, its future is dropped.
/// `Connection: close` of a response is honoured; fields that frame a response are the engine's. A
/// connection is taken over by the [`OnUpgrade`](super::http::OnUpgrade) in the extensions of its
/// request. Only hyper can make its upgrade, which axum's `WebSocketUpgrade` needs; the extractor
/// of the same name in `dwell_engine::handler::axum` (feature `axum`) takes its place.
pub fn service<S, B>(service: S) -> Tower<S>
where
    S: Service<::http::Request<RequestBody>, Response = ::http::Response<B>>,
    S: Clone + Send + 'static,
    S::Future: 'static,
    B: Body + 'static,
{
    Tower {
        service: Mutex::new(service),
        around: None,
        life: Arc::new(()),
    }
}

impl<S> Tower<S> {
    /// Calls `around` for every poll, with what polls; for guards such as tokio's `enter`.
    #[must_use]
    pub fn around(mut self, around: impl Fn(&mut dyn FnMut()) + Send + Sync + 'static) -> Self {
        self.around = Some(Arc::new(around));
        self
    }
}

impl<S: Clone> Tower<S> {
    /// The handler for one loop.
    fn local(&self) -> Local<S> {
        let service = self.service.lock();
        Local {
            service: service.unwrap_or_else(PoisonError::into_inner).clone(),
            free: Cell::new(None),
            around: self.around.clone(),
        }
    }
}

impl<S> fmt::Debug for Tower<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Tower").finish_non_exhaustive()
    }
}

impl<S, B> Handler for Tower<S>
where
    S: Service<::http::Request<RequestBody>, Response = ::http::Response<B>>,
    S: Clone + Send + 'static,
    S::Future: 'static,
    B: Body + 'static,
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
        let form = Form::of(request, &typed);
        let local = exchange.locals().of(&self.life, || self.local());
        if local.around.is_none() {
            return exchange.spawn(|responder| serve(local, typed, responder, form));
        }
        exchange.spawn(|responder| Entered {
            future: Some(Box::pin(serve(Rc::clone(&local), typed, responder, form))),
            local,
        });
    }
}

/// A future that is polled, and dropped, within a scope.
struct Entered<S, F> {
    local: Rc<Local<S>>,
    future: Option<Pin<Box<F>>>,
}

impl<S> Local<S> {
    /// Calls `act` within the scope.
    fn enter(&self, act: &mut dyn FnMut()) {
        match &self.around {
            Some(around) => around(act),
            None => act(),
        }
    }
}

impl<S, F: Future<Output = ()>> Future for Entered<S, F> {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, task: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let mut poll = Poll::Pending;
        this.local.enter(&mut || {
            if let Some(future) = &mut this.future {
                poll = future.as_mut().poll(task);
            }
        });
        poll
    }
}

impl<S, F> Drop for Entered<S, F> {
    fn drop(&mut self) {
        let future = &mut self.future;
        self.local.enter(&mut || drop(future.take()));
    }
}

/// Answers one request.
async fn serve<S, B>(
    local: Rc<Local<S>>,
    request: ::http::Request<RequestBody>,
    responder: Responder,
    form: Form,
) where
    S: Service<::http::Request<RequestBody>, Response = ::http::Response<B>> + Clone,
    B: Body,
{
    let free = local.free.take();
    let mut service = free.unwrap_or_else(|| local.service.clone());
    // A responder that is dropped answers 500; so below.
    if poll_fn(|task| service.poll_ready(task)).await.is_err() {
        return;
    }
    let response = service.call(request);
    local.free.set(Some(service));
    let Ok(response) = response.await else {
        return;
    };
    let (head, body) = response.into_parts();
    if head.status == StatusCode::SWITCHING_PROTOCOLS {
        form.switch(responder, &head);
        return;
    }
    if is_bodiless(head.status) {
        if !head.status.is_informational() {
            // The client may have left meanwhile; so below.
            let _ = responder.send(answer_of(&head));
        }
        return;
    }
    let (exact, announced) = (body.size_hint().exact(), announced(&head.headers));
    let length = if form.is_head {
        announced.or(exact)
    } else {
        exact.or(announced)
    };
    let mut body = pin!(body);
    if form.is_head {
        let _ = responder.send(answer_of(&head).absent(length));
        return;
    }
    let Ok(ahead) = read_ahead(body.as_mut()).await else {
        return;
    };
    if ahead.is_complete
        && let Some(data) = ahead.data()
    {
        let _ = responder.send(answer_of(&head).body(data));
    } else if let Ok(writer) = responder.stream(answer_of(&head), length) {
        let _ = stream(ahead.frames, body, writer).await;
    }
}

/// The frames of a body that are there at once, up to two: most bodies are one.
struct Ahead {
    frames: Vec<Frame<Bytes>>,
    is_complete: bool,
}

async fn read_ahead<B: Body>(mut body: Pin<&mut B>) -> Result<Ahead, B::Error> {
    let mut ahead = Ahead {
        frames: Vec::new(),
        is_complete: false,
    };
    while ahead.frames.len() < 2 {
        if body.is_end_stream() {
            ahead.is_complete = true;
            break;
        }
        match poll_fn(|task| Poll::Ready(body.as_mut().poll_frame(task))).await {
            Poll::Pending => break,
            Poll::Ready(None) => {
                ahead.is_complete = true;
                break;
            }
            Poll::Ready(Some(frame)) => ahead.frames.push(frame?.map_data(bytes_of)),
        }
    }
    Ok(ahead)
}

impl Ahead {
    /// All of a body that is one piece of data, or nothing.
    fn data(&self) -> Option<Bytes> {
        match self.frames.as_slice() {
            [] => Some(Bytes::new()),
            [frame] => frame.data_ref().cloned(),
            _ => None,
        }
    }
}

/// Writes what was read ahead and the rest; cuts the connection where the body fails.
async fn stream<B: Body>(
    ahead: Vec<Frame<Bytes>>,
    mut body: Pin<&mut B>,
    mut writer: BodyWriter,
) -> Result<(), TryWriteError> {
    for frame in ahead {
        match frame.into_data() {
            Ok(data) => writer.write_async(data).await?,
            Err(frame) => return end(writer, &frame),
        }
    }
    loop {
        // Nothing is asked of the body before there is room for it.
        poll_fn(|task| writer.poll_writable(task)).await?;
        match poll_fn(|task| body.as_mut().poll_frame(task)).await {
            None => return writer.finish(Vec::new()).map_err(|_| TryWriteError::Gone),
            Some(Err(_)) => return Ok(()),
            Some(Ok(frame)) => match frame.map_data(bytes_of).into_data() {
                Ok(data) => writer.write_async(data).await?,
                Err(frame) => return end(writer, &frame),
            },
        }
    }
}

/// Ends an answer by its trailer fields.
fn end(writer: BodyWriter, frame: &Frame<Bytes>) -> Result<(), TryWriteError> {
    let mut fields: Vec<Field> = Vec::new();
    for (name, value) in frame.trailers_ref().into_iter().flatten() {
        let value = Bytes::copy_from_slice(value.as_bytes());
        fields.push((name.as_str().to_owned().into(), value));
    }
    writer.finish(fields).map_err(|_| TryWriteError::Gone)
}

fn bytes_of(mut data: impl Buf) -> Bytes {
    data.copy_to_bytes(data.remaining())
}
