//! The connection to a store.

use super::page::Look;
use super::{TopArguments, TopError};
use dwell_proto::memcache::{Reply, ReplyLimits, ResponseDecoder};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::{Duration, Instant};

/// A connection to the store.
pub(super) struct Peer {
    address: String,
    stream: Box<dyn ReadWrite>,
}

trait ReadWrite: Read + Write + Send {}
impl<T: Read + Write + Send> ReadWrite for T {}

impl Peer {
    /// Connects, and logs in if the arguments have credentials.
    pub(super) fn connect(arguments: &TopArguments) -> Result<Self, TopError> {
        let address = arguments.address.clone();
        let stream = connect(&address).map_err(|source| TopError::Connection {
            address: address.clone(),
            source,
        })?;
        let mut peer = Self { address, stream };
        if let Some(path) = &arguments.auth_file {
            peer.log_in(path)?;
        }
        Ok(peer)
    }

    fn failed(&self, source: io::Error) -> TopError {
        let address = self.address.clone();
        TopError::Connection { address, source }
    }

    fn log_in(&mut self, path: &Path) -> Result<(), TopError> {
        let text = fs::read_to_string(path).map_err(|error| self.failed(error))?;
        let token = text
            .lines()
            .next()
            .unwrap_or_default()
            .replacen(':', " ", 1);
        let line = format!("set login 0 0 {}\r\n{token}\r\n", token.len());
        self.stream
            .write_all(line.as_bytes())
            .map_err(|error| self.failed(error))?;
        self.replies(1, &mut |_, _| {})
    }

    /// Queries all statistics once.
    pub(super) fn look(&mut self) -> Result<Look, TopError> {
        let asked = self.stream.write_all(b"stats\r\nstats dwell\r\n");
        asked.map_err(|error| self.failed(error))?;
        let mut figures = BTreeMap::new();
        self.replies(2, &mut |name, value| {
            figures.insert(name, value);
        })?;
        let at = Instant::now();
        Ok(Look { figures, at })
    }

    /// Reads until `ends` requests are answered.
    fn replies(
        &mut self,
        mut ends: usize,
        figure: &mut dyn FnMut(String, String),
    ) -> Result<(), TopError> {
        let mut decoder = ResponseDecoder::new(ReplyLimits::default());
        let mut input = Vec::new();
        let mut piece = [0; 1 << 14];
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        while ends > 0 {
            let front = decoder.decode(&input).map_err(|error| TopError::Answer {
                text: error.to_string(),
            })?;
            let Some((used, reply)) = front else {
                let read = self
                    .stream
                    .read(&mut piece)
                    .map_err(|error| self.failed(error))?;
                if read == 0 {
                    return Err(self.failed(io::ErrorKind::UnexpectedEof.into()));
                }
                input.extend_from_slice(&piece[..read]);
                continue;
            };
            match reply {
                Reply::Stat { name, value } => figure(text(name), text(value)),
                Reply::Error { text: what, .. } => {
                    let text = format!("ERROR {}", text(what));
                    return Err(TopError::Answer { text });
                }
                _ => ends -= 1,
            }
            input.drain(..used);
        }
        Ok(())
    }
}

fn connect(address: &str) -> io::Result<Box<dyn ReadWrite>> {
    if address.contains('/') {
        let stream = UnixStream::connect(address)?;
        stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
        return Ok(Box::new(stream));
    }
    let mut refusal = io::ErrorKind::AddrNotAvailable.into();
    for address in address.to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, ANSWER_TIMEOUT) {
            Ok(stream) => {
                stream.set_read_timeout(Some(ANSWER_TIMEOUT))?;
                return Ok(Box::new(stream));
            }
            Err(error) => refusal = error,
        }
    }
    Err(refusal)
}

/// Timeout of a connection attempt, and of a read.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);
