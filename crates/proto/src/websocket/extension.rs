//! `Sec-WebSocket-Extensions`, and the parameters of permessage-deflate.

use super::handshake::HandshakeError;
use super::opcode::Role;
use crate::http1::is_token;

/// Options of one side for permessage-deflate.
///
/// Source: RFC 7692 section 7.1.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateOptions {
    /// Makes the server compress without context takeover, so that one compressor serves all
    /// connections of a loop. Default: true; false costs up to 380 KB a connection.
    pub server_no_context_takeover: bool,
    /// Asks the client to compress without context takeover, so that one inflater serves all
    /// connections of a loop. Default: true; false costs 48 KB a connection.
    pub client_no_context_takeover: bool,
    /// Units: the server's window is 2 to the power of this many bytes, 9 to 15. Default: 15.
    pub server_max_window_bits: u8,
    /// Units: the client's window is 2 to the power of this many bytes, 9 to 15. Default: 15.
    pub client_max_window_bits: u8,
    /// Units: bytes; shorter messages are sent as they are. Default: 256.
    pub message_bytes_min: usize,
    /// The compression level, 0 to 9. Default: 1, which takes half the time of 6 on short messages
    /// and makes them little longer.
    pub level: u32,
}

impl Default for DeflateOptions {
    fn default() -> Self {
        Self {
            server_no_context_takeover: true,
            client_no_context_takeover: true,
            server_max_window_bits: WINDOW_BITS_MAX,
            client_max_window_bits: WINDOW_BITS_MAX,
            message_bytes_min: 256,
            level: 1,
        }
    }
}

/// The parameters of permessage-deflate that both sides agreed on.
///
/// Source: RFC 7692 section 7.1.
///
/// ```
/// use dwell_proto::websocket::{DeflateParameters, Role};
///
/// let agreed = DeflateParameters {
///     server_no_context_takeover: true,
///     client_no_context_takeover: false,
///     server_max_window_bits: Some(12),
///     client_max_window_bits: None,
/// };
/// assert!(agreed.sends_afresh(Role::Server) && !agreed.receives_afresh(Role::Server));
/// assert_eq!(agreed.send_window_bits(Role::Server), 12);
/// assert_eq!(agreed.send_window_bits(Role::Client), 15);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeflateParameters {
    /// True if the server compresses without context takeover.
    pub server_no_context_takeover: bool,
    /// True if the client compresses without context takeover.
    pub client_no_context_takeover: bool,
    /// Units: the server's window is at most 2 to the power of this many bytes, 8 to 15; 15 if
    /// the answer does not name it.
    pub server_max_window_bits: Option<u8>,
    /// Units: the client's window is at most 2 to the power of this many bytes, 8 to 15; 15 if
    /// the answer does not name it.
    pub client_max_window_bits: Option<u8>,
}

impl DeflateParameters {
    /// Units: bits of the window that messages sent by this side may use, 8 to 15.
    pub fn send_window_bits(self, role: Role) -> u8 {
        let named = match role {
            Role::Server => self.server_max_window_bits,
            Role::Client => self.client_max_window_bits,
        };
        named.unwrap_or(WINDOW_BITS_MAX)
    }

    /// Returns true if messages sent by this side start afresh, so that a shared compressor will
    /// do.
    pub fn sends_afresh(self, role: Role) -> bool {
        match role {
            Role::Server => self.server_no_context_takeover,
            Role::Client => self.client_no_context_takeover,
        }
    }

    /// Returns true if messages received by this side start afresh, so that a shared inflater will
    /// do.
    pub fn receives_afresh(self, role: Role) -> bool {
        match role {
            Role::Server => self.client_no_context_takeover,
            Role::Client => self.server_no_context_takeover,
        }
    }

    /// Appends the value of the server's `Sec-WebSocket-Extensions`.
    pub(super) fn encode_answer(self, out: &mut Vec<u8>) {
        out.extend_from_slice(PERMESSAGE_DEFLATE.as_bytes());
        if self.server_no_context_takeover {
            out.extend_from_slice(b"; server_no_context_takeover");
        }
        if self.client_no_context_takeover {
            out.extend_from_slice(b"; client_no_context_takeover");
        }
        if let Some(bits) = self.server_max_window_bits {
            window_parameter(out, "server_max_window_bits", bits);
        }
        if let Some(bits) = self.client_max_window_bits {
            window_parameter(out, "client_max_window_bits", bits);
        }
    }
}

impl DeflateOptions {
    /// Appends the value of a client's `Sec-WebSocket-Extensions`.
    pub(super) fn encode_offer(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(PERMESSAGE_DEFLATE.as_bytes());
        if self.server_no_context_takeover {
            out.extend_from_slice(b"; server_no_context_takeover");
        }
        if self.client_no_context_takeover {
            out.extend_from_slice(b"; client_no_context_takeover");
        }
        if self.server_window() < WINDOW_BITS_MAX {
            window_parameter(out, "server_max_window_bits", self.server_window());
        }
        if self.client_window() < WINDOW_BITS_MAX {
            window_parameter(out, "client_max_window_bits", self.client_window());
        } else {
            out.extend_from_slice(b"; client_max_window_bits");
        }
    }

    /// Returns the parameters by which a server with these options accepts a client's offer; `None`
    /// to decline it.
    pub(super) fn accept(&self, offer: Extension<'_>) -> Option<DeflateParameters> {
        let offer = RawParameters::read(offer, Role::Client)?;
        let (server_own, client_own) = (self.server_window(), self.client_window());
        let server_narrowed = (server_own < WINDOW_BITS_MAX).then_some(server_own);
        Some(DeflateParameters {
            server_no_context_takeover: self.server_no_context_takeover
                || offer.server_no_context_takeover,
            client_no_context_takeover: self.client_no_context_takeover
                || offer.client_no_context_takeover,
            // An offer that names the server's window is taken up by naming it.
            server_max_window_bits: match offer.server_max_window_bits {
                Some(bits) => Some(bits.min(server_own)),
                None => server_narrowed,
            },
            // A client that does not name its own cannot be told to narrow it.
            client_max_window_bits: match offer.client_max_window_bits {
                Some(_) if client_own == WINDOW_BITS_MAX => None,
                named => named.map(|bits| bits.min(client_own)),
            },
        })
    }

    /// Returns the parameters of the server's response for a client that offered these options;
    /// `None` if it does not fit the offer.
    pub(super) fn confirm(&self, answer: Extension<'_>) -> Option<DeflateParameters> {
        let answer = RawParameters::read(answer, Role::Server)?;
        let (server_own, client_own) = (self.server_window(), self.client_window());
        let answers_offer = answer.server_max_window_bits.unwrap_or(WINDOW_BITS_MAX) <= server_own
            && (answer.server_no_context_takeover || !self.server_no_context_takeover);
        let client_named = answer.client_max_window_bits;
        answers_offer.then_some(DeflateParameters {
            server_no_context_takeover: answer.server_no_context_takeover,
            client_no_context_takeover: self.client_no_context_takeover
                || answer.client_no_context_takeover,
            server_max_window_bits: answer.server_max_window_bits,
            client_max_window_bits: Some(client_named.unwrap_or(client_own).min(client_own)),
        })
    }

    fn server_window(&self) -> u8 {
        self.server_max_window_bits.clamp(9, WINDOW_BITS_MAX)
    }

    fn client_window(&self) -> u8 {
        self.client_max_window_bits.clamp(9, WINDOW_BITS_MAX)
    }
}

/// The parameters of one permessage-deflate, as they were written.
#[derive(Default)]
struct RawParameters {
    server_no_context_takeover: bool,
    client_no_context_takeover: bool,
    server_max_window_bits: Option<u8>,
    /// The largest there is if the client named it without a value.
    client_max_window_bits: Option<u8>,
}

impl RawParameters {
    /// Reads what `sender` wrote; `None` for another extension, and for parameters that are
    /// unknown, repeated or malformed.
    fn read(extension: Extension<'_>, sender: Role) -> Option<Self> {
        if extension.name != PERMESSAGE_DEFLATE {
            return None;
        }
        let mut raw = Self::default();
        for parameter in extension.parameters() {
            let bits = parameter.value.map(ParameterValue::window_bits);
            let is_new = match (parameter.name, bits) {
                ("server_no_context_takeover", None) => {
                    !std::mem::replace(&mut raw.server_no_context_takeover, true)
                }
                ("client_no_context_takeover", None) => {
                    !std::mem::replace(&mut raw.client_no_context_takeover, true)
                }
                ("server_max_window_bits", Some(Some(bits))) => {
                    raw.server_max_window_bits.replace(bits).is_none()
                }
                ("client_max_window_bits", Some(Some(bits))) => {
                    raw.client_max_window_bits.replace(bits).is_none()
                }
                ("client_max_window_bits", None) if sender == Role::Client => raw
                    .client_max_window_bits
                    .replace(WINDOW_BITS_MAX)
                    .is_none(),
                _ => false,
            };
            if !is_new {
                return None;
            }
        }
        Some(raw)
    }
}

/// One member of `Sec-WebSocket-Extensions`.
///
/// Source: RFC 6455 section 9.1.
///
/// ```
/// use dwell_proto::websocket::{Extension, ExtensionParameter, ParameterValue, extensions};
///
/// let fields = [&b"own; limit=7"[..]];
/// let extension: Extension<'_> = extensions(fields.into_iter()).next().expect("a member")?;
/// let parameter: ExtensionParameter<'_> = extension.parameters().next().expect("it has one");
/// assert_eq!((extension.name, parameter.name), ("own", "limit"));
/// let value: ParameterValue<'_> = parameter.value.expect("it has one");
/// assert!(value.bytes().eq(*b"7"));
/// # Ok::<(), dwell_proto::websocket::HandshakeError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extension<'b> {
    /// The name of the extension.
    pub name: &'b str,
    /// The bytes after the name, checked.
    parameters: &'b [u8],
}

/// One parameter of an extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ExtensionParameter<'b> {
    /// The name of the parameter.
    pub name: &'b str,
    /// Its value, if it has one.
    pub value: Option<ParameterValue<'b>>,
}

/// The value of a parameter: a token, or a quoted string that holds one.
#[derive(Clone, Copy, Debug)]
pub struct ParameterValue<'b> {
    /// Without the quotes, but with the backslashes between them.
    raw: &'b [u8],
}

impl<'b> Extension<'b> {
    /// Its parameters, in the order they came.
    pub fn parameters(self) -> impl Iterator<Item = ExtensionParameter<'b>> {
        let mut rest = self.parameters;
        std::iter::from_fn(move || {
            let (parameter, after) = next_parameter(rest)?.ok()?;
            rest = after;
            Some(parameter)
        })
    }
}

impl<'b> ParameterValue<'b> {
    /// The bytes of the value, without quotes and backslashes.
    pub fn bytes(self) -> impl Iterator<Item = u8> + use<'b> {
        let mut raw = self.raw.iter().copied();
        std::iter::from_fn(move || match raw.next() {
            Some(b'\\') => raw.next(),
            byte => byte,
        })
    }

    /// The value as the size of a window: 8 to 15, without leading zeros.
    fn window_bits(self) -> Option<u8> {
        let mut bytes = self.bytes();
        match (bytes.next(), bytes.next(), bytes.next()) {
            (Some(digit @ b'8'..=b'9'), None, None) => Some(digit - b'0'),
            (Some(b'1'), Some(digit @ b'0'..=b'5'), None) => Some(10 + digit - b'0'),
            _ => None,
        }
    }
}

impl PartialEq for ParameterValue<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.bytes().eq(other.bytes())
    }
}

impl Eq for ParameterValue<'_> {}

/// The members of the values of `Sec-WebSocket-Extensions` fields, in the order they came.
///
/// Shape: after an error there is nothing more.
///
/// # Errors
/// [`HandshakeError::Extensions`] for what the grammar does not allow.
///
/// ```
/// use dwell_proto::websocket::extensions;
///
/// let fields = [&b"permessage-deflate; client_max_window_bits, foo; bar=\"b\\az\""[..]];
/// let members = extensions(fields.into_iter()).collect::<Result<Vec<_>, _>>()?;
/// assert_eq!(members[0].name, "permessage-deflate");
/// let bar = members[1].parameters().next().expect("a parameter");
/// assert_eq!(bar.value.map(|value| value.bytes().collect()), Some(b"baz".to_vec()));
/// # Ok::<(), dwell_proto::websocket::HandshakeError>(())
/// ```
///
/// Source: RFC 6455 section 9.1.
pub fn extensions<'b>(
    fields: impl Iterator<Item = &'b [u8]>,
) -> impl Iterator<Item = Result<Extension<'b>, HandshakeError>> {
    let mut fields = fields;
    let mut rest: &[u8] = &[];
    let mut failed = false;
    std::iter::from_fn(move || {
        while !failed {
            rest = skip_whitespace(rest);
            match rest.split_first() {
                // Empty members of a list count for nothing (RFC 9110 section 5.6.1).
                Some((b',', after)) => rest = after,
                Some(_) => {
                    let member = next_extension(rest);
                    match &member {
                        Ok((_, after)) => rest = after,
                        Err(_) => failed = true,
                    }
                    return Some(member.map(|(extension, _)| extension));
                }
                None => rest = fields.next()?,
            }
        }
        None
    })
}

/// The extension at the front of `text`, and what follows it.
fn next_extension(text: &[u8]) -> Result<(Extension<'_>, &[u8]), HandshakeError> {
    let (name, start) = take_token(text)?;
    let mut rest = start;
    while let Some(parameter) = next_parameter(rest) {
        rest = parameter?.1;
    }
    let parameters = &start[..start.len() - rest.len()];
    rest = skip_whitespace(rest);
    if !matches!(rest.first(), None | Some(b',')) {
        return Err(HandshakeError::Extensions);
    }
    Ok((Extension { name, parameters }, rest))
}

type Parameter<'b> = (ExtensionParameter<'b>, &'b [u8]);

/// The parameter at the front of `text`, with its semicolon, and what follows it.
fn next_parameter(text: &[u8]) -> Option<Result<Parameter<'_>, HandshakeError>> {
    let text = skip_whitespace(text).strip_prefix(b";")?;
    Some(take_parameter(skip_whitespace(text)))
}

fn take_parameter(text: &[u8]) -> Result<Parameter<'_>, HandshakeError> {
    let (name, rest) = take_token(text)?;
    let Some(rest) = skip_whitespace(rest).strip_prefix(b"=") else {
        return Ok((ExtensionParameter { name, value: None }, rest));
    };
    let rest = skip_whitespace(rest);
    let (raw, rest) = match rest.strip_prefix(b"\"") {
        Some(quoted) => take_quoted(quoted)?,
        None => take_token(rest).map(|(token, rest)| (token.as_bytes(), rest))?,
    };
    let value = Some(ParameterValue { raw });
    Ok((ExtensionParameter { name, value }, rest))
}

/// The quoted string of which the opening quote was taken, which must hold a token.
fn take_quoted(text: &[u8]) -> Result<(&[u8], &[u8]), HandshakeError> {
    let mut escaped = false;
    let end = text.iter().position(|byte| {
        let is_end = *byte == b'"' && !escaped;
        escaped = *byte == b'\\' && !escaped;
        is_end
    });
    let raw = &text[..end.ok_or(HandshakeError::Extensions)?];
    let value = ParameterValue { raw };
    let is_empty = value.bytes().next().is_none();
    if is_empty || !value.bytes().all(|byte| is_token(&[byte])) {
        return Err(HandshakeError::Extensions);
    }
    Ok((raw, &text[raw.len() + 1..]))
}

fn take_token(text: &[u8]) -> Result<(&str, &[u8]), HandshakeError> {
    let end = text.iter().position(|byte| !is_token(&[*byte]));
    let (token, rest) = text.split_at(end.unwrap_or(text.len()));
    match std::str::from_utf8(token) {
        Ok(token) if !token.is_empty() => Ok((token, rest)),
        _ => Err(HandshakeError::Extensions),
    }
}

fn skip_whitespace(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    text
}

fn window_parameter(out: &mut Vec<u8>, name: &str, bits: u8) {
    out.extend_from_slice(b"; ");
    out.extend_from_slice(name.as_bytes());
    out.push(b'=');
    out.extend_from_slice(itoa::Buffer::new().format(bits).as_bytes());
}

/// The name of the extension.
///
/// Source: RFC 7692 section 7.
pub(super) const PERMESSAGE_DEFLATE: &str = "permessage-deflate";

/// The largest window of DEFLATE.
pub(super) const WINDOW_BITS_MAX: u8 = 15;

#[cfg(test)]
mod tests;
