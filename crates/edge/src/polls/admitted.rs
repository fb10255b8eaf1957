//! A request on its way from the gate to its answer or its wait.

use super::ask::Ask;
use super::hold::Arrival;
use crate::access::Identity;
use dwell_engine::Request;

/// A request that its route has admitted, with its client.
#[derive(Clone, Copy)]
pub(super) struct Admitted<'a> {
    pub(super) route: u16,
    pub(super) request: &'a Request<'a>,
    pub(super) identity: &'a Identity,
}

impl<'a> Admitted<'a> {
    /// The request as one for the key `name`.
    pub(super) fn arrival(self, ask: Ask, name: &'a [u8]) -> Arrival<'a> {
        Arrival {
            ask,
            route: self.route,
            name,
            request: self.request,
            origin: self.identity.origin,
        }
    }
}
