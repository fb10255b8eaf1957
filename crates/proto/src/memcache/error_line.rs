//! Error lines of memcached for requests that it cannot carry out.

use std::fmt;

/// An error line, with memcached's exact text.
///
/// Source: memcached 1.6.18, probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorLine {
    /// The command is unknown, or has the wrong number of arguments.
    Unknown,
    /// A key of more than 250 bytes, or a malformed number.
    BadFormat,
    /// The data is not followed by CR LF where its announced length ends.
    BadDataChunk,
    /// The exptime of `touch`, `gat` or `flush_all` is not a number.
    InvalidExptime,
    /// The amount of `incr` or `decr` is not a 64-bit unsigned number.
    InvalidDelta,
    /// The stored value is not a number.
    NonNumeric,
    /// `delete` with something else than `0` and `noreply` after the key.
    DeleteUsage,
    /// A meta flag given twice.
    DuplicateFlag,
    /// A meta flag that does not exist.
    InvalidFlag,
    /// Any mistake in the flags of `md` or `ma`.
    InvalidOrDuplicateFlag,
    /// The token after a meta flag is not the number it has to be.
    BadToken,
    /// Flag `b` on a key that is not base64.
    BadKeyEncoding,
    /// Flag `O` with more than 31 bytes.
    OpaqueTooLong,
    /// More flags on an `mg` line than memcached reads.
    GetFlagsTooLong,
    /// More flags on another meta line than memcached reads.
    FlagsTooLong,
    /// Flag `M` with more or less than one letter.
    BadModeLength,
    /// A mode `ms` does not have.
    InvalidSetMode,
    /// A mode `ma` does not have.
    InvalidArithmeticMode,
    /// Flag `J` of `ms` is not a number.
    InvalidMetaInitial,
    /// Flag `D` of `ms` is not a number.
    InvalidMetaDelta,
    /// `shutdown` where it is not allowed, which is the default.
    ShutdownDisabled,
    /// `shutdown` with another mode than `graceful`.
    InvalidShutdownMode,
    /// `flush_all` where it is not allowed.
    FlushDisabled,
    /// `stats detail` with something else than `on`, `off` and `dump`.
    StatsDetailUsage,
    /// A line of keys that is longer than its limit; the rest of it has been discarded.
    LineTooLong,
    /// The client has sent a command before it was authenticated.
    Unauthenticated,
    /// The data of an authenticating `set` is not a name and a password.
    BadAuthenticationToken,
    /// No such name, or another password.
    AuthenticationFailed,
    /// The announced value cannot fit an item.
    TooLarge,
    /// The item fits, but no room could be made for it.
    OutOfMemory,
    /// The server holds as many connections as it may.
    TooManyConnections,
}

impl ErrorLine {
    /// The line as it goes on the wire, CR LF included.
    pub fn as_bytes(self) -> &'static [u8] {
        self.text().as_bytes()
    }

    fn text(self) -> &'static str {
        match self {
            Self::Unknown => "ERROR\r\n",
            Self::BadFormat => "CLIENT_ERROR bad command line format\r\n",
            Self::BadDataChunk => "CLIENT_ERROR bad data chunk\r\n",
            Self::InvalidExptime => "CLIENT_ERROR invalid exptime argument\r\n",
            Self::InvalidDelta => "CLIENT_ERROR invalid numeric delta argument\r\n",
            Self::NonNumeric => "CLIENT_ERROR cannot increment or decrement non-numeric value\r\n",
            Self::DeleteUsage => {
                "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]\r\n"
            }
            Self::DuplicateFlag => "CLIENT_ERROR duplicate flag\r\n",
            Self::InvalidFlag => "CLIENT_ERROR invalid flag\r\n",
            Self::InvalidOrDuplicateFlag => "CLIENT_ERROR invalid or duplicate flag\r\n",
            Self::BadToken => "CLIENT_ERROR bad token in command line format\r\n",
            Self::BadKeyEncoding => "CLIENT_ERROR error decoding key\r\n",
            Self::OpaqueTooLong => "CLIENT_ERROR opaque token too long\r\n",
            Self::GetFlagsTooLong => "CLIENT_ERROR options flags are too long\r\n",
            Self::FlagsTooLong => "CLIENT_ERROR options flags too long\r\n",
            Self::BadModeLength => "CLIENT_ERROR incorrect length for M token\r\n",
            Self::InvalidSetMode => "CLIENT_ERROR invalid mode for ms M token\r\n",
            Self::InvalidArithmeticMode => "CLIENT_ERROR invalid mode for ma M token\r\n",
            Self::InvalidMetaInitial => "CLIENT_ERROR invalid numeric initial value\r\n",
            Self::InvalidMetaDelta => "CLIENT_ERROR invalid numeric delta value\r\n",
            Self::ShutdownDisabled => "ERROR: shutdown not enabled\r\n",
            Self::InvalidShutdownMode => "CLIENT_ERROR invalid shutdown mode\r\n",
            Self::FlushDisabled => "CLIENT_ERROR flush_all not allowed\r\n",
            Self::StatsDetailUsage => "CLIENT_ERROR usage: stats detail on|off|dump\r\n",
            Self::LineTooLong => "CLIENT_ERROR line too long\r\n",
            Self::Unauthenticated => "CLIENT_ERROR unauthenticated\r\n",
            Self::BadAuthenticationToken => "CLIENT_ERROR bad authentication token format\r\n",
            Self::AuthenticationFailed => "CLIENT_ERROR authentication failure\r\n",
            Self::TooLarge => "SERVER_ERROR object too large for cache\r\n",
            Self::OutOfMemory => "SERVER_ERROR out of memory storing object\r\n",
            Self::TooManyConnections => "ERROR Too many open connections\r\n",
        }
    }
}

impl fmt::Display for ErrorLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text().trim_end())
    }
}
