use super::*;
use proptest::prelude::*;

const MASK: Mask = [0x37, 0xfa, 0x21, 0x3d];

fn header(opcode: Opcode, payload_len: u64, mask: Option<Mask>) -> FrameHeader {
    FrameHeader {
        fin: true,
        compressed: false,
        opcode,
        mask,
        payload_len,
    }
}

/// The error that the bytes of a client are refused with.
fn refusal(input: &[u8]) -> PeerError {
    FrameHeader::parse(input, Role::Server, false).unwrap_err()
}

#[test]
fn the_examples_of_the_standard_are_written_and_read() {
    let fragment = FrameHeader {
        fin: false,
        ..header(Opcode::Text, 3, None)
    };
    let examples: &[(FrameHeader, &[u8])] = &[
        (header(Opcode::Text, 5, None), &[0x81, 0x05]),
        (
            header(Opcode::Text, 5, Some(MASK)),
            &[0x81, 0x85, 0x37, 0xfa, 0x21, 0x3d],
        ),
        (fragment, &[0x01, 0x03]),
        (header(Opcode::Continuation, 2, None), &[0x80, 0x02]),
        (header(Opcode::Ping, 5, None), &[0x89, 0x05]),
        (
            header(Opcode::Pong, 5, Some(MASK)),
            &[0x8a, 0x85, 0x37, 0xfa, 0x21, 0x3d],
        ),
        (header(Opcode::Binary, 256, None), &[0x82, 0x7e, 0x01, 0x00]),
        (
            header(Opcode::Binary, 65_536, None),
            &[0x82, 0x7f, 0, 0, 0, 0, 0, 1, 0, 0],
        ),
    ];
    for (header, bytes) in examples {
        assert_eq!(&*header.encode(), *bytes);
        let role = if header.mask.is_some() {
            Role::Server
        } else {
            Role::Client
        };
        assert_eq!(
            FrameHeader::parse(bytes, role, false),
            Ok(Some((*header, bytes.len())))
        );
    }
}

#[test]
fn lengths_take_the_shortest_form_and_no_other_is_read() {
    for (length, header_len) in [
        (0, 2),
        (125, 2),
        (126, 4),
        (65_535, 4),
        (65_536, 10),
        ((1 << 63) - 1, 10),
    ] {
        let header = header(Opcode::Binary, length, None);
        let bytes = header.encode();
        assert_eq!(bytes.len(), header_len, "{length}");
        let parsed = FrameHeader::parse(&bytes, Role::Client, false);
        assert_eq!(parsed, Ok(Some((header, header_len))));
    }
    let minimal = PeerError::LengthNotMinimal;
    assert_eq!(refusal(&[0x82, 0xfe, 0, 125]), minimal);
    assert_eq!(
        refusal(&[0x82, 0xff, 0, 0, 0, 0, 0, 0, 0xff, 0xff]),
        minimal
    );
    assert_eq!(
        refusal(&[0x82, 0xff, 0x80, 0, 0, 0, 0, 0, 0, 0]),
        PeerError::LengthOverflow
    );
}

#[test]
fn what_the_first_two_bytes_may_not_say_is_refused_at_once() {
    for bits in [0x10, 0x20, 0x40, 0x70] {
        assert_eq!(refusal(&[0x81 | bits]), PeerError::ReservedBits);
    }
    for opcode in [3, 4, 5, 6, 7, 11, 12, 13, 14, 15] {
        assert_eq!(
            refusal(&[0x80 | opcode]),
            PeerError::ReservedOpcode { opcode }
        );
    }
    for opcode in [8, 9, 10] {
        assert_eq!(refusal(&[opcode]), PeerError::ControlFragmented);
        let too_long = PeerError::ControlTooLong {
            limit: 125,
            length: 126,
        };
        assert_eq!(refusal(&[0x80 | opcode, 0xfe]), too_long);
        assert_eq!(refusal(&[0x80 | opcode, 0xff]), too_long);
    }
    assert_eq!(refusal(&[0x81, 0x05]), PeerError::MaskMissing);
    let masked = FrameHeader::parse(&[0x81, 0x85], Role::Client, false);
    assert_eq!(masked, Err(PeerError::MaskUnexpected));
}

#[test]
fn rsv1_is_for_data_frames_with_an_extension() {
    for opcode in [0x01, 0x02] {
        let bytes = [0xc0 | opcode, 0x00];
        let (header, _) = FrameHeader::parse(&bytes, Role::Client, true)
            .unwrap()
            .unwrap();
        assert!(header.compressed);
        assert_eq!(*header.encode(), bytes);
    }
    for opcode in [0x00, 0x08, 0x09, 0x0a] {
        let refused = FrameHeader::parse(&[0xc0 | opcode], Role::Client, true);
        assert_eq!(refused, Err(PeerError::ReservedBits));
    }
    assert_eq!(
        FrameHeader::parse(&[0xa1], Role::Client, true),
        Err(PeerError::ReservedBits)
    );
}

proptest! {
    #[test]
    fn what_was_written_is_read_when_its_last_byte_comes(
        fin: bool,
        compressed: bool,
        opcode in proptest::sample::select(vec![0x0_u8, 0x1, 0x2, 0x8, 0x9, 0xa]),
        mask: Option<Mask>,
        length in prop_oneof![0_u64..126, 126..70_000_u64, 0..1_u64 << 63],
    ) {
        let opcode = Opcode::from_number(opcode).unwrap();
        let is_control = opcode.is_control();
        let written = FrameHeader {
            fin: fin || is_control,
            compressed: compressed && matches!(opcode, Opcode::Text | Opcode::Binary),
            opcode,
            mask,
            payload_len: if is_control { length % 126 } else { length },
        };
        let role = if mask.is_some() { Role::Server } else { Role::Client };
        let bytes = written.encode();
        for end in 0..bytes.len() {
            prop_assert_eq!(FrameHeader::parse(&bytes[..end], role, true), Ok(None));
        }
        let mut followed = bytes.to_vec();
        followed.extend_from_slice(b"payload");
        let parsed = FrameHeader::parse(&followed, role, true);
        prop_assert_eq!(parsed, Ok(Some((written, bytes.len()))));
    }
}
