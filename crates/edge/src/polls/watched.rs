//! Who watches a key now.

use super::Polls;
use super::tables::{Sink, kind};
use crate::ops::inquiry::{Question, Watchers};
use dwell_evloop::Token;

impl Polls {
    /// The keys that are asked for and watched, each with those who watch it.
    pub(crate) fn watched(&self, question: &Question) -> Vec<(Box<[u8]>, Watchers)> {
        match question {
            Question::Prefix(prefix) => {
                let named = |key: Token| Some((key, &self.keys.get(key)?.name));
                let keys = self.keys.waited_keys().into_iter().filter_map(named);
                keys.filter(|(_, name)| name.starts_with(prefix))
                    .map(|(key, name)| (Box::from(&**name), self.watchers_of(key)))
                    .collect()
            }
            Question::Request(explained) => {
                let key = self.explained_key(explained);
                let found = key.as_deref().and_then(|name| self.keys.find(name));
                let watchers = found.map(|key| self.watchers_of(key));
                key.into_iter().zip(watchers).collect()
            }
        }
    }

    fn watchers_of(&self, key: Token) -> Watchers {
        let mut watchers = Watchers::default();
        let members = self.keys.get(key).map(|record| record.waiting.members());
        for member in members.unwrap_or_default() {
            // Among the members there may be some who left.
            match member.kind() {
                kind::POLL => {
                    let poll = self.records.get(*member);
                    let waits = poll.is_some_and(|poll| poll.waits_for() == Some(key));
                    watchers.polls += u64::from(waits);
                }
                kind::SEVERAL => {
                    watchers.polls += u64::from(self.several.get(*member).is_some());
                }
                _ => match self.feeds.get(*member).map(|feed| feed.sink) {
                    Some(Sink::Events(_)) => watchers.streams += 1,
                    Some(Sink::Leaving(_) | Sink::Socket(_)) => watchers.websockets += 1,
                    None => {}
                },
            }
        }
        watchers
    }
}
