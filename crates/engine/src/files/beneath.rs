//! Finding a file beneath a directory, and nowhere else.

use super::FileError;
use percent_encoding::percent_decode_str;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

/// The file or directory that the path of a request names beneath a directory.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Target {
    /// Relative, without `.`, `..` and empty names; empty for the directory itself.
    pub(super) path: PathBuf,
    /// The path ended in `/`, so that only a directory can be meant.
    pub(super) is_directory: bool,
}

/// Returns the target that `path`, as it came in the request, names beneath the directory that
/// `prefix` stands for.
///
/// Shape: names that could lead elsewhere (`.`, `..`, empty, with an encoded `/`) are not found;
/// so are those that begin with a full stop, unless `hidden`; `.well-known` (RFC 8615) is not
/// hidden.
pub(super) fn target(path: &str, prefix: &str, hidden: bool) -> Result<Target, FileError> {
    let prefix = prefix.trim_end_matches('/');
    let rest = path.strip_prefix(prefix).ok_or(FileError::NotFound)?;
    let mut found = Target {
        path: PathBuf::new(),
        is_directory: false,
    };
    if rest.is_empty() {
        return Ok(found);
    }
    let mut names = rest
        .strip_prefix('/')
        .ok_or(FileError::NotFound)?
        .split('/');
    // There is always a last one, if only an empty one behind the last `/`.
    let last = names.next_back().unwrap_or_default();
    for name in names {
        found.path.push(decode(name, hidden)?);
    }
    if last.is_empty() {
        found.is_directory = true;
    } else {
        found.path.push(decode(last, hidden)?);
    }
    Ok(found)
}

/// The name of one file that a segment of a path stands for.
fn decode(segment: &str, hidden: bool) -> Result<PathBuf, FileError> {
    let is_escaped = |rest: &[u8]| {
        matches!(rest, [b'%', first, second, ..]
            if first.is_ascii_hexdigit() && second.is_ascii_hexdigit())
    };
    let bytes = segment.as_bytes();
    let is_valid = |at: usize| bytes[at] != b'%' || is_escaped(&bytes[at..]);
    if !(0..bytes.len()).all(is_valid) {
        return Err(FileError::Path);
    }
    let name: Vec<u8> = percent_decode_str(segment).collect();
    match &name[..] {
        name if name.contains(&0) => Err(FileError::Path),
        b"" | b"." | b".." => Err(FileError::NotFound),
        name if name.contains(&b'/') => Err(FileError::NotFound),
        b".well-known" => Ok(OsStr::from_bytes(&name).into()),
        [b'.', ..] if !hidden => Err(FileError::NotFound),
        name => Ok(OsStr::from_bytes(name).into()),
    }
}

/// An open directory, beneath which files are found.
#[derive(Debug)]
pub(super) struct Root<'a> {
    directory: OwnedFd,
    path: &'a Path,
}

/// Attempts at a lookup that a rename disturbs.
#[cfg(target_os = "linux")]
const ATTEMPTS_MAX: usize = 8;

/// Flags for opening files: a pipe must not block, and a terminal must not become the controlling
/// one.
const OPEN: OFlags = OFlags::RDONLY
    .union(OFlags::CLOEXEC)
    .union(OFlags::NONBLOCK)
    .union(OFlags::NOCTTY);

/// Opens a file that the program names itself.
pub(super) fn open(path: &Path) -> io::Result<File> {
    Ok(openat(CWD, path, OPEN, Mode::empty())?.into())
}

impl<'a> Root<'a> {
    pub(super) fn open(path: &'a Path) -> io::Result<Self> {
        let directory = openat(CWD, path, OPEN | OFlags::DIRECTORY, Mode::empty())?;
        Ok(Self { directory, path })
    }

    /// Opens what is at `relative`, the root itself where it is empty. Symbolic links are followed
    /// as long as they stay beneath the root.
    #[cfg(target_os = "linux")]
    pub(super) fn find(&self, relative: &Path) -> io::Result<File> {
        use rustix::fs::{ResolveFlags, openat2};
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
        let name = if relative.as_os_str().is_empty() {
            Path::new(".")
        } else {
            relative
        };
        for _ in 0..ATTEMPTS_MAX {
            match openat2(&self.directory, name, OPEN, Mode::empty(), beneath) {
                Ok(file) => return Ok(file.into()),
                // Something on the way was moved meanwhile.
                Err(Errno::AGAIN) => {}
                // A kernel before 5.6, or a sandbox that does not know the call.
                Err(Errno::NOSYS | Errno::PERM) => break,
                Err(error) => return Err(error.into()),
            }
        }
        self.find_by_steps(relative)
    }

    #[cfg(not(target_os = "linux"))]
    pub(super) fn find(&self, relative: &Path) -> io::Result<File> {
        self.find_by_steps(relative)
    }

    /// Resolves links first and then walks without following any, so that one that appears
    /// meanwhile leads nowhere.
    fn find_by_steps(&self, relative: &Path) -> io::Result<File> {
        let root = self.path.canonicalize()?;
        let resolved = root.join(relative).canonicalize()?;
        let steps = resolved.strip_prefix(&root).map_err(|_| Errno::XDEV)?;
        let mut steps = steps.components().peekable();
        let mut directory: Option<OwnedFd> = None;
        while let Some(Component::Normal(step)) = steps.next() {
            let mut flags = OPEN | OFlags::NOFOLLOW;
            if steps.peek().is_some() {
                flags |= OFlags::DIRECTORY;
            }
            let from = directory.as_ref().unwrap_or(&self.directory);
            directory = Some(openat(from, step, flags, Mode::empty())?);
        }
        match directory {
            Some(found) => Ok(found.into()),
            None => Ok(self.directory.as_fd().try_clone_to_owned()?.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::fs;
    use std::io::Read;
    use std::os::unix::fs::symlink;

    fn found(path: &str) -> Result<(String, bool), u16> {
        target(path, "/", false)
            .map(|target| (target.path.display().to_string(), target.is_directory))
            .map_err(|error| error.status())
    }

    #[test]
    fn a_path_names_a_file_or_a_directory() {
        let named = |path: &str, is_directory| Ok((path.to_owned(), is_directory));
        assert_eq!(found("/"), named("", true));
        assert_eq!(found("/a"), named("a", false));
        assert_eq!(found("/a/b%20c/"), named("a/b c", true));
        assert_eq!(found("/%C3%BC/..."), Err(404));
        assert_eq!(found("/.well-known/x"), named(".well-known/x", false));
        assert_eq!(found("/a+b\\c"), named("a+b\\c", false));
        let hidden = target("/.git/config", "", true).unwrap();
        assert_eq!(hidden.path, Path::new(".git/config"));
    }

    #[test]
    fn a_path_that_could_lead_elsewhere_is_refused() {
        for path in [
            "/..",
            "/../etc/passwd",
            "/a/../../b",
            "/%2e%2e/a",
            "/.%2E/a",
            "//etc/passwd",
            "/a//b",
            "/./a",
            "/%2fetc/passwd",
            "/a%2f..%2fb",
            "/.git/config",
            "/%2egit",
            "*",
            "a",
        ] {
            assert_eq!(found(path), Err(404), "{path}");
        }
        for path in ["/a%00b", "/%", "/%4", "/%zz", "/a%2"] {
            assert_eq!(found(path), Err(400), "{path}");
        }
    }

    #[test]
    fn a_prefix_ends_at_the_end_of_a_name() {
        for prefix in ["/static", "/static/"] {
            let found = |path| target(path, prefix, false).ok();
            let beneath = |path: &str, is_directory| {
                let path = path.into();
                Some(Target { path, is_directory })
            };
            assert_eq!(found("/static/a"), beneath("a", false));
            assert_eq!(found("/static/"), beneath("", true));
            assert_eq!(found("/static"), beneath("", false));
            assert_eq!(found("/statically"), None);
            assert_eq!(found("/a"), None);
        }
    }

    proptest! {
        #[test]
        fn any_path_names_only_what_lies_beneath(path in "/[a./%20eEfF\u{e4}]{0,24}") {
            if let Ok(target) = target(&path, "", true) {
                let is_name = |component| matches!(component, Component::Normal(_));
                prop_assert!(target.path.components().all(is_name));
                let names = path.split('/').filter(|name| !name.is_empty()).count();
                prop_assert_eq!(target.path.components().count(), names);
            }
        }
    }

    type Way<'a> = &'a dyn Fn(&Path) -> io::Result<File>;

    #[test]
    fn links_are_followed_as_long_as_they_stay_beneath() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("root");
        fs::create_dir_all(path.join("a/b")).unwrap();
        fs::write(path.join("a/b/file"), "inside").unwrap();
        fs::write(directory.path().join("secret"), "outside").unwrap();
        symlink("a/b/file", path.join("link")).unwrap();
        symlink("../b", path.join("a/up")).unwrap();
        symlink("b", path.join("a/down")).unwrap();
        symlink("../secret", path.join("escape")).unwrap();
        symlink("..", path.join("parent")).unwrap();
        symlink(directory.path().join("secret"), path.join("absolute")).unwrap();
        symlink("circle", path.join("circle")).unwrap();
        let root = Root::open(&path).unwrap();
        let ways: [Way<'_>; 2] = [&|path| root.find(path), &|path| root.find_by_steps(path)];
        for find in ways {
            let read = |relative: &str| -> io::Result<String> {
                let mut text = String::new();
                find(Path::new(relative))?.read_to_string(&mut text)?;
                Ok(text)
            };
            for inside in ["a/b/file", "link", "a/down/file"] {
                assert_eq!(read(inside).unwrap(), "inside", "{inside}");
            }
            for outside in [
                "escape",
                "parent/secret",
                "absolute",
                "circle",
                "a/up",
                "nothing",
            ] {
                let error = FileError::from(read(outside).unwrap_err());
                assert_eq!(error.status(), 404, "{outside}");
            }
            assert!(find(Path::new("")).unwrap().metadata().unwrap().is_dir());
            assert!(find(Path::new("a")).unwrap().metadata().unwrap().is_dir());
        }
    }
}
