//! The file with the keys of session tickets, which several machines may share.

use super::{Stamp, content, stamp, unusable};
use crate::config::Config;
use crate::process::error::RunError;
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use dwell_evloop::TicketKey;
use std::path::{Path, PathBuf};

/// The keys of session tickets, as read from their file.
#[derive(Debug)]
pub(in crate::process) struct TicketFile {
    pub(super) path: PathBuf,
    /// As the file was before it was read.
    pub(super) stamp: Stamp,
    pub(super) keys: Vec<TicketKey>,
}

const OPTION: &str = "tls.ticket_keys";
const KEYS_MAX: usize = 16;

/// Reads the file of the configuration, if it names one.
///
/// # Errors
/// [`RunError::Certificate`].
pub(in crate::process) fn read(config: &Config) -> Result<Option<TicketFile>, RunError> {
    let path = config.tls.ticket_keys.as_deref();
    path.map(TicketFile::read).transpose()
}

impl TicketFile {
    pub(super) fn read(path: &Path) -> Result<Self, RunError> {
        // Before the file: what changes between the two is found at the next look.
        let stamp = stamp(path);
        let file = (path, OPTION);
        let keys = parse(&content(file)?).map_err(|reason| {
            let remedy = "each line is one key: openssl rand -base64 48";
            unusable(file, format!("{reason}; {remedy}"))
        })?;
        Ok(Self {
            path: path.to_owned(),
            stamp,
            keys,
        })
    }
}

/// Reads the keys, one in a line; empty lines and those that begin with `#` are skipped.
fn parse(text: &[u8]) -> Result<Vec<TicketKey>, String> {
    let mut keys: Vec<(usize, TicketKey)> = Vec::new();
    let lines = text.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    for (place, line) in lines.enumerate() {
        let number = place + 1;
        if line.is_empty() || line.starts_with(b"#") {
            continue;
        }
        let bytes = STANDARD.decode(line).ok();
        let bytes = bytes.and_then(|bytes| <[u8; TicketKey::BYTES]>::try_from(bytes).ok());
        let key = bytes.and_then(|bytes| TicketKey::from_bytes(&bytes));
        let key = key.ok_or_else(|| {
            let bytes = TicketKey::BYTES;
            format!("line {number} is not base64 of {bytes} bytes")
        })?;
        let mut before = keys.iter();
        if let Some((other, _)) = before.find(|(_, other)| other.name() == key.name()) {
            return Err(format!("line {number} has the key of line {other}"));
        }
        if keys.len() == KEYS_MAX {
            return Err(format!("there are more than {KEYS_MAX} keys"));
        }
        keys.push((number, key));
    }
    if keys.is_empty() {
        return Err("there is no key in the file".to_owned());
    }
    Ok(keys.into_iter().map(|(_, key)| key).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(byte: u8) -> String {
        STANDARD.encode([byte; TicketKey::BYTES])
    }

    #[test]
    fn each_line_is_a_key_and_their_order_stays() {
        let text = format!("# today\n{}\r\n\n  {}\n#{}", line(2), line(1), line(3));
        let keys = parse(text.as_bytes()).unwrap();
        let names: Vec<u8> = keys.iter().map(|key| key.name()[0]).collect();
        assert_eq!(names, [2, 1]);
    }

    #[test]
    fn a_file_that_cannot_be_used_is_refused_with_its_line() {
        let short = STANDARD.encode([1; TicketKey::BYTES - 1]);
        let many: Vec<String> = (0..17).map(line).collect();
        assert_eq!(parse(many[..16].join("\n").as_bytes()).unwrap().len(), 16);
        for (text, expected) in [
            (String::new(), "there is no key in the file"),
            ("# none\n\n".to_owned(), "there is no key in the file"),
            ("a b".to_owned(), "line 1 is not base64 of 48 bytes"),
            ("\n".to_owned() + &short, "line 2 is not base64 of 48 bytes"),
            (line(1) + &line(2), "line 1 is not base64 of 48 bytes"),
            (
                [line(1), line(1)].join("\n"),
                "line 2 has the key of line 1",
            ),
            (many.join("\n"), "there are more than 16 keys"),
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap_err(), expected);
        }
        let error = TicketFile::read(Path::new("/none/keys")).unwrap_err();
        let error = error.to_string();
        assert!(
            error.contains("/none/keys (tls.ticket_keys): No such file"),
            "{error}"
        );
    }
}
