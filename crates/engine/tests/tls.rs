//! Clients under TLS, on a simulated network.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

#[path = "tls/http2.rs"]
mod http2;

use dwell_engine::websocket::{Broadcast, MessageKind, Negotiated, Role};
use dwell_engine::websocket::{WebSocketOptions, WebSockets};
use dwell_engine::{App, Body, BodyPlan, Budget, Detached, ExchangeId};
use dwell_engine::{HttpDriver, HttpEvent, Limits, Outcome, Reply, Request};
use dwell_evloop::Sends;
use dwell_evloop::sim::{SimNet, SimStream};
use dwell_evloop::{Acceptor, Agreed, Certificate, Context, EventLoop, HandshakeFailure};
use dwell_evloop::{ListenOptions, Stream, bind_group};
use dwell_proto::http1::RequestHead;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{
    ClientConfig, ClientConnection, ProtocolVersion, RootCertStore, SupportedProtocolVersion,
    version,
};
use std::io::{ErrorKind, Read, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::time::Duration;

const CERTIFICATE: &[u8] = include_bytes!("../../tls/tests/data/certificate.pem");
const KEY: &[u8] = include_bytes!("../../tls/tests/data/key.pem");

/// Answers with the path, at once or when it is told to, and counts what happens.
#[derive(Default)]
struct Echo {
    held: Vec<ExchangeId>,
    agreed: Vec<Agreed>,
    failed: Vec<HandshakeFailure>,
    closed: usize,
}

impl App for Echo {
    fn body(
        &mut self,
        _: &mut Context,
        _: ExchangeId,
        _: &RequestHead<'_, '_>,
        _: &Stream,
    ) -> BodyPlan {
        BodyPlan::Collect { bytes_max: 1 << 20 }
    }

    fn request(
        &mut self,
        _: &mut Context,
        request: &Request<'_>,
        reply: &mut Reply<'_>,
    ) -> Outcome {
        match request.head.path {
            "/held" => {
                self.held.push(request.exchange);
                return Outcome::Held {
                    tag: 0,
                    timeout: None,
                };
            }
            "/much" => reply.text(200, &"much".repeat(500_000)),
            "/length" => reply.text(200, &request.body.len().to_string()),
            path => reply.text(200, path),
        }
        Outcome::Answered
    }

    fn expired(&mut self, _: &mut Context, _: ExchangeId, _: u64, _: &mut Reply<'_>) -> Outcome {
        Outcome::Close
    }

    fn abandoned(&mut self, _: &mut Context, _: ExchangeId, _: u64) {}

    fn closed(&mut self, _: &mut Context, _: dwell_evloop::Token) {
        self.closed += 1;
    }

    fn event(&mut self, event: HttpEvent) {
        match event {
            HttpEvent::HandshakeDone(agreed) => self.agreed.push(agreed),
            HttpEvent::HandshakeFailed(failure) => self.failed.push(failure),
            _ => {}
        }
    }
}

struct Rig {
    network: SimNet,
    event_loop: EventLoop<()>,
    driver: HttpDriver<Echo>,
    address: SocketAddr,
}

impl Rig {
    fn new(seed: u64) -> Self {
        let driver = HttpDriver::new(Limits::default(), Echo::default());
        Self::with(seed, driver, |acceptor| acceptor)
    }

    /// Serves by that driver, under what becomes of an acceptor for HTTP/1.1.
    fn with(
        seed: u64,
        mut driver: HttpDriver<Echo>,
        offer: impl FnOnce(Acceptor) -> Acceptor,
    ) -> Self {
        let network = SimNet::new(seed);
        let mut event_loop = EventLoop::new().unwrap();
        let any = ([127, 0, 0, 1], 0).into();
        let mut listener = bind_group(any, 1, ListenOptions::default())
            .unwrap()
            .remove(0);
        let certificate = Certificate::from_pem(CERTIFICATE, KEY).unwrap();
        listener.secure(offer(Acceptor::new(vec![certificate], 8)));
        let address = listener.address().unwrap();
        let context = event_loop.context();
        driver.http.listen_as(context, listener).unwrap();
        Self {
            network,
            event_loop,
            driver,
            address,
        }
    }

    fn turn(&mut self) {
        let moment = Some(Duration::from_millis(1));
        self.event_loop.turn(&mut self.driver, moment).unwrap();
    }

    fn client(&mut self, version: &'static SupportedProtocolVersion) -> Client {
        Client::new(self.network.connect(self.address), version)
    }

    /// Turns often enough for all that is under way.
    fn turns_with(&mut self, clients: &mut [Client]) {
        for _ in 0..300 {
            for client in clients.iter_mut() {
                client.exchange().unwrap();
            }
            self.turn();
        }
    }

    /// Turns until the client has read this; returns what came before it.
    fn until(&mut self, client: &mut Client, end: &[u8]) -> Vec<u8> {
        for _ in 0..5_000 {
            client.exchange().unwrap();
            if client.read.ends_with(end) {
                return std::mem::take(&mut client.read);
            }
            self.turn();
        }
        panic!("{:?}", String::from_utf8_lossy(&client.read));
    }
}

struct Client<S = SimStream> {
    tls: ClientConnection,
    socket: S,
    read: Vec<u8>,
    has_ended: bool,
}

impl<S: Read + Write> Client<S> {
    fn new(socket: S, version: &'static SupportedProtocolVersion) -> Self {
        Self::offering(socket, version, &[])
    }

    /// One that offers application protocols (ALPN).
    fn offering(
        socket: S,
        version: &'static SupportedProtocolVersion,
        protocols: &[&[u8]],
    ) -> Self {
        let mut roots = RootCertStore::empty();
        let certificate = CertificateDer::from_pem_slice(CERTIFICATE).unwrap();
        roots.add(certificate).unwrap();
        let provider = Arc::new(provider::default_provider());
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_protocol_versions(&[version])
            .unwrap()
            .with_root_certificates(roots)
            .with_no_client_auth();
        config.alpn_protocols = protocols.iter().map(|name| name.to_vec()).collect();
        let name = ServerName::try_from("dwell.test").unwrap();
        Self {
            tls: ClientConnection::new(Arc::new(config), name).unwrap(),
            socket,
            read: Vec::new(),
            has_ended: false,
        }
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(10_000) {
            self.tls.writer().write_all(part).unwrap();
            self.exchange().unwrap();
        }
    }

    /// Sends and receives what can be.
    fn exchange(&mut self) -> Result<(), rustls::Error> {
        while self.tls.wants_write() {
            match self.tls.write_tls(&mut self.socket) {
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => panic!("{error}"),
            }
        }
        loop {
            match self.tls.read_tls(&mut self.socket) {
                Ok(0) => {
                    self.has_ended = true;
                    return Ok(());
                }
                Ok(_) => {}
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => panic!("{error}"),
            }
            let state = self.tls.process_new_packets()?;
            let mut part = vec![0; state.plaintext_bytes_to_read()];
            self.tls.reader().read_exact(&mut part).unwrap();
            self.read.append(&mut part);
        }
    }
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nHost: dwell.test\r\n\r\n").into_bytes()
}

#[test]
fn requests_are_answered_whatever_the_network_does_to_them() {
    for seed in 0..12 {
        let version = [&version::TLS13, &version::TLS12][seed as usize % 2];
        let mut rig = Rig::new(seed);
        let mut client = rig.client(version);
        client.write(&get("/first"));
        rig.until(&mut client, b"\r\n\r\n/first\n");
        client.write(&[get("/one"), get("/two"), get("/three")].concat());
        let answers = rig.until(&mut client, b"\r\n\r\n/three\n");
        let answers = String::from_utf8(answers).unwrap();
        assert_eq!(answers.matches("HTTP/1.1 200").count(), 3);
        client.write(&get("/much"));
        let answer = rig.until(&mut client, b"much\n");
        assert!(answer.len() > 2_000_000);
        let body = vec![b'x'; 300_000];
        client.write(b"POST /length HTTP/1.1\r\nHost: a\r\nContent-Length: 300000\r\n\r\n");
        client.write(&body);
        rig.until(&mut client, b"\r\n\r\n300000\n");
        client.write(b"GET /last HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        rig.until(&mut client, b"\r\n\r\n/last\n");
        for _ in 0..50 {
            rig.turn();
            client.exchange().unwrap();
        }
        assert!(client.tls.process_new_packets().unwrap().peer_has_closed());
        assert!(client.has_ended);
        let (is_tls13, is_resumed) = (version.version == ProtocolVersion::TLSv1_3, false);
        let agreed = Agreed {
            is_tls13,
            is_resumed,
            is_http2: false,
        };
        let app = &rig.driver.app;
        assert_eq!((&app.agreed[..], &app.failed[..]), (&[agreed][..], &[][..]));
    }
}

#[test]
fn a_client_that_waits_is_answered_and_may_change_its_keys_meanwhile() {
    let mut rig = Rig::new(3);
    let mut client = rig.client(&version::TLS13);
    for round in 0..5 {
        client.write(&get("/held"));
        while rig.driver.app.held.is_empty() {
            rig.turn();
            client.exchange().unwrap();
        }
        client.tls.refresh_traffic_keys().unwrap();
        client.exchange().unwrap();
        for _ in 0..5 {
            rig.turn();
        }
        let exchange = rig.driver.app.held.remove(0);
        let text = format!("answer {round}");
        let http = &mut rig.driver.http;
        http.with_reply(rig.event_loop.context(), exchange, |reply| {
            reply.send(&dwell_engine::Response {
                status: 200,
                fields: &[],
                body: Body::Slice(text.as_bytes()),
            });
        })
        .unwrap();
        rig.until(&mut client, text.as_bytes());
    }
}

#[test]
fn a_client_without_tls_is_told_to_use_it() {
    let mut rig = Rig::new(4);
    let mut socket = rig.network.connect(rig.address);
    socket.write_all(&get("/")).unwrap();
    let mut answer = Vec::new();
    for _ in 0..100 {
        rig.turn();
        if !socket.read_all(&mut answer) {
            break;
        }
    }
    let answer = String::from_utf8(answer).unwrap();
    assert!(
        answer.starts_with("HTTP/1.1 400 Bad Request\r\n"),
        "{answer}"
    );
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    let length = format!("Content-Length: {}", body.len());
    assert!(head.lines().any(|line| line == length), "{head}");
    assert!(body.contains("HTTPS"));
    assert_eq!(rig.driver.app.failed, [HandshakeFailure::NotTls]);
}

#[test]
fn silent_clients_keep_nobody_out_and_are_closed() {
    let mut rig = Rig::new(5);
    let silent: Vec<_> = (0..1000)
        .map(|_| rig.network.connect(rig.address))
        .collect();
    let mut client = rig.client(&version::TLS13);
    client.write(&get("/served"));
    rig.until(&mut client, b"/served\n");
    assert!(rig.network.elapsed() < Duration::from_secs(1));
    assert!(rig.driver.app.failed.is_empty());
    assert_eq!(rig.driver.http.connections(), 1001);
    let begin = rig.network.elapsed();
    while rig.driver.app.failed.len() < 1000 {
        let second = Some(Duration::from_secs(1));
        rig.event_loop.turn(&mut rig.driver, second).unwrap();
        let passed = rig.network.elapsed().saturating_sub(begin);
        assert!(passed < Duration::from_secs(11), "{passed:?}");
    }
    let passed = rig.network.elapsed().saturating_sub(begin);
    assert!(passed > Duration::from_secs(8), "{passed:?}");
    let mut failed = rig.driver.app.failed.iter();
    assert!(failed.all(|failure| *failure == HandshakeFailure::Late));
    assert_eq!(rig.driver.http.connections(), 1);
    drop(silent);
}

#[test]
fn the_oldest_handshake_that_stalls_gives_way_to_a_new_one() {
    let mut rig = Rig::new(9);
    // As many as may be under way have sent their hello, and nothing else.
    let mut stalled: Vec<_> = (0..8).map(|_| rig.client(&version::TLS13)).collect();
    for client in &mut stalled {
        client.exchange().unwrap();
        (0..20).for_each(|_| rig.turn());
    }
    assert_eq!(rig.driver.http.connections(), 8);
    let mut client = rig.client(&version::TLS13);
    client.write(&get("/served"));
    rig.until(&mut client, b"/served\n");
    assert!(rig.network.elapsed() < Duration::from_secs(1));
    assert_eq!(rig.driver.app.failed, [HandshakeFailure::Displaced]);
    // It was the oldest; the others go on.
    stalled.remove(0);
    rig.turns_with(&mut stalled);
    assert_eq!(rig.driver.app.agreed.len(), 8);
}

#[test]
fn a_client_that_ends_its_side_in_its_handshake_is_not_waited_for() {
    for seed in 0..8 {
        let mut rig = Rig::new(seed);
        let mut client = rig.client(&version::TLS13);
        let mut hello = Vec::new();
        client.tls.write_tls(&mut hello).unwrap();
        assert_eq!(client.socket.write(&hello[..60]).unwrap(), 60);
        client.socket.shutdown_write().unwrap();
        (0..200).for_each(|_| rig.turn());
        assert!(rig.network.elapsed() < Duration::from_secs(1));
        assert_eq!(rig.driver.app.failed, [HandshakeFailure::Closed]);
        assert_eq!(rig.driver.http.connections(), 0);
    }
}

#[test]
fn a_handshake_whose_last_record_is_here_does_not_give_way() {
    let mut rig = Rig::new(10);
    let mut clients: Vec<_> = (0..8).map(|_| rig.client(&version::TLS13)).collect();
    rig.turns_with(&mut clients);
    assert_eq!(rig.driver.app.agreed.len(), 8);
    // Twenty come at once to a loop that allows for eight: what is here is taken first.
    let mut crowd: Vec<_> = (0..20).map(|_| rig.client(&version::TLS13)).collect();
    for (index, client) in crowd.iter_mut().enumerate() {
        client.write(&get(&format!("/{index}")));
        for _ in 0..60 {
            client.exchange().unwrap();
            rig.event_loop
                .turn(&mut rig.driver, Some(Duration::ZERO))
                .unwrap();
        }
    }
    rig.turns_with(&mut crowd);
    for (index, client) in crowd.iter().enumerate() {
        let end = format!("\r\n\r\n/{index}\n");
        assert!(client.read.ends_with(end.as_bytes()), "{index}");
    }
    assert!(rig.driver.app.failed.is_empty());
}

#[test]
fn a_client_that_leaves_in_its_handshake_is_counted_once() {
    let mut rig = Rig::new(11);
    let mut client = rig.client(&version::TLS13);
    client.exchange().unwrap();
    (0..20).for_each(|_| rig.turn());
    let silent = rig.network.connect(rig.address);
    (0..20).for_each(|_| rig.turn());
    drop((client, silent));
    (0..50).for_each(|_| rig.turn());
    assert_eq!(rig.driver.http.connections(), 0);
    // The first one leaves with something unread, which is a reset.
    let expected = [HandshakeFailure::Reset, HandshakeFailure::Closed];
    assert_eq!(rig.driver.app.failed, expected);
}

#[test]
fn a_record_that_has_begun_has_the_time_of_a_head() {
    let mut rig = Rig::new(12);
    let mut client = rig.client(&version::TLS13);
    client.write(&get("/"));
    rig.until(&mut client, b"/\n");
    client.tls.writer().write_all(&get("/late")).unwrap();
    let mut record = Vec::new();
    client.tls.write_tls(&mut record).unwrap();
    let begin = rig.network.elapsed();
    // A byte comes now and then, which moves no deadline.
    for byte in &record[..20] {
        let _ = client.socket.write(&[*byte]);
        for _ in 0..5 {
            let moment = Some(Duration::from_millis(200));
            rig.event_loop.turn(&mut rig.driver, moment).unwrap();
        }
        let _ = client.exchange();
    }
    let answer = String::from_utf8(client.read).unwrap();
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
    assert!(rig.network.elapsed() > begin + Duration::from_secs(10));
    assert_eq!(rig.driver.http.connections(), 0);
}

#[test]
fn replies_to_new_keys_give_a_head_no_more_time() {
    let mut rig = Rig::new(11);
    let mut client = rig.client(&version::TLS13);
    client.write(&get("/first"));
    rig.until(&mut client, b"\r\n\r\n/first\n");
    client.write(b"GET /half HTTP/1.1\r\n");
    let mut turns = |client: &mut Client, time: Duration| {
        let end = rig.network.elapsed() + time;
        while rig.network.elapsed() < end && !client.has_ended {
            rig.turn();
            client.exchange().unwrap();
        }
        rig.network.elapsed()
    };
    let begin = turns(&mut client, Duration::from_millis(10));
    for _ in 0..10 {
        client.socket.set_window(0);
        client.tls.refresh_traffic_keys().unwrap();
        client.exchange().unwrap();
        turns(&mut client, Duration::from_secs(1));
        client.socket.set_window(1 << 16);
        turns(&mut client, Duration::from_secs(1));
    }
    assert!(client.has_ended);
    assert!(
        client.read.starts_with(b"HTTP/1.1 408 "),
        "{:?}",
        client.read
    );
    let passed = turns(&mut client, Duration::ZERO).saturating_sub(begin);
    let expected = Duration::from_secs(9)..Duration::from_secs(13);
    assert!(expected.contains(&passed), "{passed:?}");
}

#[test]
fn a_record_that_has_begun_counts_towards_the_bound_on_bodies() {
    let mut rig = Rig::new(13);
    let gathered = Budget::default();
    rig.driver.http.share_gathered(gathered.clone());
    let mut client = rig.client(&version::TLS13);
    let head = b"POST /length HTTP/1.1\r\nHost: dwell.test\r\nContent-Length: 16000\r\n\r\n";
    client.write(head);
    for _ in 0..300 {
        client.exchange().unwrap();
        rig.turn();
    }
    assert!(gathered.bytes() > 0, "the body is gathered");
    client.tls.writer().write_all(&[b'x'; 16_000]).unwrap();
    let mut record = Vec::new();
    client.tls.write_tls(&mut record).unwrap();
    let (begin, rest) = record.split_at(15_000);
    client.socket.write_all(begin).unwrap();
    for _ in 0..300 {
        rig.turn();
    }
    assert!(gathered.bytes() >= begin.len(), "{}", gathered.bytes());
    client.socket.write_all(rest).unwrap();
    rig.until(&mut client, b"16000\n");
    assert_eq!(gathered.bytes(), 0);
}

#[test]
fn clients_that_stall_in_a_handshake_hold_up_no_end() {
    let mut rig = Rig::new(13);
    let mut clients = [rig.client(&version::TLS13), rig.client(&version::TLS12)];
    clients[0].exchange().unwrap();
    (0..20).for_each(|_| rig.turn());
    let HttpDriver { http, app } = &mut rig.driver;
    http.drain(rig.event_loop.context(), app);
    let begin = rig.network.elapsed();
    // One of them goes on in time, and is served.
    clients[0].write(&get("/last"));
    rig.until(&mut clients[0], b"/last\n");
    while rig.driver.http.connections() > 0 {
        let second = Some(Duration::from_secs(1));
        rig.event_loop.turn(&mut rig.driver, second).unwrap();
    }
    let passed = rig.network.elapsed().saturating_sub(begin);
    assert!(passed < Duration::from_secs(6), "{passed:?}");
    assert_eq!(rig.driver.app.failed, [HandshakeFailure::Late]);
}

#[test]
fn an_idle_client_is_told_of_its_end() {
    let mut rig = Rig::new(6);
    let mut client = rig.client(&version::TLS13);
    client.write(&get("/"));
    rig.until(&mut client, b"/\n");
    while rig.driver.app.closed == 0 {
        let second = Some(Duration::from_secs(1));
        rig.event_loop.turn(&mut rig.driver, second).unwrap();
    }
    for _ in 0..9 {
        rig.turn();
        client.exchange().unwrap();
    }
    assert!(client.has_ended);
    assert!(client.tls.process_new_packets().unwrap().peer_has_closed());
    assert!(rig.network.elapsed() >= Duration::from_secs(75));
}

#[test]
fn a_connection_under_tls_does_not_leave_for_another_process() {
    for (version, takes_tls) in [(&version::TLS13, false), (&version::TLS12, true)] {
        let mut rig = Rig::new(7);
        let mut client = rig.client(version);
        client.write(&get("/"));
        rig.until(&mut client, b"/\n");
        let HttpDriver { http, app } = &mut rig.driver;
        let context = rig.event_loop.context();
        http.hand_over(context, app, takes_tls, usize::MAX, |_, _| {
            panic!("it has left")
        });
        assert_eq!(http.connections(), 0);
        for _ in 0..9 {
            rig.turn();
            client.exchange().unwrap();
        }
        assert!(client.tls.process_new_packets().unwrap().peer_has_closed());
    }
}

#[test]
fn connections_of_tls_1_3_go_on_in_another_process() {
    let mut rig = Rig::new(9);
    let (mut new_loop, mut new) = (
        EventLoop::new().unwrap(),
        HttpDriver::new(Limits::default(), Echo::default()),
    );
    let mut clients: Vec<_> = (0..3).map(|_| rig.client(&version::TLS13)).collect();
    clients[0].write(&get("/idle"));
    rig.turns_with(&mut clients);
    clients[1].write(b"GET /begun HTTP/1.1\r\n");
    clients[2].write(&[get("/held"), get("/behind")].concat());
    rig.turns_with(&mut clients);
    // One is accepted, and its handshake has not begun.
    clients.push(rig.client(&version::TLS13));
    (0..99).for_each(|_| rig.turn());
    assert_eq!(rig.driver.http.connections(), 4);
    let mut turns = |rig: &mut Rig, clients: &mut Vec<Client>| {
        for _ in 0..300 {
            let HttpDriver { http, app } = &mut rig.driver;
            let mut left = Vec::new();
            let context = rig.event_loop.context();
            http.hand_over(context, app, true, usize::MAX, |_, detached| {
                left.push(detached);
            });
            for detached in left {
                let context = new_loop.context();
                new.http.adopt_detached(context, detached, &mut new.app);
            }
            rig.turn();
            let moment = Some(Duration::from_millis(1));
            new_loop.turn(&mut new, moment).unwrap();
            let exchanged = clients.iter_mut().map(Client::exchange);
            exchanged.for_each(|exchanged| exchanged.unwrap());
        }
        (rig.driver.http.connections(), new.http.connections())
    };
    let counts = turns(&mut rig, &mut clients);
    assert_eq!(counts, (1, 3), "the held one stays for its answer");
    clients[1].write(b"Host: a\r\n\r\n");
    let exchange = rig.driver.app.held.remove(0);
    let http = &mut rig.driver.http;
    let waited = |reply: &mut Reply<'_>| reply.text(200, "waited");
    http.with_reply(rig.event_loop.context(), exchange, waited)
        .unwrap();
    assert_eq!(turns(&mut rig, &mut clients), (0, 4));
    let ends = ["/idle\n", "/begun\n", "/behind\n", ""];
    for (client, end) in clients.iter().zip(ends) {
        let answers = String::from_utf8(client.read.clone()).unwrap();
        assert!(answers.ends_with(end), "{end}: {answers}");
        assert!(!answers.to_lowercase().contains("connection: close"));
    }
    assert!(String::from_utf8_lossy(&clients[2].read).contains("\r\n\r\nwaited\n"));
    for client in &mut clients {
        client.write(&get("/last"));
    }
    turns(&mut rig, &mut clients);
    for client in &clients {
        assert!(client.read.ends_with(b"/last\n") && !client.has_ended);
    }
}

#[test]
fn requests_on_their_way_are_answered_by_the_process_that_has_the_keys() {
    for (version, takes_tls) in [(&version::TLS13, false), (&version::TLS12, true)] {
        let mut rig = Rig::new(8);
        let mut clients: Vec<_> = (0..4).map(|_| rig.client(version)).collect();
        rig.turns_with(&mut clients);
        assert_eq!(rig.driver.app.agreed.len(), 4);
        clients[0].write(b"GET /begun HTTP/1.1\r\n");
        clients[1].write(&[get("/held"), get("/behind")].concat());
        rig.turns_with(&mut clients);
        // The loop has not heard of this one.
        clients[2].write(&get("/fresh"));
        let HttpDriver { http, app } = &mut rig.driver;
        let context = rig.event_loop.context();
        http.hand_over(context, app, takes_tls, usize::MAX, |_, _| {
            panic!("it has left")
        });
        clients[0].write(b"Host: a\r\n\r\n");
        rig.turns_with(&mut clients);
        let exchange = rig.driver.app.held.remove(0);
        let http = &mut rig.driver.http;
        http.with_reply(rig.event_loop.context(), exchange, |reply| {
            reply.text(200, "waited");
        })
        .unwrap();
        rig.turns_with(&mut clients);
        for (client, end) in clients.iter().zip(["/begun\n", "waited\n", "/fresh\n"]) {
            let answer = String::from_utf8(client.read.clone()).unwrap();
            assert!(answer.ends_with(end), "{end}: {answer}");
            let answer = answer.to_lowercase();
            assert!(answer.contains("connection: close"), "{answer}");
        }
        for _ in 0..5 {
            let second = Some(Duration::from_secs(1));
            rig.event_loop.turn(&mut rig.driver, second).unwrap();
        }
        rig.turns_with(&mut clients);
        assert!(clients.iter().all(|client| client.has_ended));
        assert_eq!(rig.driver.http.connections(), 0);
    }
}

#[test]
fn what_is_told_to_many_web_sockets_is_sealed() {
    let certificate = Certificate::from_pem(CERTIFICATE, KEY).unwrap();
    let acceptor = Acceptor::new(vec![certificate], 1);
    let mut event_loop = EventLoop::<()>::new().unwrap();
    let context = event_loop.context();
    context.set_sends(Some(Sends::default()));
    let mut sockets = WebSockets::new(0, WebSocketOptions::default());
    let negotiated = Negotiated::new(Role::Server, None);
    let mut clients = Vec::new();
    for _ in 0..Sends::COUNT_MIN {
        let (ours, theirs) = UnixStream::pair().unwrap();
        theirs.set_nonblocking(true).unwrap();
        let mut stream = Stream::from_descriptor(ours.into()).unwrap();
        stream.secure(&acceptor);
        let mut client = Client::new(theirs, &version::TLS13);
        for _ in 0..9 {
            client.exchange().unwrap();
            stream.handshake().unwrap();
        }
        let input = Vec::new();
        let detached = Detached { stream, input };
        let token = sockets.adopt(context, detached, negotiated, 0).unwrap();
        clients.push((token, client));
    }
    let news = Broadcast::new(MessageKind::Text, b"news");
    sockets.gather(context, clients.len());
    for (token, _) in &clients {
        let sent = sockets.with_socket(context, *token, |socket| socket.send_shared(&news));
        sent.unwrap().unwrap();
    }
    sockets.send_gathered(context);
    for (_, mut client) in clients {
        client.exchange().unwrap();
        assert_eq!(client.read, b"\x81\x04news");
    }
}
