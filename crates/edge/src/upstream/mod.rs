//! The HTTP/1.1 client to the application behind the edge: one per loop, a component of its driver.
//!
//! Connections are kept and used again, the one that came free last first. A request that finds
//! all of them busy waits in a bounded queue. Every request that [`Upstream::send`] takes ends in
//! exactly one [`UpstreamEvent`], unless it is cancelled, and every stage of it has a deadline.
//!
//! An answer is gathered whole before it is handed on, so that everybody who waits for it shares
//! one copy, and so that half an answer is never taken for one.

mod answer;
mod client;
mod connection;
mod encode;
mod error;
mod exchanging;
mod group;
mod health;

pub use answer::Answer;
pub use client::Upstream;
pub use encode::{ForwardedFor, Sharing, Wants, encode_request};
pub use error::UpstreamError;
pub use group::{GroupOptions, UPSTREAMS_MAX, UpstreamGroup};
pub use health::HealthCheck;

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use dwell_proto::http1::HeadLimits;

/// Where the application is, and what it is allowed.
///
/// Shape: all bounds are those of one loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamOptions {
    /// Where to connect to.
    pub address: SocketAddr,
    /// One attempt to connect. Default: 2 s.
    pub connect_timeout: Duration,
    /// From the request sent to the answer's head. Default: 30 s.
    pub header_timeout: Duration,
    /// From [`Upstream::send`] to the end of the answer, however many attempts. Default: 60 s.
    pub total_timeout: Duration,
    /// How long a connection is kept unused. Default: 30 s.
    pub idle_timeout: Duration,
    /// Open connections. Default: 256.
    pub connections_max: usize,
    /// Connections kept unused. Default: 64.
    pub idle_max: usize,
    /// Requests that wait for a connection. Default: 1024.
    pub queue_max: usize,
    /// How long one may wait for a connection. Default: 10 s.
    pub queue_timeout: Duration,
    /// Body of one answer, decoded. Units: bytes. Default: 8 MiB.
    pub answer_bytes_max: u64,
    /// Head of one answer. Default: 64 KiB and 100 fields.
    pub answer_head: HeadLimits,
}

impl UpstreamOptions {
    /// The defaults, for the application at `address`.
    pub fn new(address: SocketAddr) -> Self {
        Self {
            address,
            connect_timeout: Duration::from_secs(2),
            header_timeout: Duration::from_secs(30),
            total_timeout: Duration::from_secs(60),
            idle_timeout: Duration::from_secs(30),
            connections_max: 256,
            idle_max: 64,
            queue_max: 1024,
            queue_timeout: Duration::from_secs(10),
            answer_bytes_max: 8 << 20,
            answer_head: HeadLimits {
                head_bytes_max: 64 << 10,
                ..HeadLimits::default()
            },
        }
    }
}

/// A request as [`encode_request`] made it.
#[derive(Clone, Debug)]
pub struct UpstreamRequest {
    /// Head and body.
    pub bytes: Bytes,
    /// Whether the method is `HEAD`, whose answer has no body.
    pub is_head: bool,
    /// Whether it may be sent twice (RFC 9110 section 9.2.2).
    pub is_idempotent: bool,
    /// Comes back with the answer.
    pub tag: u64,
}

/// What became of a request.
#[derive(Clone, Debug)]
pub enum UpstreamEvent {
    /// The application answered.
    Answer {
        /// That of the request.
        tag: u64,
        /// The answer, to be shared.
        answer: Arc<Answer>,
    },
    /// It did not.
    Failed {
        /// That of the request.
        tag: u64,
        /// Why.
        error: UpstreamError,
        /// The request, where another server may be asked instead.
        unanswered: Option<Box<Unanswered>>,
    },
}

impl UpstreamEvent {
    /// A failure after which no other server is asked.
    pub(crate) fn failed(tag: u64, error: UpstreamError) -> Self {
        Self::Failed {
            tag,
            error,
            unanswered: None,
        }
    }
}

/// A request that no server has acted upon, or that may be sent twice.
#[derive(Clone, Debug)]
pub struct Unanswered(connection::Exchange);

#[cfg(test)]
mod tests;
