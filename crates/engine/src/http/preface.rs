//! The part of a connection before HTTP: the header of the PROXY protocol, with which those of a
//! balancer begin, and the handshake of TLS.

use crate::app::ProxyHeaderFailure;
use dwell_evloop::Peer;
use dwell_proto::proxy_protocol::{HEADER_BYTES_MAX, parse};
use std::time::Duration;

/// Time for the handshake of TLS, and for the header of the PROXY protocol before it.
pub(super) const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);

/// The answer to HTTP without TLS on a listener that speaks TLS.
pub(super) const NOT_TLS: &[u8] = b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\
Content-Type: text/plain; charset=utf-8\r\nContent-Length: 46\r\n\r\n\
This port speaks HTTPS: use https:// and TLS.\n";

/// Takes the header out of the socket, where it stays until it is whole, and has the peer known by
/// the address in it. Returns false while it is not whole.
pub(super) fn take_header<N>(peer: &mut Peer<N>) -> Result<bool, ProxyHeaderFailure> {
    let mut bytes = [0; HEADER_BYTES_MAX];
    let come = match peer.stream.peek(&mut bytes) {
        Ok(None) => return Ok(false),
        Ok(Some(come @ 1..)) => come,
        Ok(Some(0)) | Err(_) => return Err(ProxyHeaderFailure::Closed),
    };
    let header = match parse(&bytes[..come]) {
        Ok(Some(header)) => header,
        Ok(None) if peer.has_ended() => return Err(ProxyHeaderFailure::Closed),
        Ok(None) => return Ok(false),
        Err(_) => return Err(ProxyHeaderFailure::Invalid),
    };
    let skipped = peer.stream.skip(header.bytes);
    skipped.map_err(|_| ProxyHeaderFailure::Closed)?;
    if let Some(source) = header.source {
        peer.stream.set_peer_address(source);
    }
    Ok(true)
}
