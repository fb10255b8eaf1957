//! The flags of the meta commands, as a client sends them and as a server returns them.

use super::error_line::ErrorLine;
use super::key::MetaKey;
use super::line::{Tokens, parse_exptime, parse_i64, parse_u32, parse_u64};

/// The longest opaque token, without its `O`.
///
/// Units: bytes.
pub const OPAQUE_BYTES_MAX: usize = 31;

/// The two-letter code that starts a meta reply without data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum MetaStatus {
    /// `HD`: done, nothing but flags to return.
    Header,
    /// `EN`: no such item (the end of a get).
    End,
    /// `NF`: not found.
    NotFound,
    /// `NS`: not stored.
    NotStored,
    /// `EX`: the item changed since its cas unique was read.
    Exists,
    /// `MN`: the answer to a meta no-op.
    Noop,
}

impl MetaStatus {
    /// The code as it stands on the wire.
    pub fn code(self) -> [u8; 2] {
        *match self {
            Self::Header => b"HD",
            Self::End => b"EN",
            Self::NotFound => b"NF",
            Self::NotStored => b"NS",
            Self::Exists => b"EX",
            Self::Noop => b"MN",
        }
    }

    pub(super) fn from_code(code: &[u8]) -> Option<Self> {
        let status = match code {
            b"HD" => Self::Header,
            b"EN" => Self::End,
            b"NF" => Self::NotFound,
            b"NS" => Self::NotStored,
            b"EX" => Self::Exists,
            b"MN" => Self::Noop,
            _ => return None,
        };
        Some(status)
    }
}

/// One flag: a letter, and the token written right after it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flag<'b> {
    /// The letter.
    pub letter: u8,
    /// Its token; empty for a plain flag.
    pub token: &'b [u8],
}

/// The flags of a line, in the order they stand there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Flags<'b>(Tokens<'b>);

impl<'b> Flags<'b> {
    pub(super) fn new(tokens: Tokens<'b>) -> Self {
        Self(tokens)
    }

    /// The flags from first to last.
    pub fn iter(self) -> impl Iterator<Item = Flag<'b>> {
        self.0.iter().filter_map(|token| {
            let (&letter, token) = token.split_first()?;
            Some(Flag { letter, token })
        })
    }

    /// The token of the first flag with this letter; empty for a plain flag.
    pub fn find(self, letter: u8) -> Option<&'b [u8]> {
        self.iter()
            .find(|flag| flag.letter == letter)
            .map(|flag| flag.token)
    }

    /// The number after this letter, as in `t30`, `s5` or `c81`; `None` if absent or no number.
    ///
    /// Shape: `t-1` (no expiry) is -1; a number beyond 63 bits counts as absent, so read flag `c`
    /// with [`Flags::cas_unique`].
    pub fn number(self, letter: u8) -> Option<i64> {
        parse_i64(self.find(letter)?)
    }

    /// The cas unique a server returned with flag `c`.
    pub fn cas_unique(self) -> Option<u64> {
        parse_u64(self.find(b'c')?)
    }

    /// The opaque token, as it was sent.
    pub fn opaque(self) -> Option<&'b [u8]> {
        self.find(b'O')
    }
}

/// The flags of a meta request, checked and typed.
///
/// Shape: any command may carry any known flag; each uses those that mean something to it and
/// ignores the others, as memcached does. `P` and `L` are for proxies and ignored by all.
///
/// Source: memcached `doc/protocol.txt`, "Meta Commands".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is one flag of the protocol, on or off"
)]
pub struct MetaFlags<'b> {
    /// Every flag in the order given: replies return theirs in this order.
    pub all: Flags<'b>,
    /// `q`: suppress the nominal reply (`EN` of a get, `HD` of the others).
    pub quiet: bool,
    /// `v`: return the value.
    pub value: bool,
    /// `u`: leave the item's recency, its last access and its fetched mark alone.
    pub no_bump: bool,
    /// `I`: mark stale instead of deleting (delete), or accept a lower cas unique (set).
    pub invalidate: bool,
    /// `T`: the new exptime.
    pub exptime: Option<i64>,
    /// `N`: on a miss create an item with this exptime.
    pub vivify: Option<i64>,
    /// `R`: win the recache if less than this many seconds remain.
    pub recache: Option<i64>,
    /// `C`: go on only if the item's cas unique is this one.
    pub cas_unique: Option<u64>,
    /// `E`: give the item this cas unique instead of the next one (memcached 1.6.22 and later).
    pub cas_new: Option<u64>,
    /// `x`: delete the value, keep the item (memcached 1.6.32 and later).
    pub remove_value: bool,
    /// `F`: the client flags to store; 0 if absent.
    pub client_flags: u32,
    /// `D`: how much to add or to subtract; 1 if absent.
    pub delta: u64,
    /// `J`: the number a vivified counter starts with; 0 if absent.
    pub initial: u64,
    /// `M`: the one-letter mode.
    pub mode: Option<u8>,
}

/// A request may carry this many flags; more are refused.
///
/// memcached's own bound is on the tokens of the line, so it is 17 for a command without data and
/// 16 for one with.
pub(super) const META_TOKENS_MAX: usize = 19;

impl<'b> MetaFlags<'b> {
    /// Reads the flags in `tokens`; flag `b` is written to `key`, whose base64 it checks.
    ///
    /// # Errors
    /// The line memcached answers to `mg` and `ms`; `md` and `ma` have one line for all of these.
    /// The length of flag `O` is left to [`MetaFlags::opaque_is_too_long`].
    pub(super) fn parse(tokens: Tokens<'b>, key: &mut MetaKey<'b>) -> Result<Self, ErrorLine> {
        let mut parsed = Self {
            all: Flags(tokens),
            quiet: false,
            value: false,
            no_bump: false,
            invalidate: false,
            exptime: None,
            vivify: None,
            recache: None,
            cas_unique: None,
            cas_new: None,
            remove_value: false,
            client_flags: 0,
            delta: 1,
            initial: 0,
            mode: None,
        };
        // Letters are ASCII, so one bit each says which have been seen.
        let mut seen = 0_u128;
        // memcached goes on after a bad token, so that a duplicate further on wins.
        let mut error = None;
        for flag in parsed.all.iter() {
            if flag.letter >= 127 || seen & (1 << flag.letter) != 0 {
                return Err(ErrorLine::DuplicateFlag);
            }
            seen |= 1 << flag.letter;
            match parsed.apply(flag, key) {
                Ok(()) => {}
                Err(ErrorLine::InvalidFlag) => return Err(ErrorLine::InvalidFlag),
                Err(bad_token) => error = Some(bad_token),
            }
        }
        match error {
            Some(error) => Err(error),
            None => Ok(parsed),
        }
    }

    fn apply(&mut self, flag: Flag<'b>, key: &mut MetaKey<'b>) -> Result<(), ErrorLine> {
        let token = flag.token;
        match flag.letter {
            b'b' => {
                key.base64 = true;
                if !key.is_valid() {
                    return Err(ErrorLine::BadKeyEncoding);
                }
            }
            b'q' => self.quiet = true,
            b'v' => self.value = true,
            b'u' => self.no_bump = true,
            b'I' => self.invalidate = true,
            b'T' => self.exptime = Some(parse_exptime(token).ok_or(ErrorLine::BadToken)?),
            b'N' => self.vivify = Some(parse_exptime(token).ok_or(ErrorLine::BadToken)?),
            b'R' => self.recache = Some(parse_exptime(token).ok_or(ErrorLine::BadToken)?),
            b'C' => self.cas_unique = Some(parse_u64(token).ok_or(ErrorLine::BadToken)?),
            b'E' => self.cas_new = Some(parse_u64(token).ok_or(ErrorLine::BadToken)?),
            b'x' => self.remove_value = true,
            b'F' => self.client_flags = parse_u32(token).ok_or(ErrorLine::BadFormat)?,
            b'D' => self.delta = parse_u64(token).ok_or(ErrorLine::InvalidMetaDelta)?,
            b'J' => self.initial = parse_u64(token).ok_or(ErrorLine::InvalidMetaInitial)?,
            b'M' => match token {
                [mode] => self.mode = Some(*mode),
                _ => return Err(ErrorLine::BadModeLength),
            },
            // Returned by the reply, or meant for a proxy: nothing to read here.
            b'O' | b'P' | b'L' | b'k' | b's' | b't' | b'c' | b'f' | b'l' | b'h' => {}
            _ => return Err(ErrorLine::InvalidFlag),
        }
        Ok(())
    }

    /// Returns true if flag `O` has more than a reply may return; checked last.
    pub(super) fn opaque_is_too_long(&self) -> bool {
        self.all
            .opaque()
            .is_some_and(|token| token.len() > OPAQUE_BYTES_MAX)
    }
}
