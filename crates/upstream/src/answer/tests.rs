use dwell_proto::http1::{BodyError, HeadError};
use proptest::prelude::*;

use super::*;

fn options() -> UpstreamOptions {
    UpstreamOptions {
        answer_bytes_max: 100,
        ..UpstreamOptions::new(([127, 0, 0, 1], 1).into())
    }
}

/// What came of an answer.
#[derive(Debug, PartialEq, Eq)]
struct Read {
    /// The parts that were handed on, pieces of the body that follow each other as one.
    parts: Vec<AnswerPart>,
    /// What was gathered.
    whole: Option<Answer>,
    reusable: bool,
}

/// Feeds the input in pieces that end at the given places, then ends it if nothing came of it.
fn read_as(taking: Taking, input: &[u8], cuts: &[usize]) -> Result<Read, UpstreamError> {
    let mut reader = AnswerReader::new(false, taking, 1 << 20);
    let (mut start, mut parts) = (0, Vec::new());
    for end in cuts.iter().copied().chain([input.len()]) {
        match reader.feed(&input[start..end], &options(), &mut parts)? {
            Progress::Partial => start = end,
            // What came in an earlier piece cannot know of bytes that follow it.
            Progress::Complete { reusable } => {
                return Ok(Read {
                    parts: joined(parts),
                    whole: reader.take_whole(),
                    reusable: reusable && end == input.len(),
                });
            }
            Progress::Switched(_) => return Err(UpstreamError::SwitchedProtocols),
        }
    }
    match reader.end(&mut parts)? {
        Progress::Complete { reusable } => Ok(Read {
            parts: joined(parts),
            whole: reader.take_whole(),
            reusable,
        }),
        other => panic!("{other:?}"),
    }
}

fn joined(parts: Vec<AnswerPart>) -> Vec<AnswerPart> {
    let mut joined: Vec<AnswerPart> = Vec::new();
    for part in parts {
        match (joined.last_mut(), part) {
            (Some(AnswerPart::Body(before)), AnswerPart::Body(piece)) => {
                *before = [&before[..], &piece[..]].concat().into();
            }
            (_, part) => joined.push(part),
        }
    }
    joined
}

fn read(input: &[u8], cuts: &[usize]) -> Result<Read, UpstreamError> {
    read_as(Taking::Whole, input, cuts)
}

fn answer(input: &str) -> (Answer, bool) {
    match read(input.as_bytes(), &[]) {
        Ok(Read {
            whole: Some(answer),
            reusable,
            ..
        }) => (answer, reusable),
        other => panic!("{input:?}: {other:?}"),
    }
}

fn in_parts(input: &str) -> Vec<AnswerPart> {
    let read = read_as(Taking::Parts, input.as_bytes(), &[]).unwrap();
    assert_eq!(read.whole, None);
    read.parts
}

fn error(input: &str) -> UpstreamError {
    read(input.as_bytes(), &[]).unwrap_err()
}

#[test]
fn every_framing_gives_the_body() {
    for (input, expected_reusable) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello", true),
        (
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n",
            true,
        ),
        ("HTTP/1.1 200 OK\r\n\r\nhello", false),
        ("HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello", false),
        (
            "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5\r\n\r\nhello",
            false,
        ),
        ("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello!", false),
        (
            "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 \r\nLink: a\r\n\r\n\
             HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
            true,
        ),
    ] {
        let (answer, reusable) = answer(input);
        assert_eq!(
            (answer.status, &answer.body[..]),
            (200, &b"hello"[..]),
            "{input:?}"
        );
        assert_eq!(reusable, expected_reusable, "{input:?}");
    }
}

#[test]
fn only_end_to_end_fields_are_kept() {
    let (answer, _) = answer(
        "HTTP/1.1 200 OK\r\nDate: x\r\nX-A: 1\r\nConnection: keep-alive, x-b\r\nX-B: 2\r\n\
         Keep-Alive: 5\r\nContent-Length: 0\r\nset-cookie: a\r\nSet-Cookie: b\r\nX-Empty:\r\n\r\n",
    );
    let fields: Vec<(&str, &[u8])> = answer
        .fields
        .iter()
        .map(|(n, v)| (n.as_str(), &v[..]))
        .collect();
    let expected: [(&str, &[u8]); 4] = [
        ("X-A", b"1"),
        ("set-cookie", b"a"),
        ("Set-Cookie", b"b"),
        ("X-Empty", b""),
    ];
    assert_eq!(fields, expected);
    assert_eq!(answer.content_length, Some(0));
}

#[test]
fn an_answer_to_head_has_a_length_and_no_body() {
    let input = b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n";
    let mut reader = AnswerReader::new(true, Taking::Whole, 0);
    let fed = reader.feed(input, &options(), &mut Vec::new()).unwrap();
    assert_eq!(fed, Progress::Complete { reusable: true });
    let answer = reader.take_whole().unwrap();
    assert_eq!((answer.content_length, answer.body.len()), (Some(500), 0));

    let (mut parts, mut reader) = (Vec::new(), AnswerReader::new(true, Taking::Parts, 0));
    let fed = reader.feed(input, &options(), &mut parts).unwrap();
    assert_eq!(fed, Progress::Complete { reusable: true });
    assert!(matches!(
        &parts[..],
        [AnswerPart::Head(head), AnswerPart::End(_)] if head.content_length == Some(500)
    ));
}

#[test]
fn what_is_too_large_to_be_shared_goes_on_in_parts() {
    let body = "a".repeat(101);
    for input in [
        format!("HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n{body}"),
        format!(
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n\
             5\r\naaaaa\r\n60\r\n{}\r\n0\r\n\r\n",
            &body[5..]
        ),
        format!("HTTP/1.1 200 OK\r\n\r\n{body}"),
    ] {
        let read = read(input.as_bytes(), &[]).unwrap();
        assert_eq!(read.whole, None, "{input:?}");
        let [
            AnswerPart::Head(head),
            AnswerPart::Body(read),
            AnswerPart::End(_),
        ] = &read.parts[..]
        else {
            panic!("{input:?}: {read:?}");
        };
        assert_eq!(
            (head.status, &read[..]),
            (200, body.as_bytes()),
            "{input:?}"
        );
    }
}

#[test]
fn a_stream_of_events_is_not_gathered() {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: Text/Event-Stream; charset=utf-8\r\n\r\n";
    let mut reader = AnswerReader::new(false, Taking::Whole, 1 << 20);
    let mut parts = Vec::new();
    let fed = reader.feed(head.as_bytes(), &options(), &mut parts);
    assert_eq!(fed, Ok(Progress::Partial));
    assert!(matches!(&parts[..], [AnswerPart::Head(_)]));
    // Nobody has granted any of it.
    assert!(reader.is_paused());
}

#[test]
fn parts_are_interim_heads_the_head_the_body_and_trailer_fields() {
    let parts = in_parts(
        "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n\
         HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: Digest\r\n\r\n\
         5\r\nhello\r\n0\r\nDigest: x\r\nContent-Length: 7\r\n\r\n",
    );
    let [first, second, head, body, end] = &parts[..] else {
        panic!("{parts:?}");
    };
    assert!(matches!(first, AnswerPart::Interim(head) if head.status == 100));
    assert!(matches!(second, AnswerPart::Interim(head) if head.status == 103));
    let announced = vec![("Trailer".to_owned(), Bytes::from_static(b"Digest"))];
    assert!(matches!(head, AnswerPart::Head(head) if head.fields == announced));
    assert_eq!(*body, AnswerPart::Body(Bytes::from_static(b"hello")));
    let trailers = vec![("Digest".to_owned(), Bytes::from_static(b"x"))];
    assert_eq!(*end, AnswerPart::End(trailers));
}

#[test]
fn nothing_is_announced_that_cannot_follow() {
    let parts = in_parts("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nTrailer: Digest\r\n\r\n");
    assert!(matches!(&parts[0], AnswerPart::Head(head) if head.fields.is_empty()));
}

#[test]
fn what_is_handed_on_is_taken_off_the_credit() {
    let mut reader = AnswerReader::new(false, Taking::Parts, 5);
    let mut parts = Vec::new();
    let head = b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhell";
    reader.feed(head, &options(), &mut parts).unwrap();
    assert!(!reader.is_paused());
    // What was read already is handed on all the same.
    reader.feed(b"o, yo", &options(), &mut parts).unwrap();
    assert!(reader.is_paused());
    reader.credit += 1;
    let fed = reader.feed(b"u", &options(), &mut parts).unwrap();
    assert_eq!(fed, Progress::Complete { reusable: true });
}

#[test]
fn faults_are_told_apart() {
    assert_eq!(
        error("HTTP/1.1 101 Switching\r\n\r\n"),
        UpstreamError::SwitchedProtocols
    );
    assert_eq!(
        error(&"HTTP/1.1 102 Processing\r\n\r\n".repeat(33)),
        UpstreamError::TooManyInterim { limit: 32 }
    );
    assert_eq!(error(""), UpstreamError::Closed);
    assert_eq!(error("HTTP/1.1 200 OK\r\nX: "), UpstreamError::Closed);
    assert_eq!(
        error("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhell"),
        UpstreamError::Closed
    );
    let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
    assert_eq!(error(&format!("{chunked}5\r\nhel")), UpstreamError::Closed);
    let bad = UpstreamError::BadBody(BodyError::ChunkSize);
    assert_eq!(error(&format!("{chunked}x\r\n")), bad);
    for garbage in [
        "SSH-2.0-x\r\n",
        "HTTP/2",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 2 OK\r\n\r\n",
    ] {
        assert!(
            matches!(error(garbage), UpstreamError::BadHead(_)),
            "{garbage:?}"
        );
    }
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(70_000));
    let length = endless.len();
    let limit = 65_536;
    assert_eq!(
        error(&endless),
        UpstreamError::BadHead(HeadError::HeadTooLong { limit, length })
    );
}

fn answer_like() -> impl Strategy<Value = Vec<u8>> {
    let pieces: &[&[u8]] = &[
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 100 Continue\r\n\r\n",
        b"Content-Length: 5\r\n",
        b"Transfer-Encoding: chunked\r\n",
        b"\r\n",
        b"hello",
        b"5\r\nhello\r\n",
        b"0\r\n\r\n",
        b"X: y\r\n",
        b"\n",
    ];
    let middle = proptest::collection::vec(proptest::sample::select(pieces), 0..8);
    middle.prop_map(|middle| [b"HTTP/1.1 200 OK\r\n", &middle.concat()[..]].concat())
}

proptest! {
    #[test]
    fn any_split_gives_the_same_answer(
        input in answer_like(),
        mut cuts in proptest::collection::vec(0_usize..120, 0..6),
    ) {
        cuts.retain(|cut| *cut < input.len());
        cuts.sort_unstable();
        let bytes: Vec<usize> = (1..input.len()).collect();
        for taking in [Taking::Whole, Taking::Parts] {
            let whole = read_as(taking, &input, &[]);
            prop_assert_eq!(&read_as(taking, &input, &cuts), &whole);
            prop_assert_eq!(read_as(taking, &input, &bytes), whole);
        }
    }
}
