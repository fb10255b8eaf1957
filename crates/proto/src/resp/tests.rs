//! Tests of the decoder: examples of every type, bounds, pieces, and the crate redis-protocol.

use super::*;
use proptest::prelude::*;
use redis_protocol::resp3::decode::complete::decode as decode_theirs;
use redis_protocol::resp3::types::OwnedFrame;

/// The messages of a decoder that is given `input` in chunks, and its error at the end.
fn transcript(input: &[u8], chunk_bytes: usize, limits: Limits) -> Vec<String> {
    let mut decoder = Decoder::new(limits);
    let (mut seen, mut start, mut end) = (Vec::new(), 0, 0);
    while end < input.len() {
        end = (end + chunk_bytes).min(input.len());
        loop {
            match decoder.decode(&input[start..end]) {
                Ok(Decoded::Message(used, message)) => {
                    assert!(used > 0, "a message without a byte");
                    start += used;
                    seen.push(written(message));
                }
                Ok(Decoded::Incomplete(used)) => {
                    start += used;
                    break;
                }
                Err(PeerError::LineTooLong { .. }) => {
                    seen.push("line too long".to_owned());
                    return seen;
                }
                Err(error) => {
                    seen.push(error.to_string());
                    return seen;
                }
            }
        }
    }
    seen
}

fn written(message: Message<'_>) -> String {
    match message {
        Message::Value(value) => shown(value),
        Message::Oversized { length } => format!("oversized {length}"),
    }
}

fn list(name: &str, items: Items<'_>) -> String {
    let items: Vec<_> = items.into_iter().map(shown).collect();
    format!("{name}[{}]", items.join(" "))
}

/// A value in words that both decoders have.
fn shown(value: Value<'_>) -> String {
    match value {
        Value::SimpleString(text) => format!("+{}", text.escape_ascii()),
        Value::Error(text) => format!("-{}", text.escape_ascii()),
        Value::Number(number) => format!("{number}"),
        Value::Double(number) => format!("{number:?}"),
        Value::BigNumber(digits) => format!("({}", digits.escape_ascii()),
        Value::Boolean(truth) => format!("{truth}"),
        Value::Null => "null".to_owned(),
        Value::BulkString(bytes) => format!("'{}'", bytes.escape_ascii()),
        Value::Verbatim { format, text } => {
            format!("{}:{}", format.escape_ascii(), text.escape_ascii())
        }
        Value::Array(items) => list("array", items),
        Value::Map(items) => list("map", items),
        Value::Set(items) => list("set", items),
        Value::Push(items) => list("push", items),
    }
}

fn whole(input: &[u8]) -> Vec<String> {
    transcript(input, input.len().max(1), Limits::default())
}

#[test]
fn every_type_is_read() {
    for (input, value) in [
        (&b"+OK\r\n"[..], "+OK"),
        (b"-ERR no\r\n", "-ERR no"),
        (b":-12\r\n", "-12"),
        (b":+3\r\n", "3"),
        (b",1.5\r\n", "1.5"),
        (b",inf\r\n", "inf"),
        (b",-inf\r\n", "-inf"),
        (b",nan\r\n", "NaN"),
        (
            b"(-3492890328409238509324850943850943825024385\r\n",
            "(-3492890328409238509324850943850943825024385",
        ),
        (b"#t\r\n", "true"),
        (b"#f\r\n", "false"),
        (b"_\r\n", "null"),
        (b"$-1\r\n", "null"),
        (b"*-1\r\n", "null"),
        (b"$0\r\n\r\n", "''"),
        (b"$4\r\n\r\n\x00a\r\n", "'\\r\\n\\x00a'"),
        (b"!5\r\nERR x\r\n", "-ERR x"),
        (b"=8\r\ntxt:some\r\n", "txt:some"),
        (b"*0\r\n", "array[]"),
        (
            b"*3\r\n:1\r\n*1\r\n_\r\n$1\r\na\r\n",
            "array[1 array[null] 'a']",
        ),
        (b"%1\r\n+a\r\n~2\r\n:1\r\n:2\r\n", "map[+a set[1 2]]"),
        (
            b">2\r\n$10\r\ninvalidate\r\n_\r\n",
            "push['invalidate' null]",
        ),
    ] {
        assert_eq!(whole(input), [value], "{}", input.escape_ascii());
    }
}

#[test]
fn attributes_are_skipped() {
    for (input, values) in [
        (&b"|1\r\n+ttl\r\n:3600\r\n$1\r\na\r\n"[..], &["'a'"][..]),
        (b"|0\r\n:1\r\n:2\r\n", &["1", "2"]),
        (
            b"*2\r\n:1\r\n|1\r\n+a\r\n*1\r\n_\r\n:2\r\n",
            &["array[1 2]"],
        ),
        (b"|1\r\n|1\r\n+a\r\n:1\r\n+b\r\n:2\r\n:3\r\n", &["3"]),
        (b"|1\r\n+a\r\n:1\r\n|1\r\n+a\r\n:1\r\n*0\r\n", &["array[]"]),
        // Those alone are no message.
        (b"|1\r\n+a\r\n:1\r\n", &[]),
    ] {
        assert_eq!(whole(input), values, "{}", input.escape_ascii());
    }
}

#[test]
fn nonsense_is_refused() {
    for (input, error) in [
        (&b"?\r\n"[..], "unknown type of reply: 0x3f"),
        (b"+a\nb\r\n", "malformed line end of a reply"),
        (b"+a\rb\r\n", "malformed line end of a reply"),
        (b":1a\r\n", "malformed number of a reply"),
        (b":\r\n", "malformed number of a reply"),
        (b":9223372036854775808\r\n", "malformed number of a reply"),
        (b",1,5\r\n", "malformed double of a reply"),
        (b",infinity\r\n", "malformed double of a reply"),
        (b"(12.5\r\n", "malformed big number of a reply"),
        (b"#x\r\n", "malformed boolean of a reply"),
        (b"_x\r\n", "malformed null of a reply"),
        (b"$-2\r\n", "malformed length of a reply"),
        (b"$+2\r\nab\r\n", "malformed length of a reply"),
        (b"%-1\r\n", "malformed length of a reply"),
        (b"$99999999999999999999\r\n", "malformed length of a reply"),
        (b"%18446744073709551615\r\n", "malformed length of a reply"),
        (b"$1\r\nab\r\n", "malformed line end of a reply"),
        (b"=3\r\ntxt\r\n", "malformed format of a reply"),
        (b"=5\r\ntext:\r\n", "malformed format of a reply"),
        (b"$?\r\n;1\r\na\r\n;0\r\n", "reply is streamed: $?"),
        (b"*?\r\n:1\r\n.\r\n", "reply is streamed: *?"),
        (b"*1\r\n>1\r\n:1\r\n", "push inside of a reply"),
        (b"|1\r\n>1\r\n:1\r\n:1\r\n", "push inside of a reply"),
    ] {
        assert_eq!(whole(input), [error], "{}", input.escape_ascii());
    }
}

#[test]
fn depth_and_lengths_are_bounded() {
    let limits = Limits {
        value_bytes_max: 4,
        aggregate_bytes_max: 40,
        line_bytes_max: 16,
        depth_max: 3,
    };
    for (input, seen) in [
        (
            &b"*1\r\n*1\r\n*1\r\n:1\r\n"[..],
            &["array[array[array[1]]]"][..],
        ),
        (
            b"*1\r\n*1\r\n*1\r\n*0\r\n",
            &["reply is nested deeper than 3"],
        ),
        (b"$4\r\nabcd\r\n:1\r\n", &["'abcd'", "1"]),
        (b"$5\r\nabcde\r\n:1\r\n", &["oversized 5", "1"]),
        (b"$5\r\nabcd", &[]),
        (b"*9\r\n", &[]),
        (b"*13\r\n", &["aggregate reply exceeds 40 bytes: 44"]),
        (b"%20\r\n", &["aggregate reply exceeds 40 bytes: 125"]),
        (b"*1\r\n$40\r\n", &["aggregate reply exceeds 40 bytes: 51"]),
        (b"+0123456789abcdef\r\n", &["+0123456789abcdef"]),
        (b"+0123456789abcdefg\r\n", &["line too long"]),
        (b"+0123456789abcdefg", &["line too long"]),
        (b"$18446744073709551615\r\n", &["line too long"]),
    ] {
        let found = transcript(input, input.len(), limits);
        assert_eq!(found, seen, "{}", input.escape_ascii());
        assert_eq!(
            transcript(input, 1, limits),
            seen,
            "{}",
            input.escape_ascii()
        );
    }
    let huge = b"$18446744073709551615\r\n";
    assert_eq!(whole(huge), ["malformed length of a reply"]);
}

#[test]
fn attributes_without_end_are_bounded() {
    let endless = b"|1\r\n+a\r\n:1\r\n".repeat(10_000);
    let seen = whole(&endless);
    assert_eq!(seen.len(), 1, "{seen:?}");
    assert!(
        seen[0].starts_with("aggregate reply exceeds 65536 bytes"),
        "{seen:?}"
    );
}

#[test]
fn commands_are_arrays_of_bulk_strings() {
    let mut wire = Vec::new();
    command(&mut wire, &[b"SET", b"k", b"", b"a\r\nb"]);
    command(&mut wire, &[b"PING"]);
    assert_eq!(
        whole(&wire),
        ["array['SET' 'k' '' 'a\\r\\nb']", "array['PING']"]
    );
    for length in [0, 9, 10, 11, 19, 90, 99, 100, 101, 12_345] {
        let (argument, mut wire) = ("x".repeat(length), Vec::new());
        command(&mut wire, &[argument.as_bytes()]);
        let expected = format!("*1\r\n${length}\r\n{argument}\r\n");
        assert_eq!(wire, expected.as_bytes());
    }
}

/// The wire of any value, but a push.
fn value_wire() -> impl Strategy<Value = Vec<u8>> {
    let line = |kind: char| "[ -~]{0,12}".prop_map(move |text| format!("{kind}{text}\r\n"));
    let blob = |kind: u8, prefix: &'static [u8]| {
        proptest::collection::vec(any::<u8>(), 0..20).prop_map(move |bytes| {
            let mut wire = vec![kind];
            let length = prefix.len() + bytes.len();
            wire.extend_from_slice(format!("{length}\r\n").as_bytes());
            wire.extend_from_slice(&[prefix, &bytes, b"\r\n"].concat());
            wire
        })
    };
    let leaf = prop_oneof![
        blob(b'$', b""),
        blob(b'!', b""),
        blob(b'=', b"txt:"),
        line('+').prop_map(String::into_bytes),
        line('-').prop_map(String::into_bytes),
        any::<bool>().prop_map(|truth| if truth { b"#t\r\n" } else { b"#f\r\n" }.to_vec()),
        Just(b"_\r\n".to_vec()),
        any::<i64>().prop_map(|number| format!(":{number}\r\n").into_bytes()),
        (-1e9..1e9).prop_map(|number: f64| format!(",{number}\r\n").into_bytes()),
        "-?[0-9]{1,40}".prop_map(|digits| format!("({digits}\r\n").into_bytes()),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        let many = proptest::collection::vec(inner.clone(), 0..6);
        // The other decoder hashes keys and members, and so takes few types there.
        let key = "[a-z]{1,8}".prop_map(|key| format!("${}\r\n{key}\r\n", key.len()).into_bytes());
        let pair = (key.clone(), inner);
        prop_oneof![
            many.prop_map(|items| aggregate('*', items.len(), &items)),
            pair.prop_map(|(key, value)| aggregate('%', 1, &[key, value])),
            key.prop_map(|only| aggregate('~', 1, &[only])),
        ]
    })
}

fn aggregate(kind: char, count: usize, items: &[Vec<u8>]) -> Vec<u8> {
    [format!("{kind}{count}\r\n").into_bytes(), items.concat()].concat()
}

/// The wire of a message, perhaps behind attributes.
fn message_wire() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let push = proptest::collection::vec(value_wire(), 0..4).prop_map(|mut items| {
        items.insert(0, b"$10\r\ninvalidate\r\n".to_vec());
        aggregate('>', items.len(), &items)
    });
    let message = prop_oneof![4 => value_wire(), 1 => push];
    let attribute = (value_wire(), value_wire());
    let attribute = attribute.prop_map(|(key, value)| aggregate('|', 1, &[key, value]));
    let attribute = prop_oneof![3 => Just(Vec::new()), 1 => attribute];
    (attribute, message)
}

fn theirs(frame: &OwnedFrame) -> String {
    let list = |name, items: &mut dyn Iterator<Item = &OwnedFrame>| {
        format!(
            "{name}[{}]",
            items.map(theirs).collect::<Vec<_>>().join(" ")
        )
    };
    match frame {
        OwnedFrame::BlobString { data, .. } => format!("'{}'", data.escape_ascii()),
        OwnedFrame::BlobError { data, .. } => format!("-{}", data.escape_ascii()),
        OwnedFrame::SimpleString { data, .. } => format!("+{}", data.escape_ascii()),
        OwnedFrame::SimpleError { data, .. } => format!("-{}", data.as_bytes().escape_ascii()),
        OwnedFrame::Boolean { data, .. } => format!("{data}"),
        OwnedFrame::Null => "null".to_owned(),
        OwnedFrame::Number { data, .. } => format!("{data}"),
        OwnedFrame::Double { data, .. } => format!("{data:?}"),
        OwnedFrame::BigNumber { data, .. } => format!("({}", data.escape_ascii()),
        OwnedFrame::VerbatimString { data, .. } => format!("txt:{}", data.escape_ascii()),
        OwnedFrame::Array { data, .. } => list("array", &mut data.iter()),
        OwnedFrame::Push { data, .. } => list("push", &mut data.iter()),
        OwnedFrame::Set { data, .. } => list("set", &mut data.iter()),
        OwnedFrame::Map { data, .. } => list(
            "map",
            &mut data.iter().flat_map(|(key, value)| [key, value]),
        ),
        other => format!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn pieces_give_what_the_whole_gives(
        messages in proptest::collection::vec(message_wire(), 1..5),
        noise in proptest::collection::vec(any::<u8>(), 0..8),
        chunk_bytes in 1_usize..40,
    ) {
        let mut input: Vec<u8> = Vec::new();
        for (attributes, message) in &messages {
            input.extend_from_slice(attributes);
            input.extend_from_slice(message);
        }
        prop_assert_eq!(whole(&input).len(), messages.len());
        input.extend_from_slice(&noise);
        prop_assert_eq!(&transcript(&input, 1, Limits::default()), &whole(&input));
        prop_assert_eq!(&transcript(&input, chunk_bytes, Limits::default()), &whole(&input));
    }

    #[test]
    fn bytes_like_messages_are_read_in_pieces_as_whole(
        input in "([-+:$*_,#(!=%~>|][-0-9?tf]{0,3}(\r\n|\r|\n|))([a-z]{0,3}\r\n){0,2}{0,6}",
    ) {
        let input = input.as_bytes();
        prop_assert_eq!(transcript(input, 1, Limits::default()), whole(input));
    }

    #[test]
    fn another_decoder_reads_the_same((_, message) in message_wire()) {
        let (frame, used) = decode_theirs(&message).unwrap().unwrap();
        prop_assert_eq!(used, message.len());
        prop_assert_eq!(whole(&message), [theirs(&frame)]);
    }
}
