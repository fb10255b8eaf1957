//! A system call that can raise SIGPIPE and has no flag against it.
//!
//! A library does not own the signals of its process: a host in C that leaves SIGPIPE at its
//! default would be ended by any client that resets a download. So the signal is blocked in this
//! thread around the call, and the one that the call has raised is taken back before the mask is
//! restored. The kernel sends it to the thread that made the call, so no other thread is concerned.
#![expect(
    unsafe_code,
    reason = "libc has no safe way to the signals of a thread"
)]

use rustix::io::Result;
use std::mem::MaybeUninit;
use std::ptr;

/// Makes a system call that is to write `count` bytes; its SIGPIPE does not reach the process.
///
/// Shape: one more system call where the process ignores the signal, as programs in Rust and Python
/// do; three or four more where it does not (together less than a microsecond).
pub(super) fn without_sigpipe(count: usize, call: impl FnOnce() -> Result<usize>) -> Result<usize> {
    if is_ignored() {
        return call();
    }
    let blocked = Blocked::new();
    let result = call();
    // The system copies a file piece by piece: where the peer has gone in between it has raised the
    // signal, and returns what it had written before.
    if result != Ok(count) {
        blocked.take_back();
    }
    result
}

/// SIGPIPE is blocked in this thread; what it was before comes back on drop.
struct Blocked {
    before: libc::sigset_t,
    /// One was pending already, which is the host's to see.
    was_pending: bool,
}

impl Blocked {
    fn new() -> Self {
        let (signal, mut before) = (sigpipe(), empty_set());
        // SAFETY: both sets are initialised; the mask is this thread's own.
        unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, &raw const signal, &raw mut before) };
        Self {
            // One that was not blocked cannot have been pending for this thread.
            was_pending: contains_sigpipe(&before) && contains_sigpipe(&pending()),
            before,
        }
    }

    /// Takes back the signal that the call has raised.
    fn take_back(&self) {
        if self.was_pending {
            return;
        }
        let signal = sigpipe();
        let at_once = libc::timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        // None is there where the call has raised none; EINTR tells of other signals alone.
        // SAFETY: set and timeout are initialised, and null is allowed for what is not asked.
        while unsafe { libc::sigtimedwait(&raw const signal, ptr::null_mut(), &raw const at_once) }
            < 0
            && std::io::Error::last_os_error().kind() == std::io::ErrorKind::Interrupted
        {}
    }
}

impl Drop for Blocked {
    fn drop(&mut self) {
        // SAFETY: the set is the one that the system gave.
        unsafe {
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.before, ptr::null_mut())
        };
    }
}

fn is_ignored() -> bool {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: null changes nothing, and the place can be written.
    let failed = unsafe { libc::sigaction(libc::SIGPIPE, ptr::null(), action.as_mut_ptr()) } != 0;
    // SAFETY: all zeros is an action too.
    !failed && unsafe { action.assume_init() }.sa_sigaction == libc::SIG_IGN
}

fn pending() -> libc::sigset_t {
    let mut set = empty_set();
    // SAFETY: the set can be written.
    unsafe { libc::sigpending(&raw mut set) };
    set
}

fn sigpipe() -> libc::sigset_t {
    let mut set = empty_set();
    // SAFETY: the set is initialised, and the signal exists.
    unsafe { libc::sigaddset(&raw mut set, libc::SIGPIPE) };
    set
}

fn contains_sigpipe(set: &libc::sigset_t) -> bool {
    // SAFETY: the set is initialised, and the signal exists.
    unsafe { libc::sigismember(ptr::from_ref(set), libc::SIGPIPE) == 1 }
}

fn empty_set() -> libc::sigset_t {
    let mut set = MaybeUninit::uninit();
    // SAFETY: it initialises the set.
    unsafe {
        libc::sigemptyset(set.as_mut_ptr());
        set.assume_init()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mask_and_a_signal_of_the_hosts_are_as_before() {
        let raise = || {
            // SAFETY: it is blocked here, so it only becomes pending for this thread.
            unsafe { libc::pthread_kill(libc::pthread_self(), libc::SIGPIPE) };
        };
        // The thread ends with the test, and its signals with it.
        let outside = Blocked::new();
        assert!(!contains_sigpipe(&outside.before) && !contains_sigpipe(&pending()));
        let inside = Blocked::new();
        raise();
        assert!(contains_sigpipe(&pending()));
        inside.take_back();
        drop(inside);
        assert!(!contains_sigpipe(&pending()), "it was raised within");
        raise();
        let inside = Blocked::new();
        inside.take_back();
        drop(inside);
        assert!(contains_sigpipe(&pending()), "it was raised before");
        outside.take_back();
        assert!(!contains_sigpipe(&pending()));
    }
}
