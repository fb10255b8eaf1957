//! The chunked transfer coding, read strictly.
//!
//! Every line ends with carriage return and line feed, a size has at least one digit and neither
//! sign nor prefix, and what comes beside the data (extensions, trailer fields) is checked and
//! bounded.

use super::body::BodyStep;
use super::error::BodyError;
use super::fields::{is_token_byte, is_value_byte};

/// The place of the next byte in a chunked body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// Before the first digit of a size.
    SizeStart,
    /// After at least one digit.
    Size,
    Extension(Extension),
    SizeLineFeed,
    Data,
    DataReturn,
    DataLineFeed,
    /// At the start of a trailer field, or of the empty line that ends the message.
    TrailerStart,
    TrailerName,
    TrailerValue,
    TrailerLineFeed,
    LastLineFeed,
    Done,
}

/// The place of the next byte in the extensions behind a size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    /// In whitespace that only the semicolon of an extension may follow.
    Whitespace,
    /// Behind that semicolon, before the first byte of a name.
    Start,
    Name,
    /// In whitespace after a name.
    NameEnd,
    /// Behind the equals sign, before the first byte of a value.
    ValueStart,
    Token,
    Quoted,
    /// Behind a backslash within quotes.
    Escape,
    /// Behind the closing quote.
    QuotedEnd,
}

/// Whole field lines, and the beginning of one.
#[derive(Debug, Default)]
struct TrailerSection {
    bytes: Vec<u8>,
}

#[derive(Debug)]
pub(super) struct ChunkDecoder {
    /// The size being read, then what is left of the chunk.
    size: u64,
    /// All extensions of the body so far.
    extension_bytes: u32,
    /// The trailer section so far; most bodies have none.
    trailers: Option<Box<TrailerSection>>,
    digits: u8,
    place: Place,
}

impl ChunkDecoder {
    pub(super) fn new() -> Self {
        Self {
            size: 0,
            extension_bytes: 0,
            trailers: None,
            digits: 0,
            place: Place::SizeStart,
        }
    }

    pub(super) fn is_done(&self) -> bool {
        self.place == Place::Done
    }

    /// The trailer section so far.
    pub(super) fn trailers(&self) -> &[u8] {
        self.trailers.as_ref().map_or(&[], |section| &section.bytes)
    }

    /// Takes framing, then the data of at most one chunk, then framing again.
    ///
    /// `bytes_left` is what the body may still grow by; a chunk that announces more gets
    /// `too_large` before its data.
    pub(super) fn decode<'b>(
        &mut self,
        input: &'b [u8],
        bytes_left: &mut u64,
        too_large: BodyError,
    ) -> Result<BodyStep<'b>, BodyError> {
        let mut consumed = 0;
        let mut data = &input[..0];
        while let Some(byte) = input.get(consumed) {
            match self.place {
                Place::Done => break,
                Place::Data if !data.is_empty() => break,
                Place::Data => {
                    let rest = &input[consumed..];
                    let taken = rest
                        .len()
                        .min(usize::try_from(self.size).unwrap_or(usize::MAX));
                    data = &rest[..taken];
                    consumed += taken;
                    self.size -= taken as u64;
                    if self.size == 0 {
                        self.place = Place::DataReturn;
                    }
                }
                place => {
                    self.place = self.framing_byte(place, *byte)?;
                    consumed += 1;
                    if self.place == Place::Data {
                        *bytes_left = bytes_left.checked_sub(self.size).ok_or(too_large)?;
                    }
                }
            }
        }
        Ok(BodyStep {
            consumed,
            data,
            done: self.place == Place::Done,
        })
    }

    fn framing_byte(&mut self, place: Place, byte: u8) -> Result<Place, BodyError> {
        match (place, byte) {
            (Place::SizeStart | Place::Size, byte) if byte.is_ascii_hexdigit() => self.digit(byte),
            (Place::Size, b' ' | b'\t' | b';') => self.extension(Extension::Whitespace, byte),
            (Place::Size, b'\r') => Ok(Place::SizeLineFeed),
            (Place::Size, b'\n') => Err(BodyError::ChunkLineEnd),
            (Place::SizeStart | Place::Size, _) => Err(BodyError::ChunkSize),
            (Place::Extension(place), byte) => self.extension(place, byte),
            (Place::SizeLineFeed, b'\n') if self.size == 0 => Ok(Place::TrailerStart),
            (Place::SizeLineFeed, b'\n') => Ok(Place::Data),
            (Place::DataReturn, b'\r') => Ok(Place::DataLineFeed),
            (Place::DataLineFeed, b'\n') => {
                self.digits = 0;
                Ok(Place::SizeStart)
            }
            (Place::LastLineFeed, b'\n') => Ok(Place::Done),
            (Place::TrailerStart | Place::TrailerName | Place::TrailerValue, byte) => {
                self.trailer(place, byte)
            }
            (Place::TrailerLineFeed, b'\n') => {
                self.trailers.get_or_insert_default().bytes.push(byte);
                Ok(Place::TrailerStart)
            }
            _ => Err(BodyError::ChunkLineEnd),
        }
    }

    fn digit(&mut self, byte: u8) -> Result<Place, BodyError> {
        if self.digits == SIZE_DIGITS_MAX {
            return Err(BodyError::ChunkSize);
        }
        let value = match byte {
            b'0'..=b'9' => byte - b'0',
            _ => (byte | 0x20) - b'a' + 10,
        };
        self.digits += 1;
        self.size = (self.size << 4) | u64::from(value);
        Ok(Place::Size)
    }

    /// Counts a byte of an extension, and finds what it may be followed by.
    fn extension(&mut self, place: Extension, byte: u8) -> Result<Place, BodyError> {
        self.extension_bytes += 1;
        if self.extension_bytes > EXTENSION_BYTES_MAX {
            return Err(BodyError::ChunkExtensionsTooLong {
                limit: EXTENSION_BYTES_MAX as usize,
            });
        }
        place.after(byte).ok_or(BodyError::ChunkExtension)
    }

    fn trailer(&mut self, place: Place, byte: u8) -> Result<Place, BodyError> {
        if place == Place::TrailerStart && byte == b'\r' {
            return Ok(Place::LastLineFeed);
        }
        let section = self.trailers.get_or_insert_default();
        if section.bytes.len() >= TRAILER_BYTES_MAX {
            return Err(BodyError::TrailerTooLong {
                limit: TRAILER_BYTES_MAX,
            });
        }
        section.bytes.push(byte);
        match (place, byte) {
            (Place::TrailerName, b':') => Ok(Place::TrailerValue),
            (Place::TrailerValue, b'\r') => Ok(Place::TrailerLineFeed),
            (Place::TrailerValue, byte) if is_value_byte(byte) => Ok(Place::TrailerValue),
            (Place::TrailerStart | Place::TrailerName, byte) if is_token_byte(byte) => {
                Ok(Place::TrailerName)
            }
            _ => Err(BodyError::Trailer),
        }
    }
}

impl Extension {
    /// The place behind this byte; `None` where a byte like it has none here.
    ///
    /// Source: RFC 9112 section 7.1.1; RFC 9110 sections 5.6.2 and 5.6.4.
    fn after(self, byte: u8) -> Option<Place> {
        let next = match (self, byte) {
            (Self::Name | Self::Token | Self::QuotedEnd, b'\r') => {
                return Some(Place::SizeLineFeed);
            }
            (Self::Whitespace | Self::Token | Self::QuotedEnd, b' ' | b'\t') => Self::Whitespace,
            (
                Self::Whitespace | Self::Name | Self::NameEnd | Self::Token | Self::QuotedEnd,
                b';',
            ) => Self::Start,
            (Self::Start | Self::ValueStart, b' ' | b'\t') => self,
            (Self::Start | Self::Name, byte) if is_token_byte(byte) => Self::Name,
            (Self::Name | Self::NameEnd, b' ' | b'\t') => Self::NameEnd,
            (Self::Name | Self::NameEnd, b'=') => Self::ValueStart,
            (Self::ValueStart, b'"') => Self::Quoted,
            (Self::ValueStart | Self::Token, byte) if is_token_byte(byte) => Self::Token,
            (Self::Quoted, b'"') => Self::QuotedEnd,
            (Self::Quoted, b'\\') => Self::Escape,
            (Self::Quoted | Self::Escape, byte) if is_value_byte(byte) => Self::Quoted,
            _ => return None,
        };
        Some(Place::Extension(next))
    }
}

/// Enough for every 64-bit size, leading zeros included.
const SIZE_DIGITS_MAX: u8 = 16;
/// The limit for a whole body: one-byte chunks that each carry a long extension cost the reader
/// much more than the sender.
const EXTENSION_BYTES_MAX: u32 = 4_096;
const TRAILER_BYTES_MAX: usize = 8_192;
