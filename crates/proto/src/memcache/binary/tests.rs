use proptest::prelude::*;

use super::super::{ArithmeticMode, RequestLimits, StoreVerb};
use super::*;

/// A request as a client would write it.
fn frame(opcode: u8, extras: &[u8], key: &[u8], value: &[u8]) -> Vec<u8> {
    let mut bytes = vec![MAGIC, opcode];
    bytes.extend((key.len() as u16).to_be_bytes());
    bytes.extend([extras.len() as u8, 0, 0, 0]);
    bytes.extend(((extras.len() + key.len() + value.len()) as u32).to_be_bytes());
    bytes.extend(*b"opaq");
    bytes.extend(7_u64.to_be_bytes());
    bytes.extend_from_slice(extras);
    bytes.extend_from_slice(key);
    bytes.extend_from_slice(value);
    bytes
}

fn decoder() -> RequestDecoder {
    RequestDecoder::new(RequestLimits::default())
}

fn command(bytes: &[u8]) -> Command<'_> {
    let decoded = decoder().decode(bytes);
    assert_eq!(decoded.consumed, bytes.len());
    match decoded.progress {
        Progress::Request(request) => {
            assert_eq!(request.echo.opaque, *b"opaq");
            assert_eq!(request.cas_unique, 7);
            request.command
        }
        other => panic!("no request: {other:?}"),
    }
}

#[test]
fn requests_are_read_with_their_arguments() {
    let set = frame(0x01, &[0, 0, 0, 5, 0, 0, 1, 0], b"k", b"value");
    let expected = Command::Store {
        verb: StoreVerb::Set,
        key: b"k",
        flags: 5,
        exptime: 256,
        value: b"value",
    };
    assert_eq!(command(&set), expected);
    let mut extras = [0; 20];
    (extras[7], extras[15], extras[19]) = (3, 9, 60);
    let expected = Command::Arithmetic {
        mode: ArithmeticMode::Decrement,
        key: b"n",
        delta: 3,
        initial: 9,
        exptime: Some(60),
    };
    assert_eq!(command(&frame(0x06, &extras, b"n", b"")), expected);
    extras[16..].fill(0xff);
    let Command::Arithmetic { exptime, .. } = command(&frame(0x05, &extras, b"n", b"")) else {
        panic!("no arithmetic");
    };
    assert_eq!(exptime, None, "an exptime of all ones creates nothing");
    let expected = Command::Get {
        key: b"k",
        with_key: true,
        exptime: Some(1),
    };
    assert_eq!(command(&frame(0x24, &[0, 0, 0, 1], b"k", b"")), expected);
    assert_eq!(
        command(&frame(0x08, b"", b"", b"")),
        Command::Flush { delay: 0 }
    );
    assert_eq!(
        command(&frame(0x10, b"", b"", b"")),
        Command::Stat { topic: b"" }
    );
}

#[test]
fn a_body_that_contradicts_the_opcode_closes() {
    for bytes in [
        frame(0x00, b"", b"", b""),
        frame(0x00, b"", b"k", b"v"),
        frame(0x00, b"", &[b'k'; 251], b""),
        frame(0x01, b"1234", b"k", b"v"),
        frame(0x0a, b"", b"k", b""),
        frame(0x08, b"12", b"", b""),
    ] {
        let mut decoder = decoder();
        let Progress::Refused { status, closes, .. } = decoder.decode(&bytes).progress else {
            panic!("not refused: {bytes:?}");
        };
        assert_eq!(
            (status, closes),
            (Status::InvalidArguments, true),
            "{bytes:?}"
        );
        assert_eq!(decoder.decode(&bytes).progress, Progress::Close);
    }
}

#[test]
fn a_key_longer_than_the_body_closes() {
    let mut bytes = frame(0x01, &[0; 8], b"key", b"");
    bytes[11] = 4;
    let Progress::Refused { status, closes, .. } = decoder().decode(&bytes).progress else {
        panic!("not refused");
    };
    assert_eq!((status, closes), (Status::UnknownCommand, true));
}

#[test]
fn an_unknown_opcode_loses_its_body_and_nothing_else() {
    let mut bytes = frame(0x55, b"", b"k", &[b'v'; 1000]);
    bytes.extend(frame(0x0a, b"", b"", b""));
    let mut decoder = decoder();
    let refused = decoder.decode(&bytes[..30]);
    assert!(matches!(
        refused.progress,
        Progress::Refused { closes: false, .. }
    ));
    assert!(decoder.is_discarding());
    let next = decoder.decode(&bytes[refused.consumed..]);
    assert_eq!(refused.consumed + next.consumed, bytes.len());
    assert!(
        matches!(next.progress, Progress::Request(request) if request.command == Command::Noop)
    );
}

#[test]
fn a_value_too_large_is_refused_before_it_comes() {
    let limits = RequestLimits {
        item_bytes_max: 1000,
        ..RequestLimits::default()
    };
    let largest = 1000 - 1 - RequestLimits::ITEM_OVERHEAD_BYTES;
    let fits = frame(0x01, &[0; 8], b"k", &vec![0; largest]);
    let mut decoder = RequestDecoder::new(limits);
    assert!(matches!(
        decoder.decode(&fits).progress,
        Progress::Request(_)
    ));
    let larger = frame(0x01, &[0; 8], b"k", &vec![0; largest + 1]);
    let front = decoder.decode(&larger[..HEADER_BYTES + 9]);
    assert_eq!(front.consumed, HEADER_BYTES + 9);
    assert!(matches!(
        front.progress,
        Progress::TooLarge {
            key: b"k",
            deletes_old: true,
            ..
        }
    ));
    let rest = decoder.decode(&larger[HEADER_BYTES + 9..]);
    assert_eq!(rest.consumed, largest + 1);
    assert!(matches!(rest.progress, Progress::Incomplete { .. }));
}

#[test]
fn another_magic_ends_the_connection() {
    assert_eq!(decoder().decode(b"get a\r\n").progress, Progress::Close);
}

#[test]
fn a_reply_is_laid_out_as_the_protocol_says() {
    let mut out = Vec::new();
    let echo = Echo {
        opcode: 0x0c,
        opaque: [1, 2, 3, 4],
    };
    Reply {
        cas_unique: 5,
        extras: &[0, 0, 0, 6],
        key: b"key",
        value: b"value",
        ..Reply::new(echo, Status::Success)
    }
    .write(&mut out);
    let expected =
        b"\x81\x0c\0\x03\x04\0\0\0\0\0\0\x0c\x01\x02\x03\x04\0\0\0\0\0\0\0\x05\0\0\0\x06keyvalue";
    assert_eq!(out, expected);
    out.clear();
    Reply::new(echo, Status::KeyNotFound).write(&mut out);
    assert_eq!(&out[6..8], [0, 1]);
    assert!(out.ends_with(b"Not found"));
}

/// What a whole input comes to, as owned text.
fn decode_all(decoder: &mut RequestDecoder, input: &[u8], into: &mut Vec<String>) -> usize {
    let mut used = 0;
    loop {
        let front = decoder.decode(&input[used..]);
        used += front.consumed;
        match front.progress {
            Progress::Incomplete { .. } => return used,
            progress => into.push(format!("{progress:?}")),
        }
        if front.progress == Progress::Close {
            return used;
        }
    }
}

fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let extras = prop::sample::select(vec![0_usize, 4, 8, 20, 3]);
    (0_u8..0x30, extras, 0_usize..4, 0_usize..40, any::<u8>()).prop_map(
        |(opcode, extras, key, value, fill)| {
            frame(
                opcode,
                &vec![fill; extras],
                &vec![b'k'; key],
                &vec![fill; value],
            )
        },
    )
}

proptest! {
    #[test]
    fn a_byte_at_a_time_equals_the_whole(frames in prop::collection::vec(any_frame(), 1..6)) {
        let input = frames.concat();
        let limits = RequestLimits { item_bytes_max: 90, ..RequestLimits::default() };
        let mut whole = Vec::new();
        decode_all(&mut RequestDecoder::new(limits), &input, &mut whole);
        let (mut pieces, mut decoder, mut used) = (Vec::new(), RequestDecoder::new(limits), 0);
        for end in 1..=input.len() {
            used += decode_all(&mut decoder, &input[used..end], &mut pieces);
            if pieces.last().is_some_and(|last| last == "Close") {
                break;
            }
        }
        prop_assert_eq!(whole, pieces);
    }

    #[test]
    fn any_bytes_are_survived(input in prop::collection::vec(any::<u8>(), 0..200)) {
        let mut input = input;
        if let Some(first) = input.first_mut() {
            *first = MAGIC;
        }
        let mut decoder = RequestDecoder::new(RequestLimits::default());
        let used = decode_all(&mut decoder, &input, &mut Vec::new());
        prop_assert!(used <= input.len());
    }
}
