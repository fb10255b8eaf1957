//! What is not a poll: forwarded to the application, as it comes, both ways.
//!
//! A [`Forward`] joins an exchange of the clients' server to one of the upstream client. Neither
//! side is read further than the other takes it: what may be on its way is a *window* of body bytes
//! in each direction, which is granted anew as it is taken. So a client that does not read stops
//! the application through the kernel's buffers, and the other way round, and nothing is held here.
//!
//! As [`Polls`](crate::polls::Polls), [`Forwards`] does no I/O towards the application: it leaves
//! [`Order`]s, which the driver carries out when the turn ends ([`orders`]). A connection that has
//! changed its protocol leaves both sides and becomes one of the [`Tunnels`].

mod answering;
mod arriving;
mod orders;
mod tunnels;

pub(crate) use answering::{Adopted, Source};
pub(crate) use arriving::{FORWARD_LOOK, is_idempotent};
pub(crate) use orders::carry_out;
pub(crate) use tunnels::{Tunnel, Tunnels};

use crate::config::Config;
use crate::metrics::LoopMetrics;
use crate::response_log::{Logged, ResponseLog};
use crate::retry_after::RetryAfter;
use dwell_engine::{Body, ExchangeId, Reply, Response};
use dwell_evloop::{Context, Slab, Token};
use dwell_upstream::UpstreamRequest;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Instant;

/// The kind of the tokens of [`Forward`]s. They name no sockets, so the loop never sees them; but
/// the tags of exchanges and requests have them, and those of [`Polls`](crate::polls::Polls).
pub(crate) const KIND: u8 = 20;

/// The forward that a tag names, if it is one.
pub(crate) fn forward_of(tag: u64) -> Option<Token> {
    let token = Token::from_bits(tag);
    (token.kind() == KIND).then_some(token)
}

/// A request on its way to the application, and the answer on its way back.
#[derive(Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
struct Forward {
    exchange: ExchangeId,
    /// The exchange of the upstream client, as soon as it is known.
    connection: Option<Token>,
    arrived: Instant,
    /// What the access log tells of the request; absent where there is none.
    line: Option<Box<Line>>,
    upload: Upload,
    /// Body bytes of the request that the application has not taken yet.
    up: u64,
    /// Those of them, framed, that came while the request changed its connection, and whether they
    /// are the last.
    kept: Option<(Vec<u8>, bool)>,
    /// Body bytes of the answer that the client has not taken yet.
    down: usize,
    /// Body bytes of the answer so far.
    sent: u64,
    /// Status of the answer, once its head is passed on; before, 0.
    status: u16,
    /// How the answer says where it comes from.
    source: Source,
    is_head: bool,
    /// The body of the request goes on in chunks.
    is_chunked: bool,
    /// The `Connection` of a request with such a body, until that has ended.
    nominated: Option<Box<[u8]>>,
    /// The client has ended its sending side.
    is_half_closed: bool,
    /// The answer is a stream of events.
    is_stream: bool,
}

/// How far the body of a request has come.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Upload {
    /// There is none, or it went along with its head, or all of it has come.
    Complete,
    /// It waits for a connection to the application, and then, if so, for its leave.
    Waiting { expects: bool },
    /// It comes.
    Granted,
}

/// The request line of a forward.
#[derive(Debug)]
struct Line {
    method: Box<str>,
    target: Box<str>,
    remote: Option<SocketAddr>,
}

/// What the driver has to do for a forward.
#[derive(Debug)]
pub(crate) enum Order {
    /// Send a request.
    Send(Box<UpstreamRequest>),
    /// Write a piece of its body, framed already.
    Write {
        forward: Token,
        piece: Vec<u8>,
        is_last: bool,
    },
    /// Read on with an answer.
    Grant {
        forward: Token,
        connection: Token,
        bytes: usize,
    },
    /// Read on with an answer that was too large for those who shared it.
    TakeOver {
        connection: Token,
        fetch: Token,
        forward: Token,
    },
    /// Find out whether a client that sends no more is still there.
    Probe {
        forward: Token,
        exchange: ExchangeId,
    },
    /// Nobody waits for an answer any more.
    Cancel { connection: Option<Token>, tag: u64 },
    /// The application has changed the protocol.
    Tunnel(Box<Tunnel>),
}

/// The requests of one loop that are no polls.
#[derive(Debug)]
pub(crate) struct Forwards {
    config: Arc<Config>,
    log: ResponseLog,
    records: Slab<Forward>,
    orders: Vec<Order>,
    retry_after: RetryAfter,
}

impl Forwards {
    pub(crate) fn new(
        config: Arc<Config>,
        log: ResponseLog,
        forwards_max: usize,
        seed: u64,
    ) -> Self {
        Self {
            config,
            log,
            records: Slab::new(KIND, forwards_max),
            orders: Vec::new(),
            retry_after: RetryAfter::new(seed),
        }
    }

    /// Goes by another configuration from now on; what is under way ends by the one before.
    pub(crate) fn reconfigure(
        &mut self,
        config: &Arc<Config>,
        log: &ResponseLog,
        forwards_max: usize,
    ) {
        self.config = Arc::clone(config);
        self.log = log.clone();
        self.records.set_capacity_max(forwards_max);
    }

    /// Whether nothing is under way.
    pub(crate) fn is_idle(&self) -> bool {
        self.records.is_empty() && self.orders.is_empty()
    }

    /// Whether anything is to be done.
    pub(crate) fn has_orders(&self) -> bool {
        !self.orders.is_empty()
    }

    /// What is to be done by now.
    pub(crate) fn take_orders(&mut self) -> Vec<Order> {
        std::mem::take(&mut self.orders)
    }

    fn metrics(&self) -> &LoopMetrics {
        &self.log.metrics
    }

    /// Whether this one is under way.
    fn contains(&self, forward: Token) -> bool {
        self.records.get(forward).is_some()
    }

    /// The connection that brings the answer to a forward.
    fn connection(&self, forward: Token) -> Option<Token> {
        self.records.get(forward)?.connection
    }

    /// Keeps a piece of a body until the request has another connection. There are never more of
    /// them than a window of bytes, as nothing is granted meanwhile.
    fn keep(&mut self, forward: Token, piece: &[u8], is_last: bool) {
        if let Some(record) = self.records.get_mut(forward) {
            let (bytes, has_last) = record.kept.get_or_insert_default();
            bytes.extend_from_slice(piece);
            *has_last |= is_last;
        }
    }

    /// Forgets a forward, which is written down.
    fn end(&mut self, context: &Context, forward: Token) {
        if let Some(record) = self.records.remove(forward) {
            self.write_line(context, &record);
        }
    }

    fn write_line(&self, context: &Context, record: &Forward) {
        let Some(line) = &record.line else { return };
        let logged = Logged {
            method: &line.method,
            target: &line.target,
            remote: line.remote,
            arrived: record.arrived,
            status: record.status,
            bytes: record.sent,
            outcome: record.source.outcome(),
        };
        self.log.write(context, &logged);
    }

    /// Seconds after which a client that is turned away may come back: spread at random, and the
    /// more of them there are the longer.
    fn retry_after(&mut self, context: &Context) -> String {
        self.retry_after.next(context.now())
    }
}

impl Line {
    fn new(method: &str, target: &str, remote: Option<SocketAddr>) -> Self {
        Self {
            method: method.into(),
            target: target.into(),
            remote,
        }
    }
}

/// Answers with a line of text.
fn text(reply: &mut Reply<'_>, log: &ResponseLog, status: u16, text: &str, retry_after: &str) {
    log.count(status);
    let mut fields: Vec<(&str, &[u8])> = vec![
        ("Content-Type", b"text/plain; charset=utf-8"),
        ("Cache-Control", b"no-store"),
    ];
    if status == 503 {
        fields.push(("Retry-After", retry_after.as_bytes()));
    }
    let body = format!("{text}\n");
    reply.send(&Response {
        status,
        fields: &fields,
        body: Body::Slice(body.as_bytes()),
    });
}
