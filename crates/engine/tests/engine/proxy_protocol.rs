//! Connections of balancers, which begin with a header of the PROXY protocol.

use dwell_engine::{App, HttpDriver, HttpEvent, Limits, Outcome, ProxyHeaderFailure};
use dwell_engine::{Reply, Request};
use dwell_evloop::sim::{SimNet, SimStream};
use dwell_evloop::{Context, EventLoop, ListenOptions, Stream, bind_group};
use dwell_proto::http2::{BlockLimits, Frame, FrameDecoder, PREFACE, encode};
use std::io::Write;
use std::net::SocketAddr;
use std::time::Duration;

/// Answers with the address of the client.
#[derive(Default)]
struct Mirror {
    refuses: bool,
    failures: Vec<ProxyHeaderFailure>,
}

impl App for Mirror {
    fn request(&mut self, _: &mut Context, _: &Request<'_>, reply: &mut Reply<'_>) -> Outcome {
        let address = reply.peer_address().unwrap();
        reply.text(200, &address.to_string());
        Outcome::Answered
    }

    fn expects_proxy_header(&mut self, _: &Stream) -> bool {
        true
    }

    fn identified(&mut self, _: &mut Context, _: &mut Stream) -> bool {
        !self.refuses
    }

    fn event(&mut self, event: HttpEvent) {
        if let HttpEvent::ProxyHeaderFailed { why, from } = event {
            assert!(from.is_some(), "the balancer is known");
            self.failures.push(why);
        }
    }
}

struct Rig {
    network: SimNet,
    event_loop: EventLoop<()>,
    driver: HttpDriver<Mirror>,
    address: SocketAddr,
}

impl Rig {
    fn new(keeps_peers: bool) -> Self {
        let network = SimNet::new(1);
        let mut event_loop = EventLoop::new().unwrap();
        let mut driver = HttpDriver::new(Limits::default(), Mirror::default());
        if keeps_peers {
            driver.http = driver.http.keep_peers();
        }
        let any = ([127, 0, 0, 1], 0).into();
        let listener = bind_group(any, 1, ListenOptions::default()).unwrap();
        let listener = listener.into_iter().next().unwrap();
        let address = listener.address().unwrap();
        driver.http.listen(event_loop.context(), listener).unwrap();
        Self {
            network,
            event_loop,
            driver,
            address,
        }
    }

    fn turns(&mut self) {
        for _ in 0..20 {
            let moment = Some(Duration::from_millis(1));
            self.event_loop.turn(&mut self.driver, moment).unwrap();
        }
    }

    /// The answer to a client that sends these pieces one after another, and whether it was closed.
    fn exchange(&mut self, pieces: &[&[u8]]) -> (String, bool) {
        let mut client = self.network.connect(self.address);
        for piece in pieces {
            // Where it was closed before, there is nobody to write to.
            let _ = client.write_all(piece);
            self.turns();
        }
        read(&mut client)
    }
}

fn read(client: &mut SimStream) -> (String, bool) {
    let mut answer = Vec::new();
    let is_open = client.read_all(&mut answer);
    let answer = String::from_utf8(answer).unwrap();
    let body = answer.rsplit("\r\n").next().unwrap();
    (body.trim_end().to_owned(), !is_open)
}

const LINE: &[u8] = b"PROXY TCP4 192.0.2.1 198.51.100.1 56324 443\r\n";
const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn the_client_has_the_address_in_the_header() {
    for keeps_peers in [false, true] {
        let mut rig = Rig::new(keeps_peers);
        let together = [LINE, REQUEST].concat();
        let bytes: Vec<&[u8]> = together.chunks(1).collect();
        let expected = ("192.0.2.1:56324".to_owned(), false);
        assert_eq!(rig.exchange(&[&together]), expected);
        assert_eq!(rig.exchange(&[LINE, REQUEST]), expected);
        assert_eq!(rig.exchange(&bytes), expected);
        assert_eq!(rig.driver.app.failures, []);
    }
}

#[test]
fn a_header_without_an_address_leaves_that_of_the_connection() {
    let mut rig = Rig::new(true);
    let local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0";
    for header in [&b"PROXY UNKNOWN\r\n"[..], local] {
        let (body, _) = rig.exchange(&[header, REQUEST]);
        assert!(body.starts_with("127."), "{body}");
    }
}

#[test]
fn a_connection_without_a_header_is_closed() {
    let mut rig = Rig::new(false);
    let closed = (String::new(), true);
    assert_eq!(rig.exchange(&[REQUEST]), closed);
    assert_eq!(rig.exchange(&[b"PROXY TCP4 nonsense\r\n", REQUEST]), closed);
    let invalid = ProxyHeaderFailure::Invalid;
    assert_eq!(rig.driver.app.failures, [invalid, invalid]);
    // One that ends within it; and one whose client is not wanted.
    let client = rig.network.connect(rig.address);
    rig.turns();
    client.close();
    rig.turns();
    assert_eq!(rig.driver.app.failures[2..], [ProxyHeaderFailure::Closed]);
    let mut client = rig.network.connect(rig.address);
    client.write_all(&LINE[..20]).unwrap();
    client.shutdown_write().unwrap();
    rig.turns();
    assert_eq!(rig.driver.app.failures[3..], [ProxyHeaderFailure::Closed]);
    rig.driver.app.refuses = true;
    assert_eq!(rig.exchange(&[LINE, REQUEST]), closed);
    assert_eq!(rig.driver.http.connections(), 0);
    assert_eq!(rig.driver.app.failures.len(), 4);
}

#[test]
fn another_process_gets_no_client_whose_address_it_would_not_know() {
    let mut rig = Rig::new(false);
    let mut told = rig.network.connect(rig.address);
    let mut untold = rig.network.connect(rig.address);
    told.write_all(&[LINE, REQUEST].concat()).unwrap();
    let unknown = [b"PROXY UNKNOWN\r\n", REQUEST].concat();
    untold.write_all(&unknown).unwrap();
    rig.turns();
    assert!(!read(&mut told).1 && !read(&mut untold).1);
    let HttpDriver { http, app } = &mut rig.driver;
    let mut left = Vec::new();
    http.hand_over(
        rig.event_loop.context(),
        app,
        true,
        usize::MAX,
        |_, detached| {
            left.push(detached);
        },
    );
    rig.turns();
    assert_eq!(left.len(), 1);
    assert_eq!(rig.driver.http.connections(), 0);
    assert!(read(&mut told).1, "it is closed between two requests");
    assert!(!read(&mut untold).1);
}

#[test]
fn http2_that_begins_when_connections_have_left_is_told_to_go() {
    let mut rig = Rig::new(false);
    let HttpDriver { http, app } = rig.driver;
    let http = http.speak_h2c(9);
    rig.driver = HttpDriver { http, app };
    let mut client = rig.network.connect(rig.address);
    rig.turns();
    let HttpDriver { http, app } = &mut rig.driver;
    let context = rig.event_loop.context();
    let count = http.hand_over(context, app, true, usize::MAX, |_, _| {});
    assert_eq!(count, 0, "its header has not come");
    let mut settings = Vec::new();
    encode::settings(&[], &mut settings);
    client
        .write_all(&[LINE, PREFACE, &settings].concat())
        .unwrap();
    rig.turns();
    let mut come = Vec::new();
    client.read_all(&mut come);
    let mut frames = FrameDecoder::of_server(BlockLimits::default());
    let (mut used, mut is_told) = (0, false);
    loop {
        let step = frames.decode(&come[used..]).unwrap();
        used += step.consumed;
        let Some(frame) = step.frame else { break };
        is_told |= matches!(frame, Frame::GoAway { .. });
    }
    assert!(is_told && used == come.len());
}

#[test]
fn a_header_has_ten_seconds_however_it_trickles() {
    let mut rig = Rig::new(false);
    let mut client = rig.network.connect(rig.address);
    let begin = rig.network.elapsed();
    let mut bytes = LINE[..40].chunks(1);
    while rig.driver.app.failures.is_empty() {
        if let Some(byte) = bytes.next() {
            let _ = client.write_all(byte);
        }
        let second = Some(Duration::from_secs(1));
        rig.event_loop.turn(&mut rig.driver, second).unwrap();
        let passed = rig.network.elapsed().saturating_sub(begin);
        assert!(passed < Duration::from_secs(60), "nothing ends it");
    }
    assert_eq!(rig.driver.app.failures, [ProxyHeaderFailure::Late]);
    let passed = rig.network.elapsed().saturating_sub(begin);
    assert!(passed >= Duration::from_secs(10), "{passed:?}");
}
