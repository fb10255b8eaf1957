//! The requests after which a process is to be replaced.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::{FromRawFd, RawFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

/// A count of requests, behind the last of which a byte is written to a pipe.
#[derive(Debug, Default)]
pub(crate) struct Wear {
    /// Requests until then; with 0 there is no such number, or it has been reached.
    left: AtomicU64,
    pipe: Mutex<Option<File>>,
}

impl Wear {
    /// Counts down from `requests`; `descriptor` is taken over.
    #[expect(unsafe_code, reason = "a descriptor comes from Python as a number")]
    pub(crate) fn of((requests, descriptor): (u64, RawFd)) -> Self {
        // SAFETY: Python gives the descriptor of a pipe away that it has just made, so nobody else
        // closes it.
        let pipe = unsafe { File::from_raw_fd(descriptor) };
        Self {
            left: AtomicU64::new(requests),
            pipe: Mutex::new(Some(pipe)),
        }
    }

    /// Counts a request.
    pub(crate) fn count(&self) {
        // One loop counts, so nothing comes between the two.
        if self.left.load(Ordering::Relaxed) > 0 && self.left.fetch_sub(1, Ordering::Relaxed) == 1 {
            let pipe = self.pipe.lock();
            if let Some(mut pipe) = pipe.unwrap_or_else(PoisonError::into_inner).take() {
                // Without a reader there is nobody to tell.
                let _ = pipe.write(b"!");
            }
        }
    }
}
