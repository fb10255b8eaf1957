//! The options of WebSockets, and their acts.

use crate::chance::random;
use crate::pick::Pick;
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
        /// The cursor that it names.
        says: Pick,
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

    /// The route allows nothing to be published.
    pub(crate) fn publish_nothing(&mut self) {
        self.publishes = false;
        self.publishers.fill(None);
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
    pub(in crate::socket) fn path(&self) -> String {
        match self {
            Self::Path(key) => format!("/poll/k{key}"),
            Self::Named { is_long: true, .. } => "/poll/k".to_owned(),
            Self::Named { is_long: false, .. } => "/poll/".to_owned(),
        }
    }

    /// The name by which it asks for a key, if it can.
    pub(in crate::socket) fn label(&self, key: usize) -> Option<String> {
        match self {
            Self::Path(own) => (*own == key).then(String::new),
            Self::Named { is_long: true, .. } => Some(format!("{key}")),
            Self::Named { is_long: false, .. } => Some(format!("k{key}")),
        }
    }
}
