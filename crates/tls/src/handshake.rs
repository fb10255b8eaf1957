//! Handshakes, which rustls does, and what is kept of them.

use crate::alpn::HTTP2;
use crate::established::{Established, Known, Shown, Tls12};
use crate::kept::KeptClient;
use crate::session::Peer;
use crate::verifier::reason;
use crate::{Alert, HEADER_BYTES, Keys, RECORD_BYTES_MAX, TlsError, content};
use crate::{KeptOfClient, Secrets, Session, Suite};
use rustls::{CipherSuite, Connection, HandshakeKind, KeyLog, ProtocolVersion};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use zeroize::Zeroizing;

/// A handshake that is in progress.
///
/// Shape: fed by [`receive`](Self::receive), whose output [`transmit`](Self::transmit) has; when it
/// [is done](Self::is_done), [`finish`](Self::finish) leaves what the connection needs from then
/// on. It holds the objects of rustls, some tens of kilobytes.
#[derive(Debug)]
pub struct Handshake {
    connection: Connection,
    secrets: Captured,
    received: usize,
    role: Role,
    /// The alert for a fault that rustls was not shown.
    alert: Vec<u8>,
}

/// The side of a handshake that is ours.
#[derive(Debug)]
pub(crate) enum Role {
    /// The server's.
    Server(Kept),
    /// The client's; the name of the server.
    Client(Arc<str>),
}

/// The facts of a client that its connection keeps.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Kept {
    pub(crate) of_client: KeptOfClient,
    /// The first certificate is verified in the handshake.
    pub(crate) are_verified: bool,
    pub(crate) server_name: bool,
}

/// An error of a handshake, which ends the connection.
#[derive(Clone, PartialEq, Debug)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The first byte that the client sent is not that of a TLS handshake.
    NotTls,
    /// The first byte that the server sent is not that of a TLS handshake. The name of the server.
    ServerNotTls(Arc<str>),
    /// The peer sent more bytes than a handshake may have: so many.
    TooLong(usize),
    /// The peer does not follow the protocol, or has nothing in common with us.
    Refused(rustls::Error),
    /// The certificate of the server is not accepted.
    Certificate {
        /// The name of the server.
        host: Arc<str>,
        /// The reason in words.
        reason: String,
    },
    /// The record layer cannot go on where the handshake has ended.
    Record(TlsError),
}

/// A kind of [`HandshakeError`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum HandshakeFault {
    /// The peer does not speak TLS.
    NotTls,
    /// The peers have no version, suite, group or application protocol in common.
    Incompatible,
    /// The peer has refused, by an alert.
    Alert,
    /// The peer shows no certificate, or one that is refused.
    Certificate,
    /// The peer does not follow the protocol.
    Protocol,
    /// The fault is ours.
    Internal,
}

/// Bytes of all records that a peer sends in a handshake, at most.
const HANDSHAKE_BYTES_MAX: usize = 128 * 1024;

/// Bytes of a client's first record that come before its handshake begins, and with it the bound on
/// handshakes in progress. A hello with post-quantum key shares has 2 KiB.
const BEFORE_HANDSHAKE_BYTES_MAX: usize = 4096;

impl Handshake {
    pub(crate) fn new(mut connection: Connection, role: Role) -> Self {
        connection.set_buffer_limit(None);
        Self {
            connection,
            secrets: Captured::default(),
            received: 0,
            role,
            alert: Vec::new(),
        }
    }

    /// Returns true if the first record of a client is whole in `input`, has a fault, or exceeds
    /// 4,096 bytes: what comes before that needs no handshake yet, and little memory.
    pub fn is_due(input: &[u8]) -> bool {
        match record_bytes(input, true, true) {
            Ok(Some(length)) => input.len() >= length.min(BEFORE_HANDSHAKE_BYTES_MAX),
            Ok(None) => false,
            Err(_) => true,
        }
    }

    /// Takes the records at the front of `input` that are whole, up to the end of the handshake.
    /// Returns the number of bytes that they have. Give the bytes behind them again with those that
    /// follow, or to the code after the handshake.
    ///
    /// # Errors
    /// A fault of the peer. The alert for it is in what [`transmit`](Self::transmit) gives.
    pub fn receive(&mut self, input: &[u8]) -> Result<usize, HandshakeError> {
        let received = self.receive_records(input);
        if let Err(error) = &received {
            let alert = match error {
                HandshakeError::TooLong(_) => Some(Alert::DecodeError),
                HandshakeError::Record(error) => error.alert(),
                // rustls has no alert among what it sends for a few of its errors.
                HandshakeError::Refused(error) if !self.connection.wants_write() => alert_of(error),
                _ => None,
            };
            if let Some(alert) = alert {
                self.refuse(alert);
            }
        }
        received
    }

    fn receive_records(&mut self, input: &[u8]) -> Result<usize, HandshakeError> {
        let is_server = matches!(self.role, Role::Server(_));
        let mut used = 0;
        while self.connection.is_handshaking() {
            let is_first = self.received == 0;
            let length = match record_bytes(&input[used..], is_first, is_server) {
                Ok(Some(length)) => length,
                Ok(None) => break,
                Err(HandshakeError::NotTls) => return Err(self.not_tls()),
                Err(error) => return Err(error),
            };
            let Some(mut record) = input.get(used..used + length) else {
                break;
            };
            self.received += length;
            if self.received > HANDSHAKE_BYTES_MAX {
                return Err(HandshakeError::TooLong(self.received));
            }
            while !record.is_empty() {
                // Reading from memory fails only where rustls takes no more.
                let taken = self.connection.read_tls(&mut record);
                let is_full = taken.is_err();
                CAPTURED.with_borrow_mut(|captured| *captured = Some(Captured::default()));
                let processed = self.connection.process_new_packets();
                if let Some(captured) = CAPTURED.take() {
                    self.secrets.add(captured);
                }
                processed.map_err(|error| self.refused(error))?;
                if is_full {
                    return Err(HandshakeError::TooLong(self.received));
                }
            }
            used += length;
        }
        Ok(used)
    }

    fn not_tls(&self) -> HandshakeError {
        match &self.role {
            Role::Server(_) => HandshakeError::NotTls,
            Role::Client(host) => HandshakeError::ServerNotTls(Arc::clone(host)),
        }
    }

    /// Makes the alert for a fault that rustls is not shown, by the keys that the peer expects it
    /// under.
    ///
    /// Source: RFC 8446 section 6; section 2, figure 1: behind a server's `Finished`, what it sends
    /// is under the secret of application data.
    fn refuse(&mut self, alert: Alert) {
        /// The header of a record that is longer than any may be.
        const REFUSED: [u8; HEADER_BYTES] = [22, 3, 3, 0xff, 0xff];
        let is_server = matches!(self.role, Role::Server(_));
        if is_server && !self.secrets.server.is_empty() {
            let secrets = Secrets::new(&self.secrets.client, &self.secrets.server);
            let mut keys = Keys::new(1);
            let sealed = self.suite().and_then(|suite| {
                let mut session = Session::new(suite, secrets)?;
                session.end(&mut keys, [FATAL, alert as u8], &mut self.alert)
            });
            if sealed.is_err() {
                self.alert.clear();
            }
        } else if is_server && !self.is_resumed() {
            self.alert = vec![content::ALERT, 3, 3, 0, 2, FATAL, alert as u8];
        } else {
            // The keys are those of rustls, whose alert is the one for this header.
            let _ = self.connection.read_tls(&mut &REFUSED[..]);
            let _ = self.connection.process_new_packets();
        }
    }

    fn refused(&self, error: rustls::Error) -> HandshakeError {
        match (error, &self.role) {
            (rustls::Error::InvalidCertificate(error), Role::Client(host)) => {
                HandshakeError::Certificate {
                    host: Arc::clone(host),
                    reason: reason(&error),
                }
            }
            (error, _) => error.into(),
        }
    }

    /// Appends what is to be sent to `out`.
    pub fn transmit(&mut self, out: &mut Vec<u8>) {
        while self.connection.wants_write() {
            // Writing to memory cannot fail.
            if self.connection.write_tls(out).is_err() {
                return;
            }
        }
        out.append(&mut self.alert);
    }

    /// The suite of TLS 1.3 that was agreed on.
    fn suite(&self) -> Result<Suite, TlsError> {
        let chosen = self.connection.negotiated_cipher_suite();
        match chosen.map(|suite| suite.suite()) {
            Some(CipherSuite::TLS13_AES_128_GCM_SHA256) => Ok(Suite::Aes128Gcm),
            Some(CipherSuite::TLS13_AES_256_GCM_SHA384) => Ok(Suite::Aes256Gcm),
            Some(CipherSuite::TLS13_CHACHA20_POLY1305_SHA256) => Ok(Suite::ChaCha20Poly1305),
            _ => Err(TlsError::Keys),
        }
    }

    /// Returns true if it is one of TLS 1.3.
    pub fn is_tls13(&self) -> bool {
        self.connection.protocol_version() == Some(ProtocolVersion::TLSv1_3)
    }

    /// Returns true if it resumes a session by a ticket, so that no certificate is shown.
    pub fn is_resumed(&self) -> bool {
        self.connection.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    /// Returns true if an application protocol was agreed on (ALPN).
    pub fn has_protocol(&self) -> bool {
        self.connection.alpn_protocol().is_some()
    }

    /// Returns true if the application protocol that was agreed on is HTTP/2.
    ///
    /// Shape: under TLS 1.2, too, as rustls has none of the cipher suites that HTTP/2 forbids.
    ///
    /// Source: RFC 9113 sections 3.2 and 9.2.2.
    pub fn is_http2(&self) -> bool {
        self.connection.alpn_protocol() == Some(HTTP2)
    }

    /// Returns true if it is complete.
    pub fn is_done(&self) -> bool {
        !self.connection.is_handshaking()
    }

    /// Keeps what an established connection needs: of TLS 1.3 the secrets and counters, of TLS 1.2
    /// the objects of rustls.
    ///
    /// # Errors
    /// If it is not complete, or not everything was [transmitted](Self::transmit).
    pub fn finish(self) -> Result<Established, HandshakeError> {
        if !self.is_done() {
            return Err(rustls::Error::HandshakeNotComplete.into());
        }
        let shown = self.shown();
        if !self.is_tls13() {
            let session = Tls12::new(self.connection, shown);
            return Ok(Established::Tls12(Box::new(session)));
        }
        let suite = self.suite()?;
        let extracted = self.connection.dangerous_extract_secrets()?;
        let Captured { client, server } = &self.secrets;
        let (receiving, sending) = match self.role {
            Role::Server(_) => (client, server),
            Role::Client(_) => (server, client),
        };
        let secrets = Secrets {
            receiving,
            sending,
            received: extracted.rx.0,
            sent: extracted.tx.0,
        };
        let mut session = Session::new(suite, secrets)?;
        if matches!(self.role, Role::Client(_)) {
            session.peer = Peer::Server;
        }
        Ok(if shown.is_empty() {
            Established::Tls13(session)
        } else {
            Established::Known(Box::new(Known { session, shown }))
        })
    }

    /// The facts of a client that are kept. Those of a server are not: its certificates are
    /// verified, and no more is done with them.
    fn shown(&self) -> Shown {
        let (Role::Server(kept), Connection::Server(connection)) = (&self.role, &self.connection)
        else {
            return Shown::default();
        };
        let chain = connection.peer_certificates();
        let name = connection.server_name().filter(|_| kept.server_name);
        Shown {
            client: KeptClient::of(kept.of_client, chain, kept.are_verified),
            server_name: name.map(Box::from),
        }
    }
}

/// The size of the record at the front of `input` with its header; `None` if the header is not
/// whole. `is_first` says that nothing came before it, `is_server` that the peer is a client.
fn record_bytes(
    input: &[u8],
    is_first: bool,
    is_server: bool,
) -> Result<Option<usize>, HandshakeError> {
    let [kind, rest @ ..] = input else {
        return Ok(None);
    };
    match (*kind, rest) {
        (content::HANDSHAKE, _) => {}
        (20 | content::ALERT | content::DATA, _) if !is_first => {}
        // A server may refuse at once.
        (content::ALERT, _) if !is_server => {}
        // A record of TLS, and not the beginning of something else.
        (20 | content::ALERT | content::DATA, []) => return Ok(None),
        (20 | content::ALERT | content::DATA, [3, ..]) => {
            return Err(HandshakeError::Record(TlsError::RecordType(*kind)));
        }
        _ if is_first => return Err(HandshakeError::NotTls),
        _ => return Err(HandshakeError::Record(TlsError::RecordType(*kind))),
    }
    let [_, _, high, low, ..] = *rest else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > RECORD_BYTES_MAX - HEADER_BYTES {
        return Err(HandshakeError::Record(TlsError::RecordTooLong(length)));
    }
    Ok(Some(HEADER_BYTES + length))
}

/// The alert for an error of rustls that it does not tell the peer itself.
fn alert_of(error: &rustls::Error) -> Option<Alert> {
    use rustls::Error;
    match error {
        Error::AlertReceived(_) => None,
        Error::InvalidMessage(_) => Some(Alert::DecodeError),
        Error::General(_) | Error::Other(_) => Some(Alert::InternalError),
        _ => Some(Alert::UnexpectedMessage),
    }
}

/// The level of an alert that ends the connection.
const FATAL: u8 = 2;

impl HandshakeError {
    /// The kind of the error, of few, to be counted by.
    pub fn fault(&self) -> HandshakeFault {
        use rustls::Error;
        match self {
            Self::NotTls => HandshakeFault::NotTls,
            Self::Certificate { .. } => HandshakeFault::Certificate,
            Self::Refused(Error::NoApplicationProtocol | Error::PeerIncompatible(_)) => {
                HandshakeFault::Incompatible
            }
            Self::Refused(Error::AlertReceived(_)) => HandshakeFault::Alert,
            Self::Refused(Error::InvalidCertificate(_) | Error::NoCertificatesPresented) => {
                HandshakeFault::Certificate
            }
            Self::Record(TlsError::Keys) | Self::Refused(Error::General(_) | Error::Other(_)) => {
                HandshakeFault::Internal
            }
            Self::ServerNotTls(_) | Self::TooLong(_) | Self::Record(_) | Self::Refused(_) => {
                HandshakeFault::Protocol
            }
        }
    }
}

impl From<rustls::Error> for HandshakeError {
    fn from(error: rustls::Error) -> Self {
        Self::Refused(error)
    }
}

impl From<TlsError> for HandshakeError {
    fn from(error: TlsError) -> Self {
        Self::Record(error)
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotTls => f.write_str("client does not speak TLS"),
            Self::ServerNotTls(host) => write!(f, "{host} does not speak TLS"),
            Self::TooLong(bytes) => {
                write!(f, "handshake exceeds {HANDSHAKE_BYTES_MAX} bytes: {bytes}")
            }
            Self::Refused(_) => f.write_str("refused"),
            Self::Certificate { host, reason } => {
                write!(f, "certificate of {host} is refused: {reason}")
            }
            Self::Record(_) => f.write_str("record of a handshake failed"),
        }
    }
}

impl std::error::Error for HandshakeError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Refused(error) => Some(error),
            Self::Record(error) => Some(error),
            Self::NotTls | Self::ServerNotTls(_) | Self::TooLong(_) | Self::Certificate { .. } => {
                None
            }
        }
    }
}

/// The traffic secrets that rustls has logged for a connection.
#[derive(Default)]
struct Captured {
    client: Zeroizing<Vec<u8>>,
    server: Zeroizing<Vec<u8>>,
}

thread_local! {
    /// The secrets logged while a handshake of this thread is fed. rustls logs within that call.
    static CAPTURED: RefCell<Option<Captured>> = const { RefCell::new(None) };
}

impl Captured {
    fn add(&mut self, other: Self) {
        if !other.client.is_empty() {
            self.client = other.client;
        }
        if !other.server.is_empty() {
            self.server = other.server;
        }
    }
}

impl fmt::Debug for Captured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Captured")
    }
}

/// Gives the traffic secrets of a handshake to the one that is fed, and to nothing else.
#[derive(Debug)]
pub(crate) struct Capture;

const CLIENT: &str = "CLIENT_TRAFFIC_SECRET_0";
const SERVER: &str = "SERVER_TRAFFIC_SECRET_0";

impl KeyLog for Capture {
    fn log(&self, label: &str, _: &[u8], secret: &[u8]) {
        CAPTURED.with_borrow_mut(|captured| {
            let Some(captured) = captured else {
                return;
            };
            match label {
                CLIENT => captured.client = Zeroizing::new(secret.to_vec()),
                SERVER => captured.server = Zeroizing::new(secret.to_vec()),
                _ => {}
            }
        });
    }

    fn will_log(&self, label: &str) -> bool {
        matches!(label, CLIENT | SERVER)
    }
}
