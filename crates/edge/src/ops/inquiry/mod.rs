//! Questions to all loops: who watches what.
//!
//! A client of the admin listener asks the first loop, which has it; that one asks every loop
//! through its inbox, itself among them, and answers when all have said what they know, or when
//! the time for it is over. A loop answers from its own tables, between two events.

mod desk;
mod watched;

pub(crate) use desk::{Asked, Desk, EXPLAIN_PATH, WATCHED_PATH};

use crate::event_loop::EdgeLoop;
use crate::polls::{Explained, Valued};
use dwell_evloop::Context;
use serde::Serialize;
use std::collections::HashMap;
use std::ops::AddAssign;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One question, and what the loops have said to it so far.
#[derive(Debug)]
pub(crate) struct Inquiry {
    pub(crate) question: Question,
    said: Mutex<Said>,
}

/// What the loops are asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Question {
    /// Who watches the keys that begin so.
    Prefix(Box<[u8]>),
    /// Who watches the key of this request; the first loop looks for its value as well.
    Request(Explained),
}

/// What is known of keys that are watched, by their names.
pub(crate) type Watched = HashMap<Box<[u8]>, Watchers>;

#[derive(Debug, Default)]
struct Said {
    watched: Watched,
    loops: usize,
    value: Option<Valued>,
}

/// Those who watch one key.
#[derive(Clone, Copy, Default, PartialEq, Eq, Debug, Serialize)]
pub(crate) struct Watchers {
    /// Polls that are held.
    pub(crate) polls: u64,
    /// Streams of events.
    pub(crate) streams: u64,
    /// WebSockets.
    pub(crate) websockets: u64,
}

impl Watchers {
    /// All of them.
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

impl Inquiry {
    pub(crate) fn new(question: Question) -> Arc<Self> {
        let said = Mutex::default();
        Arc::new(Self { question, said })
    }

    /// One loop says what it knows.
    pub(crate) fn tell(&self, watched: impl IntoIterator<Item = (Box<[u8]>, Watchers)>) {
        let mut said = self.lock();
        for (name, watchers) in watched {
            *said.watched.entry(name).or_default() += watchers;
        }
        said.loops += 1;
    }

    /// How many loops have said what they know.
    pub(crate) fn loops(&self) -> usize {
        self.lock().loops
    }

    /// Takes what the loops have said.
    pub(crate) fn take(&self) -> Watched {
        std::mem::take(&mut self.lock().watched)
    }

    /// What there is under the key of the request is known.
    pub(crate) fn found(&self, value: Valued) {
        self.lock().value = Some(value);
    }

    /// What there is under the key, if that is known.
    pub(crate) fn value(&self) -> Option<Valued> {
        self.lock().value.clone()
    }

    /// Whether all of so many loops have said what there is to say.
    pub(crate) fn is_answered(&self, loops: usize) -> bool {
        let said = self.lock();
        let wants_value = matches!(self.question, Question::Request(_));
        said.loops >= loops && (said.value.is_some() || !wants_value)
    }

    fn lock(&self) -> MutexGuard<'_, Said> {
        // Sums: what a panicking thread leaves is too small, and its loop is not counted.
        self.said.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl EdgeLoop {
    /// Says what this loop knows; the first one, which collects it, is woken.
    pub(crate) fn answer_inquiry(&self, inquiry: &Inquiry) {
        inquiry.tell(self.polls.watched(&inquiry.question));
        self.fleet.wake_first();
    }

    /// Asks the loops what clients of the admin listener want to know, and answers those for whom
    /// all is said.
    pub(crate) fn follow_inquiries(&mut self, context: &mut Context) {
        let Some(admin) = &mut self.admin else { return };
        for inquiry in admin.inquiries() {
            self.fleet.ask(&inquiry);
            self.look(context, &inquiry);
        }
        let Some(admin) = &mut self.admin else { return };
        for (exchange, asked) in admin.answered_inquiries(self.loops) {
            let (status, body) = match &asked {
                Asked::Explained { inquiry } => self.explanation(inquiry),
                Asked::Watched { inquiry, limit } => {
                    let loops = (self.loops, inquiry.loops());
                    (200, watched::render(inquiry.take(), *limit, loops))
                }
            };
            if let Some(admin) = &mut self.admin {
                admin.inquired(context, exchange, status, body.as_bytes());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn polls(polls: u64) -> Watchers {
        Watchers {
            polls,
            ..Watchers::default()
        }
    }

    #[test]
    fn what_the_loops_say_is_added_up() {
        let inquiry = Inquiry::new(Question::Prefix(Box::default()));
        let streams = Watchers {
            streams: 3,
            ..Watchers::default()
        };
        inquiry.tell([(b"a"[..].into(), polls(1)), (b"b"[..].into(), polls(1))]);
        inquiry.tell([(b"a"[..].into(), streams)]);
        assert_eq!(inquiry.loops(), 2);
        let watched = inquiry.take();
        assert_eq!(watched.len(), 2);
        assert_eq!(watched[&b"a"[..]].total(), 4);
        assert_eq!(watched[&b"b"[..]], polls(1));
    }
}
