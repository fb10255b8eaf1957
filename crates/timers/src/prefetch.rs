//! Asking for memory before it is needed.

/// Has the processor fetch the cache line of `value`, without waiting for it.
///
/// Shape: a hint; nothing happens where there is no such instruction.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    imp::prefetch(std::ptr::from_ref(value).cast());
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod imp {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};

    #[inline]
    #[expect(unsafe_code, reason = "the instruction takes an address")]
    pub(super) fn prefetch(address: *const i8) {
        // SAFETY: the instruction is part of every x86-64; it reads nothing as far as the program
        // can tell, and cannot fault whatever the address is.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address) };
    }
}

#[cfg(all(target_arch = "aarch64", not(miri)))]
mod imp {
    #[inline]
    #[expect(unsafe_code, reason = "the instruction takes an address")]
    pub(super) fn prefetch(address: *const i8) {
        // SAFETY: the instruction is part of every AArch64; it reads nothing as far as the program
        // can tell, and cannot fault whatever the address is.
        unsafe {
            std::arch::asm!(
                "prfm pldl1keep, [{0}]",
                in(reg) address,
                options(nostack, preserves_flags, readonly),
            );
        }
    }
}

#[cfg(any(miri, not(any(target_arch = "x86_64", target_arch = "aarch64"))))]
mod imp {
    pub(super) fn prefetch(_: *const i8) {}
}
