//! The embedded store's items in a file, from the end of one process to the start of the next.
//!
//! The file is written whole under another name and then renamed, so that there is always either
//! the old or the new one; what a process that was killed has left of the other is removed by the
//! next. It begins with a name and a version and ends with the number of items
//! and a checksum of all before it; numbers are little-endian. A file that cannot be read whole is
//! not read at all: it is moved aside, and the process starts empty.

use std::fmt;
use std::fs::{self, File, FileType, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Seek, Write};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use crate::moment::Moment;
use dwell_store::{Expiry, HashSeed, KeptState, RestoreOutcome, Seconds, Store};
use nix::fcntl::OFlag;
use xxhash_rust::xxh3::Xxh3Default;

mod draft;

/// The first bytes of the file.
const NAME: &[u8; 8] = b"DWELLMEM";
/// The version of everything below, the only one that is read. (Earlier ones had a shorter head, in
/// programs that were never released.)
const VERSION: u32 = 4;

/// The name and the version, by which a file is known.
const MARK_BYTES: usize = NAME.len() + size_of::<u32>();
/// The mark, the time of a delayed flush or 0, the largest cas unique that was given out, also to
/// items that are gone, and the seed of the hashes.
const HEAD_BYTES: usize = MARK_BYTES + size_of::<Seconds>() + size_of::<u64>() + HashSeed::BYTES;

/// Key length, marks, queue, flags, expiry, cas, value length.
const RECORD_BYTES: usize = 1 + 1 + 1 + 4 + 4 + 8 + 4;
/// The queue of items that are evicted last; the uses stand above it.
const FREQUENT: u8 = 1;
/// A key has at least one byte, so this length ends the records.
const END: u8 = 0;
/// The number of items and the checksum.
const TRAILER_BYTES: u64 = 8 + 8;

/// The counts of a snapshot that was read or written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SnapshotSummary {
    /// Items in the file.
    pub items: u64,
    /// The items that were put back, and are there.
    pub restored: u64,
    /// The items for which there is no room.
    pub left_out: u64,
    /// The time at which all of them go, by a `flush_all` whose delay was not over.
    pub flush_at: Option<Seconds>,
}

impl SnapshotSummary {
    /// Logs that some items were left out, if there were any.
    pub fn warn_of_left_out(&self, store: &Store) {
        let Self {
            left_out, items, ..
        } = *self;
        if left_out > 0 {
            let bytes_max = store.statistics().limit_maxbytes;
            tracing::warn!(
                left_out,
                items,
                bytes_max,
                "the oldest items do not fit into store.bytes_max"
            );
        }
    }
}

/// The reason for which a snapshot could not be used.
#[derive(Debug)]
#[non_exhaustive]
pub enum SnapshotError {
    /// The system refuses the file.
    File {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The file is not what [`save`] wrote.
    Damaged {
        /// The place of the file.
        path: PathBuf,
        /// The damage.
        reason: Damage,
        /// Its new place; `None` if it could not be moved.
        aside: Option<PathBuf>,
    },
}

/// Kinds of damage to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Damage {
    /// It does not begin as a snapshot does.
    Name,
    /// It was written by another version of the program.
    Version {
        /// Its version.
        found: u32,
    },
    /// It ends too early, or goes on after its end.
    Length,
    /// Its bytes have changed since they were written.
    Checksum,
}

impl fmt::Display for Damage {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name => formatter.write_str("it is not a snapshot"),
            Self::Version { found } => {
                write!(
                    formatter,
                    "it has version {found}, this program reads {VERSION}"
                )
            }
            Self::Length => formatter.write_str("it is cut short or has something behind its end"),
            Self::Checksum => formatter.write_str("its checksum is wrong"),
        }
    }
}

impl fmt::Display for SnapshotError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { path, source } => {
                write!(formatter, "snapshot {}: {source}", path.display())
            }
            Self::Damaged {
                path,
                reason,
                aside,
            } => {
                write!(
                    formatter,
                    "snapshot {} is not read: {reason}",
                    path.display()
                )?;
                match aside {
                    Some(aside) => write!(formatter, "; it is now {}", aside.display()),
                    None => formatter.write_str("; it could not be moved aside"),
                }
            }
        }
    }
}

impl std::error::Error for SnapshotError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::File { source, .. } => Some(source),
            Self::Damaged { .. } => None,
        }
    }
}

/// Writes every item of `store` to `path`, and when a delayed `flush_all` will remove them.
///
/// Shape: to another name in the same folder first, made durable, then renamed over `path`.
///
/// # Errors
/// [`SnapshotError::File`]; an older file under `path` is as it was.
pub fn save(
    store: &Store,
    flush_at: Option<Seconds>,
    path: &Path,
    now: Moment,
) -> Result<SnapshotSummary, SnapshotError> {
    let draft = draft::name(path);
    let written = write_file(store, flush_at, &draft, now).and_then(|summary| {
        fs::rename(&draft, path)?;
        if let Some(folder) = path
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
        {
            File::open(folder)?.sync_all()?;
        }
        Ok(summary)
    });
    written.map_err(|source| {
        // The error that matters is the first one.
        let _ = fs::remove_file(&draft);
        file_error(path, source)
    })
}

/// Checks that [`save`] could write beside `path` now, so that a failure does not show at the end
/// only.
///
/// Shape: removes what processes that were killed have left there.
///
/// # Errors
/// [`SnapshotError::File`].
pub fn check_writable(path: &Path) -> Result<(), SnapshotError> {
    draft::remove_left(path);
    let draft = draft::name(path);
    let tried = draft::create(&draft).and_then(|_| fs::remove_file(&draft));
    tried.map_err(|source| file_error(path, source))
}

/// Refuses a `path` to anything but a file, which could not be read whole, or replaced.
///
/// Shape: nothing may be there yet.
///
/// # Errors
/// [`SnapshotError::File`].
pub fn check_kind(path: &Path) -> Result<(), SnapshotError> {
    let kind = match fs::metadata(path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(file_error(path, error)),
    };
    regular(kind).map_err(|source| file_error(path, source))
}

/// Refuses what is no regular file, by name.
fn regular(kind: FileType) -> io::Result<()> {
    let what = match kind {
        _ if kind.is_file() => return Ok(()),
        _ if kind.is_dir() => "a directory",
        _ if kind.is_fifo() => "a FIFO",
        _ if kind.is_socket() => "a socket",
        _ => "a device",
    };
    let reason = format!("it is {what}, not a file");
    Err(io::Error::new(io::ErrorKind::InvalidInput, reason))
}

/// Opens a snapshot for reading, without waiting for a writer.
fn open(path: &Path) -> io::Result<File> {
    let flags = OFlag::O_NONBLOCK.bits();
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open(path)?;
    regular(file.metadata()?.file_type())?;
    Ok(file)
}

/// Puts the items of the file at `path` into `store`; no file is no item.
///
/// Shape: a flush whose time came while no process ran leaves nothing. A flush that is still to
/// come is the caller's to order.
///
/// # Errors
/// [`SnapshotError::Damaged`]: nothing was put back, and the file was renamed.
/// [`SnapshotError::File`]: it cannot be opened or read.
pub fn load(store: &Store, path: &Path, now: Moment) -> Result<SnapshotSummary, SnapshotError> {
    let mut file = match open(path) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Ok(SnapshotSummary::default());
        }
        Err(source) => return Err(file_error(path, source)),
    };
    // Read twice: nothing is put back before all of it is known to be right.
    match verify(&file) {
        Ok(None) => {}
        Ok(Some(reason)) => return Err(damaged(path, reason, now.unix)),
        Err(source) => return Err(file_error(path, source)),
    }
    let restored = file
        .rewind()
        .and_then(|()| file.metadata())
        .and_then(|metadata| read(store, &file, metadata.len(), now));
    match restored {
        Ok(Some(summary)) => Ok(summary),
        Ok(None) => Err(damaged(path, Damage::Length, now.unix)),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
            Err(damaged(path, Damage::Length, now.unix))
        }
        Err(source) => Err(file_error(path, source)),
    }
}

fn file_error(path: &Path, source: io::Error) -> SnapshotError {
    SnapshotError::File {
        path: path.to_owned(),
        source,
    }
}

fn damaged(path: &Path, reason: Damage, now: Seconds) -> SnapshotError {
    let aside = beside(path, &format!("damaged-{now}"));
    let moved = fs::rename(path, &aside).is_ok();
    SnapshotError::Damaged {
        path: path.to_owned(),
        reason,
        aside: moved.then_some(aside),
    }
}

/// The path with something behind its name.
fn beside(path: &Path, what: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(".");
    name.push(what);
    PathBuf::from(name)
}

/// Writes through, and keeps the checksum of what went by.
struct Summed<W> {
    inner: W,
    sum: Xxh3Default,
}

impl<W: Write> Write for Summed<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.inner.write(bytes)?;
        self.sum.update(&bytes[..written]);
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.inner.flush()
    }
}

fn write_file(
    store: &Store,
    flush_at: Option<Seconds>,
    path: &Path,
    now: Moment,
) -> io::Result<SnapshotSummary> {
    let file = draft::create(path)?;
    let summary = write(store, flush_at, now, &file)?;
    file.sync_all()?;
    Ok(summary)
}

/// Writes every item of `store`, and when a delayed `flush_all` will remove them, to a file or to
/// another process.
///
/// # Errors
/// As writing to `to`.
pub fn write(
    store: &Store,
    flush_at: Option<Seconds>,
    now: Moment,
    to: impl Write,
) -> io::Result<SnapshotSummary> {
    let mut out = Summed {
        inner: BufWriter::with_capacity(1 << 18, to),
        sum: Xxh3Default::new(),
    };
    out.write_all(NAME)?;
    out.write_all(&VERSION.to_le_bytes())?;
    out.write_all(
        &now.unix_time(flush_at.map_or(Expiry::NEVER, Expiry::at))
            .to_le_bytes(),
    )?;
    out.write_all(&store.last_version().to_le_bytes())?;
    out.write_all(&store.seed().to_bytes())?;
    let mut items = 0_u64;
    for item in store.kept_items_in_order() {
        let (key, state) = (item.value.key(), &item.state);
        // Keys have at most 250 bytes, and the size of items is bounded far below 32 bits.
        let queue = u8::from(state.is_frequent) | state.uses << 1;
        out.write_all(&[key.len() as u8, state.marks, queue])?;
        out.write_all(&state.flags.to_le_bytes())?;
        out.write_all(&now.unix_time(state.expiry).to_le_bytes())?;
        out.write_all(&state.cas.to_le_bytes())?;
        out.write_all(&(item.value.len() as u32).to_le_bytes())?;
        out.write_all(key)?;
        out.write_all(&item.value)?;
        items += 1;
    }
    out.write_all(&[END])?;
    out.write_all(&items.to_le_bytes())?;
    let sum = out.sum.digest();
    out.write_all(&sum.to_le_bytes())?;
    out.flush()?;
    Ok(SnapshotSummary {
        items,
        flush_at,
        ..SnapshotSummary::default()
    })
}

/// Reads a file through; what is wrong with it, if anything.
fn verify(file: &File) -> io::Result<Option<Damage>> {
    let length = file.metadata()?.len();
    let mut input = BufReader::with_capacity(1 << 18, file);
    let mut mark = [0; MARK_BYTES];
    if length < MARK_BYTES as u64 {
        return Ok(Some(Damage::Name));
    }
    input.read_exact(&mut mark)?;
    if let Some(reason) = foreign(&mark) {
        return Ok(Some(reason));
    }
    if length < HEAD_BYTES as u64 + 1 + TRAILER_BYTES {
        return Ok(Some(Damage::Length));
    }
    let mut sum = Xxh3Default::new();
    sum.update(&mark);
    let mut left = length - MARK_BYTES as u64 - 8;
    let mut buffer = vec![0; 1 << 16];
    while left > 0 {
        let share = usize::try_from(left)
            .unwrap_or(usize::MAX)
            .min(buffer.len());
        input.read_exact(&mut buffer[..share])?;
        sum.update(&buffer[..share]);
        left -= share as u64;
    }
    let mut expected = [0; 8];
    input.read_exact(&mut expected)?;
    let is_right = u64::from_le_bytes(expected) == sum.digest();
    Ok((!is_right).then_some(Damage::Checksum))
}

/// Puts the items back that [`write`](write()) has sent; no record may be longer than `length`.
/// Bytes behind the last one may be read as well.
///
/// Shape: `None` if the records do not end where they should.
///
/// # Errors
/// As reading `from`; what was read before is in the store.
pub fn read(
    store: &Store,
    from: impl Read,
    length: u64,
    now: Moment,
) -> io::Result<Option<SnapshotSummary>> {
    let mut input = BufReader::with_capacity(1 << 18, from);
    let mut summary = SnapshotSummary {
        flush_at: now.expiry(read_head(store, &mut input)?).time(),
        ..SnapshotSummary::default()
    };
    let is_flushed = summary.flush_at.is_some_and(|at| at <= now.steady);
    let evictions = store.statistics().evictions;
    let mut bytes = Vec::new();
    let mut record = [0; RECORD_BYTES];
    loop {
        input.read_exact(&mut record[..1])?;
        if record[0] == END {
            break;
        }
        input.read_exact(&mut record[1..])?;
        let [key, marks, queue, rest @ ..] = record;
        let number = |from: usize| number(rest.get(from..).unwrap_or_default());
        let cas = u64::from(number(8)) | u64::from(number(12)) << 32;
        let size = u64::from(key) + u64::from(number(16));
        if size > length {
            return Ok(None);
        }
        bytes.resize(usize::try_from(size).unwrap_or(usize::MAX), 0);
        input.read_exact(&mut bytes)?;
        let (key, value) = bytes.split_at(usize::from(key));
        let state = KeptState {
            flags: number(0),
            expiry: now.expiry(number(4)),
            cas,
            marks,
            is_frequent: queue & FREQUENT != 0,
            uses: queue >> 1,
        };
        summary.items += 1;
        if is_flushed {
            continue;
        }
        match store.restore(key, value, &state, now.steady) {
            RestoreOutcome::Restored => summary.restored += 1,
            RestoreOutcome::Expired => {}
            RestoreOutcome::LeftOut => summary.left_out += 1,
        }
    }
    // Those that went again for newer ones.
    let evicted = store.statistics().evictions.saturating_sub(evictions);
    summary.restored = summary.restored.saturating_sub(evicted);
    summary.left_out += evicted;
    let mut items = [0; 8];
    input.read_exact(&mut items)?;
    // The checksum: a file was verified by it, and a socket does not change bytes.
    input.read_exact(&mut [0; 8])?;
    summary.flush_at = summary.flush_at.filter(|_| !is_flushed);
    Ok((u64::from_le_bytes(items) == summary.items).then_some(summary))
}

/// Reads what is before the records, and returns the Unix time of a delayed flush, or 0.
fn read_head(store: &Store, input: &mut impl Read) -> io::Result<Seconds> {
    let mut mark = [0; MARK_BYTES];
    input.read_exact(&mut mark)?;
    if let Some(reason) = foreign(&mark) {
        let reason = format!("the items are not read: {reason}");
        return Err(io::Error::other(reason));
    }
    let (mut flush_at, mut last_version) = ([0; size_of::<Seconds>()], [0; size_of::<u64>()]);
    let mut seed = [0; HashSeed::BYTES];
    input.read_exact(&mut flush_at)?;
    input.read_exact(&mut last_version)?;
    input.read_exact(&mut seed)?;
    store.continue_seed(HashSeed::from_bytes(seed));
    store.continue_versions(u64::from_le_bytes(last_version));
    Ok(Seconds::from_le_bytes(flush_at))
}

/// The reason for which what begins so is not read.
fn foreign(mark: &[u8; MARK_BYTES]) -> Option<Damage> {
    let (name, version) = mark.split_at(NAME.len());
    if name != NAME {
        return Some(Damage::Name);
    }
    let found = number(version);
    (found != VERSION).then_some(Damage::Version { found })
}

/// The number at the front of `bytes`.
fn number(bytes: &[u8]) -> u32 {
    let bytes = bytes.first_chunk();
    bytes.map_or(0, |bytes| u32::from_le_bytes(*bytes))
}

#[cfg(test)]
mod tests;
