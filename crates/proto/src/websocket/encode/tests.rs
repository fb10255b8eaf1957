use super::*;
use crate::websocket::{DeflateOptions, Event, Inflater, MessageDecoder, MessageLimits, Role};
use proptest::prelude::*;

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    write(&mut out);
    out
}

#[test]
fn the_examples_of_the_standard_are_written() {
    let mask = Some([0x37, 0xfa, 0x21, 0x3d]);
    let hello = written(|out| message(out, MessageKind::Text, b"Hello", mask));
    assert_eq!(hello, b"\x81\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");
    assert_eq!(written(|out| ping(out, b"Hello", None)), b"\x89\x05Hello");
    let answer = written(|out| pong(out, b"Hello", mask));
    assert_eq!(answer, b"\x8a\x85\x37\xfa\x21\x3d\x7f\x9f\x4d\x51\x58");
    let big = written(|out| message(out, MessageKind::Binary, &[7; 256], None));
    assert_eq!((&big[..4], big.len()), (&b"\x82\x7e\x01\x00"[..], 260));
}

#[test]
fn close_frames_have_a_code_and_a_reason_or_neither() {
    assert_eq!(written(|out| close(out, None, "lost", None)), b"\x88\x00");
    let normal = Some(CloseCode::NORMAL);
    assert_eq!(
        written(|out| close(out, normal, "", None)),
        b"\x88\x02\x03\xe8"
    );
    assert_eq!(
        written(|out| close(out, normal, "bye", None)),
        b"\x88\x05\x03\xe8bye"
    );
    let long = "x".to_owned() + &"é".repeat(100);
    let cut = written(|out| close(out, normal, &long, None));
    assert_eq!((cut[1], cut.len()), (125, 127));
    let long = "é".repeat(100);
    let cut = written(|out| close(out, normal, &long, None));
    assert_eq!(
        (cut[1], std::str::from_utf8(&cut[4..])),
        (124, Ok(&long[..122]))
    );
}

#[test]
fn control_payloads_are_cut_to_what_may_be_sent() {
    assert_eq!(written(|out| ping(out, &[0; 200], None)).len(), 127);
    assert_eq!(written(|out| pong(out, &[0; 125], None)).len(), 127);
}

#[test]
fn a_message_of_one_fragment_is_a_whole_frame() {
    let out = written(|out| Fragments::new(MessageKind::Binary).finish(out, b"ab", None));
    assert_eq!(out, b"\x82\x02ab");
}

/// The messages in what the other side wrote.
fn read(mut input: Vec<u8>, role: Role) -> Vec<(MessageKind, Vec<u8>)> {
    let mut decoder = MessageDecoder::new(role, true);
    let (limits, mut inflater) = (MessageLimits::default(), Inflater::new());
    let (mut messages, mut start) = (Vec::new(), 0);
    loop {
        let step = decoder
            .decode(&mut input[start..], &limits, &mut inflater)
            .unwrap();
        start += step.consumed;
        match step.event {
            Some(Event::Message(message)) => {
                messages.push((message.kind, message.payload.into_owned()));
            }
            Some(_) => {}
            None => return messages,
        }
    }
}

proptest! {
    #[test]
    fn what_was_written_is_read(
        payload in proptest::collection::vec(any::<u8>(), 0..300),
        repeats in 1_usize..300,
        mask: Option<Mask>,
        cut: prop::sample::Index,
        compress: bool,
    ) {
        let payload = payload.repeat(repeats);
        let role = if mask.is_some() { Role::Server } else { Role::Client };
        let kind = MessageKind::Binary;
        let mut out = Vec::new();
        let options = DeflateOptions::default();
        if compress {
            let mut deflater = Deflater::new(&options, 15).unwrap();
            compressed_message(&mut out, kind, &payload, mask, &mut deflater);
        } else {
            message(&mut out, kind, &payload, mask);
        }
        let (first, last) = payload.split_at(cut.index(payload.len() + 1));
        let mut fragments = Fragments::new(kind);
        fragments.push(&mut out, first, mask);
        ping(&mut out, b"between", mask);
        fragments.finish(&mut out, last, mask);
        let expected = (kind, payload);
        prop_assert_eq!(read(out, role), [expected.clone(), expected]);
    }
}
