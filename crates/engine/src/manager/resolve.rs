//! Host names, looked up beside the loop.

use super::hub::Message;
use super::{Waker, hub::ManagerDriver};
use crate::manager::event::Event;
use dwell_evloop::{Context, Token};
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};

/// Look-ups in progress at once; each has a thread, as the system's resolver blocks.
const RESOLVING_MAX: usize = 16;

/// The result of a lookup.
pub(super) struct Resolved {
    record: Token,
    outcome: io::Result<SocketAddr>,
}

/// Looks `host` up on a thread of its own, which ends with that.
pub(super) fn resolve(
    waker: Waker,
    resolving: &mut usize,
    record: Token,
    host: String,
    port: u16,
) -> io::Result<()> {
    if *resolving >= RESOLVING_MAX {
        let text = format!("host names being resolved exceed {RESOLVING_MAX}");
        return Err(io::Error::other(text));
    }
    let thread = std::thread::Builder::new().name("dwell-resolve".into());
    thread.spawn(move || {
        let outcome = look_up(&host, port);
        // A manager that is gone has no use for it.
        let _ = waker.send(Message::Resolved(Resolved { record, outcome }));
    })?;
    *resolving += 1;
    Ok(())
}

fn look_up(host: &str, port: u16) -> io::Result<SocketAddr> {
    let mut addresses = (host, port).to_socket_addrs()?.collect::<Vec<_>>();
    // Without trying one after the other, the older family is the one that is nearly always there.
    addresses.sort_by_key(SocketAddr::is_ipv6);
    addresses
        .first()
        .copied()
        .ok_or_else(|| io::Error::other("host name has no address"))
}

impl ManagerDriver {
    /// A lookup has ended: connects, unless the connection was closed meanwhile.
    pub(super) fn resolved(&mut self, context: &mut Context, resolved: Resolved) {
        self.state.resolving -= 1;
        let Some(record) = self.state.records.get(resolved.record) else {
            return;
        };
        let id = record.id;
        self.state.defer(id, move |conn| {
            if conn.is_closing() {
                return;
            }
            let connected = resolved.outcome.and_then(|address| {
                conn.tell(Event::Resolve);
                conn.connect_to(address)
            });
            if let Err(error) = connected {
                conn.tell(Event::Error(&error.to_string()));
                let id = conn.id();
                conn.scope.state.end_later(id);
            }
        });
        self.settle(context);
    }
}
