//! The newest events for operators, as the dashboard shows them.

use super::json::Message;
use super::time::write_rfc3339;
use dwell_evloop::wall;
use serde::Serialize;
use std::collections::VecDeque;
use std::fmt::{self, Write as _};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, SystemTime};
use tracing::field::{Field, Visit};
use tracing::{Event, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::layer::Context;

/// Events that are kept.
const EVENTS_MAX: usize = 100;
/// Bytes of the text of one event: all events together have less than 64 KiB.
const TEXT_BYTES_MAX: usize = 400;
/// The event loops notice the same thing one after another: within this time it is one event.
const SAME: Duration = Duration::from_secs(5);

/// One event.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub(crate) struct RecentEvent {
    /// Its place among all events of the process, from 1.
    pub(crate) number: u64,
    /// The time of the last one that this stands for, as RFC 3339 has it.
    pub(crate) time: String,
    pub(crate) level: &'static str,
    /// The message, and the fields behind it.
    pub(crate) text: String,
    /// The kind of an event that charts mark.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) mark: Option<&'static str>,
    /// The number of times that it came within seconds, such as once for each event loop.
    pub(crate) times: u32,
    #[serde(skip)]
    at: SystemTime,
}

/// The newest events, the oldest first.
#[derive(Debug, Default)]
struct Ring {
    events: VecDeque<RecentEvent>,
    /// Grows with each event.
    number: u64,
}

impl Ring {
    fn add(
        &mut self,
        at: SystemTime,
        level: &'static str,
        text: String,
        mark: Option<&'static str>,
    ) {
        self.number += 1;
        let number = self.number;
        let mut time = Vec::new();
        write_rfc3339(&mut time, at);
        let time = String::from_utf8_lossy(&time).into_owned();
        let is_same = |event: &&mut RecentEvent| {
            let age = at.duration_since(event.at).unwrap_or_default();
            age < SAME && event.level == level && event.text == text
        };
        if let Some(event) = self.events.iter_mut().rev().find(is_same) {
            event.times = event.times.saturating_add(1);
            (event.number, event.time) = (number, time);
            return;
        }
        if self.events.len() == EVENTS_MAX {
            self.events.pop_front();
        }
        self.events.push_back(RecentEvent {
            number,
            time,
            level,
            text,
            mark,
            times: 1,
            at,
        });
    }
}

/// Words of messages, and the marks that charts have for them.
const MARKS: &[(&str, &str)] = &[
    ("configuration read", "reload"),
    (" is not taken, the configuration before it stays", "reload"),
    ("starting another process", "upgrade"),
    ("the upgrade is given up", "upgrade"),
    ("the process before this one has ended", "upgrade"),
    ("draining", "drain"),
    ("memcached does not answer", "down"),
    ("Redis does not answer", "down"),
    ("upstream is left out", "down"),
    ("memcached answers", "up"),
    ("Redis answers", "up"),
    ("upstream is back in use", "up"),
];

/// One per process, as is the subscriber.
static RECENT: Mutex<Ring> = Mutex::new(Ring {
    events: VecDeque::new(),
    number: 0,
});

/// The newest events, the oldest first.
pub(crate) fn recent_events() -> Vec<RecentEvent> {
    let ring = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    ring.events.iter().cloned().collect()
}

/// The number of events so far, with which each new one changes.
pub(crate) fn events_number() -> u64 {
    let ring = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
    ring.number
}

/// Keeps the newest events.
pub(super) struct RecentLayer;

impl<S: Subscriber> Layer<S> for RecentLayer {
    fn on_event(&self, event: &Event<'_>, _: Context<'_, S>) {
        let mut message = Message::default();
        event.record(&mut message);
        let mut text = message.0;
        let mark = mark_of(&text);
        event.record(&mut Fields(&mut text));
        let level = match *event.metadata().level() {
            tracing::Level::ERROR => "error",
            tracing::Level::WARN => "warn",
            _ => "info",
        };
        let mut ring = RECENT.lock().unwrap_or_else(PoisonError::into_inner);
        ring.add(wall(), level, shown(&text), mark);
    }
}

/// The kind of an event that charts mark, by its message.
fn mark_of(message: &str) -> Option<&'static str> {
    let mut marks = MARKS.iter();
    let found = marks.find(|(words, _)| message.contains(words));
    found.map(|(_, mark)| *mark)
}

/// One line of bounded length.
fn shown(text: &str) -> String {
    let text = text.replace(|letter: char| letter.is_control(), " ");
    if text.len() <= TEXT_BYTES_MAX {
        return text;
    }
    let mut end = TEXT_BYTES_MAX;
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    format!("{}…", &text[..end])
}

/// Appends the fields of an event to its message.
struct Fields<'t>(&'t mut String);

impl Visit for Fields<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() != "message" {
            // Writing to a string cannot fail.
            let _ = write!(self.0, " {}={value:?}", field.name());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::path::Path;
    use std::time::UNIX_EPOCH;

    #[test]
    fn the_newest_are_kept() {
        let mut ring = Ring::default();
        for number in 0..2 * EVENTS_MAX {
            ring.add(UNIX_EPOCH, "info", format!("event {number}"), None);
        }
        assert_eq!(ring.events.len(), EVENTS_MAX);
        let newest = ring.events.back().expect("some are kept");
        assert_eq!((newest.number, newest.times), (2 * EVENTS_MAX as u64, 1));
        assert_eq!(newest.time, "1970-01-01T00:00:00.000Z");
    }

    #[test]
    fn what_the_loops_notice_one_after_another_is_one_event() {
        let mut ring = Ring::default();
        for of_loop in 0..4 {
            let at = UNIX_EPOCH + Duration::from_millis(of_loop);
            ring.add(at, "warn", "down".to_owned(), None);
            ring.add(at, "info", "other".to_owned(), None);
        }
        let all: Vec<_> = ring
            .events
            .iter()
            .map(|one| (&*one.text, one.times))
            .collect();
        assert_eq!(all, [("down", 4), ("other", 4)]);
        assert_eq!(ring.events[0].time, "1970-01-01T00:00:00.003Z");
        ring.add(UNIX_EPOCH + SAME, "warn", "down".to_owned(), None);
        assert_eq!(ring.events.len(), 3);
    }

    #[test]
    fn marks_are_of_messages_that_are_logged() {
        fn read(folder: &Path, all: &mut String) {
            for entry in fs::read_dir(folder).expect("it is there").flatten() {
                let path = entry.path();
                if path.is_dir() {
                    read(&path, all);
                } else if !path.ends_with("recent.rs") {
                    all.push_str(&fs::read_to_string(path).unwrap_or_default());
                }
            }
        }
        let mut sources = String::new();
        for place in ["src/event_loop", "src/process", "../upstream/src"] {
            read(
                &Path::new(env!("CARGO_MANIFEST_DIR")).join(place),
                &mut sources,
            );
        }
        for (words, mark) in MARKS {
            assert!(sources.contains(words), "nothing logs `{words}`");
            assert_eq!(mark_of(words), Some(*mark));
        }
        assert_eq!(mark_of("certificate renewed"), None);
    }

    #[test]
    fn an_event_is_a_line_of_bounded_length() {
        let text = shown(&format!("a\nb\u{1b}{}", "é".repeat(TEXT_BYTES_MAX)));
        assert!(text.starts_with("a b é"), "{text}");
        assert!(text.ends_with('…') && text.len() <= TEXT_BYTES_MAX + 3);
        assert_eq!(shown("short"), "short");
    }
}
