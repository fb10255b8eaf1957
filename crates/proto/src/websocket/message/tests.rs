use super::*;
use crate::websocket::{CloseCode, FrameHeader, encode};
use proptest::prelude::*;

/// What a peer said, owned.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Said {
    Message(MessageKind, Vec<u8>),
    Ping(Vec<u8>),
    Pong(Vec<u8>),
    Close(Option<CloseCode>, String),
}

impl From<Event<'_>> for Said {
    fn from(event: Event<'_>) -> Self {
        match event {
            Event::Message(message) => Self::Message(message.kind, message.payload.into_owned()),
            Event::Ping(payload) => Self::Ping(payload.to_vec()),
            Event::Pong(payload) => Self::Pong(payload.to_vec()),
            Event::Close(close) => Self::Close(close.code, close.reason.to_owned()),
        }
    }
}

type Transcript = (Vec<Said>, Option<PeerError>);

/// Decodes the input in pieces of one size, keeping what a decoder leaves over.
fn decode(input: &[u8], piece: usize, limits: &MessageLimits) -> Transcript {
    let mut inflater = Inflater::new();
    let mut decoder = MessageDecoder::new(Role::Server, true);
    let (mut said, mut held) = (Vec::new(), Vec::new());
    for piece in input.chunks(piece.max(1)) {
        held.extend_from_slice(piece);
        loop {
            let step = match decoder.decode(&mut held, limits, &mut inflater) {
                Ok(step) => step,
                Err(error) => return (said, Some(error)),
            };
            let consumed = step.consumed;
            let is_some = step.event.is_some();
            said.extend(step.event.map(Said::from));
            held.drain(..consumed);
            if !is_some {
                break;
            }
        }
        assert!(held.len() <= crate::websocket::REST_BYTES_MAX);
        assert!(
            decoder.held_bytes() <= size_of::<Unfinished>() + 4 * limits.message_bytes_max + 64
        );
    }
    (said, None)
}

fn decode_whole(input: &[u8]) -> Transcript {
    decode(input, usize::MAX, &MessageLimits::default())
}

/// A frame as a client sends it.
fn frame(fin: bool, compressed: bool, opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let header = FrameHeader {
        fin,
        compressed,
        opcode,
        mask: Some([0x9e, 0x01, 0x77, 0xc4]),
        payload_len: 0,
    };
    let mut out = Vec::new();
    encode::frame(&mut out, header, payload);
    out
}

fn text(payload: &[u8]) -> Vec<u8> {
    frame(true, false, Opcode::Text, payload)
}

fn fragments(parts: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for (place, part) in parts.iter().enumerate() {
        let opcode = if place == 0 {
            Opcode::Text
        } else {
            Opcode::Continuation
        };
        out.extend(frame(place + 1 == parts.len(), false, opcode, part));
    }
    out
}

fn said_text(payload: &[u8]) -> Said {
    Said::Message(MessageKind::Text, payload.to_vec())
}

#[test]
fn an_idle_decoder_is_32_bytes() {
    assert!(
        size_of::<MessageDecoder>() <= 32,
        "{}",
        size_of::<MessageDecoder>()
    );
}

#[test]
fn a_message_in_one_piece_is_borrowed_and_one_in_two_is_owned() {
    let (limits, mut inflater) = (MessageLimits::default(), Inflater::new());
    let mut decoder = MessageDecoder::new(Role::Server, false);
    let mut input = text(b"hello");
    let step = decoder.decode(&mut input, &limits, &mut inflater).unwrap();
    let Some(Event::Message(message)) = step.event else {
        panic!("no message")
    };
    assert!(matches!(message.payload, Cow::Borrowed(b"hello")));

    let mut input = text(b"hello");
    let (first, second) = input.split_at_mut(8);
    let step = decoder.decode(first, &limits, &mut inflater).unwrap();
    assert_eq!((step.consumed, step.event), (8, None));
    assert!(decoder.held_bytes() > 0 && !decoder.is_idle());
    let step = decoder.decode(second, &limits, &mut inflater).unwrap();
    let Some(Event::Message(message)) = step.event else {
        panic!("no message")
    };
    assert!(matches!(&message.payload, Cow::Owned(payload) if payload == b"hello"));
    assert_eq!((decoder.held_bytes(), decoder.is_idle()), (0, true));
}

#[test]
fn control_frames_come_between_fragments() {
    let input = [
        frame(false, false, Opcode::Text, b"a"),
        frame(true, false, Opcode::Ping, b"p"),
        frame(true, false, Opcode::Pong, b"q"),
        frame(true, false, Opcode::Continuation, b"b"),
        frame(true, false, Opcode::Close, b"\x03\xe9bye"),
        text(b"too late"),
    ]
    .concat();
    let expected = [
        Said::Ping(b"p".to_vec()),
        Said::Pong(b"q".to_vec()),
        said_text(b"ab"),
        Said::Close(Some(CloseCode::GOING_AWAY), "bye".to_owned()),
    ];
    for piece in 1..=input.len() {
        let (said, error) = decode(&input, piece, &MessageLimits::default());
        assert_eq!(
            (&said[..], error),
            (&expected[..], None),
            "in pieces of {piece}"
        );
    }
}

#[test]
fn text_is_refused_at_the_byte_that_spoils_it() {
    let spoiled = "κόσμε".as_bytes();
    let spoiled = [spoiled, b"\xf4\x90\x80\x80edited"].concat();
    // In one frame, in several, and when only the beginning of the frame has come.
    assert_eq!(
        decode_whole(&text(&spoiled)),
        (vec![], Some(PeerError::Utf8))
    );
    let (first, rest) = spoiled.split_at(12);
    let parts = fragments(&[first, rest]);
    assert_eq!(decode_whole(&parts), (vec![], Some(PeerError::Utf8)));
    let header_and = |payload_len: usize| 6 + payload_len;
    let frame = text(&spoiled);
    let valid_len = "κόσμε".len();
    assert_eq!(
        decode_whole(&frame[..header_and(valid_len + 1)]),
        (vec![], None)
    );
    let refused = (vec![], Some(PeerError::Utf8));
    assert_eq!(decode_whole(&frame[..header_and(valid_len + 2)]), refused);
}

#[test]
fn text_may_be_parted_within_a_character_but_not_end_in_one() {
    let parts = fragments(&[b"\xf0\x9f", b"", b"\x98", b"\x80"]);
    assert_eq!(
        decode_whole(&parts),
        (vec![said_text("😀".as_bytes())], None)
    );
    for parts in [&[&b"\xf0\x9f\x98"[..]][..], &[b"\xf0", b"\x9f"]] {
        assert_eq!(
            decode_whole(&fragments(parts)),
            (vec![], Some(PeerError::Utf8))
        );
    }
    // Bytes may be anything.
    let input = frame(true, false, Opcode::Binary, b"\xff");
    let expected = Said::Message(MessageKind::Binary, b"\xff".to_vec());
    assert_eq!(decode_whole(&input), (vec![expected], None));
}

#[test]
fn what_is_too_big_is_refused_when_it_is_announced() {
    let limits = MessageLimits {
        message_bytes_max: 10,
        ..MessageLimits::default()
    };
    let (said, error) = decode(&text(b"0123456789"), 1, &limits);
    assert_eq!((said.len(), error), (1, None));
    let too_big = |length| Some(PeerError::MessageTooBig { limit: 10, length });
    for piece in [1, 100] {
        let announced = &text(b"0123456789a")[..6];
        assert_eq!(decode(announced, piece, &limits), (vec![], too_big(11)));
        let parts = fragments(&[b"012345", b"67890"]);
        let announced = &parts[..parts.len() - 5];
        assert_eq!(decode(announced, piece, &limits), (vec![], too_big(11)));
    }
}

#[test]
fn without_limits_nothing_overflows() {
    let limits = MessageLimits {
        frame_bytes_max: u64::MAX,
        message_bytes_max: usize::MAX,
        fragments_max: u32::MAX,
    };
    let huge = [&[0x82, 0xff, 0x7f][..], &[0xff; 7], &[0; 4], b"x"].concat();
    assert_eq!(decode_unbounded(&huge, &limits), Ok(huge.len()));
    let compressed = frame(true, true, Opcode::Text, b"\xf2\x48\xcd\xc9\xc9\x07\x00");
    let compressed_len = compressed.len();
    assert_eq!(decode_unbounded(&compressed, &limits), Ok(compressed_len));
}

/// How much of the input one step takes.
fn decode_unbounded(input: &[u8], limits: &MessageLimits) -> Result<usize, PeerError> {
    let mut decoder = MessageDecoder::new(Role::Server, true);
    let mut inflater = Inflater::new();
    let mut input = input.to_vec();
    let step = decoder.decode(&mut input, limits, &mut inflater);
    step.map(|step| step.consumed)
}

#[test]
fn fragments_are_counted() {
    let limits = MessageLimits {
        fragments_max: 3,
        ..MessageLimits::default()
    };
    let (said, error) = decode(&fragments(&[b"", b"", b"a"]), 1, &limits);
    assert_eq!((said, error), (vec![said_text(b"a")], None));
    let refused = (vec![], Some(PeerError::TooManyFragments { limit: 3 }));
    assert_eq!(
        decode(&fragments(&[b"", b"", b"", b"a"]), 1, &limits),
        refused
    );
    let usual = MessageLimits::default();
    let many = vec![&b"0123456789abcdef"[..]; 65_536];
    let (said, error) = decode(&fragments(&many), 50_000, &usual);
    assert_eq!(
        (said.len(), error),
        (1, None),
        "4 MiB in frames of 64 must pass"
    );
}

#[test]
fn close_frames_are_checked() {
    let close = |payload: &[u8]| decode_whole(&frame(true, false, Opcode::Close, payload));
    assert_eq!(close(b""), (vec![Said::Close(None, String::new())], None));
    assert_eq!(close(b"\x03"), (vec![], Some(PeerError::ClosePayload)));
    assert_eq!(
        close(b"\x03\xed"),
        (vec![], Some(PeerError::CloseCode { code: 1005 }))
    );
    assert_eq!(close(b"\x03\xe8\xc3"), (vec![], Some(PeerError::Utf8)));
}

#[test]
fn a_compressed_message_is_inflated_however_it_comes() {
    // "Hello" by RFC 7692 section 7.2.3.1, whole and in two fragments.
    let whole = frame(true, true, Opcode::Text, b"\xf2\x48\xcd\xc9\xc9\x07\x00");
    let first = frame(false, true, Opcode::Text, b"\xf2\x48\xcd");
    let last = frame(true, false, Opcode::Continuation, b"\xc9\xc9\x07\x00");
    let input = [whole, first, last].concat();
    for piece in 1..=input.len() {
        let (said, error) = decode(&input, piece, &MessageLimits::default());
        assert_eq!(
            (said, error),
            (vec![said_text(b"Hello"); 2], None),
            "in pieces of {piece}"
        );
    }
    let continued = [
        frame(false, true, Opcode::Text, b"\xf2\x48\xcd"),
        frame(true, true, Opcode::Continuation, b"\xc9\xc9\x07\x00"),
    ];
    assert_eq!(
        decode_whole(&continued.concat()),
        (vec![], Some(PeerError::ReservedBits))
    );
}

#[test]
fn compressed_text_must_be_text_and_compressed_data_deflate() {
    let mut deflater = crate::websocket::Deflater::new(
        &crate::websocket::DeflateOptions {
            message_bytes_min: 0,
            ..Default::default()
        },
        15,
    )
    .unwrap();
    let payload = deflater.deflate(&[0xff; 100]).unwrap();
    let spoiled = frame(true, true, Opcode::Text, payload);
    assert_eq!(decode_whole(&spoiled), (vec![], Some(PeerError::Utf8)));
    let broken = frame(true, true, Opcode::Text, b"\x07\xff\xff");
    assert_eq!(decode_whole(&broken), (vec![], Some(PeerError::Deflate)));
}

#[test]
fn every_fault_has_the_code_of_the_standard() {
    let number = |error: PeerError| error.close_code().number();
    assert_eq!(number(PeerError::Utf8), 1007);
    assert_eq!(number(PeerError::Deflate), 1007);
    let error = PeerError::MessageTooBig {
        limit: 1,
        length: 2,
    };
    assert_eq!(
        (number(error), &error.to_string()[..]),
        (1009, "message exceeds 1 bytes: 2")
    );
    assert_eq!(
        number(PeerError::FrameTooBig {
            limit: 1,
            length: 2
        }),
        1009
    );
    assert_eq!(number(PeerError::TooManyFragments { limit: 1 }), 1008);
    for error in [
        PeerError::MaskMissing,
        PeerError::ReservedBits,
        PeerError::ClosePayload,
    ] {
        assert_eq!(number(error), 1002);
    }
}

/// Reads a whole input as the standard says, frame by frame and with no regard for speed.
fn twin(mut input: &[u8], limits: &MessageLimits) -> Transcript {
    let mut said = Vec::new();
    let mut message: Option<(MessageKind, Vec<u8>)> = None;
    loop {
        let header = match FrameHeader::parse(input, Role::Server, false) {
            Ok(Some((header, header_len))) => {
                input = &input[header_len..];
                header
            }
            Ok(None) => return (said, None),
            Err(error) => return (said, Some(error)),
        };
        let payload_len = header.payload_len as usize;
        let fault = twin_fault(&header, message.as_ref(), limits);
        if fault.is_some() {
            return (said, fault);
        }
        let present = payload_len.min(input.len());
        let mask = header.mask.unwrap();
        let bytes = input[..present].iter().enumerate();
        let payload: Vec<u8> = bytes.map(|(i, byte)| byte ^ mask[i % 4]).collect();
        let is_whole = present == payload_len;
        input = &input[present..];
        if header.opcode.is_control() {
            match is_whole.then(|| twin_control(header.opcode, payload)) {
                None => return (said, None),
                Some(Err(error)) => return (said, Some(error)),
                Some(Ok(control)) => said.push(control),
            }
            if header.opcode == Opcode::Close {
                return (said, None);
            }
            continue;
        }
        let started = (kind_of(header.opcode), Vec::new());
        let (kind, mut content) = message.take().unwrap_or(started);
        content.extend(payload);
        let is_last = header.fin && is_whole;
        if kind == MessageKind::Text
            && let Err(error) = std::str::from_utf8(&content)
            && (is_last || error.error_len().is_some())
        {
            return (said, Some(PeerError::Utf8));
        }
        if is_last {
            said.push(Said::Message(kind, content));
        } else if is_whole {
            message = Some((kind, content));
        } else {
            return (said, None);
        }
    }
}

/// What is wrong with a data frame after this much of a message.
fn twin_fault(
    header: &FrameHeader,
    message: Option<&(MessageKind, Vec<u8>)>,
    limits: &MessageLimits,
) -> Option<PeerError> {
    let held = message.map_or(0, |(_, content)| content.len());
    let length = held as u64 + header.payload_len;
    let limit = limits.message_bytes_max;
    match (header.opcode, message) {
        (Opcode::Close | Opcode::Ping | Opcode::Pong, _) => None,
        (Opcode::Continuation, None) => Some(PeerError::ContinuationUnexpected),
        (Opcode::Text | Opcode::Binary, Some(_)) => Some(PeerError::ContinuationExpected),
        _ if length > limit as u64 => Some(PeerError::MessageTooBig { limit, length }),
        _ => None,
    }
}

fn twin_control(opcode: Opcode, payload: Vec<u8>) -> Result<Said, PeerError> {
    match opcode {
        Opcode::Ping => Ok(Said::Ping(payload)),
        Opcode::Pong => Ok(Said::Pong(payload)),
        _ => {
            let close = Close::parse(&payload)?;
            Ok(Said::Close(close.code, close.reason.to_owned()))
        }
    }
}

fn opcodes() -> impl Strategy<Value = Opcode> {
    proptest::sample::select(vec![
        Opcode::Continuation,
        Opcode::Continuation,
        Opcode::Text,
        Opcode::Text,
        Opcode::Binary,
        Opcode::Ping,
        Opcode::Pong,
        Opcode::Close,
    ])
}

fn payloads() -> impl Strategy<Value = Vec<u8>> {
    prop_oneof![
        4 => "[a-é€😀]{0,8}".prop_map(String::into_bytes),
        1 => proptest::collection::vec(any::<u8>(), 0..6),
        1 => Just(b"\x03\xe8bye".to_vec()),
        1 => Just(vec![b'x'; 130]),
    ]
}

proptest! {
    #[test]
    fn any_frames_in_any_pieces_are_read_as_the_standard_says(
        frames in proptest::collection::vec((any::<bool>(), opcodes(), payloads()), 0..8),
        damage in proptest::option::of((any::<prop::sample::Index>(), any::<u8>())),
        piece in 1_usize..40,
    ) {
        let mut input = Vec::new();
        for (fin, opcode, payload) in frames {
            let payload = if opcode.is_control() { &payload[..payload.len().min(125)] }
                else { &payload };
            input.extend(frame(fin || opcode.is_control(), false, opcode, payload));
        }
        if let (Some((place, byte)), false) = (damage, input.is_empty()) {
            let place = place.index(input.len());
            input[place] = byte;
        }
        let limits = MessageLimits {
            message_bytes_max: 300,
            frame_bytes_max: u64::MAX,
            ..MessageLimits::default()
        };
        let expected = twin(&input, &limits);
        // RSV1 is let through by the decoder under test only.
        prop_assume!(expected.1 != Some(PeerError::ReservedBits));
        prop_assert_eq!(&decode(&input, usize::MAX, &limits), &expected);
        prop_assert_eq!(&decode(&input, 1, &limits), &expected);
        prop_assert_eq!(&decode(&input, piece, &limits), &expected);
    }

    #[test]
    fn one_cut_anywhere_changes_nothing(
        parts in proptest::collection::vec("[a-é€😀]{0,10}", 1..5),
        compress: bool,
    ) {
        let parts: Vec<&[u8]> = parts.iter().map(String::as_bytes).collect();
        let whole = parts.concat();
        let mut input = if compress {
            let mut deflated = flate_stored(&whole);
            let last = deflated.split_off(deflated.len() / 2);
            let first = frame(false, true, Opcode::Text, &deflated);
            [first, frame(true, false, Opcode::Continuation, &last)].concat()
        } else {
            fragments(&parts)
        };
        input.extend(frame(true, false, Opcode::Ping, b"p"));
        let expected = [said_text(&whole), Said::Ping(b"p".to_vec())];
        for cut in 0..=input.len() {
            let (limits, mut inflater) = (MessageLimits::default(), Inflater::new());
            let mut decoder = MessageDecoder::new(Role::Server, true);
            let (mut said, mut held) = (Vec::new(), Vec::new());
            for piece in [&input[..cut], &input[cut..]] {
                held.extend_from_slice(piece);
                loop {
                    let step = decoder.decode(&mut held, &limits, &mut inflater).unwrap();
                    let consumed = step.consumed;
                    let Some(event) = step.event else { held.drain(..consumed); break };
                    said.push(Said::from(event));
                    held.drain(..consumed);
                }
            }
            prop_assert_eq!(&said, &expected);
        }
    }
}

/// DEFLATE data that is not compressed: one stored block, and the beginning of an empty one.
fn flate_stored(payload: &[u8]) -> Vec<u8> {
    let length = payload.len() as u16;
    let mut out = vec![0x00];
    out.extend(length.to_le_bytes());
    out.extend((!length).to_le_bytes());
    out.extend(payload);
    out.push(0x00);
    out
}
