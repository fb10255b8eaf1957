//! The parts of an example that its reader needs not: the loop, and the client that asks.
//!
//! All of them panic where an example does something else than it shows.
#![expect(
    clippy::missing_panics_doc,
    reason = "it is the text of the module for all of them"
)]

use crate::{GUARD, ask, ask_and_finish, beside};
use dwell_engine::handler::{Exchange, Handler, Responder};
use dwell_engine::manager::{Conn, Event, HttpMessage, Manager};
use dwell_engine::websocket::{
    Delivery, Negotiated, Role, UpgradeOptions, WebSocketApp, WebSocketOptions, WebSockets,
};
use dwell_engine::{
    App, Body, Detached, ExchangeId, Http, HttpDriver, Limits, Outcome, Reply, Request, Response,
    Server,
};
use dwell_evloop::{Context, Driver, EventLoop, Readiness, Stream, Token};
use std::cell::Cell;
use std::fmt::Debug;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use tungstenite::WebSocket;
use tungstenite::stream::MaybeTlsStream;

type Client = WebSocket<MaybeTlsStream<TcpStream>>;
type Handshake = tungstenite::handshake::client::Response;

/// A request after whose response the server closes the connection.
const GET: &str = "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
/// Longer than a step of a loop takes: how often it is seen whether the client has ended.
const STEP: Duration = Duration::from_millis(10);

/// The result of a function of an example, which must not fail.
pub trait Fine {
    /// Panics for a failure.
    fn fine(self);
}

impl Fine for () {
    fn fine(self) {}
}

impl<E: Debug> Fine for Result<(), E> {
    fn fine(self) {
        self.expect("an example does what it shows");
    }
}

/// The answer that `respond` gives to a GET request.
///
/// ```
/// use dwell_testkit::serve_once;
///
/// let answer = serve_once(|reply| reply.text(200, "hello"));
/// assert!(answer.ends_with("\r\n\r\nhello\n"), "{answer}");
/// ```
pub fn serve_once<R: Fine>(mut respond: impl FnMut(&mut Reply<'_>) -> R) -> String {
    serve_request(GET, |_, reply| {
        respond(reply).fine();
        Outcome::Answered
    })
}

/// The bytes that the client of `request` gets from `respond` until the connection ends.
pub fn serve_request(
    request: &str,
    mut respond: impl FnMut(&Request<'_>, &mut Reply<'_>) -> Outcome,
) -> String {
    let app =
        |_: &mut Context, request: &Request<'_>, reply: &mut Reply<'_>| respond(request, reply);
    let (mut event_loop, mut driver, address) = listening(app);
    beside(
        || ask(address, request),
        || {
            let turned = event_loop.turn(&mut driver, Some(STEP));
            turned.expect("the loop turns");
        },
    )
}

/// A loop with a server that answers each request with `hello`, and the address it listens on.
pub fn hello() -> (EventLoop<()>, HttpDriver<impl App>, SocketAddr) {
    listening(|_: &mut Context, _: &Request<'_>, reply: &mut Reply<'_>| {
        reply.text(200, "hello");
        Outcome::Answered
    })
}

/// The answer of a [`Server`] with this handler to `request`, which says that the connection ends.
pub fn handle_once(request: &str, handler: impl Handler) -> String {
    let builder = Server::builder().listen(([127, 0, 0, 1], 0).into());
    let running = builder.serve(handler).expect("the server starts");
    ask(running.addresses()[0], request)
}

/// As [`handle_once`], with a handler that lets `work` answer in another thread.
pub fn respond_once<R: Fine>(
    request: &str,
    work: impl Fn(Responder) -> R + Send + Sync + 'static,
) -> String {
    let work = Arc::new(work);
    let handler = move |_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
        let (work, responder) = (Arc::clone(&work), exchange.responder());
        thread::spawn(move || work(responder).fine());
    };
    handle_once(request, handler)
}

/// The beginning of an answer to `request` that `respond` leaves open.
pub fn serve_beginning(
    request: &str,
    mut respond: impl FnMut(&Request<'_>, &mut Reply<'_>) -> Outcome,
) -> String {
    let begun = Cell::new(false);
    let app = |_: &mut Context, request: &Request<'_>, reply: &mut Reply<'_>| {
        begun.set(true);
        respond(request, reply)
    };
    let (mut event_loop, mut driver, address) = listening(app);
    let mut client = connect(address);
    let sent = client.write_all(request.as_bytes());
    sent.expect("the server takes it");
    while !begun.get() {
        let turned = event_loop.turn(&mut driver, Some(GUARD));
        turned.expect("the loop turns");
    }
    drop(driver);
    rest(client)
}

/// Holds a request, does `act` with it, and returns what its client gets until the connection ends,
/// which it does then.
///
/// ```
/// use dwell_testkit::hold_once;
///
/// let answer = hold_once(|http, context, exchange| {
///     http.with_reply(context, exchange, |reply| reply.text(200, "at last"));
/// });
/// assert!(answer.ends_with("\r\n\r\nat last\n"), "{answer}");
/// ```
pub fn hold_once<R: Fine>(act: impl FnOnce(&mut Http, &mut Context, ExchangeId) -> R) -> String {
    hold(|_| {}, act)
}

/// Does as [`hold_once`], with a streaming answer that is open.
pub fn stream_once<R: Fine>(act: impl FnOnce(&mut Http, &mut Context, ExchangeId) -> R) -> String {
    let begin = |reply: &mut Reply<'_>| {
        reply.send(&Response {
            status: 200,
            fields: &[],
            body: Body::Stream(None),
        });
    };
    hold(begin, act)
}

fn hold<R: Fine>(
    mut begin: impl FnMut(&mut Reply<'_>),
    act: impl FnOnce(&mut Http, &mut Context, ExchangeId) -> R,
) -> String {
    let held = Cell::new(None);
    let app = |_: &mut Context, request: &Request<'_>, reply: &mut Reply<'_>| {
        begin(reply);
        held.set(Some(request.exchange));
        Outcome::Held {
            tag: 0,
            timeout: None,
        }
    };
    let (mut event_loop, mut driver, address) = listening(app);
    let mut client = connect(address);
    // To a client of HTTP/1.0 the pieces of a streaming answer go as they are.
    let sent = client.write_all(b"GET / HTTP/1.0\r\n\r\n");
    sent.expect("the server takes a request");
    while held.get().is_none() {
        let turned = event_loop.turn(&mut driver, Some(GUARD));
        turned.expect("the loop turns");
    }
    let exchange = held.get().expect("it was held");
    act(&mut driver.http, event_loop.context(), exchange).fine();
    drop(driver);
    rest(client)
}

/// Lets a [`Manager`] with this handler serve what `client` asks at the address it is given, by
/// `http`, `ws` or `tcp`; returns what the client returned.
pub fn manage<R: Fine, T: Send>(
    scheme: &str,
    handler: impl FnMut(&mut Conn<'_>, Event<'_>) -> R + Send + 'static,
    client: impl FnOnce(SocketAddr) -> T + Send,
) -> T {
    let (mut manager, address) = managing(scheme, handler);
    beside(
        || client(address),
        || manager.poll(STEP).expect("the manager polls"),
    )
}

/// The answer of a [`Manager`] with this handler to `request`, after which the connection ends.
///
/// ```
/// use dwell_engine::manager::Event;
/// use dwell_testkit::manage_once;
///
/// let answer = manage_once("GET / HTTP/1.0\r\n\r\n", |conn, event| {
///     if let Event::HttpMessage(_) = event {
///         conn.reply(200, &[], b"hello").expect("it is the first answer");
///     }
/// });
/// assert!(answer.ends_with("\r\n\r\nhello"), "{answer}");
/// ```
pub fn manage_once<R: Fine>(
    request: &str,
    handler: impl FnMut(&mut Conn<'_>, Event<'_>) -> R + Send + 'static,
) -> String {
    manage("http", handler, |address| ask(address, request))
}

/// The answer of a [`Manager`] to `request` whose text `describe` makes of it.
pub fn describe(
    request: &str,
    mut describe: impl FnMut(&HttpMessage<'_>) -> String + Send + 'static,
) -> String {
    manage_once(request, move |conn, event| match event {
        Event::HttpMessage(message) => conn.reply(200, &[], describe(&message).as_bytes()),
        _ => Ok(()),
    })
}

/// The bytes that a [`Manager`] with this handler sends to a client of raw bytes, which ends its
/// side after `input`.
pub fn manage_bytes<R: Fine>(
    input: &str,
    handler: impl FnMut(&mut Conn<'_>, Event<'_>) -> R + Send + 'static,
) -> String {
    manage("tcp", handler, |address| ask_and_finish(address, input))
}

/// Lets a client send `input` to a [`Manager`] with this handler, does `act` when it has connected
/// and the answer to a request has begun, and returns all that the client gets.
pub fn manage_then<R: Fine>(
    scheme: &str,
    input: &str,
    handler: impl FnMut(&mut Conn<'_>, Event<'_>) -> R + Send + 'static,
    act: impl FnOnce(&mut Manager),
) -> String {
    let (mut manager, address) = managing(scheme, handler);
    let mut client = connect(address);
    let sent = client.write_all(input.as_bytes());
    sent.expect("the manager takes it");
    nonblocking(&client, true);
    while manager.connection_count() < 2 || (!input.is_empty() && client.peek(&mut [0]).is_err()) {
        manager.poll(STEP).expect("the manager polls");
    }
    nonblocking(&client, false);
    act(&mut manager);
    manager.close();
    rest(client)
}

/// Lets `begin` begin the answer of a [`Manager`] to a request, does `act` then, and returns all
/// that the client gets.
pub fn manage_stream<R: Fine, S: Fine>(
    mut begin: impl FnMut(&mut Conn<'_>) -> R + Send + 'static,
    act: impl FnOnce(&mut Manager) -> S,
) -> String {
    let handler = move |conn: &mut Conn<'_>, event: Event<'_>| {
        if let Event::HttpMessage(_) = event {
            begin(conn).fine();
        }
    };
    manage_then("http", "GET / HTTP/1.0\r\n\r\n", handler, |manager| {
        act(manager).fine();
    })
}

/// Lets `talk` talk as the client of a WebSocket of a [`Manager`] with this handler, with the
/// response to the handshake; returns what it has returned.
pub fn manage_ws<R: Fine, T: Send>(
    handler: impl FnMut(&mut Conn<'_>, Event<'_>) -> R + Send + 'static,
    talk: impl FnOnce(&mut Client, Handshake) -> tungstenite::Result<T> + Send,
) -> T {
    let talked = manage("ws", handler, |address| {
        let (mut client, handshake) = tungstenite::connect(format!("ws://{address}/"))?;
        talk(&mut client, handshake)
    });
    talked.expect("the client is understood")
}

/// As [`manage_ws`], without the handshake, which is accepted: `handler` gets what follows it.
pub fn manage_socket<R: Fine, T: Send>(
    mut handler: impl FnMut(&mut Conn<'_>, Event<'_>) -> R + Send + 'static,
    talk: impl FnOnce(&mut Client) -> tungstenite::Result<T> + Send,
) -> T {
    let handler = move |conn: &mut Conn<'_>, event: Event<'_>| match event {
        Event::HttpMessage(message) => {
            conn.ws_upgrade(&message, &UpgradeOptions::default()).fine();
        }
        event => handler(conn, event).fine(),
    };
    manage_ws(handler, |client, _| talk(client))
}

/// Does `act` with a WebSocket, and returns the bytes that its client gets.
pub fn socket_once<R: Fine>(
    act: impl FnOnce(&mut WebSockets, &mut Context, Token) -> R,
) -> Vec<u8> {
    let (detached, mut client) = detached();
    let mut event_loop = EventLoop::<()>::new().expect("a loop");
    let mut sockets = WebSockets::new(0, WebSocketOptions::default());
    let negotiated = Negotiated::new(Role::Server, None);
    let token = sockets.adopt(event_loop.context(), detached, negotiated, 0);
    let token = token.expect("there is room");
    act(&mut sockets, event_loop.context(), token).fine();
    drop(sockets);
    let mut received = Vec::new();
    let ended = client.read_to_end(&mut received);
    ended.expect("it ends in order");
    received
}

/// Lets `talk` talk as the client of a WebSocket with this app, after the handshake; returns what
/// it has returned.
pub fn talk_once<T: Send>(
    app: impl WebSocketApp,
    delivery: Delivery,
    talk: impl FnOnce(&mut WebSocket<TcpStream>) -> tungstenite::Result<T> + Send,
) -> T {
    let (detached, client) = detached();
    let mut event_loop = EventLoop::new().expect("a loop");
    let mut driver = Sockets(WebSockets::new(0, WebSocketOptions::default()), app);
    let negotiated = Negotiated {
        delivery,
        ..Negotiated::new(Role::Server, None)
    };
    let token = driver
        .0
        .adopt(event_loop.context(), detached, negotiated, 0);
    token.expect("there is room");
    let talk = move || {
        let role = tungstenite::protocol::Role::Client;
        talk(&mut WebSocket::from_raw_socket(client, role, None))
    };
    let talked = beside(talk, || {
        let turned = event_loop.turn(&mut driver, Some(STEP));
        turned.expect("the loop turns");
    });
    talked.expect("the client is understood")
}

/// A loop with WebSockets and nothing else.
struct Sockets<A>(WebSockets, A);

impl<A: WebSocketApp> Driver for Sockets<A> {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.0.ready(context, token, readiness, &mut self.1);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        self.0.expired(context, token, &mut self.1);
    }

    fn message(&mut self, _: &mut Context, (): ()) {}
}

/// A connection that has left its component, and its client.
pub fn detached() -> (Detached, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let client = connect(listener.local_addr().expect("it is bound"));
    let (stream, _) = listener.accept().expect("a client has connected");
    let stream = Stream::from_descriptor(stream.into()).expect("it is a socket");
    let input = Vec::new();
    (Detached { stream, input }, client)
}

fn managing<R: Fine>(
    scheme: &str,
    mut handler: impl FnMut(&mut Conn<'_>, Event<'_>) -> R + Send + 'static,
) -> (Manager, SocketAddr) {
    let handler = move |conn: &mut Conn<'_>, event: Event<'_>| handler(conn, event).fine();
    let mut manager = Manager::new(handler).expect("a manager");
    let listener = manager.listen(&format!("{scheme}://127.0.0.1:0"));
    let conn = manager.conn(listener.expect("a free port"));
    let address = conn.and_then(|mut conn| conn.local_address());
    (manager, address.expect("it listens"))
}

fn listening<A: App>(app: A) -> (EventLoop<()>, HttpDriver<A>, SocketAddr) {
    let mut event_loop = EventLoop::new().expect("a loop");
    let mut driver = HttpDriver::new(Limits::default(), app);
    let address = driver.listen(event_loop.context(), ([127, 0, 0, 1], 0).into());
    (event_loop, driver, address.expect("a free port"))
}

fn connect(address: SocketAddr) -> TcpStream {
    let client = TcpStream::connect(address).expect("the server listens");
    let bounded = client.set_read_timeout(Some(GUARD));
    bounded.expect("a socket has timeouts");
    client
}

fn nonblocking(client: &TcpStream, is_nonblocking: bool) {
    let set = client.set_nonblocking(is_nonblocking);
    set.expect("it is a socket");
}

/// All that comes until the connection ends; with a reset where it was aborted.
fn rest(mut client: TcpStream) -> String {
    let mut answer = Vec::new();
    let _ = client.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}
