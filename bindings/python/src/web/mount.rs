//! The place at which a proxy has mounted the application.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use std::borrow::Cow;
use std::fmt::Write as _;

/// The prefix under which clients see the application, and which the proxy takes off; empty if
/// there is none.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mount {
    /// Decoded, without a slash at its end.
    path: String,
    /// The path in the form of a request target.
    raw: String,
}

impl Mount {
    /// # Errors
    /// `ValueError` for a path that does not begin with a slash.
    pub(crate) fn new(path: &str) -> PyResult<Self> {
        if !path.is_empty() && !path.starts_with('/') {
            let text = format!("root_path does not begin with a slash: {path:?}");
            return Err(PyValueError::new_err(text));
        }
        let path = path.trim_end_matches('/').to_owned();
        let raw = percent_encoded(&path);
        Ok(Self { path, raw })
    }

    /// The decoded path and the raw one as clients see them.
    pub(crate) fn seen<'path>(
        &self,
        path: Cow<'path, [u8]>,
        raw: &'path [u8],
    ) -> (Cow<'path, [u8]>, Cow<'path, [u8]>) {
        // The target of `OPTIONS *` is no path.
        if self.path.is_empty() || !path.starts_with(b"/") {
            return (path, Cow::Borrowed(raw));
        }
        let path = [self.path.as_bytes(), &path].concat();
        let raw = [self.raw.as_bytes(), raw].concat();
        (Cow::Owned(path), Cow::Owned(raw))
    }

    /// The rest of a decoded path behind the prefix; all of it where the proxy has taken that off.
    pub(crate) fn rest<'path>(&self, path: &'path [u8]) -> &'path [u8] {
        match path.strip_prefix(self.path.as_bytes()) {
            Some(rest) if rest.is_empty() || rest[0] == b'/' => rest,
            _ => path,
        }
    }
}

/// A path in which each byte that may not stand in one is encoded (RFC 3986, section 3.3).
fn percent_encoded(path: &str) -> String {
    let mut encoded = String::with_capacity(path.len());
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            // Writing into a string does not fail.
            let _ = write!(encoded, "%{byte:02X}");
        }
    }
    encoded
}
