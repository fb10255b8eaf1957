//! The one seam: what a program on the engine implements.

mod event;
mod plan;

pub use event::{HttpEvent, ProxyHeaderFailure};
pub use plan::BodyPlan;

use crate::Reply;
use dwell_evloop::{Context, Detached, Stream, Token};
use dwell_proto::http1::{RequestHead, Trailers};
use std::time::Duration;

/// Names one request and the answer owed to it.
///
/// Shape: valid until the response is sent or [`App::abandoned`] is called for it; afterwards it
/// names nothing, never the next request of the same connection. A name comes again when its place
/// in the table has had sixteen million other connections.
///
/// ```
/// use dwell_engine::{ExchangeId, Http, Response};
/// use dwell_evloop::Context;
///
/// /// Answers all held exchanges, outside of the app's callbacks; returns how many were left.
/// fn publish(
///     http: &mut Http,
///     context: &mut Context,
///     waiting: Vec<ExchangeId>,
///     news: &Response<'_>,
/// ) -> usize {
///     let mut answered = 0;
///     for exchange in waiting {
///         assert_eq!(http.contains(exchange.connection()), http.is_held(exchange));
///         answered += usize::from(http.answer(context, exchange, news));
///     }
///     answered
/// }
/// #
/// # use dwell_engine::Body;
/// # let answer = dwell_testkit::hold_once(|http, context, exchange| {
/// #     let news = Response { status: 200, fields: &[], body: Body::Slice(b"news") };
/// #     assert_eq!(publish(http, context, vec![exchange], &news), 1);
/// # });
/// # assert!(answer.ends_with("\r\n\r\nnews"), "{answer}");
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
// Three words, without one to fill them up: the record of each held request has one.
#[repr(C, packed(4))]
pub struct ExchangeId {
    pub(crate) token: Token,
    pub(crate) sequence: u32,
}

impl ExchangeId {
    /// Makes a name of no exchange, for tests of an application that has no connection.
    ///
    /// ```
    /// use dwell_engine::ExchangeId;
    /// use dwell_evloop::Token;
    ///
    /// let connection = Token::new(1, 0, 7);
    /// assert_eq!(ExchangeId::new(connection, 0).connection(), connection);
    /// ```
    pub const fn new(connection: Token, sequence: u32) -> Self {
        Self {
            token: connection,
            sequence,
        }
    }

    /// The connection it belongs to.
    pub fn connection(self) -> Token {
        self.token
    }
}

/// A request: complete, or its head where the body is streamed.
#[derive(Debug)]
pub struct Request<'a> {
    /// The name to answer by, if not at once.
    pub exchange: ExchangeId,
    /// Method, target and fields, as received.
    pub head: &'a RequestHead<'a, 'a>,
    /// The head's bytes as received, the empty line included.
    pub head_bytes: &'a [u8],
    /// The body, its transfer coding removed; empty where it is streamed, but for what was gathered
    /// of it before.
    pub body: &'a [u8],
    /// True of a body that is streamed: [`App::body_data`] brings it, or its rest, as far as it is
    /// granted.
    pub body_follows: bool,
    /// The trailer fields of a collected body.
    pub trailers: Trailers<'a>,
    /// True of a request that came under TLS.
    pub is_secure: bool,
}

/// The result of a callback that has a request to answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Outcome {
    /// The [`Reply`] was used; if it was not, the client gets 500. A streaming answer that is
    /// open ends here.
    Answered,
    /// The answer, or the rest of a streaming one, comes later: by
    /// [`Http::answer`](crate::Http::answer) or [`Http::with_reply`](crate::Http::with_reply).
    /// If a complete one was sent already, that counts, and the hold is abandoned at once.
    Held {
        /// The app's own value, handed back with every callback for this exchange.
        tag: u64,
        /// The time until [`App::expired`] is called; `None` if the app keeps its own deadline.
        timeout: Option<Duration>,
    },
    /// The connection is closed: without an answer, or after the one that was sent; an open
    /// streaming answer is cut off.
    Close,
    /// The connection leaves the component once what was written is out of our hands, and is
    /// given to [`App::detached`]: after a 101 (RFC 9110 section 15.2.2), or without an answer.
    /// The rest of a streamed body goes with it, as it came; see [`Reply::has_unread_body`].
    Detach {
        /// Handed back with the connection.
        tag: u64,
    },
}

/// A program on the engine: it is handed requests and owes each an answer.
///
/// # Panics
/// A callback must not panic. A panic unwinds through the component and the loop: its connection is
/// left half served, and the other events of the turn are not delivered. A program that catches it
/// must drop both. A [`Server`](crate::Server) and a [`Manager`](crate::manager::Manager) catch the
/// panics of their handlers before that.
///
/// ```
/// use dwell_engine::{
///     App, BodyPlan, Detached, HttpEvent, ExchangeId, HttpDriver, Limits, Outcome,
///     ProxyHeaderFailure, Reply, Request,
/// };
/// use dwell_evloop::{Context, EventLoop, Stream, Token};
/// use dwell_proto::http1::{RequestHead, Trailers};
/// use std::time::{Duration, Instant};
///
/// /// Counts the bytes of uploads, and holds all other requests.
/// #[derive(Default)]
/// struct Counter {
///     /// Bytes of each upload, by the tag of its hold.
///     uploads: Vec<u64>,
///     waiting: Vec<ExchangeId>,
///     clients: usize,
///     rejected: usize,
///     /// The turn in which an upload began last.
///     began: Option<Instant>,
/// }
///
/// impl App for Counter {
///     fn puts_off(&mut self, context: &Context, head: &RequestHead<'_, '_>) -> bool {
///         // One upload at most begins in a turn.
///         head.method == "PUT" && self.began.replace(context.now()) == Some(context.now())
///     }
///
///     fn body(
///         &mut self,
///         _: &mut Context,
///         _: ExchangeId,
///         _: &RequestHead<'_, '_>,
///         _: &Stream,
///     ) -> BodyPlan {
///         BodyPlan::Stream { bytes_max: 1 << 30 }
///     }
///
///     fn request(
///         &mut self,
///         _: &mut Context,
///         request: &Request<'_>,
///         reply: &mut Reply<'_>,
///     ) -> Outcome {
///         if request.body_follows {
///             self.uploads.push(0);
///             reply.grant(64 * 1024);
///             return Outcome::Held { tag: self.uploads.len() as u64 - 1, timeout: None };
///         }
///         self.waiting.push(request.exchange);
///         Outcome::Held { tag: u64::MAX, timeout: Some(Duration::from_secs(25)) }
///     }
///
///     fn body_data(
///         &mut self,
///         _: &mut Context,
///         _: ExchangeId,
///         tag: u64,
///         data: &[u8],
///         reply: &mut Reply<'_>,
///     ) -> Outcome {
///         self.uploads[tag as usize] += data.len() as u64;
///         reply.grant(data.len() as u64);
///         Outcome::Held { tag, timeout: None }
///     }
///
///     fn body_end(
///         &mut self,
///         _: &mut Context,
///         _: ExchangeId,
///         tag: u64,
///         _: Trailers<'_>,
///         reply: &mut Reply<'_>,
///     ) -> Outcome {
///         reply.text(200, &format!("{} bytes", self.uploads[tag as usize]));
///         Outcome::Answered
///     }
///
///     fn expired(
///         &mut self,
///         _: &mut Context,
///         _: ExchangeId,
///         _: u64,
///         reply: &mut Reply<'_>,
///     ) -> Outcome {
///         reply.text(200, "no news");
///         Outcome::Answered
///     }
///
///     fn peer_closed(&mut self, _: ExchangeId, tag: u64) -> bool {
///         // A client that has sent an upload and ended its side may still read the answer.
///         tag == u64::MAX
///     }
///
///     fn drained(
///         &mut self,
///         _: &mut Context,
///         _: ExchangeId,
///         tag: u64,
///         reply: &mut Reply<'_>,
///     ) -> Outcome {
///         // Only for streaming answers, of which there are none here.
///         assert!(reply.is_open());
///         Outcome::Held { tag, timeout: None }
///     }
///
///     fn abandoned(&mut self, _: &mut Context, exchange: ExchangeId, _: u64) {
///         self.waiting.retain(|waiting| *waiting != exchange);
///     }
///
///     fn detached(&mut self, _: &mut Context, _: ExchangeId, _: u64, detached: Detached) {
///         // Only after an `Outcome::Detach`; dropping it closes it.
///         drop(detached);
///     }
///
///     fn accepted(&mut self, _: &mut Context, stream: Stream, open: usize) -> Option<Stream> {
///         (open < 10_000).then_some(stream)
///     }
///
///     fn expects_proxy_header(&mut self, stream: &Stream) -> bool {
///         // A balancer on another port of this machine.
///         let from = stream.peer_address().ok().flatten();
///         from.is_some_and(|from| from.port() == 9000)
///     }
///
///     fn identified(&mut self, _: &mut Context, stream: &mut Stream) -> bool {
///         println!("a balancer passes on {:?}", stream.peer_address());
///         true
///     }
///
///     fn opened(&mut self, _: &mut Context, _: Token, stream: &Stream, _: Option<Token>) {
///         self.clients += 1;
///         println!("{:?} came", stream.peer_address());
///     }
///
///     fn secured(&mut self, _: &mut Context, connection: Token, stream: &Stream) {
///         println!("{connection:?} speaks TLS: {:?}", stream.tls_facts());
///     }
///
///     fn insecure(&mut self, _: &mut Context, connection: Token, reason: &str) {
///         println!("the handshake of {connection:?} has failed: {reason}");
///     }
///
///     fn closed(&mut self, _: &mut Context, _: Token) {
///         self.clients -= 1;
///     }
///
///     fn received(&mut self, _: &mut Context, connection: Token, _: &Stream, bytes: usize) {
///         println!("{connection:?} sent {bytes} bytes");
///     }
///
///     fn written(&mut self, _: &mut Context, connection: Token, stream: &Stream) {
///         println!("{connection:?} has {} bytes to read", stream.queued_bytes());
///     }
///
///     fn streams_open(&mut self, _: &mut Stream, open: usize) -> bool {
///         open <= 10
///     }
///
///     fn stream_may_leave(&mut self, is_full: bool) -> bool {
///         !is_full
///     }
///
///     fn stream_opened(&mut self, _: &mut Context, connection: Token, stream: Token, _: &Stream) {
///         println!("{stream:?} is one of {connection:?}");
///     }
///
///     fn event(&mut self, event: HttpEvent) {
///         self.rejected += usize::from(matches!(event, HttpEvent::Rejected { .. }));
///         if let HttpEvent::ProxyHeaderFailed { why: ProxyHeaderFailure::Invalid, from } = event {
///             println!("{from:?} is no balancer");
///         }
///     }
/// }
/// # let mut event_loop = EventLoop::new()?;
/// let mut driver = HttpDriver::new(Limits::default(), Counter::default());
/// # let address = driver.listen(event_loop.context(), ([127, 0, 0, 1], 0).into())?;
/// # let request = "PUT / HTTP/1.0\r\nContent-Length: 5\r\n\r\nhello";
/// # let answer = dwell_testkit::beside(|| dwell_testkit::ask(address, request), || {
/// #     event_loop.turn(&mut driver, Some(Duration::from_millis(10))).expect("it turns");
/// # });
/// # assert!(answer.ends_with("\r\n\r\n5 bytes\n"), "{answer}");
/// # while driver.app.clients > 0 {
/// #     event_loop.turn(&mut driver, None)?;
/// # }
/// assert_eq!((driver.app.uploads, driver.app.rejected), (vec![5], 0));
/// # Ok::<(), std::io::Error>(())
/// ```
pub trait App {
    /// The head of a request that has a body is here, on `stream`: decides how the body is taken.
    /// By default bodies of up to 1 MiB are collected.
    fn body(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        head: &RequestHead<'_, '_>,
        stream: &Stream,
    ) -> BodyPlan {
        let _ = (context, exchange, head, stream);
        BodyPlan::Collect {
            bytes_max: DEFAULT_BODY_BYTES_MAX,
        }
    }

    /// A request is complete, or its head where the body is streamed.
    fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome;

    /// Returns true to put off a request whose head has come to the next turn, because its response
    /// would be too much work for the rest of this one.
    ///
    /// Shape: called before any other method for the request, and again in the next turn, as if it
    /// had come then: [`Context::is_repeating`] is true there. Requests behind it wait as well.
    fn puts_off(&mut self, context: &Context, head: &RequestHead<'_, '_>) -> bool {
        let _ = (context, head);
        false
    }

    /// A piece of the streamed body of a held exchange.
    ///
    /// Shape: never more than is granted; asked for again with every piece, so the outcome of the
    /// last one counts.
    fn body_data(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        data: &[u8],
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let _ = (context, exchange, data, reply);
        Outcome::Held { tag, timeout: None }
    }

    /// The streamed body of a held exchange is complete.
    fn body_end(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        trailers: Trailers<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let _ = (context, exchange, trailers, reply);
        Outcome::Held { tag, timeout: None }
    }

    /// The socket has taken all of a streaming answer that was queued; more may be written.
    ///
    /// Shape: called only after the socket had refused some.
    fn drained(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let _ = (context, exchange, reply);
        Outcome::Held { tag, timeout: None }
    }

    /// The timeout of a held exchange has passed; answer now or hold on. By default the answer is
    /// 503, or the end of the connection where another answer was begun.
    ///
    /// Shape: the timeout of a hold does not run while output is queued, or while the app
    /// [waits](Reply::await_body) for body bytes that it has granted: the engine's own timeouts run
    /// then, and what follows them sets it again.
    fn expired(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let _ = (context, exchange, tag);
        if reply.is_open() {
            return Outcome::Close;
        }
        reply.text(503, "not answered in time");
        Outcome::Answered
    }

    /// The peer of a held exchange has ended its sending side; true gives the exchange up, after
    /// which [`abandoned`](Self::abandoned) is called.
    ///
    /// Shape: asked once for each hold, be it by an [`Outcome::Held`] or by
    /// [`Http::hold`](crate::Http::hold); at once where the peer ended its side before.
    fn peer_closed(&mut self, exchange: ExchangeId, tag: u64) -> bool {
        let _ = (exchange, tag);
        true
    }

    /// Called when the response to a held exchange is not needed any more: its client is gone.
    fn abandoned(&mut self, context: &mut Context, exchange: ExchangeId, tag: u64) {
        let _ = (context, exchange, tag);
    }

    /// The connection of an [`Outcome::Detach`] is yours, and is closed when it is dropped. If it
    /// has failed before it left, [`abandoned`](Self::abandoned) is called instead.
    fn detached(
        &mut self,
        context: &mut Context,
        exchange: ExchangeId,
        tag: u64,
        detached: Detached,
    ) {
        let _ = (context, exchange, tag, detached);
    }

    /// A client has connected, with `open` connections here already: give it back to serve it
    /// here; what is kept is served elsewhere, or closed by being dropped.
    fn accepted(&mut self, context: &mut Context, stream: Stream, open: usize) -> Option<Stream> {
        let _ = (context, open);
        Some(stream)
    }

    /// Returns true if an accepted connection is to begin with a header of the PROXY protocol,
    /// which a balancer puts there. Its client then is at the address that the header has.
    ///
    /// Shape: only for connections of balancers that are trusted, as others could be anybody.
    fn expects_proxy_header(&mut self, stream: &Stream) -> bool {
        let _ = stream;
        false
    }

    /// The number of requests that are in progress on a connection of HTTP/2 has become `open`.
    /// If one of them is about to begin, false refuses it with 429.
    ///
    /// Shape: called for every request that begins, and by the end of a turn in which some have
    /// ended.
    fn streams_open(&mut self, stream: &mut Stream, open: usize) -> bool {
        let _ = (stream, open);
        true
    }

    /// A stream of HTTP/2 asks to leave HTTP, as a WebSocket does (RFC 8441); false refuses it with
    /// 503. `is_full` says that there are as many connections as [`Limits`] allows.
    ///
    /// Shape: true by default, as the stream is no connection of its own. It is for an app that
    /// counts the WebSockets of all its clients as connections.
    ///
    /// [`Limits`]: crate::Limits
    fn stream_may_leave(&mut self, is_full: bool) -> bool {
        let _ = is_full;
        true
    }

    /// A stream of HTTP/2 has begun on a connection: it is what [`ExchangeId::connection`] names
    /// from now on. Called before any other method for its request.
    fn stream_opened(
        &mut self,
        context: &mut Context,
        connection: Token,
        stream: Token,
        socket: &Stream,
    ) {
        let _ = (context, connection, stream, socket);
    }

    /// The header has come, and the stream has the address of the client, if the header had one.
    /// False closes the connection.
    fn identified(&mut self, context: &mut Context, stream: &mut Stream) -> bool {
        let _ = (context, stream);
        true
    }

    /// A client has its place: `connection` names it until [`closed`](Self::closed) or
    /// [`detached`](Self::detached). Nothing for a `listener` where another one has accepted it.
    fn opened(
        &mut self,
        context: &mut Context,
        connection: Token,
        stream: &Stream,
        listener: Option<Token>,
    ) {
        let _ = (context, connection, stream, listener);
    }

    /// The handshake of a client under TLS is complete, and its first request may come.
    fn secured(&mut self, context: &mut Context, connection: Token, stream: &Stream) {
        let _ = (context, connection, stream);
    }

    /// The handshake of a client has failed, for this reason in words. Its connection ends.
    fn insecure(&mut self, context: &mut Context, connection: Token, reason: &str) {
        let _ = (context, connection, reason);
    }

    /// A client is gone.
    ///
    /// Shape: not called for one that was closed by a call of the app's own, such as
    /// [`Http::abort`](crate::Http::abort), or that failed within one: whether it is left
    /// [`Http::contains`](crate::Http::contains) tells.
    fn closed(&mut self, context: &mut Context, connection: Token) {
        let _ = (context, connection);
    }

    /// Bytes came on a connection; called when all that they brought was handed over.
    fn received(
        &mut self,
        context: &mut Context,
        connection: Token,
        stream: &Stream,
        bytes: usize,
    ) {
        let _ = (context, connection, stream, bytes);
    }

    /// Output of a connection was written; called after [`received`](Self::received).
    fn written(&mut self, context: &mut Context, connection: Token, stream: &Stream) {
        let _ = (context, connection, stream);
    }

    /// Reports an action of the engine, for counting.
    fn event(&mut self, event: HttpEvent) {
        let _ = event;
    }
}

/// Makes an app of a closure, which is called for requests; the rest is as by default.
impl<F> App for F
where
    F: FnMut(&mut Context, &Request<'_>, &mut Reply<'_>) -> Outcome,
{
    fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        self(context, request, reply)
    }
}

/// The body limit of an app that chooses none.
const DEFAULT_BODY_BYTES_MAX: u64 = 1 << 20;
