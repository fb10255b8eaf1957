//! A request head that outlives the loop's input buffer.

use dwell_engine::Request;
use dwell_proto::http1::Version;

/// A request head of its own, for use later or on another thread.
///
/// Shape: the bytes as they came, and where its parts are in them.
#[derive(Debug)]
pub(crate) struct Head {
    bytes: Vec<u8>,
    method: Span,
    target: Span,
    path: Span,
    query: Option<Span>,
    fields: Vec<(Span, Span)>,
    version: Version,
}

/// A part of a head; heads are shorter than the loop's input buffer of 64 KiB.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: u16,
    end: u16,
}

impl Head {
    /// Copies the head of `request`.
    pub(crate) fn of(request: &Request<'_>) -> Self {
        let head = request.head;
        let mut bytes = Vec::with_capacity(request.head_bytes.len());
        bytes.extend_from_slice(request.head_bytes);
        let base = request.head_bytes;
        let span = |part: &[u8]| Span::within(base, part);
        Self {
            method: span(head.method.as_bytes()),
            target: span(head.target.as_bytes()),
            // An absolute form without a path has one of `/`, which is not among the bytes; the
            // first slash of its target is.
            path: Span::find(base, head.path.as_bytes()).unwrap_or_else(|| {
                let slash = head.target.find('/').unwrap_or(0);
                span(head.target.get(slash..=slash).unwrap_or("").as_bytes())
            }),
            query: head.query.map(|query| span(query.as_bytes())),
            fields: head
                .fields
                .iter()
                .filter(|(name, _)| is_the_clients(head.version, name))
                .map(|(name, value)| (span(name.as_bytes()), span(value)))
                .collect(),
            version: head.version,
            bytes,
        }
    }

    /// All of its bytes.
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    pub(crate) fn method(&self) -> &[u8] {
        self.part(self.method)
    }

    pub(crate) fn target(&self) -> &[u8] {
        self.part(self.target)
    }

    pub(crate) fn path(&self) -> &[u8] {
        self.part(self.path)
    }

    pub(crate) fn query(&self) -> &[u8] {
        self.query.map_or(&[], |query| self.part(query))
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    /// The field lines, in order.
    pub(crate) fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields
            .iter()
            .map(|(name, value)| (self.part(*name), self.part(*value)))
    }

    fn part(&self, span: Span) -> &[u8] {
        &self.bytes[usize::from(span.start)..usize::from(span.end)]
    }
}

/// Returns false for a field that the engine has added: HTTP/2 has no `Transfer-Encoding`, which
/// stands for a body of unknown size there.
fn is_the_clients(version: Version, name: &str) -> bool {
    version != Version::Http2 || !name.eq_ignore_ascii_case("transfer-encoding")
}

/// The protocol of a request as `SERVER_PROTOCOL` and access logs have it.
pub(crate) fn protocol(version: Version) -> &'static str {
    match version {
        Version::Http10 => "HTTP/1.0",
        Version::Http11 => "HTTP/1.1",
        Version::Http2 => "HTTP/2.0",
    }
}

impl Span {
    /// Returns the place in `base` of `part`, which was borrowed from it; an empty one if it was
    /// not.
    fn within(base: &[u8], part: &[u8]) -> Self {
        Self::find(base, part).unwrap_or(Self { start: 0, end: 0 })
    }

    fn find(base: &[u8], part: &[u8]) -> Option<Self> {
        let start = part.as_ptr().addr().checked_sub(base.as_ptr().addr())?;
        let end = start + part.len();
        (end <= base.len()).then_some(Self {
            start: u16::try_from(start).ok()?,
            end: u16::try_from(end).ok()?,
        })
    }
}
