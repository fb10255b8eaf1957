//! One connection to a server: bytes there, and lines back.

use dwell_evloop::{Connector, Context, Handshaking, Peer, ReadOutcome, Readiness, Stream, Token};
use std::io;
use std::net::SocketAddr;

/// The connection is of no more use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lost;

/// The address of a server, and how it is spoken to.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) address: SocketAddr,
    pub(super) tls: Option<Connector>,
}

/// A connection that is being made or is up.
#[derive(Debug)]
pub(super) struct Connection {
    peer: Peer,
    is_established: bool,
    /// The beginning of a line whose end has not come yet.
    tail: Vec<u8>,
}

impl Connection {
    /// Begins to connect.
    pub(super) fn open(context: &mut Context, place: &Place, token: Token) -> Option<Self> {
        let mut stream = Stream::connect(place.address).ok()?;
        if let Some(connector) = &place.tls {
            stream.secure_client(connector).ok()?;
        }
        context.register(&mut stream, token).ok()?;
        Some(Self {
            peer: Peer::new(stream),
            is_established: false,
            tail: Vec::new(),
        })
    }

    pub(super) fn is_established(&self) -> bool {
        self.is_established
    }

    /// Sends what waits, or goes on with the attempt and its handshake; true if that has just
    /// succeeded.
    pub(super) fn go_on(&mut self, readiness: Readiness) -> Result<bool, Lost> {
        if self.is_established {
            if !readiness.is_writable() {
                return Ok(false);
            }
            return self.peer.stream.flush().map(|_| false).map_err(|_| Lost);
        }
        match self.peer.stream.connect_error() {
            Ok(None) => {}
            Ok(Some(error)) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            Ok(Some(_)) | Err(_) => return Err(Lost),
        }
        // An end that comes with the last bytes is not told again.
        self.peer.observe(readiness);
        match self.peer.handshake() {
            Ok(Handshaking::Pending) => return Ok(false),
            Ok(_) => {}
            Err(_) => return Err(Lost),
        }
        self.is_established = true;
        Ok(true)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Lost> {
        self.peer.stream.write(bytes).map_err(|_| Lost)
    }

    /// Reads a bounded share of what the socket holds.
    ///
    /// Shape: `take` is given all bytes that it has not used yet, and says how many it has; what it
    /// leaves is the beginning of a line, whose length it bounds.
    pub(super) fn receive(
        &mut self,
        context: &mut Context,
        token: Token,
        readiness: Readiness,
        mut take: impl FnMut(&[u8]) -> Result<usize, Lost>,
    ) -> Result<(), Lost> {
        let mut input = context.take_input();
        let mut is_more = Ok(true);
        for _ in 0..READS_PER_TURN {
            is_more = self.receive_once(&mut input, readiness, &mut take);
            if is_more != Ok(true) {
                break;
            }
        }
        context.return_input(input);
        if is_more? {
            context.again(token, readiness);
        }
        Ok(())
    }

    fn receive_once(
        &mut self,
        input: &mut [u8],
        readiness: Readiness,
        take: &mut impl FnMut(&[u8]) -> Result<usize, Lost>,
    ) -> Result<bool, Lost> {
        let (length, is_more) = match self.peer.stream.read(input) {
            Ok(ReadOutcome::More(length)) => (length, true),
            // After the end of the stream has been told, nothing tells it again.
            Ok(ReadOutcome::Drained(length)) => (length, readiness.is_read_closed()),
            Ok(ReadOutcome::WouldBlock) => return Ok(false),
            Ok(ReadOutcome::Closed) | Err(_) => return Err(Lost),
        };
        if self.tail.is_empty() {
            let used = take(&input[..length])?;
            self.tail.extend_from_slice(&input[used..length]);
        } else {
            self.tail.extend_from_slice(&input[..length]);
            let used = take(&self.tail)?;
            // What is left is short, and what was there may have been as long as a read.
            self.tail = self.tail[used..].to_vec();
        }
        Ok(is_more)
    }
}

/// The token of the connection after the one of `token`.
pub(super) fn next_tenant(token: Token) -> Token {
    let generation = token.generation().wrapping_add(1);
    Token::new(token.kind(), generation, token.index())
}

/// Reads of one connection in one turn; with the loop's buffer, 512 KiB.
const READS_PER_TURN: usize = 8;

#[cfg(all(test, feature = "tls"))]
mod tests {
    use super::*;
    use dwell_evloop::{ClientTls, Driver, EventLoop, Roots};
    use std::io::{Read, Write};
    use std::net::TcpListener;
    use std::time::Duration;

    const CERTIFICATE: &[u8] = include_bytes!("../../../tls/tests/data/certificate.pem");

    #[derive(Default)]
    struct Heard(Vec<Readiness>);

    impl Driver for Heard {
        type Message = ();

        fn ready(&mut self, _: &mut Context, _: Token, readiness: Readiness) {
            self.0.push(readiness);
        }

        fn expired(&mut self, _: &mut Context, _: Token) {}

        fn message(&mut self, _: &mut Context, (): ()) {}
    }

    /// The end comes with the beginning of a record, and no further readiness reports it.
    #[test]
    fn a_server_that_leaves_within_the_handshake_is_lost_at_once() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let roots = Roots::from_pem(CERTIFICATE).unwrap();
        let settings = ClientTls::new(&roots, None, &[]).unwrap();
        let place = Place {
            address: listener.local_addr().unwrap(),
            tls: Some(settings.connector("127.0.0.1").unwrap()),
        };
        let mut event_loop = EventLoop::new().unwrap();
        let context = event_loop.context();
        let mut connection = Connection::open(context, &place, Token::new(1, 0, 0)).unwrap();
        let (mut server, _) = listener.accept().unwrap();
        let mut server = Some(&mut server);
        for _ in 0..20 {
            let mut heard = Heard::default();
            let timeout = Some(Duration::from_millis(200));
            event_loop.turn(&mut heard, timeout).unwrap();
            for readiness in heard.0 {
                match connection.go_on(readiness) {
                    Ok(is_established) => assert!(!is_established),
                    Err(Lost) => return,
                }
            }
            if let Some(server) = server.take() {
                assert!(server.read(&mut [0; 16_384]).unwrap() > 0);
                server.write_all(&[22, 3, 3, 0, 100, 2]).unwrap();
                server.shutdown(std::net::Shutdown::Write).unwrap();
            }
        }
        panic!("the end was not noticed");
    }
}
