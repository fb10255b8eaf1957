//! The header of the PROXY protocol, with which the connections of a balancer begin.

use super::accept::HANDSHAKE_TIMEOUT;
use super::visit::{Fate, Visit};
use crate::app::{App, HttpEvent, ProxyHeaderFailure};
use crate::connection::Phase;
use dwell_proto::proxy_protocol::{HEADER_BYTES_MAX, parse};

impl<A: App> Visit<'_, A> {
    /// Looks for the header, which stays in the socket until it is whole. `is_reset` says that the
    /// connection has failed.
    pub(super) fn preface(&mut self, is_reset: bool) -> Fate {
        if is_reset {
            return self.preface_failed(ProxyHeaderFailure::Closed);
        }
        let peer = &mut self.connection.peer;
        let mut bytes = [0; HEADER_BYTES_MAX];
        let come = match peer.stream.peek(&mut bytes) {
            Ok(None) => return Fate::Keep,
            Ok(Some(come @ 1..)) => come,
            Ok(Some(0)) | Err(_) => return self.preface_failed(ProxyHeaderFailure::Closed),
        };
        let header = match parse(&bytes[..come]) {
            Ok(Some(header)) => header,
            Ok(None) if peer.has_ended() => {
                return self.preface_failed(ProxyHeaderFailure::Closed);
            }
            Ok(None) => return Fate::Keep,
            Err(_) => return self.preface_failed(ProxyHeaderFailure::Invalid),
        };
        if peer.stream.skip(header.bytes).is_err() {
            return self.preface_failed(ProxyHeaderFailure::Closed);
        }
        if let Some(source) = header.source {
            peer.stream.set_peer_address(source);
        }
        if !self.app.identified(self.context, &mut peer.stream) {
            return Fate::Close;
        }
        self.connection.leave_preface();
        if self.connection.phase == Phase::Handshake {
            self.context.arm(self.token, HANDSHAKE_TIMEOUT);
            return self.handshake(false);
        }
        self.established()
    }

    pub(super) fn preface_failed(&mut self, why: ProxyHeaderFailure) -> Fate {
        let from = self.connection.peer.stream.peer_address().ok().flatten();
        self.app.event(HttpEvent::ProxyHeaderFailed { why, from });
        Fate::Close
    }
}
