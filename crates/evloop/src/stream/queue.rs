//! The output that a socket has not taken yet.

use super::file::FileSlice;
use super::socket::{PARTS_PER_WRITE, Socket};
use crate::Token;
use crate::output::{Account, LoopOutput, Share};
use bytes::{Buf, Bytes, BytesMut};
use dwell_timers::Tick;
use std::collections::VecDeque;
use std::io;

/// Bytes and parts of files, in the order of their writing.
#[derive(Debug, Default)]
pub(super) struct Queue {
    segments: VecDeque<Segment>,
    /// Bytes in memory, of all segments.
    bytes: usize,
    /// Bytes in files, of all segments.
    file_bytes: u64,
    /// The last write was not taken whole, so readiness follows when more can be written.
    refused: bool,
    /// Bytes that the socket has taken of it, those of files among them.
    taken: u64,
    /// The number taken when enough of them had been taken last.
    enough: u64,
    /// The account of the queue.
    account: Option<Account>,
}

#[derive(Debug)]
enum Segment {
    /// The second names all of the bytes, of which these are the rest.
    Shared(Bytes, Share),
    /// Copies of what was written in pieces, put together.
    Gathered(BytesMut),
    File(FileSlice),
}

/// Bytes of files that one call sends: so much keeps a loop from its other connections for about
/// a tenth of a millisecond.
pub(super) const FILE_BYTES_PER_FLUSH: u64 = 1024 * 1024;

/// Copies are gathered up to this size, so that many small ones cost no more than their bytes.
const GATHERED_BYTES_MAX: usize = 16 * 1024;

/// Shared bytes up to this size are copied: a reference takes as much room.
const COPIED_BYTES_MAX: usize = 128;

/// Shared bytes below this size count for each reader that refers to them: an entry for them would
/// take as much memory.
const SHARE_BYTES_MIN: usize = 4 * 1024;

impl Queue {
    /// Queues a copy.
    pub(super) fn push_copy(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        self.bytes += bytes.len();
        match self.segments.back_mut() {
            Some(Segment::Gathered(gathered))
                if gathered.len() + bytes.len() <= GATHERED_BYTES_MAX =>
            {
                gathered.extend_from_slice(bytes);
            }
            _ => self.segments.push_back(Segment::Gathered(bytes.into())),
        }
    }

    /// Queues a reference, where that is less than a copy.
    pub(super) fn push_shared(&mut self, bytes: Bytes, whole: Share) {
        if bytes.len() <= COPIED_BYTES_MAX {
            self.push_copy(&bytes);
        } else {
            self.bytes += bytes.len();
            self.segments.push_back(Segment::Shared(bytes, whole));
        }
    }

    /// Returns true if the socket has taken at least so many bytes since this was last true.
    pub(super) fn has_taken(&mut self, bytes_min: u64) -> bool {
        let is_enough = self.taken - self.enough >= bytes_min.max(1);
        if is_enough {
            self.enough = self.taken;
        }
        is_enough
    }

    /// Notes in a ledger what it holds now.
    pub(super) fn account(&mut self, output: &LoopOutput, token: Token, now: Tick) {
        let mut shares = Vec::new();
        let mut copied = 0;
        for segment in &self.segments {
            match segment {
                Segment::Shared(_, whole) if whole.1 >= SHARE_BYTES_MIN => shares.push(*whole),
                Segment::Shared(bytes, _) => copied += bytes.len(),
                Segment::Gathered(bytes) => copied += bytes.capacity(),
                Segment::File(_) => {}
            }
        }
        let account = self.account.get_or_insert_with(|| output.open(token, now));
        account.update(copied, shares, self.taken, now);
    }

    pub(super) fn push_file(&mut self, slice: FileSlice) {
        if slice.length > 0 {
            self.file_bytes += slice.length;
            self.segments.push_back(Segment::File(slice));
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty()
    }

    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn file_bytes(&self) -> u64 {
        self.file_bytes
    }

    /// Returns the number of its pieces.
    #[cfg(test)]
    pub(super) fn segments(&self) -> usize {
        self.segments.len()
    }

    pub(super) fn is_refused(&self) -> bool {
        self.refused
    }

    pub(super) fn set_refused(&mut self) {
        self.refused = true;
    }

    /// Writes until nothing is left, the socket refuses, or the share of files is used up.
    pub(super) fn flush(&mut self, socket: &Socket) -> io::Result<()> {
        self.refused = false;
        let mut file_bytes_left = FILE_BYTES_PER_FLUSH;
        while let Some(front) = self.segments.front_mut() {
            if let Segment::File(slice) = front {
                if file_bytes_left == 0 {
                    return Ok(());
                }
                let sent = slice.send(socket, file_bytes_left)?;
                self.refused = sent == 0;
                file_bytes_left -= sent;
                self.file_bytes -= sent;
                self.taken += sent;
                slice.advance(sent);
                if slice.length == 0 {
                    self.segments.pop_front();
                }
            } else {
                self.flush_bytes(socket)?;
            }
            if self.refused {
                return Ok(());
            }
        }
        Ok(())
    }

    /// One write of the bytes at the front, up to the first file.
    fn flush_bytes(&mut self, socket: &Socket) -> io::Result<()> {
        let mut parts: [&[u8]; PARTS_PER_WRITE] = [&[]; PARTS_PER_WRITE];
        let (mut count, mut offered, mut more) = (0, 0, false);
        for segment in &self.segments {
            let bytes: &[u8] = match segment {
                Segment::Shared(bytes, _) => bytes,
                Segment::Gathered(bytes) => bytes,
                Segment::File(_) => {
                    more = true;
                    break;
                }
            };
            if count == PARTS_PER_WRITE {
                break;
            }
            parts[count] = bytes;
            count += 1;
            offered += bytes.len();
        }
        let written = socket.write_parts(&parts[..count], more)?;
        self.advance(written);
        self.refused = written < offered;
        Ok(())
    }

    /// Forgets the first `written` bytes, all of them in memory.
    fn advance(&mut self, mut written: usize) {
        self.bytes -= written;
        self.taken += written as u64;
        while let Some(front) = self.segments.front_mut() {
            let front: &mut dyn Buf = match front {
                Segment::Shared(bytes, _) => bytes,
                Segment::Gathered(bytes) => bytes,
                Segment::File(_) => return,
            };
            if written < front.remaining() {
                front.advance(written);
                return;
            }
            written -= front.remaining();
            self.segments.pop_front();
        }
    }
}
