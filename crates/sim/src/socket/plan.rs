//! What sockets do, drawn before the run begins.

use crate::options::{Fault, Options, random};
use crate::plan::Step;
use dwell_evloop::Random;
use std::time::Duration;

/// The keys that a WebSocket is opened for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Opening {
    /// The key of its path.
    Path(usize),
    /// Keys that the query names, behind a part of their path.
    Named {
        /// The path, which has a part of each name or none.
        is_long: bool,
        /// The keys, in their order.
        keys: Vec<usize>,
    },
}

/// One act of a WebSocket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Act {
    /// It follows a key, and perhaps says what it has.
    Subscribe {
        /// The number of the key.
        key: usize,
        /// It names the cursor that it was sent last.
        has: bool,
    },
    /// It follows a key no longer.
    Unsubscribe {
        /// The number of the key.
        key: usize,
    },
    /// It stores the next value of a key.
    Publish {
        /// The number of the key.
        key: usize,
        /// Bytes beside the mark of the value.
        length: usize,
    },
    /// It sends a ping with so many bytes.
    Ping(usize),
    /// It sends a pong that nothing has asked for.
    Pong,
    /// It closes with a code.
    Close(u16),
    /// It breaks the protocol in this way: one of [`BREACHES`].
    Break(usize),
    /// It resets the connection.
    Reset,
    /// It leaves without a frame.
    Leave,
    /// It ends its sending side.
    HalfClose,
    /// Its machine is gone and tells nothing.
    Silence,
    /// It reads little for a while.
    SlowRead(Duration),
    /// It writes little for a while.
    SlowWrite(Duration),
}

/// Breaches of the protocol, with the code by which each ends the connection.
pub const BREACHES: [(&str, u16); 6] = [
    ("a binary message", 1003),
    ("a text that is no command", 1008),
    ("a message beyond the limit", 1009),
    ("a frame without a mask", 1002),
    ("a frame of an unknown kind", 1002),
    ("a text that is not UTF-8", 1007),
];

/// The options of a seed's WebSockets.
#[derive(Clone, Debug)]
pub struct SocketOptions {
    /// The WebSockets.
    pub openings: Vec<Opening>,
    /// The route allows its WebSockets to publish.
    pub publishes: bool,
    /// The WebSocket that writes each key, where no client of the store does.
    pub publishers: Vec<Option<usize>>,
}

impl SocketOptions {
    pub(crate) fn of(seed: u64, keys: usize) -> Self {
        let mut random = random(seed, 5);
        let count = random.below(4) as usize;
        let openings: Vec<_> = (0..count).map(|_| opening(&mut random, keys)).collect();
        let is_allowed = random.below(2) == 0;
        let mut writer_of = |key| {
            let place = random.below(2 * openings.len() as u64) as usize;
            let reaches = |opening: &Opening| opening.label(key).is_some();
            let is_one = is_allowed && openings.get(place).is_some_and(reaches);
            is_one.then_some(place)
        };
        let publishers = (0..keys).map(&mut writer_of).collect();
        Self {
            openings,
            publishes: is_allowed,
            publishers,
        }
    }
}

fn opening(random: &mut Random, keys: usize) -> Opening {
    if random.below(3) == 0 {
        return Opening::Path(random.below(keys as u64) as usize);
    }
    let is_long = random.below(2) == 0;
    let first = random.below(keys as u64) as usize;
    let count = 1 + random.below(keys as u64) as usize;
    let keys = (0..count).map(|place| (first + place) % keys).collect();
    Opening::Named { is_long, keys }
}

impl Opening {
    /// The path of its request.
    pub(super) fn path(&self) -> String {
        match self {
            Self::Path(key) => format!("/poll/k{key}"),
            Self::Named { is_long: true, .. } => "/poll/k".to_owned(),
            Self::Named { is_long: false, .. } => "/poll/".to_owned(),
        }
    }

    /// The name by which it asks for a key, if it can.
    pub(super) fn label(&self, key: usize) -> Option<String> {
        match self {
            Self::Path(own) => (*own == key).then(String::new),
            Self::Named { is_long: true, .. } => Some(format!("{key}")),
            Self::Named { is_long: false, .. } => Some(format!("k{key}")),
        }
    }
}

/// Puts what sockets do between the steps of a plan.
pub(crate) fn insert_steps(options: &Options, steps: &mut Vec<(Duration, Step)>) {
    let sockets = options.sockets.openings.len();
    if sockets == 0 {
        return;
    }
    let mut random = random(options.seed, 6);
    for _ in 0..sockets * 8 {
        let socket = random.below(sockets as u64) as usize;
        let Some(act) = act(&mut random, options) else {
            continue;
        };
        let place = random.below(steps.len() as u64 + 1) as usize;
        let pause = Duration::from_micros(random.below(500));
        steps.insert(place, (pause, Step::Socket(socket, act)));
    }
}

fn act(random: &mut Random, options: &Options) -> Option<Act> {
    let key = random.below(options.keys as u64) as usize;
    Some(match random.below(16) {
        0..4 => Act::Subscribe {
            key,
            has: random.below(2) == 0,
        },
        4..7 => Act::Unsubscribe { key },
        7..9 => Act::Ping(random.below(126) as usize),
        9 => Act::Pong,
        10 => Act::Close([1000, 1001, 3000, 4999][random.below(4) as usize]),
        11 if !options.sockets.publishes => Act::Publish { key, length: 0 },
        _ => return disturbance(random, options),
    })
}

/// A fault of a kind that the run has.
fn disturbance(random: &mut Random, options: &Options) -> Option<Act> {
    let kinds = options.faults.len() as u64;
    let fault = options.faults.get(random.below(kinds) as usize)?;
    let some_time = Duration::from_millis(random.below(1_500));
    Some(match fault {
        Fault::Reset => Act::Reset,
        Fault::Leave => Act::Leave,
        Fault::HalfClose => Act::HalfClose,
        Fault::Silence => Act::Silence,
        Fault::SlowRead => Act::SlowRead(some_time),
        Fault::SlowWrite => Act::SlowWrite(some_time),
        Fault::Breach => Act::Break(random.below(BREACHES.len() as u64) as usize),
        _ => return None,
    })
}
