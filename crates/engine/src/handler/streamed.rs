//! Handlers on the loop that take bodies as they come.

use super::{BodyMode, Exchange, Handler};
use crate::Request;
use dwell_proto::http1::RequestHead;

/// A handler that is called with the head of a request; made by [`streamed`].
#[derive(Debug)]
pub struct Streamed<F> {
    handler: F,
}

/// Calls `handler`, on the loop, as soon as the head of a request is here; the body is read through
/// [`Exchange::body`], or not at all.
///
/// ```
/// use dwell_engine::handler::{Answer, Exchange, streamed};
/// use dwell_engine::{Request, Server};
/// use std::future::poll_fn;
///
/// # let running =
/// Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     .serve(streamed(|request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
///         let mut body = exchange.body(request);
///         exchange.spawn(|responder| async move {
///             let mut bytes = 0;
///             while let Some(Ok(piece)) = poll_fn(|task| body.poll_next(task)).await {
///                 bytes += piece.len();
///             }
///             // The client may have left meanwhile, which is no error of ours.
///             let _ = responder.send(Answer::text(200, format!("{bytes} bytes\n")));
///         });
///     }))?;
/// # let request = "POST / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello";
/// # let answer = dwell_testkit::ask(running.addresses()[0], request);
/// # assert!(answer.ends_with("\r\n\r\n5 bytes\n"), "{answer}");
/// # Ok::<(), dwell_engine::ServerError>(())
/// ```
pub fn streamed<F>(handler: F) -> Streamed<F>
where
    F: Fn(&Request<'_>, &mut Exchange<'_, '_>) + Send + Sync + 'static,
{
    Streamed { handler }
}

impl<F> Handler for Streamed<F>
where
    F: Fn(&Request<'_>, &mut Exchange<'_, '_>) + Send + Sync + 'static,
{
    fn body(&self, _: &RequestHead<'_, '_>) -> BodyMode {
        BodyMode::Stream
    }

    fn handle(&self, request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
        (self.handler)(request, exchange);
    }
}
