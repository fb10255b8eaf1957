//! Pointers of C.

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

/// Copies as much of a text as fits, with a zero behind it if there is room.
///
/// # Safety
/// `target` must be null, or have room for `size` bytes.
pub(crate) unsafe fn copy_text(text: &str, target: *mut c_char, size: usize) {
    if target.is_null() {
        return;
    }
    let length = text.len().min(size);
    // SAFETY: `length` is not beyond either, and nobody else knows the text.
    unsafe { target.cast::<u8>().copy_from(text.as_ptr(), length) };
    if length < size {
        // SAFETY: within the `size` bytes.
        unsafe { target.add(length).write(0) };
    }
}
