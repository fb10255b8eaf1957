use proptest::prelude::*;

use super::super::command::{ArithmeticMode, StoreVerb};
use super::*;

/// What a server would do with `input`, chunk by chunk, as text that can be compared.
fn transcript(chunks: &[&[u8]], limits: RequestLimits) -> Vec<String> {
    let mut decoder = RequestDecoder::new(limits);
    let mut pending = Vec::new();
    let mut seen = Vec::new();
    for chunk in chunks {
        pending.extend_from_slice(chunk);
        let mut consumed = 0;
        loop {
            let step = decoder.decode(&pending[consumed..]);
            consumed += step.consumed;
            match step.progress {
                Progress::Incomplete { needed } => {
                    assert!(
                        needed > pending.len() - consumed,
                        "asks for no more than it has"
                    );
                    break;
                }
                Progress::Close(reason) => {
                    seen.push(format!("close {reason:?}"));
                    return seen;
                }
                progress => {
                    assert!(step.consumed > 0, "progress without a byte");
                    seen.push(format!("{progress:?}"));
                }
            }
        }
        pending.drain(..consumed);
    }
    seen
}

fn decode_all(input: &[u8]) -> Vec<String> {
    transcript(&[input], RequestLimits::default())
}

/// The single request in `input`.
fn decode_one(input: &[u8]) -> Progress<'_> {
    let step = RequestDecoder::default().decode(input);
    assert_eq!(step.consumed, input.len(), "all of {input:?}");
    step.progress
}

fn command(input: &[u8]) -> Command<'_> {
    match decode_one(input) {
        Progress::Command(command) => command,
        other => panic!("{other:?}"),
    }
}

/// The lines a server would answer to `input` without executing anything.
fn error_lines(input: &[u8]) -> String {
    let mut decoder = RequestDecoder::default();
    let mut consumed = 0;
    let mut answers = String::new();
    loop {
        let step = decoder.decode(&input[consumed..]);
        consumed += step.consumed;
        match step.progress {
            Progress::Incomplete { .. } => return answers,
            Progress::Error(line) => answers.push_str(&(line.to_string() + ";")),
            Progress::Command(Command::MetaNoop) => answers += "MN;",
            Progress::Command(command) => panic!("{command:?}"),
            Progress::TooLarge { .. } => {}
            Progress::Close(_) => return answers + "closed",
        }
    }
}

#[test]
fn storage_commands() {
    let set = command(b"set a 5 60 3\r\nabc\r\n");
    let expected = Command::Store {
        verb: StoreVerb::Set,
        key: b"a",
        flags: 5,
        exptime: 60,
        noreply: false,
        value: b"abc",
    };
    assert_eq!(set, expected);
    let cas = command(b"cas a 0 -1 0 18446744073709551615 noreply\r\n\r\n");
    let expected = Command::Store {
        verb: StoreVerb::Cas(u64::MAX),
        key: b"a",
        flags: 0,
        exptime: -1,
        noreply: true,
        value: b"",
    };
    assert_eq!(cas, expected);
}

#[test]
fn a_value_may_hold_line_ends() {
    let Command::Store { value, .. } = command(b"set a 0 0 6\r\n\r\nEND\n\r\n") else {
        panic!()
    };
    assert_eq!(value, b"\r\nEND\n");
}

#[test]
fn retrieval_commands() {
    let Command::Get {
        keys,
        with_cas: true,
    } = command(b"gets  a b \n")
    else {
        panic!()
    };
    assert_eq!(keys.iter().collect::<Vec<_>>(), [b"a", b"b"]);
    let Command::GetAndTouch {
        keys,
        exptime: -5,
        with_cas: false,
    } = command(b"gat -5 a\r\n")
    else {
        panic!()
    };
    assert_eq!(keys.iter().collect::<Vec<_>>(), [b"a"]);
}

#[test]
fn the_other_text_commands() {
    assert_eq!(
        command(b"delete a 0 noreply\r\n"),
        Command::Delete {
            key: b"a",
            noreply: true
        }
    );
    let decr = Command::Arithmetic {
        mode: ArithmeticMode::Decrement,
        key: b"n",
        delta: 7,
        noreply: false,
    };
    assert_eq!(command(b"decr n 7\r\n"), decr);
    let touch = Command::Touch {
        key: b"a",
        exptime: 10,
        noreply: true,
    };
    assert_eq!(command(b"touch a 10 noreply\r\n"), touch);
    assert_eq!(
        command(b"flush_all\r\n"),
        Command::FlushAll {
            delay: 0,
            noreply: false
        }
    );
    assert_eq!(
        command(b"flush_all \r\n"),
        Command::FlushAll {
            delay: 0,
            noreply: false
        }
    );
    assert_eq!(
        command(b"flush_all noreply\r\n"),
        Command::FlushAll {
            delay: 0,
            noreply: true
        }
    );
    assert_eq!(
        command(b"flush_all -1\r\n"),
        Command::FlushAll {
            delay: -1,
            noreply: false
        }
    );
    assert_eq!(
        command(b"verbosity 1\r\n"),
        Command::Verbosity {
            level: 1,
            noreply: false
        }
    );
    assert_eq!(command(b"version\r\n"), Command::Version);
    assert_eq!(command(b"quit\r\n"), Command::Quit);
    let Command::Stats { arguments } = command(b"stats items\r\n") else {
        panic!()
    };
    assert_eq!(arguments.text(), b"items");
}

#[test]
fn meta_commands_with_typed_flags() {
    let line = b"mg key v q u I T30 N-1 R5 C7 E8 x F9 D2 J3 Oxy k c P1\r\n";
    let Command::MetaGet(get) = command(line) else {
        panic!()
    };
    let flags = get.flags;
    assert_eq!(get.key, MetaKey::plain(b"key"));
    assert!(flags.value && flags.quiet && flags.no_bump && flags.invalidate);
    assert_eq!(
        (flags.exptime, flags.vivify, flags.recache),
        (Some(30), Some(-1), Some(5))
    );
    assert_eq!((flags.cas_unique, flags.cas_new), (Some(7), Some(8)));
    assert!(flags.remove_value);
    assert_eq!(flags.client_flags, 9);
    assert_eq!((flags.delta, flags.initial, flags.mode), (2, 3, None));
    assert_eq!(flags.all.opaque(), Some(&b"xy"[..]));
    let letters: Vec<u8> = flags.all.iter().map(|flag| flag.letter).collect();
    assert_eq!(letters, b"vquITNRCExFDJOkcP");
    let Command::MetaArithmetic(arithmetic) = command(b"ma n M- D5\r\n") else {
        panic!()
    };
    assert_eq!(arithmetic.mode, ArithmeticMode::Decrement);
    assert_eq!(arithmetic.flags.delta, 5);
    let Command::MetaSet(set) = command(b"ms Zm9v 2 b\r\nhi\r\n") else {
        panic!()
    };
    assert_eq!(
        set.key,
        MetaKey {
            token: b"Zm9v",
            base64: true
        }
    );
    assert_eq!(set.value, b"hi");
}

/// Lines and what memcached 1.6.18 answered to them, where `KEY` stands for 251 bytes, `OPAQUE` for
/// 32 and `MANY` for 21 flags.
const ERROR_LINES: &[(&str, &str)] = &[
    ("foo", "ERROR"),
    ("", "ERROR"),
    ("GET a", "ERROR"),
    ("get", "ERROR"),
    ("set a 0 0", "ERROR"),
    ("set a 0 0 1 noreply x", "ERROR"),
    ("verbosity", "ERROR"),
    ("delete", "ERROR"),
    ("mg", "ERROR"),
    ("mx", "ERROR"),
    ("cache_memlimit x", "ERROR"),
    ("get a KEY b", "CLIENT_ERROR bad command line format"),
    ("delete KEY", "CLIENT_ERROR bad command line format"),
    ("mg KEY v", "CLIENT_ERROR bad command line format"),
    ("me KEY", "CLIENT_ERROR bad command line format"),
    ("me", "CLIENT_ERROR bad command line format"),
    ("me Zm9 b", "CLIENT_ERROR bad command line format"),
    ("ms m", "CLIENT_ERROR bad command line format"),
    ("ms m -1", "CLIENT_ERROR bad command line format"),
    ("set a 0 0 -1", "CLIENT_ERROR bad command line format"),
    (
        "set a 0 0 2147483646",
        "CLIENT_ERROR bad command line format",
    ),
    ("verbosity x", "CLIENT_ERROR bad command line format"),
    ("incr n x", "CLIENT_ERROR invalid numeric delta argument"),
    ("incr n -1", "CLIENT_ERROR invalid numeric delta argument"),
    ("touch a x", "CLIENT_ERROR invalid exptime argument"),
    ("gat x a", "CLIENT_ERROR invalid exptime argument"),
    ("flush_all x", "CLIENT_ERROR invalid exptime argument"),
    (
        "delete a 5",
        "CLIENT_ERROR bad command line format.  Usage: delete <key> [noreply]",
    ),
    ("mg m v !", "CLIENT_ERROR invalid flag"),
    ("mg m v v", "CLIENT_ERROR duplicate flag"),
    ("mg m Tx", "CLIENT_ERROR bad token in command line format"),
    ("mg m T", "CLIENT_ERROR bad token in command line format"),
    ("mg Zm9 b", "CLIENT_ERROR error decoding key"),
    ("mg m OOPAQUE", "CLIENT_ERROR opaque token too long"),
    ("mg m MANY", "CLIENT_ERROR options flags are too long"),
    ("md m MANY", "CLIENT_ERROR options flags too long"),
    ("md m !", "CLIENT_ERROR invalid or duplicate flag"),
    ("ma m Dx", "CLIENT_ERROR invalid or duplicate flag"),
    ("ma m MX", "CLIENT_ERROR invalid mode for ma M token"),
    ("md m OOPAQUE", "CLIENT_ERROR opaque token too long"),
];

#[test]
fn error_lines_are_those_of_memcached() {
    for (line, expected) in ERROR_LINES {
        let line = line
            .replace("KEY", &"k".repeat(251))
            .replace("OPAQUE", &"o".repeat(32))
            .replace("MANY", "a b c d e f g h i j k l m n o p q r s t u");
        let answers = error_lines(format!("{line}\r\nmn\r\n").as_bytes());
        assert_eq!(answers, format!("{expected};MN;"), "{line:?}");
    }
}

#[test]
fn data_of_a_refused_storage_command_is_never_a_command() {
    let long = "k".repeat(251);
    let format = "CLIENT_ERROR bad command line format";
    let cases = [
        (format!("set {long} 0 0 9"), format),
        ("set a x 0 9".to_owned(), format),
        ("set a -1 0 9".to_owned(), format),
        ("set a 4294967296 0 9".to_owned(), format),
        ("set a 0 x 9".to_owned(), format),
        ("cas a 0 0 9 x".to_owned(), format),
        (format!("ms {long} 9"), format),
        ("ms a 9 Fx".to_owned(), format),
        ("ms a 9 !".to_owned(), "CLIENT_ERROR invalid flag"),
        (
            "ms a 9 MZ".to_owned(),
            "CLIENT_ERROR invalid mode for ms M token",
        ),
        (
            "ms a 9 MEE".to_owned(),
            "CLIENT_ERROR incorrect length for M token",
        ),
    ];
    for (line, expected) in cases {
        let input = format!("{line}\r\nflush_all\r\nmn\r\n");
        assert_eq!(
            error_lines(input.as_bytes()),
            format!("{expected};MN;"),
            "{line:?}"
        );
    }
}

#[test]
fn noreply_silences_errors_wherever_it_can_be_read() {
    let silent = [
        "set a x 0 1 noreply\r\n1\r\n",
        "incr a x noreply\r\n",
        "touch a x noreply\r\n",
        "flush_all x noreply\r\n",
        "delete a 5 noreply\r\n",
        "verbosity noreply\r\n",
    ];
    for line in silent {
        let answers = error_lines(format!("{line}mn\r\n").as_bytes());
        assert_eq!(answers, "MN;", "{line:?}");
    }
    // Too few arguments: the last one cannot be told from noreply.
    assert_eq!(error_lines(b"cas a 0 0 noreply\r\n"), "ERROR;");
}

#[test]
fn bad_data_chunk_leaves_the_rest_to_be_read_as_commands() {
    let chunk = "CLIENT_ERROR bad data chunk;ERROR;MN;";
    assert_eq!(error_lines(b"set a 0 0 2\r\nabcd\r\nmn\r\n"), chunk);
    assert_eq!(error_lines(b"set a 0 0 3\r\nabcd\r\nmn\r\n"), chunk);
    assert_eq!(error_lines(b"ms a 2\r\nhello\r\nmn\r\n"), chunk);
    assert_eq!(
        error_lines(b"set a 0 0 1 noreply\r\n123\r\nmn\r\n"),
        "ERROR;MN;"
    );
}

#[test]
fn a_value_that_is_too_large_is_discarded_as_it_comes() {
    let limits = RequestLimits {
        item_bytes_max: 100,
        ..RequestLimits::default()
    };
    let mut decoder = RequestDecoder::new(limits);
    let step = decoder.decode(b"set q 0 0 1000000000\r\nxxx");
    let too_large = Progress::TooLarge {
        key: MetaKey::plain(b"q"),
        deletes_old: true,
    };
    assert_eq!((step.consumed, step.progress), (22, too_large));
    let piece = vec![b'\n'; 1_000_000];
    for _ in 0..1000 {
        let step = decoder.decode(&piece);
        assert_eq!(step.consumed, piece.len());
        assert_eq!(step.progress, Progress::Incomplete { needed: 1 });
    }
    let step = decoder.decode(b"\r\nmn\r\n");
    assert_eq!(
        (step.consumed, step.progress),
        (2, Progress::Error(ErrorLine::TooLarge))
    );
    let step = decoder.decode(b"mn\r\n");
    assert_eq!(step.progress, Progress::Command(Command::MetaNoop));
}

#[test]
fn a_too_large_value_with_noreply_is_met_with_silence() {
    let limits = RequestLimits {
        item_bytes_max: 62,
        ..RequestLimits::default()
    };
    let seen = transcript(&[b"add q 0 0 3 noreply\r\nabc\r\nquit\r\n"], limits);
    assert_eq!(seen.len(), 2);
    assert!(
        seen[0].starts_with("TooLarge") && seen[0].contains("deletes_old: false"),
        "{seen:?}"
    );
    assert_eq!(seen[1], "Command(Quit)");
}

#[test]
fn the_largest_value_is_memcacheds() {
    let limits = RequestLimits::default();
    let key = MetaKey::plain(b"z");
    let item = |has_flags| ItemSize {
        key,
        has_flags,
        deletes_old: true,
        noreply: false,
    };
    assert!(limits.item_fits(&item(false), 1_048_516));
    assert!(!limits.item_fits(&item(false), 1_048_517));
    assert!(limits.item_fits(&item(true), 1_048_512));
    assert!(!limits.item_fits(&item(true), 1_048_513));
}

#[test]
fn long_lines_are_only_for_keys() {
    assert_eq!(decode_all(&[b'x'; 2048]), Vec::<String>::new());
    assert_eq!(decode_all(&[b'x'; 2049]), ["close LineTooLong"]);
    let mut keys = b"get".to_vec();
    for n in 0..5000 {
        keys.extend_from_slice(format!(" key{n:05}").as_bytes());
    }
    assert_eq!(decode_all(&keys), Vec::<String>::new());
    keys.extend_from_slice(b"\r\n");
    let Command::Get { keys: found, .. } = command(&keys) else {
        panic!()
    };
    assert_eq!(found.iter().count(), 5000);
    let endless = [b"get ".to_vec(), vec![b'k'; 1 << 20]].concat();
    assert_eq!(decode_all(&endless), Vec::<String>::new());
}

#[test]
fn a_line_of_keys_that_is_too_long_is_discarded_and_refused() {
    let line = [b"get ".to_vec(), vec![b'k'; 3 << 20], b" x\r\n".to_vec()].concat();
    let input = [line.clone(), b"mn\r\n".to_vec()].concat();
    for piece in [input.len(), 1 << 20, 65_536, 4093] {
        let mut decoder = RequestDecoder::default();
        let (mut kept, mut answers, mut most) = (Vec::new(), Vec::new(), 0);
        for bytes in input.chunks(piece) {
            kept.extend_from_slice(bytes);
            loop {
                let step = decoder.decode(&kept);
                let consumed = step.consumed;
                let answer = match step.progress {
                    Progress::Incomplete { .. } => None,
                    other => Some(format!("{other:?}")),
                };
                kept.drain(..consumed);
                match answer {
                    Some(answer) => answers.push(answer),
                    None => break,
                }
            }
            most = most.max(kept.len());
        }
        let expected = ["Error(LineTooLong)", "Command(MetaNoop)"];
        assert_eq!(answers, expected, "in pieces of {piece}");
        assert!(
            most <= (1 << 20) + 4,
            "{most} bytes are kept of pieces of {piece}"
        );
    }
}

#[test]
fn other_protocols_are_closed() {
    assert_eq!(
        decode_all(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
        ["close Http"]
    );
    assert_eq!(decode_all(b"POST /set HTTP/1.0\r\n"), ["close Http"]);
    assert_eq!(decode_all(b"\x80\x0b"), ["close BinaryProtocol"]);
    assert_eq!(
        decode_all(b"mn\r\n\x80\r\n"),
        ["Command(MetaNoop)", "Error(Unknown)"]
    );
    let mut decoder = RequestDecoder::default();
    for _ in 0..3 {
        let step = decoder.decode(b"GET / HTTP/1.1\r\n");
        assert_eq!(step.progress, Progress::Close(CloseReason::Http));
        assert_eq!(step.consumed, 0);
    }
}

#[test]
fn the_hint_is_exact_once_the_line_is_known() {
    let mut decoder = RequestDecoder::default();
    let input = b"set a 0 0 100\r\nab";
    let step = decoder.decode(input);
    assert_eq!(step.progress, Progress::Incomplete { needed: 15 + 102 });
    assert_eq!(step.consumed, 0);
}

/// Requests and fragments of requests that meet every branch of the decoder.
fn fragment() -> impl Strategy<Value = Vec<u8>> {
    let whole = prop::sample::select(vec![
        &b"get a\r\n"[..],
        b"gets a  b c \n",
        b"gat 10 a\r\n",
        b"set a 0 0 3\r\nabc\r\n",
        b"set a 0 0 3 noreply\r\nabcd\r\n",
        b"set big 0 0 200\r\n",
        b"cas a 1 -1 2 77\r\n\r\n\r\n",
        b"set a x 0 4\r\nmn\r\n\r\n",
        b"ms a 2 T0 q\r\nhi\r\n",
        b"ms a 300 q\r\n",
        b"ms a 3 MX\r\nabc\r\n",
        b"mg a v k O1\r\n",
        b"md a q\r\n",
        b"ma n N0\r\n",
        b"me a\r\n",
        b"mn\r\n",
        b"incr n 1\r\n",
        b"delete a noreply\r\n",
        b"delete a x noreply\r\n",
        b"stats\r\n",
        b"POST / HTTP/1.1\r\n",
        b"foo\r\n",
        b"\r\n",
        b"\n",
        b" ",
        b"\x80",
    ]);
    prop_oneof![
        8 => whole.prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..40),
        1 => prop::collection::vec(prop::sample::select(b" abgmst019\r\n".to_vec()), 0..200),
    ]
}

proptest! {
    #[test]
    fn byte_at_a_time_equals_whole(
        fragments in prop::collection::vec(fragment(), 0..8),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..4),
    ) {
        let limits = RequestLimits {
            line_bytes_max: 64,
            retrieval_line_bytes_max: 128,
            item_bytes_max: 180,
        };
        let input = fragments.concat();
        let whole = transcript(&[&input], limits);
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        prop_assert_eq!(&transcript(&bytes, limits), &whole);

        let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut.index(input.len() + 1)).collect();
        cuts.sort_unstable();
        let mut chunks = Vec::new();
        let mut start = 0;
        for cut in cuts {
            chunks.push(&input[start..cut]);
            start = cut;
        }
        chunks.push(&input[start..]);
        prop_assert_eq!(&transcript(&chunks, limits), &whole);
    }
}
