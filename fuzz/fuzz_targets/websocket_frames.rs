//! Frames: any bytes, cut anywhere, give the same messages and the same fault, and what is held
//! for them is bounded.
//!
//! The first byte chooses the side, the second where the input is cut.
#![no_main]

use dwell_proto::websocket::{
    Event, FrameDecoder, Inflater, MessageDecoder, MessageKind, MessageLimits, PeerError,
    REST_BYTES_MAX, Role,
};
use libfuzzer_sys::fuzz_target;

const LIMITS: MessageLimits = MessageLimits {
    frame_bytes_max: 600,
    message_bytes_max: 800,
    fragments_max: 20,
};

fuzz_target!(|input: &[u8]| {
    let [kind, piece, input @ ..] = input else {
        return;
    };
    let role = if kind & 1 == 0 {
        Role::Server
    } else {
        Role::Client
    };
    let deflate = kind & 2 == 0;
    let whole = messages(role, deflate, input, input.len().max(1));
    assert_eq!(messages(role, deflate, input, 1), whole);
    assert_eq!(
        messages(role, deflate, input, usize::from(*piece).max(1)),
        whole
    );
    let whole = frames(role, deflate, input, input.len().max(1));
    assert_eq!(
        frames(role, deflate, input, usize::from(*piece).max(1)),
        whole
    );
});

/// Decodes the input in pieces of one size into messages and control frames.
fn messages(
    role: Role,
    deflate: bool,
    input: &[u8],
    piece: usize,
) -> (Vec<String>, Option<PeerError>) {
    let mut inflater = Inflater::new();
    let mut decoder = MessageDecoder::new(role, deflate);
    let (mut seen, mut held) = (Vec::new(), Vec::new());
    for piece in input.chunks(piece) {
        held.extend_from_slice(piece);
        loop {
            let step = match decoder.decode(&mut held, &LIMITS, &mut inflater) {
                Ok(step) => step,
                Err(error) => return (seen, Some(error)),
            };
            let consumed = step.consumed;
            let Some(event) = step.event else {
                held.drain(..consumed);
                break;
            };
            seen.push(format!("{event:?}"));
            check(event);
            held.drain(..consumed);
        }
        assert!(held.len() <= REST_BYTES_MAX && decoder.held_bytes() <= 4_096);
    }
    (seen, None)
}

/// What a caller relies on.
fn check(event: Event<'_>) {
    match event {
        Event::Message(message) => {
            assert!(message.payload.len() <= LIMITS.message_bytes_max);
            assert_eq!(message.text().is_some(), message.kind == MessageKind::Text);
        }
        Event::Ping(payload) | Event::Pong(payload) => assert!(payload.len() <= 125),
        Event::Close(close) => assert!(close.reason.len() <= 123),
    }
}

/// Decodes the input in pieces of one size into frames, each put together.
fn frames(
    role: Role,
    deflate: bool,
    input: &[u8],
    piece: usize,
) -> (Vec<(String, Vec<u8>)>, Option<PeerError>) {
    let mut decoder = FrameDecoder::new(role, deflate);
    let mut seen: Vec<(String, Vec<u8>)> = Vec::new();
    let mut held = Vec::new();
    for piece in input.chunks(piece) {
        held.extend_from_slice(piece);
        loop {
            let step = match decoder.decode(&mut held, &LIMITS) {
                Ok(step) => step,
                Err(error) => return (seen, Some(error)),
            };
            let consumed = step.consumed;
            let Some(part) = step.part else {
                held.drain(..consumed);
                break;
            };
            if part.is_first {
                let kind = format!("{:?} {} {}", part.opcode, part.fin, part.compressed);
                seen.push((kind, Vec::new()));
            }
            let (_, payload) = seen.last_mut().expect("a first part before this one");
            payload.extend_from_slice(part.data);
            assert!(payload.len() as u64 + part.payload_left <= LIMITS.frame_bytes_max);
            held.drain(..consumed);
        }
        assert!(held.len() <= REST_BYTES_MAX);
    }
    (seen, None)
}
