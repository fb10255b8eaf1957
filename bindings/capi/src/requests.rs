//! Requests as they lie in the batch of the last turn.
#![expect(
    unsafe_code,
    reason = "entries have names that C knows, and take its pointers"
)]

use crate::data::{dwell_request, dwell_span, request_of, span_of};
use crate::engine::{Inner, dwell_engine, within};
use crate::pointers;
use crate::status::dwell_status;
use std::ffi::{CStr, c_char};

/// Reads the request of the event at `index` of the last turn. The spans live until the next turn.
///
/// # Safety
/// `engine` as for `dwell_engine_free`; `request` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_request(
    engine: *mut dwell_engine,
    index: usize,
    request: *mut dwell_request,
) -> dwell_status {
    let read = |inner: &mut Inner| {
        let event = inner.batch.events().get(index);
        let view = event.and_then(|event| inner.batch.request(event));
        let view = view.ok_or(dwell_status::DWELL_INVALID)?;
        // SAFETY: null or the caller's to write.
        unsafe { pointers::put(request, request_of(view)) };
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, read) }
}

/// Reads field number `field` of the request of the event at `index` of the last turn. The spans
/// live until the next turn.
///
/// # Safety
/// `engine` as for `dwell_engine_free`; `name` and `value` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_request_field(
    engine: *mut dwell_engine,
    index: usize,
    field: usize,
    name: *mut dwell_span,
    value: *mut dwell_span,
) -> dwell_status {
    let read = |inner: &mut Inner| {
        let event = inner.batch.events().get(index);
        let view = event.and_then(|event| inner.batch.request(event));
        let found = view.and_then(|view| view.fields().nth(field));
        let (found_name, found_value) = found.ok_or(dwell_status::DWELL_INVALID)?;
        // SAFETY: null or the caller's to write.
        unsafe { pointers::put(name, span_of(found_name)) };
        // SAFETY: null or the caller's to write.
        unsafe { pointers::put(value, span_of(found_value)) };
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, read) }
}

/// Reads the first field of this name, in any case of letters, of the request of the event at
/// `index` of the last turn; DWELL_ABSENT if there is none. The span lives until the next turn.
///
/// # Safety
/// `engine` as for `dwell_engine_free`; `name` must be null or end with a zero, and `value` be null
/// or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_request_header(
    engine: *mut dwell_engine,
    index: usize,
    name: *const c_char,
    value: *mut dwell_span,
) -> dwell_status {
    let read = |inner: &mut Inner| {
        if name.is_null() {
            return Err(dwell_status::DWELL_INVALID);
        }
        // SAFETY: not null, and it ends with a zero.
        let name = unsafe { CStr::from_ptr(name) }.to_bytes();
        let event = inner.batch.events().get(index);
        let view = event.and_then(|event| inner.batch.request(event));
        let mut fields = view.ok_or(dwell_status::DWELL_INVALID)?.fields();
        let found = fields.find(|(other, _)| other.eq_ignore_ascii_case(name));
        let (_, found) = found.ok_or(dwell_status::DWELL_ABSENT)?;
        // SAFETY: null or the caller's to write.
        unsafe { pointers::put(value, span_of(found)) };
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, read) }
}
