//! Bytes that a peer cannot foresee: masks and nonces.
//!
//! They come from the keyed hash of the standard library, whose key is random bytes of the system.
//! A mask only has to keep a web page from choosing the bytes on the wire; it need not stay secret.

use dwell_proto::websocket::Mask;
use std::hash::{BuildHasher, RandomState};

/// Draws the masks of a client's frames.
#[derive(Debug, Default)]
pub(super) struct Masks {
    key: RandomState,
    drawn: u64,
}

impl Masks {
    /// A mask for one frame.
    ///
    /// Source: RFC 6455 section 10.3.
    pub(super) fn draw(&mut self) -> Mask {
        self.drawn += 1;
        let [a, b, c, d, ..] = self.key.hash_one(self.drawn).to_ne_bytes();
        [a, b, c, d]
    }
}

/// Sixteen random bytes for a [`ClientHandshake`](super::ClientHandshake).
///
/// ```
/// use dwell_engine::websocket::{ClientHandshake, nonce};
///
/// let handshake = ClientHandshake::new(nonce());
/// assert_ne!(handshake.nonce, nonce());
/// ```
///
/// Source: RFC 6455 section 4.1.
pub fn nonce() -> [u8; 16] {
    let key = RandomState::new();
    let halves = u128::from(key.hash_one(0_u8)) << 64 | u128::from(key.hash_one(1_u8));
    halves.to_ne_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashSet;

    #[test]
    fn masks_and_nonces_differ() {
        let mut masks = Masks::default();
        let drawn: HashSet<_> = (0..1_000).map(|_| masks.draw()).collect();
        assert!(drawn.len() > 990);
        let drawn: HashSet<_> = (0..1_000).map(|_| nonce()).collect();
        assert_eq!(drawn.len(), 1_000);
    }
}
