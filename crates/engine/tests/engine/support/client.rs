//! Clients on plain sockets.

use bytes::{Buf, BytesMut};
use socket2::{Domain, SockRef, Socket, Type};
use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

/// How a connection ended, as its client sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    InOrder,
    Reset,
}

/// A client that never blocks.
pub(crate) struct Client {
    socket: TcpStream,
    pub(crate) received: BytesMut,
    pub(crate) end: Option<End>,
}

impl Client {
    pub(crate) fn connect(address: SocketAddr) -> Self {
        Self::of(TcpStream::connect(address).unwrap())
    }

    /// A client whose kernel takes little of what it has not read.
    pub(crate) fn connect_narrow(address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).unwrap();
        socket.set_recv_buffer_size(16 * 1024).unwrap();
        socket.connect(&address.into()).unwrap();
        Self::of(socket.into())
    }

    fn of(socket: TcpStream) -> Self {
        socket.set_nodelay(true).unwrap();
        socket.set_nonblocking(true).unwrap();
        Self {
            socket,
            received: BytesMut::new(),
            end: None,
        }
    }

    /// Gives all of `bytes` to the kernel, which must have room for them.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.socket.write_all(bytes).unwrap();
    }

    /// Gives the kernel what it takes of `bytes`; returns how many.
    pub(crate) fn send_some(&mut self, bytes: &[u8]) -> usize {
        match self.socket.write(bytes) {
            Ok(sent) => sent,
            Err(error) if error.kind() == ErrorKind::WouldBlock => 0,
            Err(error) => panic!("{error}"),
        }
    }

    pub(crate) fn finish_sending(&self) {
        self.socket.shutdown(Shutdown::Write).unwrap();
    }

    /// Ends the connection with a reset.
    pub(crate) fn reset(self) {
        SockRef::from(&self.socket)
            .set_linger(Some(Duration::ZERO))
            .unwrap();
    }

    /// Reads everything that is here.
    pub(crate) fn receive(&mut self) {
        self.receive_at_most(usize::MAX);
    }

    /// Reads until so much, or a little more, is read, or nothing more is here.
    pub(crate) fn receive_at_most(&mut self, bytes: usize) {
        let mut buffer = [0; 16_384];
        let until = self.received.len().saturating_add(bytes);
        while self.end.is_none() && self.received.len() < until {
            match self.socket.read(&mut buffer) {
                Ok(0) => self.end = Some(End::InOrder),
                Ok(read) => self.received.extend_from_slice(&buffer[..read]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == ErrorKind::ConnectionReset => {
                    self.end = Some(End::Reset);
                }
                Err(error) => panic!("{error}"),
            }
        }
    }

    /// Takes a complete answer off the front of what was received.
    pub(crate) fn take_answer(&mut self, method: &str) -> Option<Answer> {
        let end = self
            .received
            .windows(4)
            .position(|bytes| bytes == b"\r\n\r\n")?
            + 4;
        let head = String::from_utf8(self.received[..end].to_vec()).unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        let mut answer = Answer {
            status,
            head,
            body: Vec::new(),
        };
        let length = match status {
            _ if method == "HEAD" => 0,
            100..=199 | 204 | 304 => 0,
            _ => answer.field("content-length").unwrap().parse().unwrap(),
        };
        let body = self.received.get(end..end + length)?;
        answer.body = body.to_vec();
        self.received.advance(end + length);
        Some(answer)
    }
}

/// One answer as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().skip(1).find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        })
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// `GET target` with a host.
pub(crate) fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: a\r\n\r\n")
}
