//! Records that come.

use crate::session::Session;
use crate::{FRAGMENT_BYTES_MAX, HEADER_BYTES, Keys, RECORD_BYTES_MAX, TlsError, content};
use aws_lc_rs::aead::Aad;

/// The result of [`Session::open`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Opened {
    /// Bytes of the input that were used: all records that are whole.
    pub used: usize,
    /// Bytes of application data, which are now at the front of the input.
    pub data: usize,
}

/// Records in a row that may carry no data: padding, and key updates.
const WITHOUT_DATA_MAX: u8 = 32;

/// The parts of a `KeyUpdate` message: type, length in three bytes, request.
const KEY_UPDATE_BYTES: usize = 5;
pub(crate) const KEY_UPDATE: u8 = 24;

/// An alert by which a peer gives up, which `close_notify` follows (RFC 8446 section 6.1).
const USER_CANCELED: u8 = 90;

impl Session {
    /// Opens the records at the front of `input` that are whole, and puts their data together
    /// there.
    ///
    /// Shape: decrypts in place, with no allocation. What is behind [`Opened::used`] is the
    /// beginning of a record, to be given again with what follows it; it is shorter than
    /// [`RECORD_BYTES_MAX`]. After the peer's `close_notify` everything is used and nothing is data
    /// (see [`is_ended`](Self::is_ended)). A key update may be owed afterwards: see
    /// [`owes`](Self::owes).
    ///
    /// # Errors
    /// The first fault of a record; the connection is of no more use. A header is looked at as soon
    /// as it is here.
    ///
    /// Source: RFC 8446 sections 5.1, 5.2 and 5.4.
    pub fn open(&mut self, keys: &mut Keys, input: &mut [u8]) -> Result<Opened, TlsError> {
        let (mut used, mut data) = (0, 0);
        while !self.is_ended {
            let Some(length) = record_length(&input[used..])? else {
                return Ok(Opened { used, data });
            };
            let end = used + HEADER_BYTES + length;
            if input.len() < end {
                return Ok(Opened { used, data });
            }
            let begin = used + HEADER_BYTES;
            let (kind, content) = self.open_one(keys, &mut input[used..end])?;
            if kind == content::DATA {
                self.take_data(content)?;
                input.copy_within(begin..begin + content, data);
                data += content;
            } else {
                self.take_message(keys, kind, &input[begin..begin + content])?;
            }
            used = end;
        }
        Ok(Opened {
            used: input.len(),
            data,
        })
    }

    /// Decrypts one record in place. Returns the type of its content and the length, which begins
    /// behind the header.
    fn open_one(&mut self, keys: &mut Keys, record: &mut [u8]) -> Result<(u8, usize), TlsError> {
        let sequence = self.receiving.sequence;
        let next = sequence.checked_add(1).ok_or(TlsError::Keys)?;
        let key = keys.of(&mut self.receiving, self.suite)?;
        let (header, body) = record.split_at_mut(HEADER_BYTES);
        let opened = key
            .aead
            .open_in_place(key.nonce(sequence), Aad::from(&*header), body)
            .map_err(|_| TlsError::BadRecord)?;
        self.receiving.sequence = next;
        // The type is the last byte that is not zero; zeros behind it are padding.
        if opened.len() > FRAGMENT_BYTES_MAX + 1 {
            return Err(TlsError::ContentTooLong(opened.len() - 1));
        }
        let Some(last) = opened.iter().rposition(|byte| *byte != 0) else {
            return Err(TlsError::ContentType(0));
        };
        Ok((opened[last], last))
    }

    fn take_data(&mut self, bytes: usize) -> Result<(), TlsError> {
        if self.fragment_bytes > 0 {
            return Err(TlsError::KeyUpdateMixed);
        }
        if bytes > 0 {
            self.without_data = 0;
            return Ok(());
        }
        self.note_without_data()
    }

    fn note_without_data(&mut self) -> Result<(), TlsError> {
        self.without_data += 1;
        if self.without_data > WITHOUT_DATA_MAX {
            return Err(TlsError::NoData(WITHOUT_DATA_MAX));
        }
        Ok(())
    }

    fn take_message(&mut self, keys: &mut Keys, kind: u8, bytes: &[u8]) -> Result<(), TlsError> {
        match kind {
            // A fragment of these without a byte is not allowed (RFC 8446 section 5.1).
            content::ALERT | content::HANDSHAKE if bytes.is_empty() => {
                Err(TlsError::ContentType(kind))
            }
            content::ALERT => self.take_alert(bytes),
            content::HANDSHAKE => self.take_handshake(keys, bytes),
            _ => Err(TlsError::ContentType(kind)),
        }
    }

    fn take_alert(&mut self, bytes: &[u8]) -> Result<(), TlsError> {
        let [_, alert] = *bytes else {
            return Err(TlsError::AlertLength(bytes.len()));
        };
        if self.fragment_bytes > 0 {
            return Err(TlsError::KeyUpdateMixed);
        }
        match alert {
            0 => {
                self.is_ended = true;
                Ok(())
            }
            USER_CANCELED => self.note_without_data(),
            _ => Err(TlsError::PeerAlert(alert)),
        }
    }

    /// Takes the bytes of a handshake message, which may come in parts.
    ///
    /// Source: RFC 8446 section 4.6.3.
    fn take_handshake(&mut self, keys: &mut Keys, bytes: &[u8]) -> Result<(), TlsError> {
        self.note_without_data()?;
        let kept = usize::from(self.fragment_bytes);
        let mut message = [0; KEY_UPDATE_BYTES];
        message[..kept].copy_from_slice(&self.fragment[..kept]);
        let taken = bytes.len().min(KEY_UPDATE_BYTES - kept);
        message[kept..kept + taken].copy_from_slice(&bytes[..taken]);
        let have = kept + taken;
        if message[0] != KEY_UPDATE {
            return Err(TlsError::HandshakeType(message[0]));
        }
        if have >= 4 && message[1..4] != [0, 0, 1] {
            let length = u32::from_be_bytes([0, message[1], message[2], message[3]]);
            return Err(TlsError::KeyUpdateLength(length as usize));
        }
        if have < KEY_UPDATE_BYTES {
            self.fragment[..have].copy_from_slice(&message[..have]);
            self.fragment_bytes = have as u8;
            return Ok(());
        }
        // The keys change behind it, so nothing else may be in its record.
        if taken < bytes.len() {
            return Err(TlsError::KeyUpdateMixed);
        }
        self.fragment_bytes = 0;
        match message[4] {
            0 => {}
            1 => self.owes_update = true,
            other => return Err(TlsError::KeyUpdateRequest(other)),
        }
        self.receiving.update(keys, self.suite)
    }
}

/// Reads the header of a record; `None` if it is not whole.
fn record_length(input: &[u8]) -> Result<Option<usize>, TlsError> {
    let [kind, rest @ ..] = input else {
        return Ok(None);
    };
    if *kind != content::DATA {
        return Err(TlsError::RecordType(*kind));
    }
    // The version is to be ignored.
    let [_, _, high, low, ..] = *rest else {
        return Ok(None);
    };
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > RECORD_BYTES_MAX - HEADER_BYTES {
        return Err(TlsError::RecordTooLong(length));
    }
    Ok(Some(length))
}
