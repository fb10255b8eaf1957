//! Whatever is done on either side, in any order: every connection ends, once, and costs nothing
//! after that.

use crate::support::{PATIENCE, frame, text};
use dwell_engine::Detached;
use dwell_engine::websocket::{
    Broadcast, CloseCode, Control, DeflateParameters, Delivery, FramePart, Message, MessageKind,
    MessageLimits, Negotiated, Opcode, Overflow, Role, WebSocketApp, WebSocketEnd,
    WebSocketOptions, WebSocketRef, WebSockets,
};
use dwell_evloop::{Context, Driver, EventLoop, Readiness, Stream, Token};
use proptest::prelude::*;
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::time::{Duration, Instant};

/// Many more than three connections need until their last deadline.
const TURNS_MAX: usize = 3_000;
const SOCKETS: u8 = 3;

#[derive(Clone, Copy, Debug)]
enum Act {
    /// The peer writes one of the things that peers write.
    Writes(prop::sample::Index),
    Reads(usize),
    EndsItsSide,
    Resets,
    Leaves,
    Send(usize),
    Broadcast(usize),
    Ping,
    Close,
    Abort,
    Pause,
    Resume,
    Turn,
}

fn acts() -> impl Strategy<Value = Vec<(prop::sample::Index, Act)>> {
    let act = prop_oneof![
        8 => any::<prop::sample::Index>().prop_map(Act::Writes),
        3 => (1..100_000_usize).prop_map(Act::Reads),
        1 => Just(Act::EndsItsSide),
        1 => Just(Act::Resets),
        1 => Just(Act::Leaves),
        3 => (0..300_000_usize).prop_map(Act::Send),
        2 => (0..300_000_usize).prop_map(Act::Broadcast),
        1 => Just(Act::Ping),
        1 => Just(Act::Close),
        1 => Just(Act::Abort),
        2 => Just(Act::Pause),
        2 => Just(Act::Resume),
        6 => Just(Act::Turn),
    ];
    prop::collection::vec((any::<prop::sample::Index>(), act), 1..60)
}

/// What peers write; the first letter of a message says what the app does with it.
fn written(is_masked: bool) -> Vec<Vec<u8>> {
    let mut all = vec![
        text("echo"),
        text("much"),
        text("close"),
        text("abort"),
        text("pause"),
        text("quiet"),
        frame(Opcode::Text, false, b"echo of "),
        frame(Opcode::Continuation, true, b"fragments"),
        frame(Opcode::Binary, true, &[b'e'; 40_000]),
        frame(Opcode::Ping, true, b"p"),
        frame(Opcode::Pong, true, b""),
        frame(Opcode::Close, true, b"\x03\xe8"),
        frame(Opcode::Close, true, b"\x03"),
        text("echo")[..3].to_vec(),
        b"\xff\xff\xff".to_vec(),
    ];
    if !is_masked {
        for bytes in &mut all {
            // A client hears of faults more often than of messages, but of both.
            bytes[1] &= 0x7f;
            if bytes.len() < 100 && bytes.len() >= 6 {
                bytes.drain(2..6);
            }
        }
    }
    all
}

/// Does what messages say, and notes that nothing follows an end.
#[derive(Default)]
struct Puppet {
    ends: HashMap<Token, usize>,
}

impl Puppet {
    fn hears(&self, socket: &WebSocketRef<'_>) {
        assert_eq!(self.ends.get(&socket.token()), Some(&0));
    }

    fn obey(&self, socket: &mut WebSocketRef<'_>, first: Option<&u8>) {
        self.hears(socket);
        match first {
            Some(b'e') => drop(socket.binary(b"echo")),
            Some(b'm') => {
                for _ in 0..20 {
                    let _ = socket.binary(&[b'e'; 10_000]);
                }
            }
            Some(b'c') => socket.close(CloseCode::NORMAL, "asked to"),
            Some(b'a') => socket.abort(),
            Some(b'p') => socket.pause(),
            _ => {}
        }
    }
}

impl WebSocketApp for Puppet {
    fn message(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, message: Message<'_>) {
        assert!(!socket.is_closing());
        self.obey(socket, message.payload.first());
    }

    fn frame(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, part: FramePart<'_>) {
        assert!(!socket.is_closing());
        self.obey(socket, part.data.first());
    }

    fn control(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>, _: Control<'_>) {
        self.hears(socket);
    }

    fn drained(&mut self, _: &mut Context, socket: &mut WebSocketRef<'_>) {
        self.hears(socket);
        assert_eq!(socket.queued_bytes(), 0);
    }

    fn closed(&mut self, _: &mut Context, token: Token, tag: u64, end: WebSocketEnd<'_>) {
        assert_eq!(tag, 42);
        assert!(end.code != 1006 || !end.is_clean);
        *self.ends.get_mut(&token).unwrap() += 1;
    }
}

struct Sockets {
    sockets: WebSockets,
    app: Puppet,
}

impl Driver for Sockets {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.sockets.ready(context, token, readiness, &mut self.app);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        self.sockets.expired(context, token, &mut self.app);
    }

    fn message(&mut self, _: &mut Context, (): ()) {}
}

/// Short deadlines, so that whatever hangs is cut off while the test looks on.
fn hasty(closes_when_full: bool) -> WebSocketOptions {
    let timeout = Duration::from_millis(30);
    WebSocketOptions {
        messages: MessageLimits {
            message_bytes_max: 100_000,
            ..MessageLimits::default()
        },
        output_bytes_max: 50_000,
        overflow: if closes_when_full {
            Overflow::Close(CloseCode::TRY_AGAIN_LATER)
        } else {
            Overflow::Refuse
        },
        ping_interval: Some(timeout),
        pong_timeout: timeout,
        message_timeout: timeout,
        idle_timeout: Some(2 * timeout),
        write_timeout: timeout,
        close_timeout: timeout,
        ..WebSocketOptions::default()
    }
}

struct World {
    event_loop: EventLoop<()>,
    sockets: Sockets,
    peers: Vec<(Token, Option<TcpStream>)>,
    written: Vec<Vec<u8>>,
}

impl World {
    fn new(negotiated: Negotiated, closes_when_full: bool) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let mut event_loop = EventLoop::new().unwrap();
        let mut sockets = WebSockets::new(SOCKETS, hasty(closes_when_full));
        let mut app = Puppet::default();
        let mut peers = Vec::new();
        for _ in 0..3 {
            let stream = Stream::connect(address).unwrap();
            let (peer, _) = listener.accept().unwrap();
            peer.set_nonblocking(true).unwrap();
            let detached = Detached {
                stream,
                input: Vec::new(),
            };
            let adopted = sockets.adopt(event_loop.context(), detached, negotiated, 42);
            let token = adopted.unwrap();
            app.ends.insert(token, 0);
            peers.push((token, Some(peer)));
        }
        Self {
            event_loop,
            sockets: Sockets { sockets, app },
            peers,
            written: written(negotiated.role == Role::Server),
        }
    }

    fn act(&mut self, who: prop::sample::Index, act: Act) {
        let who = who.index(self.peers.len());
        let (token, peer) = &mut self.peers[who];
        let token = *token;
        match (act, peer) {
            (Act::Writes(what), Some(peer)) => {
                let what = &self.written[what.index(self.written.len())];
                let _ = peer.write(what);
            }
            (Act::Reads(bytes), Some(peer)) => drop(peer.read(&mut vec![0; bytes])),
            (Act::EndsItsSide, Some(peer)) => drop(peer.shutdown(Shutdown::Write)),
            (Act::Resets, peer) => {
                if let Some(peer) = peer.take() {
                    let _ = socket2::SockRef::from(&peer).set_linger(Some(Duration::ZERO));
                }
            }
            (Act::Leaves, peer) => *peer = None,
            (Act::Turn, _) => self.turn(Duration::from_millis(1)),
            (Act::Broadcast(bytes), _) => {
                let news = Broadcast::new(MessageKind::Binary, &vec![b'e'; bytes]);
                let tokens: Vec<_> = self.peers.iter().map(|(token, _)| *token).collect();
                let context = self.event_loop.context();
                self.sockets.sockets.broadcast(context, tokens, &news);
            }
            (act, _) => {
                let context = self.event_loop.context();
                let sockets = &mut self.sockets.sockets;
                sockets.with_socket(context, token, |socket| match act {
                    Act::Send(bytes) => drop(socket.binary(&vec![b'e'; bytes])),
                    Act::Ping => drop(socket.ping(b"p")),
                    Act::Close => socket.close(CloseCode::GOING_AWAY, ""),
                    Act::Abort => socket.abort(),
                    Act::Pause => socket.pause(),
                    Act::Resume => socket.resume(),
                    _ => {}
                });
            }
        }
    }

    fn turn(&mut self, timeout: Duration) {
        let turned = self.event_loop.turn(&mut self.sockets, Some(timeout));
        turned.unwrap();
    }

    /// Nobody does anything more: what is left ends by its deadlines, and without spinning.
    fn end(&mut self) {
        let (begun, mut turns) = (Instant::now(), 0);
        while self.sockets.sockets.connections() > 0 {
            assert!(begun.elapsed() < PATIENCE, "it does not end");
            assert!(turns < TURNS_MAX, "it spins");
            self.turn(PATIENCE);
            turns += 1;
        }
        assert!(self.sockets.app.ends.values().all(|ends| *ends == 1));
        let context = self.event_loop.context();
        assert_eq!(context.armed(), 0);
        for (token, _) in &self.peers {
            let nobody = self.sockets.sockets.with_socket(context, *token, |_| ());
            assert_eq!(nobody, None);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_connection_ends_once(
        acts in acts(),
        is_server: bool,
        in_frames: bool,
        deflate in proptest::option::of(any::<bool>()),
        closes_when_full: bool,
    ) {
        let negotiated = Negotiated {
            role: if is_server { Role::Server } else { Role::Client },
            deflate: deflate.map(|afresh| DeflateParameters {
                server_no_context_takeover: afresh,
                client_no_context_takeover: afresh,
                server_max_window_bits: None,
                client_max_window_bits: None,
            }),
            delivery: if in_frames { Delivery::Frames } else { Delivery::Messages },
        };
        let mut world = World::new(negotiated, closes_when_full);
        for (who, act) in acts {
            world.act(who, act);
        }
        world.end();
    }
}
