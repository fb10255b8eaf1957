//! A request on its way from the gate to its answer or its wait.

use super::ask::Ask;
use crate::access::{CorsGrant, Identity};
use crate::config::RouteId;
use dwell_engine::Request;

/// A request that its route has admitted, with its client.
#[derive(Clone, Copy)]
pub(super) struct Admitted<'a> {
    pub(super) route: RouteId,
    pub(super) request: &'a Request<'a>,
    pub(super) identity: &'a Identity,
}

/// A request that asks for one key, or is no poll.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub(super) ask: Ask,
    pub(super) route: RouteId,
    /// Its key; empty for a request that is no poll.
    pub(super) name: &'a [u8],
    pub(super) request: &'a Request<'a>,
    pub(super) origin: CorsGrant,
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
