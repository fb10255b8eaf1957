//! Memory that is free, and not yet the system's again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

/// Gives free memory of the allocator back to the system, in a thread of its own, as that takes a
/// while; does nothing while another thread is at it, or where the allocator has no such call.
///
/// For programs that hold much for a time. Small things that lived on among it keep the allocator
/// from giving it back.
///
/// ```
/// let large: Vec<_> = (0..100).map(|_| vec![1_u8; 100_000]).collect();
/// drop(large);
/// dwell_evloop::release_memory();
/// ```
pub fn release_memory() {
    static IS_UNDER_WAY: AtomicBool = AtomicBool::new(false);
    if IS_UNDER_WAY.swap(true, Ordering::AcqRel) {
        return;
    }
    let release = || {
        trim();
        IS_UNDER_WAY.store(false, Ordering::Release);
    };
    let thread = thread::Builder::new().name("release-memory".to_owned());
    if thread.spawn(release).is_err() {
        IS_UNDER_WAY.store(false, Ordering::Release);
    }
}

#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[expect(unsafe_code, reason = "libc has no safe way to its allocator")]
fn trim() {
    // SAFETY: it takes no pointer, and the allocator locks what it changes.
    unsafe { libc::malloc_trim(0) };
}

#[cfg(not(all(target_os = "linux", target_env = "gnu")))]
fn trim() {}
