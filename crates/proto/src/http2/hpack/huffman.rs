//! The Huffman code of strings.

use super::super::error::HpackError;

/// Appends what `coded` says to `out`, which is to have at most `out_max` bytes.
///
/// Shape: four bits at a time, each by one read of a table. Returns false if there is more than
/// `out` may have; what is behind that is checked all the same.
///
/// Source: RFC 7541 section 5.2.
pub(super) fn decode(coded: &[u8], out: &mut Vec<u8>, out_max: usize) -> Result<bool, HpackError> {
    let mut node = 0;
    let mut fits = true;
    for byte in coded {
        for nibble in [byte >> 4, byte & 0xf] {
            let step = STEPS[usize::from(node)][usize::from(nibble)];
            if step.symbol_is_whole {
                fits = fits && out.len() < out_max;
                if fits {
                    out.push(step.symbol);
                }
            }
            if step.fails {
                return Err(HpackError::Huffman);
            }
            node = step.node;
        }
    }
    if MAY_END[usize::from(node)] {
        Ok(fits)
    } else {
        Err(HpackError::Huffman)
    }
}

/// The next of four bits, at one node of the tree.
#[derive(Clone, Copy)]
struct Step {
    /// The node that they lead to.
    node: u8,
    /// The symbol that ends in them, if one does.
    symbol: u8,
    symbol_is_whole: bool,
    /// They lead to the symbol for the end, which no string has.
    fails: bool,
}

/// The inner nodes of the tree: as many as there are symbols with a byte.
const NODES: usize = 256;

/// A child of an inner node.
#[derive(Clone, Copy)]
enum Child {
    None,
    Node(u8),
    Symbol(u8),
    End,
}

/// The tree, node 0 its root, and whether a string may end at a node, which is so where less than a
/// byte of ones leads to.
const TREE: ([[Child; 2]; NODES], [bool; NODES]) = tree();
const MAY_END: [bool; NODES] = TREE.1;
static STEPS: [[Step; 16]; NODES] = walks();

const fn tree() -> ([[Child; 2]; NODES], [bool; NODES]) {
    let mut tree = [[Child::None; 2]; NODES];
    let mut may_end = [false; NODES];
    may_end[0] = true;
    let (mut nodes, mut symbol) = (1, 0);
    while symbol < CODES.len() {
        let (code, length) = (CODES[symbol], LENGTHS[symbol]);
        let (mut node, mut bit) = (0, length);
        let mut is_ones = true;
        while bit > 0 {
            bit -= 1;
            let side = (code >> bit & 1) as usize;
            is_ones = is_ones && side == 1;
            if bit == 0 {
                tree[node][side] = match symbol {
                    END => Child::End,
                    symbol => Child::Symbol(symbol as u8),
                };
                break;
            }
            node = if let Child::Node(known) = tree[node][side] {
                known as usize
            } else {
                tree[node][side] = Child::Node(nodes as u8);
                may_end[nodes] = is_ones && length - bit < 8;
                nodes += 1;
                nodes - 1
            };
        }
        symbol += 1;
    }
    assert!(nodes == NODES, "not the tree of all bytes");
    (tree, may_end)
}

const fn walks() -> [[Step; 16]; NODES] {
    let unmoved = Step {
        node: 0,
        symbol: 0,
        symbol_is_whole: false,
        fails: false,
    };
    let mut all = [[unmoved; 16]; NODES];
    let mut start = 0;
    while start < NODES {
        let mut bits = 0;
        while bits < 16 {
            let mut taken = unmoved;
            let (mut node, mut bit) = (start, 4);
            while bit > 0 {
                bit -= 1;
                match TREE.0[node][bits >> bit & 1] {
                    Child::Node(next) => node = next as usize,
                    Child::Symbol(symbol) => {
                        taken.symbol = symbol;
                        taken.symbol_is_whole = true;
                        node = 0;
                    }
                    Child::None | Child::End => {
                        taken.fails = true;
                        node = 0;
                    }
                }
            }
            taken.node = node as u8;
            all[start][bits] = taken;
            bits += 1;
        }
        start += 1;
    }
    all
}

/// The symbol for the end.
const END: usize = 256;

/// The longest code.
const LENGTH_MAX: u8 = 30;

/// For each byte, and for the end, how many bits its code has.
///
/// Source: RFC 7541 appendix B.
#[rustfmt::skip]
const LENGTHS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 30, 28,
    28, 28, 28, 28, 28, 28, 28, 28, 6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6, 5, 5, 5,
    6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10, 13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6, 15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28, 20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23,
    23, 23, 23, 24, 23, 24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24, 22, 21, 20,
    22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23, 21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22,
    22, 23, 22, 22, 23, 26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25, 19, 21, 26,
    27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27, 20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25,
    25, 24, 24, 26, 23, 26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26, 30,
];

/// The codes, which follow from their lengths: those of equal length count up in the order of their
/// symbols, and longer ones begin behind all that are shorter.
const CODES: [u32; LENGTHS.len()] = codes();

const fn codes() -> [u32; LENGTHS.len()] {
    let mut codes = [0; LENGTHS.len()];
    let (mut next, mut length) = (0, 1);
    while length <= LENGTH_MAX {
        next <<= 1;
        let mut symbol = 0;
        while symbol < LENGTHS.len() {
            if LENGTHS[symbol] == length {
                codes[symbol] = next;
                next += 1;
            }
            symbol += 1;
        }
        length += 1;
    }
    codes
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use proptest::prelude::*;

    /// The code of a text, padded by ones.
    pub(in super::super) fn encode(text: &[u8]) -> Vec<u8> {
        let (mut coded, mut bits, mut count) = (Vec::new(), 0_u64, 0);
        for byte in text {
            let symbol = usize::from(*byte);
            let (code, length) = (CODES[symbol], LENGTHS[symbol]);
            bits = bits << length | u64::from(code);
            count += u32::from(length);
            while count >= 8 {
                count -= 8;
                coded.push((bits >> count) as u8);
            }
        }
        if count > 0 {
            coded.push((bits << (8 - count)) as u8 | 0xff >> count);
        }
        coded
    }

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, HpackError> {
        let mut out = Vec::new();
        decode(coded, &mut out, usize::MAX).map(|_| out)
    }

    #[test]
    fn examples_of_the_standard() {
        // RFC 7541 appendix C.4.
        let coded = [
            0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff,
        ];
        assert_eq!(decoded(&coded), Ok(b"www.example.com".to_vec()));
        assert_eq!(encode(b"www.example.com"), coded);
        let coded = [0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf];
        assert_eq!(decoded(&coded), Ok(b"no-cache".to_vec()));
    }

    #[test]
    fn padding_is_less_than_a_byte_of_ones() {
        assert_eq!(decoded(b""), Ok(vec![]));
        assert_eq!(decoded(&[0x1f]), Ok(b"a".to_vec())); // 00011, and 111
        assert_eq!(decoded(&[0x1e]), Err(HpackError::Huffman));
        assert_eq!(decoded(&[0x1f, 0xff]), Err(HpackError::Huffman));
        assert_eq!(decoded(&[0xff]), Err(HpackError::Huffman));
        // The symbol for the end, 30 ones.
        assert_eq!(decoded(&[0xff; 4]), Err(HpackError::Huffman));
        assert_eq!(
            decoded(&[0xff, 0xff, 0xff, 0xfc, 0x1f]),
            Err(HpackError::Huffman)
        );
    }

    #[test]
    fn no_more_than_allowed_is_kept() {
        let coded = encode(b"www.example.com");
        let mut out = b"kept".to_vec();
        assert_eq!(decode(&coded, &mut out, 7), Ok(false));
        assert_eq!(out, b"keptwww");
    }

    proptest! {
        #[test]
        fn what_is_coded_is_decoded(text: Vec<u8>) {
            prop_assert_eq!(decoded(&encode(&text)), Ok(text));
        }

        #[test]
        fn what_is_decoded_has_one_code(coded: Vec<u8>) {
            if let Ok(text) = decoded(&coded) {
                prop_assert_eq!(encode(&text), coded);
            }
        }
    }
}
