//! Actions of the engine that it reports to an app.

use dwell_evloop::{Agreed, HandshakeFailure};
use std::net::SocketAddr;

/// Actions of the engine that no app asked for; for counting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum HttpEvent {
    /// A connection came.
    Accepted,
    /// A connection was closed because there are too many.
    Refused,
    /// No descriptor was left to accept with.
    Exhausted,
    /// The engine answered a request without the app.
    Rejected {
        /// The status of the answer.
        status: u16,
        /// The [label](crate::Http::label) of the listener, if it has one.
        listener: Option<u8>,
    },
    /// A client took nothing of its answer for too long.
    WriteTimeout,
    /// The handshake of a client under TLS is complete.
    HandshakeDone(Agreed),
    /// The handshake of a client has ended without a result.
    HandshakeFailed(HandshakeFailure),
    /// A client began a handshake of TLS on a plain listener, and was closed.
    TlsOnPlain,
    /// A client took too long for its body, behind an answer that had begun.
    BodyTimeout,
    /// A connection has not begun with the header of the PROXY protocol, and was closed.
    ProxyHeaderFailed {
        /// The reason.
        why: ProxyHeaderFailure,
        /// The address of the connection, if it has one.
        from: Option<SocketAddr>,
    },
}

/// The reason why a connection has no header of the PROXY protocol.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ProxyHeaderFailure {
    /// It begins with something else.
    Invalid,
    /// The header has not come in time.
    Late,
    /// The connection has ended before.
    Closed,
}
