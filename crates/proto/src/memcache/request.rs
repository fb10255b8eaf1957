//! The server's side: one request at a time out of the bytes a client sent.

use super::binary::MAGIC;
use super::command::Command;
use super::command_line::{ItemSize, Line, parse_line};
use super::error_line::ErrorLine;
use super::key::MetaKey;
use super::line::{LineSearch, trim_start};

/// Bounds of what a server takes from a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestLimits {
    /// Longest request line. Units: bytes before its line feed. Default: 2048.
    pub line_bytes_max: usize,
    /// Longest line of `get`, `gets`, `gat` and `gats`, which take any number of keys.
    ///
    /// memcached knows no limit here. The default is 1 MiB, because a connection may hold as much
    /// for an unfinished value anyway. A longer one is discarded as it comes, and refused when its
    /// end has come. Units: bytes before the line feed.
    pub retrieval_line_bytes_max: usize,
    /// Largest item: key, value and [`ITEM_OVERHEAD_BYTES`]. Default: 1 MiB.
    ///
    /// [`ITEM_OVERHEAD_BYTES`]: RequestLimits::ITEM_OVERHEAD_BYTES
    pub item_bytes_max: usize,
}

impl RequestLimits {
    /// Bytes that memcached adds to key and value when it compares an item with its size limit.
    ///
    /// Units: bytes; client flags other than 0 add 4. With the default limit the largest value of
    /// a one-byte key has 1,048,516 bytes.
    pub const ITEM_OVERHEAD_BYTES: usize = 59;

    /// Returns true if an item may have a key and a value of these lengths.
    pub(super) fn fits(&self, key: usize, has_flags: bool, value: usize) -> bool {
        let flags = if has_flags { 4 } else { 0 };
        value.saturating_add(key + flags + Self::ITEM_OVERHEAD_BYTES) <= self.item_bytes_max
    }

    fn item_fits(&self, item: &ItemSize<'_>, length: usize) -> bool {
        self.fits(item.key.decoded_len(), item.has_flags, length)
    }
}

impl Default for RequestLimits {
    fn default() -> Self {
        Self {
            line_bytes_max: 2048,
            retrieval_line_bytes_max: 1 << 20,
            item_bytes_max: 1 << 20,
        }
    }
}

/// The result of one call of [`RequestDecoder::decode`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded<'b> {
    /// Bytes at the front of the input that are done with.
    pub consumed: usize,
    /// The meaning of these bytes.
    pub progress: Progress<'b>,
}

/// The request, or other progress, at the front of the input.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress<'b> {
    /// Nothing complete: show the unconsumed bytes again, with more behind them.
    Incomplete {
        /// Contiguous bytes, counted from the first unconsumed one, that are needed at least.
        needed: usize,
    },
    /// A request.
    Command(Command<'b>),
    /// A storage request whose value is too large; its data will be discarded as it comes.
    ///
    /// The error line follows as [`Progress::Error`] when all of it has come, or never if the
    /// client asked for silence.
    TooLarge {
        /// The key it was for.
        key: MetaKey<'b>,
        /// True if the item stored there now has to be deleted, because its successor is lost.
        deletes_old: bool,
    },
    /// An invalid request: send this line.
    Error(ErrorLine),
    /// Close the connection without an answer.
    Close(CloseReason),
}

/// Reasons why a connection is closed without another reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum CloseReason {
    /// A line longer than its limit.
    LineTooLong,
    /// A browser or a server-side request forgery speaks HTTP.
    Http,
    /// A client of the binary protocol, which has a decoder of its own: see
    /// [`binary`](super::binary).
    BinaryProtocol,
}

/// Cuts a client's bytes into requests.
///
/// Shape: holds a few numbers and no bytes. Each call is given every byte that has not been
/// consumed yet, contiguous; bytes already searched are not searched again, and a refused value is
/// discarded as it comes, whatever its size.
///
/// ```
/// use dwell_proto::memcache::{Command, Progress, RequestDecoder};
///
/// let mut decoder = RequestDecoder::default();
/// let decoded = decoder.decode(b"delete a\r\nquit\r\n");
/// assert_eq!(decoded.consumed, 10);
/// let delete = Command::Delete { key: b"a", noreply: false };
/// assert_eq!(decoded.progress, Progress::Command(delete));
/// ```
#[derive(Clone, Debug, Default)]
pub struct RequestDecoder {
    limits: RequestLimits,
    search: LineSearch,
    /// Fewer unconsumed bytes than this cannot be a request.
    needed: usize,
    /// Bytes of a refused value still to come.
    discard: u64,
    /// The reply to send when they have come.
    after_discard: Option<ErrorLine>,
    /// The rest of a line of keys that is too long is being discarded.
    skips_line: bool,
    closed: Option<CloseReason>,
    started: bool,
}

impl RequestDecoder {
    /// A decoder with its own bounds.
    pub fn new(limits: RequestLimits) -> Self {
        Self {
            limits,
            ..Self::default()
        }
    }

    /// Decodes the request at the front of `input`.
    ///
    /// Shape: call until it returns [`Progress::Incomplete`]; the unconsumed rest has to be shown
    /// again. After [`Progress::Close`] every call returns the same.
    pub fn decode<'b>(&mut self, input: &'b [u8]) -> Decoded<'b> {
        let mut consumed = 0;
        loop {
            let step = self.step(&input[consumed..]);
            consumed += step.consumed;
            if let Some(progress) = step.progress {
                return Decoded { consumed, progress };
            }
        }
    }

    /// Returns true if a refused value is being discarded, so that the next bytes are no request.
    pub fn is_discarding(&self) -> bool {
        self.skips_line || self.discard > 0 || self.after_discard.is_some()
    }

    /// True when the line of a storage request has come, and its value has not.
    pub fn awaits_value(&self) -> bool {
        self.needed > 0
    }

    /// One request, one refusal, or one piece of a discarded value.
    fn step<'b>(&mut self, input: &'b [u8]) -> Step<'b> {
        if let Some(reason) = self.closed {
            return Step::stay(Progress::Close(reason));
        }
        if self.skips_line {
            return self.skip_line(input);
        }
        if self.is_discarding() {
            return self.discard(input);
        }
        if input.len() < self.needed {
            return Step::stay(Progress::Incomplete {
                needed: self.needed,
            });
        }
        let Some(&first) = input.first() else {
            return Step::stay(Progress::Incomplete { needed: 1 });
        };
        if !self.started && first == MAGIC {
            return self.close(CloseReason::BinaryProtocol);
        }
        self.started = true;
        let found = self.search.find(input);
        match self.judge(&input[..found.unwrap_or(input.len())]) {
            Length::Fits => {}
            Length::Excessive => return self.close(CloseReason::LineTooLong),
            Length::TooManyKeys => {
                self.search.reset();
                return self.skip_line(input);
            }
        }
        match found {
            Some(line_feed) => self.line(input, line_feed),
            None => Step::stay(Progress::Incomplete {
                needed: input.len() + 1,
            }),
        }
    }

    fn judge(&self, line: &[u8]) -> Length {
        if line.len() <= self.limits.line_bytes_max {
            return Length::Fits;
        }
        // Only as much as is certain to have come decides, so that the cuts of the input do not.
        let start = trim_start(&line[..self.limits.line_bytes_max]);
        let takes_many_keys = [&b"get "[..], b"gets ", b"gat ", b"gats "]
            .iter()
            .any(|name| start.starts_with(name));
        match takes_many_keys {
            false => Length::Excessive,
            true if line.len() <= self.limits.retrieval_line_bytes_max => Length::Fits,
            true => Length::TooManyKeys,
        }
    }

    /// Discards up to the end of the line, and answers for it then.
    fn skip_line<'b>(&mut self, input: &[u8]) -> Step<'b> {
        let end = memchr::memchr(b'\n', input);
        self.skips_line = end.is_none();
        Step {
            consumed: end.map_or(input.len(), |end| end + 1),
            progress: Some(match end {
                Some(_) => Progress::Error(ErrorLine::LineTooLong),
                None => Progress::Incomplete { needed: 1 },
            }),
        }
    }

    fn line<'b>(&mut self, input: &'b [u8], line_feed: usize) -> Step<'b> {
        let head = line_feed + 1;
        let line = &input[..line_feed];
        match parse_line(line.strip_suffix(b"\r").unwrap_or(line)) {
            Line::Command(command) => self.done(head, Some(Progress::Command(command))),
            Line::Http => self.close(CloseReason::Http),
            Line::Refused { reply, discard: 0 } => self.done(head, reply.map(Progress::Error)),
            Line::Refused { reply, discard } => {
                self.discard = discard;
                self.after_discard = reply;
                self.done(head, None)
            }
            Line::Data { length, item, .. } if !self.limits.item_fits(&item, length) => {
                self.discard = length as u64 + 2;
                self.after_discard = (!item.noreply).then_some(ErrorLine::TooLarge);
                let ItemSize {
                    key, deletes_old, ..
                } = item;
                self.done(head, Some(Progress::TooLarge { key, deletes_old }))
            }
            Line::Data {
                command, length, ..
            } => self.value(input, head, length, command),
        }
    }

    fn value<'b>(
        &mut self,
        input: &'b [u8],
        head: usize,
        length: usize,
        command: Command<'b>,
    ) -> Step<'b> {
        let end = head + length + 2;
        if input.len() < end {
            self.needed = end;
            return Step::stay(Progress::Incomplete { needed: end });
        }
        if &input[end - 2..end] == b"\r\n" {
            let command = command.with_value(&input[head..end - 2]);
            self.done(end, Some(Progress::Command(command)))
        } else {
            // What comes next is read as a request, as memcached does.
            self.done(end, command.bad_data_reply().map(Progress::Error))
        }
    }

    fn discard<'b>(&mut self, input: &'b [u8]) -> Step<'b> {
        let consumed = usize::try_from(self.discard)
            .unwrap_or(usize::MAX)
            .min(input.len());
        self.discard -= consumed as u64;
        let progress = if self.discard > 0 {
            Some(Progress::Incomplete { needed: 1 })
        } else {
            self.after_discard.take().map(Progress::Error)
        };
        Step { consumed, progress }
    }

    fn done<'b>(&mut self, consumed: usize, progress: Option<Progress<'b>>) -> Step<'b> {
        self.search.reset();
        self.needed = 0;
        Step { consumed, progress }
    }

    fn close<'b>(&mut self, reason: CloseReason) -> Step<'b> {
        self.closed = Some(reason);
        Step::stay(Progress::Close(reason))
    }
}

/// The verdict on the length of a line, as far as it has come.
enum Length {
    Fits,
    /// It can be no request.
    Excessive,
    /// A request for keys that is refused.
    TooManyKeys,
}

/// One step. `progress` is `None` if there is nothing to report and the next request may follow at
/// once.
struct Step<'b> {
    consumed: usize,
    progress: Option<Progress<'b>>,
}

impl<'b> Step<'b> {
    fn stay(progress: Progress<'b>) -> Self {
        Self {
            consumed: 0,
            progress: Some(progress),
        }
    }
}

#[cfg(test)]
mod tests;
