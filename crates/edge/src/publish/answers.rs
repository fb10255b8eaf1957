//! Responses to publishers.

use super::PublishResult;
use crate::cursor::Cursor;
use crate::metrics::PublishOutcome;
use dwell_engine::{Body, Response};

/// Challenge to a client without a token (RFC 6750 section 3).
const CHALLENGE: (&str, &[u8]) = ("WWW-Authenticate", b"Bearer realm=\"dwell publish\"");
/// Challenge to a client with a wrong token.
const WRONG: (&str, &[u8]) = (
    "WWW-Authenticate",
    b"Bearer realm=\"dwell publish\", error=\"invalid_token\"",
);
const NO_STORE: (&str, &[u8]) = ("Cache-Control", b"no-store");
const TEXT: (&str, &[u8]) = ("Content-Type", b"text/plain; charset=utf-8");

/// Sends the result of a request; `cursor` is that of the value in the request.
pub(crate) fn send(published: &PublishResult, cursor: Cursor, mut send: impl FnMut(&Response<'_>)) {
    let (status, text) = match published {
        PublishResult::Created => (201, ""),
        PublishResult::Replaced | PublishResult::Deleted => (204, ""),
        PublishResult::Value(bytes, flags) => {
            return value(bytes, Cursor::of(bytes, *flags), send);
        }
        PublishResult::Missing => (404, "no such key"),
        PublishResult::Unmet => (412, "the value is not what the condition asks for"),
        PublishResult::TooLarge => (413, "the value is too large for the store"),
        PublishResult::NoRoom(why) => (507, *why),
        PublishResult::Unanswered(why) => (502, *why),
        PublishResult::NotNow(why) => (503, *why),
        PublishResult::Unreached => (503, "Redis cannot be reached: nothing was done"),
        PublishResult::Busy => (503, "too many values wait to be stored"),
        PublishResult::Moved => (503, "another process has the store: ask once more"),
    };
    let text = line(text);
    let cursor = cursor.text();
    let mut fields = vec![NO_STORE];
    match published {
        PublishResult::Created | PublishResult::Replaced => {
            fields.push(("ETag", cursor.entity_tag()));
            fields.push(("Poll-Cursor", cursor.bare()));
        }
        PublishResult::Busy | PublishResult::NotNow(_) | PublishResult::Unreached => {
            fields.push(("Retry-After", b"1"));
        }
        PublishResult::Moved => fields.push(("Retry-After", b"0")),
        _ => {}
    }
    if !text.is_empty() {
        fields.push(TEXT);
    }
    send(&Response {
        status,
        fields: &fields,
        body: Body::Slice(text.as_bytes()),
    });
}

/// Sends a stored value.
pub(crate) fn value(bytes: &bytes::Bytes, cursor: Cursor, mut send: impl FnMut(&Response<'_>)) {
    let cursor = cursor.text();
    send(&Response {
        status: 200,
        fields: &[
            NO_STORE,
            ("ETag", cursor.entity_tag()),
            ("Poll-Cursor", cursor.bare()),
            ("Content-Type", b"application/octet-stream"),
            ("X-Content-Type-Options", b"nosniff"),
        ],
        body: Body::Shared(bytes.clone()),
    });
}

/// Rejects a client without a valid token.
pub(crate) fn denied(is_wrong: bool, mut send: impl FnMut(&Response<'_>)) {
    let (challenge, text) = if is_wrong {
        (WRONG, "the token is not one that may publish\n")
    } else {
        (CHALLENGE, "publishing takes Authorization: Bearer TOKEN\n")
    };
    send(&Response {
        status: 401,
        fields: &[NO_STORE, challenge, TEXT],
        body: Body::Slice(text.as_bytes()),
    });
}

/// Rejects an invalid request.
pub(crate) fn refuse(status: u16, why: &str, mut send: impl FnMut(&Response<'_>)) {
    let text = line(why);
    send(&Response {
        status,
        fields: &[NO_STORE, TEXT],
        body: Body::Slice(text.as_bytes()),
    });
}

fn line(text: &str) -> String {
    if text.is_empty() {
        String::new()
    } else {
        format!("{text}\n")
    }
}

impl PublishResult {
    /// The label that counts the result.
    pub(crate) fn outcome(&self) -> PublishOutcome {
        match self {
            Self::Created | Self::Replaced => PublishOutcome::Stored,
            Self::Deleted => PublishOutcome::Deleted,
            Self::Value(..) => PublishOutcome::Read,
            Self::Missing => PublishOutcome::Missing,
            Self::Unmet => PublishOutcome::Unmet,
            Self::TooLarge | Self::NoRoom(_) | Self::NotNow(_) | Self::Busy | Self::Moved => {
                PublishOutcome::Refused
            }
            Self::Unanswered(_) | Self::Unreached => PublishOutcome::Failed,
        }
    }
}
