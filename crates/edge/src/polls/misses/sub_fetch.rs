//! Keys of feeds, and of polls of several keys, that the application is asked for.

use super::super::ask::{Ask, Form, Method};
use super::super::kept_request::KeptRequest;
use super::memory::{StaleValue, UpstreamResult};
use super::remembered::is_whole_value;
use crate::config::RouteId;
use crate::cursor::Condition;
use crate::ids::SubFetchAsker;
use crate::responder::Responder;
use bytes::Bytes;
use dwell_engine::{ClientNames, Request};
use std::net::SocketAddr;
use std::sync::Arc;

/// A request for whose keys the application may be asked.
#[derive(Clone, Debug)]
pub(crate) struct OriginRequest {
    pub(crate) kept: Arc<KeptRequest>,
    pub(crate) peer: Option<SocketAddr>,
    /// Its client, as far as its connection knows it.
    pub(crate) client: Option<ClientNames>,
    pub(crate) ask: Ask,
    /// Its route.
    pub(crate) route: RouteId,
}

/// One key that the application is asked for.
#[derive(Debug)]
pub(crate) struct SubFetch {
    /// The request that names it.
    pub(crate) request: OriginRequest,
    /// The target of the poll that it stands for; nothing where that of the request is.
    pub(crate) target: Option<Box<str>>,
    /// The feed of the key, or the poll.
    pub(crate) asker: SubFetchAsker,
    /// Its place among the keys of a poll.
    pub(crate) place: usize,
}

/// The word of the application on a key.
#[derive(Debug)]
pub(crate) enum FetchedValue {
    /// This value, with memcached's flags.
    Value(Bytes, u32),
    /// The key has no value.
    Nothing,
    /// It did not answer, or not so that it could be told.
    Unknown,
}

impl SubFetch {
    /// The feed or poll that asks for it, and its place among the keys of a poll.
    pub(crate) fn asker(&self) -> (SubFetchAsker, usize) {
        (self.asker, self.place)
    }
}

impl FetchedValue {
    /// The word on a key by the result of a fetch that was shared, or by the value in its place.
    pub(crate) fn of(
        sub_fetch: &SubFetch,
        result: &UpstreamResult,
        stale: Option<&StaleValue>,
    ) -> Self {
        let stale = stale.filter(|known| known.stands_for(&sub_fetch.request.ask));
        match (result, stale) {
            (_, Some(known)) => Self::Value(known.body.clone(), known.flags),
            (Ok(answer), _) => match answer.status {
                200 if is_whole_value(answer) => Self::Value(answer.body.clone(), 0),
                200 | 500.. => Self::Unknown,
                _ => Self::Nothing,
            },
            (Err(_), _) => Self::Unknown,
        }
    }
}

impl OriginRequest {
    /// The request at hand; a HEAD asks for what a GET would bring.
    pub(crate) fn of(
        request: &Request<'_>,
        ask: &Ask,
        route: RouteId,
        to: &Responder<'_, '_>,
    ) -> Self {
        let method = match ask.method {
            Method::Head => Method::Get,
            other => other,
        };
        let kept = KeptRequest::new(request.head_bytes, request.body, &[]);
        Self {
            kept: Arc::new(kept.came_by(request.head.version)),
            peer: to.peer_address(),
            client: to.client_names().cloned(),
            ask: one_value(Ask { method, ..*ask }),
            route,
        }
    }

    /// A request for a key that is named when the first request has long gone: nothing of the
    /// client but its address.
    pub(crate) fn nameless(path: &str, route: RouteId, peer: Option<SocketAddr>) -> Self {
        let head = format!("GET {path} HTTP/1.0\r\n\r\n");
        let ask = Ask {
            method: Method::Get,
            condition: Condition::None,
            wait_ms: 0,
            form: Form::default(),
            shareable: true,
            is_stream: true,
        };
        Self {
            kept: Arc::new(KeptRequest::new(head.as_bytes(), &[], &[])),
            peer,
            client: None,
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
