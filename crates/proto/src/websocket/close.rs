//! Close codes and the payload of close frames.

use std::fmt;

use super::error::PeerError;

/// The code in a close frame: the reason why a connection is closed.
///
/// Shape: always a code that may be sent: 1004 to 1006 and 1015 never are.
///
/// ```
/// use dwell_proto::websocket::CloseCode;
///
/// assert_eq!(CloseCode::new(1000), Some(CloseCode::NORMAL));
/// assert_eq!(CloseCode::new(4001).map(CloseCode::number), Some(4001));
/// assert_eq!(CloseCode::new(1006), None);
/// ```
///
/// Source: RFC 6455 section 7.4, and the registry of close codes at IANA.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CloseCode(u16);

impl CloseCode {
    /// The purpose of the connection has been fulfilled.
    pub const NORMAL: Self = Self(1000);
    /// The server stops, or the page was left.
    pub const GOING_AWAY: Self = Self(1001);
    /// The peer broke the protocol.
    pub const PROTOCOL_ERROR: Self = Self(1002);
    /// The peer sent a kind of message that is not accepted.
    pub const UNSUPPORTED_DATA: Self = Self(1003);
    /// The payload does not fit its kind: text that is not UTF-8, or broken DEFLATE data.
    pub const INVALID_PAYLOAD: Self = Self(1007);
    /// The message is against a policy of the receiver.
    pub const POLICY_VIOLATION: Self = Self(1008);
    /// The message is too big to process.
    pub const MESSAGE_TOO_BIG: Self = Self(1009);
    /// The server did not agree to an extension the client cannot do without.
    pub const MANDATORY_EXTENSION: Self = Self(1010);
    /// The server met a condition it did not expect.
    pub const INTERNAL_ERROR: Self = Self(1011);
    /// The service restarts; come back later.
    pub const SERVICE_RESTART: Self = Self(1012);
    /// The service is overloaded; come back later.
    pub const TRY_AGAIN_LATER: Self = Self(1013);
    /// The server is a gateway, and the server behind it gave a bad answer.
    pub const BAD_GATEWAY: Self = Self(1014);

    /// The close code with this number, if a close frame may hold it.
    pub fn new(number: u16) -> Option<Self> {
        match number {
            1000..=1003 | 1007..=1014 | 3000..=4999 => Some(Self(number)),
            _ => None,
        }
    }

    /// Its number on the wire.
    pub fn number(self) -> u16 {
        self.0
    }
}

impl fmt::Display for CloseCode {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(out)
    }
}

/// The content of a close frame.
///
/// ```
/// use dwell_proto::websocket::{Close, CloseCode};
///
/// let close = Close::parse(b"\x03\xe9until tomorrow")?;
/// assert_eq!(close.code, Some(CloseCode::GOING_AWAY));
/// assert_eq!(close.reason, "until tomorrow");
/// assert_eq!(Close::parse(b"")?.code, None);
/// # Ok::<(), dwell_proto::websocket::PeerError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Close<'a> {
    /// The code; `None` if the frame was empty.
    pub code: Option<CloseCode>,
    /// More about it, for people; at most 123 bytes.
    pub reason: &'a str,
}

impl<'a> Close<'a> {
    /// Reads the payload of a close frame.
    ///
    /// # Errors
    /// [`PeerError::ClosePayload`] for a single byte, [`PeerError::CloseCode`] for a code that no
    /// frame may hold, [`PeerError::Utf8`] for a reason that is not text.
    ///
    /// Source: RFC 6455 section 5.5.1.
    pub fn parse(payload: &'a [u8]) -> Result<Self, PeerError> {
        let Some((number, reason)) = payload.split_first_chunk() else {
            return match payload {
                [] => Ok(Self {
                    code: None,
                    reason: "",
                }),
                _ => Err(PeerError::ClosePayload),
            };
        };
        let number = u16::from_be_bytes(*number);
        let code = CloseCode::new(number).ok_or(PeerError::CloseCode { code: number })?;
        let reason = simdutf8::basic::from_utf8(reason).map_err(|_| PeerError::Utf8)?;
        Ok(Self {
            code: Some(code),
            reason,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_codes_that_may_be_sent_are_known() {
        for number in [
            1000, 1001, 1002, 1003, 1007, 1011, 1012, 1014, 3000, 3999, 4000, 4999,
        ] {
            assert_eq!(CloseCode::new(number).map(CloseCode::number), Some(number));
        }
        for number in [
            0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535,
        ] {
            assert_eq!(CloseCode::new(number), None, "{number}");
        }
    }

    #[test]
    fn payloads_are_read_or_refused() {
        let empty = Close {
            code: None,
            reason: "",
        };
        assert_eq!(Close::parse(b""), Ok(empty));
        let normal = Some(CloseCode::NORMAL);
        assert_eq!(
            Close::parse(b"\x03\xe8"),
            Ok(Close {
                code: normal,
                reason: ""
            })
        );
        assert_eq!(
            Close::parse(b"\x03\xe8bye"),
            Ok(Close {
                code: normal,
                reason: "bye"
            })
        );
        assert_eq!(Close::parse(b"\x03"), Err(PeerError::ClosePayload));
        assert_eq!(
            Close::parse(b"\x03\xee"),
            Err(PeerError::CloseCode { code: 1006 })
        );
        assert_eq!(Close::parse(b"\x03\xe8\xff"), Err(PeerError::Utf8));
    }
}
