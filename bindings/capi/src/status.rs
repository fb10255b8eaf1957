//! Statuses that the entries return.
#![expect(unsafe_code, reason = "entries have names that C knows")]

use ::dwell_engine::embed::CommandError;
use std::cell::RefCell;
use std::ffi::{c_char, c_int};
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// The outcome of a call. Numbers are never given again.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(C)]
pub enum dwell_status {
    /// It was done.
    DWELL_OK = 0,
    /// The handle names nothing any more; nothing was done.
    DWELL_STALE = 1,
    /// It does not fit what the handle names, or not now; nothing was done.
    DWELL_MISPLACED = 2,
    /// The peer takes no more for now; nothing was done.
    DWELL_FULL = 3,
    /// Bytes that should be orders or a request cannot be read.
    DWELL_MALFORMED = 4,
    /// An argument is null, or has no such value.
    DWELL_INVALID = 5,
    /// The system refused; dwell_last_error returns its error.
    DWELL_SYSTEM = 6,
    /// Another thread is inside this engine.
    DWELL_BUSY = 7,
    /// The engine has failed for good, by an error of its own; it can only be freed.
    DWELL_BROKEN = 8,
    /// The request has no such field, or the client has shown no such certificate.
    DWELL_ABSENT = 9,
    /// A certificate or its key cannot be used; dwell_last_error returns why.
    DWELL_CERTIFICATE = 10,
}

thread_local! {
    static LAST_ERROR: RefCell<(i32, String)> = const { RefCell::new((0, String::new())) };
}

/// Keeps the system's error for dwell_last_error on this thread.
pub(crate) fn system(error: &io::Error) -> dwell_status {
    let number = error.raw_os_error().unwrap_or(0);
    failed(dwell_status::DWELL_SYSTEM, number, error.to_string())
}

/// Keeps an error for dwell_last_error on this thread.
pub(crate) fn failed(status: dwell_status, number: i32, message: String) -> dwell_status {
    LAST_ERROR.with(|last| *last.borrow_mut() = (number, message));
    status
}

pub(crate) fn of_command(error: CommandError) -> dwell_status {
    match error {
        CommandError::Stale => dwell_status::DWELL_STALE,
        CommandError::Full => dwell_status::DWELL_FULL,
        CommandError::Malformed => dwell_status::DWELL_MALFORMED,
        _ => dwell_status::DWELL_MISPLACED,
    }
}

/// Runs what must not unwind into C; `broken` is returned where it panics.
pub(crate) fn guarded<T>(broken: T, act: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(act)).unwrap_or(broken)
}

/// A status in words. The text lives for ever.
#[unsafe(no_mangle)]
pub extern "C" fn dwell_status_text(status: c_int) -> *const c_char {
    let text = match status {
        0 => c"done",
        1 => c"handle names nothing any more",
        2 => c"order does not fit what the handle names",
        3 => c"peer takes no more for now",
        4 => c"bytes cannot be read",
        5 => c"invalid argument",
        6 => c"the system refused",
        7 => c"another thread is inside this engine",
        9 => c"request has no such field",
        8 => c"engine has failed for good",
        10 => c"certificate or key cannot be used",
        _ => c"no status of this number",
    };
    text.as_ptr()
}

/// The error when a call on this thread last returned DWELL_SYSTEM or DWELL_CERTIFICATE: copies as
/// much of its text to `text` as fits into `size` bytes with a zero behind it, and returns the
/// number that errno had, or 0. `text` may be null.
///
/// # Safety
/// `text` must be null or have room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_last_error(text: *mut c_char, size: usize) -> c_int {
    guarded(0, || {
        LAST_ERROR.with(|last| {
            let (number, message) = &*last.borrow();
            // SAFETY: null, or the caller has room for `size` bytes.
            unsafe { crate::pointers::copy_text(message, text, size) };
            *number
        })
    })
}

/// The version of the library. The text lives for ever.
#[unsafe(no_mangle)]
pub extern "C" fn dwell_version() -> *const c_char {
    concat!(env!("CARGO_PKG_VERSION"), "\0").as_ptr().cast()
}
