use proptest::prelude::*;

use super::super::body::tests::decode_naively;
use super::super::error::BodyError;
use super::*;

/// What became of a response.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Seen {
    /// Every head's status, and how many fields it has.
    heads: Vec<(u16, usize)>,
    body: Vec<u8>,
    /// Where it ended; nowhere if more was needed.
    end: Option<usize>,
    keep_alive: bool,
    is_switching: bool,
}

fn limits() -> ResponseLimits {
    let head = HeadLimits {
        head_bytes_max: 200,
        ..HeadLimits::default()
    };
    ResponseLimits {
        head,
        body_bytes_max: BODY_BYTES_MAX,
        interim_count_max: 3,
    }
}

/// Feeds the input in pieces that end at the given places, then the end of the connection.
fn read(method: &str, input: &[u8], cuts: &[usize]) -> Result<Seen, ResponseError> {
    let mut decoder = ResponseDecoder::new(method);
    let mut seen = Seen::default();
    let mut position = 0;
    for end in cuts.iter().copied().chain([input.len()]) {
        loop {
            let mut storage = FieldStorage::new();
            let step = decoder.decode(&input[position..end], &mut storage, &limits())?;
            assert!(step.consumed <= end - position);
            position += step.consumed;
            match step.part {
                ResponsePart::Nothing => {}
                ResponsePart::Interim(head) | ResponsePart::Head(head) => {
                    let (status, count) = (head.status, head.fields.len());
                    assert!(head.bytes.ends_with(b"\r\n\r\n"));
                    assert_eq!(&input[position - head.bytes.len()..position], head.bytes);
                    seen.heads.push((status, count));
                }
                ResponsePart::Body(piece) => {
                    assert!(!piece.is_empty());
                    seen.body.extend_from_slice(piece);
                }
            }
            let (consumed, done) = (step.consumed, step.done);
            assert_eq!(done, decoder.is_done());
            if done {
                seen.end = Some(position);
                seen.keep_alive = decoder.keep_alive();
                seen.is_switching = decoder.is_switching();
                return Ok(seen);
            }
            if consumed == 0 {
                break;
            }
        }
    }
    assert_eq!(decoder.has_begun(), !input.is_empty());
    if decoder.eof().is_ok() {
        assert!(decoder.is_done() && !decoder.keep_alive());
        seen.end = Some(position);
    }
    Ok(seen)
}

fn whole(method: &str, input: &str) -> Result<Seen, ResponseError> {
    read(method, input.as_bytes(), &[])
}

/// A response read the plain way: the whole input at hand, line by line.
fn read_naively(method: &str, input: &[u8]) -> Result<Seen, ()> {
    let mut seen = Seen::default();
    let mut position = 0;
    loop {
        let rest = &input[position..];
        if !rest.starts_with(&b"HTTP/1."[..rest.len().min(7)]) {
            return Err(());
        }
        let Some(end) = rest.windows(4).position(|four| four == b"\r\n\r\n") else {
            // A head that ends otherwise is wrong, and one without end too long.
            let text = String::from_utf8_lossy(rest);
            let is_over = text.contains("\n\n") || text.contains("\n\r\n") || rest.len() > 200;
            return if is_over { Err(()) } else { Ok(seen) };
        };
        let (text, after) = (&rest[..end + 2], position + end + 4);
        if end + 4 > 200 {
            return Err(());
        }
        position = after;
        let text = std::str::from_utf8(text).map_err(|_| ())?;
        let head = NaiveHead::read(text)?;
        seen.heads.push((head.status, head.fields.len()));
        let status = head.status;
        if status < 200 && status != 101 {
            if seen.heads.len() > 3 {
                return Err(());
            }
            continue;
        }
        seen.is_switching = status == 101 || (method == "CONNECT" && (200..300).contains(&status));
        let has_none = method == "HEAD" || matches!(status, 101 | 204 | 304) || seen.is_switching;
        seen.read_body(&head, has_none, input, position)?;
        return Ok(seen);
    }
}

impl Seen {
    fn read_body(
        &mut self,
        head: &NaiveHead<'_>,
        has_none: bool,
        input: &[u8],
        position: usize,
    ) -> Result<(), ()> {
        let rest = &input[position..];
        let length = head.length()?;
        let persists = !head.has("connection", "close")
            && (head.minor == 1 || head.has("connection", "keep-alive"));
        let is_chunked = head.all("transfer-encoding").next().is_some();
        if has_none {
            self.end = Some(position);
        } else if is_chunked {
            match decode_naively(rest)? {
                Some((body, used)) => (self.body, self.end) = (body, Some(position + used)),
                // How much of a part there is, the caller does not compare.
                None => return Ok(()),
            }
        } else if let Some(length) = length {
            if length as u64 > BODY_BYTES_MAX {
                return Err(());
            }
            self.body = rest[..rest.len().min(length)].to_vec();
            self.end = (rest.len() >= length).then_some(position + length);
        } else {
            (self.body, self.end) = (rest.to_vec(), Some(input.len()));
        }
        let until_close = !has_none && !is_chunked && length.is_none();
        self.keep_alive = self.end.is_some() && persists && !until_close && !self.is_switching;
        Ok(())
    }
}

struct NaiveHead<'b> {
    minor: u8,
    status: u16,
    fields: Vec<(String, &'b str)>,
}

impl<'b> NaiveHead<'b> {
    fn read(text: &'b str) -> Result<Self, ()> {
        let mut lines = text.strip_suffix("\r\n").ok_or(())?.split("\r\n");
        let first = lines.next().ok_or(())?;
        if text.replace("\r\n", "").contains(['\r', '\n', '\0']) {
            return Err(());
        }
        let minor = match first.get(..9).ok_or(())? {
            "HTTP/1.0 " => 0,
            "HTTP/1.1 " => 1,
            _ => return Err(()),
        };
        let code = first.get(9..12).ok_or(())?;
        let follows = first[12..].chars().next();
        if !code.bytes().all(|byte| byte.is_ascii_digit()) || !matches!(follows, None | Some(' ')) {
            return Err(());
        }
        let mut fields = Vec::new();
        for line in lines {
            let (name, value) = line.split_once(':').ok_or(())?;
            if !crate::http1::is_token(name.as_bytes()) {
                return Err(());
            }
            fields.push((name.to_ascii_lowercase(), value.trim_matches([' ', '\t'])));
        }
        let status = code.parse().map_err(|_| ())?;
        let head = Self {
            minor,
            status,
            fields,
        };
        head.check()?;
        if status < 100 { Err(()) } else { Ok(head) }
    }

    /// What every head is held to, whether it decides the framing or not.
    fn check(&self) -> Result<(), ()> {
        let codings: Vec<&str> = self.all("transfer-encoding").collect();
        let is_coded = !codings.is_empty();
        let is_chunked = matches!(codings[..], [one] if one.eq_ignore_ascii_case("chunked"));
        let has_length = self.length()?.is_some();
        if is_coded && (!is_chunked || has_length || self.minor == 0) {
            return Err(());
        }
        Ok(())
    }

    fn all<'n>(&'n self, name: &'n str) -> impl Iterator<Item = &'b str> + use<'b, 'n> {
        let fields = self.fields.iter().filter(move |(own, _)| own == name);
        fields.map(|(_, value)| *value)
    }

    fn has(&self, name: &str, option: &str) -> bool {
        self.all(name)
            .flat_map(|value| value.split(','))
            .any(|member| member.trim().eq_ignore_ascii_case(option))
    }

    fn length(&self) -> Result<Option<usize>, ()> {
        let mut lengths = Vec::new();
        for member in self
            .all("content-length")
            .flat_map(|value| value.split(','))
        {
            let digits = member.trim_matches([' ', '\t']);
            if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
                return Err(());
            }
            lengths.push(digits.parse::<usize>().map_err(|_| ())?);
        }
        lengths.dedup();
        match lengths[..] {
            [] => Ok(None),
            [length] => Ok(Some(length)),
            _ => Err(()),
        }
    }
}

/// The same as that of the plain reading of chunks.
const BODY_BYTES_MAX: u64 = 1 << 20;
const CHUNKED: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";

/// Method, input, body, how many bytes are not of the response, and whether the connection lasts.
const FRAMINGS: &[(&str, &str, &str, usize, bool)] = &[
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello+",
        "hello",
        1,
        true,
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 5, 5\r\n\r\nhello",
        "hello",
        0,
        true,
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5 ,5\r\n\r\nhello",
        "hello",
        0,
        true,
    ),
    (
        "HEAD",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nHTTP",
        "",
        4,
        true,
    ),
    ("HEAD", CHUNKED, "", 0, true),
    (
        "GET",
        "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello",
        "",
        5,
        true,
    ),
    (
        "GET",
        "HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n",
        "",
        0,
        true,
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\n\r\nto the end",
        "to the end",
        0,
        false,
    ),
    (
        "GET",
        "HTTP/1.0 200 OK\r\nContent-Length: 1\r\n\r\na",
        "a",
        0,
        false,
    ),
    (
        "GET",
        "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 1\r\n\r\na",
        "a",
        0,
        true,
    ),
    (
        "GET",
        "HTTP/1.1 200 OK\r\nConnection: x, Close\r\nContent-Length: 0\r\n\r\n",
        "",
        0,
        false,
    ),
    (
        "GET",
        "HTTP/1.1 101 Switching Protocols\r\n\r\n\x01\x02",
        "",
        2,
        false,
    ),
    (
        "CONNECT",
        "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
        "",
        5,
        false,
    ),
    (
        "CONNECT",
        "HTTP/1.1 403 No\r\nContent-Length: 5\r\n\r\nhello",
        "hello",
        0,
        true,
    ),
];

#[test]
fn every_framing_has_its_end() {
    for &(method, input, body, left, keep_alive) in FRAMINGS {
        for step in 1..=input.len() {
            let cuts: Vec<usize> = (0..input.len()).step_by(step).collect();
            let seen = read(method, input.as_bytes(), &cuts).unwrap();
            let is_switching = method == "CONNECT" && !keep_alive || input.contains(" 101 ");
            assert_eq!(seen.body, body.as_bytes(), "{input:?}");
            assert_eq!(seen.end, Some(input.len() - left), "{input:?}");
            assert_eq!(
                (seen.keep_alive, seen.is_switching),
                (keep_alive, is_switching)
            );
        }
    }
}

#[test]
fn interim_responses_come_before_the_final_one_and_are_counted() {
    let interim = "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n";
    let last = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n";
    let seen = whole("GET", &[&interim.repeat(3), last].concat()).unwrap();
    assert_eq!(seen.heads, [(103, 1), (103, 1), (103, 1), (200, 1)]);
    assert!(seen.keep_alive);
    let limit = 3;
    assert_eq!(
        whole("GET", &interim.repeat(4)),
        Err(ResponseError::TooManyInterim { limit })
    );
}

const AMBIGUOUS_FIELDS: &[&str] = &[
    "Content-Length: 5\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked\r\nContent-Length: 5",
    "Content-Length: 5\r\nContent-Length: 6",
    "Content-Length: 5, 6",
    "Content-Length: 5,",
    "Content-Length: ,5",
    "Content-Length: 5,,5",
    "Content-Length: 5 5",
    "Content-Length: +5",
    "Content-Length: -5",
    "Content-Length: 0x5",
    "Content-Length: 5;5",
    "Content-Length:",
    "Content-Length: 99999999999999999999",
    "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
    "Transfer-Encoding: chunked, chunked",
    "Transfer-Encoding: chunked, gzip",
    "Transfer-Encoding: gzip, chunked",
    "Transfer-Encoding: gzip",
    "Transfer-Encoding: identity",
    "Transfer-Encoding: xchunked",
    "Transfer-Encoding: \"chunked\"",
    "Transfer-Encoding:",
    "Transfer-Encoding : chunked",
    "Content-Length : 5",
    " Content-Length: 5",
    "X: a\r\n Content-Length: 5",
    "X: a\rContent-Length: 5",
    "X: a\nContent-Length: 5",
    "X: a\0b",
    "X: a\r\r\nContent-Length: 5",
    "Content-Length\r\nX: 5",
    ": 5",
    "X\x0b: 5",
];

#[test]
fn what_splits_or_smuggles_a_response_is_refused() {
    for fields in AMBIGUOUS_FIELDS {
        // A response without body is held to the same.
        for (method, status) in [("GET", 200), ("HEAD", 200), ("GET", 204), ("GET", 103)] {
            let input = format!("HTTP/1.1 {status} OK\r\n{fields}\r\n\r\n");
            let seen = whole(method, &input);
            assert!(
                matches!(seen, Err(ResponseError::Head(_))),
                "{input:?}: {seen:?}"
            );
        }
    }
    for input in [
        "HTTP/1.1 200 OK\n\n",
        "HTTP/1.1 200 OK\r\n\n",
        "\r\nHTTP/1.1 200 OK\r\n\r\n",
        " HTTP/1.1 200 OK\r\n\r\n",
        "http/1.1 200 OK\r\n\r\n",
        "HTTP/1.1 200\r OK\r\n\r\n",
        "HTTP/1.1\t200 OK\r\n\r\n",
        "HTTP/1.1 0200 OK\r\n\r\n",
        "HTTP/1.1 099 OK\r\n\r\n",
        "HTTP/1.10 200 OK\r\n\r\n",
        "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
    ] {
        let seen = whole("GET", input);
        assert!(
            matches!(seen, Err(ResponseError::Head(_))),
            "{input:?}: {seen:?}"
        );
    }
    for chunks in [
        "5\nhello",
        "5\r\nhello0\r\n",
        "+5\r\n",
        "0x5\r\n",
        " 5\r\n",
        "\r\n",
        "5 \r\n",
    ] {
        let seen = whole("GET", &format!("{CHUNKED}{chunks}"));
        assert!(
            matches!(seen, Err(ResponseError::Body(_))),
            "{chunks:?}: {seen:?}"
        );
    }
}

#[test]
fn nobody_waits_for_the_rest_of_what_is_no_head() {
    let refused = |input| whole("GET", input).unwrap_err();
    assert_eq!(
        refused("SSH-2"),
        ResponseError::Head(HeadError::VersionSyntax)
    );
    assert_eq!(
        refused("HTTP/2"),
        ResponseError::Head(HeadError::VersionUnsupported)
    );
    assert_eq!(
        refused("HTTP/1x"),
        ResponseError::Head(HeadError::VersionSyntax)
    );
    let endless = format!("HTTP/1.1 200 OK\r\nX: {}", "a".repeat(300));
    let (limit, length) = (200, endless.len());
    let too_long = HeadError::HeadTooLong { limit, length };
    assert_eq!(refused(&endless), ResponseError::Head(too_long));
    assert_eq!(
        refused("HTTP/1.1 200 OK\r\nContent-Length: 1048577\r\n\r\n"),
        ResponseError::Body(BodyError::TooLarge {
            limit: BODY_BYTES_MAX
        })
    );
}

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
