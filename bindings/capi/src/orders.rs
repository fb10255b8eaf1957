//! Orders one at a time, for hosts that do not write them behind one another.
//!
//! Each returns `DWELL_STALE` where its handle names nothing any more.
#![expect(
    unsafe_code,
    reason = "entries have names that C knows, and take its pointers"
)]

use crate::engine::{dwell_engine, order};
use crate::pointers::bytes;
use crate::status::dwell_status;
use ::dwell_engine::embed::{Command, FieldLines, Operation, write_flags};
use std::str;

/// Sends a whole answer, which the engine frames: `fields` are those but for framing, `name:value`
/// and a line feed each. Of the flags DWELL_CLOSE alone counts.
///
/// A line feed ends a field wherever it is, so a value that came from elsewhere and has one goes on
/// as another field: check such values first. A carriage return or a zero within a value is sent as
/// a space. A line without a colon, or whose name is not a token, is left out.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed;
/// what a length stands behind must be null, or have so many readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_answer(
    engine: *mut dwell_engine,
    handle: u64,
    status: u16,
    flags: u32,
    fields: *const u8,
    fields_length: usize,
    body: *const u8,
    body_length: usize,
) -> dwell_status {
    // SAFETY: as the caller says.
    let fields = unsafe { bytes(fields, fields_length) };
    // SAFETY: as the caller says.
    let body = unsafe { bytes(body, body_length) };
    let command = Command {
        status,
        flags,
        fields: FieldLines(fields),
        bytes: body,
        ..Operation::Answer.on(handle)
    };
    // SAFETY: as the caller says.
    unsafe { order(engine, &command) }
}

/// Begins an answer, which the engine frames, and whose body dwell_write brings: of `length` bytes,
/// or in chunks for UINT64_MAX. Of the flags DWELL_CLOSE alone counts.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed;
/// what a length stands behind must be null, or have so many readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_begin(
    engine: *mut dwell_engine,
    handle: u64,
    status: u16,
    flags: u32,
    fields: *const u8,
    fields_length: usize,
    length: u64,
) -> dwell_status {
    // SAFETY: as the caller says.
    let fields = unsafe { bytes(fields, fields_length) };
    let command = Command {
        status,
        flags,
        fields: FieldLines(fields),
        argument: length,
        ..Operation::Begin.on(handle)
    };
    // SAFETY: as the caller says.
    unsafe { order(engine, &command) }
}

/// Writes bytes, which are copied: of an answer that was begun, as the body; of one that was not,
/// as the answer just as it is, status line and all; of a raw stream, as they are.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed;
/// what a length stands behind must be null, or have so many readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_write(
    engine: *mut dwell_engine,
    handle: u64,
    flags: u32,
    data: *const u8,
    data_length: usize,
) -> dwell_status {
    // SAFETY: as the caller says.
    let data = unsafe { bytes(data, data_length) };
    let command = Command {
        flags,
        bytes: data,
        ..Operation::Write.on(handle)
    };
    // SAFETY: as the caller says.
    unsafe { order(engine, &command) }
}

/// Ends an answer that was begun. `trailers` are fields as of dwell_answer, which come behind a
/// body that was begun without a length, or on a stream of HTTP/2, and nowhere else.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed;
/// what a length stands behind must be null, or have so many readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_finish(
    engine: *mut dwell_engine,
    handle: u64,
    trailers: *const u8,
    trailers_length: usize,
) -> dwell_status {
    // SAFETY: as the caller says.
    let trailers = unsafe { bytes(trailers, trailers_length) };
    let command = Command {
        flags: write_flags::FINISH,
        fields: FieldLines(trailers),
        ..Operation::Write.on(handle)
    };
    // SAFETY: as the caller says.
    unsafe { order(engine, &command) }
}

/// Sends an informational answer before the final one.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed;
/// what a length stands behind must be null, or have so many readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_informational(
    engine: *mut dwell_engine,
    handle: u64,
    status: u16,
    fields: *const u8,
    fields_length: usize,
) -> dwell_status {
    // SAFETY: as the caller says.
    let fields = unsafe { bytes(fields, fields_length) };
    let command = Command {
        status,
        fields: FieldLines(fields),
        ..Operation::Informational.on(handle)
    };
    // SAFETY: as the caller says.
    unsafe { order(engine, &command) }
}

/// Lets so many more bytes of a body come; the first call sends a 100 (Continue) that the client
/// waits for. The end of a chunked body comes only while some are granted.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_grant(
    engine: *mut dwell_engine,
    handle: u64,
    count: u64,
) -> dwell_status {
    let command = Command {
        argument: count,
        ..Operation::Grant.on(handle)
    };
    // SAFETY: as the caller says.
    unsafe { order(engine, &command) }
}

/// Ends the connection of anything at once, whatever is queued for it.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_abort(engine: *mut dwell_engine, handle: u64) -> dwell_status {
    // SAFETY: as the caller says.
    unsafe { order(engine, &Operation::Abort.on(handle)) }
}

/// Closes in order, behind what is queued: a WebSocket with a close frame of this code (0 for none)
/// and reason, which must be UTF-8; of a request, the connection, whose answer is cut off.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed;
/// what a length stands behind must be null, or have so many readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_close(
    engine: *mut dwell_engine,
    handle: u64,
    code: u16,
    reason: *const u8,
    reason_length: usize,
) -> dwell_status {
    // SAFETY: as the caller says.
    let reason = unsafe { bytes(reason, reason_length) };
    if str::from_utf8(reason).is_err() {
        return dwell_status::DWELL_MALFORMED;
    }
    let command = Command {
        status: code,
        bytes: reason,
        ..Operation::Close.on(handle)
    };
    // SAFETY: as the caller says.
    unsafe { order(engine, &command) }
}

/// Takes the connection of a request out of the engine, once what was written is out;
/// DWELL_DETACHED follows.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_detach(engine: *mut dwell_engine, handle: u64) -> dwell_status {
    // SAFETY: as the caller says.
    unsafe { order(engine, &Operation::Detach.on(handle)) }
}

/// Makes a WebSocket of the connection of a request, if the handshake in its head is in order;
/// DWELL_WEBSOCKET_OPENED or DWELL_UPGRADE_REFUSED follows. `fields` are further ones of the
/// answer. `head` is that of the request; no answer may have been begun.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed;
/// what a length stands behind must be null, or have so many readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_upgrade(
    engine: *mut dwell_engine,
    handle: u64,
    flags: u32,
    fields: *const u8,
    fields_length: usize,
    head: *const u8,
    head_length: usize,
) -> dwell_status {
    // SAFETY: as the caller says.
    let fields = unsafe { bytes(fields, fields_length) };
    // SAFETY: as the caller says.
    let head = unsafe { bytes(head, head_length) };
    let command = Command {
        flags,
        fields: FieldLines(fields),
        bytes: head,
        ..Operation::Upgrade.on(handle)
    };
    // SAFETY: as the caller says.
    unsafe { order(engine, &command) }
}

/// Sends a WebSocket message, which is copied; text must be UTF-8. With a `mark` other than 0,
/// DWELL_WRITABLE reports it when the message, and all before it, is out, even if that is at once.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed;
/// what a length stands behind must be null, or have so many readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_send(
    engine: *mut dwell_engine,
    handle: u64,
    is_text: bool,
    mark: u32,
    payload: *const u8,
    payload_length: usize,
) -> dwell_status {
    // SAFETY: as the caller says.
    let payload = unsafe { bytes(payload, payload_length) };
    let command = Command {
        flags: u32::from(is_text),
        argument: u64::from(mark),
        bytes: payload,
        ..Operation::Send.on(handle)
    };
    // SAFETY: as the caller says.
    unsafe { order(engine, &command) }
}

/// Sends a ping of at most 125 bytes on a WebSocket.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed;
/// what a length stands behind must be null, or have so many readable bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_ping(
    engine: *mut dwell_engine,
    handle: u64,
    payload: *const u8,
    payload_length: usize,
) -> dwell_status {
    // SAFETY: as the caller says.
    let payload = unsafe { bytes(payload, payload_length) };
    // SAFETY: as the caller says.
    unsafe {
        order(
            engine,
            &Command {
                bytes: payload,
                ..Operation::Ping.on(handle)
            },
        )
    }
}

/// Stops reading from a WebSocket or a raw stream.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_pause(engine: *mut dwell_engine, handle: u64) -> dwell_status {
    // SAFETY: as the caller says.
    unsafe { order(engine, &Operation::Pause.on(handle)) }
}

/// Reads again from a WebSocket or a raw stream.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_resume(engine: *mut dwell_engine, handle: u64) -> dwell_status {
    // SAFETY: as the caller says.
    unsafe { order(engine, &Operation::Resume.on(handle)) }
}

/// Tells that the host has done with a request of HTTP/2 to which it gave no last order, because it
/// was gone before: with `counts_work`. It does nothing for a request that was answered.
///
/// # Safety
/// `engine` must be null, or come from `dwell_engine_new` and not be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_done(engine: *mut dwell_engine, handle: u64) -> dwell_status {
    // SAFETY: as the caller says.
    unsafe { order(engine, &Operation::Done.on(handle)) }
}
