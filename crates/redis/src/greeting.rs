//! The first commands of a connection, one after the other.

use crate::{Announced, ClientOptions};
use dwell_proto::resp::{Message, Value, command};

/// The use of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Purpose {
    /// Values are read and written; version 2 of the protocol will do.
    Plain,
    /// Keys are read so that the server announces their changes.
    Tracking,
}

/// One command of the greeting.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Step {
    /// A Sentinel is asked for the address of the primary, to which the next connection is.
    Sentinel,
    /// `HELLO 3`, with the user and the password.
    Hello,
    /// `AUTH`, where the server has no `HELLO`.
    Auth,
    /// `SELECT`.
    Select,
    /// `CLIENT TRACKING ON`.
    Tracking,
}

/// A reply that ends the greeting early.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Refusal {
    /// The server admits no client, or not this user: the reply.
    Refused(Box<str>),
    /// The server does not track for this user: the reply.
    Untracked(Box<str>),
    /// The server is not the primary that Sentinels have named: its role.
    NoPrimary(Box<str>),
    /// The reply does not fit the command.
    Malformed,
}

impl Step {
    /// Appends the command.
    pub(crate) fn encode(self, options: &ClientOptions, out: &mut Vec<u8>) {
        let user = options.username.as_deref().map(str::as_bytes);
        let password = options.password.as_deref().unwrap_or_default().as_bytes();
        match self {
            Self::Hello if has_credentials(options) => {
                let user = user.unwrap_or(b"default");
                command(
                    out,
                    &[b"HELLO", b"3", b"AUTH", user, password, b"SETNAME", NAME],
                );
            }
            Self::Hello => command(out, &[b"HELLO", b"3", b"SETNAME", NAME]),
            Self::Auth => match user {
                Some(user) => command(out, &[b"AUTH", user, password]),
                None => command(out, &[b"AUTH", password]),
            },
            Self::Select => {
                let database = options.database.to_string();
                command(out, &[b"SELECT", database.as_bytes()]);
            }
            Self::Tracking => command(out, &tracking_words(&options.announced)),
            // It is asked in words of its own.
            Self::Sentinel => {}
        }
    }

    /// The step after the reply to this one; `None` when the greeting is over.
    ///
    /// # Errors
    /// A reply after which the connection is of no use.
    pub(crate) fn next(
        self,
        reply: &Message<'_>,
        purpose: Purpose,
        options: &ClientOptions,
    ) -> Result<Option<Self>, Refusal> {
        let select = (options.database > 0).then_some(Self::Select);
        let tracking = (purpose == Purpose::Tracking).then_some(Self::Tracking);
        let Message::Value(value) = reply else {
            return Err(Refusal::Malformed);
        };
        if let Value::Error(text) = value {
            let text = words(text);
            return match (self, purpose) {
                (Self::Hello, Purpose::Plain) if is_unknown(&text) => {
                    let auth = has_credentials(options).then_some(Self::Auth);
                    Ok(auth.or(select))
                }
                (Self::Hello, Purpose::Tracking) if is_unknown(&text) => {
                    Err(Refusal::Untracked(text))
                }
                (Self::Tracking, _) => Err(Refusal::Untracked(text)),
                _ => Err(Refusal::Refused(text)),
            };
        }
        match (self, value) {
            (Self::Hello, Value::Map(_)) | (Self::Auth, Value::SimpleString(b"OK")) => {
                Ok(select.or(tracking))
            }
            (Self::Select, Value::SimpleString(b"OK")) => Ok(tracking),
            (Self::Tracking, Value::SimpleString(b"OK")) => Ok(None),
            _ => Err(Refusal::Malformed),
        }
    }
}

/// The words that switch the announcements on.
pub(crate) fn tracking_words(announced: &Announced) -> Vec<&[u8]> {
    let mut words: Vec<&[u8]> = vec![b"CLIENT", b"TRACKING", b"ON"];
    if let Announced::Prefixes(prefixes) = announced {
        words.push(b"BCAST");
        words.extend(prefixes.iter().flat_map(|it| [&b"PREFIX"[..], it]));
    }
    words
}

fn has_credentials(options: &ClientOptions) -> bool {
    options.username.is_some() || options.password.is_some()
}

/// True of replies by which a server has no version 3, or has it not for this user.
fn is_unknown(text: &str) -> bool {
    text.starts_with("NOPROTO")
        || text.starts_with("NOPERM")
        || text.starts_with("ERR unknown command")
}

/// The text of an error, as far as it is worth a line of a log.
pub(crate) fn words(text: &[u8]) -> Box<str> {
    let text = &text[..text.len().min(REASON_BYTES_MAX)];
    text.escape_ascii().to_string().into_boxed_str()
}

/// The name of the connections in the server's `CLIENT LIST`.
const NAME: &[u8] = b"dwell";
/// Bytes of a server's error that are kept.
const REASON_BYTES_MAX: usize = 200;

#[cfg(test)]
mod tests {
    use super::*;

    fn options(database: u32, password: Option<&str>) -> ClientOptions {
        ClientOptions {
            database,
            password: password.map(str::to_owned),
            ..ClientOptions::default()
        }
    }

    fn reply(text: &[u8]) -> Message<'_> {
        Message::Value(match text.strip_prefix(b"-") {
            Some(text) => Value::Error(text),
            None => Value::SimpleString(text),
        })
    }

    #[test]
    fn a_server_without_version_three_is_greeted_by_auth() {
        let options = options(2, Some("secret"));
        let unknown = reply(b"-ERR unknown command 'HELLO', with args");
        let ok = reply(b"OK");
        let next = |step: Step, reply, purpose| step.next(reply, purpose, &options);
        assert_eq!(
            next(Step::Hello, &unknown, Purpose::Plain),
            Ok(Some(Step::Auth))
        );
        assert_eq!(
            next(Step::Auth, &ok, Purpose::Plain),
            Ok(Some(Step::Select))
        );
        assert_eq!(next(Step::Select, &ok, Purpose::Plain), Ok(None));
        let refusal = next(Step::Hello, &unknown, Purpose::Tracking);
        assert!(matches!(refusal, Err(Refusal::Untracked(_))), "{refusal:?}");
    }

    #[test]
    fn refusals_carry_the_words_of_the_server() {
        let options = options(0, None);
        let wrong = reply(b"-WRONGPASS invalid username-password pair");
        for purpose in [Purpose::Plain, Purpose::Tracking] {
            let refusal = Step::Hello.next(&wrong, purpose, &options);
            let text = "WRONGPASS invalid username-password pair".into();
            assert_eq!(refusal, Err(Refusal::Refused(text)));
        }
        let denied = reply(b"-NOPERM this user has no permissions");
        let refusal = Step::Tracking.next(&denied, Purpose::Tracking, &options);
        assert!(matches!(refusal, Err(Refusal::Untracked(_))), "{refusal:?}");
        let refusal = Step::Select.next(&denied, Purpose::Plain, &options);
        assert!(matches!(refusal, Err(Refusal::Refused(_))), "{refusal:?}");
        assert_eq!(
            Step::Select.next(&reply(b"QUEUED"), Purpose::Plain, &options),
            Err(Refusal::Malformed)
        );
    }

    #[test]
    fn announcements_are_of_keys_or_of_prefixes() {
        let wire = |announced| {
            let mut wire = Vec::new();
            let options = ClientOptions {
                announced,
                ..ClientOptions::default()
            };
            Step::Tracking.encode(&options, &mut wire);
            let words = wire.split(|byte| *byte == b'\n').skip(2).step_by(2);
            let words: Vec<_> = words.map(|word| word.trim_ascii().escape_ascii()).collect();
            let words: Vec<_> = words.iter().map(ToString::to_string).collect();
            words.join(" ")
        };
        assert_eq!(wire(Announced::Keys), "CLIENT TRACKING ON");
        let all = wire(Announced::Prefixes(Vec::new()));
        assert_eq!(all, "CLIENT TRACKING ON BCAST");
        let two = Announced::Prefixes(vec![b"/a".as_slice().into(), b"b:".as_slice().into()]);
        assert_eq!(wire(two), "CLIENT TRACKING ON BCAST PREFIX /a PREFIX b:");
    }

    #[test]
    fn a_password_alone_is_that_of_the_default_user() {
        let mut wire = Vec::new();
        Step::Hello.encode(&options(0, Some("secret")), &mut wire);
        let wire = wire.escape_ascii().to_string();
        assert!(
            wire.contains("AUTH\\r\\n$7\\r\\ndefault\\r\\n$6\\r\\nsecret"),
            "{wire}"
        );
    }
}
