//! Options of a run in which clients speak HTTP/2, and what befalls their connections.

use super::attack::Attack;
use crate::chance::random;
use dwell_evloop::Random;
use std::time::Duration;

/// The options of a run in which some clients speak HTTP/2.
#[derive(Clone, Debug)]
pub struct H2Options {
    /// Places for connections, which clients share.
    pub browsers: usize,
    /// A bit for each client that has its requests on streams.
    pub clients: u64,
    /// A bit for each place whose connections are under TLS, where the edge listens under it.
    pub secure: u64,
    /// The publisher that writes each key over HTTP, where no one else does.
    pub publishers: Vec<Option<usize>>,
    /// The faults that it has.
    pub faults: Vec<BrowserFault>,
}

/// The way in which the client of a connection makes frames.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Habits {
    /// The initial window of streams; with 0, each window is opened by hand.
    pub(super) window: i64,
    /// Field blocks come in several frames.
    pub(super) splits: bool,
    /// Frames have padding, and heads a priority.
    pub(super) pads: bool,
}

/// Something that befalls a connection of HTTP/2.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BrowserAct {
    /// It is reset.
    Reset,
    /// It is closed.
    Leave,
    /// Its machine is gone.
    Silence,
    /// Its client ends its sending side.
    HalfClose,
    /// Its client says that it begins nothing more.
    GoAway,
    /// Its client asks whether the server is there.
    Ping,
    /// Its client says another initial window.
    Window(i64),
    /// Its client reads little for a while.
    SlowRead(Duration),
    /// Its client sends little for a while.
    SlowWrite(Duration),
    /// Its client does not open the window of the connection for a while.
    CloseWindow(Duration),
    /// Another one comes, and attacks.
    Attack(Attack),
}

/// A kind of what befalls connections of HTTP/2, which a seed has or has not.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BrowserFault {
    /// A connection ends, in one way or another.
    End,
    /// A client says that it begins nothing more.
    GoAway,
    /// PING, and settings.
    Control,
    /// Little is read or sent.
    Slow,
    /// The window of a connection is closed.
    Closed,
    /// Connections cost much and ask for little.
    Attack,
}

impl BrowserFault {
    /// All kinds.
    pub const ALL: [Self; 6] = [
        Self::End,
        Self::GoAway,
        Self::Control,
        Self::Slow,
        Self::Closed,
        Self::Attack,
    ];
}

impl BrowserAct {
    /// The name under which it is counted.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reset | Self::Leave | Self::Silence | Self::HalfClose => {
                "end of a connection of HTTP/2"
            }
            Self::GoAway => "GOAWAY of a client",
            Self::Ping => "PING of a client",
            Self::Window(_) => "another initial window",
            Self::SlowRead(_) | Self::SlowWrite(_) => "slow connection of HTTP/2",
            Self::CloseWindow(_) => "closed window of a connection",
            Self::Attack(attack) => attack.name(),
        }
    }

    fn draw(fault: BrowserFault, random: &mut Random) -> Self {
        let time = Duration::from_millis(random.below(1_500));
        let choice = random.below(4) as usize;
        match fault {
            BrowserFault::End => [Self::Reset, Self::Leave, Self::Silence, Self::HalfClose][choice],
            BrowserFault::GoAway => Self::GoAway,
            BrowserFault::Control if choice < 2 => Self::Ping,
            BrowserFault::Control => Self::Window(window(random)),
            BrowserFault::Slow if choice < 2 => Self::SlowRead(time),
            BrowserFault::Slow => Self::SlowWrite(time),
            BrowserFault::Closed => Self::CloseWindow(time),
            BrowserFault::Attack => {
                let place = random.below(Attack::ALL.len() as u64);
                Self::Attack(Attack::ALL[place as usize])
            }
        }
    }
}

/// Publishers of a run.
pub(crate) const PUBLISHERS: usize = 2;
/// Runs with HTTP/2 are one in so many.
const ONE_IN: u64 = 3;

impl H2Options {
    /// The options of a seed; `writes` says of each key that it may have a publisher.
    pub(crate) fn of(seed: u64, writes: impl Iterator<Item = bool>) -> Option<Self> {
        let mut random = random(seed, 50);
        if random.below(ONE_IN) > 0 {
            return None;
        }
        let mut of_tls = crate::chance::random(seed, 54);
        let faults = BrowserFault::ALL.into_iter();
        let mut publisher = |may_have: bool| {
            let choice = random.below(2 * PUBLISHERS as u64) as usize;
            (may_have && choice < PUBLISHERS).then_some(choice)
        };
        let publishers = writes.map(&mut publisher).collect();
        Some(Self {
            publishers,
            browsers: 1 + random.below(2) as usize,
            clients: random.draw() | random.draw(),
            secure: of_tls.draw() | of_tls.draw(),
            faults: faults.filter(|_| random.below(2) == 0).collect(),
        })
    }
}

impl H2Options {
    /// Returns true if the connections of this place are under TLS, where they may be.
    pub(super) fn is_secure(&self, place: usize) -> bool {
        (self.secure >> (place % 64)) & 1 == 1
    }
}

impl Habits {
    /// The habits of the client of a connection.
    pub(super) fn draw(random: &mut Random) -> Self {
        Self {
            window: window(random),
            splits: random.below(2) == 0,
            pads: random.below(3) == 0,
        }
    }
}

fn window(random: &mut Random) -> i64 {
    [65_535, 1 << 20, 1_000, 100, 0][random.below(5) as usize]
}

/// The acts that befall connections of a seed, each behind so many of the steps before it and after
/// a pause.
pub(crate) fn h2_steps(
    seed: u64,
    options: Option<&H2Options>,
    steps: usize,
) -> Vec<(usize, Duration, usize, BrowserAct)> {
    let Some(own) = options else {
        return Vec::new();
    };
    let mut random = random(seed, 53);
    let mut drawn = Vec::new();
    for number in 0..12 {
        let place = random.below((steps + number) as u64 + 1) as usize;
        let pause = Duration::from_micros(random.below(5_000));
        let browser = random.below(own.browsers as u64) as usize;
        let fault = own
            .faults
            .get(random.below(own.faults.len().max(1) as u64) as usize);
        if let Some(fault) = fault {
            drawn.push((place, pause, browser, BrowserAct::draw(*fault, &mut random)));
        }
    }
    drawn
}
