//! The table of carried streams.
//!
//! A stream is a number here, as one of the system is a descriptor, so that it is no larger. The
//! tables are shared by number among the loops, each of which mostly has its own; so a stream that
//! is dropped by another thread is found there, too.

use crate::{Readiness, Token};
use std::io;
use std::net::SocketAddr;
use std::num::NonZeroU32;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The part of the work of a carried stream that its carrier has not seen yet.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct CarriedWork {
    /// Bytes of input that were read, or that no reader is left for.
    pub read: usize,
    /// The end of its output, once all of that was taken.
    pub end: Option<CarriedEnd>,
}

/// The ends that the owner of a carried stream can make.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CarriedEnd {
    /// It sends nothing more, and still reads.
    Finished,
    /// The stream was dropped behind all that was written.
    Gone,
    /// The stream was dropped, and the peer is to read an error.
    Reset,
}

/// Bits of a number that name the table.
const TABLE_BITS: u32 = 6;
const TABLES: usize = 1 << TABLE_BITS;

static NEXT_LOOP: AtomicU32 = AtomicU32::new(0);
static ALL: [Mutex<Table>; TABLES] = [const { Mutex::new(Table::new()) }; TABLES];

/// The number of a carried stream.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Handle(NonZeroU32);

/// The number of a loop that has carried streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LoopNumber(u32);

#[derive(Debug)]
struct Table {
    entries: Vec<Option<Box<Entry>>>,
    free: Vec<u32>,
    /// Streams of which a side is to be told.
    marked: Vec<u32>,
}

/// One stream, with what each side does not know yet of the other.
#[derive(Debug)]
pub(crate) struct Entry {
    event_loop: LoopNumber,
    carrier: Token,
    owner: Option<Token>,
    owner_state: OwnerState,
    addresses: [Option<SocketAddr>; 2],
    input: Input,
    output: Output,
    /// The readiness that is to be reported to the owner.
    news: Readiness,
    has_carrier: bool,
    /// The carrier is to be told.
    has_work: bool,
    is_marked: bool,
}

/// The direction to the owner.
#[derive(Debug)]
struct Input {
    /// Bytes that came and were not read.
    bytes: Vec<u8>,
    /// Bytes that may still be put in; less than 0 where more were than is granted now.
    credit: isize,
    /// Bytes that were read, of which the carrier does not know.
    read: usize,
    state: InputState,
}

/// The direction from the owner.
#[derive(Debug)]
struct Output {
    /// Bytes that were written and not taken.
    bytes: Vec<u8>,
    /// Bytes that may still be written.
    room: usize,
    state: OutputState,
    /// A write was not taken whole.
    is_refused: bool,
    resets: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum InputState {
    Open,
    Ended,
    Failed,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OutputState {
    Open,
    Ended,
    /// The carrier knows of the end, too.
    Told,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum OwnerState {
    Awaited,
    There,
    Gone,
}

impl Table {
    const fn new() -> Self {
        Self {
            entries: Vec::new(),
            free: Vec::new(),
            marked: Vec::new(),
        }
    }
}

impl Handle {
    fn table(self) -> MutexGuard<'static, Table> {
        lock(self.0.get() as usize % TABLES)
    }

    fn place(self) -> usize {
        (self.0.get() >> TABLE_BITS) as usize - 1
    }
}

impl LoopNumber {
    pub(crate) fn next() -> Self {
        Self(NEXT_LOOP.fetch_add(1, Ordering::Relaxed))
    }

    fn table(self) -> usize {
        self.0 as usize % TABLES
    }
}

fn lock(table: usize) -> MutexGuard<'static, Table> {
    ALL[table].lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes an entry without an owner.
///
/// # Panics
/// When there are 2^26 of them.
pub(crate) fn insert(event_loop: LoopNumber, carrier: Token) -> Handle {
    let number = event_loop.table();
    let mut table = lock(number);
    let entry = Some(Box::new(Entry::new(event_loop, carrier)));
    let place = table.free.pop().unwrap_or_else(|| {
        table.entries.push(None);
        table.entries.len() as u32 - 1
    });
    table.entries[place as usize] = entry;
    assert!(place + 1 < 1 << (32 - TABLE_BITS), "too many streams");
    let number = (place + 1) << TABLE_BITS | number as u32;
    Handle(NonZeroU32::new(number).expect("a place is numbered from 1"))
}

/// Acts on an entry, which is there as long as one of its ends is; forgets it when neither is, and
/// marks it if it has something to report.
pub(crate) fn with<T>(handle: Handle, act: impl FnOnce(&mut Entry) -> T) -> T {
    let mut table = handle.table();
    let table = &mut *table;
    let slot = &mut table.entries[handle.place()];
    let entry = slot.as_deref_mut().expect("an end of it is there");
    let result = act(entry);
    if entry.owner_state == OwnerState::Gone && !entry.has_carrier {
        *slot = None;
        table.free.push(handle.place() as u32);
    } else if entry.is_news() && !entry.is_marked {
        entry.is_marked = true;
        table.marked.push(handle.0.get());
    }
    result
}

/// Reports everything that is to be reported of the streams of this loop.
pub(crate) fn tell(event_loop: LoopNumber, mut tell: impl FnMut(Token, Readiness)) {
    let mut table = lock(event_loop.table());
    if table.marked.is_empty() {
        return;
    }
    let mut marked = std::mem::take(&mut table.marked);
    marked.retain(|number| {
        let place = (number >> TABLE_BITS) as usize - 1;
        let Some(entry) = table.entries[place].as_deref_mut() else {
            return false;
        };
        if entry.event_loop != event_loop {
            return true;
        }
        entry.is_marked = false;
        if std::mem::take(&mut entry.has_work) && entry.has_carrier {
            tell(entry.carrier, Readiness::WRITABLE);
        }
        let news = std::mem::take(&mut entry.news);
        if let Some(owner) = entry.owner.filter(|_| news != Readiness::default()) {
            tell(owner, news);
        }
        false
    });
    marked.shrink_to(MARKED_KEPT_MAX);
    table.marked = marked;
}

/// Streams that are marked for which memory stays.
const MARKED_KEPT_MAX: usize = 16 * 1024;

impl Entry {
    fn new(event_loop: LoopNumber, carrier: Token) -> Self {
        Self {
            event_loop,
            carrier,
            owner: None,
            owner_state: OwnerState::Awaited,
            addresses: [None, None],
            input: Input {
                bytes: Vec::new(),
                credit: 0,
                read: 0,
                state: InputState::Open,
            },
            output: Output {
                bytes: Vec::new(),
                room: 0,
                state: OutputState::Open,
                is_refused: false,
                resets: false,
            },
            news: Readiness::default(),
            has_carrier: true,
            has_work: false,
            is_marked: false,
        }
    }

    fn is_news(&self) -> bool {
        self.has_work || (self.owner.is_some() && self.news != Readiness::default())
    }

    fn tell_owner(&mut self, news: Readiness) {
        if self.owner.is_some() {
            self.news = self.news.and(news);
        }
    }

    // The side of the carrier.

    pub(crate) fn adopt(
        &mut self,
        peer: Option<SocketAddr>,
        local: Option<SocketAddr>,
    ) -> Option<()> {
        if self.owner_state != OwnerState::Awaited {
            return None;
        }
        self.owner_state = OwnerState::There;
        self.addresses = [peer, local];
        Some(())
    }

    pub(crate) fn grant(&mut self, bytes: usize) {
        self.input.credit += bytes.cast_signed();
    }

    pub(crate) fn grant_up_to(&mut self, target: usize) -> usize {
        let missing =
            target.cast_signed() - self.input.credit - self.input.bytes.len().cast_signed();
        if self.input.state != InputState::Open
            || missing <= 0
            || missing < target.cast_signed() / 4
        {
            return 0;
        }
        self.input.credit += missing;
        missing.cast_unsigned()
    }

    pub(crate) fn take_back(&mut self, bytes: usize) {
        self.input.credit -= bytes.cast_signed();
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) -> bool {
        if self.input.credit < bytes.len().cast_signed() {
            return false;
        }
        self.input.credit -= bytes.len().cast_signed();
        if self.owner_state == OwnerState::Gone {
            self.input.read += bytes.len();
            self.has_work = true;
        } else if !bytes.is_empty() {
            self.input.bytes.extend_from_slice(bytes);
            self.tell_owner(Readiness::READABLE);
        }
        true
    }

    pub(crate) fn end_input(&mut self) {
        if self.input.state == InputState::Open {
            self.input.state = InputState::Ended;
            self.tell_owner(Readiness::READABLE.and(Readiness::READ_CLOSED));
        }
    }

    pub(crate) fn unread(&self) -> usize {
        self.input.bytes.len()
    }

    pub(crate) fn set_room(&mut self, bytes: usize) {
        self.output.room = bytes;
        if bytes > 0 && std::mem::take(&mut self.output.is_refused) {
            self.tell_owner(Readiness::WRITABLE);
        }
    }

    pub(crate) fn take(&mut self, output: &mut Vec<u8>) -> CarriedWork {
        self.has_work = false;
        output.append(&mut std::mem::take(&mut self.output.bytes));
        let is_gone = self.owner_state == OwnerState::Gone;
        let end = match self.output.state {
            _ if is_gone && self.output.resets => Some(CarriedEnd::Reset),
            _ if is_gone => Some(CarriedEnd::Gone),
            OutputState::Ended => Some(CarriedEnd::Finished),
            OutputState::Open | OutputState::Told => None,
        };
        if end.is_some() {
            self.output.state = OutputState::Told;
        }
        CarriedWork {
            read: std::mem::take(&mut self.input.read),
            end,
        }
    }

    pub(crate) fn carrier_gone(&mut self) {
        self.has_carrier = false;
        self.has_work = false;
        self.output.bytes = Vec::new();
        let has_ended = self.input.state != InputState::Open && self.has_closed_output();
        if !has_ended {
            self.input.state = InputState::Failed;
            self.input.bytes = Vec::new();
            self.tell_owner(Readiness::HANGUP);
        }
    }

    // The side of the owner.

    fn has_closed_output(&self) -> bool {
        self.output.state != OutputState::Open
    }

    pub(crate) fn register(&mut self, token: Option<Token>) {
        self.owner = token;
        self.news = Readiness::default();
        if self.output.room > 0 {
            self.tell_owner(Readiness::WRITABLE);
        }
        if !self.input.bytes.is_empty() {
            self.tell_owner(Readiness::READABLE);
        }
        match self.input.state {
            InputState::Open => {}
            InputState::Ended => {
                self.tell_owner(Readiness::READABLE.and(Readiness::READ_CLOSED));
            }
            InputState::Failed => self.tell_owner(Readiness::HANGUP),
        }
    }

    pub(crate) fn peek(&self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.input.bytes.len().min(buffer.len());
        buffer[..length].copy_from_slice(&self.input.bytes[..length]);
        match self.input.state {
            _ if length > 0 || buffer.is_empty() => Ok(length),
            InputState::Open => Err(io::ErrorKind::WouldBlock.into()),
            InputState::Ended => Ok(0),
            InputState::Failed => Err(io::ErrorKind::ConnectionReset.into()),
        }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.peek(buffer)?;
        if length == self.input.bytes.len() {
            self.input.bytes = Vec::new();
        } else {
            self.input.bytes.drain(..length);
        }
        self.input.read += length;
        self.has_work |= length > 0 && self.has_carrier;
        Ok(length)
    }

    pub(crate) fn write(&mut self, parts: &[&[u8]]) -> io::Result<usize> {
        if self.input.state == InputState::Failed || !self.has_carrier {
            return Err(io::ErrorKind::ConnectionReset.into());
        }
        if self.has_closed_output() {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        let mut written = 0;
        for part in parts {
            let length = part.len().min(self.output.room);
            self.output.bytes.extend_from_slice(&part[..length]);
            self.output.room -= length;
            written += length;
            if length < part.len() {
                self.output.is_refused = true;
                break;
            }
        }
        self.has_work |= written > 0;
        if written == 0 && self.output.is_refused {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        Ok(written)
    }

    pub(crate) fn shutdown_write(&mut self) -> io::Result<()> {
        if self.input.state == InputState::Failed {
            return Err(io::ErrorKind::NotConnected.into());
        }
        if self.output.state == OutputState::Open {
            self.output.state = OutputState::Ended;
            self.has_work = self.has_carrier;
        }
        Ok(())
    }

    pub(crate) fn reset_on_drop(&mut self) {
        self.output.resets = true;
    }

    pub(crate) fn addresses(&self) -> [Option<SocketAddr>; 2] {
        self.addresses
    }

    pub(crate) fn owner_gone(&mut self) {
        self.owner_state = OwnerState::Gone;
        self.owner = None;
        self.input.read += std::mem::take(&mut self.input.bytes).len();
        if self.output.resets {
            self.output.bytes = Vec::new();
        }
        self.has_work = self.has_carrier;
    }
}
