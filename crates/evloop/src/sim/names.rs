//! Names of simulated machines.

use std::cell::RefCell;
use std::net::IpAddr;

thread_local! {
    /// The names of the network of this thread. They stand beside it because they are looked up
    /// while it is not in use.
    static NAMES: RefCell<Vec<(String, IpAddr)>> = const { RefCell::new(Vec::new()) };
}

/// Has a name lead to an address.
pub(super) fn set(name: &str, ip: IpAddr) {
    NAMES.with_borrow_mut(|names| {
        names.retain(|(known, _)| known != name);
        names.push((name.to_owned(), ip));
    });
}

/// Removes all of them.
pub(super) fn remove_all() {
    drop(NAMES.take());
}

/// The address to which a name leads on the simulated network of this thread, if it has one.
#[must_use]
pub fn address_of(name: &str) -> Option<IpAddr> {
    NAMES.with_borrow(|names| {
        let found = names.iter().find(|(known, _)| known == name);
        found.map(|(_, ip)| *ip)
    })
}
