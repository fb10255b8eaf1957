//! The choice of protocols.

/// The protocols a server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Protocols {
    /// Text, meta and binary: the first byte of a connection tells which.
    #[default]
    Both,
    /// Text and meta.
    Text,
    /// Binary.
    Binary,
}

impl Protocols {
    /// The word of memcached's `-B` and of `stats settings`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Both => "auto-negotiate",
            Self::Text => "ascii",
            Self::Binary => "binary",
        }
    }
}
