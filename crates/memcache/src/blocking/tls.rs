//! TLS between a connection and its socket.

use std::sync::Arc;

pub use dwell_tls::{Certificate, CertificateError, ClientTls, Roots};
pub(crate) use dwell_tls::{Connector, RECORD_BYTES_MAX};
use dwell_tls::{Handshake, Opened, TlsError};
use rustix::event::PollFlags;

use super::Error;
use super::budget::Budget;
use super::fault::Fault;
use super::records::{Records, broken, refused};
use super::socket::{Socket, Transfer};

/// TLS of the connections of a client.
///
/// Shape: cloned freely. The certificate of a server has to be for the host of its address, unless
/// [`with_server_name`](Self::with_server_name) names another one.
///
/// ```no_run
/// use dwell_memcache::{Client, ClientOptions, ClientTls, Roots, Tls};
///
/// let authority = std::fs::read("/etc/memcached/authority.pem")?;
/// let settings = ClientTls::new(&Roots::from_pem(&authority)?, None, &[])?;
/// let options = ClientOptions {
///     tls: Some(Tls::new(settings)),
///     ..ClientOptions::default()
/// };
/// let client = Client::new(&["cache-1:11211".parse()?], options)?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug)]
pub struct Tls(Arc<Settings>);

#[derive(Debug)]
struct Settings {
    client: ClientTls,
    server_name: Option<String>,
}

impl Tls {
    /// Trusts and shows the certificates of `settings`.
    pub fn new(settings: ClientTls) -> Self {
        Self(Arc::new(Settings {
            client: settings,
            server_name: None,
        }))
    }

    /// The same, for servers whose certificates are for this name: a host name, or an address
    /// without brackets.
    #[must_use]
    pub fn with_server_name(&self, name: impl Into<String>) -> Self {
        Self(Arc::new(Settings {
            client: self.0.client.clone(),
            server_name: Some(name.into()),
        }))
    }

    /// Returns the connector for the server on `host`.
    pub(crate) fn connector(&self, host: &str) -> Result<Connector, Error> {
        let name = self.0.server_name.as_deref().unwrap_or(host);
        let connector = self.0.client.connector(name);
        connector.map_err(|_| Error::ServerName {
            name: name.to_owned(),
        })
    }
}

/// Two are equal that are clones of the same.
impl PartialEq for Tls {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Tls {}

/// The record layer of one connection.
#[derive(Debug)]
pub(crate) struct Layer {
    records: Records,
    /// The records of the current request, of which the first `sent` bytes are out.
    output: Vec<u8>,
    sent: usize,
}

impl Layer {
    /// Does the handshake within the budget. Returns what came behind it as well.
    pub(crate) fn shake(
        connector: &Connector,
        socket: &Socket,
        budget: &Budget,
    ) -> Result<(Self, Vec<u8>), Fault> {
        let mut handshake = connector.begin().map_err(refused)?;
        let mut output = Vec::new();
        let mut input = vec![0; RECORD_BYTES_MAX];
        let mut have = 0;
        loop {
            output.clear();
            handshake.transmit(&mut output);
            send_all(socket, &output, budget)?;
            if handshake.is_done() {
                break;
            }
            have += receive(socket, &mut input[have..], budget)?;
            let used = handshake.receive(&input[..have]);
            let used = used.map_err(|error| {
                tell(&mut handshake, socket);
                refused(error)
            })?;
            input.copy_within(used..have, 0);
            have -= used;
        }
        input.truncate(have);
        let layer = Self {
            records: Records::of(handshake).map_err(refused)?,
            output: Vec::new(),
            sent: 0,
        };
        Ok((layer, input))
    }

    /// Prepares for another request.
    pub(crate) fn begin(&mut self) {
        self.sent = 0;
        if self.output.capacity() > OUTPUT_KEEP_BYTES_MAX {
            self.output = Vec::new();
        }
        self.output.clear();
    }

    /// Seals a request, once.
    pub(crate) fn seal(&mut self, request: &[u8]) -> Result<(), Fault> {
        if !self.output.is_empty() {
            return Ok(());
        }
        let sealed = self.records.seal(request, &mut self.output);
        sealed.map_err(broken)
    }

    /// Returns the bytes that are to be sent.
    pub(crate) fn unsent(&self) -> &[u8] {
        &self.output[self.sent..]
    }

    pub(crate) fn has_sent(&mut self, bytes: usize) {
        self.sent += bytes;
    }

    /// Returns true if the request was sealed and is out.
    pub(crate) fn is_sent(&self) -> bool {
        !self.output.is_empty() && self.sent == self.output.len()
    }

    /// Opens the records at the front of `input` that are whole, in place. Returns the bytes that
    /// they have, and those of their data, which are at the front then.
    pub(crate) fn open(
        &mut self,
        input: &mut [u8],
        socket: &Socket,
    ) -> Result<(usize, usize), Fault> {
        match self.records.open(input) {
            Ok(Opened { used, data }) => Ok((used, data)),
            Err(error) => {
                self.abort(&error, socket);
                Err(broken(error))
            }
        }
    }

    /// Returns true if the server has said that it sends no more.
    pub(crate) fn is_ended(&self) -> bool {
        self.records.is_ended()
    }

    /// Tells the server that nothing more is sent.
    pub(crate) fn close(&mut self, socket: &Socket) {
        self.last(socket, Records::close);
    }

    fn abort(&mut self, fault: &TlsError, socket: &Socket) {
        self.last(socket, |records, out| records.abort(fault, out));
    }

    /// Sends a last record, if the socket takes it. In the middle of another it would be none.
    fn last(
        &mut self,
        socket: &Socket,
        record: impl FnOnce(&mut Records, &mut Vec<u8>) -> Result<(), TlsError>,
    ) {
        if !self.unsent().is_empty() {
            return;
        }
        self.begin();
        let sealed = record(&mut self.records, &mut self.output);
        if sealed.is_ok() && !self.output.is_empty() {
            // A server that does not hear of it sees the end of the connection all the same.
            let _ = socket.send_now(&self.output);
        }
    }
}

/// Sends the alert for a fault in a handshake, if the socket takes it.
fn tell(handshake: &mut Handshake, socket: &Socket) {
    let mut alert = Vec::new();
    handshake.transmit(&mut alert);
    if !alert.is_empty() {
        // The connection ends, whether or not the server hears why.
        let _ = socket.send_now(&alert);
    }
}

fn send_all(socket: &Socket, bytes: &[u8], budget: &Budget) -> Result<(), Fault> {
    let mut sent = 0;
    while sent < bytes.len() {
        let rest = budget.rest()?;
        match socket.send_now(&bytes[sent..])? {
            Transfer::Bytes(count) => sent += count,
            Transfer::Later => {
                socket.wait(PollFlags::OUT, rest)?;
            }
        }
    }
    Ok(())
}

/// Waits for bytes. Every round reads the clock, so bytes that drip do not move the end.
fn receive(socket: &Socket, buffer: &mut [u8], budget: &Budget) -> Result<usize, Fault> {
    loop {
        socket.wait(PollFlags::IN, budget.rest()?)?;
        match socket.receive_now(buffer)? {
            Transfer::Bytes(0) => return Err(Fault::Closed),
            Transfer::Bytes(count) => return Ok(count),
            Transfer::Later => {}
        }
    }
}

/// The size that the records of a request may keep; memory beyond this is given back after it.
const OUTPUT_KEEP_BYTES_MAX: usize = 128 * 1024;
