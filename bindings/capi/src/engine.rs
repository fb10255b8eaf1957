//! An engine, and what is done with it as a whole.
#![expect(
    unsafe_code,
    reason = "entries have names that C knows, and take its pointers"
)]

use crate::attached::Attached;
use crate::data::{dwell_batch, dwell_event, dwell_options, dwell_statistics, options_of};
use crate::facts::Lent;
use crate::pointers;
use crate::status::{dwell_status, guarded, of_command, system};
use ::dwell_engine::Detached;
use ::dwell_engine::embed::{Batch, Command, Engine};
use ::dwell_engine::tls::Tls;
use dwell_evloop::{FileSlice, Listener, Stream};
use std::cell::UnsafeCell;
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

/// HTTP, WebSocket and raw streams on one loop. Not for two threads at once, but for one after
/// another; a second one is refused with DWELL_BUSY.
pub struct dwell_engine {
    state: AtomicU8,
    inner: UnsafeCell<Inner>,
    descriptor: c_int,
}

pub(crate) struct Inner {
    pub(crate) engine: Engine,
    pub(crate) batch: Batch,
    pub(crate) attached: Attached,
    pub(crate) lent: Lent,
}

// An engine may be entered by one thread after another.
const _: () = {
    const fn may_move<T: Send>() {}
    may_move::<Inner>();
};

/// No thread is inside.
const FREE: u8 = 0;
/// A thread is inside.
const ENTERED: u8 = 1;
/// It has panicked.
const BROKEN: u8 = 2;

/// Enters an engine, for one thread at a time; `refused` makes the result where that cannot be.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed.
pub(crate) unsafe fn enter<T>(
    engine: *const dwell_engine,
    refused: impl Fn(dwell_status) -> T,
    act: impl FnOnce(&mut Inner) -> T,
) -> T {
    // SAFETY: null or alive.
    let Some(engine) = (unsafe { engine.as_ref() }) else {
        return refused(dwell_status::DWELL_INVALID);
    };
    let entered =
        engine
            .state
            .compare_exchange(FREE, ENTERED, Ordering::Acquire, Ordering::Relaxed);
    match entered {
        Ok(_) => {}
        Err(BROKEN) => return refused(dwell_status::DWELL_BROKEN),
        Err(_) => return refused(dwell_status::DWELL_BUSY),
    }
    // SAFETY: whoever has changed the state to `ENTERED` is alone until it changes it back.
    let inner = unsafe { &mut *engine.inner.get() };
    let result = guarded(None, || Some(act(inner)));
    let state = if result.is_some() { FREE } else { BROKEN };
    engine.state.store(state, Ordering::Release);
    result.unwrap_or_else(|| refused(dwell_status::DWELL_BROKEN))
}

/// Enters as [`enter`] does, for entries that return a status.
///
/// # Safety
/// As [`enter`].
pub(crate) unsafe fn within(
    engine: *const dwell_engine,
    act: impl FnOnce(&mut Inner) -> Result<(), dwell_status>,
) -> dwell_status {
    let act = |inner: &mut Inner| act(inner).err().unwrap_or(dwell_status::DWELL_OK);
    // SAFETY: as the caller says.
    unsafe { enter(engine, |status| status, act) }
}

pub(crate) fn refused(error: io::Error) -> dwell_status {
    let status = system(&error);
    drop(error);
    status
}

/// A descriptor of the caller's, ours from now on.
///
/// # Safety
/// No other code may close it, if it is one at all.
pub(crate) unsafe fn owned(descriptor: c_int) -> Result<OwnedFd, dwell_status> {
    if descriptor < 0 {
        return Err(dwell_status::DWELL_INVALID);
    }
    // SAFETY: not negative, and the caller gives it away.
    Ok(unsafe { OwnedFd::from_raw_fd(descriptor) })
}

/// Makes an engine that listens nowhere. Free it with dwell_engine_free. `options` may be null for
/// the defaults; some that cannot be return DWELL_INVALID, and so does a `size` that is not one of
/// dwell_options_default.
///
/// # Safety
/// `options` must be null, or readable for as many bytes as its `size` says, and `engine` null or
/// writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_new(
    options: *const dwell_options,
    engine: *mut *mut dwell_engine,
) -> dwell_status {
    guarded(dwell_status::DWELL_BROKEN, || {
        if engine.is_null() {
            return dwell_status::DWELL_INVALID;
        }
        // SAFETY: null, or readable for its size.
        let Some(options) = (unsafe { options_of(options) }) else {
            return dwell_status::DWELL_INVALID;
        };
        match Engine::new(options) {
            Ok(made) => {
                let descriptor = made.as_fd().as_raw_fd();
                let made = Box::new(dwell_engine {
                    state: AtomicU8::new(FREE),
                    inner: UnsafeCell::new(Inner {
                        engine: made,
                        batch: Batch::new(),
                        attached: Attached::default(),
                        lent: Lent::default(),
                    }),
                    descriptor,
                });
                // SAFETY: not null, and the caller's to write.
                unsafe { pointers::put(engine, Box::into_raw(made)) };
                dwell_status::DWELL_OK
            }
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                refused(error);
                dwell_status::DWELL_INVALID
            }
            Err(error) => refused(error),
        }
    })
}

/// Frees an engine and closes everything it has. Nothing for null. No thread may be inside it.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed yet.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_free(engine: *mut dwell_engine) {
    guarded((), || {
        if !engine.is_null() {
            // SAFETY: it was made by `Box::into_raw`, and nobody else frees it.
            drop(unsafe { Box::from_raw(engine) });
        }
    });
}

/// Returns the descriptor to wait on; -1 for null. It is readable when the next turn has an event
/// that is not a deadline. It stays the engine's. Any thread may call this.
///
/// # Safety
/// As `dwell_engine_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_fileno(engine: *const dwell_engine) -> c_int {
    // SAFETY: null or alive; the number never changes.
    unsafe { engine.as_ref() }.map_or(-1, |engine| engine.descriptor)
}

/// Listens on a TCP address such as `127.0.0.1:8080` or `[::]:0`; `port`, which may be null, is
/// given the port.
///
/// # Safety
/// `engine` as for `dwell_engine_free`; `address` must be null or end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_listen(
    engine: *mut dwell_engine,
    address: *const c_char,
    port: *mut u16,
) -> dwell_status {
    let listen = |inner: &mut Inner| {
        // SAFETY: as the caller says.
        unsafe { listen_at(inner, address, port, None) }
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, listen) }
}

/// Listens, under TLS if there are certificates.
///
/// # Safety
/// `address` must be null or end with a zero, and `port` null or writable.
pub(crate) unsafe fn listen_at(
    inner: &mut Inner,
    address: *const c_char,
    port: *mut u16,
    tls: Option<&Tls>,
) -> Result<(), dwell_status> {
    if address.is_null() {
        return Err(dwell_status::DWELL_INVALID);
    }
    // SAFETY: not null, and it ends with a zero.
    let address = unsafe { CStr::from_ptr(address) }.to_str();
    let address = address
        .ok()
        .and_then(|text| text.parse::<SocketAddr>().ok());
    let address = address.ok_or(dwell_status::DWELL_INVALID)?;
    let bound = match tls {
        None => inner.engine.listen(address),
        Some(tls) => inner.engine.listen_tls(address, tls),
    };
    // SAFETY: null or the caller's to write.
    unsafe { pointers::put(port, bound.map_err(refused)?.port()) };
    Ok(())
}

/// Listens on a unix socket at this path, in the place of one on which nothing listens. The engine
/// removes its file when it listens no more.
///
/// # Safety
/// `engine` as for `dwell_engine_free`; `path` must be null or end with a zero.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_listen_unix(
    engine: *mut dwell_engine,
    path: *const c_char,
) -> dwell_status {
    let listen = |inner: &mut Inner| {
        if path.is_null() {
            return Err(dwell_status::DWELL_INVALID);
        }
        // SAFETY: not null, and it ends with a zero.
        let path = OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes());
        inner.engine.listen_unix(Path::new(path)).map_err(refused)
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, listen) }
}

/// Accepts the clients of a TCP socket that listens already. The descriptor is the engine's from
/// now on, whatever is returned.
///
/// # Safety
/// `engine` as for `dwell_engine_free`; no other code may close the descriptor.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_adopt_listener(
    engine: *mut dwell_engine,
    descriptor: c_int,
) -> dwell_status {
    // SAFETY: the caller gives it away.
    let listener = unsafe { owned(descriptor) };
    let adopt = |inner: &mut Inner| {
        let listener = Listener::from_tcp(TcpListener::from(listener?)).map_err(refused)?;
        inner.engine.listen_on(listener).map_err(refused)
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, adopt) }
}

/// Serves a client that was accepted elsewhere. The descriptor is the engine's from now on,
/// whatever is returned; `connection`, which may be null, is given its name.
///
/// # Safety
/// As `dwell_engine_adopt_listener`; `connection` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_adopt(
    engine: *mut dwell_engine,
    descriptor: c_int,
    connection: *mut u64,
) -> dwell_status {
    // SAFETY: the caller gives it away.
    let descriptor = unsafe { owned(descriptor) };
    let adopt = |inner: &mut Inner| {
        let stream = Stream::from_descriptor(descriptor?).map_err(refused)?;
        // SAFETY: null or the caller's to write.
        unsafe { adopt_stream(inner, stream, connection) }
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, adopt) }
}

/// Serves a client, and gives its name to `connection`.
///
/// # Safety
/// `connection` must be null or writable.
pub(crate) unsafe fn adopt_stream(
    inner: &mut Inner,
    stream: Stream,
    connection: *mut u64,
) -> Result<(), dwell_status> {
    let name = inner.engine.adopt(stream).ok_or(dwell_status::DWELL_FULL)?;
    // SAFETY: as the caller says.
    unsafe { pointers::put(connection, name) };
    Ok(())
}

/// Takes over a connected stream that speaks no HTTP, with the bytes that were read from it
/// already, which are copied. The descriptor is the engine's from now on, whatever is returned;
/// `stream`, which may be null, is given its name.
///
/// # Safety
/// As `dwell_engine_adopt`; `length` bytes must be readable at `input`, unless it is null.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_adopt_stream(
    engine: *mut dwell_engine,
    descriptor: c_int,
    input: *const u8,
    length: usize,
    stream: *mut u64,
) -> dwell_status {
    // SAFETY: the caller gives it away.
    let descriptor = unsafe { owned(descriptor) };
    let adopt = |inner: &mut Inner| {
        let detached = Detached {
            stream: Stream::from_descriptor(descriptor?).map_err(refused)?,
            // SAFETY: as the caller says.
            input: unsafe { pointers::bytes(input, length) }.to_vec(),
        };
        let name = inner.engine.adopt_stream(detached).map_err(refused)?;
        // SAFETY: null or the caller's to write.
        unsafe { pointers::put(stream, name) };
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, adopt) }
}

/// Carries out orders, then waits once, for at most `timeout_ms` milliseconds (-1: until an event),
/// and returns the events since the last turn. `commands` may be null for no orders; their forms
/// are described above. If it returns anything but DWELL_OK the batch is empty, and no turn was
/// taken.
///
/// # Safety
/// `engine` as for `dwell_engine_free`; `length` bytes must be readable at `commands`, unless it is
/// null; `batch` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_turn(
    engine: *mut dwell_engine,
    commands: *const u8,
    length: usize,
    timeout_ms: i64,
    batch: *mut dwell_batch,
) -> dwell_status {
    // SAFETY: null or the caller's to write.
    unsafe { pointers::put(batch, dwell_batch::EMPTY) };
    let turn = |inner: &mut Inner| {
        if batch.is_null() {
            return Err(dwell_status::DWELL_INVALID);
        }
        // SAFETY: as the caller says.
        let commands = unsafe { pointers::bytes(commands, length) };
        inner.lent.clear();
        inner.engine.submit(commands).map_err(of_command)?;
        let timeout = u64::try_from(timeout_ms).ok().map(Duration::from_millis);
        let Inner {
            engine, batch: own, ..
        } = inner;
        engine.turn(timeout, own).map_err(refused)?;
        let told = dwell_batch {
            events: own.events().as_ptr().cast::<dwell_event>(),
            count: own.events().len(),
            data: own.data().as_ptr(),
            data_length: own.data().len(),
            wait_ms: wait_ms(engine),
        };
        // SAFETY: not null, and the caller's to write.
        unsafe { pointers::put(batch, told) };
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, turn) }
}

/// Milliseconds that the next turn may wait, rounded up; -1 for ever.
fn wait_ms(engine: &mut Engine) -> i64 {
    engine.wait_max().map_or(-1, |wait| {
        let millis = wait.as_micros().div_ceil(1000);
        i64::try_from(millis).unwrap_or(i64::MAX)
    })
}

/// Returns for how many milliseconds the next turn may wait at most, after all orders since the
/// last one; 0 when work is left, -1 for ever, as for an engine that is null, busy or broken.
///
/// # Safety
/// As `dwell_engine_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_wait_ms(engine: *mut dwell_engine) -> i64 {
    // SAFETY: as the caller says.
    unsafe { enter(engine, |_| -1, |inner| wait_ms(&mut inner.engine)) }
}

/// Carries out orders without a turn. `stale`, which may be null, is given how many of them named
/// nothing any more; `wait_ms`, which may be null, for how long the next turn may wait.
///
/// # Safety
/// As `dwell_engine_turn`; `stale` and `wait_ms` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_submit(
    engine: *mut dwell_engine,
    commands: *const u8,
    length: usize,
    stale: *mut u64,
    wait_ms: *mut i64,
) -> dwell_status {
    let submit = |inner: &mut Inner| {
        // SAFETY: as the caller says.
        let commands = unsafe { pointers::bytes(commands, length) };
        let submitted = inner.engine.submit(commands);
        if !wait_ms.is_null() {
            // SAFETY: not null, and the caller's to write.
            unsafe { pointers::put(wait_ms, self::wait_ms(&mut inner.engine)) };
        }
        let count = submitted.map_err(of_command)?;
        // SAFETY: null or the caller's to write.
        unsafe { pointers::put(stale, count as u64) };
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, submit) }
}

/// Writes a part of a file into an answer or its bytes, which the system copies by itself. The
/// descriptor of the file is the engine's from now on, whatever is returned.
///
/// # Safety
/// As `dwell_engine_adopt_listener`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_write_file(
    engine: *mut dwell_engine,
    handle: u64,
    flags: u32,
    descriptor: c_int,
    offset: u64,
    length: u64,
) -> dwell_status {
    // SAFETY: the caller gives it away.
    let descriptor = unsafe { owned(descriptor) };
    let write = |inner: &mut Inner| {
        let slice = FileSlice {
            file: Arc::new(File::from(descriptor?)),
            offset,
            length,
        };
        let written = inner.engine.write_file(handle, flags, slice);
        written.map_err(of_command)
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, write) }
}

/// Takes the connection of a DWELL_DETACHED event: a blocking socket, the caller's to close; -1
/// without one, or if the client speaks TLS, whose keys are the engine's.
///
/// # Safety
/// As `dwell_engine_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_take_descriptor(
    engine: *mut dwell_engine,
    handle: u64,
) -> c_int {
    let take = |inner: &mut Inner| {
        let detached = inner.engine.take_detached(handle);
        let socket = detached.and_then(|detached| detached.stream.into_blocking().ok());
        socket.map_or(-1, |socket| OwnedFd::from(socket).into_raw_fd())
    };
    // SAFETY: as the caller says.
    unsafe { enter(engine, |_| -1, take) }
}

/// The address that the client of a request or a connection has connected to, as text: copies as
/// much of it to `text` as fits into `size` bytes with a zero behind it.
///
/// # Safety
/// `engine` as for `dwell_engine_free`; `text` must be null or have room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_local_address(
    engine: *mut dwell_engine,
    handle: u64,
    text: *mut c_char,
    size: usize,
) -> dwell_status {
    let ask = |inner: &mut Inner| {
        let address = inner.engine.local_address(handle);
        let address = address.ok_or(dwell_status::DWELL_STALE)?.to_string();
        // SAFETY: as the caller says.
        unsafe { pointers::copy_text(&address, text, size) };
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, ask) }
}

/// Stops listening and lets everything come to its end: connections with their next answer,
/// WebSockets with a close frame. Turn until dwell_engine_statistics has none left.
///
/// # Safety
/// As `dwell_engine_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_drain(engine: *mut dwell_engine) -> dwell_status {
    let drain = |inner: &mut Inner| {
        inner.engine.drain();
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, drain) }
}

/// Closes everything that is left at once; the next turn has the events of that.
///
/// # Safety
/// As `dwell_engine_free`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_close_all(engine: *mut dwell_engine) -> dwell_status {
    let close = |inner: &mut Inner| {
        inner.engine.close_all();
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, close) }
}

/// Writes the counters since the start, and the current sizes, to `statistics`.
///
/// # Safety
/// `engine` as for `dwell_engine_free`; `statistics` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_statistics(
    engine: *mut dwell_engine,
    statistics: *mut dwell_statistics,
) -> dwell_status {
    let read = |inner: &mut Inner| {
        let figures = dwell_statistics::of(&inner.engine.statistics());
        // SAFETY: null or the caller's to write.
        unsafe { pointers::put(statistics, figures) };
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, read) }
}

/// Carries out one order of [`crate::orders`].
///
/// # Safety
/// As [`enter`].
pub(crate) unsafe fn order(engine: *mut dwell_engine, command: &Command<'_>) -> dwell_status {
    let carry_out = |inner: &mut Inner| inner.engine.execute(command).map_err(of_command);
    // SAFETY: as the caller says.
    unsafe { within(engine, carry_out) }
}
