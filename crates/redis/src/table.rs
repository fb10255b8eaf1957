//! The use of the server's table of keys that it announces, asked for now and then.

use crate::{Announced, TableUse};
use dwell_proto::resp::{Message, Value};
use std::time::{Duration, Instant};

/// The use of the table, which is one for all clients of the server, as far as it is known.
#[derive(Debug)]
pub(crate) struct TrackingTable {
    /// The server has one that this client uses, and says how full it is.
    is_asked: bool,
    /// Nothing is asked before.
    next: Option<Instant>,
    keys_max: u64,
    last: Option<TableUse>,
    is_nearly_full: bool,
}

/// One command of a question for the table.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum TableQuestion {
    /// The bound of its keys.
    Bound,
    /// The number of its keys.
    Use,
}

impl TableQuestion {
    /// In the order in which they are asked.
    pub(crate) const ALL: [Self; 2] = [Self::Bound, Self::Use];

    pub(crate) fn words(self) -> &'static [&'static [u8]] {
        match self {
            Self::Bound => &[b"CONFIG", b"GET", b"tracking-table-max-keys"],
            Self::Use => &[b"INFO", b"stats"],
        }
    }
}

impl TrackingTable {
    /// The table, which a server has for keys alone.
    pub(crate) fn of(announced: &Announced) -> Self {
        Self {
            is_asked: *announced == Announced::Keys,
            next: None,
            keys_max: KEYS_MAX_DEFAULT,
            last: None,
            is_nearly_full: false,
        }
    }

    /// A server may have other rights for this user. Another one is taken to be as full as the last
    /// one until it is asked. The other connection may be between the replies to the two questions,
    /// of which the first one is for the bound.
    pub(crate) fn connected(&mut self, announced: &Announced) {
        self.is_asked = *announced == Announced::Keys;
    }

    /// Returns true if the server is to be asked now.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.is_asked && self.next.is_none_or(|next| next <= now);
        if is_due {
            self.next = Some(now + ASKED_EVERY);
        }
        is_due
    }

    /// The server has replied. A server that refuses is not asked again on this connection. If it
    /// refuses to tell the bound alone, that is taken for the default.
    pub(crate) fn replied(&mut self, question: TableQuestion, message: &Message<'_>) {
        match (question, message) {
            (TableQuestion::Use, Message::Value(Value::Error(_)))
            | (_, Message::Oversized { .. }) => {
                (self.is_asked, self.last, self.is_nearly_full) = (false, None, false);
            }
            (TableQuestion::Bound, Message::Value(value)) => {
                self.keys_max = bound(value).unwrap_or(KEYS_MAX_DEFAULT);
            }
            (TableQuestion::Use, Message::Value(value)) => {
                if let Some(keys) = value.text().and_then(keys) {
                    self.follow(keys);
                }
            }
        }
    }

    fn follow(&mut self, keys: u64) {
        let keys_max = self.keys_max;
        let percent = if self.is_nearly_full {
            STILL_NEARLY_FULL
        } else {
            NEARLY_FULL
        };
        let is_bound = keys_max > 0;
        self.last = is_bound.then_some(TableUse { keys, keys_max });
        self.is_nearly_full =
            is_bound && keys.saturating_mul(100) >= keys_max.saturating_mul(percent);
    }

    /// The use of the table when the server was asked last; none where it has no bound.
    pub(crate) fn last(&self) -> Option<TableUse> {
        self.last
    }

    /// The use of a table that is nearly full.
    pub(crate) fn nearly_full(&self) -> Option<TableUse> {
        self.last.filter(|_| self.is_nearly_full)
    }
}

/// The value of the option in the reply; 0 is no bound.
fn bound(value: &Value<'_>) -> Option<u64> {
    let (Value::Map(items) | Value::Array(items)) = value else {
        return None;
    };
    number(items.into_iter().nth(1)?.text()?)
}

/// The number of keys in the lines of the statistics.
fn keys(text: &[u8]) -> Option<u64> {
    let mut lines = text.split(|byte| *byte == b'\n');
    number(lines.find_map(|line| line.strip_prefix(b"tracking_total_keys:"))?)
}

fn number(text: &[u8]) -> Option<u64> {
    str::from_utf8(text.trim_ascii()).ok()?.parse().ok()
}

/// The bound of a server whose configuration does not name another.
const KEYS_MAX_DEFAULT: u64 = 1_000_000;
/// The least time between two questions.
const ASKED_EVERY: Duration = Duration::from_secs(30);
/// Percent of the bound from which on a table is nearly full, and below which it is so no more.
const NEARLY_FULL: u64 = 80;
const STILL_NEARLY_FULL: u64 = 70;

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_proto::resp::{Decoded, Decoder, Limits};

    fn reply(table: &mut TrackingTable, question: TableQuestion, wire: &str) {
        let mut decoder = Decoder::new(Limits::default());
        match decoder.decode(wire.as_bytes()).unwrap() {
            Decoded::Message(_, message) => table.replied(question, &message),
            Decoded::Incomplete(_) => panic!("{wire}"),
        }
    }

    fn stats(table: &mut TrackingTable, keys: u64) -> bool {
        let text = format!("# Stats\r\nexpired_keys:9\r\ntracking_total_keys:{keys}\r\nx:1\r\n");
        let wire = format!("={}\r\ntxt:{text}\r\n", text.len() + 4);
        reply(table, TableQuestion::Use, &wire);
        table.nearly_full().is_some()
    }

    #[test]
    fn a_table_is_nearly_full_until_it_has_room_again() {
        let mut table = TrackingTable::of(&Announced::Keys);
        assert!(!stats(&mut table, 799_999) && stats(&mut table, 800_000));
        assert!(stats(&mut table, 700_000) && !stats(&mut table, 699_999));
        let bound = "%1\r\n$23\r\ntracking-table-max-keys\r\n$3\r\n100\r\n";
        reply(&mut table, TableQuestion::Bound, bound);
        assert!(!stats(&mut table, 79) && stats(&mut table, 80));
        let (keys, keys_max) = (80, 100);
        assert_eq!(table.nearly_full(), Some(TableUse { keys, keys_max }));
        let unbound = "*2\r\n$23\r\ntracking-table-max-keys\r\n$1\r\n0\r\n";
        reply(&mut table, TableQuestion::Bound, unbound);
        assert!(!stats(&mut table, 100_000_000));
        reply(&mut table, TableQuestion::Bound, "-NOPERM no\r\n");
        assert!(stats(&mut table, 1_000_000), "the default");
    }

    #[test]
    fn a_new_connection_leaves_the_table_as_full_as_it_was_until_it_is_asked() {
        let mut table = TrackingTable::of(&Announced::Keys);
        assert!(stats(&mut table, 900_000));
        table.connected(&Announced::Keys);
        assert!(table.nearly_full().is_some(), "it would be said again");
        assert!(!stats(&mut table, 1000));
        let bound = "%1\r\n$23\r\ntracking-table-max-keys\r\n$7\r\n5000000\r\n";
        reply(&mut table, TableQuestion::Bound, bound);
        table.connected(&Announced::Keys);
        assert!(!stats(&mut table, 1_000_000), "it has the bound already");
        assert!(stats(&mut table, 4_500_000));
        table.connected(&Announced::Keys);
        reply(&mut table, TableQuestion::Use, "-NOPERM no\r\n");
        assert_eq!(table.last(), None, "this one does not say");
    }

    #[test]
    fn a_server_is_asked_now_and_then_unless_it_refuses() {
        let (mut table, now) = (TrackingTable::of(&Announced::Keys), Instant::now());
        assert!(table.is_due(now) && !table.is_due(now));
        assert!(!table.is_due(now + ASKED_EVERY / 2) && table.is_due(now + ASKED_EVERY));
        let later = now + ASKED_EVERY * 2;
        reply(&mut table, TableQuestion::Use, "-NOPERM no\r\n");
        assert!(!table.is_due(later));
        table.connected(&Announced::Keys);
        assert!(table.is_due(later), "another connection may have the right");
        let prefixes = Announced::Prefixes(Vec::new());
        assert!(!TrackingTable::of(&prefixes).is_due(now), "it has no table");
    }
}
