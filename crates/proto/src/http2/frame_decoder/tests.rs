use super::*;
use crate::http2::{encode, settings};
use proptest::collection::vec;
use proptest::prelude::*;

/// Decodes bytes of a server in pieces, and puts together what came in pieces.
fn frames(input: &[u8], piece: usize) -> (Vec<String>, Option<PeerError>) {
    let limits = BlockLimits {
        block_bytes_max: 200,
        frames_max: 3,
    };
    let mut decoder = FrameDecoder::of_server(limits);
    decoder.state = State::Header;
    let (mut seen, mut held, mut joined) = (Vec::new(), Vec::new(), Vec::new());
    for piece in input.chunks(piece) {
        held.extend_from_slice(piece);
        loop {
            let step = match decoder.decode(&held) {
                Ok(step) => step,
                Err(error) => return (seen, Some(error)),
            };
            let consumed = step.consumed;
            match step.frame {
                Some(Frame::Data {
                    stream,
                    window_bytes,
                    padding_bytes,
                    data,
                    ..
                }) => {
                    if window_bytes > 0 {
                        seen.push(format!("{stream} takes {window_bytes}, {padding_bytes}"));
                    }
                    joined.extend_from_slice(data);
                }
                Some(Frame::Block { fragment, .. }) => joined.extend_from_slice(fragment),
                Some(frame) => seen.push(format!("{frame:?}")),
                None => {}
            }
            if let Some(Frame::Data { ends_stream, .. }) = step.frame
                && ends_stream
            {
                seen.push(format!("{joined:?} ends"));
            }
            if let Some(Frame::Block {
                stream,
                ends_block,
                ends_stream,
                ..
            }) = step.frame
                && ends_block
            {
                seen.push(format!("{stream}: {joined:?} {ends_stream}"));
            }
            let is_done = step.frame.is_none();
            held.drain(..consumed);
            if is_done {
                break;
            }
        }
        assert!(
            held.len() <= REST_BYTES_MAX,
            "{} bytes are left",
            held.len()
        );
    }
    seen.push(format!("{joined:?}"));
    (seen, None)
}

fn frame(kind: FrameType, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u32;
    let header = FrameHeader {
        length,
        kind,
        flags,
        stream,
    };
    [&header.encode(), payload].concat()
}

fn only(input: &[u8]) -> Result<Option<Frame<'_>>, PeerError> {
    let mut decoder = FrameDecoder::of_server(BlockLimits::default());
    decoder.state = State::Header;
    decoder.decode(input).map(|step| step.frame)
}

#[test]
fn a_connection_begins_with_preface_and_settings() {
    let client = || FrameDecoder::of_client(BlockLimits::default());
    assert_eq!(client().decode(b"GET / HT"), Err(PeerError::Preface));
    assert_eq!(
        client().decode(b"PRI * HTTP/2.0\r\n\r\nSN"),
        Err(PeerError::Preface)
    );
    for first in [
        frame(FrameType::PING, 0, 0, &[0; 8]),
        frame(FrameType::SETTINGS, flags::ACK, 0, b""),
    ] {
        let input = [&PREFACE[..], &first].concat();
        assert_eq!(client().decode(&input), Err(PeerError::Preface));
    }
    let mut decoder = client();
    let step = decoder.decode(PREFACE).expect("the preface");
    assert_eq!((step.consumed, step.frame), (24, None));
    let mut input = Vec::new();
    encode::settings(&[(settings::ENABLE_PUSH, 0)], &mut input);
    let step = decoder.decode(&input).expect("settings");
    assert_eq!(step.frame, Some(Frame::Setting { id: 2, value: 0 }));
    let step = decoder.decode(&input[step.consumed..]).expect("settings");
    assert_eq!((step.consumed, step.frame), (0, Some(Frame::SettingsEnd)));
}

#[test]
fn padding_counts_and_is_not_given() {
    let input = frame(
        FrameType::DATA,
        flags::PADDED | flags::END_STREAM,
        1,
        b"\x02hi\0\0",
    );
    let data = Frame::Data {
        stream: 1,
        is_first: true,
        window_bytes: 5,
        padding_bytes: 3,
        data: b"hi",
        ends_stream: true,
    };
    assert_eq!(only(&input), Ok(Some(data)));
    for (payload, error) in [
        (&b"\x03hi"[..], PeerError::Padding),
        (b"", PeerError::FrameLength { kind: 0, length: 0 }),
    ] {
        let input = frame(FrameType::DATA, flags::PADDED, 1, payload);
        assert_eq!(only(&input), Err(error));
    }
    // All of it is padding.
    let input = frame(FrameType::DATA, flags::PADDED, 1, b"\x02\0\0");
    assert!(matches!(
        only(&input),
        Ok(Some(Frame::Data {
            data: b"",
            window_bytes: 3,
            ..
        }))
    ));
}

#[test]
fn a_block_is_not_interrupted() {
    let headers = frame(FrameType::HEADERS, flags::END_STREAM, 1, b"ab");
    let rest = |stream, flags| frame(FrameType::CONTINUATION, flags, stream, b"cd");
    let whole = [headers.clone(), rest(1, 0), rest(1, flags::END_HEADERS)].concat();
    let (seen, error) = frames(&whole, usize::MAX);
    assert_eq!(
        (&*seen[0], error),
        ("1: [97, 98, 99, 100, 99, 100] true", None)
    );
    let ping = frame(FrameType::PING, 0, 0, &[0; 8]);
    let unknown = frame(FrameType(0x77), 0, 1, b"");
    for other in [ping, unknown, rest(3, 0), headers.clone()] {
        let (_, error) = frames(&[headers.clone(), other].concat(), 1);
        assert_eq!(error, Some(PeerError::ContinuationExpected));
    }
    let (_, error) = frames(&rest(1, 0), 1);
    assert_eq!(error, Some(PeerError::ContinuationUnexpected));
}

#[test]
fn a_block_has_an_end() {
    let headers = frame(FrameType::HEADERS, 0, 1, b"");
    let rest = frame(FrameType::CONTINUATION, 0, 1, b"");
    let (_, error) = frames(&[headers.clone(), rest.repeat(3)].concat(), 1);
    let many = PeerError::TooManyContinuations { limit: 3 };
    assert_eq!(
        (error, many.code()),
        (Some(many), ErrorCode::ENHANCE_YOUR_CALM)
    );
    let long = frame(FrameType::CONTINUATION, 0, 1, &[0; 201]);
    let (_, error) = frames(&[headers, long].concat(), usize::MAX);
    assert_eq!(error, Some(PeerError::BlockTooLong { limit: 200 }));
}

#[test]
fn lengths_that_a_frame_may_not_have() {
    let (ack, priority) = (flags::ACK, flags::PRIORITY);
    for (kind, flags, stream, length) in [
        (FrameType::PING, 0, 0, 7),
        (FrameType::RST_STREAM, 0, 1, 3),
        (FrameType::SETTINGS, 0, 0, 5),
        (FrameType::SETTINGS, ack, 0, 6),
        (FrameType::WINDOW_UPDATE, 0, 0, 5),
        (FrameType::GOAWAY, 0, 0, 7),
        (FrameType::HEADERS, priority, 1, 4),
    ] {
        let input = frame(kind, flags, stream, &vec![0; length as usize]);
        let error = PeerError::FrameLength {
            kind: kind.0,
            length,
        };
        assert_eq!((only(&input), error.stream()), (Err(error), None));
    }
    let header = FrameHeader {
        length: 16_385,
        kind: FrameType(0x77),
        flags: 0,
        stream: 0,
    };
    let long = PeerError::FrameTooLong {
        limit: 16_384,
        length: 16_385,
    };
    assert_eq!(only(&header.encode()), Err(long));
}

#[test]
fn streams_that_a_frame_may_not_have() {
    for (kind, stream, length) in [
        (FrameType::PING, 1, 8),
        (FrameType::SETTINGS, 1, 0),
        (FrameType::GOAWAY, 1, 8),
        (FrameType::RST_STREAM, 0, 4),
        (FrameType::DATA, 0, 0),
        (FrameType::HEADERS, 0, 0),
        (FrameType::PRIORITY, 0, 5),
    ] {
        let input = frame(kind, 0, stream, &vec![0; length]);
        let error = PeerError::StreamId {
            kind: kind.0,
            stream,
        };
        assert_eq!((only(&input), error.stream()), (Err(error), None));
    }
    let push = frame(FrameType::PUSH_PROMISE, 0, 1, b"1234");
    assert_eq!(only(&push), Err(PeerError::Push));
    let update = frame(FrameType::WINDOW_UPDATE, 0, 0, &[0; 4]);
    assert_eq!(only(&update), Err(PeerError::NoIncrement { stream: 0 }));
}

#[test]
fn errors_of_one_stream() {
    let depends = PeerError::DependsOnItself { stream: 3 };
    let priority = b"\x80\0\0\x03\x10";
    for (kind, flags, payload, error) in [
        (FrameType::PRIORITY, 0, &priority[..], depends),
        (FrameType::HEADERS, flags::PRIORITY, priority, depends),
        (
            FrameType::PRIORITY,
            0,
            b"1234",
            PeerError::PriorityLength { stream: 3 },
        ),
        (
            FrameType::WINDOW_UPDATE,
            0,
            b"\x80\0\0\0",
            PeerError::NoIncrement { stream: 3 },
        ),
    ] {
        let broken = Frame::Broken { stream: 3, error };
        assert_eq!(only(&frame(kind, flags, 3, payload)), Ok(Some(broken)));
        assert_eq!(error.stream(), Some(3));
    }
}

/// All frames of what a server sends, each as it is shown.
fn shown(out: &[u8]) -> Vec<String> {
    let mut decoder = FrameDecoder::of_server(BlockLimits::default());
    let (mut seen, mut at) = (Vec::new(), 0);
    loop {
        let step = decoder.decode(&out[at..]).expect("frames");
        at += step.consumed;
        let Some(frame) = step.frame else { break };
        seen.push(format!("{frame:?}"));
    }
    assert_eq!(at, out.len());
    seen
}

#[test]
fn frames_that_are_written_are_read() {
    let code = ErrorCode::CANCEL;
    let data = *b"12345678";
    let mut out = Vec::new();
    encode::settings(&[(1, 2), (3, 4)], &mut out);
    encode::settings_ack(&mut out);
    encode::ping(data, &mut out);
    encode::pong(data, &mut out);
    encode::window_update(5, 6, &mut out);
    encode::reset(7, code, &mut out);
    encode::go_away(9, code, &mut out);
    let expected = [
        Frame::Setting { id: 1, value: 2 },
        Frame::Setting { id: 3, value: 4 },
        Frame::SettingsEnd,
        Frame::SettingsAck,
        Frame::Ping { data },
        Frame::Pong { data },
        Frame::WindowUpdate {
            stream: 5,
            increment: 6,
        },
        Frame::Reset { stream: 7, code },
        Frame::GoAway {
            last_stream: 9,
            code,
        },
    ];
    assert_eq!(shown(&out), expected.map(|frame| format!("{frame:?}")));
}

#[test]
fn a_message_is_written_in_frames_that_are_taken() {
    let mut out = Vec::new();
    encode::settings(&[], &mut out);
    encode::block(11, &[b'x'; 25], false, 10, &mut out);
    encode::data_header(11, 2, true, &mut out);
    out.extend_from_slice(b"hi");
    let part = |is_first, fragment, ends_block| Frame::Block {
        stream: 11,
        is_first,
        fragment,
        ends_block,
        ends_stream: false,
    };
    let expected = [
        Frame::SettingsEnd,
        part(true, &[b'x'; 10], false),
        part(false, &[b'x'; 10], false),
        part(false, &[b'x'; 5], true),
        Frame::Data {
            stream: 11,
            is_first: true,
            window_bytes: 2,
            padding_bytes: 0,
            data: b"hi",
            ends_stream: true,
        },
    ];
    assert_eq!(shown(&out), expected.map(|frame| format!("{frame:?}")));
}

/// A frame that is mostly well formed.
fn any_frame() -> impl Strategy<Value = Vec<u8>> {
    let kind = 0..11_u8;
    let flags = prop_oneof![
        Just(0),
        Just(flags::END_HEADERS),
        Just(flags::PADDED),
        any::<u8>()
    ];
    let payload = prop_oneof![
        Just(Vec::new()),
        vec(0..4_u8, 4),
        vec(0..4_u8, 5),
        vec(0..4_u8, 8),
        vec(0..4_u8, 12),
        vec(0..4_u8, 0..40),
    ];
    (kind, flags, 0..3_u32, payload)
        .prop_map(|(kind, flags, stream, payload)| frame(FrameType(kind), flags, stream, &payload))
}

proptest! {
    #[test]
    fn pieces_give_what_the_whole_gives(
        input in vec(any_frame(), 0..8).prop_map(|frames| frames.concat()),
        piece in 1..20_usize,
    ) {
        let whole = frames(&input, usize::MAX);
        prop_assert_eq!(&frames(&input, piece), &whole);
        prop_assert_eq!(&frames(&input, 1), &whole);
    }
}
