//! Requests that leave the loop.

use super::body::RequestBody;
use crate::{PeerCertificates, Reply, Request};
use dwell_proto::http1::Version;
use std::net::SocketAddr;

/// A request that owns its head, for other threads.
#[derive(Debug)]
pub struct OwnedRequest {
    /// The method, in the client's case.
    pub method: String,
    /// The request target as it came.
    pub target: String,
    /// The protocol version.
    pub version: Version,
    /// The field lines in the order they came.
    pub fields: Vec<(String, Vec<u8>)>,
    /// The client's address; `None` over a unix socket, or when it is gone.
    pub peer: Option<SocketAddr>,
    /// True of a request that came under TLS.
    pub is_secure: bool,
    /// The certificates that the client has shown, of which the first was verified.
    pub peer_certificates: Option<PeerCertificates>,
    /// The body.
    pub body: RequestBody,
    path: (usize, usize),
}

impl OwnedRequest {
    pub(super) fn new(request: &Request<'_>, reply: &Reply<'_>, body: RequestBody) -> Self {
        let head = request.head;
        let fields = head.fields.iter();
        Self {
            method: head.method.into(),
            target: head.target.into(),
            version: head.version,
            fields: fields
                .map(|(name, value)| (name.into(), value.into()))
                .collect(),
            peer: reply.peer_address(),
            is_secure: request.is_secure,
            peer_certificates: reply.peer_certificates().cloned(),
            body,
            path: place_of(head.path, head.target),
        }
    }

    /// The path of the target, before any `?`.
    pub fn path(&self) -> &str {
        self.target.get(self.path.0..self.path.1).unwrap_or("/")
    }

    /// Returns the part of the target after its first `?`.
    pub fn query(&self) -> Option<&str> {
        self.target.split_once('?').map(|(_, query)| query)
    }

    /// The value of the first field of this name, in any case.
    pub fn field(&self, name: &str) -> Option<&[u8]> {
        let mut fields = self.fields.iter();
        let (_, value) = fields.find(|(found, _)| found.eq_ignore_ascii_case(name))?;
        Some(value)
    }
}

/// Returns the range of the path in the target; one beyond its end if an absolute form has no path.
fn place_of(path: &str, target: &str) -> (usize, usize) {
    let end = target.find('?').unwrap_or(target.len());
    if target[..end].ends_with(path) {
        (end - path.len(), end)
    } else {
        (usize::MAX, usize::MAX)
    }
}
