//! Field lines as a borrowed view, with its queries.

use httparse::Header;

/// The field lines of one head, in the order they came.
///
/// Shape: borrows the head and the storage it was parsed into; copying it costs two words.
/// Names keep the sender's case; values have no whitespace at either end.
///
/// ```
/// use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};
///
/// let input = b"GET / HTTP/1.1\r\nHost: a\r\nAccept: text/html, */*\r\nAccept: text/css\r\n\r\n";
/// let mut storage = FieldStorage::new();
/// let fields = parse_request(input, &mut storage, &HeadLimits::default())?.fields;
/// assert_eq!((fields.len(), fields.is_empty()), (3, false));
/// assert_eq!(fields.find("accept"), Some(&b"text/html, */*"[..]));
/// assert_eq!(fields.all("Accept").count(), 2);
/// assert!(fields.has_token("accept", "text/css"));
/// assert_eq!(fields.iter().next(), Some(("Host", &b"a"[..])));
/// # Ok::<(), dwell_proto::http1::HeadError>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Fields<'f, 'b> {
    lines: &'f [Header<'b>],
}

impl<'f, 'b> Fields<'f, 'b> {
    pub(super) fn new(lines: &'f [Header<'b>]) -> Self {
        Self { lines }
    }

    /// Every field line as (name, value).
    pub fn iter(self) -> impl ExactSizeIterator<Item = (&'b str, &'b [u8])> + 'f {
        self.lines.iter().map(|line| (line.name, line.value))
    }

    /// The value of the first field of that name, in any case.
    pub fn find(self, name: &str) -> Option<&'b [u8]> {
        let line = self
            .lines
            .iter()
            .find(|line| line.name.eq_ignore_ascii_case(name));
        line.map(|line| line.value)
    }

    /// The values of all fields of that name, in any case.
    pub fn all<'n>(self, name: &'n str) -> impl Iterator<Item = &'b [u8]> + use<'f, 'b, 'n> {
        let lines = self
            .lines
            .iter()
            .filter(move |line| line.name.eq_ignore_ascii_case(name));
        lines.map(|line| line.value)
    }

    /// Returns true if one of the comma-separated members of any field of that name is `token`.
    ///
    /// Source: RFC 9110 section 5.6.1.
    pub fn has_token(self, name: &str, token: &str) -> bool {
        self.all(name)
            .flat_map(list_tokens)
            .any(|member| member.eq_ignore_ascii_case(token.as_bytes()))
    }

    /// Returns the number of field lines.
    pub fn len(self) -> usize {
        self.lines.len()
    }

    /// Returns true if there is no field line.
    pub fn is_empty(self) -> bool {
        self.lines.is_empty()
    }
}

/// The members of a comma-separated list, without the whitespace around them.
///
/// Shape: empty members are left out; commas inside quoted strings are not looked for, so use
/// it on lists of tokens only.
///
/// Source: RFC 9110 section 5.6.1.
///
/// ```
/// use dwell_proto::http1::{is_hop_by_hop, is_token, list_tokens};
///
/// let members: Vec<_> = list_tokens(b"close, , x-own").collect();
/// assert_eq!(members, [&b"close"[..], b"x-own"]);
/// assert!(members.iter().all(|member| is_token(member)));
/// assert!(is_hop_by_hop("Keep-Alive") && !is_hop_by_hop("Cookie"));
/// ```
pub fn list_tokens(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value
        .split(|byte| *byte == b',')
        .map(trim_whitespace)
        .filter(|member| !member.is_empty())
}

/// Returns true for a field that belongs to one connection and is never passed on.
///
/// Shape: the fixed names only; those that `Connection` nominates are the caller's to add.
///
/// Source: RFC 9110 section 7.6.1, and section 11.7 for the proxy credentials.
pub fn is_hop_by_hop(name: &str) -> bool {
    let known: &[&str] = match name.len() {
        2 => &["te"],
        7 => &["upgrade", "trailer"],
        10 => &["connection", "keep-alive"],
        16 => &["proxy-connection"],
        17 => &["transfer-encoding"],
        18 => &["proxy-authenticate"],
        19 => &["proxy-authorization"],
        _ => return false,
    };
    known.iter().any(|known| name.eq_ignore_ascii_case(known))
}

/// Returns true if the text is a token: a method or a field name.
///
/// Source: RFC 9110 section 5.6.2.
pub fn is_token(text: &[u8]) -> bool {
    !text.is_empty() && text.iter().all(|byte| is_token_byte(*byte))
}

pub(super) fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}

/// Returns true for a field value: no control bytes, and no whitespace at either end.
pub(crate) fn is_field_value(value: &[u8]) -> bool {
    value.iter().copied().all(is_value_byte) && trim_whitespace(value).len() == value.len()
}

/// Returns true for a byte that may stand in a field value.
pub(super) fn is_value_byte(byte: u8) -> bool {
    byte == b'\t' || (byte >= b' ' && byte != 0x7f)
}

pub(super) fn trim_whitespace(mut text: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] = text {
        text = rest;
    }
    while let [rest @ .., b' ' | b'\t'] = text {
        text = rest;
    }
    text
}
