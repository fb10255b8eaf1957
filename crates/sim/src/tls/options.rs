//! Options of a run with TLS, and the connections that break it.

use super::sealer::{ALERT, DATA, HANDSHAKE, Sealer};
use crate::chance::random;
use dwell_evloop::Random;
use std::time::Duration;

/// A kind of fault under TLS, which a seed has or has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum TlsFault {
    /// Clients stall in the handshake, or before it.
    Stall,
    /// So many at once that the oldest ones give way.
    Flood,
    /// HTTP without TLS comes to a port under TLS, TLS to a plain one, or something else.
    Wrong,
    /// Records after the handshake are broken.
    Breach,
    /// Clients end in the middle of a request.
    End,
}

impl TlsFault {
    /// All kinds.
    pub const ALL: [Self; 5] = [
        Self::Stall,
        Self::Flood,
        Self::Wrong,
        Self::Breach,
        Self::End,
    ];

    /// The name under which it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stall => "stalled handshake",
            Self::Flood => "flood of handshakes",
            Self::Wrong => "no TLS, or TLS elsewhere",
            Self::Breach => "broken record",
            Self::End => "end in mid-request",
        }
    }
}

/// The way in which a client makes records.
#[derive(Clone, Copy, Default, Debug)]
pub struct Habits {
    /// They are made by hand, under TLS 1.3.
    pub is_own: bool,
    /// Data in one of them, at most.
    pub record_bytes_max: u64,
    /// Padding in one of them, at most.
    pub padding_max: u64,
    /// One record in so many has one without data before it; 0 is none.
    pub extra_one_in: u64,
    /// The record that ends the handshake is broken.
    pub flips_finished: bool,
}

/// One connection that breaks TLS, or leaves in the middle of it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Intrusion {
    /// It says nothing.
    Silent,
    /// It sends half of its first message.
    HalfHello,
    /// It sends its first message, and nothing more.
    Hello,
    /// It speaks HTTP without TLS where TLS is wanted.
    Plain,
    /// It speaks TLS where there is none.
    Elsewhere,
    /// It begins with a record that is no `ClientHello`.
    Nonsense,
    /// Its last record of the handshake is broken.
    Finished,
    /// It breaks a rule in the middle of a request: one of a table.
    Breach(usize),
    /// Its connection ends in the middle of a request, without `close_notify`.
    Cut,
    /// It sends `close_notify` in the middle of a request.
    Goodbye,
    /// It gives up by an alert in the middle of a request.
    Alert,
}

/// Appends records that break a rule; the last two bytes of a request are in them or behind them.
type Break = fn(&mut Sealer, &mut Vec<u8>);

/// Breaches of the protocol in an established connection, with the alert by which each ends it.
pub(crate) const BREACHES: [(&str, u8, Break); 13] = [
    ("a bit that is flipped", 20, |sealer, out| {
        sealer.seal(DATA, b"\r\n", 0, out);
        let place = out.len() - 3;
        out[place] ^= 4;
    }),
    ("a record that comes twice", 20, |sealer, out| {
        let begin = out.len();
        sealer.seal(DATA, b"X-Twice: 1\r\n", 0, out);
        out.extend_from_within(begin..);
    }),
    ("an unknown type within", 10, |sealer, out| {
        sealer.seal(99, b"\r\n", 0, out);
    }),
    ("nothing but padding", 10, |sealer, out| {
        sealer.seal_inner(vec![0; 40], out);
    }),
    ("an unprotected record", 10, |_, out| {
        out.extend_from_slice(&[HANDSHAKE, 3, 3, 0, 2, 13, 10]);
    }),
    ("a record that is too long", 22, |_, out| {
        out.extend_from_slice(&[DATA, 3, 3, 0x41, 0x01, 13, 10]);
    }),
    ("a second ClientHello", 10, |sealer, out| {
        sealer.seal(HANDSHAKE, &[1, 0, 0, 2, 3, 3], 0, out);
    }),
    ("a key update that asks for 7", 47, |sealer, out| {
        sealer.seal(HANDSHAKE, &[24, 0, 0, 1, 7], 0, out);
    }),
    ("a message behind a key update", 10, |sealer, out| {
        sealer.seal(HANDSHAKE, &[24, 0, 0, 1, 0, 24], 0, out);
    }),
    ("an alert of three bytes", 50, |sealer, out| {
        sealer.seal(ALERT, &[1, 0, 0], 0, out);
    }),
    ("an empty message", 10, |sealer, out| {
        sealer.seal(HANDSHAKE, b"", 9, out);
    }),
    ("records without data and without end", 10, |sealer, out| {
        (0..33).for_each(|_| sealer.seal(DATA, b"", 0, out));
    }),
    ("a late change_cipher_spec", 10, |_, out| {
        out.extend_from_slice(&[20, 3, 3, 0, 1, 1]);
    }),
];

/// The options of a run in which the edge listens under TLS, too.
#[derive(Clone, Debug)]
pub struct TlsOptions {
    /// The kinds of faults that it has.
    pub faults: Vec<TlsFault>,
    /// A bit for each client that is under TLS.
    pub clients: u64,
    /// The way in which their records are made.
    pub habits: Habits,
    /// Handshakes that may be in progress in a loop.
    pub handshakes_max: usize,
}

/// Runs with TLS are one in so many.
const ONE_IN: u64 = 4;

impl TlsOptions {
    pub(crate) fn of(seed: u64) -> Option<Self> {
        let mut random = random(seed, 40);
        if random.below(ONE_IN) > 0 {
            return None;
        }
        let faults = TlsFault::ALL.into_iter();
        let faults: Vec<_> = faults.filter(|_| random.below(2) == 0).collect();
        let habits = Habits {
            is_own: random.below(3) > 0,
            record_bytes_max: [1 << 14, 200, 5][random.below(3) as usize],
            padding_max: [0, 0, 300][random.below(3) as usize],
            extra_one_in: [0, 2, 10][random.below(3) as usize],
            flips_finished: false,
        };
        Some(Self {
            handshakes_max: if faults.contains(&TlsFault::Flood) {
                FLOOD_BOUND
            } else {
                1000
            },
            faults,
            clients: random.draw() | random.draw(),
            habits,
        })
    }

    fn intrusion(&self, random: &mut Random) -> Option<(TlsFault, Intrusion)> {
        let fault = *self
            .faults
            .get(random.below(self.faults.len() as u64) as usize)?;
        let choice = random.below(3) as usize;
        let intrusion = match fault {
            TlsFault::Stall => [Intrusion::Silent, Intrusion::HalfHello, Intrusion::Hello][choice],
            TlsFault::Flood => Intrusion::Hello,
            TlsFault::Wrong => {
                [Intrusion::Plain, Intrusion::Elsewhere, Intrusion::Nonsense][choice]
            }
            TlsFault::Breach => match random.below(BREACHES.len() as u64 + 1) as usize {
                0 => Intrusion::Finished,
                place => Intrusion::Breach(place - 1),
            },
            TlsFault::End => [Intrusion::Cut, Intrusion::Goodbye, Intrusion::Alert][choice],
        };
        Some((fault, intrusion))
    }
}

/// Handshakes that may be in progress in a loop where clients come in floods: more than all other
/// clients of a run together have.
const FLOOD_BOUND: usize = 16;
/// Connections of a flood.
const FLOOD: usize = 24;

/// The connections of a seed that break TLS, each behind so many of the steps before it and after a
/// pause.
pub(crate) fn intrusion_steps(
    seed: u64,
    options: &TlsOptions,
    steps: usize,
) -> Vec<(usize, Duration, (TlsFault, Intrusion, usize))> {
    let mut random = random(seed, 43);
    let mut drawn = Vec::new();
    for number in 0..6 {
        let place = random.below((steps + number) as u64 + 1) as usize;
        let pause = Duration::from_micros(random.below(500));
        if let Some((fault, intrusion)) = options.intrusion(&mut random) {
            let count = if fault == TlsFault::Flood { FLOOD } else { 1 };
            drawn.push((place, pause, (fault, intrusion, count)));
        }
    }
    drawn
}
