//! The name of a connection: kind, generation, index.

use std::fmt;

/// Names one resource of a loop for as long as it lives.
///
/// Shape: `kind` (8 bits) names the component of the driver that owns it, `index` (32 bits) the
/// place in that component's [`Slab`](crate::Slab), `generation` (24 bits) the tenant of that
/// place. Readiness, deadlines and results for an earlier tenant have no effect.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(u64);

impl Token {
    /// The kind kept by the loop itself; drivers use any other.
    pub const RESERVED_KIND: u8 = u8::MAX;
    /// The token of the loop's own wake-up.
    pub(crate) const WAKE: Self = Self::new(Self::RESERVED_KIND, 0, 0);
    /// The token of the loop's signal pipe.
    pub(crate) const SIGNAL: Self = Self::new(Self::RESERVED_KIND, 0, 1);
    /// Generations wrap here.
    pub(crate) const GENERATION_MASK: u32 = 0x00ff_ffff;

    /// Makes a token from its parts; only the low 24 bits of `generation` count.
    pub const fn new(kind: u8, generation: u32, index: u32) -> Self {
        let high = ((kind as u32) << 24) | (generation & Self::GENERATION_MASK);
        Self(((high as u64) << 32) | index as u64)
    }

    /// The token whose [`to_bits`](Self::to_bits) is `bits`.
    pub const fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    /// The token as one integer, for tables that keep plain numbers.
    pub const fn to_bits(self) -> u64 {
        self.0
    }

    /// Returns the component of the driver that owns it.
    pub const fn kind(self) -> u8 {
        (self.0 >> 56) as u8
    }

    /// Returns the tenant of its place, counted modulo 2^24.
    pub const fn generation(self) -> u32 {
        (self.0 >> 32) as u32 & Self::GENERATION_MASK
    }

    /// Its place in the slab of its kind.
    pub const fn index(self) -> u32 {
        self.0 as u32
    }
}

/// Name of a value of a [`Slab`](crate::Slab): a [`Token`], or a type for those of one kind.
pub trait Id: Copy {
    /// Makes the id of a token.
    fn from_token(token: Token) -> Self;

    /// Returns the token of an id.
    fn token(self) -> Token;

    /// Makes an id of what [`to_bits`](Self::to_bits) returned for it.
    fn from_bits(bits: u64) -> Self {
        Self::from_token(Token::from_bits(bits))
    }

    /// Returns the id as one integer, for tags.
    fn to_bits(self) -> u64 {
        self.token().to_bits()
    }
}

impl Id for Token {
    fn from_token(token: Token) -> Self {
        token
    }

    fn token(self) -> Token {
        self
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "Token({}:{}@{})",
            self.kind(),
            self.index(),
            self.generation()
        )
    }
}

impl From<Token> for mio::Token {
    fn from(token: Token) -> Self {
        // Lossless: the crate refuses to build where `usize` is not 64 bits.
        Self(token.0 as usize)
    }
}

impl From<mio::Token> for Token {
    fn from(token: mio::Token) -> Self {
        Self(token.0 as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_survive_the_round_trip() {
        let token = Token::new(7, 0xab_cdef, u32::MAX);
        assert_eq!(
            (token.kind(), token.generation(), token.index()),
            (7, 0xab_cdef, u32::MAX)
        );
        assert_eq!(Token::from(mio::Token::from(token)), token);
        assert_eq!(Token::from_bits(token.to_bits()), token);
    }

    #[test]
    fn the_generation_wraps_without_touching_the_kind() {
        let token = Token::new(3, Token::GENERATION_MASK + 1, 5);
        assert_eq!((token.kind(), token.generation(), token.index()), (3, 0, 5));
    }
}
