//! `SET` that replies with what was there, and its stand-in for servers that know none.

use crate::{Failure, Outcome};
use dwell_proto::resp::{Message, Value};

/// The option by which a write tells a value that is new from one that replaces another.
///
/// A reply is read by the option that the command was sent with: in a cluster the server that
/// replies may be another one than that for which the option was chosen.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum SwapOption {
    /// `GET`: the reply is what was there.
    Get,
    /// `NX`, for a server that knows no `GET` here: nothing is stored where something is there.
    Absent,
}

impl SwapOption {
    pub(crate) fn word(self) -> &'static [u8] {
        match self {
            Self::Get => b"GET",
            Self::Absent => b"NX",
        }
    }

    /// Returns true of the reply of a server that does not know the option.
    pub(crate) fn is_unknown(self, reply: &Message<'_>) -> bool {
        let is_refused =
            matches!(reply, Message::Value(Value::Error(text)) if text.starts_with(SYNTAX));
        self == Self::Get && is_refused
    }

    /// The outcome that a reply is.
    ///
    /// # Errors
    /// [`Failure::Protocol`] if the reply does not fit the command.
    pub(crate) fn outcome(self, reply: &Message<'_>) -> Result<Outcome<'static>, Failure> {
        Ok(match reply {
            _ if self.is_unknown(reply) => Outcome::Unmet,
            Message::Value(Value::Null) if self == Self::Absent => Outcome::Unmet,
            Message::Value(Value::SimpleString(_) | Value::Null) => Outcome::Missing,
            Message::Value(Value::BulkString(_)) | Message::Oversized { .. } => Outcome::Done,
            // `GET` replaces strings alone.
            Message::Value(Value::Error(text)) if text.starts_with(b"WRONGTYPE") => Outcome::Unmet,
            Message::Value(Value::Error(text)) => Outcome::Failed(Failure::of_error(text)),
            Message::Value(_) => return Err(Failure::Protocol),
        })
    }
}

/// The reply to an option that the server does not know.
const SYNTAX: &[u8] = b"ERR syntax error";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reply_means_what_the_option_of_its_command_says() {
        let (get, absent) = (SwapOption::Get, SwapOption::Absent);
        let (done, missing) = (Outcome::Done, Outcome::Missing);
        let syntax = Value::Error(b"ERR syntax error");
        let wrong_type = Value::Error(b"WRONGTYPE Operation against a key");
        let full = Value::Error(b"OOM command not allowed");
        let is_full = Outcome::Failed(Failure::Full);
        for (option, reply, outcome, is_unknown) in [
            (get, Value::Null, missing, false),
            (get, Value::BulkString(b"before"), done, false),
            (get, wrong_type, Outcome::Unmet, false),
            (get, syntax, Outcome::Unmet, true),
            (get, full, is_full, false),
            (absent, Value::SimpleString(b"OK"), missing, false),
            (absent, Value::Null, Outcome::Unmet, false),
            (absent, full, is_full, false),
        ] {
            let told = format!("{option:?} {reply:?}");
            let reply = Message::Value(reply);
            assert_eq!(option.outcome(&reply), Ok(outcome), "{told}");
            assert_eq!(option.is_unknown(&reply), is_unknown, "{told}");
        }
        let number = Message::Value(Value::Number(1));
        assert_eq!(get.outcome(&number), Err(Failure::Protocol));
    }
}
