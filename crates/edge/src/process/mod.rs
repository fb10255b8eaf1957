//! The process: its start and end, signals, a new configuration, and its replacement by another.

pub mod daemon;
mod error;
mod inherited;
mod listeners;
mod notify;
mod parts;
mod preflight;
mod privileges;
mod reload;
mod server;
mod store;
mod supervisor;
mod upgrade;

pub use error::RunError;
pub use inherited::InheritedError;
pub(crate) use inherited::Place;
pub use preflight::preflight;
pub use reload::ConfigSource;
#[cfg(test)]
pub(crate) use server::single_loop;
pub use server::{RunOptions, run};
pub(crate) use upgrade::{Arrival, Arrivals, Handed, Leaving, Role, Standstill};
