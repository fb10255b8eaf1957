use proptest::prelude::*;

use super::*;

fn line(text: &str) -> WatchLine<'_> {
    let mut decoder = WatchDecoder::default();
    let (consumed, line) = decoder.decode(text.as_bytes()).unwrap().unwrap();
    assert_eq!(consumed, text.len());
    line
}

/// The key, whether it has changed, and when in microseconds.
fn item(text: &str) -> (Vec<u8>, bool, u128) {
    let WatchLine::Item {
        key,
        at,
        is_changed,
    } = line(text)
    else {
        panic!("{text}");
    };
    let key = key.decode(&mut KeyScratch::new()).to_vec();
    (key, is_changed, at.as_micros())
}

#[test]
fn answers_to_the_command() {
    assert_eq!(line("OK\r\n"), WatchLine::Accepted);
    let refusals = [
        "ERROR",
        "CLIENT_ERROR watch commands not allowed",
        "WATCHER_TOO_MANY log watcher limit reached",
        "ERROR Too many open connections",
    ];
    for text in refusals {
        let expected = WatchLine::Refused {
            text: text.as_bytes(),
        };
        assert_eq!(line(&format!("{text}\r\n")), expected);
    }
}

#[test]
fn a_store_as_memcached_1_6_18_tells_it() {
    let text = "ts=1795287372.535117 gid=2 type=item_store key=k status=stored cmd=set ttl=0 \
                clsid=1 cfd=12 size=2\n";
    assert_eq!(item(text), (b"k".to_vec(), true, 1_795_287_372_535_117));
}

#[test]
fn the_fraction_of_a_second_is_not_padded() {
    let text = "ts=1795287375.46678 gid=2 type=item_store key=k status=stored cmd=set\n";
    assert_eq!(item(text).2, 1_795_287_375_046_678);
}

#[test]
fn deletions_and_evictions_as_memcached_1_6_45_tells_them() {
    let texts = [
        "ts=1.5 gid=3 type=deleted key=n cmd=md clsid=1 size=1\n",
        "ts=1.5 gid=3 type=eviction key=n fetch=no ttl=-1 la=7 clsid=1 size=1\n",
    ];
    for text in texts {
        assert_eq!(item(text), (b"n".to_vec(), true, 1_000_005));
    }
}

#[test]
fn what_was_not_done_changes_nothing_and_what_failed_may() {
    let statuses = [
        ("stored", true),
        ("too_large", true),
        ("no_memory", true),
        ("not_stored", false),
        ("exists", false),
        ("not_found", false),
    ];
    for (status, is_changed) in statuses {
        let text = format!("ts=1.5 gid=3 type=item_store key=n status={status} cmd=add\n");
        assert_eq!(item(&text).1, is_changed, "{status}");
    }
}

#[test]
fn keys_are_decoded() {
    let key = |encoded: &str| {
        item(&format!(
            "ts=1.5 gid=3 type=item_store key={encoded} status=stored\n"
        ))
        .0
    };
    assert_eq!(key("%2Fpoll%2Falice"), b"/poll/alice");
    assert_eq!(key("c%2520"), b"c%20");
    assert_eq!(key("cl%C3%A9"), "clé".as_bytes());
    assert_eq!(key(&"a".repeat(250)), [b'a'; 250]);
    assert_eq!(key(&"%61".repeat(250)), [b'a'; 250]);
    for malformed in ["%", "%4", "%zz", "a%", &"a".repeat(251), &"%61".repeat(251)] {
        assert_eq!(key(malformed), b"", "{malformed}");
    }
}

#[test]
fn lines_left_out() {
    assert_eq!(
        line("skipped=37541\n"),
        WatchLine::Skipped { lines: 37_541 }
    );
}

#[test]
fn other_lines_say_nothing() {
    let others = [
        "\n",
        "ts=1.5 gid=3 type=item_get key=n status=found clsid=1\n",
        "ts=1.5 gid=3 type=conn_new rip=127.0.0.1\n",
        "ts=1.5 gid=3 type=item_store status=stored\n",
        "ts=x.5 gid=3 type=item_store key=n status=stored\n",
        "ts=15 gid=3 type=item_store key=n status=stored\n",
        "skipped=many\n",
        "STORED\r\n",
    ];
    for text in others {
        assert_eq!(line(text), WatchLine::Other, "{text}");
    }
    let latest = format!("ts={}.{} type=deleted key=n\n", u64::MAX, u64::MAX);
    assert_eq!(line(&latest), WatchLine::Other, "beyond all time");
}

#[test]
fn a_line_is_bounded() {
    let mut decoder = WatchDecoder::default();
    let long = vec![b'a'; WATCH_LINE_BYTES_MAX];
    assert_eq!(decoder.decode(&long), Ok(None));
    let longer = vec![b'a'; WATCH_LINE_BYTES_MAX + 1];
    let error = PeerError::LineTooLong {
        limit: WATCH_LINE_BYTES_MAX,
        length: WATCH_LINE_BYTES_MAX + 1,
    };
    assert_eq!(decoder.decode(&longer), Err(error));
}

/// What the decoder says of these pieces, one after the other.
fn transcript(pieces: &[&[u8]]) -> Vec<String> {
    let mut decoder = WatchDecoder::default();
    let (mut pending, mut seen) = (Vec::new(), Vec::new());
    for piece in pieces {
        pending.extend_from_slice(piece);
        let mut consumed = 0;
        loop {
            match decoder.decode(&pending[consumed..]) {
                Ok(Some((bytes, line))) => {
                    assert!(bytes > 0, "a line without a byte");
                    consumed += bytes;
                    seen.push(format!("{line:?}"));
                }
                Ok(None) => break,
                Err(_) => {
                    seen.push("error".to_owned());
                    return seen;
                }
            }
        }
        pending.drain(..consumed);
    }
    seen
}

fn any_line() -> impl Strategy<Value = String> {
    prop_oneof![
        Just("OK\r\n".to_owned()),
        "(CLIENT_)?ERROR [a-z ]{0,20}\r\n",
        "skipped=[0-9]{0,22}\n",
        "ts=[0-9]{1,12}\\.[0-9]{1,7} gid=[0-9]{1,4} type=(item_store|deleted|eviction|item_get) \
         key=[a-z%0-9]{0,20}( status=[a-z_]{1,10})? cmd=set\n",
        "[ -~]{0,40}\r?\n",
        "[a-z]{2040,2060}\n",
    ]
}

proptest! {
    #[test]
    fn a_byte_at_a_time_gives_what_the_whole_gives(
        lines in prop::collection::vec(any_line(), 0..4),
    ) {
        let input = lines.concat().into_bytes();
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        prop_assert_eq!(transcript(&[&input]), transcript(&bytes));
    }

    #[test]
    fn no_bytes_make_it_panic(input in prop::collection::vec(any::<u8>(), 0..200)) {
        let bytes: Vec<&[u8]> = input.chunks(1).collect();
        prop_assert_eq!(transcript(&[&input]), transcript(&bytes));
    }

    #[test]
    fn encoded_keys_come_back(key in prop::collection::vec(any::<u8>(), 1..=250)) {
        let encoded: Vec<_> = key.iter().map(|byte| format!("%{byte:02X}")).collect();
        let encoded = encoded.concat();
        let mut scratch = KeyScratch::new();
        prop_assert_eq!(WatchedKey(encoded.as_bytes()).decode(&mut scratch), &key[..]);
    }
}
