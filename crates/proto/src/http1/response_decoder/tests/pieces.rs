//! Properties: responses in pieces, beside the plain reader, and any bytes.

use super::naive::read_naively;
use super::*;
use proptest::prelude::*;

/// Bytes that look enough like a response for the interesting paths to be taken.
fn response_like() -> impl Strategy<Value = Vec<u8>> {
    let lines: &[&[u8]] = &[
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"HTTP/1.0 404 \r\n",
        b"HTTP/1.1 204\r\n",
        b"HTTP/1.1 101 Now\r\n",
        b"",
    ];
    let pieces: &[&[u8]] = &[
        b"HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"Content-Length: 5\r\n",
        b"Content-Length: 5, 5\r\n",
        b"content-length: 1048577\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"Connection: close\r\n",
        b"Connection: x,keep-alive\r\n",
        b"X: \ty \r\n",
        b"X: y\n",
        b"5\r\nhello\r\n",
        b"ffffff\r\n",
        b"0\r\n\r\n",
        b"0\r\nDigest: x\r\n\r\n",
        b"hello",
        b"\r\n",
        b"\r\n",
        b"\r",
        b"\0",
    ];
    let first = proptest::sample::select(lines);
    let more = proptest::collection::vec(proptest::sample::select(pieces), 0..9);
    (first, more).prop_map(|(first, more)| [first, &more.concat()[..]].concat())
}

/// The limit alone: how much of a head that is too long has come depends on the pieces.
fn without_length(error: ResponseError) -> ResponseError {
    match error {
        ResponseError::Head(HeadError::HeadTooLong { limit, .. }) => {
            ResponseError::Head(HeadError::HeadTooLong {
                limit,
                length: limit,
            })
        }
        error => error,
    }
}

proptest! {
    #[test]
    fn any_split_gives_the_same_and_so_does_a_plain_reader(
        input in response_like(),
        method in proptest::sample::select(&["GET", "HEAD", "CONNECT"][..]),
        mut cuts in proptest::collection::vec(0_usize..300, 0..6),
    ) {
        cuts.retain(|cut| *cut < input.len());
        cuts.sort_unstable();
        let whole = read(method, &input, &[]).map_err(without_length);
        let in_pieces = read(method, &input, &cuts).map_err(without_length);
        prop_assert_eq!(&in_pieces, &whole);
        let bytes: Vec<usize> = (1..input.len()).collect();
        let by_bytes = read(method, &input, &bytes).map_err(without_length);
        prop_assert_eq!(&by_bytes, &whole);
        match (whole, read_naively(method, &input)) {
            (Ok(seen), Ok(naive)) if seen.end.is_some() => prop_assert_eq!(seen, naive),
            (Ok(seen), Ok(naive)) => prop_assert_eq!(seen.heads, naive.heads),
            (Err(_), Err(())) => {}
            // The plain reader looks at a line of a chunked body when it is all there.
            (Err(ResponseError::Body(_)), Ok(naive)) if naive.end.is_none() => {}
            (seen, naive) => prop_assert!(false, "{seen:?} but plainly {naive:?}"),
        }
    }

    #[test]
    fn any_bytes_are_answered(
        input in proptest::collection::vec(any::<u8>(), 0..200),
        has_line in any::<bool>(),
    ) {
        let line: &[u8] = if has_line { b"HTTP/1.1 200 OK\r\n" } else { b"" };
        let _ = read("GET", &[line, &input].concat(), &[]);
    }
}
