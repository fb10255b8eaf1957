use proptest::prelude::*;

use super::*;

/// What became of a body: its bytes and how many bytes of the input it took.
type Outcome = Result<Option<(Vec<u8>, usize)>, BodyError>;

/// Feeds the input in pieces that end at the given places; `Ok(None)` if more was needed.
fn decode_in_pieces(framing: BodyFraming, limit: u64, input: &[u8], cuts: &[usize]) -> Outcome {
    let mut decoder = BodyDecoder::new(framing, limit);
    let (mut data, mut position) = (Vec::new(), 0);
    for end in cuts.iter().copied().chain([input.len()]) {
        while position < end || position == input.len() {
            let step = decoder.decode(&input[position..end])?;
            assert!(step.consumed <= end - position && step.data.len() <= step.consumed);
            data.extend_from_slice(step.data);
            position += step.consumed;
            assert_eq!(step.done, decoder.is_done());
            if step.done {
                return Ok(Some((data, position)));
            }
            if step.consumed == 0 {
                break;
            }
        }
    }
    Ok(None)
}

fn decode(input: &[u8]) -> Outcome {
    decode_in_pieces(BodyFraming::Chunked, 1 << 20, input, &[])
}

/// The chunked coding read the plain way: the whole input at hand, line by line. `Ok(None)` if
/// the input is a part of a body.
pub(in crate::http1) fn decode_naively(input: &[u8]) -> Result<Option<(Vec<u8>, usize)>, ()> {
    let (mut data, mut rest) = (Vec::new(), input);
    loop {
        let Some((line, after)) = naive_line(rest)? else {
            return Ok(None);
        };
        let digits = line
            .iter()
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        if digits == 0 || digits > 16 {
            return Err(());
        }
        naive_extensions(&line[digits..])?;
        let text = std::str::from_utf8(&line[..digits]).unwrap();
        let size = usize::from_str_radix(text, 16).unwrap();
        if size > 1 << 20 {
            return Err(());
        }
        rest = after;
        if size == 0 {
            break;
        }
        if rest.len() < size {
            data.extend_from_slice(rest);
            return Ok(None);
        }
        data.extend_from_slice(&rest[..size]);
        match &rest[size..] {
            [] | [b'\r'] => return Ok(None),
            [b'\r', b'\n', ..] => rest = &rest[size + 2..],
            _ => return Err(()),
        }
    }
    loop {
        let Some((line, after)) = naive_line(rest)? else {
            return Ok(None);
        };
        rest = after;
        if line.is_empty() {
            return Ok(Some((data, input.len() - rest.len())));
        }
        let colon = line.iter().position(|byte| *byte == b':').ok_or(())?;
        if !crate::http1::is_token(&line[..colon]) {
            return Err(());
        }
    }
}

/// Extensions as the grammar has them: each a semicolon, a name, and perhaps a value.
fn naive_extensions(mut text: &[u8]) -> Result<(), ()> {
    let blank = |text: &[u8]| {
        let blanks = text.iter().take_while(|byte| b" \t".contains(byte));
        blanks.count()
    };
    let token = |text: &[u8]| {
        let bytes = text
            .iter()
            .take_while(|byte| crate::http1::is_token(&[**byte]));
        bytes.count()
    };
    while !text.is_empty() {
        text = text[blank(text)..].strip_prefix(b";").ok_or(())?;
        text = &text[blank(text)..];
        let name = token(text);
        if name == 0 {
            return Err(());
        }
        text = &text[name..];
        let Some(value) = text[blank(text)..].strip_prefix(b"=") else {
            continue;
        };
        text = &value[blank(value)..];
        if let Some(mut quoted) = text.strip_prefix(b"\"") {
            while quoted.first().ok_or(())? != &b'"' {
                let length = 1 + usize::from(quoted[0] == b'\\');
                quoted = quoted.get(length..).ok_or(())?;
            }
            text = &quoted[1..];
        } else if token(text) > 0 {
            text = &text[token(text)..];
        } else {
            return Err(());
        }
    }
    Ok(())
}

type Line<'b> = (&'b [u8], &'b [u8]);

/// A line without its end, and what follows; control bytes other than tabs are refused.
fn naive_line(input: &[u8]) -> Result<Option<Line<'_>>, ()> {
    for (index, byte) in input.iter().enumerate() {
        match byte {
            b'\r' => match input.get(index + 1) {
                None => return Ok(None),
                Some(b'\n') => return Ok(Some((&input[..index], &input[index + 2..]))),
                Some(_) => return Err(()),
            },
            b'\t' => {}
            byte if byte.is_ascii_control() => return Err(()),
            _ => {}
        }
    }
    Ok(None)
}

#[test]
fn chunks_are_joined() {
    let whole = |input: &[u8]| decode(input).unwrap().unwrap();
    assert_eq!(whole(b"0\r\n\r\n"), (vec![], 5));
    assert_eq!(whole(b"000\r\n\r\nX"), (vec![], 7));
    assert_eq!(
        whole(b"5\r\nhello\r\n1\r\n \r\n05\r\nworld\r\n0\r\n\r\n").0,
        b"hello world"
    );
    assert_eq!(whole(b"a\r\n0123456789\r\n0\r\n\r\n").0, b"0123456789");
    assert_eq!(
        whole(b"A;name=value;x=\"y\"\r\n0123456789\r\n0;z\r\n\r\n").0,
        b"0123456789"
    );
    assert_eq!(whole(b"1 \t;name\r\nx\r\n0\r\n\r\n").0, b"x");
    for extensions in [
        "; a \t= \"\\\"; \u{e9}\\\\\" ;b",
        ";a;b;c=d",
        ";a=\"\"",
        "\t;\ta\t;\tb\t=\tc",
        ";!#$%&'*+-.^_`|~09azAZ=x",
    ] {
        let input = format!("1{extensions}\r\nx\r\n0{extensions}\r\n\r\n");
        assert_eq!(whole(input.as_bytes()).0, b"x", "{extensions:?}");
    }
    assert_eq!(whole(b"0000000000000001\r\nx\r\n0\r\n\r\n").0, b"x");
    assert_eq!(
        whole(b"0\r\nChecksum: 1\r\nEmpty:\r\n\r\nGET"),
        (vec![], 26)
    );
}

#[test]
fn hostile_chunks_are_refused() {
    let long_extension = format!("1;{}\r\nx\r\n0\r\n\r\n", "e".repeat(5_000));
    let many_extensions = "1;eeeeeeeeeeeeeeeeeeeeeeeeeeeee\r\nx\r\n".repeat(200);
    let long_trailer = format!("0\r\nX: {}\r\n\r\n", "e".repeat(9_000));
    let many_trailers = format!("0\r\n{}\r\n", "X: y\r\n".repeat(3_000));
    for (input, status) in [
        ("\r\n", 400),
        ("\r\n\r\n", 400),
        (";x\r\n", 400),
        (" 5\r\nhello\r\n", 400),
        ("+5\r\nhello\r\n", 400),
        ("-5\r\nhello\r\n", 400),
        ("0x5\r\nhello\r\n", 400),
        ("5h\r\nhello\r\n", 400),
        ("5,\r\nhello\r\n", 400),
        ("5 \r\nhello\r\n", 400),
        ("5 5\r\nhello\r\n", 400),
        ("g\r\n", 400),
        ("5\nhello\r\n", 400),
        ("5\rhello\r\n", 400),
        ("5\r\nhello\n0\r\n\r\n", 400),
        ("5\r\nhello\r0\r\n\r\n", 400),
        ("5\r\nhello0\r\n\r\n", 400),
        ("5\r\nhello!\r\n0\r\n\r\n", 400),
        ("4\r\nhello\r\n0\r\n\r\n", 400),
        ("5;a\nb\r\nhello\r\n", 400),
        ("5;a\rb\r\nhello\r\n", 400),
        ("5;a\0b\r\nhello\r\n", 400),
        ("5;\"\r\n\"\r\nhello\r\n", 400),
        ("00000000000000005\r\nhello\r\n", 400),
        ("10000000000000000\r\n", 400),
        ("fffffffffffffffff\r\n", 400),
        ("ffffffffffffffff\r\n", 413),
        ("100001\r\n", 413),
        ("0\n\n", 400),
        ("0\r\n\n", 400),
        ("0\r\n\rX", 400),
        ("0\r\nX\r\n\r\n", 400),
        ("0\r\nX : y\r\n\r\n", 400),
        ("0\r\n: y\r\n\r\n", 400),
        ("0\r\nX: y\n\r\n", 400),
        ("0\r\nX: y\r\n z\r\n\r\n", 400),
        ("0\r\nX: a\0b\r\n\r\n", 400),
        ("0\r\nX: y\r\rY: z\r\n\r\n", 400),
        ("0\r\nGET / HTTP/1.1\r\n\r\n", 400),
        (&long_extension, 400),
        (&many_extensions, 400),
        (&long_trailer, 431),
        (&many_trailers, 431),
    ] {
        let outcome = decode(input.as_bytes());
        let status_found = outcome.as_ref().map_or_else(|error| error.status(), |_| 0);
        assert_eq!(
            status_found,
            status,
            "{:?}: {outcome:?}",
            &input[..input.len().min(60)]
        );
        let by_bytes: Vec<usize> = (1..input.len()).collect();
        let in_pieces =
            decode_in_pieces(BodyFraming::Chunked, 1 << 20, input.as_bytes(), &by_bytes);
        assert_eq!(in_pieces, outcome);
    }
}

#[test]
fn malformed_extensions_are_refused() {
    for line in [
        "5;",
        "5; ",
        "5;;a",
        "5;a;",
        "5;a ",
        "5;a b",
        "5;a=",
        "5;=b",
        "5;a==b",
        "5;a=b c",
        "5;a=b ",
        "5;a=\"b",
        "5;a=\"b\"c",
        "5;a=\"b\\",
        "5;a=b\"c\"",
        "5;a(b)",
        "5;a@b",
        "5;\u{e9}",
        "5;a=\u{e9}",
    ] {
        let input = format!("{line}\r\nhello\r\n0\r\n\r\n");
        assert_eq!(
            decode(input.as_bytes()),
            Err(BodyError::ChunkExtension),
            "{line:?}"
        );
        let by_bytes: Vec<usize> = (1..input.len()).collect();
        let in_pieces =
            decode_in_pieces(BodyFraming::Chunked, 1 << 20, input.as_bytes(), &by_bytes);
        assert_eq!(in_pieces, Err(BodyError::ChunkExtension));
    }
}

#[test]
fn one_call_takes_one_piece_of_data_and_the_framing_around_it() {
    let mut decoder = BodyDecoder::new(BodyFraming::Chunked, 100);
    let input = b"2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n";
    let first = decoder.decode(input).unwrap();
    assert_eq!(
        (first.data, first.consumed, first.done),
        (&b"ab"[..], 10, false)
    );
    let second = decoder.decode(&input[10..]).unwrap();
    assert_eq!(
        (second.data, second.consumed, second.done),
        (&b"cd"[..], 9, true)
    );
    let after = decoder.decode(b"more").unwrap();
    assert_eq!(
        after,
        BodyStep {
            consumed: 0,
            data: b"",
            done: true
        }
    );
}

#[test]
fn a_length_is_counted_down() {
    let mut decoder = BodyDecoder::new(BodyFraming::Length(5), 5);
    let first = decoder.decode(b"abc").unwrap();
    assert_eq!(
        first,
        BodyStep {
            consumed: 3,
            data: b"abc",
            done: false
        }
    );
    assert_eq!(decoder.decode(b"").unwrap().consumed, 0);
    let second = decoder.decode(b"defgh").unwrap();
    assert_eq!(
        second,
        BodyStep {
            consumed: 2,
            data: b"de",
            done: true
        }
    );
    for framing in [BodyFraming::None, BodyFraming::Length(0)] {
        let mut decoder = BodyDecoder::new(framing, 0);
        assert!(decoder.is_done() && decoder.decode(b"x").unwrap().done);
    }
}

#[test]
fn limits_are_exact() {
    let too_large = Err(BodyError::TooLarge { limit: 5 });
    for (framing, fits, exceeds) in [
        (BodyFraming::Length(5), &b"abcde"[..], &b""[..]),
        (BodyFraming::Chunked, b"5\r\nabcde\r\n0\r\n\r\n", b"6\r\n"),
        (
            BodyFraming::Chunked,
            b"3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
            b"3\r\nabc\r\n3\r\n",
        ),
        (BodyFraming::UntilClose, b"abcde", b"abcdef"),
    ] {
        assert!(
            decode_in_pieces(framing, 5, fits, &[]).is_ok(),
            "{framing:?}"
        );
        if framing != BodyFraming::Length(5) {
            assert_eq!(decode_in_pieces(framing, 5, exceeds, &[]), too_large);
        }
    }
    let mut decoder = BodyDecoder::new(BodyFraming::Length(6), 5);
    assert_eq!(decoder.decode(b""), Err(BodyError::TooLarge { limit: 5 }));
}

#[test]
fn the_end_of_the_connection_ends_only_some_bodies() {
    let mut until_close = BodyDecoder::new(BodyFraming::UntilClose, 100);
    assert!(!until_close.decode(b"abc").unwrap().done);
    assert_eq!(until_close.eof(), Ok(()));
    assert!(until_close.is_done());
    for (framing, input) in [
        (BodyFraming::Length(5), &b"abcd"[..]),
        (BodyFraming::Chunked, b"0\r\n\r"),
    ] {
        let mut decoder = BodyDecoder::new(framing, 100);
        decoder.decode(input).unwrap();
        assert_eq!(decoder.eof(), Err(BodyError::Truncated));
    }
}

#[test]
fn a_decoder_is_small() {
    assert!(size_of::<BodyDecoder>() <= 48);
}

/// Bytes that are mostly chunked bodies, whole or not, clean or not.
fn chunked_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        8 => (1_usize..40).prop_map(|size| {
            let mut out = Vec::new();
            crate::http1::encode::chunk(&mut out, &b"\r\n0;hello "[..].repeat(4)[..size]);
            out
        }),
        2 => Just(b"3;a=b\r\nabc\r\n".to_vec()),
        3 => proptest::collection::vec(
            proptest::sample::select(&b";;==ab \t\"\\\xe9@"[..]), 0..8,
        ).prop_map(|extensions| [b"1", &extensions[..], b"\r\nx\r\n"].concat()),
        2 => Just(b"0\r\n\r\n".to_vec()),
        2 => Just(b"0\r\nX: y\r\n\r\n".to_vec()),
        1 => proptest::collection::vec(
            proptest::sample::select(&b"0123afx \t\r\n;:=\0\xff"[..]), 1..4),
    ];
    proptest::collection::vec(piece, 0..8).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_split_gives_the_same_body(
        input in chunked_like(),
        mut cuts in proptest::collection::vec(0_usize..200, 0..10),
    ) {
        cuts.retain(|cut| *cut < input.len());
        cuts.sort_unstable();
        let whole = decode(&input);
        let in_pieces = decode_in_pieces(BodyFraming::Chunked, 1 << 20, &input, &cuts);
        prop_assert_eq!(&in_pieces, &whole);
        let bytes: Vec<usize> = (1..input.len()).collect();
        let by_bytes = decode_in_pieces(BodyFraming::Chunked, 1 << 20, &input, &bytes);
        prop_assert_eq!(&by_bytes, &whole);
    }

    #[test]
    fn the_naive_reading_agrees(input in chunked_like()) {
        match (decode(&input), decode_naively(&input)) {
            (Ok(found), Ok(expected)) => prop_assert_eq!(found, expected),
            // The decoder refuses a line at its first wrong byte, the naive one at its end.
            (Err(_), Err(()) | Ok(None)) => {}
            (found, expected) => prop_assert!(false, "{found:?} instead of {expected:?}"),
        }
    }

    #[test]
    fn what_was_encoded_is_decoded(
        pieces in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 0..8),
    ) {
        let mut encoded = Vec::new();
        for piece in &pieces {
            crate::http1::encode::chunk(&mut encoded, piece);
        }
        crate::http1::encode::last_chunk(&mut encoded);
        let decoded = decode(&encoded).unwrap().unwrap();
        prop_assert_eq!(decoded, (pieces.concat(), encoded.len()));
    }
}
