//! A loop with upgraded connections on it, an app that writes down what it is told, and peers.

use dwell_engine::websocket::{
    Broadcast, CloseCode, Control, Delivered, Delivery, EndCause, FramePart, Message, MessageKind,
    Negotiated, Opcode, OriginPolicy, Role, UpgradeOptions, WebSocketApp, WebSocketEnd,
    WebSocketOptions, WebSocketRef, WebSockets, upgrade,
};
use dwell_engine::{App, Detached, ExchangeId, Http, Kinds, Limits, Outcome, Reply, Request};
use dwell_evloop::{Context, Driver, EventLoop, Readiness, Stream, Token};
use dwell_proto::websocket::{DeflateOptions, DeflateParameters, Deflaters, FrameHeader, encode};
use dwell_testkit::{Rig, loopback_listener};
use std::borrow::Cow;
use std::io::Write;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

/// How long a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
/// What the clients of these tests mask with.
pub(crate) const MASK: [u8; 4] = [0x37, 0xfa, 0x21, 0x3d];

const WEB_SOCKET: u8 = 3;

/// What the app was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Message {
        kind: MessageKind,
        payload: Vec<u8>,
        is_borrowed: bool,
    },
    Frame {
        opcode: Opcode,
        fin: bool,
        is_first: bool,
        payload_left: u64,
        data: Vec<u8>,
    },
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<u16>, String),
    Drained,
    Closed(End),
}

/// How a connection ended.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct End {
    pub(crate) code: u16,
    pub(crate) reason: String,
    pub(crate) is_clean: bool,
    pub(crate) cause: EndCause,
}

/// What the app does with messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Answer {
    /// Sends them back.
    #[default]
    Echo,
    Nothing,
    /// Sends so many bytes for each.
    Bytes(usize),
    /// Closes.
    Close,
    Pause,
}

#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) seen: Vec<Seen>,
    pub(crate) answer: Answer,
    pub(crate) refused: usize,
}

impl Recorder {
    pub(crate) fn end(&self) -> Option<End> {
        self.seen.iter().find_map(|seen| match seen {
            Seen::Closed(end) => Some(end.clone()),
            _ => None,
        })
    }

    pub(crate) fn payloads(&self) -> Vec<Vec<u8>> {
        let payloads = self.seen.iter().filter_map(|seen| match seen {
            Seen::Message { payload, .. } => Some(payload.clone()),
            _ => None,
        });
        payloads.collect()
    }
}

impl WebSocketApp for Recorder {
    fn message(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, message: Message<'_>) {
        let sent = match self.answer {
            Answer::Echo => socket.send(message.kind, &message.payload),
            Answer::Bytes(bytes) => socket.binary(&vec![b'a'; bytes]),
            Answer::Nothing => Ok(()),
            Answer::Close => {
                socket.close(CloseCode::NORMAL, "enough");
                Ok(())
            }
            Answer::Pause => {
                socket.pause();
                Ok(())
            }
        };
        self.refused += usize::from(sent.is_err());
        self.seen.push(Seen::Message {
            kind: message.kind,
            is_borrowed: matches!(message.payload, Cow::Borrowed(_)),
            payload: message.payload.into_owned(),
        });
    }

    fn frame(&mut self, _: &mut Context, _: &mut WebSocketRef<'_>, part: FramePart<'_>) {
        self.seen.push(Seen::Frame {
            opcode: part.opcode,
            fin: part.fin,
            is_first: part.is_first,
            payload_left: part.payload_left,
            data: part.data.to_vec(),
        });
    }

    fn control(&mut self, _: &mut Context, _: &mut WebSocketRef<'_>, control: Control<'_>) {
        self.seen.push(match control {
            Control::Ping(payload) => Seen::Ping(payload.to_vec()),
            Control::Pong(payload) => Seen::Pong(payload.to_vec()),
            Control::Close { code, reason } => {
                Seen::Close(code.map(CloseCode::number), reason.to_owned())
            }
        });
    }

    fn drained(&mut self, _: &mut Context, _: &mut WebSocketRef<'_>) {
        self.seen.push(Seen::Drained);
    }

    fn closed(&mut self, _: &mut Context, _: Token, tag: u64, end: WebSocketEnd<'_>) {
        assert_eq!(tag, 42);
        self.seen.push(Seen::Closed(End {
            code: end.code,
            reason: end.reason.to_owned(),
            is_clean: end.is_clean,
            cause: end.cause,
        }));
    }
}

/// Upgrades what asks for it; the path says to what.
#[derive(Default)]
pub(crate) struct Routes {
    upgraded: Vec<(Detached, Negotiated)>,
}

impl App for Routes {
    fn request(
        &mut self,
        _: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        let mut options = UpgradeOptions::default();
        match request.head.path {
            "/frames" => options.delivery = Delivery::Frames,
            "/takeover" => {
                if let Some(deflate) = &mut options.deflate {
                    deflate.server_no_context_takeover = false;
                    deflate.client_no_context_takeover = false;
                }
            }
            "/plain" => options.deflate = None,
            "/spoken" => options.subprotocols = &["second", "first"],
            "/anybody" => options.origin = OriginPolicy::Any,
            _ => {}
        }
        match upgrade(request.head, &options) {
            Ok(upgrade) => {
                upgrade.send(reply, &[("X-Own", b"mine")]);
                let tag = upgrade.negotiated().to_bits().into();
                Outcome::Detach { tag }
            }
            Err(rejection) => {
                rejection.send(reply);
                Outcome::Answered
            }
        }
    }

    fn detached(&mut self, _: &mut Context, _: ExchangeId, tag: u64, detached: Detached) {
        self.upgraded
            .push((detached, Negotiated::from_bits(tag as u32)));
    }
}

pub(crate) struct Server {
    pub(crate) http: Http,
    pub(crate) routes: Routes,
    pub(crate) sockets: WebSockets,
    pub(crate) app: Recorder,
    /// Names of adopted connections, in order.
    pub(crate) tokens: Vec<Token>,
}

impl Driver for Server {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        if token.kind() == WEB_SOCKET {
            self.sockets.ready(context, token, readiness, &mut self.app);
            return;
        }
        self.http.ready(context, token, readiness, &mut self.routes);
        for (detached, negotiated) in self.routes.upgraded.drain(..) {
            let adopted = self.sockets.adopt(context, detached, negotiated, 42);
            self.tokens.push(adopted.unwrap());
        }
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        if token.kind() == WEB_SOCKET {
            self.sockets.expired(context, token, &mut self.app);
        } else {
            self.http.expired(context, token, &mut self.routes);
        }
    }

    fn message(&mut self, _: &mut Context, (): ()) {}
}

pub(crate) struct Fixture {
    pub(crate) event_loop: EventLoop<()>,
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
}

impl Fixture {
    pub(crate) fn new(answer: Answer, options: WebSocketOptions) -> Self {
        let mut event_loop = EventLoop::new().unwrap();
        let kinds = Kinds {
            listener: 1,
            connection: 2,
        };
        let mut server = Server {
            http: Http::new(kinds, Limits::default()),
            routes: Routes::default(),
            sockets: WebSockets::new(WEB_SOCKET, options),
            app: Recorder {
                answer,
                ..Recorder::default()
            },
            tokens: Vec::new(),
        };
        let (listener, address) = loopback_listener();
        server.http.listen(event_loop.context(), listener).unwrap();
        Self {
            event_loop,
            server,
            address,
        }
    }

    pub(crate) fn echo() -> Self {
        Self::new(Answer::Echo, WebSocketOptions::default())
    }

    /// Turns until a connection has ended, and says how.
    pub(crate) fn until_end(&mut self) -> End {
        self.turn_until("it ends", |server| server.app.end().is_some());
        self.server.app.end().unwrap()
    }

    /// Sends a request and turns until the head of its answer is here.
    pub(crate) fn ask(&mut self, path: &str, fields: &str) -> (TcpStream, String) {
        let mut peer = TcpStream::connect(self.address).unwrap();
        peer.set_nodelay(true).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        peer.write_all(head.as_bytes()).unwrap();
        let answer = self.receive_until(&mut peer, is_head);
        (peer, String::from_utf8(answer).unwrap())
    }

    /// A client that has upgraded, and its token here.
    pub(crate) fn peer(&mut self, path: &str) -> (TcpStream, Token) {
        let before = self.server.tokens.len();
        let (peer, head) = self.ask(path, HANDSHAKE);
        assert!(head.starts_with("HTTP/1.1 101 "), "{head}");
        self.turn_until("it is adopted", |server| server.tokens.len() > before);
        (peer, *self.server.tokens.last().unwrap())
    }

    /// A server of the test's own, and our client's token.
    pub(crate) fn client(&mut self) -> (TcpStream, Token) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let stream = Stream::connect(listener.local_addr().unwrap()).unwrap();
        let (peer, _) = listener.accept().unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let detached = Detached {
            stream,
            input: Vec::new(),
        };
        let negotiated = Negotiated::new(Role::Client, None);
        let (context, sockets) = (self.event_loop.context(), &mut self.server.sockets);
        let token = sockets.adopt(context, detached, negotiated, 42).unwrap();
        (peer, token)
    }

    /// Lets `act` work on one connection from outside its callbacks.
    pub(crate) fn with<T>(
        &mut self,
        token: Token,
        act: impl FnOnce(&mut WebSocketRef<'_>) -> T,
    ) -> Option<T> {
        let context = self.event_loop.context();
        self.server.sockets.with_socket(context, token, act)
    }

    pub(crate) fn broadcast(&mut self, tokens: &[Token], message: &Broadcast) -> Delivered {
        let context = self.event_loop.context();
        let tokens = tokens.iter().copied();
        self.server.sockets.broadcast(context, tokens, message)
    }

    pub(crate) fn receive(&mut self, peer: &mut TcpStream, size: usize) -> Vec<u8> {
        self.receive_until(peer, |received| received.len() >= size)
    }

    /// Reads until the end of the stream.
    pub(crate) fn receive_all(&mut self, peer: &mut TcpStream) -> Vec<u8> {
        self.receive_until(peer, |_| false)
    }
}

impl Rig for Fixture {
    type Driver = Server;

    fn parts(&mut self) -> (&mut EventLoop<()>, &mut Server) {
        (&mut self.event_loop, &mut self.server)
    }

    fn describe(&mut self) -> String {
        format!("{:?}", self.server.app.seen)
    }
}

/// The fields of a handshake as a client sends it.
pub(crate) const HANDSHAKE: &str = "Upgrade: websocket\r\nConnection: Upgrade\r\n\
    Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
    Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n";

/// A frame as a client sends it.
pub(crate) fn frame(opcode: Opcode, fin: bool, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        fin,
        compressed: false,
        opcode,
        mask: Some(MASK),
        payload_len: 0,
    };
    let mut out = Vec::new();
    encode::frame(&mut out, header, payload);
    out
}

pub(crate) fn text(payload: &str) -> Vec<u8> {
    frame(Opcode::Text, true, payload.as_bytes())
}

/// A close frame as a client sends it.
pub(crate) fn close(code: u16, reason: &str) -> Vec<u8> {
    let payload = [&code.to_be_bytes()[..], reason.as_bytes()].concat();
    frame(Opcode::Close, true, &payload)
}

/// A close frame as a server sends it.
pub(crate) fn server_close(code: u16, reason: &str) -> Vec<u8> {
    let mut out = Vec::new();
    encode::close(&mut out, CloseCode::new(code), reason, None);
    out
}

/// A message as a server sends it.
pub(crate) fn server_message(kind: MessageKind, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::message(&mut out, kind, payload, None);
    out
}

/// Whether the end of a head is here.
fn is_head(received: &[u8]) -> bool {
    received.windows(4).any(|window| window == b"\r\n\r\n")
}

/// The frame of a broadcast for a client that has agreed to compression.
pub(crate) fn frame_for(message: &Broadcast) -> Vec<u8> {
    let options = DeflateOptions::default();
    let agreed = DeflateParameters {
        server_no_context_takeover: true,
        client_no_context_takeover: true,
        server_max_window_bits: None,
        client_max_window_bits: None,
    };
    let frame = message.frame_for(Some(agreed), &mut Deflaters::new(options));
    frame.to_vec()
}
