//! From field lines to field blocks.
//!
//! Nothing goes into a dynamic table: a block then means the same on every connection, so one that
//! many clients get is encoded once, and no connection has a table.

use super::{integer, static_table};

/// Appends a field line to a block. The name is in lower case.
///
/// Shape: fields that identify a user are marked, so that proxies do not put them into a table
/// either.
///
/// ```
/// use dwell_proto::http2::{encode_field, encode_status};
///
/// let mut block = Vec::new();
/// encode_status(200, &mut block);
/// encode_field(b"content-length", b"5", &mut block);
/// assert_eq!(block, b"\x88\x0f\x0d\x015");
/// ```
///
/// Source: RFC 7541 sections 6.2.2, 6.2.3 and 7.1.3.
pub fn encode_field(name: &[u8], value: &[u8], block: &mut Vec<u8>) {
    let pattern = match name {
        b"authorization" | b"cookie" | b"proxy-authorization" | b"set-cookie" => NEVER_INDEXED,
        _ => WITHOUT_INDEXING,
    };
    if let Some(index) = static_table::index_of_name(name) {
        integer::encode(index, 4, pattern, block);
    } else {
        block.push(pattern);
        encode_text(name, block);
    }
    encode_text(value, block);
}

/// Appends the pseudo-header field `:status` to a block, of three digits.
///
/// Source: RFC 7541 section 6.1 and appendix A.
pub fn encode_status(status: u16, block: &mut Vec<u8>) {
    let index = match status {
        200 => 8,
        204 => 9,
        206 => 10,
        304 => 11,
        400 => 12,
        404 => 13,
        500 => 14,
        _ => {
            let digits = [status / 100, status / 10 % 10, status % 10];
            let digits = digits.map(|digit| b'0' + digit as u8);
            return encode_field(b":status", &digits, block);
        }
    };
    block.push(INDEXED | index);
}

fn encode_text(text: &[u8], block: &mut Vec<u8>) {
    integer::encode(text.len() as u32, 7, 0, block);
    block.extend_from_slice(text);
}

const INDEXED: u8 = 0x80;
const NEVER_INDEXED: u8 = 0x10;
const WITHOUT_INDEXING: u8 = 0;
