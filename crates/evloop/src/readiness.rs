//! The readiness of sockets.

/// The readiness of one socket, in one delivery.
///
/// Edge-triggered: each flag is delivered once when it comes true and not again before the socket
/// has refused an operation. So a driver must use the flag up or call
/// [`Context::again`](crate::Context::again).
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub struct Readiness(u8);

impl Readiness {
    /// Bytes, a connection or the end of the stream can be read.
    pub const READABLE: Self = Self(1);
    /// The socket takes bytes again, or a connect has ended.
    pub const WRITABLE: Self = Self(2);
    /// The peer sends no more; what it sent before can still be read.
    pub const READ_CLOSED: Self = Self(4);
    /// The connection failed or both directions are closed.
    pub const HANGUP: Self = Self(8);

    /// Returns true if a read is worth trying.
    pub const fn is_readable(self) -> bool {
        self.0 & (Self::READABLE.0 | Self::READ_CLOSED.0 | Self::HANGUP.0) != 0
    }

    /// Returns true if a write is worth trying.
    pub const fn is_writable(self) -> bool {
        self.0 & (Self::WRITABLE.0 | Self::HANGUP.0) != 0
    }

    /// Returns true if the peer has ended its side.
    pub const fn is_read_closed(self) -> bool {
        self.0 & (Self::READ_CLOSED.0 | Self::HANGUP.0) != 0
    }

    /// Returns true if nothing more can be sent or received.
    pub const fn is_hangup(self) -> bool {
        self.0 & Self::HANGUP.0 != 0
    }

    /// Both sets together.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// The set as a number, for traces.
    #[cfg(feature = "sim")]
    pub(crate) fn bits(self) -> u64 {
        self.0.into()
    }

    pub(crate) fn of(event: &mio::event::Event) -> Self {
        let mut flags = 0;
        if event.is_readable() {
            flags |= Self::READABLE.0;
        }
        if event.is_writable() {
            flags |= Self::WRITABLE.0;
        }
        if event.is_read_closed() {
            flags |= Self::READ_CLOSED.0;
        }
        if event.is_error() || (event.is_read_closed() && event.is_write_closed()) {
            flags |= Self::HANGUP.0;
        }
        Self(flags)
    }
}
