//! Attacks by frames, and all that each of them sends.

use super::fields::literal;
use super::frames::{self, WHOLE, code, flag, kind, setting};
use super::smuggling::{self, Form};
use crate::patience::PROMPT;
use std::time::Duration;

/// An attack by frames (CVE-2016-6581, CVE-2019-9511 to 9518, CVE-2023-44487, CVE-2024-27316,
/// CVE-2025-8671, CVE-2026-49975).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attack {
    /// PING without end.
    Pings,
    /// SETTINGS without end.
    Settings,
    /// Priorities that change, without end.
    Priorities,
    /// Frames of a body that have no data.
    EmptyData,
    /// A field block that goes on and on.
    Continuations,
    /// A field block of frames that have nothing of it.
    EmptyBlocks,
    /// Requests whose fields have no names.
    EmptyNames,
    /// Requests that are reset at once.
    RapidReset,
    /// Streams that another error resets, which the client has made (`MadeYouReset`).
    MadeReset(Made),
    /// Trailer fields of a stream that was reset.
    LateFields,
    /// Data, a byte at a time, of a stream that was reset.
    LateData,
    /// A small block of many references to a long field.
    Bomb,
    /// Such blocks of cookies without a value, on streams whose windows are closed.
    Crumbs,
    /// All streams wait for windows that stay closed.
    ClosedWindows,
    /// Windows that are opened by one byte at a time.
    Dribble,
    /// Windows that are opened further and further.
    Windows,
    /// The window of the connection is more than it may be.
    Overflow,
    /// A setting that leaves a window less than nothing, of which a part is given back.
    Shrink,
    /// A field block that ends in its middle.
    HalfBlock,
    /// Requests that would be others in HTTP/1.1.
    Smuggle,
    /// WebSockets that the server has not said to take, and that end at once.
    EarlyTunnels,
}

/// An error of a client by which it has a stream reset.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Made {
    /// It opens the window by nothing.
    NoIncrement,
    /// It opens the window further than may be.
    Overflow,
    /// Data comes behind the end.
    LateData,
    /// Trailer fields come behind the end.
    LateFields,
    /// A priority has another length.
    ShortPriority,
    /// A request depends on itself.
    OwnPriority,
    /// More comes of a body than its length.
    Long,
    /// Less comes.
    Short,
    /// Trailer fields end nothing.
    OpenTrailers,
    /// A request is none.
    Malformed,
}

impl Made {
    const ALL: [Self; 10] = [
        Self::NoIncrement,
        Self::Overflow,
        Self::LateData,
        Self::LateFields,
        Self::ShortPriority,
        Self::OwnPriority,
        Self::Long,
        Self::Short,
        Self::OpenTrailers,
        Self::Malformed,
    ];

    /// Begins a request, and has it reset.
    fn write(self, stream: u32, out: &mut Vec<u8>) {
        match self {
            Self::OwnPriority => {
                let mut block = stream.to_be_bytes().to_vec();
                block.push(9);
                block.extend_from_slice(&get(WAITS));
                return frames::write(kind::HEADERS, WHOLE | flag::PRIORITY, stream, &block, out);
            }
            Self::Long | Self::Short | Self::OpenTrailers => {
                frames::write(kind::HEADERS, flag::END_HEADERS, stream, &post(), out);
            }
            Self::Malformed => {
                let block = [get(WAITS), literal("connection", "close")].concat();
                return frames::write(kind::HEADERS, WHOLE, stream, &block, out);
            }
            _ => frames::write(kind::HEADERS, WHOLE, stream, &get(WAITS), out),
        }
        let trailer = literal("x-trailer", "1");
        match self {
            Self::NoIncrement => frames::write_number(kind::WINDOW_UPDATE, stream, 0, out),
            Self::Overflow => frames::write_number(kind::WINDOW_UPDATE, stream, FULL_WINDOW, out),
            Self::LateData => frames::write(kind::DATA, flag::END_STREAM, stream, b"1", out),
            Self::LateFields => frames::write(kind::HEADERS, WHOLE, stream, &trailer, out),
            Self::ShortPriority => frames::write(kind::PRIORITY, 0, stream, &[0; 4], out),
            Self::Long => frames::write(kind::DATA, flag::END_STREAM, stream, b"123456", out),
            Self::Short => frames::write(kind::DATA, flag::END_STREAM, stream, b"1234", out),
            Self::OpenTrailers => {
                frames::write(kind::HEADERS, flag::END_HEADERS, stream, &trailer, out);
            }
            Self::OwnPriority | Self::Malformed => {}
        }
    }
}

/// The end that the server owes an attack.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// The connection ends within this time behind the last byte.
    Connection(Duration),
    /// Each of its streams, of which there are so many, is reset or refused.
    Streams(usize),
    /// None: it may last.
    None,
}

impl Attack {
    /// All of them.
    pub const ALL: [Self; 30] = [
        Self::Pings,
        Self::Settings,
        Self::Priorities,
        Self::EmptyData,
        Self::Continuations,
        Self::EmptyBlocks,
        Self::EmptyNames,
        Self::RapidReset,
        Self::MadeReset(Made::ALL[0]),
        Self::MadeReset(Made::ALL[1]),
        Self::MadeReset(Made::ALL[2]),
        Self::MadeReset(Made::ALL[3]),
        Self::MadeReset(Made::ALL[4]),
        Self::MadeReset(Made::ALL[5]),
        Self::MadeReset(Made::ALL[6]),
        Self::MadeReset(Made::ALL[7]),
        Self::MadeReset(Made::ALL[8]),
        Self::MadeReset(Made::ALL[9]),
        Self::LateFields,
        Self::LateData,
        Self::Bomb,
        Self::Crumbs,
        Self::ClosedWindows,
        Self::Dribble,
        Self::Windows,
        Self::Overflow,
        Self::Shrink,
        Self::HalfBlock,
        Self::Smuggle,
        Self::EarlyTunnels,
    ];

    /// The name under which it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pings => "flood of PING",
            Self::Settings => "flood of SETTINGS",
            Self::Priorities => "flood of PRIORITY",
            Self::EmptyData => "flood of empty DATA",
            Self::Continuations => "flood of CONTINUATION",
            Self::EmptyBlocks => "flood of empty CONTINUATION",
            Self::EmptyNames => "fields without a name",
            Self::RapidReset => "rapid reset",
            Self::MadeReset(_) => "resets that are made",
            Self::LateFields => "flood of fields behind a reset",
            Self::LateData => "flood of DATA behind a reset",
            Self::Bomb => "bomb of fields",
            Self::Crumbs => "crumbs of cookies",
            Self::ClosedWindows => "closed windows",
            Self::Dribble => "dribble of windows",
            Self::Windows => "flood of WINDOW_UPDATE",
            Self::Overflow => "window that overflows",
            Self::Shrink => "window of less than nothing",
            Self::HalfBlock => "half a field block",
            Self::Smuggle => "smuggled requests",
            Self::EarlyTunnels => "early WebSockets",
        }
    }

    pub(super) fn end(self) -> End {
        match self {
            Self::Bomb | Self::ClosedWindows | Self::Shrink => End::None,
            Self::Crumbs => End::Streams(STREAMS as usize),
            Self::Smuggle => End::Streams(smuggling::forms().len()),
            Self::EarlyTunnels => End::Streams(smuggling::early_tunnels().len()),
            Self::HalfBlock => End::Connection(HEADER_TIMEOUT + PROMPT),
            _ => End::Connection(PROMPT),
        }
    }

    /// Returns true if its streams may be served, and end then.
    pub(super) fn may_be_served(self) -> bool {
        self == Self::EarlyTunnels
    }

    /// Bytes of bodies that may come on a stream at most.
    pub(super) fn body_bytes_max(self) -> usize {
        match self {
            Self::ClosedWindows | Self::Crumbs => 0,
            Self::Dribble => FLOOD,
            Self::Shrink => SHRUNK as usize,
            _ => usize::MAX,
        }
    }

    /// All that it sends at first.
    pub(super) fn bytes(self) -> Vec<u8> {
        let mut out = frames::PREFACE.to_vec();
        let window = match self {
            Self::ClosedWindows | Self::Dribble | Self::Crumbs => 0,
            Self::Shrink => SHRUNK,
            _ => 65_535,
        };
        frames::write_setting(setting::INITIAL_WINDOW_SIZE, window, &mut out);
        match self {
            Self::RapidReset => of_streams(400, |stream| {
                frames::write(kind::HEADERS, WHOLE, stream, &get(WAITS), &mut out);
                frames::write_number(kind::RST_STREAM, stream, code::CANCEL, &mut out);
            }),
            Self::MadeReset(made) => of_streams(400, |stream| made.write(stream, &mut out)),
            Self::EmptyNames => of_streams(400, |stream| {
                let block = [get(WAITS), literal("", "")].concat();
                frames::write(kind::HEADERS, WHOLE, stream, &block, &mut out);
            }),
            Self::Bomb => {
                let mut block = get(NOW);
                block.extend_from_slice(&[INDEXING, 1, b'x', 127, 0xe1, 0x16]);
                block.extend_from_slice(&[b'.'; 3_040]);
                block.extend_from_slice(&[REFERENCE; 4_000]);
                frames::write(kind::HEADERS, WHOLE, 1, &block, &mut out);
            }
            Self::Crumbs => of_streams(STREAMS, |stream| {
                let mut block = get(NOW);
                block.extend_from_slice(&[INDEXING, 6]);
                block.extend_from_slice(b"cookie\0");
                block.extend_from_slice(&[REFERENCE; 200]);
                frames::write(kind::HEADERS, WHOLE, stream, &block, &mut out);
            }),
            Self::ClosedWindows => of_streams(STREAMS, |stream| {
                frames::write(kind::HEADERS, WHOLE, stream, &get(NOW), &mut out);
            }),
            Self::Smuggle => write_forms(&smuggling::forms(), &mut out),
            Self::EarlyTunnels => write_forms(&smuggling::early_tunnels(), &mut out),
            _ => self.flood(&mut out),
        }
        out
    }

    /// Sends the same frame again and again, on one stream at most.
    fn flood(self, out: &mut Vec<u8>) {
        let ends = flag::END_STREAM;
        match self {
            Self::LateFields | Self::LateData => Made::NoIncrement.write(1, out),
            Self::EmptyData => frames::write(kind::HEADERS, flag::END_HEADERS, 1, &post(), out),
            Self::EmptyBlocks => frames::write(kind::HEADERS, ends, 1, &[], out),
            Self::Continuations => frames::write(kind::HEADERS, ends, 1, &get(WAITS), out),
            Self::HalfBlock => frames::write(kind::HEADERS, ends, 1, &get(WAITS)[..20], out),
            Self::Shrink => frames::write(kind::HEADERS, WHOLE, 1, &get(NOW), out),
            Self::Dribble | Self::Windows => {
                frames::write(kind::HEADERS, WHOLE, 1, &get(WAITS), out);
            }
            _ => {}
        }
        let field = literal("x-part", "1");
        for number in 0..self.frames() {
            match self {
                Self::Pings => frames::write(kind::PING, 0, 0, &[7; 8], out),
                Self::Settings => frames::write(kind::SETTINGS, 0, 0, &[], out),
                Self::Priorities => {
                    // Each on the other, in a circle.
                    let (this, other) = [(1, 3), (3, 1)][number % 2];
                    frames::write(kind::PRIORITY, 0, this, &[0, 0, 0, other, 9], out);
                }
                Self::EmptyData => frames::write(kind::DATA, 0, 1, &[], out),
                Self::Continuations => frames::write(kind::CONTINUATION, 0, 1, &field, out),
                Self::EmptyBlocks => frames::write(kind::CONTINUATION, 0, 1, &[], out),
                Self::LateFields => frames::write(kind::HEADERS, WHOLE, 1, &field, out),
                Self::LateData => frames::write(kind::DATA, 0, 1, b"1", out),
                Self::Dribble => frames::write_number(kind::WINDOW_UPDATE, 1, 1, out),
                Self::Windows => frames::write_number(kind::WINDOW_UPDATE, 1, 1_024, out),
                Self::Overflow => frames::write_number(kind::WINDOW_UPDATE, 0, FULL_WINDOW, out),
                _ => {}
            }
        }
    }

    /// Frames that it sends again and again.
    fn frames(self) -> usize {
        match self {
            Self::HalfBlock | Self::Shrink => 0,
            Self::Overflow => 1,
            Self::LateData => 4 * FLOOD,
            _ => FLOOD,
        }
    }

    /// All that it sends once it has got a part of a body.
    pub(super) fn then(self) -> Vec<u8> {
        let mut out = Vec::new();
        if self == Self::Shrink {
            frames::write_setting(setting::INITIAL_WINDOW_SIZE, 0, &mut out);
            frames::write_number(kind::WINDOW_UPDATE, 1, SHRUNK / 2, &mut out);
        }
        out
    }
}

/// Writes each on a stream.
fn write_forms(forms: &[Form], out: &mut Vec<u8>) {
    let streams = (1..).step_by(2);
    let each = forms.iter().zip(streams);
    each.for_each(|(form, stream)| form.write(stream, out));
}

/// Does it for so many streams.
fn of_streams(count: u32, begin: impl FnMut(u32)) {
    (0..count).map(|number| 2 * number + 1).for_each(begin);
}

/// The time for a field block (`limits.header_timeout`).
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// Frames of a flood.
const FLOOD: usize = 800;
/// Streams that a client may have open.
const STREAMS: u32 = 128;
/// The most that a window may have.
const FULL_WINDOW: u32 = (1 << 31) - 1;
/// The window that shrinks.
const SHRUNK: u32 = 8;
/// A field that goes into the table, and a reference to the newest entry of that.
const INDEXING: u8 = 0x40;
const REFERENCE: u8 = 0xbe;
const WAITS: &str = "/poll/k0?wait=20";
const NOW: &str = "/poll/k0";

/// The block of a GET.
fn get(path: &str) -> Vec<u8> {
    // `:method: GET` and `:scheme: http` of the static table.
    let fields = [
        vec![0x82, 0x86],
        literal(":path", path),
        literal(":authority", "edge"),
    ];
    fields.concat()
}

/// The block of a POST whose body follows.
fn post() -> Vec<u8> {
    let fields = [
        vec![0x83, 0x86],
        literal(":path", NOW),
        literal(":authority", "edge"),
        literal("content-length", "5"),
    ];
    fields.concat()
}
