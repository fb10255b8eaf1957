//! The tokens of the connections and deadlines of a server.

use dwell_evloop::Token;

/// One of the deadlines and connections of a server.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Part {
    Plain,
    Tracked,
    /// The deadline until which reads are held back.
    Pace,
    /// The time of the next question for the topology, of the first server of a cluster.
    Topology,
    /// As `Plain`, which it takes turns with where the server gets another place.
    Other,
}

impl Part {
    /// The server and its part that a token is of.
    pub(crate) fn of(token: Token) -> (usize, Self) {
        let part = match token.index() % PARTS {
            0 => Self::Plain,
            1 => Self::Tracked,
            2 => Self::Pace,
            3 => Self::Topology,
            _ => Self::Other,
        };
        ((token.index() / PARTS) as usize, part)
    }

    pub(crate) fn token(self, kind: u8, server: usize) -> Token {
        Token::new(kind, 0, server as u32 * PARTS + self as u32)
    }
}

/// Indices of tokens that are of one server.
const PARTS: u32 = 5;
