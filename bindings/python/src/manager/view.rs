//! The content of an event, in the form of Python's messages.

use dwell_engine::manager::HttpMessage;

/// The message of an event; valid while its handler runs.
pub(super) enum View<'a> {
    /// The event has none.
    None,
    Http(&'a HttpMessage<'a>),
    /// The request of a WebSocket that is open now.
    Request(&'a Snapshot),
    WebSocket {
        /// The first byte of a frame that would carry it whole.
        flags: u8,
        data: &'a [u8],
    },
    /// Bytes that came on a raw connection.
    Input(&'a [u8]),
}

/// A request that outlives its handler.
#[derive(Debug)]
pub(super) struct Snapshot {
    method: String,
    path: String,
    query: String,
    version: &'static str,
    fields: Vec<(String, Vec<u8>)>,
}

impl Snapshot {
    pub(super) fn of(message: &HttpMessage<'_>) -> Self {
        Self {
            method: message.method().to_owned(),
            path: message.path().to_owned(),
            query: message.query().to_owned(),
            version: message.version(),
            fields: message
                .headers()
                .map(|(name, value)| (name.to_owned(), value.to_vec()))
                .collect(),
        }
    }
}

impl View<'_> {
    pub(super) fn method(&self) -> &str {
        match self {
            Self::Http(message) => message.method(),
            Self::Request(request) => &request.method,
            _ => "",
        }
    }

    pub(super) fn path(&self) -> &str {
        match self {
            Self::Http(message) => message.path(),
            Self::Request(request) => &request.path,
            _ => "",
        }
    }

    pub(super) fn query(&self) -> &str {
        match self {
            Self::Http(message) => message.query(),
            Self::Request(request) => &request.query,
            _ => "",
        }
    }

    pub(super) fn version(&self) -> &'static str {
        match self {
            Self::Http(message) => message.version(),
            Self::Request(request) => request.version,
            _ => "",
        }
    }

    pub(super) fn status(&self) -> Option<u16> {
        match self {
            Self::Http(message) => message.status(),
            _ => None,
        }
    }

    pub(super) fn body(&self) -> &[u8] {
        match self {
            Self::Http(message) => message.body(),
            _ => &[],
        }
    }

    /// The value of the first field of that name.
    pub(super) fn field(&self, name: &str) -> Option<&[u8]> {
        match self {
            Self::Http(message) => message.header(name),
            Self::Request(request) => request
                .fields
                .iter()
                .find(|(known, _)| known.eq_ignore_ascii_case(name))
                .map(|(_, value)| value.as_slice()),
            _ => None,
        }
    }

    /// Shows every field, in the order they came.
    pub(super) fn for_each_field(&self, mut show: impl FnMut(&str, &[u8])) {
        match self {
            Self::Http(message) => message
                .headers()
                .for_each(|(name, value)| show(name, value)),
            Self::Request(request) => request
                .fields
                .iter()
                .for_each(|(name, value)| show(name, value)),
            _ => {}
        }
    }
}
