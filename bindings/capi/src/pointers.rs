//! Pointers of C.
#![expect(unsafe_code, reason = "pointers of C are read and written")]

use std::ffi::c_char;
use std::slice;

/// The bytes at a pointer; none for null or no length.
///
/// # Safety
/// `length` bytes must be readable at `start` for as long as the slice is used, unless `start` is
/// null.
pub(crate) unsafe fn bytes<'a>(start: *const u8, length: usize) -> &'a [u8] {
    if start.is_null() || length == 0 {
        return &[];
    }
    // SAFETY: not null, and the caller says that so much is readable.
    unsafe { slice::from_raw_parts(start, length) }
}

/// Writes through a pointer that may be null.
///
/// # Safety
/// `target` must be null, or writable and aligned.
pub(crate) unsafe fn put<T>(target: *mut T, value: T) {
    if !target.is_null() {
        // SAFETY: not null, and the caller says that it is writable.
        unsafe { target.write(value) };
    }
}

/// The size that a struct begins with; `None` for null.
///
/// # Safety
/// `start` must be null, or aligned and readable for the size.
pub(crate) unsafe fn first_size<T>(start: *const T) -> Option<usize> {
    // SAFETY: null, or readable as the caller says.
    unsafe { start.cast::<usize>().as_ref() }.copied()
}

/// Copies the first bytes of a struct over those of another.
///
/// # Safety
/// So many bytes must be readable at `source` and writable at `target`, which do not overlap. What
/// `target` is read as must be good with any of them.
pub(crate) unsafe fn put_front<T>(target: *mut T, source: *const T, bytes: usize) {
    // SAFETY: as the caller says.
    unsafe {
        target
            .cast::<u8>()
            .copy_from_nonoverlapping(source.cast(), bytes);
    };
}

/// Copies as much of a text as fits, with a zero behind it.
///
/// # Safety
/// `target` must be null, or have room for `size` bytes.
pub(crate) unsafe fn copy_text(text: &str, target: *mut c_char, size: usize) {
    let Some(room) = size.checked_sub(1).filter(|_| !target.is_null()) else {
        return;
    };
    let mut length = text.len().min(room);
    while !text.is_char_boundary(length) {
        length -= 1;
    }
    // SAFETY: `length` is beyond neither, and the text is ours, so that they do not overlap.
    unsafe { target.cast::<u8>().copy_from(text.as_ptr(), length) };
    // SAFETY: at most the last of the `size` bytes.
    unsafe { target.add(length).write(0) };
}
