//! The opening handshake, as an [`App`](crate::App) answers it.

use super::app::{Delivery, Negotiated};
use crate::reply::append_fields;
use crate::{Body, Reply, Response};
use dwell_proto::http1::{RequestHead, Version, encode};
use dwell_proto::websocket::{Acceptance, DeflateOptions, HandshakeError, Role, UpgradeRequest};
use std::fmt;

/// Offers of a client that a server accepts in a handshake.
#[derive(Clone, Copy, Debug)]
pub struct UpgradeOptions<'a> {
    /// The subprotocols that are spoken, the preferred one first; none by default. The first that
    /// the client offers too is chosen, and none where it offers no such.
    pub subprotocols: &'a [&'a str],
    /// The accepted parameters of permessage-deflate; `None` refuses it. Default: accepted without
    /// context takeover on either side.
    pub deflate: Option<DeflateOptions>,
    /// Pages that may connect; by default those of the same host.
    pub origin: OriginPolicy<'a>,
    /// The form in which messages reach the app; whole messages by default.
    pub delivery: Delivery,
}

impl Default for UpgradeOptions<'_> {
    fn default() -> Self {
        Self {
            subprotocols: &[],
            deflate: Some(DeflateOptions::default()),
            origin: OriginPolicy::SameHost,
            delivery: Delivery::Messages,
        }
    }
}

/// Pages that may connect.
///
/// Shape: browsers let any page connect anywhere, with the user's cookies. A client that is no
/// browser names no origin, or any it likes.
///
/// Source: RFC 6455 section 10.2.
///
/// ```
/// use dwell_engine::websocket::{OriginPolicy, Rejection, UpgradeOptions, is_upgrade, upgrade};
/// use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};
///
/// let request = b"GET /chat HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
///     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
///     Sec-WebSocket-Protocol: chat.v1, chat.v2\r\nOrigin: https://elsewhere.example\r\n\r\n";
/// let mut storage = FieldStorage::new();
/// let head = parse_request(request, &mut storage, &HeadLimits::default())?;
/// assert!(is_upgrade(&head));
/// // A page of another host may not connect, unless it is said so.
/// let rejection = upgrade(&head, &UpgradeOptions::default()).unwrap_err();
/// assert_eq!((rejection, rejection.status()), (Rejection::Origin, 403));
/// assert!(rejection.fields().is_empty());
///
/// let known =
///     |origin: Option<&[u8]>| origin.is_none_or(|origin| origin.ends_with(b".example"));
/// let options = UpgradeOptions {
///     origin: OriginPolicy::Check(&known),
///     subprotocols: &["chat.v2"],
///     ..UpgradeOptions::default()
/// };
/// let upgrade = upgrade(&head, &options)?;
/// assert_eq!((upgrade.status(), upgrade.subprotocol()), (101, Some("chat.v2")));
/// let mut accept = Vec::new();
/// upgrade.for_each_field(|name, value| {
///     if name.eq_ignore_ascii_case("sec-websocket-accept") {
///         accept.extend_from_slice(value);
///     }
/// });
/// assert_eq!(accept, b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Default)]
pub enum OriginPolicy<'a> {
    /// Pages whose origin has the host and port that the request is for, and clients that send no
    /// `Origin`.
    #[default]
    SameHost,
    /// All.
    Any,
    /// Requests for whose `Origin`, if there is one, this function returns true.
    Check(&'a dyn Fn(Option<&[u8]>) -> bool),
}

impl fmt::Debug for OriginPolicy<'_> {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(match self {
            Self::SameHost => "SameHost",
            Self::Any => "Any",
            Self::Check(_) => "Check",
        })
    }
}

impl OriginPolicy<'_> {
    fn admits(&self, origin: Option<&[u8]>, host: Option<&[u8]>) -> bool {
        match self {
            Self::Any => true,
            Self::Check(check) => check(origin),
            Self::SameHost => origin.is_none_or(|origin| {
                let separator = b"://";
                let start = origin
                    .windows(separator.len())
                    .position(|at| at == separator);
                let authority = start.map(|start| &origin[start + separator.len()..]);
                let same = authority.zip(host);
                same.is_some_and(|(authority, host)| authority.eq_ignore_ascii_case(host))
            }),
        }
    }
}

/// A handshake that was accepted: send it, and let the connection go.
#[derive(Clone, Copy, Debug)]
pub struct Upgrade<'a> {
    acceptance: Acceptance<'a>,
    delivery: Delivery,
}

/// A handshake that was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub enum Rejection {
    /// It breaks a rule: 400, or 426 for another version of the protocol.
    Handshake(HandshakeError),
    /// The page it comes from may not connect: 403.
    Origin,
}

/// Returns true if a request is for WebSocket; otherwise it is an ordinary one.
///
/// Shape: in HTTP/1.0 none does, whatever its fields say. A request on a stream of HTTP/2 (RFC
/// 8441) has the form that it would have in HTTP/1.1, and its 101 becomes a 200 there.
///
/// Source: RFC 9110 section 7.8.
pub fn is_upgrade(head: &RequestHead<'_, '_>) -> bool {
    head.version != Version::Http10 && head.fields.has_token("upgrade", "websocket")
}

/// Judges the handshake in the head of a request.
///
/// ```
/// use dwell_engine::websocket::{Negotiated, UpgradeOptions, upgrade};
/// use dwell_engine::{Outcome, Reply, Request};
///
/// /// What an app's `request` does for its WebSocket route; `detached` then gives the connection
/// /// and `Negotiated::from_bits(tag as u32)` to `WebSockets::adopt`.
/// fn chat(request: &Request<'_>, reply: &mut Reply<'_>) -> Outcome {
///     match upgrade(request.head, &UpgradeOptions::default()) {
///         Ok(upgrade) => {
///             upgrade.send(reply, &[]);
///             let tag = upgrade.negotiated().to_bits().into();
///             Outcome::Detach { tag }
///         }
///         Err(rejection) => {
///             rejection.send(reply);
///             Outcome::Answered
///         }
///     }
/// }
/// #
/// # let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
/// #     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// # let answer = dwell_testkit::serve_request(request, chat);
/// # assert!(answer.contains("s3pPLMBiTxaQ9kYGzzhZRbK+xOo="), "{answer}");
/// ```
///
/// # Errors
/// [`Rejection`]; send it.
///
/// Source: RFC 6455 section 4.2.
pub fn upgrade<'a>(
    head: &RequestHead<'_, '_>,
    options: &UpgradeOptions<'a>,
) -> Result<Upgrade<'a>, Rejection> {
    let request = UpgradeRequest::check(head).map_err(Rejection::Handshake)?;
    if !options.origin.admits(request.origin(), head.host) {
        return Err(Rejection::Origin);
    }
    let mut spoken = options.subprotocols.iter().copied();
    let mut acceptance = request.accept();
    acceptance.subprotocol =
        spoken.find(|spoken| request.subprotocols().any(|offered| offered == *spoken));
    acceptance.deflate = options
        .deflate
        .and_then(|deflate| request.negotiate_deflate(&deflate));
    Ok(Upgrade {
        acceptance,
        delivery: options.delivery,
    })
}

impl<'a> Upgrade<'a> {
    /// The subprotocol that was chosen.
    pub fn subprotocol(&self) -> Option<&'a str> {
        self.acceptance.subprotocol
    }

    /// Returns the parameters with which the connection is to be adopted.
    pub fn negotiated(&self) -> Negotiated {
        Negotiated {
            role: Role::Server,
            deflate: self.acceptance.deflate,
            delivery: self.delivery,
        }
    }

    /// The status of the answer: 101.
    pub fn status(&self) -> u16 {
        101
    }

    /// Calls `field` with the name and value of each field of the answer.
    pub fn for_each_field(&self, field: impl FnMut(&'static str, &[u8])) {
        self.acceptance.for_each_field(field);
    }

    /// The whole head of the answer, with further fields of the app's own; of those that the
    /// handshake or the engine decides, none is taken.
    ///
    /// ```
    /// use dwell_engine::websocket::Upgrade;
    /// use dwell_evloop::Stream;
    ///
    /// /// For a connection that has left HTTP before it was answered.
    /// fn answer(stream: &mut Stream, upgrade: &Upgrade<'_>) -> std::io::Result<()> {
    ///     stream.write(&upgrade.head([("Server", &b"mine"[..])]))
    /// }
    /// #
    /// # use dwell_engine::websocket::{UpgradeOptions, upgrade};
    /// # use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};
    /// # let request = "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
    /// #     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    /// # let (mut storage, limits) = (FieldStorage::new(), HeadLimits::default());
    /// # let head = parse_request(request.as_bytes(), &mut storage, &limits)?;
    /// # let upgrade = upgrade(&head, &UpgradeOptions::default())?;
    /// # let (ours, theirs) = std::os::unix::net::UnixStream::pair()?;
    /// # answer(&mut Stream::from_descriptor(ours.into())?, &upgrade)?;
    /// # let answer = std::io::read_to_string(theirs)?;
    /// # assert!(answer.ends_with("\r\nServer: mine\r\n\r\n"), "{answer}");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn head<'f>(&self, fields: impl IntoIterator<Item = (&'f str, &'f [u8])>) -> Vec<u8> {
        let mut head = Vec::new();
        encode::status_line(&mut head, Version::Http11, self.status());
        self.for_each_field(|name, value| encode::field(&mut head, name, value));
        let fields = fields.into_iter().filter(|(name, _)| self.is_free(name));
        append_fields(&mut head, self.status(), fields);
        encode::end_of_head(&mut head);
        head
    }

    /// True of a field that is the app's to add.
    fn is_free(&self, name: &str) -> bool {
        let mut is_taken = ["Sec-WebSocket-Extensions", "Connection", "Upgrade"]
            .iter()
            .any(|taken| name.eq_ignore_ascii_case(taken));
        self.for_each_field(|taken, _| is_taken |= name.eq_ignore_ascii_case(taken));
        !is_taken
    }

    /// Sends the answer, with further fields of the app's own, as in [`head`](Self::head). The
    /// outcome of the request is then [`Outcome::Detach`](crate::Outcome::Detach).
    pub fn send(&self, reply: &mut Reply<'_>, fields: &[(&str, &[u8])]) {
        let mut owned = Vec::new();
        self.for_each_field(|name, value| owned.push((name, value.to_vec())));
        let own = owned.iter().map(|(name, value)| (*name, value.as_slice()));
        let free = fields.iter().copied();
        let all: Vec<_> = own
            .chain(free.filter(|(name, _)| self.is_free(name)))
            .collect();
        reply.send(&Response {
            status: self.status(),
            fields: &all,
            body: Body::Empty,
        });
    }
}

impl Rejection {
    /// The status of the answer: 400, 403 or 426.
    pub fn status(self) -> u16 {
        match self {
            Self::Handshake(error) => error.status(),
            Self::Origin => 403,
        }
    }

    /// The fields of the answer.
    pub fn fields(self) -> &'static [(&'static str, &'static [u8])] {
        match self {
            Self::Handshake(error) => error.fields(),
            Self::Origin => &[],
        }
    }

    /// Sends the answer.
    pub fn send(self, reply: &mut Reply<'_>) {
        let body = format!("{self}\n");
        let content_type = [("Content-Type", &b"text/plain; charset=utf-8"[..])];
        let fields = self.fields().iter().chain(&content_type);
        let fields: Vec<_> = fields.copied().collect();
        reply.send(&Response {
            status: self.status(),
            fields: &fields,
            body: Body::Slice(body.as_bytes()),
        });
    }
}

impl fmt::Display for Rejection {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Handshake(error) => error.fmt(out),
            Self::Origin => out.write_str("origin may not connect"),
        }
    }
}

impl std::error::Error for Rejection {}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};

    #[test]
    fn http_1_0_knows_no_upgrade() {
        for (version, expected) in [("1.1", true), ("1.0", false)] {
            let head = format!("GET / HTTP/{version}\r\nHost: a\r\nUpgrade: WebSocket\r\n\r\n");
            let (mut storage, limits) = (FieldStorage::new(), HeadLimits::default());
            let head = parse_request(head.as_bytes(), &mut storage, &limits).unwrap();
            assert_eq!(is_upgrade(&head), expected, "{version}");
        }
    }

    #[test]
    fn the_origin_of_another_host_is_refused() {
        let host = Some(&b"example.org:8000"[..]);
        let policy = OriginPolicy::SameHost;
        assert!(policy.admits(None, host));
        assert!(policy.admits(Some(b"http://Example.org:8000"), host));
        assert!(policy.admits(Some(b"https://example.org:8000"), host));
        for origin in [
            "http://example.org",
            "http://evil.example",
            "http://example.org:8000.evil.example",
            "null",
            "",
        ] {
            assert!(!policy.admits(Some(origin.as_bytes()), host), "{origin}");
        }
        assert!(OriginPolicy::Any.admits(Some(b"null"), host));
        let check = |origin: Option<&[u8]>| origin == Some(b"app://mine");
        assert!(OriginPolicy::Check(&check).admits(Some(b"app://mine"), host));
        assert!(!OriginPolicy::Check(&check).admits(None, host));
    }
}
