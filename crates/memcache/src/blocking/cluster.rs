//! The servers of a client, and one exchange with one of them.

use super::Error;
use super::budget::Budget;
use super::connection::{Connection, Take};
use super::error::Place;
use super::fault::Fault;
use super::options::{ClientOptions, ServerOptions};
use super::server::Server;
use crate::{Ring, RingServer};

/// The state that the threads of a client share.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) servers: Vec<Server>,
    pub(crate) ring: Ring,
    pub(crate) options: ClientOptions,
}

/// An exchange that came to nothing.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) fault: Fault,
    /// True if any byte of the request was sent.
    pub(crate) written: bool,
}

impl Failed {
    /// Makes one for a server that was not asked.
    pub(crate) const fn unavailable() -> Self {
        Self {
            fault: Fault::Unavailable,
            written: false,
        }
    }

    /// Makes one for a reply that does not fit the operation.
    pub(crate) const fn unexpected(reply: String) -> Self {
        Self {
            fault: Fault::Unexpected(reply),
            written: true,
        }
    }
}

/// A request as it goes out, and how it may be treated.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Outgoing<'w> {
    pub(crate) wire: &'w [u8],
    /// True if doing it twice has the same effect as once.
    pub(crate) is_repeatable: bool,
}

impl Cluster {
    pub(crate) fn new(servers: &[ServerOptions], options: ClientOptions) -> Result<Self, Error> {
        options.check()?;
        if servers.is_empty() {
            return Err(Error::NoServers);
        }
        if let Some(server) = servers.iter().position(|server| server.weight == 0) {
            return Err(Error::ZeroWeight { server });
        }
        let on_ring: Vec<_> = servers
            .iter()
            .map(|server| RingServer {
                host: server.address.host(),
                port: server.address.port(),
                weight: server.weight,
            })
            .collect();
        Ok(Self {
            ring: Ring::with(options.distribution, &on_ring),
            servers: servers
                .iter()
                .map(|server| Server::new(server, &options))
                .collect::<Result<_, _>>()?,
            options,
        })
    }

    /// Returns the first server for a key that is available; `None` if none is.
    pub(crate) fn server_for(&self, ring_key: &[u8], budget: &Budget) -> Option<usize> {
        let first = self.ring.server_of(ring_key);
        if self.servers[first].admits(&self.options, budget.started()) {
            return Some(first);
        }
        self.next_for(ring_key, first, budget)
    }

    /// The next server for a key after `failed`, where keys move on.
    pub(crate) fn next_for(
        &self,
        ring_key: &[u8],
        failed: usize,
        budget: &Budget,
    ) -> Option<usize> {
        if !self.options.failover {
            return None;
        }
        let candidates = self.ring.candidates(ring_key);
        let after = candidates.iter().skip_while(|server| **server != failed);
        after
            .skip(1)
            .copied()
            .find(|server| self.servers[*server].admits(&self.options, budget.started()))
    }

    /// Sends a request to a server and takes its replies.
    ///
    /// If a connection from the pool turns out to have ended, and nothing is lost by asking twice,
    /// a new one is made, once.
    pub(crate) fn exchange(
        &self,
        server: usize,
        outgoing: Outgoing<'_>,
        budget: &mut Budget,
        take: &mut impl Take,
    ) -> Result<(), Failed> {
        let Outgoing {
            wire,
            is_repeatable,
        } = outgoing;
        let pooled = self.servers[server].pooled(&self.options, budget.started(), is_repeatable);
        let mut connection = match pooled {
            Some(connection) => connection,
            None => self.connect(server, budget)?,
        };
        loop {
            let result = connection.exchange(wire, budget, take);
            match self.settle(server, connection, result, is_repeatable) {
                Settled::Answered => return Ok(()),
                Settled::Failed(failed) => return Err(failed),
                Settled::WasEnded => connection = self.connect(server, budget)?,
            }
        }
    }

    pub(crate) fn connect(&self, server: usize, budget: &mut Budget) -> Result<Connection, Failed> {
        let connected = self.servers[server].connect(&self.options, budget);
        connected.map_err(|fault| {
            self.servers[server].failed(&self.options);
            Failed {
                fault,
                written: false,
            }
        })
    }

    /// Keeps a connection whose exchange is over, or closes it.
    pub(crate) fn settle(
        &self,
        server: usize,
        connection: Connection,
        result: Result<(), Fault>,
        is_repeatable: bool,
    ) -> Settled {
        let server = &self.servers[server];
        let Err(fault) = result else {
            server.keep(&self.options, connection);
            return Settled::Answered;
        };
        let written = connection.has_sent();
        let may_repeat = is_repeatable || !written;
        let was_ended =
            matches!(fault, Fault::Closed) && connection.is_used() && !connection.has_received();
        if was_ended {
            server.forget_idle(&self.options);
            if may_repeat {
                return Settled::WasEnded;
            }
        } else if fault.is_in_step() {
            server.keep(&self.options, connection);
        } else if fault.is_server_down() {
            server.failed(&self.options);
        }
        Settled::Failed(Failed { fault, written })
    }

    pub(crate) fn error(
        &self,
        server: usize,
        operation: &'static str,
        failed: Failed,
        budget: &Budget,
    ) -> Error {
        let place = Place {
            server: self.servers[server].name.clone(),
            operation,
            elapsed: budget.elapsed(),
            limit: budget.limit(),
        };
        Error::new(failed.fault, place, failed.written)
    }
}

/// The outcome of an exchange.
#[derive(Debug)]
pub(crate) enum Settled {
    Answered,
    Failed(Failed),
    /// The connection had ended while it was idle: repeat on a new one.
    WasEnded,
}
