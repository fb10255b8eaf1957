//! Clients of memcached whose timeouts cost no system call and bound the whole operation.
//!
//! - `Client` waits in the calling thread, for any number of threads at once: two system calls
//!   per operation, with a timeout as without.
//! - `on_loop::Client` lives on a loop of `dwell-evloop`: one request per server
//!   and turn, one deadline per connection.
//!
//! Both find keys where other clients put them: see [`Distribution`].
//!
//! # Features
//!
//! | feature | gives | brings |
//! |---|---|---|
//! | `blocking` (default) | `Client` | rustix, dwell-timers |
//! | `on-loop` | `on_loop` | mio, dwell-evloop |
//! | `tls` | `Tls`: TLS of `Client`; also of `on_loop` | dwell-tls, with rustls and aws-lc |
//! | `watch` | `watch`: hints of changes | `on-loop`, dwell-metrics, tracing |
//! | `json` | `Json` | `serde_json` |
//! | `zlib`, `zstd` | `Compressed` | flate2, zstd |
#![forbid(unsafe_code)]

mod address;
#[cfg(feature = "blocking")]
mod blocking;
#[cfg(feature = "on-loop")]
pub mod on_loop;
mod outcome;
mod ring;
#[cfg(feature = "watch")]
pub mod watch;

pub use address::{AddressError, ServerAddress};
#[cfg(feature = "blocking")]
pub use blocking::*;
pub use outcome::StoreOutcome;
pub use ring::{Distribution, Ring, RingServer, UnknownDistribution};

/// The examples of the page about this crate.
#[cfg(all(doctest, feature = "blocking"))]
mod pages {
    #[doc = include_str!("../README.md")]
    mod readme {}
    #[cfg(feature = "tls")]
    #[doc = include_str!("../../../docs/memcached-client.md")]
    mod story {}
}
