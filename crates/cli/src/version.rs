//! The version of the program, and what is built in.

/// The version alone.
pub(crate) const SHORT: &str = env!("CARGO_PKG_VERSION");

/// The version, the commit if it was known to the build, and what is built in.
pub(crate) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    env!("DWELL_BUILT_FROM"),
    "\ntarget: ",
    env!("DWELL_BUILT_FOR"),
    "\ntls: rustls, aws-lc-rs",
);
