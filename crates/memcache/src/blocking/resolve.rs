//! The addresses of a host.

use std::net::{IpAddr, SocketAddr, ToSocketAddrs};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use super::budget::Budget;
use super::fault::Fault;

/// Looks a host's name up, without ever waiting longer than an operation may take.
///
/// Nothing can end the system's own lookup. So it runs on a thread of its own, one at a time for
/// each server. An operation whose time is over stops waiting; the result of a lookup that ends
/// late is there for the next one.
#[derive(Debug)]
pub(crate) struct Resolver {
    host: String,
    port: u16,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    is_running: bool,
    /// Lookups that have ended.
    ended: u64,
    /// The result of the last of them.
    result: Option<Result<Vec<SocketAddr>, String>>,
    /// The addresses of the last successful one.
    last_good: Vec<SocketAddr>,
}

impl Resolver {
    pub(crate) fn new(host: &str, port: u16) -> Self {
        Self {
            host: host.to_owned(),
            port,
            shared: Arc::default(),
        }
    }

    /// The addresses, in the system's order of preference.
    ///
    /// Shape: a host that is written as an address is not looked up. If the lookup takes more than
    /// half of the rest of the time, the addresses it had last are used.
    pub(crate) fn addresses(&self, budget: &Budget) -> Result<Vec<SocketAddr>, Fault> {
        if let Ok(address) = self.host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(address, self.port)]);
        }
        let mut state = self.shared.lock();
        let awaited = state.ended + 1;
        if !state.is_running {
            state.is_running = true;
            state = self.look_up(state);
        }
        let share = budget.share(if state.last_good.is_empty() { 1 } else { 2 });
        while state.ended < awaited {
            state = match share.rest() {
                Ok(None) => wait(&self.shared, state),
                Ok(Some(rest)) => {
                    let waited = self.shared.changed.wait_timeout(state, rest);
                    waited.unwrap_or_else(PoisonError::into_inner).0
                }
                Err(_) if state.last_good.is_empty() => return Err(Fault::Timeout),
                Err(_) => return Ok(state.last_good.clone()),
            };
        }
        match &state.result {
            Some(Ok(addresses)) => Ok(addresses.clone()),
            Some(Err(_)) if !state.last_good.is_empty() => Ok(state.last_good.clone()),
            Some(Err(reason)) => Err(Fault::Resolve(reason.clone())),
            None => Err(Fault::Resolve("no thread can be started".to_owned())),
        }
    }

    fn look_up<'s>(&'s self, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
        drop(state);
        let (host, port) = (self.host.clone(), self.port);
        let shared = Arc::clone(&self.shared);
        let thread = std::thread::Builder::new().name("dwell-resolve".into());
        let started = thread.spawn(move || {
            let found = (host.as_str(), port).to_socket_addrs();
            shared.ended(match found.map(Iterator::collect::<Vec<_>>) {
                Ok(addresses) if addresses.is_empty() => Err("no address".to_owned()),
                Ok(addresses) => Ok(addresses),
                Err(error) => Err(error.to_string()),
            });
        });
        if let Err(error) = started {
            self.shared.ended(Err(error.to_string()));
        }
        self.shared.lock()
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ended(&self, result: Result<Vec<SocketAddr>, String>) {
        let mut state = self.lock();
        state.is_running = false;
        state.ended += 1;
        if let Ok(addresses) = &result {
            state.last_good.clone_from(addresses);
        }
        state.result = Some(result);
        self.changed.notify_all();
    }
}

fn wait<'s>(shared: &'s Shared, state: MutexGuard<'s, State>) -> MutexGuard<'s, State> {
    shared
        .changed
        .wait(state)
        .unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn an_address_is_not_looked_up() {
        let budget = Budget::start(Some(Duration::ZERO));
        let found = Resolver::new("::1", 7).addresses(&budget).unwrap();
        assert_eq!(found, ["[::1]:7".parse().unwrap()]);
    }

    #[test]
    fn a_name_is_looked_up_and_remembered() {
        let resolver = Resolver::new("localhost", 7);
        let found = resolver.addresses(&Budget::start(None)).unwrap();
        assert!(found.iter().all(|address| address.ip().is_loopback()));
        resolver.shared.lock().is_running = true;
        let late = resolver.addresses(&Budget::start(Some(Duration::ZERO)));
        assert_eq!(late.unwrap(), found);
    }

    #[test]
    fn a_lookup_that_takes_too_long_is_left() {
        let resolver = Resolver::new("localhost", 7);
        // As if one had begun and did not end.
        resolver.shared.lock().is_running = true;
        let late = resolver.addresses(&Budget::start(Some(Duration::ZERO)));
        assert!(matches!(late, Err(Fault::Timeout)), "{late:?}");
    }
}
