//! Users of the store: names and passwords of text authentication.

use std::fmt;

/// Names with their passwords, as memcached's `--auth-file` lists them.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Credentials(Vec<Entry>);

#[derive(Clone, PartialEq, Eq)]
struct Entry {
    name: Box<[u8]>,
    password: Box<[u8]>,
}

/// Faults of a file of credentials.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CredentialsError {
    /// A line is not `name:password`.
    BadLine {
        /// Its number, from 1.
        line: usize,
    },
    /// There is no line, so no client could log in.
    Empty,
    /// More lines than memcached reads.
    TooMany {
        /// The limit.
        limit: usize,
        /// The lines there are.
        lines: usize,
    },
}

impl fmt::Display for CredentialsError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadLine { line } => write!(formatter, "line {line} is not name:password"),
            Self::Empty => formatter.write_str("no line is name:password"),
            Self::TooMany { limit, lines } => {
                write!(formatter, "entries exceed {limit}: {lines}")
            }
        }
    }
}

impl std::error::Error for CredentialsError {}

/// Entries of a file, as memcached has it.
const ENTRIES_MAX: usize = 8;

impl Credentials {
    /// Reads lines of `name:password`; empty lines are left out.
    ///
    /// # Errors
    /// [`CredentialsError`] names the first malformed line, or the count.
    pub fn parse(text: &[u8]) -> Result<Self, CredentialsError> {
        let mut entries = Vec::new();
        for (index, line) in text.split(|byte| *byte == b'\n').enumerate() {
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            if line.is_empty() {
                continue;
            }
            let colon = line.iter().position(|byte| *byte == b':');
            match colon.map(|colon| (&line[..colon], &line[colon + 1..])) {
                Some((name, password)) if !name.is_empty() && !password.is_empty() => {
                    let (name, password) = (name.into(), password.into());
                    entries.push(Entry { name, password });
                }
                _ => return Err(CredentialsError::BadLine { line: index + 1 }),
            }
        }
        match entries.len() {
            0 => Err(CredentialsError::Empty),
            lines if lines > ENTRIES_MAX => Err(CredentialsError::TooMany {
                limit: ENTRIES_MAX,
                lines,
            }),
            _ => Ok(Self(entries)),
        }
    }

    /// Returns true if `token`, a name and a password with a space between, is listed.
    pub fn admit(&self, token: &[u8]) -> bool {
        let Some((name, password)) = split(token) else {
            return false;
        };
        // Every entry is looked at whole, so that the time tells nothing of the passwords.
        self.0.iter().fold(false, |found, known| {
            found | (same(&known.name, name) & same(&known.password, password))
        })
    }
}

impl fmt::Debug for Credentials {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "Credentials({} entries)", self.0.len())
    }
}

/// A name and a password; `None` where the token has not both.
pub(super) fn split(token: &[u8]) -> Option<(&[u8], &[u8])> {
    let mut words = token
        .split(|byte| *byte == b' ')
        .filter(|word| !word.is_empty());
    Some((words.next()?, words.next()?))
}

/// Compares in a time that depends on the lengths alone.
fn same(one: &[u8], other: &[u8]) -> bool {
    let differs = one.iter().zip(other).fold(0, |bits, (a, b)| bits | (a ^ b));
    one.len() == other.len() && differs == 0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_line_by_line() {
        let credentials = Credentials::parse(b"a:b\r\n\nname:pass:word\n").unwrap();
        assert!(credentials.admit(b"a b"));
        assert!(credentials.admit(b"name pass:word"));
        for token in [&b"a"[..], b"", b"a bb", b"aa b", b"a  ", b"name pass"] {
            assert!(!credentials.admit(token), "{token:?}");
        }
        assert!(
            !format!("{credentials:?}").contains("word"),
            "passwords are not shown"
        );
    }

    #[test]
    fn mistakes_are_named() {
        let error = |text: &[u8]| Credentials::parse(text).unwrap_err();
        assert_eq!(error(b"\n\n"), CredentialsError::Empty);
        assert_eq!(
            error(b"a:b\nnobody\n"),
            CredentialsError::BadLine { line: 2 }
        );
        assert_eq!(error(b":b\n"), CredentialsError::BadLine { line: 1 });
        let many = error(&b"a:b\n".repeat(9));
        assert_eq!(many.to_string(), "entries exceed 8: 9");
    }
}
