//! The file that becomes a snapshot once it is whole.

use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process;

use nix::fcntl::OFlag;

use super::beside;

/// The end of the name of a draft, behind the id of its process.
const SUFFIX: &[u8] = b".new";

/// The draft of this process for the snapshot at `path`.
pub(super) fn name(path: &Path) -> PathBuf {
    beside(path, &format!("{}.new", process::id()))
}

/// Makes a draft that no other user may read: values that are stored are not published by it.
///
/// Shape: a new file in any case, so that nothing is written to what a name leads to. It is locked
/// for as long as it is open.
///
/// # Errors
/// As the system says; also where the name is taken and cannot be made free.
pub(super) fn create(path: &Path) -> io::Result<File> {
    let create = || {
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .custom_flags(OFlag::O_NOFOLLOW.bits())
            .mode(0o600)
            .open(path)
    };
    let file = match create() {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
            // This process has this number now, so the one that had it before has ended.
            fs::remove_file(path)?;
            create()
        }
        created => created,
    }?;
    // A file system without locks keeps nobody from writing.
    let _ = file.try_lock();
    Ok(file)
}

/// Removes the drafts of processes that have ended in the middle of one.
pub(super) fn remove_left(path: &Path) {
    let folder = match path.parent() {
        Some(folder) if !folder.as_os_str().is_empty() => folder,
        _ => Path::new("."),
    };
    let Ok(entries) = fs::read_dir(folder) else {
        return;
    };
    for entry in entries.flatten() {
        if !is_draft(&entry.file_name(), path) {
            continue;
        }
        let left = entry.path();
        match remove_unlocked(&left) {
            Ok(true) => tracing::info!(path = %left.display(), "removed an unfinished snapshot"),
            Ok(false) => {}
            Err(error) => {
                tracing::warn!(path = %left.display(), %error, "an unfinished snapshot stays");
            }
        }
    }
}

/// Removes a draft without a writer; returns true if it did.
fn remove_unlocked(path: &Path) -> io::Result<bool> {
    let flags = (OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK).bits();
    let mut options = OpenOptions::new();
    let file = options.read(true).custom_flags(flags).open(path)?;
    // What is no file is nothing that a process has left.
    if !file.metadata()?.is_file() || file.try_lock().is_err() {
        return Ok(false);
    }
    fs::remove_file(path).map(|()| true)
}

/// True for the name of a draft of the snapshot at `path`.
fn is_draft(name: &OsStr, path: &Path) -> bool {
    let whose = || {
        let behind = name.as_bytes().strip_prefix(path.file_name()?.as_bytes())?;
        behind.strip_prefix(b".")?.strip_suffix(SUFFIX)
    };
    whose().is_some_and(|whose| !whose.is_empty() && whose.iter().all(u8::is_ascii_digit))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_a_killed_process_has_left_is_removed_and_nothing_else() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        let path = at("items");
        for name in ["items.1.new", "items.99999999.new"] {
            fs::write(at(name), b"half").unwrap();
        }
        let kept = [
            "items",
            "items.new",
            "items.1.newer",
            "items.x.new",
            "other.1.new",
            "items.7.new",
        ];
        for name in kept {
            fs::write(at(name), b"kept").unwrap();
        }
        symlink(at("items"), at("items.8.new")).unwrap();
        // Another process is writing it at this moment.
        let held = File::open(at("items.7.new")).unwrap();
        held.try_lock().unwrap();
        remove_left(&path);
        let mut names: Vec<_> = fs::read_dir(folder.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort_unstable();
        let mut expected: Vec<_> = kept.into_iter().chain(["items.8.new"]).collect();
        expected.sort_unstable();
        assert_eq!(names, expected);
    }

    #[test]
    fn a_draft_is_never_written_to_what_its_name_leads_to() {
        let folder = tempfile::tempdir().unwrap();
        let (draft, victim) = (folder.path().join("draft"), folder.path().join("victim"));
        fs::write(&victim, b"precious").unwrap();
        symlink(&victim, &draft).unwrap();
        io::Write::write_all(&mut create(&draft).unwrap(), b"items").unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(fs::read(&draft).unwrap(), b"items");
        assert!(!fs::symlink_metadata(&draft).unwrap().is_symlink());
    }
}
