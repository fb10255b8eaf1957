//! The hashes that other clients put keys in place with.

use md5::{Digest, Md5};

/// The first four bytes of the MD5, little-endian.
pub(super) fn md5(key: &[u8]) -> u32 {
    little_endian_words(&Md5::digest(key))[0]
}

pub(super) fn little_endian_words(digest: &[u8]) -> [u32; 4] {
    let mut words = [0; 4];
    for (word, bytes) in words.iter_mut().zip(digest.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    words
}

/// Jenkins's one-at-a-time hash.
pub(super) fn one_at_a_time(key: &[u8]) -> u32 {
    let mut hash = key.iter().fold(0_u32, |hash, byte| {
        let hash = hash.wrapping_add(u32::from(*byte));
        let hash = hash.wrapping_add(hash << 10);
        hash ^ (hash >> 6)
    });
    hash = hash.wrapping_add(hash << 3);
    hash ^= hash >> 11;
    hash.wrapping_add(hash << 15)
}

/// The part of the CRC-32 that libmemcached uses. Source: libmemcached 1.0.16,
/// `libhashkit/crc32.cc`.
pub(super) fn libmemcached_crc(key: &[u8]) -> u32 {
    (crc32fast::hash(key) >> 16) & 0x7fff
}

/// `MurmurHash3_x86_32` with seed 0.
pub(super) fn murmur3(key: &[u8]) -> u32 {
    let scramble = |block: u32| {
        let block = block.wrapping_mul(0xcc9e_2d51).rotate_left(15);
        block.wrapping_mul(0x1b87_3593)
    };
    let (blocks, rest) = key.as_chunks::<4>();
    let mut hash = blocks.iter().fold(0_u32, |hash, block| {
        let hash = hash ^ scramble(u32::from_le_bytes(*block));
        hash.rotate_left(13)
            .wrapping_mul(5)
            .wrapping_add(0xe654_6b64)
    });
    let mut last = [0; 4];
    last[..rest.len()].copy_from_slice(rest);
    hash ^= scramble(u32::from_le_bytes(last));
    hash ^= key.len() as u32;
    hash = (hash ^ (hash >> 16)).wrapping_mul(0x85eb_ca6b);
    hash = (hash ^ (hash >> 13)).wrapping_mul(0xc2b2_ae35);
    hash ^ (hash >> 16)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers() {
        assert_eq!(libmemcached_crc(b"123456789"), 0x4bf4);
        assert_eq!(one_at_a_time(b"a"), 0xca2e_9442);
        assert_eq!(murmur3(b""), 0);
        assert_eq!(murmur3(b"hello"), 0x248b_fa47);
        assert_eq!(murmur3(b"hello, world"), 0x149b_bb7f);
    }
}
