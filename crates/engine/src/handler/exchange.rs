//! One request and the place of its answer, while its handler runs on the loop.

use super::answer::Answer;
use super::body::RequestBody;
use super::request::OwnedRequest;
use super::responder::Responder;
use super::takeover::{StreamHandler, Takeover};
use super::web_socket::WebSocketHandler;
use crate::desk::Line;
use crate::server::{Channel, Host, Ledger, Next, PoolFull, Statistics};
use crate::websocket::{UpgradeOptions, upgrade};
use crate::{ExchangeId, Reply, Request};
use bytes::Bytes;
use dwell_evloop::Token;
use dwell_proto::http1::BodyFraming;
use std::fmt;
use std::future::Future;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::time::SystemTime;

/// One request for a handler: answers it, or names what will.
///
/// Shape: it is the request's [`Reply`], for answers given at once, with ways to answer later:
/// [`responder`](Self::responder), [`offload`](Self::offload), [`spawn`](Self::spawn).
///
/// ```
/// use dwell_engine::handler::{Answer, Exchange};
/// use dwell_engine::{Request, Server};
///
/// fn handle(request: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
///     match request.head.path {
///         "/" => exchange.text(200, "at once"),
///         "/later" => {
///             // The request's bytes are gone when this returns; a copy is not.
///             let owned = exchange.owned(request);
///             let responder = exchange.responder();
///             // A full pool has answered 503 already.
///             let _ = exchange.offload(move || {
///                 let text = format!("{} with {:?}\n", owned.path(), owned.query());
///                 let _ = responder.send(Answer::text(200, text));
///             });
///         }
///         "/figures" => {
///             let requests = exchange.statistics().requests;
///             let text = format!("{requests} at {:?}\n", exchange.wall());
///             exchange.answer(Answer::text(200, text));
///         }
///         _ => exchange.text(404, "nothing here"),
///     }
/// }
///
/// let running = Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(handle)?;
/// # let answer = dwell_testkit::ask(running.addresses()[0], "GET /later?b HTTP/1.0\r\n\r\n");
/// # assert!(answer.ends_with("\r\n\r\n/later with Some(\"b\")\n"), "{answer}");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Exchange<'e, 'r> {
    reply: &'e mut Reply<'r>,
    ledger: &'e mut Ledger,
    host: &'e mut Host,
    id: ExchangeId,
    wall: SystemTime,
    held: Option<(Token, Arc<Channel>)>,
}

impl<'e, 'r> Exchange<'e, 'r> {
    pub(crate) fn new(
        reply: &'e mut Reply<'r>,
        ledger: &'e mut Ledger,
        host: &'e mut Host,
        id: ExchangeId,
        wall: SystemTime,
    ) -> Self {
        Self {
            reply,
            ledger,
            host,
            id,
            wall,
            held: None,
        }
    }

    /// The entry in the loop's table, if something was taken that needs one.
    pub(crate) fn into_held(self) -> Option<Token> {
        self.held.map(|(token, _)| token)
    }

    /// Returns a handle with which another thread can answer, or this one later.
    ///
    /// Shape: one is enough; each that is dropped unused answers 500, unless another was quicker.
    pub fn responder(&mut self) -> Responder {
        Responder::new(self.channel())
    }

    /// The body of the request.
    pub fn body(&mut self, request: &Request<'_>) -> RequestBody {
        if request.body_follows {
            let left = match request.head.framing {
                BodyFraming::Length(length) => Some(length),
                _ => None,
            };
            return RequestBody::streamed(self.channel(), left);
        }
        let trailers = request.trailers.iter();
        RequestBody::whole(
            Bytes::copy_from_slice(request.body),
            trailers
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
        )
    }

    /// A copy of the request that owns what it is made of, with its body, for another thread.
    pub fn owned(&mut self, request: &Request<'_>) -> OwnedRequest {
        let body = self.body(request);
        OwnedRequest::new(request, self.reply, body)
    }

    /// Runs `job` on the worker pool.
    ///
    /// # Errors
    /// [`PoolFull`], after the client was answered 503; `job` is dropped then.
    pub fn offload(&mut self, job: impl FnOnce() + Send + 'static) -> Result<(), PoolFull> {
        let under_way = self.reply.under_way();
        let job = move || {
            job();
            drop(under_way);
        };
        let offered = self.host.server.pool().submit(Box::new(job));
        if offered.is_err() {
            let text = "all workers are busy\n";
            Answer::text(503, text)
                .field("Retry-After", "1")
                .send(self.reply);
        }
        offered
    }

    /// The parts of handlers that stay on the loop.
    #[cfg(feature = "tower")]
    pub(super) fn locals(&mut self) -> &mut super::Locals {
        &mut self.host.locals
    }

    /// Lets a future answer, which is polled on the loop.
    ///
    /// Shape: one is enough; a second one takes the place of the first. It is polled first when the
    /// handler has returned, and dropped where it stands when the client is gone. It need not be
    /// `Send`. A wake-up from another thread wakes its loop.
    pub fn spawn<F>(&mut self, make: impl FnOnce(Responder) -> F)
    where
        F: Future<Output = ()> + 'static,
    {
        let future = make(self.responder());
        if let Some((token, _)) = self.held
            && let Some(entry) = self.ledger.entry(token)
        {
            *entry = Next::of(future);
        }
    }

    /// Sends `answer`, a 101, and hands the connection's bytes to `handler` on this loop from then
    /// on, beginning with what the client has sent beyond its request. As
    /// [`Responder::take_over`].
    ///
    /// ```
    /// use dwell_engine::handler::{Answer, Exchange};
    /// use dwell_engine::{Request, StreamRef};
    ///
    /// /// Echoes bytes instead of speaking HTTP from the 101 on.
    /// fn handle(_: &Request<'_>, exchange: &mut Exchange<'_, '_>) {
    ///     let answer = Answer::new(101).field("Connection", "upgrade").field("Upgrade", "echo");
    ///     exchange.take_over(answer, |stream: &mut StreamRef<'_>, input: &[u8]| {
    ///         if stream.write(input) { input.len() } else { 0 }
    ///     });
    /// }
    /// # use dwell_engine::Server;
    /// # let running = Server::builder().listen(([127, 0, 0, 1], 0).into()).serve(handle)?;
    /// # let request = "GET / HTTP/1.1\r\nHost: a\r\n\r\nhello";
    /// # let answer = dwell_testkit::ask_and_finish(running.addresses()[0], request);
    /// # assert!(answer.starts_with("HTTP/1.1 101 ") && answer.ends_with("hello"), "{answer}");
    /// # Ok::<(), dwell_engine::ServerError>(())
    /// ```
    pub fn take_over(&mut self, answer: Answer, handler: impl StreamHandler) {
        // A client that has left needs neither.
        let _ = self.responder().take_over(answer, handler);
    }

    /// Upgrades the connection to WebSocket, and hands what comes on it to `handler` on this loop
    /// from then on; a handshake that the options do not admit is answered as it deserves.
    ///
    /// Shape: true when it was upgraded.
    pub fn web_socket(
        &mut self,
        request: &Request<'_>,
        options: &UpgradeOptions<'_>,
        handler: impl WebSocketHandler,
    ) -> bool {
        match upgrade(request.head, options) {
            Ok(upgrade) => {
                let mut answer = Answer::new(upgrade.status());
                upgrade.for_each_field(|name, value| {
                    answer.push(name, Bytes::copy_from_slice(value));
                });
                let takeover = Takeover::WebSocket(upgrade.negotiated(), Box::new(handler));
                self.responder().order_takeover(answer, takeover).is_ok()
            }
            Err(rejection) => {
                rejection.send(self.reply);
                false
            }
        }
    }

    /// Sends an answer that owns what it is made of; a second one is ignored.
    pub fn answer(&mut self, answer: Answer) {
        answer.send(self.reply);
    }

    /// Returns true if the server is shutting down, as [`Responder::is_draining`] does.
    pub fn is_draining(&self) -> bool {
        self.host.link.is_draining()
    }

    /// Returns the counters of the server.
    pub fn statistics(&self) -> Statistics {
        self.host.server.statistics()
    }

    /// The time, at most 50 ms old; for dates.
    pub fn wall(&self) -> SystemTime {
        self.wall
    }

    fn channel(&mut self) -> Arc<Channel> {
        let open = || self.ledger.open(self.id, Next::default());
        let (_, channel) = self.held.get_or_insert_with(open);
        Arc::clone(channel)
    }
}

impl<'r> Deref for Exchange<'_, 'r> {
    type Target = Reply<'r>;

    fn deref(&self) -> &Reply<'r> {
        self.reply
    }
}

impl<'r> DerefMut for Exchange<'_, 'r> {
    fn deref_mut(&mut self) -> &mut Reply<'r> {
        self.reply
    }
}

impl fmt::Debug for Exchange<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Exchange")
            .field("id", &self.id)
            .finish_non_exhaustive()
    }
}
