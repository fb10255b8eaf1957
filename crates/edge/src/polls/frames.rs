//! The text frames of a WebSocket on a poll route.

use super::json;
use crate::cursor::Cursor;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use dwell_engine::websocket::{Broadcast, MessageKind};
use serde::Deserialize;
use std::collections::HashMap;

/// A command in a client's frame.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Command {
    Subscribe {
        keys: Vec<String>,
        since: HashMap<String, String>,
    },
    Unsubscribe {
        keys: Vec<String>,
    },
    Publish {
        /// Nothing for the key that the path of the request names.
        key: Option<String>,
        value: Vec<u8>,
    },
}

impl Command {
    /// The number of keys that it names, and one at least.
    pub(super) fn keys(&self) -> usize {
        match self {
            Self::Subscribe { keys, .. } | Self::Unsubscribe { keys } => keys.len().max(1),
            Self::Publish { .. } => 1,
        }
    }

    /// Reads a frame; `None` for what is no frame of a client.
    pub(super) fn parse(text: &[u8]) -> Option<Self> {
        let fields: Fields = serde_json::from_slice(text).ok()?;
        match fields {
            Fields {
                subscribe: Some(keys),
                since,
                unsubscribe: None,
                publish: None,
            } => Some(Self::Subscribe {
                keys,
                since: since.unwrap_or_default(),
            }),
            Fields {
                unsubscribe: Some(keys),
                subscribe: None,
                since: None,
                publish: None,
            } => Some(Self::Unsubscribe { keys }),
            Fields {
                publish: Some(publish),
                subscribe: None,
                since: None,
                unsubscribe: None,
            } => publish.command(),
            _ => None,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Fields {
    subscribe: Option<Vec<String>>,
    since: Option<HashMap<String, String>>,
    unsubscribe: Option<Vec<String>>,
    publish: Option<Publish>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Publish {
    k: Option<String>,
    v: Option<String>,
    b64: Option<String>,
}

impl Publish {
    fn command(self) -> Option<Command> {
        let value = match (self.v, self.b64) {
            (Some(text), None) => text.into_bytes(),
            (None, Some(base64)) => STANDARD.decode(base64).ok()?,
            _ => return None,
        };
        Some(Command::Publish { key: self.k, value })
    }
}

/// The members of the frame that tells that a key has no value any more.
pub(super) const GONE: &[u8] = b"\"c\":null";

/// The frame that has the state of a key, made of the members that describe it.
pub(super) fn of_members(label: Option<&str>, members: &[u8]) -> Broadcast {
    let mut frame = vec![b'{'];
    if let Some(label) = label {
        frame.extend_from_slice(b"\"k\":");
        json::string(&mut frame, label);
        frame.push(b',');
    }
    frame.reserve_exact(members.len() + 1);
    frame.extend_from_slice(members);
    frame.push(b'}');
    Broadcast::new(MessageKind::Text, &frame)
}

/// The frame that says why something was not done.
pub(super) fn error(text: &str, key: Option<&str>) -> String {
    let mut frame = b"{\"error\":".to_vec();
    json::string(&mut frame, text);
    if let Some(key) = key {
        frame.extend_from_slice(b",\"k\":");
        json::string(&mut frame, key);
    }
    frame.push(b'}');
    String::from_utf8_lossy(&frame).into_owned()
}

/// The frame that says that a value was published.
pub(super) fn published(key: Option<&str>, cursor: Cursor) -> String {
    let mut frame = b"{\"published\":".to_vec();
    match key {
        Some(key) => json::string(&mut frame, key),
        None => frame.extend_from_slice(b"null"),
    }
    frame.extend_from_slice(b",\"c\":\"");
    frame.extend_from_slice(cursor.text().bare());
    frame.extend_from_slice(b"\"}");
    String::from_utf8_lossy(&frame).into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::answers::Found;
    use super::*;
    use crate::polls::encodings::members;

    #[test]
    fn a_client_asks_for_one_thing_at_a_time() {
        let keys = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        let parse = |text: &str| Command::parse(text.as_bytes());
        let since = HashMap::from([("a".to_owned(), "x".to_owned())]);
        assert_eq!(
            parse(r#"{"subscribe":["a","b"],"since":{"a":"x"}}"#),
            Some(Command::Subscribe {
                keys: keys(&["a", "b"]),
                since
            })
        );
        assert_eq!(
            parse(r#" {"unsubscribe":["a"]} "#),
            Some(Command::Unsubscribe { keys: keys(&["a"]) })
        );
        let publish = |key: Option<&str>, value: &[u8]| Command::Publish {
            key: key.map(str::to_owned),
            value: value.to_vec(),
        };
        let text = parse(r#"{"publish":{"k":"a","v":"\u00e9"}}"#);
        assert_eq!(text, Some(publish(Some("a"), "\u{e9}".as_bytes())));
        let bytes = parse(r#"{"publish":{"b64":"/wA="}}"#);
        assert_eq!(bytes, Some(publish(None, b"\xff\x00")));
        for senseless in [
            "",
            "[]",
            "{}",
            "null",
            r#"{"subscribe":"a"}"#,
            r#"{"subscribe":["a"],"unsubscribe":["a"]}"#,
            r#"{"unsubscribe":["a"],"since":{}}"#,
            r#"{"subscribe":["a"],"more":1}"#,
            r#"{"publish":{"k":"a"}}"#,
            r#"{"publish":{"k":"a","v":"1","b64":"1"}}"#,
            r#"{"publish":{"k":"a","b64":"!"}}"#,
        ] {
            assert_eq!(parse(senseless), None, "{senseless}");
        }
    }

    #[test]
    fn a_frame_names_the_key_only_if_its_client_did() {
        let found = Found::borrowed(b"hello", 0);
        let text = |label, members: &[u8]| {
            let frame = of_members(label, members);
            String::from_utf8(frame.payload().to_vec()).unwrap()
        };
        let value = members(&found);
        let cursor = "lVXoVVxi3P0";
        let named = text(Some("a"), &value);
        assert_eq!(named, format!(r#"{{"k":"a","v":"hello","c":"{cursor}"}}"#));
        let unnamed = text(None, &value);
        assert_eq!(unnamed, format!(r#"{{"v":"hello","c":"{cursor}"}}"#));
        assert_eq!(text(Some("a"), GONE), r#"{"k":"a","c":null}"#);
        assert_eq!(error("no", Some("\"")), r#"{"error":"no","k":"\""}"#);
        let told = published(Some("a"), Cursor::of(b"hello", 0));
        assert_eq!(told, format!(r#"{{"published":"a","c":"{cursor}"}}"#));
    }
}
