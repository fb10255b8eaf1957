//! The version of the program, and what is built in.

/// The allocator of musl has one lock for all threads.
#[cfg(target_env = "musl")]
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[cfg(target_env = "musl")]
macro_rules! allocator {
    () => {
        "mimalloc"
    };
}
#[cfg(not(target_env = "musl"))]
macro_rules! allocator {
    () => {
        "system"
    };
}

/// The version alone.
pub(crate) const SHORT: &str = env!("CARGO_PKG_VERSION");

/// The version, the commit if it was known to the build, and what is built in.
pub(crate) const LONG: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    env!("DWELL_BUILT_FROM"),
    "\ntarget: ",
    env!("DWELL_BUILT_FOR"),
    "\nrustc: ",
    env!("DWELL_BUILT_BY"),
    "\nfeatures: http/2, websocket, embedded store, memcached, redis, jwt, io_uring",
    "\nallocator: ",
    allocator!(),
    "\ntls: rustls, aws-lc-rs",
);
