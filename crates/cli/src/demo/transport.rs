//! The three transports, each with a server and clients of its own.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

/// The key that is set, and that clients poll.
pub(super) const KEY: &str = "/poll/demo";

/// The transport by which clients wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Transport {
    LongPoll,
    EventStream,
    WebSocket,
}

impl Transport {
    pub(super) const ALL: [Self; 3] = [Self::LongPoll, Self::EventStream, Self::WebSocket];

    /// The name in options, documents and messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::LongPoll => "long-poll",
            Self::EventStream => "event-stream",
            Self::WebSocket => "websocket",
        }
    }

    /// The address by which the engine's clients connect.
    pub(super) fn url(self, server: SocketAddr) -> String {
        match self {
            Self::LongPoll => format!("http://{server}"),
            Self::EventStream => format!("tcp://{server}"),
            Self::WebSocket => format!("ws://{server}{KEY}"),
        }
    }
}

impl fmt::Display for Transport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Transport {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let mut all = Self::ALL.into_iter();
        all.find(|transport| transport.name() == text)
            .ok_or_else(|| format!("no transport: {text}"))
    }
}
