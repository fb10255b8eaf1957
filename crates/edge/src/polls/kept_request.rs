//! A request that is kept while its poll waits.

use crate::access::Granted;
use crate::log::kept_fields;
use crate::responder::RequestLine;
use dwell_proto::http1::{FieldStorage, HeadLimits, RequestHead, Version, parse_request};
use std::sync::Arc;

/// A request as it came, in memory of just its size.
#[derive(Debug)]
pub(crate) struct KeptRequest {
    /// Head, body and the key.
    bytes: Box<[u8]>,
    head_bytes: u32,
    /// The size of the key, and [`BY_HTTP2`] of a request that came over HTTP/2: one word, as each
    /// held poll may have them.
    name_bytes: u32,
    /// Response fields of the application's grant, for a connection that is handed over next.
    pub(super) granted: Option<Arc<Granted>>,
}

/// The bit of a request that came over HTTP/2.
const BY_HTTP2: u32 = 1 << 31;

impl KeptRequest {
    /// A request, and its key where that is asked for later.
    pub(crate) fn new(head: &[u8], body: &[u8], name: &[u8]) -> Self {
        let bytes = [head, body, name].concat().into_boxed_slice();
        Self {
            bytes,
            head_bytes: head.len() as u32,
            name_bytes: name.len() as u32,
            granted: None,
        }
    }

    /// Only what the access log has of it: the request line, and some headers.
    pub(crate) fn request_line(head: &[u8]) -> Self {
        Self::named_line(head, &[])
    }

    /// As [`request_line`](Self::request_line), with the key of its poll.
    pub(crate) fn named_line(head: &[u8], name: &[u8]) -> Self {
        let line = head.iter().position(|byte| *byte == b'\r');
        let line = &head[..line.unwrap_or(head.len())];
        Self::new(&kept_fields(line, head), &[], name)
    }

    /// The key, if it was kept.
    pub(crate) fn name(&self) -> &[u8] {
        let name_bytes = self.name_bytes & !BY_HTTP2;
        &self.bytes[self.bytes.len() - name_bytes as usize..]
    }

    /// Keeps the version by which it came, which its head does not have.
    pub(crate) fn came_by(mut self, version: Version) -> Self {
        if version == Version::Http2 {
            self.name_bytes |= BY_HTTP2;
        }
        self
    }

    pub(crate) fn head(&self) -> &[u8] {
        &self.bytes[..self.head_bytes as usize]
    }

    /// Its part of a line of the access log.
    pub(crate) fn line(&self) -> Option<RequestLine<'_>> {
        let line = self.head().split(|byte| *byte == b'\r').next()?;
        let mut words = std::str::from_utf8(line).ok()?.split(' ');
        Some(RequestLine {
            method: words.next()?,
            target: words.next()?,
            head: self.head(),
            key: Some(self.name()).filter(|name| !name.is_empty()),
        })
    }

    /// Parses the head once more; `None` of one that was not kept as a whole.
    pub(crate) fn parse<'f, 'b>(
        &'b self,
        storage: &'f mut FieldStorage<'b>,
        limits: &HeadLimits,
    ) -> Option<RequestHead<'f, 'b>> {
        let mut head = parse_request(self.head(), storage, limits).ok()?;
        if self.name_bytes & BY_HTTP2 != 0 {
            head.version = Version::Http2;
        }
        Some(head)
    }

    pub(crate) fn body(&self) -> &[u8] {
        let name_bytes = self.name_bytes & !BY_HTTP2;
        &self.bytes[self.head_bytes as usize..self.bytes.len() - name_bytes as usize]
    }
}
