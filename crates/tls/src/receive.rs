//! Records that come.

use crate::session::{Peer, Session};
use crate::{FRAGMENT_BYTES_MAX, HEADER_BYTES, Keys, RECORD_BYTES_MAX, TlsError, content};
use aws_lc_rs::aead::Aad;
use std::ops::RangeInclusive;

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

pub(crate) const KEY_UPDATE: u8 = 24;
const NEW_SESSION_TICKET: u8 = 4;

/// Bytes of a session ticket's message: from one of a byte to the longest (RFC 8446 section 4.6.1).
const TICKET_BYTES: RangeInclusive<usize> = 14..=131_337;

/// An alert by which a peer cancels the handshake, which `close_notify` follows (RFC 8446 section
/// 6.1).
const USER_CANCELED: u8 = 90;

impl Session {
    /// Opens the records at the front of `input` that are whole, and puts their data together
    /// there.
    ///
    /// Shape: decrypts in place, with no allocation. The bytes behind [`Opened::used`] are the
    /// beginning of a record, to be given again with those that follow; it is shorter than
    /// [`RECORD_BYTES_MAX`]. After the peer's `close_notify` everything is used and nothing is data
    /// (see [`is_ended`](Self::is_ended)). A key update may be owed afterwards: see
    /// [`owes`](Self::owes).
    ///
    /// # Errors
    /// The first fault of a record; the connection is of no more use. A header is checked as soon
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

    /// Takes the bytes of handshake messages, which may come in parts.
    ///
    /// Source: RFC 8446 sections 4.6.1 and 4.6.3.
    fn take_handshake(&mut self, keys: &mut Keys, bytes: &[u8]) -> Result<(), TlsError> {
        self.note_without_data()?;
        let mut left = bytes;
        while let Some((&byte, behind)) = left.split_first() {
            let have = usize::from(self.fragment_bytes);
            if have < self.fragment.len() {
                self.fragment[have] = byte;
                self.fragment_bytes += 1;
                self.check_message()?;
                left = behind;
            } else if self.fragment[0] == NEW_SESSION_TICKET {
                left = self.skip_ticket(left);
            } else if behind.is_empty() {
                return self.take_key_update(keys, byte);
            } else {
                // The keys change behind it, so nothing else may be in its record.
                return Err(TlsError::KeyUpdateMixed);
            }
        }
        Ok(())
    }

    /// Checks as much as has come of the head of a handshake message: type and length.
    fn check_message(&self) -> Result<(), TlsError> {
        let [kind, length @ ..] = self.fragment;
        let is_known =
            kind == KEY_UPDATE || (kind == NEW_SESSION_TICKET && self.peer == Peer::Server);
        if !is_known {
            return Err(TlsError::HandshakeType(kind));
        }
        if usize::from(self.fragment_bytes) < self.fragment.len() {
            return Ok(());
        }
        match message_bytes(length) {
            1 if kind == KEY_UPDATE => Ok(()),
            length if kind == KEY_UPDATE => Err(TlsError::KeyUpdateLength(length)),
            length if TICKET_BYTES.contains(&length) => Ok(()),
            length => Err(TlsError::TicketLength(length)),
        }
    }

    /// Returns true if what is noted of records so far can be so, wherever it comes from.
    pub(crate) fn has_legal_counts(&self) -> bool {
        let [kind, length @ ..] = self.fragment;
        let is_legal = match self.fragment_bytes {
            0 => true,
            // A part of the ticket may have been skipped.
            4 if kind == NEW_SESSION_TICKET => {
                let missing = message_bytes(length);
                self.peer == Peer::Server && (1..=*TICKET_BYTES.end()).contains(&missing)
            }
            1..=4 => self.check_message().is_ok(),
            _ => false,
        };
        is_legal && self.without_data <= WITHOUT_DATA_MAX
    }

    /// Passes over the bytes of a ticket; returns what is behind it.
    fn skip_ticket<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let [kind, length @ ..] = self.fragment;
        let missing = message_bytes(length);
        let skipped = missing.min(bytes.len());
        let [_, length @ ..] = ((missing - skipped) as u32).to_be_bytes();
        let [high, middle, low] = length;
        self.fragment = [kind, high, middle, low];
        if skipped == missing {
            self.fragment_bytes = 0;
        }
        &bytes[skipped..]
    }

    fn take_key_update(&mut self, keys: &mut Keys, request: u8) -> Result<(), TlsError> {
        self.fragment_bytes = 0;
        match request {
            0 => {}
            1 => self.owes_update = true,
            other => return Err(TlsError::KeyUpdateRequest(other)),
        }
        self.receiving.update(keys, self.suite)
    }
}

/// The length of a handshake message, which is in three bytes.
fn message_bytes([high, middle, low]: [u8; 3]) -> usize {
    u32::from_be_bytes([0, high, middle, low]) as usize
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
