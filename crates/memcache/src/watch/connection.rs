//! One connection to a server: bytes there, and lines back.

use dwell_evloop::{Connector, Context, Handshaking, ReadOutcome, Readiness, Stream, Token};
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
    stream: Stream,
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
            stream,
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
            return self.stream.flush().map(|_| false).map_err(|_| Lost);
        }
        match self.stream.connect_error() {
            Ok(None) => {}
            Ok(Some(error)) if error.kind() == io::ErrorKind::NotConnected => return Ok(false),
            Ok(Some(_)) | Err(_) => return Err(Lost),
        }
        match self.stream.handshake() {
            Ok(Handshaking::Pending) => return Ok(false),
            Ok(_) => {}
            Err(_) => return Err(Lost),
        }
        self.is_established = true;
        Ok(true)
    }

    pub(super) fn write(&mut self, bytes: &[u8]) -> Result<(), Lost> {
        self.stream.write(bytes).map_err(|_| Lost)
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
        let (length, is_more) = match self.stream.read(input) {
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
