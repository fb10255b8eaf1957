//! Challenges by which an ACME client proves that a host is its own (RFC 8555 section 8.3).

use dwell_engine::{Body, Response};
use nix::fcntl::OFlag;
use std::fs::OpenOptions;
use std::io::Read;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// The path below which they are.
pub(super) const PREFIX: &str = "/.well-known/acme-challenge/";

/// Bytes of a token, at most; ACME servers use 43.
const TOKEN_BYTES_MAX: usize = 128;
/// Bytes of the answer to a challenge, at most: a token, a dot and a digest.
const ANSWER_BYTES_MAX: u64 = 1024;

/// The answer to a request for a challenge.
#[derive(PartialEq, Eq, Debug)]
pub(super) enum Challenge {
    /// The content of the file.
    Found(Vec<u8>),
    /// No file has this name, or it is no token.
    Unknown,
    /// The method is neither GET nor HEAD.
    WrongMethod,
}

/// Answers a request for the challenge `token`, which is the name of a file in `folder`.
///
/// Shape: nothing outside of the folder is opened: a token has neither slashes nor dots, and a
/// symbolic link is not followed. The file is small, so that the loop may read it.
pub(super) fn respond(folder: &Path, method: &str, token: &str) -> Challenge {
    if !matches!(method, "GET" | "HEAD") {
        return Challenge::WrongMethod;
    }
    if !is_token(token) {
        return Challenge::Unknown;
    }
    read(&folder.join(token)).map_or(Challenge::Unknown, Challenge::Found)
}

/// Base64 for URLs without padding. Source: RFC 8555 section 8.3.
fn is_token(token: &str) -> bool {
    let is_of_alphabet = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    (1..=TOKEN_BYTES_MAX).contains(&token.len()) && token.bytes().all(is_of_alphabet)
}

fn read(path: &Path) -> Option<Vec<u8>> {
    let mut options = OpenOptions::new();
    // A pipe with this name would block the loop.
    let flags = OFlag::O_NOFOLLOW | OFlag::O_NONBLOCK;
    let file = options.read(true).custom_flags(flags.bits()).open(path);
    let file = file.ok()?;
    let about = file.metadata().ok()?;
    if !about.is_file() || about.len() > ANSWER_BYTES_MAX {
        return None;
    }
    let mut content = Vec::new();
    file.take(ANSWER_BYTES_MAX).read_to_end(&mut content).ok()?;
    Some(content)
}

impl Challenge {
    /// Gives the response to `send`.
    pub(super) fn send(&self, send: impl FnOnce(&Response<'_>)) {
        let (status, kind, body) = match self {
            Self::Found(content) => (200, "application/octet-stream", content.as_slice()),
            Self::Unknown => (404, "text/plain", &b"no such challenge\n"[..]),
            Self::WrongMethod => (405, "text/plain", &b"use GET\n"[..]),
        };
        let mut fields = vec![
            ("Content-Type", kind.as_bytes()),
            ("Cache-Control", &b"no-store"[..]),
        ];
        if status == 405 {
            fields.push(("Allow", b"GET, HEAD"));
        }
        send(&Response {
            status,
            fields: &fields,
            body: Body::Slice(body),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn only_small_files_of_the_folder_are_answers() {
        let outside = tempfile::tempdir().unwrap();
        let folder = outside.path().join("challenges");
        fs::create_dir(&folder).unwrap();
        fs::create_dir(folder.join("sub")).unwrap();
        fs::write(outside.path().join("secret"), "secret").unwrap();
        fs::write(folder.join("to-ken_1"), "to-ken_1.digest").unwrap();
        fs::write(folder.join("large"), vec![b'a'; 2000]).unwrap();
        fs::write(folder.join("a.b"), "a file of another program").unwrap();
        symlink(outside.path().join("secret"), folder.join("link")).unwrap();
        let found = Challenge::Found(b"to-ken_1.digest".to_vec());
        assert_eq!(respond(&folder, "GET", "to-ken_1"), found);
        assert_eq!(respond(&folder, "HEAD", "to-ken_1"), found);
        assert_eq!(respond(&folder, "POST", "to-ken_1"), Challenge::WrongMethod);
        for token in [
            "",
            ".",
            "..",
            "../secret",
            "..%2Fsecret",
            "/etc/passwd",
            "sub",
            "sub/",
            "large",
            "a.b",
            "link",
            "none",
            "to-ken_1\0",
            &"a".repeat(129),
            &"a".repeat(128),
        ] {
            assert_eq!(
                respond(&folder, "GET", token),
                Challenge::Unknown,
                "{token}"
            );
        }
    }
}
