//! Values as JSON, for polls of several keys and for WebSocket.

use crate::cursor::Cursor;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
pub(super) use dwell_proto::json::string;

/// Appends the members that describe a value: `"v"`, or `"b64"` if it is not UTF-8, and `"c"`.
pub(super) fn value(out: &mut Vec<u8>, value: &[u8], cursor: Cursor) {
    if let Ok(text) = std::str::from_utf8(value) {
        out.extend_from_slice(b"\"v\":");
        string(out, text);
    } else {
        out.extend_from_slice(b"\"b64\":\"");
        let start = out.len();
        out.resize(start + value.len().div_ceil(3) * 4, 0);
        // There is room for just that.
        let _ = STANDARD.encode_slice(value, &mut out[start..]);
        out.push(b'"');
    }
    out.extend_from_slice(b",\"c\":\"");
    out.extend_from_slice(cursor.text().bare());
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(bytes: &[u8]) -> String {
        let mut out = Vec::new();
        value(&mut out, bytes, Cursor::of(b"hello", 0));
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn text_is_a_string_and_bytes_are_base64() {
        assert_eq!(text(b"a\"\n"), r#""v":"a\"\n","c":"lVXoVVxi3P0""#);
        assert_eq!(text(b""), r#""v":"","c":"lVXoVVxi3P0""#);
        assert_eq!(text(b"\xff\x00"), r#""b64":"/wA=","c":"lVXoVVxi3P0""#);
    }
}
