//! Replies, as a server writes them.

use super::super::error_line::ErrorLine;
use super::super::key::base64_key;
use super::super::meta::MetaStatus;
use super::number;

pub use super::super::status::Status;

/// A fixed line.
pub fn status(out: &mut Vec<u8>, status: Status) {
    out.extend_from_slice(status.as_bytes());
}

/// An error line.
pub fn error(out: &mut Vec<u8>, line: ErrorLine) {
    out.extend_from_slice(line.as_bytes());
}

/// One found item: `VALUE`, its data and their line ends.
pub fn value(out: &mut Vec<u8>, key: &[u8], flags: u32, cas_unique: Option<u64>, data: &[u8]) {
    out.reserve(key.len() + data.len() + 64);
    out.extend_from_slice(b"VALUE ");
    out.extend_from_slice(key);
    out.push(b' ');
    number(out, flags);
    out.push(b' ');
    number(out, data.len());
    if let Some(cas_unique) = cas_unique {
        out.push(b' ');
        number(out, cas_unique);
    }
    out.extend_from_slice(b"\r\n");
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}

/// The number an `incr` or `decr` leads to.
pub fn new_number(out: &mut Vec<u8>, value: u64) {
    number(out, value);
    out.extend_from_slice(b"\r\n");
}

/// `VERSION`.
pub fn version(out: &mut Vec<u8>, version: &str) {
    out.extend_from_slice(b"VERSION ");
    out.extend_from_slice(version.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// One statistic, with text.
pub fn stat(out: &mut Vec<u8>, name: &str, value: &str) {
    stat_name(out, name);
    out.extend_from_slice(value.as_bytes());
    out.extend_from_slice(b"\r\n");
}

/// One statistic, with a number.
pub fn stat_number(out: &mut Vec<u8>, name: &str, value: u64) {
    stat_name(out, name);
    number(out, value);
    out.extend_from_slice(b"\r\n");
}

fn stat_name(out: &mut Vec<u8>, name: &str) {
    out.extend_from_slice(b"STAT ");
    out.extend_from_slice(name.as_bytes());
    out.push(b' ');
}

/// Starts a meta reply without data; flags may follow, [`end_line`] ends it.
pub fn meta_status(out: &mut Vec<u8>, status: MetaStatus) {
    out.extend_from_slice(&status.code());
}

/// Starts a meta reply with data; flags may follow, [`end_line`] and [`data`] end it.
pub fn meta_value(out: &mut Vec<u8>, length: usize) {
    out.extend_from_slice(b"VA ");
    number(out, length);
}

/// A returned flag without a token.
pub fn meta_flag(out: &mut Vec<u8>, letter: u8) {
    out.extend_from_slice(&[b' ', letter]);
}

/// A returned flag with a number.
pub fn meta_flag_number(out: &mut Vec<u8>, letter: u8, value: impl itoa::Integer) {
    meta_flag(out, letter);
    number(out, value);
}

/// A returned flag with a token.
pub fn meta_flag_token(out: &mut Vec<u8>, letter: u8, token: &[u8]) {
    meta_flag(out, letter);
    out.extend_from_slice(token);
}

/// A returned key in base64, which flag `b` announces.
pub fn meta_flag_binary_key(out: &mut Vec<u8>, key: &[u8]) {
    meta_flag(out, b'k');
    base64_key(out, key);
    meta_flag(out, b'b');
}

/// Ends a line.
pub fn end_line(out: &mut Vec<u8>) {
    out.extend_from_slice(b"\r\n");
}

/// The data of a meta reply and its line end.
pub fn data(out: &mut Vec<u8>, data: &[u8]) {
    out.extend_from_slice(data);
    out.extend_from_slice(b"\r\n");
}
