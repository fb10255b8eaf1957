//! The version, the connection options, and the end of the body.

use super::error::HeadError;
use super::fields::{list_tokens, trim_whitespace};

/// The protocol version of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// HTTP/1.0: connections close unless both sides keep them alive; no chunks.
    Http10,
    /// HTTP/1.1.
    Http11,
    /// HTTP/2: never of a head that was parsed here; of one whose fields came compressed.
    Http2,
}

/// The rule by which the end of a body is found.
///
/// Source: RFC 9112 section 6.3.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    /// There is no body.
    None,
    /// This many bytes, from `Content-Length`; may be 0.
    Length(u64),
    /// Chunks, up to the empty one.
    Chunked,
    /// Everything until the connection closes; only ever of a response.
    UntilClose,
}

/// The framing and connection fields of one head that were read so far.
#[derive(Default)]
pub(super) struct FramingFields {
    pub(super) content_length: Option<u64>,
    repeated_length: RepeatedLength,
    coding: Option<Coding>,
    pub(super) close: bool,
    pub(super) keep_alive: bool,
    pub(super) upgrade: bool,
}

/// The treatment of a length that is given several times, and each time the same.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum RepeatedLength {
    #[default]
    Refused,
    Taken,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Coding {
    Chunked,
    Unsupported,
}

impl FramingFields {
    /// Makes one for a response, whose reader should take a repeated length (RFC 9112 section 6.3).
    pub(super) fn of_response() -> Self {
        Self {
            repeated_length: RepeatedLength::Taken,
            ..Self::default()
        }
    }

    /// Takes in a field line if it bears on framing; every other name costs a length comparison.
    #[inline]
    pub(super) fn visit(&mut self, name: &str, value: &[u8]) -> Result<(), HeadError> {
        match name.len() {
            10 if name.eq_ignore_ascii_case("connection") => self.visit_connection(value),
            14 if name.eq_ignore_ascii_case("content-length") => {
                self.visit_length(value)?;
            }
            17 if name.eq_ignore_ascii_case("transfer-encoding") => {
                if self.coding.is_some() {
                    return Err(HeadError::CodingInvalid);
                }
                self.coding = Some(coding(value)?);
            }
            _ => {}
        }
        Ok(())
    }

    fn visit_length(&mut self, value: &[u8]) -> Result<(), HeadError> {
        if self.content_length.is_some() && self.repeated_length == RepeatedLength::Refused {
            return Err(HeadError::LengthRepeated);
        }
        let said = match plain_decimal(value) {
            None if self.repeated_length == RepeatedLength::Taken => repeated_decimal(value),
            said => said,
        };
        let length = said.ok_or(HeadError::LengthInvalid)?;
        if self.content_length.is_some_and(|earlier| earlier != length) {
            return Err(HeadError::LengthRepeated);
        }
        self.content_length = Some(length);
        Ok(())
    }

    fn visit_connection(&mut self, value: &[u8]) {
        // What nearly every client sends, spared the walk over a list.
        if value == b"keep-alive" {
            self.keep_alive = true;
            return;
        }
        for option in list_tokens(value) {
            match option.len() {
                5 if option.eq_ignore_ascii_case(b"close") => self.close = true,
                7 if option.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
                10 if option.eq_ignore_ascii_case(b"keep-alive") => self.keep_alive = true,
                _ => {}
            }
        }
    }

    /// Returns the framing by these fields; `None` if they define none.
    ///
    /// Source: RFC 9112 sections 6.1 and 6.3, with every choice taken on the refusing side.
    pub(super) fn framing(&self, version: Version) -> Result<Option<BodyFraming>, HeadError> {
        match (self.coding, self.content_length) {
            (None, None) => Ok(None),
            (None, Some(length)) => Ok(Some(BodyFraming::Length(length))),
            (Some(_), Some(_)) => Err(HeadError::LengthAndCoding),
            (Some(_), None) if version == Version::Http10 => Err(HeadError::CodingOnHttp10),
            (Some(Coding::Unsupported), None) => Err(HeadError::CodingUnsupported),
            (Some(Coding::Chunked), None) => Ok(Some(BodyFraming::Chunked)),
        }
    }

    /// Returns true if the connection outlives this message, by its fields.
    pub(super) fn persists(&self, version: Version) -> bool {
        !self.close && (version == Version::Http11 || self.keep_alive)
    }
}

/// Reads a plain decimal number: digits only, and at most 19 of them, so that it always fits.
pub(crate) fn plain_decimal(value: &[u8]) -> Option<u64> {
    if value.is_empty() || value.len() > 19 {
        return None;
    }
    let mut number = 0_u64;
    for byte in value {
        if !byte.is_ascii_digit() {
            return None;
        }
        number = number * 10 + u64::from(byte - b'0');
    }
    Some(number)
}

/// Reads a list of plain decimal numbers that are all the same.
///
/// Source: RFC 9112 section 6.3, item 5.
fn repeated_decimal(value: &[u8]) -> Option<u64> {
    let mut numbers = value
        .split(|byte| *byte == b',')
        .map(|member| plain_decimal(trim_whitespace(member)));
    let first = numbers.next()??;
    numbers.all(|number| number == Some(first)).then_some(first)
}

/// Reads a `Transfer-Encoding` value. Only the bare word `chunked` is understood; the rest is
/// sorted into what is malformed (empty members, `chunked` twice or not last) and what is merely
/// not supported.
fn coding(value: &[u8]) -> Result<Coding, HeadError> {
    if value.eq_ignore_ascii_case(b"chunked") {
        return Ok(Coding::Chunked);
    }
    let members = value.split(|byte| *byte == b',').count();
    if list_tokens(value).count() != members {
        return Err(HeadError::CodingInvalid);
    }
    let chunked_at = list_tokens(value).position(|name| name.eq_ignore_ascii_case(b"chunked"));
    match chunked_at {
        Some(index) if index + 1 != members => Err(HeadError::CodingInvalid),
        _ => Ok(Coding::Unsupported),
    }
}
