//! Requests of polls, each read once from its head, by its route and the identity of its client.

use crate::access::{CorsGrant, Identity, KeyInputs, client_scheme};
use crate::config::{Config, Methods, RouteConfig, RouteId};
use crate::cursor::{Condition, Cursor};
use crate::query::parameters;
use crate::responder::Responder;
use dwell_engine::Request;
use dwell_proto::http1::{BodyFraming, RequestHead, list_tokens};
use dwell_proto::sse;
use std::fmt;
use std::time::{Duration, Instant};

/// The question a poll puts to the value of its key.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Ask {
    pub(crate) method: Method,
    pub(crate) condition: Condition,
    /// Longest time that it is held; with zero it is not. For a stream, its longest duration. A
    /// number, because each held poll has one.
    pub(crate) wait_ms: u32,
    pub(crate) form: Form,
    /// The application's answer may be given to other clients that ask for the same key.
    pub(crate) shareable: bool,
    /// It wants the values as a stream of events.
    pub(crate) is_stream: bool,
}

/// The form of a request, in one byte of each held poll.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Form(u8);

impl Form {
    const PREFERS: u8 = 1;
    const SECURE: u8 = 2;
    const HELD: u8 = 4;

    /// The wait was asked with `Prefer`, so the answer says that it was applied.
    pub(crate) fn prefers(self) -> bool {
        self.0 & Self::PREFERS != 0
    }

    /// It came under TLS.
    pub(crate) fn is_secure(self) -> bool {
        self.0 & Self::SECURE != 0
    }

    /// Notes whether it came under TLS.
    pub(crate) fn set_secure(&mut self, is_secure: bool) {
        self.set(Self::SECURE, is_secure);
    }

    /// Its poll was held for a change.
    pub(crate) fn was_held(self) -> bool {
        self.0 & Self::HELD != 0
    }

    /// Notes that its poll is held for a change.
    pub(super) fn set_held(&mut self) {
        self.set(Self::HELD, true);
    }

    fn set_prefers(&mut self, prefers: bool) {
        self.set(Self::PREFERS, prefers);
    }

    fn set(&mut self, mark: u8, is_set: bool) {
        self.0 = (self.0 & !mark) | if is_set { mark } else { 0 };
    }
}

/// Keys that one poll or stream may name.
pub(super) const KEYS_MAX: usize = 64;

/// A request that its route has admitted, with its client.
#[derive(Clone, Copy)]
pub(super) struct Admitted<'a> {
    pub(super) route: RouteId,
    pub(super) request: &'a Request<'a>,
    /// The scheme that its client uses.
    pub(super) scheme: &'static str,
    /// Its client; `None` where the route needs to know nothing of it.
    pub(super) identity: Option<&'a Identity>,
}

/// A request that asks for one key, or writes it.
#[derive(Clone, Copy)]
pub(super) struct Arrival<'a> {
    pub(super) ask: Ask,
    pub(super) route: RouteId,
    /// Its key; empty while it is not known whether its client may read it.
    pub(super) name: &'a [u8],
    pub(super) request: &'a Request<'a>,
    pub(super) origin: Option<CorsGrant>,
}

/// The scheme that the client of a request uses.
pub(super) fn scheme(
    config: &Config,
    request: &Request<'_>,
    to: &Responder<'_, '_>,
) -> &'static str {
    let trusted = &config.server.trusted_proxies;
    let (is_secure, fields) = (request.is_secure, request.head.fields);
    client_scheme(is_secure, || to.peer_address(), fields, trusted)
}

impl<'a> Admitted<'a> {
    /// The request as one for the key `name`.
    pub(super) fn arrival(self, ask: Ask, name: &'a [u8]) -> Arrival<'a> {
        Arrival {
            ask,
            route: self.route,
            name,
            request: self.request,
            origin: self.origin(),
        }
    }

    /// The CORS grant of its page.
    pub(super) fn origin(self) -> Option<CorsGrant> {
        self.identity?.origin
    }

    /// The time until the identity of the client expires; `None` if it does not.
    ///
    /// Units: `now` is seconds of Unix time.
    pub(super) fn time_left(self, now: u64) -> Option<Duration> {
        self.identity.and_then(|identity| identity.time_left(now))
    }

    /// The inputs of its keys.
    pub(super) fn key_inputs(self) -> KeyInputs<'a> {
        KeyInputs {
            fields: self.request.head.fields,
            scheme: self.scheme,
            identity: self.identity,
        }
    }
}

/// The methods that poll.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Method {
    Get,
    Head,
    Post,
    /// RFC 10008.
    Query,
}

impl Method {
    /// The method of a request, if it is one of the route's.
    fn of(name: &str, methods: Methods) -> Result<Self, AskError> {
        match name {
            "GET" if methods.get => Ok(Self::Get),
            "HEAD" if methods.head => Ok(Self::Head),
            "POST" if methods.post => Ok(Self::Post),
            "QUERY" if methods.query => Ok(Self::Query),
            _ => Err(AskError::Method(methods)),
        }
    }
}

/// The reason for which a head is no poll.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AskError {
    /// The route answers only these methods.
    Method(Methods),
    Wait(String),
}

impl fmt::Display for AskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Method(_) => f.write_str("method not allowed"),
            Self::Wait(text) => write!(f, "wait is not a number of seconds: {text}"),
        }
    }
}

impl Ask {
    /// Reads the question of one request.
    ///
    /// Shape: `If-None-Match` does not count for POST, which would have to fail where it matches
    /// (RFC 9110 section 13.1.2). In a list of tags the first that is a cursor counts; a value that
    /// another of them names is sent once more than needed. A wait longer than the route's is cut
    /// to it, and to `left`, for which the client is identified. For a stream of events the id of
    /// the last one counts, by its field or `?last_event_id=`, and then `?since=`.
    ///
    /// # Errors
    /// [`AskError`] for a method that the route does not allow, and for a `?wait=` that is no
    /// duration; a `Prefer` that makes no sense is ignored (RFC 7240 section 2).
    pub(crate) fn of(
        head: &RequestHead<'_, '_>,
        route: &RouteConfig,
        left: Option<Duration>,
    ) -> Result<Self, AskError> {
        let method = Method::of(head.method, route.methods)?;
        let mut wait = route.wait_default;
        let mut ask = Self {
            method,
            condition: Condition::None,
            wait_ms: 0,
            form: Form::default(),
            shareable: is_shareable(head, route, method),
            is_stream: method == Method::Get && wants_events(head),
        };
        if ask.is_stream {
            // A browser repeats the URL it began with, so what it says of itself is newer.
            let id = sse::last_event_id(head.fields).filter(|id| !id.is_empty());
            ask.condition = id.map_or(Condition::None, since);
        }
        if method != Method::Post
            && !ask.is_stream
            && let Some(tags) = head.fields.find("if-none-match")
        {
            ask.condition = if_none_match(tags);
        }
        if let Some(seconds) = head.fields.all("prefer").find_map(preferred_wait) {
            wait = Duration::from_secs(seconds);
            ask.form.set_prefers(true);
        }
        if let Some(query) = head.query {
            wait = ask.read_query(query)?.unwrap_or(wait);
        }
        ask.wait_ms = u32::try_from(wait.min(route.wait_max).as_millis()).unwrap_or(u32::MAX);
        ask.cut(left);
        Ok(ask)
    }

    /// Takes in what the query says; returns the wait, if it asks for one.
    fn read_query(&mut self, query: &str) -> Result<Option<Duration>, AskError> {
        let mut wait = None;
        let mut last_event_id = None;
        let has_id = self.condition != Condition::None;
        for (name, value) in parameters(query) {
            match &*name {
                // Of several the first counts, as everywhere here.
                "wait" if wait.is_none() => {
                    let asked = parse_wait(&value);
                    wait = Some(asked.ok_or_else(|| AskError::Wait(value.into_owned()))?);
                    self.form.set_prefers(false);
                }
                "since" if self.condition == Condition::None && !value.is_empty() => {
                    self.condition = since(&value);
                }
                "last_event_id" if self.is_stream && !value.is_empty() => {
                    last_event_id.get_or_insert_with(|| since(&value));
                }
                _ => {}
            }
        }
        if let (Some(id), false) = (last_event_id, has_id) {
            self.condition = id;
        }
        Ok(wait)
    }

    /// Cuts a wait, or the life of a stream, to the time for which the client is identified.
    fn cut(&mut self, left: Option<Duration>) {
        if self.is_stream {
            self.wait_ms = u32::MAX;
        }
        let Some(left) = left else { return };
        let left = u32::try_from(left.as_millis()).unwrap_or(u32::MAX - 1);
        // A wait may last a sixteenth longer than asked for.
        let wait = if self.is_stream { left } else { left / 17 * 16 };
        self.wait_ms = self.wait_ms.min(wait);
    }

    /// Returns true if misses on one key share one request. A HEAD has no body to share with
    /// others.
    pub(super) fn is_shared(&self, route: &RouteConfig) -> bool {
        match self.method {
            _ if !self.shareable => false,
            Method::Get | Method::Query => true,
            Method::Head => false,
            Method::Post => route.coalesce_post,
        }
    }

    /// Returns true if it may be held.
    pub(crate) fn waits(&self) -> bool {
        self.wait_ms > 0
    }

    /// Longest time that it is held.
    pub(crate) fn wait(&self) -> Duration {
        Duration::from_millis(u64::from(self.wait_ms))
    }

    /// The rest of that time at `now`, if the request has `arrived` before: access to it may have
    /// been asked for meanwhile, or the store for its value.
    pub(super) fn rest_of_wait(&self, arrived: Instant, now: Instant) -> Duration {
        self.wait()
            .saturating_sub(now.saturating_duration_since(arrived))
    }
}

/// The question of a request that is not read as a poll yet, as its client may have no access, or
/// that publishes: what its framing needs to know.
pub(super) fn plain_ask(head: &RequestHead<'_, '_>) -> Ask {
    let method = match head.method {
        "HEAD" => Method::Head,
        "GET" => Method::Get,
        _ => Method::Post,
    };
    Ask {
        method,
        condition: Condition::None,
        wait_ms: 0,
        form: Form::default(),
        shareable: false,
        is_stream: false,
    }
}

/// Tells whether the answer of the application to a request may go to other clients.
///
/// Source: RFC 9111 section 3.5, for `Authorization`.
fn is_shareable(head: &RequestHead<'_, '_>, route: &RouteConfig, method: Method) -> bool {
    // The content of a QUERY is its question, and the answer may differ for another one.
    let is_of_key = method != Method::Query || route.coalesce_post || !has_body(head);
    head.fields.find("authorization").is_none() && is_of_key && is_for_all(route, head)
}

/// Returns true if clients whose requests of this route have the same key are the same to the
/// application, as far as their requests tell.
///
/// Shape: not with a cookie, a field that the route names, or a token, as each identifies the
/// client; but a key that is made of the identity is one client's.
fn is_for_all(route: &RouteConfig, head: &RequestHead<'_, '_>) -> bool {
    if route.key.is_of_identity() {
        return true;
    }
    let is_told = |name: &String| head.fields.find(name).is_some() && !route.key.takes_header(name);
    let has_cookie = !route.share_cookies && head.fields.find("cookie").is_some();
    !has_cookie && !route.access.jwt && !route.identity_headers.iter().any(is_told)
}

pub(super) fn has_body(head: &RequestHead<'_, '_>) -> bool {
    !matches!(head.framing, BodyFraming::None | BodyFraming::Length(0))
}

/// The condition of a client that names one cursor.
fn since(text: &str) -> Condition {
    Cursor::parse(text.as_bytes()).map_or(Condition::Foreign, Condition::Since)
}

fn if_none_match(tags: &[u8]) -> Condition {
    if tags.trim_ascii() == b"*" {
        return Condition::Any;
    }
    list_tokens(tags)
        .find_map(Cursor::parse)
        .map_or(Condition::Foreign, Condition::IfNoneMatch)
}

/// `wait` of a `Prefer` field (RFC 7240 section 4.3), in seconds.
fn preferred_wait(value: &[u8]) -> Option<u64> {
    list_tokens(value).find_map(|preference| {
        let name_and_value = preference.split(|byte| *byte == b';').next()?;
        let mut parts = name_and_value.splitn(2, |byte| *byte == b'=');
        if !parts.next()?.trim_ascii().eq_ignore_ascii_case(b"wait") {
            return None;
        }
        let seconds = std::str::from_utf8(parts.next()?).ok()?;
        seconds.trim().trim_matches('"').parse().ok()
    })
}

/// `25`, `25s` or `500ms`.
fn parse_wait(text: &str) -> Option<Duration> {
    let digits = |text: &str| {
        let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        plain.then(|| text.parse::<u64>().ok()).flatten()
    };
    if let Some(milliseconds) = text.strip_suffix("ms") {
        return digits(milliseconds).map(Duration::from_millis);
    }
    digits(text.strip_suffix('s').unwrap_or(text)).map(Duration::from_secs)
}

/// Returns true if the client prefers an event stream.
///
/// Shape: it has to list `text/event-stream` itself, with a weight above zero and not below that of
/// any other type in its list. A range such as `*/*` does not select a stream.
///
/// Source: RFC 9110 section 12.5.1.
pub(super) fn wants_events(head: &RequestHead<'_, '_>) -> bool {
    let (mut events, mut others) = (0, 0);
    for range in head.fields.all("accept").flat_map(list_tokens) {
        let mut parts = range.split(|byte| *byte == b';').map(<[u8]>::trim_ascii);
        let is_events = parts
            .next()
            .is_some_and(|media| media.eq_ignore_ascii_case(sse::CONTENT_TYPE.as_bytes()));
        let weight = parts.find_map(weight).unwrap_or(WEIGHT_MAX);
        let most = if is_events { &mut events } else { &mut others };
        *most = weight.max(*most);
    }
    events > 0 && events >= others
}

/// The weight of a range that says nothing of it.
const WEIGHT_MAX: u16 = 1000;

/// The weight that a parameter gives, in thousandths; one that makes no sense gives none.
fn weight(parameter: &[u8]) -> Option<u16> {
    let (b"q" | b"Q", value) = parameter.split_at_checked(1)? else {
        return None;
    };
    let value = value.trim_ascii_start().strip_prefix(b"=")?.trim_ascii();
    let (whole, fraction) = match value {
        [b'0'] => (0, &[][..]),
        [b'1'] => (WEIGHT_MAX, &[][..]),
        [b'0', b'.', fraction @ ..] => (0, fraction),
        [b'1', b'.', fraction @ ..] => (WEIGHT_MAX, fraction),
        _ => return None,
    };
    if fraction.len() > 3 || !fraction.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let places = fraction.iter().zip([100, 10, 1]);
    let thousandths: u16 = places
        .map(|(digit, place)| u16::from(digit - b'0') * place)
        .sum();
    Some((whole + thousandths).min(WEIGHT_MAX))
}

#[cfg(test)]
mod tests;
