//! The keys that are watched, or were until a moment ago, counted over all loops.

use serde::{Serialize, Serializer};
use std::collections::{HashMap, VecDeque};
use std::hash::RandomState;
use std::time::{Duration, Instant};

/// The first client of a loop begins to wait for a key, or the last one stops.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct WatchChange {
    pub(crate) name: Box<[u8]>,
    pub(crate) begins: bool,
}

/// An event as the webhook gets it.
#[derive(Clone, PartialEq, Eq, Debug, Serialize)]
pub(super) struct Event {
    #[serde(rename = "event")]
    kind: EventKind,
    #[serde(serialize_with = "as_text")]
    pub(super) key: Box<[u8]>,
    watchers: u64,
    /// Time of the event. Unix time, milliseconds.
    at: u64,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize)]
#[serde(rename_all = "lowercase")]
enum EventKind {
    First,
    Last,
}

fn as_text<S: Serializer>(key: &[u8], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&String::from_utf8_lossy(key))
}

impl Event {
    fn first(key: &[u8], at: u64) -> Self {
        Self {
            kind: EventKind::First,
            key: key.into(),
            watchers: 1,
            at,
        }
    }

    fn last(key: Box<[u8]>, at: u64) -> Self {
        Self {
            kind: EventKind::Last,
            key,
            watchers: 0,
            at,
        }
    }
}

/// The watched keys of the process.
#[derive(Debug)]
pub(super) struct Board {
    /// Keys are chosen by clients, so the hash is keyed against chosen collisions.
    keys: HashMap<Box<[u8]>, WatchedKey, RandomState>,
    /// Keys that lost their last watcher, and when. Some of them are watched again.
    left: VecDeque<(Instant, Box<[u8]>)>,
    linger: Duration,
}

#[derive(Debug, Default)]
struct WatchedKey {
    /// Loops with a client that waits for the key.
    loops: usize,
    /// Time at which the last client left, by both clocks.
    left: Option<(Instant, u64)>,
}

/// Bound of `left`: beyond it keys linger for a shorter time.
const LEFT_MAX: usize = 100_000;

impl Board {
    pub(super) fn new(linger: Duration) -> Self {
        Self {
            keys: HashMap::default(),
            left: VecDeque::new(),
            linger,
        }
    }

    /// Applies a change, at a time of the loop and of the wall clock.
    pub(super) fn note(
        &mut self,
        change: WatchChange,
        now: Instant,
        at: u64,
        events: &mut Vec<Event>,
    ) {
        let WatchChange { name, begins } = change;
        if begins {
            if !self.keys.contains_key(&name) {
                events.push(Event::first(&name, at));
            }
            let entry = self.keys.entry(name).or_default();
            entry.loops += 1;
            entry.left = None;
            return;
        }
        let Some(entry) = self.keys.get_mut(&name) else {
            return;
        };
        entry.loops = entry.loops.saturating_sub(1);
        if entry.loops == 0 {
            entry.left = Some((now, at));
            self.left.push_back((now, name));
        }
        if self.left.len() > LEFT_MAX {
            self.end_one(events);
        }
    }

    /// Ends the keys whose lingering time is over.
    pub(super) fn expire(&mut self, now: Instant, events: &mut Vec<Event>) {
        while self.next_end().is_some_and(|end| end <= now) {
            self.end_one(events);
        }
    }

    /// The next time at which [`expire`](Self::expire) has something to do.
    pub(super) fn next_end(&self) -> Option<Instant> {
        self.left.front().map(|(since, _)| *since + self.linger)
    }

    fn end_one(&mut self, events: &mut Vec<Event>) {
        let Some((since, name)) = self.left.pop_front() else {
            return;
        };
        let left = self.keys.get(&name).and_then(|entry| entry.left);
        // A key that was watched again and left again has a later entry.
        if let Some((_, at)) = left.filter(|(last, _)| *last == since) {
            self.keys.remove(&name);
            events.push(Event::last(name, at));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const LINGER: Duration = Duration::from_secs(5);

    fn change(name: u8, begins: bool) -> WatchChange {
        WatchChange {
            name: [name].into(),
            begins,
        }
    }

    /// Events as signs: `+a` for a first watcher, `-a` for a last one.
    fn told(events: &mut Vec<Event>) -> Vec<String> {
        let told = events.drain(..).map(|event| {
            let is_first = event.kind == EventKind::First;
            assert_eq!(event.watchers, u64::from(is_first));
            let sign = if is_first { '+' } else { '-' };
            format!("{sign}{}@{}", event.key[0] as char, event.at)
        });
        told.collect()
    }

    #[test]
    fn loops_are_added_up_and_whoever_comes_back_was_not_away() {
        let (start, mut events) = (Instant::now(), Vec::new());
        let second = |seconds| start + Duration::from_secs(seconds);
        let mut board = Board::new(LINGER);
        board.note(change(b'a', true), start, 0, &mut events);
        board.note(change(b'a', true), second(1), 1, &mut events);
        assert_eq!(told(&mut events), ["+a@0"]);
        board.note(change(b'a', false), second(2), 2, &mut events);
        assert_eq!(board.next_end(), None, "the other loop has one");
        board.note(change(b'a', false), second(3), 3, &mut events);
        board.note(change(b'a', true), second(7), 7, &mut events);
        board.expire(second(9), &mut events);
        board.note(change(b'a', false), second(10), 10, &mut events);
        board.expire(second(14), &mut events);
        assert!(events.is_empty(), "{events:?}");
        assert_eq!(board.next_end(), Some(second(15)));
        board.expire(second(15), &mut events);
        assert_eq!(told(&mut events), ["-a@10"]);
        assert!(board.keys.is_empty() && board.left.is_empty());
    }

    #[test]
    fn beyond_the_bound_nothing_lingers() {
        let (now, mut events) = (Instant::now(), Vec::new());
        let mut board = Board::new(LINGER);
        for key in 0..=LEFT_MAX {
            for begins in [true, false] {
                let name = key.to_string().into_bytes().into();
                board.note(WatchChange { name, begins }, now, 0, &mut events);
            }
        }
        assert_eq!(board.left.len(), LEFT_MAX);
        let last = events.iter().filter(|event| event.kind == EventKind::Last);
        assert_eq!(last.count(), 1);
    }

    #[test]
    fn an_event_says_what_the_documentation_shows() {
        let event = Event::first(b"/poll/\xff", 7);
        let text = serde_json::to_string(&[event]).unwrap();
        let key = "/poll/\u{fffd}";
        let expected = format!(r#"[{{"event":"first","key":"{key}","watchers":1,"at":7}}]"#);
        assert_eq!(text, expected);
    }

    /// The kinds of the events of a key, in their order.
    fn kinds(events: &[Event], key: u8) -> Vec<EventKind> {
        let of_key = events.iter().filter(|event| *event.key == [key]);
        of_key.map(|event| event.kind).collect()
    }

    proptest! {
        /// Loops come and go at random: firsts and lasts alternate for every key, a key that is
        /// watched has had its first, and when all have left, its last.
        #[test]
        fn every_first_has_its_last(
            steps in proptest::collection::vec((b'a'..b'd', 0..4_usize, 0..3_u64), 1..120),
        ) {
            let (mut now, mut board) = (Instant::now(), Board::new(LINGER));
            let mut watched = [[false; 4]; 3];
            let mut events = Vec::new();
            for (key, of_loop, seconds) in steps {
                now += Duration::from_secs(seconds);
                board.expire(now, &mut events);
                let loops = &mut watched[usize::from(key - b'a')];
                loops[of_loop] ^= true;
                board.note(change(key, loops[of_loop]), now, 0, &mut events);
                let kinds = kinds(&events, key);
                for (place, kind) in kinds.iter().enumerate() {
                    prop_assert_eq!(*kind == EventKind::First, place % 2 == 0);
                }
                let is_open = kinds.last() == Some(&EventKind::First);
                prop_assert!(is_open, "it lingers at least: {:?}", kinds);
            }
            for (key, loops) in (b'a'..).zip(watched) {
                for _ in loops.into_iter().filter(|watches| *watches) {
                    board.note(change(key, false), now, 0, &mut events);
                }
            }
            board.expire(now + LINGER, &mut events);
            prop_assert!(board.keys.is_empty() && board.left.is_empty());
            prop_assert_eq!(events.len() % 2, 0);
        }
    }
}
