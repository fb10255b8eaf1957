//! TLS 1.3 for connections that mostly wait: an idle one keeps secrets and counters, and no more.
//!
//! [`Session`] is the record layer of an established connection (RFC 8446 sections 4.6.3, 5 and
//! 6): it opens and seals records, follows key updates, and asks for the alerts that errors call
//! for. Its keys are derived from the secrets when they are needed, and kept in [`Keys`] for
//! the connections that were used last. [Frozen](Session::freeze), it goes to another process.
//!
//! [`Acceptor`] begins [`Handshake`]s of servers and [`Connector`] those of clients, which rustls
//! does; what one leaves is [`Established`]. rustls is used in these modules and in those of
//! certificates alone.
//!
//! The crate does no I/O and reads no clock: bytes go in, bytes come out. (rustls reads it for
//! certificates and the age of tickets, and [`Roots::system`] reads the system's files.)
#![forbid(unsafe_code)]

mod acceptor;
mod alpn;
mod certificate;
mod clients;
mod connector;
mod error;
mod established;
mod handshake;
mod kept;
mod keys;
mod names;
mod receive;
mod send;
mod session;
mod shown;
mod suite;
#[cfg(test)]
mod tests;
mod tickets;
mod verifier;
mod x509;

pub use acceptor::{Acceptor, ClientVerification};
pub use certificate::{Certificate, CertificateError};
pub use connector::{ClientTls, Connector, NameError, Roots};
pub use error::{Alert, TlsError};
pub use established::{Established, Known, Tls12};
pub use handshake::{Handshake, HandshakeError, HandshakeFault};
pub use kept::KeptOfClient;
pub use keys::Keys;
pub use names::ClientNames;
pub use receive::Opened;
pub use send::sealed_bytes;
pub use session::{Secrets, Session};
pub use shown::PeerCertificates;
pub use suite::Suite;
pub use tickets::TicketKey;

/// Bytes of a record's header.
pub const HEADER_BYTES: usize = 5;

/// Application data in one record, at most (RFC 8446 section 5.1).
pub const FRAGMENT_BYTES_MAX: usize = 1 << 14;

/// Bytes of one record with its header, at most (RFC 8446 section 5.2).
pub const RECORD_BYTES_MAX: usize = HEADER_BYTES + FRAGMENT_BYTES_MAX + 256;

/// The content types of records (RFC 8446 section 5.1).
mod content {
    pub(crate) const ALERT: u8 = 21;
    pub(crate) const HANDSHAKE: u8 = 22;
    pub(crate) const DATA: u8 = 23;
}
