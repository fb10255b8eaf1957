//! Flow-control windows.

use super::error::PeerError;

/// The most bytes that a window may have.
///
/// Source: RFC 9113 section 6.9.1.
pub const WINDOW_BYTES_MAX: u32 = (1 << 31) - 1;

/// The bytes of DATA frames that one side may still send, on a stream or a connection.
///
/// Shape: a change of the initial size can take it below 0; nothing may be sent then.
///
/// ```
/// use dwell_proto::http2::Window;
///
/// let mut window = Window::new(100);
/// assert_eq!(window.take(150), 100); // as much as there was room for
/// assert_eq!(window.room(), 0);
/// window.grow(0, 50)?;
/// window.resize(100, 20)?; // the peer has lowered its initial size
/// assert_eq!(window.room(), 0);
/// window.grow(0, 40)?;
/// assert_eq!(window.room(), 10);
/// # Ok::<(), dwell_proto::http2::PeerError>(())
/// ```
///
/// Source: RFC 9113 sections 5.2 and 6.9.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(i32);

impl Window {
    /// One of this size.
    ///
    /// # Panics
    /// If it is larger than [`WINDOW_BYTES_MAX`].
    pub fn new(bytes: u32) -> Self {
        assert!(bytes <= WINDOW_BYTES_MAX, "a window of {bytes} bytes");
        Self(bytes.cast_signed())
    }

    /// The bytes that may be sent now.
    pub fn room(self) -> usize {
        usize::try_from(self.0).unwrap_or(0)
    }

    /// Takes up to `bytes` of its room, and returns how many it took.
    pub fn take(&mut self, bytes: usize) -> usize {
        let taken = self.room().min(bytes);
        // It is at most the room, which is an i32.
        self.0 -= (taken as u32).cast_signed();
        taken
    }

    /// The peer takes `increment` bytes more; `stream` is named in an error.
    ///
    /// # Errors
    /// [`PeerError::WindowOverflow`].
    pub fn grow(&mut self, stream: u32, increment: u32) -> Result<(), PeerError> {
        let grown = i64::from(self.0) + i64::from(increment);
        self.0 = i32::try_from(grown).map_err(|_| PeerError::WindowOverflow { stream })?;
        Ok(())
    }

    /// The peer has changed the initial size of all streams.
    ///
    /// # Errors
    /// [`PeerError::WindowOverflow`], of the connection.
    ///
    /// Source: RFC 9113 section 6.9.2.
    pub fn resize(&mut self, from: u32, to: u32) -> Result<(), PeerError> {
        let sized = i64::from(self.0) + i64::from(to) - i64::from(from);
        self.0 = i32::try_from(sized).map_err(|_| PeerError::WindowOverflow { stream: 0 })?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_window_grows_no_more() {
        let mut window = Window::new(WINDOW_BYTES_MAX);
        let overflow = |stream| Err(PeerError::WindowOverflow { stream });
        assert_eq!(window.grow(3, 1), overflow(3));
        assert_eq!(window.resize(0, 1), overflow(0));
        assert_eq!(window.take(usize::MAX), WINDOW_BYTES_MAX as usize);
        assert_eq!(window.grow(3, WINDOW_BYTES_MAX), Ok(()));
    }

    #[test]
    fn an_initial_size_may_take_it_below_zero() {
        let mut window = Window::new(65_535);
        assert_eq!(window.take(65_535), 65_535);
        assert_eq!(window.resize(65_535, 0), Ok(()));
        assert_eq!((window.room(), window.take(1)), (0, 0));
        assert_eq!(window.grow(1, 65_535), Ok(()));
        assert_eq!(window.room(), 0);
        assert_eq!(window.grow(1, 1), Ok(()));
        assert_eq!(window.room(), 1);
    }
}
