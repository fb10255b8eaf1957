//! The way in from other threads.
#![expect(
    unsafe_code,
    reason = "entries have names that C knows, and take its pointers"
)]

use crate::engine::{dwell_engine, enter};
use crate::pointers;
use crate::status::{dwell_status, guarded, of_command};
use ::dwell_engine::embed::Remote;
use std::ptr;

/// Orders of other threads to one engine. Any number of threads may use it at once, and it may
/// outlive the engine.
pub struct dwell_remote {
    remote: Remote,
}

/// Makes the way in from other threads. Free it with dwell_remote_free. Null where the engine is
/// null or busy.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_remote(engine: *mut dwell_engine) -> *mut dwell_remote {
    // SAFETY: as the caller says.
    unsafe {
        enter(
            engine,
            |_| ptr::null_mut(),
            |inner| {
                let remote = inner.engine.remote();
                Box::into_raw(Box::new(dwell_remote { remote }))
            },
        )
    }
}

/// Gives the engine orders, which are copied, and which it carries out in its next turn; ends its
/// wait.
///
/// # Safety
/// `remote` must be null, or come from `dwell_engine_remote` and not be freed; `length` bytes must
/// be readable at `commands`, unless it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_remote_submit(
    remote: *const dwell_remote,
    commands: *const u8,
    length: usize,
) -> dwell_status {
    guarded(dwell_status::DWELL_BROKEN, || {
        // SAFETY: null or alive.
        let Some(remote) = (unsafe { remote.as_ref() }) else {
            return dwell_status::DWELL_INVALID;
        };
        // SAFETY: as the caller says.
        let commands = unsafe { pointers::bytes(commands, length) }.to_vec();
        let submitted = remote.remote.submit_bytes(commands);
        submitted.map_or_else(of_command, |()| dwell_status::DWELL_OK)
    })
}

/// Ends the wait of a turn. Nothing for null.
///
/// # Safety
/// As `dwell_remote_submit`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_remote_wake(remote: *const dwell_remote) {
    guarded((), || {
        // SAFETY: null or alive.
        if let Some(remote) = unsafe { remote.as_ref() } {
            remote.remote.wake();
        }
    });
}

/// Frees it. Nothing for null.
///
/// # Safety
/// `remote` must be null, or come from `dwell_engine_remote` and not be freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_remote_free(remote: *mut dwell_remote) {
    guarded((), || {
        if !remote.is_null() {
            // SAFETY: it was made by `Box::into_raw`, and nobody else frees it.
            drop(unsafe { Box::from_raw(remote) });
        }
    });
}
