//! Clients of memcached: a blocking one, and one that lives on an event loop.
#![forbid(unsafe_code)]

mod address;
#[cfg(feature = "blocking")]
mod blocking;
mod breaker;
#[cfg(feature = "on-loop")]
pub mod on_loop;
mod outcome;
mod ring;

pub use address::{AddressError, ServerAddress};
#[cfg(feature = "blocking")]
pub use blocking::*;
pub use outcome::StoreOutcome;
pub use ring::{Distribution, Ring, RingServer, UnknownDistribution};
