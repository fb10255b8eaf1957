//! The chosen response, and how it is sent.

use super::{FileError, FileParts};
use crate::{Body, Reply, Response};
use dwell_evloop::FileSlice;
use dwell_proto::http1::encode::reason;
use std::borrow::Cow;

/// The answer to a request for a file.
///
/// ```
/// use dwell_engine::files::{FileAnswer, FileError, FileOptions, serve_file};
/// use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};
/// use std::time::SystemTime;
///
/// let request = b"GET /nothing HTTP/1.1\r\nHost: a\r\n\r\n";
/// let mut storage = FieldStorage::new();
/// let head = parse_request(request, &mut storage, &HeadLimits::default())?;
/// let options = FileOptions::default();
/// let answer: FileAnswer = serve_file(&head, "/no/such/file", &options, SystemTime::now());
/// assert_eq!(answer.status, 404);
/// assert_eq!(answer.error.as_ref().map(FileError::status), Some(404));
/// # Ok::<(), dwell_proto::http1::HeadError>(())
/// ```
#[derive(Debug)]
pub struct FileAnswer {
    /// The status code.
    pub status: u16,
    /// The fields, but for those that the engine adds to every answer.
    pub fields: Vec<(&'static str, Cow<'static, str>)>,
    /// The body.
    pub body: FileBody,
    /// The reason why there is no file in it, if so.
    pub error: Option<FileError>,
}

/// The body of the answer to a request for a file.
#[derive(Debug)]
pub enum FileBody {
    /// No bytes.
    Empty,
    /// A body of this size that is not sent, as the request is a HEAD.
    Absent(u64),
    /// Bytes that were read, or made.
    Memory(Vec<u8>),
    /// A part of a file, or all of it.
    File(FileSlice),
    /// Several parts of a file.
    Parts(FileParts),
}

impl FileBody {
    /// Its size in bytes.
    pub fn length(&self) -> u64 {
        match self {
            Self::Empty => 0,
            Self::Absent(length) => *length,
            Self::Memory(bytes) => bytes.len() as u64,
            Self::File(slice) => slice.length,
            Self::Parts(parts) => parts.length(),
        }
    }
}

impl FileAnswer {
    /// The value of a field, by its name in any case.
    pub fn field(&self, name: &str) -> Option<&str> {
        let mut fields = self.fields.iter();
        let (_, value) = fields.find(|(known, _)| known.eq_ignore_ascii_case(name))?;
        Some(value)
    }

    /// Sends it, with the further `fields` of the application.
    ///
    /// Shape: complete when this returns, however much the client has still to take: the outcome
    /// of the exchange is [`Answered`](crate::Outcome::Answered). Does nothing where an answer was
    /// sent before.
    pub fn send(self, reply: &mut Reply<'_>, fields: &[(&str, &[u8])]) {
        if reply.is_sent() {
            return;
        }
        let own = self
            .fields
            .iter()
            .map(|(name, value)| (*name, value.as_bytes()));
        let fields: Vec<_> = own.chain(fields.iter().copied()).collect();
        let (status, fields) = (self.status, &fields[..]);
        let mut send = |body| {
            reply.send(&Response {
                status,
                fields,
                body,
            });
        };
        match self.body {
            FileBody::Empty => send(Body::Empty),
            FileBody::Absent(length) => send(Body::Absent(Some(length))),
            FileBody::Memory(bytes) => send(Body::Slice(&bytes)),
            FileBody::File(slice) => send(Body::File(slice)),
            FileBody::Parts(parts) => {
                send(Body::Stream(Some(parts.length())));
                // What a full queue does not take is missing from the announced length, so that
                // the end of the answer closes the connection.
                let _ = parts.write(reply);
                let _ = reply.finish(&[]);
            }
        }
    }

    /// The answer where there is no file to send; its body names the status.
    pub(super) fn failed(error: FileError) -> Self {
        let status = error.status();
        let mut answer = Self::of_status(status);
        if let FileError::Method = error {
            answer.fields.push(("Allow", Cow::Borrowed("GET, HEAD")));
        }
        answer.error = Some(error);
        answer
    }

    /// Makes a response whose body is the reason phrase of its status.
    pub(super) fn of_status(status: u16) -> Self {
        Self {
            status,
            fields: vec![("Content-Type", Cow::Borrowed("text/plain; charset=utf-8"))],
            body: FileBody::Memory(format!("{}\n", reason(status)).into_bytes()),
            error: None,
        }
    }
}
