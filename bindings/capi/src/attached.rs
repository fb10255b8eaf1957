//! Pointers of the host's that are kept with handles.
#![expect(
    unsafe_code,
    reason = "entries have names that C knows, and take its pointers"
)]

use crate::engine::{Inner, dwell_engine, enter, within};
use crate::status::dwell_status;
use std::collections::HashMap;
use std::ffi::c_void;

/// The bits of a handle that number the things which have had its place, one after another.
const GENERATION: u64 = 0x00ff_ffff_0000_0000;

/// A pointer that is only handed back.
#[derive(Clone, Copy, Debug)]
struct Opaque(*mut c_void);

// SAFETY: it is never read through here, and what it points to is the host's to share.
unsafe impl Send for Opaque {}

/// The pointers of an engine, each with its handle, by the place of that in the engine's tables.
#[derive(Debug, Default)]
pub(crate) struct Attached {
    pointers: HashMap<u64, (u64, Opaque)>,
}

impl Attached {
    fn set(&mut self, handle: u64, data: *mut c_void) {
        let place = handle & !GENERATION;
        if data.is_null() {
            self.pointers.remove(&place);
        } else {
            self.pointers.insert(place, (handle, Opaque(data)));
        }
    }

    fn find(&self, handle: u64) -> *mut c_void {
        match self.pointers.get(&(handle & !GENERATION)) {
            Some((name, Opaque(data))) if *name == handle => *data,
            _ => std::ptr::null_mut(),
        }
    }
}

/// Keeps a pointer of the host's with a request, a connection, a WebSocket or a raw stream; null
/// removes it. The engine never reads through it and never frees what it points to.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_set_data(
    engine: *mut dwell_engine,
    handle: u64,
    data: *mut c_void,
) -> dwell_status {
    let set = |inner: &mut Inner| {
        if !inner.engine.is_alive(handle) {
            return Err(dwell_status::DWELL_STALE);
        }
        inner.attached.set(handle, data);
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, set) }
}

/// Returns the pointer that dwell_set_data has kept with a handle; null if there is none. It is
/// there until another one is kept in the same place of the engine's tables: read it when the end
/// of the handle is told, or before the answer to a request is finished.
///
/// # Safety
/// As `dwell_set_data`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_data(engine: *mut dwell_engine, handle: u64) -> *mut c_void {
    let find = |inner: &mut Inner| inner.attached.find(handle);
    // SAFETY: as the caller says.
    unsafe { enter(engine, |_| std::ptr::null_mut(), find) }
}
