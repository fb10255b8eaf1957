//! The opening handshake, both sides.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use sha1::{Digest as _, Sha1};

use super::extension::{DeflateOptions, DeflateParameters, extensions};
use crate::http1::{BodyFraming, Fields, RequestHead, ResponseHead, Version};
use crate::http1::{encode, is_token, list_tokens};

/// A client's opening handshake that obeys every rule.
///
/// Shape: borrows the request's head. To answer it, send status 101 with the fields that
/// [`Acceptance::encode_fields`] writes; to refuse it, any other status will do.
///
/// ```
/// use dwell_proto::http1::{self, FieldStorage, HeadLimits};
/// use dwell_proto::websocket::{DeflateOptions, UpgradeRequest};
///
/// let input = b"GET /chat HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\n\
///     Connection: Upgrade\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\
///     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Protocol: chat, superchat\r\n\
///     Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n\r\n";
/// let mut storage = FieldStorage::new();
/// let head = http1::parse_request(input, &mut storage, &HeadLimits::default()).unwrap();
///
/// let request = UpgradeRequest::check(&head)?;
/// let mut acceptance = request.accept();
/// acceptance.subprotocol = request.subprotocols().find(|name| *name == "superchat");
/// acceptance.deflate = request.negotiate_deflate(&DeflateOptions::default());
/// let mut out = Vec::new();
/// acceptance.encode_fields(&mut out);
/// assert_eq!(
///     std::str::from_utf8(&out).unwrap(),
///     "Upgrade: websocket\r\nConnection: Upgrade\r\n\
///      Sec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
///      Sec-WebSocket-Protocol: superchat\r\n\
///      Sec-WebSocket-Extensions: permessage-deflate; \
///      server_no_context_takeover; client_no_context_takeover\r\n",
/// );
/// # Ok::<(), dwell_proto::websocket::HandshakeError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct UpgradeRequest<'f, 'b> {
    fields: Fields<'f, 'b>,
    key: &'b [u8],
}

/// The server's answer to a handshake that it accepts.
#[derive(Clone, Copy, Debug)]
pub struct Acceptance<'a> {
    accept: [u8; 28],
    /// The subprotocol that was chosen: one of those the client offered, or none.
    pub subprotocol: Option<&'a str>,
    /// The parameters accepted of the client's offers of permessage-deflate.
    pub deflate: Option<DeflateParameters>,
}

impl<'f, 'b> UpgradeRequest<'f, 'b> {
    /// Checks that a request is a handshake.
    ///
    /// Shape: where it comes from is not judged; see [`origin`](Self::origin).
    ///
    /// # Errors
    /// [`HandshakeError`], whose [`status`](HandshakeError::status) answers the request.
    ///
    /// Source: RFC 6455 section 4.2.1.
    pub fn check(head: &RequestHead<'f, 'b>) -> Result<Self, HandshakeError> {
        if head.method != "GET" || head.version == Version::Http10 {
            return Err(HandshakeError::Method);
        }
        if !matches!(head.framing, BodyFraming::None | BodyFraming::Length(0)) {
            return Err(HandshakeError::Body);
        }
        let fields = head.fields;
        check_upgrade(fields)?;
        if only(fields, VERSION) != Some(VERSION_NUMBER) {
            return Err(HandshakeError::Version);
        }
        let key = only(fields, KEY).filter(|key| is_key(key));
        let key = key.ok_or(HandshakeError::Key)?;
        let mut subprotocols = fields.all(PROTOCOL).flat_map(list_tokens);
        if !subprotocols.all(is_token) {
            return Err(HandshakeError::Subprotocols);
        }
        for extension in extensions(fields.all(EXTENSIONS)) {
            extension?;
        }
        Ok(Self { fields, key })
    }

    /// The subprotocols that the client offers, the preferred one first.
    pub fn subprotocols(&self) -> impl Iterator<Item = &'b str> + use<'f, 'b> {
        let members = self.fields.all(PROTOCOL).flat_map(list_tokens);
        members.filter_map(|member| std::str::from_utf8(member).ok())
    }

    /// The origin of the page that opens the connection, if a browser sent one.
    ///
    /// Shape: browsers let any page connect anywhere; a server that goes by cookies has to
    /// compare this with the origins it knows.
    ///
    /// Source: RFC 6455 sections 4.1 and 10.2.
    ///
    /// ```
    /// use dwell_proto::http1::RequestHead;
    /// use dwell_proto::websocket::{Acceptance, HandshakeError, UpgradeRequest};
    ///
    /// /// The answer to pages of our own, as (name, value).
    /// fn answer(head: &RequestHead<'_, '_>) -> Result<Vec<(String, Vec<u8>)>, HandshakeError> {
    ///     let request = UpgradeRequest::check(head)?;
    ///     let mut fields = Vec::new();
    ///     if request.origin().is_none_or(|origin| origin == b"https://own.example") {
    ///         let acceptance: Acceptance<'_> = request.accept();
    ///         acceptance.for_each_field(|name, value| fields.push((name.into(), value.into())));
    ///     }
    ///     Ok(fields)
    /// }
    /// #
    /// # use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};
    /// # let mut storage = FieldStorage::new();
    /// # let input = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
    /// #     Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
    /// # let head = parse_request(input, &mut storage, &HeadLimits::default())?;
    /// # let accept = ("Sec-WebSocket-Accept".into(), b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=".to_vec());
    /// # assert!(answer(&head)?.contains(&accept));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn origin(&self) -> Option<&'b [u8]> {
        self.fields.find("origin")
    }

    /// Takes up the first offer of permessage-deflate that these options can serve.
    ///
    /// Source: RFC 7692 sections 5.1 and 7.1.
    pub fn negotiate_deflate(&self, options: &DeflateOptions) -> Option<DeflateParameters> {
        let mut offers = extensions(self.fields.all(EXTENSIONS)).map_while(Result::ok);
        offers.find_map(|offer| options.accept(offer))
    }

    /// The answer that accepts, with no subprotocol and no extension yet.
    pub fn accept<'a>(&self) -> Acceptance<'a> {
        Acceptance {
            accept: accept_value(self.key),
            subprotocol: None,
            deflate: None,
        }
    }
}

impl Acceptance<'_> {
    /// Appends the fields of the answer, which has status 101.
    ///
    /// Source: RFC 6455 section 4.2.2.
    pub fn encode_fields(&self, out: &mut Vec<u8>) {
        self.for_each_field(|name, value| encode::field(out, name, value));
    }

    /// Calls `field` with the name and value of each field of the answer, in order.
    pub fn for_each_field(&self, mut field: impl FnMut(&'static str, &[u8])) {
        field("Upgrade", b"websocket");
        field("Connection", b"Upgrade");
        field("Sec-WebSocket-Accept", &self.accept);
        if let Some(subprotocol) = self.subprotocol {
            field(PROTOCOL, subprotocol.as_bytes());
        }
        if let Some(deflate) = &self.deflate {
            let mut value = Vec::new();
            deflate.encode_answer(&mut value);
            field(EXTENSIONS, &value);
        }
    }
}

/// A client's side of the opening handshake.
///
/// ```
/// use dwell_proto::http1::{self, FieldStorage, HeadLimits};
/// use dwell_proto::websocket::ClientHandshake;
///
/// // The nonce is to be random in earnest.
/// let handshake = ClientHandshake {
///     subprotocols: &["chat"],
///     ..ClientHandshake::new(*b"the sample nonce")
/// };
/// let mut request = Vec::new();
/// handshake.encode_fields(&mut request);
/// assert!(request.starts_with(b"Upgrade: websocket\r\nConnection: Upgrade\r\n"));
///
/// let answer = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\n\
///     Connection: Upgrade\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\
///     Sec-WebSocket-Protocol: chat\r\n\r\n";
/// let mut storage = FieldStorage::new();
/// let limits = HeadLimits::default();
/// let head = http1::parse_response(answer, &mut storage, &limits, "GET").unwrap();
/// let agreement = handshake.check(&head)?;
/// assert_eq!(agreement.subprotocol, Some("chat"));
/// # Ok::<(), dwell_proto::websocket::HandshakeError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct ClientHandshake<'a> {
    /// Sixteen random bytes, new for every connection.
    pub nonce: [u8; 16],
    /// The subprotocols to offer, the preferred one first; none by default.
    pub subprotocols: &'a [&'a str],
    /// The offer of permessage-deflate; none by default.
    pub deflate: Option<DeflateOptions>,
}

/// The result of a handshake, on which client and server agreed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Agreement<'a> {
    /// The subprotocol that the server chose.
    pub subprotocol: Option<&'a str>,
    /// The parameters of permessage-deflate, if it is used.
    pub deflate: Option<DeflateParameters>,
}

impl<'a> ClientHandshake<'a> {
    /// A handshake that offers neither subprotocol nor extension.
    pub fn new(nonce: [u8; 16]) -> Self {
        Self {
            nonce,
            subprotocols: &[],
            deflate: None,
        }
    }

    /// Appends the fields of the request that only a handshake has; `Host` is not among them.
    ///
    /// Source: RFC 6455 section 4.1.
    pub fn encode_fields(&self, out: &mut Vec<u8>) {
        encode::field(out, "Upgrade", b"websocket");
        encode::field(out, "Connection", b"Upgrade");
        self.encode_key(out);
        encode::field(out, VERSION, VERSION_NUMBER);
        if !self.subprotocols.is_empty() {
            encode::field(out, PROTOCOL, self.subprotocols.join(", ").as_bytes());
        }
        if let Some(options) = &self.deflate {
            let mut value = Vec::new();
            options.encode_offer(&mut value);
            encode::field(out, EXTENSIONS, &value);
        }
    }

    /// Appends the field with the key alone, for a request of which the others are there.
    ///
    /// ```
    /// use dwell_proto::websocket::ClientHandshake;
    ///
    /// let mut request = Vec::new();
    /// ClientHandshake::new(*b"the sample nonce").encode_key(&mut request);
    /// assert_eq!(request, b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n");
    /// ```
    pub fn encode_key(&self, out: &mut Vec<u8>) {
        encode::field(out, KEY, &self.key());
    }

    /// Checks the server's response, and returns the result of the handshake.
    ///
    /// # Errors
    /// [`HandshakeError`]; close the connection.
    ///
    /// Source: RFC 6455 section 4.1; RFC 7692 section 7.1.
    pub fn check(&self, head: &ResponseHead<'_, '_>) -> Result<Agreement<'a>, HandshakeError> {
        if head.status != 101 {
            let status = head.status;
            return Err(HandshakeError::Status { status });
        }
        let fields = head.fields;
        check_upgrade(fields)?;
        let accept = accept_value(&self.key());
        if only(fields, "sec-websocket-accept") != Some(&accept) {
            return Err(HandshakeError::Accept);
        }
        Ok(Agreement {
            subprotocol: self.agreed_subprotocol(fields)?,
            deflate: self.agreed_deflate(fields)?,
        })
    }

    fn agreed_subprotocol(
        &self,
        fields: Fields<'_, '_>,
    ) -> Result<Option<&'a str>, HandshakeError> {
        if fields.find(PROTOCOL).is_none() {
            return Ok(None);
        }
        let chosen = only(fields, PROTOCOL);
        let mut offered = self.subprotocols.iter();
        let agreed = offered.find(|offered| chosen == Some(offered.as_bytes()));
        agreed
            .copied()
            .map(Some)
            .ok_or(HandshakeError::Subprotocols)
    }

    fn agreed_deflate(
        &self,
        fields: Fields<'_, '_>,
    ) -> Result<Option<DeflateParameters>, HandshakeError> {
        let mut agreed = None;
        for extension in extensions(fields.all(EXTENSIONS)) {
            let extension = extension?;
            let confirmed = self.deflate.and_then(|offer| offer.confirm(extension));
            if confirmed.is_none() || agreed.is_some() {
                return Err(HandshakeError::Extensions);
            }
            agreed = confirmed;
        }
        Ok(agreed)
    }

    fn key(&self) -> [u8; KEY_LEN] {
        let mut key = [0; KEY_LEN];
        encode_base64(&self.nonce, &mut key);
        key
    }
}

/// Reasons why a handshake was refused.
///
/// ```
/// use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};
/// use dwell_proto::websocket::{HandshakeError, UpgradeRequest};
///
/// let input = b"GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\
///     Sec-WebSocket-Version: 8\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n";
/// let mut storage = FieldStorage::new();
/// let head = parse_request(input, &mut storage, &HeadLimits::default())?;
/// let error = UpgradeRequest::check(&head).unwrap_err();
/// assert_eq!((error, error.status()), (HandshakeError::Version, 426));
/// assert!(error.fields().contains(&("Sec-WebSocket-Version", b"13")));
/// # Ok::<(), dwell_proto::http1::HeadError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum HandshakeError {
    /// The request is not `GET` in HTTP/1.1.
    Method,
    /// The request has a body.
    Body,
    /// `Upgrade` does not name `websocket`, or `Connection` does not name `upgrade`.
    Upgrade,
    /// `Sec-WebSocket-Version` is not 13.
    Version,
    /// `Sec-WebSocket-Key` is missing, repeated, or not sixteen bytes in base64.
    Key,
    /// `Sec-WebSocket-Protocol` is not a list of tokens, or names one that was not offered.
    Subprotocols,
    /// `Sec-WebSocket-Extensions` is malformed, or holds what was not offered.
    Extensions,
    /// The server answered with another status than 101.
    Status {
        /// The status it answered with.
        status: u16,
    },
    /// `Sec-WebSocket-Accept` does not fit the key.
    Accept,
}

impl HandshakeError {
    /// The status that answers a request with this fault.
    ///
    /// Shape: for a fault in an answer it has no meaning.
    ///
    /// Source: RFC 6455 sections 4.2.1 and 4.4.
    pub fn status(self) -> u16 {
        match self {
            Self::Version => 426,
            _ => 400,
        }
    }

    /// Appends the fields that go with that status.
    ///
    /// Source: RFC 6455 section 4.4; RFC 9110 section 15.5.22.
    pub fn encode_fields(self, out: &mut Vec<u8>) {
        for (name, value) in self.fields() {
            encode::field(out, name, value);
        }
    }

    /// The names and values of those fields.
    pub fn fields(self) -> &'static [(&'static str, &'static [u8])] {
        match self {
            Self::Version => &[
                ("Upgrade", b"websocket"),
                ("Connection", b"Upgrade"),
                (VERSION, VERSION_NUMBER),
            ],
            _ => &[],
        }
    }
}

impl fmt::Display for HandshakeError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = match self {
            Self::Status { status } => return write!(out, "status is not 101: {status}"),
            Self::Method => "request is not GET in HTTP/1.1",
            Self::Body => "request with a body",
            Self::Upgrade => "no upgrade to websocket",
            Self::Version => "websocket version is not 13",
            Self::Key => "malformed sec-websocket-key",
            Self::Subprotocols => "malformed sec-websocket-protocol",
            Self::Extensions => "malformed sec-websocket-extensions",
            Self::Accept => "sec-websocket-accept does not fit the key",
        };
        out.write_str(text)
    }
}

impl std::error::Error for HandshakeError {}

/// Checks that both sides speak of going over to `websocket`.
fn check_upgrade(fields: Fields<'_, '_>) -> Result<(), HandshakeError> {
    let upgrades = fields.has_token("upgrade", "websocket");
    if upgrades && fields.has_token("connection", "upgrade") {
        Ok(())
    } else {
        Err(HandshakeError::Upgrade)
    }
}

/// The value of a field that may stand there only once.
fn only<'b>(fields: Fields<'_, 'b>, name: &str) -> Option<&'b [u8]> {
    let mut values = fields.all(name);
    let value = values.next();
    value.filter(|_| values.next().is_none())
}

fn is_key(key: &[u8]) -> bool {
    let mut nonce = [0; 18];
    key.len() == KEY_LEN && LENIENT.decode_slice(key, &mut nonce) == Ok(16)
}

/// The value of `Sec-WebSocket-Accept` that answers a key.
///
/// Source: RFC 6455 section 4.2.2.
fn accept_value(key: &[u8]) -> [u8; 28] {
    let digest = Sha1::new().chain_update(key).chain_update(GUID).finalize();
    let mut accept = [0; 28];
    encode_base64(&digest, &mut accept);
    accept
}

/// Encodes into exactly the room there is.
fn encode_base64(input: &[u8], out: &mut [u8]) {
    let encoded = STANDARD.encode_slice(input, out);
    debug_assert!(encoded.is_ok(), "four bytes of room for each three");
}

const KEY: &str = "Sec-WebSocket-Key";
const VERSION: &str = "Sec-WebSocket-Version";
const PROTOCOL: &str = "Sec-WebSocket-Protocol";
const EXTENSIONS: &str = "Sec-WebSocket-Extensions";

const VERSION_NUMBER: &[u8] = b"13";

/// The bytes of sixteen bytes in base64.
const KEY_LEN: usize = 24;

/// The text that is hashed together with the key.
///
/// Source: RFC 6455 section 1.3.
const GUID: &[u8] = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11";

/// Keys only have to be sixteen bytes: the bits left over in the last character do not matter.
const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new().with_decode_allow_trailing_bits(true),
);

#[cfg(test)]
mod tests;
