//! The HTTP/1.1 client to the application behind the edge: one per loop, a component of its driver.
//!
//! [`Upstreams`] has the servers of one application, and is what a loop sends its requests with: it
//! chooses a server, leaves out those that fail ([`GroupOptions`], [`HealthCheck`]) and follows a
//! change of its plan. [`Upstream`] is the client of one server: its pool and queue. Requests are
//! made by [`encode_request`] and [`encode_forward`]. Nothing here reads a clock or waits.
//!
//! Connections are kept and used again, the one that came free last first. A request that finds
//! all of them busy waits in a bounded queue. Every request that [`Upstream::send`] takes ends in
//! exactly one [`UpstreamEvent`], unless it is cancelled, and every stage of it has a deadline.
//!
//! An answer is taken in one of two ways. [`Taking::Whole`] gathers it before it is handed on, so
//! that all polls that wait for it share one copy; one that is too large for that goes on in
//! parts. [`Taking::Parts`] hands it on as it comes, and reads no more of it than was granted, so
//! that a client that takes it slowly slows the application down, and nothing is held meanwhile.
#![forbid(unsafe_code)]

mod answer;
mod client;
mod connection;
mod encode;
mod error;
mod exchanging;
mod fault_log;
mod group;
mod health;
mod plan;
mod queue;
mod recent;
mod shares;
mod streaming;
mod upstreams;

pub use answer::{Answer, AnswerHead, AnswerPart, nominated};
pub use client::Upstream;
pub use encode::{
    ForwardedFor, RequestBody, Sharing, Wants, encode_forward, encode_request, is_idempotent,
    is_of_streams, is_ones_own, upgrade_of,
};
pub use error::{Unsent, UpstreamError};
pub use fault_log::{FaultLog, FaultReport};
pub use group::UpstreamStatus;
pub use health::HealthCheck;
pub use plan::{GroupOptions, UPSTREAMS_MAX, UpstreamPlan};
pub use recent::Witness;
pub use shares::Client;
pub use streaming::Written;
pub use upstreams::{UpstreamFigures, Upstreams};

use std::net::SocketAddr;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dwell_evloop::{Connector, Detached, Token};
use dwell_proto::http1::{HeadLimits, list_tokens};

/// The address of the application, and its limits.
///
/// Shape: all bounds are those of one loop.
#[derive(Clone, Debug)]
pub struct UpstreamOptions {
    /// The address to connect to.
    pub address: SocketAddr,
    /// Begins the handshakes of TLS; without it connections are plaintext. Default: none.
    pub tls: Option<Connector>,
    /// One attempt to connect, with the handshake of TLS. Default: 2 s.
    pub connect_timeout: Duration,
    /// From the request sent to the answer's head. Default: 30 s.
    pub header_timeout: Duration,
    /// From [`Upstream::send`] to the end of the answer, however many attempts. Default: 60 s.
    pub total_timeout: Duration,
    /// Time for which a connection is kept unused. Default: 30 s.
    pub idle_timeout: Duration,
    /// Open connections, without those of transfers. Default: 256.
    pub connections_max: usize,
    /// Connections whose request or response is on its way in parts: so many count apart, those
    /// beyond among the others. Default: 4096.
    pub transfers_max: usize,
    /// Connections kept unused. Default: 64.
    pub idle_max: usize,
    /// Requests that wait for a connection. Default: 1024.
    pub queue_max: usize,
    /// Time for which a request may wait for a connection. Default: 10 s.
    pub queue_timeout: Duration,
    /// For which an answer that has begun may bring nothing, and the application take nothing of
    /// a request body. Default: 5 min.
    pub stall_timeout: Duration,
    /// Body bytes of a message that may be on their way through here. Default: 64 KiB.
    pub window_bytes: usize,
    /// Body of an answer that is gathered, decoded. Units: bytes. Default: 8 MiB.
    pub answer_bytes_max: u64,
    /// Head of one answer. Default: 64 KiB and 128 fields.
    pub answer_head: HeadLimits,
    /// The first descriptor number that a new connection may not have. Default: none.
    pub descriptor_bound: RawFd,
}

impl UpstreamOptions {
    /// The defaults, for the application at `address`.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            tls: None,
            connect_timeout: Duration::from_secs(2),
            header_timeout: Duration::from_secs(30),
            total_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(30),
            connections_max: 256,
            transfers_max: 4096,
            idle_max: 64,
            queue_max: 1024,
            queue_timeout: Duration::from_secs(10),
            stall_timeout: Duration::from_secs(300),
            window_bytes: 64 << 10,
            answer_bytes_max: 8 << 20,
            answer_head: HeadLimits {
                head_bytes_max: 64 << 10,
                field_count_max: 128,
                ..HeadLimits::default()
            },
            descriptor_bound: RawFd::MAX,
        }
    }
}

/// The form in which the response to a request is handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Taking {
    /// As one [`UpstreamEvent::Answer`]. An answer that is too large for it, or that does not mean
    /// to end, begins with [`UpstreamEvent::Large`] instead.
    Whole,
    /// As [`UpstreamEvent::Parts`].
    Parts,
}

/// A request as [`encode_request`] or [`encode_forward`] made it.
#[derive(Clone, Debug)]
pub struct UpstreamRequest {
    /// Head and body, or as much of it as is there.
    pub bytes: Bytes,
    /// True for the method `HEAD`, whose response has no body.
    pub is_head: bool,
    /// True if it may be sent twice (RFC 9110 section 9.2.2).
    pub is_idempotent: bool,
    /// True if the rest of the body follows by [`Upstream::write_body`].
    pub body_follows: bool,
    /// The protocols that it asks for, if it does.
    pub upgrade: Option<Bytes>,
    /// The form in which the response is handed over.
    pub taking: Taking,
    /// The client of the request, where clients can be told apart.
    pub client: Client,
    /// Comes back with the answer.
    pub tag: u64,
}

impl UpstreamRequest {
    /// A request that is all there, of a client that cannot be told apart from others: it is sent
    /// once, and its answer gathered.
    pub fn new(bytes: Bytes, tag: u64) -> Self {
        Self {
            bytes,
            is_head: false,
            is_idempotent: false,
            body_follows: false,
            upgrade: None,
            taking: Taking::Whole,
            client: None,
            tag,
        }
    }

    /// Returns true if the head of a 101 names requested protocols, and no others.
    ///
    /// Source: RFC 9110 section 7.8.
    fn has_asked_for(&self, head: &AnswerHead) -> bool {
        let offered = self.upgrade.as_deref().unwrap_or_default();
        let chosen = head.upgrade.as_deref().unwrap_or_default();
        let is_offered =
            |protocol: &[u8]| list_tokens(offered).any(|one| one.eq_ignore_ascii_case(protocol));
        list_tokens(chosen).next().is_some() && list_tokens(chosen).all(is_offered)
    }
}

/// Events of a request.
#[derive(Debug)]
pub enum UpstreamEvent {
    /// A request whose body follows has its connection: [`Upstream::write_body`] may begin.
    Started {
        /// The tag of the request.
        tag: u64,
        /// Names the exchange from now on.
        connection: Token,
    },
    /// The socket has taken all of the body that was written to it.
    BodyTaken {
        /// The tag of the request.
        tag: u64,
    },
    /// The application answered.
    Answer {
        /// The tag of the request.
        tag: u64,
        /// The answer, to be shared.
        answer: Arc<Answer>,
    },
    /// The next parts of an answer; the exchange ends with [`AnswerPart::End`].
    Parts {
        /// The tag of the request.
        tag: u64,
        /// Names the exchange while it lasts.
        connection: Token,
        /// The server that answers.
        server: SocketAddr,
        /// Never empty.
        parts: Vec<AnswerPart>,
    },
    /// The beginning of a response that was to be gathered and is too large: it goes on in parts
    /// after [`Upstream::take_over`].
    Large {
        /// The tag of the request.
        tag: u64,
        /// Names the exchange while it lasts.
        connection: Token,
        /// The server that answers.
        server: SocketAddr,
        /// Never empty.
        parts: Vec<AnswerPart>,
    },
    /// The application has switched to the protocol that it was asked for; the connection is
    /// yours.
    Switched {
        /// The tag of the request.
        tag: u64,
        /// The server that answers.
        server: SocketAddr,
        /// The head of the 101.
        head: AnswerHead,
        /// The socket, and what came behind the head.
        detached: Box<Detached>,
    },
    /// There is no answer, or no more of it.
    Failed {
        /// The tag of the request.
        tag: u64,
        /// The reason.
        error: UpstreamError,
        /// The server that it failed at, and whether that is to be logged.
        report: FaultReport,
        /// The evidence by which its server is judged.
        witness: Witness,
        /// The request, where another server may be asked instead.
        unanswered: Option<Box<Unanswered>>,
    },
}

impl UpstreamEvent {
    /// A failure of a server, after which no other is asked.
    pub(crate) fn failed_by(tag: u64, error: UpstreamError, witness: Witness) -> Self {
        Self::Failed {
            tag,
            error,
            report: FaultReport::default(),
            witness,
            unanswered: None,
        }
    }

    /// A failure of no server.
    pub fn failed(tag: u64, error: UpstreamError) -> Self {
        Self::failed_by(tag, error, Witness::default())
    }

    /// A failure of a request that was not sent.
    pub fn unsent(tag: u64, unsent: Unsent) -> Self {
        Self::Failed {
            tag,
            error: unsent.error,
            report: unsent.report,
            witness: Witness::default(),
            unanswered: None,
        }
    }

    /// The tag of the request.
    pub fn tag(&self) -> u64 {
        match self {
            Self::Started { tag, .. }
            | Self::BodyTaken { tag }
            | Self::Answer { tag, .. }
            | Self::Parts { tag, .. }
            | Self::Large { tag, .. }
            | Self::Switched { tag, .. }
            | Self::Failed { tag, .. } => *tag,
        }
    }
}

/// A request that no server has acted upon, or that may be sent twice.
#[derive(Clone, Debug)]
pub struct Unanswered(connection::Exchange);

#[cfg(test)]
mod tests;
