//! Sockets on their way from one process to another.

use dwell_evloop::{ListenOptions, Listener, Stream};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

/// A socket on its way from one process to another.
#[derive(Debug)]
pub(crate) enum Passed {
    /// Its descriptor.
    Descriptor(OwnedFd),
    /// A simulated socket that listens.
    #[cfg(feature = "sim")]
    Listener(Listener),
    /// A simulated connection.
    #[cfg(feature = "sim")]
    Stream(Stream),
}

impl Passed {
    /// Duplicates a listening socket.
    ///
    /// # Errors
    /// When no descriptor is left.
    pub(crate) fn of(listener: &Listener) -> io::Result<Self> {
        #[cfg(feature = "sim")]
        if listener.is_simulated() {
            return listener.try_clone().map(Self::Listener);
        }
        let descriptor = listener.as_fd().try_clone_to_owned()?;
        Ok(Self::Descriptor(descriptor))
    }

    /// Returns the descriptor; a simulated socket has none.
    #[cfg_attr(
        not(feature = "sim"),
        expect(clippy::unnecessary_wraps, reason = "a simulated socket has none")
    )]
    pub(crate) fn descriptor(&self) -> Option<BorrowedFd<'_>> {
        match self {
            Self::Descriptor(descriptor) => Some(descriptor.as_fd()),
            #[cfg(feature = "sim")]
            Self::Listener(_) | Self::Stream(_) => None,
        }
    }

    /// Takes the socket over as a listener.
    ///
    /// # Errors
    /// As [`Listener::from_descriptor`].
    pub(crate) fn into_listener(self, options: ListenOptions) -> io::Result<Listener> {
        match self {
            Self::Descriptor(descriptor) => Listener::from_descriptor(descriptor, options),
            #[cfg(feature = "sim")]
            Self::Listener(listener) => Ok(listener),
            #[cfg(feature = "sim")]
            Self::Stream(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Takes the socket over as a connection.
    ///
    /// # Errors
    /// As [`Stream::from_descriptor`].
    pub(crate) fn into_stream(self) -> io::Result<Stream> {
        match self {
            Self::Descriptor(descriptor) => Stream::from_descriptor(descriptor),
            #[cfg(feature = "sim")]
            Self::Stream(stream) => Ok(stream),
            #[cfg(feature = "sim")]
            Self::Listener(_) => Err(io::ErrorKind::Unsupported.into()),
        }
    }
}

impl From<OwnedFd> for Passed {
    fn from(descriptor: OwnedFd) -> Self {
        Self::Descriptor(descriptor)
    }
}
