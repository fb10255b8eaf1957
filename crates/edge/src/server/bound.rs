//! Where a server listens, bound before anything runs.

use super::{RunError, store};
use crate::config::Config;
use crate::reload::Listening;
use crate::store_server::Listening as StoreListening;
use dwell_evloop::{ListenOptions, Listener, bind_group};
use std::io;
use std::net::SocketAddr;

/// The listeners of all loops, bound before anything runs.
pub(super) struct Bound {
    pub(super) clients: Vec<Listening>,
    pub(super) store: Vec<Vec<Listener>>,
    pub(super) store_at: StoreListening,
    pub(super) admin: Option<Listener>,
}

impl Bound {
    pub(super) fn bind(config: &Config, loops: usize, demo: bool) -> Result<Self, RunError> {
        let mut clients: Vec<Listening> = (0..loops).map(|_| Vec::new()).collect();
        for &address in &config.server.listen {
            let group = listen(address, loops, ListenOptions::default(), "--listen", demo)?;
            for (of_loop, listener) in clients.iter_mut().zip(group) {
                of_loop.push((address, listener));
            }
        }
        let (store, store_at) = store::bind(config, loops, demo)?;
        let admin = match config.server.admin {
            Some(address) => listen(address, 1, ListenOptions::default(), "--admin", demo)?.pop(),
            None => None,
        };
        let first = clients.first().and_then(|of_loop| of_loop.first());
        let first = first.map(|(_, listener)| listener);
        if let (true, Some(address)) = (demo, first.and_then(Listener::address)) {
            tracing::info!("open http://{address}/ in a browser");
        }
        Ok(Self {
            clients,
            store,
            store_at,
            admin,
        })
    }
}

/// Ports tried after a taken one.
const NEXT_PORTS_MAX: u16 = 20;

/// Binds `count` listeners; where `next_free` is set, a taken port gives way to the next.
pub(super) fn listen(
    address: SocketAddr,
    count: usize,
    options: ListenOptions,
    option: &'static str,
    next_free: bool,
) -> Result<Vec<Listener>, RunError> {
    let mut candidate = address;
    loop {
        match bind_group(candidate, count, options) {
            Ok(group) => {
                let listening = group
                    .first()
                    .and_then(Listener::address)
                    .unwrap_or(candidate);
                if candidate == address {
                    tracing::info!(%listening, option, "listening");
                } else {
                    tracing::warn!(%listening, taken = %address, option, "on the next free port");
                }
                return Ok(group);
            }
            Err(source)
                if next_free
                    && source.kind() == io::ErrorKind::AddrInUse
                    && candidate.port() < address.port().saturating_add(NEXT_PORTS_MAX) =>
            {
                candidate.set_port(candidate.port() + 1);
            }
            Err(source) => {
                return Err(RunError::Listen {
                    address,
                    option,
                    source,
                });
            }
        }
    }
}

/// Binds one more address of the configuration.
///
/// # Errors
/// [`RunError::Listen`].
pub(crate) fn listen_at(address: SocketAddr, count: usize) -> Result<Vec<Listener>, RunError> {
    listen(
        address,
        count,
        ListenOptions::default(),
        "server.listen",
        false,
    )
}
