//! Records that go.

use crate::receive::KEY_UPDATE;
use crate::session::Session;
use crate::{FRAGMENT_BYTES_MAX, HEADER_BYTES, Keys, TlsError, content};
use aws_lc_rs::aead::Aad;

/// Bytes that sealing adds to each record: header, type and tag.
const OVERHEAD_BYTES: usize = HEADER_BYTES + 1 + 16;

/// Records under one key, after which we go over to the next one.
///
/// Source: RFC 8446 section 5.5: AES-GCM may protect 2^24.5 records; other suites more.
const RECORDS_MAX: u64 = 1 << 24;

/// The size of the records that so many bytes of data become.
///
/// ```
/// assert_eq!(dwell_tls::sealed_bytes(20_000), 20_000 + 2 * 22);
/// ```
pub fn sealed_bytes(data: usize) -> usize {
    data + data.div_ceil(FRAGMENT_BYTES_MAX) * OVERHEAD_BYTES
}

impl Session {
    /// Appends records with the data of all `parts` to `out`. Returns how many bytes that are: all,
    /// or 0 if the session [is closed](Self::close).
    ///
    /// Shape: parts share records, which are as long as they may be. A key update that is
    /// [owed](Self::owes) goes first, and our own one where a key was used often enough.
    ///
    /// # Errors
    /// [`TlsError::Keys`] if the system's cryptography fails; nothing more can be sent.
    pub fn seal(
        &mut self,
        keys: &mut Keys,
        parts: &[&[u8]],
        out: &mut Vec<u8>,
    ) -> Result<usize, TlsError> {
        self.seal_by(keys, parts, out, RECORDS_MAX)
    }

    pub(crate) fn seal_by(
        &mut self,
        keys: &mut Keys,
        parts: &[&[u8]],
        out: &mut Vec<u8>,
        records_max: u64,
    ) -> Result<usize, TlsError> {
        if self.is_closed {
            return Ok(0);
        }
        self.answer(keys, out)?;
        let total: usize = parts.iter().map(|part| part.len()).sum();
        out.reserve(sealed_bytes(total));
        let mut left = total;
        let mut parts = parts.iter().copied();
        let mut part: &[u8] = &[];
        while left > 0 {
            if self.sending.sequence >= records_max {
                self.update(keys, out)?;
            }
            let fragment = left.min(FRAGMENT_BYTES_MAX);
            let begin = begin_record(out);
            let mut missing = fragment;
            while missing > 0 {
                if part.is_empty() {
                    part = parts.next().unwrap_or_default();
                    continue;
                }
                let (now, later) = part.split_at(part.len().min(missing));
                out.extend_from_slice(now);
                missing -= now.len();
                part = later;
            }
            self.finish_record(keys, begin, content::DATA, out)?;
            left -= fragment;
        }
        Ok(total)
    }

    /// Returns true if the peer waits for an update of our keys, which [`seal`](Self::seal) and
    /// [`answer`](Self::answer) send.
    pub fn owes(&self) -> bool {
        self.owes_update && !self.is_closed
    }

    /// Appends the key update that is owed to `out`, if one is. Several requests are answered by
    /// one (RFC 8446 section 4.6.3).
    ///
    /// # Errors
    /// As [`seal`](Self::seal).
    pub fn answer(&mut self, keys: &mut Keys, out: &mut Vec<u8>) -> Result<(), TlsError> {
        if self.owes() {
            self.update(keys, out)?;
        }
        Ok(())
    }

    /// Tells the peer that our keys change, and changes them.
    fn update(&mut self, keys: &mut Keys, out: &mut Vec<u8>) -> Result<(), TlsError> {
        const NOT_REQUESTED: u8 = 0;
        let begin = begin_record(out);
        out.extend_from_slice(&[KEY_UPDATE, 0, 0, 1, NOT_REQUESTED]);
        self.finish_record(keys, begin, content::HANDSHAKE, out)?;
        self.owes_update = false;
        self.sending.update(keys, self.suite)
    }

    /// Sends an alert, after which nothing is sent.
    pub(crate) fn end(
        &mut self,
        keys: &mut Keys,
        alert: [u8; 2],
        out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        if self.is_closed {
            return Ok(());
        }
        self.is_closed = true;
        let begin = begin_record(out);
        out.extend_from_slice(&alert);
        self.finish_record(keys, begin, content::ALERT, out)
    }

    /// Protects the record whose header is at `begin` and whose content follows to the end. If that
    /// fails, the content does not stay in `out`.
    fn finish_record(
        &mut self,
        keys: &mut Keys,
        begin: usize,
        kind: u8,
        out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        out.push(kind);
        let protected = self.protect(keys, begin, out);
        if protected.is_err() {
            out.truncate(begin);
        }
        protected
    }

    fn protect(
        &mut self,
        keys: &mut Keys,
        begin: usize,
        out: &mut Vec<u8>,
    ) -> Result<(), TlsError> {
        let sequence = self.sending.sequence;
        let next = sequence.checked_add(1).ok_or(TlsError::Keys)?;
        let key = keys.of(&mut self.sending, self.suite)?;
        let (header, content) = out[begin..].split_at_mut(HEADER_BYTES);
        let length = content.len() + key.aead.algorithm().tag_len();
        header[3..].copy_from_slice(&(length as u16).to_be_bytes());
        let tag = key
            .aead
            .seal_in_place_separate_tag(key.nonce(sequence), Aad::from(&*header), content)
            .map_err(|_| TlsError::Keys)?;
        self.sending.sequence = next;
        out.extend_from_slice(tag.as_ref());
        Ok(())
    }
}

/// Appends a header whose length is not known yet; returns where it begins.
fn begin_record(out: &mut Vec<u8>) -> usize {
    let begin = out.len();
    out.extend_from_slice(&[content::DATA, 3, 3, 0, 0]);
    begin
}
