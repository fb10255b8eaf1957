//! The parts of a stream beside its socket, which most streams do not have.

use super::outcome::TlsFacts;
use super::queue::Queue;
use super::tls::{ClientNames, PeerCertificates, Tls};
use std::any::Any;
use std::net::SocketAddr;

/// A queue while the socket refuses bytes, the state of TLS, what is kept for as long as the stream
/// lives, and the address that its peer is known by.
#[derive(Debug, Default)]
pub(super) struct Beside(Option<Box<Parts>>);

#[derive(Debug, Default)]
struct Parts {
    queue: Option<Box<Queue>>,
    tls: Option<Box<Tls>>,
    kept: Option<Box<dyn Any + Send>>,
    origin: Option<Box<SocketAddr>>,
}

/// The place of a queue that may be there.
pub(super) type Place = Option<Box<Queue>>;

impl Beside {
    pub(super) fn queue(&self) -> Option<&Queue> {
        self.0.as_ref()?.queue.as_deref()
    }

    pub(super) fn queue_mut(&mut self) -> Option<&mut Queue> {
        self.0.as_mut()?.queue.as_deref_mut()
    }

    /// The queue; if it is missing, `begin` makes it.
    pub(super) fn queue_or_else(&mut self, begin: impl FnOnce() -> Queue) -> &mut Queue {
        let parts = self.0.get_or_insert_default();
        parts.queue.get_or_insert_with(|| Box::new(begin()))
    }

    /// The queue, if there is one, with the TLS that it is to go through.
    pub(super) fn queue_and_tls(&mut self) -> Option<(&mut Queue, Option<&mut Tls>)> {
        let parts = self.0.as_mut()?;
        Some((parts.queue.as_deref_mut()?, parts.tls.as_deref_mut()))
    }

    /// Lets go of the queue, and of its memory.
    pub(super) fn drop_queue(&mut self) {
        match &mut self.0 {
            Some(parts) if parts.has_more_than_a_queue() => parts.queue = None,
            parts => *parts = None,
        }
    }

    pub(super) fn keep(&mut self, kept: Box<dyn Any + Send>) {
        self.0.get_or_insert_default().kept = Some(kept);
    }

    pub(super) fn kept(&mut self) -> Option<&mut (dyn Any + Send)> {
        self.0.as_mut()?.kept.as_deref_mut()
    }

    pub(super) fn set_origin(&mut self, origin: SocketAddr) {
        self.0.get_or_insert_default().origin = Some(Box::new(origin));
    }

    /// The address that the peer is known by, if it is not that of the socket.
    pub(super) fn origin(&self) -> Option<SocketAddr> {
        self.0.as_ref()?.origin.as_deref().copied()
    }

    pub(super) fn has_tls(&self) -> bool {
        matches!(&self.0, Some(parts) if parts.tls.is_some())
    }

    pub(super) fn is_handshaking(&self) -> bool {
        let tls = self.0.as_ref().and_then(|parts| parts.tls.as_ref());
        tls.is_some_and(|tls| tls.is_handshaking())
    }

    pub(super) fn has_failed_tls(&self) -> bool {
        let tls = self.0.as_ref().and_then(|parts| parts.tls.as_ref());
        tls.is_some_and(|tls| tls.has_failed())
    }

    pub(super) fn can_freeze(&self) -> bool {
        let parts = self.0.as_ref().filter(|parts| parts.origin.is_none());
        let tls = parts.and_then(|parts| parts.tls.as_ref());
        tls.is_some_and(|tls| tls.can_freeze())
    }

    pub(super) fn suite_number(&self) -> Option<u16> {
        self.0.as_ref()?.tls.as_ref()?.suite_number()
    }

    pub(super) fn facts(&self) -> Option<TlsFacts<'_>> {
        self.0.as_ref()?.tls.as_ref()?.facts()
    }

    pub(super) fn peer_certificates(&self) -> Option<&PeerCertificates> {
        self.0.as_ref()?.tls.as_ref()?.peer_certificates()
    }

    pub(super) fn client_names(&self) -> Option<&ClientNames> {
        self.0.as_ref()?.tls.as_ref()?.client_names()
    }

    pub(super) fn is_cut_off(&self) -> bool {
        let tls = self.0.as_ref().and_then(|parts| parts.tls.as_ref());
        tls.is_some_and(|tls| !tls.is_ended())
    }

    pub(super) fn holds_input(&self) -> bool {
        let tls = self.0.as_ref().and_then(|parts| parts.tls.as_ref());
        tls.is_some_and(|tls| tls.holds_input())
    }

    pub(super) fn has_begun_record(&self) -> bool {
        let tls = self.0.as_ref().and_then(|parts| parts.tls.as_ref());
        tls.is_some_and(|tls| tls.has_begun_record())
    }

    pub(super) fn kept_input_bytes(&self) -> usize {
        let tls = self.0.as_ref().and_then(|parts| parts.tls.as_ref());
        tls.map_or(0, |tls| tls.kept_input_bytes())
    }

    pub(super) fn handshakes_max(&self) -> Option<usize> {
        self.0.as_ref()?.tls.as_ref()?.handshakes_max()
    }

    /// The TLS, if there is one, with the place of the queue.
    pub(super) fn tls(&mut self) -> Option<(&mut Tls, &mut Place)> {
        let parts = self.0.as_mut()?;
        Some((parts.tls.as_deref_mut()?, &mut parts.queue))
    }

    /// Puts this TLS between the stream and its socket.
    pub(super) fn begin_tls(&mut self, begin: impl FnOnce() -> Tls) {
        let parts = self.0.get_or_insert_default();
        parts.tls.get_or_insert_with(|| Box::new(begin()));
    }

    pub(super) fn drop_tls(&mut self) {
        if let Some(parts) = &mut self.0 {
            parts.tls = None;
        }
    }
}

impl Parts {
    fn has_more_than_a_queue(&self) -> bool {
        self.kept.is_some() || self.tls.is_some() || self.origin.is_some()
    }
}
