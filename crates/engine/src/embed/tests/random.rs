//! Whatever clients and hosts do in whatever order, everything begins once and ends once.

use super::*;
use std::collections::BTreeSet;
use std::io::ErrorKind;

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005);
        self.0 = self.0.wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) as usize % bound
    }

    fn one_of<T: Copy>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())]
    }
}

/// What a host knows of its engine by what it was told.
struct World {
    dice: Dice,
    engine: Engine,
    batch: Batch,
    address: SocketAddr,
    clients: Vec<TcpStream>,
    exchanges: BTreeSet<u64>,
    connections: BTreeSet<u64>,
    web_sockets: BTreeSet<u64>,
    streams: BTreeSet<u64>,
    /// Every name there ever was.
    names: Vec<u64>,
}

const PIECES: &[&str] = &[
    "GET / HTTP/1.1\r\nHost: h\r\n\r\n",
    "GET / HTTP/1.1\r\nHost: h\r\n\r\nGET / HTTP/1.0\r\n\r\n",
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello",
    "POST / HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhel",
    "POST / HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
    "PUT / HTTP/1.1\r\nHost: h\r\nContent-Length: 9\r\nExpect: 100-continue\r\n\r\n",
    faults::HANDSHAKE,
    faults::HANDSHAKE,
    "\u{1}\u{0}",
    "GET / HT",
    "nonsense\r\n\r\n",
];

impl World {
    fn new(seed: u64) -> Self {
        let options = Options {
            body_credit: 2,
            reports_connections: true,
            half_close: seed.is_multiple_of(2),
            ..Options::default()
        };
        let mut engine = Engine::new(options).unwrap();
        let address = engine.listen(([127, 0, 0, 1], 0).into()).unwrap();
        Self {
            dice: Dice(seed),
            engine,
            batch: Batch::new(),
            address,
            clients: Vec::new(),
            exchanges: BTreeSet::new(),
            connections: BTreeSet::new(),
            web_sockets: BTreeSet::new(),
            streams: BTreeSet::new(),
            names: vec![0],
        }
    }

    fn turn(&mut self) {
        self.engine
            .turn(Some(Duration::ZERO), &mut self.batch)
            .unwrap();
        let batch = std::mem::take(&mut self.batch);
        for event in batch.events() {
            self.hear(event);
        }
        self.batch = batch;
    }

    fn hear(&mut self, event: &Event) {
        let handle = event.handle;
        let is = |kind: EventKind| event.kind == kind as u32;
        if is(EventKind::Request) {
            assert!(self.connections.contains(&event.other), "{event:?}");
            assert!(self.exchanges.insert(handle), "{event:?}");
            self.names.push(handle);
        } else if is(EventKind::Opened) {
            assert!(self.connections.insert(handle), "{event:?}");
            self.names.push(handle);
        } else if is(EventKind::Closed) {
            assert!(self.connections.remove(&handle), "{event:?}");
        } else if is(EventKind::Gone) || is(EventKind::UpgradeRefused) {
            assert!(self.exchanges.remove(&handle), "{event:?}");
        } else if is(EventKind::Detached) {
            assert!(self.exchanges.remove(&handle), "{event:?}");
            if let Some(detached) = self.engine.take_detached(handle)
                && let Ok(stream) = self.engine.adopt_stream(detached)
            {
                assert!(self.streams.insert(stream), "{event:?}");
                self.names.push(stream);
            }
        } else if is(EventKind::WebSocketOpened) {
            assert!(self.exchanges.remove(&event.other), "{event:?}");
            assert!(self.web_sockets.insert(handle), "{event:?}");
            self.names.push(handle);
        } else if is(EventKind::WebSocketClosed) {
            assert!(self.web_sockets.remove(&handle), "{event:?}");
        } else if is(EventKind::StreamClosed) {
            assert!(self.streams.remove(&handle), "{event:?}");
        } else {
            let here = [&self.exchanges, &self.web_sockets, &self.streams];
            assert!(
                here.iter().any(|names| names.contains(&handle)),
                "{event:?}"
            );
        }
    }

    fn a_client_acts(&mut self) {
        if self.clients.len() < 4 {
            let client = TcpStream::connect(self.address).unwrap();
            client.set_nonblocking(true).unwrap();
            self.clients.push(client);
        }
        let which = self.dice.below(self.clients.len());
        let client = &mut self.clients[which];
        match self.dice.below(12) {
            0 => drop(self.clients.swap_remove(which)),
            1 => drop(client.shutdown(std::net::Shutdown::Write)),
            _ => drop(client.write(self.dice.one_of(PIECES).as_bytes())),
        }
        for client in &mut self.clients {
            let mut buffer = [0; 4096];
            let read = client.read(&mut buffer);
            let error = read.err().map(|error| error.kind());
            assert_ne!(error, Some(ErrorKind::InvalidInput));
        }
        self.clients.retain(|client| {
            let ended = client.peek(&mut [0]);
            !matches!(ended, Ok(0)) && client.take_error().is_ok_and(|error| error.is_none())
        });
    }

    fn the_host_orders(&mut self) {
        // Mostly something recent, as the rest is gone.
        let recent = self.names.len().min(6);
        let handle = self.names[self.names.len() - 1 - self.dice.below(recent)];
        let (flags, fields) = (self.dice.below(8) as u32, FieldLines(b"X-One: 1\n"));
        let big = vec![b'x'; 100_000];
        let bytes = self.dice.one_of(&[b"".as_slice(), b"some", &big]);
        let length = self.dice.one_of(&[None, Some(0), Some(4)]);
        let head = faults::HANDSHAKE.as_bytes();
        let orders = [
            Command {
                flags,
                argument: u64::from(flags),
                bytes,
                ..Operation::Write.on(handle)
            },
            Command {
                status: 200,
                flags,
                fields,
                bytes,
                ..Operation::Answer.on(handle)
            },
            Command {
                status: 200,
                flags,
                fields,
                argument: length.unwrap_or(u64::MAX),
                ..Operation::Begin.on(handle)
            },
            Command {
                status: 103,
                fields,
                ..Operation::Informational.on(handle)
            },
            Command {
                argument: 3,
                ..Operation::Grant.on(handle)
            },
            Operation::Abort.on(handle),
            Command {
                status: 1000,
                ..Operation::Close.on(handle)
            },
            Operation::Detach.on(handle),
            Command {
                flags,
                fields,
                bytes: head,
                ..Operation::Upgrade.on(handle)
            },
            Command {
                flags: 1,
                argument: u64::from(flags),
                bytes: b"text",
                ..Operation::Send.on(handle)
            },
            Operation::Ping.on(handle),
            Operation::Pause.on(handle),
            Operation::Resume.on(handle),
        ];
        let order = self.dice.one_of(&orders);
        let result = self.engine.execute(&order);
        let finishes = match order.operation {
            Operation::Write => flags & write_flags::FINISH != 0,
            Operation::Answer | Operation::Abort | Operation::Close => true,
            _ => false,
        };
        if finishes && result.is_ok() {
            self.exchanges.remove(&handle);
        }
    }
}

#[test]
fn everything_begins_once_and_ends_once() {
    for seed in 0..40 {
        let mut world = World::new(seed);
        for _ in 0..400 {
            if world.dice.below(2) == 0 {
                world.a_client_acts();
            } else {
                world.the_host_orders();
            }
            world.turn();
        }
        let held = world.engine.statistics().held as usize;
        assert_eq!(held, world.exchanges.len(), "seed {seed}");
        world.engine.close_all();
        while world.engine.wait_max() == Some(Duration::ZERO) {
            world.turn();
        }
        let left = [
            &world.exchanges,
            &world.connections,
            &world.web_sockets,
            &world.streams,
        ];
        assert!(
            left.iter().all(|names| names.is_empty()),
            "{seed}: {left:?}"
        );
        assert_eq!(world.engine.connections(), 0);
    }
}
