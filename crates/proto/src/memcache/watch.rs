//! Output of a server after `watch`: one line for each change, for as long as the connection lasts.

use std::time::Duration;

use super::PeerError;
use super::key::KeyScratch;
use super::line::{LineSearch, Tokens, parse_u64};

/// The longest line of a watch.
///
/// Units: bytes. A key of 250 bytes takes 750 of them.
pub const WATCH_LINE_BYTES_MAX: usize = 2048;

/// One line, borrowed from the bytes it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WatchLine<'b> {
    /// `OK`: the watch has begun.
    Accepted,
    /// An error line: no part of the watch has begun.
    Refused {
        /// The whole line.
        text: &'b [u8],
    },
    /// An operation on an item was carried out, or tried.
    Item {
        /// Its key.
        key: WatchedKey<'b>,
        /// The time of it by the server's clock, since the Unix epoch.
        at: Duration,
        /// True if the item may have changed. Commands that the server has read and not carried
        /// out, because their condition was not met, are reported as well.
        is_changed: bool,
    },
    /// Lines that the server has left out, as they were read too slowly.
    Skipped {
        /// The number of lines.
        lines: u64,
    },
    /// Any other line.
    Other,
}

/// A key as it stands in a line of a watch: URI-encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WatchedKey<'b>(&'b [u8]);

impl<'b> WatchedKey<'b> {
    /// The key itself, decoded into `scratch`.
    ///
    /// Shape: empty when it is malformed or longer than keys are.
    pub fn decode<'k>(&self, scratch: &'k mut KeyScratch) -> &'k [u8]
    where
        'b: 'k,
    {
        if !self.0.contains(&b'%') && self.0.len() <= scratch.room().len() {
            return self.0;
        }
        decode(self.0, scratch.room()).map_or(&[], |length| &scratch.room()[..length])
    }
}

/// Undoes a URI encoding; returns how long the result is.
fn decode(encoded: &[u8], room: &mut [u8]) -> Option<usize> {
    let mut length = 0;
    let mut rest = encoded;
    while let Some((&first, after)) = rest.split_first() {
        let byte;
        (byte, rest) = match (first, after) {
            (b'%', [high, low, after @ ..]) => (digit(*high)? << 4 | digit(*low)?, after),
            (b'%', _) => return None,
            _ => (first, after),
        };
        *room.get_mut(length)? = byte;
        length += 1;
    }
    Some(length)
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).map(|digit| digit as u8)
}

/// Cuts the bytes of a watch into lines.
///
/// Shape: holds one number and no bytes. Each call is given every byte that has not been consumed
/// yet, contiguous; bytes already searched are not searched again.
///
/// ```
/// use dwell_proto::memcache::{KeyScratch, WatchDecoder, WatchLine};
///
/// let input = b"ts=12.000345 gid=7 type=item_store key=a%20b status=stored cmd=set\n";
/// let (consumed, line) = WatchDecoder::default().decode(input).unwrap().unwrap();
/// assert_eq!(consumed, input.len());
/// let WatchLine::Item { key, is_changed, .. } = line else { panic!("{line:?}") };
/// assert_eq!(key.decode(&mut KeyScratch::new()), b"a b");
/// assert!(is_changed);
/// ```
#[derive(Clone, Debug, Default)]
pub struct WatchDecoder {
    search: LineSearch,
}

impl WatchDecoder {
    /// Decodes the line at the front of `input`.
    ///
    /// Shape: returns the bytes used and the line, or `None` when `input` ends before the line
    /// does; then call again with the same bytes and more.
    ///
    /// # Errors
    /// [`PeerError::LineTooLong`] beyond [`WATCH_LINE_BYTES_MAX`]: close the connection.
    ///
    /// Source: memcached `doc/protocol.txt`, "Watchers"; the fields of a line are only in the
    /// source of its logger.
    pub fn decode<'b>(
        &mut self,
        input: &'b [u8],
    ) -> Result<Option<(usize, WatchLine<'b>)>, PeerError> {
        let found = self.search.find(input);
        let length = found.unwrap_or(input.len());
        if length > WATCH_LINE_BYTES_MAX {
            let limit = WATCH_LINE_BYTES_MAX;
            return Err(PeerError::LineTooLong { limit, length });
        }
        Ok(found.map(|line_feed| {
            self.search.reset();
            let line = &input[..line_feed];
            (
                line_feed + 1,
                parse(line.strip_suffix(b"\r").unwrap_or(line)),
            )
        }))
    }
}

fn parse(line: &[u8]) -> WatchLine<'_> {
    let mut tokens = Tokens::new(line).iter();
    let first = tokens.next().unwrap_or_default();
    match first {
        b"OK" => return WatchLine::Accepted,
        b"ERROR" | b"CLIENT_ERROR" | b"SERVER_ERROR" => return WatchLine::Refused { text: line },
        _ if first.starts_with(b"WATCHER_") => return WatchLine::Refused { text: line },
        _ => {}
    }
    if let Some(lines) = first.strip_prefix(b"skipped=").and_then(parse_u64) {
        return WatchLine::Skipped { lines };
    }
    let Some(at) = first.strip_prefix(b"ts=").and_then(parse_time) else {
        return WatchLine::Other;
    };
    let (mut key, mut is_of_item, mut is_changed) = (None, false, true);
    for token in tokens {
        if let Some(value) = token.strip_prefix(b"key=") {
            key = Some(WatchedKey(value));
        } else if let Some(value) = token.strip_prefix(b"type=") {
            is_of_item = matches!(value, b"item_store" | b"deleted" | b"eviction");
        } else if let Some(value) = token.strip_prefix(b"status=") {
            // One that was too large, or had no memory, has taken the old item with it.
            is_changed = !matches!(value, b"not_stored" | b"exists" | b"not_found");
            // Nothing that is asked for comes after it.
            break;
        }
    }
    match key.filter(|_| is_of_item) {
        Some(key) => WatchLine::Item {
            key,
            at,
            is_changed,
        },
        None => WatchLine::Other,
    }
}

/// Seconds and microseconds; the microseconds are a number of their own and not padded, so that
/// `7.46` is 46 microseconds after 7 seconds.
fn parse_time(text: &[u8]) -> Option<Duration> {
    let dot = text.iter().position(|byte| *byte == b'.')?;
    let (seconds, microseconds) = (&text[..dot], &text[dot + 1..]);
    let seconds = Duration::from_secs(parse_u64(seconds)?);
    seconds.checked_add(Duration::from_micros(parse_u64(microseconds)?))
}

#[cfg(test)]
mod tests;
