//! Answers that own what they are made of.

use crate::desk::OwnedAnswer;
use crate::reply::{Body, Reply, Response};
use bytes::Bytes;
use dwell_evloop::FileSlice;
use std::borrow::Cow;

/// A field line: its name and its value.
pub(crate) type Field = (Cow<'static, str>, Bytes);

/// A whole answer that can be made in one thread and sent by another.
///
/// Shape: as of a [`Response`], the engine adds what frames it, and values are sanitised on the
/// way out.
///
/// ```
/// use dwell_engine::handler::Answer;
///
/// let answer = Answer::text(404, "nothing here\n").field("Cache-Control", "no-store");
/// assert_eq!(answer.status(), 404);
/// ```
#[derive(Debug)]
pub struct Answer {
    status: u16,
    fields: Vec<Field>,
    body: AnswerBody,
    closes: bool,
}

#[derive(Debug)]
enum AnswerBody {
    Bytes(Bytes),
    Absent(Option<u64>),
    File(FileSlice),
}

impl Answer {
    /// An answer with this status (200 to 599, or 101), no fields and no body.
    pub fn new(status: u16) -> Self {
        Self {
            status,
            fields: Vec::new(),
            body: AnswerBody::Bytes(Bytes::new()),
            closes: false,
        }
    }

    /// An answer of plain text.
    pub fn text(status: u16, body: impl Into<Bytes>) -> Self {
        Self::new(status)
            .field("Content-Type", "text/plain; charset=utf-8")
            .body(body)
    }

    /// Adds a field; those that frame the answer are left out, as of a [`Response`].
    #[must_use]
    pub fn field(mut self, name: impl Into<Cow<'static, str>>, value: impl Into<Bytes>) -> Self {
        self.fields.push((name.into(), value.into()));
        self
    }

    pub(super) fn push(&mut self, name: &'static str, value: Bytes) {
        self.fields.push((name.into(), value));
    }

    /// Gives it a body, in the place of the one it has.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = AnswerBody::Bytes(body.into());
        self
    }

    /// Makes a part of a file its body.
    ///
    /// ```
    /// use dwell_engine::handler::Answer;
    /// use dwell_evloop::FileSlice;
    /// use std::sync::Arc;
    ///
    /// # let directory = tempfile::tempdir()?;
    /// # let path = directory.path().join("report.csv");
    /// # std::fs::write(&path, "1,2,3\n")?;
    /// let file = std::fs::File::open(path)?;
    /// let length = file.metadata()?.len();
    /// let slice = FileSlice { file: Arc::new(file), offset: 0, length };
    /// let answer = Answer::new(200).field("Content-Type", "text/csv").file(slice).close_after();
    /// // To a HEAD request, the size alone.
    /// let head = Answer::new(200).absent(Some(length));
    /// assert_eq!((answer.status(), head.status()), (200, 200));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use]
    pub fn file(mut self, slice: FileSlice) -> Self {
        self.body = AnswerBody::File(slice);
        self
    }

    /// Announces a body of this length, if known, that is not sent: for responses to HEAD.
    #[must_use]
    pub fn absent(mut self, length: Option<u64>) -> Self {
        self.body = AnswerBody::Absent(length);
        self
    }

    /// Closes the connection after it.
    #[must_use]
    pub fn close_after(mut self) -> Self {
        self.closes = true;
        self
    }

    /// Its status.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// Its fields.
    pub(crate) fn fields(&self) -> &[Field] {
        &self.fields
    }

    pub(super) fn of_fields(status: u16, fields: Vec<Field>) -> Self {
        Self {
            fields,
            ..Self::new(status)
        }
    }

    pub(crate) fn send(self, reply: &mut Reply<'_>) {
        let body = match self.body {
            AnswerBody::Bytes(bytes) => Body::Shared(bytes),
            AnswerBody::Absent(length) => Body::Absent(length),
            AnswerBody::File(slice) => Body::File(slice),
        };
        write(reply, self.status, &self.fields, body, self.closes);
    }
}

impl OwnedAnswer for Answer {
    fn send(self, reply: &mut Reply<'_>) {
        Self::send(self, reply);
    }

    fn begin(self, length: Option<u64>, reply: &mut Reply<'_>) -> bool {
        let body = Body::Stream(length);
        write(reply, self.status, &self.fields, body, self.closes);
        // Without a body it is complete: a writer of pieces gets an error.
        reply.is_bodiless() && reply.finish(&[]).is_ok()
    }

    fn informational(self, reply: &mut Reply<'_>) {
        reply.informational(self.status, &borrowed(&self.fields));
    }
}

fn write(reply: &mut Reply<'_>, status: u16, fields: &[Field], body: Body<'_>, closes: bool) {
    if closes {
        reply.close_after();
    }
    let fields = borrowed(fields);
    reply.send(&Response {
        status,
        fields: &fields,
        body,
    });
}

/// Fields as the encoder takes them.
pub(crate) fn borrowed(fields: &[Field]) -> Vec<(&str, &[u8])> {
    fields
        .iter()
        .map(|(name, value)| (&**name, &**value))
        .collect()
}
