//! The network of this thread.

use super::network::{Network, SimLoop};
use std::cell::{Cell, RefCell};
use std::time::{Instant, SystemTime};

thread_local! {
    static NETWORK: RefCell<Option<Network>> = const { RefCell::new(None) };
    /// The first handle that nothing on this thread had: what is left of a network that has ended
    /// is nothing in the next.
    static NEXT_HANDLE: Cell<u32> = const { Cell::new(1) };
    /// The loop with which a source is being registered.
    static REGISTERING: Cell<Option<SimLoop>> = const { Cell::new(None) };
}

/// Makes the network of this thread, which must have none.
pub(super) fn begin(seed: u64) {
    NETWORK.with_borrow_mut(|network| {
        assert!(network.is_none(), "the thread has a simulated network");
        *network = Some(Network::new(seed, NEXT_HANDLE.get()));
    });
}

/// Ends the network of this thread.
pub(super) fn end() {
    if let Some(network) = NETWORK.take() {
        NEXT_HANDLE.set(network.next_handle());
    }
}

/// Calls `act` with the network of this thread; `None` where there is none (any more).
pub(super) fn with<T>(act: impl FnOnce(&mut Network) -> T) -> Option<T> {
    let called = NETWORK.try_with(|network| network.borrow_mut().as_mut().map(act));
    called.ok().flatten()
}

/// Returns true on a thread whose network is simulated.
pub(crate) fn is_on() -> bool {
    with(|_| ()).is_some()
}

/// The simulated monotonic clock, on a thread that has one.
pub(crate) fn now() -> Option<Instant> {
    with(|network| network.now())
}

/// The simulated wall clock.
pub(crate) fn wall() -> Option<SystemTime> {
    with(|network| network.wall())
}

/// A number that the seed chooses, on a thread whose network is simulated.
pub(crate) fn draw() -> Option<u64> {
    with(|network| network.random.draw())
}

/// The moment at which the simulated clocks began, by both.
pub(crate) fn origin() -> Option<(Instant, SystemTime)> {
    with(|network| network.origin())
}

/// Names the loop with which a source is registered, for as long as that takes.
pub(crate) struct Registering;

impl Registering {
    pub(crate) fn on(event_loop: Option<SimLoop>) -> Self {
        REGISTERING.set(event_loop);
        Self
    }

    /// The loop that is named.
    pub(super) fn event_loop() -> Option<SimLoop> {
        REGISTERING.get()
    }
}

impl Drop for Registering {
    fn drop(&mut self) {
        REGISTERING.set(None);
    }
}
