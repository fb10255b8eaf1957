use dwell_proto::http1::HeadError;
use proptest::prelude::*;

use super::*;

fn options() -> UpstreamOptions {
    UpstreamOptions {
        answer_bytes_max: 100,
        ..UpstreamOptions::new(([127, 0, 0, 1], 1).into())
    }
}

/// Feeds the input in pieces that end at the given places, then ends it if nothing came of it.
fn read(input: &[u8], cuts: &[usize]) -> Result<Progress, UpstreamError> {
    let mut reader = AnswerReader::new(false);
    let mut start = 0;
    for end in cuts.iter().copied().chain([input.len()]) {
        match reader.feed(&input[start..end], &options())? {
            Progress::Partial => start = end,
            // What came in an earlier piece cannot know of bytes that follow it.
            Progress::Complete { answer, reusable } => {
                let reusable = reusable && end == input.len();
                return Ok(Progress::Complete { answer, reusable });
            }
        }
    }
    reader.end()
}

fn answer(input: &str) -> (Answer, bool) {
    match read(input.as_bytes(), &[]) {
        Ok(Progress::Complete { answer, reusable }) => (answer, reusable),
        other => panic!("{input:?}: {other:?}"),
    }
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
    let mut reader = AnswerReader::new(true);
    let fed = reader
        .feed(
            b"HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n",
            &options(),
        )
        .unwrap();
    let Progress::Complete { answer, reusable } = fed else {
        panic!("{fed:?}")
    };
    assert_eq!(
        (answer.content_length, answer.body.len(), reusable),
        (Some(500), 0, true)
    );
}

#[test]
fn faults_are_told_apart() {
    let too_large = UpstreamError::TooLarge { limit: 100 };
    assert_eq!(
        error("HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n"),
        too_large
    );
    assert_eq!(
        error("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n"),
        too_large
    );
    assert_eq!(
        error(&format!("HTTP/1.1 200 OK\r\n\r\n{}", "a".repeat(101))),
        too_large
    );
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
        let whole = read(&input, &[]);
        prop_assert_eq!(&read(&input, &cuts), &whole);
        let bytes: Vec<usize> = (1..input.len()).collect();
        prop_assert_eq!(read(&input, &bytes), whole);
    }
}
