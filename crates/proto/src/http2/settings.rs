//! The settings of a side, which tell the other what it may do.

use super::error::PeerError;
use super::frame::{FRAME_BYTES_CEILING, FRAME_BYTES_MAX};
use super::window::WINDOW_BYTES_MAX;

/// `SETTINGS_HEADER_TABLE_SIZE`.
pub const HEADER_TABLE_SIZE: u16 = 0x1;
/// `SETTINGS_ENABLE_PUSH`.
pub const ENABLE_PUSH: u16 = 0x2;
/// `SETTINGS_MAX_CONCURRENT_STREAMS`.
pub const MAX_CONCURRENT_STREAMS: u16 = 0x3;
/// `SETTINGS_INITIAL_WINDOW_SIZE`.
pub const INITIAL_WINDOW_SIZE: u16 = 0x4;
/// `SETTINGS_MAX_FRAME_SIZE`.
pub const MAX_FRAME_SIZE: u16 = 0x5;
/// `SETTINGS_MAX_HEADER_LIST_SIZE`.
pub const MAX_HEADER_LIST_SIZE: u16 = 0x6;
/// `SETTINGS_ENABLE_CONNECT_PROTOCOL` (RFC 8441 section 3).
pub const ENABLE_CONNECT_PROTOCOL: u16 = 0x8;
/// `SETTINGS_NO_RFC7540_PRIORITIES` (RFC 9218 section 2.1).
pub const NO_RFC7540_PRIORITIES: u16 = 0x9;

/// The bounds that the other side has set.
///
/// Shape: begins with the values of the standard; settings without a name here are ignored.
///
/// ```
/// use dwell_proto::http2::{PeerSettings, settings};
///
/// let mut peer = PeerSettings::default();
/// assert_eq!(peer.initial_window_size, 65_535);
/// peer.apply(settings::INITIAL_WINDOW_SIZE, 1 << 20)?;
/// assert_eq!(peer.initial_window_size, 1 << 20);
/// assert!(peer.apply(settings::MAX_FRAME_SIZE, 100).is_err());
/// # Ok::<(), dwell_proto::http2::PeerError>(())
/// ```
///
/// Source: RFC 9113 section 6.5.2; RFC 8441 section 3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Units: bytes of the dynamic table by which it decompresses fields.
    pub header_table_size: u32,
    /// Streams that it lets the other side open at a time; `None` if it has not said.
    pub max_concurrent_streams: Option<u32>,
    /// Units: bytes that a new stream may carry to it before it asks for more.
    pub initial_window_size: u32,
    /// Units: bytes of payload of the longest frame that it takes.
    pub max_frame_size: u32,
    /// Units: bytes of the longest field section that it takes; `None` if it has not said.
    pub max_header_list_size: Option<u32>,
    /// True if it takes CONNECT requests with a protocol.
    pub enable_connect_protocol: bool,
}

impl Default for PeerSettings {
    fn default() -> Self {
        Self {
            header_table_size: 4_096,
            max_concurrent_streams: None,
            initial_window_size: 65_535,
            max_frame_size: FRAME_BYTES_MAX,
            max_header_list_size: None,
            enable_connect_protocol: false,
        }
    }
}

impl PeerSettings {
    /// Takes one setting in.
    ///
    /// # Errors
    /// [`PeerError::Setting`] or [`PeerError::WindowOverflow`] if it may not have this value.
    pub fn apply(&mut self, id: u16, value: u32) -> Result<(), PeerError> {
        let refused = PeerError::Setting { id, value };
        match id {
            HEADER_TABLE_SIZE => self.header_table_size = value,
            ENABLE_PUSH | NO_RFC7540_PRIORITIES if value > 1 => return Err(refused),
            MAX_CONCURRENT_STREAMS => self.max_concurrent_streams = Some(value),
            INITIAL_WINDOW_SIZE if value > WINDOW_BYTES_MAX => {
                return Err(PeerError::WindowOverflow { stream: 0 });
            }
            INITIAL_WINDOW_SIZE => self.initial_window_size = value,
            MAX_FRAME_SIZE if !(FRAME_BYTES_MAX..=FRAME_BYTES_CEILING).contains(&value) => {
                return Err(refused);
            }
            MAX_FRAME_SIZE => self.max_frame_size = value,
            MAX_HEADER_LIST_SIZE => self.max_header_list_size = Some(value),
            // It is not taken back (RFC 8441 section 3).
            ENABLE_CONNECT_PROTOCOL
                if value > 1 || (value == 0 && self.enable_connect_protocol) =>
            {
                return Err(refused);
            }
            ENABLE_CONNECT_PROTOCOL => self.enable_connect_protocol = value == 1,
            _ => {}
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_at_their_bounds() {
        let taken = [
            (ENABLE_PUSH, 1),
            (INITIAL_WINDOW_SIZE, WINDOW_BYTES_MAX),
            (MAX_FRAME_SIZE, 16_384),
            (MAX_FRAME_SIZE, 16_777_215),
            (ENABLE_CONNECT_PROTOCOL, 1),
            (NO_RFC7540_PRIORITIES, 1),
            (0x7777, u32::MAX),
        ];
        let refused = [
            (ENABLE_PUSH, 2),
            (MAX_FRAME_SIZE, 16_383),
            (MAX_FRAME_SIZE, 16_777_216),
            (ENABLE_CONNECT_PROTOCOL, 2),
            (ENABLE_CONNECT_PROTOCOL, 0),
            (NO_RFC7540_PRIORITIES, 2),
        ];
        let mut peer = PeerSettings::default();
        for (id, value) in taken {
            assert_eq!(peer.apply(id, value), Ok(()));
        }
        let before = peer;
        for (id, value) in refused {
            assert_eq!(peer.apply(id, value), Err(PeerError::Setting { id, value }));
        }
        let overflow = Err(PeerError::WindowOverflow { stream: 0 });
        assert_eq!(
            peer.apply(INITIAL_WINDOW_SIZE, WINDOW_BYTES_MAX + 1),
            overflow
        );
        assert_eq!(peer, before);
        assert!(peer.enable_connect_protocol);
    }
}
