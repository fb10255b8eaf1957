//! The server's side of TLS on simulated connections: rustls makes the handshakes and the records.

use dwell_evloop::sim::SimStream;
use rustls::crypto::aws_lc_rs as provider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::version::{TLS12, TLS13};
use rustls::{ServerConfig, ServerConnection};
use std::cell::Cell;
use std::io::{self, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

/// The certificates of simulated servers, of which they show one at a time.
///
/// Shape: a clone is the same one. A connection keeps the certificate that it began with.
#[derive(Clone, Debug)]
pub struct SimTls(Rc<Certificates>);

#[derive(Debug)]
struct Certificates {
    configs: Vec<Arc<ServerConfig>>,
    shown: Cell<usize>,
    refused: Cell<u64>,
    /// A client has sent data to a server that showed another certificate than the first.
    is_trusted: Cell<bool>,
}

impl SimTls {
    /// The first of these certificates is shown; all have this key. Text is PEM. The version is
    /// TLS 1.3, or 1.2.
    ///
    /// # Panics
    /// If one cannot be read, or the key is that of another one.
    #[must_use]
    pub fn new(certificates: &[&[u8]], key: &[u8], is_tls12: bool) -> Self {
        let config = |pem: &&[u8]| {
            let version = if is_tls12 { &TLS12 } else { &TLS13 };
            let chain = CertificateDer::from_pem_slice(pem).expect("it is a certificate");
            let key = PrivateKeyDer::from_pem_slice(key).expect("it is a key");
            let provider = Arc::new(provider::default_provider());
            let config = ServerConfig::builder_with_provider(provider)
                .with_protocol_versions(&[version])
                .expect("the version is known")
                .with_no_client_auth()
                .with_single_cert(vec![chain], key);
            Arc::new(config.expect("the key is that of the certificate"))
        };
        Self(Rc::new(Certificates {
            configs: certificates.iter().map(config).collect(),
            shown: Cell::new(0),
            refused: Cell::new(0),
            is_trusted: Cell::new(false),
        }))
    }

    /// Has the certificate of this place shown from now on.
    pub fn show(&self, place: usize) {
        self.0.shown.set(place);
    }

    /// Takes the number of connections that clients have ended by an alert.
    #[must_use]
    pub fn take_refused(&self) -> u64 {
        self.0.refused.take()
    }

    /// Returns true if a client has sent data where another certificate than the first was shown.
    #[must_use]
    pub fn is_trusted_wrongly(&self) -> bool {
        self.0.is_trusted.get()
    }

    fn begin(&self) -> Session {
        let config = Arc::clone(&self.0.configs[self.0.shown.get()]);
        let mut connection = ServerConnection::new(config).expect("the configuration is right");
        connection.set_buffer_limit(None);
        Session {
            connection,
            certificates: Rc::clone(&self.0),
            is_first: self.0.shown.get() == 0,
            received: Vec::new(),
            pending: Vec::new(),
            is_over: false,
        }
    }
}

/// A connection of a simulated server: a simulated socket, perhaps with TLS on it.
#[derive(Debug)]
pub struct PeerStream {
    stream: SimStream,
    session: Option<Box<Session>>,
}

/// TLS on one connection.
#[derive(Debug)]
struct Session {
    connection: ServerConnection,
    certificates: Rc<Certificates>,
    /// It has shown the first certificate.
    is_first: bool,
    received: Vec<u8>,
    /// Records that the network has not taken.
    pending: Vec<u8>,
    /// The client sends no more, or has broken the protocol.
    is_over: bool,
}

impl PeerStream {
    /// The connection that a peer was called for, when it has come.
    #[must_use]
    pub fn of(stream: &SimStream, tls: Option<&SimTls>) -> Self {
        Self {
            stream: stream.beside(stream.id()),
            session: tls.map(|tls| Box::new(tls.begin())),
        }
    }

    /// Reads all that has come; returns false at the end of the connection.
    pub fn read_all(&mut self, into: &mut Vec<u8>) -> bool {
        let Some(session) = &mut self.session else {
            return self.stream.read_all(into);
        };
        let before = into.len();
        let is_open = self.stream.read_all(&mut session.received);
        session.open(into);
        self.stream.note_opened(&into[before..]);
        session.flush(&mut self.stream);
        is_open && !session.is_over
    }

    /// Returns true if the network is still to take something.
    #[must_use]
    pub fn has_pending(&self) -> bool {
        let session = self.session.as_deref();
        session.is_some_and(|session| !session.pending.is_empty())
    }

    /// Ends the connection; under TLS the client is told that nothing more follows.
    pub fn close(&mut self) {
        if let Some(session) = &mut self.session {
            session.connection.send_close_notify();
            session.collect();
            session.flush(&mut self.stream);
        }
        self.stream.close();
    }

    /// Ends the connection; under TLS the client is told nothing.
    pub fn cut(&self) {
        self.stream.close();
    }

    /// Ends the connection with a reset.
    pub fn reset(&self) {
        self.stream.reset();
    }

    /// Has the peer called again for this connection when so much time has passed.
    pub fn serve_after(&self, time: Duration) {
        self.stream.serve_after(time);
    }

    /// Simulated time since the network was made.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        self.stream.elapsed()
    }
}

impl Write for PeerStream {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let Some(session) = &mut self.session else {
            return self.stream.write(bytes);
        };
        session.flush(&mut self.stream);
        if bytes.is_empty() || !session.pending.is_empty() {
            return Ok(0);
        }
        session.connection.writer().write_all(bytes)?;
        session.collect();
        session.flush(&mut self.stream);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Session {
    /// Opens the records that have come.
    fn open(&mut self, into: &mut Vec<u8>) {
        let (received, before) = (std::mem::take(&mut self.received), into.len());
        let mut input = &received[..];
        while !input.is_empty() && !self.is_over {
            // Reading from memory fails only where rustls takes no more.
            let taken = self.connection.read_tls(&mut input);
            match self.connection.process_new_packets() {
                Ok(state) => self.is_over = state.peer_has_closed(),
                Err(error) => {
                    self.is_over = true;
                    if matches!(error, rustls::Error::AlertReceived(_)) {
                        let refused = &self.certificates.refused;
                        refused.set(refused.get() + 1);
                    }
                }
            }
            self.is_over |= taken.is_err();
            // An end without `close_notify` is told by the socket.
            let _ = self.connection.reader().read_to_end(into);
        }
        if into.len() > before && !self.is_first {
            self.certificates.is_trusted.set(true);
        }
        self.collect();
    }

    /// Takes what rustls sends.
    fn collect(&mut self) {
        while self.connection.wants_write() {
            // Writing to memory does not fail.
            if self.connection.write_tls(&mut self.pending).is_err() {
                return;
            }
        }
    }

    /// Gives the network what it takes.
    fn flush(&mut self, stream: &mut SimStream) {
        if !self.pending.is_empty() {
            let written = stream.write(&self.pending).unwrap_or(0);
            self.pending.drain(..written);
        }
    }
}
