//! Admission of clients' connections: bounds in total and per address.

use crate::access::{ConnectionLimiter, is_trusted};
use crate::config::Config;
use crate::descriptors::Descriptors;
use crate::metrics::{ConnectionRefusal, LoopMetrics};
use dwell_evloop::Stream;
use std::os::fd::RawFd;
use std::sync::Arc;

/// The bounds on the clients' connections of one loop.
#[derive(Debug)]
pub(crate) struct Admission {
    config: Arc<Config>,
    loops: usize,
    /// The share of this loop in `limits.connections_max`.
    connections_max: usize,
    connections: Arc<ConnectionLimiter>,
    descriptors: Arc<Descriptors>,
    descriptor_bound: RawFd,
    metrics: Arc<LoopMetrics>,
}

impl Admission {
    pub(crate) fn new(
        config: Arc<Config>,
        loops: usize,
        connections: Arc<ConnectionLimiter>,
        descriptors: Arc<Descriptors>,
        metrics: Arc<LoopMetrics>,
    ) -> Self {
        Self {
            connections_max: config.limits.connections_per_loop(loops),
            descriptor_bound: descriptors.bounds(&config).clients,
            config,
            loops,
            connections,
            descriptors,
            metrics,
        }
    }

    /// Applies a configuration; open connections stay.
    pub(super) fn reconfigure(&mut self, config: &Arc<Config>) {
        self.connections_max = config.limits.connections_per_loop(self.loops);
        self.descriptor_bound = self.descriptors.bounds(config).clients;
        self.config = Arc::clone(config);
    }

    /// Admits a connection, or drops it; `open` is the number of open ones.
    pub(super) fn admit(&self, mut stream: Stream, open: usize) -> Option<Stream> {
        if open >= self.connections_max {
            self.refused(ConnectionRefusal::ConnectionsMax);
        } else if !stream.is_numbered_below(self.descriptor_bound) {
            self.refused(ConnectionRefusal::Descriptors);
        } else if !self.expects_proxy_header(&stream) && !self.is_within_address_limit(&mut stream)
        {
            self.refused(ConnectionRefusal::ConnectionsPerAddress);
        } else {
            return Some(stream);
        }
        None
    }

    /// Returns true if a connection comes from a balancer that speaks the PROXY protocol.
    pub(super) fn expects_proxy_header(&self, stream: &Stream) -> bool {
        let balancers = &self.config.server.proxy_protocol;
        !balancers.is_empty() && is_trusted(stream.peer_address().ok().flatten(), balancers)
    }

    /// Admits a connection of a balancer whose header has come; false if the client's address has
    /// too many.
    pub(super) fn admit_identified(&self, stream: &mut Stream) -> bool {
        let is_admitted = self.is_within_address_limit(stream);
        if !is_admitted {
            self.refused(ConnectionRefusal::ConnectionsPerAddress);
        }
        is_admitted
    }

    /// Counts a connection with its client's address; false if that has too many.
    fn is_within_address_limit(&self, stream: &mut Stream) -> bool {
        let max = self.config.limits.connections_per_address;
        let trusted = &self.config.server.trusted_proxies;
        max.is_none_or(|max| self.connections.admit(stream, max, trusted))
    }

    /// Counts the requests in progress on a connection of HTTP/2; false if the client's address has
    /// too many with the newest.
    pub(super) fn count_requests(&self, stream: &mut Stream, open: usize) -> bool {
        let max = self.config.limits.connections_per_address;
        max.is_none_or(|max| ConnectionLimiter::count_requests(stream, open, max))
    }

    /// Counts a connection that another process has accepted, whatever the count of its address.
    pub(crate) fn count_adopted(&self, stream: &mut Stream) {
        if self.config.limits.connections_per_address.is_some() {
            let trusted = &self.config.server.trusted_proxies;
            self.connections.admit(stream, usize::MAX, trusted);
        }
    }

    /// Counts a refused connection.
    pub(super) fn refused(&self, why: ConnectionRefusal) {
        self.metrics.connections_refused.increment(why);
        if why == ConnectionRefusal::Descriptors {
            self.descriptors.log_refused();
        }
    }
}
