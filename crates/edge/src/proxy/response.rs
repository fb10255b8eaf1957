//! The response to a proxied request: how far it is passed on, and errors in its place.

use super::upload::{Interim, Upload};
use crate::responder::FORWARDED;
use dwell_engine::{Body, Reply, Response};
use dwell_proto::http1::BodyFraming;
use dwell_upstream::{AnswerHead, AnswerPart};

/// A response on its way to the client.
#[derive(Debug)]
pub(super) struct ProxiedResponse {
    /// Reason why the request is proxied.
    reason: ProxyReason,
    /// The request is a HEAD.
    is_head: bool,
    /// 0 until its head is passed on.
    status: u16,
    /// Number of its body bytes so far.
    sent: u64,
    /// Body bytes that the client has not read.
    unread: usize,
    /// It is an event stream.
    is_stream: bool,
}

/// The reason why a request is proxied.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ProxyReason {
    /// It is not a poll.
    Bypass,
    /// It is a poll whose response is too large to be shared.
    Miss,
}

impl ProxyReason {
    /// The `Cache-Status` (RFC 9211).
    fn cache_status(self) -> &'static [u8] {
        match self {
            Self::Bypass => b"dwell; fwd=bypass",
            Self::Miss => b"dwell; fwd=miss",
        }
    }

    /// The outcome in the access log.
    fn outcome(self) -> &'static str {
        match self {
            Self::Bypass => FORWARDED,
            Self::Miss => "miss",
        }
    }
}

/// Result of passing parts of a response on.
pub(super) struct Passed {
    /// Number of body bytes in them.
    pub(super) bytes: usize,
    pub(super) is_ended: bool,
    /// The response cannot be completed as announced.
    pub(super) is_broken: bool,
}

impl ProxiedResponse {
    pub(super) fn new(reason: ProxyReason, is_head: bool) -> Self {
        Self {
            reason,
            is_head,
            status: 0,
            sent: 0,
            unread: 0,
            is_stream: false,
        }
    }

    /// True once its head is passed on, or that of an error.
    pub(super) fn has_begun(&self) -> bool {
        self.status > 0
    }

    /// Its status; 0 until it has begun.
    pub(super) fn status(&self) -> u16 {
        self.status
    }

    /// Number of its body bytes so far.
    pub(super) fn sent(&self) -> u64 {
        self.sent
    }

    /// The outcome in the access log.
    pub(super) fn outcome(&self) -> &'static str {
        self.reason.outcome()
    }

    /// True of an event stream.
    pub(super) fn is_stream(&self) -> bool {
        self.is_stream
    }

    /// Begins with a status, whose head is sent elsewhere.
    pub(super) fn begin(&mut self, status: u16) {
        self.status = status;
    }

    /// Adds body bytes that the client has not read.
    pub(super) fn add_unread(&mut self, bytes: usize) {
        self.unread += bytes;
    }

    /// The client has read all bytes; returns their number since it last had.
    pub(super) fn take_unread(&mut self) -> usize {
        std::mem::take(&mut self.unread)
    }

    /// Passes parts of a response on.
    pub(super) fn pass_on(
        &mut self,
        parts: &[AnswerPart],
        upload: &mut Upload,
        window: u64,
        reply: &mut Reply<'_>,
    ) -> Passed {
        let mut passed = Passed {
            bytes: 0,
            is_ended: false,
            is_broken: false,
        };
        for part in parts {
            match part {
                AnswerPart::Interim(head) => match upload.interim(head.status) {
                    Interim::Granted => reply.grant(window),
                    Interim::PassedOn => {
                        let fields: Vec<(&str, &[u8])> = fields_of(head).collect();
                        reply.informational(head.status, &fields);
                    }
                    Interim::Dropped => {}
                },
                AnswerPart::Head(head) => self.head(head, reply),
                AnswerPart::Body(piece) => {
                    passed.bytes += piece.len();
                    passed.is_broken |= reply.write_shared(piece).is_err();
                }
                AnswerPart::End(trailers) => {
                    let fields: Vec<(&str, &[u8])> = trailers
                        .iter()
                        .map(|(name, value)| (name.as_str(), value.as_ref()))
                        .collect();
                    // A response without a body has ended with its head.
                    let _ = reply.finish(&fields);
                    passed.is_ended = true;
                }
            }
        }
        self.sent += passed.bytes as u64;
        passed
    }

    fn head(&mut self, head: &AnswerHead, reply: &mut Reply<'_>) {
        self.status = head.status;
        self.is_stream = head.is_event_stream();
        let mut fields: Vec<(&str, &[u8])> = fields_of(head).collect();
        fields.push(("Cache-Status", self.reason.cache_status()));
        let body = match head.framing {
            _ if self.is_head => Body::Absent(head.content_length),
            BodyFraming::None => Body::Empty,
            BodyFraming::Length(length) => Body::Stream(Some(length)),
            BodyFraming::Chunked | BodyFraming::UntilClose => Body::Stream(None),
        };
        reply.send(&Response {
            status: head.status,
            fields: &fields,
            body,
        });
    }
}

fn fields_of(head: &AnswerHead) -> impl Iterator<Item = (&str, &[u8])> {
    let fields = head.fields.iter();
    fields.map(|(name, value)| (name.as_str(), value.as_ref()))
}

/// An error response of the proxy itself.
#[derive(Debug)]
pub(super) struct ErrorResponse {
    status: u16,
    body: String,
    retry_after: Option<String>,
}

impl ErrorResponse {
    pub(super) fn new(status: u16, reason: &str, retry_after: Option<String>) -> Self {
        Self {
            status,
            body: format!("{reason}\n"),
            retry_after,
        }
    }

    pub(super) fn fields(&self) -> Vec<(&str, &[u8])> {
        let mut fields: Vec<(&str, &[u8])> = vec![
            ("Content-Type", b"text/plain; charset=utf-8"),
            ("Cache-Control", b"no-store"),
        ];
        if let Some(seconds) = &self.retry_after {
            fields.push(("Retry-After", seconds.as_bytes()));
        }
        fields
    }

    pub(super) fn response<'a>(&'a self, fields: &'a [(&'a str, &'a [u8])]) -> Response<'a> {
        Response {
            status: self.status,
            fields,
            body: Body::Slice(self.body.as_bytes()),
        }
    }
}
