//! A server that is turned step by step, and its scripted app.

mod client;

pub(crate) use client::{Answer, Client, End, get};

use bytes::Bytes;
use dwell_engine::{
    App, Body, BodyPlan, Detached, ExchangeId, HttpEvent, Limits, Outcome, Reply, Request, Response,
};
use dwell_evloop::{Context, Driver, EventLoop, Readiness, Stream, Token};
use dwell_proto::http1::{RequestHead, Trailers};
use dwell_testkit::{Rig, Serving};
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Does what the target of each request says and writes down what it is told.
#[derive(Default)]
pub(crate) struct Script {
    /// Method and target of each request.
    pub(crate) seen: Vec<String>,
    /// Every hold, with the target it came from; the index is the tag.
    pub(crate) held: Vec<(ExchangeId, String)>,
    /// Tags whose peer has ended its side, in the order asked.
    pub(crate) asked: Vec<u64>,
    pub(crate) abandoned: Vec<u64>,
    pub(crate) expired: Vec<(u64, Instant)>,
    pub(crate) events: Vec<HttpEvent>,
    /// Whether an exchange ends with its peer's sending side.
    pub(crate) gives_up: bool,
    /// The body of `/large`.
    pub(crate) large: Bytes,
    /// What came of streamed bodies, and the trailers behind them.
    pub(crate) uploaded: Vec<u8>,
    /// Bytes that had come of bodies whose rest followed.
    pub(crate) gathered: Vec<usize>,
    pub(crate) trailers: Vec<(String, Vec<u8>)>,
    /// How often a streaming answer was drained.
    pub(crate) drained: usize,
    /// Times that requests are put off.
    pub(crate) puts_off: usize,
    /// Requests that one connection of HTTP/2 may have under way, if that is bounded.
    pub(crate) streams_max: Option<usize>,
    /// The numbers of them, as they were told.
    pub(crate) streams: Vec<usize>,
    /// Connections that have left HTTP.
    pub(crate) detached: Vec<(u64, Detached)>,
}

impl Script {
    pub(crate) fn count(&self, event: HttpEvent) -> usize {
        self.events.iter().filter(|seen| **seen == event).count()
    }
}

/// The report of a request that was rejected, on a listener without a label.
pub(crate) fn rejected(status: u16) -> HttpEvent {
    HttpEvent::Rejected {
        status,
        listener: None,
    }
}

/// What a query such as `a=1&b=2` says of `name`.
fn parameter<'t>(target: &'t str, name: &str) -> Option<&'t str> {
    let (_, query) = target.split_once('?')?;
    query
        .split('&')
        .filter_map(|pair| pair.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

fn number(text: &str) -> usize {
    text.parse().unwrap()
}

fn milliseconds(target: &str) -> Option<Duration> {
    let text = parameter(target, "ms")?;
    Some(Duration::from_millis(text.parse().unwrap()))
}

pub(crate) fn text(status: u16, body: &str) -> Response<'_> {
    Response {
        status,
        fields: &[],
        body: Body::Slice(body.as_bytes()),
    }
}

impl Script {
    /// Answers in the shapes that need no second look.
    fn answer_at_once(&self, request: &Request<'_>, reply: &mut Reply<'_>) {
        let target = request.head.target;
        match request.head.path {
            "/pieces" => {
                reply.informational(103, &[("Link", b"</style.css>; rel=preload")]);
                reply.send(&Response {
                    status: 200,
                    fields: &[],
                    body: Body::Stream(None),
                });
                reply.write(b"one").unwrap();
                reply.write_shared(&Bytes::from_static(b"two")).unwrap();
            }
            "/verbatim" => {
                let answer = b"HTTP/1.1 200 Fine\r\nContent-Length: 3\r\n\r\nown";
                reply.verbatim();
                reply.write(answer).unwrap();
                reply.finish(&[]).unwrap();
            }
            "/large" => reply.send(&Response {
                status: 200,
                fields: &[],
                body: Body::Shared(self.large.clone()),
            }),
            "/absent" => reply.send(&Response {
                status: 200,
                fields: &[],
                body: Body::Absent(Some(12_345)),
            }),
            "/status" => {
                let status = parameter(target, "is").unwrap().parse().unwrap();
                reply.send(&text(status, "a body"));
            }
            "/last" => {
                reply.close_after();
                reply.send(&text(200, "last"));
            }
            "/field" => reply.send(&Response {
                status: 200,
                fields: &[("X-Injected", b"a\r\nX-Second: b")],
                body: Body::Empty,
            }),
            "/twice" => {
                reply.send(&text(200, "first"));
                reply.send(&text(500, "second"));
            }
            _ => {
                let body = String::from_utf8_lossy(request.body);
                let body = format!("{} {target} [{body}]", request.head.method);
                reply.send(&text(200, &body));
            }
        }
    }
}

impl App for Script {
    fn puts_off(&mut self, _: &Context, _: &RequestHead<'_, '_>) -> bool {
        let puts_off = self.puts_off > 0;
        self.puts_off -= usize::from(puts_off);
        puts_off
    }

    fn body(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        head: &RequestHead<'_, '_>,
        _: &Stream,
    ) -> BodyPlan {
        match head.path {
            "/upload" | "/early" => BodyPlan::Stream {
                bytes_max: 10_000_000,
            },
            "/gather" => BodyPlan::Gather {
                first_bytes: parameter(head.target, "first").map_or(10, number),
                bytes_max: 10_000_000,
            },
            "/refuse" => BodyPlan::Refuse(403),
            _ => BodyPlan::Collect { bytes_max: 100_000 },
        }
    }

    fn body_data(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        tag: u64,
        data: &[u8],
        reply: &mut Reply<'_>,
    ) -> Outcome {
        self.uploaded.extend_from_slice(data);
        let target = &self.held[tag as usize].1;
        if parameter(target, "enough").is_some_and(|enough| self.uploaded.len() >= number(enough)) {
            reply.send(&text(200, "enough"));
            return Outcome::Answered;
        }
        if parameter(target, "once").is_none() {
            reply.grant(data.len() as u64);
        }
        if parameter(target, "idle").is_some() {
            reply.await_body(false);
        }
        let timeout = milliseconds(target);
        Outcome::Held { tag, timeout }
    }

    fn body_end(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        _: u64,
        trailers: Trailers<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let fields = trailers.iter();
        self.trailers
            .extend(fields.map(|(name, value)| (name.to_owned(), value.to_vec())));
        reply.send(&text(200, &format!("{} bytes", self.uploaded.len())));
        Outcome::Answered
    }

    fn drained(&mut self, _: &mut Context, _: ExchangeId, tag: u64, _: &mut Reply<'_>) -> Outcome {
        self.drained += 1;
        Outcome::Held { tag, timeout: None }
    }

    fn detached(&mut self, _: &mut Context, _: ExchangeId, tag: u64, detached: Detached) {
        self.detached.push((tag, detached));
    }

    fn request(
        &mut self,
        _: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let target = request.head.target;
        self.seen.push(format!("{} {target}", request.head.method));
        let hold = Outcome::Held {
            tag: self.held.len() as u64,
            timeout: milliseconds(target),
        };
        match request.head.path {
            "/hold" => {
                self.held.push((request.exchange, target.into()));
                return hold;
            }
            "/upload" => {
                assert!(request.body_follows && request.body.is_empty());
                self.held.push((request.exchange, target.into()));
                reply.grant(parameter(target, "grant").map_or(0, number) as u64);
                return hold;
            }
            "/gather" if request.body_follows => {
                self.gathered.push(request.body.len());
                self.uploaded.extend_from_slice(request.body);
                self.held.push((request.exchange, target.into()));
                reply.grant(parameter(target, "grant").map_or(0, number) as u64);
                return hold;
            }
            "/stream" => {
                self.held.push((request.exchange, target.into()));
                let length = parameter(target, "length").map(|length| number(length) as u64);
                reply.send(&Response {
                    status: 200,
                    fields: &[],
                    body: Body::Stream(length),
                });
                return hold;
            }
            "/detach" => {
                reply.send(&Response {
                    status: 101,
                    fields: &[("Connection", b"Upgrade"), ("Upgrade", b"own")],
                    body: Body::Empty,
                });
                return Outcome::Detach { tag: 77 };
            }
            "/forgotten" => return Outcome::Answered,
            "/close" => return Outcome::Close,
            "/answered-and-held" => {
                self.held.push((request.exchange, target.into()));
                reply.send(&text(200, "answered"));
                return hold;
            }
            "/answered-and-closed" => {
                reply.send(&text(200, "answered"));
                return Outcome::Close;
            }
            _ => self.answer_at_once(request, reply),
        }
        Outcome::Answered
    }

    fn expired(
        &mut self,
        context: &mut Context,
        _: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        self.expired.push((tag, context.now()));
        match parameter(&self.held[tag as usize].1, "then") {
            Some("hold") => Outcome::Held { tag, timeout: None },
            Some("close") => Outcome::Close,
            Some("detach") => Outcome::Detach { tag },
            Some("forget") => Outcome::Answered,
            Some("both") => {
                reply.send(&text(200, "both"));
                Outcome::Held { tag, timeout: None }
            }
            _ => {
                reply.send(&text(200, "time is up"));
                Outcome::Answered
            }
        }
    }

    fn peer_closed(&mut self, _: ExchangeId, tag: u64) -> bool {
        self.asked.push(tag);
        self.gives_up
    }

    fn abandoned(&mut self, _: &mut Context, _: ExchangeId, tag: u64) {
        self.abandoned.push(tag);
    }

    fn streams_open(&mut self, _: &mut Stream, open: usize) -> bool {
        self.streams.push(open);
        self.streams_max.is_none_or(|max| open <= max)
    }

    fn event(&mut self, event: HttpEvent) {
        self.events.push(event);
    }
}

pub(crate) type Server = Serving<Script>;

/// A loop with one server on it.
pub(crate) struct Fixture {
    pub(crate) event_loop: EventLoop<()>,
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
    pub(crate) turns: usize,
}

impl Fixture {
    pub(crate) fn new(limits: Limits) -> Self {
        let (event_loop, server, address) = Serving::start(limits, Script::default());
        Self {
            event_loop,
            server,
            address,
            turns: 0,
        }
    }

    /// One turn with what is ready now. What a client sent over loopback before it is.
    pub(crate) fn turn(&mut self) {
        self.turn_for(Duration::ZERO);
    }

    /// A client the server has accepted.
    pub(crate) fn connect(&mut self) -> Client {
        self.accept(Client::connect(self.address))
    }

    /// Lets the server accept a client.
    pub(crate) fn accept(&mut self, client: Client) -> Client {
        let before = self.server.app.events.len();
        self.turn_until("the client is accepted", |server| {
            server.app.events.len() > before
        });
        client
    }

    /// Sends `bytes` and lets the server see them.
    pub(crate) fn send(&mut self, client: &mut Client, bytes: impl AsRef<[u8]>) {
        client.send(bytes.as_ref());
        self.turn();
    }

    /// The next answer, to a request of any method but HEAD.
    pub(crate) fn answer(&mut self, client: &mut Client) -> Answer {
        self.answer_to("GET", client)
    }

    pub(crate) fn answer_to(&mut self, method: &str, client: &mut Client) -> Answer {
        self.turn_for_client("an answer comes", || {
            client.receive();
            let answer = client.take_answer(method);
            assert!(
                answer.is_some() || client.end.is_none(),
                "the connection ended ({:?}) with {:?}",
                client.end,
                String::from_utf8_lossy(&client.received)
            );
            answer
        })
    }

    /// Sends one request and returns its answer.
    pub(crate) fn ask(&mut self, client: &mut Client, request: &str) -> Answer {
        self.send(client, request);
        let method = request.split(' ').next().unwrap();
        self.answer_to(method, client)
    }

    /// How the connection ends; everything that was not taken as an answer is in `received`.
    pub(crate) fn end(&mut self, client: &mut Client) -> End {
        self.turn_for_client("the connection ends", || {
            client.receive();
            client.end
        })
    }

    /// Tells the server something of its first connection.
    pub(crate) fn pretend_ready(&mut self, readiness: Readiness) {
        let first = Token::new(Server::KINDS.connection, 0, 0);
        self.server
            .ready(self.event_loop.context(), first, readiness);
    }

    /// How many connections are left when everything that has come is dealt with.
    pub(crate) fn connections_left(&mut self) -> usize {
        for _ in 0..10 {
            self.turn();
        }
        self.server.http.connections()
    }

    /// Uses the place of the answer to the hold with this tag.
    pub(crate) fn reply<T>(&mut self, tag: usize, make: impl FnOnce(&mut Reply<'_>) -> T) -> T {
        let exchange = self.server.app.held[tag].0;
        let context = self.event_loop.context();
        self.server
            .http
            .with_reply(context, exchange, make)
            .unwrap()
    }

    /// Answers the hold with this tag.
    pub(crate) fn answer_hold(&mut self, tag: usize, body: &str) -> bool {
        let exchange = self.server.app.held[tag].0;
        self.server
            .http
            .answer(self.event_loop.context(), exchange, &text(200, body))
    }
}

impl Rig for Fixture {
    type Driver = Server;

    fn parts(&mut self) -> (&mut EventLoop<()>, &mut Server) {
        (&mut self.event_loop, &mut self.server)
    }

    fn turn_for(&mut self, timeout: Duration) {
        self.turns += 1;
        let turned = self.event_loop.turn(&mut self.server, Some(timeout));
        turned.unwrap();
    }
}

impl Default for Fixture {
    fn default() -> Self {
        Self::new(Limits::default())
    }
}
