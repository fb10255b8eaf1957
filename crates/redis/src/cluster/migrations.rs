//! Slots that are about to move from a server to another one.
//!
//! While a slot moves, a key that the server does not have is created at the other one, and no
//! server announces that. So a server is asked now and then which of its slots are about to move:
//! a key of those without a value is read again, and the server says then where it may be.

use super::slots::SLOTS;
use dwell_proto::resp::{Message, Value};
use std::time::{Duration, Instant};

/// The questions to one server.
#[derive(Debug, Default)]
pub(crate) struct Migrations {
    /// Nothing is asked before.
    next: Option<Instant>,
    /// The server does not say.
    is_refused: bool,
}

impl Migrations {
    /// Another connection may have the right.
    pub(crate) fn connected(&mut self) {
        self.is_refused = false;
    }

    /// Returns true if the server is to be asked now.
    pub(crate) fn is_due(&mut self, now: Instant, interval: Duration) -> bool {
        let is_due = !self.is_refused && self.next.is_none_or(|next| next <= now);
        if is_due {
            self.next = Some(now + interval);
        }
        is_due
    }

    /// The slots of the server that are about to move, in order, by its reply to `CLUSTER NODES`.
    pub(crate) fn replied(&mut self, reply: &Message<'_>) -> Vec<u16> {
        let text = match reply {
            Message::Value(Value::Error(_)) | Message::Oversized { .. } => None,
            Message::Value(value) => value.text(),
        };
        self.is_refused = text.is_none();
        let mut slots = text.map(leaving).unwrap_or_default();
        slots.sort_unstable();
        slots
    }
}

/// The slots in the line of the server itself, behind the eight facts of each server: those that
/// leave are in brackets, with an arrow to the other server.
fn leaving(text: &[u8]) -> Vec<u16> {
    let mut lines = text.split(|byte| *byte == b'\n');
    let is_own = |line: &&[u8]| {
        let mut facts = line.split(|byte| *byte == b' ');
        let flags = facts.nth(2).unwrap_or_default();
        flags
            .split(|byte| *byte == b',')
            .any(|flag| flag == b"myself")
    };
    let own = lines.find(is_own).unwrap_or_default();
    let slots = own.split(|byte| *byte == b' ').skip(8);
    slots
        .filter_map(|slot| leaving_slot(slot.trim_ascii()))
        .collect()
}

/// The slot of `[93->-292f8b36...]`.
fn leaving_slot(text: &[u8]) -> Option<u16> {
    let text = text.strip_prefix(b"[")?;
    let end = text.windows(3).position(|window| window == b"->-")?;
    let slot: u16 = str::from_utf8(&text[..end]).ok()?.parse().ok()?;
    (usize::from(slot) < SLOTS).then_some(slot)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(text: &[u8]) -> Message<'_> {
        Message::Value(Value::BulkString(text))
    }

    #[test]
    fn the_slots_that_leave_are_those_of_the_server_itself() {
        let (a, b) = ("a".repeat(40), "b".repeat(40));
        let lines = [
            format!("{b} 127.0.0.1:2@12,host slave,fail? {a} 0 1 2 connected [7->-{a}]\n"),
            format!("{a} 127.0.0.1:1@11,, myself,master - 0 0 1 connected 0-99 101 "),
            format!("[5->-{b}] [6-<-{b}] [99->-{b}] [16384->-{b}] [x->-{b}] [->-\n"),
            format!("{b} 127.0.0.1:3@13 master - 0 1 3 connected 200-300 [201->-{b}]\n"),
        ];
        let mut migrations = Migrations::default();
        assert_eq!(
            migrations.replied(&reply(lines.concat().as_bytes())),
            [5, 99]
        );
        let others = [&*lines[0], &*lines[3]].concat();
        for none in ["", "\n\n", " ", "a b myself", &others] {
            assert_eq!(migrations.replied(&reply(none.as_bytes())), [], "{none}");
        }
    }

    #[test]
    fn a_server_that_does_not_say_is_asked_again_on_another_connection() {
        let (mut migrations, now) = (Migrations::default(), Instant::now());
        let second = Duration::from_secs(1);
        assert!(migrations.is_due(now, second) && !migrations.is_due(now, second));
        assert!(migrations.is_due(now + second, second));
        let refused = Message::Value(Value::Error(b"NOPERM no"));
        assert_eq!(migrations.replied(&refused), []);
        assert!(!migrations.is_due(now + 9 * second, second));
        migrations.connected();
        assert!(migrations.is_due(now + 9 * second, second));
    }
}
