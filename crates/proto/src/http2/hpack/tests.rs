use super::huffman::tests::encode as huffman;
use super::*;
use crate::http2::HpackError;
use proptest::collection::vec;
use proptest::prelude::*;

type Lines = Vec<(Vec<u8>, Vec<u8>)>;

fn lines_of(section: &FieldSection) -> Lines {
    let owned = |(name, value): (&[u8], &[u8])| (name.to_vec(), value.to_vec());
    section.lines().map(owned).collect()
}

fn lines<const N: usize>(lines: [(&str, &str); N]) -> Lines {
    let owned = |(name, value): (&str, &str)| (name.into(), value.into());
    lines.into_iter().map(owned).collect()
}

fn decode_with(
    decoder: &mut HpackDecoder,
    block: &[u8],
    limits: SectionLimits,
) -> Result<FieldSection, HpackError> {
    let mut section = FieldSection::new(limits);
    decoder.decode(block, true, &mut section)?;
    Ok(section)
}

fn decode(decoder: &mut HpackDecoder, block: &[u8]) -> Result<Lines, HpackError> {
    decode_with(decoder, block, SectionLimits::default()).map(|section| lines_of(&section))
}

/// A literal field, kept in the dynamic table or not.
fn literal(name: &[u8], value: &[u8], is_kept: bool, is_coded: bool) -> Vec<u8> {
    let mut block = vec![if is_kept { 0x40 } else { 0 }];
    for text in [name, value] {
        let coded = huffman(text);
        let (bytes, bit) = if is_coded {
            (&coded[..], 0x80)
        } else {
            (text, 0)
        };
        integer::encode(bytes.len() as u32, 7, bit, &mut block);
        block.extend_from_slice(bytes);
    }
    block
}

#[test]
fn requests_of_the_standard() {
    // RFC 7541 appendix C.3, and C.4 with the Huffman code.
    let plain: [&[u8]; 3] = [
        b"\x82\x86\x84\x41\x0fwww.example.com",
        b"\x82\x86\x84\xbe\x58\x08no-cache",
        b"\x82\x87\x85\xbf\x40\x0acustom-key\x0ccustom-value",
    ];
    let coded: [&[u8]; 3] = [
        b"\x82\x86\x84\x41\x8c\xf1\xe3\xc2\xe5\xf2\x3a\x6b\xa0\xab\x90\xf4\xff",
        b"\x82\x86\x84\xbe\x58\x86\xa8\xeb\x10\x64\x9c\xbf",
        b"\x82\x87\x85\xbf\x40\x88\x25\xa8\x49\xe9\x5b\xa9\x7d\x7f\
          \x89\x25\xa8\x49\xe9\x5b\xb8\xe8\xb4\xbf",
    ];
    let expected = [
        lines([
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
        ]),
        lines([
            (":method", "GET"),
            (":scheme", "http"),
            (":path", "/"),
            (":authority", "www.example.com"),
            ("cache-control", "no-cache"),
        ]),
        lines([
            (":method", "GET"),
            (":scheme", "https"),
            (":path", "/index.html"),
            (":authority", "www.example.com"),
            ("custom-key", "custom-value"),
        ]),
    ];
    for blocks in [plain, coded] {
        let mut decoder = HpackDecoder::new(4_096);
        for (block, expected) in blocks.into_iter().zip(&expected) {
            assert_eq!(decode(&mut decoder, block).as_ref(), Ok(expected));
        }
    }
}

#[test]
fn the_table_forgets_its_oldest_entries() {
    // Each entry takes 1 + 1 + 32 bytes; three fit into 102.
    let mut decoder = HpackDecoder::new(102);
    for name in [b"a", b"b", b"c"] {
        decode(&mut decoder, &literal(name, b"1", true, false)).expect("a field");
    }
    assert_eq!(decode(&mut decoder, b"\xc0"), Ok(lines([("a", "1")])));
    decode(&mut decoder, &literal(b"d", b"1", true, true)).expect("a field");
    assert_eq!(decode(&mut decoder, b"\xc0"), Ok(lines([("b", "1")])));
    assert_eq!(decode(&mut decoder, b"\xbe"), Ok(lines([("d", "1")])));
    // One that is larger than the table empties it.
    decode(&mut decoder, &literal(b"large", &[b'x'; 66], true, false)).expect("a field");
    assert_eq!(
        decode(&mut decoder, b"\xbe"),
        Err(HpackError::Index { index: 62 })
    );
}

#[test]
fn a_name_may_be_that_of_the_entry_that_gives_way() {
    let mut decoder = HpackDecoder::new(40);
    decode(&mut decoder, &literal(b"name", b"1", true, false)).expect("a field");
    assert_eq!(
        decode(&mut decoder, b"\x7e\x012"),
        Ok(lines([("name", "2")]))
    );
    assert_eq!(decode(&mut decoder, b"\xbe"), Ok(lines([("name", "2")])));
}

#[test]
fn a_smaller_table_is_told_first() {
    let mut decoder = HpackDecoder::new(4_096);
    decode(&mut decoder, &literal(b"a", b"1", true, false)).expect("a field");
    decoder.set_table_limit(0);
    let size = HpackError::TableSize { limit: 0, size: 1 };
    for (block, error) in [
        (&b"\x82"[..], HpackError::MissingTableSize),
        (b"\x21", size),
        (b"\x20\xbe", HpackError::Index { index: 62 }),
    ] {
        let mut decoder = HpackDecoder::new(4_096);
        decoder.set_table_limit(0);
        assert_eq!(decode(&mut decoder, block), Err(error));
    }
    assert_eq!(
        decode(&mut decoder, b"\x20\x82"),
        Ok(lines([(":method", "GET")]))
    );
    assert_eq!(
        decode(&mut decoder, b"\x82\x20"),
        Err(HpackError::LateTableSize)
    );
    // Nothing is kept in a table of nothing.
    decode(&mut decoder, &literal(b"a", b"1", true, false)).expect("a field");
    assert_eq!(
        decode(&mut decoder, b"\xbe"),
        Err(HpackError::Index { index: 62 })
    );
}

#[test]
fn a_section_that_is_too_large_keeps_nothing_and_the_table_in_step() {
    let limits = SectionLimits {
        section_bytes_max: 100,
        field_count_max: 2,
    };
    let mut decoder = HpackDecoder::new(4_096);
    let mut block = literal(b"name", &[b'x'; 200], true, false);
    block.extend_from_slice(b"\x82");
    block.extend(literal(b"other", b"1", true, true));
    let section = decode_with(&mut decoder, &block, limits).expect("fields");
    assert!(section.is_too_large());
    assert_eq!(section.lines().count(), 0);
    let section = decode_with(&mut decoder, b"\xbe", limits).expect("a field");
    assert_eq!(lines_of(&section), lines([("other", "1")]));
    let section = decode_with(&mut decoder, b"\xbf", limits).expect("a field");
    assert!(section.is_too_large());
    for (block, is_too_large) in [(&b"\x82\x84"[..], false), (b"\x82\x84\x86", true)] {
        let section = decode_with(&mut decoder, block, limits).expect("fields");
        assert_eq!(section.is_too_large(), is_too_large);
    }
}

#[test]
fn a_bomb_of_one_byte_references_takes_no_memory() {
    let mut decoder = HpackDecoder::new(4_096);
    decode(&mut decoder, &literal(b"a", &[b'x'; 4_000], true, false)).expect("a field");
    let mut section = FieldSection::new(SectionLimits::default());
    decoder
        .decode(&vec![0xbe; 65_536], true, &mut section)
        .expect("fields");
    assert!(section.is_too_large());
    assert!(
        section.capacity_bytes() < 40_000,
        "{}",
        section.capacity_bytes()
    );
}

#[test]
fn a_name_of_the_table_that_has_no_room_is_not_copied() {
    let limits = SectionLimits {
        section_bytes_max: 100,
        field_count_max: 2,
    };
    let mut decoder = HpackDecoder::new(4_096);
    let block = literal(&[b'n'; 4_000], b"", true, false);
    decode_with(&mut decoder, &block, limits).expect("a field");
    // Each takes three bytes: the name of entry 62, and a value of none.
    let block = b"\x0f\x2f\0".repeat(20_000);
    let section = decode_with(&mut decoder, &block, limits).expect("fields");
    assert!(section.is_too_large());
    let bytes = section.capacity_bytes();
    assert!(bytes < 1_000, "{bytes}");
}

#[test]
fn cookies_are_one_line() {
    let mut decoder = HpackDecoder::new(0);
    let mut block = vec![0x82];
    for (name, value) in [
        ("cookie", "a=1"),
        ("x", "y"),
        ("cookie", "b=2"),
        ("cookie", "c=3"),
    ] {
        encode_field(name.as_bytes(), value.as_bytes(), &mut block);
    }
    let expected = lines([(":method", "GET"), ("cookie", "a=1; b=2; c=3"), ("x", "y")]);
    assert_eq!(decode(&mut decoder, &block), Ok(expected));
}

#[test]
fn what_is_no_block() {
    for (block, error) in [
        (&b"\x80"[..], HpackError::Index { index: 0 }),
        (b"\xbe", HpackError::Index { index: 62 }),
        (b"\x7f\x00\x01x", HpackError::Index { index: 63 }),
        (b"\x00\x81\x00\x01x", HpackError::Huffman),
        (b"\xff\x80\x80\x80\x80\x80\x01", HpackError::Integer),
        (b"\x00\x01", HpackError::Truncated),
        (
            b"\x3f\xe2\x1f",
            HpackError::TableSize {
                limit: 4_096,
                size: 4_097,
            },
        ),
    ] {
        let mut decoder = HpackDecoder::new(4_096);
        assert_eq!(decode(&mut decoder, block), Err(error), "{block:x?}");
    }
}

#[test]
fn every_status_is_told() {
    let mut decoder = HpackDecoder::new(0);
    for status in 100..=599 {
        let mut block = Vec::new();
        encode_status(status, &mut block);
        let expected = lines([(":status", &status.to_string())]);
        assert_eq!(decode(&mut decoder, &block), Ok(expected));
    }
}

/// A field of a block by some encoder.
fn field() -> impl Strategy<Value = Vec<u8>> {
    let text = || vec(any::<u8>(), 0..40);
    prop_oneof![
        (0..200_u32).prop_map(|index| {
            let mut block = Vec::new();
            integer::encode(index, 7, 0x80, &mut block);
            block
        }),
        (text(), text(), any::<bool>(), any::<bool>())
            .prop_map(|(name, value, is_kept, is_coded)| literal(&name, &value, is_kept, is_coded)),
        (0..300_u32).prop_map(|size| {
            let mut block = Vec::new();
            integer::encode(size, 5, 0x20, &mut block);
            block
        }),
        vec(any::<u8>(), 0..4),
    ]
}

/// Decodes blocks, each in pieces, until one is refused.
fn in_pieces(blocks: &[Vec<u8>], piece: usize) -> Vec<Result<(Lines, bool), HpackError>> {
    let limits = SectionLimits {
        section_bytes_max: 300,
        field_count_max: 6,
    };
    let mut decoder = HpackDecoder::new(200);
    let mut seen = Vec::new();
    for block in blocks {
        let mut section = FieldSection::new(limits);
        let pieces: Vec<_> = block.chunks(piece).collect();
        let mut result = Ok(());
        for (place, piece) in pieces.iter().enumerate() {
            let ends_block = place + 1 == pieces.len();
            result = result.and_then(|()| decoder.decode(piece, ends_block, &mut section));
        }
        seen.push(result.map(|()| (lines_of(&section), section.is_too_large())));
        if result.is_err() {
            break;
        }
    }
    seen
}

proptest! {
    #[test]
    fn pieces_give_what_the_whole_gives(
        blocks in vec(vec(field(), 0..6).prop_map(|fields| fields.concat()), 1..5),
        piece in 1..9_usize,
    ) {
        let whole = in_pieces(&blocks, usize::MAX);
        prop_assert_eq!(&in_pieces(&blocks, piece), &whole);
        prop_assert_eq!(&in_pieces(&blocks, 1), &whole);
    }

    #[test]
    fn what_is_encoded_is_decoded(
        fields in vec((vec(any::<u8>(), 0..30), vec(any::<u8>(), 0..60)), 0..9),
    ) {
        let fields: Lines = fields.into_iter().filter(|(name, _)| name != b"cookie").collect();
        let mut block = Vec::new();
        for (name, value) in &fields {
            encode_field(name, value, &mut block);
        }
        prop_assert_eq!(decode(&mut HpackDecoder::new(0), &block), Ok(fields));
    }

    #[test]
    fn what_another_encodes_is_decoded(
        blocks in vec(vec((vec(any::<u8>(), 1..30), vec(any::<u8>(), 0..60)), 1..9), 1..6),
    ) {
        let mut encoder = loona_hpack::Encoder::new();
        let mut decoder = HpackDecoder::new(4_096);
        for fields in blocks {
            let pairs = fields.iter().map(|(name, value)| (&name[..], &value[..]));
            let block = encoder.encode(pairs);
            prop_assert_eq!(decode(&mut decoder, &block), Ok(fields));
        }
    }

    #[test]
    fn another_decodes_the_same(fields in vec(field(), 0..12)) {
        // It refuses a block of nothing but sizes.
        let block = [&fields.concat()[..], b"\x82"].concat();
        let mut theirs = loona_hpack::Decoder::new();
        theirs.set_max_table_size(4_096);
        let mut decoder = HpackDecoder::new(4_096);
        if let Ok(lines) = decode(&mut decoder, &block) {
            let theirs = theirs.decode(&block).expect("a block that is well formed");
            prop_assert_eq!(theirs, lines);
        }
    }
}
