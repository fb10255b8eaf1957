//! A loop with nothing but the clients' server, the proxy and its tunnels, on a simulated network:
//! the test is the application, which reads what the proxy asks for and tells what came of it.

use crate::config::Config;
use crate::ids::{ProxiedId, Requested};
use crate::proxy::actions::Action;
use crate::proxy::{Proxy, Tunnels};
use crate::responder::ResponseLog;
use dwell_engine::{
    App, BodyPlan, Detached, ExchangeId, Http, Kinds, Limits, Outcome, Reply, Request,
};
use dwell_evloop::{Context, Driver, EventLoop, Id, Readiness, Stream, Token};
use dwell_proto::http1::{RequestHead, Trailers};
use dwell_testkit::sim::{SimNet, SimStream};
use dwell_upstream::UpstreamEvent;
use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::Duration;

/// Simulated time for things that are not expected to take any.
pub(super) const PATIENCE: Duration = Duration::from_secs(20);
/// Simulated time in which what was written arrives.
const MOMENT: Duration = Duration::from_millis(1);
const CLIENT: u8 = 2;
const TUNNEL: u8 = 3;

/// A loop before an application that the test is.
pub(super) struct Edge {
    event_loop: EventLoop<()>,
    pub(super) driver: Components,
    network: SimNet,
}

/// The driver of the loop.
pub(super) struct Components {
    pub(super) http: Http,
    pub(super) app: Passing,
    pub(super) tunnels: Tunnels,
}

/// The proxy as the whole application of the clients' server.
pub(super) struct Passing(pub(super) Proxy);

impl Edge {
    /// A loop whose configuration `change` has changed.
    pub(super) fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::default();
        config.upstream.url = vec!["http://127.0.0.1:1".parse().unwrap()];
        change(&mut config);
        let config = Arc::new(config);
        let log = ResponseLog::new(Arc::default(), None, &config);
        let kinds = Kinds {
            listener: 1,
            connection: CLIENT,
        };
        let network = SimNet::new(1);
        Self {
            event_loop: EventLoop::new().unwrap(),
            driver: Components {
                http: Http::new(kinds, Limits::default()),
                app: Passing(Proxy::new(config, log, 1, 7)),
                tunnels: Tunnels::new(TUNNEL, PATIENCE),
            },
            network,
        }
    }

    /// A client on a connection of this loop, whose sockets have room for little.
    pub(super) fn connect(&mut self) -> Client {
        let (client, server) = self.pair();
        let (http, app) = (&mut self.driver.http, &mut self.driver.app);
        http.adopt(self.event_loop.context(), server, app);
        client
    }

    /// A client that has sent this.
    pub(super) fn ask(&mut self, request: &str) -> Client {
        let mut client = self.connect();
        client.send(request.as_bytes());
        client
    }

    /// Both ends of a connection whose client has room for little.
    pub(super) fn pair(&self) -> (Client, Stream) {
        let any = "127.0.0.1:0".parse().unwrap();
        let listener = self.network.listen(any).unwrap();
        let server = Stream::connect(listener.address()).unwrap();
        self.network.pass(MOMENT);
        let socket = listener.accept().unwrap();
        socket.set_window(16 * 1024);
        let client = Client {
            socket,
            received: Vec::new(),
            end: None,
        };
        (client, server)
    }

    pub(super) fn turn(&mut self) {
        self.turn_for(Duration::from_millis(5));
    }

    fn turn_for(&mut self, wait: Duration) {
        self.event_loop.turn(&mut self.driver, Some(wait)).unwrap();
        self.network.pass(MOMENT);
    }

    /// Turns until the loop has nothing to do any more.
    pub(super) fn settle(&mut self) {
        for _ in 0..10 {
            self.turn_for(Duration::ZERO);
        }
    }

    /// Lets time pass.
    pub(super) fn pass(&mut self, time: Duration) {
        let end = self.network.elapsed() + time;
        while self.network.elapsed() < end {
            self.turn();
        }
    }

    #[track_caller]
    pub(super) fn turn_until(&mut self, mut is_so: impl FnMut(&mut Proxy) -> bool) {
        let end = self.network.elapsed() + PATIENCE;
        while !is_so(&mut self.driver.app.0) {
            assert!(self.network.elapsed() < end, "nothing came of it");
            self.turn();
        }
    }

    /// The things to be done next, of which there are some soon.
    #[track_caller]
    pub(super) fn actions(&mut self) -> Vec<Action> {
        self.turn_until(|proxy| proxy.has_actions());
        self.driver.app.0.actions.take()
    }

    /// The one thing to be done next.
    #[track_caller]
    pub(super) fn action(&mut self) -> Action {
        let mut actions = self.actions();
        assert_eq!(actions.len(), 1, "{actions:?}");
        actions.remove(0)
    }

    /// The next request to the application: the bits of its token, and its bytes.
    #[track_caller]
    pub(super) fn request(&mut self) -> (u64, String) {
        match self.action() {
            Action::Send(request) => {
                let text = String::from_utf8(request.bytes.to_vec()).unwrap();
                (request.tag, text)
            }
            other => panic!("no request: {other:?}"),
        }
    }

    /// Tells the proxy what happened to a request.
    pub(super) fn tell(&mut self, event: UpstreamEvent) {
        let (http, proxy) = (&mut self.driver.http, &mut self.driver.app.0);
        assert!(matches!(
            Requested::from_bits(event.tag()),
            Requested::Proxied(_)
        ));
        proxy.upstream_event(self.event_loop.context(), http, event);
    }

    /// Calls the proxy within the loop.
    pub(super) fn with<T>(
        &mut self,
        call: impl FnOnce(&mut Context, &mut Http, &mut Proxy, &mut Tunnels) -> T,
    ) -> T {
        let Components { http, app, tunnels } = &mut self.driver;
        call(self.event_loop.context(), http, &mut app.0, tunnels)
    }

    /// Reads what the client is sent, until that ends so.
    #[track_caller]
    pub(super) fn read_until(&mut self, client: &mut Client, end: &str) -> String {
        self.turn_until(|_| {
            client.read();
            client.received.ends_with(end.as_bytes())
        });
        String::from_utf8(std::mem::take(&mut client.received)).unwrap()
    }

    /// Reads to the end of the stream; also returns true if that was a reset.
    #[track_caller]
    pub(super) fn read_to_end(&mut self, client: &mut Client) -> (String, bool) {
        self.turn_until(|_| {
            client.read();
            client.end.is_some()
        });
        let text = String::from_utf8(std::mem::take(&mut client.received)).unwrap();
        (text, client.end == Some(ErrorKind::ConnectionReset))
    }
}

/// The far end of a connection.
pub(super) struct Client {
    pub(super) socket: SimStream,
    pub(super) received: Vec<u8>,
    /// The kind of the error that ended the stream; of an end in order, `UnexpectedEof`.
    end: Option<ErrorKind>,
}

impl Client {
    pub(super) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Reads all that is here.
    pub(super) fn read(&mut self) {
        let mut buffer = [0; 16 * 1024];
        while self.end.is_none() {
            match self.socket.read(&mut buffer) {
                Ok(0) => self.end = Some(ErrorKind::UnexpectedEof),
                Ok(read) => self.received.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) => self.end = Some(error.kind()),
            }
        }
    }

    /// Leaves with a reset; a client that only closes may still be reading.
    pub(super) fn reset(self) {
        self.socket.reset();
    }
}

impl Driver for Components {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        match token.kind() {
            TUNNEL => self.tunnels.ready(context, token, readiness),
            _ => self.http.ready(context, token, readiness, &mut self.app),
        }
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        match token.kind() {
            TUNNEL => self.tunnels.expired(context, token),
            _ => self.http.expired(context, token, &mut self.app),
        }
    }

    fn message(&mut self, _: &mut Context, (): ()) {}
}

impl App for Passing {
    fn body(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        _: &RequestHead<'_, '_>,
        _: &Stream,
    ) -> BodyPlan {
        self.0.body_plan()
    }

    fn request(
        &mut self,
        context: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        self.0.request(context, request, reply)
    }

    fn body_data(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        tag: u64,
        data: &[u8],
        _: &mut Reply<'_>,
    ) -> Outcome {
        self.0.body_data(ProxiedId::from_bits(tag), data)
    }

    fn body_end(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        tag: u64,
        trailers: Trailers<'_>,
        _: &mut Reply<'_>,
    ) -> Outcome {
        self.0.body_end(ProxiedId::from_bits(tag), trailers)
    }

    fn expired(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        tag: u64,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        self.0.expired(ProxiedId::from_bits(tag), reply)
    }

    fn drained(&mut self, _: &mut Context, _: ExchangeId, tag: u64, _: &mut Reply<'_>) -> Outcome {
        self.0.drained(ProxiedId::from_bits(tag))
    }

    fn peer_closed(&mut self, _: ExchangeId, tag: u64) -> bool {
        self.0.peer_closed(ProxiedId::from_bits(tag))
    }

    fn abandoned(&mut self, context: &mut Context, _: ExchangeId, tag: u64) {
        self.0.abandoned(context, ProxiedId::from_bits(tag));
    }

    fn detached(&mut self, _: &mut Context, _: ExchangeId, _: u64, _: Detached) {}
}
