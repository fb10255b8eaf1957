//! TLS of one connection without I/O: its caller carries the bytes.

use dwell_tls::{Connector, Established, FRAGMENT_BYTES_MAX, Handshake, HandshakeError};
use dwell_tls::{Keys, Opened, TlsError};
use std::fmt;

use super::fault::Fault;

/// The records of a connection whose handshake is over.
#[derive(Debug)]
pub(super) struct Records {
    established: Established,
    keys: Keys,
}

impl Records {
    pub(super) fn of(handshake: Handshake) -> Result<Self, HandshakeError> {
        Ok(Self {
            established: handshake.finish()?,
            keys: Keys::new(KEYS_MAX),
        })
    }

    /// Appends a request to `out`.
    ///
    /// Shape: the last byte of a request of several records has one of its own. memcached (1.6.18
    /// for one) waits for its socket while a part of a record that its buffer had no room for lies
    /// in OpenSSL. As long as a record is in the socket it does not wait, and one byte is always
    /// read whole.
    pub(super) fn seal(&mut self, request: &[u8], out: &mut Vec<u8>) -> Result<(), TlsError> {
        let alone = usize::from(request.len() > FRAGMENT_BYTES_MAX);
        let (most, last) = request.split_at(request.len() - alone);
        for part in [most, last] {
            self.established.seal(&mut self.keys, &[part], out)?;
        }
        Ok(())
    }

    /// Opens the records at the front of `input` that are whole, in place.
    pub(super) fn open(&mut self, input: &mut [u8]) -> Result<Opened, TlsError> {
        self.established.open(&mut self.keys, input)
    }

    /// Returns true if the server has said that it sends no more.
    pub(super) fn is_ended(&self) -> bool {
        self.established.is_ended()
    }

    /// Appends what the protocol has us answer.
    fn answer(&mut self, out: &mut Vec<u8>) -> Result<(), TlsError> {
        if self.established.owes() {
            self.established.answer(&mut self.keys, out)?;
        }
        Ok(())
    }

    /// Appends that nothing more is sent.
    pub(super) fn close(&mut self, out: &mut Vec<u8>) -> Result<(), TlsError> {
        self.established.close(&mut self.keys, out)
    }

    /// Appends the alert for a fault.
    pub(super) fn abort(&mut self, fault: &TlsError, out: &mut Vec<u8>) -> Result<(), TlsError> {
        self.established.abort(&mut self.keys, fault, out)
    }
}

/// TLS of one connection to a server, for event loops that are not this crate's.
///
/// Shape: [`Carried::secure`](super::Carried::secure) makes one for each connection. After each
/// call, send what [`transmit`](Self::transmit) returns. Pass on all that the server sends by
/// [`receive`](Self::receive). Once it [is ready](Self::is_ready), [`seal`](Self::seal)
/// takes requests. After a fault, close the connection. It holds no more than one record between
/// calls.
#[derive(Debug)]
pub struct Secured {
    phase: Phase,
    input: Vec<u8>,
    output: Vec<u8>,
}

#[derive(Debug)]
enum Phase {
    Handshake(Box<Handshake>),
    Ready(Box<Records>),
    Failed,
}

/// A fault of TLS, for [`Interruption::Tls`](super::Interruption::Tls).
#[derive(Clone, PartialEq, Debug)]
pub struct SecureFault(Kind);

#[derive(Clone, PartialEq, Debug)]
enum Kind {
    Handshake(HandshakeError),
    Record(TlsError),
}

impl Secured {
    pub(super) fn begin(connector: &Connector) -> Result<Self, SecureFault> {
        let mut handshake = connector.begin()?;
        let mut output = Vec::new();
        handshake.transmit(&mut output);
        Ok(Self {
            phase: Phase::Handshake(Box::new(handshake)),
            input: Vec::new(),
            output,
        })
    }

    /// Returns true if the handshake is over, so that requests may be sent.
    pub const fn is_ready(&self) -> bool {
        matches!(self.phase, Phase::Ready(_))
    }

    /// Returns true if the server has said that it sends no more.
    pub fn is_ended(&self) -> bool {
        matches!(&self.phase, Phase::Ready(records) if records.is_ended())
    }

    /// Returns the bytes that are to be sent, once.
    pub fn transmit(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.output)
    }

    /// Takes bytes that the server has sent; returns the data in them, perhaps none.
    ///
    /// # Errors
    /// A fault of the server, after which nothing is received. The alert for it is to be sent.
    pub fn receive(&mut self, bytes: &[u8]) -> Result<Vec<u8>, SecureFault> {
        self.input.extend_from_slice(bytes);
        let received = self.receive_input();
        if received.is_err() {
            self.phase = Phase::Failed;
            self.input = Vec::new();
        }
        received
    }

    fn receive_input(&mut self) -> Result<Vec<u8>, SecureFault> {
        if let Phase::Handshake(handshake) = &mut self.phase {
            let used = handshake.receive(&self.input);
            handshake.transmit(&mut self.output);
            self.input.drain(..used?);
            if !handshake.is_done() {
                return Ok(Vec::new());
            }
        }
        self.phase = match std::mem::replace(&mut self.phase, Phase::Failed) {
            Phase::Handshake(handshake) => Phase::Ready(Box::new(Records::of(*handshake)?)),
            other => other,
        };
        let Phase::Ready(records) = &mut self.phase else {
            self.input.clear();
            return Ok(Vec::new());
        };
        match records.open(&mut self.input) {
            Ok(Opened { used, data }) => {
                records.answer(&mut self.output)?;
                let rest = self.input.split_off(used);
                let mut opened = std::mem::replace(&mut self.input, rest);
                opened.truncate(data);
                Ok(opened)
            }
            Err(fault) => {
                // A server that does not hear of it sees the end of the connection all the same.
                let _ = records.abort(&fault, &mut self.output);
                Err(fault.into())
            }
        }
    }

    /// Takes a request that is to be sent.
    ///
    /// # Errors
    /// It [is not ready](Self::is_ready), or its keys are used up.
    pub fn seal(&mut self, request: &[u8]) -> Result<(), SecureFault> {
        match &mut self.phase {
            Phase::Ready(records) => Ok(records.seal(request, &mut self.output)?),
            _ => Err(TlsError::Keys.into()),
        }
    }

    /// Has the server told that nothing more is sent.
    pub fn close(&mut self) {
        if let Phase::Ready(records) = &mut self.phase {
            // Without it the server sees the end of the connection all the same.
            let _ = records.close(&mut self.output);
        }
    }
}

impl SecureFault {
    pub(super) fn into_fault(self) -> Fault {
        match self.0 {
            Kind::Handshake(error) => refused(error),
            Kind::Record(error) => broken(error),
        }
    }
}

impl From<HandshakeError> for SecureFault {
    fn from(error: HandshakeError) -> Self {
        Self(Kind::Handshake(error))
    }
}

impl From<TlsError> for SecureFault {
    fn from(error: TlsError) -> Self {
        Self(Kind::Record(error))
    }
}

impl fmt::Display for SecureFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match &self.0 {
            Kind::Handshake(_) => "handshake of TLS failed",
            Kind::Record(_) => "record of TLS failed",
        })
    }
}

impl std::error::Error for SecureFault {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match &self.0 {
            Kind::Handshake(error) => Some(error),
            Kind::Record(error) => Some(error),
        }
    }
}

/// The fault of a connection whose handshake failed.
pub(super) fn refused(error: HandshakeError) -> Fault {
    match error {
        HandshakeError::Certificate { host, reason } => Fault::Certificate { host, reason },
        error => Fault::Tls(Box::new(error)),
    }
}

/// The fault of a connection whose records failed.
pub(super) fn broken(error: TlsError) -> Fault {
    Fault::Tls(Box::new(error))
}

/// The keys of a connection: one for each direction.
const KEYS_MAX: usize = 2;
