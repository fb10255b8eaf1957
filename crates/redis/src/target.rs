//! The server that a connection is made to.

use crate::Endpoint;
use crate::greeting::Step;
use dwell_evloop::{Connector, Stream};
use std::io;
use std::net::SocketAddr;

/// The place of a server, and what is known of it where Sentinels have to name it.
#[derive(Debug)]
pub(crate) struct Target {
    endpoint: Endpoint,
    /// Connections of which a Sentinel was asked, or is: they are asked in turn.
    asked: usize,
    /// The server of the connection that was begun last, if Sentinels have named it.
    named: Option<SocketAddr>,
    /// The server of another connection, which this one follows: no Sentinel is asked.
    lead: Option<SocketAddr>,
}

impl Target {
    pub(crate) fn new(endpoint: Endpoint) -> Self {
        Self {
            endpoint,
            asked: 0,
            named: None,
            lead: None,
        }
    }

    /// The name of a primary that Sentinels know.
    pub(crate) fn name(&self) -> Option<&str> {
        match &self.endpoint {
            Endpoint::Primary { name, .. } => Some(name),
            Endpoint::Tcp(_) | Endpoint::Unix(_) | Endpoint::Cluster(_) => None,
        }
    }

    /// The server that was connected to last, if Sentinels have named it.
    pub(crate) fn named(&self) -> Option<SocketAddr> {
        self.named
    }

    /// Asks other Sentinels from the next connection on.
    pub(crate) fn ask_others(&mut self, endpoint: Endpoint) {
        self.endpoint = endpoint;
    }

    /// The next connection is to the server that another one has, if that has one.
    pub(crate) fn follow(&mut self, lead: Option<SocketAddr>) {
        self.lead = lead;
    }

    /// Begins a connection to the server, or to one that knows it, with the first step of its
    /// greeting.
    pub(crate) fn connect(&mut self, tls: Option<&Connector>) -> io::Result<(Stream, Step)> {
        self.named = None;
        match &self.endpoint {
            Endpoint::Tcp(address) => Ok((connect(*address, tls)?, Step::Hello)),
            Endpoint::Unix(path) => Ok((Stream::connect_unix(path)?, Step::Hello)),
            // Its servers have targets of their own.
            Endpoint::Cluster(_) => Err(io::ErrorKind::NotFound.into()),
            Endpoint::Primary { sentinels, .. } => {
                if let Some(lead) = self.lead {
                    self.named = Some(lead);
                    return Ok((connect(lead, tls)?, Step::Hello));
                }
                let sentinel = sentinels.get(self.asked % sentinels.len().max(1));
                self.asked = self.asked.wrapping_add(1);
                let sentinel = sentinel.ok_or(io::ErrorKind::NotFound)?;
                Ok((connect(*sentinel, tls)?, Step::Sentinel))
            }
        }
    }

    /// Begins the connection to the server that a Sentinel has named.
    pub(crate) fn turn_to(
        &mut self,
        primary: SocketAddr,
        tls: Option<&Connector>,
    ) -> io::Result<Stream> {
        self.named = Some(primary);
        connect(primary, tls)
    }
}

/// Begins a connection, under TLS if there is a connector.
fn connect(address: SocketAddr, tls: Option<&Connector>) -> io::Result<Stream> {
    let mut stream = Stream::connect(address)?;
    if let Some(connector) = tls {
        stream.secure_client(connector)?;
    }
    Ok(stream)
}
