//! Handlers that may block, on the worker pool.

use super::{BodyMode, Exchange, Handler, OwnedRequest, Responder};
use crate::Request;
use dwell_proto::http1::RequestHead;
use std::sync::Arc;

/// A handler on the worker pool; made by [`blocking`].
#[derive(Debug)]
pub struct Blocking<F> {
    handler: Arc<F>,
}

/// Lets `handler` run on the worker pool, where it may block and read the body as it comes.
///
/// Shape: when all workers are busy and the queue is full, the client gets 503 at once, and that is
/// counted. If the handler panics before it has begun to answer, the client gets 500.
///
/// ```
/// use dwell_engine::Server;
/// use dwell_engine::handler::{Answer, OwnedRequest, Responder, blocking};
///
/// let running = Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     .workers(4)
///     .serve(blocking(|mut request: OwnedRequest, responder: Responder| {
///         let answer = match request.body.read_all(1024) {
///             Ok(body) => Answer::text(200, format!("{} bytes\n", body.len())),
///             Err(error) => Answer::text(400, format!("{error}\n")),
///         };
///         // The client may have left meanwhile, which is no error of ours.
///         let _ = responder.send(answer);
///     }))?;
/// # let request = "POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello";
/// # let answer = dwell_testkit::ask(running.addresses()[0], request);
/// # assert!(answer.ends_with("\r\n\r\n5 bytes\n"), "{answer}");
/// # Ok::<(), dwell_engine::ServerError>(())
/// ```
pub fn blocking<F>(handler: F) -> Blocking<F>
where
    F: Fn(OwnedRequest, Responder) + Send + Sync + 'static,
{
    Blocking {
        handler: Arc::new(handler),
    }
}

impl<F> Handler for Blocking<F>
where
    F: Fn(OwnedRequest, Responder) + Send + Sync + 'static,
{
    fn body(&self, _: &RequestHead<'_, '_>) -> BodyMode {
        BodyMode::Stream
    }

    fn handle(&self, request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
        let owned = exchange.owned(request);
        let responder = exchange.responder();
        let handler = Arc::clone(&self.handler);
        // A full queue has answered the client already.
        let _ = exchange.offload(move || handler(owned, responder));
    }
}
