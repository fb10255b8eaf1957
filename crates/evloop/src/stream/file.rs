//! A part of a file on its way into a socket.

#[cfg(target_os = "linux")]
use super::sigpipe::without_sigpipe;
use super::socket::Socket;
use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::{fmt, io};

/// A part of a file that is to be sent.
///
/// Shape: holds the descriptor open for as long as it lives; several slices may share one. The
/// file's own position is neither used nor moved.
///
/// Units: bytes.
///
/// ```
/// use dwell_evloop::FileSlice;
///
/// let file = std::fs::File::open("Cargo.toml")?;
/// let slice = FileSlice { file: file.into(), offset: 9, length: 16 };
/// assert_eq!(slice.length, 16);
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FileSlice {
    /// The file, open for reading.
    pub file: Arc<File>,
    /// The offset at which the part begins.
    pub offset: u64,
    /// The length of the part.
    pub length: u64,
}

/// A file has become shorter than what was promised of it, so that the rest cannot be sent.
///
/// The cause inside the [`io::Error`] that [`Stream::flush`](crate::Stream::flush) and
/// [`Stream::write_file`](crate::Stream::write_file) return in this case, whose kind is
/// `UnexpectedEof`. The announced length cannot be sent any more; the peer learns that only when
/// the connection ends.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct FileTruncated {
    /// Bytes of the slice that are missing.
    pub missing_bytes: u64,
}

impl fmt::Display for FileTruncated {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "file ends {} bytes before what is sent of it",
            self.missing_bytes
        )
    }
}

impl std::error::Error for FileTruncated {}

impl FileSlice {
    /// Forgets the first `bytes`, which are sent.
    pub(super) fn advance(&mut self, bytes: u64) {
        self.offset += bytes;
        self.length -= bytes;
    }

    /// Reads its first bytes, which are sealed before they are sent.
    pub(super) fn piece(&self) -> io::Result<Vec<u8>> {
        let count = usize::try_from(self.length).unwrap_or(usize::MAX);
        let mut piece = vec![0; count.min(COPY_BYTES)];
        let read = self.file.read_at(&mut piece, self.offset)?;
        if read == 0 {
            return Err(self.truncated());
        }
        piece.truncate(read);
        Ok(piece)
    }

    fn truncated(&self) -> io::Error {
        let missing_bytes = self.length;
        let truncated = FileTruncated { missing_bytes };
        io::Error::new(io::ErrorKind::UnexpectedEof, truncated)
    }

    /// Gives `socket` at most `bytes_max` bytes, in one system call where the system can.
    ///
    /// Shape: zero when the socket is full. Never zero otherwise.
    pub(super) fn send(&self, socket: &Socket, bytes_max: u64) -> io::Result<u64> {
        let count = usize::try_from(self.length.min(bytes_max)).unwrap_or(usize::MAX);
        let sent = loop {
            match send_once(socket, self, count) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return Ok(0),
                other => break other?,
            }
        };
        if sent == 0 {
            return Err(self.truncated());
        }
        Ok(sent as u64)
    }
}

fn send_once(socket: &Socket, slice: &FileSlice, count: usize) -> io::Result<usize> {
    #[cfg(feature = "sim")]
    if let Socket::Sim(_) = socket {
        return send_by_copy(socket, slice, count);
    }
    if let Socket::Carried(_) = socket {
        return send_by_copy(socket, slice, count);
    }
    send_by_kernel(socket, slice, count)
}

/// Copies from file to socket without coming through user space; zero at the end of the file.
#[cfg(target_os = "linux")]
fn send_by_kernel(socket: &Socket, slice: &FileSlice, count: usize) -> io::Result<usize> {
    let mut offset = slice.offset;
    let sent = without_sigpipe(count, || {
        rustix::fs::sendfile(socket.as_fd(), &slice.file, Some(&mut offset), count)
    });
    match sent {
        // A file system whose files have no pages to lend.
        Err(rustix::io::Errno::INVAL | rustix::io::Errno::NOSYS) => {
            send_by_copy(socket, slice, count)
        }
        other => Ok(other?),
    }
}

#[cfg(not(target_os = "linux"))]
fn send_by_kernel(socket: &Socket, slice: &FileSlice, count: usize) -> io::Result<usize> {
    send_by_copy(socket, slice, count)
}

/// Reads a piece and writes what the socket takes of it; the rest is read again later, so that
/// nothing of it has to be kept.
pub(super) fn send_by_copy(socket: &Socket, slice: &FileSlice, count: usize) -> io::Result<usize> {
    let mut piece = vec![0; count.min(COPY_BYTES)];
    let read = slice.file.read_at(&mut piece, slice.offset)?;
    if read == 0 {
        return Ok(0);
    }
    socket.write(&piece[..read])
}

/// Bytes copied at once where the system cannot send from the file itself.
const COPY_BYTES: usize = 64 * 1024;
