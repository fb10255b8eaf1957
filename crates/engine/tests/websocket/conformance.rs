//! The core groups of the Autobahn test suite as tables: what is sent, and every byte that is to
//! come back.
//!
//! The suite itself (`make autobahn`) needs a Python of long ago; this runs everywhere.

use crate::support::{Fixture, close, frame, server_close, server_message, text};
use dwell_engine::websocket::{CloseCode, MessageKind, Opcode};
use dwell_testkit::Rig;
use std::time::Duration;

/// How a conversation ends.
#[derive(Clone, Copy, Debug)]
enum Ends {
    /// We close with 1000, and are answered with it.
    Agreed,
    /// The server closes with this code.
    Failed(u16),
}

/// One connection after the other, to the same server.
struct Conversations(Fixture);

impl Conversations {
    /// Sends `chunks` one by one, with a turn between them, and compares all that comes back.
    fn check(&mut self, name: &str, chunks: &[&[u8]], answers: &[&[u8]], ends: Ends) {
        let fixture = &mut self.0;
        let (mut peer, _) = fixture.peer("/plain");
        for chunk in chunks {
            fixture.send_all(&mut peer, chunk);
            fixture.turn_for(Duration::ZERO);
        }
        let answers = answers.concat();
        match ends {
            Ends::Agreed => {
                fixture.send_all(&mut peer, &close(1000, ""));
                let received = fixture.receive_all(&mut peer);
                let expected = [answers, server_close(1000, "")].concat();
                assert!(received == expected, "{name}: {received:x?}");
            }
            Ends::Failed(code) => {
                let received = fixture.receive_all(&mut peer);
                let closed = received.strip_prefix(answers.as_slice());
                let closed = closed.unwrap_or_else(|| panic!("{name}: {received:x?}"));
                assert_eq!(
                    (closed[0], closed[2..4].to_vec()),
                    (0x88, code.to_be_bytes().into()),
                    "{name}"
                );
                assert_eq!(closed.len(), 2 + usize::from(closed[1]), "{name}");
            }
        }
        drop(peer);
        fixture.turn_until(name, |server| server.sockets.connections() == 0);
    }

    /// As [`check`](Self::check), in one piece and in pieces of each of these sizes.
    fn check_chopped(&mut self, name: &str, bytes: &[u8], sizes: &[usize], answers: &[&[u8]]) {
        self.check(name, &[bytes], answers, Ends::Agreed);
        for size in sizes {
            let chunks: Vec<_> = bytes.chunks(*size).collect();
            self.check(
                &format!("{name}, {size} at a time"),
                &chunks,
                answers,
                Ends::Agreed,
            );
        }
    }
}

fn conversations() -> Conversations {
    Conversations(Fixture::echo())
}

/// A message in fragments of at most `size` bytes.
fn fragments(kind: MessageKind, payload: &[u8], size: usize) -> Vec<u8> {
    let count = payload.len().div_ceil(size);
    let parts = payload.chunks(size).enumerate();
    let frames = parts.map(|(index, part)| {
        let opcode = if index == 0 {
            kind.opcode()
        } else {
            Opcode::Continuation
        };
        frame(opcode, index + 1 == count, part)
    });
    frames.collect::<Vec<_>>().concat()
}

#[test]
fn group_1_framing() {
    let mut server = conversations();
    for kind in [MessageKind::Text, MessageKind::Binary] {
        for size in [0, 125, 126, 127, 128, 65_535, 65_536] {
            let payload = vec![b'*'; size];
            let sent = frame(kind.opcode(), true, &payload);
            let answer = server_message(kind, &payload);
            server.check_chopped(&format!("{kind:?} of {size}"), &sent, &[997], &[&answer]);
        }
    }
}

#[test]
fn group_2_pings_and_pongs() {
    let mut server = conversations();
    let longest = [0xfe; 125];
    for payload in [
        &b""[..],
        b"Hello, world!",
        b"\x00\xff\xfe\xfd\xfc\xfb\x00\xff",
        &longest,
    ] {
        let ping = frame(Opcode::Ping, true, payload);
        let answer = [&[0x8a, payload.len() as u8], payload].concat();
        server.check_chopped("ping", &ping, &[1], &[&answer]);
        let pings = ping.repeat(10);
        server.check_chopped("ten pings", &pings, &[1], &[&answer.repeat(10)]);
        let unasked = frame(Opcode::Pong, true, payload);
        server.check_chopped("unasked pong", &unasked, &[1], &[]);
        server.check_chopped("pong, ping", &[unasked, ping].concat(), &[], &[&answer]);
    }
    let too_long = frame(Opcode::Ping, true, &[0; 126]);
    server.check("too long", &[&too_long], &[], Ends::Failed(1002));
}

#[test]
fn groups_3_and_4_reserved_bits_and_opcodes() {
    let mut server = conversations();
    let (hello, answer) = (text("Hello"), server_message(MessageKind::Text, b"Hello"));
    let ping = frame(Opcode::Ping, true, b"");
    let reserved_bits = (1..=7).flat_map(|bits| {
        [Opcode::Text, Opcode::Binary, Opcode::Ping, Opcode::Close]
            .map(|opcode| 0x80 | bits << 4 | opcode.number())
    });
    let reserved_opcodes = [3, 4, 5, 6, 7, 11, 12, 13, 14, 15].map(|opcode| 0x80 | opcode);
    for first in reserved_bits.chain(reserved_opcodes) {
        let mut broken = hello.clone();
        broken[0] = first;
        let name = format!("{first:x}");
        let ends = Ends::Failed(1002);
        server.check(&name, &[&broken], &[], ends);
        let all = [&hello[..], &broken, &ping].concat();
        server.check(&name, &[&all], &[&answer], ends);
        let octets: Vec<_> = all[..=hello.len()].chunks(1).collect();
        server.check(&name, &octets, &[&answer], ends);
    }
}

#[test]
fn group_5_fragmentation() {
    let mut server = conversations();
    let part = |opcode, fin, payload: &str| frame(opcode, fin, payload.as_bytes());
    let (first, last) = (Opcode::Text, Opcode::Continuation);
    let answer = server_message(MessageKind::Text, b"fragment1fragment2");
    let two = [
        part(first, false, "fragment1"),
        part(last, true, "fragment2"),
    ];
    server.check_chopped("two", &two.concat(), &[1], &[&answer]);
    let ping = part(Opcode::Ping, true, "ping");
    let interrupted = [&two[0][..], &ping, &two[1]].concat();
    server.check_chopped(
        "a ping within",
        &interrupted,
        &[1],
        &[b"\x8a\x04ping", &answer],
    );
    let failing = [
        vec![
            part(Opcode::Ping, false, "fragment1"),
            part(last, true, "fragment2"),
        ],
        vec![
            part(Opcode::Pong, false, "fragment1"),
            part(last, true, "fragment2"),
        ],
        vec![part(last, true, "non-continuation"), text("Hello")],
        vec![part(last, false, "non-continuation"), text("Hello")],
        vec![
            part(first, false, "fragment1"),
            part(first, true, "fragment2"),
        ],
    ];
    for case in failing {
        server.check("out of order", &[&case.concat()], &[], Ends::Failed(1002));
        let chunks: Vec<_> = case.iter().map(Vec::as_slice).collect();
        server.check("out of order, apart", &chunks, &[], Ends::Failed(1002));
    }
    let beyond = [&two.concat()[..], &part(last, false, "fragment3")].concat();
    server.check("one too many", &[&beyond], &[&answer], Ends::Failed(1002));
    let many = [
        part(first, false, "fragment1"),
        part(last, false, "fragment2"),
        part(Opcode::Ping, true, "one"),
        part(last, false, "fragment3"),
        part(last, false, "fragment4"),
        part(Opcode::Ping, true, "two"),
        part(last, true, "fragment5"),
    ]
    .concat();
    let answer = server_message(
        MessageKind::Text,
        b"fragment1fragment2fragment3fragment4fragment5",
    );
    let answers: [&[u8]; 3] = [b"\x8a\x03one", b"\x8a\x03two", &answer];
    server.check_chopped("pings within", &many, &[1, 13], &answers);
}

#[test]
fn group_6_text() {
    let mut server = conversations();
    let valid = [
        "",
        "Hello-µ@ßöäüàá-UTF-8!!",
        "κόσμε",
        "\0",
        "\u{80}",
        "\u{800}",
        "\u{10000}",
        "\u{7f}",
        "\u{7ff}",
        "\u{ffff}",
        "\u{10ffff}",
        "\u{d7ff}",
        "\u{e000}",
        "\u{fffd}",
        "\u{fffe}",
        "\u{1fffe}",
    ];
    for case in valid {
        let answer = server_message(MessageKind::Text, case.as_bytes());
        server.check_chopped(case, &text(case), &[1], &[&answer]);
        if !case.is_empty() {
            let parts = fragments(MessageKind::Text, case.as_bytes(), 1);
            server.check_chopped(case, &parts, &[1], &[&answer]);
        }
    }
    let invalid: [&[u8]; 20] = [
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xed\xa0\x80edited",
        b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5\xf4\x90\x80\x80edited",
        b"\xf8\x88\x80\x80\x80",
        b"\xfc\x84\x80\x80\x80\x80",
        b"\xf7\xbf\xbf\xbf",
        b"\xfb\xbf\xbf\xbf\xbf",
        b"\xfd\xbf\xbf\xbf\xbf\xbf",
        b"\xf4\x90\x80\x80",
        b"\x80",
        b"\xbf",
        b"\x80\xbf",
        b"\xc0\xaf",
        b"\xe0\x80\xaf",
        b"\xf0\x80\x80\xaf",
        b"\xc1\xbf",
        b"\xe0\x9f\xbf",
        b"\xf0\x8f\xbf\xbf",
        b"\xed\xa0\x80",
        b"\xed\xbf\xbf",
        b"\xce",
    ];
    for case in invalid {
        let name = format!("{case:x?}");
        let ends = Ends::Failed(1007);
        server.check(&name, &[&frame(Opcode::Text, true, case)], &[], ends);
        let parts = fragments(MessageKind::Text, case, 1);
        server.check(&name, &[&parts], &[], ends);
        // As binary it is as good as anything.
        let answer = server_message(MessageKind::Binary, case);
        server.check(
            &name,
            &[&frame(Opcode::Binary, true, case)],
            &[&answer],
            Ends::Agreed,
        );
    }
}

#[test]
fn group_6_4_fails_at_the_first_byte_that_shows_it() {
    let mut server = conversations();
    let start = b"\xce\xba\xe1\xbd\xb9\xcf\x83\xce\xbc\xce\xb5";
    // The rest of the message, and of the frame, is never sent.
    let fragment = [&start[..], b"\xf4\x90"].concat();
    let unfinished = frame(Opcode::Text, false, &fragment);
    server.check("in a fragment", &[&unfinished], &[], Ends::Failed(1007));
    let whole = frame(
        Opcode::Text,
        true,
        &[&fragment[..], b"\x80\x80edited"].concat(),
    );
    let sent = &whole[..6 + fragment.len()];
    server.check(
        "in a frame",
        &[&sent[..17], &sent[17..]],
        &[],
        Ends::Failed(1007),
    );
}

#[test]
fn group_7_closing() {
    let mut server = conversations();
    let (hello, answer) = (text("Hello"), server_message(MessageKind::Text, b"Hello"));
    let agreed = close(1000, "");
    let after = [
        &hello[..],
        &agreed,
        &hello,
        &frame(Opcode::Ping, true, b""),
        &agreed,
    ]
    .concat();
    let fixture = &mut server.0;
    let (mut peer, _) = fixture.peer("/plain");
    fixture.send_all(&mut peer, &after);
    let expected = [answer, server_close(1000, "")].concat();
    assert_eq!(fixture.receive_all(&mut peer), expected);
    for code in (1000..=1003)
        .chain(1007..=1011)
        .chain([3000, 3999, 4000, 4999])
    {
        for reason in ["", "Hello World!", &"*".repeat(123)] {
            let (mut peer, _) = fixture.peer("/plain");
            fixture.send_all(&mut peer, &close(code, reason));
            assert!(CloseCode::new(code).is_some());
            assert_eq!(fixture.receive_all(&mut peer), server_close(code, ""));
        }
    }
    for code in [
        0, 999, 1004, 1005, 1006, 1016, 1100, 2000, 2999, 5000, 65_535,
    ] {
        let name = code.to_string();
        server.check(&name, &[&close(code, "")], &[], Ends::Failed(1002));
    }
    let too_long = close(1000, &"*".repeat(124));
    server.check("reason too long", &[&too_long], &[], Ends::Failed(1002));
    let one_byte = frame(Opcode::Close, true, b"a");
    server.check("one byte", &[&one_byte], &[], Ends::Failed(1002));
    let no_text = frame(Opcode::Close, true, b"\x03\xe8\xce\xba\xed\xa0\x80");
    server.check("reason not text", &[&no_text], &[], Ends::Failed(1007));
}

#[test]
fn groups_9_and_10_long_messages_in_many_pieces() {
    let mut server = conversations();
    let mebibyte = vec![b'*'; 1 << 20];
    for kind in [MessageKind::Text, MessageKind::Binary] {
        let answer = server_message(kind, &mebibyte);
        let whole = frame(kind.opcode(), true, &mebibyte);
        server.check_chopped("1 MiB", &whole, &[4_096], &[&answer]);
        for size in [64, 1_024, 65_536] {
            let parts = fragments(kind, &mebibyte, size);
            server.check("1 MiB in fragments", &[&parts], &[&answer], Ends::Agreed);
        }
    }
    let payload = vec![b'*'; 65_536];
    let answer = server_message(MessageKind::Text, &payload);
    let parts = fragments(MessageKind::Text, &payload, 1_300);
    server.check_chopped("by 1,300", &parts, &[1_300], &[&answer]);
}
