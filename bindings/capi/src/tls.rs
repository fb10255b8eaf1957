//! Certificates, and clients under TLS.
#![expect(
    unsafe_code,
    reason = "entries have names that C knows, and take its pointers"
)]

use crate::data::dwell_span;
use crate::engine::{Inner, adopt_stream, dwell_engine, listen_at, owned, refused, within};
use crate::pointers;
use crate::status::{dwell_status, failed, guarded};
use ::dwell_engine::tls::{ClientCertificates, Tls, TlsBuilder, TlsError};
use dwell_evloop::{Listener, Stream};
use std::ffi::{CStr, OsStr, c_char, c_int};
use std::mem::offset_of;
use std::net::TcpListener;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Certificates of servers. All threads may use one at once, and several engines.
pub struct dwell_tls {
    /// Offers HTTP/1.1.
    tls: Tls,
    /// Offers HTTP/2 as well; all else is the same.
    with_http2: Tls,
}

/// A certificate and its private key in PEM, in files or in memory. Its layout never changes. The
/// first certificate is that of the server, and those that vouch for it follow.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct dwell_certificate {
    /// The path of the file with the certificates; null if they are in memory.
    pub certificate_file: *const c_char,
    /// The path of the file with the key, which may be the same; null if it is in memory.
    pub key_file: *const c_char,
    /// The certificates, where both paths are null.
    pub certificate: dwell_span,
    /// The key, where both paths are null.
    pub key: dwell_span,
}

/// Certificates and limits of TLS: set `size`, let dwell_tls_options_default fill in the rest, then
/// set the certificates.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct dwell_tls_options {
    /// The size of this struct where the host was compiled, `sizeof(dwell_tls_options)`.
    pub size: usize,
    /// The certificates. A client gets the one for the name that it asks for: one with exactly this
    /// name, then one with a wildcard for it. The first is for all other clients.
    pub certificates: *const dwell_certificate,
    /// The number of certificates, at least one.
    pub certificate_count: usize,
    /// Handshakes that may be under way at once in each engine; beyond it the oldest gives way.
    pub handshakes_max: u64,
    /// One of dwell_client_certificates. Sessions are not resumed where clients are asked.
    pub client_certificates: u64,
    /// The path of the PEM file with the authorities that issue certificates of clients; null if
    /// they are in memory. A certificate of another one, or one that has expired, is refused.
    pub client_ca_file: *const c_char,
    /// The authorities in PEM, where the path is null.
    pub client_ca: dwell_span,
    /// The names that clients ask for (SNI) are kept, for dwell_tls_facts. It takes some hundred
    /// bytes of each connection that asks.
    pub keeps_server_names: bool,
    /// The engine has clients prove that they have the key of their certificate, and verifies
    /// nothing else: the host does, when DWELL_SECURED is told, and aborts the connection of a
    /// client that it does not trust. There must be no authorities then.
    pub host_verifies: bool,
}

/// Clients that are asked for a certificate.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub enum dwell_client_certificates {
    /// None is asked.
    DWELL_CLIENTS_NOT_ASKED = 0,
    /// All are asked; one that shows none is served as well.
    DWELL_CLIENTS_ASKED = 1,
    /// All are asked; one that shows none is refused.
    DWELL_CLIENTS_REQUIRED = 2,
}

/// The size of the options as the first version has them. It never changes.
const OPTIONS_SIZE_MIN: usize = offset_of!(dwell_tls_options, client_certificates);

const DEFAULTS: dwell_tls_options = dwell_tls_options {
    size: size_of::<dwell_tls_options>(),
    certificates: std::ptr::null(),
    certificate_count: 0,
    handshakes_max: 1000,
    client_certificates: dwell_client_certificates::DWELL_CLIENTS_NOT_ASKED as u64,
    client_ca_file: std::ptr::null(),
    client_ca: dwell_span::of(&[]),
    keeps_server_names: false,
    host_verifies: false,
};

/// Fills in the defaults of as many options as `size` has room for, and makes it the size of those
/// that this library has. `options` must not be null; without its `size` it is refused.
///
/// # Safety
/// `options` must be null, or readable and writable for as many bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_tls_options_default(
    options: *mut dwell_tls_options,
) -> dwell_status {
    // SAFETY: null, or a struct that begins with its size.
    let size = unsafe { pointers::first_size(options) };
    let Some(size) = size.filter(|size| *size >= OPTIONS_SIZE_MIN) else {
        return dwell_status::DWELL_INVALID;
    };
    let mut defaults = DEFAULTS;
    defaults.size = size.min(defaults.size);
    // SAFETY: the caller says that `size` bytes are writable, and no more are written.
    unsafe { pointers::put_front(options, &raw const defaults, defaults.size) };
    dwell_status::DWELL_OK
}

/// Reads certificates. Free the result with dwell_tls_free. Returns DWELL_SYSTEM for a file that
/// cannot be read and DWELL_CERTIFICATE for a certificate or a key that cannot be used;
/// dwell_last_error says which and why. No certificate, one with only one path and a `size` that is
/// not one of dwell_tls_options_default return DWELL_INVALID.
///
/// # Safety
/// `options` must be null, or readable for as many bytes as its `size` says; its certificates must
/// be readable, their paths end with a zero, and `tls` be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_tls_new(
    options: *const dwell_tls_options,
    tls: *mut *mut dwell_tls,
) -> dwell_status {
    guarded(dwell_status::DWELL_BROKEN, || {
        // SAFETY: null, or a struct that begins with its size.
        let size = unsafe { pointers::first_size(options) };
        let known = OPTIONS_SIZE_MIN..=DEFAULTS.size;
        let Some(size) = size.filter(|size| known.contains(size) && !tls.is_null()) else {
            return dwell_status::DWELL_INVALID;
        };
        let mut known = DEFAULTS;
        // SAFETY: the caller says that `size` bytes are readable, and `known` has room for them.
        unsafe { pointers::put_front(&raw mut known, options, size) };
        // SAFETY: as the caller says.
        let Some(builder) = (unsafe { builder_of(&known) }) else {
            return dwell_status::DWELL_INVALID;
        };
        match builder.build() {
            Ok(made) => {
                let made = Box::new(dwell_tls {
                    with_http2: made.with_http2(),
                    tls: made,
                });
                // SAFETY: not null, and the caller's to write.
                unsafe { pointers::put(tls, Box::into_raw(made)) };
                dwell_status::DWELL_OK
            }
            Err(error) => of_tls(&error),
        }
    })
}

/// Reads the files again. Clients that connect from now on get the certificates that are in them;
/// connections go on. Returns what dwell_tls_new does; after anything but DWELL_OK the certificates
/// are those of before.
///
/// # Safety
/// `tls` must be null, or come from `dwell_tls_new` and not be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_tls_reload(tls: *const dwell_tls) -> dwell_status {
    guarded(dwell_status::DWELL_BROKEN, || {
        // SAFETY: null or alive.
        let Some(tls) = (unsafe { tls.as_ref() }) else {
            return dwell_status::DWELL_INVALID;
        };
        match tls.tls.reload() {
            Ok(()) => dwell_status::DWELL_OK,
            Err(error) => of_tls(&error),
        }
    })
}

/// Frees certificates. Nothing for null. What listens with them goes on.
///
/// # Safety
/// `tls` must be null, or come from `dwell_tls_new` and not be freed yet, and no other thread may
/// be using it.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_tls_free(tls: *mut dwell_tls) {
    guarded((), || {
        if !tls.is_null() {
            // SAFETY: it was made by `Box::into_raw`, and nobody else frees it.
            drop(unsafe { Box::from_raw(tls) });
        }
    });
}

/// Listens as dwell_engine_listen does, for clients under TLS. A client that speaks HTTP without it
/// gets 400. The certificates may be freed at any time after that.
///
/// # Safety
/// As `dwell_engine_listen`; `tls` must be null, or come from `dwell_tls_new` and not be freed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_listen_tls(
    engine: *mut dwell_engine,
    address: *const c_char,
    tls: *const dwell_tls,
    port: *mut u16,
) -> dwell_status {
    let listen = |inner: &mut Inner| {
        // SAFETY: null or alive.
        let tls = unsafe { known(tls, inner) }?;
        // SAFETY: as the caller says.
        unsafe { listen_at(inner, address, port, Some(tls)) }
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, listen) }
}

/// Accepts the clients of a TCP socket as dwell_engine_adopt_listener does, under TLS as
/// dwell_engine_listen_tls does.
///
/// # Safety
/// As `dwell_engine_adopt_listener`; `tls` as for `dwell_engine_listen_tls`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_adopt_listener_tls(
    engine: *mut dwell_engine,
    descriptor: c_int,
    tls: *const dwell_tls,
) -> dwell_status {
    // SAFETY: the caller gives it away.
    let listener = unsafe { owned(descriptor) };
    let adopt = |inner: &mut Inner| {
        let mut listener = Listener::from_tcp(TcpListener::from(listener?)).map_err(refused)?;
        // SAFETY: null or alive.
        unsafe { known(tls, inner) }?.secure(&mut listener);
        inner.engine.listen_on(listener).map_err(refused)
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, adopt) }
}

/// Serves a client as dwell_engine_adopt does, under TLS as dwell_engine_listen_tls does. Nothing
/// may have been read from it.
///
/// # Safety
/// As `dwell_engine_adopt`; `tls` as for `dwell_engine_listen_tls`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_adopt_tls(
    engine: *mut dwell_engine,
    descriptor: c_int,
    tls: *const dwell_tls,
    connection: *mut u64,
) -> dwell_status {
    // SAFETY: the caller gives it away.
    let descriptor = unsafe { owned(descriptor) };
    let adopt = |inner: &mut Inner| {
        let mut stream = Stream::from_descriptor(descriptor?).map_err(refused)?;
        // SAFETY: null or alive.
        unsafe { known(tls, inner) }?.secure_stream(&mut stream);
        // SAFETY: null or the caller's to write.
        unsafe { adopt_stream(inner, stream, connection) }
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, adopt) }
}

/// The certificates that an entry was given, with the protocols that the engine speaks; `Err` for
/// null.
///
/// # Safety
/// As `dwell_tls_reload`.
pub(crate) unsafe fn known<'t>(
    tls: *const dwell_tls,
    inner: &Inner,
) -> Result<&'t Tls, dwell_status> {
    // SAFETY: null or alive.
    let tls = unsafe { tls.as_ref() }.ok_or(dwell_status::DWELL_INVALID)?;
    Ok(if inner.engine.offers_http2() {
        &tls.with_http2
    } else {
        &tls.tls
    })
}

/// Reads options; `None` for some that cannot be.
///
/// # Safety
/// As `dwell_tls_new`.
unsafe fn builder_of(options: &dwell_tls_options) -> Option<TlsBuilder> {
    let handshakes_max = usize::try_from(options.handshakes_max).unwrap_or(usize::MAX);
    let mut builder = Tls::builder().handshakes_max(handshakes_max);
    if options.certificates.is_null() || options.certificate_count == 0 {
        return None;
    }
    for place in 0..options.certificate_count {
        // SAFETY: the caller says that so many are readable.
        let certificate = unsafe { &*options.certificates.add(place) };
        let files = [certificate.certificate_file, certificate.key_file];
        builder = match files.map(|path| {
            // SAFETY: not null, and it ends with a zero.
            (!path.is_null()).then(|| unsafe { path_of(path) })
        }) {
            [Some(chain), Some(key)] => builder.certificate_files(chain, key),
            [None, None] => {
                let [chain, key] = [certificate.certificate, certificate.key].map(|span| {
                    // SAFETY: the caller says that the bytes are readable.
                    unsafe { pointers::bytes(span.start, span.length) }
                });
                builder.certificate_pem(chain, key)
            }
            _ => return None,
        };
    }
    if options.keeps_server_names {
        builder = builder.keep_server_names();
    }
    // SAFETY: as the caller says.
    unsafe { asking(builder, options) }
}

/// Asks clients for certificates, as the options say; `None` for some that cannot be.
///
/// # Safety
/// As `dwell_tls_new`.
unsafe fn asking(builder: TlsBuilder, options: &dwell_tls_options) -> Option<TlsBuilder> {
    const NOT_ASKED: u64 = dwell_client_certificates::DWELL_CLIENTS_NOT_ASKED as u64;
    const ASKED: u64 = dwell_client_certificates::DWELL_CLIENTS_ASKED as u64;
    const REQUIRED: u64 = dwell_client_certificates::DWELL_CLIENTS_REQUIRED as u64;
    let span = options.client_ca;
    // SAFETY: the caller says that the bytes are readable.
    let pem = unsafe { pointers::bytes(span.start, span.length) };
    let has_authorities = !options.client_ca_file.is_null() || !pem.is_empty();
    let clients = match options.client_certificates {
        // Authorities without effect would let everybody in.
        NOT_ASKED if has_authorities || options.host_verifies => return None,
        NOT_ASKED => return Some(builder),
        ASKED => ClientCertificates::Optional,
        REQUIRED => ClientCertificates::Required,
        _ => return None,
    };
    Some(if options.host_verifies {
        if has_authorities {
            return None;
        }
        builder.unverified_clients(clients)
    } else if options.client_ca_file.is_null() {
        builder.client_ca_pem(clients, pem)
    } else {
        // SAFETY: not null, and it ends with a zero.
        builder.client_ca_file(clients, unsafe { path_of(options.client_ca_file) })
    })
}

/// Copies a path.
///
/// # Safety
/// `path` must not be null and end with a zero.
unsafe fn path_of(path: *const c_char) -> PathBuf {
    // SAFETY: as the caller says.
    OsStr::from_bytes(unsafe { CStr::from_ptr(path) }.to_bytes()).into()
}

fn of_tls(error: &TlsError) -> dwell_status {
    match error {
        TlsError::NoCertificate => dwell_status::DWELL_INVALID,
        TlsError::Read { source, .. } => failed(
            dwell_status::DWELL_SYSTEM,
            source.raw_os_error().unwrap_or(0),
            error.to_string(),
        ),
        _ => failed(dwell_status::DWELL_CERTIFICATE, 0, error.to_string()),
    }
}
