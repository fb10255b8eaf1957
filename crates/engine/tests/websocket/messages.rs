//! Messages and frames, in whatever pieces they come.

use crate::support::{Answer, Fixture, PATIENCE, Seen, frame, server_message, text};
use dwell_engine::websocket::{
    DeflateOptions, EndCause, MessageKind, MessageLimits, Opcode, WebSocketOptions,
};
use dwell_proto::websocket::{Deflater, Event, Inflater, MessageDecoder, Role, encode};
use dwell_testkit::Rig;
use std::io::Write;

fn roomy() -> WebSocketOptions {
    WebSocketOptions {
        messages: MessageLimits {
            frame_bytes_max: 64 << 20,
            message_bytes_max: 64 << 20,
            ..MessageLimits::default()
        },
        ..WebSocketOptions::default()
    }
}

#[test]
fn a_message_comes_back() {
    let mut fixture = Fixture::echo();
    let (mut peer, _) = fixture.peer("/");
    for (kind, payload) in [
        (MessageKind::Text, &b"Hello"[..]),
        (MessageKind::Binary, b"\x00\xff"),
        (MessageKind::Text, b""),
    ] {
        peer.write_all(&frame(kind.opcode(), true, payload))
            .unwrap();
        let expected = server_message(kind, payload);
        assert_eq!(fixture.receive(&mut peer, expected.len()), expected);
        let seen = fixture.server.app.seen.pop().unwrap();
        let payload = payload.to_vec();
        // Nothing is copied of what comes in one piece.
        let is_borrowed = true;
        assert_eq!(
            seen,
            Seen::Message {
                kind,
                payload,
                is_borrowed
            }
        );
    }
}

#[test]
fn control_frames_may_stand_between_fragments() {
    let mut fixture = Fixture::echo();
    let (mut peer, _) = fixture.peer("/");
    let stream = [
        frame(Opcode::Text, false, b"Hel"),
        frame(Opcode::Ping, true, b"there?"),
        frame(Opcode::Continuation, false, b""),
        frame(Opcode::Pong, true, b"unasked"),
        frame(Opcode::Continuation, true, b"lo"),
    ]
    .concat();
    peer.write_all(&stream).unwrap();
    let expected = [&b"\x8a\x06there?"[..], b"\x81\x05Hello"].concat();
    assert_eq!(fixture.receive(&mut peer, expected.len()), expected);
    let is_borrowed = false;
    let message = Seen::Message {
        kind: MessageKind::Text,
        payload: b"Hello".to_vec(),
        is_borrowed,
    };
    let seen = [
        Seen::Ping(b"there?".to_vec()),
        Seen::Pong(b"unasked".to_vec()),
        message,
    ];
    assert_eq!(fixture.server.app.seen, seen);
}

#[test]
fn a_byte_at_a_time_gives_what_the_whole_gives() {
    let mut fixture = Fixture::echo();
    let (mut peer, _) = fixture.peer("/");
    let stream = [
        text("κόσμε"),
        frame(Opcode::Binary, false, &[7; 130]),
        frame(Opcode::Ping, true, b"p"),
        frame(Opcode::Continuation, true, &[8; 3]),
    ]
    .concat();
    for byte in stream {
        peer.write_all(&[byte]).unwrap();
        fixture.turn_for(std::time::Duration::from_millis(1));
    }
    let binary = [&[7; 130][..], &[8; 3]].concat();
    let expected = [
        server_message(MessageKind::Text, "κόσμε".as_bytes()),
        b"\x8a\x01p".to_vec(),
        server_message(MessageKind::Binary, &binary),
    ]
    .concat();
    assert_eq!(fixture.receive(&mut peer, expected.len()), expected);
}

#[test]
fn a_huge_message_comes_back() {
    let mut fixture = Fixture::new(Answer::Echo, roomy());
    let (mut peer, _) = fixture.peer("/plain");
    let payload: Vec<u8> = (0..16_u32 << 20).map(|n| (n * 31 / 7) as u8).collect();
    fixture.send_all(&mut peer, &frame(Opcode::Binary, true, &payload));
    let expected = server_message(MessageKind::Binary, &payload);
    let received = fixture.receive(&mut peer, expected.len());
    assert!(received == expected);
    assert_eq!(fixture.server.app.seen.last(), Some(&Seen::Drained));
}

#[test]
fn many_messages_at_once_come_back_in_order() {
    let mut fixture = Fixture::echo();
    let (mut peer, _) = fixture.peer("/plain");
    let numbers: Vec<_> = (0..50_000).map(|n: u32| n.to_string()).collect();
    let stream: Vec<_> = numbers.iter().flat_map(|number| text(number)).collect();
    let expected: Vec<_> = numbers
        .iter()
        .flat_map(|number| server_message(MessageKind::Text, number.as_bytes()))
        .collect();
    let mut writer = peer.try_clone().unwrap();
    let writing = std::thread::spawn(move || writer.write_all(&stream).unwrap());
    let received = fixture.receive(&mut peer, expected.len());
    writing.join().unwrap();
    assert!(received == expected);
}

/// What a server's bytes say to a client that has agreed to compression.
fn messages(mut bytes: Vec<u8>, inflater: &mut Inflater) -> Vec<Vec<u8>> {
    let mut decoder = MessageDecoder::new(Role::Client, true);
    let (mut start, mut found) = (0, Vec::new());
    loop {
        let step = decoder
            .decode(&mut bytes[start..], &MessageLimits::default(), inflater)
            .unwrap();
        start += step.consumed;
        match step.event {
            Some(Event::Message(message)) => found.push(message.payload.into_owned()),
            Some(other) => panic!("{other:?}"),
            None => return found,
        }
    }
}

#[test]
fn compressed_messages_come_back_compressed() {
    let news = "waiting for news, ".repeat(50).into_bytes();
    for path in ["/", "/takeover"] {
        let refers_back = path == "/takeover";
        let mut fixture = Fixture::echo();
        let (mut peer, _) = fixture.peer(path);
        let options = DeflateOptions::default();
        let (mut deflater, mut inflater) = if refers_back {
            let deflater = Deflater::with_context_takeover(&options, 15).unwrap();
            (deflater, Inflater::with_context_takeover())
        } else {
            (Deflater::new(&options, 15).unwrap(), Inflater::new())
        };
        let mut answers = Vec::new();
        for _ in 0..3 {
            let mut out = Vec::new();
            let mask = Some([1, 2, 3, 4]);
            encode::compressed_message(&mut out, MessageKind::Text, &news, mask, &mut deflater);
            fixture.send_all(&mut peer, &out);
            let answer = fixture.receive(&mut peer, 2);
            assert!(answer.len() < news.len() / 5, "{}", answer.len());
            answers.push(answer.len());
            assert_eq!(messages(answer, &mut inflater), std::slice::from_ref(&news));
        }
        // With what came before at hand, a repetition is nearly nothing.
        assert_eq!(answers[2] < answers[0] / 2, refers_back, "{answers:?}");
        assert_eq!(
            fixture.server.app.payloads(),
            [news.clone(), news.clone(), news.clone()]
        );
    }
}

#[test]
fn small_frames_that_inflate_to_much_leave_the_turn_to_others() {
    let mut fixture = Fixture::new(Answer::Nothing, WebSocketOptions::default());
    let (mut peer, _) = fixture.peer("/");
    let mut deflater = Deflater::new(&DeflateOptions::default(), 15).unwrap();
    let (payload, mask) = (vec![0; 1 << 20], Some([1, 2, 3, 4]));
    let mut bomb = Vec::new();
    let kind = MessageKind::Binary;
    encode::compressed_message(&mut bomb, kind, &payload, mask, &mut deflater);
    // All of them fit into one read.
    let count = 5;
    assert!(bomb.len() * count < 60_000, "{}", bomb.len());
    peer.write_all(&bomb.repeat(count)).unwrap();
    let mut before = 0;
    while before < count {
        fixture.turn_for(PATIENCE);
        let came = fixture.server.app.seen.len();
        assert!(came - before <= 1, "{} messages in a turn", came - before);
        before = came;
    }
}

#[test]
fn a_client_masks_and_a_server_that_masks_is_refused() {
    let mut fixture = Fixture::echo();
    let (mut peer, token) = fixture.client();
    fixture.with(token, |socket| socket.text("Hello").unwrap());
    let sent = fixture.receive(&mut peer, 11);
    assert_eq!(sent[..2], [0x81, 0x85]);
    let mut payload = sent[6..].to_vec();
    let mask = sent[2..6].try_into().unwrap();
    dwell_proto::websocket::apply_mask(&mut payload, mask);
    assert_eq!(payload, b"Hello");
    peer.write_all(b"\x81\x03one").unwrap();
    assert_eq!(fixture.receive(&mut peer, 9)[1], 0x83);
    peer.write_all(&text("masked")).unwrap();
    let end = fixture.receive_all(&mut peer);
    assert_eq!(end[..2], [0x88, 0x80 | end[1]]);
    assert_eq!(fixture.until_end().code, 1006);
}

#[test]
fn frames_are_handed_over_as_they_come() {
    let mut fixture = Fixture::echo();
    let (mut peer, token) = fixture.peer("/frames");
    let long = frame(Opcode::Continuation, true, &[9; 300]);
    let stream = [&frame(Opcode::Binary, false, b"abc"), &long[..108]].concat();
    peer.write_all(&stream).unwrap();
    fixture.turn_until("two", |server| server.app.seen.len() == 2);
    peer.write_all(&long[108..]).unwrap();
    fixture.turn_until("three", |server| server.app.seen.len() == 3);
    let part = |opcode, fin, is_first, payload_left, data: &[u8]| Seen::Frame {
        opcode,
        fin,
        is_first,
        payload_left,
        data: data.to_vec(),
    };
    let seen = [
        part(Opcode::Binary, false, true, 0, b"abc"),
        part(Opcode::Continuation, true, true, 200, &[9; 100]),
        part(Opcode::Continuation, true, false, 0, &[9; 200]),
    ];
    assert_eq!(fixture.server.app.seen, seen);
    fixture.with(token, |socket| {
        socket.frame(Opcode::Text, false, false, b"own").unwrap();
        socket
            .frame(Opcode::Continuation, true, false, b"")
            .unwrap();
        socket.ping(b"p").unwrap();
        socket.pong(b"q").unwrap();
    });
    let expected = b"\x01\x03own\x80\x00\x89\x01p\x8a\x01q";
    assert_eq!(fixture.receive(&mut peer, expected.len()), expected);
    // The closing handshake is done here all the same.
    peer.write_all(&crate::support::close(1000, "")).unwrap();
    assert_eq!(fixture.receive_all(&mut peer), b"\x88\x02\x03\xe8");
    assert!(fixture.until_end().is_clean);
}

#[test]
fn a_close_frame_that_was_sent_as_a_frame_is_the_only_one() {
    let mut fixture = Fixture::echo();
    let (mut peer, token) = fixture.peer("/frames");
    fixture.with(token, |socket| {
        socket
            .frame(Opcode::Close, true, false, b"\x03\xe9")
            .unwrap();
        assert!(socket.is_closing() && socket.text("never").is_err());
    });
    peer.write_all(&crate::support::close(1001, "")).unwrap();
    assert_eq!(fixture.receive_all(&mut peer), b"\x88\x02\x03\xe9");
    let end = fixture.until_end();
    assert_eq!((end.cause, end.is_clean), (EndCause::Closed, true));
}
