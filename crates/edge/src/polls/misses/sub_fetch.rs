//! Keys of feeds, and of polls of several keys, that the application is asked for.

use super::super::ask::{Ask, Condition, Method};
use super::super::tables::KeptRequest;
use crate::config::RouteId;
use bytes::Bytes;
use dwell_engine::Request;
use dwell_evloop::Token;
use std::net::SocketAddr;
use std::sync::Arc;

/// A request for whose keys the application may be asked.
#[derive(Clone, Debug)]
pub(crate) struct OriginRequest {
    pub(crate) request: Arc<KeptRequest>,
    pub(crate) peer: Option<SocketAddr>,
    pub(crate) ask: Ask,
    /// Its route.
    pub(crate) route: RouteId,
}

/// One key that the application is asked for.
#[derive(Debug)]
pub(crate) struct SubFetch {
    pub(crate) behalf: OriginRequest,
    /// The target of the poll that it stands for; nothing where that of the request is.
    pub(crate) target: Option<Box<str>>,
    /// The feed of the key, or the poll.
    pub(crate) asker: Token,
    /// Which of the keys of a poll it is.
    pub(crate) place: usize,
}

/// What the application has said of a key.
#[derive(Debug)]
pub(crate) enum FetchedValue {
    /// This value, with memcached's flags.
    Value(Bytes, u32),
    /// That there is none.
    Nothing,
    /// It did not answer, or not so that it could be told.
    Unknown,
}

impl OriginRequest {
    /// Of a request that has come; a HEAD asks for what a GET would bring.
    pub(crate) fn of(
        request: &Request<'_>,
        ask: &Ask,
        route: RouteId,
        peer: Option<SocketAddr>,
    ) -> Self {
        let method = match ask.method {
            Method::Head => Method::Get,
            other => other,
        };
        Self {
            request: Arc::new(KeptRequest::new(request.head_bytes, request.body, &[])),
            peer,
            ask: one_value(Ask { method, ..*ask }),
            route,
        }
    }

    /// For a key that is named when the request has long gone: nothing of the client but its
    /// address.
    pub(crate) fn nameless(path: &str, route: RouteId, peer: Option<SocketAddr>) -> Self {
        let head = format!("GET {path} HTTP/1.0\r\n\r\n");
        let ask = Ask {
            method: Method::Get,
            condition: Condition::None,
            wait_ms: 0,
            preferred: false,
            anybodys: true,
            is_stream: true,
        };
        Self {
            request: Arc::new(KeptRequest::new(head.as_bytes(), &[], &[])),
            peer,
            ask,
            route,
        }
    }
}

/// The question for a single value.
fn one_value(ask: Ask) -> Ask {
    Ask {
        is_stream: true,
        ..ask
    }
}
