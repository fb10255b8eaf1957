//! The end of a response, and what stays of it.

use super::*;
use crate::http1::error::BodyError;

#[test]
fn the_end_of_the_connection_means_what_the_place_says() {
    let ended = |input: &str| {
        let mut decoder = ResponseDecoder::new("GET");
        let mut rest = input.as_bytes();
        while !rest.is_empty() {
            let mut storage = FieldStorage::new();
            let step = decoder.decode(rest, &mut storage, &limits()).unwrap();
            rest = &rest[step.consumed..];
        }
        (decoder.eof(), decoder.has_begun(), decoder.has_head())
    };
    let unanswered = Err(ResponseError::Unanswered);
    let cut = Err(ResponseError::Body(BodyError::Truncated));
    assert_eq!(ended(""), (unanswered, false, false));
    assert_eq!(ended("HTTP/1.1 2"), (unanswered, true, false));
    assert_eq!(ended("HTTP/1.1 100 \r\n\r\n"), (unanswered, true, false));
    assert_eq!(
        ended("HTTP/1.1 200 \r\nContent-Length: 2\r\n\r\na"),
        (cut, true, true)
    );
    assert_eq!(
        ended(&format!("{CHUNKED}1\r\na\r\n0\r\n")),
        (cut, true, true)
    );
    assert_eq!(ended(&format!("{CHUNKED}0\r\n\r\n")), (Ok(()), true, true));
    assert_eq!(ended("HTTP/1.1 200 \r\n\r\na"), (Ok(()), true, true));
}

#[test]
fn trailers_are_kept_to_the_end() {
    let input = format!("{CHUNKED}1\r\na\r\n0\r\nDigest: b\r\nContent-Length: 4\r\n\r\n");
    let mut decoder = ResponseDecoder::new("GET");
    for byte in input.as_bytes() {
        let mut storage = FieldStorage::new();
        decoder.decode(&[*byte], &mut storage, &limits()).unwrap();
    }
    assert!(decoder.is_done());
    assert_eq!(
        decoder.trailers().iter().collect::<Vec<_>>(),
        [("Digest", &b"b"[..])]
    );
}

#[test]
fn a_head_in_one_piece_is_not_copied_and_one_in_several_not_kept() {
    let mut decoder = ResponseDecoder::new("GET");
    let mut storage = FieldStorage::new();
    let input = CHUNKED.as_bytes();
    decoder.decode(input, &mut storage, &limits()).unwrap();
    assert_eq!(decoder.tail.capacity(), 0);

    let mut decoder = ResponseDecoder::new("GET");
    for piece in [&input[..20], &input[20..], b"1\r\na"] {
        let mut storage = FieldStorage::new();
        decoder.decode(piece, &mut storage, &limits()).unwrap();
    }
    assert_eq!(decoder.tail.capacity(), 0);
}

#[test]
fn a_decoder_is_small() {
    assert!(
        size_of::<ResponseDecoder>() <= 72,
        "{}",
        size_of::<ResponseDecoder>()
    );
}
