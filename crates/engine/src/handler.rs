//! Handlers: the part of a [`Server`](crate::Server) that answers requests.
//!
//! | a handler that | is |
//! |---|---|
//! | answers at once | a closure in [`handler_fn`]: runs on the loop, gets whole bodies |
//! | reads bodies as they come | the same, in [`streamed()`] |
//! | blocks | [`blocking()`]: runs on the worker pool, gets an owned request and reads its body |
//! | answers later | any of them, by [`Exchange::responder`], from any thread |
//! | is a closure over `http` types | `inline` and `pooled` in `handler::http` (feature `http`) |
//! | is a `tower::Service` | `handler::tower::service` (feature `tower`) |
//!
//! ```
//! use dwell_engine::handler::handler_fn;
//!
//! let hello = handler_fn(|request, exchange| exchange.text(200, request.head.path));
//! # let answer = dwell_testkit::handle_once("GET /here HTTP/1.0\r\n\r\n", hello);
//! # assert!(answer.ends_with("\r\n\r\n/here\n"), "{answer}");
//! ```

mod answer;
#[cfg(feature = "axum")]
pub mod axum;
mod blocking;
mod body;
mod exchange;
mod gone;
#[cfg(feature = "http")]
pub mod http;
#[cfg(feature = "tower")]
mod locals;
mod outlet;
mod request;
mod responder;
mod streamed;
mod takeover;
#[cfg(feature = "tower")]
pub mod tower;
mod web_socket;
mod writer;

pub use crate::server::PoolFull;
pub use answer::Answer;
pub use blocking::{Blocking, blocking};
pub use body::{BodyError, RequestBody};
pub use exchange::Exchange;
pub use gone::Gone;
pub use outlet::SendError;
pub use request::OwnedRequest;
pub use responder::Responder;
pub use streamed::{Streamed, streamed};
pub use takeover::{StreamHandler, StreamSender, stream_fn};
pub use web_socket::{WebSocketHandler, WebSocketSender, web_socket_fn};
pub use writer::{BodyWriter, TryWriteError};

#[cfg(feature = "tower")]
pub(crate) use locals::Locals;
pub(crate) use outlet::Outlet;
pub(crate) use takeover::Takeover;

use crate::Request;
use dwell_proto::http1::RequestHead;

/// Ways in which a handler takes the body of a request.
///
/// ```
/// use dwell_engine::handler::{Answer, BodyMode, Exchange, Handler};
/// use dwell_engine::{Request, Server};
/// use dwell_proto::http1::RequestHead;
///
/// struct Files;
///
/// impl Handler for Files {
///     fn body(&self, head: &RequestHead<'_, '_>) -> BodyMode {
///         match head.method {
///             "PUT" => BodyMode::Stream,
///             "POST" => BodyMode::Collect,
///             _ => BodyMode::Refuse(413),
///         }
///     }
///
///     fn handle(&self, request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
///         let follows = request.body_follows;
///         let text = format!("{} bytes, more follow: {follows}\n", request.body.len());
///         exchange.answer(Answer::text(200, text));
///     }
/// }
///
/// let running = Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(Files)?;
/// assert_eq!(running.statistics().connections, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BodyMode {
    /// Gathered before the handler is called, up to
    /// [`max_body_bytes`](crate::ServerBuilder::max_body_bytes).
    Collect,
    /// Read by the handler, as it comes, through [`Exchange::body`]; up to the same bound.
    Stream,
    /// Not taken: the request is answered with this status.
    Refuse(u16),
}

/// Serves the requests of every loop of a [`Server`](crate::Server).
///
/// Shape: called on the loops, so it must not block; what does goes to [a
/// thread](Exchange::offload). A handler that panics costs its own connection: the client gets 500,
/// or is cut off where its answer had begun.
///
/// ```
/// use dwell_engine::handler::Exchange;
/// use dwell_engine::{Request, Server};
/// use std::io::{Read, Write};
/// use std::time::Duration;
///
/// let running = Server::builder()
///     .listen(([127, 0, 0, 1], 0).into())
///     .serve(|request: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
///         exchange.text(200, request.head.path);
///     })?;
/// let mut client = std::net::TcpStream::connect(running.addresses()[0])?;
/// client.write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")?;
/// let mut answer = String::new();
/// client.read_to_string(&mut answer)?;
/// assert!(answer.ends_with("\r\n\r\n/hello\n"));
/// running.shutdown(Duration::from_secs(1));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Handler: Send + Sync + 'static {
    /// Chooses how a body is taken when the head of its request has come. Default: it is gathered.
    fn body(&self, head: &RequestHead<'_, '_>) -> BodyMode {
        let _ = head;
        BodyMode::Collect
    }

    /// Answers a request, or takes of the exchange what will answer it. If it does neither, the
    /// answer is 500.
    fn handle(&self, request: &Request<'_>, exchange: &mut Exchange<'_, '_>);
}

impl<F> Handler for F
where
    F: Fn(&Request<'_>, &mut Exchange<'_, '_>) + Send + Sync + 'static,
{
    fn handle(&self, request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
        self(request, exchange);
    }
}

/// Makes a [`Handler`] of a closure, whose arguments need no types then.
///
/// ```
/// use dwell_engine::Server;
/// use dwell_engine::handler::handler_fn;
///
/// let running = Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(handler_fn(
///     |request, exchange| exchange.text(200, request.head.path),
/// ))?;
/// # let answer = dwell_testkit::ask(running.addresses()[0], "GET /here HTTP/1.0\r\n\r\n");
/// # assert!(answer.ends_with("\r\n\r\n/here\n"), "{answer}");
/// # Ok::<(), dwell_engine::ServerError>(())
/// ```
pub fn handler_fn<F>(handler: F) -> F
where
    F: Fn(&Request<'_>, &mut Exchange<'_, '_>) + Send + Sync + 'static,
{
    handler
}
