//! Connections of HTTP/2 that cost much and ask for little, and the end that the server owes them.

use super::frames::{self, code, flag, kind, setting};
use crate::carrier::Carrier;
use crate::failure::Oracle;
use crate::keys::Broken;
use crate::patience::PROMPT;
use dwell_evloop::sim::SimStream;
use std::time::Duration;

/// An attack by frames (CVE-2019-9511 to 9518, CVE-2023-44487, CVE-2024-27316, CVE-2016-6581).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Attack {
    /// PING without end.
    Pings,
    /// SETTINGS without end.
    Settings,
    /// Frames of a body that have no data.
    EmptyData,
    /// A field block that goes on and on.
    Continuations,
    /// Requests that are reset at once.
    RapidReset,
    /// Streams that another error resets, which the client has made (`MadeYouReset`).
    MadeReset,
    /// A small block of many references to a long field.
    Bomb,
    /// All streams wait for windows that stay closed.
    ClosedWindows,
    /// Windows that are opened by one byte at a time.
    Dribble,
    /// A field block that ends in its middle.
    HalfBlock,
}

impl Attack {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Pings,
        Self::Settings,
        Self::EmptyData,
        Self::Continuations,
        Self::RapidReset,
        Self::MadeReset,
        Self::Bomb,
        Self::ClosedWindows,
        Self::Dribble,
        Self::HalfBlock,
    ];

    /// The name under which it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Self::Pings => "flood of PING",
            Self::Settings => "flood of SETTINGS",
            Self::EmptyData => "flood of empty DATA",
            Self::Continuations => "flood of CONTINUATION",
            Self::RapidReset => "rapid reset",
            Self::MadeReset => "resets that are made",
            Self::Bomb => "bomb of fields",
            Self::ClosedWindows => "closed windows",
            Self::Dribble => "dribble of windows",
            Self::HalfBlock => "half a field block",
        }
    }

    /// The time after which its connection must have ended, behind its last byte; `None` where it
    /// may last.
    fn patience(self) -> Option<Duration> {
        match self {
            Self::Bomb | Self::ClosedWindows => None,
            Self::HalfBlock => Some(HEADER_TIMEOUT + PROMPT),
            _ => Some(PROMPT),
        }
    }

    /// All that it sends.
    fn bytes(self) -> Vec<u8> {
        let mut out = frames::PREFACE.to_vec();
        let window = match self {
            Self::ClosedWindows | Self::Dribble => 0,
            _ => 65_535,
        };
        frames::write_setting(setting::INITIAL_WINDOW_SIZE, window, &mut out);
        let (whole, ends) = (flag::END_HEADERS | flag::END_STREAM, flag::END_STREAM);
        let stream = |number: u32| 2 * number + 1;
        match self {
            Self::Pings => {
                (0..800).for_each(|_| frames::write(kind::PING, 0, 0, &[7; 8], &mut out));
            }
            Self::Settings => {
                (0..800).for_each(|_| frames::write(kind::SETTINGS, 0, 0, &[], &mut out));
            }
            Self::EmptyData => {
                frames::write(kind::HEADERS, flag::END_HEADERS, 1, &post(), &mut out);
                (0..800).for_each(|_| frames::write(kind::DATA, 0, 1, &[], &mut out));
            }
            Self::Continuations => {
                frames::write(kind::HEADERS, ends, 1, &get(WAITS), &mut out);
                let part = literal("x-part", "1");
                (0..400).for_each(|_| frames::write(kind::CONTINUATION, 0, 1, &part, &mut out));
            }
            Self::RapidReset => (0..400).for_each(|number| {
                frames::write(kind::HEADERS, whole, stream(number), &get(WAITS), &mut out);
                frames::write_number(kind::RST_STREAM, stream(number), code::CANCEL, &mut out);
            }),
            Self::MadeReset => (0..400).for_each(|number| {
                frames::write(kind::HEADERS, whole, stream(number), &get(WAITS), &mut out);
                frames::write_number(kind::WINDOW_UPDATE, stream(number), 0, &mut out);
            }),
            Self::Bomb => {
                let mut block = get("/poll/k0");
                block.extend_from_slice(&[0x40, 1, b'x', 127, 0xe1, 0x16]);
                block.extend_from_slice(&[b'.'; 3_040]);
                block.extend_from_slice(&[REFERENCE; 4_000]);
                frames::write(kind::HEADERS, whole, 1, &block, &mut out);
            }
            Self::ClosedWindows => (0..STREAMS).for_each(|number| {
                frames::write(kind::HEADERS, whole, stream(number), &get(NOW), &mut out);
            }),
            Self::Dribble => {
                frames::write(kind::HEADERS, whole, 1, &get(WAITS), &mut out);
                (0..800).for_each(|_| frames::write_number(kind::WINDOW_UPDATE, 1, 1, &mut out));
            }
            Self::HalfBlock => frames::write(kind::HEADERS, ends, 1, &get(WAITS)[..20], &mut out),
        }
        out
    }
}

/// The time for a field block (`limits.header_timeout`).
const HEADER_TIMEOUT: Duration = Duration::from_secs(10);
/// The time after which one leaves that may last.
const LASTS: Duration = Duration::from_secs(3);
/// Streams that a client may have open.
const STREAMS: u32 = 128;
/// A reference to the newest entry of the table.
const REFERENCE: u8 = 0xbe;
const WAITS: &str = "/poll/k0?wait=20";
const NOW: &str = "/poll/k0";

/// A literal field of a block, without a table.
fn literal(name: &str, value: &str) -> Vec<u8> {
    let mut field = vec![0];
    for text in [name, value] {
        field.push(text.len() as u8);
        field.extend_from_slice(text.as_bytes());
    }
    field
}

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

/// One connection of these.
pub(super) struct Attacker {
    attack: Attack,
    carrier: Carrier,
    output: Vec<u8>,
    input: Vec<u8>,
    /// The moment at which all was sent.
    sent_at: Option<Duration>,
    /// The last moment at which something hindered it.
    clear_since: Duration,
    is_over: bool,
}

impl Attacker {
    pub(super) fn new(attack: Attack, carrier: Carrier) -> Self {
        Self {
            attack,
            clear_since: carrier.elapsed(),
            carrier,
            output: attack.bytes(),
            input: Vec::new(),
            sent_at: None,
            is_over: false,
        }
    }

    pub(super) fn is_over(&self) -> bool {
        self.is_over
    }

    /// Sends what the network takes, and checks that its connection ends.
    pub(super) fn attend(&mut self, hindered_until: Duration) -> Result<(), Broken> {
        let now = self.carrier.elapsed();
        self.clear_since = self.clear_since.max(hindered_until);
        let written = self.carrier.write(&self.output).unwrap_or(0);
        self.output.drain(..written);
        let is_sent = self.output.is_empty() && !self.carrier.has_pending();
        if is_sent && !self.carrier.is_shaking() {
            self.sent_at.get_or_insert(now);
        }
        if self.carrier.is_readable() && !self.carrier.read_all(&mut self.input) {
            self.is_over = true;
            return Ok(());
        }
        let Some(sent_at) = self.sent_at else {
            return Ok(());
        };
        let since = sent_at.max(self.clear_since);
        match self.attack.patience() {
            None if now > sent_at + LASTS => {
                self.is_over = true;
                self.carrier.leave(SimStream::close);
                Ok(())
            }
            Some(patience) if now > since + patience => {
                let name = self.attack.name();
                let reason = format!("a {name} goes on");
                Err((Oracle::Bounds, reason))
            }
            _ => Ok(()),
        }
    }
}
