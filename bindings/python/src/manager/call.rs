//! A call of a handler, for which no tuple is made.

#![expect(
    unsafe_code,
    reason = "`pyo3` has this call for CPython 3.12 and later only, and we build for 3.11"
)]

use pyo3::ffi;
use pyo3::prelude::*;
use std::ptr::null_mut;

unsafe extern "C" {
    /// A function of `CPython` since 3.11, and of its stable interface since 3.12.
    fn PyObject_Vectorcall(
        callable: *mut ffi::PyObject,
        arguments: *const *mut ffi::PyObject,
        count_and_flags: usize,
        keyword_names: *mut ffi::PyObject,
    ) -> *mut ffi::PyObject;
}

/// `PY_VECTORCALL_ARGUMENTS_OFFSET`: the callee may use the place before the first argument, where
/// a bound method puts its object.
const ARGUMENTS_OFFSET: usize = 1 << (usize::BITS - 1);

/// Calls `callable` with these arguments.
///
/// # Errors
/// The exception that it raises.
pub(super) fn call<'py>(
    callable: &Bound<'py, PyAny>,
    arguments: [&Bound<'py, PyAny>; 3],
) -> PyResult<Bound<'py, PyAny>> {
    let [first, second, third] = arguments.map(Bound::as_ptr);
    let mut places = [null_mut(), first, second, third];
    let count = arguments.len() | ARGUMENTS_OFFSET;
    // SAFETY: this thread is attached, as `callable` shows. `callable` and the arguments are
    // borrowed, and so alive until the call returns. As many arguments as `count` says stand from
    // the second place on, and the place before them is ours to lend. There are no keywords.
    let result = unsafe {
        let start = places.as_mut_ptr().add(1);
        PyObject_Vectorcall(callable.as_ptr(), start, count, null_mut())
    };
    // SAFETY: what it returns is a reference of our own, or null with an exception set.
    unsafe { Bound::from_owned_ptr_or_err(callable.py(), result) }
}
