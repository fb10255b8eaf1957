//! The server's side: one request at a time out of the bytes a client sent.

use super::super::command::{ArithmeticMode, StoreVerb};
use super::super::request::RequestLimits;
use super::{Echo, HEADER_BYTES, MAGIC, Operation, Quiet, Status};

/// One request, borrowed from the bytes it came in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request<'b> {
    /// The parts that its reply repeats.
    pub echo: Echo,
    /// The choice to leave its nominal reply out.
    pub quiet: Quiet,
    /// Go on only if the item has this cas unique; 0 is any.
    pub cas_unique: u64,
    /// The command.
    pub command: Command<'b>,
}

/// A command, with its arguments.
///
/// Units: exptimes are unsigned: 0 never, up to 30 days in seconds relative, above that Unix time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command<'b> {
    /// Read an item, and give it a new exptime if there is one.
    Get {
        /// The key of the item.
        key: &'b [u8],
        /// True if the reply repeats the key.
        with_key: bool,
        /// The new exptime.
        exptime: Option<u32>,
    },
    /// Give an item a new exptime.
    Touch {
        /// The key of the item.
        key: &'b [u8],
        /// The new exptime.
        exptime: u32,
    },
    /// Store a value.
    Store {
        /// The command.
        verb: StoreVerb,
        /// The key to store under.
        key: &'b [u8],
        /// The client flags.
        flags: u32,
        /// The exptime of the item.
        exptime: u32,
        /// The data.
        value: &'b [u8],
    },
    /// Delete an item.
    Delete {
        /// The key of the item.
        key: &'b [u8],
    },
    /// Count up or down.
    Arithmetic {
        /// The direction.
        mode: ArithmeticMode,
        /// The counter.
        key: &'b [u8],
        /// The amount.
        delta: u64,
        /// The first value of a missing counter.
        initial: u64,
        /// The exptime of a counter that is created; `None` creates none.
        exptime: Option<u32>,
    },
    /// Answer, then close; quiet: only close.
    Quit,
    /// Remove everything.
    Flush {
        /// The time of it, as an exptime; 0 is now.
        delay: u32,
    },
    /// Answer.
    Noop,
    /// Tell the version.
    Version,
    /// Tell statistics.
    Stat {
        /// The topic; empty for the general ones.
        topic: &'b [u8],
    },
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
    Request(Request<'b>),
    /// A storage request whose value is too large; its data is discarded as it comes.
    TooLarge {
        /// The parts that the refusal repeats.
        echo: Echo,
        /// The key it was for.
        key: &'b [u8],
        /// True if the item stored there now has to be deleted, because its successor is lost.
        deletes_old: bool,
    },
    /// A request that cannot be executed: send this status; the body is discarded.
    Refused {
        /// The parts that the refusal repeats.
        echo: Echo,
        /// The reason.
        status: Status,
        /// True if the connection is closed after it, because its framing is not to be trusted.
        closes: bool,
    },
    /// Close the connection without an answer: this is no request.
    Close,
}

/// Cuts a client's bytes into requests.
///
/// Shape: holds a few numbers and no bytes. Each call is given every byte that has not been
/// consumed yet, contiguous; a refused body is discarded as it comes, whatever its size.
///
/// ```
/// use dwell_proto::memcache::RequestLimits;
/// use dwell_proto::memcache::binary::{Command, Progress, RequestDecoder};
///
/// let mut decoder = RequestDecoder::new(RequestLimits::default());
/// let mut noop = [0; 24];
/// (noop[0], noop[1]) = (0x80, 0x0a);
/// let decoded = decoder.decode(&noop);
/// assert_eq!(decoded.consumed, 24);
/// let Progress::Request(request) = decoded.progress else { panic!() };
/// assert_eq!(request.command, Command::Noop);
/// ```
#[derive(Clone, Debug)]
pub struct RequestDecoder {
    limits: RequestLimits,
    /// Bytes of a refused body still to come.
    discard: u64,
    closed: bool,
}

impl RequestDecoder {
    /// A decoder with its own bounds.
    pub fn new(limits: RequestLimits) -> Self {
        Self {
            limits,
            discard: 0,
            closed: false,
        }
    }

    /// Returns true if a refused body is being discarded, so that the next bytes are no request.
    pub fn is_discarding(&self) -> bool {
        self.discard > 0
    }

    /// Decodes the request at the front of `input`.
    ///
    /// Shape: call until it returns [`Progress::Incomplete`]; the unconsumed rest has to be shown
    /// again. After [`Progress::Close`], or a refusal that closes, every call returns `Close`.
    pub fn decode<'b>(&mut self, input: &'b [u8]) -> Decoded<'b> {
        if self.closed {
            return self.close();
        }
        let discarded = usize::try_from(self.discard)
            .unwrap_or(usize::MAX)
            .min(input.len());
        self.discard -= discarded as u64;
        let rest = &input[discarded..];
        let mut decoded = self.request(rest);
        decoded.consumed += discarded;
        decoded
    }

    fn request<'b>(&mut self, input: &'b [u8]) -> Decoded<'b> {
        if input.first().is_some_and(|&first| first != MAGIC) {
            return self.close();
        }
        let Some((header, rest)) = input.split_first_chunk::<HEADER_BYTES>() else {
            return incomplete(HEADER_BYTES);
        };
        let header = Header::parse(header);
        let Header { echo, .. } = header;
        if header.extras + header.key > header.body {
            return self.refuse_and_close(echo, Status::UnknownCommand);
        }
        let Some((operation, quiet)) = Operation::from_opcode(echo.opcode) else {
            self.discard = header.body as u64;
            return Decoded {
                consumed: HEADER_BYTES,
                progress: Progress::Refused {
                    echo,
                    status: Status::UnknownCommand,
                    closes: false,
                },
            };
        };
        if !operation.allows(header.extras, header.key, header.body) {
            return self.refuse_and_close(echo, Status::InvalidArguments);
        }
        // Without the value: enough to refuse one that is too large before it has come.
        let Some(front) = rest.get(..header.extras + header.key) else {
            return incomplete(HEADER_BYTES + header.extras + header.key);
        };
        let (extras, key) = front.split_at(header.extras);
        let value_bytes = header.body - front.len();
        if let Operation::Store(verb) = operation {
            let has_flags = extras.iter().take(4).any(|byte| *byte != 0);
            if !self.limits.fits(key.len(), has_flags, value_bytes) {
                self.discard = value_bytes as u64;
                return Decoded {
                    consumed: HEADER_BYTES + front.len(),
                    progress: Progress::TooLarge {
                        echo,
                        key,
                        deletes_old: verb == StoreVerb::Set,
                    },
                };
            }
        }
        let Some(value) = rest.get(front.len()..header.body) else {
            return incomplete(HEADER_BYTES + header.body);
        };
        let command = command(operation, extras, key, value);
        Decoded {
            consumed: HEADER_BYTES + header.body,
            progress: Progress::Request(Request {
                echo,
                quiet,
                cas_unique: header.cas_unique,
                command,
            }),
        }
    }

    fn refuse_and_close<'b>(&mut self, echo: Echo, status: Status) -> Decoded<'b> {
        self.closed = true;
        Decoded {
            consumed: HEADER_BYTES,
            progress: Progress::Refused {
                echo,
                status,
                closes: true,
            },
        }
    }

    fn close<'b>(&mut self) -> Decoded<'b> {
        self.closed = true;
        Decoded {
            consumed: 0,
            progress: Progress::Close,
        }
    }
}

fn incomplete<'b>(needed: usize) -> Decoded<'b> {
    Decoded {
        consumed: 0,
        progress: Progress::Incomplete { needed },
    }
}

/// The lengths and the rest of a header.
#[derive(Clone, Copy, Debug)]
struct Header {
    echo: Echo,
    key: usize,
    extras: usize,
    body: usize,
    cas_unique: u64,
}

impl Header {
    fn parse(bytes: &[u8; HEADER_BYTES]) -> Self {
        let [
            _,
            opcode,
            k0,
            k1,
            extras,
            _,
            _,
            _,
            b0,
            b1,
            b2,
            b3,
            rest @ ..,
        ] = *bytes;
        let [o0, o1, o2, o3, cas_unique @ ..] = rest;
        Self {
            echo: Echo {
                opcode,
                opaque: [o0, o1, o2, o3],
            },
            key: usize::from(u16::from_be_bytes([k0, k1])),
            extras: usize::from(extras),
            body: u32::from_be_bytes([b0, b1, b2, b3]) as usize,
            cas_unique: u64::from_be_bytes(cas_unique),
        }
    }
}

/// Puts the parts of a request together; their lengths are those the operation allows.
fn command<'b>(
    operation: Operation,
    extras: &'b [u8],
    key: &'b [u8],
    value: &'b [u8],
) -> Command<'b> {
    match operation {
        Operation::Get { with_key, touches } => Command::Get {
            key,
            with_key,
            exptime: touches.then(|| u32_at(extras, 0)),
        },
        Operation::Touch => Command::Touch {
            key,
            exptime: u32_at(extras, 0),
        },
        Operation::Store(verb) => Command::Store {
            verb,
            key,
            flags: u32_at(extras, 0),
            exptime: u32_at(extras, 4),
            value,
        },
        Operation::Delete => Command::Delete { key },
        Operation::Arithmetic(mode) => Command::Arithmetic {
            mode,
            key,
            delta: u64_at(extras, 0),
            initial: u64_at(extras, 8),
            exptime: Some(u32_at(extras, 16)).filter(|exptime| *exptime != u32::MAX),
        },
        Operation::Quit => Command::Quit,
        Operation::Flush => Command::Flush {
            delay: u32_at(extras, 0),
        },
        Operation::Noop => Command::Noop,
        Operation::Version => Command::Version,
        Operation::Stat => Command::Stat { topic: key },
    }
}

/// A number in the extras; 0 where they end before it.
fn u32_at(extras: &[u8], at: usize) -> u32 {
    let bytes = extras.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u32::from_be_bytes(*bytes))
}

fn u64_at(extras: &[u8], at: usize) -> u64 {
    let bytes = extras.get(at..).and_then(<[u8]>::first_chunk);
    bytes.map_or(0, |bytes| u64::from_be_bytes(*bytes))
}
