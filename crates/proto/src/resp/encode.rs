//! Commands of a client.

/// Appends a command: an array of bulk strings, one per argument.
///
/// ```
/// let mut wire = Vec::new();
/// dwell_proto::resp::command(&mut wire, &[b"GET", b"alice"]);
/// assert_eq!(wire, b"*2\r\n$3\r\nGET\r\n$5\r\nalice\r\n");
/// ```
///
/// Source: RESP3 specification, "Sending commands to a Redis server".
pub fn command(out: &mut Vec<u8>, arguments: &[&[u8]]) {
    length_line(out, b'*', arguments.len());
    for argument in arguments {
        length_line(out, b'$', argument.len());
        out.extend_from_slice(argument);
        out.extend_from_slice(b"\r\n");
    }
}

fn length_line(out: &mut Vec<u8>, kind: u8, length: usize) {
    // Nearly every length has one or two digits.
    let digit = |value: usize| b'0' + (value % 10) as u8;
    if length < 10 {
        return out.extend_from_slice(&[kind, digit(length), b'\r', b'\n']);
    }
    if length < 100 {
        let line = [kind, digit(length / 10), digit(length), b'\r', b'\n'];
        return out.extend_from_slice(&line);
    }
    out.push(kind);
    out.extend_from_slice(itoa::Buffer::new().format(length).as_bytes());
    out.extend_from_slice(b"\r\n");
}
