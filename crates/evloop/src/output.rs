//! Memory that the readers of many streams hold by not reading, and the slowest of these readers.
//!
//! A [`Stream`](crate::Stream) whose socket refuses output keeps the rest in a queue. The ledger
//! has the streams of all loops that share it, as far as they are [accounted
//! for](crate::Stream::account) and have output waiting. Bytes that were copied for one reader
//! count for it. Bytes that many readers share count once, however many have references to them.

use crate::Token;
use dwell_timers::Tick;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Bytes that queues hold, by distinct allocation, and their readers.
///
/// Shape: shared by reference by all loops; a lock is taken only for streams whose output waits.
///
/// ```
/// use dwell_evloop::{LoopOutput, OutputLedger, Reader, Stream, Token};
/// use dwell_timers::Tick;
/// use std::sync::Arc;
///
/// let ledger = Arc::new(OutputLedger::default());
/// let news = bytes::Bytes::from(vec![b'x'; 4 << 20]);
/// let output = LoopOutput::new(Arc::clone(&ledger), 0);
/// let readers = [0, 1].map(|index| Reader { of_loop: 0, token: Token::new(1, 0, index) });
/// let now = Tick::new(0);
/// let pairs = readers.map(|reader| {
///     let (ours, theirs) = mio::net::UnixStream::pair().expect("a pair of sockets");
///     let mut stream = Stream::from_unix(ours);
///     stream.write_shared(b"head", news.clone()).expect("it is open");
///     stream.account(&output, reader.token, now);
///     (stream, theirs)
/// });
/// // Both wait for the same bytes, which are there once.
/// assert_eq!(ledger.bytes(), 4 << 20);
/// assert_eq!(ledger.slowest(1 << 20, now), readers);
/// drop(pairs);
/// assert_eq!(ledger.bytes(), 0);
/// ```
#[derive(Debug, Default)]
pub struct OutputLedger {
    book: Mutex<Book>,
    /// A copy of the book's sum, to be read without the lock.
    bytes: AtomicUsize,
}

/// The ledger, for the streams of one loop.
#[derive(Clone, Debug)]
pub struct LoopOutput {
    ledger: Arc<OutputLedger>,
    of_loop: usize,
}

/// A reader that has not taken all of its output.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Reader {
    /// The loop that has the stream, by the number that the driver gives it.
    pub of_loop: usize,
    /// The name of the stream on that loop.
    pub token: Token,
}

/// Names shared bytes: where they begin, and how many they are. While anything in the book refers
/// to them, no others are there.
pub(crate) type Share = (usize, usize);

/// The place of one queue in a ledger, until it is dropped.
///
/// ```
/// use dwell_evloop::{LoopOutput, OutputLedger, Token};
/// use dwell_timers::Tick;
/// use std::sync::Arc;
///
/// // A queue in front of that of a stream: of one of many exchanges that share a socket.
/// let ledger = Arc::new(OutputLedger::default());
/// let (name, now) = (Token::new(1, 0, 0), Tick::new(0));
/// let account = LoopOutput::new(Arc::clone(&ledger), 0).open_account(name, now);
/// let news = bytes::Bytes::from(vec![b'x'; 4 << 20]);
/// account.update(100, vec![(news.as_ptr() as usize, news.len())], 0, now);
/// assert_eq!(ledger.bytes(), 100 + (4 << 20));
/// drop(account);
/// assert_eq!(ledger.bytes(), 0);
/// ```
#[derive(Debug)]
pub struct OutputAccount {
    ledger: Arc<OutputLedger>,
    place: usize,
}

#[derive(Debug, Default)]
struct Book {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    /// The number of queues that refer to shared bytes.
    shares: HashMap<Share, usize>,
    bytes: usize,
}

#[derive(Debug)]
struct Entry {
    reader: Reader,
    copied: usize,
    shares: Vec<Share>,
    pace: Pace,
    /// The tick at which it was named as one of the slowest.
    named: Option<Tick>,
}

/// The pace at which a reader takes its output.
#[derive(Debug)]
struct Pace {
    since: Tick,
    taken: u64,
    /// Bytes that were taken by then; the second is the earlier one.
    marks: [(Tick, u64); 2],
}

/// The time that a reader which was named has to be ended before it is named again. Units: ticks.
const NAMED_TICKS: u32 = 100;
/// The time for which the bytes that a reader has taken count, at least. Units: ticks.
const MARK_TICKS: u32 = 200;

impl LoopOutput {
    /// The ledger for the loop with this number.
    pub fn new(ledger: Arc<OutputLedger>, of_loop: usize) -> Self {
        Self { ledger, of_loop }
    }

    /// Opens the account of a queue, whose reader has this name on the loop.
    pub fn open_account(&self, token: Token, now: Tick) -> OutputAccount {
        self.ledger.open(self.reader(token), now)
    }

    pub(crate) fn reader(&self, token: Token) -> Reader {
        let of_loop = self.of_loop;
        Reader { of_loop, token }
    }
}

impl OutputLedger {
    /// Bytes that are held now.
    pub fn bytes(&self) -> usize {
        self.bytes.load(Relaxed)
    }

    /// Names the slowest readers without which at most `bytes_max` bytes would be held.
    ///
    /// Shape: the caller has to end them; one that is still there after a second is named again.
    /// Among equally slow readers, the one that has waited the longest is the first. A reader that
    /// shares all of its bytes with others that stay is passed over as long as possible.
    pub fn slowest(&self, bytes_max: usize, now: Tick) -> Vec<Reader> {
        let mut book = self.book();
        let named = book.slowest(bytes_max, now);
        let mut readers = Vec::with_capacity(named.len());
        for place in named {
            if let Some(Some(entry)) = book.entries.get_mut(place) {
                entry.named = Some(now);
                readers.push(entry.reader);
            }
        }
        readers
    }

    fn open(self: &Arc<Self>, reader: Reader, now: Tick) -> OutputAccount {
        let mut book = self.book();
        let entry = Entry {
            reader,
            copied: 0,
            shares: Vec::new(),
            pace: Pace::new(now),
            named: None,
        };
        let place = book.free.pop().unwrap_or(book.entries.len());
        if place == book.entries.len() {
            book.entries.push(None);
        }
        book.entries[place] = Some(entry);
        OutputAccount {
            ledger: Arc::clone(self),
            place,
        }
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OutputAccount {
    /// Notes that the queue is this reader's from now on: its connection may have become another
    /// component's.
    pub(crate) fn name(&self, reader: Reader) {
        let mut book = self.ledger.book();
        if let Some(Some(entry)) = book.entries.get_mut(self.place)
            && entry.reader != reader
        {
            (entry.reader, entry.named) = (reader, None);
        }
    }

    /// Notes what the queue holds now, and how much of it was taken since it began.
    ///
    /// Shape: shares are the addresses and sizes of bytes that others may have references to.
    /// While the account names them, the queue keeps its own.
    pub fn update(&self, copied: usize, shares: Vec<(usize, usize)>, taken: u64, now: Tick) {
        let mut book = self.ledger.book();
        book.update(self.place, copied, shares, taken, now);
        self.ledger.bytes.store(book.bytes, Relaxed);
    }
}

impl Drop for OutputAccount {
    fn drop(&mut self) {
        let mut book = self.ledger.book();
        book.close(self.place);
        self.ledger.bytes.store(book.bytes, Relaxed);
    }
}

impl Book {
    fn update(&mut self, place: usize, copied: usize, shares: Vec<Share>, taken: u64, now: Tick) {
        let Some(Some(entry)) = self.entries.get_mut(place) else {
            return;
        };
        entry.pace.note(taken, now);
        self.bytes = self.bytes + copied - std::mem::replace(&mut entry.copied, copied);
        if entry.shares == shares {
            return;
        }
        let before = std::mem::replace(&mut entry.shares, shares.clone());
        for share in shares {
            self.refer(share);
        }
        for share in before {
            self.let_go(share);
        }
    }

    fn close(&mut self, place: usize) {
        let entry = self.entries.get_mut(place).and_then(Option::take);
        let Some(Entry { copied, shares, .. }) = entry else {
            return;
        };
        self.bytes -= copied;
        for share in shares {
            self.let_go(share);
        }
        self.free.push(place);
        if self.free.len() == self.entries.len() {
            *self = Self::default();
        }
    }

    fn refer(&mut self, share: Share) {
        let count = self.shares.entry(share).or_default();
        *count += 1;
        if *count == 1 {
            self.bytes += share.1;
        }
    }

    fn let_go(&mut self, share: Share) {
        if let Some(count) = self.shares.get_mut(&share) {
            *count -= 1;
            if *count == 0 {
                self.shares.remove(&share);
                self.bytes -= share.1;
            }
        }
    }

    /// The places of the slowest readers.
    fn slowest(&self, bytes_max: usize, now: Tick) -> Vec<usize> {
        let all = self.entries.iter().enumerate();
        let open = all.filter_map(|(place, entry)| Some((place, entry.as_ref()?)));
        // Those that were named before are as good as gone.
        let mut gone = Gone::default();
        let mut left = self.bytes;
        let mut order = Vec::new();
        for (place, entry) in open {
            let is_named = |at| now_since(now, at) < NAMED_TICKS;
            if entry.named.is_some_and(is_named) {
                left -= gone.takes(entry, &self.shares);
            } else {
                order.push((
                    entry.pace.rate(now),
                    now_since(now, entry.pace.since),
                    place,
                ));
            }
        }
        order.sort_unstable_by_key(|(rate, age, place)| (*rate, std::cmp::Reverse(*age), *place));
        let mut named = Vec::new();
        for may_share in [false, true] {
            order.retain(|(_, _, place)| {
                let Some(Some(entry)) = self.entries.get(*place) else {
                    return false;
                };
                let is_enough = left <= bytes_max;
                if is_enough || !may_share && gone.would_free(entry, &self.shares) == 0 {
                    return true;
                }
                left -= gone.takes(entry, &self.shares);
                named.push(*place);
                false
            });
        }
        named
    }
}

/// The shared bytes of readers that are going to end.
#[derive(Debug, Default)]
struct Gone(HashMap<Share, usize>);

impl Gone {
    /// Counts one more. Returns how many bytes it frees.
    fn takes(&mut self, entry: &Entry, shares: &HashMap<Share, usize>) -> usize {
        let mut freed = entry.copied;
        for share in &entry.shares {
            let gone = self.0.entry(*share).or_default();
            *gone += 1;
            if shares.get(share) == Some(gone) {
                freed += share.1;
            }
        }
        freed
    }

    /// Returns how many bytes one more would free.
    fn would_free(&self, entry: &Entry, shares: &HashMap<Share, usize>) -> usize {
        let is_last = |share: &&Share| {
            let gone = self.0.get(share).copied().unwrap_or(0);
            shares.get(share).is_none_or(|count| gone + 1 >= *count)
        };
        let freed = entry.shares.iter().filter(is_last).map(|share| share.1);
        entry.copied + freed.sum::<usize>()
    }
}

impl Pace {
    fn new(now: Tick) -> Self {
        Self {
            since: now,
            taken: 0,
            marks: [(now, 0); 2],
        }
    }

    fn note(&mut self, taken: u64, now: Tick) {
        self.taken = taken;
        if now_since(now, self.marks[0].0) >= MARK_TICKS {
            self.marks = [(now, taken), self.marks[0]];
        }
    }

    /// Bytes that were lately taken in a thousand ticks.
    fn rate(&self, now: Tick) -> u64 {
        let is_old = now_since(now, self.marks[0].0) >= MARK_TICKS;
        let (from, taken) = self.marks[usize::from(!is_old)];
        (self.taken - taken) * 1000 / u64::from(now_since(now, from).max(1))
    }
}

/// Ticks from `then` to `now`.
fn now_since(now: Tick, then: Tick) -> u32 {
    if then.is_due(now) {
        now.ticks_since(then)
    } else {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Room {
        ledger: Arc<OutputLedger>,
        accounts: Vec<OutputAccount>,
    }

    const KIB: usize = 1024;

    impl Room {
        fn new() -> Self {
            Self {
                ledger: Arc::default(),
                accounts: Vec::new(),
            }
        }

        fn enter(&mut self, now: u32, copied: usize, shares: &[Share]) -> usize {
            let index = self.accounts.len();
            let token = Token::new(1, 0, index as u32);
            let account = self
                .ledger
                .open(Reader { of_loop: 0, token }, Tick::new(now));
            account.update(copied, shares.to_vec(), 0, Tick::new(now));
            self.accounts.push(account);
            index
        }

        fn slowest(&self, bytes_max: usize, now: u32) -> Vec<u32> {
            let named = self.ledger.slowest(bytes_max, Tick::new(now));
            named.iter().map(|reader| reader.token.index()).collect()
        }
    }

    #[test]
    fn shared_bytes_count_once_and_copies_count_each() {
        let mut room = Room::new();
        let (one, other) = ((100, 8 * KIB), (20_000, 4 * KIB));
        room.enter(0, KIB, &[one]);
        room.enter(0, KIB, &[one, other]);
        assert_eq!(room.ledger.bytes(), 14 * KIB);
        room.accounts[1].update(0, vec![other], 10, Tick::new(1));
        assert_eq!(room.ledger.bytes(), 13 * KIB);
        room.accounts.remove(0);
        assert_eq!(room.ledger.bytes(), 4 * KIB);
        room.accounts.clear();
        assert_eq!(room.ledger.bytes(), 0);
        assert!(room.ledger.book().entries.is_empty());
    }

    #[test]
    fn a_queue_is_named_by_the_component_that_has_it_now() {
        let ledger = Arc::new(OutputLedger::default());
        let (ours, _theirs) = mio::net::UnixStream::pair().unwrap();
        let mut stream = crate::Stream::from_unix(ours);
        let news = bytes::Bytes::from(vec![b'x'; 4 << 20]);
        stream.write_shared(b"head", news).unwrap();
        // A handshake was answered, and what was queued is a WebSocket's.
        let (before, after) = (Token::new(1, 0, 0), Token::new(2, 0, 0));
        let output = LoopOutput::new(Arc::clone(&ledger), 0);
        stream.account(&output, before, Tick::new(0));
        assert_eq!(ledger.slowest(0, Tick::new(0)), [output.reader(before)]);
        stream.account(&output, after, Tick::new(1));
        assert_eq!(ledger.slowest(0, Tick::new(1)), [output.reader(after)]);
    }

    #[test]
    fn who_takes_least_goes_first_and_who_has_waited_longest_among_equals() {
        let mut room = Room::new();
        for now in [0, 50, 10] {
            room.enter(now, 100 * KIB, &[]);
        }
        // It has begun first and is the only one that reads.
        room.accounts[0].update(90 * KIB, Vec::new(), 10_000, Tick::new(100));
        assert_eq!(room.slowest(290 * KIB, 100), []);
        assert_eq!(room.slowest(200 * KIB, 100), [2]);
        // A reader that was named is as good as gone, and counts no more, for a while.
        assert_eq!(room.slowest(200 * KIB, 100), []);
        assert_eq!(room.slowest(0, 100), [1, 0]);
        assert_eq!(room.slowest(200 * KIB, 250), [2]);
    }

    #[test]
    fn a_reader_that_was_fast_once_and_has_stopped_is_slow() {
        let mut room = Room::new();
        let (fast, steady) = (room.enter(0, KIB, &[]), room.enter(0, KIB, &[]));
        for second in 1..=20 {
            let now = Tick::new(100 * second);
            let taken = if second <= 5 { 1_000_000 } else { 0 };
            if taken > 0 {
                room.accounts[fast].update(KIB, Vec::new(), taken, now);
            }
            room.accounts[steady].update(KIB, Vec::new(), u64::from(second) * 500, now);
        }
        assert_eq!(room.slowest(KIB, 2_000), [fast as u32]);
    }

    #[test]
    fn who_shares_all_with_others_is_passed_over() {
        let mut room = Room::new();
        let shared = (100, 100 * KIB);
        for now in 0..10 {
            room.enter(now, 0, &[shared]);
        }
        let alone = room.enter(20, 100 * KIB, &[]);
        assert_eq!(room.slowest(100 * KIB, 100), [alone as u32]);
        // Only when nothing else helps.
        assert_eq!(room.slowest(50 * KIB, 100).len(), 10);
    }
}
