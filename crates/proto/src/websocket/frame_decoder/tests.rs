use super::*;
use crate::websocket::encode;
use proptest::prelude::*;

const MASK: Mask = [1, 2, 3, 4];

fn header(fin: bool, opcode: Opcode) -> FrameHeader {
    FrameHeader {
        fin,
        compressed: false,
        opcode,
        mask: Some(MASK),
        payload_len: 0,
    }
}

fn frame(fin: bool, opcode: Opcode, payload: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    encode::frame(&mut out, header(fin, opcode), payload);
    out
}

type Frames = Vec<(Opcode, bool, Vec<u8>)>;

/// Decodes the input in pieces of one size: each frame as opcode, FIN and payload.
fn decode(input: &[u8], piece: usize, limits: &MessageLimits) -> (Frames, Option<PeerError>) {
    let mut decoder = FrameDecoder::new(Role::Server, false);
    let mut frames = Frames::new();
    let mut held = Vec::new();
    for piece in input.chunks(piece.max(1)) {
        held.extend_from_slice(piece);
        loop {
            let before = held.clone();
            let step = match decoder.decode(&mut held, limits) {
                Ok(step) => step,
                Err(error) => return (frames, Some(error)),
            };
            let consumed = step.consumed;
            let is_some = step.part.is_some();
            if let Some(part) = step.part {
                match frames.last_mut() {
                    Some((_, _, payload)) if !part.is_first => payload.extend(part.data),
                    _ => frames.push((part.opcode, part.fin, part.data.to_vec())),
                }
            }
            assert_eq!(
                held[consumed..],
                before[consumed..],
                "what is kept was changed"
            );
            held.drain(..consumed);
            if !is_some {
                break;
            }
        }
        assert!(held.len() <= REST_BYTES_MAX);
    }
    (frames, None)
}

fn refusal(input: &[u8]) -> Option<PeerError> {
    decode(input, usize::MAX, &MessageLimits::default()).1
}

#[test]
fn fragments_come_in_order_with_control_frames_between_them() {
    let input = [
        frame(false, Opcode::Text, b"a"),
        frame(true, Opcode::Ping, b"p"),
        frame(false, Opcode::Continuation, b""),
        frame(true, Opcode::Continuation, b"b"),
        frame(true, Opcode::Binary, b"c"),
    ]
    .concat();
    let expected = [
        (Opcode::Text, false, b"a".to_vec()),
        (Opcode::Ping, true, b"p".to_vec()),
        (Opcode::Continuation, false, Vec::new()),
        (Opcode::Continuation, true, b"b".to_vec()),
        (Opcode::Binary, true, b"c".to_vec()),
    ];
    for piece in 1..=input.len() {
        let (frames, error) = decode(&input, piece, &MessageLimits::default());
        assert_eq!(
            (&frames[..], error),
            (&expected[..], None),
            "in pieces of {piece}"
        );
    }
}

#[test]
fn fragments_out_of_order_are_refused() {
    let unexpected = Some(PeerError::ContinuationUnexpected);
    assert_eq!(refusal(&frame(true, Opcode::Continuation, b"")), unexpected);
    let whole = frame(true, Opcode::Text, b"a");
    let stray = [whole.clone(), frame(false, Opcode::Continuation, b"")].concat();
    assert_eq!(refusal(&stray), unexpected);
    let nested = [frame(false, Opcode::Binary, b""), whole].concat();
    assert_eq!(refusal(&nested), Some(PeerError::ContinuationExpected));
}

#[test]
fn a_frame_that_is_too_big_is_refused_by_its_header() {
    let limits = MessageLimits {
        frame_bytes_max: 3,
        ..MessageLimits::default()
    };
    let (frames, error) = decode(&frame(true, Opcode::Binary, b"abc"), 1, &limits);
    assert_eq!((frames.len(), error), (1, None));
    let too_big = PeerError::FrameTooBig {
        limit: 3,
        length: 4,
    };
    let (frames, error) = decode(&frame(true, Opcode::Binary, b"abcd")[..6], 1, &limits);
    assert_eq!((frames.len(), error), (0, Some(too_big)));
    // Control frames have a bound of their own.
    let (frames, error) = decode(&frame(true, Opcode::Ping, b"abcdefg"), 1, &limits);
    assert_eq!((frames.len(), error), (1, None));
}

#[test]
fn after_a_close_frame_everything_is_passed_over() {
    let mut decoder = FrameDecoder::new(Role::Server, false);
    let limits = MessageLimits::default();
    let mut input = [frame(true, Opcode::Close, b""), b"\xff\xff\xff".to_vec()].concat();
    let step = decoder.decode(&mut input, &limits).unwrap();
    assert_eq!(step.part.map(|part| part.opcode), Some(Opcode::Close));
    let end = step.consumed;
    assert!(decoder.is_closed());
    let step = decoder.decode(&mut input[end..], &limits).unwrap();
    assert_eq!((step.consumed, step.part), (3, None));
}

#[test]
fn a_decoder_is_idle_between_messages_only() {
    let limits = MessageLimits::default();
    let mut decoder = FrameDecoder::new(Role::Server, false);
    assert!(decoder.is_idle());
    let mut first = frame(false, Opcode::Text, b"a");
    decoder.decode(&mut first, &limits).unwrap();
    assert!(!decoder.is_idle());
    let mut last = frame(true, Opcode::Continuation, b"bc");
    decoder.decode(&mut last[..7], &limits).unwrap();
    assert!(!decoder.is_idle());
    decoder.decode(&mut last[7..], &limits).unwrap();
    assert!(decoder.is_idle());
}

#[test]
fn a_decoder_is_small() {
    assert!(
        size_of::<FrameDecoder>() <= 24,
        "{}",
        size_of::<FrameDecoder>()
    );
}

proptest! {
    #[test]
    fn hostile_bytes_in_any_pieces_give_what_the_whole_gives(
        input in proptest::collection::vec(
            prop_oneof![
                any::<u8>().prop_map(|byte| vec![byte]),
                any::<u8>().prop_map(|byte| vec![0x80 | byte & 0x0f, 0x80 | byte & 0x1f]),
                Just(frame(true, Opcode::Binary, b"abc")),
                Just(frame(false, Opcode::Text, b"a")),
                Just(frame(true, Opcode::Continuation, b"b")),
                Just(frame(true, Opcode::Ping, b"")),
            ],
            0..12,
        ),
        piece in 1_usize..10,
    ) {
        let input = input.concat();
        let limits = MessageLimits { frame_bytes_max: 300, ..MessageLimits::default() };
        let whole = decode(&input, usize::MAX, &limits);
        prop_assert_eq!(&decode(&input, 1, &limits), &whole);
        prop_assert_eq!(&decode(&input, piece, &limits), &whole);
    }
}
