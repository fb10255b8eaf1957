//! A loop with an HTTP server and the WebSockets that its streams become.

use super::super::peer::head;
use dwell_engine::websocket::{
    EndCause, Message, MessageKind, Negotiated, UpgradeOptions, WebSocketApp, WebSocketEnd,
    WebSocketOptions, WebSocketRef, WebSockets, is_upgrade, upgrade,
};
use dwell_engine::{App, Detached, ExchangeId, Http, Kinds, Limits, Outcome, Reply, Request};
use dwell_evloop::sim::SimNet;
use dwell_evloop::{Context, Driver, EventLoop, Readiness, Token};
use dwell_proto::websocket::encode;
use dwell_testkit::{Rig, loopback_listener};
use std::net::SocketAddr;
use std::time::Duration;

const STREAM_KIND: u8 = 3;
const WEB_SOCKET: u8 = 4;

/// Decides on handshakes as the path says.
#[derive(Default)]
pub(super) struct Doors {
    pub(super) heads: Vec<String>,
    /// Sockets count as connections.
    pub(super) counts: bool,
    held: Vec<(ExchangeId, Vec<u8>, Negotiated)>,
    detached: Vec<(Detached, Negotiated)>,
}

/// Sends back what comes.
#[derive(Default)]
pub(super) struct Echo {
    pub(super) is_quiet: bool,
    pub(super) pauses: bool,
    pub(super) messages: usize,
    /// Of each socket that has sent something first, that its address is known.
    pub(super) peers: Vec<bool>,
    pub(super) ends: Vec<EndCause>,
}

pub(super) struct Server {
    pub(super) http: Http,
    pub(super) sockets: WebSockets,
    pub(super) doors: Doors,
    pub(super) app: Echo,
    pub(super) tokens: Vec<Token>,
}

pub(super) struct Site {
    pub(super) event_loop: EventLoop<()>,
    pub(super) server: Server,
    pub(super) address: SocketAddr,
}

impl App for Doors {
    fn stream_may_leave(&mut self, is_full: bool) -> bool {
        !(self.counts && is_full)
    }

    fn request(
        &mut self,
        _: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let head = request.head;
        let seen = format!("{} {} {:?}", head.method, head.path, head.version);
        self.heads.push(seen);
        assert!(!request.body_follows && !reply.has_unread_body());
        match head.path {
            _ if !is_upgrade(head) => reply.text(200, "no socket"),
            "/ignore" => reply.text(200, "the page"),
            "/refuse" => reply.text(404, "nothing here"),
            path => return self.open(path, request, reply),
        }
        Outcome::Answered
    }

    fn detached(&mut self, _: &mut Context, _: ExchangeId, tag: u64, detached: Detached) {
        self.detached
            .push((detached, Negotiated::from_bits(tag as u32)));
    }
}

impl Doors {
    fn open(&mut self, path: &str, request: &Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let mut options = UpgradeOptions {
            deflate: None,
            ..UpgradeOptions::default()
        };
        if path == "/spoken" {
            options.deflate = UpgradeOptions::default().deflate;
            options.subprotocols = &["second", "third"];
        }
        let upgrade = match upgrade(request.head, &options) {
            Ok(upgrade) => upgrade,
            Err(rejection) => {
                rejection.send(reply);
                return Outcome::Answered;
            }
        };
        let negotiated = upgrade.negotiated();
        if path == "/later" {
            let head = upgrade.head([]);
            self.held.push((request.exchange, head, negotiated));
            return Outcome::Held {
                tag: 7,
                timeout: None,
            };
        }
        upgrade.send(reply, &[("X-Own", b"mine")]);
        Outcome::Detach {
            tag: negotiated.to_bits().into(),
        }
    }
}

impl WebSocketApp for Echo {
    fn message(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, message: Message<'_>) {
        self.messages += 1;
        if self.messages == 1 {
            self.peers.push(socket.peer_address().is_some());
        }
        if self.pauses {
            socket.pause();
        }
        if !self.is_quiet {
            let _ = socket.send(message.kind, &message.payload);
        }
    }

    fn closed(&mut self, _: &mut Context, _: Token, _: u64, end: WebSocketEnd<'_>) {
        self.ends.push(end.cause);
    }
}

impl Server {
    fn adopt(&mut self, context: &mut Context) {
        for (detached, negotiated) in self.doors.detached.drain(..) {
            let adopted = self.sockets.adopt(context, detached, negotiated, 0);
            self.tokens.push(adopted.unwrap());
        }
    }
}

impl Driver for Server {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        if token.kind() == WEB_SOCKET {
            let (sockets, app) = (&mut self.sockets, &mut self.app);
            return sockets.ready(context, token, readiness, app);
        }
        self.http.ready(context, token, readiness, &mut self.doors);
        self.adopt(context);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        if token.kind() == WEB_SOCKET {
            self.sockets.expired(context, token, &mut self.app);
        } else {
            self.http.expired(context, token, &mut self.doors);
        }
    }

    fn message(&mut self, _: &mut Context, (): ()) {}
}

impl Site {
    pub(super) fn new() -> Self {
        Self::with(Limits::default(), WebSocketOptions::default())
    }

    pub(super) fn with(limits: Limits, options: WebSocketOptions) -> Self {
        Self::made(limits, options, true)
    }

    pub(super) fn without_connect() -> Self {
        Self::made(Limits::default(), WebSocketOptions::default(), false)
    }

    fn made(limits: Limits, options: WebSocketOptions, takes_connect: bool) -> Self {
        let mut event_loop = EventLoop::new().unwrap();
        let kinds = Kinds {
            listener: 1,
            connection: 2,
        };
        let mut http = Http::new(kinds, limits).speak_h2c(STREAM_KIND);
        if takes_connect {
            http = http.take_connect();
        }
        let (listener, address) = loopback_listener();
        http.listen(event_loop.context(), listener).unwrap();
        let server = Server {
            http,
            sockets: WebSockets::new(WEB_SOCKET, options),
            doors: Doors::default(),
            app: Echo::default(),
            tokens: Vec::new(),
        };
        Self {
            event_loop,
            server,
            address,
        }
    }

    /// Lets a little simulated time pass, in which all that is on its way arrives.
    pub(super) fn pass(&mut self, network: &SimNet) {
        self.pass_for(network, Duration::from_millis(20));
    }

    pub(super) fn pass_for(&mut self, network: &SimNet, time: Duration) {
        let end = network.elapsed() + time;
        while network.elapsed() < end {
            self.turn_for(end.saturating_sub(network.elapsed()));
        }
    }

    /// Accepts the handshakes that were left for later.
    pub(super) fn accept_later(&mut self) {
        let context = self.event_loop.context();
        for (exchange, head, negotiated) in std::mem::take(&mut self.server.doors.held) {
            let mut detached = self.server.http.detach(context, exchange).unwrap();
            detached.stream.write(&head).unwrap();
            self.server.doors.detached.push((detached, negotiated));
        }
        self.server.adopt(context);
    }

    /// Lets `act` work on the socket that was opened as the first, second or so on.
    pub(super) fn on<T>(
        &mut self,
        place: usize,
        act: impl FnOnce(&mut WebSocketRef<'_>) -> T,
    ) -> T {
        let (context, token) = (self.event_loop.context(), self.server.tokens[place]);
        let done = self.server.sockets.with_socket(context, token, act);
        done.unwrap()
    }
}

impl Rig for Site {
    type Driver = Server;

    fn parts(&mut self) -> (&mut EventLoop<()>, &mut Server) {
        (&mut self.event_loop, &mut self.server)
    }
}

/// The lines of a request for a protocol.
pub(super) fn lines<'a>(path: &'a str, protocol: &'a str) -> [(&'a str, &'a str); 5] {
    [
        (":method", "CONNECT"),
        (":protocol", protocol),
        (":scheme", "http"),
        (":path", path),
        (":authority", "a"),
    ]
}

/// An opening handshake.
pub(super) fn connect(stream: u32, path: &str, fields: &[(&str, &str)]) -> Vec<u8> {
    let version = [("sec-websocket-version", "13")];
    let lines = [&lines(path, "websocket")[..], &version, fields].concat();
    head(stream, &lines, false)
}

/// A message of a client.
pub(super) fn message(kind: MessageKind, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::message(&mut out, kind, payload, Some([1, 2, 3, 4]));
    out
}

/// The payloads of whole frames of a server, one behind the other.
pub(super) fn received(mut frames: &[u8]) -> Vec<u8> {
    let mut payloads = Vec::new();
    while let [_, length, rest @ ..] = frames {
        let (length, rest) = match length {
            126 => (
                usize::from(u16::from_be_bytes([rest[0], rest[1]])),
                &rest[2..],
            ),
            length => (usize::from(*length), rest),
        };
        payloads.extend(&rest[..length]);
        frames = &rest[length..];
    }
    payloads
}
