//! Several ranges of one file in one answer.

use crate::{Reply, WriteError};
use dwell_evloop::FileSlice;
use std::hash::{BuildHasher, RandomState};
use std::ops::Range;

/// Several parts of one file, each behind its own fields: the body of a `multipart/byteranges`.
///
/// Source: RFC 9110 section 14.6.
///
/// ```
/// use dwell_engine::files::{FileBody, FileOptions, serve_file};
/// use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};
/// use std::time::SystemTime;
///
/// # let directory = tempfile::tempdir()?;
/// # let path = directory.path().join("digits");
/// std::fs::write(&path, "0123456789".repeat(100_000))?;
/// let request = b"GET /digits HTTP/1.1\r\nHost: a\r\nRange: bytes=0-99999,200000-299999\r\n\r\n";
/// let mut storage = FieldStorage::new();
/// let head = parse_request(request, &mut storage, &HeadLimits::default())?;
/// let answer = serve_file(&head, &path, &FileOptions::default(), SystemTime::now());
/// assert_eq!(answer.status, 206);
/// let FileBody::Parts(parts) = &answer.body else { panic!("there are two ranges") };
/// assert_eq!(parts.parts.len(), 2);
/// assert_eq!(parts.length(), answer.body.length());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct FileParts {
    /// The parts in the order asked for: what precedes each, and its bytes.
    pub parts: Vec<(Vec<u8>, FileSlice)>,
    /// The bytes behind the last part.
    pub end: Vec<u8>,
}

impl FileParts {
    /// The size of the whole body in bytes.
    pub fn length(&self) -> u64 {
        let parts = self
            .parts
            .iter()
            .map(|(head, slice)| head.len() as u64 + slice.length);
        parts.sum::<u64>() + self.end.len() as u64
    }

    /// Writes them as the pieces of a streaming answer.
    pub(super) fn write(self, reply: &mut Reply<'_>) -> Result<(), WriteError> {
        for (head, slice) in self.parts {
            reply.write(&head)?;
            reply.write_file(slice)?;
        }
        reply.write(&self.end)
    }

    /// The parts of `whole` that `ranges` select.
    pub(super) fn new(
        whole: &FileSlice,
        ranges: Vec<Range<u64>>,
        content_type: &str,
        boundary: &str,
    ) -> Self {
        let length = whole.length;
        let part = |(number, range): (usize, Range<u64>)| {
            let line_end = if number == 0 { "" } else { "\r\n" };
            let told = content_range(&range, length);
            let head = format!(
                "{line_end}--{boundary}\r\nContent-Type: {content_type}\r\n\
                 Content-Range: {told}\r\n\r\n"
            );
            let slice = FileSlice {
                file: whole.file.clone(),
                offset: range.start,
                length: range.end - range.start,
            };
            (head.into_bytes(), slice)
        };
        Self {
            parts: ranges.into_iter().enumerate().map(part).collect(),
            end: format!("\r\n--{boundary}--\r\n").into_bytes(),
        }
    }
}

/// Source: RFC 9110 section 14.4.
pub(super) fn content_range(range: &Range<u64>, length: u64) -> String {
    format!("bytes {}-{}/{length}", range.start, range.end - 1)
}

/// Makes a boundary line for one response. It is random, so that no file can contain it on purpose.
pub(super) fn boundary() -> String {
    let random = || RandomState::new().hash_one(0_u8);
    format!("{:016x}{:016x}", random(), random())
}
