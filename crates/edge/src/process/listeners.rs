//! Listeners of a server, bound before the loops run.

use super::error::RunError;
use super::inherited::Inherited;
use super::{store, tls};
use crate::config::Config;
use crate::event_loop::Listening;
use crate::handoff::{ListenAddress, Role};
use dwell_evloop::{Acceptor, ListenOptions, Listener, bind_group, share_out};
use dwell_store_server::Listening as StoreListening;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// The listeners of all loops.
pub(super) struct Bound {
    pub(super) clients: Vec<Listening>,
    pub(super) store: Vec<Vec<Listener>>,
    pub(super) store_at: StoreListening,
    pub(super) admin: Vec<Listener>,
    /// The certificates and bounds that the listeners under TLS share.
    pub(super) acceptor: Acceptor,
    /// The certificates as they were read.
    pub(super) pairs: Vec<tls::Pair>,
    /// The keys of session tickets as they were read.
    pub(super) tickets: Option<tls::TicketFile>,
}

impl Bound {
    /// Takes inherited sockets, and binds the other addresses.
    pub(super) fn bind(
        config: &Config,
        loops: usize,
        demo: bool,
        mut inherited: Inherited,
    ) -> Result<Self, RunError> {
        let pairs = tls::read(config)?;
        let tickets = tls::read_tickets(config)?;
        let acceptor = tls::acceptor(config, &pairs, loops)?;
        let mut clients: Vec<Listening> = (0..loops).map(|_| Vec::new()).collect();
        let options = ListenOptions::default();
        for &address in &config.server.listen {
            let listen = AddressPlan::new(Role::Client, address, options, demo);
            let shares = listen.shares(&mut inherited, loops)?;
            for (of_loop, share) in clients.iter_mut().zip(shares) {
                of_loop.extend(share.into_iter().map(|listener| (address, listener)));
            }
        }
        let offered = tls::offering(&acceptor, config);
        for &address in &config.tls.listen {
            let mut listen = AddressPlan::new(Role::Client, address, options, demo);
            listen.option = "tls.listen";
            let shares = listen.shares(&mut inherited, loops)?;
            for (of_loop, share) in clients.iter_mut().zip(shares) {
                of_loop.extend(share.into_iter().map(|mut listener| {
                    listener.secure(offered.clone());
                    (address, listener)
                }));
            }
        }
        let (store, store_at) = store::bind(config, loops, demo, &mut inherited)?;
        let mut admin = Vec::new();
        if let Some(address) = config.server.admin {
            let listen = AddressPlan::new(Role::Admin, address, options, demo);
            admin = listen.shares(&mut inherited, 1)?;
        }
        inherited.finish().map_err(RunError::Inherited)?;
        let first = clients.first().and_then(|of_loop| of_loop.first());
        let first = first.map(|(_, listener)| listener);
        if let (true, Some(address)) = (demo, first.and_then(Listener::address)) {
            tracing::info!("open http://{}/ in a browser", reachable(address));
        }
        let mut secure = clients.first().into_iter().flatten();
        let secure = secure.find(|(address, _)| config.tls.listen.contains(address));
        let secure = secure.and_then(|(_, listener)| listener.address());
        if let (true, Some(address)) = (demo, secure) {
            tracing::info!("or https://localhost:{}/", address.port());
        }
        Ok(Self {
            clients,
            store,
            store_at,
            admin: admin.into_iter().flatten().collect(),
            acceptor,
            pairs,
            tickets,
        })
    }
}

/// The address of a listener for connections from this machine: an unspecified address cannot be
/// connected to.
fn reachable(address: SocketAddr) -> SocketAddr {
    match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => (Ipv4Addr::LOCALHOST, address.port()).into(),
        IpAddr::V6(ip) if ip.is_unspecified() => (Ipv6Addr::LOCALHOST, address.port()).into(),
        _ => address,
    }
}

/// Ports that are tried after one in use.
const NEXT_PORTS_MAX: u16 = 20;

/// One address of the configuration.
pub(super) struct AddressPlan {
    role: Role,
    /// The option that sets it.
    option: &'static str,
    address: SocketAddr,
    options: ListenOptions,
    /// If the port is in use, the next one is tried.
    next_free: bool,
}

impl AddressPlan {
    pub(super) fn new(
        role: Role,
        address: SocketAddr,
        options: ListenOptions,
        next_free: bool,
    ) -> Self {
        Self {
            role,
            option: role.option(),
            address,
            options,
            next_free,
        }
    }

    /// Listeners of each of the loops: inherited sockets, or new ones.
    pub(super) fn shares(
        &self,
        inherited: &mut Inherited,
        loops: usize,
    ) -> Result<Vec<Vec<Listener>>, RunError> {
        let is_loose = self.next_free || self.address.port() == 0;
        let place = ListenAddress::Tcp(self.address);
        let taken = inherited.take(self.role, &place, is_loose, self.options);
        let taken = taken.map_err(|source| self.error(source))?;
        if taken.is_empty() {
            let group = self.bind(loops)?.into_iter();
            return Ok(group.map(|listener| vec![listener]).collect());
        }
        share_out(taken, loops).map_err(|source| self.error(source))
    }

    fn bind(&self, count: usize) -> Result<Vec<Listener>, RunError> {
        let mut candidate = self.address;
        loop {
            match bind_group(candidate, count, self.options) {
                Ok(group) => {
                    let listening = group.first().and_then(Listener::address);
                    self.report(listening.unwrap_or(candidate), candidate);
                    return Ok(group);
                }
                Err(source) if self.goes_on(candidate, &source) => {
                    candidate.set_port(candidate.port() + 1);
                }
                Err(source) => return Err(self.error(source)),
            }
        }
    }

    fn goes_on(&self, candidate: SocketAddr, error: &io::Error) -> bool {
        self.next_free
            && error.kind() == io::ErrorKind::AddrInUse
            && candidate.port() < self.address.port().saturating_add(NEXT_PORTS_MAX)
    }

    fn report(&self, listening: SocketAddr, candidate: SocketAddr) {
        let option = self.option;
        if candidate == self.address {
            tracing::info!(address = %listening, option, "listening");
        } else {
            let taken = self.address;
            tracing::warn!(address = %listening, %taken, option, "on the next free port");
        }
    }

    fn error(&self, source: io::Error) -> RunError {
        RunError::Listen {
            address: self.address,
            option: self.option,
            source,
        }
    }
}

/// Binds one more address of the configuration.
///
/// # Errors
/// [`RunError::Listen`].
pub(crate) fn listen_at(
    address: SocketAddr,
    option: &'static str,
    count: usize,
) -> Result<Vec<Listener>, RunError> {
    let options = ListenOptions::default();
    let mut plan = AddressPlan::new(Role::Client, address, options, false);
    plan.option = option;
    plan.bind(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_address_that_is_told_is_one_to_connect_to() {
        for (bound, told) in [
            ("0.0.0.0:80", "127.0.0.1:80"),
            ("[::]:80", "[::1]:80"),
            ("10.0.0.1:80", "10.0.0.1:80"),
            ("[fe80::1]:80", "[fe80::1]:80"),
        ] {
            let bound: SocketAddr = bound.parse().unwrap();
            assert_eq!(reachable(bound).to_string(), told);
        }
    }
}
