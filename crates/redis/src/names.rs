//! The names of a cluster, and what was tried at their addresses.

use crate::Endpoint;
use crate::link::{Attempts, Link};
use dwell_evloop::Context;
use std::collections::HashMap;
use std::net::SocketAddr;
use std::time::Instant;

/// The addresses that the names of a cluster lead to.
#[derive(Debug)]
pub(crate) struct Names {
    named: Vec<SocketAddr>,
    /// The attempts at those of them that were left for others.
    tried: HashMap<SocketAddr, Tried>,
}

impl Names {
    pub(crate) fn of(endpoint: &Endpoint) -> Self {
        let named = match endpoint {
            Endpoint::Cluster(named) => named.clone(),
            _ => Vec::new(),
        };
        Self {
            named,
            tried: HashMap::new(),
        }
    }

    /// Has the names lead to these addresses; false if the list is empty, or if they already do.
    pub(crate) fn lead_to(&mut self, named: &[SocketAddr]) -> bool {
        if named.is_empty() || named == self.named {
            return false;
        }
        self.named = named.to_vec();
        self.tried.retain(|address, _| named.contains(address));
        true
    }

    pub(crate) fn has(&self, address: SocketAddr) -> bool {
        self.named.contains(&address)
    }

    /// The address that may be tried now, and at which no server is: one that was not tried yet, or
    /// the one that has waited longest.
    pub(crate) fn next(&self, used: &[SocketAddr], now: Instant) -> Option<SocketAddr> {
        let next_at = |it: &SocketAddr| self.tried.get(it).and_then(|tried| tried.plain.next_at);
        let names = self.named.iter().copied();
        names
            .filter(|it| !used.contains(it) && next_at(it).is_none_or(|at| at <= now))
            .min_by_key(next_at)
    }

    /// Takes what was tried at an address, for a server that goes there.
    pub(crate) fn take(&mut self, address: SocketAddr) -> Option<Tried> {
        self.tried.remove(&address)
    }

    /// Keeps what a server that has left an address has tried there.
    pub(crate) fn leave(&mut self, address: Option<SocketAddr>, tried: Tried) {
        if let Some(address) = address.filter(|it| self.has(*it)) {
            self.tried.insert(address, tried);
        }
    }

    #[cfg(test)]
    pub(crate) fn forget_time(&mut self, address: SocketAddr) {
        if let Some(tried) = self.tried.get_mut(&address) {
            tried.plain.next_at = None;
        }
    }
}

/// The attempts of both connections to a place that was left.
#[derive(Debug)]
pub(crate) struct Tried {
    plain: Attempts,
    tracked: Attempts,
}

impl Tried {
    pub(crate) fn new(plain: Attempts, tracked: Attempts) -> Self {
        Self { plain, tracked }
    }

    /// Goes on with the attempts.
    pub(crate) fn resume(self, context: &mut Context, plain: &mut Link, tracked: &mut Link) {
        plain.resume(context, self.plain);
        tracked.resume(context, self.tracked);
    }
}
