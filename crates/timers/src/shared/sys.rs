//! The system calls that the standard library does not offer. The only foreign functions here.
#![cfg_attr(not(miri), expect(unsafe_code, reason = "foreign functions"))]

/// Asks Linux to let this process use `membarrier(MEMBARRIER_CMD_PRIVATE_EXPEDITED)`.
pub(crate) fn register_membarrier() -> bool {
    imp::register_membarrier()
}

/// Runs a full fence on every thread of this process; `false` if the kernel would not.
pub(crate) fn membarrier() -> bool {
    imp::membarrier()
}

/// Has the three functions called around every `fork` of this process; `false` if that failed.
///
/// `prepare` runs in the parent before, `parent` and `child` in either process after it, all three
/// on the thread that forks.
pub(crate) fn call_around_fork(
    prepare: extern "C" fn(),
    parent: extern "C" fn(),
    child: extern "C" fn(),
) -> bool {
    imp::call_around_fork(prepare, parent, child)
}

#[cfg(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
))]
mod imp {
    pub(super) use super::fork::call_around_fork;
    use std::ffi::{c_int, c_long, c_uint};

    unsafe extern "C" {
        fn syscall(number: c_long, ...) -> c_long;
    }

    pub(super) fn register_membarrier() -> bool {
        command(REGISTER_PRIVATE_EXPEDITED)
    }

    pub(super) fn membarrier() -> bool {
        command(PRIVATE_EXPEDITED)
    }

    fn command(command: c_int) -> bool {
        let (flags, cpu): (c_uint, c_int) = (0, 0);
        // SAFETY: the number is that of membarrier on this architecture, with its three integer
        // arguments; the call touches no memory of ours.
        unsafe { syscall(MEMBARRIER, command, flags, cpu) == 0 }
    }

    /// The number of the system call, from the kernel's `unistd.h`.
    #[cfg(target_arch = "x86_64")]
    const MEMBARRIER: c_long = 324;
    #[cfg(target_arch = "aarch64")]
    const MEMBARRIER: c_long = 283;
    /// Commands, from the kernel's `membarrier.h`.
    const PRIVATE_EXPEDITED: c_int = 1 << 3;
    const REGISTER_PRIVATE_EXPEDITED: c_int = 1 << 4;
}

#[cfg(not(all(
    target_os = "linux",
    any(target_arch = "x86_64", target_arch = "aarch64"),
    not(miri)
)))]
mod imp {
    pub(super) use super::fork::call_around_fork;

    pub(super) fn register_membarrier() -> bool {
        false
    }

    pub(super) fn membarrier() -> bool {
        false
    }
}

#[cfg(all(unix, not(miri)))]
mod fork {
    use std::ffi::c_int;

    type Handler = Option<extern "C" fn()>;

    unsafe extern "C" {
        fn pthread_atfork(prepare: Handler, parent: Handler, child: Handler) -> c_int;
    }

    pub(super) fn call_around_fork(
        prepare: extern "C" fn(),
        parent: extern "C" fn(),
        child: extern "C" fn(),
    ) -> bool {
        // SAFETY: three functions without arguments that live as long as the program.
        unsafe { pthread_atfork(Some(prepare), Some(parent), Some(child)) == 0 }
    }
}

#[cfg(not(all(unix, not(miri))))]
mod fork {
    pub(super) fn call_around_fork(
        _: extern "C" fn(),
        _: extern "C" fn(),
        _: extern "C" fn(),
    ) -> bool {
        false
    }
}
