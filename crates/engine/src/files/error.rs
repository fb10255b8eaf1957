//! Errors of serving a file.

use rustix::io::Errno;
use std::{error, fmt, io};

/// Reasons why a request for a file gets no file.
#[derive(Debug)]
#[non_exhaustive]
pub enum FileError {
    /// Neither GET nor HEAD: 405.
    Method,
    /// The path is not well encoded, or holds a NUL: 400.
    Path,
    /// There is no regular file of that name, or not within the root: 404.
    NotFound,
    /// The system does not let the process read it: 403.
    Denied,
    /// No descriptor is left to open it with: 503.
    Exhausted(io::Error),
    /// The root itself cannot be opened: 500.
    Root(io::Error),
    /// Another error of the file or its disk: 500.
    System(io::Error),
}

impl FileError {
    /// Makes the error of a root that cannot be opened.
    pub(super) fn of_root(error: io::Error) -> Self {
        if is_exhausted(&error) {
            Self::Exhausted(error)
        } else {
            Self::Root(error)
        }
    }

    /// The status that answers the request.
    pub fn status(&self) -> u16 {
        match self {
            Self::Path => 400,
            Self::Denied => 403,
            Self::NotFound => 404,
            Self::Method => 405,
            Self::Root(_) | Self::System(_) => 500,
            Self::Exhausted(_) => 503,
        }
    }
}

/// Returns true if the process or the system has no descriptor left.
fn is_exhausted(error: &io::Error) -> bool {
    matches!(
        Errno::from_io_error(error),
        Some(Errno::MFILE | Errno::NFILE)
    )
}

impl From<io::Error> for FileError {
    fn from(error: io::Error) -> Self {
        match Errno::from_io_error(&error) {
            Some(
                Errno::NOENT
                | Errno::NOTDIR
                | Errno::LOOP
                | Errno::XDEV
                | Errno::NAMETOOLONG
                // A pipe, socket or device without a counterpart.
                | Errno::NXIO
                | Errno::NODEV,
            ) => Self::NotFound,
            Some(Errno::ACCESS | Errno::PERM) => Self::Denied,
            _ if is_exhausted(&error) => Self::Exhausted(error),
            _ => Self::System(error),
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Method => "method is neither GET nor HEAD",
            Self::Path => "path is not well encoded",
            Self::NotFound => "no such file",
            Self::Denied => "file may not be read",
            Self::Exhausted(_) => "no descriptor is left for the file",
            Self::Root(_) => "root of the files cannot be opened",
            Self::System(_) => "file cannot be read",
        })
    }
}

impl error::Error for FileError {
    fn source(&self) -> Option<&(dyn error::Error + 'static)> {
        match self {
            Self::Exhausted(cause) | Self::Root(cause) | Self::System(cause) => Some(cause),
            Self::Method | Self::Path | Self::NotFound | Self::Denied => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_system_says_has_a_status() {
        let told = |errno: Errno| FileError::from(io::Error::from(errno)).status();
        assert_eq!(told(Errno::NOENT), 404);
        assert_eq!(told(Errno::XDEV), 404);
        assert_eq!(told(Errno::ACCESS), 403);
        assert_eq!(told(Errno::MFILE), 503);
        assert_eq!(told(Errno::IO), 500);
        let of_root = |errno: Errno| FileError::of_root(errno.into()).status();
        assert_eq!(of_root(Errno::NOENT), 500);
        assert_eq!(of_root(Errno::NFILE), 503);
    }
}
