//! What a peer must not send, and the close code that tells it so.

use crate::support::{Answer, Fixture, Seen, close, frame, server_close, text};
use dwell_engine::websocket::{EndCause, MessageLimits, Opcode, PeerError, WebSocketOptions};
use dwell_testkit::Rig;
use std::io::Write;

/// Sends `bytes`, and expects to be told `code` and nothing else before the end.
fn refuses(path: &str, options: WebSocketOptions, bytes: &[u8], code: u16) -> EndCause {
    let mut fixture = Fixture::new(Answer::Nothing, options);
    let (mut peer, _) = fixture.peer(path);
    peer.write_all(bytes).unwrap();
    let received = fixture.receive_until(&mut peer, |received| {
        received.len() >= 2 && received.len() >= 2 + usize::from(received[1])
    });
    assert_eq!(received[0], 0x88, "{received:x?} for {bytes:x?}");
    assert_eq!(received[2..4], code.to_be_bytes(), "{bytes:x?}");
    drop(peer);
    let end = fixture.until_end();
    assert_eq!((end.code, end.is_clean), (1006, false));
    assert!(fixture.server.app.payloads().is_empty());
    end.cause
}

#[test]
fn frames_that_break_the_protocol_close_with_1002() {
    let control_of_126 = frame(Opcode::Ping, true, &[0; 126]);
    let fragmented_ping = frame(Opcode::Ping, false, b"");
    let continuation = frame(Opcode::Continuation, true, b"x");
    let two_beginnings = [
        frame(Opcode::Text, false, b"x"),
        frame(Opcode::Text, true, b"x"),
    ]
    .concat();
    let cases: &[&[u8]] = &[
        b"\x81\x05Hello",
        b"\xa1\x80\0\0\0\0",
        b"\x91\x80\0\0\0\0",
        b"\xc0\x80\0\0\0\0",
        b"\x83\x80\0\0\0\0",
        b"\x87\x80\0\0\0\0",
        b"\x8b\x80\0\0\0\0",
        b"\x8f\x80\0\0\0\0",
        b"\x82\xfe\0\x05",
        b"\x82\xff\0\0\0\0\0\0\0\x7e",
        b"\x82\xff\x80\0\0\0\0\0\0\0",
        b"\x88\x81\0\0\0\0\x03",
        &control_of_126,
        &fragmented_ping,
        &continuation,
        &two_beginnings,
    ];
    for case in cases {
        let cause = refuses("/", WebSocketOptions::default(), case, 1002);
        assert!(matches!(cause, EndCause::Protocol(_)), "{cause:?}");
    }
    // Without an agreement on compression nothing is compressed.
    refuses(
        "/plain",
        WebSocketOptions::default(),
        b"\xc1\x80\0\0\0\0",
        1002,
    );
}

#[test]
fn close_codes_that_may_not_be_sent_close_with_1002() {
    for code in [
        0, 999, 1004, 1005, 1006, 1015, 1016, 1100, 2000, 2999, 5000, 65535,
    ] {
        let cause = refuses("/", WebSocketOptions::default(), &close(code, ""), 1002);
        assert_eq!(cause, EndCause::Protocol(PeerError::CloseCode { code }));
    }
}

#[test]
fn text_that_is_none_closes_with_1007_at_the_first_byte_that_shows_it() {
    let unfinished = frame(Opcode::Text, false, b"\xce\xba\xf4\x90");
    let within_a_frame = &frame(Opcode::Text, true, b"abc\xff and more")[..10];
    let cut_off = frame(Opcode::Text, true, b"\xce");
    let in_reason = frame(Opcode::Close, true, b"\x03\xe8\xff");
    for case in [&unfinished[..], within_a_frame, &cut_off, &in_reason] {
        let cause = refuses("/", WebSocketOptions::default(), case, 1007);
        assert_eq!(cause, EndCause::Protocol(PeerError::Utf8));
    }
}

#[test]
fn compressed_data_that_is_none_closes_with_1007() {
    let bytes = b"\xc1\x83\0\0\0\0\xff\xff\xff";
    let cause = refuses("/", WebSocketOptions::default(), bytes, 1007);
    assert_eq!(cause, EndCause::Protocol(PeerError::Deflate));
}

#[test]
fn what_is_too_big_closes_with_1009_before_it_has_come() {
    let options = WebSocketOptions {
        messages: MessageLimits {
            frame_bytes_max: 100,
            message_bytes_max: 150,
            fragments_max: 3,
        },
        ..WebSocketOptions::default()
    };
    let header_of_101 = &frame(Opcode::Binary, true, &[0; 101])[..6];
    let cause = refuses("/", options, header_of_101, 1009);
    let (limit, length) = (100, 101);
    assert_eq!(
        cause,
        EndCause::Protocol(PeerError::FrameTooBig { limit, length })
    );
    let two = [
        &frame(Opcode::Binary, false, &[0; 100])[..],
        &frame(Opcode::Continuation, true, &[0; 51])[..6],
    ]
    .concat();
    let cause = refuses("/", options, &two, 1009);
    let (limit, length) = (150, 151);
    assert_eq!(
        cause,
        EndCause::Protocol(PeerError::MessageTooBig { limit, length })
    );
    let mut four = frame(Opcode::Binary, false, b"");
    for _ in 0..3 {
        four.extend(frame(Opcode::Continuation, false, b""));
    }
    let cause = refuses("/", options, &four, 1008);
    assert_eq!(
        cause,
        EndCause::Protocol(PeerError::TooManyFragments { limit: 3 })
    );
    // Seven bytes that inflate to a thousand.
    let mut deflater = dwell_proto::websocket::Deflater::new(
        &dwell_proto::websocket::DeflateOptions::default(),
        15,
    )
    .unwrap();
    let mut bomb = Vec::new();
    dwell_proto::websocket::encode::compressed_message(
        &mut bomb,
        dwell_proto::websocket::MessageKind::Binary,
        &[0; 1_000],
        Some([0; 4]),
        &mut deflater,
    );
    assert!(bomb.len() < 50);
    refuses("/", options, &bomb, 1009);
}

#[test]
fn what_is_exactly_as_big_as_allowed_passes() {
    let options = WebSocketOptions {
        messages: MessageLimits {
            frame_bytes_max: 100,
            message_bytes_max: 150,
            fragments_max: 3,
        },
        ..WebSocketOptions::default()
    };
    let mut fixture = Fixture::new(Answer::Nothing, options);
    let (mut peer, _) = fixture.peer("/");
    let stream = [
        frame(Opcode::Binary, false, &[0; 100]),
        frame(Opcode::Continuation, false, &[0; 50]),
        frame(Opcode::Continuation, true, b""),
    ]
    .concat();
    peer.write_all(&stream).unwrap();
    fixture.turn_until("it comes", |server| server.app.payloads().len() == 1);
    assert_eq!(fixture.server.app.payloads()[0].len(), 150);
}

#[test]
fn a_peer_that_goes_on_sending_reads_why_it_was_refused() {
    let options = WebSocketOptions {
        messages: MessageLimits {
            frame_bytes_max: 1_000,
            ..MessageLimits::default()
        },
        ..WebSocketOptions::default()
    };
    let mut fixture = Fixture::new(Answer::Nothing, options);
    let (mut peer, _) = fixture.peer("/");
    let huge = frame(Opcode::Binary, true, &vec![0; 4 << 20]);
    fixture.send_all(&mut peer, &huge);
    let expected = server_close(1009, "frame exceeds 1000 bytes: 4194304");
    assert_eq!(fixture.receive_all(&mut peer), expected);
    drop(peer);
    fixture.until_end();
}

#[test]
fn messages_before_the_fault_are_handed_over() {
    let mut fixture = Fixture::echo();
    let (mut peer, _) = fixture.peer("/");
    let stream = [text("good"), b"\xff\xff".to_vec()].concat();
    peer.write_all(&stream).unwrap();
    let received = fixture.receive_until(&mut peer, |received| received.len() > 8);
    assert!(received.starts_with(b"\x81\x04good\x88"), "{received:x?}");
    let is_good = |seen: &Seen| matches!(seen, Seen::Message { payload, .. } if payload == b"good");
    assert!(is_good(&fixture.server.app.seen[0]));
}
