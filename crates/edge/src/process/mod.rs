//! The process: start and end, signals, reload, and upgrade.

pub mod daemon;
mod environment;
mod error;
mod inherited;
mod listeners;
mod live;
mod lookups;
mod names;
mod notify;
mod outward;
mod parts;
mod peers;
mod pid_file;
mod plans;
mod preflight;
mod privileges;
mod redis;
mod reload;
mod run_lines;
mod server;
mod signal_report;
mod store;
mod supervisor;
mod tls;
mod upgrade;

pub use crate::descriptors::raise_limit as raise_descriptor_limit;
pub use error::RunError;
pub use inherited::InheritedError;
pub use live::{LiveFinding, Severity, live};
pub use pid_file::holder as pid_file_holder;
pub use preflight::{descriptor_warning, preflight, preflight_warnings};
pub use reload::ConfigSource;
#[cfg(test)]
pub(crate) use server::single_loop;
#[cfg(feature = "sim")]
pub use server::{LoopLoad, Refusals, Simulated, UpgradeFrame, UpgradeNews};
pub use server::{RunOptions, run};
pub use signal_report::{ReloadResult, SignalReport};
