//! Properties: heads in pieces, and any bytes.

use super::*;
use proptest::prelude::*;

/// Bytes that look enough like a head for the interesting paths to be taken.
fn head_like() -> impl Strategy<Value = Vec<u8>> {
    let pieces: &[&[u8]] = &[
        b"GET / HTTP/1.1\r\n",
        b"POST /a?b HTTP/1.0\r\n",
        b"Host: a\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"\r\n",
        b"\n",
        b"\r",
        b" ",
        b"X: y\r\n",
        b"X: y \n",
        b"X:\r\n",
        b"\0",
        b"\xff",
    ];
    let piece = proptest::sample::select(pieces);
    proptest::collection::vec(piece, 0..12).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn byte_at_a_time_finds_the_same_end_as_whole(input in head_like()) {
        let whole = head_end(&input, &mut 0);
        let mut scanned = 0;
        let by_bytes =
            (1..=input.len()).find_map(|length| head_end(&input[..length], &mut scanned));
        prop_assert_eq!(by_bytes, whole);
        if whole.is_some() {
            prop_assert_eq!(scanned, 0);
        }
    }

    #[test]
    fn byte_at_a_time_is_read_like_the_whole(input in head_like()) {
        let read = |input: &[u8], scanned: &mut usize| {
            let mut storage = FieldStorage::new();
            let next = next_request(input, scanned, &mut storage, &HeadLimits::default());
            next.map(|head| head.map(|head| (head.length, head.framing, head.path.to_owned())))
        };
        let whole = read(&input, &mut 0);
        let mut scanned = 0;
        let mut by_bytes = (1..=input.len()).map(|length| read(&input[..length], &mut scanned));
        let by_bytes = by_bytes.find(|read| !matches!(read, Ok(None)));
        match by_bytes {
            Some(by_bytes) => prop_assert_eq!(by_bytes, whole),
            // A head can be known to be wrong before its end comes.
            None => prop_assert!(!matches!(whole, Ok(Some(_)))),
        }
        let Some(end) = head_end(&input, &mut 0) else { return Ok(()) };
        let mut storage = FieldStorage::new();
        let parsed = parse_request(&input[..end], &mut storage, &HeadLimits::default());
        let parsed = parsed.map(|head| Some((head.length, head.framing, head.path.to_owned())));
        prop_assert_eq!(read(&input, &mut 0), parsed);
    }

    #[test]
    fn what_is_accepted_has_only_whole_lines(input in head_like()) {
        let Some(end) = head_end(&input, &mut 0) else { return Ok(()) };
        let mut storage = FieldStorage::new();
        if parse_request(&input[..end], &mut storage, &HeadLimits::default()).is_ok() {
            let text = &input[..end];
            for (index, byte) in text.iter().enumerate() {
                match byte {
                    b'\n' => prop_assert_eq!(text[index - 1], b'\r'),
                    b'\r' => prop_assert_eq!(text[index + 1], b'\n'),
                    _ => prop_assert_ne!(*byte, 0),
                }
            }
        }
    }

    #[test]
    fn any_bytes_are_answered(input in proptest::collection::vec(any::<u8>(), 0..200)) {
        let mut storage = FieldStorage::new();
        let _ = parse_request(&input, &mut storage, &HeadLimits::default());
    }
}
