//! Tokens of publishers.

use crate::config::{PublishConfig, check_token};
use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::digest::{SHA256, digest};
use dwell_proto::http1::Fields;
use std::fmt;
use std::fs;
use std::io;
use std::path::PathBuf;

/// Tokens of publishers, as digests.
pub(crate) struct Tokens(Vec<[u8; 32]>);

/// Result of checking the token of a request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Bearer {
    /// It is one of the tokens.
    Known,
    /// It is another one.
    Unknown,
    /// The request has none.
    Missing,
}

/// Fault in a token file.
#[derive(Debug)]
pub(crate) enum TokensError {
    /// The file cannot be read.
    Unreadable(PathBuf, io::Error),
    /// A line is not a token.
    Line(PathBuf, usize, &'static str),
    /// The file has no token.
    Empty(PathBuf),
}

impl fmt::Display for TokensError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, error) => write!(f, "cannot read {}: {error}", path.display()),
            Self::Line(path, line, why) => write!(f, "line {line} of {}: {why}", path.display()),
            Self::Empty(path) => write!(f, "{} has no token", path.display()),
        }
    }
}

impl std::error::Error for TokensError {}

impl Tokens {
    /// Loads the tokens of the configuration and of its file.
    ///
    /// # Errors
    /// [`TokensError`] if the file cannot be read, has an invalid line, or has no token.
    pub(crate) fn load(config: &PublishConfig) -> Result<Self, TokensError> {
        let mut all: Vec<[u8; 32]> = config.token.iter().map(|token| hash(token)).collect();
        if let Some(path) = &config.token_file {
            let text = fs::read_to_string(path)
                .map_err(|error| TokensError::Unreadable(path.clone(), error))?;
            let before = all.len();
            for (index, line) in text.lines().enumerate() {
                let token = line.trim();
                if token.is_empty() || token.starts_with('#') {
                    continue;
                }
                check_token(token.as_bytes())
                    .map_err(|why| TokensError::Line(path.clone(), index + 1, why))?;
                all.push(hash(token));
            }
            if all.len() == before {
                return Err(TokensError::Empty(path.clone()));
            }
        }
        Ok(Self(all))
    }

    /// True if there are no tokens.
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Checks `Authorization: Bearer TOKEN` of a request (RFC 6750 section 2.1).
    pub(crate) fn bearer(&self, fields: Fields<'_, '_>) -> Bearer {
        let Some(token) = bearer_token(fields) else {
            return Bearer::Missing;
        };
        let shown = digest(&SHA256, token);
        // Every token is compared whole, so that the time taken reveals nothing.
        let is_known = self.0.iter().fold(false, |found, known| {
            found | verify_slices_are_equal(known, shown.as_ref()).is_ok()
        });
        if is_known {
            Bearer::Known
        } else {
            Bearer::Unknown
        }
    }
}

impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tokens({})", self.0.len())
    }
}

/// The token of the first `Authorization` field with the scheme `Bearer`.
pub(crate) fn bearer_token<'h>(fields: Fields<'_, 'h>) -> Option<&'h [u8]> {
    let (scheme, token) = fields.find("authorization")?.split_at_checked(7)?;
    if !scheme.eq_ignore_ascii_case(b"bearer ") {
        return None;
    }
    Some(token.trim_ascii())
}

fn hash(token: &str) -> [u8; 32] {
    let mut hash = [0; 32];
    hash.copy_from_slice(digest(&SHA256, token.as_bytes()).as_ref());
    hash
}

#[cfg(test)]
mod tests {
    use super::*;
    use dwell_proto::http1::{FieldStorage, HeadLimits, parse_request};

    fn bearer(tokens: &Tokens, field: &str) -> Bearer {
        let text = format!("PUT /k HTTP/1.1\r\nHost: x\r\n{field}\r\n");
        let mut storage = FieldStorage::new();
        let head = parse_request(text.as_bytes(), &mut storage, &HeadLimits::default()).unwrap();
        tokens.bearer(head.fields)
    }

    fn config(tokens: &[&str], file: Option<PathBuf>) -> PublishConfig {
        PublishConfig {
            token: tokens.iter().map(|token| (*token).to_owned()).collect(),
            token_file: file,
            ..PublishConfig::default()
        }
    }

    #[test]
    fn each_of_several_tokens_is_good_and_nothing_else() {
        let one = "0123456789abcdef";
        let tokens = Tokens::load(&config(&[one, "fedcba9876543210"], None)).unwrap();
        let show = |token: &str| bearer(&tokens, &format!("Authorization: Bearer {token}\r\n"));
        assert_eq!(show(one), Bearer::Known);
        assert_eq!(show("fedcba9876543210"), Bearer::Known);
        for other in ["0123456789abcde", "0123456789abcdef0", "0123456789abcdeF"] {
            assert_eq!(show(other), Bearer::Unknown, "{other}");
        }
        assert_eq!(bearer(&tokens, ""), Bearer::Missing);
        let basic = format!("Authorization: Basic {one}\r\n");
        assert_eq!(bearer(&tokens, &basic), Bearer::Missing);
        let lower = format!("authorization: bearer {one}\r\n");
        assert_eq!(bearer(&tokens, &lower), Bearer::Known);
    }

    #[test]
    fn a_file_has_a_token_a_line() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tokens");
        let load = |text: &str| {
            fs::write(&path, text).unwrap();
            Tokens::load(&config(&[], Some(path.clone())))
        };
        let tokens = load("# old\n0123456789abcdef\r\n\nfedcba9876543210").unwrap();
        assert_eq!(tokens.0.len(), 2);
        assert_eq!(format!("{tokens:?}"), "Tokens(2)");
        let error = load("0123456789abcdef\nshort\n").unwrap_err().to_string();
        assert!(error.starts_with("line 2 of "), "{error}");
        assert!(
            load("# none\n")
                .unwrap_err()
                .to_string()
                .ends_with("has no token")
        );
        let missing = config(&[], Some(folder.path().join("none")));
        assert!(Tokens::load(&missing).is_err());
    }
}
