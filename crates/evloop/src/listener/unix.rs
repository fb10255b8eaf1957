//! Listening on a path: the file of a unix socket comes, stays and goes with its socket.

use super::{ListenOptions, Listener, Socket};
use mio::net::UnixListener;
use socket2::{Domain, SockAddr, Type};
use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The file of a listening socket, removed with its last listener.
#[derive(Debug)]
pub(super) struct SocketFile {
    path: PathBuf,
    /// Device and inode: another program may have put its own file in our place since.
    identity: (u64, u64),
    /// Another process listens there now, and the file is its own.
    is_left: AtomicBool,
}

/// Listens on a unix socket at `path`.
///
/// Shape: a file that a dead program has left there, which is a socket that refuses connections, is
/// removed first. A socket with a listener, and any other file, is left alone. The file is removed
/// with the listener. Several loops share one socket by [`try_clone`](Listener::try_clone). Two
/// programs that start on the same path at the same moment are not kept apart: one of them may
/// remove the other's file.
///
/// # Errors
/// `AddrInUse` when a process listens there or the file is not a socket; `InvalidInput` when the
/// path is longer than an address holds (107 bytes on Linux); otherwise the system's error.
///
/// ```
/// use dwell_evloop::{ListenOptions, bind_unix};
///
/// let directory = tempfile::tempdir()?;
/// let mut options = ListenOptions::default();
/// options.unix_permissions = Some(0o660);
/// let listener = bind_unix(directory.path().join("socket"), options)?;
/// assert!(listener.path().is_some_and(|path| path.exists()));
/// # Ok::<(), std::io::Error>(())
/// ```
pub fn bind_unix(path: impl AsRef<Path>, options: ListenOptions) -> io::Result<Listener> {
    let path = path.as_ref();
    let address = SockAddr::unix(path)?;
    let socket = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    socket.set_nonblocking(true)?;
    match socket.bind(&address) {
        Err(error) if error.kind() == io::ErrorKind::AddrInUse && is_stale(path, &address)? => {
            fs::remove_file(path)?;
            socket.bind(&address)?;
        }
        other => other?,
    }
    // From here on the file is ours to remove, whatever fails.
    let file = SocketFile::at(path)?;
    if let Some(permissions) = options.unix_permissions {
        // No client can connect before `listen`, so the umask's permissions let none in.
        fs::set_permissions(path, fs::Permissions::from_mode(permissions))?;
    }
    socket.listen(options.backlog)?;
    let socket = UnixListener::from_std(socket.into());
    Ok(Socket::Unix(Some(Arc::new(file)), socket).into())
}

/// Returns true if `path` is a socket without a listener.
fn is_stale(path: &Path, address: &SockAddr) -> io::Result<bool> {
    if !fs::symlink_metadata(path)?.file_type().is_socket() {
        return Ok(false);
    }
    let probe = socket2::Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // A listener whose backlog is full must not keep us waiting.
    probe.set_nonblocking(true)?;
    Ok(match probe.connect(address) {
        Ok(()) => false,
        Err(error) => error.kind() == io::ErrorKind::ConnectionRefused,
    })
}

impl SocketFile {
    /// The file at `path`, which is removed from now on.
    pub(super) fn at(path: &Path) -> io::Result<Self> {
        let metadata = fs::symlink_metadata(path)?;
        Ok(Self {
            path: path.to_owned(),
            identity: (metadata.dev(), metadata.ino()),
            is_left: AtomicBool::new(false),
        })
    }

    /// The file stays.
    pub(super) fn leave(&self) {
        self.is_left.store(true, Ordering::Relaxed);
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }
}

impl Drop for SocketFile {
    fn drop(&mut self) {
        if *self.is_left.get_mut() {
            return;
        }
        let is_ours = fs::symlink_metadata(&self.path)
            .is_ok_and(|metadata| (metadata.dev(), metadata.ino()) == self.identity);
        if is_ours {
            // Where it cannot be removed, the next start finds it stale.
            let _ = fs::remove_file(&self.path);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn a_file_nobody_listens_on_is_replaced_and_any_other_left_alone() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
        assert!(path.exists(), "the standard library leaves the file");
        let listener = bind_unix(&path, ListenOptions::default()).unwrap();
        assert_eq!(listener.path(), Some(&*path));
        assert_eq!(listener.address(), None);
        UnixStream::connect(&path).unwrap();
        let error = bind_unix(&path, ListenOptions::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        let file = directory.path().join("file");
        fs::write(&file, "kept").unwrap();
        let error = bind_unix(&file, ListenOptions::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
        assert_eq!(fs::read(&file).unwrap(), b"kept");
    }

    #[test]
    fn a_listener_with_a_full_backlog_is_alive() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let options = ListenOptions {
            backlog: 0,
            ..ListenOptions::default()
        };
        let _listener = bind_unix(&path, options).unwrap();
        let _waiting = UnixStream::connect(&path).unwrap();
        let error = bind_unix(&path, options).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::AddrInUse);
    }

    #[test]
    fn the_file_has_its_permissions_and_goes_with_the_last_listener() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let options = ListenOptions {
            unix_permissions: Some(0o640),
            ..ListenOptions::default()
        };
        let first = bind_unix(&path, options).unwrap();
        let mode = fs::metadata(&path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o640);
        let second = first.try_clone().unwrap();
        drop(first);
        UnixStream::connect(&path).unwrap();
        drop(second);
        assert!(!path.exists());
    }

    #[test]
    fn a_file_that_took_our_place_is_not_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("socket");
        let old = bind_unix(&path, ListenOptions::default()).unwrap();
        // As a program does that moves its new socket over the old one.
        let next = directory.path().join("next");
        let new = std::os::unix::net::UnixListener::bind(&next).unwrap();
        fs::rename(&next, &path).unwrap();
        drop(old);
        UnixStream::connect(&path).unwrap();
        drop(new);
    }

    #[test]
    fn a_path_longer_than_an_address_holds_is_refused() {
        let path = PathBuf::from("/".repeat(200));
        let error = bind_unix(path, ListenOptions::default()).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
}
