//! Watchers of a key: held polls, streams and WebSockets, counted.

use super::Polls;
use super::explanation::Explained;
use super::tables::{Sink, kind};
use dwell_evloop::Token;
use serde::Serialize;
use std::ops::AddAssign;

/// A question to one loop.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Question {
    /// The watchers of the keys with this prefix.
    Prefix(Box<[u8]>),
    /// The watchers of the key of this request; the first loop reads its value as well.
    Request(Explained),
}

/// Watchers of one key, by transport.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Watchers {
    /// Held polls.
    pub(crate) polls: u64,
    /// Streams of events.
    pub(crate) streams: u64,
    /// WebSockets.
    pub(crate) websockets: u64,
}

impl Watchers {
    /// The sum over all transports.
    pub(crate) fn total(self) -> u64 {
        self.polls + self.streams + self.websockets
    }
}

impl AddAssign for Watchers {
    fn add_assign(&mut self, other: Self) {
        self.polls += other.polls;
        self.streams += other.streams;
        self.websockets += other.websockets;
    }
}

impl Polls {
    /// Watched keys that `question` asks for, each with its watchers.
    pub(crate) fn watched(&self, question: &Question) -> Vec<(Box<[u8]>, Watchers)> {
        match question {
            Question::Prefix(prefix) => {
                let named = |key: Token| Some((key, &self.waiters.keys.get(key)?.name));
                let keys = self
                    .waiters
                    .keys
                    .waited_keys()
                    .into_iter()
                    .filter_map(named);
                keys.filter(|(_, name)| name.starts_with(prefix))
                    .map(|(key, name)| (Box::from(&**name), self.watchers_of(key)))
                    .collect()
            }
            Question::Request(explained) => {
                let key = self.explained_key(explained);
                let found = key.as_deref().and_then(|name| self.waiters.keys.find(name));
                let watchers = found.map(|key| self.watchers_of(key));
                key.into_iter().zip(watchers).collect()
            }
        }
    }

    fn watchers_of(&self, key: Token) -> Watchers {
        let mut watchers = Watchers::default();
        let members = self
            .waiters
            .keys
            .get(key)
            .map(|record| record.waiting.members());
        for member in members.unwrap_or_default() {
            // Among the members there may be some who left.
            match member.kind() {
                kind::POLL => {
                    let poll = self.waiters.records.get(*member);
                    let waits = poll.is_some_and(|poll| poll.waits_for() == Some(key));
                    watchers.polls += u64::from(waits);
                }
                kind::SEVERAL => {
                    watchers.polls += u64::from(self.waiters.several.get(*member).is_some());
                }
                _ => match self.waiters.feeds.get(*member).map(|feed| feed.sink) {
                    Some(Sink::Events(_)) => watchers.streams += 1,
                    Some(Sink::Leaving(_) | Sink::Socket(_)) => watchers.websockets += 1,
                    None => {}
                },
            }
        }
        watchers
    }
}
