//! The header of the PROXY protocol, with which the connections of a balancer begin.

use crate::app::ProxyHeaderFailure;
use dwell_evloop::Peer;
use dwell_proto::proxy_protocol::{HEADER_BYTES_MAX, parse};

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
