//! Facts of clients under TLS, and their certificates.
#![expect(
    unsafe_code,
    reason = "entries have names that C knows, and take its pointers"
)]

use crate::data::{dwell_span, span_of};
use crate::engine::{Inner, dwell_engine, within};
use crate::pointers;
use crate::status::dwell_status;
use ::dwell_engine::PeerCertificates;
use std::ffi::c_char;

/// Room for a server name, of 253 bytes at most, and the zero behind it.
const NAME_BYTES: usize = 256;

/// The facts of a handshake that is over. Set `size` before the call.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct dwell_tls_facts {
    /// The size of this struct where the host was compiled, `sizeof(dwell_tls_facts)`.
    pub size: usize,
    /// The version: 0x0304 for TLS 1.3, 0x0303 for TLS 1.2.
    pub version: u16,
    /// The number of the cipher suite.
    pub cipher_suite: u16,
    /// An earlier session goes on.
    pub is_resumed: bool,
    /// The client has agreed on `http/1.1`, or `h2` where that is offered (ALPN).
    pub has_protocol: bool,
    /// The engine has verified the client's certificate.
    pub is_verified: bool,
    /// The number of certificates that the client has shown.
    pub certificate_count: usize,
    /// The name that the client has asked for (SNI), with a zero behind it; empty for none, and
    /// where `keeps_server_names` was not set.
    pub server_name: [c_char; 256],
}

/// The size of the facts as the first version has them. It never changes.
const FACTS_SIZE_MIN: usize = size_of::<dwell_tls_facts>();

/// Certificates that the host points to. They live until the next turn.
#[derive(Debug, Default)]
pub(crate) struct Lent(Vec<PeerCertificates>);

impl Lent {
    /// Keeps certificates; those that are kept already are not kept again.
    fn keep(&mut self, shown: &PeerCertificates) {
        let start = |shown: &PeerCertificates| shown.chain().next().map(<[u8]>::as_ptr);
        // A host asks for all that one client has shown.
        if self.0.last().and_then(start) != start(shown) {
            self.0.push(shown.clone());
        }
    }

    pub(crate) fn clear(&mut self) {
        self.0.clear();
    }
}

/// Writes the facts of the TLS of a request or a connection. Returns DWELL_ABSENT without TLS, and
/// before the handshake is over.
///
/// # Safety
/// `engine` as for `dwell_engine_free`; `facts` must be null, or readable and writable for as many
/// bytes as its `size` says.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_tls_facts(
    engine: *mut dwell_engine,
    handle: u64,
    facts: *mut dwell_tls_facts,
) -> dwell_status {
    let ask = |inner: &mut Inner| {
        // SAFETY: null, or a struct that begins with its size.
        let size = unsafe { pointers::first_size(facts) };
        let size = size.filter(|size| *size >= FACTS_SIZE_MIN);
        let mut known = facts_of(inner, handle, size.ok_or(dwell_status::DWELL_INVALID)?)?;
        known.size = known.size.min(size_of::<dwell_tls_facts>());
        // SAFETY: the caller says that so many bytes are writable.
        unsafe { pointers::put_front(facts, &raw const known, known.size) };
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, ask) }
}

fn facts_of(inner: &mut Inner, handle: u64, size: usize) -> Result<dwell_tls_facts, dwell_status> {
    if !inner.engine.is_alive(handle) {
        return Err(dwell_status::DWELL_STALE);
    }
    let shown = inner.engine.peer_certificates(handle);
    let tls = inner.engine.tls_facts(handle);
    let tls = tls.ok_or(dwell_status::DWELL_ABSENT)?;
    let is_tls13 = matches!(tls.suite_number, 0x1301..=0x1303);
    let mut known = dwell_tls_facts {
        size,
        version: if is_tls13 { 0x0304 } else { 0x0303 },
        cipher_suite: tls.suite_number,
        is_resumed: tls.is_resumed,
        has_protocol: tls.has_protocol,
        is_verified: shown.is_some_and(PeerCertificates::are_verified),
        certificate_count: shown.map_or(0, |shown| shown.chain().len()),
        server_name: [0; NAME_BYTES],
    };
    let name = tls.server_name.unwrap_or_default();
    // SAFETY: the array is as long.
    unsafe { pointers::copy_text(name, known.server_name.as_mut_ptr(), NAME_BYTES) };
    Ok(known)
}

/// Points `certificate` to a certificate in DER that the client of a request or a connection has
/// shown: that of the client has the place 0. The bytes are the engine's, and live until its next
/// turn or its end. Returns DWELL_ABSENT where there is none at this place.
///
/// The client chooses those at the other places, and they need not vouch for the first.
///
/// # Safety
/// `engine` as for `dwell_engine_free`; `certificate` must be null or writable.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_peer_certificate(
    engine: *mut dwell_engine,
    handle: u64,
    place: usize,
    certificate: *mut dwell_span,
) -> dwell_status {
    let ask = |inner: &mut Inner| {
        let Inner { engine, lent, .. } = inner;
        if !engine.is_alive(handle) {
            return Err(dwell_status::DWELL_STALE);
        }
        let shown = engine.peer_certificates(handle);
        let shown = shown.ok_or(dwell_status::DWELL_ABSENT)?;
        let found = shown.chain().nth(place);
        let found = found.ok_or(dwell_status::DWELL_ABSENT)?;
        lent.keep(shown);
        // SAFETY: null, or the caller's to write.
        unsafe { pointers::put(certificate, span_of(found)) };
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, ask) }
}

/// The subject of the certificate that the client of a request or a connection has shown, as RFC
/// 4514 writes it: `CN=alice,O=Example`. Copies as much of it to `text` as fits into `size` bytes
/// with a zero behind it. Returns DWELL_ABSENT where there is none. With `host_verifies` nobody has
/// verified the certificate before your host has.
///
/// # Safety
/// `engine` as for `dwell_engine_free`; `text` must be null or have room for `size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dwell_engine_peer_subject(
    engine: *mut dwell_engine,
    handle: u64,
    text: *mut c_char,
    size: usize,
) -> dwell_status {
    let ask = |inner: &mut Inner| {
        if !inner.engine.is_alive(handle) {
            return Err(dwell_status::DWELL_STALE);
        }
        let shown = inner.engine.peer_certificates(handle);
        let subject = shown.and_then(PeerCertificates::subject);
        let subject = subject.ok_or(dwell_status::DWELL_ABSENT)?;
        // SAFETY: as the caller says.
        unsafe { pointers::copy_text(&subject, text, size) };
        Ok(())
    };
    // SAFETY: as the caller says.
    unsafe { within(engine, ask) }
}
