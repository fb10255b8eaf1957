//! The shape of a log line in JSON, of events and of requests alike: `time`, `level` and `message`,
//! then the fields.

use super::time::write_rfc3339;
use std::fmt;
use std::io::Write;
use std::time::SystemTime;
use tracing::field::{Field, Visit};

/// One line, which is completed by [`end`](Self::end).
pub(super) struct JsonLine<'o>(&'o mut Vec<u8>);

impl<'o> JsonLine<'o> {
    /// Begins a line with the members that every line has.
    pub(super) fn begin(
        out: &'o mut Vec<u8>,
        time: SystemTime,
        level: &str,
        message: fmt::Arguments<'_>,
    ) -> Self {
        out.extend_from_slice(b"{\"time\":\"");
        write_rfc3339(out, time);
        out.extend_from_slice(b"\",\"level\":\"");
        out.extend_from_slice(level.as_bytes());
        out.extend_from_slice(b"\",\"message\":\"");
        write_escaped(out, message);
        out.push(b'"');
        Self(out)
    }

    /// A member that no field may replace: one of [`COMMON`].
    pub(super) fn own(&mut self, name: &str, value: &str) {
        self.begin_member(name);
        self.0.extend_from_slice(b"\":\"");
        escape(self.0, value);
        self.0.push(b'"');
    }

    pub(super) fn text(&mut self, name: &str, value: &str) {
        self.name(name);
        self.0.push(b'"');
        escape(self.0, value);
        self.0.push(b'"');
    }

    pub(super) fn display(&mut self, name: &str, value: fmt::Arguments<'_>) {
        self.name(name);
        self.0.push(b'"');
        write_escaped(self.0, value);
        self.0.push(b'"');
    }

    /// A number or a truth value, whose text is the same in JSON.
    pub(super) fn plain(&mut self, name: &str, value: impl fmt::Display) {
        self.name(name);
        // Writing to a Vec cannot fail.
        let _ = write!(self.0, "{value}");
    }

    /// A whole number, without the machinery of formatting.
    pub(super) fn number(&mut self, name: &str, value: u64) {
        self.name(name);
        let mut buffer = itoa::Buffer::new();
        self.0.extend_from_slice(buffer.format(value).as_bytes());
    }

    pub(super) fn end(self) {
        self.0.extend_from_slice(b"}\n");
    }

    fn name(&mut self, name: &str) {
        self.begin_member(name);
        // A reader of two members of one name takes either.
        if COMMON.contains(&name) {
            self.0.push(b'_');
        }
        self.0.extend_from_slice(b"\":");
    }

    fn begin_member(&mut self, name: &str) {
        self.0.extend_from_slice(b",\"");
        escape(self.0, name);
    }
}

/// The message of an event.
#[derive(Default)]
pub(super) struct Message(pub(super) String);

impl Visit for Message {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == MESSAGE {
            self.0 = format!("{value:?}");
        }
    }
}

/// The fields of an event, without its message.
impl Visit for JsonLine<'_> {
    fn record_f64(&mut self, field: &Field, value: f64) {
        if value.is_finite() {
            self.plain(field.name(), value);
        } else {
            self.plain(field.name(), "null");
        }
    }

    fn record_i64(&mut self, field: &Field, value: i64) {
        self.plain(field.name(), value);
    }

    fn record_u64(&mut self, field: &Field, value: u64) {
        self.number(field.name(), value);
    }

    fn record_bool(&mut self, field: &Field, value: bool) {
        self.plain(field.name(), value);
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.text(field.name(), value);
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() != MESSAGE {
            self.display(field.name(), format_args!("{value:?}"));
        }
    }
}

fn write_escaped(out: &mut Vec<u8>, value: fmt::Arguments<'_>) {
    struct Escaped<'o>(&'o mut Vec<u8>);
    impl fmt::Write for Escaped<'_> {
        fn write_str(&mut self, text: &str) -> fmt::Result {
            escape(self.0, text);
            Ok(())
        }
    }
    // Fails only if the value itself cannot be shown; then its beginning stays.
    let _ = fmt::write(&mut Escaped(out), value);
}

/// Appends `text` as the inside of a JSON string. Source: RFC 8259 section 7.
///
/// Shape: all control characters are escaped, for those who read a log on a terminal.
fn escape(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    let is_special = |byte: &u8| matches!(*byte, b'"' | b'\\' | 0..0x20 | 0x7f | C1_LEAD);
    while let Some(place) = rest.iter().position(is_special) {
        let (before, special) = rest.split_at(place);
        out.extend_from_slice(before);
        // A character is special as a whole or not at all, and its replacement is ASCII.
        rest = match *special {
            [C1_LEAD, code @ 0x80..0xa0, ref after @ ..] => {
                let _ = write!(out, "\\u{code:04x}");
                after
            }
            [C1_LEAD, ref after @ ..] => {
                out.push(C1_LEAD);
                after
            }
            [byte, ref after @ ..] => {
                let _ = write!(out, "\\u{byte:04x}");
                after
            }
            [] => &[],
        };
    }
    out.extend_from_slice(rest);
}

const MESSAGE: &str = "message";

/// The first byte of the characters U+0080 to U+00BF, among which are the control characters C1.
const C1_LEAD: u8 = 0xc2;

/// Members of every line or of every event: no field has one of these names.
const COMMON: [&str; 5] = ["time", "level", MESSAGE, "thread", "module"];

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};
    use std::time::UNIX_EPOCH;

    #[test]
    fn values_of_all_kinds_are_read_back() {
        let mut out = Vec::new();
        let mut line = JsonLine::begin(&mut out, UNIX_EPOCH, "warn", format_args!("a \"b\"\n"));
        line.own("thread", "loop-1");
        line.text("text", "\u{1}\\\u{e9}");
        line.display("shown", format_args!("{:?}", "x"));
        line.plain("negative", -1);
        line.number("large", u64::MAX);
        line.plain("is", true);
        line.text("time", "is kept beside that of the line");
        line.end();
        assert_eq!(out.last(), Some(&b'\n'));
        let escape = Vec::from("\u{7f}\u{9b}31m\u{a0}\u{1b}");
        let mut escaped = Vec::new();
        super::escape(&mut escaped, std::str::from_utf8(&escape).expect("text"));
        assert_eq!(escaped, "\\u007f\\u009b31m\u{a0}\\u001b".as_bytes());
        let value: Value = serde_json::from_slice(&out).expect("a line is JSON");
        let expected = json!({
            "time": "1970-01-01T00:00:00.000Z",
            "level": "warn",
            "message": "a \"b\"\n",
            "thread": "loop-1",
            "text": "\u{1}\\\u{e9}",
            "shown": "\"x\"",
            "negative": -1,
            "large": u64::MAX,
            "is": true,
            "time_": "is kept beside that of the line",
        });
        assert_eq!(value, expected);
    }
}
