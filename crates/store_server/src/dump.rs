//! Listings of all keys, which go on over many turns: `lru_crawler metadump`, `lru_crawler mgdump`
//! and `stats cachedump`; and the rest of `lru_crawler`.

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use dwell_proto::memcache::encode::reply::{self, Status};
use dwell_proto::memcache::{ErrorLine, Tokens};
use dwell_store::{Walk, WalkedItem};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use std::io::Write;

use super::commands::Executor;
use crate::moment::Moment;

/// A listing that has not come to its end.
#[derive(Debug)]
pub(super) struct Dump {
    walk: Walk,
    form: Form,
}

/// The form of the lines of a listing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    /// Keys with the figures of their items.
    Metadump,
    /// `mg` commands.
    Mgdump,
    /// `ITEM` lines, while there is room for them.
    Cachedump { items: u32, bytes: usize },
}

/// All items are in one class.
pub(super) const CLASS: u32 = 1;
/// Numbers below this are classes of memcached.
const CLASSES: u32 = 64;
/// The work for which a shard is locked at a time.
const WORK_PER_STEP: usize = 64;
/// The longest answer to `stats cachedump`, as memcached has it.
const CACHEDUMP_BYTES_MAX: usize = 2 << 20;
/// Bytes of a line beside the key, at most.
const LINE_BYTES: usize = 64;
/// The bytes that stay as they are in the keys of a listing.
const PLAIN: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

impl Dump {
    /// `stats cachedump`: a listing is to be gone on with, or an error has been answered.
    pub(super) fn cachedump(executor: &mut Executor<'_>, arguments: Tokens<'_>) -> Option<Self> {
        let mut words = arguments.iter().skip(1);
        let line: &[u8] = match (words.next(), words.next()) {
            _ if !executor.service.limits.allowed.dump => {
                b"CLIENT_ERROR stats cachedump not allowed\r\n"
            }
            (Some(class), Some(limit)) => match (number(class), number(limit)) {
                (Some(CLASS), Some(limit)) => {
                    return Some(Self::new(Form::Cachedump {
                        items: if limit == 0 { u32::MAX } else { limit },
                        bytes: CACHEDUMP_BYTES_MAX,
                    }));
                }
                (Some(class), Some(_)) if class < CLASSES => Status::End.as_bytes(),
                (Some(_), Some(_)) => b"CLIENT_ERROR Illegal slab id\r\n",
                _ => ErrorLine::BadFormat.as_bytes(),
            },
            _ => b"CLIENT_ERROR bad command line\r\n",
        };
        executor.out.extend_from_slice(line);
        None
    }

    /// `lru_crawler`: a listing is to be gone on with, or all has been answered.
    pub(super) fn lru_crawler(executor: &mut Executor<'_>, arguments: Tokens<'_>) -> Option<Self> {
        let mut words = arguments.iter();
        let asked = (words.next().unwrap_or_default(), words.next(), words.next());
        let line: &[u8] = match asked {
            (b"metadump" | b"mgdump", Some(_), None) if !executor.service.limits.allowed.dump => {
                b"ERROR metadump not allowed\r\n"
            }
            (b"metadump", Some(classes), None) => match has_all(classes) {
                Some(true) => return Some(Self::new(Form::Metadump)),
                Some(false) => Status::End.as_bytes(),
                None => BAD_CLASS,
            },
            (b"mgdump", Some(classes), None) => match has_all(classes) {
                Some(true) => return Some(Self::new(Form::Mgdump)),
                Some(false) => b"EN\r\n",
                None => BAD_CLASS,
            },
            // Expired items are looked for each second in any case.
            (b"crawl", Some(classes), None) => match has_all(classes) {
                Some(_) => Status::Ok.as_bytes(),
                None => BAD_CLASS,
            },
            (b"tocrawl" | b"sleep", Some(figure), None) => match number(figure) {
                Some(_) => Status::Ok.as_bytes(),
                None => ErrorLine::BadFormat.as_bytes(),
            },
            (b"enable", None, None) => Status::Ok.as_bytes(),
            (b"disable", None, None) => b"ERROR failed to stop lru crawler thread\r\n",
            _ => ErrorLine::Unknown.as_bytes(),
        };
        executor.out.extend_from_slice(line);
        None
    }

    fn new(form: Form) -> Self {
        let walk = Walk::default();
        Self { walk, form }
    }

    /// Goes on with the listing, and takes from `work` what it costs; whether it is over, with its
    /// last line.
    pub(super) fn step(&mut self, executor: &mut Executor<'_>, work: &mut usize) -> bool {
        let store = &executor.service.store;
        let moment = executor.moment;
        let (out, form) = (&mut *executor.out, &mut self.form);
        let budget = (*work).min(WORK_PER_STEP);
        let used = self.walk.step(store, budget, moment.steady, |item| {
            form.write(out, &item, moment);
        });
        *work = work.saturating_sub(used.max(1));
        let is_over = form.is_full() || self.walk.is_over(store);
        if is_over {
            match form {
                Form::Mgdump => out.extend_from_slice(b"EN\r\n"),
                Form::Metadump | Form::Cachedump { .. } => reply::status(out, Status::End),
            }
        }
        is_over
    }
}

impl Form {
    fn write(&mut self, out: &mut Vec<u8>, item: &WalkedItem<'_>, moment: Moment) {
        match self {
            Self::Metadump => metadump_line(out, item, moment),
            Self::Mgdump => mgdump_line(out, item.key),
            Self::Cachedump { items, bytes } => {
                let fits = *items > 0 && item.key.len() + LINE_BYTES <= *bytes;
                // memcached passes binary keys over; these would end the line, or the word.
                if fits && item.key.iter().all(u8::is_ascii_graphic) {
                    let before = out.len();
                    let (len, time) = (item.value_len, moment.unix_time(item.debug.expiry));
                    out.extend_from_slice(b"ITEM ");
                    out.extend_from_slice(item.key);
                    // Writing to a vector cannot fail.
                    let _ = write!(out, " [{len} b; {time} s]\r\n");
                    *bytes -= (out.len() - before).min(*bytes);
                    *items -= 1;
                } else if !fits {
                    *items = 0;
                }
            }
        }
    }

    fn is_full(self) -> bool {
        matches!(self, Self::Cachedump { items: 0, .. })
    }
}

fn metadump_line(out: &mut Vec<u8>, item: &WalkedItem<'_>, moment: Moment) {
    let debug = &item.debug;
    let expiry = match moment.unix_time(debug.expiry) {
        0 => -1,
        time => i64::from(time),
    };
    // Writing to a vector cannot fail.
    let _ = writeln!(
        out,
        "key={} exp={expiry} la={} cas={} fetch={} cls={CLASS} size={}",
        percent_encode(item.key, PLAIN),
        moment.unix.saturating_sub(debug.unused_seconds),
        debug.cas,
        if debug.fetched { "yes" } else { "no" },
        debug.bytes,
    );
}

fn mgdump_line(out: &mut Vec<u8>, key: &[u8]) {
    out.extend_from_slice(b"mg ");
    if key.iter().all(u8::is_ascii_graphic) {
        out.extend_from_slice(key);
    } else {
        out.extend_from_slice(BASE64.encode(key).as_bytes());
        out.extend_from_slice(b" b");
    }
    out.extend_from_slice(b"\r\n");
}

/// True for the arguments by which `stats` is asked for a listing of keys.
pub(super) fn is_cachedump(arguments: Tokens<'_>) -> bool {
    arguments.iter().next() == Some(b"cachedump")
}

const BAD_CLASS: &[u8] = b"BADCLASS invalid class id\r\n";

/// True if the class of all items is among these; `None` if one of them is no class.
fn has_all(classes: &[u8]) -> Option<bool> {
    if matches!(classes, b"all" | b"hash") {
        return Some(true);
    }
    classes
        .split(|byte| *byte == b',')
        .try_fold(false, |found, class| {
            let class = number(class).filter(|class| (1..CLASSES).contains(class))?;
            Some(found || class == CLASS)
        })
}

fn number(text: &[u8]) -> Option<u32> {
    std::str::from_utf8(text).ok()?.parse().ok()
}
