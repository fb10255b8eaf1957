use super::*;
use proptest::prelude::*;

/// All that a stream says, read in pieces of one size: type, data, last id.
fn received(input: &[u8], piece: usize) -> Vec<(String, String, String)> {
    let mut decoder = EventStreamDecoder::new(1 << 16);
    received_by(&mut decoder, input, piece).unwrap()
}

fn received_by(
    decoder: &mut EventStreamDecoder,
    input: &[u8],
    piece: usize,
) -> Result<Vec<(String, String, String)>, SseError> {
    let mut events = Vec::new();
    for mut piece in input.chunks(piece.max(1)) {
        while !piece.is_empty() {
            let step = decoder.decode(piece)?;
            assert!(step.consumed > 0);
            if let Some(event) = step.event {
                let (kind, id) = (event.event.to_owned(), event.last_event_id.to_owned());
                events.push((kind, event.data.to_owned(), id));
            }
            piece = &piece[step.consumed..];
        }
    }
    Ok(events)
}

fn data_of(input: &str) -> Vec<String> {
    let events = received(input.as_bytes(), usize::MAX).into_iter();
    events.map(|(_, data, _)| data).collect()
}

fn encoded(event: &Event<'_>) -> String {
    let mut out = Vec::new();
    event.encode(&mut out).unwrap();
    String::from_utf8(out).unwrap()
}

#[test]
fn the_examples_of_the_standard_are_read() {
    assert_eq!(
        data_of("data: YHOO\ndata: +2\ndata: 10\n\n"),
        ["YHOO\n+2\n10"]
    );
    let stream = ": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\n\
        data:  third event\n\n";
    let events = received(stream.as_bytes(), usize::MAX);
    let parts = events.iter().map(|(_, data, id)| (&data[..], &id[..]));
    let expected = [
        ("first event", "1"),
        ("second event", ""),
        (" third event", ""),
    ];
    assert_eq!(parts.collect::<Vec<_>>(), expected);
    // The last block has no empty line after it, and is discarded.
    assert_eq!(data_of("data\n\ndata\ndata\n\ndata:"), ["", "\n"]);
    assert_eq!(data_of("data:test\n\ndata: test\n\n"), ["test", "test"]);
}

#[test]
fn every_line_end_ends_a_line_and_no_two_of_one_are_an_empty_line() {
    for end in ["\n", "\r", "\r\n"] {
        let stream = format!("data: a{end}data: b{end}{end}data: c{end}{end}");
        for piece in 1..=stream.len() {
            let events = received(stream.as_bytes(), piece);
            let data: Vec<_> = events.iter().map(|(_, data, _)| &data[..]).collect();
            assert_eq!(data, ["a\nb", "c"], "{end:?} in pieces of {piece}");
        }
    }
}

#[test]
fn a_byte_order_mark_counts_only_at_the_very_front() {
    for piece in [1, 2, 3, 100] {
        assert_eq!(received(b"\xef\xbb\xbfdata: a\n\n", piece)[0].1, "a");
        assert_eq!(received(b"\xef\xbb\xbf\ndata: a\n\n", piece)[0].1, "a");
    }
    assert_eq!(data_of("\u{feff}\u{feff}data: a\n\n"), [""; 0]);
    assert_eq!(data_of("\n\u{feff}data: a\n\n"), [""; 0]);
}

#[test]
fn fields_do_what_they_say_and_unknown_ones_nothing() {
    let mut decoder = EventStreamDecoder::new(100);
    let stream = b"foo: bar\nretry: 10\nretry: +3\nretry: 1s\nretry:\nid: a\nid: b\0c\n\
        event: x\nevent: y\ndata: d\n\nevent: lost\n\ndata: e\n\n";
    let events = received_by(&mut decoder, stream, 7).unwrap();
    let expect = |kind: &str, data: &str| (kind.to_owned(), data.to_owned(), "a".to_owned());
    assert_eq!(events, [expect("y", "d"), expect("message", "e")]);
    assert_eq!((decoder.retry(), decoder.last_event_id()), (Some(10), "a"));
    received_by(&mut decoder, b"retry: 99999999999999999999\n\n", 7).unwrap();
    assert_eq!(decoder.retry(), Some(10));
}

#[test]
fn an_id_counts_from_the_end_of_its_block() {
    let mut decoder = EventStreamDecoder::new(100);
    received_by(&mut decoder, b"id: 1\n\nid: 2\ndata: cut off\n", 100).unwrap();
    assert_eq!(decoder.last_event_id(), "1");
}

#[test]
fn bytes_that_are_not_text_are_replaced() {
    assert_eq!(received(b"data: a\xffb\n\n", 1)[0].1, "a\u{fffd}b");
}

#[test]
fn lines_and_events_are_bounded() {
    let long = "x".repeat(11);
    for stream in [
        long.clone(),
        format!(": {long}"),
        "data:12345\ndata:12345\n".to_owned(),
        "event:123456\ndata:12345\n".to_owned(),
        "data:1234\ndata:1\nevent:1234\n".to_owned(),
    ] {
        for piece in [1, 3, 100] {
            let mut decoder = EventStreamDecoder::new(10);
            let result = received_by(&mut decoder, stream.as_bytes(), piece);
            let too_big = matches!(result, Err(SseError::EventTooBig { limit: 10, .. }));
            assert!(too_big, "{stream:?} in pieces of {piece}");
        }
    }
    // What replaces a byte is longer than it.
    for stream in [
        &b"data:\xff\xff\xff\xff\n"[..],
        b"event:\xff\xff\xff\xff\n",
        b"id:\xff\xff\xff\xff\n",
    ] {
        let result = received_by(&mut EventStreamDecoder::new(10), stream, 100);
        let (limit, length) = (10, 12);
        assert_eq!(
            result,
            Err(SseError::EventTooBig { limit, length }),
            "{stream:?}"
        );
    }
    let mut decoder = EventStreamDecoder::new(10);
    let many = "data:1234\n\n: 1234567\n".repeat(100);
    assert_eq!(
        received_by(&mut decoder, many.as_bytes(), 5).unwrap().len(),
        100
    );
    let error = SseError::EventTooBig {
        limit: 10,
        length: 11,
    };
    assert_eq!(error.to_string(), "event exceeds 10 bytes: 11");
}

#[test]
fn events_are_written_a_line_at_a_time() {
    assert_eq!(encoded(&Event::new("")), "data: \n\n");
    assert_eq!(
        encoded(&Event::new("a\rb\r\nc\nd")),
        "data: a\ndata: b\ndata: c\ndata: d\n\n"
    );
    assert_eq!(encoded(&Event::new("a\n\r")), "data: a\ndata: \ndata: \n\n");
    let event = Event {
        event: Some("e"),
        id: Some(""),
        retry: Some(0),
        ..Event::new(" x")
    };
    assert_eq!(encoded(&event), "event: e\nid: \nretry: 0\ndata:  x\n\n");
    let mut out = Vec::new();
    comment(&mut out, "a\ndata: b");
    assert_eq!(out, b": a\n: data: b\n\n");
    out.clear();
    comment(&mut out, "");
    assert_eq!(out, b": \n\n");
}

#[test]
fn what_the_format_cannot_carry_is_refused_and_not_written() {
    let mut out = Vec::new();
    for text in ["a\n", "\r", "a\r\nb"] {
        let (event, id) = (Some(text), Some(text));
        let typed = Event {
            event,
            ..Event::new("x")
        };
        assert_eq!(typed.encode(&mut out), Err(SseError::EventType));
        let named = Event {
            id,
            ..Event::new("x")
        };
        assert_eq!(named.encode(&mut out), Err(SseError::Id));
    }
    let named = Event {
        id: Some("\0"),
        ..Event::new("x")
    };
    assert_eq!(named.encode(&mut out), Err(SseError::Id));
    assert_eq!(out, b"");
}

/// What the standard says, word for word, over the whole stream.
fn twin(stream: &[u8]) -> Vec<(String, String, String)> {
    let text = String::from_utf8_lossy(stream);
    let text = text.strip_prefix('\u{feff}').unwrap_or(&text);
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let mut lines: Vec<&str> = text.split('\n').collect();
    lines.pop();
    let (mut event, mut data, mut id) = (String::new(), String::new(), String::new());
    let mut events = Vec::new();
    for line in lines {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "" if line.is_empty() => {
                let kind = std::mem::take(&mut event);
                let kind = if kind.is_empty() {
                    "message".to_owned()
                } else {
                    kind
                };
                let mut data = std::mem::take(&mut data);
                if data.pop().is_some() {
                    events.push((kind, data, id.clone()));
                }
            }
            "event" => value.clone_into(&mut event),
            "data" => data = data + value + "\n",
            "id" if !value.contains('\0') => value.clone_into(&mut id),
            _ => {}
        }
    }
    events
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        event in proptest::option::of("[^\r\n]{1,20}"),
        data in "(.|\r|\n){0,40}",
        id in proptest::option::of("[^\r\n\0]{0,10}"),
        retry: Option<u64>,
        piece in 1_usize..20,
    ) {
        let sent = Event { event: event.as_deref(), data: &data, id: id.as_deref(), retry };
        let mut out = Vec::new();
        comment(&mut out, &data);
        sent.encode(&mut out).unwrap();
        let mut decoder = EventStreamDecoder::new(1 << 16);
        let events = received_by(&mut decoder, &out, piece).unwrap();
        let data = data.replace("\r\n", "\n").replace('\r', "\n");
        let event = event.unwrap_or_else(|| "message".to_owned());
        prop_assert_eq!(events, [(event, data, id.unwrap_or_default())]);
        prop_assert_eq!(decoder.retry(), retry);
    }

    #[test]
    fn any_stream_in_any_pieces_is_read_as_the_standard_says(
        parts in proptest::collection::vec(
            proptest::sample::select(vec![
                &b"data"[..], b"event", b"id", b"retry", b":", b" ", b"\n", b"\r", b"\r\n", b"x",
                b"\0", b"\xff", b"\xc3\xa9", b"\xef\xbb\xbf", b"7", b"data: y\n",
            ]),
            0..40,
        ),
        piece in 1_usize..20,
    ) {
        let stream = parts.concat();
        let expected = twin(&stream);
        prop_assert_eq!(&received(&stream, usize::MAX), &expected);
        prop_assert_eq!(&received(&stream, 1), &expected);
        prop_assert_eq!(&received(&stream, piece), &expected);
    }
}

/// The twin of [`data`]: one line after the other.
fn naive_data(text: &str) -> String {
    let text = text.replace("\r\n", "\n").replace('\r', "\n");
    let lines: Vec<_> = text
        .split('\n')
        .map(|line| ["data: ", line, "\n"].concat())
        .collect();
    lines.concat() + "\n"
}

#[test]
fn content_takes_memory_of_its_size() {
    for text in [
        "",
        "a",
        &"\n".repeat(5_000),
        &"line\n".repeat(2_000),
        &"x".repeat(9_000),
    ] {
        let mut out = Vec::new();
        data(&mut out, text);
        assert_eq!(out, naive_data(text).as_bytes());
        assert_eq!(out.len(), out.capacity());
    }
}

proptest! {
    #[test]
    fn content_is_what_the_naive_twin_makes_of_it(text in "([a-c]{0,20}|\r|\n|\r\n|é){0,20}") {
        let mut out = Vec::new();
        data(&mut out, &text);
        prop_assert_eq!(String::from_utf8(out).unwrap(), naive_data(&text));
    }
}
