//! A loop with raw streams on it, an app that writes down what it is told, and plain peers.

use dwell_engine::{StreamApp, StreamEnd, StreamLimits, StreamRef, Streams};
use dwell_evloop::{Context, Driver, EventLoop, Readiness, Token};
use dwell_testkit::{Rig, loopback_listener};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// How long a test waits for what must happen.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);

/// What the app was told.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Seen {
    Opened(u64),
    Connected,
    Data(Vec<u8>),
    PeerClosed,
    Written(usize),
    Drained,
    Closed(StreamEnd),
}

/// How input is taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) enum Taking {
    /// All of it, sent back.
    #[default]
    Echo,
    /// None of it.
    Nothing,
    /// Up to the last line feed.
    Lines,
    /// All of it, and reading pauses.
    AndPause,
    /// None of it, and reading pauses.
    NothingAndPause,
    /// All of it, and more is written than the socket takes.
    AndFlood,
    /// All of it, and the stream closes.
    AndClose,
}

#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) seen: Vec<Seen>,
    pub(crate) tokens: Vec<Token>,
    pub(crate) taking: Taking,
    /// Whether the app leaves a stream open whose peer sends no more.
    pub(crate) stays_open: bool,
}

impl Recorder {
    pub(crate) fn received(&self) -> Vec<u8> {
        let data = self.seen.iter().filter_map(|seen| match seen {
            Seen::Data(data) => Some(data.clone()),
            _ => None,
        });
        data.collect::<Vec<_>>().concat()
    }

    pub(crate) fn end(&self) -> Option<StreamEnd> {
        self.seen.iter().find_map(|seen| match seen {
            Seen::Closed(end) => Some(*end),
            _ => None,
        })
    }
}

impl StreamApp for Recorder {
    fn opened(&mut self, _: &mut Context, stream: &mut StreamRef<'_>, listener_tag: u64) {
        assert_eq!(stream.tag(), 0);
        stream.set_tag(self.tokens.len() as u64 + 100);
        self.tokens.push(stream.token());
        self.seen.push(Seen::Opened(listener_tag));
    }

    fn connected(&mut self, _: &mut Context, _: &mut StreamRef<'_>) {
        self.seen.push(Seen::Connected);
    }

    fn data(
        &mut self,
        _: &mut Context,
        stream: &mut StreamRef<'_>,
        input: &[u8],
        _: usize,
    ) -> usize {
        self.seen.push(Seen::Data(input.to_vec()));
        match self.taking {
            Taking::Echo => assert!(stream.write(input)),
            Taking::Nothing => return 0,
            Taking::Lines => {
                let end = input.iter().rposition(|byte| *byte == b'\n');
                return end.map_or(0, |end| end + 1);
            }
            Taking::AndPause => stream.pause(),
            Taking::NothingAndPause => {
                stream.pause();
                return 0;
            }
            Taking::AndFlood => assert!(stream.write(&vec![0; 16 << 20])),
            Taking::AndClose => {
                assert!(stream.write(b"bye"));
                stream.close();
                assert!(stream.is_closing());
                assert!(!stream.write(b"never"));
            }
        }
        input.len()
    }

    fn peer_closed(&mut self, _: &mut Context, stream: &mut StreamRef<'_>) {
        self.seen.push(Seen::PeerClosed);
        if !self.stays_open {
            stream.close();
        }
    }

    fn written(&mut self, _: &mut Context, _: &mut StreamRef<'_>, taken: usize) {
        self.seen.push(Seen::Written(taken));
    }

    fn drained(&mut self, _: &mut Context, _: &mut StreamRef<'_>) {
        self.seen.push(Seen::Drained);
    }

    fn closed(&mut self, _: &mut Context, token: Token, _: u64, end: StreamEnd) {
        self.tokens.retain(|known| *known != token);
        self.seen.push(Seen::Closed(end));
    }
}

pub(crate) struct Server {
    pub(crate) streams: Streams,
    pub(crate) app: Recorder,
}

impl Driver for Server {
    type Message = ();

    fn ready(&mut self, context: &mut Context, token: Token, readiness: Readiness) {
        self.streams.ready(context, token, readiness, &mut self.app);
    }

    fn expired(&mut self, context: &mut Context, token: Token) {
        self.streams.expired(context, token, &mut self.app);
    }

    fn message(&mut self, _: &mut Context, (): ()) {}
}

pub(crate) struct Fixture {
    pub(crate) event_loop: EventLoop<()>,
    pub(crate) server: Server,
    pub(crate) address: SocketAddr,
}

impl Fixture {
    pub(crate) fn new(taking: Taking, limits: StreamLimits) -> Self {
        let mut event_loop = EventLoop::new().unwrap();
        let mut server = Server {
            streams: Streams::new(1, 2, limits),
            app: Recorder {
                taking,
                ..Recorder::default()
            },
        };
        let (listener, address) = loopback_listener();
        server
            .streams
            .listen(event_loop.context(), listener, 7)
            .unwrap();
        Self {
            event_loop,
            server,
            address,
        }
    }

    /// Turns until `condition` holds.
    pub(crate) fn until(&mut self, what: &str, mut condition: impl FnMut(&Recorder) -> bool) {
        self.turn_until(what, |server| condition(&server.app));
    }

    /// A peer the app knows, and its token here.
    pub(crate) fn peer(&mut self) -> (TcpStream, Token) {
        let before = self.server.app.tokens.len();
        let peer = TcpStream::connect(self.address).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        self.until("a peer is accepted", |app| app.tokens.len() > before);
        (peer, *self.server.app.tokens.last().unwrap())
    }

    /// Lets `act` work on one stream from outside its callbacks.
    pub(crate) fn with<T>(
        &mut self,
        token: Token,
        act: impl FnOnce(&mut StreamRef<'_>) -> T,
    ) -> Option<T> {
        let context = self.event_loop.context();
        self.server.streams.with_stream(context, token, act)
    }

    /// Reads from `peer` until `size` bytes have come.
    pub(crate) fn receive(&mut self, peer: &mut TcpStream, size: usize) -> Vec<u8> {
        self.receive_until(peer, |received| received.len() >= size)
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
