//! The parser of request lines.

use super::command::{
    ArithmeticMode, Command, MetaArithmetic, MetaDelete, MetaGet, MetaSet, MetaSetMode, StoreVerb,
};
use super::error_line::ErrorLine;
use super::key::{KEY_BYTES_MAX, MetaKey};
use super::line::{TokenIter, Tokens, parse_delta, parse_exptime, parse_i64, parse_u32, parse_u64};
use super::meta::{META_TOKENS_MAX, MetaFlags};

/// The meaning of a request line.
#[derive(Debug)]
pub(super) enum Line<'b> {
    /// A request without data.
    Command(Command<'b>),
    /// A storage request: `length` bytes and CR LF follow.
    Data {
        command: Command<'b>,
        length: usize,
        item: ItemSize<'b>,
    },
    /// An invalid request: send `reply` if there is one, after discarding `discard` bytes.
    Refused {
        reply: Option<ErrorLine>,
        discard: u64,
    },
    /// The client speaks HTTP.
    Http,
}

/// The rule for items that are too large, and the consequence.
#[derive(Clone, Copy, Debug)]
pub(super) struct ItemSize<'b> {
    pub(super) key: MetaKey<'b>,
    pub(super) has_flags: bool,
    /// True if memcached deletes the old item when the new one is too large.
    pub(super) deletes_old: bool,
    pub(super) noreply: bool,
}

/// Data lengths above this are refused as malformed, as memcached's 32-bit arithmetic has it.
const LENGTH_MAX: i64 = i32::MAX as i64 - 2;

/// Reads one line, without its line end.
pub(super) fn parse_line(line: &[u8]) -> Line<'_> {
    let mut tokens = Tokens::new(line).iter();
    let Some(name) = tokens.next() else {
        return refused(ErrorLine::Unknown);
    };
    match name {
        b"get" => parse_get(tokens.rest(), false),
        b"gets" => parse_get(tokens.rest(), true),
        b"mg" | b"md" | b"ma" => parse_meta(name[1], tokens),
        b"ms" => parse_meta_set(tokens),
        b"mn" => Line::Command(Command::MetaNoop),
        b"me" => parse_meta_debug(tokens),
        b"set" => parse_store(StoreVerb::Set, tokens),
        b"add" => parse_store(StoreVerb::Add, tokens),
        b"replace" => parse_store(StoreVerb::Replace, tokens),
        b"append" => parse_store(StoreVerb::Append, tokens),
        b"prepend" => parse_store(StoreVerb::Prepend, tokens),
        b"cas" => parse_store(StoreVerb::Cas(0), tokens),
        b"gat" => parse_get_and_touch(tokens, false),
        b"gats" => parse_get_and_touch(tokens, true),
        b"delete" => parse_delete(tokens),
        b"incr" => parse_arithmetic(ArithmeticMode::Increment, tokens),
        b"decr" => parse_arithmetic(ArithmeticMode::Decrement, tokens),
        b"touch" => parse_touch(tokens),
        b"flush_all" => parse_flush_all(tokens),
        b"version" => Line::Command(Command::Version),
        b"verbosity" => parse_verbosity(tokens),
        b"cache_memlimit" => parse_cache_memlimit(tokens),
        b"stats" => Line::Command(Command::Stats {
            arguments: tokens.rest(),
        }),
        b"lru_crawler" => Line::Command(Command::LruCrawler {
            arguments: tokens.rest(),
        }),
        b"quit" => Line::Command(Command::Quit),
        b"shutdown" => parse_shutdown(tokens.rest().text()),
        _ if tokens
            .last()
            .is_some_and(|token| token.starts_with(b"HTTP/")) =>
        {
            Line::Http
        }
        _ => refused(ErrorLine::Unknown),
    }
}

fn refused<'b>(reply: ErrorLine) -> Line<'b> {
    Line::Refused {
        reply: Some(reply),
        discard: 0,
    }
}

/// Refuses a line whose `noreply` could be read, which silences the error too.
fn refused_unless<'b>(noreply: bool, reply: ErrorLine) -> Line<'b> {
    Line::Refused {
        reply: (!noreply).then_some(reply),
        discard: 0,
    }
}

fn key_is_too_long(key: &[u8]) -> bool {
    key.len() > KEY_BYTES_MAX
}

/// Up to `N` arguments of a line, and whether the last one is `noreply`.
struct Arguments<'b, const N: usize> {
    tokens: [&'b [u8]; N],
    count: usize,
}

impl<'b, const N: usize> Arguments<'b, N> {
    /// `None` if there are fewer than `least` or more than `N`.
    fn collect(tokens: TokenIter<'b>, least: usize) -> Option<Self> {
        let mut arguments = Self {
            tokens: [b""; N],
            count: 0,
        };
        for token in tokens {
            *arguments.tokens.get_mut(arguments.count)? = token;
            arguments.count += 1;
        }
        (arguments.count >= least).then_some(arguments)
    }

    fn noreply(&self) -> bool {
        self.count > 0 && self.tokens[self.count - 1] == b"noreply"
    }
}

fn parse_get(keys: Tokens<'_>, with_cas: bool) -> Line<'_> {
    match check_keys(keys) {
        Ok(0) => refused(ErrorLine::Unknown),
        Ok(_) => Line::Command(Command::Get { keys, with_cas }),
        Err(reply) => refused(reply),
    }
}

fn parse_get_and_touch(mut tokens: TokenIter<'_>, with_cas: bool) -> Line<'_> {
    let Some(exptime) = tokens.next() else {
        return refused(ErrorLine::Unknown);
    };
    let Some(exptime) = parse_exptime(exptime) else {
        return refused(ErrorLine::InvalidExptime);
    };
    let keys = tokens.rest();
    match check_keys(keys) {
        Ok(_) => Line::Command(Command::GetAndTouch {
            keys,
            exptime,
            with_cas,
        }),
        Err(reply) => refused(reply),
    }
}

/// Counts keys; one that is too long spoils the whole command, found items included.
fn check_keys(keys: Tokens<'_>) -> Result<usize, ErrorLine> {
    keys.iter().try_fold(0, |count, key| {
        if key_is_too_long(key) {
            Err(ErrorLine::BadFormat)
        } else {
            Ok(count + 1)
        }
    })
}

fn parse_store(verb: StoreVerb, tokens: TokenIter<'_>) -> Line<'_> {
    // key, flags, exptime, bytes, cas unique for `cas`, noreply.
    let least = if matches!(verb, StoreVerb::Cas(_)) {
        5
    } else {
        4
    };
    let arguments = match Arguments::<6>::collect(tokens, least) {
        Some(arguments) if arguments.count <= least + 1 => arguments,
        _ => return refused(ErrorLine::Unknown),
    };
    let noreply = arguments.noreply();
    let [key, flags, exptime, length, cas_unique, _] = arguments.tokens;
    let reply = (!noreply).then_some(ErrorLine::BadFormat);
    let Some(length) = parse_length(length) else {
        return Line::Refused { reply, discard: 0 };
    };
    let verb = match verb {
        StoreVerb::Cas(_) => parse_u64(cas_unique).map(StoreVerb::Cas),
        other => Some(other),
    };
    let (Some(verb), Some(flags), Some(exptime), false) = (
        verb,
        parse_u32(flags),
        parse_exptime(exptime),
        key_is_too_long(key),
    ) else {
        return Line::Refused {
            reply,
            discard: length as u64 + 2,
        };
    };
    let item = ItemSize {
        key: MetaKey::plain(key),
        has_flags: flags != 0,
        deletes_old: verb == StoreVerb::Set,
        noreply,
    };
    let command = Command::Store {
        verb,
        key,
        flags,
        exptime,
        noreply,
        value: b"",
    };
    Line::Data {
        command,
        length,
        item,
    }
}

fn parse_length(token: &[u8]) -> Option<usize> {
    let length = parse_i64(token).filter(|length| (0..=LENGTH_MAX).contains(length))?;
    usize::try_from(length).ok()
}

fn parse_delete(tokens: TokenIter<'_>) -> Line<'_> {
    let Some(arguments) = Arguments::<3>::collect(tokens, 1) else {
        return refused(ErrorLine::Unknown);
    };
    let noreply = arguments.count > 1 && arguments.noreply();
    let [key, second, _] = arguments.tokens;
    // The 0 is what remains of a delay that memcached once had.
    let usage_is_right = match arguments.count {
        1 => true,
        2 => noreply || second == b"0",
        _ => noreply && second == b"0",
    };
    if !usage_is_right {
        return refused_unless(noreply, ErrorLine::DeleteUsage);
    }
    if key_is_too_long(key) {
        return refused_unless(noreply, ErrorLine::BadFormat);
    }
    Line::Command(Command::Delete { key, noreply })
}

fn parse_arithmetic(mode: ArithmeticMode, tokens: TokenIter<'_>) -> Line<'_> {
    let Some(arguments) = Arguments::<3>::collect(tokens, 2) else {
        return refused(ErrorLine::Unknown);
    };
    let noreply = arguments.noreply();
    let [key, delta, _] = arguments.tokens;
    if key_is_too_long(key) {
        return refused_unless(noreply, ErrorLine::BadFormat);
    }
    match parse_delta(delta) {
        Some(delta) => Line::Command(Command::Arithmetic {
            mode,
            key,
            delta,
            noreply,
        }),
        None => refused_unless(noreply, ErrorLine::InvalidDelta),
    }
}

fn parse_touch(tokens: TokenIter<'_>) -> Line<'_> {
    let Some(arguments) = Arguments::<3>::collect(tokens, 2) else {
        return refused(ErrorLine::Unknown);
    };
    let noreply = arguments.noreply();
    let [key, exptime, _] = arguments.tokens;
    if key_is_too_long(key) {
        return refused_unless(noreply, ErrorLine::BadFormat);
    }
    match parse_exptime(exptime) {
        Some(exptime) => Line::Command(Command::Touch {
            key,
            exptime,
            noreply,
        }),
        None => refused_unless(noreply, ErrorLine::InvalidExptime),
    }
}

fn parse_flush_all(tokens: TokenIter<'_>) -> Line<'_> {
    let Some(arguments) = Arguments::<2>::collect(tokens, 0) else {
        return refused(ErrorLine::Unknown);
    };
    let noreply = arguments.noreply();
    if arguments.count == usize::from(noreply) {
        return Line::Command(Command::FlushAll { delay: 0, noreply });
    }
    match parse_exptime(arguments.tokens[0]) {
        Some(delay) => Line::Command(Command::FlushAll { delay, noreply }),
        None => refused_unless(noreply, ErrorLine::InvalidExptime),
    }
}

fn parse_shutdown(mode: &[u8]) -> Line<'_> {
    let is_mode_known = matches!(mode.trim_ascii_end(), b"" | b"graceful");
    Line::Command(Command::Shutdown { is_mode_known })
}

fn parse_verbosity(tokens: TokenIter<'_>) -> Line<'_> {
    let Some(arguments) = Arguments::<2>::collect(tokens, 1) else {
        return refused(ErrorLine::Unknown);
    };
    let noreply = arguments.noreply();
    match parse_u64(arguments.tokens[0]).map(|level| u32::try_from(level).unwrap_or(u32::MAX)) {
        Some(level) => Line::Command(Command::Verbosity { level, noreply }),
        None => refused_unless(noreply, ErrorLine::BadFormat),
    }
}

fn parse_cache_memlimit(tokens: TokenIter<'_>) -> Line<'_> {
    let Some(arguments) = Arguments::<2>::collect(tokens, 1) else {
        return refused(ErrorLine::Unknown);
    };
    let noreply = arguments.noreply();
    let megabytes = parse_u64(arguments.tokens[0]);
    match megabytes.map(|megabytes| u32::try_from(megabytes).unwrap_or(u32::MAX)) {
        Some(megabytes) => Line::Command(Command::CacheMemlimit { megabytes, noreply }),
        None => refused_unless(noreply, ErrorLine::Unknown),
    }
}

/// `mg`, `md` and `ma`, by their second letter.
fn parse_meta(letter: u8, mut tokens: TokenIter<'_>) -> Line<'_> {
    let (too_many, all_flag_errors) = match letter {
        b'g' => (ErrorLine::GetFlagsTooLong, None),
        _ => (
            ErrorLine::FlagsTooLong,
            Some(ErrorLine::InvalidOrDuplicateFlag),
        ),
    };
    let whole = tokens.clone();
    let Some(key) = tokens.next() else {
        return refused(ErrorLine::Unknown);
    };
    if key_is_too_long(key) {
        return refused(ErrorLine::BadFormat);
    }
    if has_more_than(whole, META_TOKENS_MAX - 1) {
        return refused(too_many);
    }
    let mut key = MetaKey::plain(key);
    let flags = match MetaFlags::parse(tokens.rest(), &mut key) {
        Ok(flags) => flags,
        Err(reply) => return refused(all_flag_errors.unwrap_or(reply)),
    };
    let command = match letter {
        b'g' => Command::MetaGet(MetaGet { key, flags }),
        b'd' => Command::MetaDelete(MetaDelete { key, flags }),
        _ => match flags.mode {
            None | Some(b'I' | b'+') => {
                let mode = ArithmeticMode::Increment;
                Command::MetaArithmetic(MetaArithmetic { key, flags, mode })
            }
            Some(b'D' | b'-') => {
                let mode = ArithmeticMode::Decrement;
                Command::MetaArithmetic(MetaArithmetic { key, flags, mode })
            }
            Some(_) => return refused(ErrorLine::InvalidArithmeticMode),
        },
    };
    if flags.opaque_is_too_long() {
        return refused(ErrorLine::OpaqueTooLong);
    }
    Line::Command(command)
}

fn has_more_than(tokens: TokenIter<'_>, count: usize) -> bool {
    tokens.take(count + 1).count() > count
}

fn parse_meta_set(mut tokens: TokenIter<'_>) -> Line<'_> {
    let whole = tokens.clone();
    let Some(token) = tokens.next() else {
        return refused(ErrorLine::Unknown);
    };
    let Some(length) = tokens.next().and_then(parse_length) else {
        return refused(ErrorLine::BadFormat);
    };
    let discard = length as u64 + 2;
    let refuse = |reply| Line::Refused {
        reply: Some(reply),
        discard,
    };
    if key_is_too_long(token) {
        return refuse(ErrorLine::BadFormat);
    }
    if has_more_than(whole, META_TOKENS_MAX - 1) {
        return refuse(ErrorLine::FlagsTooLong);
    }
    let mut key = MetaKey::plain(token);
    let flags = match MetaFlags::parse(tokens.rest(), &mut key) {
        Ok(flags) => flags,
        Err(reply) => return refuse(reply),
    };
    let mode = match flags.mode {
        None | Some(b'S') => MetaSetMode::Set,
        Some(b'E') => MetaSetMode::Add,
        Some(b'R') => MetaSetMode::Replace,
        Some(b'A') => MetaSetMode::Append,
        Some(b'P') => MetaSetMode::Prepend,
        Some(_) => return refuse(ErrorLine::InvalidSetMode),
    };
    if flags.opaque_is_too_long() {
        return refuse(ErrorLine::OpaqueTooLong);
    }
    let item = ItemSize {
        key,
        has_flags: flags.client_flags != 0,
        deletes_old: true,
        noreply: false,
    };
    let command = Command::MetaSet(MetaSet {
        key,
        flags,
        mode,
        value: b"",
    });
    Line::Data {
        command,
        length,
        item,
    }
}

fn parse_meta_debug(mut tokens: TokenIter<'_>) -> Line<'_> {
    let key = tokens.next().filter(|key| !key_is_too_long(key));
    let Some(token) = key else {
        return refused(ErrorLine::BadFormat);
    };
    let key = MetaKey {
        token,
        base64: tokens.next() == Some(b"b"),
    };
    if key.is_valid() {
        Line::Command(Command::MetaDebug { key })
    } else {
        refused(ErrorLine::BadFormat)
    }
}
