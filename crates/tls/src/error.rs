//! Errors of a session, and the alerts that end it.

use rustls::AlertDescription;
use std::fmt;

/// An error of a session. It ends the connection, whose peer is sent [the alert](Self::alert).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum TlsError {
    /// The peer sent a record of this type, which is not protected.
    RecordType(u8),
    /// The peer sent a record with a longer body than is allowed, of so many bytes.
    RecordTooLong(usize),
    /// The peer sent a record that its key does not open.
    BadRecord,
    /// The content of a record has more bytes than are allowed: so many.
    ContentTooLong(usize),
    /// The content of a record is of this type, which does not belong there; 0 for no type.
    ContentType(u8),
    /// The peer sent too many records in a row that carry no data.
    NoData(u8),
    /// The peer sent a handshake message of this type, which does not follow a handshake.
    HandshakeType(u8),
    /// The peer sent a key update whose body has not one byte but so many.
    KeyUpdateLength(usize),
    /// The peer sent a key update with this request, which is neither 0 nor 1.
    KeyUpdateRequest(u8),
    /// The server sent a session ticket whose message has so many bytes, which none has.
    TicketLength(usize),
    /// Other bytes follow a key update in its record, or come between its parts.
    KeyUpdateMixed,
    /// The peer sent an alert that has not two bytes but so many.
    AlertLength(usize),
    /// The peer does not follow the protocol of TLS 1.2.
    Protocol,
    /// The peer has ended the connection with this alert.
    PeerAlert(u8),
    /// The keys were used as often as they may be, or could not be made.
    Keys,
    /// The bytes are not those of a frozen session, or of one of another version.
    Frozen,
}

/// An alert for the peer.
///
/// Source: RFC 8446 section 6.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
#[non_exhaustive]
pub enum Alert {
    /// The sender sends no more.
    CloseNotify = 0,
    /// A message came that does not belong there.
    UnexpectedMessage = 10,
    /// A record could not be opened.
    BadRecordMac = 20,
    /// A record is too long.
    RecordOverflow = 22,
    /// A field has a value that is not allowed.
    IllegalParameter = 47,
    /// A message has a wrong length.
    DecodeError = 50,
    /// The error is not the peer's.
    InternalError = 80,
}

impl TlsError {
    /// The alert that the peer is sent; `None` where it has ended the connection itself.
    pub fn alert(&self) -> Option<Alert> {
        Some(match self {
            Self::RecordType(_)
            | Self::ContentType(_)
            | Self::NoData(_)
            | Self::HandshakeType(_)
            | Self::KeyUpdateMixed
            | Self::Protocol => Alert::UnexpectedMessage,
            Self::RecordTooLong(_) | Self::ContentTooLong(_) => Alert::RecordOverflow,
            Self::BadRecord => Alert::BadRecordMac,
            Self::KeyUpdateLength(_) | Self::TicketLength(_) | Self::AlertLength(_) => {
                Alert::DecodeError
            }
            Self::KeyUpdateRequest(_) => Alert::IllegalParameter,
            Self::Keys | Self::Frozen => Alert::InternalError,
            Self::PeerAlert(_) => return None,
        })
    }
}

impl fmt::Display for TlsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::RecordType(kind) => write!(f, "record type is not 23: {kind}"),
            Self::RecordTooLong(bytes) => write!(f, "record exceeds 16640 bytes: {bytes}"),
            Self::BadRecord => f.write_str("record cannot be decrypted"),
            Self::ContentTooLong(bytes) => {
                write!(f, "content of a record exceeds 16384 bytes: {bytes}")
            }
            Self::ContentType(kind) => write!(f, "content type is not expected: {kind}"),
            Self::NoData(count) => write!(f, "records in a row without data exceed {count}"),
            Self::HandshakeType(kind) => write!(f, "handshake message is not expected: {kind}"),
            Self::KeyUpdateLength(bytes) => write!(f, "key update is not 1 byte long: {bytes}"),
            Self::TicketLength(bytes) => {
                write!(f, "session ticket is not 14 to 131337 bytes long: {bytes}")
            }
            Self::KeyUpdateRequest(value) => {
                write!(f, "request of a key update is not 0 or 1: {value}")
            }
            Self::KeyUpdateMixed => f.write_str("key update shares a record with other bytes"),
            Self::AlertLength(bytes) => write!(f, "alert is not 2 bytes long: {bytes}"),
            Self::Protocol => f.write_str("peer does not follow the protocol"),
            Self::PeerAlert(alert) => {
                write!(f, "peer ended the connection with alert {alert}")?;
                match AlertDescription::from(*alert) {
                    AlertDescription::Unknown(_) => Ok(()),
                    known => write!(f, " ({known:?})"),
                }
            }
            Self::Keys => f.write_str("keys cannot be made or are used up"),
            Self::Frozen => f.write_str("frozen session cannot be read"),
        }
    }
}

impl std::error::Error for TlsError {}
