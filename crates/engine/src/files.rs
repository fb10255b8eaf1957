//! Files as answers: what a GET or HEAD of a file or a directory gets.
//!
//! [`serve_file`] and [`serve_dir`] read the request and the file and decide the whole answer;
//! nothing is sent yet. The [`FileAnswer`] is then [sent](FileAnswer::send), or examined first: an
//! application may put its own page in the place of a 404.
//!
//! Opening a file, asking for its size and reading a small one happen in the call, on the loop:
//! microseconds where the file is in the system's cache, and the time of a disk or a network where
//! it is not. Large files are not read but [queued](dwell_evloop::FileSlice), and sent by the
//! kernel as the client takes them.
//!
//! ```
//! use dwell_engine::files::{DirectoryOptions, serve_dir};
//! use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};
//! use std::time::SystemTime;
//!
//! let root = tempfile::tempdir()?;
//! std::fs::write(root.path().join("index.html"), "<p>hello")?;
//! let request = b"GET / HTTP/1.1\r\nHost: example.org\r\nRange: bytes=3-\r\n\r\n";
//! let mut storage = FieldStorage::new();
//! let head = parse_request(request, &mut storage, &HeadLimits::default())?;
//!
//! // On a loop, `Context::wall` tells the time.
//! let wall = SystemTime::now();
//! let answer = serve_dir(&head, root.path(), &DirectoryOptions::default(), wall);
//! assert_eq!(answer.status, 206);
//! assert_eq!(answer.field("Content-Type"), Some("text/html; charset=utf-8"));
//! assert_eq!(answer.field("Content-Range"), Some("bytes 3-7/8"));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod answer;
mod beneath;
mod coding;
mod conditions;
mod error;
mod listing;
mod multipart;
mod range;
mod representation;
#[cfg(test)]
mod tests;

pub use answer::{FileAnswer, FileBody};
pub use error::FileError;
pub use multipart::FileParts;

use beneath::{Root, target};
use dwell_proto::http1::RequestHead;
use representation::{Open, Opened, Representation};
use std::borrow::Cow;
use std::path::Path;
use std::time::SystemTime;

/// Options of how files are sent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct FileOptions {
    /// The value of `Content-Type`. Default `None`: by the ending of the name, with
    /// `charset=utf-8` for text, and `application/octet-stream` for what is unknown.
    pub content_type: Option<String>,
    /// The value of `Cache-Control`. Default `None`: the field is not sent.
    pub cache_control: Option<String>,
    /// Sends `name.br`, `name.zst` or `name.gz` beside a file in its place, to clients that accept
    /// that coding. They must be created again whenever the file changes. Default false.
    pub precompressed: bool,
    /// Files, and ranges of them, up to this size are read at once instead of being sent by the
    /// kernel. Default 64 KiB.
    pub read_bytes_max: u64,
    /// The most ranges of one request; a request with more gets the whole file. Default 16.
    pub ranges_max: usize,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self {
            content_type: None,
            cache_control: None,
            precompressed: false,
            read_bytes_max: 64 * 1024,
            ranges_max: 16,
        }
    }
}

/// Options of how the files beneath a directory are found and sent.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct DirectoryOptions {
    /// Options of each file.
    pub file: FileOptions,
    /// The beginning of the request's path that stands for the directory, such as `/static`.
    /// Default empty.
    pub prefix: String,
    /// Files that stand for the directory they are in, the first that exists. Default
    /// `index.html`.
    pub index: Vec<String>,
    /// Lists a directory that has no such file; otherwise it is not found. Default false.
    pub listing: bool,
    /// Serves and lists names that begin with a full stop. Default false; `.well-known` is always
    /// served.
    pub hidden: bool,
}

impl Default for DirectoryOptions {
    fn default() -> Self {
        Self {
            file: FileOptions::default(),
            prefix: String::new(),
            index: vec!["index.html".into()],
            listing: false,
            hidden: false,
        }
    }
}

/// Decides the answer that is the file at `path`, which the program has chosen: it may lie
/// anywhere, and links are followed.
///
/// Shape: 200, 206, 304, 405, 412 or 416, with `ETag`, `Last-Modified`, `Accept-Ranges` and what
/// the options say; 404 where there is no regular file. The entity tag is made of the
/// modification time, in nanoseconds, and the size; it is strong, but weak for two seconds after a
/// change, in which another could go unnoticed. A file of 1970, as some builds make them, has
/// neither tag nor date. `wall` is the time now; see
/// [`Context::wall`](dwell_evloop::Context::wall). Blocks as [the module](self) says.
///
/// Source: RFC 9110 sections 8.8, 13, 14 and 15.
///
/// ```
/// use dwell_engine::files::{FileBody, FileOptions, serve_file};
/// use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};
/// use std::time::SystemTime;
///
/// let request = b"HEAD /manual HTTP/1.1\r\nHost: example.org\r\n\r\n";
/// let mut storage = FieldStorage::new();
/// let head = parse_request(request, &mut storage, &HeadLimits::default())?;
/// let mut options = FileOptions::default();
/// options.content_type = Some("text/plain".into());
/// let answer = serve_file(&head, "Cargo.toml", &options, SystemTime::now());
/// assert!(matches!(answer.body, FileBody::Absent(1..)));
/// assert_eq!(answer.field("Content-Type"), Some("text/plain"));
/// # Ok::<(), dwell_proto::http1::HeadError>(())
/// ```
pub fn serve_file(
    head: &RequestHead<'_, '_>,
    path: impl AsRef<Path>,
    options: &FileOptions,
    wall: SystemTime,
) -> FileAnswer {
    let path = path.as_ref();
    let answer = || {
        check_method(head)?;
        let open = |path: &Path| beneath::open(path).and_then(Opened::new);
        let presented = Representation::of(head, path, open(path)?, &open, options, wall)?;
        presented.answer(head, options)
    };
    answer().unwrap_or_else(FileAnswer::failed)
}

/// Decides the answer that the path of the request names beneath the directory `root`.
///
/// Shape: as [`serve_file`] for a regular file and for a directory's index. A directory whose path
/// lacks the `/` at its end gets 301 with a relative reference, so that a proxy's prefix stays. A
/// path that is badly encoded gets 400, a file that may not be read 403, and all that is missing
/// 404. Nothing outside of `root` is reached, by no name and no symbolic link. On Linux the kernel
/// enforces this (`openat2` with `RESOLVE_BENEATH`), so links with an absolute target are not
/// followed. Blocks as described in [the module](self).
pub fn serve_dir(
    head: &RequestHead<'_, '_>,
    root: impl AsRef<Path>,
    options: &DirectoryOptions,
    wall: SystemTime,
) -> FileAnswer {
    let answer = || {
        check_method(head)?;
        let target = target(head.path, &options.prefix, options.hidden)?;
        let root = Root::open(root.as_ref()).map_err(FileError::of_root)?;
        let find = |path: &Path| root.find(path).and_then(Opened::new);
        if target.is_directory {
            return directory(head, &target.path, &find, options, wall);
        }
        let found = find(&target.path)?;
        if found.directory().is_some() {
            return Ok(redirect(head));
        }
        let presented = Representation::of(head, &target.path, found, &find, &options.file, wall)?;
        presented.answer(head, &options.file)
    };
    answer().unwrap_or_else(FileAnswer::failed)
}

fn check_method(head: &RequestHead<'_, '_>) -> Result<(), FileError> {
    if matches!(head.method, "GET" | "HEAD") {
        Ok(())
    } else {
        Err(FileError::Method)
    }
}

/// A directory's index, or the list of what is in it.
fn directory(
    head: &RequestHead<'_, '_>,
    path: &Path,
    find: Open<'_>,
    options: &DirectoryOptions,
    wall: SystemTime,
) -> Result<FileAnswer, FileError> {
    for index in &options.index {
        let path = path.join(index);
        let presented = find(&path)
            .map_err(FileError::from)
            .and_then(|found| Representation::of(head, &path, found, find, &options.file, wall));
        match presented {
            Err(FileError::NotFound) => {}
            presented => return presented?.answer(head, &options.file),
        }
    }
    if !options.listing {
        return Err(FileError::NotFound);
    }
    let found = find(path)?;
    let directory = found.directory().ok_or(FileError::NotFound)?;
    let page = listing::page(directory, head.path, options.hidden)?;
    Ok(FileAnswer {
        status: 200,
        fields: vec![("Content-Type", Cow::Borrowed("text/html; charset=utf-8"))],
        body: FileBody::Memory(page.into_bytes()),
        error: None,
    })
}

/// Sends the client to the same path with a `/` at its end, from where relative links work.
fn redirect(head: &RequestHead<'_, '_>) -> FileAnswer {
    let name = head.path.rsplit('/').next().unwrap_or_default();
    let mark = if head.query.is_some() { "?" } else { "" };
    // With `./` before it a name with a colon is not taken for a scheme.
    let location = format!("./{name}/{mark}{}", head.query.unwrap_or_default());
    FileAnswer {
        status: 301,
        fields: vec![("Location", Cow::Owned(location))],
        body: FileBody::Empty,
        error: None,
    }
}
