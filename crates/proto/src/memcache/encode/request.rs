//! Requests, as a client writes them.

use super::super::command::StoreVerb;
use super::super::key::{self, KEY_BYTES_MAX, Key, KeyError};
use super::number;

/// The fields of a storage request that describe its value.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreOptions {
    /// The client flags, returned with the value.
    pub flags: u32,
    /// 0: never; negative: at once; up to 30 days: seconds from now; above: Unix time.
    pub exptime: i64,
    /// Ask the server not to answer.
    pub noreply: bool,
}

/// `get` of one or more keys.
pub fn get<'k>(out: &mut Vec<u8>, keys: impl IntoIterator<Item = Key<'k>>) {
    key_line(out, b"get", keys);
}

/// `gets`: `get` that also returns each item's cas unique.
pub fn gets<'k>(out: &mut Vec<u8>, keys: impl IntoIterator<Item = Key<'k>>) {
    key_line(out, b"gets", keys);
}

/// `gat`: `get` that sets each item's exptime.
pub fn gat<'k>(out: &mut Vec<u8>, exptime: i64, keys: impl IntoIterator<Item = Key<'k>>) {
    out.extend_from_slice(b"gat ");
    number(out, exptime);
    key_line(out, b"", keys);
}

/// `gats`: `gat` that also returns each item's cas unique.
pub fn gats<'k>(out: &mut Vec<u8>, exptime: i64, keys: impl IntoIterator<Item = Key<'k>>) {
    out.extend_from_slice(b"gats ");
    number(out, exptime);
    key_line(out, b"", keys);
}

/// `set`, `add`, `replace`, `append`, `prepend` or `cas`, with the data.
pub fn store(
    out: &mut Vec<u8>,
    verb: StoreVerb,
    key: Key<'_>,
    options: StoreOptions,
    value: &[u8],
) {
    out.extend_from_slice(verb.name().as_bytes());
    push_token(out, key.as_bytes());
    push_number(out, options.flags);
    push_number(out, options.exptime);
    push_number(out, value.len());
    if let StoreVerb::Cas(cas_unique) = verb {
        push_number(out, cas_unique);
    }
    end_line(out, options.noreply);
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// `delete`.
pub fn delete(out: &mut Vec<u8>, key: Key<'_>, noreply: bool) {
    out.extend_from_slice(b"delete");
    push_token(out, key.as_bytes());
    end_line(out, noreply);
}

/// `incr`.
pub fn incr(out: &mut Vec<u8>, key: Key<'_>, delta: u64, noreply: bool) {
    out.extend_from_slice(b"incr");
    push_token(out, key.as_bytes());
    push_number(out, delta);
    end_line(out, noreply);
}

/// `decr`.
pub fn decr(out: &mut Vec<u8>, key: Key<'_>, delta: u64, noreply: bool) {
    out.extend_from_slice(b"decr");
    push_token(out, key.as_bytes());
    push_number(out, delta);
    end_line(out, noreply);
}

/// `touch`.
pub fn touch(out: &mut Vec<u8>, key: Key<'_>, exptime: i64, noreply: bool) {
    out.extend_from_slice(b"touch");
    push_token(out, key.as_bytes());
    push_number(out, exptime);
    end_line(out, noreply);
}

/// `flush_all`, now.
pub fn flush_all(out: &mut Vec<u8>, noreply: bool) {
    out.extend_from_slice(b"flush_all");
    end_line(out, noreply);
}

/// `flush_all`, so many seconds from now.
pub fn flush_all_after(out: &mut Vec<u8>, delay: i64) {
    out.extend_from_slice(b"flush_all");
    push_number(out, delay);
    end_line(out, false);
}

/// `stats`, in general or about one thing; an argument obeys the rules of a key.
pub fn stats(out: &mut Vec<u8>, argument: Option<Key<'_>>) {
    out.extend_from_slice(b"stats");
    if let Some(argument) = argument {
        push_token(out, argument.as_bytes());
    }
    end_line(out, false);
}

/// `version`.
pub fn version(out: &mut Vec<u8>) {
    out.extend_from_slice(b"version\r\n");
}

/// `quit`.
pub fn quit(out: &mut Vec<u8>) {
    out.extend_from_slice(b"quit\r\n");
}

/// A meta request without data, written flag by flag.
///
/// Shape: `get`, `delete`, `arithmetic` and `debug` start a line, the flag methods add to it,
/// [`MetaLine::end`] ends it. A set has [`MetaLine::set`] and [`MetaLine::end_with_value`].
///
/// ```
/// use dwell_proto::memcache::Key;
/// use dwell_proto::memcache::encode::request::MetaLine;
///
/// let mut out = Vec::new();
/// let key = Key::new(b"a").unwrap();
/// MetaLine::get(&mut out, key).flag(b'v').flag(b'q').number(b'O', 7_u32).end();
/// assert_eq!(out, b"mg a v q O7\r\n");
/// ```
#[derive(Debug)]
#[must_use = "the line is not finished before `end`"]
pub struct MetaLine<'o> {
    out: &'o mut Vec<u8>,
}

impl<'o> MetaLine<'o> {
    /// `mg`.
    pub fn get(out: &'o mut Vec<u8>, key: Key<'_>) -> Self {
        Self::start(out, b"mg", key)
    }

    /// `md`.
    pub fn delete(out: &'o mut Vec<u8>, key: Key<'_>) -> Self {
        Self::start(out, b"md", key)
    }

    /// `ma`.
    pub fn arithmetic(out: &'o mut Vec<u8>, key: Key<'_>) -> Self {
        Self::start(out, b"ma", key)
    }

    /// `me`.
    pub fn debug(out: &'o mut Vec<u8>, key: Key<'_>) -> Self {
        Self::start(out, b"me", key)
    }

    /// `ms` for a value of `length` bytes, which [`MetaLine::end_with_value`] has to bring.
    pub fn set(out: &'o mut Vec<u8>, key: Key<'_>, length: usize) -> Self {
        let line = Self::start(out, b"ms", key);
        push_number(line.out, length);
        line
    }

    /// `mg` for a key of any bytes, sent in base64 with flag `b`.
    ///
    /// # Errors
    /// As [`base64_key`]; nothing is written.
    pub fn get_binary(out: &'o mut Vec<u8>, key: &[u8]) -> Result<Self, KeyError> {
        let start = out.len();
        out.extend_from_slice(b"mg ");
        if let Err(error) = base64_key(out, key) {
            out.truncate(start);
            return Err(error);
        }
        Ok(Self { out }.flag(b'b'))
    }

    fn start(out: &'o mut Vec<u8>, command: &[u8], key: Key<'_>) -> Self {
        out.extend_from_slice(command);
        push_token(out, key.as_bytes());
        Self { out }
    }

    /// A flag without a token.
    pub fn flag(self, letter: u8) -> Self {
        self.out.extend_from_slice(&[b' ', letter]);
        self
    }

    /// A flag with a number.
    pub fn number(self, letter: u8, value: impl itoa::Integer) -> Self {
        self.out.extend_from_slice(&[b' ', letter]);
        number(self.out, value);
        self
    }

    /// A flag with a number, if there is one.
    pub fn number_if(self, letter: u8, value: Option<impl itoa::Integer>) -> Self {
        match value {
            Some(value) => self.number(letter, value),
            None => self,
        }
    }

    /// Flag `M` with its letter.
    pub fn mode(self, mode: u8) -> Self {
        self.out.extend_from_slice(&[b' ', b'M', mode]);
        self
    }

    /// A flag without a token, if `is_set`.
    pub fn flag_if(self, letter: u8, is_set: bool) -> Self {
        if is_set { self.flag(letter) } else { self }
    }

    /// A flag with a token; it obeys the rules of a key.
    pub fn token(self, letter: u8, token: Key<'_>) -> Self {
        self.out.extend_from_slice(&[b' ', letter]);
        self.out.extend_from_slice(token.as_bytes());
        self
    }

    /// Ends the line.
    pub fn end(self) {
        self.out.extend_from_slice(b"\r\n");
    }

    /// Ends the line of a set and writes its data.
    pub fn end_with_value(self, value: &[u8]) {
        self.out.extend_from_slice(b"\r\n");
        self.out.extend_from_slice(value);
        self.out.extend_from_slice(b"\r\n");
    }
}

/// `mn`: the no-op whose reply confirms that every earlier reply has been sent.
pub fn meta_noop(out: &mut Vec<u8>) {
    out.extend_from_slice(b"mn\r\n");
}

/// Writes a key of any bytes as the base64 that flag `b` announces.
///
/// # Errors
/// [`KeyError::Empty`], or [`KeyError::TooLong`] if the base64 is longer than a key may be (187
/// bytes of key are the most); nothing is written.
pub fn base64_key(out: &mut Vec<u8>, key: &[u8]) -> Result<(), KeyError> {
    let length = key.len().div_ceil(3) * 4;
    if length == 0 {
        return Err(KeyError::Empty);
    }
    if length > KEY_BYTES_MAX {
        return Err(KeyError::TooLong { length });
    }
    key::base64_key(out, key);
    Ok(())
}

fn key_line<'k>(out: &mut Vec<u8>, command: &[u8], keys: impl IntoIterator<Item = Key<'k>>) {
    out.extend_from_slice(command);
    for key in keys {
        push_token(out, key.as_bytes());
    }
    out.extend_from_slice(b"\r\n");
}

fn push_token(out: &mut Vec<u8>, token: &[u8]) {
    out.push(b' ');
    out.extend_from_slice(token);
}

fn push_number(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.push(b' ');
    number(out, value);
}

fn end_line(out: &mut Vec<u8>, noreply: bool) {
    out.extend_from_slice(if noreply { b" noreply\r\n" } else { b"\r\n" });
}
