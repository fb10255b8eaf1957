//! One loop of a server: the switchboard between its components.

use super::app::ServerApp;
use super::guard::guarded;
use super::host::Host;
use super::kind;
use super::link::{LoopLink, Message};
use super::raw::RawApp;
use super::state::ServerState;
use super::statistics::{add, set};
use super::web_sockets::WebSocketRoutes;
use crate::Detached;
use crate::components::kind::HTTP2_STREAM;
use crate::components::{Apps, Components, Protocol};
use crate::desk::Desk;
use crate::handler::{Handler, Takeover, WebSocketHandler};
use crate::streams::StreamLimits;
use crate::websocket::{CloseCode, Negotiated};
use dwell_evloop::{Context, Driver, EventLoop, Listener, Readiness, Token};
use std::io;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

/// The deadline of a server that ends.
const SHUTDOWN: Token = Token::new(kind::SHUTDOWN, 0, 0);
/// Input that a raw stream may leave unused.
pub(super) const RAW_INPUT_BYTES_MAX: usize = 32 * 1024;

/// One loop with everything on it.
#[derive(Debug)]
pub(super) struct ServerLoop<H: Handler> {
    components: Components,
    apps: Callbacks<H>,
    link: Arc<LoopLink>,
    server: Arc<ServerState>,
    /// The deadline a signal sets; `None` where this loop does not watch for them.
    signal_deadline: Option<Duration>,
    /// The loop has seen that the server ends.
    has_noticed: bool,
    /// The latest time at which it ends; `None` until the loop begins to drain.
    deadline: Option<Instant>,
}

/// The apps of a server's components.
#[derive(Debug)]
struct Callbacks<H: Handler> {
    desk: Desk<ServerApp<H>>,
    raw: RawApp,
    routes: WebSocketRoutes,
}

impl<H: Handler> Apps for Callbacks<H> {
    type Http = Desk<ServerApp<H>>;
    type Streams = RawApp;
    type WebSockets = WebSocketRoutes;

    fn http(&mut self) -> &mut Desk<ServerApp<H>> {
        &mut self.desk
    }

    fn streams(&mut self) -> &mut RawApp {
        &mut self.raw
    }

    fn websockets(&mut self) -> &mut WebSocketRoutes {
        &mut self.routes
    }
}

impl<H: Handler> ServerLoop<H> {
    pub(super) fn new(
        handler: Arc<H>,
        link: &Arc<LoopLink>,
        server: &Arc<ServerState>,
        signal_deadline: Option<Duration>,
        buffer_size: usize,
    ) -> Self {
        let limits = link.settings().limits;
        let raw_limits = StreamLimits {
            connections_max: limits.connections_max,
            input_bytes_max: RAW_INPUT_BYTES_MAX,
            output_bytes_max: limits.output_bytes_max,
            write_timeout: limits.write_timeout,
            ..StreamLimits::default()
        };
        let web_socket = link.settings().web_socket;
        let mut components = Components::new(limits, raw_limits, web_socket, buffer_size);
        components.http = components.http.keep_peers();
        if link.settings().h2c {
            components.http = components.http.speak_h2c(HTTP2_STREAM);
        }
        #[cfg(feature = "tls")]
        if link.settings().http2 {
            components.http = components.http.speak_http2(HTTP2_STREAM);
        }
        components.http = components.http.take_connect();
        let host = Host::new(Arc::clone(link), Arc::clone(server));
        let ledger = host.ledger();
        Self {
            components,
            apps: Callbacks {
                desk: Desk::new(ServerApp::new(handler, host), ledger),
                raw: RawApp::new(Arc::clone(link)),
                routes: WebSocketRoutes::new(Arc::clone(link)),
            },
            link: Arc::clone(link),
            server: Arc::clone(server),
            signal_deadline,
            has_noticed: false,
            deadline: None,
        }
    }

    /// Serves on the calling thread until the server ends.
    pub(super) fn run(
        mut self,
        mut event_loop: EventLoop<Message>,
        listeners: Vec<Listener>,
    ) -> io::Result<()> {
        self.link.settle();
        for listener in listeners {
            self.components
                .http
                .listen(event_loop.context(), listener)?;
        }
        event_loop.run(&mut self)
    }

    /// Hands the connections that have left HTTP in this delivery to their new owners.
    fn settle_departed(&mut self, context: &mut Context) {
        while let Some((detached, takeover)) = self.apps.desk.face.host.departed.pop() {
            match takeover {
                Takeover::Loop(handler) => {
                    if let Some(tag) = self.apps.raw.insert(handler) {
                        self.adopt_raw(context, detached, tag);
                    }
                }
                Takeover::Thread(run) => self.start(detached, run),
                Takeover::WebSocket(negotiated, handler) => {
                    self.adopt_web_socket(context, detached, negotiated, handler);
                }
            }
        }
        self.apps.desk.face.raw_connections = self.components.upgraded();
    }

    fn adopt_web_socket(
        &mut self,
        context: &mut Context,
        detached: Detached,
        negotiated: Negotiated,
        handler: Box<dyn WebSocketHandler>,
    ) {
        let Some(tag) = self.apps.routes.insert(handler) else {
            return;
        };
        let protocol = Protocol::WebSocket(negotiated);
        let Ok(token) = self.components.adopt(context, detached, protocol, tag) else {
            return self.apps.routes.refuse(tag);
        };
        let is_draining = self.is_draining();
        let (routes, web_sockets) = (&mut self.apps.routes, &mut self.components.websockets);
        web_sockets.with_socket(context, token, |socket| routes.opened(socket));
        if is_draining {
            web_sockets.close(context, token, CloseCode::GOING_AWAY, "");
        }
    }

    fn adopt_raw(&mut self, context: &mut Context, detached: Detached, tag: u64) {
        let adopted = self.components.adopt(context, detached, Protocol::Raw, tag);
        let Ok(token) = adopted else {
            return self.apps.raw.refuse(tag);
        };
        let (raw, is_draining) = (&mut self.apps.raw, self.deadline.is_some());
        let streams = &mut self.components.streams;
        streams.with_stream(context, token, |stream| {
            raw.opened(stream);
            if is_draining {
                raw.draining(stream);
            }
        });
    }

    /// Gives a connection to a thread of its own, with the place it has taken.
    fn start(&mut self, detached: Detached, run: ThreadHandler) {
        self.apps.desk.face.places = self.apps.desk.face.places.saturating_sub(1);
        let place = Place(Arc::clone(&self.server));
        let body = move || {
            let Place(server) = &place;
            if let Ok(socket) = detached.stream.into_blocking()
                && guarded(|| run(socket, detached.input)).is_err()
            {
                server.count_panic();
            }
        };
        // Without a thread the connection is closed, and its place given back, by being dropped.
        let _ = thread::Builder::new()
            .name("dwell-takeover".into())
            .spawn(body);
    }

    /// Ends with the server: accepts no more clients, finishes, and is done by the deadline.
    fn end_with_server(&mut self, context: &mut Context) {
        let Some(deadline) = self.server.deadline() else {
            return;
        };
        if !std::mem::replace(&mut self.has_noticed, true) {
            // What was sent before the end was asked for is in the inbox, and comes before it.
            self.link.sender().wake();
            return;
        }
        let before = self.deadline.replace(deadline);
        if before != Some(deadline) {
            context.arm(SHUTDOWN, deadline.saturating_duration_since(context.now()));
        }
        if before.is_none() {
            self.link.drain();
            self.apps.desk.ledger.drain();
            self.components.drain(context, &mut self.apps);
            self.apps.raw.drain(context, &mut self.components.streams);
        }
    }

    /// The deadline has come: what is left is cut off.
    fn cut(&mut self, context: &mut Context) {
        let connections = self.components.connections();
        self.server
            .count_cut(connections, self.apps.desk.ledger.len());
        self.components.close_all(context, &mut self.apps);
        context.stop();
    }
}

type ThreadHandler = Box<dyn FnOnce(dwell_evloop::BlockingStream, Vec<u8>) + Send>;

/// The place of a client that lives on a thread.
struct Place(Arc<ServerState>);

impl Drop for Place {
    fn drop(&mut self) {
        self.0.release(1);
    }
}

impl<H: Handler> Driver for ServerLoop<H> {
    type Message = Message;

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.components
            .ready(context, token, readiness, &mut self.apps);
        self.settle_departed(context);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        if !self.components.expired(context, token, &mut self.apps) && token == SHUTDOWN {
            self.cut(context);
        }
        self.settle_departed(context);
    }

    fn message(&mut self, context: &mut Context, message: Message) {
        match message {
            Message::Adopt(stream) => {
                self.link.arrived();
                self.apps.desk.face.places += 1;
                self.components
                    .http
                    .adopt(context, stream, &mut self.apps.desk);
            }
            Message::Order(token, order, _charge) => {
                self.components.carry_out(context, token, order);
            }
        }
    }

    fn signal(&mut self, _: &mut Context, _: i32) {
        if let Some(deadline) = self.signal_deadline {
            // A second signal does not wait for what the first one does.
            let is_second = self.server.is_draining();
            self.server
                .drain(if is_second { Duration::ZERO } else { deadline });
        }
    }

    fn turn_end(&mut self, context: &mut Context) {
        self.apps.desk.look_all(context, &mut self.components.http);
        self.settle_departed(context);
        self.end_with_server(context);
        if self.link.attention().is_any() {
            self.link.sender().wake();
        }
        let open = self.components.http.connections();
        self.apps.desk.face.release(open);
        self.link
            .set_connections(open + self.apps.desk.face.raw_connections);
        set(&self.link.figures.in_flight, self.apps.desk.ledger.len());
        set(
            &self.link.figures.raw_connections,
            self.apps.desk.face.raw_connections,
        );
        add(&self.link.figures.turns, 1);
        if self.is_draining()
            && open + self.apps.desk.face.raw_connections == 0
            && !self.is_needed()
        {
            context.stop();
        }
    }
}

impl<H: Handler> ServerLoop<H> {
    /// True from when the loop finishes what it has.
    fn is_draining(&self) -> bool {
        self.deadline.is_some()
    }

    /// Returns true if a loop without clients has to stay: a client is on its way to it, or it
    /// receives the second signal, which ends the drain of all loops at once.
    fn is_needed(&self) -> bool {
        let hears_signals = self.signal_deadline.is_some();
        self.link.is_awaited() || (hears_signals && self.server.running() > 1)
    }
}

/// Runs however a loop ends: other loops hand it no more clients, and its own leave their places.
impl<H: Handler> Drop for ServerLoop<H> {
    fn drop(&mut self) {
        for mut next in self.apps.desk.ledger.clear() {
            next.discard(&self.link);
        }
        self.link.leave();
        self.server.count_end();
        self.server.release(self.apps.desk.face.places);
    }
}

#[cfg(test)]
mod tests {
    use super::super::builder::ServerBuilder;
    use super::super::pool::Pool;
    use super::*;
    use crate::Request;
    use crate::components::Order;
    use crate::components::kind::STREAM;
    use crate::desk::ATTENTION_KEPT_MAX;
    use crate::handler::Exchange;
    use dwell_evloop::INPUT_BYTES;

    /// A loop that its test turns, and the part of it that other threads have.
    fn one_loop() -> (
        EventLoop<Message>,
        ServerLoop<impl Handler>,
        Arc<ServerState>,
    ) {
        let settings = ServerBuilder::default().settings;
        let event_loop = EventLoop::new().unwrap();
        let link = Arc::new(LoopLink::new(event_loop.sender(), &settings));
        let pool = Arc::new(Pool::new(1, 1));
        let server = Arc::new(ServerState::new(vec![Arc::clone(&link)], pool, &settings));
        let handler = Arc::new(|_: &Request<'_>, exchange: &mut Exchange<'_, '_>| {
            exchange.text(200, "hello");
        });
        let server_loop = ServerLoop::new(handler, &link, &server, None, INPUT_BYTES);
        (event_loop, server_loop, server)
    }

    /// Turns as often as a loop may need to see the end, without ever waiting.
    fn turn<H: Handler>(event_loop: &mut EventLoop<Message>, server_loop: &mut ServerLoop<H>) {
        for _ in 0..3 {
            let turned = event_loop.turn(server_loop, Some(Duration::ZERO));
            turned.unwrap();
        }
    }

    fn order() -> Message {
        Message::Order(Token::new(STREAM, 0, 7), Order::Abort, None)
    }

    #[test]
    fn a_full_inbox_keeps_no_loop_from_its_end() {
        let (mut event_loop, mut server_loop, server) = one_loop();
        let sender = event_loop.sender();
        while sender.send(order()).is_ok() {}
        server.drain(Duration::from_secs(60));
        turn(&mut event_loop, &mut server_loop);
        assert!(server_loop.is_draining());
        assert!(event_loop.context().is_stopped(), "it has no clients");
    }

    #[test]
    fn what_was_sent_before_the_end_comes_before_it() {
        let (mut event_loop, mut server_loop, server) = one_loop();
        // Both come after this turn has delivered its messages, and before it ends.
        event_loop.sender().send(order()).unwrap();
        server.drain(Duration::from_secs(60));
        server_loop.turn_end(event_loop.context());
        assert!(!server_loop.is_draining(), "the order is not carried out");
        turn(&mut event_loop, &mut server_loop);
        assert!(server_loop.is_draining());
    }

    #[test]
    fn the_memory_of_a_burst_goes_with_it() {
        let (mut event_loop, mut server_loop, _fleet) = one_loop();
        let link = Arc::clone(&server_loop.link);
        for _ in 0..2 {
            for index in 0..10 * ATTENTION_KEPT_MAX as u32 {
                link.attention().push(Token::new(kind::HELD, 0, index));
            }
            turn(&mut event_loop, &mut server_loop);
            let mut of_link = Vec::new();
            link.attention().push(Token::new(kind::HELD, 0, 0));
            link.attention().take(&mut of_link);
            let kept = server_loop
                .apps
                .desk
                .attention_kept()
                .max(of_link.capacity());
            assert!(kept <= ATTENTION_KEPT_MAX, "{kept}");
        }
    }

    #[test]
    fn a_deadline_that_comes_nearer_is_taken_up() {
        let (mut event_loop, mut server_loop, server) = one_loop();
        let (near, _far) = mio::net::UnixStream::pair().unwrap();
        let client = dwell_evloop::Stream::from_unix(near);
        assert!(server_loop.link.hand_over(client, || false).is_ok());
        server.drain(Duration::from_secs(3600));
        turn(&mut event_loop, &mut server_loop);
        assert!(!event_loop.context().is_stopped(), "a client is here");
        server.drain(Duration::from_secs(1800));
        turn(&mut event_loop, &mut server_loop);
        assert_eq!(server_loop.deadline, server.deadline());
        assert!(event_loop.context().is_armed(SHUTDOWN));
    }
}
