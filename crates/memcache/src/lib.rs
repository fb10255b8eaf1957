//! Clients of memcached: a blocking one, and one that lives on an event loop.
#![forbid(unsafe_code)]

mod breaker;
#[cfg(feature = "on-loop")]
pub mod on_loop;
mod ring;

pub use ring::{Ring, RingServer};
